//! How fast text is indexed for the search, how large the indexes are, and how long searches take.
//!
//! `search_rate DIRECTORY NODES QUERIES` makes a store of so many nodes in the directory, which has to be on a real
//! disk, and prints a JSON line for each row: `{"what": .., "unit": .., "samples": [..]}`. The text is made up: words
//! as often as in natural text (Zipf), and calls with paths and code. `cargo xtask bench search` runs it.
//! `search_rate STORE` makes the indexes of a store anew, and searches nothing: for `cargo xtask bench import`.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quipu_dag::{Blob, Node, NodeRecord};
use quipu_protocol::{Entry, Epoch, SessionId, SessionStart, StepInfo};
use quipu_store::{
    Commit, IndexBacklog, MatchMode, OpenOptions, Order, ReadModel as _, RefMove, RefName, SearchQuery,
    SqliteStore, Store, Upkeep, UsageGrouping, UsageQuery,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Makes the n-th of a mix of searches.
type QueryMaker = fn(&mut Random, usize) -> String;

/// Nodes of one session.
const SESSION: usize = 400;
/// Nodes of one commit.
const BATCH: usize = 200;
/// Different words, beside the numbers that make text unlike other text.
const WORDS: u64 = 60_000;

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
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank, clamped"
        )]
        let rank = (WORDS as f64).powf(self.below(1 << 20) as f64 / (1u64 << 20) as f64) as u64;
        rank.clamp(1, WORDS)
    }
}

/// The word of a rank: short when common, spelled from syllables.
fn word(rank: u64) -> String {
    const SYLLABLES: [&str; 32] = [
        "ta", "re", "in", "so", "ko", "mi", "le", "un", "per", "tra", "con", "is", "ed", "or", "al", "no",
        "ve", "chi", "da", "qu", "ster", "ing", "po", "ba", "ru", "fe", "gon", "lu", "za", "he", "wi", "ny",
    ];
    let mut rest = rank;
    let mut word = String::new();
    while rest > 0 {
        word.push_str(SYLLABLES[usize::try_from(rest % 32).unwrap_or(0)]);
        rest /= 32;
    }
    word
}

fn prose(random: &mut Random, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.push_str(&word(random.rank()));
        text.push(match random.below(12) {
            0 => '.',
            1 => '\n',
            _ => ' ',
        });
    }
    text
}

fn path(random: &mut Random) -> String {
    format!(
        "src/{}/{}_{}.rs",
        word(random.below(40) + 1),
        word(random.below(400) + 1),
        word(random.below(4_000) + 1)
    )
}

fn code(random: &mut Random, bytes: usize) -> String {
    let mut text = String::new();
    while text.len() < bytes {
        let [name, of, other] = [(); 3].map(|()| word(random.rank()));
        // Writing to a string cannot fail.
        writeln!(text, "    let {name}_{of} = self.{other}.get_{of}({});", random.below(1_000)).ok();
    }
    text
}

/// The parts of the n-th node of a session, as agents write them: a question, calls, results, answers.
fn parts(random: &mut Random, n: usize) -> (&'static str, Vec<Blob>) {
    match n % 8 {
        0 => ("user", vec![Blob::text(&prose(random, 200))]),
        1 | 3 | 5 => {
            let arguments = match n % 8 {
                1 => serde_json::json!({ "path": path(random) }),
                3 => {
                    serde_json::json!({ "command": format!("cargo test -p {} {}", word(random.below(90) + 1), path(random)) })
                }
                _ => {
                    serde_json::json!({ "path": path(random), "oldText": code(random, 200), "newText": code(random, 400) })
                }
            };
            let call = serde_json::json!({ "id": format!("c{n}"), "name": (["read", "bash", "edit"][n % 8 / 2]), "arguments": arguments });
            (
                "assistant",
                vec![Blob::text(&prose(random, 150)), Blob::from_canonical("tool_call", call.to_string())],
            )
        }
        2 | 4 | 6 => {
            let text = if n % 8 == 2 { code(random, 3_000) } else { prose(random, 1_500) };
            let result = serde_json::json!({ "toolCallId": format!("c{}", n - 1), "toolName": "read", "content": [{ "type": "text", "text": text }], "isError": false });
            ("toolResult", vec![Blob::from_canonical("tool_result", result.to_string())])
        }
        _ => (
            "assistant",
            vec![Blob::text(&format!("{}\n```rust\n{}```\n", prose(random, 700), code(random, 300)))],
        ),
    }
}

fn start(session: &SessionId, n: usize) -> Entry {
    Entry::Session(SessionStart {
        session: session.clone(),
        cwd: format!("/project/{}", n % 40),
        agent: ["quipu", "pi", "other"][n % 3].to_owned(),
        parent_session: None,
        epoch: Epoch { provider: "p".to_owned(), model: "m".to_owned(), ..Epoch::default() },
    })
}

/// Puts so many nodes into the store; says how many bytes of text they have.
async fn fill(store: &SqliteStore, nodes: usize) -> Outcome<usize> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut bytes = 0;
    let mut parent = None;
    let mut batch = Commit::default();
    for n in 0..nodes {
        let within = n % SESSION;
        let session = SessionId::from(format!("session-{}", n / SESSION));
        let (role, blobs) = if within == 0 {
            parent = None;
            let encoded = quipu_transcript::encode(&start(&session, n / SESSION), &StepInfo::default());
            (encoded.role, encoded.blobs)
        } else {
            let (role, blobs) = parts(&mut random, within);
            bytes += blobs.iter().map(|blob| blob.content.len()).sum::<usize>();
            (role.to_owned(), blobs)
        };
        let record = NodeRecord {
            parent,
            role,
            parts: blobs.iter().map(|blob| blob.id).collect(),
            timestamp: 1_700_000_000_000 + i64::try_from(n)?,
            external_id: Some(format!("n{n}")),
            system_prompt: None,
        };
        let node = Node::new(record, None, None);
        if within == 0 {
            batch.moves.push(RefMove::publish(RefName::session(&session), node.id, "bench"));
        }
        parent = Some(node.id);
        batch.blobs.extend(blobs);
        batch.nodes.push(node);
        if batch.nodes.len() == BATCH || n + 1 == nodes {
            store.commit(std::mem::take(&mut batch)).await?;
        }
    }
    Ok(bytes)
}

/// Processor time of this process, in seconds.
fn processor() -> f64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    usage.map_or(0.0, |usage| {
        let seconds = |time: nix::sys::time::TimeVal| {
            #[expect(clippy::cast_precision_loss, reason = "far below what a double holds")]
            let (whole, micros) = (time.tv_sec() as f64, time.tv_usec() as f64);
            whole + micros / 1e6
        };
        seconds(usage.user_time()) + seconds(usage.system_time())
    })
}

#[expect(clippy::print_stdout, reason = "the numbers are this program's output")]
fn row(what: &str, unit: &str, samples: &[f64]) {
    println!("{}", serde_json::json!({ "what": what, "unit": unit, "samples": samples }));
}

/// The stated mix: common, middling and rare words, two of them, phrases, and words that nobody wrote.
fn query(random: &mut Random, n: usize) -> String {
    let [common, middling, rare] =
        [(1, 30), (30, 2_000), (2_000, WORDS)].map(|(from, to)| word(from + random.below(to - from)));
    match n % 8 {
        0 => common,
        1 => middling,
        2 => rare,
        3 => format!("{common} {middling}"),
        4 => format!("{common} {}", word(1 + random.below(30))),
        5 => format!("{middling} {rare}"),
        6 => format!("\"{common} {}\"", word(1 + random.below(30))),
        _ => format!("absent{rare}"),
    }
}

/// The same for parts: of common names, of paths, of rare names, across signs, and absent.
fn part(random: &mut Random, n: usize) -> String {
    let [common, rare] = [(1, 60), (2_000, WORDS)].map(|(from, to)| word(from + random.below(to - from)));
    match n % 6 {
        0 => format!(".get_{common}"),
        1 => path(random)[2..].to_owned(),
        2 => rare[1..].to_owned(),
        3 => format!("_{common} = self"),
        4 => format!("{}_{rare}", &common[1..]),
        _ => format!("{common}xq{rare}"),
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let [store] = arguments.as_slice() {
        let file = Path::new(store);
        let bytes = text_of(file)?;
        let store = SqliteStore::open(file, &OpenOptions::default())?;
        return runtime.block_on(index(&store, file, bytes));
    }
    let [directory, nodes, queries] = arguments.as_slice() else {
        return Err("usage: search_rate DIRECTORY NODES QUERIES, or search_rate STORE".into());
    };
    let (nodes, queries) = (nodes.parse::<usize>()?, queries.parse::<usize>()?);
    std::fs::create_dir_all(directory)?;
    let file = Scratch(Path::new(directory).join(format!("search-rate-{}.db", std::process::id())));
    runtime.block_on(measure(&file.0, nodes, queries))
}

/// Makes the indexes of the search anew: how fast, and how large they are beside so many bytes of text.
async fn index(store: &SqliteStore, file: &Path, bytes: usize) -> Outcome<()> {
    #[expect(clippy::cast_precision_loss, reason = "megabytes")]
    let megabytes = bytes as f64 / 1e6;
    // Whatever else is derived is made first: what was done, which comes with the index, is none of it.
    let usage = UsageQuery { by: UsageGrouping::Session, since: None, until: None };
    while store.usage(usage.clone()).await?.behind > 0 {}
    // What was indexed meanwhile does not count.
    let connection = rusqlite::Connection::open(file)?;
    for table in ["quipu_x_search", "quipu_x_late", "quipu_x_words", "quipu_x_parts"] {
        connection.execute_batch(&format!("DROP TABLE IF EXISTS {table}"))?;
    }
    let before = size(file)?;
    let (began, clock) = (processor(), Instant::now());
    let mark = move || (processor() - began, clock.elapsed().as_secs_f64());
    // The parts of words come after the words: when those are all there, only the table tells.
    let over = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&over);
    let looks = std::thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) && !has_all_words(&connection) {
            std::thread::sleep(Duration::from_millis(2));
        }
        mark()
    });
    while store.index().await? != IndexBacklog::default() {}
    let all = mark();
    over.store(true, Ordering::Relaxed);
    let words = looks.join().map_err(|_| "the thread that looks has fallen")?;
    row("text", "MB", &[megabytes]);
    row("words indexed, by processor time", "MB/s", &[megabytes / words.0]);
    row("words indexed, by the clock", "MB/s", &[megabytes / words.1]);
    row("words and parts indexed, by processor time", "MB/s", &[megabytes / all.0]);
    let after = size(file)?;
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    row("size of the indexes", "% of text", &[(after - before) as f64 * 100.0 / bytes as f64]);
    Ok(())
}

/// Whether the words of all nodes are in the index.
fn has_all_words(connection: &rusqlite::Connection) -> bool {
    let reached = "SELECT seq >= (SELECT max(rowid) FROM nodes) FROM quipu_x_search WHERE kind = 1";
    // The table is not there before the first step.
    connection.query_row(reached, [], |row| row.get(0)).unwrap_or(false)
}

async fn measure(file: &Path, nodes: usize, queries: usize) -> Outcome<()> {
    let store = SqliteStore::open(file, &OpenOptions::default())?;
    let bytes = fill(&store, nodes).await?;
    index(&store, file, bytes).await?;
    let sets: [(&str, MatchMode, Order, QueryMaker); 4] = [
        ("words", MatchMode::Words, Order::Newest, query),
        ("words, best", MatchMode::Words, Order::Best, query),
        ("parts", MatchMode::Substrings, Order::Newest, part),
        ("words, then parts", MatchMode::Any, Order::Newest, query),
    ];
    for (name, matching, order, make) in sets.into_iter().filter(|_| queries > 0) {
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        let mut samples = Vec::with_capacity(queries);
        for n in 0..queries {
            let query = SearchQuery {
                words: make(&mut random, n),
                matching,
                order,
                limit: 20,
                per_session: Some(5),
                ..SearchQuery::default()
            };
            let began = Instant::now();
            store.search(query).await?;
            let took = began.elapsed().as_secs_f64() * 1e3;
            samples.push(took);
        }
        samples.sort_by(f64::total_cmp);
        let at = |share: usize| samples[(samples.len() * share / 100).min(samples.len() - 1)];
        row(&format!("{name}, median"), "ms", &[at(50)]);
        row(&format!("{name}, 99th percentile"), "ms", &[at(99)]);
    }
    Ok(())
}

/// Bytes of what was said, and of what tools were given and gave.
fn text_of(file: &Path) -> Outcome<usize> {
    let connection = rusqlite::Connection::open(file)?;
    let sum = "SELECT coalesce(sum(length(CAST(content AS BLOB))), 0) FROM blobs \
               WHERE type IN ('text', 'thinking', 'tool_call', 'tool_result')";
    Ok(usize::try_from(connection.query_row(sum, [], |row| row.get::<_, i64>(0))?)?)
}

/// Bytes of the pages that are in use.
fn size(file: &Path) -> Outcome<i64> {
    let connection = rusqlite::Connection::open(file)?;
    let number = |what: &str| connection.query_row(&format!("PRAGMA {what}"), [], |row| row.get::<_, i64>(0));
    Ok((number("page_count")? - number("freelist_count")?) * number("page_size")?)
}

/// A file that is removed with its companions.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        for end in ["", "-wal", "-shm"] {
            drop(std::fs::remove_file(format!("{}{end}", self.0.display())));
        }
    }
}
