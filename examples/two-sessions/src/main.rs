//! A front of its own: starts `quipu serve` and drives two sessions at once through its pipes.
//!
//! ```sh
//! cargo run --manifest-path examples/two-sessions/Cargo.toml -- quipu DIR_ONE DIR_TWO
//! ```
//!
//! In the first directory the agent is asked for two versions of a file, is steered on the way, taken back to the first version
//! together with its file, and forward again; in the second one it is asked for something that needs a permission, which is given
//! for the session. Meanwhile the front loses sight of a session and comes back to it.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command as Process, Stdio};

use quipu_protocol::{
    Ack, Answer, AskKind, ClientFrame, Command, Event, MoveFiles, NodeId, Outcome, PROTOCOL_VERSION,
    QueueMode, Refusal, Scope, ServerFrame, SessionId, Snapshot,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The server, and what it said of each session.
struct Front {
    server: Child,
    lines: ChildStdin,
    said: BufReader<ChildStdout>,
    number: u64,
    /// How each session stands: the snapshot, with every event since.
    sessions: HashMap<SessionId, Snapshot>,
    /// Events that nobody looked at yet.
    unseen: VecDeque<(SessionId, Event)>,
}

impl Front {
    fn start(program: &str) -> Result<Self> {
        let mut server =
            Process::new(program).arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (lines, said) =
            (server.stdin.take().ok_or("no input")?, server.stdout.take().ok_or("no output")?);
        let (sessions, unseen) = (HashMap::new(), VecDeque::new());
        let mut front = Self { server, lines, said: BufReader::new(said), number: 0, sessions, unseen };
        front.write(&ClientFrame::Hello { version: PROTOCOL_VERSION })?;
        match front.read()? {
            ServerFrame::Hello { version, server } => println!("{server}, version {version} of the protocol"),
            other => return Err(format!("no greeting: {other:?}").into()),
        }
        Ok(front)
    }

    fn write(&mut self, frame: &ClientFrame) -> Result<()> {
        writeln!(self.lines, "{}", serde_json::to_string(frame)?)?;
        Ok(self.lines.flush()?)
    }

    fn read(&mut self) -> Result<ServerFrame> {
        let mut line = String::new();
        if self.said.read_line(&mut line)? == 0 {
            return Err("the server is gone".into());
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// Takes in what belongs to no question of ours.
    fn take(&mut self, frame: ServerFrame) {
        match frame {
            ServerFrame::Event { session, envelope } => {
                if let Some(snapshot) = self.sessions.get_mut(&session) {
                    snapshot.fold(&envelope);
                }
                self.unseen.push_back((session, envelope.event));
            }
            ServerFrame::Notice { text, .. } => eprintln!("{text}"),
            _ => {}
        }
    }

    /// Sends a line and reads until its answer.
    fn ask(&mut self, frame: impl FnOnce(u64) -> ClientFrame) -> Result<ServerFrame> {
        self.number += 1;
        let number = self.number;
        self.write(&frame(number))?;
        loop {
            match self.read()? {
                ServerFrame::Error { id: Some(id), message, .. } if id == number => {
                    return Err(message.into());
                }
                ServerFrame::Error { id: None, message, .. } => return Err(message.into()),
                frame @ (ServerFrame::Opened { id, .. }
                | ServerFrame::Ack { id, .. }
                | ServerFrame::Refused { id, .. }
                | ServerFrame::Snapshot { id, .. }
                | ServerFrame::Sessions { id, .. }
                | ServerFrame::Done { id })
                    if id == number =>
                {
                    return Ok(frame);
                }
                other => self.take(other),
            }
        }
    }

    fn open(&mut self, cwd: &str) -> Result<SessionId> {
        let cwd = cwd.to_owned();
        let open = |id| ClientFrame::Open { id, cwd, session: None, fork: None, model: None, thinking: None };
        let ServerFrame::Opened { session, cwd, .. } = self.ask(open)? else {
            return Err("not opened".into());
        };
        println!("session {session} in {cwd}");
        self.follow(&session)?;
        Ok(session)
    }

    /// Begins to follow a session, or comes back to it.
    fn follow(&mut self, session: &SessionId) -> Result<()> {
        let name = session.clone();
        let subscribe = |id| ClientFrame::Subscribe { id, session: name, live: false, answers: true };
        match self.ask(subscribe)? {
            ServerFrame::Snapshot { snapshot, .. } => {
                self.sessions.insert(session.clone(), *snapshot);
                Ok(())
            }
            other => Err(format!("not followed: {other:?}").into()),
        }
    }

    fn lose_sight(&mut self, session: &SessionId) -> Result<()> {
        let name = session.clone();
        self.ask(|id| ClientFrame::Unsubscribe { id, session: name })?;
        self.sessions.remove(session);
        self.unseen.retain(|(other, _)| other != session);
        Ok(())
    }

    fn send(&mut self, session: &SessionId, command: Command) -> Result<std::result::Result<Ack, Refusal>> {
        let session = session.clone();
        match self.ask(|id| ClientFrame::Command { id, session, command })? {
            ServerFrame::Ack { ack, .. } => Ok(Ok(ack)),
            ServerFrame::Refused { refused, .. } => Ok(Err(refused)),
            other => Err(format!("no answer to a command: {other:?}").into()),
        }
    }

    fn say(&mut self, session: &SessionId, text: &str, when: QueueMode) -> Result<Ack> {
        Ok(self.send(session, Command::Prompt { input: text.into(), when })??)
    }

    /// Waits for an event of a session, whatever the other one does meanwhile.
    fn wait<T>(&mut self, of: &SessionId, wanted: impl Fn(&Event) -> Option<T>) -> Result<T> {
        loop {
            let place =
                self.unseen.iter().position(|(session, event)| session == of && wanted(event).is_some());
            if let Some(place) = place
                && let Some((_, event)) = self.unseen.remove(place)
                && let Some(found) = wanted(&event)
            {
                // What came before it is history.
                let mut before = place;
                self.unseen.retain(|(session, _)| {
                    let goes = before > 0 && session == of;
                    before = before.saturating_sub(1);
                    !goes
                });
                return Ok(found);
            }
            let frame = self.read()?;
            self.take(frame);
        }
    }

    fn settled(&mut self, session: &SessionId) -> Result<()> {
        let outcome = self.wait(session, |event| match event {
            Event::RunEnded { outcome } => Some(outcome.clone()),
            _ => None,
        })?;
        self.wait(session, |event| matches!(event, Event::Settled).then_some(()))?;
        if outcome == Outcome::Done { Ok(()) } else { Err(format!("a run ended with {outcome:?}").into()) }
    }

    fn head(&self, session: &SessionId) -> Result<NodeId> {
        Ok(self.sessions.get(session).and_then(|snapshot| snapshot.head).ok_or("no head")?)
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, first, second] = &arguments[..] else {
        return Err("usage: two-sessions QUIPU DIR_ONE DIR_TWO".into());
    };
    let mut front = Front::start(program)?;
    let (one, two) = (front.open(first)?, front.open(second)?);

    // Both at once: the second one will have to ask.
    front.say(&one, "Write `one` to version.txt.", QueueMode::Now)?;
    front.say(&two, "Write `hello` to ../asked.txt.", QueueMode::Now)?;
    let ask = front.wait(&two, |event| match event {
        Event::AskOpened { ask } => Some(ask.clone()),
        _ => None,
    })?;
    let AskKind::Permission(permission) = &ask.kind else { return Err("another question".into()) };
    println!("asked: {} ({})", permission.question, permission.subject);

    // Meanwhile the first one is done, and goes on with another version; what is said on the way reaches it, too.
    front.settled(&one)?;
    let there = front.head(&one)?;
    front.say(&one, "Now write `two`.", QueueMode::Now)?;
    println!("steered: {:?}", front.say(&one, "And be brief.", QueueMode::Steer)?);
    front.settled(&one)?;

    // The question still stands when we come back to it.
    front.lose_sight(&one)?;
    front.follow(&one)?;
    front.follow(&two)?;
    let open =
        front.sessions.get(&two).is_some_and(|snapshot| snapshot.asks.iter().any(|other| other.id == ask.id));
    if !open {
        return Err("the question is gone".into());
    }
    let allow = Command::Answer { ask: ask.id.clone(), answer: Answer::Allow { scope: Scope::Session } };
    println!("answered: {:?}", front.send(&two, allow)??);
    front.settled(&two)?;

    // Back to the first version with its file, and forward again.
    let version = || std::fs::read_to_string(std::path::Path::new(first).join("version.txt"));
    println!("version.txt: {}", version()?.trim());
    let back = Command::Jump {
        to: there,
        summary: None,
        label: None,
        files: MoveFiles::Restore { overwrite: false },
    };
    front.send(&one, back)??;
    front.wait(&one, |event| matches!(event, Event::JumpEnded { .. }).then_some(()))?;
    println!("after the jump: {}", version()?.trim());
    front.send(&one, Command::Undo { steps: 1, files: MoveFiles::Auto })??;
    println!("after the undo: {}", version()?.trim());

    for session in [one, two] {
        front.ask(|id| ClientFrame::Close { id, session })?;
    }
    let Front { mut server, lines, said, .. } = front;
    drop((lines, said));
    let status = server.wait()?;
    println!("the server ended: {status}");
    if status.success() { Ok(()) } else { Err("the server failed".into()) }
}
