//! How many colours a terminal shows, and colours brought down to that.

use crate::Color;

/// How many colours a terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Depth {
    /// None: weight, slant, underline and reverse alone.
    None,
    /// The 16 of its theme.
    Ansi,
    /// The table of 256.
    #[default]
    Indexed,
    /// Red, green and blue.
    Rgb,
}

/// Values of `TERM_PROGRAM` and beginnings of `TERM` that mean red, green and blue without `COLORTERM`. All of them know
/// links.
const RGB_PROGRAMS: &[&str] = &["iTerm.app", "WezTerm", "ghostty", "vscode", "rio", "Hyper", "Tabby"];
const RGB_TERMS: &[&str] =
    &["xterm-kitty", "xterm-ghostty", "alacritty", "wezterm", "foot", "contour", "rio"];

/// Whether it is a terminal that is known to show all colours, and to know links.
pub(crate) fn is_modern(variable: impl Fn(&str) -> Option<String>) -> bool {
    let value = |name: &str| variable(name).unwrap_or_default();
    RGB_TERMS.iter().any(|known| value("TERM").starts_with(known))
        || RGB_PROGRAMS.contains(&value("TERM_PROGRAM").as_str())
        || !value("WT_SESSION").is_empty()
}

impl Depth {
    /// What the environment says. `variable` gives the value of an environment variable.
    ///
    /// `NO_COLOR` (<https://no-color.org>) and `TERM=dumb` win; then `COLORTERM`, known terminals, and `TERM`.
    #[must_use]
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| variable(name).unwrap_or_default();
        let term = value("TERM");
        if !value("NO_COLOR").is_empty() || term == "dumb" {
            return Self::None;
        }
        let names_rgb = matches!(value("COLORTERM").as_str(), "truecolor" | "24bit")
            || term.ends_with("-direct")
            || is_modern(&variable);
        // GNU screen hands COLORTERM of the terminal around it to programs, and drops what it does not understand.
        if names_rgb && value("STY").is_empty() {
            return Self::Rgb;
        }
        if term.contains("256color") || names_rgb {
            return Self::Indexed;
        }
        Self::Ansi
    }

    /// The nearest colour that this terminal shows.
    #[must_use]
    pub fn nearest(self, color: Color) -> Color {
        match (self, color) {
            (Self::None, _) => Color::Default,
            (Self::Ansi, Color::Rgb(red, green, blue)) => Color::Ansi(nearest_ansi([red, green, blue])),
            (Self::Ansi, Color::Indexed(index)) if index < 16 => Color::Ansi(index),
            (Self::Ansi, Color::Indexed(index)) => Color::Ansi(nearest_ansi(indexed(index))),
            (Self::Indexed, Color::Rgb(red, green, blue)) => {
                Color::Indexed(nearest_indexed([red, green, blue]))
            }
            // 16 to 255 are no colours of a theme.
            (_, Color::Ansi(index)) if index > 15 => Color::Indexed(index),
            (_, color) => color,
        }
    }
}

/// The 16 as xterm has them; themes differ.
const ANSI: [[u8; 3]; 16] = [
    [0, 0, 0],
    [205, 0, 0],
    [0, 205, 0],
    [205, 205, 0],
    [0, 0, 238],
    [205, 0, 205],
    [0, 205, 205],
    [229, 229, 229],
    [127, 127, 127],
    [255, 0, 0],
    [0, 255, 0],
    [255, 255, 0],
    [92, 92, 255],
    [255, 0, 255],
    [0, 255, 255],
    [255, 255, 255],
];

/// The six levels of the cube in the table of 256.
const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// Red, green and blue of an entry of the table of 256.
fn indexed(index: u8) -> [u8; 3] {
    match index {
        0..16 => ANSI[usize::from(index)],
        16..232 => {
            let cube = usize::from(index - 16);
            [LEVELS[cube / 36], LEVELS[cube / 6 % 6], LEVELS[cube % 6]]
        }
        232.. => [8 + 10 * (index - 232); 3],
    }
}

fn nearest_indexed(color: [u8; 3]) -> u8 {
    // Not the first 16, which a theme may have changed.
    (16..=255).min_by_key(|index| distance(indexed(*index), color)).unwrap_or(16)
}

fn nearest_ansi(color: [u8; 3]) -> u8 {
    (0..16).min_by_key(|index| distance(indexed(*index), color)).unwrap_or(7)
}

/// Weighted as the eye sees: green most, blue least.
fn distance(one: [u8; 3], other: [u8; 3]) -> u32 {
    let part = |index: usize| u32::from(one[index].abs_diff(other[index])).pow(2);
    3 * part(0) + 6 * part(1) + part(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn color_depth_follows_the_environment() {
        for (environment, depth) in [
            ("", Depth::Ansi),
            ("TERM=xterm", Depth::Ansi),
            ("TERM=linux", Depth::Ansi),
            ("TERM=dumb COLORTERM=truecolor", Depth::None),
            ("TERM=xterm-256color", Depth::Indexed),
            ("TERM=xterm-256color COLORTERM=truecolor", Depth::Rgb),
            ("TERM=xterm-256color COLORTERM=24bit", Depth::Rgb),
            ("TERM=xterm-256color COLORTERM=yes", Depth::Indexed),
            ("TERM=xterm-kitty", Depth::Rgb),
            ("TERM=xterm-direct", Depth::Rgb),
            ("TERM=xterm-256color TERM_PROGRAM=WezTerm", Depth::Rgb),
            ("TERM=xterm-256color TERM_PROGRAM=Apple_Terminal", Depth::Indexed),
            ("TERM=tmux-256color COLORTERM=truecolor TMUX=x", Depth::Rgb),
            ("TERM=screen-256color COLORTERM=truecolor STY=1.x", Depth::Indexed),
            ("TERM=xterm-kitty NO_COLOR=1", Depth::None),
            ("TERM=xterm-kitty NO_COLOR=", Depth::Rgb),
        ] {
            let variables: Vec<(&str, &str)> =
                environment.split_whitespace().filter_map(|one| one.split_once('=')).collect();
            let variable = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(Depth::of_environment(variable), depth, "{environment}");
        }
    }

    #[test]
    fn nearest_colours() {
        for (depth, color, expected) in [
            (Depth::Rgb, Color::Rgb(1, 2, 3), Color::Rgb(1, 2, 3)),
            (Depth::Indexed, Color::Rgb(255, 0, 0), Color::Indexed(196)),
            (Depth::Indexed, Color::Rgb(128, 128, 128), Color::Indexed(244)),
            (Depth::Indexed, Color::Rgb(0, 0, 0), Color::Indexed(16)),
            (Depth::Ansi, Color::Rgb(250, 10, 10), Color::Ansi(9)),
            (Depth::Ansi, Color::Indexed(196), Color::Ansi(9)),
            (Depth::Ansi, Color::Indexed(3), Color::Ansi(3)),
            (Depth::Ansi, Color::Indexed(255), Color::Ansi(7)),
            (Depth::Indexed, Color::Ansi(4), Color::Ansi(4)),
            (Depth::Rgb, Color::Ansi(200), Color::Indexed(200)),
            (Depth::None, Color::Ansi(4), Color::Default),
            (Depth::Ansi, Color::Default, Color::Default),
        ] {
            assert_eq!(depth.nearest(color), expected, "{depth:?} {color:?}");
        }
    }
}
