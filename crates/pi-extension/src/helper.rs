//! The helper process: requests by lines, answers by lines, until the extension closes its end.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use quipu_protocol::Json;
use quipu_seal::Sealer;
use quipu_store::Graph;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::{HelperError, IdentityError, StoreOpenError};
use crate::jump::{head_of, jump, plan};
use crate::lines::{LINE_LIMIT, Line, LineSource, REQUESTS, write_lines};
use crate::requests::{Append, Cancel, Jump, OpenSession, Plan, RequestHead, Restore, SessionName, ToolCall};
use crate::restoring::restore;
use crate::sessions::{OpenSessions, OpenedSession};
use crate::tools::Archive;

/// The version of the protocol.
const PROTOCOL: u32 = 1;
/// Answers that wait to be written.
const ANSWERS: usize = 64;
/// Lines in a row that are no requests.
const BAD_LINES: u32 = 100;

/// Opens the store, which is made where there is none.
pub type StoreOpener = Arc<dyn Fn() -> Result<Arc<dyn Graph>, StoreOpenError> + Send + Sync>;

/// The text before the system prompt of a session in this directory, and why there is none where one is set.
pub type IdentitySource = Arc<dyn Fn(&Path) -> Result<Option<String>, IdentityError> + Send + Sync>;

/// What a helper works with.
#[derive(Clone)]
pub struct HelperOptions {
    /// Opens the store, with the first session.
    pub opener: StoreOpener,
    /// Seals secrets before they come into the store.
    pub sealer: Arc<Sealer>,
    /// The text before the system prompt.
    pub identity: IdentitySource,
    /// The version that the extension is told.
    pub version: String,
}

/// Why a helper ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelperEnd {
    /// The extension closed its end, or is gone.
    Closed,
    /// The extension read nothing for 30 s while an answer waited.
    Stalled,
    /// 100 lines in a row were no requests.
    Malformed,
}

/// What all requests share.
struct Helper {
    options: HelperOptions,
    store: Mutex<Option<Arc<dyn Graph>>>,
    sessions: OpenSessions,
    /// Requests that are not answered yet, by their ids, with what cancels them.
    requests: Mutex<HashMap<String, CancellationToken>>,
    fewer: Notify,
}

/// Serves the extension until it closes its end. What was begun by then is finished: a write is never cut short.
pub async fn serve<R, W>(options: HelperOptions, reader: R, writer: W) -> HelperEnd
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (answers, lines) = mpsc::channel(ANSWERS);
    let helper = Arc::new(Helper {
        options,
        store: Mutex::default(),
        sessions: OpenSessions::default(),
        requests: Mutex::default(),
        fewer: Notify::new(),
    });
    let mut work = JoinSet::new();
    let mut writing = tokio::spawn(write_lines(writer, lines));
    let mut source = LineSource::new(reader);
    let mut bad_lines = 0;
    let end = loop {
        while work.try_join_next().is_some() {}
        let line = tokio::select! {
            line = next_line(&helper, &mut source) => line,
            written = &mut writing => break stopped(&written),
        };
        let admitted = match line {
            Line::End => break HelperEnd::Closed,
            Line::TooLong => Err(refusal(&Value::Null, &HelperError::LineTooLong)),
            Line::Whole(line) if line.trim_ascii().is_empty() => continue,
            Line::Whole(line) => helper.admit(line),
        };
        match admitted {
            Ok(request) => {
                bad_lines = 0;
                let (helper, answers) = (Arc::clone(&helper), answers.clone());
                // Each is polled in the order in which it came, so those of one session take their turns in it.
                work.spawn(async move {
                    let line = helper.answer(&request).await;
                    helper.end(&request.key);
                    // Who does not read any more misses nothing.
                    drop(answers.send(line).await);
                });
            }
            Err(answer) => {
                bad_lines += 1;
                if answers.send(answer).await.is_err() || bad_lines >= BAD_LINES {
                    break HelperEnd::Malformed;
                }
            }
        }
    };
    // Reads are given up, writes are finished.
    helper.cancel_all();
    while work.join_next().await.is_some() {}
    drop(answers);
    if writing.is_finished() {
        return end;
    }
    match writing.await {
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::TimedOut => HelperEnd::Stalled,
        _ => end,
    }
}

/// What it means that nothing is written any more.
fn stopped(written: &Result<std::io::Result<()>, tokio::task::JoinError>) -> HelperEnd {
    match written {
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::TimedOut => HelperEnd::Stalled,
        _ => HelperEnd::Closed,
    }
}

async fn next_line<R: AsyncRead + Unpin>(helper: &Helper, source: &mut LineSource<R>) -> Line {
    helper.room().await;
    source.next().await
}

/// A request that was admitted.
struct Request {
    id: Value,
    /// The id as text.
    key: String,
    op: String,
    line: Vec<u8>,
    cancelled: CancellationToken,
}

fn refusal(id: &Value, error: &HelperError) -> Vec<u8> {
    let error = json!({ "code": error.code(), "message": error.to_string() });
    json!({ "id": id, "error": error }).to_string().into_bytes()
}

fn accepted<T: Serialize>(id: &Value, result: &T) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer<'a, T> {
        id: &'a Value,
        result: &'a T,
    }
    serde_json::to_vec(&Answer { id, result })
        .unwrap_or_else(|error| refusal(id, &HelperError::Malformed(error.to_string())))
}

impl Helper {
    /// Waits until there is room for another request. Used by one reader.
    async fn room(&self) {
        while self.requests.lock().unwrap_or_else(PoisonError::into_inner).len() >= REQUESTS {
            self.fewer.notified().await;
        }
    }

    /// A line as a request, or the answer to what is none.
    fn admit(&self, line: Vec<u8>) -> Result<Request, Vec<u8>> {
        let head: RequestHead = serde_json::from_slice(&line)
            .map_err(|error| refusal(&Value::Null, &HelperError::Malformed(error.to_string())))?;
        let RequestHead { id, op } = head;
        if !(id.is_string() || id.is_number()) {
            let error = HelperError::Malformed("its id is no number and no text".into());
            return Err(refusal(&Value::Null, &error));
        }
        let key = id.to_string();
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.contains_key(&key) {
            return Err(refusal(&id, &HelperError::IdInUse));
        }
        let cancelled = CancellationToken::new();
        requests.insert(key.clone(), cancelled.clone());
        Ok(Request { id, key, op, line, cancelled })
    }

    /// The request is answered.
    fn end(&self, key: &str) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.fewer.notify_one();
    }

    fn cancel_all(&self) {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.values().for_each(CancellationToken::cancel);
    }

    /// The answer to a request.
    async fn answer(&self, request: &Request) -> Vec<u8> {
        let id = &request.id;
        let done = match request.op.as_str() {
            "hello" => Ok(accepted(id, &self.hello())),
            "open" => self.write(request, async |open: OpenSession| self.open(&open).await).await,
            "append" => {
                let append = async |append: Append| self.sessions.append(&*self.store()?, &append).await;
                self.write(request, append).await
            }
            "jump" => {
                let jump = async |asked: Jump| jump(&self.store()?, &self.sessions, &asked).await;
                self.write(request, jump).await
            }
            "restore" => {
                let restore = async |asked: Restore| {
                    // An open one is read again afterwards.
                    self.sessions.close(&asked.session).await;
                    restore(&self.store()?, &asked.session, &asked.file).await
                };
                self.write(request, restore).await
            }
            "tool" => self.read(request, async |call: ToolCall| self.tool(&call).await).await,
            "plan" => {
                let plan = async |asked: Plan| {
                    plan(&self.store()?, &self.options.sealer, &self.sessions, &asked).await
                };
                self.read(request, plan).await
            }
            "state" => {
                let state = async |asked: SessionName| {
                    let session = self.sessions.find(&asked.session).await?;
                    let state = session.lock().await;
                    Ok(json!({ "count": state.live.count(), "lacking": state.live.lacking() }))
                };
                self.read(request, state).await
            }
            "close" => {
                let close = async |asked: SessionName| {
                    self.sessions.close(&asked.session).await;
                    Ok(json!({}))
                };
                self.write(request, close).await
            }
            "cancel" => self.write(request, async |asked: Cancel| Ok(self.cancel(&asked))).await,
            other => Err(HelperError::UnknownOperation(other.chars().take(64).collect())),
        };
        done.unwrap_or_else(|error| refusal(id, &error))
    }

    /// Work that changes something: it is finished once it began.
    async fn write<T: DeserializeOwned, A: Serialize>(
        &self,
        request: &Request,
        work: impl AsyncFnOnce(T) -> Result<A, HelperError>,
    ) -> Result<Vec<u8>, HelperError> {
        let asked = serde_json::from_slice(&request.line)
            .map_err(|error| HelperError::Malformed(error.to_string()))?;
        Ok(accepted(&request.id, &work(asked).await?))
    }

    /// Work that only reads: it ends when it is cancelled.
    async fn read<T: DeserializeOwned, A: Serialize>(
        &self,
        request: &Request,
        work: impl AsyncFnOnce(T) -> Result<A, HelperError>,
    ) -> Result<Vec<u8>, HelperError> {
        let work = self.write(request, work);
        tokio::select! {
            biased;
            () = request.cancelled.cancelled() => Err(HelperError::Cancelled),
            done = work => done,
        }
    }

    fn hello(&self) -> Value {
        json!({ "protocol": PROTOCOL, "version": self.options.version, "line_limit": LINE_LIMIT })
    }

    /// The store; opened when it is needed first, and tried again after a failure.
    fn store(&self) -> Result<Arc<dyn Graph>, HelperError> {
        let mut opened = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = &*opened {
            return Ok(Arc::clone(store));
        }
        let store = (self.options.opener)()?;
        *opened = Some(Arc::clone(&store));
        Ok(store)
    }

    async fn open(&self, request: &OpenSession) -> Result<OpenedSession, HelperError> {
        #[derive(serde::Deserialize)]
        struct Header {
            #[serde(default)]
            cwd: String,
        }
        let store = self.store()?;
        let mut opened = self.sessions.open(&store, &self.options.sealer, request).await?;
        let cwd = request.header.read::<Header>().map_or_else(|_| String::new(), |header| header.cwd);
        match (self.options.identity)(Path::new(&cwd)) {
            Ok(text) => opened.identity = text.map(|text| self.options.sealer.seal(&text).into_owned()),
            Err(why) => opened.identity_problem = Some(why.to_string()),
        }
        Ok(opened)
    }

    async fn tool(&self, call: &ToolCall) -> Result<Value, HelperError> {
        let session = self.sessions.find(&call.session).await?;
        let (head, cwd) = {
            let state = session.lock().await;
            (head_of(&state, call.leaf.as_deref())?, state.cwd.clone())
        };
        let archive = Archive { store: self.store()?, head, cwd };
        // The store knows secrets by their placeholders.
        let arguments: Json = self.options.sealer.seal_json(&call.arguments);
        Ok(json!({ "text": archive.call(&call.name, &arguments).await? }))
    }

    /// Cancels a request, where it reads: `cancelled` says whether there was one.
    fn cancel(&self, asked: &Cancel) -> Value {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let found = requests.get(&asked.target.to_string());
        found.inspect(|token| token.cancel());
        json!({ "cancelled": found.is_some() })
    }
}
