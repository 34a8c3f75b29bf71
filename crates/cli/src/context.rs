//! `quipu context`: what fills a session's context, how far it is from a compaction, and what its next turn costs.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use quipu::{CompactionSettings, ContextKind, ContextUse, PruneSettings, SectionUse};
use quipu_protocol::{Model, Usage};

use crate::args::{ContextArgs, Task};
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::{home, request};
use crate::print::{Paint, dollars, grouped, note, one_line, trust_name, width};
use quipu_host::{self as setup};

/// Characters of a bar that stands for all of the window, at most.
const BAR: u64 = 40;
/// Characters of a line before its bar.
const BEFORE_BAR: usize = 44;

pub(crate) async fn run(args: &ContextArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    if let Some(node) = &args.at {
        return crate::context_at::show(&home, node, args.out.json).await;
    }
    let task = Task {
        resume: args.session.is_none(),
        session: args.session.clone(),
        store: args.out.store.clone(),
        model: args.model.clone(),
        ..Task::default()
    };
    let here = if task.resume { current_dir()? } else { PathBuf::new() };
    let Some(row) = setup::existing_session(&home, &request(&task, &here)?).await? else {
        return Err(Failure::usage(
            "this directory has no session; `quipu sessions --all` lists those of every directory",
        ));
    };
    let Some(head) = row.head else {
        return Err(Failure::usage(format!(
            "session {} was removed; `quipu fork {}` starts a new session from it",
            row.id, row.id
        )));
    };
    let settings = home.settings();
    if args.report {
        return crate::context_report::show(&home, row.id.as_str(), head, args.out.json).await;
    }
    let config = home.config_in(Path::new(&row.cwd));
    let (compaction, prune) = (config.compaction, config.prune);
    let store = home.store().await?;
    let last = quipu::last_epoch(&*store, &row).await?;
    // What fills it can be told without knowing the model; then its window and prices are not.
    let place = (Path::new(&row.cwd), last.as_ref());
    let model = match setup::model_of(&home, &settings, &request(&task, &here)?, place) {
        Ok(model) => Some(model),
        Err(error) => {
            note(format!("warning: {}", error.message));
            None
        }
    };
    let used = home.engine(store, &settings)?.context_use(head, &prune).await?;
    let report = ContextReport {
        session: row.id.as_str(),
        agent: &row.agent,
        model: model.as_deref(),
        used,
        compaction,
        prune,
    };
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if args.out.json {
        writeln!(out, "{}", report.json())?;
    } else {
        let paint = Paint::stdout();
        for line in report.lines(width(), paint) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(out.flush()?)
}

/// The data of a context report.
struct ContextReport<'a> {
    session: &'a str,
    /// The program that writes it.
    agent: &'a str,
    model: Option<&'a Model>,
    used: ContextUse,
    compaction: CompactionSettings,
    prune: PruneSettings,
}

impl ContextReport<'_> {
    /// Tokens; 0 when it is not known.
    fn window(&self) -> u64 {
        self.model.map_or(0, |model| model.context_window)
    }

    fn json(&self) -> serde_json::Value {
        let Self { session, agent, model, used, compaction, prune } = self;
        let parts = used.parts.iter().map(|part| {
            serde_json::json!({ "part": name(part.kind).0, "count": part.count, "tokens": part.tokens })
        });
        let sections = used.sections.iter().map(|SectionUse { source, id, trust, tokens }| {
            serde_json::json!({ "source": source, "id": id, "trust": trust_name(*trust), "tokens": tokens })
        });
        let window = self.window();
        let costs = model.filter(|model| has_price(model)).map(|model| next_turn(model, used));
        serde_json::json!({
            "session": session,
            "agent": agent,
            "model": model.map(|model| format!("{}/{}", model.provider, model.id)),
            "window": (window > 0).then_some(window),
            "tokens": used.tokens,
            "left": (window > 0).then(|| window.saturating_sub(used.tokens)),
            "compaction": compaction.threshold(window).map(|at| {
                serde_json::json!({ "at": at, "left": at.saturating_sub(used.tokens) })
            }),
            "pruning": prune.enabled,
            "pruned": used.pruned.map(|pruned| {
                serde_json::json!({ "results": pruned.results, "tokens": pruned.tokens })
            }),
            "counted": used.counted.map(|counted| counted.tokens),
            "ratio": used.counted.map(|counted| share(counted.tokens, counted.estimated)),
            "usage": used.counted.map(|counted| counted.usage),
            "cached": used.cached,
            "parts": parts.collect::<Vec<_>>(),
            "sections": sections.collect::<Vec<_>>(),
            "nextTurn": costs.map(|(without, with)| {
                serde_json::json!({ "withoutCache": without, "withCache": with })
            }),
        })
    }

    /// For people, in lines of `width` characters where that can be: numbers and ids are never cut.
    fn lines(&self, width: usize, paint: Paint) -> Vec<String> {
        let used = &self.used;
        let window = self.window();
        let mut lines = vec![format!("session {}", paint.bold(self.session))];
        let model = self.model.map(|model| one_line(&model.name, 60));
        lines.extend(match model {
            Some(model) if window > 0 => {
                wrapped(&format!("{model}, context window of {} tokens", grouped(window)), width)
            }
            Some(model) => wrapped(&format!("{model}, context window unknown"), width),
            None => Vec::new(),
        });
        lines.push(String::new());
        // Without a window, the bars are of what is there.
        let whole = if window > 0 { window } else { used.tokens };
        // Where a bar would be a few characters, it has a line of its own.
        let narrow = width < BEFORE_BAR + 10;
        let room = if narrow { width.saturating_sub(2) } else { width - BEFORE_BAR };
        let room = BAR.min(room as u64);
        let mut line = |what: &str, count: Option<u64>, tokens: u64, mark: &str| {
            let bar = paint.cyan(&mark.repeat(usize::try_from(bar(tokens, whole, room)).unwrap_or(0)));
            let part = share(tokens, whole) * 100.0;
            let count = count.map_or(String::new(), |count| count.to_string());
            if narrow {
                lines.push(format!("{what:<15} {:>11} {part:>5.1} %", grouped(tokens)));
                lines.push(format!("  {bar}"));
            } else {
                let text = format!("{what:<16}{count:>6}  {:>11}  {part:>5.1} %", grouped(tokens));
                lines.push(format!("{text} {bar}").trim_end().to_owned());
            }
        };
        for part in used.parts.iter().filter(|part| part.tokens > 0) {
            line(name(part.kind).1, Some(part.count), part.tokens, "█");
        }
        line("together", None, used.tokens, "█");
        if window > 0 {
            line("free", None, window.saturating_sub(used.tokens), "░");
        }
        if !used.sections.is_empty() {
            lines.push(String::new());
            lines.extend(wrapped("Sections of the system prompt, in tokens:", width));
            for SectionUse { source, id, trust, tokens } in &used.sections {
                let (source, id) = (one_line(source, 40), one_line(id, 200));
                let trust = trust_name(*trust);
                lines.extend(wrapped(&format!("{:>11} {source}: {id} ({trust})", grouped(*tokens)), width));
            }
        }
        lines.push(String::new());
        for text in self.sentences() {
            lines.extend(wrapped(&text, width));
        }
        lines
    }

    fn sentences(&self) -> Vec<String> {
        let Self { used, compaction, prune, .. } = self;
        let mut lines = Vec::new();
        match compaction.threshold(self.window()) {
            Some(at) if used.tokens > at => {
                lines.push(format!(
                    "The context is over {} tokens, so it is compacted before the next call.",
                    grouped(at)
                ));
            }
            Some(at) => lines.push(format!(
                "{} tokens left until compaction, at {}.",
                grouped(at - used.tokens),
                grouped(at)
            )),
            None if !compaction.enabled => lines.push("Compaction is turned off.".into()),
            None => {}
        }
        match used.pruned {
            Some(pruned) => lines.push(format!(
                "{} old tool results are pruned, which saves {} tokens.",
                grouped(pruned.results),
                grouped(pruned.tokens)
            )),
            None if prune.enabled => lines.push("No tool result is pruned yet.".into()),
            None => {}
        }
        lines.push(match used.counted {
            Some(counted) => format!(
                "The provider counted {} tokens at the last answer: {:.2} times the estimate.",
                grouped(counted.tokens),
                share(counted.tokens, counted.estimated)
            ),
            None => "The provider has not counted this context yet, so all numbers are estimates.".into(),
        });
        if self.agent != quipu::AGENT {
            lines.push(format!(
                "This session was written by {}: its system prompt and tools are counted together. Those of Quipu replace them with the next message.",
                one_line(self.agent, 40)
            ));
        }
        match self.model {
            Some(model) if has_price(model) => {
                let (without, with) = next_turn(model, used);
                lines.push(format!(
                    "The next turn: {} to read the context, {} while {} tokens of it are in the provider's cache; plus the new messages.",
                    dollars(without),
                    dollars(with),
                    grouped(used.cached),
                ));
            }
            Some(_) => lines.push("The next turn: cost unknown, the model has no price.".into()),
            None => {}
        }
        lines
    }
}

fn has_price(model: &Model) -> bool {
    let tokens =
        Usage { input: 1_000_000, cache_read: 1_000_000, cache_write: 1_000_000, ..Usage::default() };
    model.price(&tokens).total > 0.0
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
        ContextKind::Identity => ("identity", "identity text"),
        ContextKind::System => ("system", "system prompt"),
        ContextKind::Rules => ("rules", "project's rules"),
        ContextKind::Sources => ("sources", "other sources"),
        ContextKind::Tools => ("tools", "tools"),
        ContextKind::Opening => ("opening", "the past"),
        ContextKind::Summary => ("summary", "summary"),
        ContextKind::User => ("user", "user's messages"),
        ContextKind::Answers => ("answers", "answers"),
        ContextKind::Results => ("results", "tool results"),
        ContextKind::Images => ("images", "images"),
    }
}

/// Of a bar of at most `room` characters: at least one where there is something.
pub(crate) fn bar(tokens: u64, whole: u64, room: u64) -> u64 {
    if tokens == 0 || whole == 0 {
        return 0;
    }
    let length = u128::from(tokens) * u128::from(room) / u128::from(whole);
    u64::try_from(length).unwrap_or(room).clamp(1, room.max(1))
}

/// A sentence in lines of at most `width` characters, unless a word is longer.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bars() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let bars = [
            bar(0, 9, 40),
            bar(1, u64::MAX, 40),
            bar(5, 10, 40),
            bar(99, 9, 40),
            bar(1, 0, 40),
            bar(3, 4, 0),
        ];
        assert_eq!(bars, [0, 1, 20, 40, 0, 1]);
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensible", 7), ["incomprehensible"]);
    }
}
