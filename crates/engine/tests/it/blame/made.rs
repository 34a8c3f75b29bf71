//! Generated histories: every way in which lines come, go and move, by agents and by a person.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{CWD, Disk, Replay, Score, score};

/// Numbers that are the same each time.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit.max(1)
    }
}

#[derive(Clone)]
struct Line {
    text: String,
    of: Option<usize>,
}

type Files = BTreeMap<String, Vec<Line>>;

fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| format!("{}\n", line.text)).collect()
}

fn disk(files: &Files) -> Disk {
    files.iter().map(|(name, lines)| (name.clone(), text(lines))).collect()
}

const COMMON: [&str; 6] = ["", "}", "    }", "    return Ok(());", "    else {", "end"];
const WORDS: [&str; 8] = ["size", "count", "name", "path", "total", "index", "state", "value"];

struct History {
    dice: Dice,
    files: Files,
    /// Files as they were once.
    kept: Vec<(String, Vec<Line>)>,
    made: usize,
}

impl History {
    fn line(&mut self, of: Option<usize>) -> Line {
        let text = if self.dice.below(10) < 3 {
            COMMON[self.dice.below(COMMON.len())].to_owned()
        } else {
            self.made += 1;
            let (word, other) = (WORDS[self.dice.below(8)], WORDS[self.dice.below(8)]);
            let indent = "  ".repeat(self.dice.below(4));
            format!("{indent}let {word}_{} = {other}({});", self.made, self.dice.below(100))
        };
        Line { text, of }
    }

    fn lines(&mut self, count: usize, of: Option<usize>) -> Vec<Line> {
        (0..count).map(|_| self.line(of)).collect()
    }

    fn pick(&mut self) -> Option<String> {
        let at = self.dice.below(self.files.len());
        self.files.keys().nth(at).cloned()
    }

    fn fresh(&mut self) -> String {
        self.made += 1;
        format!("dir/f{}.rs", self.made)
    }

    /// Changes some lines, takes some out, and puts some in.
    fn change(&mut self, lines: &[Line], of: Option<usize>) -> Vec<Line> {
        let mut changed = Vec::new();
        for line in lines {
            match self.dice.below(4) {
                0 => {}
                1 => {
                    self.made += 1;
                    changed.push(Line { text: format!("{} // {}", line.text, self.made), of });
                }
                2 => {
                    changed.push(line.clone());
                    changed.push(self.line(of));
                }
                _ => changed.push(line.clone()),
            }
        }
        changed
    }

    /// What somebody does to a file; the command that does the same.
    fn step(&mut self, of: Option<usize>) -> Option<(&'static str, Value)> {
        let name = self.pick()?;
        let lines = self.files.get(&name)?.clone();
        let bash = |command: String| Some(("bash", json!({ "command": command })));
        let at = self.dice.below(lines.len());
        match self.dice.below(13) {
            0 => {
                let name = self.fresh();
                let count = 4 + self.dice.below(20);
                let lines = self.lines(count, of);
                let call = ("write", json!({ "path": name, "content": text(&lines) }));
                self.files.insert(name, lines);
                Some(call)
            }
            1 | 2 => {
                // An edit, with as many lines around it as make it occur once.
                let all = text(&lines);
                let (mut from, mut to) = (at, (at + 1 + self.dice.below(4)).min(lines.len()));
                while all.matches(&text(&lines[from..to])).count() != 1 {
                    from = from.checked_sub(1)?;
                    to = (to + 1).min(lines.len());
                }
                let changed = self.change(&lines[from..to], of);
                let call = json!({ "path": name, "edits": [
                    { "oldText": text(&lines[from..to]), "newText": text(&changed) }] });
                self.files.insert(name, [&lines[..from], &changed, &lines[to..]].concat());
                Some(("edit", call))
            }
            3 => {
                let (from, to) = (at, (at + 10).min(lines.len()));
                let changed = self.change(&lines[from..to], of);
                let lines = [&lines[..from], &changed, &lines[to..]].concat();
                let call = ("write", json!({ "path": name, "content": text(&lines) }));
                self.files.insert(name, lines);
                Some(call)
            }
            4 => {
                let (from, to) = (WORDS[self.dice.below(8)], WORDS[self.dice.below(8)]);
                if from == to {
                    return None;
                }
                for line in self.files.get_mut(&name)? {
                    if line.text.contains(from) {
                        *line = Line { text: line.text.replace(from, to), of };
                    }
                }
                bash(format!("sed -i 's/{from}/{to}/g' {name}"))
            }
            5 => {
                let count = 1 + self.dice.below(8);
                let more = self.lines(count, of);
                let command = format!("cat >> {name} <<'EOF'\n{}EOF", text(&more));
                self.files.get_mut(&name)?.extend(more);
                bash(command)
            }
            6 => {
                for line in self.files.get_mut(&name)? {
                    let bare = line.text.trim_start();
                    let indented = format!("{}{bare}", " ".repeat(2 * (line.text.len() - bare.len())));
                    if indented != line.text {
                        *line = Line { text: indented, of };
                    }
                }
                bash(format!("fmt-it {name}"))
            }
            7 => {
                let to = self.fresh();
                self.files.remove(&name);
                self.files.insert(to.clone(), lines);
                bash(format!("git mv {name} {to}"))
            }
            8 => {
                let to = self.fresh();
                self.files.insert(to.clone(), lines);
                bash(format!("cp {name} {to}"))
            }
            9 => {
                // A part of a file at the end of another.
                let to = self.pick()?;
                let end = (at + 3 + self.dice.below(6)).min(lines.len());
                if to == name || of.is_none() {
                    return None;
                }
                self.files.get_mut(&to)?.extend_from_slice(&lines[at..end]);
                bash(format!("sed -n '{},{end}p' {name} >> {to}", at + 1))
            }
            10 => {
                // A block goes elsewhere in the same file, or to another one.
                let end = (at + 3 + self.dice.below(5)).min(lines.len());
                let to = if of.is_some() { self.pick()? } else { name.clone() };
                let block: Vec<Line> = self.files.get_mut(&name)?.drain(at..end).collect();
                let there = self.files.get_mut(&to)?;
                let place = self.dice.below(there.len() + 1);
                there.splice(place..place, block);
                bash(format!("./move-block {name} {at} {end} {to} {place}"))
            }
            11 => {
                let end = (at + 1 + self.dice.below(3)).min(lines.len());
                self.files.get_mut(&name)?.drain(at..end);
                bash(format!("sed -i '{},{end}d' {name}", at + 1))
            }
            _ => {
                // Back to what it was.
                let at = self.dice.below(self.kept.len());
                let (name, lines) = self.kept.get(at)?.clone();
                self.files.insert(name.clone(), lines);
                bash(format!("git checkout HEAD~3 -- {name}"))
            }
        }
    }
}

async fn history(seed: u64) -> Score {
    let mut history = History { dice: Dice::new(seed), files: Files::new(), kept: Vec::new(), made: 0 };
    for _ in 0..3 {
        let name = history.fresh();
        let count = 10 + history.dice.below(30);
        let lines = history.lines(count, None);
        history.files.insert(name, lines);
    }
    let mut replay = Replay::new();
    let turns = 10 + history.dice.below(25);
    for _ in 0..turns {
        if history.dice.below(4) == 0 {
            history.step(None);
        }
        history.files.retain(|_, lines| !lines.is_empty());
        replay.found(&disk(&history.files));
        let before = history.files.clone();
        let of = replay.turns.len();
        let Some((tool, call)) = history.step(Some(of)) else {
            history.files = before;
            continue;
        };
        history.files.retain(|_, lines| !lines.is_empty());
        replay.turn(tool, &call, &disk(&history.files));
        if let Some(name) = history.pick() {
            let lines = history.files[&name].clone();
            history.kept.push((name, lines));
        }
    }
    if history.dice.below(2) == 0 {
        history.step(None);
    }
    replay.write().await;
    let mut sum = Score::default();
    for (name, lines) in &history.files {
        let truth: Vec<Option<usize>> = lines.iter().map(|line| line.of).collect();
        let path = format!("{CWD}/{name}");
        let now = disk(&history.files);
        sum.add(score(&*replay.store, &replay.turns, &path, &now, &truth).await);
    }
    sum
}

#[tokio::test]
async fn generated_histories_are_told_rightly() {
    let mut sum = Score::default();
    for seed in 1..=150 {
        sum.add(history(seed).await);
    }
    eprintln!("generated histories: {sum}");
    sum.check("generated histories");
}
