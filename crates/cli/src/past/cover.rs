//! What of a past is served within a budget.

use std::io::Write as _;

use quipu_past::cover::{Charge, Shortfall};
use quipu_past::{CoverDetail, CoverStock, PastCover, PastIndex};
use serde_json::{Value, json};

use super::{CoverArgs, PastStore};
use crate::exit::Failure;
use crate::print::{note, printable};

/// Characters of a token, and tokens of an image.
pub(super) const CHARGE: Charge = Charge { characters: 4, image: 1_600 };
/// Gaps that are named without `--json`.
const SHOWN: usize = 20;

pub(super) async fn show(args: &CoverArgs) -> Result<(), Failure> {
    let past = args.of.open().await?;
    let index = past.index().await?;
    let stock = CoverStock::read(&*past.store, &past.scope, &index, CHARGE).await;
    let mut stock = stock.map_err(quipu_host::Failure::from)?;
    if let Some(question) = &args.cover.about {
        // The store knows secrets by their placeholders only.
        let home = &past.home;
        let sealer = home.engine(past.store.clone(), &home.settings())?.sealer().clone();
        let sealed = sealer.seal(question);
        let words = quipu_host::local_vectors(home)?;
        let search = past.search(words, CoverDetail::Turns);
        let about = stock.about(&search, &sealed, None).await;
        stock = about.map_err(quipu_host::Failure::from)?;
        return tell(args, &index, &past, &stock, Some(&sealed));
    }
    tell(args, &index, &past, &stock, None)
}

fn tell(
    args: &CoverArgs,
    index: &PastIndex,
    past: &PastStore,
    stock: &CoverStock,
    question: Option<&str>,
) -> Result<(), Failure> {
    let served = stock.cover(args.cover.budget, question);
    let mut out = crate::console::stdout();
    if args.of.out.json {
        writeln!(out, "{}", as_json(stock, &served, args.cover.budget))?;
        return Ok(());
    }
    for line in served.text.lines() {
        writeln!(out, "{}", printable(line))?;
    }
    out.flush()?;
    let PastCover { cover, cost, .. } = &served;
    let turns = cover.members.iter().filter(|member| stock.id(&member.id).is_none()).count();
    let chunks = cover.members.len() - turns;
    let turns = if turns > 0 { format!(" and {turns} raw turns") } else { String::new() };
    note(format!("{chunks} chunks{turns}, {cost} of {} tokens", args.cover.budget));
    let parts = if turns.is_empty() { "chunks" } else { "chunks or turns" };
    match cover.shortfall {
        None => {}
        Some(Shortfall::NoBudget) => note("The budget has no room for a chunk."),
        Some(Shortfall::BelowOneChunk { cheapest }) => {
            note(format!(
                "The budget has no room for a chunk; the smallest takes {cheapest} tokens more than the frame."
            ));
        }
        Some(Shortfall::Dropped { chunks }) => note(format!("{chunks} {parts} do not fit.")),
    }
    let gaps = cover.gaps.iter().filter(|gap| gap.chunks > 0);
    for gap in gaps.clone().take(SHOWN) {
        let (from, to) = (quipu_host::iso(gap.span.start), quipu_host::iso(gap.span.end));
        note(format!("Left out: {} {parts} from {from} to {to}.", gap.chunks));
    }
    let more = gaps.count().saturating_sub(SHOWN);
    if more > 0 {
        note(format!("… and {more} more ranges; `--json` has all."));
    }
    if !cover.faults.is_empty() {
        note(format!("The chunks have {} faults; `--json` names them.", cover.faults.len()));
    }
    if index.chunks().next().is_none() {
        let scope = printable(&past.scope.name());
        note(format!("There is no summary of {scope} yet; `quipu past build` makes them."));
    }
    Ok(())
}

fn as_json(stock: &CoverStock, served: &PastCover, budget: u64) -> Value {
    let cover = &served.cover;
    let named = |node| json!({ "id": stock.id(node), "key": stock.key(node), "node": node });
    let members: Vec<Value> = cover
        .members
        .iter()
        .map(|member| {
            let mut value = named(&member.id);
            value["cost"] = member.cost.into();
            value["raw"] = stock.id(&member.id).is_none().into();
            value
        })
        .collect();
    let decisions: Vec<Value> = cover
        .decisions
        .iter()
        .map(|decision| {
            let mut value = named(&decision.id);
            value["level"] = decision.level.into();
            value["verdict"] = json!(decision.verdict);
            value
        })
        .collect();
    json!({
        "text": served.text, "cost": served.cost, "budget": budget, "members": members, "gaps": cover.gaps,
        "shortfall": cover.shortfall, "faults": cover.faults, "decisions": decisions,
    })
}
