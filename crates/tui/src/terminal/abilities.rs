//! What the environment says of the terminal.

use crate::osc::Notify;
use crate::{Depth, Graphics, depth};

/// What a terminal can do, as far as the environment tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// How many colours it shows.
    pub depth: Depth,
    /// It obeys no sequences: `TERM` is `dumb`, or there is none.
    pub dumb: bool,
    /// Nothing is drawn on it: lines follow each other, and the kernel edits what is typed. Of a dumb one always.
    pub linear: bool,
    /// It lays out what it shows anew when its width changes: see [`crate::Screen::reflows`].
    pub reflows: bool,
    /// It is known to know links (`OSC 8`).
    pub links: bool,
    /// How it draws images, if it is known to.
    pub graphics: Option<Graphics>,
    /// How somebody is called by it.
    pub notify: Notify,
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
        let private = !dumb && !screen && term != "linux" && !term.starts_with("vt");
        let is = |name: &str, wanted: &str| variable(name).is_some_and(|value| value == wanted);
        // What is between us and the window keeps its own picture of it.
        let between = screen || set("TMUX");
        let vte = variable("VTE_VERSION").and_then(|version| version.parse::<u32>().ok()).unwrap_or(0);
        let links = match variable("FORCE_HYPERLINK").filter(|value| !value.is_empty()) {
            Some(forced) => forced != "0" && private,
            None => {
                private
                    && !between
                    && (depth::is_modern(&variable)
                        || vte >= 5_000
                        || set("KONSOLE_VERSION")
                        || set("DOMTERM"))
            }
        };
        let kitty = ["xterm-kitty", "xterm-ghostty"].contains(&term.as_str())
            || set("KITTY_WINDOW_ID")
            || is("TERM_PROGRAM", "ghostty");
        let iterm = is("TERM_PROGRAM", "iTerm.app")
            || is("TERM_PROGRAM", "WezTerm")
            || is("LC_TERMINAL", "iTerm2")
            || is("TERM_PROGRAM", "mintty");
        let graphics = if between || !private {
            None
        } else if kitty {
            Some(Graphics::Kitty)
        } else {
            iterm.then_some(Graphics::Iterm2)
        };
        let notify = if !private {
            Notify::Bell
        } else if vte > 0 || term.starts_with("rxvt") || term.starts_with("foot") {
            Notify::Osc777
        } else {
            Notify::Osc9
        };
        Self {
            depth: Depth::of_environment(&variable),
            dumb,
            linear: dumb,
            reflows: !cuts_off || set("TMUX"),
            remote: set("SSH_CONNECTION") || set("SSH_TTY") || set("MOSH_IP"),
            links,
            graphics,
            notify,
            private,
        }
    }

    /// The same, but nothing is drawn on it: for screen readers.
    #[must_use]
    pub fn linear(self) -> Self {
        let notify = if self.notify == Notify::Off { Notify::Off } else { Notify::Bell };
        let (depth, links, graphics) = (Depth::None, false, None);
        Self { depth, linear: true, links, graphics, notify, private: false, ..self }
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

    fn of(environment: &str) -> Abilities {
        let variables: Vec<(&str, &str)> =
            environment.split_whitespace().filter_map(|one| one.split_once('=')).collect();
        Abilities::of_environment(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn links_images_and_calls() {
        use Graphics::{Iterm2, Kitty};
        for (environment, links, graphics, notify) in [
            ("TERM=xterm-256color", false, None, Notify::Osc9),
            ("TERM=xterm-kitty", true, Some(Kitty), Notify::Osc9),
            ("TERM=xterm-256color TERM_PROGRAM=iTerm.app", true, Some(Iterm2), Notify::Osc9),
            ("TERM=xterm-256color TERM_PROGRAM=ghostty", true, Some(Kitty), Notify::Osc9),
            ("TERM=xterm-256color VTE_VERSION=7600", true, None, Notify::Osc777),
            ("TERM=xterm-256color VTE_VERSION=4600", false, None, Notify::Osc777),
            ("TERM=foot", true, None, Notify::Osc777),
            ("TERM=tmux-256color TMUX=/tmp/x KITTY_WINDOW_ID=1 TERM_PROGRAM=tmux", false, None, Notify::Osc9),
            ("TERM=xterm-kitty TMUX=/tmp/x FORCE_HYPERLINK=1", true, None, Notify::Osc9),
            ("TERM=xterm-kitty FORCE_HYPERLINK=0", false, Some(Kitty), Notify::Osc9),
            ("TERM=dumb FORCE_HYPERLINK=1 KITTY_WINDOW_ID=1", false, None, Notify::Bell),
            ("TERM=linux", false, None, Notify::Bell),
        ] {
            let found = of(environment);
            assert_eq!(
                (found.links, found.graphics, found.notify),
                (links, graphics, notify),
                "{environment}"
            );
            let linear = found.linear();
            assert_eq!((linear.links, linear.graphics, linear.notify), (false, None, Notify::Bell));
        }
    }

    #[test]
    fn abilities_follow_the_environment() {
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
            let found = of(environment);
            let expected = Abilities { dumb, linear: dumb, reflows, remote, private, ..found };
            assert_eq!(found, expected, "{environment}");
        }
    }
}
