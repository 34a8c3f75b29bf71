//! What `quipu proxy` adds to a call of a client that asks the server itself in turn with it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::programs::{Contender, Stage};
use super::shared::milliseconds;
use super::terminal::percentile;
use super::wires::Reply;
use super::{Benchmark, Context, Row};

pub(super) const BENCHMARK: Benchmark =
    Benchmark { name: "proxy", about: "what `quipu proxy` adds to a call and to a stream", run };

/// Calls of each kind.
const CALLS: usize = 500;
/// Bytes of each request, about: a conversation.
const REQUEST: usize = 200 << 10;
/// Pieces of a stream, and from one to the next.
const PIECES: usize = 20;
const EVERY: Duration = Duration::from_millis(5);
/// What ends an answer in pieces.
const END: &[u8] = b"0\r\n\r\n";

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (kind, paces) in [("a call", false), ("a stream", true)] {
        let what = format!("proxy, {kind}");
        if context.wants(BENCHMARK.name, &what) {
            eprintln!("bench: {what}");
            rows.extend(calls(context, &what, paces)?);
        }
    }
    Ok(rows)
}

fn calls(context: &Context, what: &str, paces: bool) -> Result<Vec<Row>> {
    let stage = Stage::new(context, Contender::QuipuOpen)?;
    let count = if context.sizes.is_smoke() { 5 } else { CALLS };
    let reply = |_| {
        let text: Vec<String> = (0..PIECES).map(|at| format!("word {at} ")).collect();
        let reply = stage.wire().text(&text);
        if paces { paced(&reply) } else { reply }
    };
    stage.load((0..3 * (count + 1)).map(reply));
    let proxy = Proxy::start(&stage)?;
    let upstream = stage.server_url().replace("http://", "");
    let (mut direct, mut through) = (TcpStream::connect(upstream)?, TcpStream::connect(&proxy.address)?);
    let filler = "word ".repeat(REQUEST / 5);
    let (mut plain, mut proxied, mut added, mut noise) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // In turn; the first is not counted.
    for turn in 0..=count {
        let text = |text: &str| json!([{ "type": "text", "text": text }]);
        let messages = json!([
            { "role": "user", "content": text(&filler) },
            { "role": "assistant", "content": text("Yes.") },
            { "role": "user", "content": text(&format!("Turn {turn}.")) },
        ]);
        let body = json!({ "model": "m", "max_tokens": 100, "stream": true, "messages": messages,
            "metadata": { "user_id": "session_bench" } });
        let body = body.to_string();
        let without = ask(&mut direct, &body)?;
        let with = ask(&mut through, &body)?;
        let again = ask(&mut direct, &body)?;
        if turn > 0 {
            noise.push(again - without);
            plain.push(without);
            proxied.push(with);
            added.push(with - without);
        }
    }
    let memory = proxy.memory()?;
    proxy.end(count + 1)?;
    let mut rows = Vec::new();
    let kinds = [
        ("direct", &plain),
        ("through the proxy", &proxied),
        ("added", &added),
        ("a second direct one less the first", &noise),
    ];
    for (kind, times) in kinds {
        for (part, of) in [("50th", 0.5), ("99th", 0.99)] {
            let what = format!("{what}, {kind}, {part} percentile");
            rows.push(Row { what, unit: "ms", samples: percentile(times, of).into_iter().collect() });
        }
    }
    // What is slow by itself now and then is slow in both.
    let worst =
        percentile(&proxied, 0.99).zip(percentile(&plain, 0.99)).map(|(with, without)| with - without);
    rows.push(Row {
        what: format!("{what}, 99th percentile by the one without"),
        unit: "ms",
        samples: worst.into_iter().collect(),
    });
    rows.push(Row { what: format!("{what}, peak memory"), unit: "MB", samples: vec![memory] });
    Ok(rows)
}

/// The same answer in pieces, one after the other.
fn paced(reply: &Reply) -> Reply {
    let whole = reply.pieces.concat();
    let size = whole.len().div_ceil(PIECES).max(1);
    Reply { pieces: whole.chunks(size).map(<[u8]>::to_vec).collect(), every: Some(EVERY) }
}

/// Milliseconds until the whole answer is there.
fn ask(connection: &mut TcpStream, body: &str) -> Result<f64> {
    connection.set_nodelay(true)?;
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\nContent-Type: application/json\r\n\
         x-api-key: bench\r\nContent-Length: {}\r\n\r\n",
        connection.peer_addr()?,
        body.len()
    );
    let start = Instant::now();
    connection.write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 64 << 10];
    while !answer.ends_with(END) {
        match connection.read(&mut buffer)? {
            0 => bail!("the answer ended early: {}", String::from_utf8_lossy(&answer)),
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
    let time = milliseconds(start);
    ensure!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    Ok(time)
}

struct Proxy {
    process: Child,
    lines: BufReader<std::process::ChildStderr>,
    address: String,
}

impl Proxy {
    fn start(stage: &Stage<'_>) -> Result<Self> {
        let mut command = stage.program()?;
        let upstream = format!("messages={}", stage.server_url());
        command.args(["proxy", "--listen", "127.0.0.1:0", "--upstream", &upstream]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().context("cannot start the proxy")?;
        let mut lines = BufReader::new(process.stderr.take().context("no pipe from the proxy")?);
        let mut line = String::new();
        lines.read_line(&mut line)?;
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split(';').next());
        let address = address.with_context(|| format!("the proxy names no address: {line}"))?.to_owned();
        Ok(Self { process, lines, address })
    }

    /// The most that it had, in megabytes.
    fn memory(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no such figure")?;
        let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kilobytes * 1_024.0 / 1e6)
    }

    /// Ends it as a person does: it has kept every exchange.
    fn end(mut self, exchanges: usize) -> Result<()> {
        kill(Pid::from_raw(i32::try_from(self.process.id())?), Signal::SIGINT)?;
        let mut said = String::new();
        self.lines.read_to_string(&mut said)?;
        self.process.wait()?;
        ensure!(said.contains(&format!("{exchanges} exchanges kept")), "the proxy lost exchanges: {said}");
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Ended already, unless something failed.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
