//! What of a conversation still stands after a compaction whose summary is empty: that which needs no model.
//!
//! ```sh
//! cargo run --release -p quipu-archive --example survive    # the table of docs/compaction.md
//! ```
//!
//! A conversation grows message by message and is compacted whenever it would leave too little of its window. Then
//! the facts that stood before the last cut are looked for in what the next request would hold: in the user's words,
//! in the lists of files, in the messages that were kept. Beside it the same for Pi's rules: no words of the user are
//! carried, the lists of files are not shortened, and the numbers of the settings do not shrink with the window.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use quipu_protocol::{
    AssistantMessage, CompactionSummaryMessage, Content, Entry, Json, Message, Model, StopReason, ToolCall,
    ToolResultMessage,
};
use quipu_store::{Graph, LineageEnd, SessionQuery, SqliteStore, decode_nodes};
use quipu_transcript::{
    TouchedFiles, compaction_note, conversation_text, cut, estimate_tokens, message_of, words_of_note,
};

const RESERVE: u64 = 16_384;
const KEEP: u64 = 20_000;
/// As in the engine.
const SAID: u64 = 32_000;

/// A kind of facts, with what finds them in a text.
struct Kind {
    name: &'static str,
    find: fn(&str) -> Vec<&str>,
    /// Only what the user says, or only what tools return.
    of: TextSource,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TextSource {
    User,
    Results,
    All,
}

const KINDS: [Kind; 4] = [
    Kind { name: "user's sentences", find: sentences, of: TextSource::User },
    Kind { name: "file paths", find: paths, of: TextSource::All },
    Kind { name: "error lines", find: errors, of: TextSource::Results },
    Kind { name: "identifiers", find: identifiers, of: TextSource::All },
];

fn sentences(text: &str) -> Vec<&str> {
    let ends = |c: char| matches!(c, '.' | '!' | '?' | '\n');
    text.split(ends).map(str::trim).filter(|sentence| sentence.chars().count() >= 8).collect()
}

fn words(text: &str, part: fn(char) -> bool) -> impl Iterator<Item = &str> {
    text.split(move |c| !part(c)).filter(|word| (4..200).contains(&word.len()))
}

fn paths(text: &str) -> Vec<&str> {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '~' | '@');
    let words = words(text, part).map(|word| word.trim_end_matches(['.', '/']));
    let is_path = |word: &&str| {
        word.rsplit_once('/').is_some_and(|(_, file)| {
            file.rsplit_once('.').is_some_and(|(stem, end)| !stem.is_empty() && (1..6).contains(&end.len()))
        })
    };
    words.filter(is_path).collect()
}

fn errors(text: &str) -> Vec<&str> {
    let tells = |line: &&str| {
        let small = line.to_lowercase();
        ["error", "failed", "panicked", "exception"].iter().any(|word| small.contains(word))
    };
    text.lines().map(str::trim).filter(|line| (8..300).contains(&line.len())).filter(tells).collect()
}

fn identifiers(text: &str) -> Vec<&str> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_one = |word: &&str| {
        let humps =
            word.as_bytes().windows(2).any(|two| two[0].is_ascii_lowercase() && two[1].is_ascii_uppercase());
        !word.as_bytes()[0].is_ascii_digit() && (humps || word.trim_matches('_').contains('_'))
    };
    words(text, part).filter(is_one).collect()
}

/// All that a message says, results whole.
fn text_of(message: &Message) -> String {
    match message {
        Message::ToolResult(result) => {
            result.content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
        }
        Message::Assistant(answer) => {
            let calls = answer.tool_calls().map(|call| plain(&call.arguments.value()));
            calls.chain([answer.text()]).collect::<Vec<_>>().join("\n")
        }
        other => conversation_text(&[Arc::new(other.clone())]),
    }
}

/// The strings of a value, as the model reads them.
fn plain(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join("\n"),
        serde_json::Value::Object(members) => members.values().map(plain).collect::<Vec<_>>().join("\n"),
        other => other.to_string(),
    }
}

fn facts(kind: &Kind, messages: &[Arc<Message>]) -> BTreeSet<String> {
    let wanted = |message: &&Arc<Message>| match (&***message, kind.of) {
        (Message::CompactionSummary(_), _) => false,
        (_, TextSource::All)
        | (Message::User(_), TextSource::User)
        | (Message::ToolResult(_), TextSource::Results) => true,
        (_, TextSource::User | TextSource::Results) => false,
    };
    let texts = messages.iter().filter(wanted).map(|message| match &**message {
        Message::User(user) => user.content.text(),
        other => text_of(other),
    });
    texts.flat_map(|text| (kind.find)(&text).into_iter().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// What carries facts over the cut.
struct CompactedContext {
    compactions: usize,
    /// Everything that was said before the last cut.
    gone: Vec<Arc<Message>>,
    words: String,
    files: String,
    tail: Vec<Arc<Message>>,
}

/// Lets a conversation grow and compacts it, as the engine does or by Pi's rules.
fn grow(messages: &[Arc<Message>], window: u64, ours: bool) -> CompactedContext {
    let quarter = |tokens: u64| if ours { tokens.min(window / 4) } else { tokens };
    let (reserve, keep) = (quarter(RESERVE), quarter(KEEP));
    let most = usize::try_from(SAID.min(window / 2)).unwrap_or(usize::MAX);
    let mut after = CompactedContext {
        compactions: 0,
        gone: Vec::new(),
        words: String::new(),
        files: String::new(),
        tail: Vec::new(),
    };
    let mut files = TouchedFiles::default();
    for message in messages {
        after.tail.push(message.clone());
        let size: u64 = after.tail.iter().map(|message| estimate_tokens(message)).sum();
        if size <= window.saturating_sub(reserve) {
            continue;
        }
        let Some(cut) = cut(&after.tail, keep) else { continue };
        let taken = &after.tail[cut.begin..cut.first_kept];
        let all = size;
        let freed: u64 = taken.iter().map(|message| estimate_tokens(message)).sum();
        if ours && freed < all / 10 {
            continue;
        }
        files.add(taken);
        let earlier = Some(after.words.as_str()).filter(|words| !words.is_empty());
        let note = if ours {
            compaction_note("", earlier, taken, &files, most)
        } else {
            compaction_note("", None, &[], &files, usize::MAX)
        };
        after.words = words_of_note(&note).unwrap_or_default().to_owned();
        after.files = note.split_once("-files>\n").map(|(_, lists)| lists.to_owned()).unwrap_or_default();
        after.gone.extend(taken.iter().cloned());
        let summary = CompactionSummaryMessage { summary: note, tokens_before: size, timestamp: 0 };
        let kept = after.tail.split_off(cut.first_kept);
        after.tail = [Arc::new(Message::CompactionSummary(summary))].into_iter().chain(kept).collect();
        after.compactions += 1;
    }
    after
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "| session | window | compactions | facts | before the cut | ours | words | files | tail | Pi's way |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|")?;
    let real = real()?;
    let sessions = [
        ("real, 990 messages", &real, 200_000),
        ("real, 990 messages", &real, 64_000),
        ("coding, 60 tasks", &coding(60), 200_000),
        ("coding, 60 tasks", &coding(60), 32_000),
        ("talk, 400 messages", &talk(400), 32_000),
        ("talk, 400 messages", &talk(400), 8_192),
    ];
    for (name, messages, window) in sessions {
        let (ours, theirs) = (grow(messages, window, true), grow(messages, window, false));
        for kind in &KINDS {
            let gone = facts(kind, &ours.gone);
            if gone.is_empty() {
                continue;
            }
            let share = |gone: &BTreeSet<String>, held: &[BTreeSet<String>]| {
                let stands = gone.iter().filter(|fact| held.iter().any(|set| set.contains(*fact))).count();
                format!("{:.0} %", 100.0 * stands as f64 / gone.len().max(1) as f64)
            };
            let found =
                |text: &str| (kind.find)(text).into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
            let all = Kind { of: TextSource::All, ..*kind };
            let parts = |after: &CompactedContext| {
                [found(&after.words), found(&after.files), facts(&all, &after.tail)]
            };
            let [words, files, tail] = parts(&ours);
            writeln!(
                out,
                "| {name} | {window} | {} | {} | {} | {} | {} | {} | {} | {} ({}) |",
                ours.compactions,
                kind.name,
                gone.len(),
                share(&gone, &parts(&ours)),
                share(&gone, &[words]),
                share(&gone, &[files]),
                share(&gone, &[tail]),
                share(&facts(kind, &theirs.gone), &parts(&theirs)),
                theirs.compactions,
            )?;
        }
    }
    Ok(())
}

/// The messages of a real session, without its compactions.
fn real() -> Result<Vec<Arc<Message>>, Box<dyn std::error::Error>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/before-compaction.jsonl.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path)?).read_to_string(&mut text)?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("session.jsonl");
    std::fs::write(&file, text)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let store: Arc<dyn Graph> = Arc::new(SqliteStore::in_memory()?);
        let sealer = Arc::new(quipu_seal::Sealer::new([0; 32]));
        let cache = quipu_archive::ImportCache::load(&*store).await?;
        let options = quipu_archive::pi::ImportOptions { dry_run: false, progress: &|_| {} };
        quipu_archive::pi::import(&store, &sealer, &file, &cache, &options).await?;
        let row = store.sessions(SessionQuery::default()).await?.remove(0);
        let nodes = store.lineage(row.head.ok_or("no head")?, LineageEnd::Root).await?;
        let entries = decode_nodes(&*store, &nodes).await?;
        let is_message = |entry: &Entry| matches!(entry, Entry::Message(_));
        let entries = entries.iter().filter(|decoded| is_message(&decoded.entry));
        Ok(entries.filter_map(|one| Some(Arc::new(message_of(&one.entry)?.into_owned()))).collect())
    })
}

fn answer(content: Vec<Content>) -> Arc<Message> {
    let answer = AssistantMessage::of(&Model::default(), StopReason::Stop, 1);
    Arc::new(Message::Assistant(AssistantMessage { content, ..answer }))
}

/// Tasks of seven calls each: files are read and changed, and commands fail.
fn coding(tasks: usize) -> Vec<Arc<Message>> {
    let mut messages = Vec::new();
    for task in 0..tasks {
        let said = format!(
            "Please make handle_request_{task} return early when the cache is cold. Do not touch the public names of \
             module m{task}. The deadline of {task} milliseconds must hold!"
        );
        messages.push(Arc::new(Message::user(said, 1)));
        for step in 0..7 {
            let path = format!("src/m{task}/part_{}.rs", step % 4);
            let (tool, arguments, result) = match step {
                0..4 => {
                    let lines = (0..60)
                        .map(|n| format!("fn helper_{task}_{step}_{n}() -> Option<CacheLine> {{ None }}\n"));
                    ("read", serde_json::json!({ "path": path }), lines.collect::<String>())
                }
                4 => {
                    let edits = serde_json::json!([{ "oldText": "None", "newText": format!("early_return_{task}()") }]);
                    ("edit", serde_json::json!({ "path": path, "edits": edits }), "Edited.".to_owned())
                }
                _ => {
                    let log = format!(
                        "error[E0{task:03}]: mismatched types in handle_request_{task}\n  --> {path}:{step}:9\n\
                         test m{task}::cold_cache_{step} ... FAILED\n"
                    );
                    (
                        "bash",
                        serde_json::json!({ "command": format!("cargo test -p m{task}") }),
                        log.repeat(3),
                    )
                }
            };
            let id = format!("c{task}-{step}");
            let call = ToolCall {
                id: id.as_str().into(),
                name: tool.into(),
                arguments: Json::from(&arguments),
                thought_signature: None,
                namespace: None,
            };
            messages.push(answer(vec![
                Content::text(format!("Step {step} of task {task}.")),
                Content::ToolCall(call),
            ]));
            messages.push(Arc::new(Message::ToolResult(ToolResultMessage {
                tool_call_id: id.as_str().into(),
                tool_name: tool.into(),
                content: vec![Content::text(result)],
                details: None,
                usage: None,
                is_error: false,
                timestamp: 1,
            })));
        }
        messages.push(answer(vec![Content::text(format!(
            "Task {task} is done: handle_request_{task} returns early."
        ))]));
    }
    messages
}

/// Questions and answers without tools.
fn talk(count: usize) -> Vec<Arc<Message>> {
    (0..count / 2)
        .flat_map(|n| {
            let said = format!(
                "What about question number {n} of the list. I prefer answer {n} to be short and exact."
            );
            let told = format!("Answer {n}: {}", "it depends on the settings of the house. ".repeat(20));
            [Arc::new(Message::user(said, 1)), answer(vec![Content::text(told)])]
        })
        .collect()
}
