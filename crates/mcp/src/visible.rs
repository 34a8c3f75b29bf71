//! Characters that a person does not see and a model does.

/// Whether a person sees nothing of a character, or it changes how others are shown: controls other than line feed and tab,
/// zero-width characters, marks of direction, tags, variation selectors of the supplement.
pub fn is_invisible(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        c if c.is_control() => true,
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        _ => false,
    }
}

/// The text without such characters.
pub fn stripped(text: &str) -> String {
    text.chars().filter(|c| !is_invisible(*c)).collect()
}

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
