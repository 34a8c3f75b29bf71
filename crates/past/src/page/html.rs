//! The page as text: its words stand in it as data, and one script of ours lays them out.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::PastPage;
use super::given::{GivenCover, first_decisions};
use crate::cover::{Decision, Verdict};
use crate::{OpeningState, PastId};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Digits of an id.
const DIGITS: usize = 12;
/// Decisions of a cover, questions of a proof, and requests that differ, that are written.
const DECISIONS: usize = 5_000;
const QUESTIONS: usize = 1_000;
const DIFFERENT: usize = 100;

/// Bytes of a hidden letter by its number.
const HIDDEN: usize = 10;

/// Bytes of a letter as it is written, so that a text of them makes no larger page.
const fn letter_bytes(letter: char) -> usize {
    match letter {
        '<' | '>' | '&' => 6,
        '"' | '\\' | '\n' | '\t' => 2,
        letter => letter.len_utf8(),
    }
}

/// Bytes of data that a text takes which is [`shown`].
pub(super) fn data_bytes(text: &str) -> usize {
    text.chars().map(letter_bytes).sum()
}

/// The beginning of a text in so many bytes of data at most, in which hidden letters are shown by their numbers.
pub(super) fn shown(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(most));
    let mut left = most;
    for letter in text.trim().chars() {
        let is_hidden = quipu_tools::is_invisible(letter);
        let bytes = if is_hidden { HIDDEN } else { letter_bytes(letter) };
        if bytes > left {
            shown.push('…');
            break;
        }
        left -= bytes;
        if is_hidden {
            shown.push_str(&format!("[U+{:04X}]", u32::from(letter)));
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Text within an element.
fn escaped(text: &str) -> String {
    shown(text, 1_000).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// JSON that cannot end the element it stands in.
fn data(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

pub(super) fn write(page: &PastPage, out: &mut dyn Write) -> io::Result<()> {
    let [style, script] = [STYLE, SCRIPT].map(|text| STANDARD.encode(Sha256::digest(text)));
    let title = escaped(&format!("Past of {}", page.scope));
    // Nothing is loaded from anywhere, and nothing else runs.
    write!(
        out,
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n\
         <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'sha256-{style}'; \
         script-src 'sha256-{script}'; img-src data:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=referrer content=no-referrer>\n\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
         <link rel=icon href=\"data:,\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <header><h1>{title}</h1><p id=about></p></header>\n\
         <section id=timeline aria-label=Timeline><p id=tools><button type=button id=in>+</button> \
         <button type=button id=out>−</button> <button type=button id=earlier>←</button> \
         <button type=button id=later>→</button> <button type=button id=whole>All</button> <output id=window></output></p>\
         <canvas id=lanes></canvas></section>\n\
         <main>\n<nav><input id=find type=search placeholder=Search aria-label=Search autocomplete=off spellcheck=false>\
         <output id=hits></output><div id=tree></div></nav>\n\
         <article id=chunk></article>\n<aside>\n<section id=cover></section>\n<section id=given></section>\n<section id=evidence></section>\n\
         <section id=proofs></section>\n</aside>\n</main>\n"
    )?;
    for (id, value) in [("chunks", chunks(page)), ("sources", sources(page)), ("rest", rest(page))] {
        writeln!(out, "<script type=application/json id=data-{id}>{}</script>", data(&value))?;
    }
    write!(out, "<script>{SCRIPT}</script>\n</body>\n</html>\n")?;
    out.flush()
}

fn short(id: &PastId) -> String {
    id.digits().chars().take(DIGITS).collect()
}

/// The chunks, by column.
fn chunks(page: &PastPage) -> Value {
    let columns = &page.columns;
    let ids: String = columns.ids.iter().map(short).collect();
    let mut before = 0;
    let starts: Vec<i64> =
        columns.starts.iter().map(|start| start - std::mem::replace(&mut before, *start)).collect();
    let parents: Vec<i64> = columns
        .parents
        .iter()
        .map(|parent| parent.and_then(|parent| i64::try_from(parent).ok()).unwrap_or(-1))
        .collect();
    json!({
        "ids": ids, "starts": starts, "widths": columns.widths, "levels": columns.levels, "parents": parents,
        "flags": columns.flags, "texts": columns.texts,
    })
}

/// What the chunks name: ids one behind the other, and what is known of each as `who`, `at` and words.
fn sources(page: &PastPage) -> Value {
    let ids: Vec<String> = page
        .columns
        .sources
        .iter()
        .map(|sources| sources.iter().map(|node| node.to_string()[..DIGITS].to_owned()).collect())
        .collect();
    let said: serde_json::Map<String, Value> = page
        .evidence
        .said
        .iter()
        .map(|(node, said)| (node.to_string()[..DIGITS].to_owned(), json!([said.who, said.at, said.text])))
        .collect();
    json!({ "ids": ids, "said": said })
}

/// Where each node stands among the chunks.
type Places = std::collections::HashMap<quipu_protocol::NodeId, usize>;

/// A decision: of which chunk, what, why, and how relevant that is.
fn decision(decision: &Decision, places: &Places) -> Value {
    let (kind, why) = match decision.verdict {
        Verdict::Chosen(why) => ("chosen", json!(why)),
        Verdict::Split(why) => ("split", json!(why)),
        Verdict::Dropped(why) => ("dropped", json!(why)),
    };
    let why = match why {
        Value::Object(why) => {
            why.into_iter().map(|(name, of)| format!("{name}: {}", of.as_str().unwrap_or_default())).collect()
        }
        why => why.as_str().unwrap_or_default().to_owned(),
    };
    json!([places.get(&decision.id), kind, why.replace('_', " "), decision.level])
}

/// The covers that sessions were given, and that of the request that was asked for.
fn given(page: &PastPage, places: &Places) -> Value {
    let given = &page.given;
    let short_node = |node: quipu_protocol::NodeId| node.to_string()[..DIGITS].to_owned();
    let list: Vec<Value> = given
        .covers
        .iter()
        .map(|cover| {
            let GivenCover { session, at, answers, first, last, state, plan, .. } = cover;
            let mut value = served(state, plan.as_deref(), places);
            value["session"] = shown(session.as_str(), 100).into();
            (value["at"], value["requests"]) = ((*at).into(), (*answers).into());
            (value["first"], value["last"]) = (short_node(*first).into(), short_node(*last).into());
            value
        })
        .collect();
    let request = given.request.as_ref().map(|request| {
        let state = request.opening.as_ref().filter(|state| !state.served.members.is_empty());
        let plan = given.request_plan.as_deref();
        let cover = state.map(|state| served(state, plan, places));
        json!({ "node": short_node(request.node), "cover": cover })
    });
    json!({
        "list": list, "chosen": given.chosen, "request": request, "leftOut": given.left_out,
        "elsewhere": given.elsewhere,
    })
}

/// A cover as it was served: chunks by their places, those that are shown no more by their id and range.
fn served(state: &OpeningState, plan: Option<&[Decision]>, places: &Places) -> Value {
    let members = state.served.members.iter().map(|member| match places.get(&member.node) {
        Some(at) => json!(at),
        None => json!([short(&member.id), shown(&member.key, 120)]),
    });
    json!({
        "members": members.collect::<Vec<Value>>(), "cost": state.served.cost, "until": state.boundary,
        "leftOut": state.served.left_out.as_deref().map(|range| shown(range, 120)),
        "next": state.pending.as_ref().map(|next| next.members.len()), "budget": state.budget,
        "decisions": plan.map(|plan| plan.iter().map(|one| decision(one, places)).collect::<Vec<Value>>()),
    })
}

/// The cover, evidence, and proofs.
fn rest(page: &PastPage) -> Value {
    let PastPage { columns, evidence, cover, ask, proof, .. } = page;
    let places: Places = columns.nodes.iter().enumerate().map(|(at, node)| (*node, at)).collect();
    let decisions = &cover.cover.decisions;
    let listed = first_decisions(decisions, DECISIONS);
    let listed: Vec<Value> = listed.iter().map(|one| decision(one, &places)).collect();
    let counts = |of: &std::collections::HashMap<usize, usize>| -> Value {
        let mut counts: Vec<(usize, usize)> = of.iter().map(|(at, count)| (*at, *count)).collect();
        counts.sort_unstable();
        json!(counts)
    };
    let gaps: Vec<Value> =
        evidence.gaps.iter().map(|gap| json!([gap.start, gap.end, gap.nodes, gap.is_late])).collect();
    let left_out: Vec<Value> = cover
        .cover
        .gaps
        .iter()
        .filter(|gap| gap.chunks > 0)
        .take(500)
        .map(|gap| json!([gap.span.start, gap.span.end, gap.chunks]))
        .collect();
    let about = ask.about.as_deref().map(|about| shown(about, 2_000));
    let mut proof = json!(proof);
    // Words of others stand in these alone.
    if let Some(different) = proof.pointer_mut("/structure/different").and_then(Value::as_array_mut) {
        different.truncate(DIFFERENT);
        for found in different {
            found["at"] = shown(found["at"].as_str().unwrap_or_default(), 200).into();
        }
    }
    if let Some(questions) = proof.pointer_mut("/ablation/questions").and_then(Value::as_array_mut) {
        questions.truncate(QUESTIONS);
        for asked in questions {
            asked["question"] = shown(asked["question"].as_str().unwrap_or_default(), 500).into();
        }
    }
    if let Some(failed) = proof.pointer_mut("/ablation/failed") {
        *failed = Value::Null;
    }
    if let Some(model) = proof.pointer_mut("/ablation/model") {
        *model = shown(model.as_str().unwrap_or_default(), 200).into();
    }
    json!({
        "scope": shown(&page.scope, 1_000), "now": ask.now, "shortened": columns.shortened, "faults": page.faults,
        "cover": {
            "budget": ask.budget, "cost": cover.cost, "boundary": ask.boundary, "about": about, "decisions": listed,
            "decided": decisions.len(), "shortfall": cover.cover.shortfall, "leftOut": left_out,
        },
        "given": given(page, &places),
        "overlap": counts(&evidence.overlap), "late": counts(&evidence.late), "missing": counts(&evidence.missing),
        "gaps": gaps, "gapCount": evidence.gap_count, "proof": proof,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_cannot_end_their_element() {
        let text = data(&json!({ "a": "</script><!--<script>&amp;" }));
        assert!(!text.contains(['<', '>', '&']), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["a"], "</script><!--<script>&amp;");
        assert_eq!(shown("a\u{202e}b\u{1b}c", 100), "a[U+202E]b[U+001B]c");
        assert_eq!((shown("äöü", 4), shown("<<<", 13)), ("äö…".to_owned(), "<<…".to_owned()));
        assert!(data(&json!(shown(&"<\u{200b}\"".repeat(1_000), 600))).len() <= 600 + 8);
        assert_eq!(escaped("<b>&"), "&lt;b&gt;&amp;");
    }
}
