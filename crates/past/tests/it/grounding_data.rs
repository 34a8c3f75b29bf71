//! The cases of `tests/data/grounding.txt`.

/// Sources, true summaries of them, and false variants.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) at: Option<i64>,
    pub(crate) sources: Vec<&'static str>,
    pub(crate) summaries: Vec<Summary>,
}

pub(crate) struct Summary {
    pub(crate) text: &'static str,
    pub(crate) falsehoods: Vec<Falsehood>,
}

/// A part of a summary that is replaced by something that is not so.
pub(crate) struct Falsehood {
    pub(crate) kind: &'static str,
    pub(crate) was: &'static str,
    pub(crate) now: &'static str,
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in include_str!("../data/grounding.txt").lines() {
        let Some((mark, rest)) = line.split_once(' ') else { continue };
        let case = cases.last_mut();
        match (mark, case) {
            ("=", _) => {
                cases.push(Case { name: rest, at: None, sources: vec![], summaries: vec![] });
            }
            ("@", Some(case)) => {
                let at: jiff::civil::DateTime = rest.parse().unwrap();
                case.at = Some(at.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp().as_millisecond());
            }
            (">", Some(case)) => case.sources.push(rest),
            ("-", Some(case)) => case.summaries.push(Summary { text: rest, falsehoods: vec![] }),
            ("!", Some(case)) => {
                let mut parts = rest.splitn(3, " | ");
                let mut part = || parts.next().unwrap();
                let falsehood = Falsehood { kind: part(), was: part(), now: part() };
                let summary = case.summaries.last_mut().unwrap();
                assert_eq!(summary.text.matches(falsehood.was).count(), 1, "{line}");
                assert_ne!(falsehood.was, falsehood.now, "{line}");
                summary.falsehoods.push(falsehood);
            }
            _ => {}
        }
    }
    cases
}
