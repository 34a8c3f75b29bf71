//! How long questions take.
//!
//! `recall_rate DIRECTORY NODES NOTES` makes a store of so many nodes in the directory, which has to be on a real disk, indexes it
//! with so many notes, and prints a JSON line for each row: `{"what": .., "unit": .., "samples": [..]}`. The text is made up: words
//! as often as in natural text (Zipf). `cargo xtask bench recall` runs it.
//!
//! With `--keep` the store stays in the directory, and the next run goes on with it: what a new version indexes otherwise is
//! indexed anew. With `--times N` each question is asked N times, for a profiler.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quipu_dag::{Blob, Node, NodeRecord};
use quipu_protocol::{AuthorClass, Entry, Epoch, SessionId, SessionStart, StepInfo};
use quipu_store::{
    Commit, IndexBacklog, NoteChange, NoteChunk, OpenOptions, RecallIndex, RecallQuery, RefMove, RefName,
    SqliteStore, Store, Upkeep as _, WordVectors,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Nodes of one session, and of one commit.
const SESSION: usize = 400;
const BATCH: usize = 400;
/// Different words.
const WORDS: u64 = 60_000;
/// How many questions are asked by each signal.
const QUESTIONS: usize = 500;
/// Numbers of a vector.
const WIDTH: usize = 256;

/// Numbers that are the same on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// The rank of a word: the n-th is n times as rare as the first.
    fn rank(&mut self) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank, clamped")]
        let rank = (WORDS as f64).powf(self.below(1 << 20) as f64 / f64::from(1_u32 << 20)) as u64;
        rank.clamp(1, WORDS)
    }

    fn vector(&mut self) -> Vec<f32> {
        (0..WIDTH).map(|_| f32::from(u8::try_from(self.below(256)).unwrap_or(0)) - 128.0).collect()
    }
}

/// The word of a rank: short when common, spelled from syllables.
fn word(rank: u64) -> String {
    const SYLLABLES: [&str; 32] = [
        "ta", "re", "in", "so", "ko", "mi", "le", "un", "per", "tra", "con", "is", "ed", "or", "al", "no",
        "ve", "chi", "da", "qu", "ster", "ing", "po", "ba", "ru", "fe", "gon", "lu", "za", "he", "wi", "ny",
    ];
    let (mut rest, mut word) = (rank, String::new());
    while rest > 0 {
        word.push_str(SYLLABLES[usize::try_from(rest % 32).unwrap_or(0)]);
        rest /= 32;
    }
    word
}

fn prose(random: &mut Random, words: usize) -> String {
    let words: Vec<String> = (0..words).map(|_| word(random.rank())).collect();
    words.join(" ")
}

/// The program that wrote a node.
fn agent_of(n: usize) -> &'static str {
    ["quipu", "pi", "other"][n / SESSION % 3]
}

/// Puts so many nodes into the store: questions and answers, and a result after two of five.
async fn fill(store: &SqliteStore, nodes: usize) -> Outcome<()> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut parent, mut batch) = (None, Commit::default());
    for n in 0..nodes {
        let within = n % SESSION;
        let session = SessionId::from(format!("session-{}", n / SESSION));
        let (role, blobs) = match within {
            0 => {
                parent = None;
                let start = Entry::Session(SessionStart {
                    session: session.clone(),
                    cwd: format!("/project/{}", n / SESSION % 40),
                    agent: agent_of(n).to_owned(),
                    parent_session: None,
                    epoch: Epoch { provider: "p".to_owned(), model: "m".to_owned(), ..Epoch::default() },
                });
                let encoded = quipu_transcript::encode(&start, &StepInfo::default());
                (encoded.role, encoded.blobs)
            }
            n if n % 5 == 0 => ("user".to_owned(), vec![Blob::text(&prose(&mut random, 40))]),
            n if n % 5 == 2 || n % 5 == 4 => {
                let result = serde_json::json!({ "toolCallId": "c", "toolName": "read",
                    "content": [{ "type": "text", "text": prose(&mut random, 60) }], "isError": false });
                ("toolResult".to_owned(), vec![Blob::from_canonical("tool_result", result.to_string())])
            }
            _ => ("assistant".to_owned(), vec![Blob::text(&prose(&mut random, 90))]),
        };
        let record = NodeRecord {
            parent,
            role,
            parts: blobs.iter().map(|blob| blob.id).collect(),
            timestamp: 1_700_000_000_000 + i64::try_from(n)? * 60_000,
            external_id: Some(format!("n{n}")),
            system_prompt: None,
        };
        let node = Node::new(record, None, None);
        if within == 0 {
            batch.moves.push(RefMove::publish(RefName::of_agent(agent_of(n), &session), node.id, "bench"));
        }
        parent = Some(node.id);
        batch.blobs.extend(blobs);
        batch.nodes.push(node);
        if batch.nodes.len() == BATCH || n + 1 == nodes {
            store.commit(std::mem::take(&mut batch)).await?;
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the numbers are this program's output")]
fn row(what: &str, unit: &str, sample: f64) {
    println!("{}", serde_json::json!({ "what": what, "unit": unit, "samples": [sample] }));
}

/// Questions as people ask them: two common words, two middling and a rare one.
fn question(random: &mut Random) -> String {
    let mut words = Vec::new();
    for (from, to) in [(1, 30), (1, 30), (30, 2_000), (30, 2_000), (2_000, WORDS)] {
        words.push(word(from + random.below(to - from)));
    }
    format!("what was it about the {}?", words.join(" "))
}

async fn measure(file: &Path, nodes: usize, notes: usize, times: usize) -> Outcome<()> {
    let is_new = !file.exists();
    let store = SqliteStore::open(file, &OpenOptions::default())?;
    if is_new {
        fill(&store, nodes).await?;
    }
    // The search of all words is indexed in quiet moments otherwise, beside what is measured.
    while store.index().await? != IndexBacklog::default() {}
    let before = size(file)?;
    let made: Arc<dyn WordVectors> = Arc::new(LetterVectors);
    let began = Instant::now();
    while store.index_recall(None, Duration::from_secs(1)).await? > 0 {}
    row("nodes indexed", "ms", began.elapsed().as_secs_f64() * 1e3);
    row("size of the index", "MB", size(file)?.saturating_sub(before) as f64 / 1e6);
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut change = |path: String| NoteChange {
        path,
        stamp: "1".to_owned(),
        chunks: Some(
            (1..=3)
                .map(|line| NoteChunk {
                    first: line,
                    last: line,
                    text: prose(&mut random, 25),
                    at: 1_700_000_000_000,
                    author: AuthorClass::Owner,
                })
                .collect(),
        ),
    };
    let began = Instant::now();
    let known = store.indexed_notes("user").await?.len();
    for n in (known..notes).step_by(200) {
        let changes = (n..notes.min(n + 200)).map(|n| change(format!("memory/{n}.md"))).collect();
        store.put_notes("user", changes, Some(made.clone())).await?;
    }
    row("notes indexed", "ms", began.elapsed().as_secs_f64() * 1e3);
    let began = Instant::now();
    store.put_notes("user", vec![change("memory/0.md".to_owned())], Some(made.clone())).await?;
    row("a note that changed indexed", "ms", began.elapsed().as_secs_f64() * 1e3);
    for (name, vectors) in [("words", false), ("words and vectors", true)] {
        if vectors {
            let began = Instant::now();
            while store.index_recall(Some(made.clone()), Duration::from_secs(1)).await? > 0 {}
            row("vectors made", "ms", began.elapsed().as_secs_f64() * 1e3);
        }
        let mut random = Random(0x1234_5678_9abc_def1);
        let mut samples = Vec::with_capacity(QUESTIONS);
        for _ in 0..QUESTIONS {
            let query = RecallQuery {
                question: question(&mut random),
                memories: vec!["user".to_owned()],
                limit: 10,
                ..RecallQuery::default()
            };
            for _ in 0..times {
                let began = Instant::now();
                store.recall(query.clone(), vectors.then(|| made.clone())).await?;
                samples.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
        samples.sort_by(f64::total_cmp);
        for (share, of) in [(50, "median"), (99, "p99")] {
            row(&format!("a question by {name}, {of}"), "ms", samples[samples.len() * share / 100]);
        }
    }
    row("most memory of the process", "MB", most_memory()?);
    Ok(())
}

/// Vectors that are made of the letters of words: those with the same first four are near each other, some dozens of each.
struct LetterVectors;

impl WordVectors for LetterVectors {
    fn id(&self) -> &str {
        "bench"
    }

    fn width(&self) -> usize {
        WIDTH
    }

    fn word(&self, word: &str) -> Arc<[f32]> {
        let random = |letters: &str| {
            let seed = letters.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |seed, byte| {
                (seed ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
            });
            Random(seed | 1).vector()
        };
        let beginning = &word[..word.floor_char_boundary(4)];
        random(beginning).into_iter().zip(random(word)).map(|(shared, own)| shared + 0.8 * own).collect()
    }
}

/// The most memory that this process has had, as the kernel counts it.
fn most_memory() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1_024.0 / 1e6)
}

fn size(file: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for ending in ["", "-wal"] {
        let path = PathBuf::from(format!("{}{ending}", file.display()));
        bytes += std::fs::metadata(path).map_or(0, |found| found.len());
    }
    Ok(bytes)
}

/// A store that goes with this value.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        for ending in ["", "-wal", "-shm"] {
            std::fs::remove_file(format!("{}{ending}", self.0.display())).ok();
        }
    }
}

fn main() -> Outcome<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut times = 1;
    if let Some(at) = arguments.iter().position(|argument| argument == "--times") {
        times = arguments.drain(at..).nth(1).map_or(Ok(1), |number| number.parse())?;
    }
    let keeps = arguments.last().is_some_and(|last| last == "--keep");
    arguments.truncate(arguments.len() - usize::from(keeps));
    let [directory, nodes, notes] = arguments.as_slice() else {
        return Err("usage: recall_rate DIRECTORY NODES NOTES [--keep] [--times N]".into());
    };
    std::fs::create_dir_all(directory)?;
    let name = if keeps { format!("{nodes}-{notes}") } else { std::process::id().to_string() };
    let file = Path::new(directory).join(format!("recall-rate-{name}.db"));
    let scratch = (!keeps).then(|| Scratch(file.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(measure(&file, nodes.parse()?, notes.parse()?, times));
    drop(scratch);
    done
}
