//! What a person presses.

/// A key with what is held down beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// Which one.
    pub code: KeyCode,
    /// What is held down.
    pub modifiers: Modifiers,
}

/// Which key. A letter is as it was typed: `A` is `Char('A')` without shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyCode {
    /// One that writes.
    Char(char),
    /// As it says.
    Enter,
    /// As it says.
    Tab,
    /// As it says.
    Backspace,
    /// As it says.
    Delete,
    /// As it says.
    Escape,
    /// As it says.
    Up,
    /// As it says.
    Down,
    /// As it says.
    Left,
    /// As it says.
    Right,
    /// As it says.
    Home,
    /// As it says.
    End,
    /// As it says.
    PageUp,
    /// As it says.
    PageDown,
    /// As it says.
    Insert,
    /// F1 to F12.
    Function(u8),
}

/// What is held down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Modifiers {
    /// Ctrl.
    pub control: bool,
    /// Alt, or Escape just before.
    pub alt: bool,
    /// Never with a letter, see [`KeyCode::Char`].
    pub shift: bool,
}

impl From<KeyCode> for Key {
    fn from(code: KeyCode) -> Self {
        Self { code, modifiers: Modifiers::default() }
    }
}
