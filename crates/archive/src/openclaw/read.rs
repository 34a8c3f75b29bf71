//! Lines to items.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{Content, Entry, Json, Message, SessionId, UnixMs};
use quipu_seal::Sealer;

use super::index::called;
use super::outline::session_of;
use super::put_aside;
use crate::ProblemKind;
use crate::intake::{
    CompletedRead, Item, ItemParent, LineReader, NodeBuilder, Outline, SealedLines, Start, Stop, Text, run,
};
use crate::json::{Members, time_of};
use crate::lineages::session_id;
use crate::pi::{Header, Line, Parent, made_id, migrated};

pub(super) fn read(
    lines: &mut SealedLines,
    outline: &Outline,
    out: NodeBuilder,
) -> Result<CompletedRead, Stop> {
    let path = out.report.path.clone();
    let (session, sealer) = (outline.session.clone(), Arc::clone(lines.sealer()));
    let reader = Reader { out, path, sealer, session, header: None, n: 0, last: ItemParent::Nothing };
    run(reader, lines, outline.idle)
}

#[derive(Clone)]
struct Reader {
    out: NodeBuilder,
    path: PathBuf,
    sealer: Arc<Sealer>,
    session: SessionId,
    header: Option<SessionHeader>,
    /// The place of the next entry, the header's being 0.
    n: u64,
    last: ItemParent,
}

#[derive(Clone, Copy)]
struct SessionHeader {
    owner: usize,
    version: u64,
    time: UnixMs,
}

impl LineReader for Reader {
    fn out(&mut self) -> &mut NodeBuilder {
        &mut self.out
    }

    fn line(&mut self, text: &Text) -> Result<(), Stop> {
        let Some(header) = self.header else {
            match session_of(text.json.get(), &self.path) {
                Some(_) => self.begin(&text.json),
                None => self.out.report.problem(text.number, ProblemKind::NotAnEntry, "before the header"),
            }
            return Ok(());
        };
        self.n += 1;
        let before = match &self.last {
            ItemParent::Item(before) => Some(before.as_str()),
            ItemParent::Nothing => None,
        };
        let migrated = migrated(text.json.get(), header.version, &self.session, self.n, before);
        let json = migrated.and_then(|text| Json::parse(&text).ok()).unwrap_or_else(|| text.json.clone());
        let Some(line) = Line::read(json.get()) else { return Ok(()) };
        let is_header = line.head.kind == "session";
        let id = match &line.head.id {
            Some(id) if !id.is_empty() => id.to_string(),
            _ => {
                let kind = if is_header { ProblemKind::SecondHeader } else { ProblemKind::NoId };
                self.out.report.problem(text.number, kind, "");
                made_id(&self.session, self.n)
            }
        };
        let follows = match &line.head.parent {
            Parent::Nothing => ItemParent::Nothing,
            Parent::Id(parent) => ItemParent::Item(parent.to_string()),
            Parent::Unreadable if is_header => ItemParent::Nothing,
            // Notes that the gateway wrote by itself do not say it: they stand where they were written.
            Parent::Unreadable => {
                self.out.report.problem(text.number, ProblemKind::Orphan, "it has no parent id");
                self.last.clone()
            }
        };
        let parent = match &follows {
            ItemParent::Item(parent) => Some(parent.as_str()),
            ItemParent::Nothing => None,
        };
        let time = line.head.timestamp.unwrap_or(header.time);
        let (mut entry, mut step) = line.entry(0, parent, time, None, &|_| None);
        if let Entry::Message(Message::Assistant(answer)) = &mut entry {
            for block in &mut answer.content {
                // It covers the words that were signed; where a secret among them was sealed no model takes it.
                if let Content::Thinking(block) = block
                    && block.thinking.contains("[REDACTED:")
                {
                    block.thinking_signature = None;
                }
            }
        }
        let mut item = Item::new(id.clone(), entry, text.number);
        item.kept = step.extra.remove(crate::pi::AGENT).filter(|kept| kept.get() != "{\"n\":0}");
        item.first_kept = Members::of(json.get())
            .and_then(|members| members.string("firstKeptEntryId").map(std::borrow::Cow::into_owned));
        (item.owner, item.time, item.follows) = (header.owner, line.head.timestamp, follows);
        item.is_head = !is_header;
        if !is_header {
            self.last = ItemParent::Item(id);
        }
        self.out.item(item)
    }

    fn end(mut self, _: Duration) -> Result<NodeBuilder, Stop> {
        self.out.settle()?;
        if let Some(header) = self.header {
            self.add_registry_notes(header)?;
        }
        Ok(self.out)
    }
}

impl Reader {
    fn begin(&mut self, header: &Json) {
        let Some(members) = Members::of(header.get()) else { return };
        let text = |name: &str| members.string(name).unwrap_or_default().into_owned();
        let time = time_of(&text("timestamp")).unwrap_or_default();
        let agent = agent_of(&self.path).map(|agent| format!("\"agent\":{},", quipu_dag::quoted(agent)));
        let parent = text("parentSession");
        let parent = parent.rsplit(['/', '\\']).next().unwrap_or_default();
        // Its file, or its id.
        let parent = parent.split(".jsonl").next().filter(|parent| !parent.is_empty()).map(session_id);
        let start = Start {
            session: self.session.clone(),
            cwd: text("cwd"),
            time,
            parent: parent.filter(|parent| *parent != self.session),
            kept: Json::parse(&format!("{{{}\"header\":{header}}}", agent.unwrap_or_default())).ok(),
        };
        let owner = self.out.session(start);
        self.out.begin(owner, None);
        self.header = Some(SessionHeader {
            owner,
            version: Header::of(header).map_or(3, |header| header.version),
            time,
        });
    }

    /// What stands beside the entries: how the session is called, and whether it was put aside.
    fn add_registry_notes(&mut self, header: SessionHeader) -> Result<(), Stop> {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some((reason, when)) = put_aside(name) {
            let (reason, when) = (quipu_dag::quoted(reason), quipu_dag::quoted(when));
            self.add_note(header, &format!("{{\"type\":\"archived\",\"reason\":{reason},\"at\":{when}}}"))?;
        }
        match called(&self.path, &self.session) {
            Ok(Some((key, name))) => {
                let key = quipu_dag::quoted(&self.sealer.seal(&key));
                let text = match name.map(|name| quipu_dag::quoted(&self.sealer.seal(&name))) {
                    Some(name) => format!("{{\"type\":\"session_info\",\"name\":{name},\"key\":{key}}}"),
                    None => format!("{{\"type\":\"session_key\",\"key\":{key}}}"),
                };
                self.add_note(header, &text)?;
            }
            Ok(None) => {}
            Err(why) => self.out.report.problem(0, ProblemKind::Malformed, &format!("sessions.json: {why}")),
        }
        Ok(())
    }

    fn add_note(&mut self, header: SessionHeader, text: &str) -> Result<(), Stop> {
        let mut hash = quipu_protocol::ChunkId(quipu_dag::sha256(text.as_bytes())).to_string();
        hash.truncate(16);
        let entry = Entry::Meta(Json::parse(text).unwrap_or_default());
        let mut item = Item::new(format!("{}.{hash}", self.session), entry, 0);
        (item.owner, item.time, item.is_head) = (header.owner, Some(header.time), false);
        self.out.item(item)
    }
}

/// The agent of a file: the directory above `sessions`.
fn agent_of(path: &Path) -> Option<&str> {
    let sessions = path.parent().filter(|dir| dir.file_name().is_some_and(|name| name == "sessions"))?;
    sessions.parent()?.file_name()?.to_str()
}
