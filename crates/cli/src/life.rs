//! `quipu life`: the graph around a node.

use std::io::Write as _;

use quipu::history::{Life, LifeLine, LifeQuery};
use quipu_store::{Graph, StoreError};
use unicode_width::UnicodeWidthStr as _;

use crate::args::LifeArgs;
use crate::exit::Failure;
use crate::home::home;
use crate::pager::page;
use crate::pick::{Spot, spot, store_of, vanished};
use crate::print::{Paint, ago, iso, note, one_line, printable, width};
use crate::svg;
use quipu_host::holders::WrittenKind;
use quipu_host::now;

/// Lines that are drawn at most.
const MOST: usize = 5_000;

pub(crate) async fn run(args: &LifeArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let store = store_of(&home)?;
    let store: &dyn Graph = &*store;
    let asks = !args.out.json && !args.watch && args.svg.is_none();
    if args.watch {
        return watch(store, args).await;
    }
    let spot = spot(store, args.what.as_deref(), asks).await?;
    let life = read(store, args, &spot).await?;
    if args.out.json {
        let mut out = crate::console::stdout();
        writeln!(out, "{}", json(&life, &spot))?;
        return Ok(out.flush()?);
    }
    if let Some(path) = &args.svg {
        svg::write(path, &svg::draw(&life, now()))?;
        let nodes: Vec<_> = life.lines.iter().map(|line| line.node).collect();
        let mut sessions: Vec<_> = store.sessions_of(&nodes).await?.into_iter().flatten().collect();
        sessions.sort();
        sessions.dedup();
        home.wrote(path, WrittenKind::Picture, &sessions);
        note(format!("{} nodes in {}", life.lines.len(), path.display()));
        return Ok(());
    }
    page(drawn(&life, &spot, Paint::stdout()).as_bytes())
}

async fn read(store: &dyn Graph, args: &LifeArgs, spot: &Spot) -> Result<Life, Failure> {
    let query = LifeQuery {
        head: spot.head(),
        ancestors: args.ancestors,
        children: !args.no_children,
        filter: args.filter.into(),
        max_depth: args.depth,
        most: MOST,
        ..LifeQuery::new(spot.node)
    };
    match quipu::history::life(store, &query).await {
        Ok(life) => Ok(life),
        Err(StoreError::Missing { .. }) => Err(vanished(spot.node)),
        Err(error) => Err(error.into()),
    }
}

/// Draws it, and again after each change that shows.
async fn watch(store: &dyn Graph, args: &LifeArgs) -> Result<(), Failure> {
    let clears = crate::console::stdout().is_terminal();
    let mut last = None;
    loop {
        // Counted from here: what changes while it is read is drawn next.
        let changed = store.changed();
        let spot = spot(store, args.what.as_deref(), false).await?;
        let life = read(store, args, &spot).await?;
        if last.as_ref() != Some(&life) {
            let mut out = crate::console::stdout();
            let before = match (clears, &last) {
                (true, _) => "\x1b[H\x1b[2J",
                (false, Some(_)) => "\n",
                (false, None) => "",
            };
            write!(out, "{before}{}", drawn(&life, &spot, Paint::stdout()))?;
            out.flush()?;
            last = Some(life);
        }
        changed.await?;
    }
}

fn drawn(life: &Life, spot: &Spot, paint: Paint) -> String {
    let mut text = String::new();
    if let Some(row) = &spot.session {
        let about = if row.called.is_empty() { &row.title } else { &row.called };
        let line = format!("session {}  {}", paint.bold(&printable(row.id.as_str())), one_line(about, 60));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let columns = crate::console::stdout().is_terminal().then(width);
    if life.earlier {
        text.push_str("...\n");
    }
    for line in &life.lines {
        text.push_str(&drawn_line(line, columns, paint));
        text.push('\n');
    }
    if life.more {
        text.push_str(&format!("... more than {MOST} nodes follow; name a node further down to see them\n"));
    }
    text
}

/// One node; cut to the columns of the terminal, if there is one.
fn drawn_line(line: &LifeLine, columns: Option<usize>, paint: Paint) -> String {
    let id = line.node.short();
    let when = ago(now(), line.at);
    let marks = line.marks();
    let used = line.lead.width() + id.len() + when.len() + marks.len() + "  () ".len();
    let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(used).max(8));
    let preview = one_line(&line.preview, room);
    // Nobody can go to what is dim.
    let id = if line.illegal.is_some() { paint.dim(&id) } else { paint.cyan(&id) };
    let marks = if line.is_focus || line.is_head { paint.bold(&marks) } else { paint.dim(&marks) };
    format!("{}{id} {} {preview}{marks}", line.lead, paint.dim(&format!("({when})")))
}

fn json(life: &Life, spot: &Spot) -> serde_json::Value {
    let lines = life.lines.iter().map(|line| {
        serde_json::json!({
            "node": line.node,
            "parent": line.parent,
            "name": line.name,
            "role": line.role,
            "at": iso(line.at),
            "preview": line.preview,
            "focus": line.is_focus,
            "head": line.is_head,
            "legalTarget": line.illegal.is_none(),
            "why": line.illegal.as_ref().map(ToString::to_string),
            "descendants": line.descendants.map(|(count, _)| count),
            "descendantsAreMore": line.descendants.is_some_and(|(_, more)| more),
        })
    });
    serde_json::json!({
        "focus": life.focus,
        "head": spot.head(),
        "session": spot.session.as_ref().map(|row| &row.id),
        "earlier": life.earlier,
        "more": life.more,
        "lines": lines.collect::<Vec<_>>(),
    })
}
