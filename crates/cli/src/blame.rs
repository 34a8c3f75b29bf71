//! `quipu blame`: which turn wrote each line of a file, and why.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use quipu::history::{BLAMED_CHANGES, Blame, BlameTurn, LineAuthor, UnknownReason, file_names, sibling_file};
use quipu_mcp_server::{CommitReport, credit_committed_lines};

use crate::args::BlameArgs;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, ago, iso, note, one_line, printable};
use crate::usage::tell_behind;
use quipu_host::now;

/// Bytes of a file at most.
const FILE_LIMIT: u64 = 16 << 20;
/// Columns of a reason beside its line.
const REASON: usize = 32;

pub(crate) async fn run(args: &BlameArgs) -> Result<(), Failure> {
    let (path, line) = target(&args.file)?;
    let shown = printable(&path.to_string_lossy());
    let content = read(&path, &shown)?;
    let lines: Vec<&str> = content.lines().collect();
    if let Some(line) = line
        && (line == 0 || line > lines.len())
    {
        return Err(Failure::usage(format!("{shown} has {} lines; there is no line {line}", lines.len())));
    }
    let home = home(&args.out.store)?;
    let (found, commits) = match home.existing_store().await? {
        Some(store) => {
            let names = file_names(&path);
            let mut found = quipu::history::blame(&*store, &names, &content, &sibling_file).await?;
            let commits = credit_committed_lines(&*store, &mut found, &path, &content).await?;
            (found, commits)
        }
        None => {
            let found = Blame { lines: vec![LineAuthor::Nobody; lines.len()], ..Blame::default() };
            (found, CommitReport::default())
        }
    };
    let wanted = match line {
        Some(line) => line - 1..line,
        None => 0..lines.len(),
    };
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    let whose = |at: usize| match found.lines.get(at) {
        Some(LineAuthor::Turn(turn)) => found.turns.get(*turn).map_or(LineOwner::Nobody, LineOwner::Turn),
        Some(LineAuthor::Unknown(why)) => LineOwner::Unknown(*why),
        Some(LineAuthor::Nobody) | None => LineOwner::Nobody,
    };
    if args.out.json {
        for at in wanted {
            writeln!(out, "{}", json(at + 1, lines[at], whose(at)))?;
        }
        let cut = found.changes >= BLAMED_CHANGES;
        let end = serde_json::json!({
            "type": "end", "file": path.to_string_lossy(), "lines": lines.len(), "changes": found.changes,
            "cut": cut, "behind": found.behind,
            "byCommit": commits.trailers.lines, "unknownTrailers": commits.trailers.unknown,
        });
        writeln!(out, "{end}")?;
        return Ok(out.flush()?);
    }
    let (paint, now) = (Paint::stdout(), now());
    let digits = lines.len().to_string().len();
    for at in wanted {
        let text = printable(lines[at]);
        match (whose(at), line) {
            (LineOwner::Turn(turn), Some(_)) => {
                write_turn(&mut out, turn, &text, now, paint, &crate::home::store_flag(&home))?;
            }
            (LineOwner::Nobody, Some(_)) => writeln!(out, "{text}\n\nno agent")?,
            (LineOwner::Unknown(why), Some(_)) => writeln!(out, "{text}\n\nunknown: {why}")?,
            (LineOwner::Turn(turn), None) => writeln!(
                out,
                "{}  {:<11}  {:>8}  {:REASON$}  {:>digits$}  {text}",
                paint.dim(&turn.node.short()),
                one_line(&turn.agent, 11),
                ago(now, turn.at),
                one_line(&turn.reason, REASON),
                at + 1
            )?,
            (whose, None) => {
                let by = if matches!(whose, LineOwner::Nobody) { "no agent" } else { "unknown" };
                let gap = 12 + 2 + 11 + 2 + 8 + 2 + REASON;
                writeln!(out, "{}  {:>digits$}  {text}", paint.dim(&format!("{by:<gap$}")), at + 1)?;
            }
        }
    }
    out.flush()?;
    let unknown: BTreeSet<UnknownReason> = found
        .lines
        .iter()
        .filter_map(|line| match line {
            LineAuthor::Unknown(why) => Some(*why),
            LineAuthor::Turn(_) | LineAuthor::Nobody => None,
        })
        .collect();
    for why in unknown {
        note(format!("Unknown: {why}."));
    }
    if found.changes == 0 && found.behind == 0 && commits.trailers.lines == 0 {
        note(format!("No known session changed {shown}."));
    }
    if found.changes >= BLAMED_CHANGES {
        note(format!("Only the newest {BLAMED_CHANGES} changes of this file were checked."));
    }
    commits.notes().into_iter().for_each(note);
    tell_behind(found.behind);
    Ok(())
}

/// The turn that a line comes from.
#[derive(Clone, Copy)]
enum LineOwner<'a> {
    Turn(&'a BlameTurn),
    Nobody,
    Unknown(UnknownReason),
}

/// A file, or a file and a line of it. A name that ends like a line is a name when there is such a file.
fn target(text: &str) -> Result<(PathBuf, Option<usize>), Failure> {
    let whole = std::path::absolute(text)?;
    if std::fs::symlink_metadata(&whole).is_ok() {
        return Ok((whole, None));
    }
    if let Some((file, line)) = text.rsplit_once(':')
        && !file.is_empty()
    {
        return match line.parse() {
            Ok(line) => Ok((std::path::absolute(file)?, Some(line))),
            Err(_) if std::fs::symlink_metadata(file).is_ok() => Err(Failure::usage(format!(
                "`{}` is not a line number; give FILE or FILE:LINE",
                printable(line)
            ))),
            Err(_) => Ok((whole, None)),
        };
    }
    Ok((whole, None))
}

fn read(path: &Path, shown: &str) -> Result<String, Failure> {
    let found = std::fs::metadata(path)
        .map_err(|error| Failure::usage(format!("{shown} cannot be read: {error}; give an existing file")))?;
    if !found.is_file() {
        return Err(Failure::usage(format!("{shown} is not a file; give one file")));
    }
    if found.len() > FILE_LIMIT {
        return Err(Failure::usage(format!(
            "{shown} has {} bytes; blame supports files up to {FILE_LIMIT} bytes",
            found.len()
        )));
    }
    let bytes =
        std::fs::read(path).map_err(|error| Failure::failed(format!("{shown} cannot be read: {error}")))?;
    if bytes.contains(&0) {
        return Err(Failure::usage(format!("{shown} is binary: it has no lines")));
    }
    String::from_utf8(bytes).map_err(|_| {
        Failure::usage(format!(
            "{shown} is not valid UTF-8, so its lines cannot be compared; it may be binary"
        ))
    })
}

fn write_turn(
    out: &mut impl std::io::Write,
    turn: &BlameTurn,
    text: &str,
    now: i64,
    paint: Paint,
    flag: &str,
) -> Result<(), Failure> {
    writeln!(out, "{text}\n")?;
    writeln!(out, "node    {}", turn.node)?;
    if let Some(session) = &turn.session {
        writeln!(out, "session {}  {}", printable(session.as_str()), printable(&turn.agent))?;
    }
    writeln!(out, "time    {}  {}", iso(turn.at), ago(now, turn.at))?;
    if let Some(commit) = &turn.commit {
        writeln!(out, "commit  {commit}")?;
    }
    if !turn.reason.is_empty() {
        let what = if turn.asked.is_some() { "asked " } else { "change" };
        writeln!(out, "{what}  {}", paint.bold(&one_line(&turn.reason, 400)))?;
    }
    writeln!(out, "{}", paint.dim(&format!("open: quipu open{flag} {}", turn.node.short())))?;
    Ok(())
}

/// A line as a program reads it: everything about its turn is null where no turn is known to have written it.
fn json(number: usize, text: &str, whose: LineOwner<'_>) -> serde_json::Value {
    let (by, turn, why) = match whose {
        LineOwner::Turn(turn) => ("turn", Some(turn), None),
        LineOwner::Nobody => ("nobody", None, None),
        LineOwner::Unknown(why) => ("unknown", None, Some(why.to_string())),
    };
    serde_json::json!({
        "type": "line",
        "line": number,
        "text": text,
        "by": by,
        "why": why,
        "node": turn.map(|turn| turn.node),
        "session": turn.and_then(|turn| turn.session.as_ref()),
        "agent": turn.map(|turn| &turn.agent),
        "at": turn.map(|turn| turn.at),
        "commit": turn.and_then(|turn| turn.commit.as_ref()),
        "asked": turn.and_then(|turn| turn.asked),
        "reason": turn.map(|turn| &turn.reason),
    })
}
