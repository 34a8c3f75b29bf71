//! How machines of these tests begin.

use super::*;

pub(super) fn start() -> Start {
    let model = Arc::new(Model {
        id: "m".into(),
        api: "a".into(),
        provider: "p".into(),
        // So small that a dozen messages fill it.
        context_window: 48,
        ..Model::default()
    });
    let session = SessionStart {
        session: "s".into(),
        cwd: "/w".into(),
        agent: "quipu".into(),
        parent_session: None,
        epoch: Epoch::default(),
    };
    Start {
        session: "s".into(),
        cwd: "/w".into(),
        head: None,
        has_ref: false,
        first: vec![Draft::new(Entry::Session(session))],
        messages: Vec::new(),
        nodes: Vec::new(),
        compacted: None,
        old: 0,
        measured: None,
        prunes: Vec::new(),
        prune: PruneSettings::default(),
        cache_expiry: None,
        compaction: CompactionSettings::default(),
        prefix: Prefix { model, system: "".into(), tools: Arc::new([]), epoch: Epoch::default() },
        steering: Vec::new(),
        follow_up: Vec::new(),
        pending_self_message: false,
        reminders: Vec::new(),
        limits: Limits { max_turns: Some(12), max_cost: Some(MAX_COST), ..Limits::default() },
        ask_deadline: Duration::from_secs(1),
        policy: PolicyVersion::default(),
        refreshes: Refreshes::default(),
        due: Vec::new(),
        fallbacks: 2,
        before_plan: None,
        has_hooks: false,
        hooks_change_requests: false,
    }
}

/// Where sources want to be asked whenever they can be.
pub(super) fn with_sources(start: Start) -> Start {
    let refreshes = Refreshes { compaction: true, model_change: true, run: true };
    Start { refreshes, due: vec![EpochReason::ModelChange], ..start }
}

/// Where each answer is a command.
pub(super) fn in_shell(mut start: Start) -> Start {
    start.prefix.epoch.profile = Some(quipu_protocol::SessionProfile::Shell);
    for draft in &mut start.first {
        if let Entry::Session(begun) = &*draft.entry {
            let epoch = start.prefix.epoch.clone();
            draft.entry = Arc::new(Entry::Session(SessionStart { epoch, ..begun.clone() }));
        }
    }
    start
}

/// As `start`, where old results are left out whenever there is one.
pub(super) fn pruning() -> Start {
    let mut start = start();
    let model = Model { context_window: 4_000, ..(*start.prefix.model).clone() };
    start.prefix.model = Arc::new(model);
    start.prune = PruneSettings {
        enabled: true,
        trigger_percent: 1,
        clear_at_least_percent: 1,
        keep_turns: 1,
        min_characters: 1,
    };
    start
}
