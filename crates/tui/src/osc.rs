//! What a terminal is told beside what it shows: the clipboard, its title, that someone is needed, how far work is.
//!
//! Nothing of a text is obeyed: control characters are left out of what these send.

/// The most bytes that are sent to a clipboard; terminals drop longer ones, some of them in the middle.
pub const CLIPBOARD_LIMIT: usize = 74_994;

/// How far work is, for terminals that show it on their tab or in a taskbar (`OSC 9;4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is shown.
    None,
    /// So many percent of it are done.
    Percent(u8),
    /// It is not known how far.
    Working,
    /// Someone is needed.
    Waiting,
}

/// Puts a text on the clipboard (`OSC 52`), also of a machine far away. Nothing for one that is longer than
/// [`CLIPBOARD_LIMIT`]. In tmux its `set-clipboard` has to be on.
#[must_use]
pub fn clipboard(text: &str) -> Option<Vec<u8>> {
    (text.len() <= CLIPBOARD_LIMIT).then(|| format!("\x1b]52;c;{}\x07", base64(text.as_bytes())).into_bytes())
}

/// Gives the window a title.
#[must_use]
pub fn title(text: &str) -> Vec<u8> {
    format!("\x1b]2;{}\x07", plain(text, 200)).into_bytes()
}

/// Keeps the window's title, to be given back by [`restore_title`].
#[must_use]
pub fn keep_title() -> Vec<u8> {
    b"\x1b[22;2t".to_vec()
}

/// Gives the window the title that it had at [`keep_title`].
#[must_use]
pub fn restore_title() -> Vec<u8> {
    b"\x1b[23;2t".to_vec()
}

/// Says something on the desktop (`OSC 9`), and rings where a terminal can only do that.
#[must_use]
pub fn notify(text: &str) -> Vec<u8> {
    // A number at the beginning would be another command.
    let text = plain(text, 400);
    let text = text.trim_start_matches(|character: char| character.is_ascii_digit() || character == ';');
    format!("\x1b]9;{text}\x07\x07").into_bytes()
}

/// Says how far work is.
#[must_use]
pub fn progress(progress: Progress) -> Vec<u8> {
    let (state, percent) = match progress {
        Progress::None => (0, 0),
        Progress::Percent(percent) => (1, percent.min(100)),
        Progress::Working => (3, 0),
        Progress::Waiting => (4, 0),
    };
    format!("\x1b]9;4;{state};{percent}\x07").into_bytes()
}

/// A link (`OSC 8`) around a text that was made safe before: in terminals that know links it opens the address, in others it
/// is the text alone. Nothing but the text for an address that a terminal would not take: one with other characters than
/// ASCII that is seen, or longer than 2,083.
#[must_use]
pub fn link(address: &str, text: &str) -> String {
    let fits = address.len() <= 2_083 && address.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { format!("\x1b]8;;{address}\x1b\\{text}\x1b]8;;\x1b\\") } else { text.to_owned() }
}

/// The first characters of a text, without those that a terminal obeys.
fn plain(text: &str, most: usize) -> String {
    crate::clean(text).chars().filter(|character| !character.is_control()).take(most).collect()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = usize::try_from(bits >> (18 - 6 * place) & 63).unwrap_or(0);
            text.push(if place <= three.len() { char::from(DIGITS[digit]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent() {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        for (copied, digits) in
            [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj"), ("hello ü\n", "aGVsbG8gw7wK")]
        {
            assert_eq!(text(clipboard(copied).unwrap()), format!("\x1b]52;c;{digits}\x07"));
        }
        assert_eq!(clipboard(&"x".repeat(CLIPBOARD_LIMIT + 1)), None);
        assert_eq!(text(title("a\x07b\n\u{202e}c")), "\x1b]2;a␇b\\u{202e}c\x07");
        assert_eq!(text(notify("4;1;50 done\x1b\\")), "\x1b]9; done␛\\\x07\x07");
        assert_eq!(text(progress(Progress::Percent(200))), "\x1b]9;4;1;100\x07");
        assert_eq!(text(progress(Progress::None)), "\x1b]9;4;0;0\x07");
        assert_eq!(
            link("https://example.org/", "here"),
            "\x1b]8;;https://example.org/\x1b\\here\x1b]8;;\x1b\\"
        );
        assert_eq!(link("https://example.org/\x1b\\", "here"), "here");
    }
}
