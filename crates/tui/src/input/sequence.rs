//! What control sequences mean: keys in the forms of xterm, rxvt, the Linux console, `modifyOtherKeys` and the Kitty
//! keyboard protocol (<https://sw.kovidgoyal.net/kitty/keyboard-protocol/>), and answers to questions.

use super::{Answer, TerminalEvent};
use crate::{Key, KeyCode, Modifiers};

/// The event of `CSI parameters last`, if it is one.
pub(super) fn csi(parameters: &[u8], last: u8) -> Option<TerminalEvent> {
    let text = std::str::from_utf8(parameters).ok()?;
    if text == "[" {
        return matches!(last, b'A'..=b'E').then(|| key(KeyCode::Function(last - b'A' + 1), 1));
    }
    if let Some(answer) = text.strip_prefix('?') {
        return answered(answer, last).map(TerminalEvent::Answer);
    }
    let mut fields = text.split(';').map(Field::new);
    let first = fields.next().unwrap_or_default();
    let second = fields.next().unwrap_or_default();
    let third = fields.next().unwrap_or_default();
    if !text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b';' | b':')) {
        return None;
    }
    // 1 pressed, 2 held, 3 let go.
    if second.part(1) == Some(3) {
        return None;
    }
    let modifiers = second.part(0).unwrap_or(1);
    Some(match last {
        b'I' if text.is_empty() => TerminalEvent::Focus(true),
        b'O' if text.is_empty() => TerminalEvent::Focus(false),
        // F3, or where the cursor stands: one with modifiers looks like the first row.
        b'R' => match (first.part(0), second.part(0)) {
            (None | Some(1), None) => key(KeyCode::Function(3), 1),
            (Some(1), Some(modifiers @ 2..=16)) => key(KeyCode::Function(3), modifiers),
            (row, column) => TerminalEvent::Answer(Answer::Cursor(row?, column?)),
        },
        b'Z' => key(KeyCode::Tab, 2),
        // rxvt, with shift.
        b'a'..=b'd' if text.is_empty() => key(letter(last.to_ascii_uppercase())?, 2),
        b'~' if first.part(0) == Some(27) => typed(third.part(0)?, None, modifiers)?,
        b'~' => key(numbered(first.part(0)?)?, modifiers),
        // rxvt, with Ctrl, and with shift too.
        b'^' => key(numbered(first.part(0)?)?, 5),
        b'@' => key(numbered(first.part(0)?)?, 6),
        b'u' => typed(first.part(0)?, first.part(1), modifiers)?,
        _ => key(letter(last)?, modifiers),
    })
}

/// The key of `ESC O parameters last`.
pub(super) fn ss3(parameters: &[u8], last: u8) -> Option<Key> {
    let modifiers = std::str::from_utf8(parameters).ok()?.split(';').next_back()?.parse().unwrap_or(1);
    let code = match last {
        b'M' => KeyCode::Enter,
        b'I' => KeyCode::Tab,
        b'a'..=b'd' => return Some(Key { code: letter(last.to_ascii_uppercase())?, modifiers: held(5)? }),
        // The keypad in its own mode.
        b'j'..=b'y' | b' ' | b'X' => KeyCode::Char(match last {
            b'X' => '=',
            b' ' => ' ',
            last => char::from(last - 0x40),
        }),
        _ => letter(last)?,
    };
    Some(Key { code, modifiers: held(modifiers)? })
}

/// The colour of the answer to `OSC 11`: `11;rgb:RRRR/GGGG/BBBB`, with one to four digits each.
pub(super) fn background(text: &[u8]) -> Option<TerminalEvent> {
    let text = std::str::from_utf8(text).ok()?.strip_prefix("11;")?;
    let color = text.strip_prefix("rgb:").or_else(|| text.strip_prefix("rgba:"))?;
    let mut parts = color.split('/').map(|digits| {
        let value = u32::from_str_radix(digits, 16).ok()?;
        let most = match digits.len() {
            length @ 1..=4 => 16_u32.pow(u32::try_from(length).ok()?) - 1,
            _ => return None,
        };
        u8::try_from(value * 255 / most).ok()
    });
    Some(TerminalEvent::Background([parts.next()??, parts.next()??, parts.next()??]))
}

fn answered(text: &str, last: u8) -> Option<Answer> {
    let mut numbers = text.trim_end_matches('$').split(';').map(|number| number.parse().ok());
    match last {
        b'c' => Some(Answer::Attributes),
        b'u' => Some(Answer::Keyboard(numbers.next()??)),
        b'y' if text.ends_with('$') => {
            Some(Answer::Mode { mode: numbers.next()??, setting: numbers.next()?? })
        }
        _ => None,
    }
}

/// A field between semicolons, with parts between colons.
#[derive(Default, Clone, Copy)]
struct Field<'text>(&'text str);

impl<'text> Field<'text> {
    fn new(text: &'text str) -> Self {
        Self(text)
    }

    fn part(self, index: usize) -> Option<u32> {
        self.0.split(':').nth(index)?.parse().ok()
    }
}

fn key(code: KeyCode, modifiers: u32) -> TerminalEvent {
    TerminalEvent::Key(Key { code, modifiers: held(modifiers).unwrap_or_default() })
}

/// What is held down: one more than a sum of 1 shift, 2 Alt, 4 Ctrl, 8 Super, 16 Hyper, 32 Meta, 64 and 128 locks.
/// Nothing for keys with Super or Hyper, which belong to the desktop.
fn held(modifiers: u32) -> Option<Modifiers> {
    let bits = modifiers.saturating_sub(1);
    (bits & 0b1_1000 == 0).then_some(Modifiers {
        shift: bits & 1 != 0,
        alt: bits & 0b10_0010 != 0,
        control: bits & 4 != 0,
    })
}

/// A key named by its character, as both protocols do, or by a number of Kitty's own.
fn typed(code: u32, shifted: Option<u32>, modifiers: u32) -> Option<TerminalEvent> {
    let mut modifiers = held(modifiers)?;
    let code = match code {
        9 => KeyCode::Tab,
        13 | 57_414 => KeyCode::Enter,
        27 => KeyCode::Escape,
        8 | 127 => KeyCode::Backspace,
        57_376..=57_398 => KeyCode::Function(u8::try_from(code - 57_376 + 13).ok()?),
        57_399..=57_408 => KeyCode::Char(char::from_digit(code - 57_399, 10)?),
        57_409..=57_413 => KeyCode::Char(['.', '/', '*', '-', '+'][usize::try_from(code - 57_409).ok()?]),
        57_415 => KeyCode::Char('='),
        57_416 => KeyCode::Char(','),
        57_417 => KeyCode::Left,
        57_418 => KeyCode::Right,
        57_419 => KeyCode::Up,
        57_420 => KeyCode::Down,
        57_421 => KeyCode::PageUp,
        57_422 => KeyCode::PageDown,
        57_423 => KeyCode::Home,
        57_424 => KeyCode::End,
        57_425 => KeyCode::Insert,
        57_426 => KeyCode::Delete,
        // Locks, media keys and modifiers by themselves, in Unicode's area for private use.
        57_344..=63_743 => return None,
        code => KeyCode::Char(character(code, shifted, &mut modifiers)?),
    };
    Some(TerminalEvent::Key(Key { code, modifiers }))
}

/// The character that a key writes with what is held down; shift is in it then.
fn character(code: u32, shifted: Option<u32>, modifiers: &mut Modifiers) -> Option<char> {
    let plain = char::from_u32(code).filter(|character| !character.is_control())?;
    if !modifiers.shift {
        return Some(plain);
    }
    let other = shifted.and_then(char::from_u32).filter(|character| !character.is_control());
    let mut upper = plain.to_uppercase();
    let written = match (other, upper.next(), upper.next()) {
        (Some(other), ..) => other,
        (None, Some(upper), None) => upper,
        _ => plain,
    };
    // `modifyOtherKeys` names the character that shift has made.
    if written != plain || plain.is_alphabetic() || !plain.is_alphanumeric() && plain != ' ' {
        modifiers.shift = false;
    }
    Some(written)
}

fn letter(last: u8) -> Option<KeyCode> {
    Some(match last {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'F' => KeyCode::End,
        b'H' => KeyCode::Home,
        b'P'..=b'S' => KeyCode::Function(last - b'P' + 1),
        _ => return None,
    })
}

fn numbered(number: u32) -> Option<KeyCode> {
    let function = |number: u32| u8::try_from(number).ok().map(KeyCode::Function);
    match number {
        1 | 7 => Some(KeyCode::Home),
        2 => Some(KeyCode::Insert),
        3 => Some(KeyCode::Delete),
        4 | 8 => Some(KeyCode::End),
        5 => Some(KeyCode::PageUp),
        6 => Some(KeyCode::PageDown),
        11..=15 => function(number - 10),
        17..=21 => function(number - 11),
        23 | 24 => function(number - 12),
        25 | 26 | 28 | 29 | 31..=34 => function(match number {
            25 | 26 => number - 12,
            28 | 29 => number - 13,
            _ => number - 14,
        }),
        _ => None,
    }
}
