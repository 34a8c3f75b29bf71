//! Terminal, state and session brought together: the only place that waits.

mod effects;
mod external;

use std::collections::HashMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use quipu::{Clock as _, Delivery, Events, Refusal, Sealer, Session, SystemClock};
use quipu_host::{CommandRegistry, Mentions};
use quipu_protocol::{
    AbortTarget, Ack, Command, Envelope, Event, QueueMode, RunId, SessionId, Snapshot, UserInput,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::editor::{Candidate, Editor};
use crate::host::{Host, OpenError, OpenTarget, OpenedSession, SessionRequest};
use crate::keys::Bindings;
use crate::screen::linear::LineWriter;
use crate::state::{Effect, Purpose, State, UiEvent};
use crate::storage::EditorStorage;
use crate::terminal::{Abilities, End, Terminal, TerminalInput, take_panics};
use crate::view::view_reading;
use crate::{Canvas, DraftFile, Links, Screen, SentFile, Size, TerminalEvent, Theme};

use external::LentTerminal;
pub use external::users_editor;

/// Between two frames while something streams.
const FRAME: Duration = Duration::from_millis(16);
/// Between two looks at the time while something is under way.
const TICK: Duration = Duration::from_secs(1);
/// Events that are taken before keys are looked at.
const TOGETHER: usize = 256;
/// So many at once, and the next are not left to wait for a frame: the session holds up a model that is further ahead.
const FLOOD: usize = 64;
/// How long a session may take to end.
const END: Duration = Duration::from_secs(8);

/// How the terminal starts.
pub struct TerminalOptions {
    /// Its surroundings.
    pub host: Arc<dyn Host>,
    /// How it looks.
    pub theme: Theme,
    /// Its keys.
    pub bindings: Bindings,
    /// What it can do.
    pub abilities: Abilities,
    /// The theme goes by the colour behind text, where the terminal says that.
    pub adapts: bool,
    /// The home of Quipu, where what is written and sent is kept.
    pub home: PathBuf,
    /// Replaces secrets in that.
    pub sealer: Arc<Sealer>,
    /// The directory that it was called in.
    pub directory: PathBuf,
    /// Which session.
    pub open: SessionRequest,
    /// What is said first, in order.
    pub prompts: Vec<FirstPrompt>,
    /// What is to be told first.
    pub notes: Vec<String>,
}

/// A prompt of the command line.
#[derive(Debug, Clone, PartialEq)]
pub struct FirstPrompt {
    /// All of it.
    pub input: UserInput,
    /// What a person wrote of it: the rest is of files.
    pub typed: String,
}

/// Why the terminal ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitReason {
    /// By the user; with the session that was open, if something was said in it.
    Quit(Option<SessionId>),
    /// A signal of this number arrived.
    Signal(i32),
    /// The terminal is gone.
    Gone,
}

/// The end of a terminal run.
#[derive(Debug)]
pub struct TerminalEnd {
    /// How it was left.
    pub left: ExitReason,
    /// What is to be told now that the terminal is as it was.
    pub messages: Vec<String>,
}

/// A message from a background task.
enum TaskMessage {
    Input(Box<UiEvent>),
    /// The program that had the terminal is done; and what came of it.
    Back(Box<UiEvent>),
    /// A session, how it stands, and its events.
    Opened(Result<(OpenedSession, Box<Snapshot>, Events), OpenError>),
    /// Hooks let the session that is open be left for this one.
    Leave(SessionRequest),
}

struct Run {
    host: Arc<dyn Host>,
    tty: Terminal,
    screen: Screen,
    /// In place of the screen, where nothing is drawn.
    linear: Option<LineWriter>,
    state: State,
    /// The commands of the host, with the terminal's own.
    commands: CommandRegistry,
    /// The version of their list that is offered.
    offered: Option<u64>,
    session: Option<Arc<Session>>,
    events: Option<Events>,
    tasks: JoinSet<()>,
    /// What is on its way into the session: the end waits for it.
    keeping: JoinSet<()>,
    /// Held by the prompt that is being sent.
    prompt_order: Arc<tokio::sync::Mutex<()>>,
    /// Bounded by what was begun: what comes often says the latest, and is taken as it comes.
    up: mpsc::UnboundedSender<TaskMessage>,
    /// Ends the line that runs while no session is open.
    unkept: Option<CancellationToken>,
    storage: EditorStorage,
    /// What is written is not kept yet.
    unsaved: bool,
    directory: PathBuf,
    finder: Option<crate::FileFinder>,
    /// Servers whose names fit what is completed, and the number of the question.
    servers: Arc<Mutex<(u64, Vec<Candidate>)>>,
    /// What a person wrote of prompts that also hold files.
    typed: HashMap<String, String>,
    /// The process is to stop.
    suspends: bool,
    /// Another program has the terminal.
    external: Option<LentTerminal>,
    left: Option<ExitReason>,
    drawn: Instant,
    dirty: bool,
    /// So many events came at once that more are there already.
    floods: bool,
}

/// Shows a session until somebody leaves. The terminal is as it was before, however that is.
///
/// # Errors
/// When the terminal cannot be used.
pub async fn run(begin: TerminalOptions) -> io::Result<TerminalEnd> {
    let mut notes = begin.notes;
    let mut editor = Editor::default();
    let sent = SentFile::new(&begin.home, &begin.sealer);
    match sent.load() {
        Ok(texts) => editor.set_history(texts),
        Err(error) => {
            notes.push(format!(
                "The history of sent messages cannot be read: {}: {error}",
                sent.path().display()
            ));
        }
    }
    let draft = match DraftFile::claim(&begin.home, &begin.directory, &begin.sealer) {
        Ok((file, draft)) => {
            if let Some(draft) = draft {
                editor.restore(&draft);
            }
            Some(file)
        }
        Err(error) => {
            notes.push(format!("Your unsent text is not saved: {error}"));
            None
        }
    };
    let tty = Terminal::open(begin.abilities)?;
    let (up, mut ups) = mpsc::unbounded_channel();
    let tell = up.clone();
    let storage = EditorStorage::new(draft, sent, move |text| {
        // Nobody listens at the end.
        drop(tell.send(TaskMessage::Input(Box::new(UiEvent::Note(text)))));
    })?;
    let now = SystemClock.now();
    let size_now = tty.size();
    let mut theme = begin.theme;
    theme.links = begin.abilities.links.then(Links::default);
    theme.canvas = begin.abilities.graphics.map(|graphics| Canvas {
        graphics,
        cell: tty.cell(),
        rows: size_now.rows / 2,
    });
    let links = theme.links.clone();
    let mut state = State::new(size_now, theme, begin.bindings, editor, now);
    if begin.abilities.linear {
        state = state.linear();
    }
    if !begin.adapts {
        state = state.with_fixed_theme();
    }
    let commands = begin.host.commands();
    commands.set_built_in(crate::commands::specs());
    let mut run = Run {
        host: begin.host,
        tty,
        screen: Screen::new(size_now, begin.abilities.depth).reflows(begin.abilities.reflows).links(links),
        linear: begin.abilities.linear.then(LineWriter::default),
        state,
        commands,
        offered: None,
        session: None,
        events: None,
        tasks: JoinSet::new(),
        keeping: JoinSet::new(),
        prompt_order: Arc::default(),
        up,
        unkept: None,
        storage,
        unsaved: false,
        directory: begin.directory,
        finder: None,
        servers: Arc::default(),
        typed: HashMap::new(),
        suspends: false,
        external: None,
        left: None,
        drawn: Instant::now(),
        dirty: false,
        floods: false,
    };
    for note in notes {
        run.take(UiEvent::Note(note));
    }
    run.offer_commands();
    run.draw();
    run.open(begin.open);
    for prompt in begin.prompts {
        run.say_first(prompt);
    }
    // Not an interval, whose next tick would wake the process up once more when nothing is under way.
    let mut tick = tokio::time::Instant::now();
    while run.left.is_none() {
        // After it was shown: a key never waits for a disk.
        if std::mem::take(&mut run.unsaved) {
            run.keep_draft();
        }
        if std::mem::take(&mut run.suspends) {
            run.suspend().await;
        }
        let frame = FRAME.saturating_sub(run.drawn.elapsed());
        // What the terminal has not taken yet is waited for, not asked for.
        let dirty = run.dirty && run.external.is_none() && !run.tty.busy();
        let working = run.state.is_working() && run.external.is_none();
        let is_external = run.external.is_some();
        // What streams in is taken a frame at a time, unless there is so much that it would be held up.
        let rests = dirty && !run.floods && !frame.is_zero();
        tokio::select! {
            biased;
            incoming = external::next(&mut run.tty, is_external) => match incoming {
                TerminalInput::Event(event) => {
                    run.key(event);
                    // A terminal that does not say what is pasted sends it as many keys: they are shown and kept once.
                    while run.left.is_none() && !run.suspends && run.external.is_none() {
                        let Some(event) = run.tty.more() else { break };
                        run.key(event);
                    }
                    run.draw();
                }
                TerminalInput::Written => run.draw(),
                TerminalInput::Resized(size) => run.resize(size),
                TerminalInput::Resumed => run.resumed(),
                TerminalInput::End(End::Closed) => run.left = Some(ExitReason::Gone),
                TerminalInput::End(End::Signal(number)) => run.left = Some(ExitReason::Signal(number)),
            },
            Some(up) = ups.recv() => {
                run.up(up);
                run.draw();
            }
            event = next(&mut run.events), if !rests => {
                run.event(event);
                run.events();
                if run.drawn.elapsed() >= FRAME {
                    run.draw();
                }
            }
            () = tokio::time::sleep(frame), if dirty => {
                run.events();
                run.draw();
            }
            () = tokio::time::sleep_until(tick), if working => {
                tick = tokio::time::Instant::now() + TICK;
                run.take(UiEvent::Tick);
                run.draw();
            }
            Some(done) = run.tasks.join_next() => run.done(done),
            Some(done) = run.keeping.join_next() => run.done(done),
        }
    }
    run.end(ups).await
}

/// A prompt with the images and resources that it names, and what of them could not be read.
async fn with_mentioned(
    command: Command,
    directory: PathBuf,
    typed: Option<String>,
    mentions: Mentions,
) -> (Command, Vec<String>) {
    let Command::Prompt { input, when } = command else { return (command, Vec::new()) };
    let text = input.text();
    if !text.contains('@') {
        return (Command::Prompt { input, when }, Vec::new());
    }
    let as_written = input.clone();
    let read = tokio::task::spawn_blocking(move || quipu_host::with_images(input, &directory));
    let input = read.await.unwrap_or(as_written);
    let (input, problems) = mentions.read(input, &typed.unwrap_or(text)).await;
    (Command::Prompt { input, when }, problems)
}

/// The next event of the session that is open.
async fn next(events: &mut Option<Events>) -> Option<Arc<Envelope>> {
    match events {
        Some(open) => open.next().await,
        None => std::future::pending().await,
    }
}

impl Run {
    /// Says something as if it had been typed and sent.
    fn say_first(&mut self, FirstPrompt { input: prompt, typed }: FirstPrompt) {
        let (text, mut effects) = (prompt.text(), Vec::new());
        if text != typed {
            self.typed.insert(text.clone(), typed);
        }
        effects.push(Effect::Sent(text.clone()));
        self.state.say_input(prompt, text, QueueMode::FollowUp, &mut effects);
        for effect in effects {
            self.carry_out(effect);
        }
        self.dirty = true;
    }

    fn take(&mut self, input: UiEvent) {
        for effect in self.state.on(input, SystemClock.now()) {
            self.carry_out(effect);
        }
        self.dirty = true;
    }

    fn key(&mut self, event: TerminalEvent) {
        match event {
            TerminalEvent::Key(key) => self.take(UiEvent::Key(key)),
            TerminalEvent::Paste(text) => self.take(UiEvent::Paste(text)),
            TerminalEvent::Line(text) => {
                self.linear.as_mut().map(LineWriter::entered);
                self.take(UiEvent::Line(text));
            }
            TerminalEvent::Interrupt => {
                self.linear.as_mut().map(LineWriter::disturbed);
                self.take(UiEvent::Interrupt);
            }
            TerminalEvent::Finished => self.take(UiEvent::Finished),
            TerminalEvent::Focus(focused) => self.take(UiEvent::Focus(focused)),
            TerminalEvent::Background([red, green, blue]) => {
                // As bright as it is seen to be, in ten thousandths.
                let [red, green, blue] = [red, green, blue].map(u32::from);
                let light = 2_126 * red + 7_152 * green + 722 * blue > 10_000 * 127;
                self.take(UiEvent::Ground { light });
            }
            TerminalEvent::Answer(_) => {}
        }
    }

    /// Takes the events that are there, up to so many.
    fn events(&mut self) {
        let mut count = 0;
        while count < TOGETHER && self.events.is_some() {
            let Some(event) = next(&mut self.events).now_or_never() else { break };
            self.event(event);
            count += 1;
        }
        self.floods = count >= FLOOD;
        self.dirty = true;
    }

    fn event(&mut self, event: Option<Arc<Envelope>>) {
        let Some(envelope) = event else {
            self.events = None;
            self.session = None;
            return self.take(UiEvent::Ended);
        };
        if let Event::EpochChanged { model, .. } = &envelope.event {
            self.take(UiEvent::Levels(self.host.levels(model)));
        }
        let settled = matches!(envelope.event, Event::Settled);
        self.take(UiEvent::Event(envelope));
        if settled {
            self.ask_branch();
        }
    }

    /// Files of repositories may be where reading takes long.
    fn ask_branch(&mut self) {
        let host = self.host.clone();
        let work = tokio::task::spawn_blocking(move || host.git_branch());
        self.begin(async move { UiEvent::Branch(work.await.unwrap_or_default()) });
    }

    /// Something that was begun is done. What failed inside is said, for nothing else will come of it.
    fn done(&mut self, done: Result<(), tokio::task::JoinError>) {
        if done.is_err_and(|error| error.is_panic()) {
            let panics = take_panics().join("\n");
            self.take(UiEvent::Note(format!("Quipu panicked, which is a bug: {panics}")));
        }
    }

    /// The commands that the host has now.
    fn offer_commands(&mut self) {
        let registry = self.commands.clone();
        for notice in registry.take_notices() {
            self.take(UiEvent::Note(notice.to_string()));
        }
        let version = registry.version();
        if self.offered != Some(version) {
            self.offered = Some(version);
            self.state.offer_commands(registry.list());
        }
    }

    fn up(&mut self, up: TaskMessage) {
        match up {
            TaskMessage::Input(input) => {
                // What the session says of a change comes before its answer.
                if matches!(*input, UiEvent::Sent(Purpose::Set(_), _)) {
                    self.events();
                }
                self.take(*input);
            }
            TaskMessage::Back(input) => {
                self.external = None;
                if self.tty.enter().is_err() {
                    self.left = Some(ExitReason::Gone);
                }
                self.take(*input);
                self.unsaved = true;
                self.resize(self.tty.size());
            }
            TaskMessage::Opened(Ok((opened, snapshot, events))) => {
                // Files of another machine are none of the one that the window is on.
                if let Some(links) = self.state.links().filter(|_| !self.tty.abilities().remote) {
                    links.set_directory(&opened.directory);
                }
                self.session = Some(opened.session.clone());
                self.events = Some(events);
                self.offer_commands();
                self.ask_branch();
                self.take(UiEvent::Opened(Box::new(Ok(opened))));
                self.state.show_widgets(&snapshot);
            }
            TaskMessage::Opened(Err(error)) => self.take(UiEvent::Opened(Box::new(Err(error)))),
            TaskMessage::Leave(open) => self.leave_for(open),
        }
    }

    /// Draws, unless the terminal still has to take what was drawn before: it is drawn when it has.
    fn draw(&mut self) {
        self.drawn = Instant::now();
        self.dirty = self.external.is_some() || self.tty.busy();
        if self.dirty {
            return;
        }
        let printed = self.state.take_printed();
        let bytes = match &mut self.linear {
            Some(linear) => {
                if self.tty.hide(self.state.hides()).is_err() {
                    self.left = Some(ExitReason::Gone);
                }
                linear.write(&printed, self.state.prompt())
            }
            None => {
                self.screen.print(&printed);
                let (frame, read) = view_reading(&self.state, self.screen.size());
                self.screen.draw(&frame);
                self.dirty = self.state.questions.saw(read);
                self.screen.take()
            }
        };
        self.tty.write(bytes);
    }

    /// What leaves the terminal to others.
    fn finish(&mut self) -> Vec<u8> {
        self.linear.as_mut().map_or_else(|| self.screen.finish(), LineWriter::finish)
    }

    fn resize(&mut self, size: Size) {
        self.screen.resize(size);
        self.take(UiEvent::Resize(size));
        self.draw();
    }

    /// Others may have written.
    fn resumed(&mut self) {
        // Nothing of what is shown is known to be there.
        drop(self.finish());
        self.resize(self.tty.size());
        self.draw();
    }

    /// Does something beside; what comes of it is an input.
    fn begin(&mut self, work: impl Future<Output = UiEvent> + Send + 'static) {
        let up = self.up.clone();
        self.tasks.spawn(async move {
            // Nobody listens at the end.
            drop(up.send(TaskMessage::Input(Box::new(work.await))));
        });
    }

    /// Sends a command. It is given to the session here, so that commands come there in their order; its answer is
    /// waited for beside.
    fn send(&mut self, command: Command, purpose: Purpose) {
        let command = match (&self.session, command) {
            (None, Command::Shell { line, hidden }) => return self.run_unkept(line, hidden, purpose),
            (None, Command::Abort { target: AbortTarget::Shell(_) }) => {
                return self.unkept.iter().for_each(CancellationToken::cancel);
            }
            (_, command) => command,
        };
        let (session, up, mentions) = (self.session.clone(), self.up.clone(), self.host.mentions());
        let typed = match &purpose {
            Purpose::Say(text) => self.typed.remove(text),
            _ => None,
        };
        // Reading images takes a while, in which another prompt is not to come first.
        let order = matches!(command, Command::Prompt { .. }).then(|| self.prompt_order.clone());
        let directory = match self.state.standing.directory.as_str() {
            "" => self.directory.clone(),
            directory => PathBuf::from(directory),
        };
        let mut sending = Box::pin(async move {
            let _turn = match order {
                Some(order) => Some(order.lock_owned().await),
                None => None,
            };
            let (command, problems) = with_mentioned(command, directory, typed, mentions).await;
            for problem in problems {
                drop(up.send(TaskMessage::Input(Box::new(UiEvent::Note(problem)))));
            }
            let result = match session {
                Some(session) => session.send(command).await,
                None => Err(Refusal::Closed),
            };
            drop(up.send(TaskMessage::Input(Box::new(UiEvent::Sent(purpose, result)))));
        });
        if (&mut sending).now_or_never().is_none() {
            self.keeping.spawn(sending);
        }
    }

    /// Runs a line that no session can have.
    fn run_unkept(&mut self, line: String, hidden: bool, purpose: Purpose) {
        let stop = CancellationToken::new();
        self.unkept = Some(stop.clone());
        let (id, up, messages) = (RunId::from("unkept"), self.up.clone(), self.up.clone());
        let output_id = id.clone();
        let tell = Box::new(move |tail| {
            drop(messages.send(TaskMessage::Input(Box::new(UiEvent::UnkeptOutput(output_id.clone(), tail)))));
        });
        let done = self.host.run_unkept(line, hidden, stop, tell);
        drop(up.send(TaskMessage::Input(Box::new(UiEvent::Sent(purpose, Ok(Ack::Started(id.clone())))))));
        self.tasks.spawn(async move {
            let done = done.await;
            drop(up.send(TaskMessage::Input(Box::new(UiEvent::UnkeptEnded(id, done)))));
        });
    }

    /// Opens a session, where hooks of the one that is open let that be left.
    fn open(&mut self, open: SessionRequest) {
        let to = match &open.which {
            OpenTarget::Asked => return self.leave_for(open),
            OpenTarget::New => None,
            OpenTarget::Session(session) => Some(session.clone()),
        };
        // The same one is opened again for another reason.
        let leaves = |session: &Arc<Session>| session.has_hooks() && to != Some(session.view().session);
        let Some(session) = self.session.clone().filter(leaves) else { return self.leave_for(open) };
        let up = self.up.clone();
        self.tasks.spawn(async move {
            let answer = match session.before_switch(to).await {
                Ok(()) => TaskMessage::Leave(open),
                Err(refused) => TaskMessage::Opened(Err(OpenError::Stays(refused.to_string()))),
            };
            drop(session);
            drop(up.send(answer));
        });
    }

    /// Opens a session; the one that is open ends first.
    fn leave_for(&mut self, open: SessionRequest) {
        let (host, up, old) = (self.host.clone(), self.up.clone(), self.close());
        self.tasks.spawn(async move {
            let glimpsed = async {
                if let Ok(Some(glimpse)) = host.glimpse(&open).await {
                    drop(up.send(TaskMessage::Input(Box::new(UiEvent::Glimpsed(glimpse)))));
                }
            };
            let opened = async {
                end(old).await;
                AssertUnwindSafe(host.open(open.clone())).catch_unwind().await
            };
            let ((), found) = tokio::join!(glimpsed, opened);
            let opened = match found.unwrap_or_else(|_| Err(OpenError::Failed(take_panics().join("\n")))) {
                Ok(opened) => match opened.session.subscribe_and_answer(Delivery::Lossless).await {
                    Ok((snapshot, events)) => Ok((opened, Box::new(snapshot), events)),
                    Err(error) => Err(OpenError::Failed(error.to_string())),
                },
                Err(error) => Err(error),
            };
            drop(up.send(TaskMessage::Opened(opened)));
        });
    }

    fn close(&mut self) -> Option<Arc<Session>> {
        self.events = None;
        self.session.take()
    }

    fn keep_draft(&mut self) {
        if let Some(messages) = self.storage.draft(&self.state.draft()) {
            self.take(UiEvent::Note(messages));
        }
    }

    /// Leaves: the terminal first, for what runs may take a while to end.
    async fn end(mut self, mut ups: mpsc::UnboundedReceiver<TaskMessage>) -> io::Result<TerminalEnd> {
        let left = self.left.take().unwrap_or(ExitReason::Gone);
        if let Some(external) = self.external.take() {
            self.take_back(&external, &left, &mut ups).await;
        } else {
            let printed = self.state.take_printed();
            let mut bytes = match &mut self.linear {
                Some(linear) => linear.write(&printed, ""),
                None => {
                    self.screen.print(&printed);
                    self.screen.draw(&crate::Frame::default());
                    self.screen.take()
                }
            };
            bytes.extend(self.finish());
            self.tty.write(bytes);
            self.tty.leave();
        }
        // What was said is in the store then. The answers are taken once more.
        let keeping = async { while self.keeping.join_next().await.is_some() {} };
        drop(tokio::time::timeout(END, keeping).await);
        let mut opened = None;
        while let Ok(up) = ups.try_recv() {
            match up {
                TaskMessage::Input(input) if matches!(*input, UiEvent::Sent(..) | UiEvent::Note(_)) => {
                    // Nothing is begun any more.
                    drop(self.state.on(*input, SystemClock.now()));
                }
                TaskMessage::Opened(Ok((session, ..))) => opened = Some(session.session),
                TaskMessage::Input(_)
                | TaskMessage::Back(_)
                | TaskMessage::Leave(_)
                | TaskMessage::Opened(Err(_)) => {}
            }
        }
        let mut messages: Vec<String> = self.storage.draft(&self.state.draft()).into_iter().collect();
        let old = self.close();
        self.tasks.shutdown().await;
        end(old).await;
        end(opened).await;
        self.storage.finish().await;
        messages.extend(take_panics());
        Ok(TerminalEnd { left, messages })
    }
}

/// Ends a session: what runs is stopped, and recorded as such. Nobody holds it any more then.
async fn end(session: Option<Arc<Session>>) {
    let Some(session) = session else { return };
    // One that does not end in time is stopped as a crash would.
    drop(tokio::time::timeout(END, session.shutdown()).await);
}
