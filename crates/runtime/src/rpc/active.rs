//! The session that is open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quipu::store::Graph;
use quipu::{Delivery, Session};
use quipu_host::Mirror;
use quipu_host::resources::ResourceSet;
use quipu_protocol::{
    Ask, Envelope, Event, Message, Model, NodeId, Refusal, RunId, Snapshot, Thinking, UserInput,
};
use quipu_rpc::StreamingBehavior;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

/// How long the events of a run wait for the response to the prompt that began it.
const RESPONSE: Duration = Duration::from_secs(1);
/// How long a session that ends may still tell of it.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// The session that is open, and what the front knows of it.
pub(super) struct ActiveSession {
    pub(super) session: Session,
    pub(super) store: Arc<dyn Graph>,
    /// The file that it is written to as well.
    pub(super) file: Option<Arc<Mirror>>,
    pub(super) resources: ResourceSet,
    pub(super) shown: Arc<ShownSession>,
    pump: Mutex<Option<AbortOnDropHandle<()>>>,
    /// The context that was read last.
    context: Mutex<Option<ReadContext>>,
}

/// What a model would be sent, shared by all who ask for it.
type ContextMessages = Arc<Vec<Arc<Message>>>;

/// A context, and the node where it is.
struct ReadContext {
    node: NodeId,
    messages: ContextMessages,
}

/// What the program was shown, and who waits for more of it.
pub(super) struct ShownSession {
    /// How long a question waits for an answer.
    pub(super) ask_deadline: Duration,
    state: Mutex<ShownState>,
    prompts: watch::Sender<PromptCount>,
}

#[derive(Default)]
struct ShownState {
    /// A run or a compaction was shown to begin, and not to end.
    is_running: bool,
    is_compacting: bool,
    /// Questions without an answer.
    asks: Vec<Arc<Ask>>,
    listeners: Vec<Listener>,
    /// Messages for a run that has not begun.
    held: Vec<HeldMessage>,
    /// What was chosen and is not recorded yet.
    wanted: PendingChoice,
}

/// What was chosen while a run is under way.
#[derive(Default, Clone)]
pub(super) struct PendingChoice {
    pub(super) model: Option<Arc<Model>>,
    pub(super) thinking: Option<Thinking>,
    pub(super) name: Option<String>,
}

/// A message for the queue of a run that has not begun.
pub(super) struct HeldMessage {
    pub(super) queue: StreamingBehavior,
    pub(super) input: UserInput,
}

/// Prompts whose response is not written yet.
#[derive(Default)]
struct PromptCount {
    open: usize,
    /// The last run whose prompt has its response.
    answered: Option<RunId>,
}

type Kind = fn(&Event) -> bool;

struct Listener {
    kind: Kind,
    events: mpsc::UnboundedSender<Arc<Envelope>>,
}

/// Holds up the events of the run that a prompt begins until its response is written.
pub(super) struct PromptGuard {
    shown: Arc<ShownSession>,
    run: Option<RunId>,
}

impl PromptGuard {
    /// The run that the prompt began.
    pub(super) fn began(&mut self, run: RunId) {
        self.run = Some(run);
    }
}

impl Drop for PromptGuard {
    fn drop(&mut self) {
        let run = self.run.take();
        self.shown.prompts.send_modify(|count| {
            count.open = count.open.saturating_sub(1);
            count.answered = run.or(count.answered.take());
        });
    }
}

impl ShownSession {
    pub(super) fn new(ask_deadline: Duration) -> Self {
        Self { ask_deadline, state: Mutex::default(), prompts: watch::Sender::default() }
    }

    fn state(&self) -> MutexGuard<'_, ShownState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A prompt is under way.
    pub(super) fn prompt(self: &Arc<Self>) -> PromptGuard {
        self.prompts.send_modify(|count| count.open += 1);
        PromptGuard { shown: self.clone(), run: None }
    }

    /// Waits until the prompt that began a run has its response; not for long, as another one may wait for an answer.
    pub(super) async fn prompt_answered(&self, run: Option<&RunId>) {
        let mut prompts = self.prompts.subscribe();
        let answered = prompts.wait_for(|count| count.open == 0 || count.answered.as_ref() == run);
        drop(tokio::time::timeout(RESPONSE, answered).await);
    }

    /// Notes an event before it is shown.
    pub(super) fn note(&self, event: &Event) {
        let mut state = self.state();
        match event {
            Event::RunStarted => state.is_running = true,
            Event::RunEnded { .. } => state.is_running = false,
            Event::CompactionStarted { .. } => state.is_compacting = true,
            Event::CompactionEnded { .. } => state.is_compacting = false,
            Event::AskOpened { ask } => state.asks.push(ask.clone()),
            Event::AskClosed { ask, .. } => state.asks.retain(|open| open.id != *ask),
            Event::EpochChanged { .. } => (state.wanted.model, state.wanted.thinking) = (None, None),
            Event::Renamed { .. } => state.wanted.name = None,
            _ => {}
        }
    }

    /// Tells those who wait for it of an event that was shown.
    pub(super) fn tell(&self, envelope: &Arc<Envelope>) {
        self.state().listeners.retain(|listener| {
            !listener.events.is_closed()
                && (!(listener.kind)(&envelope.event) || listener.events.send(envelope.clone()).is_ok())
        });
    }

    /// Nothing more is shown.
    pub(super) fn end(&self) {
        self.state().listeners.clear();
    }

    /// The events of a kind that are shown from now on.
    pub(super) fn listen(&self, kind: Kind) -> mpsc::UnboundedReceiver<Arc<Envelope>> {
        let (events, receiver) = mpsc::unbounded_channel();
        self.state().listeners.push(Listener { kind, events });
        receiver
    }

    /// An open question.
    pub(super) fn ask(&self, id: &quipu_protocol::AskId) -> Option<Arc<Ask>> {
        self.state().asks.iter().find(|ask| ask.id == *id).cloned()
    }

    pub(super) fn wanted(&self) -> PendingChoice {
        self.state().wanted.clone()
    }

    pub(super) fn want(&self, change: impl FnOnce(&mut PendingChoice)) {
        change(&mut self.state().wanted);
    }

    /// How many messages wait for a run.
    pub(super) fn held(&self) -> usize {
        self.state().held.len()
    }

    /// Keeps a message for the next run; the line that lists all of them.
    pub(super) fn hold(&self, message: HeldMessage) -> String {
        let mut state = self.state();
        state.held.push(message);
        held_line(&state.held)
    }

    /// Takes the messages that wait for a run.
    pub(super) fn take_held(&self) -> Vec<HeldMessage> {
        std::mem::take(&mut self.state().held)
    }

    fn is_busy(&self) -> bool {
        let state = self.state();
        state.is_running || state.is_compacting
    }
}

fn held_line(held: &[HeldMessage]) -> String {
    let texts = |queue: StreamingBehavior| -> Vec<String> {
        held.iter().filter(|one| one.queue == queue).map(|one| one.input.text()).collect()
    };
    quipu_rpc::queue_line(&texts(StreamingBehavior::Steer), &texts(StreamingBehavior::FollowUp))
}

impl ActiveSession {
    pub(super) fn new(
        session: Session,
        store: Arc<dyn Graph>,
        file: Option<Arc<Mirror>>,
        resources: ResourceSet,
        shown: Arc<ShownSession>,
        pump: AbortOnDropHandle<()>,
    ) -> Self {
        let pump = Mutex::new(Some(pump));
        Self { session, store, file, resources, shown, pump, context: Mutex::default() }
    }

    /// How it stands.
    pub(super) async fn snapshot(&self) -> Result<Snapshot, Refusal> {
        Ok(self.session.subscribe(Delivery::Live).await?.0)
    }

    /// Whether something is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.session.view().run.is_some()
    }

    /// The messages of its context.
    pub(super) async fn messages(&self, head: Option<NodeId>) -> Result<ContextMessages, String> {
        let Some(node) = head else { return Ok(Arc::default()) };
        if let Some(messages) = self.known_messages(node) {
            return Ok(messages);
        }
        let read = quipu::context_messages(&*self.store, node).await.map_err(|error| error.to_string())?;
        let messages = Arc::new(read);
        let context = ReadContext { node, messages: messages.clone() };
        *self.context.lock().unwrap_or_else(PoisonError::into_inner) = Some(context);
        Ok(messages)
    }

    fn known_messages(&self, node: NodeId) -> Option<ContextMessages> {
        let known = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|known| known.node == node).map(|known| known.messages.clone())
    }

    /// Waits until nothing runs and the program was shown so.
    pub(super) async fn settled(&self) {
        let mut ends = self.shown.listen(|event| {
            matches!(event, Event::Settled | Event::RunEnded { .. } | Event::CompactionEnded { .. })
        });
        while self.is_busy() || self.shown.is_busy() {
            // Not every end of what is under way is an event.
            match tokio::time::timeout(Duration::from_millis(200), ends.recv()).await {
                Ok(Some(_)) | Err(_) => {}
                Ok(None) => return,
            }
        }
    }

    /// Ends it: what runs is aborted and recorded first. What its file lacks.
    pub(super) async fn close(&self, shows: bool) -> Option<String> {
        let pump = self.pump.lock().unwrap_or_else(PoisonError::into_inner).take();
        let pump = pump.filter(|_| shows);
        self.session.shutdown().await;
        if let Some(pump) = pump {
            drop(tokio::time::timeout(LAST_EVENTS, pump).await);
        }
        self.shown.end();
        match &self.file {
            Some(file) => file.finish().await.err().map(|failure| failure.message),
            None => None,
        }
    }
}
