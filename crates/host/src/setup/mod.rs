//! Takes over the settings of other agents: a table says what of them is ours. What has no counterpart is reported with its file and line;
//! nothing secret is copied, and what the user set already stays.

mod agents;
mod closing;
mod entries;
mod includes;
mod json5;
mod limits;
mod policies;
mod rules;
mod servers;
mod table;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use quipu::Sealer;
use serde_json::{Map, Value, json};

pub(crate) use agents::{AGENTS, AgentMerge, UNCHANGEABLE, agents_of, entry_with_id, tools_of};
use closing::missing_in;
use entries::Entry;
pub(crate) use includes::{INCLUDE, IncludeProblem, whole_config};
use table::{FileForm, SetupAgent, SetupRow, agent_named, agents};
pub(crate) use values::put_in_variables;

use crate::settings::{Key, Kind, SettingRow, SettingsFile, check_setting, set_setting};
use crate::{Failure, Home, Source};

/// Bytes of a file at most. One of them keeps much else.
const MOST_BYTES: u64 = 16 << 20;
/// Reports of one file at most.
const MOST_REPORTS: usize = 1_000;

/// What became of a member of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct SetupReport {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The names of the member, with dots between them.
    pub key: String,
    /// The outcome.
    pub outcome: SetupOutcome,
}

/// The outcome for a member.
#[derive(Debug, Clone, PartialEq)]
pub enum SetupOutcome {
    /// It is taken over: what it is called here, and what it says.
    Set {
        /// The setting, or the file.
        ours: String,
        /// The value.
        value: Value,
    },
    /// It is so already.
    Same {
        /// The setting, or the file.
        ours: String,
    },
    /// The user has set something else, which stays.
    Kept {
        /// The setting, or the file.
        ours: String,
    },
    /// It has no counterpart, or cannot be taken: why.
    Left(String),
    /// It is taken over without a part: which.
    Note(String),
}

impl SetupOutcome {
    /// Its word: `set`, `same`, `kept`, `left`, `note`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Set { .. } => "set",
            Self::Same { .. } => "same",
            Self::Kept { .. } => "kept",
            Self::Left(_) => "left",
            Self::Note(_) => "note",
        }
    }
}

/// What is to be taken over.
#[derive(Debug, Clone, Default)]
pub struct SetupRequest {
    /// The agent; `None` for all.
    pub agent: Option<String>,
    /// Nothing is written.
    pub dry_run: bool,
}

/// The names of the agents whose settings can be taken over.
pub fn setup_agents() -> Vec<&'static str> {
    agents().iter().map(|agent| agent.name).collect()
}

/// Takes over the settings of an agent, or of all. `env` gives paths of the environment, `user_home` is where files lie without them.
///
/// # Errors
/// `Request` for an agent that is not known, or has no files here; what goes wrong with our own files.
pub fn import_settings(
    home: &Home,
    request: &SetupRequest,
    env: &dyn Fn(&str) -> Option<PathBuf>,
    user_home: Option<&Path>,
) -> Result<Vec<SetupReport>, Failure> {
    let wanted = match &request.agent {
        None => agents(),
        Some(name) => vec![agent_named(name).ok_or_else(|| {
            let known = setup_agents().join(", ");
            Failure::request(format!("the settings of `{name}` cannot be imported; the agents are {known}"))
        })?],
    };
    let mut import = SetupImport {
        home,
        dry_run: request.dry_run,
        env,
        has_variables: false,
        sealer: Sealer::new(home.seal_key().unwrap_or_default()),
        reports: Vec::new(),
        set: BTreeSet::new(),
        closed: BTreeMap::new(),
    };
    let (mut found, mut places) = (false, Vec::new());
    for agent in &wanted {
        for file in &agent.files {
            let Some(path) = file.path(env, user_home) else { continue };
            if path.exists() {
                found = true;
                import.file(agent, &path, file.form, &file.only)?;
            }
            places.push(path.display().to_string());
        }
    }
    if !found {
        let titles: Vec<&str> = wanted.iter().map(|agent| agent.title.as_str()).collect();
        let (titles, places) = (titles.join(", "), places.join(", "));
        return Err(Failure::request(format!("there are no settings of {titles}: none of {places} exists")));
    }
    Ok(import.reports)
}

struct SetupImport<'a> {
    home: &'a Home,
    dry_run: bool,
    env: &'a dyn Fn(&str) -> Option<PathBuf>,
    /// Whether texts of the file name variables of the environment.
    has_variables: bool,
    sealer: Sealer,
    reports: Vec<SetupReport>,
    /// What this import has set.
    set: BTreeSet<String>,
    /// What it has closed, and with which values.
    closed: BTreeMap<&'static str, Value>,
}

impl SetupImport<'_> {
    fn report(&mut self, file: &Path, line: usize, key: &str, outcome: SetupOutcome) {
        if let SetupOutcome::Set { ours, .. } = &outcome {
            self.set.insert(ours.clone());
        }
        if self.reports.len() < MOST_REPORTS {
            let key: String = key.chars().filter(|letter| !letter.is_control()).take(120).collect();
            self.reports.push(SetupReport { file: file.to_owned(), line, key, outcome });
        }
    }

    fn file(
        &mut self,
        agent: &SetupAgent,
        path: &Path,
        form: FileForm,
        only: &[&str],
    ) -> Result<(), Failure> {
        self.has_variables = form == FileForm::Json5;
        let text = text_of(path).map_err(|why| (1, why));
        let read = text.and_then(|text| match form {
            FileForm::Json5 => includes::with_includes(path, &text),
            FileForm::Json | FileForm::Toml => Ok((entries::entries(&text, form)?, Vec::new())),
        });
        let (entries, problems) = match read {
            Ok(read) => read,
            Err((line, why)) => {
                self.report(path, line, "", SetupOutcome::Left(format!("{why}; nothing of it is taken")));
                return Ok(());
            }
        };
        for IncludeProblem { file, line, key, why } in problems {
            let key = if key.is_empty() { INCLUDE.to_owned() } else { format!("{key}.{INCLUDE}") };
            self.report(&file, line, &key, SetupOutcome::Left(why));
        }
        // Of members with one name the last one counts.
        let last = |at: usize, entry: &Entry| !entries[at + 1..].iter().any(|later| later.key == entry.key);
        for (at, entry) in entries.iter().enumerate() {
            let is_wanted = only.is_empty() || only.contains(&entry.key.as_str());
            if is_wanted && last(at, entry) {
                self.member(agent, path, entry, &entries)?;
            }
        }
        Ok(())
    }

    fn member(
        &mut self,
        agent: &SetupAgent,
        file: &Path,
        entry: &Entry,
        all: &[Entry],
    ) -> Result<(), Failure> {
        let key = entry.key.as_str();
        let file = entry.file.as_deref().unwrap_or(file);
        for row in &agent.rows {
            match row {
                // An object whose members are known is looked at in parts.
                SetupRow::Setting { theirs, ours, words }
                    if *theirs == key && !(entry.value.is_object() && has_members(agent, key)) =>
                {
                    let mut value = entry.value.clone();
                    let outcome = match self.put_in_variables(&mut value) {
                        Ok(()) => self.setting(&value, ours, words)?,
                        Err(why) => SetupOutcome::Left(why),
                    };
                    let outcome = match outcome {
                        SetupOutcome::Left(why) => SetupOutcome::Left(self.close(why, &[ours])?),
                        other => other,
                    };
                    self.report(file, entry.line, key, outcome);
                    return Ok(());
                }
                SetupRow::Pair { first, second, ours } if *second == key => {
                    let first =
                        all.iter().find(|entry| entry.key == *first).and_then(|entry| entry.value.as_str());
                    let (Some(first), Some(second)) = (first, entry.value.as_str()) else {
                        let outcome = self.setting(&entry.value, ours, "*")?;
                        self.report(file, entry.line, key, outcome);
                        return Ok(());
                    };
                    return self.put(file, entry, ours, &Value::from(format!("{first}/{second}")));
                }
                SetupRow::Pair { first, second, .. } if *first == key => {
                    if !all.iter().any(|entry| entry.key == *second) {
                        let why = format!("it counts only with {second}");
                        self.report(file, entry.line, key, SetupOutcome::Left(why));
                    }
                    return Ok(());
                }
                SetupRow::Larger { first, second, ours, defaults } if [*first, *second].contains(&key) => {
                    return self.larger(file, entry, all, (first, second, ours), *defaults);
                }
                SetupRow::Gate { flag, number, ours, values } if [*flag, *number].contains(&key) => {
                    return self.gate(file, entry, all, (flag, number, ours), *values);
                }
                SetupRow::Hooks(name) | SetupRow::Rules(name) | SetupRow::Servers(name)
                    if *name == key && !entry.value.is_object() =>
                {
                    let why = "it is not an object".to_owned();
                    self.report(file, entry.line, key, SetupOutcome::Left(why));
                    return Ok(());
                }
                SetupRow::Hooks(name) if *name == key => return self.hooks(file, entry),
                SetupRow::Rules(name) if *name == key => return self.rules(file, entry),
                SetupRow::Servers(name) if *name == key => return self.servers(file, entry),
                SetupRow::Agents(name) if *name == key => return self.agents(file, entry),
                SetupRow::Senders(name) if *name == key => {
                    let value = self.policy_value(file, entry);
                    return self.policies(file, entry, policies::SENDERS, policies::senders(key, &value));
                }
                SetupRow::Providers(name) if *name == key => {
                    let value = self.policy_value(file, entry);
                    return self.policies(file, entry, policies::PROVIDERS, policies::providers(key, &value));
                }
                SetupRow::Rooms(name) if *name == key => {
                    let taken = policies::rooms(key, &self.policy_value(file, entry));
                    self.policies(file, entry, policies::GROUPS, taken)?;
                    let taken = limits::of_channels(key, &entry.value);
                    return self.policies(file, entry, limits::HISTORY, taken);
                }
                SetupRow::Each { theirs, ours, words, member, all: object, word } if *theirs == key => {
                    let of_all = all.iter().rfind(|entry| entry.key == *object);
                    let of_all = of_all.and_then(|entry| entry.value.get(*member)).and_then(Value::as_str);
                    let mut value = renamed(entry.value.clone(), words);
                    for (_, rule) in value.as_object_mut().into_iter().flatten() {
                        if let Some(rule) = rule.as_object_mut() {
                            rule.entry(*member).or_insert_with(|| of_all.unwrap_or(word).into());
                        }
                    }
                    return self.put(file, entry, ours, &value);
                }
                SetupRow::Alone { key: name, beside, ours } if *name == key => {
                    return self.alone(file, entry, all, (beside, ours));
                }
                SetupRow::Foreign { key: name, why } if *name == key => {
                    self.report(file, entry.line, key, SetupOutcome::Left(why.clone()));
                    return Ok(());
                }
                _ => {}
            }
        }
        // Some members of it may be known.
        if has_members(agent, key) && !entry.value.is_object() {
            let why = self.close("it is not an object".to_owned(), &missing_in(agent, entry))?;
            self.report(file, entry.line, key, SetupOutcome::Left(why));
        } else if has_members(agent, key) {
            let missing = missing_in(agent, entry);
            if entry.value.get(INCLUDE).is_some() && !missing.is_empty() {
                let why = self.close("a file that it includes cannot be read".to_owned(), &missing)?;
                self.report(file, entry.line, key, SetupOutcome::Left(why));
            }
            for row in &agent.rows {
                if let SetupRow::Fill { key: name, member, ours, word } = row
                    && *name == key
                    && entry.value.get(*member).is_none()
                {
                    self.put(file, entry, ours, &Value::from(*word))?;
                }
            }
            for member in &entry.members {
                self.member(agent, file, member, &entry.members)?;
            }
        } else if key != "$schema" {
            self.report(
                file,
                entry.line,
                key,
                SetupOutcome::Left("there is no such setting here".to_owned()),
            );
        }
        Ok(())
    }

    /// Puts in the variables of the environment that texts name, as the other program does.
    fn put_in_variables(&self, value: &mut Value) -> Result<(), String> {
        match self.whole(value, "") {
            left if left.is_empty() => Ok(()),
            mut left => Err(left.swap_remove(0).1),
        }
    }

    /// The same for a value of which all else is taken: what is left of it, by its name, and why.
    fn whole(&self, value: &mut Value, key: &str) -> Vec<(String, String)> {
        let mut left = Vec::new();
        if self.has_variables {
            let env =
                |name: &str| (self.env)(name).and_then(|value| value.into_os_string().into_string().ok());
            put_in_variables(value, key, &env, &mut left);
        }
        left
    }

    fn setting(&self, value: &Value, ours: &str, words: &str) -> Result<SetupOutcome, Failure> {
        let word = words_of(value);
        for rule in words.split(',') {
            match rule.split_once('=') {
                Some((theirs, "-")) if theirs == word => break,
                Some((theirs, new)) if theirs == word => {
                    let new = serde_json::from_str(new).unwrap_or_else(|_| Value::from(new));
                    return self.outcome_of(ours, &new);
                }
                None if rule == "*" => return self.outcome_of(ours, &renamed(value.clone(), words)),
                None if let Some(name) = rule.strip_prefix("@member:") => {
                    return self.member_outcome(value, (ours, name));
                }
                None if let Some(unit) = rule.strip_prefix('@') => {
                    return match values::converted(unit, value) {
                        Ok(value) => self.outcome_of(ours, &value),
                        Err(why) => Ok(SetupOutcome::Left(why)),
                    };
                }
                _ => {}
            }
        }
        Ok(SetupOutcome::Left(format!("{ours} has no such value")))
    }

    /// The larger of two numbers; what is said of the other one is that it counts there.
    fn larger(
        &mut self,
        file: &Path,
        entry: &Entry,
        all: &[Entry],
        (first, second, ours): (&str, &str, &str),
        [one, other]: [u64; 2],
    ) -> Result<(), Failure> {
        let found = |name: &str| all.iter().rfind(|entry| entry.key == name);
        let number = |name: &str, default| found(name).map_or(Some(default), |entry| entry.value.as_u64());
        let Some((one, other)) = number(first, one).zip(number(second, other)) else {
            let why = if entry.value.as_u64().is_some() {
                format!("{ours} is the larger of {first} and {second}, and one of them is no number")
            } else {
                format!("{ours} has no such value")
            };
            self.report(file, entry.line, &entry.key, SetupOutcome::Left(why));
            return Ok(());
        };
        if entry.key == second && found(first).is_some() {
            self.report(file, entry.line, second, SetupOutcome::Note(format!("it counts in {first}")));
            return Ok(());
        }
        self.put(file, entry, ours, &Value::from(one.max(other)))
    }

    /// A number that counts only with a flag.
    fn gate(
        &mut self,
        file: &Path,
        entry: &Entry,
        all: &[Entry],
        (flag, number, ours): (&str, &str, &str),
        [off, on]: [u64; 2],
    ) -> Result<(), Failure> {
        let found = |name: &str| all.iter().rfind(|entry| entry.key == name);
        let is_off = found(flag).is_some_and(|flag| flag.value == Value::Bool(false));
        if entry.key == flag {
            return match entry.value {
                Value::Bool(false) => self.put(file, entry, ours, &Value::from(off)),
                Value::Bool(true) if found(number).is_some() => {
                    self.report(file, entry.line, flag, SetupOutcome::Note(format!("it counts in {number}")));
                    Ok(())
                }
                Value::Bool(true) => self.put(file, entry, ours, &Value::from(on)),
                _ => {
                    self.report(
                        file,
                        entry.line,
                        flag,
                        SetupOutcome::Left("it is not true or false".to_owned()),
                    );
                    Ok(())
                }
            };
        }
        if is_off {
            self.report(
                file,
                entry.line,
                number,
                SetupOutcome::Note(format!("{flag} is false, so {ours} is {off}")),
            );
            return Ok(());
        }
        self.put(file, entry, ours, &entry.value)
    }

    /// Sets a setting of ours, unless the user has set it.
    fn put(&mut self, file: &Path, entry: &Entry, ours: &str, value: &Value) -> Result<(), Failure> {
        let outcome = self.outcome_of(ours, value)?;
        self.report(file, entry.line, &entry.key, outcome);
        Ok(())
    }

    /// Sets a member of an object of ours, unless the user has set that member.
    fn member_outcome(&self, value: &Value, (ours, name): (&str, &str)) -> Result<SetupOutcome, Failure> {
        let label = format!("{ours}.{name}");
        // What the environment says would be written down, and hide what the file says.
        let is_own = Key::named(ours).is_none_or(|key| {
            matches!(self.home.config().row(key).source, Source::User(_) | Source::BuiltIn)
        });
        if !is_own {
            return Ok(SetupOutcome::Kept { ours: label });
        }
        let mut members = match Key::named(ours).map(|key| self.home.config().row(key).value) {
            Some(Value::Object(members)) => members,
            _ => Map::new(),
        };
        let text = value.to_string();
        Ok(match members.get(name) {
            Some(known) if known == value => SetupOutcome::Same { ours: label },
            Some(_) => SetupOutcome::Kept { ours: label },
            None if !value.is_string() => SetupOutcome::Left(format!("{label} is no text")),
            None if self.sealer.seal(&text) != text => {
                SetupOutcome::Left("it holds a secret, which is not copied".to_owned())
            }
            None => {
                members.insert(name.to_owned(), value.clone());
                match self.store(ours.to_owned(), &Value::Object(members))? {
                    SetupOutcome::Set { .. } => SetupOutcome::Set { ours: label, value: value.clone() },
                    other => other,
                }
            }
        })
    }

    fn outcome_of(&self, ours: &str, value: &Value) -> Result<SetupOutcome, Failure> {
        let Some(key) = Key::named(ours) else {
            return Ok(SetupOutcome::Left(format!("there is no setting {ours} yet")));
        };
        let ours = ours.to_owned();
        let text = value.to_string();
        if self.sealer.seal(&text) != text {
            return Ok(SetupOutcome::Left("it holds a secret, which is not copied".to_owned()));
        }
        if matches!(key.kind, Kind::Text | Kind::Cron) && !value.is_string() {
            return Ok(SetupOutcome::Left(format!("{ours} is a text")));
        }
        if matches!(key.kind, Kind::List(_)) && !value.is_array() {
            return Ok(SetupOutcome::Left(format!("{ours} is a list")));
        }
        if let Some(closed) = self.closed.get(ours.as_str()) {
            let is_same = closed == value;
            return Ok(if is_same { SetupOutcome::Same { ours } } else { SetupOutcome::Kept { ours } });
        }
        let config = self.home.config();
        let row = config.row(key);
        if let Source::User(_) = row.source {
            let is_same = row.value == *value;
            return Ok(if is_same { SetupOutcome::Same { ours } } else { SetupOutcome::Kept { ours } });
        }
        if row.value == *value && *row.source == Source::BuiltIn {
            return Ok(SetupOutcome::Same { ours });
        }
        self.store(ours, value)
    }

    fn store(&self, ours: String, value: &Value) -> Result<SetupOutcome, Failure> {
        let words = words_of(value);
        if self.dry_run {
            return Ok(match check_setting(&ours, &words) {
                Ok(_) => SetupOutcome::Set { ours, value: value.clone() },
                Err(why) => SetupOutcome::Left(why),
            });
        }
        match set_setting(self.home, &SettingsFile::User, &ours, &words) {
            Ok(_) => Ok(SetupOutcome::Set { ours, value: value.clone() }),
            Err(crate::settings::SettingError::Invalid(why)) => Ok(SetupOutcome::Left(why)),
            Err(error) => Err(setting_failure(error)),
        }
    }

    /// Hooks in our form, behind those of the user.
    fn hooks(&mut self, file: &Path, entry: &Entry) -> Result<(), Failure> {
        let config = self.home.config();
        let mut ours = match Key::named("hooks").map(|key| config.row(key).value) {
            Some(Value::Object(hooks)) => hooks,
            _ => Map::new(),
        };
        let before = ours.clone();
        for event in &entry.members {
            let name = event.key.strip_prefix(&format!("{}.", entry.key)).unwrap_or(&event.key).to_owned();
            let one = json!({ name.clone(): event.value });
            let text = event.value.to_string();
            let problem = match crate::command_hooks::problems_of(&one).into_iter().next() {
                Some(problem) => Some(problem),
                None if self.sealer.seal(&text) != text => {
                    Some("it holds a secret, which is not copied".to_owned())
                }
                None => None,
            };
            if let Some(why) = problem {
                self.report(file, event.line, &event.key, SetupOutcome::Left(why));
                continue;
            }
            let known = ours.entry(name).or_insert_with(|| json!([]));
            let Some(known) = known.as_array_mut() else { continue };
            let theirs = event.value.as_array().into_iter().flatten();
            let new: Vec<Value> = theirs.filter(|group| !known.contains(group)).cloned().collect();
            let label = "hooks".to_owned();
            let outcome = if new.is_empty() {
                SetupOutcome::Same { ours: label }
            } else {
                SetupOutcome::Set { ours: label, value: new.clone().into() }
            };
            known.extend(new);
            self.report(file, event.line, &event.key, outcome);
        }
        if ours != before && !self.dry_run {
            self.store("hooks".to_owned(), &Value::Object(ours))?;
        }
        Ok(())
    }

    /// What counts only where others are not there, and stands for several settings. All of them are set, or none.
    fn alone(
        &mut self,
        file: &Path,
        entry: &Entry,
        all: &[Entry],
        (beside, ours): (&[&str], &[(&str, Option<&str>)]),
    ) -> Result<(), Failure> {
        if let Some(other) = beside.iter().find(|other| all.iter().any(|entry| entry.key == **other)) {
            let why = format!("it is taken only where there is no {other}");
            self.report(file, entry.line, &entry.key, SetupOutcome::Left(why));
            return Ok(());
        }
        let config = self.home.config();
        let mut values = Vec::new();
        for (ours, word) in ours {
            let value = word.map_or_else(|| entry.value.clone(), Value::from);
            let known = Key::named(ours).map(|key| config.row(key));
            let is_kept = |row: &SettingRow<'_>| matches!(row.source, Source::User(_)) && row.value != value;
            // No number of theirs is 0: that is none here.
            let why = match check_setting(ours, &words_of(&value)) {
                _ if value == 0 => Some(format!("{ours} would be no limit")),
                Ok(_) => None,
                Err(why) => Some(why),
            };
            let outcome = match why {
                Some(why) => Some(SetupOutcome::Left(why)),
                None => known.filter(is_kept).map(|_| SetupOutcome::Kept { ours: (*ours).to_owned() }),
            };
            if let Some(outcome) = outcome {
                self.report(file, entry.line, &entry.key, outcome);
                return Ok(());
            }
            values.push((ours, value));
        }
        for (ours, value) in values {
            self.put(file, entry, ours, &value)?;
        }
        Ok(())
    }

    /// What policies of tools say, with variables put in.
    fn policy_value(&mut self, file: &Path, entry: &Entry) -> Value {
        let mut value = entry.value.clone();
        for (name, why) in self.whole(&mut value, &entry.key) {
            self.report(file, entry.line, &name, SetupOutcome::Left(why));
        }
        value
    }

    /// What is ours of an object, unless the user has set it; and what is not taken.
    fn policies(
        &mut self,
        file: &Path,
        entry: &Entry,
        ours: &str,
        taken: policies::TakenMembers,
    ) -> Result<(), Failure> {
        for (name, why) in taken.left {
            let at = entry.nearest(&name);
            let file = at.file.as_deref().unwrap_or(file);
            self.report(file, at.line, &name, SetupOutcome::Left(why));
        }
        if taken.members.is_empty() {
            return Ok(());
        }
        let outcome = match self.outcome_of(ours, &Value::Object(taken.members))? {
            SetupOutcome::Left(why) => SetupOutcome::Left(self.close(why, &[ours])?),
            other => other,
        };
        self.report(file, entry.line, &entry.key, outcome);
        Ok(())
    }

    /// Permission rules in our words, in place of nothing of the user's.
    fn rules(&mut self, file: &Path, entry: &Entry) -> Result<(), Failure> {
        for list in &entry.members {
            let name = list.key.strip_prefix(&format!("{}.", entry.key)).unwrap_or(&list.key);
            if !matches!(name, "allow" | "ask" | "deny") {
                let why = match name {
                    "defaultMode" => "set the mode of a directory with the permissions command",
                    "additionalDirectories" => "add directories when a session begins",
                    _ => "there is no such setting here",
                };
                self.report(file, list.line, &list.key, SetupOutcome::Left(why.to_owned()));
                continue;
            }
            if !list.value.is_array() {
                self.report(file, list.line, &list.key, SetupOutcome::Left("it is not a list".to_owned()));
            }
            let mut ours = Vec::new();
            for theirs in rules::texts(&list.value) {
                match rules::rule(theirs) {
                    Some(rule) if ours.contains(&Value::from(rule.as_str())) => {}
                    Some(rule) => ours.push(Value::from(rule)),
                    None => {
                        let theirs: String =
                            theirs.chars().filter(|letter| !letter.is_control()).take(80).collect();
                        let why = format!("no rule here corresponds to `{theirs}`");
                        self.report(file, list.line, &list.key, SetupOutcome::Left(why));
                    }
                }
            }
            if !ours.is_empty() {
                self.put(file, list, &format!("permissions.{name}"), &Value::Array(ours))?;
            }
        }
        Ok(())
    }
}

/// A value as a command line has it.
fn words_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether there are rows for members of this member.
fn has_members(agent: &SetupAgent, key: &str) -> bool {
    let is_within = |name: &str| name.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
    agent.rows.iter().any(|row| match row {
        SetupRow::Setting { theirs, .. } => is_within(theirs),
        SetupRow::Larger { first, .. } => is_within(first),
        SetupRow::Gate { flag, .. } => is_within(flag),
        SetupRow::Each { theirs: key, .. } | SetupRow::Alone { key, .. } => is_within(key),
        SetupRow::Agents(name)
        | SetupRow::Servers(name)
        | SetupRow::Senders(name)
        | SetupRow::Providers(name) => is_within(name),
        _ => false,
    })
}

pub(crate) fn setting_failure(error: crate::settings::SettingError) -> Failure {
    use crate::settings::SettingError;
    match error {
        SettingError::Failed(failure) => failure,
        SettingError::Io(error) => error.into(),
        SettingError::Syntax { path, line } => Failure::request(format!(
            "{}: line {line}: the file is not valid JSON; correct it first",
            path.display()
        )),
        SettingError::NotAnObject { path, .. } => {
            Failure::request(format!("{}: it must be a JSON object; correct it first", path.display()))
        }
        SettingError::Unreadable { path, why } => {
            Failure::request(format!("{} cannot be read: {why}; correct it first", path.display()))
        }
        SettingError::Unknown { name, .. } => Failure::request(format!("there is no setting {name}")),
        SettingError::Invalid(why) => Failure::request(why),
        SettingError::Refused { key, why } => Failure::request(format!("{} cannot be set: {why}", key.name)),
    }
}

/// A value whose members have our names, as far as they are told.
fn renamed(value: Value, words: &str) -> Value {
    let Value::Object(members) = value else { return value };
    let ours = |theirs: &str| {
        let mut pairs = words.split(',').filter_map(|rule| rule.split_once('='));
        pairs.find(|(name, _)| *name == theirs).map(|(_, ours)| ours.to_owned())
    };
    let named = members.iter().filter_map(|(name, member)| Some((ours(name)?, member.clone())));
    // What has our name already comes before what gets it.
    let mut all: serde_json::Map<String, Value> = named.collect();
    all.extend(members.into_iter().filter(|(name, _)| ours(name).is_none()));
    Value::Object(all)
}

fn text_of(path: &Path) -> Result<String, String> {
    let bytes = crate::bounded_file::read(path, MOST_BYTES).map_err(|error| error.in_words("16 MiB"))?;
    String::from_utf8(bytes).map_err(|_| "it is not text (UTF-8)".to_owned())
}

/// Writes a file of ours by rename; only its owner reads it.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    let directory = path.parent().unwrap_or(path);
    std::fs::create_dir_all(directory)?;
    // A link to a collection of settings stays one.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut file = tempfile::NamedTempFile::new_in(target.parent().unwrap_or(directory))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(&target).map_err(|error| Failure::from(error.error))?;
    Ok(())
}
