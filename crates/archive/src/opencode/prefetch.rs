//! The rows of a database, read and sealed on a thread of their own while what came before them is placed.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use quipu_protocol::{Json, SessionId, UnixMs};
use quipu_seal::Sealer;

use super::forks::{SessionOrigin, SessionsByMark, role};
use super::rows::{MessageRow, Row, Rows};
use crate::intake::Start;
use crate::json::Members;
use crate::lineages::session_id;

/// Bytes of messages that are handed over at once, about.
const PIECE: usize = 64 << 10;
/// Pieces that wait at most.
pub(super) const WAITING: usize = 8;

/// The state of a followed database at its last import.
pub(super) struct DatabaseState {
    pub(super) sessions: Vec<SessionOrigin>,
    pub(super) newest: UnixMs,
    /// Sessions whose last answer was not whole.
    pub(super) unfinished: HashSet<SessionId>,
}

impl DatabaseState {
    /// Whether a session is as it was.
    fn has(&self, at: usize, row: &Row, written: &HashSet<String>) -> bool {
        self.sessions.get(at).is_some_and(|one| one.row == *row)
            && !written.contains(&row.id)
            && !self.unfinished.contains(&session_id(&row.id))
    }
}

/// An item that the prefetch sends, in order. Nothing follows an error.
pub(super) enum PrefetchedItem {
    Session(Box<OpenedSession>),
    Messages(Vec<SealedMessage>),
    /// All messages of the session came.
    End,
}

/// A session that is to be imported.
pub(super) struct OpenedSession {
    pub(super) row: Row,
    pub(super) session: SessionId,
    /// Those whose messages it repeats.
    pub(super) related: Vec<SessionId>,
    pub(super) start: Start,
    /// The messages that it repeats at its beginning: whose each is, and its id there.
    pub(super) repeated: Vec<(Arc<Start>, String)>,
}

/// A message with its secrets sealed.
pub(super) struct SealedMessage {
    pub(super) id: String,
    pub(super) created: UnixMs,
    pub(super) updated: UnixMs,
    pub(super) role: String,
    pub(super) bytes: usize,
    /// What it says beside its parts; `None` when that is no JSON.
    pub(super) json: Option<Json>,
    pub(super) parts: Vec<Option<Json>>,
    /// How many of these had secrets.
    pub(super) secrets: u64,
}

impl SealedMessage {
    fn of(message: MessageRow, parts: &[String], sealer: &Sealer) -> Self {
        let MessageRow { id, created, updated, data } = message;
        let mut secrets = 0;
        let mut sealed = |text: &str| {
            let json = Json::parse(text).ok().filter(|json| json.get().starts_with('{'))?;
            let sealed = sealer.seal_json(&json);
            secrets += u64::from(sealed != json);
            Some(sealed)
        };
        let json = sealed(&data);
        let role = role(json.as_ref().and_then(|json| Members::known(json.get())).as_ref());
        // Of what is no message, nobody asks for the parts.
        let read = if json.is_some() { parts } else { &[] };
        let bytes = data.len() + read.iter().map(String::len).sum::<usize>();
        let parts = read.iter().map(|part| sealed(part)).collect();
        Self { id, created, updated, role, bytes, json, parts, secrets }
    }
}

/// Reads and seals the sessions of a database in advance.
pub(super) struct Prefetch {
    pub(super) rows: Rows,
    pub(super) sealer: Arc<Sealer>,
    /// What was remembered, and the sessions of the rows that were written since.
    pub(super) known: Option<(Box<DatabaseState>, HashSet<String>)>,
    /// Sessions that were looked at.
    pub(super) sessions: Vec<SessionOrigin>,
    /// Whether some of them were passed by, being as they were.
    pub(super) is_part: bool,
}

impl Prefetch {
    /// Reads these sessions; ends early where nobody takes what comes.
    pub(super) fn run(mut self, listed: Vec<Row>, out: &SyncSender<io::Result<PrefetchedItem>>) -> Self {
        let mut begins = SessionsByMark::new();
        for row in listed {
            match self.session(row, &mut begins, out) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    // Nobody who waits: then nobody needs to know.
                    drop(out.send(Err(error)));
                    break;
                }
            }
        }
        self
    }

    /// Whether somebody takes what comes.
    fn session(
        &mut self,
        row: Row,
        begins: &mut SessionsByMark,
        out: &SyncSender<io::Result<PrefetchedItem>>,
    ) -> io::Result<bool> {
        let at = self.sessions.len();
        if let Some((known, written)) = &mut self.known
            && known.has(at, &row, written)
        {
            let SessionOrigin { copied, marks, .. } = &mut known.sessions[at];
            let (copied, marks) = (*copied, std::mem::take(marks));
            if let Some(first) = marks.first() {
                begins.entry(*first).or_default().push(at);
            }
            self.sessions.push(SessionOrigin { row, copied, marks });
            self.is_part = true;
            return Ok(true);
        }
        let one = SessionOrigin::of(row, &self.rows, &mut self.sessions, begins)?;
        let start = |one: &SessionOrigin| start(&one.row, one.parent(&self.sessions), &self.sealer);
        let begun = OpenedSession {
            row: one.row.clone(),
            session: one.session(),
            related: one.origins(&self.sessions).iter().map(|(from, _)| from.session()).collect(),
            start: start(&one),
            repeated: one.repeated(&self.sessions, &self.rows, start)?,
        };
        let id = one.row.id.clone();
        self.sessions.push(one);
        if out.send(Ok(PrefetchedItem::Session(Box::new(begun)))).is_err() {
            return Ok(false);
        }
        let (mut piece, mut bytes) = (Vec::new(), 0);
        let mut is_taken = true;
        self.rows.conversation(&id, |message, parts| {
            let message = SealedMessage::of(message, &parts, &self.sealer);
            bytes += message.bytes;
            piece.push(message);
            if bytes >= PIECE {
                bytes = 0;
                is_taken = out.send(Ok(PrefetchedItem::Messages(std::mem::take(&mut piece)))).is_ok();
            }
            Ok::<_, io::Error>(is_taken)
        })?;
        Ok(is_taken
            && out.send(Ok(PrefetchedItem::Messages(piece))).is_ok()
            && out.send(Ok(PrefetchedItem::End)).is_ok())
    }
}

fn start(row: &Row, parent: Option<SessionId>, sealer: &Sealer) -> Start {
    let kept = [("id", &row.id), ("version", &row.version)]
        .map(|(name, value)| format!("\"{name}\":{}", quipu_dag::quoted(value)))
        .join(",");
    Start {
        session: session_id(&row.id),
        cwd: sealer.seal(&row.directory).into_owned(),
        time: row.time,
        parent,
        kept: Json::parse(&format!("{{{kept}}}")).ok(),
    }
}
