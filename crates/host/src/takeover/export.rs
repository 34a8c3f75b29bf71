//! Writes a state directory in the form of files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use quipu::rules::Effect;
use quipu_archive::ArchiveError;
use quipu_archive::openclaw::state::{MAIN, ProfileCredential, is_agent_id, profile_json, profile_name};
use quipu_archive::openclaw::{AGENT, transcript};
use quipu_policy::{NamePattern, ToolName};
use quipu_protocol::SessionId;
use quipu_providers::{AdoptedCredential, AuthFile};
use quipu_schedule::Recurrence;
use quipu_store::{Job, JobKey, JobState, Jobs, SessionQuery, SessionRow, SqliteStore};
use serde_json::{Map, Value, json};

use super::approvals::pattern_of;
use super::jobs::KEYS;
use super::{StateOutcome, StatePart, StateReport, default_agent};
use crate::holders::WrittenKind;
use crate::permissions::{PermissionItem, Record};
use crate::scheduled_job::{JobTarget, ScheduledJob, ScheduledWork};
use crate::settings::EVERY_AGENT;
use crate::setup::agents_of;
use crate::{Failure, Home};

/// Jobs that are read at once.
const PAGE: usize = 500;

/// What is asked about here is asked about there: where nobody says it, everything is allowed there.
const SECURITY: &str = "allowlist";
const ASK: &str = "on-miss";

/// Names of tools here, and there.
const THEIR_NAMES: [(&str, &str); 4] =
    [("bash", "exec"), ("background", "process"), ("schedule", "cron"), ("group:quipu", "group:openclaw")];
/// Names that nothing has there.
const OURS_ALONE: [&str; 15] = [
    "grep",
    "find",
    "ls",
    "memory_note",
    "memory_range",
    "memory_create",
    "task",
    "search_history",
    "recall",
    "life",
    "trace",
    "tobe",
    "plan",
    "todo",
    "group:mcp",
];

/// Whether credentials are written, which are secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretExport {
    /// They are.
    Included,
    /// They are not.
    Left,
}

/// A conversation that is written.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportedConversation {
    /// Its key.
    pub key: String,
    /// Its agent.
    pub agent: String,
    /// The session that it has.
    pub session: SessionId,
    /// When it was used last, in milliseconds since the epoch; 0 where that is not known.
    pub updated: i64,
    /// What else was said of it where it was imported from.
    pub entry: Map<String, Value>,
}

/// A state directory that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateExport {
    /// Transcripts.
    pub transcripts: usize,
    /// Conversations that name one of them.
    pub conversations: usize,
    /// What became of all else.
    pub reports: Vec<StateReport>,
}

/// Why there is no state directory.
#[derive(Debug, thiserror::Error)]
pub enum StateExportError {
    /// Something is there.
    #[error("{} is there already, and not an empty directory; name another one", .0.display())]
    Exists(PathBuf),
    /// It cannot be written.
    #[error("{} could not be written: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What is to be written cannot be read.
    #[error("{}", .0.message)]
    Read(Failure),
}

impl From<Failure> for StateExportError {
    fn from(failure: Failure) -> Self {
        Self::Read(failure)
    }
}

/// Writes a state directory: the conversations, and whatever else was imported from such a directory; agents, approvals, jobs, and
/// credentials if that is wanted. All of it is there afterwards, or nothing.
///
/// # Errors
/// Why nothing was written. A directory that is not empty is not touched.
pub async fn export_state(
    home: &Home,
    store: &SqliteStore,
    dir: &Path,
    conversations: Vec<ExportedConversation>,
    secrets: SecretExport,
) -> Result<StateExport, StateExportError> {
    let dir = std::path::absolute(dir).map_err(|source| written(dir, source))?;
    match fs::symlink_metadata(&dir) {
        Ok(found) if found.is_dir() => {
            let mut entries = fs::read_dir(&dir).map_err(|source| written(&dir, source))?;
            if entries.next().is_some() {
                return Err(StateExportError::Exists(dir));
            }
        }
        Ok(_) => return Err(StateExportError::Exists(dir)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(written(&dir, source)),
    }
    let parent = dir.parent().unwrap_or(Path::new("/"));
    let private = fs::Permissions::from_mode(0o700);
    let part = tempfile::Builder::new().prefix(".quipu-state-").permissions(private).tempdir_in(parent);
    let part = part.map_err(|source| written(parent, source))?;
    let mut export = Export {
        home,
        store,
        dir: dir.clone(),
        part: part.path().to_owned(),
        done: StateExport { transcripts: 0, conversations: 0, reports: Vec::new() },
        agents: BTreeSet::from([MAIN.to_owned()]),
        modes: BTreeMap::new(),
        files: Vec::new(),
    };
    export.sessions(conversations).await?;
    export.approvals()?;
    export.agents()?;
    export.jobs().await?;
    export.credentials(secrets)?;
    // An empty directory is replaced, any other one is not.
    fs::rename(part.path(), &dir).map_err(|source| match source.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
            StateExportError::Exists(dir.clone())
        }
        _ => written(&dir, source),
    })?;
    for (file, session) in &export.files {
        home.wrote(&dir.join(file), WrittenKind::Export, std::slice::from_ref(session));
    }
    Ok(export.done)
}

fn written(path: &Path, source: io::Error) -> StateExportError {
    StateExportError::Write { path: path.to_owned(), source }
}

struct Export<'a> {
    home: &'a Home,
    store: &'a SqliteStore,
    /// Where it will be.
    dir: PathBuf,
    /// Where it is written.
    part: PathBuf,
    done: StateExport,
    agents: BTreeSet<String>,
    /// What agents may run, where it is less than all others may.
    modes: BTreeMap<String, Map<String, Value>>,
    /// The transcripts, below the directory.
    files: Vec<(PathBuf, SessionId)>,
}

impl Export<'_> {
    fn report(&mut self, part: StatePart, file: &str, key: &str, outcome: StateOutcome) {
        let key = key.chars().filter(|letter| !letter.is_control()).take(200).collect();
        self.done.reports.push(StateReport { part, file: self.dir.join(file), key, outcome });
    }

    fn create(&self, below: &Path) -> Result<File, StateExportError> {
        let path = self.part.join(below);
        let fail = |source| written(&self.dir.join(below), source);
        if let Some(parent) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(fail)?;
        }
        File::options().write(true).create_new(true).mode(0o600).open(&path).map_err(fail)
    }

    fn put(&self, below: &str, value: &Value) -> Result<(), StateExportError> {
        let mut file = self.create(Path::new(below))?;
        let write = file.write_all(format!("{value:#}\n").as_bytes()).and_then(|()| file.sync_all());
        write.map_err(|source| written(&self.dir.join(below), source))
    }

    async fn sessions(&mut self, conversations: Vec<ExportedConversation>) -> Result<(), StateExportError> {
        let query = SessionQuery { children: true, ..SessionQuery::default() };
        let rows = quipu_store::ReadModel::sessions(self.store, query).await.map_err(Failure::from)?;
        let rows: BTreeMap<&str, &SessionRow> =
            rows.iter().filter(|row| row.head.is_some()).map(|row| (row.id.as_str(), row)).collect();
        let mut indexes: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        // The id that the header of each transcript says.
        let mut exported: BTreeMap<(String, String), String> = BTreeMap::new();
        for conversation in conversations {
            let ExportedConversation { key, agent, session, updated, mut entry } = conversation;
            let agent = if is_agent_id(&agent) { agent } else { MAIN.to_owned() };
            let Some(row) = rows.get(session.as_str()) else {
                let why = format!("its session {session} is not in the store");
                self.report(StatePart::Conversation, "agents", &key, StateOutcome::Left(why));
                continue;
            };
            let place = (agent.clone(), session.to_string());
            let id = match exported.get(&place) {
                Some(id) => id.clone(),
                None => {
                    let id = self.transcript(row, Some(&agent)).await?;
                    exported.insert(place, id.clone());
                    id
                }
            };
            if id != session.as_str() {
                entry.insert("sessionFile".to_owned(), format!("{session}.jsonl").into());
            }
            entry.insert("sessionId".to_owned(), id.into());
            entry.insert("updatedAt".to_owned(), updated.max(row.updated).into());
            indexes.entry(agent.clone()).or_default().insert(key, Value::Object(entry));
            self.agents.insert(agent);
            self.done.conversations += 1;
        }
        let met: BTreeSet<&str> = exported.keys().map(|(_, session)| session.as_str()).collect();
        for row in rows.values().filter(|row| row.agent == AGENT && !met.contains(row.id.as_str())) {
            self.transcript(row, None).await?;
        }
        for (agent, index) in indexes {
            self.put(&format!("agents/{agent}/sessions/sessions.json"), &Value::Object(index))?;
        }
        Ok(())
    }

    /// Writes a transcript of this agent, or of the one that the session says. Also the id of its header.
    async fn transcript(
        &mut self,
        row: &SessionRow,
        agent: Option<&str>,
    ) -> Result<String, StateExportError> {
        let temporary = Path::new("transcript.part");
        let mut out = BufWriter::new(self.create(temporary)?);
        let done = match transcript(self.store, row, &mut out).await {
            Ok(done) => done,
            Err(ArchiveError::File { source, .. }) => return Err(written(&self.dir, source)),
            Err(error) => return Err(Failure::from(error).into()),
        };
        let sync = out.flush().and_then(|()| out.get_ref().sync_all());
        sync.map_err(|source| written(&self.dir, source))?;
        drop(out);
        let of_row = done.agent.filter(|agent| is_agent_id(agent));
        let agent = agent.map(str::to_owned).or(of_row).unwrap_or_else(|| MAIN.to_owned());
        let mut name = format!("{}.jsonl", row.id);
        if let Some((reason, at)) = done.archived {
            let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.:".contains(letter);
            name =
                format!("{name}.{reason}.{}", at.chars().filter(|letter| fits(*letter)).collect::<String>());
        }
        let below = PathBuf::from(format!("agents/{agent}/sessions/{name}"));
        let to = self.part.join(&below);
        let fail = |source| written(&self.dir.join(&below), source);
        if let Some(parent) = to.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(fail)?;
        }
        fs::rename(self.part.join(temporary), &to).map_err(fail)?;
        self.agents.insert(agent);
        self.files.push((below, row.id.clone()));
        self.done.transcripts += 1;
        Ok(done.id.unwrap_or_else(|| row.id.to_string()))
    }

    /// Agents of the settings, and those that have a conversation.
    fn agents(&mut self) -> Result<(), StateExportError> {
        let default = match default_agent::kept(self.home)? {
            Some(id) if !self.agents.contains(&id) && !agents_of(self.home).0.contains_key(&id) => {
                let why = format!("the default agent was `{id}`, which is not here; it is `{MAIN}` there");
                self.report(StatePart::Agent, "openclaw.json", MAIN, StateOutcome::Note(why));
                MAIN.to_owned()
            }
            kept => kept.unwrap_or_else(|| MAIN.to_owned()),
        };
        let config = self.home.config();
        self.agents.extend(config.named_agents.keys().filter(|id| is_agent_id(id)).cloned());
        let (set, _) = agents_of(self.home);
        let mut list = Vec::new();
        let mut notes = Vec::new();
        for id in &self.agents {
            let mut agent = Map::from_iter([("id".to_owned(), Value::from(id.as_str()))]);
            if *id == default {
                agent.insert("default".to_owned(), true.into());
            }
            let ours = set.get(id).or_else(|| {
                let closed = set.get(EVERY_AGENT)?;
                notes
                    .push((id.clone(), "`agents.byId` cannot be read, so it gets no tools there".to_owned()));
                Some(closed)
            });
            for (member, value) in ours.and_then(Value::as_object).into_iter().flatten() {
                match member.as_str() {
                    "model" | "workspace" => drop(agent.insert(member.clone(), value.clone())),
                    "tools" => {
                        let (tools, left) = exported_tools(value);
                        agent.insert(member.clone(), Value::Object(tools));
                        notes.extend(left.into_iter().map(|left| (id.clone(), left)));
                    }
                    _ => notes.push((id.clone(), unwritten(member))),
                }
            }
            if let Some(modes) = self.modes.get(id) {
                let tools = agent.entry("tools").or_insert_with(|| json!({}));
                if let Some(tools) = tools.as_object_mut() {
                    tools.insert("exec".to_owned(), Value::Object(modes.clone()));
                }
            }
            list.push(Value::Object(agent));
        }
        let ids: Vec<String> = self.agents.iter().cloned().collect();
        for id in ids {
            self.report(
                StatePart::Agent,
                "openclaw.json",
                &id,
                StateOutcome::Added("agents.list".to_owned()),
            );
        }
        for (id, why) in notes {
            self.report(StatePart::Agent, "openclaw.json", &id, StateOutcome::Note(why));
        }
        // That program reads approvals in the home directory alone, wherever its state directory is: both files say it.
        let tools = json!({ "exec": { "security": SECURITY, "ask": ASK } });
        self.put("openclaw.json", &json!({ "agents": { "list": list }, "tools": tools }))
    }

    /// Where agents work, and who does.
    fn workspaces(&self) -> BTreeMap<PathBuf, Vec<String>> {
        let config = self.home.config();
        let mut found: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
        for (id, agent) in &config.named_agents {
            let path = agent.workspace.as_ref().and_then(|written| match written.strip_prefix('~') {
                Some(below) => std::env::home_dir().map(|home| home.join(below.trim_start_matches('/'))),
                None => Some(PathBuf::from(written)),
            });
            if let Some(path) = path.and_then(|path| path.canonicalize().ok()) {
                found.entry(path).or_default().push(id.clone());
            }
        }
        found
    }

    fn approvals(&mut self) -> Result<(), StateExportError> {
        const FILE: &str = "exec-approvals.json";
        let mut agents = Map::new();
        let of_agents = self.workspaces().into_iter();
        for (path, id) in of_agents.flat_map(|(path, ids)| ids.into_iter().map(move |id| (path.clone(), id)))
        {
            let (mut allowlist, mut agent) = (Vec::new(), Map::new());
            for entry in Record::of(self.home, &path).project()?.entries {
                let PermissionItem::Rule { effect, rule } = entry.what else { continue };
                let key = format!("{id} {} {rule}", effect.word());
                let outcome = match (effect, rule.as_str(), pattern_of(&rule)) {
                    (Effect::Deny, "bash", _) => {
                        agent.insert("security".to_owned(), "deny".into());
                        StateOutcome::Added("security deny".to_owned())
                    }
                    (Effect::Ask, "bash", _) => {
                        agent.insert("ask".to_owned(), "always".into());
                        StateOutcome::Added("ask always".to_owned())
                    }
                    (Effect::Allow, _, Some(pattern)) => {
                        allowlist.push(json!({ "id": format!("quipu-{}", entry.id), "pattern": pattern }));
                        StateOutcome::Added(format!("allowlist {pattern}"))
                    }
                    _ => StateOutcome::Left("no approval there says the same".to_owned()),
                };
                self.report(StatePart::Approval, FILE, &key, outcome);
            }
            if !agent.is_empty() {
                self.modes.insert(id.clone(), agent.clone());
            }
            if !allowlist.is_empty() {
                agent.insert("allowlist".to_owned(), allowlist.into());
            }
            if !agent.is_empty() {
                agents.insert(id, Value::Object(agent));
            }
        }
        let defaults = json!({ "security": SECURITY, "ask": ASK, "askFallback": "deny" });
        self.put(FILE, &json!({ "version": 1, "defaults": defaults, "agents": agents }))
    }

    async fn jobs(&mut self) -> Result<(), StateExportError> {
        const FILE: &str = "cron/jobs.json";
        let workspaces = self.workspaces();
        let (mut jobs, mut after): (Vec<Value>, Option<JobKey>) = (Vec::new(), None);
        loop {
            let page = self.store.jobs(after.as_ref(), PAGE).await.map_err(Failure::from)?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for job in &page {
                let Some(scheduled) = ScheduledJob::of_job(job) else { continue };
                match exported_job(job, &scheduled, &workspaces) {
                    Ok((theirs, notes)) => {
                        let id = theirs.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
                        self.report(StatePart::Job, FILE, job.key.as_str(), StateOutcome::Added(id));
                        for note in notes {
                            self.report(StatePart::Job, FILE, job.key.as_str(), StateOutcome::Note(note));
                        }
                        jobs.push(theirs);
                    }
                    Err(why) => {
                        self.report(
                            StatePart::Job,
                            FILE,
                            job.key.as_str(),
                            StateOutcome::Left(why.to_owned()),
                        );
                    }
                }
            }
        }
        self.put(FILE, &json!({ "version": 1, "jobs": jobs }))
    }

    fn credentials(&mut self, secrets: SecretExport) -> Result<(), StateExportError> {
        let file = format!("agents/{MAIN}/agent/auth-profiles.json");
        let (portable, others) = AuthFile::new(&self.home.dir).portable().map_err(Failure::failed)?;
        if secrets == SecretExport::Left {
            if !portable.is_empty() {
                let why = format!("{} credentials are not written: they are secret", portable.len());
                self.report(StatePart::Credential, &file, "", StateOutcome::Left(why));
            }
            return Ok(());
        }
        let (mut profiles, mut names) = (Map::new(), BTreeMap::new());
        for (id, credential) in portable {
            let provider = id.split_once(':').map_or(id.as_str(), |(provider, _)| provider).to_owned();
            let credential = match credential {
                AdoptedCredential::Key(key) => ProfileCredential::Key(key.expose().to_owned()),
                AdoptedCredential::Variable(name) => ProfileCredential::Variable(name),
                AdoptedCredential::Login { access, refresh, expires, fields } => ProfileCredential::Login {
                    access: access.expose().to_owned(),
                    refresh: refresh.map(|refresh| refresh.expose().to_owned()),
                    expires,
                    fields,
                },
            };
            let name = profile_name(&id, &provider);
            profiles.insert(name.clone(), profile_json(&provider, &credential));
            self.report(StatePart::Credential, &file, &id, StateOutcome::Added(name.clone()));
            names.insert(id, (provider, name));
        }
        for id in others {
            let why = "it is a command, or a login of another program".to_owned();
            self.report(StatePart::Credential, &file, &id, StateOutcome::Left(why));
        }
        let mut order: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let config = self.home.config();
        let row = crate::settings::Key::named("keyOrder").map(|key| config.row(key).value);
        for id in row.iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str) {
            if let Some((provider, name)) = names.get(id) {
                order.entry(provider.clone()).or_default().push(name.clone());
            }
        }
        let mut document = json!({ "version": 1, "profiles": profiles });
        if let (false, Some(document)) = (order.is_empty(), document.as_object_mut()) {
            document.insert("order".to_owned(), json!(order));
        }
        self.put(&file, &document)
    }
}

fn unwritten(member: &str) -> String {
    format!("its {member} is not written")
}

/// `tools` of an agent as they are there, and what of it is not, or means nothing.
fn exported_tools(ours: &Value) -> (Map<String, Value>, Vec<String>) {
    let (mut theirs, mut left, mut unknown) = (Map::new(), Vec::new(), BTreeSet::new());
    let renamed = with_their_names(ours, &mut unknown);
    for (member, value) in renamed.as_object().into_iter().flatten() {
        match member.as_str() {
            "profile" | "allow" | "alsoAllow" | "deny" | "byProvider" => {
                theirs.insert(member.clone(), value.clone());
            }
            "bySender" => drop(theirs.insert("toolsBySender".to_owned(), value.clone())),
            "sandbox" => drop(theirs.insert(member.clone(), json!({ "tools": value }))),
            _ => left.push(unwritten(&format!("tools.{member}"))),
        }
    }
    left.extend(unknown.into_iter().map(|name| format!("its tools name `{name}`, which is not there")));
    (theirs, left)
}

/// Lists of tools with the names that these have there. Names that are only ours go to `unknown`.
fn with_their_names(ours: &Value, unknown: &mut BTreeSet<String>) -> Value {
    match ours {
        Value::Array(entries) => {
            let mut theirs = Vec::new();
            for entry in entries.iter().filter_map(Value::as_str) {
                let Some(pattern) = NamePattern::parse(entry) else { continue };
                if OURS_ALONE.contains(&pattern.as_str()) {
                    unknown.insert(pattern.as_str().to_owned());
                }
                if let Some((_, name)) = THEIR_NAMES.iter().find(|(name, _)| *name == pattern.as_str()) {
                    theirs.push(*name);
                    continue;
                }
                theirs.push(entry);
                if entry.contains('*') && pattern.as_str() != "*" {
                    let is_meant = |name: &str| pattern.matches(&ToolName::built_in(name));
                    theirs
                        .extend(THEIR_NAMES.iter().filter(|(ours, _)| is_meant(ours)).map(|(_, name)| *name));
                }
            }
            json!(theirs)
        }
        Value::Object(members) => {
            let renamed =
                members.iter().map(|(name, value)| (name.clone(), with_their_names(value, unknown)));
            let mut renamed: Map<String, Value> = renamed.collect();
            // A list of names that are not there may count as none there.
            let is_ours = |entry: &Value| {
                let pattern = entry.as_str().and_then(NamePattern::parse);
                pattern.is_some_and(|pattern| OURS_ALONE.contains(&pattern.as_str()))
            };
            let allowed = members.get("allow").and_then(Value::as_array);
            if allowed.is_some_and(|allowed| !allowed.is_empty() && allowed.iter().all(is_ours)) {
                renamed.insert("deny".to_owned(), json!(["*"]));
            }
            Value::Object(renamed)
        }
        other => other.clone(),
    }
}

/// A job as it is there, and what of it is not.
fn exported_job(
    job: &Job,
    scheduled: &ScheduledJob,
    workspaces: &BTreeMap<PathBuf, Vec<String>>,
) -> Result<(Value, Vec<String>), &'static str> {
    let ScheduledWork::Prompt(work) = &scheduled.work else {
        return Err("it is work of this program, which is not there");
    };
    let agents = workspaces.get(Path::new(&work.cwd)).map(Vec::as_slice).unwrap_or_default();
    let agent = match &work.agent {
        Some(own) if !agents.contains(own) => return Err("its agent does not work in its directory"),
        Some(own) => own,
        None => agents.first().ok_or("its directory is that of no agent")?,
    };
    let mut notes = Vec::new();
    if work.agent.is_none() && agents.len() > 1 {
        notes.push(format!("{} agents work in its directory; it is one of `{agent}`", agents.len()));
    }
    let schedule = match &scheduled.when {
        Recurrence::At(at) => {
            let time = jiff::Timestamp::from_millisecond(*at).map_err(|_| "its time cannot be written")?;
            json!({ "kind": "at", "at": format!("{time:.3}") })
        }
        Recurrence::Every { every_ms, anchor } => {
            json!({ "kind": "every", "everyMs": every_ms, "anchorMs": anchor })
        }
        Recurrence::Cron { expression, zone } => {
            json!({ "kind": "cron", "expr": expression, "tz": zone, "staggerMs": scheduled.jitter_ms })
        }
    };
    let delivery = match &scheduled.target {
        JobTarget::Nobody => json!({ "mode": "none" }),
        JobTarget::Terminal => json!({ "mode": "announce" }),
        JobTarget::Webhook(url) => json!({ "mode": "webhook", "to": url }),
        JobTarget::Desktop | JobTarget::Command(_) => {
            notes.push(format!(
                "its answer goes nowhere: a {} is not possible there",
                scheduled.target.word()
            ));
            json!({ "mode": "none" })
        }
    };
    let key = job.key.as_str();
    let id = key.strip_prefix(KEYS).unwrap_or(key);
    let mut payload = json!({ "kind": "agentTurn", "message": work.prompt });
    if let (Some(model), Some(payload)) = (&work.model, payload.as_object_mut()) {
        payload.insert("model".to_owned(), model.as_str().into());
    }
    let theirs = json!({
        "id": id,
        "agentId": agent,
        "name": id,
        "enabled": !matches!(job.state, JobState::Paused | JobState::Failed),
        "schedule": schedule,
        "sessionTarget": "isolated",
        "wakeMode": "now",
        "payload": payload,
        "delivery": delivery,
        "state": {},
    });
    Ok((theirs, notes))
}

#[cfg(test)]
mod tests {
    use quipu_policy::{GROUPS, canonical};

    use super::*;
    use crate::scheduled_job::PromptWork;

    /// What is exported is what an import would read as the same tool.
    #[test]
    fn names_of_tools_are_those_of_policies() {
        let is_known =
            |name: &str| GROUPS.iter().any(|group| group.name == name || group.tools.contains(&name));
        for (ours, theirs) in THEIR_NAMES.iter().filter(|(ours, _)| !ours.starts_with("group:")) {
            assert!(is_known(ours) && canonical(theirs) == *ours, "{ours}");
        }
        for name in OURS_ALONE {
            assert!(is_known(name) && canonical(name) == name, "{name}");
        }
    }

    #[test]
    fn tools_have_the_names_of_the_other_program() {
        let ours = json!({
            "deny": ["background", " Bash ", "schedule", "group:quipu", "browser", "back*", "*"],
            "byProvider": { "test": { "deny": ["schedule"] } },
            "bySender": { "id:7": { "allow": ["recall"] } },
            "sandbox": { "deny": ["process", "todo"] },
            "byGroup": {},
        });
        let (theirs, left) = exported_tools(&ours);
        let expect = json!({
            "deny": ["process", "exec", "cron", "group:openclaw", "browser", "back*", "process", "*"],
            "byProvider": { "test": { "deny": ["cron"] } },
            "toolsBySender": { "id:7": { "allow": ["recall"], "deny": ["*"] } },
            "sandbox": { "tools": { "deny": ["process", "todo"] } },
        });
        assert_eq!(Value::Object(theirs), expect);
        assert_eq!(
            left,
            [
                "its tools.byGroup is not written",
                "its tools name `recall`, which is not there",
                "its tools name `todo`, which is not there",
            ]
        );
    }

    #[test]
    fn job_that_failed_is_exported_as_disabled() {
        let scheduled = ScheduledJob {
            when: Recurrence::At(5),
            jitter_ms: 0,
            work: ScheduledWork::Prompt(PromptWork::new("x", "/w")),
            target: JobTarget::Nobody,
        };
        let workspaces = BTreeMap::from([(PathBuf::from("/w"), vec![MAIN.to_owned()])]);
        for (state, is_enabled) in
            [(JobState::Waiting, true), (JobState::Failed, false), (JobState::Paused, false)]
        {
            let job = Job {
                key: "openclaw/j".into(),
                kind: String::new(),
                payload: String::new(),
                state,
                due: 5,
                next: 5,
                attempts: 3,
                attempt_limit: 3,
                error: None,
            };
            let (theirs, _) = exported_job(&job, &scheduled, &workspaces).unwrap();
            assert_eq!(theirs["enabled"], is_enabled, "{:?}", job.state);
        }
    }
}
