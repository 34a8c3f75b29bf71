//! `quipu memory why` and `quipu memory promote-explain`: where a line came from, and what keeps a text from becoming one.

use std::io::Write as _;

use clap::Args;
use quipu_host::dreams::{dream_of, dream_place, dream_settings};
use quipu_host::memory::memory_places;
use quipu_host::{Home, now};

use quipu_memory::dream::{ExplainedText, LineOrigin, explain_line, explain_text};
use quipu_memory::{Citation, MemoryKind, MemoryPlace};
use quipu_store::SignalPlace;
use serde_json::{Map, Value, json};

use crate::args::OutArgs;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, ago, printable};

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// Words of the line, or where it stands: `MEMORY.md#L3`.
    #[arg(value_name = "LINE", required = true)]
    line: Vec<String>,
    #[command(flatten)]
    out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PromoteExplainArgs {
    /// The text, or words of it.
    #[arg(value_name = "TEXT", required = true)]
    text: Vec<String>,
    #[command(flatten)]
    out: OutArgs,
}

/// The memories that are open here.
fn opened(out: &OutArgs) -> Result<(Home, Vec<MemoryPlace>), Failure> {
    let home = home(&out.store)?;
    let mut places = memory_places(&home, &current_dir()?)?;
    places.retain(|place| place.kind != MemoryKind::Repository);
    if places.is_empty() {
        return Err(Failure::usage("memory is off here; `quipu memory on` switches it on"));
    }
    Ok((home, places))
}

pub(crate) async fn why(args: &WhyArgs) -> Result<(), Failure> {
    let (home, places) = opened(&args.out)?;
    let store = home.store().await?;
    let words = args.line.join(" ");
    let cited: Option<Citation> = words.parse().ok();
    if let Some(cited) = cited.as_ref().filter(|cited| cited.path != "MEMORY.md") {
        return Err(Failure::usage(format!(
            "only lines of MEMORY.md are promoted; `quipu blame {}` says who wrote a line of another file",
            printable(&cited.path)
        )));
    }
    let (text, line) = match &cited {
        Some(cited) => (None, Some(*cited.lines.start())),
        None => (Some(words.as_str()), None),
    };
    let sealer = home.engine(store.clone(), &home.settings())?.sealer().clone();
    let settings = dream_settings();
    for place in places {
        let place = dream_place(&home, &store, &sealer, place, None);
        let found = explain_line(&dream_of(&store, &place, &settings), text, line).await;
        let Some(found) = found.map_err(Failure::failed)? else { continue };
        let mut out = crate::console::stdout();
        if args.out.json {
            writeln!(out, "{}", origin_json(place.id(), &found))?;
        } else {
            write!(out, "{}", origin_text(place.id(), &found))?;
        }
        return Ok(());
    }
    Err(Failure::usage(format!("no line of MEMORY.md says \"{}\"", printable(&words))))
}

fn place_json(place: &SignalPlace) -> Value {
    match place {
        SignalPlace::Lines { path, first, last } => {
            json!(Citation { path: path.clone(), lines: *first..=*last }.to_string())
        }
        SignalPlace::Node(node) => json!(format!("node:{node}")),
    }
}

fn signals_json(signals: &[(String, f64)]) -> Map<String, Value> {
    signals.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
}

fn origin_json(memory: &str, found: &LineOrigin) -> Value {
    let promotion = found.promotion.as_ref().map(|promotion| {
        let sources: Vec<Value> = promotion
            .sources
            .iter()
            .map(|source| {
                json!({
                    "place": place_json(&source.place), "text": source.text, "class": source.class,
                    "recalls": source.recalls, "signals": signals_json(&source.signals),
                })
            })
            .collect();
        json!({ "how": promotion.how, "at": promotion.at, "sources": sources })
    });
    json!({
        "memory": memory, "path": "MEMORY.md", "line": found.entry.line, "text": found.entry.text,
        "marked": found.entry.mark.as_ref().map(|mark| json!(mark.sources)), "promotion": promotion,
    })
}

fn origin_text(memory: &str, found: &LineOrigin) -> String {
    let paint = Paint::stdout();
    let mut text = format!(
        "{}  {}\n",
        paint.bold(&printable(&found.entry.text)),
        paint.dim(&format!("{}/MEMORY.md#L{}", printable(memory), found.entry.line))
    );
    let Some(promotion) = &found.promotion else {
        text.push_str(match &found.entry.mark {
            Some(_) => "  A dream wrote it; nothing else is kept about it.\n",
            None => "  No dream wrote it: `quipu memory show MEMORY.md` says who did.\n",
        });
        return text;
    };
    text.push_str(&format!("  promoted {} ({})\n", ago(now(), promotion.at), printable(&promotion.how)));
    for source in &promotion.sources {
        let place = place_json(&source.place);
        text.push_str(&format!(
            "  from {} ({}, {} recalls): {}\n",
            printable(place.as_str().unwrap_or_default()),
            printable(&source.class),
            source.recalls,
            printable(&source.text)
        ));
        for (name, value) in &source.signals {
            text.push_str(&format!("    {:<14}{value:.3}\n", printable(name)));
        }
    }
    text
}

pub(crate) async fn promote_explain(args: &PromoteExplainArgs) -> Result<(), Failure> {
    let (home, places) = opened(&args.out)?;
    let store = home.store().await?;
    let words = args.text.join(" ");
    let sealer = home.engine(store.clone(), &home.settings())?.sealer().clone();
    let settings = dream_settings();
    let mut out = crate::console::stdout();
    let mut count = 0;
    for place in places {
        let place = dream_place(&home, &store, &sealer, place, None);
        let found =
            explain_text(&dream_of(&store, &place, &settings), &words).await.map_err(Failure::failed)?;
        count += found.len();
        for one in found {
            if args.out.json {
                writeln!(out, "{}", explained_json(place.id(), &one))?;
            } else {
                write!(out, "{}", explained_text(place.id(), &one))?;
            }
        }
    }
    if count == 0 {
        return Err(Failure::usage(format!(
            "nothing that was recalled or noted is like \"{}\"; searches are kept only while dreaming is on",
            printable(&words)
        )));
    }
    Ok(())
}

fn explained_json(memory: &str, found: &ExplainedText) -> Value {
    let entry = &found.entry;
    let signals: Map<String, Value> =
        found.signals.named().iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let gates: Vec<Value> =
        found.gates.iter().map(|gate| json!({ "gate": gate, "why": gate.words() })).collect();
    json!({
        "memory": memory, "place": found.place, "text": entry.text, "class": found.class,
        "recalls": entry.recalls, "daily": entry.daily, "queries": entry.queries.len(), "days": entry.days.len(),
        "signals": signals, "gates": gates, "promotable": found.gates.is_empty(), "promoted": entry.promoted,
    })
}

fn explained_text(memory: &str, found: &ExplainedText) -> String {
    let paint = Paint::stdout();
    let entry = &found.entry;
    let class = found.class.map_or("unknown", quipu_memory::AuthorClass::name);
    let mut text = format!(
        "{}  {}\n  {} recalls, {} times in notes, {} questions, {} days, {class}\n",
        paint.bold(&printable(&entry.text)),
        paint.dim(&printable(&format!("{memory}/{}", found.place))),
        entry.recalls,
        entry.daily,
        entry.queries.len(),
        entry.days.len(),
    );
    for (name, value) in found.signals.named() {
        text.push_str(&format!("    {name:<14}{value:.3}\n"));
    }
    if found.gates.is_empty() {
        text.push_str("  the next dream may promote it\n");
    }
    for gate in &found.gates {
        text.push_str(&format!("  not promoted: {}\n", gate.words()));
    }
    text
}
