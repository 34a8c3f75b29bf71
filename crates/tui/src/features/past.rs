//! The past: its commands as they are typed, and the same on a row of the tree.

use quipu_host::past::PastScope;
use quipu_protocol::UnixMs;

use super::{reports, ways};
use crate::component::{Chooser, Component, LineInput, OpenComponent};
use crate::host::{CommandOutput, FoundItem, FoundItems, HostError, PastRow};
use crate::navigator::Navigator;
use crate::picker::{Picker, PickerRow};
use crate::quoting::words;
use crate::reader::Reader;
use crate::{Effect, Key, KeyCode, Line, Reply, Request, SEEN, Size, SlashCommand, State, Theme};

pub(crate) const PAST: SlashCommand = SlashCommand::new(
    "past",
    "[RANGE|ID|ACTION]",
    "show summaries of the past by time, and make them",
    |state, arguments, effects| run(state, reports::named("past", words(arguments)), effects),
)
.completes();

/// Actions that may take long: what is said while one runs, and when it is stopped.
static LONG: [(&str, &str, &str); 5] = [
    (
        "build",
        "building the past",
        "The build was stopped; what it made stays, and the next one goes on from there.",
    ),
    ("prove", "proving the past", "The proof was stopped; it is not kept. Answers that came are paid."),
    ("estimate", "estimating a build", "The estimate was stopped."),
    ("check", "checking the past", "The check was stopped."),
    ("page", "writing the page", "Stopped."),
];

/// What can be done with a past, or with a chunk of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PastAction {
    Show,
    Sources,
    Create,
    Supersede,
    Review,
    Retract,
    Cover,
    Check,
    Estimate,
    Build,
    Prove,
    Page,
}

impl PastAction {
    /// As it is typed; showing needs no word.
    const fn word(self) -> &'static str {
        match self {
            Self::Show => "",
            Self::Sources => "sources",
            Self::Create => "create",
            Self::Supersede => "supersede",
            Self::Review => "review",
            Self::Retract => "retract",
            Self::Cover => "cover",
            Self::Check => "check",
            Self::Estimate => "estimate",
            Self::Build => "build",
            Self::Prove => "prove",
            Self::Page => "page",
        }
    }
}

/// Those of a chunk go first.
const ACTIONS: [(PastAction, &str, &str); 12] = [
    (PastAction::Show, "Show it", "its words, and the keys of its parts"),
    (PastAction::Sources, "Sources", "the nodes that it stands on, to go to"),
    (PastAction::Review, "Review", "read and found good"),
    (PastAction::Retract, "Retract", "take it back"),
    (PastAction::Supersede, "Supersede", "put words of yours in its place"),
    (PastAction::Create, "Create", "a chunk of your own in this range"),
    (PastAction::Cover, "Cover", "what of the past fits into a budget"),
    (PastAction::Check, "Check", "gaps, late evidence, chunks that cannot be used"),
    (PastAction::Estimate, "Estimate", "what a build would make and cost"),
    (PastAction::Build, "Build", "make what is missing, behind an estimate"),
    (PastAction::Prove, "Prove", "whether it can be believed"),
    (PastAction::Page, "Page", "one page of HTML"),
];

/// A list of what can be done with the row.
pub(crate) fn commands_of(state: &mut State, row: PastRow) {
    let is_of_chunk = |action| {
        matches!(
            action,
            PastAction::Sources | PastAction::Review | PastAction::Retract | PastAction::Supersede
        )
    };
    let actions = ACTIONS.iter().filter(|(action, ..)| row.chunk.is_some() || !is_of_chunk(*action));
    let rows = actions.map(|(action, text, detail)| match action {
        PastAction::Show if row.chunk.is_none() => {
            PickerRow::new(*action, "Show the coarsest chunks", "their words and keys")
        }
        PastAction::Create if row.chunk.is_none() => {
            PickerRow::new(*action, *text, "a chunk of your own in a range")
        }
        _ => PickerRow::new(*action, *text, *detail),
    });
    let title = match &row.chunk {
        Some(chunk) => format!("Past of {}: {}", row.name, chunk.key),
        None => format!("Past of {}", row.name),
    };
    let picker = Picker::new(title, rows.collect());
    state.show(Chooser::new(picker, move |state, action, effects| act(state, action, row, effects)));
}

fn act(state: &mut State, action: PastAction, row: PastRow, effects: &mut Vec<Effect>) {
    match action {
        PastAction::Show => {
            let about = row.chunk.as_ref().map(|chunk| chunk.id.short());
            run(state, command(action, about, &row.scope), effects);
        }
        PastAction::Check | PastAction::Estimate => run(state, command(action, None, &row.scope), effects),
        PastAction::Cover => ask_cover(state, row),
        PastAction::Sources => effects.push(Effect::Ask(sources(row))),
        PastAction::Review | PastAction::Retract => ask_verdict(state, action, &row),
        PastAction::Supersede => {
            let Some(chunk) = row.chunk else { return };
            let title = format!("What stands in the place of {}?", chunk.key);
            ask_words(state, title, command(action, [chunk.id.short()], &row.scope));
        }
        PastAction::Create => match row.chunk {
            Some(chunk) => create(state, chunk.range, &row.scope),
            None => state.show(LineInput::new("A summary of which time?", move |state, range, _| {
                create(state, range, &row.scope);
            })),
        },
        PastAction::Build => ask_build(state, &row.scope, effects),
        PastAction::Prove => {
            let text = format!(
                "Past of {}\n\nUp to 200 requests of each of its sessions are put together again and compared, and each chunk \
                 is looked for in its sources. Nothing is sent to a model. The result is kept as a node of the past.",
                row.name
            );
            let words = command(action, None, &row.scope);
            state.show(Consent::new("Prove the past", text, words, state.now));
        }
        PastAction::Page => {
            let line = LineInput::new("Write the page to which new file?", move |state, file, effects| {
                let file = file.trim();
                if !file.is_empty() {
                    let words = command(action, [format!("--output={file}")], &row.scope);
                    run(state, words, effects);
                }
            });
            state.show(line.with_text("past.html".to_owned()));
        }
    }
}

/// A command of the past as it is typed: what it is about, then whose past.
fn command(action: PastAction, about: impl IntoIterator<Item = String>, scope: &PastScope) -> Vec<String> {
    let whose = match scope {
        PastScope::Project(_) => None,
        PastScope::All => Some("--all".to_owned()),
        PastScope::Agent(agent) => Some(format!("--agent={agent}")),
        PastScope::Session(session) => Some(format!("--session={session}")),
    };
    let word = Some(action.word().to_owned()).filter(|word| !word.is_empty());
    reports::named("past", word.into_iter().chain(about).chain(whose))
}

/// Runs a command of the past as on the command line. What may take long says how far it is, and can be stopped.
fn run(state: &mut State, words: Vec<String>, effects: &mut Vec<Effect>) {
    if LONG.iter().any(|(action, ..)| words.get(1).is_some_and(|word| word == action)) {
        let what = words.join(" ");
        run_long(state, words, effects, move |state, output| reports::show(state, &what, &output));
    } else {
        reports::run(words, effects);
    }
}

fn run_long(
    state: &mut State,
    words: Vec<String>,
    effects: &mut Vec<Effect>,
    then: impl FnOnce(&mut State, CommandOutput) + Send + 'static,
) {
    let action = words.get(1).map_or("", String::as_str);
    let Some(&(_, what, stopped)) = LONG.iter().find(|(name, ..)| *name == action) else { return };
    if let Some(running) = &state.activity.command {
        // The key stops what else is under way first.
        let is_next =
            state.activity.rests() && state.activity.checking.is_none() && state.shell.running.is_none();
        let stop = state.key_of(crate::Action::Interrupt);
        let how = if is_next { format!("; {stop} stops it") } else { String::new() };
        state.hint = Some(format!("Already {}{how}", running.what()));
        return;
    }
    let (request, stop) = Request::new(
        "past",
        move |context| {
            let early = context.early.clone();
            let told = move |progress: std::sync::Arc<str>| {
                early(Reply::new("progress", move |state: &mut State, _| {
                    state.activity.set_progress(&progress);
                }));
            };
            context.host.long_command(words, Box::new(told))
        },
        move |state: &mut State, output: Result<CommandOutput, HostError>, _| {
            // One that came as it was stopped is shown all the same.
            drop(state.activity.command.take());
            match output {
                Ok(output) => then(state, output),
                Err(error) => state.failed(&error.to_string()),
            }
        },
    )
    .stoppable();
    state.activity.command(what.to_owned(), state.now, stop, stopped);
    effects.push(Effect::Ask(request));
}

impl State {
    /// The command that takes long ends.
    pub(crate) fn stop_command(&mut self, effects: &mut Vec<Effect>) {
        let Some(command) = self.activity.command.take() else { return };
        effects.push(Effect::Stop(command.stop));
        self.note(command.stopped);
        if self.overlay.is_none() {
            self.back_to_first();
        }
    }
}

fn create(state: &mut State, range: String, scope: &PastScope) {
    let title = format!("What happened in {range}?");
    ask_words(state, title, command(PastAction::Create, [range], scope));
}

/// Asks for the words of a chunk; Enter writes it.
fn ask_words(state: &mut State, title: String, mut words: Vec<String>) {
    state.show(LineInput::new(title, move |state, text, effects| {
        if !text.trim().is_empty() {
            words.push(format!("--text={}", text.trim()));
            run(state, words, effects);
        }
    }));
}

fn ask_cover(state: &mut State, row: PastRow) {
    let line = LineInput::new("What is it wanted for?", move |state, text, effects| {
        let text = text.trim();
        let about = (!text.is_empty()).then(|| format!("--about={text}"));
        run(state, command(PastAction::Cover, about, &row.scope), effects);
    });
    state.show(line.may_be_empty("leaves that open"));
}

/// Says what a verdict does, and asks.
fn ask_verdict(state: &mut State, action: PastAction, row: &PastRow) {
    let Some(chunk) = &row.chunk else { return };
    let (title, does) = if action == PastAction::Retract {
        (
            "Take it back",
            "It is shown to nobody any more and not made again; what stands above it is made without it by the next build. A \
             review brings it back.",
        )
    } else {
        (
            "Mark it as read and found good",
            "It may be served, also where its words are not all in its sources. One that was taken back is shown again.",
        )
    };
    let text = format!("{}\nPast of {}\n\n{does}", chunk.key, row.name);
    let words = command(action, [chunk.id.short()], &row.scope);
    state.show(Consent::new(title, text, words, state.now));
}

/// Shows what a build would make and cost, and asks; who does something else by then is only shown it.
fn ask_build(state: &mut State, scope: &PastScope, effects: &mut Vec<Effect>) {
    let estimate = command(PastAction::Estimate, None, scope);
    let build = command(PastAction::Build, None, scope);
    let what = estimate.join(" ");
    run_long(state, estimate, effects, move |state, output| {
        if output.ok && state.overlay.is_none() && state.editor.is_empty() {
            let text: String = output.pieces.iter().map(|piece| piece.text.as_str()).collect();
            state.show(Consent::new("Build the past", text, build, state.now));
        } else {
            reports::show(state, &what, &output);
        }
    });
}

/// What a chunk stands on, as a list to go on from.
pub(crate) fn sources(row: PastRow) -> Request {
    let key = row.chunk.as_ref().map_or_else(String::new, |chunk| chunk.key.clone());
    let then = move |state: &mut State, items: FoundItems, _: &mut Vec<Effect>| {
        let is_free = match state.overlay {
            Some(_) => state.shown_component::<Navigator>().is_some(),
            None => state.editor.is_empty(),
        };
        if !is_free {
            state.hint = Some(format!("The sources of {key} came late; ask for them again"));
            return;
        }
        for line in &items.notes {
            state.note(line);
        }
        let row = |item: FoundItem| PickerRow::new((item.node, item.session), item.text, item.detail);
        let rows: Vec<_> = items.found.into_iter().map(row).collect();
        let picker = Picker::new(format!("Sources of {key}"), rows);
        state.show(Chooser::new(picker, |state, (node, session), _| ways::from_hit(state, node, session)));
    };
    Request::to_host("sources", |host| host.past_sources(row), then)
}

/// What a command would do, to agree to.
struct Consent {
    reader: Reader,
    words: Vec<String>,
    shown_at: UnixMs,
}

impl Consent {
    fn new(title: &'static str, text: String, words: Vec<String>, shown_at: UnixMs) -> Self {
        let reader = Reader::new(title, text, "Enter does it · ↑↓ scroll · Escape cancels");
        Self { reader, words, shown_at }
    }
}

impl Component for Consent {
    fn on_key(mut self: Box<Self>, key: Key, state: &mut State, effects: &mut Vec<Effect>) -> OpenComponent {
        match key.code {
            // It was typed before this could be read.
            KeyCode::Enter if state.now.saturating_sub(self.shown_at) < SEEN => Some(self),
            KeyCode::Enter => {
                run(state, self.words, effects);
                None
            }
            KeyCode::Escape => self.leave(state, effects),
            _ => {
                self.reader.on_key(key, state.size);
                Some(self)
            }
        }
    }

    fn on_line(self: Box<Self>, line: &str, state: &mut State, effects: &mut Vec<Effect>) -> OpenComponent {
        match line.to_lowercase().as_str() {
            "y" | "yes" if state.now.saturating_sub(self.shown_at) < SEEN => {
                state.hint = Some("You answered before the question could be read: answer again.".into());
                Some(self)
            }
            "y" | "yes" => self.on_key(KeyCode::Enter.into(), state, effects),
            "" | "n" | "no" => self.leave(state, effects),
            _ => Some(self),
        }
    }

    fn view(&self, size: Size, theme: &Theme) -> Vec<Line> {
        self.reader.view(size, theme)
    }

    fn spoken(&self) -> Vec<String> {
        self.reader.spoken("y does it; Enter alone cancels.")
    }

    fn prompt(&self) -> &'static str {
        "Answer: "
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use quipu_host::{PastChunkRow, PastId};
    use quipu_protocol::NodeId;

    use super::*;
    use crate::fake_host::{FakeHost, carry_out};
    use crate::host::{OutputPiece, OutputStream, TreeKind, TreeRow};
    use crate::request::Context;
    use crate::{Bindings, Modifiers, UiEvent};

    fn printed() -> Option<CommandOutput> {
        let text = "1 chunk of nodes to make\n".to_owned();
        Some(CommandOutput { pieces: vec![OutputPiece { stream: OutputStream::Out, text }], ok: true })
    }

    fn host(printed: Option<CommandOutput>) -> Arc<FakeHost> {
        let item = FoundItem {
            node: NodeId([7; 32]),
            session: Some("one".into()),
            text: "user The port is 8123.".into(),
            detail: "late".into(),
        };
        let found = FoundItems { found: vec![item], notes: Vec::new() };
        FakeHost { printed, found, ..FakeHost::default() }.into()
    }

    fn state() -> State {
        let size = Size { columns: 100, rows: 40 };
        let editor = crate::editor::Editor::default();
        let mut state = State::new(size, Theme::plain(), Bindings::default(), editor, 0);
        state.opening.under_way = false;
        state
    }

    fn chunk() -> PastRow {
        let chunk = PastChunkRow {
            id: PastId([0xab; 32]),
            key: "2025-01-01..2025-01-02".into(),
            range: "2025-01-01".into(),
        };
        PastRow { scope: PastScope::All, name: "all sessions".into(), chunk: Some(chunk) }
    }

    fn press(host: &Arc<FakeHost>, state: &mut State, key: impl Into<Key>) -> Vec<Effect> {
        // Late enough for what is shown to have been read.
        let now = state.now + 1_000;
        let effects = state.on(UiEvent::Key(key.into()), now);
        carry_out(host, state, effects)
    }

    fn says(host: &Arc<FakeHost>, state: &mut State, text: &str) {
        state.on(UiEvent::Paste(text.into()), 0);
        press(host, state, KeyCode::Enter);
    }

    fn types(host: &Arc<FakeHost>, state: &mut State, text: &str) {
        for letter in text.chars() {
            press(host, state, KeyCode::Char(letter));
        }
        press(host, state, KeyCode::Enter);
    }

    fn seen(state: &State) -> String {
        let view = crate::view(state, Size { columns: 100, rows: 40 });
        view.lines.iter().map(Line::text).collect::<Vec<_>>().join("\n")
    }

    /// Chooses what has these words from the commands of a row; what the host is asked for then.
    fn chooses(row: PastRow, words: &str, keys: &[&str]) -> Vec<String> {
        let host = host(printed());
        let mut state = state();
        commands_of(&mut state, row);
        types(&host, &mut state, words);
        for key in keys {
            types(&host, &mut state, key);
        }
        host.asked()
    }

    #[test]
    fn each_command_of_the_past_runs_on_a_chunk() {
        let id = "abababababab";
        let long = |words: &str| format!("long past {words} --all");
        for (words, keys, asked) in [
            ("show", &[][..], vec![format!("past {id} --all")]),
            ("sources", &[], vec!["sources Some(\"2025-01-01..2025-01-02\")".to_owned()]),
            ("review", &[""], vec![format!("past review {id} --all")]),
            ("retract", &[""], vec![format!("past retract {id} --all")]),
            ("supersede", &["-- mine"], vec![format!("past supersede {id} --all --text=-- mine")]),
            ("create", &["a day"], vec!["past create 2025-01-01 --all --text=a day".to_owned()]),
            ("cover", &["ports"], vec!["past cover --about=ports --all".to_owned()]),
            ("check gaps", &[], vec![long("check")]),
            ("estimate would", &[], vec![long("estimate")]),
            ("build behind", &[""], vec![long("estimate"), long("build")]),
            ("prove", &[""], vec![long("prove")]),
            ("page", &["x"], vec![long("page --output=past.htmlx")]),
        ] {
            assert_eq!(chooses(chunk(), words, keys), asked, "{words}");
        }
    }

    #[test]
    fn nothing_is_written_or_paid_before_a_yes() {
        for words in ["review", "retract", "supersede", "create", "prove", "page"] {
            assert_eq!(chooses(chunk(), words, &[]), Vec::<String>::new(), "{words}");
        }
        let host = host(printed());
        let mut state = state();
        commands_of(&mut state, PastRow { chunk: None, ..chunk() });
        assert!(!seen(&state).contains("Retract"), "{}", seen(&state));
        types(&host, &mut state, "build behind");
        assert!(seen(&state).contains("1 chunk of nodes to make") && seen(&state).contains("Enter does it"));
        press(&host, &mut state, KeyCode::Escape);
        assert_eq!(host.asked(), ["long past estimate --all"]);
        // A past as a whole has no range of its own.
        commands_of(&mut state, PastRow { chunk: None, scope: PastScope::Agent("pi".into()), ..chunk() });
        types(&host, &mut state, "create");
        types(&host, &mut state, "last week");
        types(&host, &mut state, "Much.");
        assert_eq!(host.asked(), ["past create last week --agent=pi --text=Much."]);
    }

    #[test]
    fn late_estimate_takes_no_key_of_the_editor() {
        let host = host(printed());
        let mut state = state();
        let mut effects = Vec::new();
        ask_build(&mut state, &PastScope::All, &mut effects);
        let [Effect::Ask(request)] = <[Effect; 1]>::try_from(effects).unwrap() else { panic!("no request") };
        let context = Context { host: host.clone(), session: None, early: Arc::new(|_| {}) };
        let reply = request.carry_out(context).now_or_never().flatten().unwrap();
        press(&host, &mut state, KeyCode::Char('a'));
        state.on(UiEvent::Reply(reply), 0);
        assert!(state.overlay.is_none());
        let said: String = state.take_printed().iter().map(Line::text).collect();
        let live = seen(&state);
        assert!(
            said.contains("1 chunk of nodes to make") || live.contains("1 chunk of nodes to make"),
            "{live}"
        );
    }

    #[test]
    fn consent_takes_no_enter_before_it_can_be_read() {
        let host = host(printed());
        let mut state = state();
        let mut effects = Vec::new();
        ask_build(&mut state, &PastScope::All, &mut effects);
        carry_out(&host, &mut state, effects);
        let enter = |state: &mut State, at| state.on(UiEvent::Key(KeyCode::Enter.into()), at);
        assert!(enter(&mut state, SEEN - 1).is_empty());
        assert!(seen(&state).contains("Enter does it"));
        assert_eq!(enter(&mut state, SEEN).len(), 1);
    }

    #[test]
    fn late_sources_are_shown_only_where_nothing_else_is() {
        for is_late in [false, true] {
            let host = host(printed());
            let mut state = state();
            if is_late {
                press(&host, &mut state, KeyCode::Char('a'));
            }
            carry_out(&host, &mut state, vec![Effect::Ask(sources(chunk()))]);
            assert_eq!(state.overlay.is_some(), !is_late);
            assert_eq!(seen(&state).contains("came late"), is_late, "{}", seen(&state));
        }
    }

    #[test]
    fn build_and_key_check_are_stopped_one_after_the_other() {
        let host = host(None);
        let mut state = state();
        says(&host, &mut state, "/past build");
        let (_, stop) = Request::new("check key", |_| async {}, |_, (), _| {}).stoppable();
        state.activity.check("testing the key".to_owned(), 0, stop, "The key was not saved.");
        // Escape would stop something else first.
        says(&host, &mut state, "/past prove");
        let hint = state.hint.clone().unwrap_or_default();
        assert!(hint.contains("Already building the past") && !hint.contains("stops it"), "{hint}");
        assert!(matches!(press(&host, &mut state, KeyCode::Escape)[..], [Effect::Stop(_)]));
        assert!(state.activity.checking.is_none() && state.activity.command.is_some());
        assert!(matches!(press(&host, &mut state, KeyCode::Escape)[..], [Effect::Stop(_)]));
        assert!(!state.is_working());
    }

    #[test]
    fn long_command_says_how_far_it_is_and_can_be_stopped() {
        let host = host(None);
        let mut state = state();
        says(&host, &mut state, "/past build");
        assert_eq!(host.asked(), ["long past build"]);
        assert!(seen(&state).contains("building the past: 1 of 2"), "{}", seen(&state));
        // The editor is there meanwhile, and there is one at a time.
        says(&host, &mut state, "/past prove");
        assert!(seen(&state).contains("Already building the past"), "{}", seen(&state));
        let effects = press(&host, &mut state, KeyCode::Escape);
        assert!(matches!(effects[..], [Effect::Stop(_)]), "{effects:?}");
        let said: String = state.take_printed().iter().map(Line::text).collect();
        let live = seen(&state);
        assert!(
            said.contains("The build was stopped") || live.contains("The build was stopped"),
            "{said}\n{live}"
        );
        assert!(!seen(&state).contains("building the past"));
        assert_eq!(host.asked(), Vec::<String>::new());
    }

    #[test]
    fn chunk_in_the_tree_leads_to_its_commands_and_sources() {
        let host = host(printed());
        let mut state = state();
        let row = |at: u8, kind| TreeRow::new(NodeId([at; 32]), kind, format!("row {at}"));
        let rows = vec![
            TreeRow { past: Some(chunk()), ..row(1, TreeKind::Chunk) },
            TreeRow { head: true, ..row(2, TreeKind::User) },
        ];
        let tree = |state: &mut State| {
            let reach = crate::Reach::Session("home".into());
            state.show(Navigator::new(rows.clone(), reach, "home".into()));
        };
        tree(&mut state);
        press(&host, &mut state, KeyCode::Home);
        press(&host, &mut state, KeyCode::Enter);
        assert!(seen(&state).contains("Past of all sessions: 2025-01-01..2025-01-02"), "{}", seen(&state));
        tree(&mut state);
        press(&host, &mut state, KeyCode::Home);
        let modifiers = Modifiers { alt: true, ..Modifiers::default() };
        press(&host, &mut state, Key { code: KeyCode::Char('s'), modifiers });
        assert!(seen(&state).contains("The port is 8123."), "{}", seen(&state));
        // One more leads to the node.
        press(&host, &mut state, KeyCode::Enter);
        assert!(seen(&state).contains("Read it here"), "{}", seen(&state));
    }
}
