//! Text of others made safe to show: what a terminal would obey, or a reader would not see, is shown escaped.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Columns from one tab stop to the next.
const TAB: usize = 4;

/// Makes text of a model, a file or a program safe to show. Line feeds stay, as the only control characters that do.
///
/// - A tab becomes spaces up to the next column of the line that is a multiple of four.
/// - CR LF becomes LF.
/// - Control characters become their pictures (`␛` for Escape), those from U+0080 to U+009F `\u{9b}`.
/// - So do characters that change the order of others (bidirectional controls) and those that are never seen: zero
///   width spaces, byte order marks, tags. Joiners stay beside what they join, for emoji and scripts need them.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    let Some(first) = text.char_indices().find(|(_, character)| wants_care(*character)) else {
        return Cow::Borrowed(text);
    };
    let mut shown = String::with_capacity(text.len() + 16);
    shown.push_str(&text[..first.0]);
    // Where the line begins whose tabs are counted.
    let mut line = shown.rfind('\n').map_or(0, |at| at + 1);
    let mut rest = text[first.0..].chars().peekable();
    let mut before = text[..first.0].chars().next_back();
    while let Some(character) = rest.next() {
        match character {
            '\n' => {
                shown.push('\n');
                line = shown.len();
            }
            '\r' if rest.peek() == Some(&'\n') => {}
            '\t' => {
                let column = crate::width(&shown[line..]);
                shown.extend(std::iter::repeat_n(' ', TAB - column % TAB));
                // A tab stop again: nothing before it needs to be counted twice.
                line = shown.len();
            }
            '\0'..='\u{1f}' => shown.extend(char::from_u32(0x2400 + u32::from(character))),
            '\u{7f}' => shown.push('\u{2421}'),
            '\u{200c}' | '\u{200d}'
                if joins(before) && rest.peek().is_some_and(|next| joins(Some(*next))) =>
            {
                shown.push(character);
            }
            other if wants_care(other) => escape(&mut shown, other),
            other => shown.push(other),
        }
        before = Some(character);
    }
    Cow::Owned(shown)
}

fn escape(shown: &mut String, character: char) {
    // Writing to a string cannot fail.
    let _written = write!(shown, "\\u{{{:x}}}", u32::from(character));
}

/// Whether a joiner may stand beside it: not at an end of the text, not beside ASCII or a space.
fn joins(character: Option<char>) -> bool {
    character.is_some_and(|character| {
        !character.is_ascii() && !character.is_whitespace() && (!wants_care(character))
    })
}

fn wants_care(character: char) -> bool {
    match character {
        '\n' | ' '..='~' => false,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => true,
        // Soft hyphen, Arabic letter mark, Hangul fillers, Mongolian vowel separator.
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{ffa0}' => true,
        // Zero width space, joiners, marks and embeddings; line and paragraph separators.
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        // Word joiner, invisible operators, isolates, deprecated format characters.
        '\u{2060}'..='\u{206f}' => true,
        // Byte order mark, interlinear annotations, musical and shorthand formats, tags.
        '\u{feff}' | '\u{fff0}'..='\u{fffb}' => true,
        '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shown() {
        for (text, expected) in [
            ("plain\nlines äöü 日本", "plain\nlines äöü 日本"),
            ("\x1b[2J\x07", "␛[2J␇"),
            ("a\r\nb\rc", "a\nb␍c"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m␡"),
            ("a\tb", "a   b"),
            ("\t\tx\n\ty", "        x\n    y"),
            ("日本\tx\tyz\t!", "日本    x   yz  !"),
            ("user\u{202e}nimda", "user\\u{202e}nimda"),
            ("a\u{200d}b", "a\\u{200d}b"),
            ("👩\u{200d}👧", "👩\u{200d}👧"),
            ("क\u{94d}\u{200d}ष", "क\u{94d}\u{200d}ष"),
            ("👩\u{200d}", "👩\\u{200d}"),
            ("\u{feff}x\u{200b}", "\\u{feff}x\\u{200b}"),
            ("x\u{e0041}", "x\\u{e0041}"),
        ] {
            assert_eq!(clean(text), expected, "{text:?}");
        }
        assert!(matches!(clean("nothing to do"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn nothing_is_left_to_obey(text in any::<String>()) {
            let shown = clean(&text);
            prop_assert!(!shown.chars().any(|character| character.is_control() && character != '\n'));
            prop_assert_eq!(clean(&shown), shown.as_ref());
        }
    }
}
