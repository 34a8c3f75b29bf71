//! `quipu memory edit` and `move`.

use std::io::Write as _;

use quipu_memory::AuthorClass;
use quipu_memory::MemoryError;
use quipu_memory::files::{FileName, FileProblem};
use quipu_memory::notes::{FoundLine, NoteAuthor};
use serde_json::json;

use super::{EditArgs, MoveArgs, WhoseArg, open, place};
use crate::exit::Failure;
use crate::print::note;

pub(super) async fn edit(args: &EditArgs) -> Result<(), Failure> {
    if crate::console::is_within() {
        return Err(Failure::usage("an editor needs the whole terminal: run `quipu memory edit` in a shell"));
    }
    let open = open(&args.store).await?;
    let (name, _) = place(&args.file)?;
    let of = args.of.or((name.as_str() == FileName::USER).then_some(WhoseArg::User));
    let book = open.book(of, &name)?;
    book.observe().await.map_err(quipu_host::Failure::from)?;
    let before = match book.read(&name) {
        Ok(text) => text.text,
        Err(MemoryError::File { problem: FileProblem::Missing, .. }) => String::new(),
        Err(error) => return Err(quipu_host::Failure::from(error).into()),
    };
    let mut copy = tempfile::Builder::new().prefix("quipu-memory-").suffix(".md").tempfile()?;
    copy.write_all(before.as_bytes())?;
    copy.flush()?;
    run_editor(copy.path())?;
    let after = match quipu_memory::files::checked_text(std::fs::read(copy.path())?) {
        Ok(after) => after,
        Err(problem) => return Err(kept_copy(copy, &format!("{name} is not written: {problem}"))),
    };
    if after == before {
        note("Nothing changed.");
        return Ok(());
    }
    let author = NoteAuthor { class: AuthorClass::Owner, by: "editor".into(), sources: Vec::new() };
    let mut is_other = false;
    let put = |now: &str| {
        is_other = now != before;
        (!is_other).then(|| after.clone())
    };
    let written = match book.write(&name, &author, put).await {
        Ok(written) => written,
        Err(error) => return Err(kept_copy(copy, &error.to_string())),
    };
    if is_other {
        return Err(kept_copy(
            copy,
            &format!("{name} was changed while you edited it and was left as it is"),
        ));
    }
    if let Some(written) = written {
        note(format!("{name} is written; node {}.", written.node.short()));
    }
    Ok(())
}

/// Why a text was not written, and where it is: what a person wrote is not lost.
fn kept_copy(copy: tempfile::NamedTempFile, why: &str) -> Failure {
    match copy.into_temp_path().keep() {
        Ok(kept) => Failure::failed(format!("{why}; your text is in {}", kept.display())),
        Err(error) => Failure::failed(format!("{why}; your text could not be kept: {}", error.error)),
    }
}

/// The program of `VISUAL` or `EDITOR`, which may have arguments.
fn run_editor(path: &std::path::Path) -> Result<(), Failure> {
    let editor = ["VISUAL", "EDITOR"].into_iter().find_map(quipu_host::env);
    let Some(editor) = editor else {
        return Err(Failure::usage("set VISUAL or EDITOR to your editor"));
    };
    let mut command = std::process::Command::new("/bin/sh");
    let status = command.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(path).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::failed(format!("`{editor}` failed ({status}); nothing was changed"))),
    }
}

pub(super) async fn move_lines(args: &MoveArgs) -> Result<(), Failure> {
    let open = open(&args.out.store).await?;
    let (name, lines) = place(&args.lines)?;
    let lines = lines.ok_or_else(|| Failure::usage("say which lines: FILE#L1-L2"))?;
    let from = open.book(args.of, &name)?;
    let to = open.book(Some(args.to), &name)?;
    if from.place() == to.place() {
        return Err(Failure::usage("the lines are in that memory already"));
    }
    let seen = from.read(&name).map_err(quipu_host::Failure::from)?;
    // Of two that move the same lines, one finds them gone.
    let _moving = open.memory.moving().await.map_err(quipu_host::Failure::from)?;
    from.observe().await.map_err(quipu_host::Failure::from)?;
    let text = from.read(&name).map_err(quipu_host::Failure::from)?;
    if text.text != seen.text {
        return Err(Failure::failed(format!(
            "{name} changed meanwhile, so nothing was moved; look at it again"
        )));
    }
    let authors = from.authors(&name).await.map_err(quipu_host::Failure::from)?;
    let moved: Vec<FoundLine> = text
        .text
        .lines()
        .zip(1_u32..)
        .filter(|(_, number)| lines.contains(number))
        .map(|(text, line)| FoundLine { name: name.clone(), line, text: text.to_owned() })
        .collect();
    if moved.is_empty() {
        return Err(Failure::usage(format!("{name} has no such lines")));
    }
    // What nobody accepted stays so; a person who moves other lines vouches for none of them.
    let of_lines = authors
        .iter()
        .filter(|one| moved.iter().any(|line| (one.lines.first..=one.lines.last).contains(&line.line)));
    let class = of_lines.clone().map(|one| one.class).max().unwrap_or(AuthorClass::Untrusted);
    let sources = of_lines.filter_map(|one| one.node).collect();
    let author = NoteAuthor { class, by: "move".into(), sources };
    let added: Vec<&str> = moved.iter().map(|line| line.text.as_str()).collect();
    // First there, then away: what fails between is there twice, and not lost.
    let written = to.append(&name, &author, &added.join("\n")).await.map_err(quipu_host::Failure::from)?;
    from.remove_lines(&moved, "move").await.map_err(quipu_host::Failure::from)?;
    let count = moved.len();
    if args.out.json {
        let node = written.map(|written| written.node.to_string());
        let line = json!({ "path": name.as_str(), "lines": count, "to": to.place().id, "node": node });
        writeln!(crate::console::stdout(), "{line}")?;
    } else {
        note(format!("Moved {count} line(s) of {name} to {}.", to.place().root.display()));
    }
    Ok(())
}
