//! `tobe`: the session goes to another of its nodes, with a message to itself.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use quipu_protocol::{Json, NodeId, SessionId, ToolSpec};
use quipu_seal::Sealer;
use quipu_store::{Graph, Resolution, Scope, Spelling, SpellingKind, StoreError};
use quipu_tools::{Invocation, Tool, ToolContext, ToolOutput, Touches};
use serde::Deserialize;

use quipu_history::{COUNTED, LegalTarget, carryover, carryover_note, count_left, legal_target, line_of};

use super::SessionView;
use crate::arrival::TRAVEL_TOOL;
use crate::clock::fresh_id;
use crate::files::FileRestorer;
use quipu_machine::ToolJump;
use quipu_transcript::FilePlan;
use quipu_transcript::one_line;

/// Files that a person is shown.
const SHOWN: usize = 200;
/// Files in the result for the model that somebody else changed.
const REPORTED: usize = 20;
/// Lines about files that are not restored, in the result for the model.
const NOT_PUT_BACK: usize = 50;
/// Characters of an id that messages repeat.
const SHOWN_BACK: usize = 80;

/// What a message to itself warns of where files went along.
const WITH_FILES: &str = "You wrote the note above yourself, later in a branch of this conversation that you left to \
                          come here. Nothing else of that branch is here. The known changes that your tools made in \
                          the working directory since are undone; changes by background processes, by others and \
                          outside of it stay: check before you rely on it.";
/// What follows that, before the lines of what is not put back.
const EXCEPT: &str = "Not restored, or not known:";

/// Where a call would take its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Travel {
    /// The node.
    pub target: NodeId,
    /// The author and the beginning of the text there, on one line.
    pub line: String,
    /// Messages that are left behind; no more than 2,000 nodes are looked at.
    pub messages: usize,
    /// How many of them are the user's.
    pub turns: usize,
    /// What the session would say to itself there.
    pub message: String,
    /// What would be done to files, where they are to go along.
    pub files: Option<FilePlan>,
    /// Another program wrote the node, so a new session begins below it, and none leaves anything behind.
    pub begins: bool,
}

impl Travel {
    /// What a person is asked, on one line.
    pub fn question(&self) -> String {
        let Self { target, line, .. } = self;
        let target = target.short();
        if self.begins {
            return format!(
                "Allow a new session below {target} ({line})? Another program wrote that node; {}.",
                self.file_note()
            );
        }
        format!("Allow going back to {target} ({line})? It leaves {}; {}.", self.loss(), self.file_note())
    }

    /// The same as a verb phrase, such as `go back to …`.
    pub fn plan(&self) -> String {
        format!("{}; {}", self.way(), self.file_note())
    }

    /// What happens to files.
    fn file_note(&self) -> String {
        let files = match &self.files {
            None => "files stay as they are".to_owned(),
            Some(plan) if plan.changes.is_empty() => "no files change".to_owned(),
            Some(plan) => format!("{} file(s) are restored", plan.shown().count()),
        };
        let stays = self.files.as_ref().map_or(0, FilePlan::count_of_stays);
        if stays == 0 { files } else { format!("{files}, {stays} item(s) are not restored") }
    }

    /// What a person sees of it beside the question: the message, and which files would be changed.
    pub fn subject(&self) -> String {
        let files = self.files.as_ref().map(|plan| plan.lines(SHOWN)).filter(|lines| !lines.is_empty());
        files.map_or_else(|| self.message.clone(), |lines| format!("{}\n\n{lines}", self.message))
    }

    /// Where it goes and what it leaves, on one line.
    pub fn way(&self) -> String {
        let Self { target, line, .. } = self;
        if self.begins {
            return format!("start below {} ({line}), which another program wrote", target.short());
        }
        format!("go back to {} ({line}), leaving {}", target.short(), self.loss())
    }

    /// What it leaves behind.
    fn loss(&self) -> String {
        let Self { messages, turns, .. } = self;
        let more = if *messages >= COUNTED { " or more" } else { "" };
        format!("{messages}{more} message(s) behind, {turns} of them yours")
    }
}

/// Takes its session to one of its nodes.
pub(crate) struct Tobe {
    spec: ToolSpec,
    store: Arc<dyn Graph>,
    standing: SessionView,
    cwd: PathBuf,
    /// Where its files are, when they are kept.
    restorer: Option<Arc<FileRestorer>>,
}

/// A way that was looked at.
pub(crate) struct PlannedJump {
    pub(crate) travel: Travel,
    session: SessionId,
    tobe: Arc<Tobe>,
}

#[derive(Deserialize)]
struct Args {
    target_node_hash: String,
    carryover_message: String,
    #[serde(default)]
    files: bool,
}

impl Tobe {
    pub(crate) const NAME: &'static str = TRAVEL_TOOL;

    pub(crate) fn new(
        store: Arc<dyn Graph>,
        standing: SessionView,
        cwd: PathBuf,
        restorer: Option<Arc<FileRestorer>>,
    ) -> Self {
        let parameters = serde_json::json!({
            "type": "object",
            "properties": {
                "target_node_hash": {
                    "type": "string",
                    "description": "The node to go to: its hash or at least 4 characters of it, or pi:ID"
                },
                "carryover_message": {
                    "type": "string",
                    "description": "What you need to know there of what happened since; nothing else is kept"
                },
                "files": {
                    "type": "boolean",
                    "description": "Restore the files that your tools changed since (default false)"
                }
            },
            "required": ["target_node_hash", "carryover_message"]
        });
        let description = "Go back to an earlier point of this conversation with a message to yourself, and continue \
                           there at once. Use it when an approach has failed and its traces are in your way. You no \
                           longer see what came after that point, but it stays in the graph and you can return to it. \
                           Files stay as they are unless you restore them. Calls before this one in the same answer \
                           finish first; calls after it do not run.";
        let spec = ToolSpec {
            name: Self::NAME.into(),
            description: description.into(),
            parameters: Json::from(&parameters),
        };
        Self { spec, store, standing, cwd, restorer }
    }

    /// Where the call would go, or why it cannot, for the model.
    pub(crate) async fn plan(self: &Arc<Self>, args: &Json) -> Result<PlannedJump, String> {
        let failed = |error: StoreError| format!("Could not read the graph: {error}");
        let args: Args = args.read().map_err(|error| format!("Invalid arguments: {error}"))?;
        let message = carryover(&args.carryover_message).map_err(|error| error.to_string())?;
        let standing = self.standing.get().map(|view| view.borrow().clone());
        let Some((session, head)) = standing.and_then(|view| Some((view.session, view.head?))) else {
            return Err("The session has no earlier node to go to.".into());
        };
        let node = self.find(&args.target_node_hash, &session, head).await?;
        let LegalTarget { illegal, nearest, .. } = legal_target(&*self.store, node).await.map_err(failed)?;
        if let Some(why) = illegal {
            let instead = nearest.map_or(String::new(), |near| {
                format!(" The nearest earlier node that you can go to is {}.", near.short())
            });
            return Err(format!("You cannot go to {}: {why}.{instead}", node.short()));
        }
        let (messages, turns) = count_left(&*self.store, head, node).await.map_err(failed)?;
        let line = line_of(&*self.store, node).await.map_err(failed)?;
        let files = if args.files { self.look_at_files(head, node).await? } else { None };
        let travel = Travel { target: node, line, messages, turns, message, files, begins: false };
        Ok(PlannedJump { travel, session, tobe: self.clone() })
    }

    /// What would be done to files; `None` when no step on the way touched any.
    async fn look_at_files(&self, from: NodeId, to: NodeId) -> Result<Option<FilePlan>, String> {
        let Some(restorer) = &self.restorer else {
            return Err(
                "This session does not save file states, so files cannot be restored: go back without `files`."
                    .into(),
            );
        };
        let plan = restorer
            .preview(from, to)
            .await
            .map_err(|error| format!("Files cannot be restored: {error}."))?;
        let lost: Vec<_> =
            plan.iter().flat_map(FilePlan::conflicts).map(|(change, _)| change.clone()).collect();
        if lost.is_empty() {
            return Ok(plan);
        }
        let lines = FilePlan { changes: lost, ..FilePlan::default() }.lines(REPORTED);
        Err(format!(
            "Files cannot be restored: someone else changed these since, or they cannot be saved first. Nothing was \
             changed. Go back without `files`, or let the user decide.\n{lines}"
        ))
    }

    async fn find(&self, hash: &str, session: &SessionId, head: NodeId) -> Result<NodeId, String> {
        let failed = |error: StoreError| format!("Could not read the graph: {error}");
        let shown = one_line(hash, SHOWN_BACK);
        let scope = Scope { head: Some(head) };
        let found = match self.store.resolve(&Spelling::from(hash), &scope).await.map_err(failed)? {
            Resolution::None => Vec::new(),
            Resolution::One(one) => vec![one],
            Resolution::Many(many) => many,
        };
        // A session is no place to go to, and other refs are names for nodes.
        let named: Vec<_> = found.into_iter().filter(|one| one.by != SpellingKind::Session).collect();
        let own: Vec<_> = named.iter().filter(|one| one.session.as_ref() == Some(session)).collect();
        match own.as_slice() {
            [one] => Ok(one.node),
            [] if named.is_empty() => Err(format!(
                "No node is named \"{shown}\". Give its hash, or at least 4 characters of it, as life and recall show \
                 it."
            )),
            [] => Err(format!(
                "\"{shown}\" is not a node of this session, and you can go only to nodes of this session. Read it with \
                 recall; a person can continue from it or fork it."
            )),
            many => {
                let list: Vec<String> =
                    many.iter().map(|one| format!("\n{}  {}", one.node.short(), one.role)).collect();
                Err(format!(
                    "{} nodes match \"{shown}\"; give more of the hash:{}",
                    many.len(),
                    list.concat()
                ))
            }
        }
    }
}

impl PlannedJump {
    /// What the call does when it runs; the rest is the session's.
    pub(crate) fn begin(self) -> (ToolOutput, Option<Box<ToolJump>>) {
        let Self { travel, session, tobe } = self;
        let to = travel.target;
        let log = log_of(&travel.message, to, &session, &tobe.cwd);
        let sealer = tobe.restorer.as_deref().map(|restorer| &*restorer.sealer);
        let carryover = carryover_text(&travel.message, travel.files.as_ref().zip(sealer));
        let files = travel.files.map(Arc::new);
        let jump = ToolJump { run: fresh_id().into(), to, carryover, log, files };
        let text = format!("Incarnation initiated → {}", to.short());
        (ToolOutput::text(text), Some(Box::new(jump)))
    }
}

impl Tool for Tobe {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, _args: &serde_json::Value, _cx: &ToolContext) -> Touches {
        Touches::Session
    }

    fn run<'a>(
        &'a self,
        _call: Invocation,
        _cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        // The session goes, and not the tool; what was planned never comes here.
        Box::pin(std::future::ready(ToolOutput::error("You did not go back: the call was not planned.")))
    }
}

/// What the log of actions keeps of a session that goes somewhere with a message.
pub(crate) fn log_of(message: &str, target: NodeId, session: &SessionId, cwd: &Path) -> Json {
    let mut log = serde_json::json!({
        "carryover_message": message, "target": target, "agent": crate::AGENT, "session": session,
        "cwd": cwd.to_string_lossy(), "v": 1,
    });
    if let (Some(head), Some(log)) = (git_head(cwd), log.as_object_mut()) {
        log.insert("git_head".into(), head.into());
    }
    Json::from(&log)
}

/// The commit that the repository around a directory stands at, where that is written in one of its files.
fn git_head(cwd: &Path) -> Option<String> {
    let read = |path: PathBuf| {
        let small = std::fs::metadata(&path).ok().is_some_and(|found| found.is_file() && found.len() < 4096);
        if small { std::fs::read_to_string(path).ok() } else { None }
    };
    let git = cwd.ancestors().map(|dir| dir.join(".git")).find(|git| git.is_dir())?;
    let head = read(git.join("HEAD"))?;
    let head = match head.trim().strip_prefix("ref: ") {
        Some(name) if !name.contains("..") && !name.starts_with('/') => read(git.join(name))?,
        Some(_) => return None,
        None => head,
    };
    let head = head.trim();
    let fits = head.len() >= 40 && head.len() <= 64 && head.bytes().all(|byte| byte.is_ascii_hexdigit());
    fits.then(|| head.to_owned())
}

/// The message as the conversation holds it, with what was done to files, where they went along.
pub(crate) fn carryover_text(message: &str, files: Option<(&FilePlan, &Sealer)>) -> String {
    let Some((plan, sealer)) = files else { return carryover_note(message, None) };
    let stays = sealer.seal(&plan.stays_in_short(NOT_PUT_BACK)).into_owned();
    let stays = if stays.is_empty() { stays } else { format!(" {EXCEPT}\n{stays}") };
    carryover_note(message, Some(&format!("{WITH_FILES}{stays}")))
}
