//! `quipu context`: what fills a session's context, and what its next turn costs.

use std::io::Write as _;

use quipu::{ContextKind, ContextUse};
use quipu_protocol::{Model, Usage};

use crate::args::{ContextArgs, Task};
use crate::exit::Failure;
use crate::print::{Paint, dollars, note, one_line};
use crate::setup::{self, Place, current_dir};

/// Characters of a bar that stands for all of the window.
const BAR: u64 = 40;

pub(crate) async fn run(args: &ContextArgs) -> Result<(), Failure> {
    let place = Place::find(&args.store)?;
    let task = Task {
        resume: args.session.is_none(),
        session: args.session.clone(),
        store: args.store.clone(),
        model: args.model.clone(),
        ..Task::default()
    };
    let here = if task.resume { current_dir()? } else { std::path::PathBuf::new() };
    let Some(row) = setup::existing_session(&place, &task, &here).await? else {
        return Err(Failure::usage("there is no session here; `quipu sessions --all` lists what there is"));
    };
    let Some(head) = row.head else {
        return Err(Failure::usage(format!("session {} has no node any more", row.id)));
    };
    let settings = place.settings();
    let store = place.store().await?;
    let last = quipu::last_epoch(&*store, &row).await?;
    // What fills it can be told without knowing the model; then its window and prices are not.
    let model = match setup::model_of(&settings, &task, last.as_ref()) {
        Ok(model) => Some(model),
        Err(error) => {
            note(format!("warning: {}", error.message));
            None
        }
    };
    let used = place.engine(store, &settings)?.context_use(&row.id, head).await?;
    let window = model.as_ref().map_or(0, |model| model.context_window);
    let costs = model.as_ref().map(|model| next_turn(model, &used));
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    if args.json {
        let parts: Vec<_> = used
            .parts
            .iter()
            .map(|part| serde_json::json!({ "part": name(part.kind).0, "count": part.count, "tokens": part.tokens }))
            .collect();
        let value = serde_json::json!({
            "session": row.id,
            "model": model.as_ref().map(|model| format!("{}/{}", model.provider, model.id)),
            "window": (window > 0).then_some(window),
            "tokens": used.tokens,
            "counted": used.counted.map(|counted| counted.tokens),
            "ratio": used.counted.map(|counted| share(counted.tokens, counted.estimated)),
            "usage": used.counted.map(|counted| counted.usage),
            "cached": used.cached,
            "parts": parts,
            "nextTurn": costs.map(|(without, with)| serde_json::json!({ "withoutCache": without, "withCache": with })),
        });
        writeln!(out, "{value}")?;
        return Ok(out.flush()?);
    }
    let paint = Paint::stdout();
    write!(out, "session {}", paint.bold(row.id.as_str()))?;
    match &model {
        Some(model) if window > 0 => {
            writeln!(out, "  {}, window of {} tokens", one_line(&model.name, 60), grouped(window))?;
        }
        Some(model) => writeln!(out, "  {}, of unknown window", one_line(&model.name, 60))?,
        None => writeln!(out)?,
    }
    // Without a window, the bars are of what is there.
    let whole = if window > 0 { window } else { used.tokens };
    let mut line = |what: &str, count: String, tokens: u64| {
        let bar = "█".repeat(usize::try_from(bar(tokens, whole)).unwrap_or(0));
        let text = format!(
            "{what:<16}{count:>6}  {:>11}  {:>5.1} %  ",
            grouped(tokens),
            share(tokens, whole) * 100.0
        );
        writeln!(out, "{text}{}", paint.cyan(&bar))
    };
    for part in used.parts.iter().filter(|part| part.tokens > 0) {
        line(name(part.kind).1, part.count.to_string(), part.tokens)?;
    }
    line("together", String::new(), used.tokens)?;
    if window > 0 {
        line("free", String::new(), window.saturating_sub(used.tokens))?;
    }
    match used.counted {
        Some(counted) => writeln!(
            out,
            "\nThe last answer counted {} tokens: {:.2} for one that was estimated.",
            grouped(counted.tokens),
            share(counted.tokens, counted.estimated)
        )?,
        None => writeln!(out, "\nNothing was counted yet in this context, so all of it is estimated.")?,
    }
    match costs {
        Some((0.0, _)) => writeln!(out, "The next turn: the model has no price.")?,
        Some((without, with)) => writeln!(
            out,
            "The next turn: {} to read it, {} while {} tokens of it are in the provider's cache; and what is said and \
             answered.",
            dollars(without),
            dollars(with),
            grouped(used.cached),
        )?,
        None => {}
    }
    Ok(out.flush()?)
}

/// What reading the context costs in US dollars: without a cache, and when the last request is in it.
fn next_turn(model: &Model, used: &ContextUse) -> (f64, f64) {
    let without = Usage { input: used.tokens, ..Usage::default() };
    let new = used.tokens.saturating_sub(used.cached);
    // Where writing to the cache has a price, what is new is written to it.
    let (input, cache_write) = if model.cost.cache_write > 0.0 { (0, new) } else { (new, 0) };
    let with = Usage { input, cache_read: used.cached, cache_write, ..Usage::default() };
    (model.price(&without).total, model.price(&with).total)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The name of a part for programs, and for people.
fn name(kind: ContextKind) -> (&'static str, &'static str) {
    match kind {
        ContextKind::System => ("system", "system prompt"),
        ContextKind::Rules => ("rules", "project's rules"),
        ContextKind::Tools => ("tools", "tools"),
        ContextKind::Summary => ("summary", "summary"),
        ContextKind::User => ("user", "user's messages"),
        ContextKind::Answers => ("answers", "answers"),
        ContextKind::Results => ("results", "tool results"),
        ContextKind::Images => ("images", "images"),
    }
}

/// Of a bar: at least one where there is something.
fn bar(tokens: u64, whole: u64) -> u64 {
    if tokens == 0 || whole == 0 {
        return 0;
    }
    let length = u128::from(tokens) * u128::from(BAR) / u128::from(whole);
    u64::try_from(length).unwrap_or(BAR).clamp(1, BAR)
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bars() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([bar(0, 9), bar(1, u64::MAX), bar(5, 10), bar(99, 9), bar(1, 0)], [0, 1, 20, 40, 0]);
    }
}
