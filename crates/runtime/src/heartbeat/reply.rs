//! What an answer to a heartbeat says, and whether HEARTBEAT.md asks for anything.

use super::settings::HEARTBEAT_TOKEN;

/// What stands around a token without saying anything.
const AROUND: &[char] = &[
    '*', '_', '~', '`', '"', '\'', '.', ',', '!', '?', ':', ';', '-', '–', '—', '(', ')', '[', ']', '{', '}',
    '>', '#',
];

/// What an answer says to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeartbeatAnswer {
    /// Nothing needs attention.
    Nothing,
    /// This does.
    Alert(String),
}

/// Reads an answer: the token is taken off its beginning and its end, also where it stands in marks of HTML or Markdown. With the token, at most
/// `ack_chars` characters beside it are nothing to report.
#[must_use]
pub fn heartbeat_answer(text: &str, ack_chars: usize) -> HeartbeatAnswer {
    let text = text.trim();
    let (mut rest, mut has_token) = (text, false);
    loop {
        if let Some(behind) = after_token(rest) {
            rest = behind;
        } else if let Some(before) = before_token(rest) {
            rest = before;
        } else {
            break;
        }
        has_token = true;
    }
    let rest = rest.trim();
    let says_something = !bare_start(bare_end(rest)).is_empty();
    match (has_token, says_something) {
        (_, false) => HeartbeatAnswer::Nothing,
        (true, true) if rest.chars().count() <= ack_chars => HeartbeatAnswer::Nothing,
        (true | false, true) => HeartbeatAnswer::Alert(rest.to_owned()),
    }
}

/// What stands behind a token at the beginning.
fn after_token(text: &str) -> Option<&str> {
    let rest = bare_start(text).strip_prefix(HEARTBEAT_TOKEN)?;
    // A longer word is another one.
    let is_whole = !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    // The mark that closes what stood in front of it.
    is_whole.then(|| if rest.len() + HEARTBEAT_TOKEN.len() == text.len() { rest } else { closing_off(rest) })
}

/// What stands before a token at the end.
fn before_token(text: &str) -> Option<&str> {
    let bare = bare_end(text);
    let rest = bare.strip_suffix(HEARTBEAT_TOKEN)?;
    let is_whole = !rest.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    is_whole.then(|| if bare.len() == text.len() { rest } else { opening_off(rest) })
}

/// Without tags, marks and white space in front.
fn bare_start(mut text: &str) -> &str {
    loop {
        let next = text.trim_start().trim_start_matches(AROUND).trim_start();
        let next = match next.strip_prefix('<').and_then(|tag| tag.split_once('>')) {
            Some((tag, behind)) if is_tag(tag) => behind,
            _ => next.strip_prefix("&nbsp;").unwrap_or(next),
        };
        if next.len() == text.len() {
            return text;
        }
        text = next;
    }
}

/// Without tags, marks and white space behind.
fn bare_end(mut text: &str) -> &str {
    loop {
        // A `>` may close a tag.
        let tagged = text.trim_end();
        let next = match tagged.strip_suffix('>').and_then(|tag| tag.rsplit_once('<')) {
            Some((before, tag)) if is_tag(tag) => before,
            _ => {
                let is_around = |letter: char| letter != '>' && AROUND.contains(&letter);
                let next = tagged.trim_end_matches(is_around).trim_end();
                next.strip_suffix("&nbsp;").unwrap_or(next)
            }
        };
        if next.len() == text.len() {
            return text;
        }
        text = next;
    }
}

/// Takes marks off that touch the text.
fn closing_off(text: &str) -> &str {
    let touching = text.split(char::is_whitespace).next().unwrap_or_default();
    text.get(touching.len() - bare_start(touching).len()..).unwrap_or(text)
}

fn opening_off(text: &str) -> &str {
    let touching = text.rsplit(char::is_whitespace).next().unwrap_or_default();
    text.get(..text.len() - (touching.len() - bare_end(touching).len())).unwrap_or(text)
}

/// Whether this stood between `<` and `>` as a tag of HTML.
fn is_tag(inner: &str) -> bool {
    let name = inner.strip_prefix('/').unwrap_or(inner);
    inner.len() <= 200
        && name.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && !inner.contains('<')
}

/// Whether a file asks for nothing: headings, blank lines, items of lists without text.
#[must_use]
pub fn asks_for_nothing(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').lines().all(|line| {
        let line = line.trim();
        let is_heading = line.trim_start_matches('#').starts_with(char::is_whitespace)
            || line.trim_start_matches('#').is_empty();
        line.is_empty() || (line.starts_with('#') && is_heading) || is_empty_item(line)
    })
}

fn is_empty_item(line: &str) -> bool {
    let rest = match line.strip_prefix(['-', '*', '+']) {
        Some(rest) => rest,
        None => {
            let digits = line.bytes().take_while(u8::is_ascii_digit).count();
            match line.get(digits..).and_then(|rest| rest.strip_prefix(['.', ')'])) {
                Some(rest) if digits > 0 => rest,
                _ => return false,
            }
        }
    };
    matches!(rest.trim(), "" | "[ ]" | "[x]" | "[X]")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn token_is_taken_off_both_ends() {
        let long = "x".repeat(301);
        for (text, expect) in [
            ("HEARTBEAT_OK", None),
            (" HEARTBEAT_OK \n", None),
            ("**HEARTBEAT_OK**", None),
            ("<b>HEARTBEAT_OK</b>", None),
            ("`HEARTBEAT_OK`.", None),
            ("HEARTBEAT_OK!!! HEARTBEAT_OK", None),
            ("&nbsp;<i>**HEARTBEAT_OK**</i>&nbsp;", None),
            ("All is well. HEARTBEAT_OK", None),
            ("HEARTBEAT_OK - all is well", None),
            ("", None),
            ("...", None),
            ("The disk is full.", Some("The disk is full.")),
            ("HEARTBEAT_OKAY then", Some("HEARTBEAT_OKAY then")),
            (
                "I would answer HEARTBEAT_OK, but the disk is full.",
                Some("I would answer HEARTBEAT_OK, but the disk is full."),
            ),
            (&*format!("{long} HEARTBEAT_OK"), Some(&*long)),
            (&*format!("HEARTBEAT_OK\n\n{long}"), Some(&*long)),
            (&*format!("**HEARTBEAT_OK** {long}"), Some(&*long)),
            (&*format!("{long} <b>HEARTBEAT_OK</b>."), Some(&*long)),
        ] {
            let expect =
                expect.map_or(HeartbeatAnswer::Nothing, |text| HeartbeatAnswer::Alert(text.to_owned()));
            assert_eq!(heartbeat_answer(text, 300), expect, "{text}");
        }
    }

    #[test]
    fn remainder_counts_in_characters() {
        let text = format!("HEARTBEAT_OK {}", "ü".repeat(5));
        assert_eq!(heartbeat_answer(&text, 5), HeartbeatAnswer::Nothing);
        assert_eq!(heartbeat_answer(&text, 4), HeartbeatAnswer::Alert("ü".repeat(5)));
    }

    #[test]
    fn file_without_tasks_asks_for_nothing() {
        for text in ["", " \n\n", "# Heartbeat\n\n## Tasks\n- \n* [ ]\n1.\n#\n", "\u{feff}# x"] {
            assert!(asks_for_nothing(text), "{text:?}");
        }
        for text in ["- look", "# x\ntext", "#hashtag", "1. mail", "[ ]", "--"] {
            assert!(!asks_for_nothing(text), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn answer_is_read_whatever_it_holds(text in "(HEARTBEAT_OK|<b>|</b>|\\*|\\PC| |\n){0,40}", most in 0_usize..50) {
            match heartbeat_answer(&text, most) {
                HeartbeatAnswer::Nothing => {}
                HeartbeatAnswer::Alert(rest) => {
                    prop_assert!(!rest.trim().is_empty() && text.contains(&rest));
                    prop_assert!(after_token(&rest).is_none() && before_token(&rest).is_none());
                }
            }
            prop_assert_eq!(asks_for_nothing(&text), asks_for_nothing(&format!("{text}\n")));
        }
    }
}
