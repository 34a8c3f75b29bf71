//! Whether falsehoods are found and truths are not.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use quipu_past::grounding::{ClaimKind, GroundingSources, SourceText};

use crate::grounding_data::{Case, cases};

fn sources(case: &Case) -> GroundingSources {
    let texts: Vec<SourceText<'_>> =
        case.sources.iter().map(|text| SourceText { text, at: case.at }).collect();
    GroundingSources::new(&texts, &TimeZone::UTC)
}

/// What is found in a summary of one source, without a time.
fn found(source: &str, summary: &str) -> Vec<String> {
    let sources = GroundingSources::new(&[SourceText { text: source, at: None }], &TimeZone::UTC);
    sources.check(summary).findings.into_iter().map(|finding| finding.text).collect()
}

#[test]
fn data_set_is_large_enough() {
    let cases = cases();
    let summaries = || cases.iter().flat_map(|case| &case.summaries);
    assert!(summaries().count() >= 200);
    assert!(summaries().map(|summary| summary.falsehoods.len()).sum::<usize>() >= 200);
}

/// At least 95 of 100 falsehoods are found.
#[test]
fn planted_falsehoods_are_found() {
    let mut kinds: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut missed = Vec::new();
    for case in cases() {
        let sources = sources(&case);
        for summary in &case.summaries {
            for falsehood in &summary.falsehoods {
                let at = summary.text.find(falsehood.was).unwrap();
                let text = summary.text.replacen(falsehood.was, falsehood.now, 1);
                let planted = at..at + falsehood.now.len();
                let is_found =
                    sources.check(&text).findings.iter().any(|finding| {
                        finding.place.start < planted.end && planted.start < finding.place.end
                    });
                let kind = kinds.entry(falsehood.kind).or_default();
                kind.0 += usize::from(is_found);
                kind.1 += 1;
                if !is_found {
                    missed.push(format!("{}: {} -> {}", case.name, falsehood.was, falsehood.now));
                }
            }
        }
    }
    println!("found: {kinds:?}\nmissed:\n{}", missed.join("\n"));
    let all: usize = kinds.values().map(|kind| kind.1).sum();
    assert!(missed.len() * 100 <= all * 5, "{} of {all} missed", missed.len());
}

/// At most 5 of 100 true summaries have any finding.
#[test]
fn abstractive_summaries_raise_few_alarms() {
    let (mut summaries, mut claims, mut alarmed) = (0, 0, 0);
    let mut alarms = Vec::new();
    for case in cases() {
        let sources = sources(&case);
        for summary in &case.summaries {
            let report = sources.check(summary.text);
            summaries += 1;
            claims += report.claims;
            alarmed += usize::from(!report.is_grounded());
            alarms.extend(report.findings.iter().map(|finding| {
                format!("{}: {:?} {:?} in {}", case.name, finding.kind, finding.text, summary.text)
            }));
        }
    }
    println!(
        "{alarmed} of {summaries} summaries, {} of {claims} claims\n{}",
        alarms.len(),
        alarms.join("\n")
    );
    assert!(alarmed * 100 <= summaries * 5, "{alarmed} of {summaries}");
}

/// Sentences and whole turns of the sources, and of the sessions that recall is measured with.
#[test]
fn extractive_summaries_raise_fewer_alarms() {
    let mut texts: Vec<Vec<String>> = Vec::new();
    for case in cases() {
        texts.push(case.sources.iter().map(|text| (*text).to_owned()).collect());
    }
    for line in include_str!("../../../../xtask/data/recall/sessions.jsonl").lines() {
        let session: serde_json::Value = serde_json::from_str(line).unwrap();
        let turns = session["turns"].as_array().unwrap().iter();
        texts.push(turns.map(|turn| turn.as_str().unwrap().to_owned()).collect());
    }
    let (mut alarms, mut all) = (Vec::new(), 0);
    for turns in &texts {
        let known: Vec<SourceText<'_>> = turns.iter().map(|text| SourceText { text, at: None }).collect();
        let sources = GroundingSources::new(&known, &TimeZone::UTC);
        for turn in turns {
            let sentences =
                turn.split_inclusive(". ").flat_map(|part| part.split_inclusive("? ")).map(str::trim);
            for text in sentences.chain([turn.as_str(), &turns.join(" ")]) {
                all += 1;
                let grounding = sources.check(text);
                alarms.extend(grounding.findings.first().map(|finding| format!("{finding:?} in {text}")));
            }
        }
    }
    println!("{} of {all}\n{}", alarms.len(), alarms.join("\n"));
    assert!(all > 1_000);
    // At most 2 of 100.
    assert!(alarms.len() * 100 <= all * 2, "{} of {all}", alarms.len());
}

#[test]
fn finding_names_its_place_and_kind() {
    let source = "Ada changed 3 files on 2026-05-04: src/lexer.rs, and said \"it is done\".";
    let summary = "Ada and Bob changed 4 files on May 5, 2026: src/parser.rs; `next_word`; \"it is gone\".";
    let sources = GroundingSources::new(&[SourceText { text: source, at: None }], &TimeZone::UTC);
    let grounding = sources.check(summary);
    let kinds: Vec<(ClaimKind, &str)> =
        grounding.findings.iter().map(|finding| (finding.kind, finding.text.as_str())).collect();
    assert_eq!(
        kinds,
        [
            (ClaimKind::Name, "Bob"),
            (ClaimKind::Number, "4"),
            (ClaimKind::Date, "May 5, 2026"),
            (ClaimKind::Path, "src/parser.rs"),
            (ClaimKind::Identifier, "next_word"),
            (ClaimKind::Quote, "it is gone"),
        ]
    );
    assert!(grounding.findings.iter().all(|finding| summary[finding.place.clone()] == finding.text));
    assert_eq!(grounding.claims, 7);
}

#[test]
fn other_forms_of_the_same_are_known() {
    let none: [String; 0] = [];
    for (source, summary) in [
        ("It took 118 s.", "It took about 2 minutes."),
        ("1,234 rows", "There were 1234 rows."),
        ("1234 rows", "There were 1,234 rows."),
        ("8,412 ms", "8.4 seconds"),
        ("from 2026-05-04 on", "From May 4, 2026 on, and from 4 May"),
        ("changed a.rs, b.rs and c.rs", "Changed three files"),
        ("He said \u{201c}it\u{2019}s  done\u{201d}.", "\"it's done\""),
        ("src/upload/retry.rs", "`upload/retry.rs` and retry.rs"),
        ("cargo test passed", "`cargo test` passed"),
        ("12 of them", "A dozen of them, twelve"),
        ("at 20:30", "At half past eight, 8:30 pm"),
        ("4m05s", "Just over four minutes, about 245 seconds"),
        ("21 days before", "three weeks before"),
        ("started 22:01, ended 22:49", "took 48 minutes"),
        ("10,000 users", "10k users"),
    ] {
        assert_eq!(found(source, summary), none, "{source} / {summary}");
    }
}

#[test]
fn similar_things_are_not_the_same() {
    for (source, summary, wanted) in [
        ("It took 30 s.", "It took 30 minutes.", "30 minutes"),
        ("It took 118 s.", "It took about 3 minutes.", "3 minutes"),
        ("getUser", "`getuser`", "getuser"),
        ("my-base.css", "`base.css`", "base.css"),
        ("retry_all", "`retry`", "retry"),
        ("on May 4", "on May 5", "May 5"),
        ("version 1.8.0", "version 1.8.1", "1.8.1"),
        ("5 attempts", "9 attempts", "9"),
    ] {
        assert_eq!(found(source, summary), [wanted], "{source} / {summary}");
    }
}

#[test]
fn days_are_counted_from_the_time_of_the_source() {
    let at = "2026-05-19T03:12:00Z".parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let sources = |zone: &str| {
        let text = "Retired on Friday. It broke yesterday; until the 2nd there is time.";
        GroundingSources::new(&[SourceText { text, at: Some(at) }], &TimeZone::get(zone).unwrap())
    };
    let is_grounded = |zone: &str, summary: &str| sources(zone).check(summary).is_grounded();
    for summary in ["on 19 May 2026", "on May 15", "on May 18", "until June 2"] {
        assert!(is_grounded("UTC", summary), "{summary}");
    }
    for summary in ["on May 17", "on 19 May 2025", "until June 3"] {
        assert!(!is_grounded("UTC", summary), "{summary}");
    }
    // In New York it was still the day before.
    assert!(is_grounded("America/New_York", "on May 17"));
}

#[test]
fn hostile_text_is_read_without_harm() {
    let long = "9".repeat(100_000);
    let texts = [
        "",
        "\"",
        "``",
        "\u{1}\u{1} \u{1}",
        "....",
        "1.",
        "1,,2",
        "e9",
        "3e999999",
        "-",
        "99999999999999999999",
        "\u{201c}open",
        "5\u{a0}%",
        "12:",
        "12:3",
        "May",
        "May 99",
        "31 February",
        "2026-99-99",
        "#",
        "@",
        "a_",
        "::",
        "()",
        "1/0",
        "0/0",
        "\u{663}\u{664}",
        "half past",
        "quarter to x",
        "\u{1f600}\u{1f600}",
        "5\u{2013}6",
        "m5",
        "4m",
        "\u{e9}5\u{e9}",
        &long,
    ];
    for source in texts {
        for summary in texts {
            found(source, summary);
        }
    }
}
