//! `quipu sessions`: what was done.

use std::io::Write as _;

use quipu_store::{ReadModel as _, SessionQuery};

use crate::args::SessionsArgs;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, ago, dollars, note, one_line};
use quipu_host::{MissingDirectories, label_counts, now, session_json};

pub(crate) async fn run(args: &SessionsArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let Some(store) = home.store_to_read()? else {
        if !args.out.json {
            note("There are no sessions yet. Try `quipu demo` or `quipu import`.");
        }
        return Ok(());
    };
    let here = if args.all { None } else { Some(current_dir()?) };
    let query = SessionQuery {
        cwd: here.as_ref().map(|here| here.to_string_lossy().into_owned()),
        limit: (args.limit > 0).then_some(args.limit),
        children: args.all,
        ..SessionQuery::default()
    };
    let rows = store.sessions(query).await?;
    let ids: Vec<_> = rows.iter().map(|row| row.id.clone()).collect();
    let labels = label_counts(&*store, &ids).await?;
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if args.out.json {
        for row in &rows {
            writeln!(out, "{}", session_json(row, &labels))?;
        }
        return Ok(out.flush()?);
    }
    match here {
        Some(here) if rows.is_empty() => {
            note(format!(
                "No session in {}. `quipu sessions --all` lists those of every directory.",
                here.display()
            ));
        }
        None if rows.is_empty() => note("There are no sessions yet. Try `quipu demo` or `quipu import`."),
        Some(_) | None => {}
    }
    let (paint, now) = (Paint::stdout(), now());
    let mut seen = MissingDirectories::default();
    for row in &rows {
        let title = match (&row.title, &row.parent) {
            (title, _) if !title.is_empty() => one_line(title, 60),
            (_, Some(parent)) => format!("(fork of {parent}, no message yet)"),
            (_, None) => "(no message yet)".to_owned(),
        };
        // The row counts what follows the session's own node.
        let (when, entries) = (ago(now, row.updated), row.entries + 1);
        write!(
            out,
            "{}  {when:>8}  {entries:>4} nodes  {:>7}  ",
            paint.bold(row.id.as_str()),
            dollars(row.cost)
        )?;
        if row.agent != quipu::AGENT {
            // Where it was imported from.
            write!(out, "{}  ", paint.dim(&one_line(&row.agent, 24)))?;
        }
        if !row.called.is_empty() {
            write!(out, "{}  ", paint.cyan(&one_line(&row.called, 60)))?;
        }
        match labels.get(&row.id) {
            None => writeln!(out, "{title}")?,
            Some(1) => writeln!(out, "{title}  {}", paint.dim("1 label"))?,
            Some(count) => writeln!(out, "{title}  {}", paint.dim(&format!("{count} labels")))?,
        }
        if args.all {
            let location = match seen.is_gone(&row.cwd) {
                _ if row.cwd.is_empty() => "(no directory)".to_owned(),
                true => format!("{}  (no longer exists)", one_line(&row.cwd, 200)),
                false => crate::print::printable(&row.cwd),
            };
            writeln!(out, "    {}", paint.dim(&location))?;
        }
    }
    Ok(out.flush()?)
}
