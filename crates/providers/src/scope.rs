//! Models named by patterns.

use std::sync::Arc;

use quipu_protocol::{Model, Thinking};

use crate::parse_level;
use crate::settings::Settings;

/// Characters of a pattern at most: a longer one names nothing.
const LONGEST: usize = 256;

impl Settings {
    /// The models that patterns name, in the order of the patterns, each once, and only those that can be called. A
    /// pattern with `*`, `?` or `[` is compared with whole ids and with `provider/id`, in any case: `*` stands for any
    /// characters but `/`, `**` for any, `?` for one, `[abc]` and `[a-z]` for one of these. Another one names what it does
    /// for [`Settings::find`]. A level of thinking may follow after a colon.
    pub fn named(&self, patterns: &[String]) -> Vec<(Arc<Model>, Option<Thinking>)> {
        let models = self.models();
        let mut named: Vec<(Arc<Model>, Option<Thinking>)> = Vec::new();
        for pattern in patterns {
            let pattern = pattern.trim();
            let mut add = |model: &Arc<Model>, thinking| {
                let known = |(known, _): &(Arc<Model>, _)| {
                    (&known.provider, &known.id) == (&model.provider, &model.id)
                };
                if self.is_available(model) && !named.iter().any(known) {
                    named.push((model.clone(), thinking));
                }
            };
            if !is_pattern(pattern) {
                if let Ok(found) = self.find(None, pattern) {
                    add(&found.model, found.thinking);
                }
                continue;
            }
            let (glob, thinking) =
                match pattern.rsplit_once(':').map(|(rest, level)| (rest, parse_level(level))) {
                    Some((rest, Some(level))) => (rest, Some(level)),
                    _ => (pattern, None),
                };
            let Some(glob) = Glob::of(glob) else { continue };
            for model in &models {
                if glob.names(&model.id) || glob.names(&format!("{}/{}", model.provider, model.id)) {
                    add(model, thinking);
                }
            }
        }
        named
    }
}

/// Whether a name is one of several models.
pub(crate) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    One(char),
    /// Any character but a slash.
    Any,
    /// One in these ranges, or none in them.
    Of(Vec<(char, char)>, bool),
    /// Any number of characters; whether slashes are among them.
    Many(bool),
}

struct Glob(Vec<Part>);

impl Glob {
    fn of(pattern: &str) -> Option<Self> {
        let letters: Vec<char> = pattern.to_lowercase().chars().collect();
        if letters.len() > LONGEST {
            return None;
        }
        let (mut parts, mut at) = (Vec::new(), 0);
        while let Some(letter) = letters.get(at) {
            at += 1;
            match letter {
                '*' => {
                    let many = letters[at..].iter().take_while(|next| **next == '*').count();
                    at += many;
                    parts.push(Part::Many(many > 0));
                }
                '?' => parts.push(Part::Any),
                '[' => {
                    // One without an end is no set.
                    let Some(end) = letters[at..].iter().skip(1).position(|next| *next == ']') else {
                        parts.push(Part::One('['));
                        continue;
                    };
                    let set = &letters[at..=at + end];
                    at += end + 2;
                    let negated = matches!(set, ['!' | '^', ..]) && set.len() > 1;
                    let (mut ranges, mut rest) = (Vec::new(), &set[usize::from(negated)..]);
                    while let Some((first, more)) = rest.split_first() {
                        match more {
                            ['-', last, more @ ..] => {
                                ranges.push((*first, *last));
                                rest = more;
                            }
                            more => {
                                ranges.push((*first, *first));
                                rest = more;
                            }
                        }
                    }
                    parts.push(Part::Of(ranges, negated));
                }
                letter => parts.push(Part::One(*letter)),
            }
        }
        Some(Self(parts))
    }

    /// Whether it names all of a text. Takes as long as both are long, whatever stands in them.
    fn names(&self, text: &str) -> bool {
        let letters: Vec<char> = text.to_lowercase().chars().collect();
        // Which beginnings of the text the parts so far can stand for.
        let mut reached = vec![false; letters.len() + 1];
        reached[0] = true;
        for part in &self.0 {
            let mut next = vec![false; letters.len() + 1];
            for at in 0..=letters.len() {
                if let Part::Many(slashes) = part {
                    let continues = at > 0 && next[at - 1] && (*slashes || letters[at - 1] != '/');
                    next[at] = reached[at] || continues;
                } else if at > 0 && reached[at - 1] {
                    let letter = letters[at - 1];
                    next[at] = match part {
                        Part::One(one) => *one == letter,
                        Part::Any => letter != '/',
                        Part::Of(ranges, negated) => {
                            ranges.iter().any(|(first, last)| (*first..=*last).contains(&letter)) != *negated
                        }
                        Part::Many(_) => false,
                    };
                }
            }
            reached = next;
        }
        reached[letters.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_patterns_match_models() {
        for (pattern, text, expected) in [
            ("claude-*", "claude-sonnet-4", true),
            ("Claude-*", "CLAUDE-x", true),
            ("claude-*", "my-claude-x", false),
            ("anthropic/*", "anthropic/claude", true),
            ("openrouter/*", "openrouter/anthropic/claude", false),
            ("openrouter/**", "openrouter/anthropic/claude", true),
            ("*sonnet*", "claude-sonnet-4", true),
            ("gpt-?", "gpt-5", true),
            ("gpt-?", "gpt-5.1", false),
            ("gpt-[4-5]", "gpt-4", true),
            ("gpt-[!4-5]", "gpt-4", false),
            ("gpt-[!4-5]", "gpt-6", true),
            ("x[", "x[", true),
            ("[]]", "]", true),
            ("*", "", true),
            ("", "a", false),
        ] {
            assert_eq!(Glob::of(pattern).unwrap().names(text), expected, "{pattern} {text}");
        }
        assert!(Glob::of(&"*".repeat(LONGEST + 1)).is_none());
        let long = "a".repeat(4_000);
        assert!(!Glob::of(&"*a".repeat(LONGEST / 2)).unwrap().names(&format!("{long}b")));
    }
}
