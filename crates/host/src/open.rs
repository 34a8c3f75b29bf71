//! Opening a session with all that the user's files say.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu::{
    Delivery, Engine, Follower, Hook, Limits, LiveChanges, Models, OpenedSession, QueueDrain, SessionOptions,
};
use quipu_protocol::{Epoch, Model, NodeId, Notice, SessionProfile, Thinking};
use quipu_providers::{CallOptions, Settings, WebSearch};
use quipu_replay::{Places, Recorder};
use quipu_store::{Graph, SessionQuery, SessionRow, SqliteStore};
use tokio::sync::SetOnce;

use crate::budget::Budget;
use crate::call_loops::CallLoops;
use crate::context::{history_settings, travel_settings};
use crate::free_models::{FreeModels, NOTHING, check_free};
use crate::holders::WrittenKind;
use crate::model::{ModelChoice, real_model};
use crate::models::ModelFiles;
use crate::names::{newest_in, resolve, session_named};
use crate::offered_tools::{missing_search, with_listed_tools, with_patch_tool};
use crate::past_compaction::CoverCompaction;
use crate::planning::planning_settings;
use crate::prompt::{SystemRequest, put_system};
use crate::resources::ResourceSet;
use crate::saved::SavedPermissions;
use crate::session_file::{self, FileSession, Mirror};
use crate::settings::CompactionMode;
use crate::tool_filter::{SettingsToolFilter, ToolSandbox};
use crate::{Advice, CallPrices, Failure, Home, OpenRequest, SessionTarget};

/// An open session, and what belongs to it.
pub struct StartedSession {
    /// The store that holds the session.
    pub store: Arc<dyn Graph>,
    /// The model that answers.
    pub model: Arc<Model>,
    /// How hard it thinks.
    pub thinking: Thinking,
    /// The session, and what there is to say of it.
    pub opened: OpenedSession,
    /// What its tools may do.
    pub permissions: Arc<SavedPermissions>,
    /// What keeps requests and answers in a file.
    pub recorder: Option<Arc<Recorder>>,
    /// What may be spent in a day.
    pub budget: Option<Budget>,
    /// The file that the session is written to as well.
    pub file: Option<Arc<Mirror>>,
    /// How long a question waits for an answer.
    pub ask_deadline: std::time::Duration,
    /// The skills, templates and other files that it was offered.
    pub resources: ResourceSet,
    /// Which tools it is offered; `None` where it replays a recording.
    pub tool_filter: Option<Arc<SettingsToolFilter>>,
}

/// Where a session goes on.
#[derive(Debug, Clone, PartialEq)]
struct Basis {
    pub cwd: PathBuf,
    /// The directory that it belongs to, where it works in the folder of a sandbox in place of it.
    pub directory: Option<PathBuf>,
    /// How the session stands there; `None` for a new one.
    pub last: Option<Epoch>,
    /// Whether what goes on is a session of ours, or a new one.
    pub ours: bool,
    /// Whether it goes on in another directory than its own.
    pub moved: bool,
    /// The key of several that its last call was made with, and the provider.
    pub kept_key: Option<(String, String)>,
}

/// The options of a session to open, and what belongs to it.
struct SessionPlan {
    pub options: SessionOptions,
    permissions: Arc<SavedPermissions>,
    recorder: Option<Arc<Recorder>>,
    budget: Option<Budget>,
    /// What to say of a model without a price.
    unpriced: Option<String>,
    /// Set once the session is open: servers of tools begin behind it.
    is_open: Arc<SetOnce<()>>,
    tool_filter: Option<Arc<SettingsToolFilter>>,
}

/// Opens the session that is asked for. With a `replay` no model is looked for.
///
/// # Errors
/// [`FailureKind::Asks`](crate::FailureKind::Asks) when something has to be answered first; else why it cannot be opened.
pub fn open<'a>(home: &'a Home, request: &'a OpenRequest) -> BoxFuture<'a, Result<StartedSession, Failure>> {
    // Boxed in this crate: each crate that awaits an `async fn` gets a copy of its code.
    Box::pin(open_session(home, request))
}

async fn open_session(home: &Home, request: &OpenRequest) -> Result<StartedSession, Failure> {
    if request.cwd.is_some() && matches!(request.which, SessionTarget::New | SessionTarget::Newest) {
        return Err(Failure::request("a working directory was given, but no session to continue in it")
            .advise(Advice::NameForDirectory));
    }
    let audience = &request.audience;
    if let Some(id) =
        audience.agent.as_deref().filter(|id| audience.is_known_only && *id != crate::sandbox::MAIN)
        && home.config().named_agent(id).is_none()
    {
        let text = format!("no agent `{id}` is set up; `agents.byId` in the settings names agents");
        return Err(Failure::request(text));
    }
    let asked = request;
    let in_sandbox = crate::sandbox::in_own_workspace(home, request)?;
    let request = in_sandbox.as_ref().unwrap_or(request);
    let here = &*request.here;
    let store: Arc<dyn Graph> = if request.in_memory {
        match &request.memory {
            Some(store) => store.clone(),
            None => Arc::new(SqliteStore::in_memory()?),
        }
    } else if let Some(store) = &request.store {
        store.clone()
    } else {
        let store = home.store().await?;
        // What is gone on with is read; meanwhile there is more to do here.
        if request.which != SessionTarget::New {
            store.warm_up();
        }
        store
    };
    home.sources().models().gather().await;
    let settings = home.settings();
    let engine = home.engine(store.clone(), &settings)?;
    let named_file = request.session().filter(|what| session_file::is_file(what));
    let mut file = match named_file {
        Some(path) => {
            let found = session_file::find(Path::new(path)).await?;
            Some(session_file::open(home, &engine, found).await?)
        }
        None => None,
    };
    let (resumed, fork) = match (request.fork(), &mut file) {
        (Some(node), _) => forked(&*store, node).await.map(|(row, node)| (row, Some(node)))?,
        (None, Some(begun)) => (begun.row.take(), None),
        (None, None) => (chosen_session(home, &*store, request).await?, None),
    };
    let directory = in_sandbox.is_some().then(|| crate::sandbox::directory_of(home, asked, resumed.as_ref()));
    // In another directory it goes on as a session of its own, which says so.
    let moved = match (&request.cwd, &resumed) {
        (Some(dir), Some(row)) if Path::new(&row.cwd) == *dir => None,
        (Some(dir), _) => Some(dir.clone()),
        (None, Some(row)) if !request.is_newest() && !Path::new(&row.cwd).is_dir() => {
            Some(crate::missing_cwd::instead(home, request, row)?)
        }
        (None, _) => None,
    };
    let cwd = match &resumed {
        _ if moved.is_some() => moved.clone().unwrap_or_default(),
        // It was found by the name of this directory, which need not be text.
        Some(_) if request.is_newest() => here.to_owned(),
        Some(row) => PathBuf::from(&row.cwd),
        None => here.to_owned(),
    };
    // A file goes on in a new session where none of ours leads to its end, or where it shall work elsewhere.
    let below = match (&file, &resumed) {
        (Some(begun), Some(row)) => begun.below.or(row.head.filter(|_| moved.is_some())),
        (Some(begun), None) => begun.below,
        (None, _) => None,
    };
    if let (Some(SessionRow { id, head: Some(head), .. }), None, None, None) = (&resumed, fork, below, &moved)
    {
        engine.read_ahead(id, *head);
    }
    let last = match (&resumed, fork.or(below)) {
        (_, Some(node)) => Some(quipu::epoch_at(&*store, node).await?),
        (Some(row), None) => quipu::last_epoch(&*store, row).await?,
        (None, None) => None,
    };
    let at = fork.or(below).or(resumed.as_ref().and_then(|row| row.head));
    let kept_key = match at {
        Some(node) => quipu::last_credential(&*store, node).await?,
        None => None,
    };
    let ours = resumed.as_ref().is_none_or(|row| row.agent == quipu::AGENT);
    if last.is_none() {
        crate::memory::ask(home, request, &cwd)?;
        crate::memory::ask_for_money(home, request)?;
        crate::memory::report_problems(home, request, &cwd);
    }
    let (moves, kept) = (moved.is_some(), kept_key.clone());
    let basis = Basis { cwd: cwd.clone(), directory, last, ours, moved: moves, kept_key: kept };
    crate::settings::ask_project_hooks(home, &request.hooks, engine.sealer().clone(), &cwd).await;
    // A project may have its own patience.
    let calls = call_options(&home.config_in(&cwd), request);
    let mut settings = settings.with_call_options(calls.clone());
    if let Some((provider, id)) = kept_key {
        settings = settings.with_kept_key(provider, id);
    }
    let resources = crate::resources::of_session(home, request, &cwd)?;
    let prepared = prepare(home, request, &settings, &engine, &basis, &resources).await?;
    let SessionPlan { mut options, permissions, recorder, budget, unpriced, is_open, tool_filter } = prepared;
    options.id = file.as_mut().and_then(|begun| begun.announced.take());
    let ask_deadline = options.ask_deadline;
    let (mut model, mut thinking) = (options.model.clone(), options.thinking);
    let fresh = |session| OpenedSession { session, notices: Vec::new() };
    options.follower = file.as_ref().map(|begun| begun.mirror.clone() as Arc<dyn Follower>);
    let opened = match (resumed, fork) {
        _ if let Some(at) = below => engine.continue_from(at, options).await,
        (_, Some(node)) => engine.fork(node, options).await,
        (Some(row), None) if moved.is_some() && row.agent == quipu::AGENT => {
            let clone = engine.clone_session_to(&row.id, &cwd).await?;
            home.note(format!(
                "Session {} continues in {} as session {}.",
                row.id,
                cwd.display(),
                clone.session
            ));
            engine.open(&clone.session, options).await
        }
        (Some(row), None) => engine.open(&row.id, options).await,
        (None, None) => engine.create(options).await.map(fresh),
    };
    match opened {
        Ok(mut opened) => {
            // It is this one's alone, so nobody has set it.
            drop(is_open.set(()));
            let config = home.config_in(&cwd);
            let (steering, follow_up) = (config.steering, config.follow_up);
            if (steering, follow_up) != (QueueDrain::First, QueueDrain::First) {
                let changes = LiveChanges {
                    steering: Some(steering),
                    follow_up: Some(follow_up),
                    ..LiveChanges::default()
                };
                // One that is closed already takes nothing from its queues.
                drop(opened.session.tune(changes).await);
            }
            opened.notices.extend(unpriced.map(Notice::note));
            let kept = opened.session.profile().filter(|profile| request.profile != Some(*profile));
            opened.notices.extend(kept.map(profile_notice));
            // In plan mode it may begin with another one.
            if opened.session.is_planning()
                && let Ok((snapshot, _)) = opened.session.subscribe(Delivery::Live).await
            {
                (model, thinking) = (snapshot.model, snapshot.thinking);
            }
            if request.replay.is_none() {
                opened.notices.extend(missing_search(&calls, &model).map(Notice::note));
            }
            if let Some(path) = &request.record {
                home.wrote(path, WrittenKind::Recording, &[opened.session.view().session.clone()]);
            }
            let file = match file {
                Some(FileSession { mirror, notes, .. }) => {
                    mirror.go_on(&opened.session.view().session, below).await?;
                    opened.notices.splice(..0, notes.into_iter().map(Notice::note));
                    Some(mirror)
                }
                None => None,
            };
            Ok(StartedSession {
                store,
                model,
                thinking,
                opened,
                permissions,
                recorder,
                budget,
                file,
                ask_deadline,
                resources,
                tool_filter,
            })
        }
        Err(error) => {
            // Nothing is in it yet, so it goes.
            drop(recorder.map(|recorder| recorder.finish()));
            Err(error.into())
        }
    }
}

/// What is asked for and a session with this profile cannot do.
fn check_profile(request: &OpenRequest, profile: Option<SessionProfile>) -> Result<(), Failure> {
    let Some(profile) = profile.map(SessionProfile::word) else { return Ok(()) };
    if request.output_schema.is_some() {
        return Err(Failure::request(format!(
            "the answers of a session with the profile `{profile}` are commands, so they cannot fit a JSON Schema"
        )));
    }
    if request.record.is_some() || request.replay.is_some() {
        // Its results are messages of the user, which a recording takes for prompts.
        return Err(Failure::request(format!(
            "a session with the profile `{profile}` cannot be recorded or replayed"
        )));
    }
    Ok(())
}

/// What people should know of a session that goes on in its profile without being asked to.
fn profile_notice(profile: SessionProfile) -> Notice {
    match profile {
        SessionProfile::Shell => Notice::note(
            "This session has the profile `shell`: each reply of the model is a command, and `exit` ends the run.",
        ),
    }
}

/// How models are called: as the settings have it, and as this run wants it.
fn call_options(config: &crate::Settings, request: &OpenRequest) -> CallOptions {
    let settings = &config.calls.options;
    let web_search = match request.web_search {
        _ if crate::web::is_offline(config, request) => WebSearch::Off,
        true => WebSearch::On,
        false => settings.web_search,
    };
    CallOptions { web_search, output_schema: request.output_schema.clone(), ..settings.clone() }
}

/// What the session is made of.
async fn prepare(
    home: &Home,
    request: &OpenRequest,
    settings: &Settings,
    engine: &Engine,
    basis: &Basis,
    resources: &ResourceSet,
) -> Result<SessionPlan, Failure> {
    let Basis { cwd, directory, last, ours, moved, kept_key } = basis;
    let last = last.as_ref();
    let config = home.config_in(cwd);
    // What another program began has no prompt of ours, nor has a fork of it that said nothing yet; and a prompt names
    // its directory.
    let ours = *ours
        && last
            .is_none_or(|epoch| epoch.system.is_some() || !epoch.tools.is_empty() || epoch.profile.is_some());
    // What is lost cannot be gone on with: such a session gets what a new one would.
    let kept = match last.filter(|_| ours) {
        Some(last) if !quipu::has_lost_prompt(&**engine.store(), last).await? => Some(last),
        _ => None,
    };
    let profile = last.map_or(request.profile, |epoch| epoch.profile);
    check_profile(request, profile)?;
    // Before anything is made: it may have to be asked.
    let identity = crate::identity::chosen(home, engine, request, kept).await?;
    // Before a credential is looked up, which may run a command.
    crate::helpers::keep_from(home, cwd, &request.permissions.add_dirs);
    let mut recorder = None;
    let replay = request.replay.as_deref();
    let (model, provider, thinking): ModelChoice = match &request.replay {
        Some(replay) => (replay.model(), replay.clone(), replay.thinking()),
        None => {
            let (model, provider, thinking) = real_model(home, settings, request, (cwd, last))?;
            let provider = match &request.record {
                Some(path) => {
                    let sealer = engine.sealer().clone();
                    let made = Arc::new(Recorder::create(path, provider, sealer, Places::of(cwd))?);
                    recorder = Some(made.clone());
                    made
                }
                None => provider,
            };
            (model, provider, thinking)
        }
    };
    if request.prices == CallPrices::OnlyFree {
        check_free(&model)?;
    }
    let mut options = SessionOptions::new(cwd.clone(), model, provider);
    options.profile = request.profile;
    // What is recorded or replayed has one model.
    if request.record.is_none() && replay.is_none() {
        let key = request.api_key.clone().map(|key| (options.model.provider.clone(), key));
        let (dir, sealer) = (home.dir.clone(), engine.sealer().clone());
        let (sources, mut calls) = (home.sources().clone(), config.calls.clone());
        calls.options = call_options(&config, request);
        let purposes = config.purpose_models.clone();
        if purposes.contains_key(quipu::IMAGE_PURPOSE) {
            options.images = quipu::ImageQuestions::Answered;
        }
        let kept_key = kept_key.clone();
        let models = ModelFiles { home: dir, sources, calls, sealer, key, kept_key, purposes };
        let models: Arc<dyn Models> = Arc::new(models);
        options.models = Some(match request.prices {
            CallPrices::Any => models,
            CallPrices::OnlyFree => Arc::new(FreeModels(models)) as Arc<dyn Models>,
        });
        // Who names a model wants that one.
        if request.model.is_none() || config.fallback.named {
            options.fallbacks.clone_from(&config.fallback.models);
            if options.fallbacks.len() > quipu::MOST_FALLBACKS {
                let (named, most) = (options.fallbacks.len(), quipu::MOST_FALLBACKS);
                home.note(format!(
                    "`fallbackModels` in the settings names {named} models; only {most} are used."
                ));
            }
        }
    }
    let system = SystemRequest { is_resumed: kept.is_some() && !moved, kept, profile };
    let workspace = put_system(&mut options, home, engine, request, system, resources).await?;
    let notes = crate::memory::install_tools(&mut options, home, engine, request);
    (options.identity, options.declined_identity) = (identity.text, identity.declined);
    options.thinking = thinking;
    options.max_tokens = last.and_then(|epoch| epoch.max_tokens);
    let permissions = crate::saved::of_request(home, request, cwd, directory.clone())?;
    options.policy = permissions.clone();
    options.tools = crate::background::shell_tools(&permissions, config.background);
    options.background = request.background_wake;
    with_patch_tool(&mut options.tools, config.patch_tool, &options.model, kept);
    let names = request.tools.as_deref().or(config.tools.built_in.as_deref());
    with_listed_tools(&mut options.tools, names);
    crate::background::keep_with_bash(&mut options.tools);
    if let Some(adapt) = &request.shell {
        crate::background::adapt_shell(&mut options.tools, adapt);
    }
    options.editor.clone_from(&request.editor);
    let web = crate::web::WebTools {
        home,
        settings,
        sealer: engine.sealer(),
        web: &config.web,
        names,
        calls: &call_options(&config, request),
        permissions: permissions.clone(),
    };
    match crate::web::is_offline(&config, request) {
        true => crate::web::say_what_is_left_out(&config, request, &web),
        false => crate::web::install(&mut options, web),
    }
    options.tools.extend(request.added_tools.iter().cloned());
    // Its jobs could do more.
    let is_kept_off = request.permissions.no_network || request.prices == CallPrices::OnlyFree;
    if config.schedule_tool
        && !is_kept_off
        && request.record.is_none()
        && replay.is_none()
        && !request.in_memory
    {
        let may_write = permissions.workspace() != quipu::WorkspaceAccess::Read;
        crate::schedule_tool::install(&mut options, home, request.audience.agent.as_deref(), may_write);
    }
    // What is replayed costs nothing.
    let budget = if replay.is_some() { None } else { crate::budget::budget_of(home, request.daily_budget)? };
    let daily_budget = budget.as_ref().map(|budget| budget.dollars);
    // For the money of a purpose too, where no day has a limit.
    let wait = config.budget.wait;
    let max_cost = match request.prices {
        CallPrices::Any => request.max_cost.filter(|_| replay.is_none()),
        CallPrices::OnlyFree => Some(NOTHING),
    };
    options.limits = Limits { max_turns: request.max_turns, max_cost, daily_budget, wait };
    options.accounts = if replay.is_some() { None } else { crate::budget::accounts_of(home, request) };
    let budgets = options.accounts.as_ref().map_or_else(Vec::new, |accounts| accounts.budgets());
    if request.in_memory && (daily_budget.is_some() || options.accounts.is_some()) {
        // Nothing else is kept: what it spends counts for the day.
        options.ledger = Some(home.store().await? as Arc<dyn Graph>);
    }
    let limited = request.max_cost.is_some()
        || daily_budget.is_some()
        || budgets.iter().any(|budget| budget.dollars.is_some());
    let unpriced = crate::budget::unpriced(&options.model)
        .filter(|_| limited && replay.is_none() && options.provider.is_local());
    (options.compaction, options.prune, options.files) = (config.compaction, config.prune, config.files);
    options.cache_expiry = config.cache_expiry.clone();
    options.files.enabled &= !request.in_memory;
    if replay.is_none() {
        options.hooks.splice(..0, request.hooks.iter().cloned());
        options.hooks.extend(crate::command_hooks::command_hooks(&config.hooks));
        if config.past_after_session && !request.in_memory {
            let scope = crate::past::project_past(&options.cwd);
            options.hooks.push(Arc::new(crate::past::AfterSession::new(home, scope)));
        }
    }
    crate::active_memory::install(&mut options, home, engine, (request, notes));
    // What is recorded or replayed has no store to be read again: there the model sums up.
    let is_recorded = request.record.is_some() || replay.is_some();
    if config.compaction_mode == CompactionMode::Cover && !is_recorded {
        options.context_sources.push(Arc::new(CoverCompaction::new(engine.store().clone())));
    }
    let is_open = Arc::new(SetOnce::new());
    // It has no tools of servers, so none is started.
    if replay.is_none() && profile.is_none() {
        let wanted = crate::mcp::InstallOptions {
            home,
            cwd,
            sealer: engine.sealer(),
            last,
            permissions: permissions.clone(),
            hidden: settings.env_keys(),
            keeps: !request.in_memory,
            begin: is_open.clone(),
            servers: &request.servers,
        };
        crate::mcp::install(&mut options, wanted);
    }
    // What is recorded or replayed is one conversation.
    if request.record.is_none() && replay.is_none() {
        options.agents = crate::sub_agents::agent_settings(home, cwd, &config.agents, resources);
    }
    // What is replayed has the tools of its recording.
    let mut tool_filter = None;
    if replay.is_none() {
        let sandbox = match crate::sandbox::applies(&config.sandbox, request.conversation.as_ref()) {
            true => ToolSandbox::OfScope,
            false => ToolSandbox::Plain,
        };
        let filter = SettingsToolFilter::new(&config, &request.audience, permissions.clone(), sandbox);
        options.tool_filter = Some(filter.clone());
        tool_filter = Some(filter);
        options
            .hooks
            .extend(config.tools.loops.map(|loops| Arc::new(CallLoops::new(loops)) as Arc<dyn Hook>));
    }
    options.history = history_settings(&config, request, replay);
    options.travel = travel_settings(&config, request, replay);
    options.planning = planning_settings(&config, request, last, replay);
    if let Some(files) = workspace {
        crate::persona::install(&mut options, request, files, config.memory.shared);
    }
    Ok(SessionPlan { options, permissions, recorder, budget, unpriced, is_open, tool_filter })
}

/// The node to go on from, and the session that it is in.
async fn forked(store: &dyn Graph, what: &str) -> Result<(Option<SessionRow>, NodeId), Failure> {
    let found = resolve(store, what, None).await?;
    let query = SessionQuery { id: found.session.clone(), limit: Some(1), ..SessionQuery::default() };
    let row = match found.session {
        Some(_) => store.sessions(query).await?.into_iter().next(),
        None => None,
    };
    Ok((row, found.node))
}

/// The session that a request goes on with, when there is one.
///
/// # Errors
/// As [`find_session`].
pub async fn existing_session(home: &Home, request: &OpenRequest) -> Result<Option<SessionRow>, Failure> {
    match home.existing_store().await? {
        Some(store) => find_session(&*store, request).await,
        None => Ok(None),
    }
}

async fn chosen_session(
    home: &Home,
    store: &dyn Graph,
    request: &OpenRequest,
) -> Result<Option<SessionRow>, Failure> {
    let row = find_session(store, request).await?;
    if row.is_none() && request.which != SessionTarget::New {
        home.note("No session in this directory yet; starting one.");
        crate::missing_cwd::hint_at_moved_session(home, store, &request.here).await?;
    }
    Ok(row)
}

/// The session that a request names, where it is one that is there.
///
/// # Errors
/// When a name means none or several, and when the session was removed.
pub async fn find_session(store: &dyn Graph, request: &OpenRequest) -> Result<Option<SessionRow>, Failure> {
    if request.is_newest() {
        newest_in(store, &request.here).await
    } else if let Some(id) = request.session() {
        let row = session_named(store, id).await?;
        if quipu::takes_no_prompts(&row) {
            return Err(quipu::OpenError::Notes(row.id).into());
        }
        if row.head.is_none() {
            let ends = store.landmarks(std::slice::from_ref(&row.id), 1).await?;
            let at = ends.first().map_or(row.base, |end| end.node);
            return Err(
                Failure::request(format!("session {} was removed", row.id)).advise(Advice::ForkAt(at))
            );
        }
        Ok(Some(row))
    } else {
        Ok(None)
    }
}
