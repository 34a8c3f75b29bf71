//! The extension as it is installed.

/// The name of the extension's file.
pub const EXTENSION_FILE: &str = "quipu.ts";

/// The extension, with a place for the command.
const SOURCE: &str = include_str!("../extension/quipu.ts");
/// What stands there for the command.
const PLACE: &str = "[\"quipu\", \"pi-helper\"]";

/// The extension's source. `command` is the helper's command line: the program and its arguments, such as
/// `["/usr/local/bin/quipu", "pi-helper"]`. It is written into the source as a JavaScript array.
///
/// ```
/// let source = quipu_pi_extension::extension_source(&["/opt/quipu", "pi-helper", "--store", "my.db"]);
/// assert!(source.contains(r#"["/opt/quipu","pi-helper","--store","my.db"]"#));
/// ```
pub fn extension_source<S: AsRef<str>>(command: &[S]) -> String {
    let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
    let words = serde_json::Value::from(words).to_string();
    // Line separators are no part of a string in older JavaScript.
    let words = words.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    SOURCE.replacen(PLACE, &words, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_has_one_place_for_the_command() {
        assert_eq!(SOURCE.matches(PLACE).count(), 1);
        let source = extension_source(&["a \"b\"\\", "pi-helper"]);
        assert!(source.contains(r#"["a \"b\"\\","pi-helper"]"#), "{source}");
        assert!(!source.contains(PLACE));
    }
}
