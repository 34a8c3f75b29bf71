//! Many conversations in one process, with a model on loopback that answers at once: how soon a message is a request, and what the
//! process takes.
//!
//! `runtime_rate DIRECTORY SESSIONS RATE SECONDS IDLE_SECONDS` prints a JSON line for each row: `{"what": .., "unit": "ms",
//! "samples": [..]}`. `cargo xtask bench runtime` runs it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use quipu::Sealer;
use quipu::store::Graph;
use quipu_host::{Home, OpenRequest, SilentObserver};
use quipu_outbound::{Acknowledgement, MessageSink, Offer, SinkFuture, StreamOptions};
use quipu_protocol::UserInput;
use quipu_runtime::{
    Authority, Conversations, HostSessionLimits, HostSessions, LaneSettings, Lanes, MAIN_LANE, MessageInbox,
    NewMessage, QueueOverride, QueueSettings, Replies, ReplyRoute, ReplyRoutes, Route, RunRequest,
    SessionKey,
};
use quipu_testkit::Answer;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

type RateError = Box<dyn std::error::Error + Send + Sync>;
/// When the first request of a message came, by the number of the message.
type RequestTimes = Arc<Mutex<HashMap<usize, Instant>>>;

// As the published programs have it: what is let go of is given back to the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The only model; its address is still to be put in.
const MODELS: &str = include_str!("data/models.json");
/// How long sessions stay open at rest: somewhat less than they do.
const OPEN: Duration = Duration::from_secs(270);
/// Runs of people at the same time.
const AT_ONCE: usize = 16;

/// How much is done.
#[derive(Clone, Copy)]
struct Amount {
    sessions: usize,
    rate: usize,
    seconds: usize,
    idle: usize,
}

/// A chat that takes everything.
struct Everywhere;

impl MessageSink for Everywhere {
    fn offer(&self, _: Offer) -> SinkFuture<'_> {
        Box::pin(std::future::ready(Ok(Acknowledgement::default())))
    }
}

impl ReplyRoutes for Everywhere {
    fn route(&self, _: &SessionKey, _: &Route) -> Option<ReplyRoute> {
        Some(ReplyRoute::new(Arc::new(Self), StreamOptions::default()))
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), RateError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [dir, numbers @ ..] = &*words else {
        return Err("DIRECTORY SESSIONS RATE SECONDS IDLE_SECONDS".into());
    };
    let numbers: Vec<usize> = numbers.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [sessions, rate, seconds, idle] = numbers[..] else { return Err("four numbers are needed".into()) };
    let amount = Amount { sessions: sessions.max(1), rate: rate.max(1), seconds, idle };
    std::fs::create_dir_all(dir)?;
    let dir = tempfile::tempdir_in(dir)?;
    let asked = RequestTimes::default();
    let url = serve(asked.clone()).await?;
    let home = home(dir.path(), &url)?;
    let here = dir.path().canonicalize()?.join("work");
    let limits = HostSessionLimits { open: amount.sessions, ..HostSessionLimits::default() };
    let request = OpenRequest { here, ..OpenRequest::default() };
    let source = HostSessions::of_agents(home, limits, request).await.map_err(|failure| failure.message)?;
    let source = Arc::new(source);
    let store: Arc<dyn Graph> = source.store().clone();
    let sealer = Arc::new(Sealer::new([7; 32]));
    let (of, all) = (store.clone(), source.clone());
    let done: Result<(), RateError> = MessageInbox::with(store, sealer, |inbox, mut events| async move {
        let lanes = Lanes::new(LaneSettings::default());
        lanes.set_limit(MAIN_LANE, AT_ONCE);
        let replies = Replies::open(of, Arc::new(Everywhere)).await?;
        let conversations = Conversations::new(inbox, lanes, source, None).with_replies(replies.clone());
        tokio::select! {
            served = conversations.serve(&mut events) => Ok(served?),
            done = measure(&conversations, &replies, &asked, amount) => done,
        }
    })
    .await;
    all.close().await;
    done
}

async fn measure(
    conversations: &Conversations,
    replies: &Replies,
    asked: &RequestTimes,
    amount: Amount,
) -> Result<(), RateError> {
    let Amount { sessions, rate, seconds, idle } = amount;
    // Each conversation has a session, in which something was said.
    let begun = Instant::now();
    for first in (0..sessions).step_by(AT_ONCE) {
        let together = (first..sessions.min(first + AT_ONCE)).map(|n| async move {
            conversations.run(message(n, n)?).await?;
            Ok::<_, RateError>(())
        });
        try_join_all(together).await?;
    }
    replies.idle().await;
    row("open and speak in all", "ms", &[milliseconds(begun.elapsed())]);
    // What was needed to open them is given back.
    tokio::time::sleep(Duration::from_secs(2)).await;
    row("memory after they spoke", "MB", &[memory("VmRSS:")?]);
    let began = tokio::time::Instant::now();
    let (mut sent, mut runs) = (HashMap::new(), Vec::new());
    for n in 0..rate * seconds {
        let due = began + Duration::from_secs_f64(count(n) / count(rate));
        tokio::time::sleep_until(due).await;
        let number = sessions + n;
        sent.insert(number, Instant::now());
        let conversations = conversations.clone();
        let request = message(n % sessions, number)?;
        runs.push(tokio::spawn(async move { conversations.run(request).await }));
    }
    let mut ended = 0_usize;
    for run in runs {
        ended += usize::from(run.await?.is_ok());
    }
    replies.idle().await;
    let mut waits: Vec<f64> = {
        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        sent.iter()
            .filter_map(|(number, sent)| Some(milliseconds(asked.get(number)?.duration_since(*sent))))
            .collect()
    };
    waits.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        let at = (waits.len() * percent).div_ceil(100).saturating_sub(1);
        waits.get(at).copied().unwrap_or(f64::NAN)
    };
    row("message to first request, 50th percentile", "ms", &[at(50)]);
    row("message to first request, 99th percentile", "ms", &[at(99)]);
    row("message to first request, longest", "ms", &[at(100)]);
    row("messages without an answer", "%", &[100.0 * (1.0 - count(ended) / count(sent.len().max(1)))]);
    row("peak memory", "MB", &[memory("VmHWM:")?]);
    rest(Duration::from_secs(u64::try_from(idle)?)).await
}

/// What the process takes while nobody speaks: while the sessions are open, and once they are closed.
async fn rest(idle: Duration) -> Result<(), RateError> {
    let open = idle.min(OPEN);
    let (before, since) = (switches()?, Instant::now());
    tokio::time::sleep(open).await;
    // One for this timer.
    let woken = switches()?.saturating_sub(before);
    row("memory at rest", "MB", &[memory("VmRSS:")?]);
    row("context switches at rest", "1/s", &[count(woken) / since.elapsed().as_secs_f64()]);
    if idle > open {
        tokio::time::sleep(idle.saturating_sub(open)).await;
        row("memory at rest, sessions closed", "MB", &[memory("VmRSS:")?]);
    }
    Ok(())
}

/// The message of this number in the conversation of this number.
fn message(conversation: usize, number: usize) -> Result<RunRequest, RateError> {
    let key = SessionKey::parse(&format!("agent:main:chat:direct:{conversation}"))?;
    let none = QueueOverride::default();
    let message = NewMessage {
        message_id: Some(number.to_string()),
        route: Route { channel: "chat".into(), to: Some(conversation.to_string()), ..Route::default() },
        authority: Authority {
            sender: Some(conversation.to_string()),
            is_owner: true,
            ..Authority::default()
        },
        from: None,
        input: UserInput::from(format!("number-{number}-")),
        at: 0,
    };
    Ok(RunRequest { key, message, policy: QueueSettings::default().resolve("chat", &none, &none) })
}

/// A home whose only model is at this address.
fn home(dir: &Path, url: &str) -> Result<Home, RateError> {
    let path = dir.canonicalize()?;
    for made in ["home", "work"] {
        std::fs::create_dir_all(path.join(made))?;
    }
    std::fs::write(path.join("home/models.json"), MODELS.replace("URL", url))?;
    let settings = json!({ "defaultModel": "test-1" });
    std::fs::write(path.join("home/settings.json"), settings.to_string())?;
    Ok(Home::at(path.join("home"), Arc::new(SilentObserver)))
}

/// A model that answers at once, on kept connections.
async fn serve(asked: RequestTimes) -> Result<String, RateError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let asked = asked.clone();
            // One that the program closed has ended.
            tokio::spawn(async move { drop(answer(connection, &asked).await) });
        }
    });
    Ok(url)
}

async fn answer(connection: TcpStream, asked: &RequestTimes) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut connection = BufReader::new(connection);
    let body = Answer::new().text("All right.").stream();
    loop {
        let (mut length, mut line) = (0, String::new());
        let mut came = None;
        loop {
            line.clear();
            if connection.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            came.get_or_insert_with(Instant::now);
            let header = line.trim().to_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if header.is_empty() {
                break;
            }
        }
        let mut request = vec![0; length];
        connection.read_exact(&mut request).await?;
        let request = String::from_utf8_lossy(&request);
        let number =
            request.rfind("number-").and_then(|at| request[at + 7..].split('-').next()?.parse().ok());
        if let (Some(number), Some(came)) = (number, came) {
            asked.lock().unwrap_or_else(PoisonError::into_inner).entry(number).or_insert(came);
        }
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(head.as_bytes()).await?;
    }
}

#[expect(clippy::print_stdout, reason = "the numbers are this program's output")]
fn row(what: &str, unit: &str, samples: &[f64]) {
    println!("{}", json!({ "what": what, "unit": unit, "samples": samples }));
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

fn count(number: usize) -> f64 {
    number as f64
}

/// A figure of this process, in megabytes; 0 where the system has none.
fn memory(name: &str) -> Result<f64, RateError> {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return Ok(0.0) };
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such figure")?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1_024.0 / 1e6)
}

/// Context switches of all threads so far.
fn switches() -> Result<usize, RateError> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Ok(0) };
    let mut sum = 0;
    for task in tasks {
        let status = std::fs::read_to_string(task?.path().join("status")).unwrap_or_default();
        let counts = status.lines().filter(|line| line.contains("ctxt_switches:"));
        sum += counts.filter_map(|line| line.split_whitespace().last()?.parse::<usize>().ok()).sum::<usize>();
    }
    Ok(sum)
}
