//! `trace`: how a lineage came about, as the action log tells it.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use quipu_protocol::{Json, NodeId, SessionId};
use quipu_store::{ActionQuery, Graph, LoggedAction, StoreError};
use serde::Deserialize;

use super::text::{END, escaped, shortened, units};
use quipu_transcript::{FORGOTTEN, one_line};

/// How a move that goes with a message to itself stands in the log of actions, which other programs read.
pub const INCARNATE: &str = "INCARNATE";

/// The first line of the frame.
const BEGIN: &str = "--- archived action log ---";
/// Code units of what a row carries that are shown.
const CARRIED: u64 = 500;
/// Characters of the kind of a row.
const KIND: usize = 64;

/// Which kinds of rows are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceFilter {
    /// Where a session was opened, and where it was set to another node with a message to itself.
    #[default]
    Default,
    /// Also where another session was gone to.
    Switches,
    /// Every row of the log.
    All,
}

/// Whose rows are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceScope {
    /// Those that reached a node of the lineage of this one, or left it.
    Lineage(NodeId),
    /// Rows of the session with this id.
    Session(SessionId),
    /// Those of sessions that work in this directory.
    Project(String),
    /// Every row of the log.
    All,
}

/// What is shown of the action log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceQuery {
    /// The sessions and nodes whose rows are read.
    pub scope: TraceScope,
    /// The kinds of rows that are shown.
    pub filter: TraceFilter,
    /// Rows at most, the newest: those that are shown count.
    pub limit: usize,
    /// Only rows with a lower number.
    pub before: Option<i64>,
}

impl TraceQuery {
    /// The newest 15 rows of a lineage, without switches of sessions.
    pub fn new(lineage: NodeId) -> Self {
        Self { scope: TraceScope::Lineage(lineage), filter: TraceFilter::Default, limit: 15, before: None }
    }
}

/// Rows of the action log, the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// At most as many as the query's limit.
    pub rows: Vec<LoggedAction>,
    /// Whether there are older ones.
    pub more: bool,
}

/// Reads the action log. Takes as long as what is shown and what its sessions did is large, and not as the log is.
///
/// # Errors
/// What the store says.
pub async fn trace(store: &dyn Graph, query: &TraceQuery) -> Result<Trace, StoreError> {
    let kinds: &[&str] = match query.filter {
        TraceFilter::Default => &["BOOT", "INCARNATE", "HYDRATE_GHOST"],
        TraceFilter::Switches => &["BOOT", "INCARNATE", "HYDRATE_GHOST", "SESSION_SWITCH"],
        TraceFilter::All => &[],
    };
    let mut asked = ActionQuery {
        kinds: kinds.iter().map(ToString::to_string).collect(),
        before: query.before,
        limit: Some(query.limit.saturating_add(1)),
        ..ActionQuery::default()
    };
    match &query.scope {
        TraceScope::Lineage(node) => (asked.lineage, asked.left) = (Some(*node), true),
        TraceScope::Session(session) => asked.session = Some(session.clone()),
        TraceScope::Project(project) => asked.project = Some(project.clone()),
        TraceScope::All => {}
    }
    let mut rows = store.actions(asked).await?;
    let more = rows.len() > query.limit;
    rows.truncate(query.limit);
    let hidden = store.hidden();
    for row in &mut rows {
        let ends = [row.action.from, row.action.to];
        if row.action.metadata.is_some() && ends.iter().flatten().any(|node| hidden.hides(node)) {
            row.action.metadata = Some(FORGOTTEN.to_owned());
        }
    }
    Ok(Trace { rows, more })
}

/// The payload of a row of the action log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowPayload {
    /// A message to whoever continues.
    Carryover(String),
    /// JSON, on several lines.
    Metadata(String),
}

/// The payload of a row of a kind: text of older programs, or JSON, maybe with a message in it. The payload of an
/// [`INCARNATE`] row is the message, whatever it looks like.
pub fn row_payload(kind: &str, metadata: &str) -> RowPayload {
    #[derive(Deserialize)]
    struct CarryoverMetadata {
        carryover_message: String,
    }
    let Ok(json) = Json::parse(metadata) else { return RowPayload::Carryover(metadata.to_owned()) };
    if let Ok(CarryoverMetadata { carryover_message }) = json.read() {
        return RowPayload::Carryover(carryover_message);
    }
    match json.get() {
        _ if kind == INCARNATE => RowPayload::Carryover(metadata.to_owned()),
        "null" => RowPayload::Carryover(metadata.to_owned()),
        _ => RowPayload::Metadata(indented(json.get())),
    }
}

/// JSON with two spaces for each level, its members in the order in which they stand.
fn indented(json: &str) -> String {
    let (mut out, mut depth, mut in_string, mut escape) =
        (String::with_capacity(2 * json.len()), 0_usize, false, false);
    let mut characters = json.chars().peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.push_str(&"  ".repeat(depth.min(100)));
    };
    while let Some(character) = characters.next() {
        if in_string {
            in_string = escape || character != '"';
            escape = character == '\\' && !escape;
            out.push(character);
            continue;
        }
        match character {
            '"' => {
                in_string = true;
                out.push(character);
            }
            '{' | '[' => {
                out.push(character);
                while characters.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = characters.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(character);
            }
            ',' => {
                out.push(character);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            other if other.is_ascii_whitespace() => {}
            other => out.push(other),
        }
    }
    out
}

impl Trace {
    /// As text, framed as archive; times as the clock shows them in `zone`.
    pub fn text(&self, zone: &TimeZone) -> String {
        let mut lines = vec![BEGIN.to_owned()];
        for row in &self.rows {
            lines.push(escaped(&row_text(row, zone)));
        }
        if self.rows.is_empty() {
            lines.push("(no actions recorded)".into());
        }
        if self.more {
            lines.push("... older rows are left out; raise limit to see more".into());
        }
        lines.push(END.to_owned());
        lines.join("\n")
    }
}

/// A row with what it carries, quoted below it.
pub fn row_text(row: &LoggedAction, zone: &TimeZone) -> String {
    let node = |node: &Option<NodeId>| node.map_or_else(|| "null".to_owned(), |node| node.short());
    let action = &row.action;
    let time = Timestamp::from_millisecond(action.timestamp).unwrap_or_default().to_zoned(zone.clone());
    let mut text = format!(
        "[{}] {}: {} → {}",
        time.strftime("%Y-%m-%d %H:%M"),
        one_line(&action.kind, KIND),
        node(&action.from),
        node(&action.to)
    );
    if row.left {
        text.push_str(" (departed from this lineage)");
    }
    let Some(metadata) = &action.metadata else { return text };
    let (what, payload) = match row_payload(&action.kind, metadata) {
        RowPayload::Carryover(message) => ("Carryover", message),
        RowPayload::Metadata(json) => ("Metadata", json),
    };
    text.push_str(&format!(". {what}:"));
    let cut = units(&payload) > CARRIED;
    let mut shown = shortened(&payload, CARRIED);
    if cut {
        shown.truncate(shown.len() - "...".len());
        shown.push_str("\n...(truncated)");
    }
    for line in shown.split('\n') {
        text.push_str("\n    > ");
        text.push_str(line);
    }
    text
}
