//! `quipu usage`: tokens and cost.

use std::collections::HashMap;
use std::io::Write as _;

use quipu_protocol::{Model, Usage};
use quipu_providers::Settings;
use quipu_store::{ReadModel as _, UsageGrouping, UsageQuery, UsageSum};

use crate::args::{ByArg, UsageArgs};
use crate::context::bar;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, dollars, note, one_line, width};
use crate::search::instant;
use quipu_host::now;

/// Columns of a key at most.
const KEY: usize = 44;
/// Columns of a bar: at least, at most.
const BAR: (usize, usize) = (6, 40);

pub(crate) async fn run(args: &UsageArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let time =
        |flag, text: &Option<String>| text.as_deref().map(|text| instant(flag, text, now())).transpose();
    let (since, until) = (time("--since", &args.since)?, time("--until", &args.until)?);
    if since.zip(until).is_some_and(|(since, until)| since >= until) {
        return Err(Failure::usage("--until must be after --since"));
    }
    let Some(store) = home.existing_store().await? else {
        if !args.out.json {
            note("There are no sessions yet. Try `quipu demo` or `quipu import`.");
        }
        return Ok(());
    };
    let by = match args.by {
        ByArg::Day => UsageGrouping::Time,
        ByArg::Project => UsageGrouping::Project,
        ByArg::Model => UsageGrouping::Model,
        ByArg::Agent => UsageGrouping::Agent,
        ByArg::Session => UsageGrouping::Session,
        ByArg::Purpose => UsageGrouping::Purpose,
    };
    let known = store.usage(UsageQuery { by, since, until }).await?;
    // The catalogue is only needed where a file does not say what its calls cost.
    let settings = known.found.iter().any(|sum| !sum.priced).then(|| home.settings());
    let rows = rows(&known.found, by, settings.as_ref());
    let mut all = Row::default();
    for row in &rows {
        all.add(row);
    }
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if args.out.json {
        for row in &rows {
            writeln!(out, "{}", row.json("row", args.by.name()))?;
        }
        let mut end = all.json("end", "");
        end["behind"] = known.behind.into();
        writeln!(out, "{end}")?;
        return Ok(out.flush()?);
    }
    if rows.is_empty() {
        note("No usage in this time.");
    } else {
        for line in table(&rows, &all, args.by, width(), Paint::stdout()) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()?;
    tell_behind(known.behind);
    if all.estimated > 0.0 {
        note("estimated: calls without a recorded cost, at the current prices of the catalogue.");
    }
    if all.unknown > 0 {
        note(format!("The cost of {} calls is unknown.", all.unknown));
    }
    Ok(())
}

/// Says that the tables are behind.
pub(crate) fn tell_behind(behind: u64) {
    if behind > 0 {
        note(format!(
            "The newest {behind} nodes are not counted yet; try again in a moment, and run `quipu doctor` if this remains."
        ));
    }
}

/// What is shown on one line.
#[derive(Debug, Clone, Default)]
struct Row {
    key: String,
    calls: u64,
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    cost: f64,
    /// What calls would cost that do not say it.
    estimated: f64,
    /// Calls that do not say it and whose model has no price.
    unknown: u64,
    /// Searches of the web.
    searches: u64,
}

impl Row {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.cost += other.cost;
        self.estimated += other.estimated;
        self.unknown += other.unknown;
        self.searches += other.searches;
    }

    fn tokens(&self) -> u64 {
        self.input + self.output + self.cache_read + self.cache_write
    }

    fn json(&self, kind: &str, by: &str) -> serde_json::Value {
        let mut json = serde_json::json!({
            "type": kind,
            "calls": self.calls,
            "input": self.input,
            "output": self.output,
            "cacheRead": self.cache_read,
            "cacheWrite": self.cache_write,
            "cost": self.cost,
            "estimated": self.estimated,
            "unknown": self.unknown,
            "webSearches": self.searches,
        });
        if !by.is_empty() {
            json[by] = self.key.as_str().into();
        }
        json
    }
}

/// Sums as lines: days in their order, anything else by cost and size.
fn rows(sums: &[UsageSum], by: UsageGrouping, settings: Option<&Settings>) -> Vec<Row> {
    let zone = jiff::tz::TimeZone::system();
    let mut models = HashMap::new();
    let mut rows: Vec<Row> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for sum in sums {
        let key = match by {
            UsageGrouping::Time => {
                let at = sum.key.parse().ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
                at.unwrap_or_default().to_zoned(zone.clone()).date().to_string()
            }
            UsageGrouping::Project
            | UsageGrouping::Model
            | UsageGrouping::Agent
            | UsageGrouping::Session
            | UsageGrouping::Purpose => sum.key.clone(),
        };
        let index = *places.entry(key.clone()).or_insert(rows.len());
        if index == rows.len() {
            rows.push(Row { key, ..Row::default() });
        }
        let mut row = Row {
            calls: sum.calls,
            input: sum.input,
            output: sum.output,
            cache_read: sum.cache_read,
            cache_write: sum.cache_write,
            cost: sum.cost,
            searches: sum.searches,
            ..Row::default()
        };
        if !sum.priced {
            let model: &Option<Model> = models
                .entry(sum.model.as_str())
                .or_insert_with(|| settings.and_then(|all| find(all, &sum.model)));
            match model {
                Some(model) => row.estimated = estimate(model, sum),
                None => row.unknown = sum.calls,
            }
        }
        rows[index].add(&row);
    }
    match by {
        UsageGrouping::Time => rows.sort_by(|a, b| a.key.cmp(&b.key)),
        UsageGrouping::Project
        | UsageGrouping::Model
        | UsageGrouping::Agent
        | UsageGrouping::Session
        | UsageGrouping::Purpose => rows.sort_by(|a, b| {
            let paid = |row: &Row| row.cost + row.estimated;
            paid(b).total_cmp(&paid(a)).then(b.tokens().cmp(&a.tokens())).then(a.key.cmp(&b.key))
        }),
    }
    rows
}

/// A model of the catalogue by `provider/id`, else by its id alone; only with a price.
fn find(settings: &Settings, name: &str) -> Option<Model> {
    let (provider, id) = name.split_once('/').unwrap_or(("", name));
    let own = settings.models_of(provider).iter().find(|model| model.id == id).cloned();
    let model = own.or_else(|| {
        settings
            .providers()
            .into_iter()
            .flat_map(|provider| settings.models_of(provider))
            .find(|model| model.id == id)
            .cloned()
    })?;
    let prices = &model.cost;
    (prices.input > 0.0 || prices.output > 0.0).then(|| Model::clone(&model))
}

/// What calls would have cost, without the rates of large inputs, since they are only known together.
fn estimate(model: &Model, sum: &UsageSum) -> f64 {
    let mut model = model.clone();
    model.cost.tiers.clear();
    let usage = Usage {
        input: sum.input,
        output: sum.output,
        cache_read: sum.cache_read,
        cache_write: sum.cache_write,
        ..Usage::default()
    };
    model.price(&usage).total
}

fn table(rows: &[Row], all: &Row, by: ByArg, width: usize, paint: Paint) -> Vec<String> {
    let (estimated, searched) = (all.estimated > 0.0, all.searches > 0);
    let keys: Vec<String> = rows.iter().map(|row| one_line(name(&row.key), KEY)).collect();
    let widest = keys.iter().map(|key| key.chars().count()).max().unwrap_or(0).max(8);
    let line = |key: &str, cells: [String; 5], cost: String, guess: String, found: String, bar: String| {
        let [calls, input, output, read, write] = cells;
        let gap = widest.saturating_sub(key.chars().count());
        let guess = if estimated { format!("{guess:>11}") } else { String::new() };
        let found = if searched { format!("{found:>10}") } else { String::new() };
        let text = format!(
            "{key}{:gap$}{calls:>8}{input:>8}{output:>8}{read:>8}{write:>8}{found}{cost:>10}{guess}",
            ""
        );
        if bar.is_empty() { text } else { format!("{text}  {}", paint.cyan(&bar)) }
    };
    let before_bar = widest + 52 + if estimated { 11 } else { 0 } + if searched { 10 } else { 0 };
    let room = Some(width.saturating_sub(before_bar))
        .filter(|room| *room >= BAR.0)
        .map_or(0, |room| room.min(BAR.1));
    // Bars of cost, or of tokens where nothing has a cost.
    let size = |row: &Row| {
        let paid = row.cost + row.estimated;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        if all.cost + all.estimated > 0.0 { (paid * 1e6) as u64 } else { row.tokens() }
    };
    let largest = rows.iter().map(size).max().unwrap_or(0);
    let cells = |row: &Row| {
        let counts = [row.input, row.output, row.cache_read, row.cache_write].map(short);
        let [input, output, read, write] = counts;
        [short(row.calls), input, output, read, write]
    };
    let heads = ["calls", "input", "output", "read", "write"].map(str::to_owned);
    let mut lines = vec![paint.dim(&line(
        by.name(),
        heads,
        "cost".into(),
        "estimated".into(),
        "searches".into(),
        String::new(),
    ))];
    for (row, key) in rows.iter().zip(&keys) {
        let length = usize::try_from(bar(size(row), largest, room as u64)).unwrap_or(0).min(room);
        lines.push(line(
            key,
            cells(row),
            dollars(row.cost),
            dollars(row.estimated),
            short(row.searches),
            "█".repeat(length),
        ));
    }
    lines.push(paint.bold(&line(
        "together",
        cells(all),
        dollars(all.cost),
        dollars(all.estimated),
        short(all.searches),
        String::new(),
    )));
    lines
}

fn name(key: &str) -> &str {
    if key.is_empty() { "(unknown)" } else { key }
}

/// `1234567` as `1.23M`.
pub(crate) fn short(count: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let of = |unit: u64| count as f64 / unit as f64;
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{:.1}k", of(1_000)),
        1_000_000..1_000_000_000 => format!("{:.2}M", of(1_000_000)),
        _ => format!("{:.2}G", of(1_000_000_000)),
    }
}

impl ByArg {
    fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Project => "project",
            Self::Model => "model",
            Self::Agent => "agent",
            Self::Session => "session",
            Self::Purpose => "purpose",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_short() {
        assert_eq!(
            [0, 9_999, 12_345, 1_234_567, 2_000_000_000].map(short),
            ["0", "9999", "12.3k", "1.23M", "2.00G"]
        );
    }
}
