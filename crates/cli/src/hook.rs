//! `quipu hook AGENT EVENT`: other agents call it at their events. Whatever goes wrong, it ends with 0 and in time, and prints
//! nothing that is no answer.

use std::ffi::{OsStr, OsString};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use quipu_host::{Home, HostNotice, Observer, now, start_turn_intake, take_turn_in};
use quipu_integrations::{
    HookAnswer, HookCall, HookReader, HookRequest, Host, IntakeTurn, LogLine, Occasion, SeenPassages,
    SessionStorage, append_log,
};
use quipu_protocol::SessionId;
use quipu_seal::Sealer;

/// The first argument.
pub(crate) const NAME: &str = "hook";
/// In place of an event: the process that takes a session in.
const TAKE_IN: &str = "take-in";
/// From the start of the process until it gives up, and the variable that says otherwise for slow machines.
const DEADLINE: Duration = Duration::from_millis(40);
const DEADLINE_VARIABLE: &str = "QUIPU_HOOK_DEADLINE_MS";
/// The longest that the variable can say.
const LONGEST_DEADLINE: Duration = Duration::from_secs(60);
/// How long a lock of the store is waited for.
const BUSY: Duration = Duration::from_millis(10);
/// The setting of what is given.
const SETTING: &str = "integrations.history";
/// Bytes of a payload.
const PAYLOAD: u64 = 4 << 20;
/// How long a session may take to come in.
const INTAKE: Duration = Duration::from_secs(300);

/// What a person reads in the help; [`run`] reads the arguments itself, before anything else is made.
#[derive(Debug, Args)]
pub(crate) struct HookArgs {
    /// The agent: claude-code, codex, gemini, copilot, opencode, openclaw.
    agent: String,
    /// The agent's own name of the event.
    event: String,
    #[arg(hide = true)]
    file: Option<PathBuf>,
}

/// Whether the arguments of this process are those of a hook, and no question about it.
pub(crate) fn is_called() -> bool {
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().is_some_and(|first| first == NAME)
        && !arguments.any(|argument| argument == "--help" || argument == "-h")
}

/// What can be printed, and where it is noted that it was.
struct Offer {
    answer: HookAnswer,
    seen: Arc<SeenPassages>,
}

/// Answers the hook that the arguments of this process name.
pub(crate) fn run(began: Instant) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(2).collect();
    let text =
        |at: usize| arguments.get(at).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    let (agent, event) = (text(0), text(1));
    if event == TAKE_IN {
        return take_in(&agent, arguments.get(2).map(Path::new));
    }
    let offered: Arc<Mutex<Option<Offer>>> = Arc::default();
    let (tell, told) = channel();
    let work = {
        let (agent, event, offered) = (agent.clone(), event.clone(), offered.clone());
        let until = began + deadline() / 2;
        move || {
            // Nobody listens any more after the deadline.
            drop(tell.send(answer(&agent, &event, &offered, until)));
        }
    };
    let spawned = std::thread::Builder::new().spawn(work);
    let left = deadline().saturating_sub(began.elapsed());
    let outcome = match spawned {
        Ok(_) => told.recv_timeout(left),
        Err(_) => Err(RecvTimeoutError::Disconnected),
    };
    let take = || offered.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (found, problem) = match outcome {
        Ok(Ok(found)) => (found, None),
        Ok(Err(problem)) => (None, Some(problem)),
        Err(RecvTimeoutError::Timeout) => {
            let problem = format!("gave up after {} ms", began.elapsed().as_millis());
            (take(), Some(problem))
        }
        Err(RecvTimeoutError::Disconnected) => (None, Some("it could not run".to_owned())),
    };
    let mut problem = problem;
    if let (Some(Offer { answer, seen }), Some(host)) = (&found, Host::named(&agent)) {
        let mut out = std::io::stdout().lock();
        let printed = out.write_all(host.answer(&event, &answer.text).as_bytes()).and_then(|()| out.flush());
        problem = match printed {
            Err(error) => Some(format!("the answer could not be written: {error}")),
            // The answer is worth more than what keeps it from coming twice.
            Ok(()) => match seen.add(&answer.given) {
                Err(error) => Some(format!("what was given could not be noted: {error}")),
                Ok(()) => problem,
            },
        };
    }
    if let Some(problem) = problem {
        log(&agent, &event, problem);
    }
    // Without waiting for what is still at work: the host waits.
    std::process::exit(0)
}

fn deadline() -> Duration {
    let said = std::env::var(DEADLINE_VARIABLE).ok().and_then(|text| text.parse().ok());
    said.map_or(DEADLINE, |ms| Duration::from_millis(ms).min(LONGEST_DEADLINE))
}

/// Drops every notice: the person at the host did not call Quipu.
struct Silence;

impl Observer for Silence {
    fn notice(&self, _notice: HostNotice) {}
}

fn place() -> Option<Home> {
    Home::find(None, Arc::new(Silence)).ok()
}

/// Where hooks keep what they need.
fn own_directory(home: &Home) -> PathBuf {
    home.dir.join("hooks")
}

fn log(agent: &str, event: &str, problem: String) {
    let Some(home) = place().filter(|home| home.dir.is_dir()) else { return };
    let line = LogLine { at: now(), agent: agent.to_owned(), event: event.to_owned(), problem };
    // There is nobody else to tell.
    drop(append_log(&own_directory(&home), &line));
}

/// The answer, or what goes into the log.
fn answer(
    agent: &str,
    event: &str,
    offered: &Mutex<Option<Offer>>,
    until: Instant,
) -> Result<Option<Offer>, String> {
    let payload = payload()?;
    let Some(host) = Host::named(agent) else { return Err("there is no agent of this name".to_owned()) };
    let payload = match payload.trim_ascii() {
        // A host that ends has no time to write.
        [] => serde_json::Value::Null,
        text => serde_json::from_slice(text).map_err(|error| format!("the payload is no JSON: {error}"))?,
    };
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let call = host.call(event, &payload, &variable);
    match call.occasion {
        Occasion::None => Ok(None),
        // Without its path, no other session is meant.
        Occasion::TurnEnd if call.transcript.is_none() && host.storage == SessionStorage::Files => Ok(None),
        Occasion::TurnEnd => begin_intake(host, call.transcript.as_deref()).map(|()| None),
        _ => history(host, call, offered, until),
    }
}

/// What the host writes. All of it is read, or the host would fail to write it.
fn payload() -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut input = std::io::stdin().lock();
    let failed = |error: std::io::Error| format!("the payload could not be read: {error}");
    (&mut input).take(PAYLOAD + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > PAYLOAD {
        std::io::copy(&mut input, &mut std::io::sink()).map_err(failed)?;
        return Err(format!("the payload has more than {PAYLOAD} bytes"));
    }
    Ok(bytes)
}

fn history(
    host: &Host,
    call: HookCall,
    offered: &Mutex<Option<Offer>>,
    until: Instant,
) -> Result<Option<Offer>, String> {
    let Some(home) = place() else { return Ok(None) };
    let settings = home.config();
    // It may have said that nothing is to be given.
    if let Some(problem) = settings.doubt_of(SETTING) {
        return Err(format!("nothing is given while {SETTING} is in doubt: {problem}"));
    }
    let budget = settings.hook_budget;
    let tokens = match call.occasion {
        Occasion::Start => budget.at_start(),
        _ => budget.beside_prompt(),
    };
    if tokens == 0 {
        return Ok(None);
    }
    let store = home.store_as_it_is(BUSY).map_err(|error| error.to_string())?;
    let Some(store) = store else { return Ok(None) };
    let spelled = match call.directory {
        Some(directory) => directory,
        None => std::env::current_dir().map_err(|error| format!("there is no directory: {error}"))?,
    };
    let directory = spelled
        .canonicalize()
        .map_err(|error| format!("the directory of the session cannot be used: {error}"))?;
    let sealer = Arc::new(Sealer::new(home.seal_key().map_err(|failure| failure.message)?));
    let reader = HookReader::new(store, sealer);
    let own = own_directory(&home);
    let seen = Arc::new(SeenPassages::of(&own, host.name, call.session.as_deref()));
    let request = HookRequest {
        occasion: call.occasion,
        directory,
        spelled,
        session: call.session.map(SessionId::from),
        tokens,
        now: now(),
        until,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| format!("the runtime could not start: {error}"))?;
    let offer = |answer| {
        let offer = Offer { answer, seen: seen.clone() };
        *offered.lock().unwrap_or_else(PoisonError::into_inner) = Some(offer);
    };
    let found =
        runtime.block_on(reader.answer(&request, &seen, &offer)).map_err(|error| error.to_string())?;
    Ok(found.map(|answer| Offer { answer, seen }))
}

/// Starts the process that takes the session in. It is left alone: the host waits for this one.
fn begin_intake(host: &Host, file: Option<&Path>) -> Result<(), String> {
    let mut arguments = vec![OsStr::new(NAME), OsStr::new(host.name), OsStr::new(TAKE_IN)];
    arguments.extend(file.map(Path::as_os_str));
    start_turn_intake(&arguments).map_err(|error| format!("the session could not be taken in: {error}"))
}

/// Takes a session in, when it is its turn.
fn take_in(agent: &str, file: Option<&Path>) -> ExitCode {
    let (tell, told) = channel();
    let work = {
        let (agent, file) = (agent.to_owned(), file.map(Path::to_owned));
        move || drop(tell.send(taken_in(&agent, file.as_deref())))
    };
    let problem = match std::thread::Builder::new().spawn(work) {
        Err(error) => Some(format!("it could not run: {error}")),
        Ok(_) => match told.recv_timeout(INTAKE) {
            Ok(outcome) => outcome.err(),
            Err(_) => Some(format!("gave up after {} s", INTAKE.as_secs())),
        },
    };
    if let Some(problem) = problem {
        log(agent, TAKE_IN, problem);
    }
    std::process::exit(0)
}

fn taken_in(agent: &str, file: Option<&Path>) -> Result<(), String> {
    let host = Host::named(agent).ok_or("there is no agent of this name")?;
    let home = place().ok_or("there is no place for files")?;
    let own = own_directory(&home);
    let failed = |error: std::io::Error| format!("{}: {error}", own.display());
    let named = file.unwrap_or_else(|| Path::new(""));
    let Some(_turn) = IntakeTurn::take(&own, host.name, named).map_err(failed)? else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the runtime could not start: {error}"))?;
    let taken = runtime.block_on(take_turn_in(&home, host.agent, file));
    SeenPassages::sweep(&own).map_err(failed)?;
    taken.map(drop).map_err(|failure| failure.message)
}
