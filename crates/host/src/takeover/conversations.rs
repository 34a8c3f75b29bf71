//! Conversations: which session each of them has.

use std::collections::BTreeSet;
use std::path::PathBuf;

use quipu_archive::openclaw::state::{IndexedSession, indexed_sessions};
use quipu_protocol::{Json, SessionId};
use quipu_store::{ReadModel, SessionQuery};
use serde_json::{Map, Value};

use super::{StateOutcome, StatePart, Takeover, TakeoverMode};
use crate::Failure;

/// A conversation of a gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayConversation {
    /// The file that names it.
    pub file: PathBuf,
    /// Its agent.
    pub agent: String,
    /// Its key, as it is written.
    pub key: String,
    /// Its session, by the name that it has in the store.
    pub session: SessionId,
    /// When it was used last, in milliseconds since the epoch; 0 where that is not said.
    pub updated: i64,
    /// What else is said of it, with secrets sealed.
    pub entry: Map<String, Value>,
}

impl Takeover<'_> {
    /// The conversations whose sessions are in the store. Those of others are reported; in a dry run, where nothing was imported,
    /// those without a file.
    ///
    /// # Errors
    /// What the store says.
    pub async fn conversations(
        &mut self,
        store: &dyn ReadModel,
    ) -> Result<Vec<GatewayConversation>, Failure> {
        let stems: BTreeSet<String> = self
            .state
            .agents
            .iter()
            .flat_map(|agent| &agent.transcripts)
            .filter_map(|path| path.file_name()?.to_str()?.split(".jsonl").next().map(str::to_owned))
            .collect();
        let mut found = Vec::new();
        for at in 0..self.state.agents.len() {
            let Some((agent, index)) =
                self.state.agents.get(at).and_then(|agent| Some((agent.id.clone(), agent.index.clone()?)))
            else {
                continue;
            };
            let (sessions, without) = indexed_sessions(&index);
            for key in without {
                let why = "it names no session".to_owned();
                self.report(StatePart::Conversation, &index.path, &key, StateOutcome::Left(why));
            }
            for IndexedSession { key, session, updated, entry } in sessions {
                let query = SessionQuery { id: Some(session.clone()), ..SessionQuery::default() };
                let is_there = match self.mode {
                    TakeoverMode::Write => store.sessions(query).await?.iter().any(|row| row.head.is_some()),
                    TakeoverMode::DryRun => stems.contains(session.as_str()),
                };
                if !is_there {
                    let why = format!("its session {session} has no transcript");
                    self.report(StatePart::Conversation, &index.path, &key, StateOutcome::Left(why));
                    continue;
                }
                let entry = Json::of(&entry).map(|entry| self.sealer.seal_json(&entry)).unwrap_or_default();
                let entry = serde_json::from_str(entry.get()).unwrap_or_default();
                let file = index.path.clone();
                found.push(GatewayConversation { file, agent: agent.clone(), key, session, updated, entry });
            }
        }
        Ok(found)
    }

    /// Reports what became of a conversation.
    pub fn report_conversation(&mut self, conversation: &GatewayConversation, outcome: StateOutcome) {
        let GatewayConversation { file, key, .. } = conversation;
        self.report(StatePart::Conversation, file, key, outcome);
    }
}
