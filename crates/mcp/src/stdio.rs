//! A server as a child process: lines over its pipes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_workspace::{ProcessRegistry, Service, ServiceCommand, ServicePipes};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, SharedState, Transport};
use crate::error::{ConnectError, RequestError};
use crate::limits::{MESSAGE_BYTES, NOISE_LINES, STDERR_BYTES, WRITE};
use crate::visible::one_line;

/// Messages that wait to be written.
const WAITING: usize = 64;
/// How long a server may take to end by itself once its input is closed.
const END: Duration = Duration::from_secs(2);
/// How long the end of a server is waited for that closed its output.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What to start.
pub(crate) struct Program {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) environment: Vec<(OsString, Option<OsString>)>,
    pub(crate) cwd: PathBuf,
    pub(crate) owner: String,
}

/// The end of what a server wrote to stderr.
#[derive(Debug, Clone, Default)]
pub(crate) struct Complaints(Arc<Mutex<Vec<u8>>>);

impl Complaints {
    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        if kept.len() > STDERR_BYTES {
            let cut = kept.len() - STDERR_BYTES;
            kept.drain(..cut);
        }
    }

    pub(crate) fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }

    /// Its last line, for an error.
    fn last(&self) -> Option<String> {
        let text = self.text();
        let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        Some(one_line(last, 300))
    }
}

/// Starts a server.
pub(crate) async fn connect(
    program: Program,
    registry: Arc<ProcessRegistry>,
    complaints: &Complaints,
    roots: Vec<String>,
) -> Result<Client, ConnectError> {
    let shown = one_line(&program.command, 200);
    // A prompt is drawn meanwhile.
    let started = tokio::task::spawn_blocking(move || {
        let command = ServiceCommand {
            program: &program.command,
            arguments: &program.args,
            environment: &program.environment,
            cwd: &program.cwd,
            owner: &program.owner,
        };
        Service::start(&command, &registry)
    });
    let failed = |why: String| ConnectError::Start { program: shown, why };
    let (service, ServicePipes { stdin, stdout, stderr }) = match started.await {
        Ok(Ok(started)) => started,
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(error) => return Err(failed(error.to_string())),
    };
    let (shared, requests) = SharedState::new();
    let (outgoing, waiting) = mpsc::channel(WAITING);
    let (ending, ended) = (CancellationToken::new(), CancellationToken::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(write(stdin, waiting, shared.clone(), ending.clone()));
    tasks.spawn(complain(stderr, complaints.clone()));
    let reader = Reader { shared: shared.clone(), complaints: complaints.clone() };
    tasks.spawn(live(service, stdout, reader, (ending.clone(), ended.clone())));
    let pipes = Pipes { outgoing, shared: shared.clone(), ending, ended, _tasks: tasks };
    Ok(Client::over((shared, requests), Box::new(pipes), roots))
}

struct Pipes {
    outgoing: mpsc::Sender<String>,
    shared: Arc<SharedState>,
    ending: CancellationToken,
    ended: CancellationToken,
    /// End with it: the program is killed then.
    _tasks: JoinSet<()>,
}

impl Transport for Pipes {
    fn send(&self, message: String, _: Option<u64>) -> BoxFuture<'_, Result<(), RequestError>> {
        Box::pin(async move {
            let sent = tokio::time::timeout(WRITE, self.outgoing.send(message)).await;
            if let Ok(Ok(())) = sent {
                return Ok(());
            }
            let why = "the server does not read what it is sent";
            self.shared.close(why);
            Err(RequestError::Closed(why.into()))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.ending.cancel();
            self.ended.cancelled().await;
        })
    }
}

/// Writes messages, one in a line each. Closes the pipe in the end.
async fn write(
    mut stdin: ChildStdin,
    mut waiting: mpsc::Receiver<String>,
    shared: Arc<SharedState>,
    ending: CancellationToken,
) {
    loop {
        let message = tokio::select! {
            message = waiting.recv() => message,
            () = ending.cancelled() => None,
        };
        let Some(mut message) = message else { return };
        message.push('\n');
        let written = async {
            stdin.write_all(message.as_bytes()).await?;
            stdin.flush().await
        };
        match tokio::time::timeout(WRITE, written).await {
            Ok(Ok(())) => {}
            // The reader finds out why, and says so.
            Ok(Err(_)) => return,
            Err(_) => return shared.close("the server does not read what it is sent"),
        }
    }
}

async fn complain(mut stderr: ChildStderr, complaints: Complaints) {
    let mut piece = vec![0; 4 << 10];
    while let Ok(read @ 1..) = stderr.read(&mut piece).await {
        complaints.push(&piece[..read]);
    }
}

struct Reader {
    shared: Arc<SharedState>,
    complaints: Complaints,
}

/// Reads until the program ends or is to end, and takes care that it does.
async fn live(
    mut service: Service,
    stdout: ChildStdout,
    reader: Reader,
    (ending, ended): (CancellationToken, CancellationToken),
) {
    let why = tokio::select! {
        why = read(stdout, &reader.shared) => why,
        () = ending.cancelled() => {
            drop(tokio::time::timeout(END, service.wait()).await);
            service.kill().await;
            reader.shared.close("it was closed");
            ended.cancel();
            return;
        }
    };
    let how = match why {
        Some(why) => why,
        None => match tokio::time::timeout(LAST_WORDS, service.wait()).await {
            Ok(Ok(status)) => format!("the server ended ({status})"),
            _ => "the server closed its output".to_owned(),
        },
    };
    service.kill().await;
    let text = match reader.complaints.last() {
        Some(last) => format!("{how}; it last wrote: {last}"),
        None => how,
    };
    reader.shared.close(&text);
    ended.cancel();
}

/// Reads messages, one in each line. Gives what is wrong with them; `None` where the output ended.
async fn read(stdout: ChildStdout, shared: &SharedState) -> Option<String> {
    let mut from = BufReader::with_capacity(64 << 10, stdout);
    let (mut line, mut noise) = (Vec::new(), 0_usize);
    loop {
        let piece = match from.fill_buf().await {
            Ok([]) => return None,
            Ok(piece) => piece,
            Err(error) => return Some(format!("its output could not be read: {error}")),
        };
        let end = piece.iter().position(|byte| *byte == b'\n');
        let (taken, used) = end.map_or((piece, piece.len()), |end| (&piece[..end], end + 1));
        if line.len() + taken.len() > MESSAGE_BYTES {
            return Some(format!("it sent a message of more than {} MiB", MESSAGE_BYTES >> 20));
        }
        line.extend_from_slice(taken);
        from.consume(used);
        if end.is_none() {
            continue;
        }
        if line.iter().all(u8::is_ascii_whitespace) || shared.receive(&line) {
            noise = 0;
        } else {
            // Some print a greeting.
            noise += 1;
            if noise > NOISE_LINES {
                return Some(format!("it wrote {noise} lines in a row that are no messages of the protocol"));
            }
        }
        line.clear();
        line.shrink_to(64 << 10);
    }
}
