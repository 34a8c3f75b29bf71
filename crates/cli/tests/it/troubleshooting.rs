//! The messages of `docs/troubleshooting.md`: the program contains each of them.

use std::path::Path;

const PAGE: &str = include_str!("../../../../docs/troubleshooting.md");

/// What is in backticks in the first column of tables whose first heading is `message`.
fn messages() -> Vec<&'static str> {
    let (mut found, mut inside) = (Vec::new(), false);
    for line in PAGE.lines() {
        match line.strip_prefix("| ").and_then(|row| row.split_once(" |")) {
            None => inside &= line.starts_with('|'),
            Some(("message", _)) => inside = true,
            Some((first, _)) if inside => {
                found.extend(first.strip_prefix('`').and_then(|m| m.strip_suffix('`')));
            }
            Some(_) => {}
        }
    }
    found
}

/// Adds the source files below `directory`, with string literals on one line.
fn read(directory: &Path, text: &mut String) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, text);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let mut lines = std::fs::read_to_string(&path).unwrap();
            lines.push('\n');
            let mut pieces = lines.split("\\\n");
            text.push_str(pieces.next().unwrap_or_default());
            pieces.for_each(|piece| text.push_str(piece.trim_start()));
        }
    }
}

#[test]
fn messages_of_the_page_are_in_the_program() {
    let mut text = String::new();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap() {
        let sources = entry.unwrap().path().join("src");
        if sources.is_dir() {
            read(&sources, &mut text);
        }
    }
    let text = text.replace("\\\"", "\"");
    let messages = messages();
    assert!(messages.len() >= 50, "{} messages", messages.len());
    let unknown: Vec<&str> = messages
        .into_iter()
        .filter(|message| !message.split('…').map(str::trim).all(|part| text.contains(part)))
        .collect();
    assert!(unknown.is_empty(), "no source file contains:\n{}", unknown.join("\n"));
}
