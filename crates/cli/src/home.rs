//! What the command line asks for, in the words of the host.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use quipu_host::holders::Holders;
use quipu_host::{
    Failure as HostFailure, FailureKind, Home, HostNotice, Observer, OpenRequest, PermissionRequest,
    Question, SessionTarget, StartedSession,
};
use quipu_replay::Replay;

use crate::args::{AllowArg, Mode, PermissionFlags, RunModeArg, StoreArg, Task};
use crate::confirm::asked;
use crate::exit::{Failure, advised};
use crate::meters::Meters;
use crate::output_schema::StructuredOutput;
use crate::print::{Progress, note};

/// The user's files; what is to be known of them is told on stderr.
pub(crate) fn home(store: &StoreArg) -> Result<Home, Failure> {
    Ok(Home::find(store.store.as_deref(), Arc::new(Printer::default()))?)
}

/// All places that hold content of sessions, with those that the terminal and the trace keep.
pub(crate) fn holders(home: &Home) -> Holders {
    // What is wrong with a store is told where it is looked at.
    let mut holders = Holders::open(home).unwrap_or_else(|_| Holders::of(home, None));
    let own = quipu_tui::holders(&home.dir).into_iter().chain([crate::diagnostics::holder(home)]);
    for holder in own {
        if let Err(refused) = holders.add(holder) {
            home.warn(refused.to_string());
        }
    }
    holders
}

/// What must be said to reach the same store again.
pub(crate) fn store_flag(home: &Home) -> String {
    if home.has_named_store() { format!(" --store {}", home.store.display()) } else { String::new() }
}

/// Why a command has nothing to work on: nothing was ever kept.
pub(crate) fn no_sessions(home: &Home) -> Failure {
    let at = if home.has_named_store() { format!(" at {}", home.store.display()) } else { String::new() };
    Failure::usage(format!("there are no sessions yet{at}; try `quipu demo` or `quipu import`"))
}

/// Tells people on stderr, each thing once.
#[derive(Default)]
struct Printer {
    notices: Mutex<HashSet<String>>,
    meters: Meters,
    progress: Mutex<Option<Progress>>,
}

impl Observer for Printer {
    fn notice(&self, notice: HostNotice) {
        let text = in_words(&notice);
        if self.notices.lock().unwrap_or_else(PoisonError::into_inner).insert(text.clone()) {
            note(text);
        }
    }

    fn importing(&self, file: &Path, progress: quipu_archive::Progress) {
        self.meters.show(file, progress);
    }

    fn dropping(&self, progress: quipu_store::FileDropProgress) {
        let mut shown = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        show_dropping(shown.get_or_insert_with(Progress::new), progress);
    }
}

/// Collects notices, each once, while the terminal is drawn on.
#[derive(Default)]
pub(crate) struct NoticeBuffer(Mutex<Vec<String>>);

impl NoticeBuffer {
    /// What was told since the last time.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for NoticeBuffer {
    fn notice(&self, notice: HostNotice) {
        let text = advised(&notice.text, notice.advice.as_ref());
        let mut notices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The user's files are read more than once.
        if !notices.contains(&text) {
            notices.push(text);
        }
    }
}

/// A notice as it is told.
pub(crate) fn in_words(notice: &HostNotice) -> String {
    let text = advised(&notice.text, notice.advice.as_ref());
    if notice.is_warning { format!("warning: {text}") } else { text }
}

/// How far old states of files are dropped.
pub(crate) fn show_dropping(progress: &Progress, at: quipu_store::FileDropProgress) {
    let quipu_store::FileDropProgress { done, of } = at;
    if done < of {
        progress.show(&format!("making room: dropped {done} of {of} old file states"));
    } else {
        progress.clear();
    }
}

/// What was dropped, for people.
pub(crate) fn dropped(done: &quipu_store::DroppedFiles) -> String {
    format!(
        "dropped {} old file states, {} KiB; {} KiB left",
        done.states,
        done.bytes.div_ceil(1024),
        done.left.div_ceil(1024)
    )
}

/// Where a budget is set.
pub(crate) fn source(budget: &quipu_host::Budget) -> String {
    match &budget.source {
        Some(source) => format!("budget.daily in {source}"),
        None => "--daily-budget".to_owned(),
    }
}

/// Makes room when a task is over.
pub(crate) async fn make_room(home: &Home, task: &Task) {
    if task.no_session {
        return;
    }
    if let Some(done) = quipu_host::make_room(home).await {
        note(format!("To stay below `files.storeBytes`: {}.", dropped(&done)));
    }
}

/// The session that a task asks for, in plain values.
pub(crate) fn request(task: &Task, here: &Path) -> Result<OpenRequest, Failure> {
    let flags = &task.permissions;
    let allows = |what: AllowArg| flags.allow.contains(&what);
    let texts = task.append_system_prompt.iter().map(|value| crate::input::text_or_file(value));
    Ok(OpenRequest {
        which: match (&task.session, &task.fork) {
            (_, Some(node)) => SessionTarget::Fork(node.clone()),
            (Some(session), None) => SessionTarget::Session(session.clone()),
            (None, None) if task.resume => SessionTarget::Newest,
            (None, None) => SessionTarget::New,
        },
        here: here.to_owned(),
        cwd: task.cwd.clone(),
        in_memory: task.no_session,
        is_shared: false,
        is_unattended: false,
        memory: None,
        store: None,
        provider: task.model.provider.clone(),
        model: task.model.model.clone(),
        thinking: task.model.thinking.map(Into::into),
        api_key: task.model.api_key.clone(),
        replay: None,
        background_wake: quipu::BackgroundWake::default(),
        record: task.record.clone(),
        max_turns: task.max_turns,
        prices: quipu_host::CallPrices::Any,
        max_cost: task.max_cost,
        daily_budget: task.daily_budget,
        permissions: PermissionRequest {
            mode: flags.permissions.and_then(RunModeArg::kept),
            plan: plan_of(flags),
            add_dirs: flags.add_dir.clone(),
            allow_tobe: flags.allow_tobe,
            allow_network: allows(AllowArg::Network),
            allow_protected: allows(AllowArg::Protected),
            no_network: flags.no_network,
        },
        audience: quipu_host::SessionAudience::default(),
        accounts: Vec::new(),
        system_prompt: task.system_prompt.as_deref().map(crate::input::text_or_file).transpose()?,
        append_system_prompt: texts.collect::<Result<_, _>>()?,
        hooks: Vec::new(),
        profile: task.profile.map(Into::into),
        editor: None,
        shell: None,
        conversation: None,
        servers: Vec::new(),
        added_tools: Vec::new(),
        web_search: task.web_search,
        tools: task.model.tools.clone(),
        output_schema: match &task.output_schema {
            Some(path) => Some(StructuredOutput::read(path)?.schema()),
            None => None,
        },
        no_context_files: task.no_context_files,
        is_light: false,
        answers: Vec::new(),
        offers_caches: false,
    })
}

/// Whether flags want plan mode: any other mode leaves it.
fn plan_of(flags: &PermissionFlags) -> Option<bool> {
    let named = flags.permissions.map(|mode| mode == RunModeArg::Plan);
    if flags.plan { Some(true) } else { named }
}

/// What flags say of settings: the setting, the flag, and the value.
pub(crate) fn flags(task: &Task) -> Vec<(&'static str, &'static str, serde_json::Value)> {
    let flags = &task.permissions;
    let options = [
        task.daily_budget.map(|dollars| ("budget.daily", "--daily-budget", dollars.into())),
        task.screen_reader.then(|| ("screenReader", "--screen-reader", true.into())),
        task.web_search.then(|| ("webSearch", "--web-search", true.into())),
        task.model.tools.as_ref().map(|tools| ("tools.builtIn", "--tools", tools.clone().into())),
        flags.no_network.then(|| ("sandbox.network", "--no-network", "closed".into())),
        flags.allow_tobe.then(|| ("travel.tobe", "--allow-tobe", "allow".into())),
    ];
    options.into_iter().flatten().collect()
}

/// Opens the session that a task asks for; what has to be known first is asked on the terminal.
pub(crate) async fn open(
    home: &Home,
    task: &Task,
    here: &Path,
    replay: Option<Arc<Replay>>,
) -> Result<StartedSession, Failure> {
    let mut request = OpenRequest { replay, ..request(task, here)? };
    if let Some(id) = &task.agent {
        if home.config().named_agent(id).is_none() {
            let id = crate::print::printable(id);
            let text = format!("no agent `{id}` is set up; `agents.byId` in the settings names agents");
            return Err(Failure::usage(text));
        }
        request = quipu_host::agent_request(home, &request, id);
    }
    open_as(home, task, request).await
}

/// The same for a request that was made of the task.
pub(crate) async fn open_as(
    home: &Home,
    task: &Task,
    request: OpenRequest,
) -> Result<StartedSession, Failure> {
    // A run that ends with its answer is not begun again.
    let background_wake = quipu::BackgroundWake::Never;
    let mut request = OpenRequest { background_wake, ..request };
    loop {
        match quipu_host::open(home, &request).await {
            Err(HostFailure { kind: FailureKind::Asks(question), message, .. }) => {
                let is_here = match question {
                    Question::Here => task.mode == Mode::Text,
                    // A run that ends with its answer begins no memory.
                    Question::Memory | Question::DreamBudget => false,
                    // Who answers by events has no terminal here.
                    Question::NewText | Question::Caches | Question::Resources => !task.ask_on_stdin,
                };
                let answer = if is_here { asked(&message)? } else { None };
                request.answers.push((question, answer));
            }
            opened => return Ok(opened?),
        }
    }
}
