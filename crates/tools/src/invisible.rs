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
