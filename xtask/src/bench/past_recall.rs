//! The past beside a search: whether the words of an answer stand in what a model would be given in the same budget, by a cover
//! and by what `quipu memory search` finds.
//!
//! Only questions count whose answer's words all stand in the turns that are evidence: others cannot be found by anybody. The search
//! gives turns with those beside them, as in `recall`, and is charged for their words alone; a cover is charged for all that it sends.
//! The cover was tuned by every second question; the others judge.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::recall::{Corpus, LOCOMO, Program, Question, locomo, places, within};
use super::{Benchmark, Context, Row};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "past-recall",
    about: "answers of LoCoMo (QUIPU_LOCOMO=FILE) in 4k tokens: a cover of the past, and `quipu memory search`",
    run,
};

/// Tokens of the request.
const BUDGET: usize = 4_000;
/// Words that say nothing.
const STOP: &str = "a an and are as at be by for from her his in is it its of on or she that the their they to was were with he";
/// The questions by which the cover was tuned, and those that judge it.
const HALVES: [&str; 2] = ["tuned by", "judging"];

/// What is compared.
const WAYS: [&str; 3] = ["`quipu memory search`", "a cover, question known", "a cover, question unknown"];

/// What was found of the questions of one half.
#[derive(Default)]
struct HalfCount {
    /// Questions whose answer can be found, and with how many each way has all of its words.
    asked: usize,
    answers: [usize; WAYS.len()],
    /// All questions, and the sums of the shares of their evidence.
    all: usize,
    evidence: [f64; WAYS.len()],
}

fn run(context: &Context) -> Result<Vec<Row>> {
    let Some(path) = std::env::var_os(LOCOMO) else {
        let note = format!("answers in a cover of the past ({LOCOMO}=FILE names the questions of LoCoMo)");
        context.notes.borrow_mut().push(note);
        return Ok(Vec::new());
    };
    if !context.wants(BENCHMARK.name, "LoCoMo") {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", std::path::Path::new(&path).display()))?;
    let mut halves: [HalfCount; HALVES.len()] = Default::default();
    for (n, corpus) in locomo(&text)?.iter().enumerate() {
        eprintln!("bench: past-recall, conversation {}", n + 1);
        let home = context.scratch.join(format!("past-recall-{n}"));
        let program = Program { quipu: &context.quipu, home: &home };
        program.fill(corpus, None)?;
        program.run(&["past", "build", "--all"])?;
        let unknown = cover(&program, None)?;
        let place = places(corpus);
        for (at, question) in corpus.questions.iter().enumerate() {
            let hits = program.ask(&question.text)?;
            let known = cover(&program, Some(&question.text))?;
            halves[at % HALVES.len()].add(corpus, question, [&said(corpus, &place, &hits), &known, &unknown]);
        }
    }
    let mut rows = Vec::new();
    for (half, found) in HALVES.iter().zip(halves) {
        ensure!(found.asked > 0, "no question of LoCoMo has its answer in words");
        let row = |what: &str, way: &str, share: f64, of: usize| Row {
            what: format!("past-recall, LoCoMo, {half} half, {what} in 4k tokens: {way}, of {of}"),
            unit: "%",
            samples: vec![100.0 * share / of as f64],
        };
        for (way, count) in WAYS.iter().zip(found.answers) {
            rows.push(row("words of the answer", way, count as f64, found.asked));
        }
        for (way, sum) in WAYS.iter().zip(found.evidence) {
            rows.push(row("evidence word for word", way, sum, found.all));
        }
    }
    Ok(rows)
}

impl HalfCount {
    fn add(&mut self, corpus: &Corpus, question: &Question, given: [&str; WAYS.len()]) {
        let gold = gold(corpus, question);
        self.all += 1;
        for (sum, text) in self.evidence.iter_mut().zip(given) {
            let text = flat(text);
            let stands = gold.iter().filter(|turn| text.contains(turn.as_str())).count();
            *sum += stands as f64 / question.gold.len().max(1) as f64;
        }
        let wanted = answer(question);
        if wanted.is_empty() || !wanted.is_subset(&words(&gold.join("\n"))) {
            return;
        }
        self.asked += 1;
        for (count, text) in self.answers.iter_mut().zip(given) {
            *count += usize::from(wanted.is_subset(&words(text)));
        }
    }
}

/// The text of a cover.
fn cover(program: &Program<'_>, about: Option<&str>) -> Result<String> {
    let tokens = BUDGET.to_string();
    let mut arguments = vec!["past", "cover", "--all", "--json", "--budget", &tokens];
    // A question may begin with a dash.
    let about = about.map(|about| format!("--about={about}"));
    arguments.extend(about.as_deref());
    let printed = program.run(&arguments)?;
    let read: Value = serde_json::from_str(&printed).context("the cover is no JSON")?;
    let text = read["text"].as_str().unwrap_or_default();
    ensure!(text.chars().count() <= BUDGET * 4, "a cover of {} characters", text.chars().count());
    Ok(text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
}

/// What a search gives within the budget.
fn said(corpus: &Corpus, place: &HashMap<&str, (usize, usize)>, hits: &[String]) -> String {
    within(corpus, place, hits, BUDGET).iter().map(|turn| format!("{}\n", turn.text)).collect()
}

/// What the turns say that are evidence.
fn gold(corpus: &Corpus, question: &Question) -> Vec<String> {
    let turns = corpus.sessions.iter().flat_map(|session| &session.turns);
    turns.filter(|turn| question.gold.contains(&turn.id)).map(|turn| flat(&turn.text)).collect()
}

fn answer(question: &Question) -> BTreeSet<String> {
    let stop: BTreeSet<&str> = STOP.split_whitespace().collect();
    words(&question.answer).into_iter().filter(|word| !stop.contains(word.as_str())).collect()
}

fn words(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_looked_for_as_words() {
        let given = words("Caroline: I went to Oslo, on 7 May!");
        assert!(words("7 may, Oslo").is_subset(&given) && !words("17 May").is_subset(&given));
    }
}
