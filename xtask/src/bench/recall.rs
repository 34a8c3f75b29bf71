//! Recall: how much of what answers a question is among the first hits of `quipu memory search`.
//!
//! Conversations become session files of Pi, are imported, and the released program is asked. Two sets: LoCoMo, which is not part
//! of this repository (`QUIPU_LOCOMO` names its file), and one of our own over coding sessions, whose questions mostly use
//! other words than the answers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::{Benchmark, Context, MILLION, Row, number};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "recall",
    about: "what `quipu memory search` finds: LoCoMo (QUIPU_LOCOMO=FILE), our own questions, speed (--million)",
    run,
};

/// Where LoCoMo is.
pub(super) const LOCOMO: &str = "QUIPU_LOCOMO";
/// Where a static model is, for the second signal.
const MODEL: &str = "QUIPU_RECALL_MODEL";
/// Our own set.
const OWN: &str = include_str!("../../data/recall/sessions.jsonl");
/// Hits that are asked for.
const LIMIT: usize = 100;
/// Tokens of evidence.
const BUDGETS: [(usize, &str); 4] = [(1_000, "1k"), (2_000, "2k"), (4_000, "4k"), (8_000, "8k")];
const KINDS: [&str; 5] = ["multi-hop", "temporal", "open-domain", "single-hop", "adversarial"];
/// Days before each other's months, in a year that is none.
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Sessions that are searched together, and what is asked.
pub(super) struct Corpus {
    pub(super) sessions: Vec<Session>,
    pub(super) questions: Vec<Question>,
}

pub(super) struct Session {
    /// Milliseconds since 1970.
    at: i64,
    pub(super) turns: Vec<Turn>,
}

pub(super) struct Turn {
    pub(super) id: String,
    is_user: bool,
    pub(super) text: String,
}

pub(super) struct Question {
    pub(super) text: String,
    kind: String,
    /// The answer, where it is known.
    pub(super) answer: String,
    pub(super) gold: BTreeSet<String>,
}

/// Sums of shares, and how many there were.
#[derive(Default)]
struct Shares(BTreeMap<String, (f64, usize)>);

impl Shares {
    fn add(&mut self, what: String, share: f64) {
        let sum = self.0.entry(what).or_default();
        sum.0 += share;
        sum.1 += 1;
    }
}

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let model = std::env::var_os(MODEL).map(PathBuf::from);
    match std::env::var_os(LOCOMO) {
        Some(path) => {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let corpora = locomo(&text)?;
            rows.extend(measure(context, "LoCoMo", &corpora, None)?);
            if let Some(model) = &model {
                rows.extend(measure(context, "LoCoMo with vectors", &corpora, Some(model))?);
            }
        }
        None => {
            context.notes.borrow_mut().push(format!("recall on LoCoMo ({LOCOMO}=FILE names its questions)"));
        }
    }
    let own = [own()?];
    rows.extend(measure(context, "own questions", &own, None)?);
    match &model {
        Some(model) => rows.extend(measure(context, "own questions with vectors", &own, Some(model))?),
        None => context
            .notes
            .borrow_mut()
            .push(format!("recall with vectors ({MODEL}=DIRECTORY of a static model)")),
    }
    for nodes in &context.sizes.search {
        rows.extend(speed(context, *nodes)?);
    }
    if !context.sizes.search.contains(&MILLION) {
        context.notes.borrow_mut().push("questions among a million nodes (--million)".to_owned());
    }
    Ok(rows)
}

/// How long the store takes for questions, by its example.
fn speed(context: &Context, nodes: usize) -> Result<Vec<Row>> {
    let what = format!("among {} nodes", number(nodes as f64));
    if !context.wants(BENCHMARK.name, &what) {
        return Ok(Vec::new());
    }
    let directory = context.quipu.with_file_name("bench");
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "--package", "quipu-store", "--example", "recall_rate", "--"])
        .arg(directory)
        .args([nodes.to_string(), (nodes / 100).to_string()])
        .current_dir(&context.root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "the example recall_rate of quipu-store ended with {}", output.status);
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| {
            let mut row = super::search::row(line)?;
            row.what = format!("recall {what}, {}", row.what);
            Ok(row)
        })
        .collect()
}

fn measure(context: &Context, name: &str, corpora: &[Corpus], model: Option<&Path>) -> Result<Vec<Row>> {
    if !context.wants(BENCHMARK.name, name) {
        return Ok(Vec::new());
    }
    let (mut shares, mut times, mut asked) = (Shares::default(), Vec::new(), 0);
    for (n, corpus) in corpora.iter().enumerate() {
        let home = context.scratch.join(format!("recall-{}-{n}", name.replace(' ', "-")));
        let program = Program { quipu: &context.quipu, home: &home };
        program.fill(corpus, model)?;
        for question in &corpus.questions {
            let began = Instant::now();
            let found = program.ask(&question.text)?;
            times.push(began.elapsed().as_secs_f64() * 1_000.0);
            score(&mut shares, corpus, question, &found);
            asked += 1;
        }
    }
    let mut rows: Vec<Row> = shares
        .0
        .into_iter()
        .map(|(what, (sum, count))| Row {
            what: format!("recall, {name}: {what} of {count}"),
            unit: "%",
            samples: vec![100.0 * sum / count.max(1) as f64],
        })
        .collect();
    ensure!(asked > 0, "{name} has no questions");
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    for (what, value) in [("a question, median", at(50)), ("a question, p99", at(99))] {
        rows.push(Row {
            what: format!("recall, {name}: {what}, with the start of the program"),
            unit: "ms",
            samples: vec![value],
        });
    }
    Ok(rows)
}

/// How much of the answer is among the first turns, the first sessions, and within so many tokens.
fn score(shares: &mut Shares, corpus: &Corpus, question: &Question, found: &[String]) {
    let gold = &question.gold;
    let share = |among: &BTreeSet<&str>| {
        gold.iter().filter(|id| among.contains(id.as_str())).count() as f64 / gold.len().max(1) as f64
    };
    let first = |count: usize| found.iter().take(count).map(String::as_str).collect::<BTreeSet<_>>();
    for count in [5, 10, 50] {
        shares.add(format!("turns @{count:02}"), share(&first(count)));
    }
    for count in [5, 10] {
        shares.add(format!("turns @{count:02}, {}", question.kind), share(&first(count)));
    }
    let place = places(corpus);
    let session = |id: &str| place.get(id).map(|(session, _)| *session);
    let wanted: BTreeSet<usize> = gold.iter().filter_map(|id| session(id)).collect();
    let mut order: Vec<usize> = Vec::new();
    for id in found {
        if let Some(session) = session(id)
            && !order.contains(&session)
        {
            order.push(session);
        }
    }
    for count in [5, 10] {
        let hits =
            wanted.iter().filter(|session| order.iter().take(count).any(|found| found == *session)).count();
        shares.add(format!("sessions @{count:02}"), hits as f64 / wanted.len().max(1) as f64);
    }
    for (tokens, name) in BUDGETS {
        let taken = within(corpus, &place, found, tokens).iter().map(|turn| turn.id.as_str()).collect();
        shares.add(format!("evidence in {name} tokens"), share(&taken));
    }
}

/// Where each turn stands: its session, and its place there.
pub(super) fn places(corpus: &Corpus) -> HashMap<&str, (usize, usize)> {
    let sessions = corpus.sessions.iter().enumerate();
    let turns = sessions.flat_map(|(s, session)| {
        session.turns.iter().enumerate().map(move |(t, turn)| (turn.id.as_str(), (s, t)))
    });
    turns.collect()
}

/// The first hits with the turns beside them, as many as have so many tokens.
pub(super) fn within<'a>(
    corpus: &'a Corpus,
    place: &HashMap<&str, (usize, usize)>,
    found: &[String],
    tokens: usize,
) -> Vec<&'a Turn> {
    let (mut taken, mut known, mut left) = (Vec::new(), BTreeSet::new(), (tokens * 4) as i64);
    for id in found {
        let Some((s, t)) = place.get(id.as_str()) else { continue };
        let turns = &corpus.sessions[*s].turns;
        for at in [Some(*t), t.checked_sub(1), Some(t + 1)].into_iter().flatten() {
            let Some(turn) = turns.get(at).filter(|turn| !known.contains(turn.id.as_str())) else {
                continue;
            };
            left -= turn.text.chars().count() as i64;
            if left < 0 {
                return taken;
            }
            known.insert(turn.id.as_str());
            taken.push(turn);
        }
    }
    taken
}

/// The released program with files of its own.
pub(super) struct Program<'a> {
    pub(super) quipu: &'a Path,
    pub(super) home: &'a Path,
}

impl Program<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.quipu);
        command.env_clear().env("HOME", self.home).env("PATH", "/usr/bin:/bin").current_dir(self.home);
        command
    }

    /// Imports the sessions and indexes them.
    pub(super) fn fill(&self, corpus: &Corpus, model: Option<&Path>) -> Result<()> {
        let files = self.home.join("sessions");
        std::fs::create_dir_all(&files)?;
        std::fs::create_dir_all(self.home.join(".quipu"))?;
        if let Some(model) = model {
            let model = std::path::absolute(model)?;
            let settings = json!({ "search": { "semantic": { "path": model } } });
            std::fs::write(self.home.join(".quipu/settings.json"), settings.to_string())?;
        }
        for (n, session) in corpus.sessions.iter().enumerate() {
            std::fs::write(files.join(format!("{n:04}.jsonl")), file_of(n, session, self.home))?;
        }
        self.run(&["import", "pi", "sessions", "--yes"])?;
        // The first search makes the index.
        self.ask("anything")?;
        Ok(())
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command().args(arguments).output().context("cannot run quipu")?;
        if !output.status.success() {
            bail!("quipu {arguments:?} failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The ids of the hits, the best first.
    pub(super) fn ask(&self, question: &str) -> Result<Vec<String>> {
        let printed =
            self.run(&["memory", "search", "--json", "--limit", &LIMIT.to_string(), "--", question])?;
        printed
            .lines()
            .map(|line| {
                let hit: Value = serde_json::from_str(line).with_context(|| format!("not a hit: {line}"))?;
                Ok(hit["externalId"].as_str().unwrap_or_default().to_owned())
            })
            .collect()
    }
}

/// A session file of Pi.
fn file_of(n: usize, session: &Session, cwd: &Path) -> String {
    let time = |at: i64| rfc3339(at);
    let id = format!("01a1f82f-0000-7000-8000-{n:012x}");
    let head =
        json!({ "type": "session", "version": 3, "id": id, "timestamp": time(session.at), "cwd": cwd });
    let mut file = format!("{head}\n");
    let mut before = Value::Null;
    for (turn, at) in session.turns.iter().zip((session.at..).step_by(1_000)) {
        let content = json!([{ "type": "text", "text": turn.text }]);
        let message = if turn.is_user {
            json!({ "role": "user", "content": content, "timestamp": at })
        } else {
            let cost = json!({ "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0 });
            let usage = json!({ "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0, "cost": cost });
            json!({ "role": "assistant", "content": content, "api": "openai-completions", "provider": "fake",
                    "model": "m1", "usage": usage, "stopReason": "stop", "timestamp": at })
        };
        let entry = json!({ "type": "message", "id": turn.id, "parentId": before, "timestamp": time(at), "message": message });
        file.push_str(&format!("{entry}\n"));
        before = turn.id.as_str().into();
    }
    file
}

/// Days since 1970 of a day (the proleptic Gregorian calendar).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn rfc3339(at: i64) -> String {
    let (day, time) = (at.div_euclid(86_400_000), at.rem_euclid(86_400_000));
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (hours, minutes) = (time / 3_600_000, time / 60_000 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{:02}.{:03}Z",
        time / 1_000 % 60,
        time % 1_000
    )
}

/// Conversations of the published form, a corpus each.
pub(super) fn locomo(text: &str) -> Result<Vec<Corpus>> {
    let read: Value = serde_json::from_str(text).context("LoCoMo is no JSON")?;
    let mut corpora = Vec::new();
    for sample in read.as_array().context("LoCoMo is no list of conversations")? {
        let conversation = &sample["conversation"];
        let mut sessions = Vec::new();
        for n in 1.. {
            let Some(turns) = conversation[format!("session_{n}")].as_array() else { break };
            let date = conversation[format!("session_{n}_date_time")].as_str().unwrap_or_default();
            let first = conversation["speaker_a"].as_str();
            let turns = turns.iter().map(|turn| {
                let said = |name: &str| turn[name].as_str().unwrap_or_default();
                let mut text = format!("{}: {}", said("speaker"), said("text"));
                if turn["blip_caption"].is_string() {
                    text.push_str(&format!(" [{}]", said("blip_caption")));
                }
                Turn { id: said("dia_id").to_owned(), is_user: turn["speaker"].as_str() == first, text }
            });
            let at = spoken_date(date).with_context(|| format!("not a date: {date}"))?;
            sessions.push(Session { at, turns: turns.collect() });
        }
        let strings = |value: &Value| -> BTreeSet<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let questions = sample["qa"].as_array().into_iter().flatten().filter_map(|asked| {
            let gold = strings(&asked["evidence"]);
            let kind = usize::try_from(asked["category"].as_u64()?).ok()?.checked_sub(1)?;
            let kind = KINDS.get(kind)?.to_string();
            let answer = match &asked["answer"] {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => String::new(),
            };
            Some(Question { text: asked["question"].as_str()?.to_owned(), kind, answer, gold })
        });
        let questions = questions.filter(|question| !question.gold.is_empty()).collect();
        corpora.push(Corpus { sessions, questions });
    }
    Ok(corpora)
}

/// A time such as "1:56 pm on 8 May, 2023".
fn spoken_date(text: &str) -> Option<i64> {
    let (time, date) = text.split_once(" on ")?;
    let (clock, half) = time.trim().split_once(' ')?;
    let (hour, minute) = clock.split_once(':')?;
    let (hour, minute): (i64, i64) = (hour.parse().ok()?, minute.parse().ok()?);
    let hour = hour % 12 + if half == "pm" { 12 } else { 0 };
    let mut parts = date.split([' ', ',']).filter(|part| !part.is_empty());
    let day = parts.next()?.parse().ok()?;
    let month = parts.next()?;
    let month = MONTHS.iter().position(|name| *name == month)?;
    let year = parts.next()?.parse().ok()?;
    Some(days(year, i64::try_from(month).ok()? + 1, day) * 86_400_000 + (hour * 60 + minute) * 60_000)
}

/// Our own set: a line for each session, with its turns and the questions about them.
fn own() -> Result<Corpus> {
    let mut corpus = Corpus { sessions: Vec::new(), questions: Vec::new() };
    for (n, line) in OWN.lines().enumerate() {
        let read: Value =
            serde_json::from_str(line).with_context(|| format!("session {} is no JSON", n + 1))?;
        let name = read["name"].as_str().context("a session has no name")?.to_owned();
        let mut date = read["date"].as_str().unwrap_or_default().split('-').map(str::parse::<i64>);
        let (Some(Ok(year)), Some(Ok(month)), Some(Ok(day))) = (date.next(), date.next(), date.next()) else {
            bail!("session {name} has no date");
        };
        let turns = read["turns"].as_array().into_iter().flatten().zip(1..).map(|(turn, n)| Turn {
            id: format!("{name}:{n}"),
            is_user: n % 2 == 1,
            text: turn.as_str().unwrap_or_default().to_owned(),
        });
        let session = Session { at: days(year, month, day) * 86_400_000, turns: turns.collect() };
        for asked in read["questions"].as_array().into_iter().flatten() {
            let text = asked["q"].as_str().context("a question has no text")?.to_owned();
            let gold: BTreeSet<String> = asked["turns"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_u64)
                .map(|turn| format!("{name}:{turn}"))
                .collect();
            ensure!(
                !gold.is_empty() && gold.iter().all(|id| session.turns.iter().any(|turn| turn.id == *id)),
                "{name}: {text}: its turns do not exist"
            );
            let kind = asked["kind"].as_str().unwrap_or("paraphrase").to_owned();
            corpus.questions.push(Question { text, kind, answer: String::new(), gold });
        }
        corpus.sessions.push(session);
    }
    Ok(corpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_set_has_200_questions_about_turns_that_exist() {
        let own = own().unwrap_or_else(|error| panic!("{error:#}"));
        assert!(own.questions.len() >= 200, "{}", own.questions.len());
        let turns = || own.sessions.iter().flat_map(|session| &session.turns);
        assert_eq!(turns().map(|turn| turn.id.as_str()).collect::<BTreeSet<_>>().len(), turns().count());
        let texts: BTreeSet<&str> = own.questions.iter().map(|question| question.text.as_str()).collect();
        assert_eq!(texts.len(), own.questions.len());
    }

    #[test]
    fn dates_are_read_and_written() {
        let at = spoken_date("1:56 pm on 8 May, 2023").unwrap_or_default();
        assert_eq!(rfc3339(at), "2023-05-08T13:56:00.000Z");
        assert_eq!(
            rfc3339(spoken_date("12:05 am on 29 February, 2024").unwrap_or_default()),
            "2024-02-29T00:05:00.000Z"
        );
        assert_eq!(spoken_date("8 May"), None);
    }
}
