//! How long a new turn's chunk takes in a past that is there.
//!
//! `past_rate STORE TURNS` reads the sessions of the store and their past once, then appends turns to a session of its own: each closes
//! a segment, whose chunk is made with what stands above it. It prints a JSON line for each row: `{"what": .., "unit": .., "samples":
//! [..]}`. `cargo xtask bench past` runs it on a store whose past was built.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use quipu_dag::{Node, NodeRecord};
use quipu_past::{ExtractiveSummary, PastCursor, PastScope, Summaries};
use quipu_protocol::{
    AssistantMessage, Content, Entry, Epoch, Message, NodeId, SessionId, SessionStart, StepInfo, UnixMs,
};
use quipu_store::{Commit, Graph, OpenOptions, RefMove, RefName};
use quipu_transcript::encode;

/// 2026-03-01: after all that the store has.
const BEGIN: UnixMs = 1_772_323_200_000;
const MINUTE: UnixMs = 60_000;
/// Bytes of an answer: the next request closes the segment.
const ANSWER: usize = 8_000;
/// Turns that are not counted.
const WARM: usize = 5;

struct Conversation {
    store: Arc<dyn Graph>,
    session: SessionId,
    head: Option<NodeId>,
}

impl Conversation {
    async fn append(&mut self, entries: Vec<(UnixMs, Entry)>) -> Result<(), Box<dyn Error>> {
        let (mut commit, stands) = (Commit::default(), self.head);
        for (at, entry) in entries {
            let encoded = encode(&entry, &StepInfo::default());
            let record = NodeRecord {
                parent: self.head,
                role: encoded.role,
                parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
                timestamp: at,
                external_id: None,
                system_prompt: None,
            };
            commit.blobs.extend(encoded.blobs);
            let node = Node::new(record, None, None);
            self.head = Some(node.id);
            commit.nodes.push(node);
        }
        let head = self.head.ok_or("nothing to append")?;
        commit.moves.push(RefMove::swap(RefName::session(&self.session), stands, head, "append"));
        Ok(self.store.commit(commit).await?)
    }

    async fn turn(&mut self, nth: usize) -> Result<UnixMs, Box<dyn Error>> {
        let at = BEGIN + UnixMs::try_from(nth)? * MINUTE;
        let mut entries = Vec::new();
        if self.head.is_none() {
            let epoch = Epoch { provider: "p".into(), model: "m".into(), ..Epoch::default() };
            let start = SessionStart {
                session: self.session.clone(),
                cwd: "/project".into(),
                agent: "quipu".into(),
                parent_session: None,
                epoch,
            };
            entries.push((at, Entry::Session(start)));
        }
        let asked = format!("Please look at step {nth} of the parser.");
        let line = format!("Step {nth} of the parser reads a token. ");
        let answer = line.repeat(ANSWER / line.len() + 1);
        let answer = AssistantMessage {
            content: vec![Content::text(answer)],
            timestamp: at + 1_000,
            ..AssistantMessage::default()
        };
        entries.push((at, Entry::Message(Message::user(asked, at))));
        entries.push((at + 1_000, Entry::Message(Message::Assistant(answer))));
        self.append(entries).await?;
        Ok(at + 2_000)
    }
}

fn print(what: &str, samples: &[f64]) -> std::io::Result<()> {
    let row = serde_json::json!({ "what": what, "unit": "ms", "samples": samples });
    writeln!(std::io::stdout(), "{row}")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let store = arguments.next().ok_or("past_rate STORE TURNS")?;
    let turns: usize = arguments.next().ok_or("past_rate STORE TURNS")?.parse()?;
    let store = quipu_store::open(Path::new(&store), &OpenOptions::default())?;
    let scope = PastScope::All;
    let rules = Summaries::Rules(&ExtractiveSummary);
    let ms = |began: Instant| began.elapsed().as_secs_f64() * 1_000.0;
    let mut cursor = PastCursor::default();
    let mut talk = Conversation {
        store: Arc::clone(&store),
        session: SessionId::from("past-rate-session".to_owned()),
        head: None,
    };
    let began = Instant::now();
    drop(rules.plan_from(&mut cursor, &*store, &scope, BEGIN).await?);
    print("read as a whole", &[ms(began)])?;
    let [mut planned, mut built, mut settled, mut all, mut plain] = [const { Vec::new() }; 5];
    for nth in 0..turns + WARM {
        let began = Instant::now();
        let now = talk.turn(nth).await?;
        let appended = ms(began);
        let began = Instant::now();
        let plan = rules.plan_from(&mut cursor, &*store, &scope, now).await?;
        let read = ms(began);
        let end = rules.build(&*store, &scope, &plan, now, &mut |_| {}).await?;
        let made = ms(began);
        drop(plan);
        cursor.settle(&*store).await?;
        let whole = ms(began);
        // The segment of the first turn is closed by the second one.
        if nth > 0 && end.size.leaves != 1 {
            return Err(format!("turn {nth} made {} leaves", end.size.leaves).into());
        }
        if nth >= WARM {
            planned.push(read);
            built.push(made - read);
            settled.push(whole - made);
            all.push(whole);
            plain.push(appended);
        }
    }
    if cursor.read_whole() != 1 {
        return Err(format!("{} plans read everything", cursor.read_whole()).into());
    }
    print("a new turn's chunk", &all)?;
    print("a new turn's chunk, what is new found", &planned)?;
    print("a new turn's chunk, made and written", &built)?;
    print("a new turn's chunk, read back", &settled)?;
    print("a commit of a turn", &plain)?;
    Ok(())
}
