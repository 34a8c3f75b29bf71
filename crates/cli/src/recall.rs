//! `quipu recall`: a node in pages, with what stands around it.

use std::io::Write as _;

use quipu::history::{Neighbours, RecallError, RecallQuery, RecalledNode};
use quipu_store::Graph;

use crate::args::RecallArgs;
use crate::exit::Failure;
use crate::home::home;
use crate::pager::page;
use crate::pick::{spot, store_of, vanished};
use crate::print::{Paint, iso, printable};
use quipu_host::now;

pub(crate) async fn run(args: &RecallArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let store = store_of(&home)?;
    let store: &dyn Graph = &*store;
    let spot = spot(store, Some(&args.what), false).await?;
    let query = RecallQuery {
        budget: args.budget,
        offset: args.offset,
        context_budget: args.context,
        depth: args.depth,
        filter: args.filter.into(),
        children: args.children,
        siblings: args.siblings,
        config: args.config,
        target: true,
        ..RecallQuery::new(spot.node)
    };
    let recalled = match quipu::history::recall(store, &query).await {
        Ok(recalled) => recalled,
        Err(RecallError::NoSuchNode(node)) => return Err(vanished(node)),
        Err(error @ RecallError::Beyond { .. }) => return Err(Failure::usage(error)),
        Err(RecallError::Store(error)) => return Err(error.into()),
    };
    if args.out.json {
        let mut out = crate::console::stdout();
        writeln!(out, "{}", json(&recalled))?;
        return Ok(out.flush()?);
    }
    let paint = Paint::stdout();
    let text = recalled.text(now());
    let lines = text.lines().map(|line| {
        let dim = line.ends_with("// archived,") || line.starts_with("---") || line.starts_with("    // ...");
        let line = printable(line);
        format!("{}\n", if dim { paint.dim(&line) } else { line })
    });
    page(lines.collect::<String>().as_bytes())
}

fn json(recalled: &RecalledNode) -> serde_json::Value {
    let listed = |found: &Option<Neighbours>| {
        found.as_ref().map(|(nodes, more)| {
            let nodes = nodes.iter().map(|(node, preview)| {
                serde_json::json!({ "node": node.id, "role": node.record.role, "preview": preview })
            });
            serde_json::json!({ "nodes": nodes.collect::<Vec<_>>(), "more": more })
        })
    };
    let context = recalled
        .context
        .iter()
        .map(|(node, text)| serde_json::json!({ "node": node.id, "role": node.record.role, "text": text }));
    let (node, ends) = (&recalled.node, recalled.ends());
    let target = recalled.target.as_ref();
    serde_json::json!({
        "node": node.id,
        "parent": node.record.parent,
        "externalId": node.record.external_id,
        "role": node.record.role,
        "at": iso(node.record.timestamp),
        "text": recalled.text,
        "offset": recalled.begins,
        "total": recalled.total,
        "next": (ends < recalled.total).then_some(ends),
        "context": context.collect::<Vec<_>>(),
        "omitted": recalled.omitted.0,
        "children": listed(&recalled.children),
        "siblings": listed(&recalled.siblings),
        "config": recalled.config,
        "legalTarget": target.is_some_and(|target| target.illegal.is_none()),
        "why": target.and_then(|target| target.illegal.as_ref()).map(ToString::to_string),
        "nearestLegalTarget": target.and_then(|target| target.nearest),
    })
}
