//! Whose lines are: histories whose truth is known line by line, told from the states that nodes keep.

mod history;
mod judge;
mod made;

use quipu_store::Store as _;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use quipu::history::{Blame, LineAuthor, blame_lines};
use quipu::protocol::{
    AssistantMessage, ChunkId, Content, Entry, Epoch, FileChange, FileState, Json, Message, NodeId,
    SessionId, SessionStart, StepInfo, ToolCall, ToolResultMessage,
};
use quipu::store::{Commit, Graph, NewChunk, RefMove, RefName, SqliteStore};
use quipu_dag::{Node, NodeRecord};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::storage::{errors, failing};
use crate::support::{open_store, scratch};

/// Files by name, as they are on the disk.
pub(crate) type Disk = BTreeMap<String, String>;

/// A history that is written as nodes, without running anything.
pub(crate) struct Replay {
    _dir: tempfile::TempDir,
    pub(crate) store: Arc<SqliteStore>,
    batch: Commit,
    head: Option<NodeId>,
    at: i64,
    seen: Disk,
    session: SessionId,
    /// The answer of each turn.
    pub(crate) turns: Vec<NodeId>,
}

pub(crate) const CWD: &str = "/project";

impl Replay {
    pub(crate) fn new() -> Self {
        let dir = scratch();
        let store = open_store(dir.path());
        let session = SessionId::from("0199aaaa-0000-7000-8000-000000000001");
        let mut replay = Self {
            store,
            _dir: dir,
            batch: Commit::default(),
            head: None,
            at: 0,
            seen: Disk::new(),
            session: session.clone(),
            turns: Vec::new(),
        };
        let start = SessionStart {
            session,
            cwd: CWD.into(),
            agent: quipu::AGENT.into(),
            parent_session: None,
            epoch: Epoch::default(),
        };
        replay.node(&Entry::Session(start), &StepInfo::default());
        replay
    }

    fn node(&mut self, entry: &Entry, step: &StepInfo) -> NodeId {
        self.at += 1;
        let encoded = quipu_transcript::encode(entry, step);
        let record = NodeRecord {
            parent: self.head,
            role: encoded.role,
            parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
            timestamp: self.at,
            external_id: Some(format!("e{}", self.at)),
            system_prompt: None,
        };
        let node = Node::new(record, None, None);
        let id = node.id;
        self.batch.blobs.extend(encoded.blobs);
        self.batch.nodes.push(node);
        self.head = Some(id);
        id
    }

    /// What a person or another program left on the disk before the next turn.
    pub(crate) fn found(&mut self, disk: &Disk) {
        self.seen = disk.clone();
    }

    fn state(&mut self, text: Option<&String>) -> FileState {
        let Some(text) = text else { return FileState::Absent };
        let content = ChunkId(Sha256::digest(text).into());
        self.batch.chunks.push(NewChunk::Plain { id: content, bytes: text.as_bytes().into() });
        FileState::File { mode: 0o644, size: text.len() as u64, content }
    }

    /// A turn of one call that left the disk like this.
    pub(crate) fn turn(&mut self, tool: &str, arguments: &Value, disk: &Disk) {
        let turn = self.turns.len();
        self.node(&Entry::Message(Message::user(format!("turn {turn}"), self.at)), &StepInfo::default());
        let id = format!("c{turn}");
        let call = ToolCall {
            id: id.as_str().into(),
            name: tool.into(),
            arguments: Json::from(arguments),
            thought_signature: None,
            namespace: None,
        };
        let answer =
            AssistantMessage { content: vec![Content::ToolCall(call)], ..AssistantMessage::default() };
        let answer = self.node(&Entry::Message(Message::Assistant(answer)), &StepInfo::default());
        self.turns.push(answer);
        let mut files = Vec::new();
        let seen = std::mem::take(&mut self.seen);
        let names: std::collections::BTreeSet<&String> = seen.keys().chain(disk.keys()).collect();
        for name in names {
            if seen.get(name) != disk.get(name) {
                let before = self.state(seen.get(name));
                let after = self.state(disk.get(name));
                files.push(FileChange { path: name.clone(), before, after });
            }
        }
        let result = ToolResultMessage {
            tool_call_id: id.as_str().into(),
            tool_name: tool.into(),
            content: Vec::new(),
            details: None,
            usage: None,
            is_error: false,
            timestamp: self.at,
        };
        let step = StepInfo { files, ..StepInfo::default() };
        self.node(&Entry::Message(Message::ToolResult(result)), &step);
        self.seen = disk.clone();
    }

    pub(crate) async fn write(&mut self) {
        if let Some(head) = self.head {
            self.batch.moves.push(RefMove::publish(RefName::session(&self.session), head, "test"));
        }
        self.store.commit(std::mem::take(&mut self.batch)).await.unwrap();
    }
}

/// How many lines were told rightly.
#[derive(Default, Clone, Copy)]
pub(crate) struct Score {
    pub(crate) right: usize,
    pub(crate) wrong: usize,
    pub(crate) unknown: usize,
}

impl Score {
    pub(crate) fn add(&mut self, other: Self) {
        self.right += other.right;
        self.wrong += other.wrong;
        self.unknown += other.unknown;
    }

    fn share(self, count: usize) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = 100.0 * count as f64 / (self.right + self.wrong + self.unknown).max(1) as f64;
        share
    }

    /// At least 90 % right, at most 2 % wrong.
    #[track_caller]
    pub(crate) fn check(self, name: &str) {
        assert!(self.right + self.wrong + self.unknown > 0, "{name}: nothing to tell");
        assert!(self.share(self.right) >= 90.0 && self.share(self.wrong) <= 2.0, "{name}: {self}");
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { right, wrong, unknown } = *self;
        write!(
            f,
            "{right} right ({:.1} %), {wrong} wrong ({:.1} %), {unknown} unknown",
            self.share(right),
            self.share(wrong)
        )
    }
}

/// Each line, as whoever shows it knows it: by the node of its turn.
fn told(blame: &Blame) -> Vec<Result<NodeId, LineAuthor>> {
    let of = |line: &LineAuthor| match line {
        LineAuthor::Turn(turn) => Ok(blame.turns[*turn].node),
        other => Err(*other),
    };
    blame.lines.iter().map(of).collect()
}

/// The answer for some lines is the one for all lines, cut to these.
async fn part_is_as_in_the_whole(
    store: &dyn Graph,
    path: &str,
    content: &str,
    read: quipu::history::ReadFile<'_>,
    whole: &Blame,
) {
    let (count, whole) = (whole.lines.len(), told(whole));
    for lines in [count / 3..count / 3 + 1, count / 2..count + 7, count..count + 1] {
        let part = blame_lines(store, &[path.to_owned()], content, lines.clone(), read).await.unwrap();
        assert_eq!(told(&part), whole[lines.start..lines.end.min(count)], "{path} {lines:?}");
    }
}

/// A file that a hundred turns changed: who asks for a line of one of the last turns needs none of the others.
#[tokio::test]
async fn last_line_is_told_without_the_states_before() {
    let mut replay = Replay::new();
    let mut lines: Vec<String> = (0..100).map(|at| format!("let value_{at} = compute({at});")).collect();
    let mut disk = Disk::new();
    for turn in 0..100 {
        lines[turn] = format!("let value_{turn} = changed_by({turn});");
        disk.insert("a.rs".to_owned(), lines.join("\n") + "\n");
        let arguments = serde_json::json!({ "path": "a.rs" });
        replay.turn("write", &arguments, &disk);
    }
    replay.write().await;
    let (path, content) = (format!("{CWD}/a.rs"), &disk["a.rs"]);
    let mut reads = Vec::new();
    for (asked, most) in [(0..usize::MAX, 1_000), (0..1, 1_000), (99..100, 40), (97..98, 60)] {
        let store = failing(&replay.store, usize::MAX, 0, errors()[0].clone());
        let blame = blame_lines(&*store, std::slice::from_ref(&path), content, asked.clone(), &|_| None)
            .await
            .unwrap();
        let last = asked.end.min(100) - 1;
        let found = told(&blame);
        assert_eq!(found.last(), Some(&Ok(replay.turns[last])), "{asked:?}");
        let (nodes, chunks) = store.reads();
        assert!(nodes + chunks <= most, "{asked:?}: {nodes} nodes, {chunks} states");
        reads.push(nodes + chunks);
    }
    // All of them with the prompts of all turns; the first line with its own alone.
    assert!(reads[2] * 10 < reads[0] && reads[1] * 2 > reads[0], "{reads:?}");
}

/// Tells the lines of a file; `truth` is each line's turn, or none.
pub(crate) async fn score(
    store: &dyn Graph,
    turns: &[NodeId],
    path: &str,
    disk: &Disk,
    truth: &[Option<usize>],
) -> Score {
    let on_disk = |path: &Path| path.strip_prefix(CWD).ok().and_then(|name| disk.get(name.to_str()?));
    let content = on_disk(Path::new(path)).unwrap();
    let read = |path: &Path| on_disk(path).map(|text| text.clone().into_bytes());
    let blame = quipu::history::blame(store, &[path.to_owned()], content, &read).await.unwrap();
    assert_eq!((blame.lines.len(), truth.len()), (content.lines().count(), truth.len()), "{path}");
    part_is_as_in_the_whole(store, path, content, &read, &blame).await;
    let mut score = Score::default();
    for (of, truth) in blame.lines.iter().zip(truth) {
        let told = match of {
            LineAuthor::Turn(turn) => {
                Some(turns.iter().position(|node| *node == blame.turns[*turn].node).unwrap())
            }
            LineAuthor::Nobody => None,
            LineAuthor::Unknown(_) => {
                score.unknown += 1;
                continue;
            }
        };
        if told == *truth {
            score.right += 1;
        } else {
            score.wrong += 1;
        }
    }
    score
}
