//! Changed summaries, and whether grounding notices.

use jiff::tz::TimeZone;
use quipu_past::disturb::disturb;
use quipu_past::grounding::{ClaimKind, GroundingSources, SourceText};

use crate::grounding_data::cases;

#[test]
fn disturbance_changes_dates_names_and_numbers() {
    let summary =
        "On May 4, 2026 Priya raised the limit in `retry.rs` from 5 to eight; she said \"done\" at 10:20.";
    let disturbed = disturb(summary, 7);
    let kinds: Vec<(ClaimKind, &str)> =
        disturbed.changes.iter().map(|change| (change.kind, change.was.as_str())).collect();
    assert_eq!(
        kinds,
        [
            (ClaimKind::Date, "May 4, 2026"),
            (ClaimKind::Name, "Priya"),
            (ClaimKind::Number, "5"),
            (ClaimKind::Number, "eight"),
            (ClaimKind::Number, "10:20"),
        ]
    );
    for change in &disturbed.changes {
        assert_ne!(change.was, change.now);
        assert_eq!(disturbed.text[change.place.clone()], change.now);
    }
    assert!(
        disturbed.text.contains("`retry.rs`") && disturbed.text.contains("\"done\""),
        "{}",
        disturbed.text
    );
    assert_eq!(disturb(summary, 7), disturbed);
    assert_ne!(disturb(summary, 8).text, disturbed.text);
    assert_eq!(disturb("nothing to change here", 1).changes, []);
}

#[test]
fn name_is_replaced_by_the_same_one_everywhere() {
    let first = disturb("Then Priya came, and Priya left.", 3);
    let second = disturb("They asked Priya.", 3);
    let names: Vec<&str> =
        first.changes.iter().chain(&second.changes).map(|change| change.now.as_str()).collect();
    assert_eq!(names.len(), 3);
    assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
}

#[test]
fn disturbances_are_found_by_grounding() {
    let (mut found, mut all) = (0, 0);
    let mut missed = Vec::new();
    for case in cases() {
        let texts: Vec<SourceText<'_>> =
            case.sources.iter().map(|text| SourceText { text, at: case.at }).collect();
        let sources = GroundingSources::new(&texts, &TimeZone::UTC);
        for (summary, seed) in case.summaries.iter().zip(0..) {
            let disturbed = disturb(summary.text, seed);
            let findings = sources.check(&disturbed.text).findings;
            for change in &disturbed.changes {
                let is_found = findings.iter().any(|finding| {
                    finding.place.start < change.place.end && change.place.start < finding.place.end
                });
                all += 1;
                found += usize::from(is_found);
                if !is_found {
                    missed.push(format!(
                        "{}: {} -> {} in {}",
                        case.name, change.was, change.now, disturbed.text
                    ));
                }
            }
        }
    }
    println!("{found} of {all}\n{}", missed.join("\n"));
    assert!(all > 500);
    assert!(found * 100 >= all * 99, "{found} of {all}");
}
