//! `quipu diff`: what two branches did since they parted.

use std::io::Write as _;

use quipu::history::{BranchDiff, BranchSide};
use quipu_protocol::NodeId;
use quipu_store::{Graph, StoreError};
use quipu_transcript::FileOpKind;
use unicode_width::UnicodeWidthStr as _;

use crate::args::DiffArgs;
use crate::exit::Failure;
use crate::home::home;
use crate::pager::page;
use crate::pick::{spot, store_of, vanished};
use crate::print::{Paint, counted, dollars, one_line, printable, width};

/// Columns from which on both stand side by side.
const BESIDE: usize = 100;

pub(crate) async fn run(args: &DiffArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let store = store_of(&home)?;
    let store: &dyn Graph = &*store;
    let a = spot(store, Some(&args.a), false).await?;
    let b = spot(store, Some(&args.b), false).await?;
    let diff = between(store, a.node, b.node).await?;
    if args.out.json {
        let mut out = crate::console::stdout();
        let value = serde_json::json!({
            "ancestor": diff.ancestor,
            "a": side_json(&diff.sides[0]),
            "b": side_json(&diff.sides[1]),
        });
        writeln!(out, "{value}")?;
        return Ok(out.flush()?);
    }
    page(drawn(&diff, width(), Paint::stdout()).as_bytes())
}

async fn between(store: &dyn Graph, a: NodeId, b: NodeId) -> Result<BranchDiff, Failure> {
    quipu::history::branch_diff(store, a, b).await.map_err(|error| match error {
        StoreError::Missing { .. } => vanished(a),
        error => error.into(),
    })
}

/// Two branches in lines of so many columns.
pub(crate) async fn compared(
    store: &dyn Graph,
    a: NodeId,
    b: NodeId,
    columns: usize,
) -> Result<String, Failure> {
    Ok(drawn(&between(store, a, b).await?, columns, Paint::none()))
}

/// Side by side where there is room, else one below the other.
fn drawn(diff: &BranchDiff, columns: usize, paint: Paint) -> String {
    let mut text = match diff.ancestor {
        Some(node) => format!("common ancestor {}\n\n", paint.cyan(&node.short())),
        None => "no common ancestor\n\n".to_owned(),
    };
    let [a, b] = &diff.sides;
    let room = (columns.saturating_sub(3)) / 2;
    if columns < BESIDE {
        for (name, side) in [("A", a), ("B", b)] {
            for (at, line) in lines(name, side).iter().enumerate() {
                let line = one_line_of(line, columns);
                text.push_str(&if at == 0 { paint.bold(&line) } else { line });
                text.push('\n');
            }
            text.push('\n');
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        return text;
    }
    let (left, right) = (lines("A", a), lines("B", b));
    for at in 0..left.len().max(right.len()) {
        let cell = |lines: &[String]| lines.get(at).map_or_else(String::new, |line| one_line_of(line, room));
        let (left, right) = (cell(&left), cell(&right));
        let pad = " ".repeat(room.saturating_sub(left.width()));
        let paints = |line: &str| if at == 0 { paint.bold(line) } else { line.to_owned() };
        let line = format!("{}{pad} {} {}", paints(&left), paint.dim("│"), paints(&right));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The line with its indentation, cut to the columns.
fn one_line_of(line: &str, columns: usize) -> String {
    let bare = line.trim_start_matches(' ');
    let indent = line.len() - bare.len();
    format!("{}{}", " ".repeat(indent), one_line(bare, columns.saturating_sub(indent)))
}

fn lines(name: &str, side: &BranchSide) -> Vec<String> {
    let session =
        side.session.as_ref().map_or(String::new(), |id| format!("  session {}", printable(id.as_str())));
    let more = if side.more { " or more" } else { "" };
    let mut lines = vec![
        format!("{name}  {}{session}", side.node.short()),
        format!(
            "{}{more}, {} asked, {}",
            counted(side.nodes, "node"),
            side.asked,
            counted(side.answers, "answer")
        ),
        format!("{} tokens in, {} out, {}", side.input, side.output, dollars(side.cost)),
    ];
    let mut section = |title: &str, content: Vec<String>| {
        if !content.is_empty() {
            lines.push(title.to_owned());
            lines.extend(content.into_iter().map(|line| format!("  {line}")));
        }
    };
    let said = side.prompts.iter().map(|(node, said)| {
        let said = said.strip_prefix("user: ").unwrap_or(said);
        format!("{} {said}", node.short())
    });
    section("asked", said.collect());
    let tools = side.tools.iter().map(|(tool, (calls, failed))| match failed {
        0 => format!("{calls} × {}", printable(tool)),
        failed => format!("{calls} × {}, {failed} failed", printable(tool)),
    });
    section("tools", tools.collect());
    let files = side.files.iter().map(|(path, kind)| format!("{} {}", done(*kind), printable(path)));
    section("files", files.collect());
    let last = side.last.iter().map(|(node, said)| {
        let said = said.strip_prefix("assistant: ").unwrap_or(said);
        format!("{} {said}", node.short())
    });
    section("ends with", last.collect());
    lines
}

fn done(kind: FileOpKind) -> &'static str {
    match kind {
        FileOpKind::Read => "read",
        FileOpKind::Write => "wrote",
        FileOpKind::Edit => "edited",
        FileOpKind::Remove => "removed",
    }
}

fn side_json(side: &BranchSide) -> serde_json::Value {
    let nodes = |found: &[(NodeId, String)]| {
        let nodes = found.iter().map(|(node, text)| serde_json::json!({ "node": node, "text": text }));
        nodes.collect::<Vec<_>>()
    };
    let tools = side
        .tools
        .iter()
        .map(|(tool, (calls, failed))| serde_json::json!({ "tool": tool, "calls": calls, "failed": failed }));
    let files =
        side.files.iter().map(|(path, kind)| serde_json::json!({ "path": path, "done": done(*kind) }));
    serde_json::json!({
        "node": side.node,
        "session": side.session,
        "nodes": side.nodes,
        "more": side.more,
        "asked": side.asked,
        "answers": side.answers,
        "said": nodes(&side.prompts),
        "last": side.last.as_ref().map(|last| nodes(std::slice::from_ref(last))),
        "tools": tools.collect::<Vec<_>>(),
        "files": files.collect::<Vec<_>>(),
        "input": side.input,
        "output": side.output,
        "cost": side.cost,
    })
}
