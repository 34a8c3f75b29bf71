//! What is tried in place of a call that failed for good.

use super::*;

/// A machine whose first prompt is being asked, and what it wanted last.
struct Ladder {
    machine: Machine,
    now: UnixMs,
    nodes: u8,
    runs: u8,
    calls: Vec<(String, Thinking)>,
    notes: Vec<String>,
    events: Vec<Event>,
    entries: Vec<Arc<Entry>>,
    search: Option<FallbackRequest>,
    outcome: Option<Outcome>,
}

use quipu_protocol::{EpochPlan, Notice, Outcome, Thinking, Ui};

impl Ladder {
    fn new() -> Self {
        let mut start = start();
        let model = Model { reasoning: true, context_window: 0, ..(*start.prefix.model).clone() };
        start.prefix.epoch =
            Epoch { provider: "p".into(), model: "m".into(), thinking: Thinking::Medium, ..Epoch::default() };
        start.prefix.model = Arc::new(model);
        let mut ladder = Self {
            machine: Machine::new(start),
            now: 1_000_000,
            nodes: 0,
            runs: 0,
            calls: Vec::new(),
            notes: Vec::new(),
            events: Vec::new(),
            entries: Vec::new(),
            search: None,
            outcome: None,
        };
        ladder.prompt();
        ladder
    }

    fn prompt(&mut self) {
        self.runs += 1;
        self.outcome = None;
        let command = Command::Prompt { input: "hi".into(), when: QueueMode::Now };
        let run = RunId::from(format!("r{}", self.runs));
        let fresh = CommandContext {
            run,
            item: "i".into(),
            stored: None,
            model: None,
            policy: None,
            plan: None,
            hooks: Vec::new(),
        };
        self.give(MachineInput::Command { command, reply: ReplyId(1), fresh });
    }

    fn give(&mut self, input: MachineInput) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for effect in self.machine.on(self.now, input) {
                match effect {
                    Effect::Commit { tag, plan, .. } => {
                        let nodes = plan.drafts.iter().map(|_| {
                            self.nodes += 1;
                            NodeId([self.nodes; 32])
                        });
                        let nodes = nodes.collect();
                        self.entries.extend(plan.drafts.into_iter().map(|draft| draft.entry));
                        inputs.push_back(MachineInput::Committed { tag, result: Ok(nodes) });
                    }
                    Effect::Call { request, .. } => {
                        self.calls.push((request.model.id.clone(), request.thinking));
                    }
                    Effect::FindFallback(request) => self.search = Some(request),
                    Effect::Emit { event, .. } => {
                        match &event {
                            Event::Ui { ui: Ui::Notice { notice: Notice::Note { text } } } => {
                                self.notes.push(text.clone());
                            }
                            Event::RunEnded { outcome } => self.outcome = Some(outcome.clone()),
                            _ => {}
                        }
                        self.events.push(event);
                    }
                    _ => {}
                }
            }
        }
    }

    fn run(&self) -> RunId {
        self.machine.run().unwrap().clone()
    }

    /// The call streams half an answer and fails.
    fn fails(&mut self, error: ModelError) {
        let blank = AssistantMessage { stop_reason: StopReason::Pending, ..AssistantMessage::default() };
        let run = self.run();
        self.give(MachineInput::Call { run, event: CallEvent::Started(Box::new(blank.clone())) });
        let half = AssistantMessage { content: vec![Content::text("half")], ..blank };
        self.ends(half, Some(error));
    }

    fn answers(&mut self) {
        self.ends(
            AssistantMessage { content: vec![Content::text("hello")], ..AssistantMessage::default() },
            None,
        );
    }

    fn ends(&mut self, message: AssistantMessage, error: Option<ModelError>) {
        let end = CallEnd { message, error, attempts: Vec::new(), charges: Vec::new(), unknown: Vec::new() };
        self.give(MachineInput::CallEnded {
            run: self.run(),
            end: Box::new(end),
            record: None,
            money: CallMoney::default(),
            hooks: Vec::new(),
            replaced: None,
        });
    }

    fn finds(&mut self, id: Option<&str>) {
        let FallbackRequest { run, from, tried } = self.search.take().expect("a search");
        let model = id.map(|id| Arc::new(Model { id: id.into(), ..(*tried[0]).clone() }));
        let result = FallbackResult { next: from + 1, model, notes: Vec::new() };
        self.give(MachineInput::FallbackFound(run, result));
    }

    fn called(&self) -> Vec<&str> {
        self.calls.iter().map(|(model, _)| model.as_str()).collect()
    }

    fn dropped(&self) -> usize {
        let is_dropped =
            |event: &&Event| matches!(event, Event::MessageEnded { ending: Ending::Dropped(_), .. });
        self.events.iter().filter(is_dropped).count()
    }

    fn answers_kept(&self) -> Vec<String> {
        let text = |entry: &Arc<Entry>| match &**entry {
            Entry::Message(Message::Assistant(answer)) => Some(answer.text()),
            _ => None,
        };
        self.entries.iter().filter_map(text).collect()
    }
}

fn error(kind: ModelErrorKind) -> ModelError {
    ModelError::new(kind, format!("{kind:?} happened."))
}

#[test]
fn next_model_continues_a_run_and_the_half_answer_is_dropped() {
    let mut ladder = Ladder::new();
    ladder.fails(error(ModelErrorKind::Overloaded));
    assert_eq!(ladder.search.as_ref().map(|search| search.from), Some(0));
    ladder.finds(Some("b"));
    ladder.answers();
    assert_eq!(ladder.outcome, Some(Outcome::Done));
    assert_eq!((ladder.called(), ladder.dropped()), (vec!["m", "b"], 1));
    assert_eq!(ladder.answers_kept(), ["hello"]);
    assert!(ladder.notes[0].contains("p/m") && ladder.notes[0].contains("p/b"), "{:?}", ladder.notes);
    let mut epochs = ladder.entries.iter().filter_map(|entry| match &**entry {
        Entry::Epoch(epoch) => Some(epoch),
        _ => None,
    });
    let fallback = epochs.next_back().unwrap().fallback.as_ref().unwrap();
    assert_eq!((fallback.model.as_str(), fallback.reason), ("m", ModelErrorKind::Overloaded));
    let failed = ladder.entries.iter().filter(
        |entry| matches!(&***entry, Entry::Meta(json) if json.get().contains("quipu.fallback") && json.get().contains("overloaded")),
    );
    assert_eq!(failed.count(), 1, "the failed call is recorded");
    // The same turn goes on.
    let turns = ladder.events.iter().filter(|event| matches!(event, Event::TurnStarted { .. }));
    assert_eq!(turns.count(), 1);
}

#[test]
fn models_that_failed_are_named() {
    let mut ladder = Ladder::new();
    ladder.fails(error(ModelErrorKind::Auth));
    ladder.finds(Some("b"));
    ladder.fails(error(ModelErrorKind::Server));
    ladder.finds(Some("c"));
    ladder.fails(error(ModelErrorKind::Timeout));
    assert!(ladder.search.is_none(), "the list has two names");
    let Some(Outcome::Failed(error)) = ladder.outcome.clone() else { panic!("{:?}", ladder.outcome) };
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    for part in ["p/m: Auth", "p/b: Server", "Timeout happened"] {
        assert!(error.message.contains(part), "{error}");
    }
    assert_eq!(ladder.answers_kept(), ["half"], "the last one is kept, as it is without others");
    assert_eq!(ladder.dropped(), 2);
}

#[test]
fn failures_of_the_conversation_are_surfaced_at_once() {
    use ModelErrorKind as K;
    for kind in [K::InvalidRequest, K::Refused, K::TooLarge, K::ReplayMismatch, K::ContextOverflow] {
        let mut ladder = Ladder::new();
        ladder.fails(error(kind));
        assert!(ladder.search.is_none() && ladder.called() == ["m"], "{kind:?}");
        assert_eq!(ladder.outcome, Some(Outcome::Failed(error(kind))));
    }
    // And where no other model is found.
    let mut ladder = Ladder::new();
    ladder.fails(error(K::Quota));
    ladder.finds(None);
    assert_eq!(ladder.outcome, Some(Outcome::Failed(error(K::Quota))));
    assert_eq!((ladder.dropped(), ladder.answers_kept()), (0, vec!["half".to_owned()]));
}

#[test]
fn next_prompt_returns_to_the_chosen_model_after_its_rest() {
    let mut ladder = Ladder::new();
    ladder.fails(ModelError {
        retry_after: Some(Duration::from_secs(90)),
        ..error(ModelErrorKind::RateLimited)
    });
    ladder.finds(Some("b"));
    ladder.answers();
    ladder.now += 89_000;
    ladder.prompt();
    ladder.answers();
    ladder.now += 2_000;
    ladder.prompt();
    ladder.answers();
    ladder.prompt();
    ladder.answers();
    assert_eq!(ladder.called(), ["m", "b", "b", "m", "m"]);
    let changes = ladder.events.iter().filter(|event| matches!(event, Event::EpochChanged { .. }));
    assert_eq!(changes.count(), 2);
    assert!(ladder.calls.iter().all(|(_, thinking)| *thinking == Thinking::Medium));
}

#[test]
fn stopping_a_run_ends_the_search() {
    let mut ladder = Ladder::new();
    ladder.fails(error(ModelErrorKind::Server));
    let fresh = CommandContext {
        run: "x".into(),
        item: "i".into(),
        stored: None,
        model: None,
        policy: None,
        plan: None,
        hooks: Vec::new(),
    };
    let command = Command::Abort { target: AbortTarget::Run };
    ladder.give(MachineInput::Command { command, reply: ReplyId(2), fresh });
    assert!(ladder.machine.run().is_none() && ladder.outcome.is_some());
    ladder.finds(Some("b"));
    assert_eq!(ladder.called(), ["m"]);
}

#[test]
fn thinking_steps_to_levels_that_a_model_takes() {
    let refused =
        |levels: &[Thinking]| ModelError { levels: levels.to_vec(), ..error(ModelErrorKind::ThinkingLevel) };
    let mut ladder = Ladder::new();
    ladder.fails(refused(&[Thinking::Low, Thinking::High]));
    ladder.fails(refused(&[Thinking::Low, Thinking::Medium, Thinking::High]));
    // All that it names were tried.
    ladder.fails(refused(&[Thinking::Low, Thinking::Medium, Thinking::High]));
    let levels: Vec<_> = ladder.calls.iter().map(|(_, level)| *level).collect();
    assert_eq!(levels, [Thinking::Medium, Thinking::Low, Thinking::High]);
    assert!(
        matches!(&ladder.outcome, Some(Outcome::Failed(error)) if error.kind == ModelErrorKind::ThinkingLevel)
    );
    assert_eq!((ladder.dropped(), ladder.notes.len()), (2, 2));
    // A level that is taken stays.
    let mut ladder = Ladder::new();
    ladder.fails(refused(&[Thinking::Off]));
    ladder.answers();
    ladder.prompt();
    ladder.answers();
    let levels: Vec<_> = ladder.calls.iter().map(|(_, level)| *level).collect();
    assert_eq!(levels, [Thinking::Medium, Thinking::Off, Thinking::Off]);
}

/// Plan mode is switched, with this model for plans.
fn plan(ladder: &mut Ladder, on: bool, id: Option<&str>) {
    let model = id.map(|id| {
        let (id, provider) = (id.into(), "p".into());
        (Arc::new(Model { id, provider, ..Model::default() }), None)
    });
    let fresh = CommandContext {
        run: "x".into(),
        item: "i".into(),
        stored: None,
        model: None,
        policy: None,
        plan: Some(PlanSwitch { on, model }),
        hooks: Vec::new(),
    };
    let command = Command::Set { setting: Setting::Plan { on } };
    ladder.give(MachineInput::Command { command, reply: ReplyId(3), fresh });
}

#[test]
fn plan_mode_returns_to_the_chosen_model_behind_fallbacks() {
    // The model for plans fails.
    let mut ladder = Ladder::new();
    ladder.answers();
    plan(&mut ladder, true, Some("plans"));
    ladder.prompt();
    ladder.fails(error(ModelErrorKind::Server));
    ladder.finds(Some("b"));
    ladder.answers();
    plan(&mut ladder, false, None);
    ladder.prompt();
    ladder.answers();
    assert_eq!(ladder.called(), ["m", "plans", "b", "m"]);
    // The session's own one failed before.
    let mut ladder = Ladder::new();
    ladder.fails(error(ModelErrorKind::Server));
    ladder.finds(Some("b"));
    ladder.answers();
    plan(&mut ladder, true, Some("plans"));
    ladder.prompt();
    ladder.answers();
    plan(&mut ladder, false, None);
    ladder.prompt();
    ladder.answers();
    assert_eq!(ladder.called(), ["m", "b", "plans", "m"]);
    let mut epochs = ladder.entries.iter().filter_map(|entry| match &**entry {
        Entry::Epoch(epoch) => Some(epoch),
        _ => None,
    });
    let last = epochs.next_back().unwrap();
    assert_eq!((&last.fallback, &last.plan), (&None, &Some(EpochPlan::default())));
}
