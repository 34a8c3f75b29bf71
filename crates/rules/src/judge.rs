//! What rules say of a call. The most careful part of it decides.

use std::path::{Component, Path, PathBuf};

use crate::host::Host;
use crate::pattern::{joined, units};
use crate::programs::{Nature, is_harmless_alone, is_harmless_for_programs, nature, without_options};
use crate::propose::proposal;
use crate::rule::{BASH, NETWORK, Subject};
use crate::shell::{DEPTH_LIMIT, FileUse, PARTS_LIMIT, Part, SimpleCommand, Unit, Word, parse};
use crate::{Effect, Rule};

/// What rules say of a call, or of a part of it; what comes later is more careful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A rule allows it, or it needs none.
    Allow,
    /// No rule is about it.
    NoRule,
    /// What it does cannot be known from its text, so no rule can be about it.
    Unclear,
    /// A rule wants a person to be asked.
    Ask,
    /// A rule denies it.
    Deny,
}

/// What is done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// It is read.
    Read,
    /// It is made, changed or removed.
    Write,
}

/// One part of a call and what is said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartJudgement {
    /// The part as it was written, or the path.
    pub part: String,
    /// What is said of it.
    pub verdict: Verdict,
    /// The number of the rule that says so.
    pub rule: Option<usize>,
    /// Why no rule with `*` allows it, or why it needs none.
    pub why: Option<&'static str>,
    /// A rule that would allow it and its like, where one can be offered.
    pub proposal: Option<String>,
}

/// What rules say of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What the most careful part says.
    pub verdict: Verdict,
    /// All parts, in the order in which they are written.
    pub parts: Vec<PartJudgement>,
}

impl Judgement {
    fn of(parts: Vec<PartJudgement>) -> Self {
        let verdict = parts.iter().map(|part| part.verdict).max().unwrap_or(Verdict::NoRule);
        Self { verdict, parts }
    }

    /// The part that decides: the first of those that are most careful.
    pub fn decisive(&self) -> Option<&PartJudgement> {
        self.parts.iter().find(|part| part.verdict == self.verdict)
    }

    /// The rules that would allow all of it; none where a part cannot be offered one, or they would be more than three.
    pub fn proposals(&self) -> Vec<String> {
        let mut rules: Vec<String> = Vec::new();
        for part in self.parts.iter().filter(|part| part.verdict != Verdict::Allow) {
            match &part.proposal {
                Some(rule) if part.verdict == Verdict::NoRule => {
                    if !rules.contains(rule) {
                        rules.push(rule.clone());
                    }
                }
                // What needs no rule once there is one.
                None if part.why == Some(NOTHING) && part.verdict == Verdict::NoRule => {}
                _ => return Vec::new(),
            }
        }
        if rules.len() > PROPOSALS { Vec::new() } else { rules }
    }
}

/// Where a call would be made. Paths are absolute.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The directory of the session.
    pub cwd: &'a Path,
    /// The user's home.
    pub home: Option<&'a Path>,
    /// Where a path leads once links are followed.
    pub true_path: &'a dyn Fn(&Path) -> PathBuf,
}

impl std::fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("cwd", &self.cwd).field("home", &self.home).finish_non_exhaustive()
    }
}

/// Rules, whoever made them. A denial counts before a question, and that before a permission; their order counts nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleSet {
    entries: Vec<(Effect, Rule)>,
}

/// The names that stand for each tool that changes, and each that reads files.
const WRITE: &str = "write";
const READ: &str = "read";

/// Redirections to these change nothing.
const DEVICES: &[&str] = &["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero", "/dev/full"];

/// Rules that are offered for one command.
const PROPOSALS: usize = 3;
/// Words of a wrapper behind which a command may begin.
const STARTS: usize = 64;

const NOTHING: &str = "it needs no rule";
const FILE: &str = "the file is not known before it runs";

impl RuleSet {
    /// These rules.
    pub fn new(entries: Vec<(Effect, Rule)>) -> Self {
        Self { entries }
    }

    /// These rules and more of them, which are numbered behind.
    #[must_use]
    pub fn with(&self, more: impl IntoIterator<Item = (Effect, Rule)>) -> Self {
        Self { entries: self.entries.iter().cloned().chain(more).collect() }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The rule of a number, and what it says.
    pub fn get(&self, number: usize) -> Option<(Effect, &Rule)> {
        self.entries.get(number).map(|(effect, rule)| (*effect, rule))
    }

    /// Whether the rule of a number is about one command, path or host alone, without `*`.
    pub fn is_exact(&self, number: usize) -> bool {
        self.entries.get(number).is_some_and(|(_, rule)| match &rule.subject {
            Subject::Everything => false,
            Subject::Command(pattern) => pattern.is_exact(),
            Subject::Path(pattern) => pattern.is_exact(),
            Subject::Host(pattern) => pattern.is_exact(),
        })
    }

    /// Whether a rule denies commands, or files that they could write, or wants to be asked about them. Then what cannot be
    /// known from its text is asked as well.
    pub fn restricts_commands(&self) -> bool {
        let restricts = |rule: &Rule| rule.is_about(BASH, &[]) || rule.is_about(WRITE, &[]);
        self.entries.iter().any(|(effect, rule)| *effect != Effect::Allow && restricts(rule))
    }

    /// Whether commands reach any host through the proxy.
    pub fn opens_hosts(&self) -> bool {
        self.entries.iter().any(|(effect, rule)| *effect == Effect::Allow && rule.is_about(NETWORK, &[]))
    }

    /// The most careful rule for which this holds.
    fn find(&self, fits: impl Fn(Effect, &Rule) -> bool) -> Option<(usize, Effect)> {
        let fitting = self.entries.iter().enumerate().filter(|(_, (effect, rule))| fits(*effect, rule));
        let fitting = fitting.map(|(number, (effect, _))| (number, *effect));
        // Of those that say the same, one without `*` before others, and the first.
        let rank = |(number, effect): &(usize, Effect)| (*effect, self.is_exact(*number));
        fitting.reduce(|one, other| if rank(&other) > rank(&one) { other } else { one })
    }

    /// What is said of a call of a tool that has no command and no path.
    pub fn tool(&self, name: &str) -> Judgement {
        let found = self.find(|_, rule| rule.is_about(name, &[]) && rule.subject == Subject::Everything);
        Judgement::of(vec![said(name.to_owned(), found, None)])
    }

    /// What is said of a call that opens files. Their paths are true ones.
    pub fn files(&self, tool: &str, paths: &[PathBuf], access: FileAccess, place: &Place<'_>) -> Judgement {
        let judged = paths
            .iter()
            .map(|path| said(path.display().to_string(), self.file(tool, path, access, place), None));
        Judgement::of(judged.collect())
    }

    fn file(
        &self,
        tool: &str,
        path: &Path,
        access: FileAccess,
        place: &Place<'_>,
    ) -> Option<(usize, Effect)> {
        let class = match access {
            FileAccess::Read => READ,
            FileAccess::Write => WRITE,
        };
        // Where a path leads upwards from what is not there, nobody knows yet where that will be.
        let leads_upwards = path.components().any(|part| part == Component::ParentDir);
        let plain = joined(Path::new("/"), path);
        self.find(|effect, rule| {
            rule.is_about(tool, &[class])
                && !(leads_upwards && effect == Effect::Allow)
                && match &rule.subject {
                    Subject::Everything => true,
                    Subject::Path(pattern) => pattern.matches(&plain, place.cwd, place.home),
                    Subject::Command(_) | Subject::Host(_) => false,
                }
        })
    }

    /// What is said of a host that a command wants to reach through the proxy.
    pub fn host(&self, host: &Host) -> Judgement {
        let found = self.find(|effect, rule| {
            rule.is_about(NETWORK, &[])
                && match &rule.subject {
                    // An address is allowed by its own rule alone.
                    Subject::Everything => effect != Effect::Allow || host.address().is_none(),
                    Subject::Host(pattern) => pattern.matches(host),
                    Subject::Command(_) | Subject::Path(_) => false,
                }
        });
        Judgement::of(vec![said(format!("{}:{}", host.name(), host.port()), found, None)])
    }

    /// What is said of a command line of `bash`.
    pub fn command(&self, text: &str, place: &Place<'_>) -> Judgement {
        let mut judge =
            Judge { rules: self, place, parts: Vec::new(), bases: Some(vec![place.cwd.to_path_buf()]) };
        judge.code(text, 0);
        if judge.parts.is_empty() {
            judge.free(text.to_owned());
        }
        Judgement::of(judge.parts)
    }
}

fn said(part: String, found: Option<(usize, Effect)>, why: Option<&'static str>) -> PartJudgement {
    let verdict = match found {
        None => Verdict::NoRule,
        Some((_, Effect::Allow)) => Verdict::Allow,
        Some((_, Effect::Ask)) => Verdict::Ask,
        Some((_, Effect::Deny)) => Verdict::Deny,
    };
    PartJudgement { part, verdict, rule: found.map(|(number, _)| number), why, proposal: None }
}

struct Judge<'a> {
    rules: &'a RuleSet,
    place: &'a Place<'a>,
    parts: Vec<PartJudgement>,
    /// The directories in which a part may run; `None` where they are not known.
    bases: Option<Vec<PathBuf>>,
}

impl Judge<'_> {
    /// The rule about commands for which this holds; those about all commands fit.
    fn find(
        &self,
        fits: impl Fn(Effect, &crate::pattern::CommandPattern) -> bool,
    ) -> Option<(usize, Effect)> {
        self.rules.find(|effect, rule| {
            rule.is_about(BASH, &[])
                && match &rule.subject {
                    Subject::Everything => true,
                    Subject::Command(pattern) => fits(effect, pattern),
                    Subject::Path(_) | Subject::Host(_) => false,
                }
        })
    }

    /// A part of which nothing is known: only rules about all commands are about it.
    fn unclear(&mut self, part: String, why: &'static str) {
        let mut judged = said(part, self.find(|_, _| false), Some(why));
        if judged.verdict == Verdict::NoRule {
            judged.verdict = Verdict::Unclear;
        }
        self.parts.push(judged);
    }

    /// A part that needs no rule, where there are any.
    fn free(&mut self, part: String) {
        let mut judged = said(part, self.find(|_, _| false), Some(NOTHING));
        let allows = |(effect, rule): &(Effect, Rule)| *effect == Effect::Allow && rule.is_about(BASH, &[]);
        if judged.verdict == Verdict::NoRule && self.rules.entries.iter().any(allows) {
            judged.verdict = Verdict::Allow;
        }
        self.parts.push(judged);
    }

    fn code(&mut self, code: &str, depth: usize) {
        let (parts, unreadable) = parse(code, depth);
        self.all(parts, depth);
        if let Some(unreadable) = unreadable {
            self.unclear(code.to_owned(), unreadable.0);
        }
    }

    fn all(&mut self, parts: Vec<Part>, depth: usize) {
        for part in parts {
            if self.parts.len() > PARTS_LIMIT {
                return self.unclear("…".to_owned(), "it has more than 256 parts");
            }
            match part {
                Part::Command(command) => self.command(command, depth),
                Part::Redirection { usage, path, source } => self.redirection(usage, &path, source),
                Part::Variable(name) if is_harmless_alone(&name) => {}
                Part::Variable(name) => self.unclear(name, "it sets a variable that programs may use"),
            }
        }
    }

    fn command(&mut self, command: SimpleCommand, depth: usize) {
        let SimpleCommand { variables, words, source } = command;
        if depth > DEPTH_LIMIT {
            return self.unclear(source, "it is nested too deeply");
        }
        if words.is_empty() {
            if variables.iter().all(|(name, _)| is_harmless_alone(name)) {
                self.free(source);
            } else {
                self.unclear(source, "it sets a variable that programs may use");
            }
            return;
        }
        let mut found = nature(&words);
        let program = words.first().and_then(Word::text).unwrap_or_default();
        if ["cd", "pushd", "popd"].contains(&program.as_str()) && !matches!(found, Nature::Enters(_)) {
            self.bases = None;
        }
        let changes = variables.iter().any(|(name, _)| !is_harmless_for_programs(name));
        let is_relative = program.contains('/') && !program.starts_with('/');
        let moved = self.bases.as_ref().is_none_or(|bases| bases.iter().any(|base| base != self.place.cwd));
        if is_relative && moved && found == Nature::Plain {
            found = Nature::Wide("it is another program in another directory");
        }
        if changes && matches!(found, Nature::Plain | Nature::Free | Nature::Enters(_)) {
            found = Nature::Wide("a variable before it can change what it does");
        }
        let whole: Vec<Word> = variables
            .iter()
            .map(|(name, value)| {
                let mut word = Word::of(name);
                word.units.push(Unit::Char('='));
                word.units.extend_from_slice(&value.units);
                word
            })
            .chain(words.iter().cloned())
            .collect();
        let forms = forms(&words, matches!(found, Nature::Wrapper(_)));
        let careful = self.find(|effect, pattern| {
            effect != Effect::Allow && forms.iter().any(|form| pattern.matches(form))
        });
        if let Some(careful) = careful.filter(|(_, effect)| *effect != Effect::Allow) {
            return self.parts.push(said(source, Some(careful), None));
        }
        let (whole, plain) = (units(&whole), units(&words));
        let is_known = !whole.contains(&Unit::Unknown);
        let exact = |this: &Self| {
            this.find(|effect, pattern| {
                effect == Effect::Allow && is_known && pattern.is_exact() && pattern.matches(&whole)
            })
        };
        match found {
            Nature::Plain => {
                let bare = without_options(&words).map(|words| units(&words));
                let matched = self.find(|effect, pattern| {
                    effect == Effect::Allow
                        && (pattern.matches(&plain)
                            || bare.as_ref().is_some_and(|bare| pattern.matches(bare)))
                });
                let proposal = proposal(&words);
                self.parts.push(PartJudgement { proposal, ..said(source, matched, None) });
            }
            Nature::Wide(why) | Nature::Wrapper(why) => {
                let matched = exact(self);
                self.parts.push(said(source, matched, Some(why)));
            }
            Nature::Free => self.free(source),
            Nature::Enters(directory) => self.enter(&directory, source, &plain),
            Nature::Unclear(why) => self.unclear(source, why),
            Nature::Runs(more, inner) => {
                let (matched, from) = (exact(self), self.parts.len());
                let variables = variables.into_iter().chain(more).collect();
                self.command(SimpleCommand { variables, source: shown(&inner), words: inner }, depth + 1);
                self.settle(from, matched);
            }
            Nature::Code(code) => {
                let (matched, from) = (exact(self), self.parts.len());
                if changes {
                    self.parts.push(said(source, None, Some("a variable before it can change what it does")));
                }
                self.code(&code, depth + 1);
                self.settle(from, matched);
            }
        }
    }

    /// A rule about exactly what runs these parts allows them.
    fn settle(&mut self, from: usize, matched: Option<(usize, Effect)>) {
        let Some((number, _)) = matched else { return };
        for part in self.parts.iter_mut().skip(from).filter(|part| part.verdict == Verdict::NoRule) {
            part.verdict = Verdict::Allow;
            part.rule = Some(number);
        }
    }

    fn enter(&mut self, directory: &str, source: String, plain: &[Unit]) {
        let bases = self.bases.take().map(|mut bases| {
            let more: Vec<PathBuf> = bases
                .iter()
                .map(|base| (self.place.true_path)(&joined(base, Path::new(directory))))
                .collect();
            bases.extend(more);
            bases.sort();
            bases.dedup();
            bases
        });
        self.bases = bases.filter(|bases| bases.len() <= 16);
        let inside = |bases: &Vec<PathBuf>| bases.iter().all(|base| base.starts_with(self.place.cwd));
        if self.bases.as_ref().is_some_and(inside) && !directory.split('/').any(|name| name == "..") {
            self.free(source);
        } else {
            let matched = self.find(|effect, pattern| effect == Effect::Allow && pattern.matches(plain));
            self.parts.push(said(source, matched, None));
        }
    }

    fn redirection(&mut self, usage: FileUse, path: &Word, source: String) {
        let home = self.place.home.and_then(Path::to_str);
        let text = match (path.units.split_first(), home) {
            _ if path.splits => None,
            (Some((Unit::Home, rest)), Some(home))
                if matches!(rest.first(), None | Some(Unit::Char('/'))) =>
            {
                Word { units: rest.to_vec(), ..Word::default() }.text().map(|rest| format!("{home}{rest}"))
            }
            _ => path.text(),
        };
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return match usage {
                FileUse::Read => self.free(source),
                FileUse::Write => self.unclear(source, FILE),
            };
        };
        if DEVICES.contains(&text.as_str()) {
            return self.free(source);
        }
        let is_connection = |path: &Path| ["/dev/tcp", "/dev/udp"].iter().any(|dir| path.starts_with(dir));
        let bases = match &self.bases {
            _ if text.starts_with('/') => vec![PathBuf::from("/")],
            Some(bases) => bases.clone(),
            None => Vec::new(),
        };
        let paths: Vec<PathBuf> = bases.iter().map(|base| joined(base, Path::new(&text))).collect();
        if paths.iter().any(|path| is_connection(path)) {
            return self.unclear(source, "it opens a connection");
        }
        let (tool, access) = match usage {
            FileUse::Read => (READ, FileAccess::Read),
            FileUse::Write => (WRITE, FileAccess::Write),
        };
        let mut worst: Option<PartJudgement> = None;
        for path in paths {
            let path = (self.place.true_path)(&path);
            let mut judged = said(source.clone(), self.rules.file(tool, &path, access, self.place), None);
            // Where links lead upwards is known only when it runs.
            if judged.verdict == Verdict::Allow && text.split('/').any(|name| name == "..") {
                judged = said(source.clone(), None, Some("its path has `..`"));
            }
            if worst.as_ref().is_none_or(|worst| worst.verdict < judged.verdict) {
                worst = Some(judged);
            }
        }
        match worst {
            Some(judged) if usage == FileUse::Read && judged.verdict == Verdict::NoRule => self.free(source),
            Some(judged) => self.parts.push(judged),
            None if usage == FileUse::Read => self.free(source),
            None => self.unclear(source, FILE),
        }
    }
}

/// The forms in which a rule that is careful meets a command: as it is written, with the bare name of its program, and what
/// a wrapper may run.
fn forms(words: &[Word], wraps: bool) -> Vec<Vec<Unit>> {
    let mut forms = Vec::new();
    forms.extend(without_options(words).map(|words| units(&words)));
    let starts = if wraps { words.len().min(STARTS) } else { 1 };
    for rest in (0..starts).filter_map(|start| words.get(start..)) {
        forms.push(units(rest));
        let slash =
            rest.first().and_then(|program| program.units.iter().rposition(|unit| *unit == Unit::Char('/')));
        if let (Some(slash), Some((program, arguments))) = (slash, rest.split_first()) {
            let name = Word {
                units: program.units.get(slash + 1..).unwrap_or_default().to_vec(),
                ..Word::default()
            };
            let named: Vec<Word> = std::iter::once(name).chain(arguments.iter().cloned()).collect();
            forms.push(units(&named));
        }
    }
    forms
}

/// Words as a person reads them.
fn shown(words: &[Word]) -> String {
    let char = |unit: &Unit| match unit {
        Unit::Char(char) => *char,
        Unit::Space => ' ',
        Unit::Home => '~',
        Unit::Unknown => '…',
    };
    let word = |word: &Word| word.units.iter().map(char).collect::<String>();
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}
