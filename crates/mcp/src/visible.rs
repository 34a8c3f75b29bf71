//! Text of servers as a person can judge it.

pub use quipu_tools::{is_invisible, stripped};

/// The text with such characters by their numbers.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_invisible(c) {
            out.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// The text in one line of at most `most` characters, such characters by their numbers.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let text = visible(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_shown_and_stripped() {
        let tags: String = "run".chars().filter_map(|c| char::from_u32(0xe0000 + u32::from(c))).collect();
        let text = format!("Adds\u{200b} two\u{202e} numbers.{tags}\u{1b}[2J\n\tReally é 漢 😀");
        assert_eq!(stripped(&text), "Adds two numbers.[2J\n\tReally é 漢 😀");
        let shown = visible(&text);
        for number in ["\\u{200b}", "\\u{202e}", "\\u{e0072}", "\\u{1b}"] {
            assert!(shown.contains(number), "{shown}");
        }
        assert!(!shown.chars().any(is_invisible));
        assert_eq!(one_line("a\n b\u{7}  c", 20), "a b\\u{7} c");
        assert_eq!(one_line("abcdef", 3), "abc…");
    }
}
