//! A line that names a session.

use quipu_protocol::{Entry, Message};
use unicode_segmentation::UnicodeSegmentation as _;

use crate::planning::typed_text;

/// The longest title, in characters (Unicode scalar values), the ellipsis of a cut one included.
pub const MAX_TITLE: usize = 80;

/// What the user said first, as one line of at most [`MAX_TITLE`] characters; never cut inside of what a reader
/// sees as one character. `None` when the user has said nothing yet.
pub fn title<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Option<String> {
    entries.into_iter().find_map(|entry| match entry {
        Entry::Message(Message::User(user)) => first_line(&typed_text(&user.content.blocks())),
        Entry::Message(_) | Entry::Session(_) | Entry::Epoch(_) | Entry::Compaction(_) | Entry::Meta(_) => {
            None
        }
    })
}

fn first_line(text: &str) -> Option<String> {
    let mut line = String::new();
    let mut length = 0;
    // A line of joined characters can be long in bytes; reading stops soon after the limit.
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if length > MAX_TITLE {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
            length += 1;
        }
        for character in word.chars().take(MAX_TITLE + 1 - length.min(MAX_TITLE)) {
            line.push(character);
            length += 1;
        }
    }
    if length <= MAX_TITLE {
        return (!line.is_empty()).then_some(line);
    }
    let mut cut = String::new();
    let mut length = 0;
    for grapheme in line.graphemes(true) {
        length += grapheme.chars().count();
        if length >= MAX_TITLE {
            break;
        }
        cut.push_str(grapheme);
    }
    cut.truncate(cut.trim_end().len());
    cut.push('…');
    Some(cut)
}

/// Whether a character has no shape and may change how its neighbours are read: marks and embeddings that turn the direction of
/// text, blanks without width, tags. The joiners of words and emoji are none.
pub fn is_format(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// The first `most` characters on one line, without control and format characters.
pub fn one_line(text: &str, most: usize) -> String {
    let plain = text.chars().map(|character| if character.is_whitespace() { ' ' } else { character });
    plain.filter(|character| !character.is_control() && !is_format(*character)).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quipu_protocol::Json;

    #[test]
    fn first_words_of_the_user() {
        let check = |text: &str, expect: Option<&str>| {
            let entries = [Entry::Meta(Json::object()), Entry::Message(Message::user(text, 1))];
            assert_eq!(title(&entries).as_deref(), expect, "{text:?}");
        };
        check("Fix the  bug\n\tin\u{0} main\r\n", Some("Fix the bug in main"));
        check(" \n ", None);
        let exact = "x".repeat(80);
        check(&exact, Some(&exact));
        check(&"x".repeat(81), Some(&format!("{}…", "x".repeat(79))));
        check(&format!("{} word", "x".repeat(78)), Some(&format!("{}…", "x".repeat(78))));
        // A family of seven scalar values is kept or left whole.
        let family = "👨\u{200d}👩\u{200d}👧\u{200d}👦";
        check(
            &format!("{}{family}{}", "x".repeat(72), "y".repeat(9)),
            Some(&format!("{}{family}…", "x".repeat(72))),
        );
        check(&format!("{}{family}{}", "x".repeat(75), "y".repeat(9)), Some(&format!("{}…", "x".repeat(75))));
        check(&format!("e{}", "\u{301}".repeat(100)), Some("…"));
    }

    #[test]
    fn title_is_the_first_message_with_text() {
        let entries =
            [Message::user("", 1), Message::user("then", 2), Message::user("last", 3)].map(Entry::Message);
        assert_eq!(title(&entries).as_deref(), Some("then"));
        assert_eq!(title(&[]), None);
    }
}
