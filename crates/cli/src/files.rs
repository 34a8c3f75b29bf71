//! `quipu files`: the files that a session read and changed.

use std::collections::HashMap;
use std::io::Write as _;

use quipu_protocol::{NodeId, UnixMs};
use quipu_store::{FileActivity, ReadModel as _};
use quipu_transcript::FileOpKind;

use crate::args::FilesArgs;
use crate::exit::Failure;
use crate::home::{home, no_sessions};
use crate::print::{Paint, ago, note, printable};
use crate::usage::tell_behind;
use quipu_host::{self as setup, now};

/// What was done to one file.
struct File<'a> {
    path: &'a str,
    read: u64,
    written: u64,
    edited: u64,
    removed: u64,
    last: &'a FileActivity,
    /// The last change.
    changed: Option<(NodeId, UnixMs)>,
}

pub(crate) async fn run(args: &FilesArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let Some(store) = home.existing_store().await? else {
        return Err(no_sessions(&home));
    };
    let row = match &args.session {
        Some(what) => setup::session_named(&*store, what).await?,
        None => quipu_host::newest_here(&*store).await?,
    };
    let known = store.file_activity(&row.id).await?;
    let files = by_path(&known.found);
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if args.out.json {
        for file in &files {
            writeln!(out, "{}", file.json())?;
        }
        let end = serde_json::json!({
            "type": "end", "session": row.id, "cwd": row.cwd, "files": files.len(), "behind": known.behind,
        });
        writeln!(out, "{end}")?;
        return Ok(out.flush()?);
    }
    let (paint, now) = (Paint::stdout(), now());
    for file in &files {
        let counts = [
            ("read", file.read),
            ("written", file.written),
            ("edited", file.edited),
            ("removed", file.removed),
        ];
        let counts: Vec<String> = counts
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{what} {count}"))
            .collect();
        let path = shown(file.path, &row.cwd);
        let path = if file.changed.is_some() { paint.bold(&path) } else { path };
        writeln!(
            out,
            "{}  {:>8}  {:<28}  {path}",
            paint.dim(&file.last.node.short()),
            ago(now, file.last.at),
            counts.join(", "),
        )?;
    }
    out.flush()?;
    if files.is_empty() {
        note(format!("No tool of session {} named a file.", row.id));
    }
    tell_behind(known.behind);
    Ok(())
}

/// A path as somebody in the session's directory would name it.
pub(crate) fn shown(path: &str, cwd: &str) -> String {
    let below = path.strip_prefix(cwd).and_then(|rest| rest.strip_prefix('/'));
    printable(below.filter(|rest| !cwd.is_empty() && !rest.is_empty()).unwrap_or(path))
}

/// What was done to each file, the last touched first.
fn by_path(touched: &[FileActivity]) -> Vec<File<'_>> {
    let mut files: Vec<File<'_>> = Vec::new();
    let mut places = HashMap::new();
    for one in touched {
        let index = *places.entry(one.path.as_str()).or_insert(files.len());
        if index == files.len() {
            let path = one.path.as_str();
            files.push(File { path, read: 0, written: 0, edited: 0, removed: 0, last: one, changed: None });
        }
        let file = &mut files[index];
        match one.kind {
            FileOpKind::Read => file.read += one.times,
            FileOpKind::Write => file.written += one.times,
            FileOpKind::Edit => file.edited += one.times,
            FileOpKind::Remove => file.removed += one.times,
        }
        if one.kind != FileOpKind::Read && file.changed.is_none() {
            file.changed = Some((one.node, one.at));
        }
    }
    files
}

impl File<'_> {
    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "type": "file",
            "path": self.path,
            "read": self.read,
            "written": self.written,
            "edited": self.edited,
            "removed": self.removed,
            "at": self.last.at,
            "node": self.last.node,
            "changed": self.changed.map(|(node, at)| serde_json::json!({ "node": node, "at": at })),
        })
    }
}
