//! A session as JSON and as Markdown.

use std::io::Write;

use quipu_dag::Node;
use quipu_protocol::NodeId;
use quipu_render::{markdown_entry, markdown_inline};
use quipu_store::SessionRow;
use quipu_transcript::Decoded;

use super::ExportError;
use super::read::{RowPosition, Writer};
use crate::json::node_json;
use crate::text::{dollars, iso};

/// What is to be said where a session has more branches than are written.
pub const MORE: &str = "it includes only the newest 10,000 branches, labels, compactions and forks";

/// What a session is called, and what is known of it.
pub(super) fn facts(row: &SessionRow) -> (String, Vec<(&'static str, String)>) {
    let title = [&row.called, &row.title].into_iter().find(|title| !title.trim().is_empty());
    let mut facts = vec![
        ("Session", row.id.to_string()),
        ("Agent", row.agent.clone()),
        ("Model", row.model.clone()),
        ("Directory", row.cwd.clone()),
        ("Forked from", row.parent.as_ref().map_or(String::new(), ToString::to_string)),
        ("Begun", iso(row.created)),
        ("Changed", iso(row.updated)),
        ("Nodes", (row.entries + 1).to_string()),
        ("Cost", dollars(row.cost)),
    ];
    facts.retain(|(_, is)| !is.is_empty());
    (title.map_or("Session", |title| title).into(), facts)
}

/// What is said where a node does not go on from the one that stands before it: which line, and from where.
pub(super) fn turn(
    last: Option<NodeId>,
    position: &RowPosition<'_>,
    node: &Node,
) -> Option<(String, Option<NodeId>)> {
    let parent = node.record.parent;
    if last.is_none() || (!position.starts && parent == last) {
        return None;
    }
    let which = match position.level {
        0 => "The line to the head continues".into(),
        level => format!("Branch at level {level}"),
    };
    Some((which, parent))
}

/// One object, a node a line.
pub(super) struct Json<'a> {
    out: &'a mut (dyn Write + Send),
    any: bool,
    forks: Vec<serde_json::Value>,
}

impl<'a> Json<'a> {
    pub(super) fn new(out: &'a mut (dyn Write + Send)) -> Self {
        Self { out, any: false, forks: Vec::new() }
    }
}

impl Writer for Json<'_> {
    fn begin(&mut self, _: &SessionRow, session: &serde_json::Value) -> Result<(), ExportError> {
        Ok(write!(self.out, "{{\"session\":{session},\n\"nodes\":[")?)
    }

    fn node(
        &mut self,
        position: &RowPosition<'_>,
        node: &Node,
        decoded: &Decoded,
    ) -> Result<(), ExportError> {
        let more = serde_json::json!({
            "level": position.level, "starts": position.starts, "past": position.past, "label": position.label,
            "head": position.head,
        });
        // The node holds raw JSON, which a value cannot.
        let (node, more) = (node_json(node, decoded)?, more.to_string());
        let comma = if std::mem::replace(&mut self.any, true) { "," } else { "" };
        Ok(write!(self.out, "{comma}\n{},{}", &node[..node.len() - 1], &more[1..])?)
    }

    fn fork(&mut self, row: &SessionRow) -> Result<(), ExportError> {
        self.forks.push(serde_json::json!({
            "session": row.id, "base": row.base, "name": row.called, "title": row.title, "entries": row.entries,
            "removed": row.head.is_none(),
        }));
        Ok(())
    }

    fn end(&mut self, more: bool) -> Result<(), ExportError> {
        let forks = serde_json::Value::from(std::mem::take(&mut self.forks));
        writeln!(self.out, "\n],\n\"forks\":{forks},\"more\":{more}}}")?;
        Ok(self.out.flush()?)
    }
}

/// A page to read.
pub(super) struct Markdown<'a> {
    out: &'a mut (dyn Write + Send),
    last: Option<NodeId>,
}

impl<'a> Markdown<'a> {
    pub(super) fn new(out: &'a mut (dyn Write + Send)) -> Self {
        Self { out, last: None }
    }
}

impl Writer for Markdown<'_> {
    fn begin(&mut self, row: &SessionRow, _: &serde_json::Value) -> Result<(), ExportError> {
        let (title, facts) = facts(row);
        writeln!(self.out, "# {}\n", markdown_inline(&title))?;
        for (what, is) in facts {
            writeln!(self.out, "- {what}: {}", markdown_inline(&is))?;
        }
        Ok(())
    }

    fn node(
        &mut self,
        position: &RowPosition<'_>,
        node: &Node,
        decoded: &Decoded,
    ) -> Result<(), ExportError> {
        // A label is shown beside its node, and a name above; the line goes on behind them.
        if let Some((which, from)) = turn(self.last, position, node) {
            let from = from.map_or("the beginning".into(), |from| format!("`{}`", from.short()));
            writeln!(self.out, "\n---\n\n*{which} from {from}*")?;
        }
        self.last = Some(node.id);
        if quipu::history::is_note(&decoded.entry) {
            return Ok(());
        }
        let shown = markdown_entry(&decoded.entry);
        write!(self.out, "\n## {} · {} · `{}`", shown.title, iso(node.record.timestamp), node.id.short())?;
        if let Some(label) = position.label {
            write!(self.out, " · label: {}", markdown_inline(label))?;
        }
        if position.head {
            write!(self.out, " · head")?;
        }
        writeln!(self.out)?;
        Ok(self.out.write_all(shown.body.as_bytes())?)
    }

    fn fork(&mut self, row: &SessionRow) -> Result<(), ExportError> {
        let title = if row.called.is_empty() { &row.title } else { &row.called };
        let (id, title) = (markdown_inline(row.id.as_str()), markdown_inline(title));
        Ok(writeln!(self.out, "\n*Session {id} continues from here: {title}*")?)
    }

    fn end(&mut self, more: bool) -> Result<(), ExportError> {
        if more {
            writeln!(self.out, "\n---\n\n*Not complete: {MORE}.*")?;
        }
        Ok(self.out.flush()?)
    }
}
