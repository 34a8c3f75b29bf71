//! What the environment says of the terminal.

use crate::Depth;

/// What a terminal can do, as far as the environment tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// How many colours it shows.
    pub depth: Depth,
    /// It obeys no sequences: `TERM` is `dumb`, or there is none.
    pub dumb: bool,
    /// It lays out what it shows anew when its width changes: see [`crate::Screen::reflows`].
    pub reflows: bool,
    /// It is reached over a network, so the bytes of one key may come apart.
    pub remote: bool,
    /// Private sequences that it does not know do it no harm.
    pub(super) private: bool,
}

impl Abilities {
    /// What the environment says. `variable` gives the value of an environment variable.
    #[must_use]
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        let term = variable("TERM").unwrap_or_default();
        let dumb = term.is_empty() || term == "dumb";
        let screen = set("STY");
        let cuts_off = set("XTERM_VERSION")
            || screen
            || ["linux", "rxvt", "st", "vt"].iter().any(|cutting| {
                term.strip_prefix(cutting)
                    .is_some_and(|rest| rest.is_empty() || !rest.starts_with(char::is_alphabetic))
            });
        Self {
            depth: Depth::of_environment(&variable),
            dumb,
            reflows: !cuts_off || set("TMUX"),
            remote: set("SSH_CONNECTION") || set("SSH_TTY") || set("MOSH_IP"),
            private: !dumb && !screen && term != "linux" && !term.starts_with("vt"),
        }
    }

    /// What the environment of this process says.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::of_environment(|name| std::env::var(name).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_environment_says() {
        for (environment, dumb, reflows, remote, private) in [
            ("", true, true, false, false),
            ("TERM=dumb", true, true, false, false),
            ("TERM=xterm-256color", false, true, false, true),
            ("TERM=xterm-256color XTERM_VERSION=XTerm(390)", false, false, false, true),
            ("TERM=tmux-256color XTERM_VERSION=XTerm(390) TMUX=/tmp/x", false, true, false, true),
            ("TERM=screen STY=1.x", false, false, false, false),
            ("TERM=linux", false, false, false, false),
            ("TERM=st-256color", false, false, false, true),
            ("TERM=xterm-kitty SSH_TTY=/dev/pts/1", false, true, true, true),
        ] {
            let variables: Vec<(&str, &str)> =
                environment.split_whitespace().filter_map(|one| one.split_once('=')).collect();
            let found = Abilities::of_environment(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            });
            let expected = Abilities { depth: found.depth, dumb, reflows, remote, private };
            assert_eq!(found, expected, "{environment}");
        }
    }
}
