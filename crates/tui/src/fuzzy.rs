//! Names that are like what somebody typed.

use nucleo_matcher::pattern::{AtomKind, CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

/// Looks for one text in many. Case counts when the text has upper case; words may come in any order.
pub(crate) struct Fuzzy {
    matcher: Matcher,
    pattern: Pattern,
    buffer: Vec<char>,
}

impl Fuzzy {
    /// For paths, where what stands behind a slash counts as a beginning.
    pub(crate) fn paths() -> Self {
        Self::new(Config::DEFAULT.match_paths())
    }

    /// For names, where the beginning counts most.
    pub(crate) fn names() -> Self {
        let mut config = Config::DEFAULT;
        config.prefer_prefix = true;
        Self::new(config)
    }

    fn new(config: Config) -> Self {
        Self { matcher: Matcher::new(config), pattern: Pattern::default(), buffer: Vec::new() }
    }

    /// What is looked for from now on.
    pub(crate) fn look_for(&mut self, text: &str) {
        self.pattern = Pattern::new(text, CaseMatching::Smart, Normalization::Smart, AtomKind::Fuzzy);
    }

    /// How well a name fits, more for better; `None` when it does not.
    pub(crate) fn score(&mut self, name: &str) -> Option<u32> {
        self.pattern.score(Utf32Str::new(name, &mut self.buffer), &mut self.matcher)
    }

    /// Which characters of a name that fits were found, in order.
    pub(crate) fn matched(&mut self, name: &str) -> Vec<u32> {
        let mut found = Vec::new();
        self.pattern.indices(Utf32Str::new(name, &mut self.buffer), &mut self.matcher, &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }
}
