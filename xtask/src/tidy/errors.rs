//! Errors that a caller of a library meets are types: a text in their place leaves nothing to branch on.

use super::Finding;
use crate::repo::{Repo, Role, crate_of};
use crate::rust_source::has_word;

/// Programs of their own, which nobody calls.
const PROGRAMS: &[&str] = &["cli", "xtask"];

pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in &repo.rust {
        let library = crate_of(path).is_some_and(|room| !PROGRAMS.contains(&room));
        if !library || file.role != Role::Source {
            continue;
        }
        for (line, error) in text_errors(&file.source.code) {
            if !file.is_test(line) {
                findings.push(Finding::fault(
                    path,
                    line,
                    format!("a public signature has {error} as its error; make it an enum"),
                ));
            }
        }
    }
    findings
}

/// A `{`, and what stood before it since the item or statement began.
struct Scope<'a> {
    head: &'a str,
}

/// Lines of public signatures with a `Result` whose error is text, with that text.
fn text_errors(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut scopes: Vec<Scope<'_>> = Vec::new();
    let (mut start, mut nested, mut line) = (0, 0_usize, 1);
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'\n' => line += 1,
            // The `;` of an array's length ends nothing, nor does a comma between parameters.
            b'(' | b'[' => nested += 1,
            b')' | b']' => nested = nested.saturating_sub(1),
            b'{' => {
                scopes.push(Scope { head: &code[start..at] });
                (start, nested) = (at + 1, 0);
            }
            b'}' => {
                scopes.pop();
                (start, nested) = (at + 1, 0);
            }
            b';' if nested == 0 => start = at + 1,
            b'R' if code[at..].starts_with("Result<") && !ends_with_word(&code[..at]) => {
                if let Some(error) = error_of(&code[at + "Result".len()..])
                    && is_text(error)
                    && is_public(&scopes, &code[start..at])
                {
                    found.push((line, error));
                }
            }
            _ => {}
        }
    }
    found
}

fn ends_with_word(text: &str) -> bool {
    text.ends_with(|last: char| last.is_alphanumeric() || last == '_')
}

/// The last of two generic arguments that begin at `<`.
fn error_of(text: &str) -> Option<&str> {
    let (mut depth, mut comma) = (0_usize, None);
    let bytes = text.as_bytes();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' => depth += 1,
            b'>' if bytes[at - 1] == b'-' => {}
            b'>' | b')' | b']' => {
                depth -= 1;
                if depth == 0 {
                    let last = text[comma? + 1..at].trim().trim_end_matches(',').trim_end();
                    return Some(last);
                }
            }
            b',' if depth == 1 && !text[at + 1..].trim_start().starts_with('>') => comma = Some(at),
            b'{' | b'}' | b';' if depth == 1 => return None,
            _ => {}
        }
    }
    None
}

fn is_text(error: &str) -> bool {
    let plain = error.trim_start_matches('&').trim_start();
    let plain = match plain.strip_prefix('\'') {
        Some(lifetime) => lifetime.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start(),
        None => plain,
    };
    let plain = plain.rsplit("::").next().unwrap_or(plain);
    ["String", "str", "Box<str>", "Arc<str>", "Rc<str>"].contains(&plain) || plain.starts_with("Cow<")
}

/// Whether what stands behind `prefix` can be seen from outside of its crate. `unreachable_pub` sees to it that
/// `pub` means that.
fn is_public(scopes: &[Scope<'_>], prefix: &str) -> bool {
    // Only what has no body around it: a function's own types are its own.
    if scopes.iter().any(|scope| {
        !["mod", "impl", "trait", "struct", "enum", "union"].iter().any(|word| begins(scope.head, word))
            && !is_variant(scope.head)
    }) {
        return false;
    }
    let own = |text: &str| has_word(text, "pub") && !text.contains("pub(");
    match scopes.iter().rev().find(|scope| !is_variant(scope.head)) {
        Some(scope) if begins(scope.head, "trait") || begins(scope.head, "enum") => own(scope.head),
        // A trait's own signature is found where the trait is.
        Some(scope) if begins(scope.head, "impl") && has_word(scope.head, "for") => false,
        Some(scope) if begins(scope.head, "struct") || begins(scope.head, "union") => own(field(prefix)),
        // An alias is seen through, whoever may name it.
        _ if begins(prefix, "type") => true,
        _ if begins(prefix, "fn") => own(&prefix[..prefix.find("fn").unwrap_or(0)]),
        _ => own(prefix),
    }
}

/// The field that `prefix` ends in: what follows the last comma that is not within brackets.
fn field(prefix: &str) -> &str {
    let (mut depth, mut start) = (0_usize, 0);
    for (at, byte) in prefix.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' => depth += 1,
            b'>' | b')' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => start = at + 1,
            _ => {}
        }
    }
    &prefix[start..]
}

fn begins(head: &str, word: &str) -> bool {
    let mut words = head.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|each| each == word)
}

/// `Name {` within an enum: one name, perhaps behind others and their commas.
fn is_variant(head: &str) -> bool {
    let name = field(head).trim().rsplit(|c: char| c.is_whitespace() || c == ']').next().unwrap_or_default();
    let only = field(head).trim().trim_end_matches(name).trim_end();
    name.starts_with(|c: char| c.is_uppercase())
        && name.chars().all(char::is_alphanumeric)
        && (only.is_empty() || only.ends_with(']'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::expect;

    fn check_code(code: &str, wanted: &[&str]) {
        let found = text_errors(code);
        let found: Vec<String> = found.iter().map(|(line, error)| format!("{line} {error}")).collect();
        assert_eq!(found, wanted, "{code}");
    }

    #[test]
    fn text_as_an_error_of_a_public_item_is_found() {
        for (code, wanted) in [
            ("pub fn a() -> Result<(), String> {}", "1 String"),
            (
                "pub async fn a<T>(x: [u8; 2], y: T)\n-> std::result::Result<\n  Vec<(T, u8)>,\n  &'static str,\n> {}",
                "2 &'static str",
            ),
            ("pub fn a(then: impl Fn(&str) -> Result<Box<dyn Fn() -> u8>, String>) {}", "1 String"),
            ("pub fn a(then: F) where F: Fn() -> Result<(), &str> {}", "1 &str"),
            ("pub type A<T> = Box<dyn Future<Output = Result<T, String>>>;", "1 String"),
            ("type A<T> = Result<T, String>;", "1 String"),
            (
                "pub trait A {\n fn a();\n fn b(&self) -> Result<(), std::string::String>;\n}",
                "3 std::string::String",
            ),
            (
                "pub struct A {\n x: Result<(), String>,\n pub y: Result<(), Cow<'static, str>>,\n}",
                "3 Cow<'static, str>",
            ),
            ("pub struct A(pub Result<(), Box<str>>);", "1 Box<str>"),
            ("pub enum A {\n B,\n C(Result<(), String>),\n}", "3 String"),
            ("pub enum A {\n B { x: u8 },\n #[cfg(unix)]\n C { result: Result<(), String> },\n}", "4 String"),
            ("impl<T> A<T> {\n pub fn a() -> io::Result<Result<(), String>> {}\n}", "2 String"),
            ("pub mod a { pub const fn b() -> Result<(), &'static str> { Ok(()) } }", "1 &'static str"),
        ] {
            check_code(code, &[wanted]);
        }
    }

    #[test]
    fn other_errors_and_private_items_pass() {
        for code in [
            "pub fn a() -> Result<String, AError> {}",
            "pub fn a() -> io::Result<String> {}",
            "pub fn a() -> Result<HashMap<NodeId, String>, StoreError> {}",
            "pub fn a() -> MyResult<(), String> {}",
            "fn a() -> Result<(), String> {}",
            "pub(crate) fn a() -> Result<(), String> {}",
            "pub struct A { x: Result<(), String>, pub y: u8 }",
            "pub(super) enum A { B(Result<(), String>) }",
            "trait A { fn a() -> Result<(), String>; }",
            "impl FromStr for A { fn a() -> Result<(), String> {} }",
            "pub fn a() { let x: Result<(), String> = b(); let y = |z: Result<(), String>| z; }",
            "pub fn a(x: u8) -> u8 { match x { B { y } => { let z: Result<(), String> = y; } } }",
            "static CELL: OnceLock<Result<u8, String>> = OnceLock::new();",
        ] {
            check_code(code, &[]);
        }
    }

    #[test]
    fn programs_and_tests_may_have_text_for_errors() {
        let code = "pub fn a() -> Result<(), String> {}\n#[cfg(test)]\nmod tests {\n pub fn b() -> Result<(), String> {}\n}\n";
        expect(
            check,
            &[
                ("crates/a/src/lib.rs", code),
                ("crates/cli/src/lib.rs", code),
                ("crates/a/tests/it/main.rs", code),
            ],
            &["crates/a/src/lib.rs:1: a public signature has String as its error; make it an enum"],
        );
    }
}
