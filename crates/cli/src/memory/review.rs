//! `quipu memory review`: a person accepts what nobody explained.

use std::io::Write as _;

use quipu_memory::MemoryKind;
use quipu_memory::notes::{LinesToReview, Notebook};
use serde_json::json;

use super::{ReviewArgs, open, place};
use crate::confirm::asked;
use crate::exit::Failure;
use crate::print::{note, printable};

pub(super) async fn review(args: &ReviewArgs) -> Result<(), Failure> {
    let open = open(&args.out.store).await?;
    let wanted = args.accept.iter().map(|text| place(text)).collect::<Result<Vec<_>, _>>()?;
    let mut stdout = crate::console::stdout();
    let mut accepted = 0;
    let mut waiting = 0;
    let mut conflicts = Vec::new();
    for book in &open.books {
        // Of a repository's memory, what is accepted is what stood there while it was shown.
        let content = (book.place().kind == MemoryKind::Repository).then(|| book.content());
        let found = book.to_review().await.map_err(quipu_host::Failure::from)?;
        let is_shown = content.as_ref().is_none_or(|content| *content == book.content());
        for file in book.list().files {
            if let Some(line) = book.read(&file.name).ok().and_then(|text| text.conflict) {
                conflicts.push(format!("{}/{}: line {line}", book.place().id, file.name));
            }
        }
        let mut chosen = Vec::new();
        let mut answers = Vec::new();
        for lines in found {
            let is_wanted = wanted.iter().any(|(name, range)| {
                *name == lines.name
                    && range.as_ref().is_none_or(|range| {
                        range.contains(&lines.author.lines.first) && range.contains(&lines.author.lines.last)
                    })
            });
            tell(book, &lines, args.out.json, &mut stdout)?;
            let answer = if args.accept_all || is_wanted {
                Some(true)
            } else {
                // Where some were named, nobody is asked about the others.
                if args.out.json || !wanted.is_empty() { None } else { asked("Accept these lines?")? }
            };
            match answer {
                Some(true) => chosen.push(lines),
                Some(false) | None => waiting += 1,
            }
            answers.push(answer);
        }
        if chosen.is_empty() {
            continue;
        }
        if book.place().kind == MemoryKind::Repository {
            // A repository changes as a whole, and counts as a whole.
            if answers.iter().all(|answer| *answer == Some(true)) {
                let content = content.filter(|content| is_shown && *content == book.content());
                let Some(content) = content else {
                    note(
                        "The memory of the repository changed while it was shown, so none of it was accepted.",
                    );
                    waiting += chosen.len();
                    continue;
                };
                let put = open.memory.choose(&open.project, |choice| choice.accepted = Some(content));
                put.map_err(quipu_host::Failure::from)?;
                accepted += chosen.len();
            } else {
                note("The memory of a repository is accepted as a whole, so none of it was.");
                waiting += chosen.len();
            }
            continue;
        }
        book.accept(&chosen).await.map_err(quipu_host::Failure::from)?;
        accepted += chosen.len();
    }
    if args.out.json {
        writeln!(stdout, "{}", json!({ "type": "end", "accepted": accepted, "waiting": waiting }))?;
        return Ok(stdout.flush()?);
    }
    for place in &conflicts {
        note(format!("{place} is a conflict mark of git; resolve the conflict, then review the file."));
    }
    match (accepted, waiting) {
        (0, 0) if !conflicts.is_empty() => {}
        (0, 0) => note("Nothing waits for a review."),
        (0, waiting) => note(format!(
            "{waiting} part(s) wait; `quipu memory review --accept FILE#L1-L2` accepts one, `--accept-all` all."
        )),
        (accepted, waiting) => note(format!("Accepted {accepted} part(s); {waiting} wait.")),
    }
    Ok(stdout.flush()?)
}

fn tell(
    book: &Notebook,
    lines: &LinesToReview,
    is_json: bool,
    stdout: &mut impl std::io::Write,
) -> Result<(), Failure> {
    let LinesToReview { name, author, text } = lines;
    let range = author.lines;
    if is_json {
        let line = json!({
            "type": "lines", "memory": book.place().id, "path": name.as_str(), "first": range.first, "last": range.last,
            "text": text, "by": author.by, "at": author.at, "node": author.node.map(|node| node.to_string()),
        });
        writeln!(stdout, "{line}")?;
        return Ok(());
    }
    writeln!(
        stdout,
        "{}/{name}#L{}-L{} ({})",
        book.place().id,
        range.first,
        range.last,
        printable(&author.by)
    )?;
    for line in text.lines() {
        writeln!(stdout, "  {}", printable(&quipu_memory::context::visible(line)))?;
    }
    Ok(())
}
