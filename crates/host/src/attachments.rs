//! Images that a prompt names by `@path`.

use std::path::{Path, PathBuf};

use quipu_protocol::{Content, UserInput};
use quipu_tools::image_blocks;

use crate::bounded_file::{self, BoundedReadError};

/// Images of one prompt at most.
const IMAGES: usize = 8;
/// Bytes of an image file at most.
const FILE: u64 = 16 << 20;
/// Characters of a prompt in which paths are looked for.
const TEXT: usize = 64 << 10;
/// How the names of image files end.
const ENDINGS: [&str; 6] = [".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp"];

/// Whether a path is named like an image.
fn is_image_name(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    ENDINGS.iter().any(|ending| path.ends_with(ending))
}

/// Adds the images that a prompt names by `@path` or `@"path"`, made fit as the tool `read` does. A path is relative to the
/// directory; `~/` is the home directory. What is no image, or no file, stays text. A prompt with images stays as it is, and so does
/// one that nobody typed.
#[must_use]
pub fn with_images(mut input: UserInput, directory: &Path) -> UserInput {
    if !input.provenance.is_default() || input.content.iter().any(|block| matches!(block, Content::Image(_)))
    {
        return input;
    }
    let text = input.text();
    if text.len() > TEXT {
        return input;
    }
    let mut seen: Vec<PathBuf> = Vec::new();
    for name in image_names(&text) {
        let path = match (name.strip_prefix("~/"), std::env::home_dir()) {
            (Some(below), Some(home)) => home.join(below),
            _ => directory.join(name),
        };
        if seen.contains(&path) {
            continue;
        }
        let Some(blocks) = blocks(&path) else { continue };
        if seen.len() == IMAGES {
            input.content.push(Content::text(format!(
                "[The images after the first {IMAGES} are left out: a prompt may have {IMAGES}.]"
            )));
            break;
        }
        seen.push(path);
        input.content.extend(blocks);
    }
    input
}

/// The image of a file, or why it is left out; `None` for what is no image.
fn blocks(path: &Path) -> Option<Vec<Content>> {
    match bounded_file::read(path, FILE) {
        Ok(bytes) => image_blocks(&bytes),
        Err(BoundedReadError::TooLarge) => {
            let text = format!("[Image omitted: {} is larger than {} MiB.]", path.display(), FILE >> 20);
            Some(vec![Content::text(text)])
        }
        Err(BoundedReadError::Open(_) | BoundedReadError::Read(_)) => None,
    }
}

/// What stands behind `@` at the beginning of a word and is named like an image.
fn image_names(text: &str) -> impl Iterator<Item = &str> {
    let begins = move |at: usize| {
        text[..at].chars().next_back().is_none_or(|before| before.is_whitespace() || before == '(')
    };
    text.match_indices('@').filter(move |(at, _)| begins(*at)).filter_map(move |(at, _)| {
        let rest = &text[at + 1..];
        let name = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split(['"', '\n']).next()?,
            None => {
                rest.split(char::is_whitespace).next()?.trim_end_matches(['.', ',', ';', ':', '!', '?', ')'])
            }
        };
        is_image_name(name).then_some(name)
    })
}

/// A pasted text as a mention, where it is nothing but the path of an image, as terminals paste a file that is dropped on
/// them: absolute, with quotes or backslashes around what a shell would part.
#[must_use]
pub fn pasted_image(text: &str) -> Option<String> {
    let text = text.trim();
    if text.len() > 4_096 || text.contains(['\n', '\r']) {
        return None;
    }
    let path = match text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        Some(quoted) => quoted.to_owned(),
        None => match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(quoted) => quoted.to_owned(),
            None => {
                let mut escaped = false;
                let is_plain = |character: &char| {
                    let mark = *character == '\\' && !escaped;
                    escaped = mark;
                    !mark
                };
                text.chars().filter(is_plain).collect()
            }
        },
    };
    let is_path = path.starts_with('/') || path.starts_with("~/");
    (is_path && is_image_name(&path) && !path.contains('"')).then(|| mention(&path))
}

/// A path as a prompt mentions it.
#[must_use]
pub fn mention(path: &str) -> String {
    if path.contains(char::is_whitespace) { format!("@\"{path}\"") } else { format!("@{path}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_named_by_at_and_a_path() {
        for (text, names) in [
            ("see @a.png, and @\"b c.JPG\" (@d/e.webp)", &["a.png", "b c.JPG", "d/e.webp"][..]),
            ("mail me@x.png or @a.txt or a.png", &[]),
            ("@\"open.png", &["open.png"]),
        ] {
            assert_eq!(image_names(text).collect::<Vec<_>>(), names, "{text}");
        }
        for (text, wanted) in [
            ("/tmp/a.png ", Some("@/tmp/a.png")),
            ("'/tmp/a b.png'", Some("@\"/tmp/a b.png\"")),
            ("/tmp/a\\ b.png", Some("@\"/tmp/a b.png\"")),
            ("~/a.gif", Some("@~/a.gif")),
            ("a.png", None),
            ("/tmp/a.png\n/tmp/b.png", None),
            ("/tmp/a.txt", None),
        ] {
            assert_eq!(pasted_image(text).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn images_of_a_prompt_are_read_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        // One pixel.
        let gif = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;";
        let names: Vec<String> = (0..IMAGES + 1).map(|n| format!("@{n}.gif")).collect();
        for name in &names {
            std::fs::write(dir.path().join(&name[1..]), gif).unwrap();
        }
        std::fs::write(dir.path().join("text.png"), "no image").unwrap();
        std::fs::File::create(dir.path().join("large.png")).unwrap().set_len(FILE + 1).unwrap();
        let count = |input: &UserInput| {
            input.content.iter().filter(|block| matches!(block, Content::Image(_))).count()
        };
        let all = with_images(names.join(" ").into(), dir.path());
        assert_eq!(count(&all), IMAGES);
        assert!(all.text().contains("images after the first 8 are left out"), "{}", all.text());
        let twice = with_images("@0.gif @0.gif @text.png @none.png".into(), dir.path());
        assert_eq!((count(&twice), twice.content.len()), (1, 2));
        assert_eq!(with_images(twice.clone(), dir.path()), twice);
        let large = with_images("@large.png".into(), dir.path());
        assert!(large.text().contains("larger than 16 MiB"), "{}", large.text());
    }
}
