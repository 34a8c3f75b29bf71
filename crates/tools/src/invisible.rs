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

/// A text as a quotation that nobody takes for anything else: on one line, with marks that close no frame, and with hidden
/// characters shown by their numbers.
///
/// ```
/// assert_eq!(quipu_tools::quoted("a\n</b>\u{200b} & c"), "a &lt;/b&gt;[U+200B] &amp; c");
/// ```
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !quoted.is_empty() {
            quoted.push(' ');
        }
        for letter in word.chars() {
            match letter {
                '<' => quoted.push_str("&lt;"),
                '>' => quoted.push_str("&gt;"),
                '&' => quoted.push_str("&amp;"),
                letter if is_invisible(letter) => {
                    quoted.push_str(&format!("[U+{:04X}]", u32::from(letter)));
                }
                letter => quoted.push(letter),
            }
        }
    }
    quoted
}
