//! `quipu memory status`.

use std::io::Write as _;

use quipu_memory::AuthorClass;
use quipu_memory::files::FileName;
use serde_json::json;

use super::list::{classes, classes_json, heading};
use super::{WhoseArg, open};
use crate::args::OutArgs;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, printable};
use quipu_memory::project_root;
use quipu_store::{UsageGrouping, UsageQuery};

/// What calls models in the background, by the purposes of its calls.
const PARTS: [&str; 3] = ["dream", "memory-flush", "active-memory"];
/// Milliseconds.
const WEEK: i64 = 7 * 86_400_000;

pub(super) async fn status(out: &OutArgs) -> Result<(), Failure> {
    let mut stdout = crate::console::stdout();
    let cwd = current_dir()?;
    let project = project_root(&cwd);
    if quipu_host::memory::memory_places(&home(&out.store)?, &cwd)?.is_empty() {
        match out.json {
            true => writeln!(stdout, "{}", json!({ "on": false, "project": project, "memories": [] }))?,
            false => {
                writeln!(stdout, "Memory is off in {}; `quipu memory on` switches it on.", project.display())?;
            }
        }
        return Ok(stdout.flush()?);
    }
    let open = open(&out.store).await?;
    let paint = Paint::stdout();
    let mut memories = Vec::new();
    for book in &open.books {
        book.observe().await.map_err(quipu_host::Failure::from)?;
        let list = book.list();
        let (mut counts, mut entries) = ([0; 4], 0_u64);
        for file in &list.files {
            let Ok(text) = book.read(&file.name) else { continue };
            let is_entry = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
            entries += text.text.lines().filter(is_entry).count() as u64;
            let authors = book.authors(&file.name).await.map_err(quipu_host::Failure::from)?;
            for (sum, count) in counts.iter_mut().zip(classes(&authors)) {
                *sum += count;
            }
        }
        let place = book.place();
        let dreamt =
            std::fs::metadata(place.root.join(FileName::DREAMS)).and_then(|found| found.modified()).ok();
        let dreamt = dreamt
            .and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok())
            .and_then(|at| i64::try_from(at.as_millis()).ok());
        let (files, problems) = (list.files.len(), list.problems.len());
        memories.push(json!({
            "memory": place.id, "kind": WhoseArg::of(place.kind), "root": place.root, "files": files, "problems": problems,
            "entries": entries, "classes": classes_json(counts), "lastDream": dreamt,
        }));
        if out.json {
            continue;
        }
        writeln!(stdout, "{}", paint.bold(&printable(&heading(book))))?;
        let of_class: Vec<String> = AuthorClass::ALL
            .iter()
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .map(|(class, count)| format!("{count} {}", class.name()))
            .collect();
        let of_class = if of_class.is_empty() { "none".to_owned() } else { of_class.join(", ") };
        writeln!(stdout, "  files {files}, entries {entries}; lines by author: {of_class}")?;
        if problems > 0 {
            writeln!(stdout, "  {problems} file(s) cannot be used: `quipu memory list` says why")?;
        }
        let dreamt = dreamt.map_or_else(|| "never".to_owned(), |at| crate::print::ago(quipu_host::now(), at));
        writeln!(stdout, "  last dream: {dreamt}")?;
    }
    let mut week = Vec::new();
    let query = UsageQuery { by: UsageGrouping::Purpose, since: Some(quipu_host::now() - WEEK), until: None };
    let used = open.engine.store().usage(query).await?.found;
    for part in PARTS {
        let sums = used.iter().filter(|sum| sum.key == part);
        let (mut calls, mut tokens, mut cost) = (0, 0, 0.0);
        for sum in sums {
            calls += sum.calls;
            tokens += sum.input + sum.output + sum.cache_read + sum.cache_write;
            cost += sum.cost;
        }
        week.push(json!({ "purpose": part, "calls": calls, "tokens": tokens, "cost": cost }));
        if !out.json && calls > 0 {
            writeln!(stdout, "{part} this week: {calls} calls, {tokens} tokens, ${cost:.4}")?;
        }
    }
    if out.json {
        let line = json!({ "on": true, "project": project, "memories": memories, "week": week });
        writeln!(stdout, "{line}")?;
    } else if week.iter().all(|part| part["calls"] == 0) {
        writeln!(stdout, "No model was called for memory this week.")?;
    }
    Ok(stdout.flush()?)
}
