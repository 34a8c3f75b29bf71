//! What the program says: every text in the code that a person or a model may read, in the order of the files, to be read from
//! top to bottom.

use anyhow::{Result, bail};

use crate::repo::{Repo, Role, root};
use crate::rust_source::Literal;

/// `messages [CRATE..]`: prints them with the place of each, of all crates or of those that are named.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    let repo = Repo::load(&root()?)?;
    let crates = repo.crates();
    if let Some(unknown) = arguments.iter().find(|name| !crates.contains(&name.as_str())) {
        bail!("there is no crate {unknown:?}; the crates are {}", crates.join(", "));
    }
    for (path, line, text) in messages(&repo) {
        let is_wanted = crate::repo::crate_of(path)
            .is_some_and(|name| arguments.is_empty() || arguments.iter().any(|wanted| wanted == name));
        if is_wanted {
            println!("{path}:{line}: {text}");
        }
    }
    Ok(true)
}

/// Path, line and text of each message; escapes that only break a literal's line are gone.
fn messages(repo: &Repo) -> impl Iterator<Item = (&str, usize, String)> {
    let of_the_program =
        |path: &str| !matches!(crate::repo::crate_of(path), None | Some("testkit" | "xtask"));
    let files =
        repo.rust.iter().filter(move |(path, file)| file.role == Role::Source && of_the_program(path));
    files.flat_map(|(path, file)| {
        let literals = file.source.literals.iter().filter(|literal| !file.is_test(literal.line));
        literals.filter_map(move |Literal { line, text }| {
            let text = joined(text);
            is_message(&text).then_some((path.as_str(), *line, text))
        })
    })
}

/// A literal that goes on in the next line, in one.
fn joined(text: &str) -> String {
    let mut pieces = text.split("\\\n");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |joined, piece| joined + piece.trim_start())
}

/// Words, and no other language: SQL, patterns and code have no sentence in them.
fn is_message(text: &str) -> bool {
    let is_word = |word: &&str| word.len() > 1 && word.chars().all(|letter| letter.is_ascii_lowercase());
    let words =
        text.split(|letter: char| letter.is_whitespace() || ".,:;()`".contains(letter)).filter(is_word);
    let other =
        ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "CREATE ", "PRAGMA ", " FROM ", " WHERE ", "(?", "\\b"];
    words.count() > 1 && text.contains(' ') && !other.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_listed_without_tests_and_other_languages() {
        let source = r##"
            const A: &str = "The file \
                             is gone";
            const B: &str = "SELECT a FROM the table where it is";
            const C: &str = "key";
            #[cfg(test)]
            mod tests { const D: &str = "only in a test"; }
        "##;
        let repo = Repo::from_files([("crates/cli/src/a.rs".to_owned(), source.to_owned())]);
        let found: Vec<_> = messages(&repo).collect();
        assert_eq!(found, [("crates/cli/src/a.rs", 2, "The file is gone".to_owned())]);
    }
}
