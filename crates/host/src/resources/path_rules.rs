//! Files of rules for some files only: those with `paths` in their frontmatter.

use std::path::{Path, PathBuf};

use super::places::ResourceScope;
use crate::globs::PathGlob;

/// Patterns of a file at most.
const MOST_PATTERNS: usize = 100;

/// A file of rules that counts once a tool works on a file that one of its patterns fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRules {
    /// The file.
    pub path: PathBuf,
    /// Whose it is.
    pub scope: ResourceScope,
    /// Its patterns, relative to the root of the project.
    pub patterns: Vec<String>,
    globs: Vec<PathGlob>,
}

impl PathRules {
    pub(super) fn new(path: PathBuf, scope: ResourceScope, mut patterns: Vec<String>) -> Self {
        patterns.truncate(MOST_PATTERNS);
        let globs = patterns.iter().map(|pattern| PathGlob::new(pattern)).collect();
        Self { path, scope, patterns, globs }
    }

    /// Whether they are for a file of the project with this root.
    pub(super) fn fits(&self, root: &Path, file: &Path) -> bool {
        let below = file.strip_prefix(root).ok().and_then(Path::to_str);
        below.is_some_and(|below| self.globs.iter().any(|glob| glob.fits(below)))
    }
}
