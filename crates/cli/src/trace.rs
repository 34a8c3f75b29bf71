//! `quipu trace`: how a lineage came about.

use std::io::Write as _;

use jiff::tz::TimeZone;
use quipu::history::{Carried, TraceFilter, TraceQuery, TraceScope, carried, row_text};
use quipu_store::Graph;

use crate::args::{RowFilter, RowScope, TraceArgs};
use crate::exit::Failure;
use crate::home::home;
use crate::pager::page;
use crate::pick::{spot, store_of};
use crate::print::{Paint, iso, printable};

pub(crate) async fn run(args: &TraceArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let store = store_of(&home)?;
    let store: &dyn Graph = &*store;
    let spot = spot(store, args.what.as_deref(), !args.out.json).await?;
    let none = || Failure::usage("the node belongs to no session; leave --scope out, or use --scope all");
    let scope = match (args.scope, &spot.session) {
        (RowScope::Lineage, _) => TraceScope::Lineage(spot.node),
        (RowScope::Session, Some(row)) => TraceScope::Session(row.id.clone()),
        (RowScope::Project, Some(row)) => TraceScope::Project(row.cwd.clone()),
        (RowScope::All, _) => TraceScope::All,
        (RowScope::Session | RowScope::Project, None) => return Err(none()),
    };
    let filter = match args.filter {
        RowFilter::Default => TraceFilter::Default,
        RowFilter::Switches => TraceFilter::Switches,
        RowFilter::All => TraceFilter::All,
    };
    let query = TraceQuery { scope, filter, limit: args.limit, before: None };
    let trace = quipu::history::trace(store, &query).await?;
    if args.out.json {
        let mut out = crate::console::stdout();
        for row in &trace.rows {
            let (mut carryover, mut metadata) = (None, None);
            match row.action.metadata.as_deref().map(|metadata| carried(&row.action.kind, metadata)) {
                Some(Carried::Carryover(text)) => carryover = Some(text),
                // As it is, where it is JSON.
                Some(Carried::Metadata(json)) => {
                    metadata = serde_json::from_str::<serde_json::Value>(&json).ok();
                }
                None => {}
            }
            let line = serde_json::json!({
                "id": row.id,
                "at": iso(row.action.timestamp),
                "type": row.action.kind,
                "from": row.action.from,
                "to": row.action.to,
                "departed": row.left,
                "carryover": carryover,
                "metadata": metadata,
            });
            writeln!(out, "{line}")?;
        }
        return Ok(out.flush()?);
    }
    let (paint, zone) = (Paint::stdout(), TimeZone::system());
    let mut text = String::new();
    for row in &trace.rows {
        for (at, line) in printable(&row_text(row, &zone)).lines().enumerate() {
            text.push_str(&if at == 0 { line.to_owned() } else { paint.dim(line) });
            text.push('\n');
        }
    }
    if trace.rows.is_empty() {
        text.push_str("(no actions recorded)\n");
    }
    if trace.more {
        text.push_str(&format!(
            "... older rows are not shown; --limit {} shows more\n",
            args.limit.saturating_mul(4)
        ));
    }
    page(text.as_bytes())
}
