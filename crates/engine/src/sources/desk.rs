//! The sources of one session, and what each of them gave last.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::future::join_all;
use quipu_machine::{Calls, ConversationBrief, EpochReason, RefreshResult, Refreshes, Stretch, Summary};
use quipu_protocol::{Epoch, EpochContext, EpochOpening, Model, NodeId, Origin, Provenance, Trust};
use quipu_seal::Sealer;
use quipu_store::Graph;
use quipu_tools::Tool;
use quipu_transcript::{FORGOTTEN, PLAN_TOOL, TODO_TOOL, estimate_text};
use tokio_util::sync::CancellationToken;

use super::asking::{Answer, ask};
use super::context::{ContextParts, OpeningTerms, checked, checked_opening, tells_forgotten};
use super::filter::InstalledFilter;
use super::gather::{FixedTools, GivenTool, ToolSet, in_order};
use super::prompt::{Frame, Part, SourceParts, compose, take_apart};
use super::slots::{ContextSlot, InstalledContext, ToolSlot, had, installed, slots};
use super::{
    CompactionAsk, ContextAsk, ContextSource, OpeningAsk, SOURCE_TEXT, SourceContext, SourceError,
    SourceVersion, ToolSource,
};
use crate::agents::TASK_TOOL;
use crate::context::system_end;
use crate::identity::{Prompt, system_text};
use crate::image_tool::IMAGE_TOOL;
use crate::resume::Past;
use crate::runner::{Backend, Runner};
use crate::travel::SessionView;

/// Tools that know the session that they belong to.
const OF_A_SESSION: [&str; 4] = [TASK_TOOL, PLAN_TOOL, TODO_TOOL, IMAGE_TOOL];
/// The share of the model's window that sections should have at most.
const SHARE: u64 = 8;

/// What a source gave last, and how often it had changed by then.
#[derive(Clone)]
struct LastAnswer<T> {
    seen: u64,
    given: T,
}

/// What all sources gave last.
#[derive(Clone, Default)]
struct SourceAnswers {
    tools: Vec<LastAnswer<Vec<GivenTool>>>,
    contexts: Vec<LastAnswer<ContextParts>>,
}

struct State {
    held: SourceAnswers,
    set: Arc<ToolSet>,
    /// What stands around the sections; not looked at where there is no source of context.
    frame: Frame,
    prompt: Prompt,
    /// What was given since, and does not hold before it is recorded.
    pending: Option<(SourceAnswers, Arc<ToolSet>)>,
    /// What was reported of each source last, and of tools that collide.
    reported: HashMap<String, String>,
    /// Which sources of context are done with the compaction that is next.
    told: HashSet<usize>,
}

/// The sources of a session.
pub(crate) struct Sources {
    sealer: Arc<Sealer>,
    store: Arc<dyn Graph>,
    cwd: PathBuf,
    standing: SessionView,
    runner: OnceLock<Arc<dyn Backend>>,
    /// While it is being opened.
    opening_runner: Runner,
    fixed: FixedTools,
    filter: Option<InstalledFilter>,
    tools: Vec<ToolSlot>,
    contexts: Vec<ContextSlot>,
    /// Of each source that can change, how often it had at the last report.
    watched: Vec<(SourceVersion, AtomicU64)>,
    state: Mutex<State>,
}

/// What the options of a session say of its sources and its prompt.
pub(crate) struct SourceOptions<'a> {
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) store: Arc<dyn Graph>,
    pub(crate) cwd: PathBuf,
    pub(crate) standing: SessionView,
    pub(crate) runner: Runner,
    pub(crate) model: &'a Model,
    /// Tools that come from no source.
    pub(crate) tools: FixedTools,
    /// Decides which of all tools are offered.
    pub(crate) filter: Option<InstalledFilter>,
    /// Gives ours, which stand before those of other sources.
    pub(crate) own: Option<Arc<dyn ToolSource>>,
    pub(crate) tool_sources: &'a [Arc<dyn ToolSource>],
    pub(crate) context_sources: &'a [Arc<dyn ContextSource>],
    pub(crate) identity: Option<&'a str>,
    pub(crate) system: Option<&'a str>,
    pub(crate) system_end: Option<&'a str>,
}

/// What was asked of the sources of a session that is opened.
pub(crate) struct OpeningPrompt {
    pub(crate) prompt: Prompt,
    pub(crate) context: Option<EpochContext>,
    /// What people should know.
    pub(crate) notices: Vec<String>,
}

impl Sources {
    /// Those of a session that is being opened, with their tools, and what they make of its prompt.
    pub(crate) async fn open(wanted: SourceOptions<'_>, past: Option<&Past>) -> (Self, OpeningPrompt) {
        let mut notices = Vec::new();
        let ours = wanted.own.clone().map(|source| (source, true));
        let others = wanted.tool_sources.iter().map(|source| (source.clone(), false));
        let mut names = HashSet::new();
        let tools: Vec<ToolSlot> = ours
            .into_iter()
            .chain(others)
            .filter_map(|(source, is_ours)| {
                let named = AssertUnwindSafe(|| (source.name().to_owned(), source.version()));
                let (name, version) = installed(&mut names, &mut notices, catch_unwind(named).ok())?;
                Some(ToolSlot { name, source, version, is_ours })
            })
            .collect();
        let contexts = slots(wanted.context_sources, past, &mut notices);
        let watched_tools = tools.iter().filter(|slot| !slot.is_ours).map(|slot| &slot.version);
        let watched_contexts =
            contexts.iter().filter_map(|slot| slot.installed.as_ref()).map(|installed| &installed.version);
        let watch = |version: &SourceVersion| (version.clone(), AtomicU64::new(version.number()));
        let of_filter = wanted.filter.as_ref().and_then(|installed| {
            // One that panics here is asked at the other moments alone.
            catch_unwind(AssertUnwindSafe(|| installed.filter.version())).ok()
        });
        let watched = watched_tools.chain(watched_contexts).chain(&of_filter).map(watch).collect();
        let state = State {
            held: SourceAnswers::default(),
            set: Arc::default(),
            frame: Frame::default(),
            prompt: Prompt::default(),
            pending: None,
            reported: HashMap::new(),
            told: HashSet::new(),
        };
        let mut sources = Self {
            sealer: wanted.sealer.clone(),
            store: wanted.store.clone(),
            cwd: wanted.cwd.clone(),
            standing: wanted.standing.clone(),
            runner: OnceLock::new(),
            opening_runner: wanted.runner.clone(),
            fixed: wanted.tools.clone(),
            filter: wanted.filter.clone(),
            tools,
            contexts,
            watched,
            state: Mutex::new(state),
        };
        let set = sources.first_tools(wanted.model, past.map(|past| &past.epoch), &mut notices).await;
        sources.state_mut().set = Arc::new(set);
        let (prompt, context) = sources.first_prompt(&wanted, past, &mut notices).await;
        (sources, OpeningPrompt { prompt, context, notices })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&mut self) -> &mut State {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tools that the session has now.
    pub(crate) fn set(&self) -> Arc<ToolSet> {
        self.state().set.clone()
    }

    /// At what else than their own changes some want to be asked.
    pub(crate) fn refreshes(&self) -> Refreshes {
        let all = self.contexts.iter().filter_map(|slot| slot.installed.as_ref()).map(|one| one.wants);
        let own = Refreshes { model_change: self.filter.is_some(), ..Refreshes::default() };
        all.fold(own, |all, one| Refreshes {
            compaction: all.compaction || one.compaction,
            model_change: all.model_change || one.model_change,
            run: all.run || one.run,
        })
    }

    /// Whether a source changed since this was asked last.
    pub(crate) fn changed(&self) -> bool {
        let mut changed = false;
        for (version, seen) in &self.watched {
            let number = version.number();
            changed |= seen.swap(number, Ordering::Relaxed) != number;
        }
        changed
    }

    fn cx(&self) -> SourceContext {
        let session = self.standing.get().map(|view| view.borrow().session.clone());
        let runner = self.runner.get().cloned().filter(|_| session.is_some());
        let runner =
            runner.map_or_else(|| self.opening_runner.clone(), |runner| Runner::new(Some(runner), None));
        SourceContext { session, cwd: self.cwd.clone(), runner }
    }

    /// How sources ask models once the session is open.
    pub(crate) fn runs_through(&self, runner: Arc<dyn Backend>) {
        // Each session has its own sources.
        drop(self.runner.set(runner));
    }

    /// A tool that another session may have: none of those that know where this one stands.
    pub(crate) fn lent(&self, name: &str) -> Option<Arc<dyn Tool>> {
        let set = self.set();
        let given = set.from().values().flatten().any(|given| given == name);
        let fixed =
            !OF_A_SESSION.contains(&name) && self.fixed.tools.iter().any(|tool| tool.spec().name == name);
        set.get(name).filter(|_| given || fixed).cloned()
    }

    /// All tools that another session may have, in the order of this one.
    pub(crate) fn all_lent(&self) -> Vec<Arc<dyn Tool>> {
        self.set().specs().iter().filter_map(|spec| self.lent(&spec.name)).collect()
    }

    /// The system prompt of a sub-agent: its own text in the place of the program's, with the sections and the end of the prompt of
    /// this session, as far as these are for sub-agents; without a text that prompt as far as it is.
    pub(crate) fn prompt_for(&self, text: Option<&str>) -> String {
        let state = self.state();
        let mut contexts = state.held.contexts.clone();
        let is_own = |last: &LastAnswer<ContextParts>| last.given.parts.iter().any(|part| part.main_only);
        let has_own = contexts.iter().any(is_own);
        let head = match text {
            Some(text) => Some(self.sealer.seal(text.trim()).into_owned()),
            None if has_own => state.frame.head.clone(),
            None => return state.prompt.rest(),
        };
        let tail = match state.frame == Frame::default() {
            true => self.sealer.seal(&system_end(&self.cwd)).into_owned().into(),
            false => state.frame.tail.clone(),
        };
        let frame = Frame { head, tail };
        contexts.iter_mut().for_each(|last| last.given.parts.retain(|part| !part.main_only));
        self.forget(&mut contexts);
        self.compose(&frame, &contexts).0
    }

    /// Takes lines that a person had forgotten out of what untrusted sources gave; whether there were any.
    fn forget(&self, contexts: &mut [LastAnswer<ContextParts>]) -> bool {
        let hidden = self.store.hidden();
        if hidden.is_empty() || hidden.problem().is_some() {
            return false;
        }
        let mut has_some = false;
        for opening in contexts.iter_mut().filter_map(|last| last.given.opening.as_mut()) {
            if tells_forgotten(&hidden, opening) {
                (opening.text, opening.nodes, opening.state) = (String::new(), Vec::new(), None);
                has_some = true;
            }
        }
        let parts = contexts.iter_mut().flat_map(|last| &mut last.given.parts);
        for part in parts.filter(|part| part.trust == Trust::Untrusted) {
            if part.text.lines().any(|line| hidden.hides_line(line)) {
                let left = |line| if hidden.hides_line(line) { FORGOTTEN } else { line };
                part.text = part.text.split('\n').map(left).collect::<Vec<_>>().join("\n");
                has_some = true;
            }
        }
        has_some
    }

    /// What a source gives now.
    async fn tools_of(
        &self,
        slot: &ToolSlot,
        before: &[GivenTool],
        cancel: &CancellationToken,
    ) -> Answer<Vec<GivenTool>> {
        let cx = self.cx();
        let work = async {
            let given = slot.source.tools(&cx).await?;
            if slot.is_ours {
                let given = given.into_iter().map(|tool| GivenTool { spec: tool.spec().clone(), tool });
                return Ok(given.collect());
            }
            let given = super::gather::checked(&self.sealer, given)?;
            Ok(in_order(given, before.iter().map(|one| &*one.spec.name)))
        };
        ask(&self.sealer, || slot.source.deadline(), cancel, work).await
    }

    /// The tools of all sources when the session is opened. Those of one that cannot be asked stand in for themselves, where
    /// the session had them.
    async fn first_tools(
        &mut self,
        model: &Model,
        past: Option<&Epoch>,
        notices: &mut Vec<String>,
    ) -> ToolSet {
        let never = &CancellationToken::new();
        let had: Vec<Vec<GivenTool>> = self.tools.iter().map(|slot| had(slot, past)).collect();
        let this = &*self;
        let asked = this.tools.iter().zip(&had).map(|(slot, had)| async move {
            let seen = slot.version.number();
            (seen, this.tools_of(slot, had, never).await)
        });
        let answers = join_all(asked).await;
        let mut held = Vec::with_capacity(answers.len());
        let mut reported = HashMap::new();
        for ((slot, had), (seen, answer)) in self.tools.iter().zip(had).zip(answers) {
            let given = match answer {
                Answer::Given(given) => given,
                Answer::Failed(why) => {
                    let text = match had.len() {
                        0 => format!("The tool source {} provides no tools: {why}.", slot.name),
                        count => format!(
                            "The tool source {} is not available: {why}. Its {count} tools in this session return an \
                             error until it is.",
                            slot.name
                        ),
                    };
                    reported.insert(slot.name.clone(), text.clone());
                    notices.push(text);
                    had
                }
                Answer::Cancelled => had,
            };
            held.push(LastAnswer { seen, given });
        }
        let (set, collisions) = self.set_of(&held, model);
        reported.extend(collisions.iter().map(|text| (text.clone(), text.clone())));
        notices.extend(collisions);
        let none = HashMap::new();
        let set = match past {
            Some(past) => set.after(&past.tool_sources, &none),
            None => set,
        };
        let state = self.state_mut();
        (state.held.tools, state.reported) = (held, reported);
        set
    }

    /// The tools of all sources as a model gets them; with what people should know.
    fn set_of(&self, held: &[LastAnswer<Vec<GivenTool>>], model: &Model) -> (ToolSet, Vec<String>) {
        let sources = self.tools.iter().zip(held);
        let sources =
            sources.map(|(slot, last)| ((!slot.is_ours).then_some(&*slot.name), last.given.as_slice()));
        let (set, mut collisions) = ToolSet::of(&self.fixed, sources);
        let Some(filter) = &self.filter else { return (set, collisions) };
        let (set, notices) = filter.apply(set, model);
        collisions.extend(notices);
        (set, collisions)
    }

    /// The system prompt of the session that is opened, and what sources gave of it. What is recorded stands; sources are
    /// asked only where the prompt is made anew.
    async fn first_prompt(
        &mut self,
        wanted: &SourceOptions<'_>,
        past: Option<&Past>,
        notices: &mut Vec<String>,
    ) -> (Prompt, Option<EpochContext>) {
        let system = wanted.system;
        if self.contexts.is_empty() && system.is_none() && past.is_some() {
            let was = past.map(|past| &past.prompt);
            let prompt = Prompt::of(&wanted.sealer, wanted.identity, None, was);
            self.state_mut().prompt = prompt.clone();
            return (prompt, None);
        }
        let sealed = |text: &str| wanted.sealer.seal(text).into_owned();
        let frame = Frame { head: system.map(sealed), tail: wanted.system_end.map(sealed) };
        let was = past.map(|past| (past.prompt.rest(), past.epoch.context.as_ref()));
        let (recorded, parts) = match &was {
            Some((rest, record)) => take_apart(rest, *record),
            None => Default::default(),
        };
        let keeps = was.as_ref().and_then(|(_, record)| record.map(|record| &record.keep_recent));
        let opened = was.as_ref().and_then(|(_, record)| record.and_then(|record| record.opening.as_ref()));
        let kept = |slots: &[ContextSlot]| -> Vec<LastAnswer<ContextParts>> {
            let slots = slots.iter().map(|slot| LastAnswer {
                seen: slot.installed.as_ref().map_or(0, |one| one.version.number()),
                given: ContextParts {
                    parts: parts.get(&slot.name).cloned().unwrap_or_default(),
                    keep_recent: keeps.and_then(|keeps| keeps.get(&slot.name).copied()),
                    opening: opened.filter(|opening| opening.source == slot.name).cloned(),
                },
            });
            slots.collect()
        };
        let (frame, mut held, mut rest, mut record) = match &was {
            Some((rest, record)) if system.is_none() => {
                (recorded, kept(&self.contexts), rest.clone(), record.cloned())
            }
            Some((rest, record)) if self.compose(&frame, &kept(&self.contexts)).0 == *rest => {
                (recorded, kept(&self.contexts), rest.clone(), record.cloned())
            }
            _ => {
                // A new beginning: what only the record knows is over.
                self.contexts.retain(|slot| slot.installed.is_some());
                let held = self.first_sections(wanted.model, &parts, (was.is_some(), opened), notices).await;
                let (rest, record) = self.compose(&frame, &held);
                match &was {
                    // The same bytes need no other record.
                    Some((was, before)) if *was == rest => {
                        (recorded, kept(&self.contexts), rest, before.cloned())
                    }
                    _ => (frame, held, rest, (!self.contexts.is_empty()).then_some(record)),
                }
            }
        };
        let has_forgotten = self.forget(&mut held);
        if has_forgotten {
            let (left, of_left) = self.compose(&frame, &held);
            (rest, record) = (left, Some(of_left));
        }
        let rest = (system.is_some() || was.is_none() || has_forgotten).then_some(rest);
        let prompt =
            Prompt::of(&self.sealer, wanted.identity, rest.as_deref(), past.map(|past| &past.prompt));
        let state = self.state_mut();
        (state.held.contexts, state.frame, state.prompt) = (held, frame, prompt.clone());
        (prompt, record)
    }

    /// What installed sources give for a prompt that is made anew; of one that cannot be asked, what the record has.
    async fn first_sections(
        &mut self,
        model: &Model,
        recorded: &BTreeMap<String, Vec<Part>>,
        (continues, opened): (bool, Option<&EpochOpening>),
        notices: &mut Vec<String>,
    ) -> Vec<LastAnswer<ContextParts>> {
        let never = &CancellationToken::new();
        let this = &*self;
        // What stands before a conversation that goes on is not begun anew: the next run asks for it.
        let kept = |slot: &ContextSlot| opened.filter(|opening| opening.source == slot.name);
        let asked = this.contexts.iter().map(|slot| async move {
            let seen = slot.installed.as_ref().map_or(0, |one| one.version.number());
            let terms = match continues {
                true => OpeningTerms::Kept(kept(slot)),
                false => OpeningTerms::Asked(None, &ConversationBrief::default()),
            };
            (seen, this.context_of(slot, EpochReason::Start, model, terms, never).await)
        });
        let answers = join_all(asked).await;
        let mut held = Vec::with_capacity(answers.len());
        let mut reported = HashMap::new();
        for (slot, (seen, answer)) in self.contexts.iter().zip(answers) {
            let given = match answer {
                Answer::Given(given) => given,
                Answer::Failed(why) => {
                    let text = context_failed(&slot.name, &why);
                    reported.insert(context_key(&slot.name), text.clone());
                    notices.push(text);
                    let parts = recorded.get(&slot.name).cloned().unwrap_or_default();
                    ContextParts { parts, opening: kept(slot).cloned(), ..ContextParts::default() }
                }
                Answer::Cancelled => ContextParts::default(),
            };
            held.push(LastAnswer { seen, given });
        }
        self.state_mut().reported.extend(reported);
        held
    }

    async fn context_of(
        &self,
        slot: &ContextSlot,
        reason: EpochReason,
        model: &Model,
        terms: OpeningTerms<'_>,
        cancel: &CancellationToken,
    ) -> Answer<ContextParts> {
        let Some(InstalledContext { source, .. }) = &slot.installed else { return Answer::Cancelled };
        let budget = (model.context_window > 0).then_some(model.context_window / SHARE);
        let asked = ContextAsk { reason, budget, cx: self.cx() };
        let work = async {
            let given = source.context(&asked).await?;
            let mut parts = checked(&self.sealer, &slot.name, source.limit(), given)?;
            let changes = source.changes();
            for part in &mut parts.parts {
                (part.changes, part.main_only) = (changes, !source.is_for_sub_agents(&part.id));
            }
            let opening = match terms {
                OpeningTerms::Kept(opening) => opening.cloned(),
                OpeningTerms::Asked(before, brief) => {
                    let asked = OpeningAsk {
                        reason,
                        before: before.cloned(),
                        first: brief.first,
                        earlier: brief.earlier.clone(),
                        tokens: brief.tokens,
                        window: model.context_window,
                        cx: self.cx(),
                    };
                    checked_opening(&self.sealer, &slot.name, source.opening(&asked).await?)?
                }
            };
            Ok(ContextParts { opening, ..parts })
        };
        ask(&self.sealer, || source.deadline(), cancel, work).await
    }

    fn compose(&self, frame: &Frame, held: &[LastAnswer<ContextParts>]) -> (String, EpochContext) {
        let given = self.contexts.iter().zip(held).map(|(slot, last)| SourceParts {
            source: &slot.name,
            parts: &last.given.parts,
            keep_recent: last.given.keep_recent,
            opening: last.given.opening.as_ref(),
        });
        compose(frame, &given.collect::<Vec<_>>())
    }

    /// Asks the sources that changed, and those that want to be asked at one of `reasons`. What they give holds when it is
    /// [used](Self::used). `None` when nobody waits for it any more. Also what people should know.
    pub(crate) async fn refresh(
        &self,
        reasons: &[EpochReason],
        model: &Model,
        brief: &ConversationBrief,
        cancel: &CancellationToken,
    ) -> (Option<Box<RefreshResult>>, Vec<String>) {
        let (mut held, before) = {
            let state = self.state();
            (state.held.clone(), state.set.clone())
        };
        let hidden = self.store.hidden();
        let tools = self.tools.iter().zip(&held.tools).enumerate().filter_map(|(at, (slot, last))| {
            let seen = slot.version.number();
            (!slot.is_ours && seen != last.seen)
                .then_some(async move { (at, seen, self.tools_of(slot, &last.given, cancel).await) })
        });
        let contexts =
            self.contexts.iter().zip(&held.contexts).enumerate().filter_map(|(at, (slot, last))| {
                let one = slot.installed.as_ref()?;
                let seen = one.version.number();
                let wants = |reason: &EpochReason| match reason {
                    EpochReason::Compaction => one.wants.compaction,
                    EpochReason::ModelChange => one.wants.model_change,
                    EpochReason::Run => one.wants.run,
                    EpochReason::Start | EpochReason::Source | EpochReason::Forgotten => false,
                };
                // A run says the least: with it, what else happened counts.
                let wanted = reasons.iter().copied().filter(wants);
                let wanted = wanted.min_by_key(|reason| *reason == EpochReason::Run);
                let opening = last.given.opening.as_ref();
                let reason = match opening.is_some_and(|opening| tells_forgotten(&hidden, opening)) {
                    true => EpochReason::Forgotten,
                    false if seen == last.seen => wanted?,
                    false => EpochReason::Source,
                };
                let asks = OpeningTerms::Asked(opening, brief);
                Some(async move { (at, seen, self.context_of(slot, reason, model, asks, cancel).await) })
            });
        let (tools, contexts) = tokio::join!(join_all(tools), join_all(contexts));
        let mut notices = Vec::new();
        for (at, seen, answer) in tools {
            held.tools[at].seen = seen;
            let name = &self.tools[at].name;
            match answer {
                Answer::Given(given) => {
                    held.tools[at].given = given;
                    self.state().reported.remove(name);
                }
                Answer::Failed(why) => {
                    let text = format!(
                        "Could not update the tools of the source {name}: {why}. They stay as they were."
                    );
                    self.tell_once(name.clone(), text, &mut notices);
                }
                Answer::Cancelled => return (None, notices),
            }
        }
        for (at, seen, answer) in contexts {
            held.contexts[at].seen = seen;
            let name = &self.contexts[at].name;
            match answer {
                Answer::Given(given) => {
                    held.contexts[at].given = given;
                    self.state().reported.remove(&context_key(name));
                }
                Answer::Failed(why) => {
                    self.tell_once(context_key(name), context_failed(name, &why), &mut notices);
                }
                Answer::Cancelled => return (None, notices),
            }
        }
        let (set, collisions) = self.set_of(&held.tools, model);
        for text in collisions {
            self.tell_once(text.clone(), text, &mut notices);
        }
        let set = set.after_set(&before);
        self.forget(&mut held.contexts);
        let mut state = self.state();
        let (prompt, record) = match self.contexts.is_empty() {
            true => (state.prompt.clone(), None),
            false => {
                let (rest, record) = self.compose(&state.frame, &held.contexts);
                (Prompt::with(state.prompt.identity.clone(), &rest), Some(record))
            }
        };
        let refreshed = RefreshResult {
            system: prompt.system.as_deref().map_or_else(String::new, system_text).into(),
            prompt: prompt.system.as_ref().map(|blob| blob.id),
            context: record,
            tools: set.specs().clone(),
            tool_sources: set.from().clone(),
            blobs: prompt.system.as_deref().cloned().into_iter().collect(),
        };
        state.pending = Some((held, Arc::new(set)));
        (Some(Box::new(refreshed)), notices)
    }

    fn tell_once(&self, key: String, text: String, notices: &mut Vec<String>) {
        if self.state().reported.insert(key, text.clone()).as_ref() != Some(&text) {
            notices.push(text);
        }
    }

    /// What was given last holds from now on. Gives the tools.
    pub(crate) fn used(&self) -> Option<Arc<ToolSet>> {
        let mut state = self.state();
        let (held, set) = state.pending.take()?;
        (state.held, state.set) = (held, set.clone());
        Some(set)
    }

    /// Tells the sources that messages are about to leave the context, all at the same time. Those that were stopped, or during
    /// whose work something was forgotten, are told again when it is called for the same compaction.
    pub(crate) async fn before_compaction(
        &self,
        stretch: &Stretch,
        head: NodeId,
        cancel: &CancellationToken,
    ) -> Vec<String> {
        let asked = self.compaction_ask(stretch, head);
        let installed = self.contexts.iter().enumerate();
        let installed = installed.filter_map(|(at, slot)| Some((at, &slot.name, slot.installed.as_ref()?)));
        let told = installed.map(|(at, name, InstalledContext { source, .. })| {
            let asked = &asked;
            async move {
                if self.state().told.contains(&at) {
                    return None;
                }
                let version = self.store.hidden().version();
                let work = async { source.before_compaction(asked).await };
                let answer = ask(&self.sealer, || source.deadline(), cancel, work).await;
                if matches!(answer, Answer::Cancelled) || self.store.hidden().version() != version {
                    return None;
                }
                self.state().told.insert(at);
                match answer {
                    Answer::Given(()) | Answer::Cancelled => None,
                    Answer::Failed(why) => {
                        Some(format!("The context source {name} did nothing before the compaction: {why}."))
                    }
                }
            }
        });
        join_all(told).await.into_iter().flatten().collect()
    }

    /// Another compaction is next.
    pub(crate) fn begin_compaction(&self) {
        self.state().told.clear();
    }

    fn compaction_ask(&self, stretch: &Stretch, head: NodeId) -> CompactionAsk {
        CompactionAsk {
            messages: stretch.history.iter().chain(&stretch.turn).cloned().collect(),
            previous: stretch.previous.clone(),
            focus: stretch.focus.clone(),
            max_tokens: stretch.max_tokens,
            reason: stretch.reason,
            head,
            first_kept: stretch.first_kept,
            cx: self.cx(),
        }
    }

    /// A summary of a source, in place of the model's.
    pub(crate) async fn summary(
        &self,
        stretch: &Stretch,
        head: NodeId,
        cancel: &CancellationToken,
    ) -> (Option<Summary>, Vec<String>) {
        let mut notices = Vec::new();
        let installed = self.contexts.iter().filter_map(|slot| Some((&slot.name, slot.installed.as_ref()?)));
        for (name, InstalledContext { source, .. }) in installed {
            let asked = self.compaction_ask(stretch, head);
            let work = async {
                let Some(given) = source.compaction(&asked).await? else { return Ok(None) };
                let (bytes, tokens) = (given.text.len(), estimate_text(&given.text));
                if bytes > SOURCE_TEXT || tokens > asked.max_tokens {
                    return Err(SourceError::new(format!(
                        "it returned {bytes} bytes (about {tokens} tokens); the limit is {SOURCE_TEXT} bytes and {} \
                         tokens",
                        asked.max_tokens
                    )));
                }
                Ok(Some(given))
            };
            match ask(&self.sealer, || source.deadline(), cancel, work).await {
                Answer::Given(Some(given)) if !given.text.trim().is_empty() => {
                    let text = self.sealer.seal(&given.text).into_owned();
                    let by = |author| Provenance::new(Origin::Process, author).named(name);
                    let summary = Summary {
                        text,
                        made: Calls::default(),
                        supplied_by: Some(name.clone()),
                        hooks: Vec::new(),
                        provenance: given.author.map(by),
                        parts: given.parts,
                    };
                    return (Some(summary), notices);
                }
                Answer::Given(_) => {}
                Answer::Failed(why) => {
                    notices.push(format!("The context source {name} returned no summary: {why}."));
                }
                Answer::Cancelled => break,
            }
        }
        (None, notices)
    }
}

fn context_key(name: &str) -> String {
    format!("context {name}")
}

fn context_failed(name: &str, why: &str) -> String {
    format!("The context source {name} is left out for now: {why}.")
}
