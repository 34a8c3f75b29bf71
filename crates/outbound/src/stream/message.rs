//! One answer as it arrives, and what is known of its blocks.

use std::ops::Range;

use super::StreamOptions;
use crate::block::{Block, ReplyTarget};
use crate::chunk::Chunker;
use crate::directives::DirectiveParser;
use crate::repeat::{Repeat, TextDigest};
use crate::silence::SilenceGate;
use crate::tags::{TagOptions, TagStripper};

/// One answer as it arrives.
#[derive(Debug, Clone)]
pub(super) struct Message {
    /// As the model sent it.
    pub(super) raw: String,
    /// Where the present text begins in `raw`.
    pub(super) raw_start: usize,
    pub(super) stripper: TagStripper,
    pub(super) parser: DirectiveParser,
    pub(super) gate: SilenceGate,
    pub(super) chunker: Chunker,
    /// Where in `visible` the text of the chunker begins.
    pub(super) chunked_from: usize,
    pub(super) digest: TextDigest,
    pub(super) repeat: Repeat,
    /// Media that were sent already and come again.
    pub(super) repeated_media: usize,
    /// Media that are not sent, or not yet, each with its number.
    pub(super) held_media: Vec<(usize, String)>,
    /// Media so far, those included.
    pub(super) media_count: usize,
    /// The number of the last one that was put into a block.
    pub(super) media_end: usize,
    pub(super) reasoning: String,
    /// The text to send, as far as it is certain.
    pub(super) visible: String,
    /// Where it begins when what came before was reasoning.
    pub(super) visible_start: usize,
    /// Between two texts of one answer.
    pub(super) between_texts: bool,
    /// Media for the next block, each with its number.
    pub(super) media: Vec<(usize, String)>,
    pub(super) voice: bool,
    pub(super) explicit: Option<ReplyTarget>,
    pub(super) any_block: bool,
    /// Blocks that may repeat what a messaging tool sent.
    pub(super) held: Vec<Piece>,
    /// Where the text of the last block ends in `visible`.
    pub(super) passed: Option<usize>,
    pub(super) ended: bool,
}

/// A block that was cut, with where it stands in the visible text of its message.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) block: Block,
    pub(super) source: Range<usize>,
    /// Bytes at its start and end that open a code block again and close it.
    pub(super) reopened: usize,
    pub(super) closed: usize,
    pub(super) paced: bool,
}

impl Message {
    pub(super) fn new(options: &StreamOptions) -> Self {
        Self {
            raw: String::new(),
            raw_start: 0,
            stripper: TagStripper::new(TagOptions { enforce_final: options.enforce_final }),
            parser: DirectiveParser::checking(options.media_check.clone()),
            gate: SilenceGate::new(),
            chunker: Chunker::new(options.chunks),
            chunked_from: 0,
            digest: TextDigest::default(),
            repeat: Repeat::Nothing,
            repeated_media: 0,
            held_media: Vec::new(),
            media_count: 0,
            media_end: 0,
            reasoning: String::new(),
            visible: String::new(),
            visible_start: 0,
            between_texts: false,
            media: Vec::new(),
            voice: false,
            explicit: None,
            any_block: false,
            held: Vec::new(),
            passed: None,
            ended: false,
        }
    }

    /// The media for a block.
    pub(super) fn take_media(&mut self) -> Vec<String> {
        let media = std::mem::take(&mut self.media);
        self.media_end = media.last().map_or(self.media_end, |(number, _)| *number);
        media.into_iter().map(|(_, source)| source).collect()
    }

    /// What stands between the block before and this one, which is taken down as the last one; `None` where that is not blank.
    pub(super) fn gap_before(
        &mut self,
        source: Range<usize>,
        reopened: usize,
        closed: usize,
    ) -> Option<String> {
        let text = self.visible.get(source.clone())?;
        let lead = if reopened == 0 { text.len() - text.trim_start_matches(['\n', '\r']).len() } else { 0 };
        let trail = if closed == 0 { text.len() - text.trim_end().len() } else { 0 };
        let before = self.passed.replace(source.end - trail)?;
        let gap = self.visible.get(before..source.start + lead)?;
        gap.trim().is_empty().then(|| gap.to_owned())
    }
}
