//! How much is looked at for one question.

/// What of an answer may be missed lies beyond these.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// Postings that are read, of rare words first.
    pub(super) read: u32,
    /// Postings of words that are near those of the question, of rare ones first.
    pub(super) read_near: u32,
    /// In an index of more units than this, words that one of four has are not read, and only the first ones are scored exactly.
    pub(super) large: u32,
    /// Units that are scored exactly, all of them where they are no more, in an index that is not large.
    pub(super) exact: usize,
    /// Units that are scored exactly of more: those that the words alone rank first.
    pub(super) first: usize,
    /// Units whose vectors are nearest that are looked at.
    pub(super) nearest: usize,
    /// Units of a large index that are nearest by their signs, whose vectors are read, and of these how many are looked at.
    pub(super) likely: usize,
    pub(super) nearest_likely: usize,
}

impl Effort {
    /// That of a question of a person or a model.
    pub(super) const USUAL: Self = Self {
        read: 100_000,
        read_near: 60_000,
        large: 20_000,
        exact: 2_000,
        first: 500,
        nearest: 2_000,
        likely: 1_500,
        nearest_likely: 500,
    };
}
