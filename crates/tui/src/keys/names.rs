//! Keys as they are written: `ctrl+a`, `alt+left`, `shift+enter`, `?`.

use crate::{Key, KeyCode, Modifiers};

const NAMED: &[(&str, KeyCode)] = &[
    ("escape", KeyCode::Escape),
    ("esc", KeyCode::Escape),
    ("enter", KeyCode::Enter),
    ("return", KeyCode::Enter),
    ("tab", KeyCode::Tab),
    ("space", KeyCode::Char(' ')),
    ("backspace", KeyCode::Backspace),
    ("delete", KeyCode::Delete),
    ("insert", KeyCode::Insert),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("pageUp", KeyCode::PageUp),
    ("pageDown", KeyCode::PageDown),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
];

/// Why a name is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyNameError {
    /// What stands before a `+` is no modifier.
    #[error("{0:?} is not ctrl, alt or shift")]
    UnknownModifier(String),
    /// A modifier is named twice.
    #[error("{0} occurs twice")]
    Repeated(String),
    /// There is no name.
    #[error("it is empty")]
    Empty,
    /// No key has it.
    #[error("there is no key {0:?}")]
    Unknown(String),
    /// With shift the key writes something else.
    #[error("name the character that shift and {0:?} write instead")]
    Shifted(char),
}

/// Reads the name of a key: `ctrl+`, `alt+` and `shift+` in any order, and a character or a name. Names of keys and
/// modifiers may be in any case, as may letters with `ctrl+` or `alt+`; another letter in upper case is one with shift.
///
/// # Errors
/// What is wrong with it.
pub fn parse_key(name: &str) -> Result<Key, KeyNameError> {
    let mut modifiers = Modifiers::default();
    let mut rest = name.trim();
    while let Some((modifier, behind)) = rest.split_once('+').filter(|(_, behind)| !behind.is_empty()) {
        let flag = match modifier.to_ascii_lowercase().as_str() {
            "ctrl" | "control" => &mut modifiers.control,
            "alt" | "option" | "meta" => &mut modifiers.alt,
            "shift" => &mut modifiers.shift,
            _ => return Err(KeyNameError::UnknownModifier(modifier.to_owned())),
        };
        if std::mem::replace(flag, true) {
            return Err(KeyNameError::Repeated(modifier.to_owned()));
        }
        rest = behind;
    }
    let mut characters = rest.chars();
    let code = match (characters.next(), characters.next()) {
        (Some(one), None) if one.is_control() || one.is_whitespace() => None,
        (Some(one), None) => Some(KeyCode::Char(one)),
        (None, _) => return Err(KeyNameError::Empty),
        _ => {
            let named = NAMED.iter().find(|(name, _)| name.eq_ignore_ascii_case(rest)).map(|(_, code)| *code);
            named.or_else(|| function(rest))
        }
    };
    let Some(mut code) = code else { return Err(KeyNameError::Unknown(rest.to_owned())) };
    if let KeyCode::Char(one) = code
        && modifiers.shift
        && one != ' '
    {
        modifiers.shift = false;
        if !one.is_alphabetic() {
            return Err(KeyNameError::Shifted(one));
        }
        code = KeyCode::Char(one.to_uppercase().next().unwrap_or(one));
    } else if let KeyCode::Char(one) = code
        && (modifiers.control || modifiers.alt)
    {
        code = KeyCode::Char(one.to_lowercase().next().unwrap_or(one));
    }
    Ok(Key { code, modifiers })
}

fn function(name: &str) -> Option<KeyCode> {
    let number = name.strip_prefix(['f', 'F'])?.parse().ok()?;
    (1..=12).contains(&number).then_some(KeyCode::Function(number))
}

/// The name of a key, as [`parse_key`] reads it.
#[must_use]
pub fn key_name(key: Key) -> String {
    let Key { code, modifiers } = key;
    let upper = |one: char| one.is_uppercase() && (modifiers.control || modifiers.alt);
    let mut name = String::new();
    for (held, modifier) in [
        (modifiers.control, "ctrl+"),
        (modifiers.alt, "alt+"),
        (modifiers.shift || matches!(code, KeyCode::Char(one) if upper(one)), "shift+"),
    ] {
        if held {
            name += modifier;
        }
    }
    match code {
        KeyCode::Char(' ') => name += "space",
        KeyCode::Char(one) if upper(one) => name.extend(one.to_lowercase()),
        KeyCode::Char(one) => name.push(one),
        KeyCode::Function(number) => name += &format!("f{number}"),
        _ => name += NAMED.iter().find(|(_, named)| *named == code).map_or("", |(name, _)| name),
    }
    name
}

/// A key as people write it, which [`parse_key`] reads as well: `Ctrl+C`, `PageUp`, `?`.
#[must_use]
pub fn key_label(key: Key) -> String {
    let name = key_name(key);
    let alone = name.chars().count() == 1;
    let capital = |part: &str| {
        let mut letters = part.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    };
    match name.strip_suffix('+') {
        _ if alone => name,
        // The key is the plus itself.
        Some(held) => format!("{}+", held.split('+').map(capital).collect::<Vec<_>>().join("+")),
        None => name.split('+').map(capital).collect::<Vec<_>>().join("+"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_keys() {
        let check = |name: &str, expect: &str| {
            let key = parse_key(name).unwrap();
            assert_eq!(key_name(key), expect, "{name}");
            assert_eq!(parse_key(expect), Ok(key), "{name}");
        };
        check("ctrl+a", "ctrl+a");
        check("Alt+Ctrl+LEFT", "ctrl+alt+left");
        check("shift+l", "L");
        check("shift+ctrl+p", "ctrl+shift+p");
        check("ctrl+P", "ctrl+p");
        check("Ctrl+Shift+P", "ctrl+shift+p");
        check("+", "+");
        check("ctrl++", "ctrl++");
        check("ctrl+alt+]", "ctrl+alt+]");
        check("esc", "escape");
        check("shift+F12", "shift+f12");
        check("space", "space");
        check("ä", "ä");
        let label = |name: &str| key_label(parse_key(name).unwrap());
        for (name, expect) in [
            ("ctrl+c", "Ctrl+C"),
            ("alt+<", "Alt+<"),
            ("ctrl++", "Ctrl++"),
            ("+", "+"),
            ("l", "l"),
            ("shift+l", "L"),
            ("ctrl+pageUp", "Ctrl+PageUp"),
            ("f5", "F5"),
            ("ctrl+shift+p", "Ctrl+Shift+P"),
        ] {
            assert_eq!(label(name), expect);
            assert_eq!(parse_key(expect), parse_key(name));
        }
        for bad in ["", "ctrl+", "hyper+a", "ctrl+ctrl+a", "f13", "f0", "nokey", "shift+1", "\u{1}", "alt+ "]
        {
            assert!(parse_key(bad).is_err(), "{bad:?}");
        }
    }
}
