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
/// - So do all others that [`is_unseen`] names, where they stand.
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
            other if is_unseen(before, other, rest.peek().copied()) => escape(&mut shown, other),
            other => shown.push(other),
        }
        before = Some(character);
    }
    Cow::Owned(shown)
}

/// The same for what a person is asked to allow: every character that is not seen is escaped, wherever it stands,
/// and so are spaces that are not the usual one, and marks that pile up on one character. Only line feeds stay; a
/// carriage return before one is shown as well, and a tab is an arrow. Each piece says whether it was made so.
pub(crate) fn bare(line: &str) -> Vec<(String, bool)> {
    let mut pieces: Vec<(String, bool)> = Vec::new();
    let mut push = |text: &str, made: bool| match pieces.last_mut() {
        Some((last, same)) if *same == made => last.push_str(text),
        _ => pieces.push((text.to_owned(), made)),
    };
    let (mut marks, mut bytes) = (0, [0; 4]);
    for character in line.chars() {
        // Nothing is piled up in text that is written: a name in Vietnamese has two marks, one in Hebrew three.
        let stacks = character > '~' && crate::width(character.encode_utf8(&mut bytes)) == 0;
        marks = if stacks { marks + 1 } else { 0 };
        let mut escaped = String::new();
        match character {
            '\t' => escaped.push_str("→   "),
            '\0'..='\u{1f}' => escaped.extend(char::from_u32(0x2400 + u32::from(character))),
            '\u{7f}' => escaped.push('\u{2421}'),
            other if wants_care(other) || is_blank(other) || marks > 4 => escape(&mut escaped, other),
            other => {
                push(other.encode_utf8(&mut bytes), false);
                continue;
            }
        }
        push(&escaped, true);
    }
    pieces
}

/// Whether a character is one that a reader would not see, or that a terminal would obey: controls, characters that
/// change the order of others, and those that take no place (zero width spaces, byte order marks, soft hyphens, tags,
/// variation selectors). Joiners and selectors are none beside what needs them: in emoji and in scripts that join.
#[must_use]
pub fn is_unseen(before: Option<char>, character: char, after: Option<char>) -> bool {
    if !wants_care(character) {
        return false;
    }
    let between = |is: fn(char) -> bool| before.is_some_and(is) && after.is_some_and(is);
    let has = |is: fn(char) -> bool| before.is_some_and(is);
    let joins = match character {
        '\u{200c}' => between(is_joining),
        '\u{200d}' => between(is_joining) || between(is_emoji),
        '\u{fe0e}' | '\u{fe0f}' => {
            has(is_pictured)
                || after == Some('\u{20e3}') && has(|key| key.is_ascii_digit() || matches!(key, '#' | '*'))
        }
        '\u{fe00}'..='\u{fe02}' | '\u{e0100}'..='\u{e01ef}' => has(is_ideograph),
        '\u{180b}'..='\u{180d}' | '\u{180f}' => has(|letter| matches!(letter, '\u{1820}'..='\u{18aa}')),
        _ => false,
    };
    !joins
}

fn escape(shown: &mut String, character: char) {
    // Writing to a string cannot fail.
    let _written = write!(shown, "\\u{{{:x}}}", u32::from(character));
}

/// Of a script in which joiners shape what is written: Hebrew to Myanmar, Khmer, Mongolian, and the later ones.
fn is_joining(character: char) -> bool {
    let script = matches!(
        character,
        '\u{590}'..='\u{109f}' | '\u{1780}'..='\u{18af}' | '\u{1900}'..='\u{1aff}' | '\u{1b00}'..='\u{1c4f}'
            | '\u{a800}'..='\u{abff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}'
            | '\u{10a00}'..='\u{10eff}' | '\u{11000}'..='\u{11fff}'
    );
    script && !wants_care(character)
}

/// Of what emoji are joined from.
fn is_emoji(character: char) -> bool {
    character == '\u{fe0f}' || is_pictured(character)
}

/// What is shown as a picture or as text, as a selector behind it says.
fn is_pictured(character: char) -> bool {
    matches!(
        character,
        '©' | '®' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2190}'..='\u{2bff}' | '\u{3030}'
            | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}'
    ) && !is_blank(character)
}

fn is_ideograph(character: char) -> bool {
    matches!(character, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Looks like the space and is none; an empty pattern of Braille.
fn is_blank(character: char) -> bool {
    character == '\u{2800}' || (character != ' ' && character.is_whitespace())
}

fn wants_care(character: char) -> bool {
    match character {
        '\n' | ' '..='~' => false,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => true,
        // Soft hyphen, grapheme joiner, Arabic letter mark, Hangul fillers, Khmer vowels that are none.
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => true,
        '\u{3164}' | '\u{ffa0}' => true,
        // Mongolian selectors and vowel separator.
        '\u{180b}'..='\u{180f}' => true,
        // Zero width space, joiners, marks and embeddings; line and paragraph separators.
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        // Word joiner, invisible operators, isolates, deprecated format characters.
        '\u{2060}'..='\u{206f}' => true,
        // Variation selectors, byte order mark, interlinear annotations, musical and shorthand formats, tags.
        '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' => true,
        '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' => true,
        '\u{e0000}'..='\u{e0fff}' => true,
        // Noncharacters and what is for private use are seen as a box.
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
            ("❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}", "❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}"),
            ("❤\u{fe0f}\u{fe0f}\u{fe01}", "❤\u{fe0f}\\u{fe0f}\\u{fe01}"),
            ("می\u{200c}خواهم", "می\u{200c}خواهم"),
            ("é\u{200c}é, 日\u{200d}本", "é\\u{200c}é, 日\\u{200d}本"),
            ("葛\u{e0100}\u{e0101}, a\u{e0100}", "葛\u{e0100}\\u{e0101}, a\\u{e0100}"),
            ("rm\u{ad} a\u{34f}b\u{2064}", "rm\\u{ad} a\\u{34f}b\\u{2064}"),
        ] {
            assert_eq!(clean(text), expected, "{text:?}");
        }
        assert!(matches!(clean("nothing to do"), Cow::Borrowed(_)));
    }

    #[test]
    fn question_shows_each_unseen_character() {
        for (text, expected) in [
            ("rm -rf x # 👩👧", "rm -rf x # 👩👧"),
            ("👩\u{200d}👧 ❤\u{fe0f}", "👩[\\u{200d}]👧 ❤[\\u{fe0f}]"),
            ("a\tb\r", "a[→   ]b[␍]"),
            ("a\u{a0}b\u{2800}", "a[\\u{a0}]b[\\u{2800}]"),
            ("\x1b[8mx\u{202e}", "[␛][8mx][\\u{202e}]"),
            ("é\u{301}\u{302}", "é\u{301}\u{302}"),
            (
                "x\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}",
                "x\u{301}\u{301}\u{301}\u{301}[\\u{301}\\u{301}]",
            ),
        ] {
            let shown = bare(text).into_iter();
            let shown: String =
                shown.map(|(text, made)| if made { format!("[{text}]") } else { text }).collect();
            assert_eq!(shown, expected.replace("[8mx]", "[8mx"), "{text:?}");
        }
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
