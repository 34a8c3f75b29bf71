//! The first line of a file.

use quipu_protocol::{Entry, Epoch, Json, SessionId, SessionStart, StepInfo};
use serde::{Deserialize, Serialize};

use super::{AGENT, VERSION};
use crate::built_node::{BuiltNode, NodeParts};
use crate::json::{Members, time_of};
use crate::lineages::session_id;

/// What a file says of itself.
pub(crate) struct Header {
    /// The session's name in the store.
    pub(crate) session: SessionId,
    /// The version that its entries have.
    pub(crate) version: u64,
    /// As the newest migration leaves it.
    json: Json,
}

/// The members of our part of the first node.
#[derive(Serialize, Deserialize)]
pub(crate) struct HeaderPart {
    pub(crate) header: Json,
}

impl Header {
    /// Reads a line, which must be a header with an id.
    pub(crate) fn of(json: &Json) -> Option<Self> {
        let members = Members::of(json.get())?;
        if members.string("type")? != "session" {
            return None;
        }
        let session = session_id(&members.string("id")?);
        // Whatever is no number counts as the first version, as it does for the migration.
        let version = members.get("version").and_then(|text| text.parse::<f64>().ok());
        let version = match version {
            None => 1,
            Some(number) if number < 2.0 => 1,
            Some(number) if number < 3.0 => 2,
            Some(_) => VERSION,
        };
        let mut migrated = crate::json::Difference::default();
        if version < VERSION {
            migrated.set("version", "3");
        }
        let mut text = String::with_capacity(json.get().len() + 16);
        migrated.write(&mut text, members.0.iter().map(|(name, value)| (name.as_ref(), *value)));
        let json = Json::parse(&text).unwrap_or_else(|_| json.clone());
        Some(Self { session, version, json })
    }

    /// The line, as the newest migration leaves it.
    pub(crate) fn text(&self) -> &str {
        self.json.get()
    }

    /// The first node of the session.
    pub(crate) fn build(&self) -> BuiltNode {
        let members = Members::of(self.json.get());
        let text = |name: &str| {
            members.as_ref().and_then(|members| members.string(name)).unwrap_or_default().into_owned()
        };
        let thinking = members.as_ref().and_then(|members| members.get("thinkingLevel"));
        // A fork names the file of its parent: time, `_`, id.
        let parent = text("parentSession");
        let parent = parent
            .rsplit(['/', '\\'])
            .next()
            .and_then(|name| name.strip_suffix(".jsonl")?.split_once('_'))
            .map(|(_, id)| session_id(id));
        let start = SessionStart {
            session: self.session.clone(),
            cwd: text("cwd"),
            agent: AGENT.into(),
            parent_session: parent,
            epoch: Epoch {
                provider: text("provider"),
                model: text("modelId"),
                thinking: thinking.and_then(|level| serde_json::from_str(level).ok()).unwrap_or_default(),
                ..Epoch::default()
            },
        };
        let mut step = StepInfo::default();
        if let Ok(kept) = Json::of(&HeaderPart { header: self.json.clone() }) {
            step.extra.insert(AGENT.into(), kept);
        }
        let timestamp = time_of(&text("timestamp")).unwrap_or_default();
        // Without an id of its own: that would be the session's, by which people mean its last entry.
        NodeParts::new(AGENT, &Entry::Session(start), &step).build(None, timestamp, None)
    }
}
