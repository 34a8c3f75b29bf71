//! What a context source gave, checked and sealed.

use std::collections::HashMap;
use std::sync::Arc;

use quipu_machine::ConversationBrief;
use quipu_protocol::{
    AddedBlock, Body, Content, EpochOpening, Message, NodeId, OpeningBoundary, Origin, Trust, UserMessage,
    own_blocks,
};
use quipu_seal::Sealer;
use quipu_store::{Graph, HiddenSnapshot, decode_nodes};

use super::prompt::{Part, marked};
use super::{Context, Opening, SECTION_ID, SOURCE_SECTIONS, SOURCE_TEXT, Section, SourceError};

/// What a source gave, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ContextParts {
    pub(super) parts: Vec<Part>,
    pub(super) keep_recent: Option<u64>,
    pub(super) opening: Option<EpochOpening>,
}

/// What a source gave, where it can be taken; sections without text are none.
pub(super) fn checked(
    sealer: &Sealer,
    source: &str,
    limit: usize,
    given: Context,
) -> Result<ContextParts, SourceError> {
    let Context { sections, keep_recent } = given;
    if sections.len() > SOURCE_SECTIONS {
        let count = sections.len();
        return Err(SourceError::new(format!(
            "it returned {count} sections; the limit is {SOURCE_SECTIONS}"
        )));
    }
    let bytes = sections.iter().fold(0_usize, |sum, section| sum.saturating_add(section.text.len()));
    if bytes > limit {
        return Err(SourceError::new(format!("it returned {bytes} bytes; the limit is {limit}")));
    }
    if let Some(section) = sections.iter().find(|section| section.id.len() > SECTION_ID) {
        let bytes = section.id.len();
        return Err(SourceError::new(format!(
            "it returned a section with an id of {bytes} bytes; the limit is {SECTION_ID}"
        )));
    }
    let filled = sections.into_iter().filter(|section| !section.text.trim().is_empty());
    let part = |Section { id, text, trust }| {
        let (id, text) = (sealer.seal(&id).into_owned(), sealer.seal(&text).into_owned());
        let text = match trust {
            Trust::Owner | Trust::Project => text,
            Trust::Untrusted => marked(source, &id, &text),
        };
        Part { id, trust, text, changes: false, main_only: false }
    };
    Ok(ContextParts { parts: filled.map(part).collect(), keep_recent, opening: None })
}

/// What a source gave to stand before the conversation, as it is recorded.
pub(super) fn checked_opening(
    sealer: &Sealer,
    source: &str,
    given: Option<Opening>,
) -> Result<Option<EpochOpening>, SourceError> {
    let Some(Opening { text, boundary, nodes, state }) = given else { return Ok(None) };
    let words = boundary.as_ref().map_or(0, |pair| pair.assistant.len().saturating_add(pair.user.len()));
    for bytes in [text.len().saturating_add(words), state.as_ref().map_or(0, String::len)] {
        if bytes > SOURCE_TEXT {
            return Err(SourceError::new(format!(
                "it returned {bytes} bytes before the conversation; the limit is {SOURCE_TEXT}"
            )));
        }
    }
    let sealed = |text: &str| sealer.seal(text).into_owned();
    let boundary =
        boundary.map(|pair| OpeningBoundary { assistant: sealed(&pair.assistant), user: sealed(&pair.user) });
    let (text, state) = (sealed(&text), state.as_deref().map(sealed));
    Ok(Some(EpochOpening { source: source.to_owned(), text, boundary, nodes, state }))
}

/// What a source is to say of what stands before the conversation.
pub(super) enum OpeningTerms<'a> {
    /// Nothing: this stays.
    Kept(Option<&'a EpochOpening>),
    /// What is there from now on, instead of this.
    Asked(Option<&'a EpochOpening>, &'a ConversationBrief),
}

/// Whether what stands before the conversation tells something that a person had forgotten.
pub(super) fn tells_forgotten(hidden: &HiddenSnapshot, opening: &EpochOpening) -> bool {
    hidden.problem().is_none() && opening.nodes.iter().any(|node| hidden.hides(node))
}

/// What sources may know of the conversation, without what hooks put beside the words of the user: their nodes say which blocks these
/// are. What cannot be read is left out.
pub(crate) async fn without_additions(store: &dyn Graph, brief: ConversationBrief) -> ConversationBrief {
    if brief.nodes.is_empty() {
        return brief;
    }
    let found: Vec<_> = store.nodes(&brief.nodes).await.unwrap_or_default().into_iter().flatten().collect();
    let decoded = decode_nodes(store, &found).await.unwrap_or_default();
    let added = found.iter().zip(decoded).map(|(node, decoded)| (node.id, decoded.step.added));
    let added: HashMap<NodeId, Vec<AddedBlock>> = added.collect();
    let said = brief.earlier.iter().zip(&brief.nodes).filter_map(|(message, node)| {
        let is_by_hook = |one: &&AddedBlock| one.provenance.origin == Origin::Hook;
        let by_hooks: Vec<AddedBlock> = added.get(node)?.iter().filter(is_by_hook).cloned().collect();
        let own = match &**message {
            Message::User(user) if !by_hooks.is_empty() => {
                let blocks = user.content.blocks();
                let own: Vec<Content> = own_blocks(&blocks, &by_hooks).cloned().collect();
                Arc::new(Message::User(UserMessage { content: Body::Blocks(own), ..user.clone() }))
            }
            _ => message.clone(),
        };
        Some((own, *node))
    });
    let (earlier, nodes) = said.unzip();
    ConversationBrief { earlier, nodes, ..brief }
}
