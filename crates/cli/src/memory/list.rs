//! `quipu memory list` and `show`.

use std::io::Write as _;

use quipu_memory::AuthorClass;
use quipu_memory::notes::{LineAuthor, Notebook};
use serde_json::{Value, json};

use super::{ShowArgs, WhoseArg, open, place};
use crate::args::OutArgs;
use crate::exit::Failure;
use crate::print::{Paint, note, printable};

/// Lines of each class of author.
pub(super) fn classes(authors: &[LineAuthor]) -> [u64; 4] {
    let mut counts = [0; 4];
    for author in authors {
        let place = AuthorClass::ALL.iter().position(|class| *class == author.class);
        if let Some(count) = place.and_then(|at| counts.get_mut(at)) {
            *count += u64::from(author.lines.last + 1 - author.lines.first);
        }
    }
    counts
}

pub(super) fn classes_json(counts: [u64; 4]) -> Value {
    let pairs =
        AuthorClass::ALL.iter().zip(counts).map(|(class, count)| (class.name().to_owned(), count.into()));
    Value::Object(pairs.collect())
}

pub(super) fn heading(book: &Notebook) -> String {
    let place = book.place();
    let whose = WhoseArg::of(place.kind);
    let accepted = if whose == "repository" && !book.is_accepted() { ", not accepted" } else { "" };
    format!("{whose}{accepted}  {}", place.root.display())
}

/// A name as it is shown: on one line, whatever is in it.
pub(super) fn named(path: &str) -> String {
    printable(&path.replace('\n', "\\n"))
}

pub(super) async fn list(out: &OutArgs) -> Result<(), Failure> {
    let open = open(&out.store).await?;
    let mut stdout = crate::console::stdout();
    let paint = Paint::stdout();
    for book in &open.books {
        book.observe().await.map_err(quipu_host::Failure::from)?;
        let files = book.list();
        let place = book.place();
        let (id, kind) = (&place.id, WhoseArg::of(place.kind));
        if !out.json {
            writeln!(stdout, "{}", paint.bold(&printable(&heading(book))))?;
        }
        let read: Vec<_> = files.files.iter().map(|file| book.read(&file.name)).collect();
        let texts: Vec<_> = read.iter().filter_map(|text| text.as_ref().ok()).collect();
        let mut authors = book.authors_of(&texts).await.map_err(quipu_host::Failure::from)?.into_iter();
        for (file, text) in files.files.iter().zip(&read) {
            let (lines, problem) = match text {
                Ok(text) => {
                    let counts = classes(&authors.next().unwrap_or_default());
                    let problem = text.conflict.map(|line| format!("line {line} is a conflict mark of git"));
                    (Some((text.text.lines().count(), counts)), problem)
                }
                Err(error) => (None, Some(error.to_string())),
            };
            let counts = lines.map(|(_, counts)| counts).unwrap_or_default();
            let count = lines.map(|(count, _)| count);
            if out.json {
                let line = json!({
                    "memory": id, "kind": kind, "path": file.name.as_str(), "bytes": file.bytes, "lines": count,
                    "classes": classes_json(counts), "problem": problem,
                });
                writeln!(stdout, "{line}")?;
                continue;
            }
            let mut notes = Vec::new();
            let [_, _, untrusted, _] = counts;
            if untrusted > 0 {
                notes.push(format!("{untrusted} to review"));
            }
            notes.extend(problem);
            let count = count.map_or_else(String::new, |count| format!("{count} lines"));
            let name = printable(file.name.as_str());
            writeln!(stdout, "  {name:<36} {count:>10}  {}", printable(&notes.join("; ")))?;
        }
        for (path, problem) in &files.problems {
            let path = path.strip_prefix(&place.root).unwrap_or(path).to_string_lossy();
            if out.json {
                let line =
                    json!({ "memory": id, "kind": kind, "path": path, "problem": problem.to_string() });
                writeln!(stdout, "{line}")?;
            } else {
                writeln!(stdout, "  {:<36} not used: {problem}", named(&path))?;
            }
        }
        if !out.json && files.files.is_empty() && files.problems.is_empty() {
            writeln!(stdout, "  no files yet")?;
        }
    }
    Ok(stdout.flush()?)
}

pub(super) async fn show(args: &ShowArgs) -> Result<(), Failure> {
    let open = open(&args.out.store).await?;
    let (name, lines) = place(&args.file)?;
    let book = open.book(args.of, &name)?;
    book.observe().await.map_err(quipu_host::Failure::from)?;
    let text = book.read(&name).map_err(quipu_host::Failure::from)?;
    let authors = book.authors(&name).await.map_err(quipu_host::Failure::from)?;
    let mut stdout = crate::console::stdout();
    let paint = Paint::stdout();
    for (line, number) in text.text.lines().zip(1_u32..) {
        if lines.as_ref().is_some_and(|lines| !lines.contains(&number)) {
            continue;
        }
        let author = authors.iter().find(|one| (one.lines.first..=one.lines.last).contains(&number));
        let class = author.map_or(AuthorClass::Untrusted, |author| author.class);
        if args.out.json {
            let sources: Vec<String> =
                author.into_iter().flat_map(|one| &one.sources).map(ToString::to_string).collect();
            let row = json!({
                "memory": book.place().id, "path": name.as_str(), "line": number, "text": line, "class": class.name(),
                "by": author.map(|one| &one.by), "at": author.map(|one| one.at),
                "node": author.and_then(|one| one.node).map(|node| node.to_string()), "sources": sources,
            });
            writeln!(stdout, "{row}")?;
        } else {
            let shown = quipu_memory::context::visible(line);
            let margin = paint.dim(&format!("{number:>5} {:<9}", class.name()));
            writeln!(stdout, "{margin} {}", printable(&shown))?;
        }
    }
    if let Some(line) = text.conflict {
        note(format!(
            "Line {line} is a conflict mark of git: resolve the conflict; until then no session reads the file."
        ));
    }
    Ok(stdout.flush()?)
}
