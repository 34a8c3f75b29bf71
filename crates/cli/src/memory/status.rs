//! `quipu memory status`.

use std::io::Write as _;

use quipu_host::Home;
use quipu_memory::AuthorClass;
use quipu_memory::dream::DreamState;
use serde_json::json;

use super::list::{classes, classes_json, heading};
use super::{WhoseArg, open};
use crate::args::OutArgs;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, printable};
use quipu_memory::project_root;
use quipu_store::{Dreams as _, UsageGrouping, UsageQuery};

/// When the last dream over a memory ended, or began where it is under way.
async fn dreamt(home: &Home, memory: &str) -> Result<Option<i64>, Failure> {
    let Some(store) = home.existing_store().await? else { return Ok(None) };
    let found = store.dream(memory).await?;
    let state = found.and_then(|found| DreamState::parse(&found.state).ok());
    Ok(state.map(|state| state.ended.unwrap_or(state.started)))
}

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
                writeln!(
                    stdout,
                    "Memory is off in {}; `quipu memory on` switches it on.",
                    project.display()
                )?;
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
        let texts: Vec<_> = list.files.iter().filter_map(|file| book.read(&file.name).ok()).collect();
        let authors = book.authors_of(&texts.iter().collect::<Vec<_>>()).await;
        let authors = authors.map_err(quipu_host::Failure::from)?;
        let bad = list.files.len() - texts.iter().filter(|text| text.conflict.is_none()).count();
        for (text, authors) in texts.iter().zip(&authors) {
            let is_entry = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
            entries += text.text.lines().filter(is_entry).count() as u64;
            for (sum, count) in counts.iter_mut().zip(classes(authors)) {
                *sum += count;
            }
        }
        let place = book.place();
        let dreamt = dreamt(&open.home, &place.id).await?;
        let (files, problems) = (list.files.len(), list.problems.len() + bad);
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
    let problem = open.memory.repository_problem(&open.project);
    if let (Some(problem), false) = (&problem, out.json) {
        writeln!(stdout, "The memory of the repository is not used: {problem}.")?;
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
        let line = json!({ "on": true, "project": project, "memories": memories, "week": week,
            "repositoryProblem": problem.map(|problem| problem.to_string()) });
        writeln!(stdout, "{line}")?;
    } else if week.iter().all(|part| part["calls"] == 0) {
        writeln!(stdout, "No model was called for memory this week.")?;
    }
    Ok(stdout.flush()?)
}
