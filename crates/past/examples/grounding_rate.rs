//! How many planted falsehoods are found, and how many true summaries raise an alarm.
//!
//! The cases are those of the tests. It prints a JSON line for each row: `{"what": .., "unit": .., "samples": [..]}`.
//! `cargo xtask bench past-proof` runs it.

#[path = "../tests/it/grounding_data.rs"]
#[expect(
    clippy::unwrap_used,
    dead_code,
    reason = "the cases are a file of this project, and the tests that read it tell more of each"
)]
mod grounding_data;

use std::io::Write as _;
use std::time::Instant;

use grounding_data::{Case, cases};
use jiff::tz::TimeZone;
use quipu_past::grounding::{GroundingSources, SourceText};

fn print(what: &str, unit: &str, value: f64) -> std::io::Result<()> {
    let row = serde_json::json!({ "what": what, "unit": unit, "samples": [value] });
    writeln!(std::io::stdout(), "{row}")
}

fn sources(case: &Case) -> GroundingSources {
    let texts: Vec<SourceText<'_>> =
        case.sources.iter().map(|text| SourceText { text, at: case.at }).collect();
    GroundingSources::new(&texts, &TimeZone::UTC)
}

/// The share of true ones, in percent.
#[expect(clippy::cast_precision_loss, reason = "some hundreds")]
fn percent(of: &[bool]) -> f64 {
    100.0 * of.iter().filter(|is| **is).count() as f64 / of.len().max(1) as f64
}

#[expect(clippy::cast_precision_loss, reason = "some hundreds")]
fn main() -> std::io::Result<()> {
    let cases = cases();
    let [mut found, mut abstractive, mut extractive] = [const { Vec::new() }; 3];
    let (began, mut checks) = (Instant::now(), 0_usize);
    for case in &cases {
        let sources = sources(case);
        let mut alarms = |text: &str| {
            checks += 1;
            sources.check(text).findings
        };
        for summary in &case.summaries {
            abstractive.push(!alarms(summary.text).is_empty());
            for falsehood in &summary.falsehoods {
                let at = summary.text.find(falsehood.was).unwrap_or_default();
                let planted = at..at + falsehood.now.len();
                let text = summary.text.replacen(falsehood.was, falsehood.now, 1);
                let meets =
                    |place: &std::ops::Range<usize>| place.start < planted.end && planted.start < place.end;
                found.push(alarms(&text).iter().any(|finding| meets(&finding.place)));
            }
        }
        for source in &case.sources {
            extractive.push(!alarms(source).is_empty());
        }
    }
    let each = began.elapsed().as_secs_f64() * 1_000.0 / checks.max(1) as f64;
    print(&format!("planted falsehoods found, of {}", found.len()), "%", percent(&found))?;
    print(&format!("true summaries with an alarm, of {}", abstractive.len()), "%", percent(&abstractive))?;
    print(&format!("copied texts with an alarm, of {}", extractive.len()), "%", percent(&extractive))?;
    print("one summary checked", "ms", each)
}
