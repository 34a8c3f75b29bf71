//! `quipu memory status`.

use std::io::Write as _;
use std::path::PathBuf;

use quipu_host::Home;
use quipu_memory::AuthorClass;
use quipu_memory::dream::DreamState;
use serde_json::json;

use super::list::{classes, classes_json, heading, named};
use super::{WhoseArg, open};
use crate::args::OutArgs;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, printable};
use quipu_memory::files::{FileList, FileProblem};
use quipu_memory::notes::Notebook;
use quipu_memory::project_root;
use quipu_store::{Dreams as _, IndexedAnswer, UsageGrouping, UsageQuery};

/// When the last dream over a memory ended, or began where it is under way.
async fn dreamt(home: &Home, memory: &str) -> Result<Option<i64>, Failure> {
    let Some(store) = home.existing_store().await? else { return Ok(None) };
    let found = store.dream(memory).await?;
    let state = found.and_then(|found| DreamState::parse(&found.state).ok());
    Ok(state.map(|state| state.ended.unwrap_or(state.started)))
}

/// What is in the directory of a memory and is not read, and why.
fn left_out(book: &Notebook, list: &FileList) -> Vec<(String, String)> {
    let root = &book.place().root;
    let named = |(path, problem): &(PathBuf, FileProblem)| {
        (path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned(), problem.to_string())
    };
    list.problems.iter().map(named).collect()
}

/// Entries that are named.
const NAMED: usize = 5;
/// What calls models in the background, by the purposes of its calls.
const PARTS: [&str; 3] = ["dream", "memory-flush", "active-memory"];
/// Milliseconds.
const WEEK: i64 = 7 * 86_400_000;

pub(super) async fn status(out: &OutArgs) -> Result<(), Failure> {
    let mut stdout = crate::console::stdout();
    let cwd = current_dir()?;
    let project = project_root(&cwd);
    let own = home(&out.store)?;
    if quipu_host::memory::memory_places(&own, &cwd)?.is_empty() {
        let lost = super::adopt::lost(&quipu_host::memory::memory_home(&own), &project)?;
        let names: Vec<_> = lost.iter().map(|lost| &lost.project).collect();
        match out.json {
            true => {
                let line = json!({ "on": false, "project": project, "memories": [], "lost": names });
                writeln!(stdout, "{line}")?;
            }
            false => {
                writeln!(
                    stdout,
                    "Memory is off in {}; `quipu memory on` switches it on.",
                    project.display()
                )?;
                super::adopt::tell_lost(&lost, &mut stdout)?;
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
        let left_out = left_out(book, &list);
        memories.push(json!({
            "memory": place.id, "kind": WhoseArg::of(place.kind), "root": place.root, "files": files, "problems": problems,
            "leftOut": left_out.iter().map(|(path, why)| json!({ "path": path, "problem": why })).collect::<Vec<_>>(),
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
        for (path, why) in left_out.iter().take(NAMED) {
            writeln!(stdout, "  not read: {} ({})", named(path), printable(why))?;
        }
        if problems > left_out.len().min(NAMED) {
            writeln!(stdout, "  {problems} file(s) cannot be used: `quipu memory list` says why")?;
        }
        let dreamt = dreamt.map_or_else(|| "never".to_owned(), |at| crate::print::ago(quipu_host::now(), at));
        writeln!(stdout, "  last dream: {dreamt}")?;
    }
    let problem = open.memory.repository_problem(&open.tree);
    if let (Some(problem), false) = (&problem, out.json) {
        writeln!(stdout, "The memory of the repository is not used: {problem}.")?;
    }
    let mut week = Vec::new();
    let query = UsageQuery { by: UsageGrouping::Purpose, since: Some(quipu_host::now() - WEEK), until: None };
    let IndexedAnswer { found: used, behind } = open.engine.store().usage(query).await?;
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
        let line = json!({ "on": true, "project": project, "memories": memories, "week": week, "behind": behind,
            "repositoryProblem": problem.map(|problem| problem.to_string()) });
        writeln!(stdout, "{line}")?;
    } else if week.iter().all(|part| part["calls"] == 0) {
        writeln!(stdout, "No model was called for memory this week.")?;
    }
    stdout.flush()?;
    if !out.json {
        crate::usage::tell_behind(behind);
    }
    Ok(())
}
