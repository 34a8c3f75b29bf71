//! Sources: code of others that gives a session tools, and sections of its system prompt, and may change both while it
//! is open.
//!
//! [`ToolSource`] and [`ContextSource`] are what a program implements. A session asks them when it is opened, and before a
//! call of the model where they say that they have something else: what they gave is recorded in the node of an epoch
//! before the model has it. [`asking`] calls them with a deadline, [`desk`] keeps what they gave last, [`prompt`] makes
//! the system prompt of it.

mod absent;
mod asking;
mod context;
mod desk;
mod filter;
mod gather;
mod prompt;
mod rules;
mod slots;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_protocol::{
    AuthorClass, CompactionReason, EpochOpening, Message, NodeId, OpeningBoundary, SessionId, Trust, UnixMs,
};
use quipu_tools::Tool;
use quipu_transcript::SummaryPart;

use crate::runner::Runner;

pub use quipu_machine::EpochReason;

pub(crate) use context::without_additions;
pub(crate) use desk::{OpeningPrompt, SourceOptions, Sources};
pub(crate) use filter::InstalledFilter;
pub use filter::{ToolFilter, ToolFilterAnswer, ToolFilterAsk, UnfilteredTool};
pub(crate) use gather::{FixedTools, ToolSet, is_tool_name};
pub(crate) use prompt::{recorded_sections, section_text};
pub use rules::RulesSource;

/// Tools that a tool source may give at a time.
pub const SOURCE_TOOLS: usize = 128;
/// Bytes of the declaration of one tool of a tool source: name, description and schema.
pub const SOURCE_TOOL_BYTES: usize = 64 << 10;
/// Bytes of text that a context source may give at a time, unless its [`limit`](ContextSource::limit) says otherwise.
pub const SOURCE_TEXT: usize = 256 << 10;
/// Sections that a context source may give at a time.
pub const SOURCE_SECTIONS: usize = 256;
/// Bytes of the id of a section.
pub const SECTION_ID: usize = 4 << 10;

/// The most that a source is waited for, whatever its deadline says.
const LONGEST: Duration = Duration::from_secs(60);
/// How long a source is waited for where it does not say otherwise.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why a source could not give anything, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(String);

impl SourceError {
    /// In one line, without a full stop.
    pub fn new(why: impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// Counts the changes of a source. Clones are the same count: a source keeps one and gives sessions another.
///
/// A session compares numbers and calls nothing, so asking it costs nothing and cannot fail.
#[derive(Debug, Clone, Default)]
pub struct SourceVersion(Arc<AtomicU64>);

impl SourceVersion {
    /// A source that has not changed.
    pub fn new() -> Self {
        Self::default()
    }

    /// The source has something else now: sessions ask it before their next call of the model.
    pub fn change(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// How often it changed.
    pub fn number(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// What a source may know of the session that asks it.
#[derive(Debug, Clone)]
pub struct SourceContext {
    /// The session; `None` while it is being opened.
    pub session: Option<SessionId>,
    /// Its directory.
    pub cwd: PathBuf,
    runner: Runner,
}

/// Whose it is, and where: what it may ask makes no difference.
impl PartialEq for SourceContext {
    fn eq(&self, other: &Self) -> bool {
        (&self.session, &self.cwd) == (&other.session, &other.cwd)
    }
}

impl Eq for SourceContext {}

impl SourceContext {
    /// Asks models for the source. Its deadline keeps running meanwhile, and what is under way when it passes is aborted. While the
    /// session is being opened, calls are recorded in sessions of their own.
    pub fn runner(&self) -> &Runner {
        &self.runner
    }
}

/// Gives a session tools, which may come and go between two turns. Installed by
/// [`SessionOptions::tool_sources`](crate::SessionOptions::tool_sources).
///
/// It is asked when a session is opened, and before a call of the model when its [version](Self::version) changed. Another
/// list of tools begins an epoch. Of two tools with one name the first counts: those of the options, then those of each
/// source in the order of the list.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use futures_util::future::BoxFuture;
/// use quipu::{SourceContext, SourceError, SourceVersion, Tool, ToolSource};
///
/// /// Tools that somebody plugs in and out.
/// #[derive(Default)]
/// struct Bench {
///     tools: Mutex<Vec<Arc<dyn Tool>>>,
///     version: SourceVersion,
/// }
///
/// impl Bench {
///     fn put(&self, tools: Vec<Arc<dyn Tool>>) {
///         *self.tools.lock().expect("nobody panics with it") = tools;
///         self.version.change();
///     }
/// }
///
/// impl ToolSource for Bench {
///     fn name(&self) -> &str {
///         "bench"
///     }
///
///     fn version(&self) -> SourceVersion {
///         self.version.clone()
///     }
///
///     fn tools<'a>(&'a self, _: &'a SourceContext) -> BoxFuture<'a, Result<Vec<Arc<dyn Tool>>, SourceError>> {
///         let tools = self.tools.lock().map(|tools| tools.clone());
///         let tools = tools.map_err(|_| SourceError::new("its list of tools is broken"));
///         Box::pin(std::future::ready(tools))
///     }
/// }
/// # let bench = Bench::default();
/// # bench.put(quipu::builtin());
/// # assert_eq!(bench.version().number(), 1);
/// ```
pub trait ToolSource: Send + Sync + 'static {
    /// What it is called in records and notices. The same in every process, and no two of a session the same.
    fn name(&self) -> &str;

    /// Counts its changes. Asked once, when a session is opened; the default is that of a source that never changes.
    fn version(&self) -> SourceVersion {
        SourceVersion::default()
    }

    /// How long it may take to answer; at most a minute counts. What it gave before holds then.
    fn deadline(&self) -> Duration {
        DEADLINE
    }

    /// Its tools now, at most [`SOURCE_TOOLS`], each declared in at most [`SOURCE_TOOL_BYTES`]. The declarations are sealed
    /// before the model has them.
    ///
    /// # Errors
    /// Why it cannot say. The tools that it gave before stay.
    fn tools<'a>(&'a self, cx: &'a SourceContext) -> BoxFuture<'a, Result<Vec<Arc<dyn Tool>>, SourceError>>;
}

/// What a context source is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextAsk {
    /// The event that lets an epoch begin.
    pub reason: EpochReason,
    /// Tokens that its sections should have at most, so that the model's window has room for the conversation; `None`
    /// where the window is not known.
    pub budget: Option<u64>,
    /// The session that asks.
    pub cx: SourceContext,
}

/// What a context source gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Context {
    /// Sections of the system prompt, in this order.
    pub sections: Vec<Section>,
    /// Tokens of the newest conversation that a compaction leaves as they are, at least; half of the model's window counts at
    /// most. Of several sources the one that wants most counts.
    pub keep_recent: Option<u64>,
}

/// A section of the system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// What the source calls it, such as a path: at most [`SECTION_ID`] bytes.
    pub id: String,
    /// What the model reads. That of untrusted sections stands between marks that say so.
    pub text: String,
    /// Whose words these are.
    pub trust: Trust,
}

/// What a context source is asked for what requests have before the conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct OpeningAsk {
    /// The event that lets an epoch begin.
    pub reason: EpochReason,
    /// What requests have there now, where this source gave it.
    pub before: Option<EpochOpening>,
    /// When the oldest message of the conversation was said that is no summary; `None` before there is one.
    pub first: Option<UnixMs>,
    /// What the user said before the newest message of theirs, oldest first; the last ones alone.
    pub earlier: Vec<Arc<Message>>,
    /// Tokens of the conversation, estimated: all of it is read anew by the provider where what stands before it changes.
    pub tokens: u64,
    /// The size of the model's window in tokens; 0 where it is not known.
    pub window: u64,
    /// The session that asks.
    pub cx: SourceContext,
}

/// What requests have between the system prompt and the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opening {
    /// What a message in the place of the user says, at most [`SOURCE_TEXT`] bytes; nothing where it is empty.
    pub text: String,
    /// What stands between that, or the summary of a compaction, and the conversation.
    pub boundary: Option<OpeningBoundary>,
    /// The nodes whose content the text tells: where a person has one of them forgotten, the source is asked again, and without
    /// an answer the text goes.
    pub nodes: Vec<NodeId>,
    /// What the source wants to have back when it is asked again, at most [`SOURCE_TEXT`] bytes; it is stored, and in no request.
    pub state: Option<String>,
}

/// A summary in place of the model's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSummary {
    /// What it says.
    pub text: String,
    /// The class of the least trusted author whose words it has; `None` where it counts as the model's.
    pub author: Option<AuthorClass>,
    /// Parts of the text, word for word, in their order, and the nodes whose words they have: they go where a person has one of those
    /// forgotten.
    pub parts: Vec<SummaryPart>,
}

impl From<String> for SourceSummary {
    fn from(text: String) -> Self {
        Self { text, author: None, parts: Vec::new() }
    }
}

/// What a compaction is about to sum up.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactionAsk {
    /// The messages that the summary stands for, oldest first; sealed.
    pub messages: Vec<Arc<Message>>,
    /// The summary of what came before them.
    pub previous: Option<String>,
    /// What somebody wants to be looked at above all.
    pub focus: Option<String>,
    /// Tokens that the summary may have.
    pub max_tokens: u64,
    /// Why the context is compacted.
    pub reason: Option<CompactionReason>,
    /// The node at which the compaction began: no two compactions of a session have the same.
    pub head: NodeId,
    /// The oldest node that stays in the context; `None` where none does.
    pub first_kept: Option<NodeId>,
    /// The session that asks.
    pub cx: SourceContext,
}

/// Gives a session sections of its system prompt. Installed by
/// [`SessionOptions::context_sources`](crate::SessionOptions::context_sources).
///
/// It is asked when a session begins, before a call of the model when its [version](Self::version) changed, and after a
/// compaction or a change of the model where it [wants to](Self::wants). What it gave is recorded in the node of the epoch: a
/// session that is opened later continues with the record, also without the source. Sections stand behind
/// [`SessionOptions::system`](crate::SessionOptions::system), in the order of the sources, before
/// [`SessionOptions::system_end`](crate::SessionOptions::system_end).
///
/// ```
/// use futures_util::future::BoxFuture;
/// use quipu::protocol::Trust;
/// use quipu::{Context, ContextAsk, ContextSource, EpochReason, Section, SourceError};
///
/// /// What the agent wrote down for itself.
/// struct Notes(std::path::PathBuf);
///
/// impl ContextSource for Notes {
///     fn name(&self) -> &str {
///         "notes"
///     }
///
///     fn wants(&self, reason: EpochReason) -> bool {
///         reason == EpochReason::Compaction
///     }
///
///     fn context<'a>(&'a self, ask: &'a ContextAsk) -> BoxFuture<'a, Result<Context, SourceError>> {
///         let path = self.0.join("notes.md");
///         Box::pin(async move {
///             let mut text = tokio::fs::read_to_string(&path).await.map_err(SourceError::new)?;
///             // About four bytes are a token.
///             let most = ask.budget.map_or(usize::MAX, |tokens| usize::try_from(tokens * 4).unwrap_or(usize::MAX));
///             text.truncate(text.floor_char_boundary(most));
///             let section = Section { id: "notes.md".into(), text, trust: Trust::Untrusted };
///             Ok(Context { sections: vec![section], keep_recent: Some(8_000) })
///         })
///     }
/// }
/// ```
pub trait ContextSource: Send + Sync + 'static {
    /// What it is called in records and notices. The same in every process, and no two of a session the same.
    fn name(&self) -> &str;

    /// Counts its changes: it asks for a new epoch by counting one more. Asked once, when a session is opened; the default is
    /// that of a source that never changes.
    fn version(&self) -> SourceVersion {
        SourceVersion::default()
    }

    /// How long it may take to answer; at most a minute counts. What it gave before holds then.
    fn deadline(&self) -> Duration {
        DEADLINE
    }

    /// Bytes of all its sections at most. More are left out, all of them, with a notice.
    fn limit(&self) -> usize {
        SOURCE_TEXT
    }

    /// Whether it is asked after a compaction, a change of the model, or at the beginning of each run. It is always asked at the start, and when it
    /// changed. Asked once, when a session is opened.
    fn wants(&self, _reason: EpochReason) -> bool {
        false
    }

    /// Whether what it says is another text in another session, so that a provider's cache of what is the same ends before it.
    fn changes(&self) -> bool {
        false
    }

    /// Whether sub-agents of the session have one of its sections in their prompts, too.
    fn is_for_sub_agents(&self, _section: &str) -> bool {
        true
    }

    /// Its sections now; the default is none. They are sealed before the model has them.
    ///
    /// # Errors
    /// Why it cannot say. The sections that it gave before stay.
    fn context<'a>(&'a self, _ask: &'a ContextAsk) -> BoxFuture<'a, Result<Context, SourceError>> {
        Box::pin(std::future::ready(Ok(Context::default())))
    }

    /// What requests have before the conversation from here on; `None` for nothing. Asked when a session begins, before the
    /// next call of the model after each event that the source [wants](Self::wants) ([`EpochReason::Run`] is the beginning of each
    /// run), and where a person had something forgotten that it tells. It is recorded in the node of an epoch before a request has
    /// it, so it is the same when the session is opened later. Of several sources the first one that gives something counts.
    ///
    /// # Errors
    /// Why it cannot say. What it gave before stays.
    fn opening<'a>(&'a self, _ask: &'a OpeningAsk) -> BoxFuture<'a, Result<Option<Opening>, SourceError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Called once before each compaction, whatever its reason: the messages leave the context then. The compaction waits for it,
    /// no longer than the deadline, and goes on whatever becomes of it.
    ///
    /// # Errors
    /// Why it could not do what it wanted. A notice says so.
    fn before_compaction<'a>(&'a self, _ask: &'a CompactionAsk) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// A summary in place of the one that the model would make; `None` leaves it to the next source, and in the end to the
    /// model. One of more than [`CompactionAsk::max_tokens`] is not taken.
    ///
    /// # Errors
    /// Why it cannot say. The next source is asked, and in the end the model.
    fn compaction<'a>(
        &'a self,
        _ask: &'a CompactionAsk,
    ) -> BoxFuture<'a, Result<Option<SourceSummary>, SourceError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
