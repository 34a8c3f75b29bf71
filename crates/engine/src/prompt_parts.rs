//! The system prompt and the declarations of tools that a session's requests have, taken apart by what is recorded.

use std::sync::Arc;

use quipu_protocol::{NodeId, PromptSection, ToolSpec, Trust};

use crate::engine::Engine;
use crate::error::OpenError;
use crate::identity::system_text;
use crate::resume::read_past;
use crate::sources::section_text;

/// What a part of a system prompt is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptPartKind {
    /// The user's own text before everything else.
    Identity,
    /// What the program says before the sections.
    Beginning,
    /// A section of a context source.
    Section {
        /// The name of the source.
        source: String,
        /// What the source calls it.
        id: String,
        /// Whose words it holds.
        trust: Trust,
    },
    /// What the program says behind the sections.
    End,
}

/// A part of a system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptPart {
    /// What it is.
    pub kind: PromptPartKind,
    /// The byte of the prompt at which it begins.
    pub start: usize,
    /// What it says.
    pub text: String,
}

/// What stands before the conversation in the requests of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptParts {
    /// The whole system prompt.
    pub system: String,
    /// Its parts, in their order; between two of them is an empty line.
    pub parts: Vec<PromptPart>,
    /// The declarations of tools.
    pub tools: Arc<[ToolSpec]>,
}

impl Engine {
    /// The system prompt and the tools of the session that ends at `head`; from what is stored and nothing else.
    ///
    /// # Errors
    /// `Store`, `Broken`.
    pub async fn prompt_parts(&self, head: NodeId) -> Result<PromptParts, OpenError> {
        let past = read_past(&**self.store(), head).await?;
        let system = past.prompt.system.as_deref().map_or_else(String::new, system_text);
        let identity = past.prompt.identity.as_deref().map_or_else(String::new, system_text);
        let rest = past.prompt.rest();
        let sections = past.epoch.context.as_ref().map_or(&[][..], |context| &context.sections);
        let parts = parts_of(&identity, &rest, system.len().saturating_sub(rest.len()), sections);
        Ok(PromptParts { system, parts, tools: past.epoch.tools.clone() })
    }
}

/// The parts of a prompt whose rest begins at `at`. A record that does not fit makes all of it the beginning.
fn parts_of(identity: &str, rest: &str, at: usize, sections: &[PromptSection]) -> Vec<PromptPart> {
    let mut parts = Vec::new();
    let mut put = |kind, start: usize, text: &str| {
        let trimmed = text.trim();
        if !trimmed.is_empty() {
            let before = text.len() - text.trim_start().len();
            parts.push(PromptPart { kind, start: start + before, text: trimmed.to_owned() });
        }
    };
    put(PromptPartKind::Identity, 0, identity);
    let texts: Option<Vec<&str>> = sections.iter().map(|section| section_text(rest, section)).collect();
    let mut done = 0;
    for (section, text) in sections.iter().zip(texts.unwrap_or_default()) {
        let start = usize::try_from(section.start).unwrap_or(usize::MAX);
        put(PromptPartKind::Beginning, at + done, rest.get(done..start).unwrap_or_default());
        let PromptSection { source, id, trust, .. } = section;
        let kind = PromptPartKind::Section { source: source.clone(), id: id.clone(), trust: *trust };
        put(kind, at + start, text);
        done = done.max(start.saturating_add(text.len()));
    }
    let kind = if done == 0 { PromptPartKind::Beginning } else { PromptPartKind::End };
    put(kind, at + done, rest.get(done..).unwrap_or_default());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(id: &str, start: u64, bytes: u64) -> PromptSection {
        PromptSection {
            source: "s".into(),
            id: id.into(),
            trust: Trust::Project,
            start,
            bytes,
            main_only: false,
        }
    }

    fn shown(parts: &[PromptPart]) -> Vec<(usize, &str)> {
        parts.iter().map(|part| (part.start, &*part.text)).collect()
    }

    #[test]
    fn prompt_is_cut_where_its_record_says() {
        let rest = "Base.\n\nOne ü.\n\nTwo.\n\nEnd.\n";
        let sections = [section("1", 7, 7), section("2", 16, 4)];
        let parts = parts_of("Me.", rest, 5, &sections);
        assert_eq!(shown(&parts), [(0, "Me."), (5, "Base."), (12, "One ü."), (21, "Two."), (27, "End.")]);
        assert_eq!(parts[4].kind, PromptPartKind::End);
        assert!(matches!(&parts[2].kind, PromptPartKind::Section { id, .. } if id == "1"));
    }

    #[test]
    fn prompt_with_a_record_that_does_not_fit_is_one_part() {
        for sections in [vec![], vec![section("1", 99, 1)], vec![section("1", 1, u64::MAX)]] {
            let parts = parts_of("", "Äll.", 0, &sections);
            assert_eq!((shown(&parts), &parts[0].kind), (vec![(0, "Äll.")], &PromptPartKind::Beginning));
        }
    }
}
