//! What a terminal is told beside what it shows: the clipboard, its title, that someone is needed, how far work is.
//!
//! Nothing of a text is obeyed: control characters are left out of what these send.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

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
    (text.len() <= CLIPBOARD_LIMIT).then(|| format!("\x1b]52;c;{}\x07", STANDARD.encode(text)).into_bytes())
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

/// How somebody is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Notify {
    /// By a message on the desktop (`OSC 9`), and by ringing.
    #[default]
    Osc9,
    /// As above, in the way of rxvt, foot and VTE (`OSC 777`).
    Osc777,
    /// By ringing (BEL).
    Bell,
    /// Not at all.
    Off,
}

/// Says something on the desktop, and rings where a terminal can only do that.
#[must_use]
pub fn notify(text: &str, how: Notify) -> Vec<u8> {
    let text = plain(text, 400);
    match how {
        Notify::Osc9 => {
            // A number at the beginning would be another command.
            let text =
                text.trim_start_matches(|character: char| character.is_ascii_digit() || character == ';');
            format!("\x1b]9;{text}\x07\x07").into_bytes()
        }
        // Titles and texts are told apart by a semicolon.
        Notify::Osc777 => format!("\x1b]777;notify;Quipu;{}\x07\x07", text.replace(';', ",")).into_bytes(),
        Notify::Bell => b"\x07".to_vec(),
        Notify::Off => Vec::new(),
    }
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

/// The first characters of a text, without those that a terminal obeys.
fn plain(text: &str, most: usize) -> String {
    crate::clean(text).chars().filter(|character| !character.is_control()).take(most).collect()
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
        let hostile = "4;1;50 done\x1b\\\x07\u{9c}";
        assert_eq!(text(notify(hostile, Notify::Osc9)), "\x1b]9; done␛\\␇\\u{9c}\x07\x07");
        assert_eq!(
            text(notify(hostile, Notify::Osc777)),
            "\x1b]777;notify;Quipu;4,1,50 done␛\\␇\\u{9c}\x07\x07"
        );
        assert_eq!((notify(hostile, Notify::Bell), notify(hostile, Notify::Off)), (vec![7], Vec::new()));
        assert_eq!(text(progress(Progress::Percent(200))), "\x1b]9;4;1;100\x07");
        assert_eq!(text(progress(Progress::None)), "\x1b]9;4;0;0\x07");
    }
}
