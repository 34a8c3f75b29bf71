//! `quipu setup`: the history for the agents that a person has, in their own settings.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use quipu_host::{Home, program_path};
use quipu_integrations::{ConfigurationContent, ConfigurationPlace, Host, JsonValue};
use quipu_seal::Sealer;
use quipu_setup::{
    Agent, AgentPlan, AgentState, DiffLine, FileChange, Goal, PieceContent, PieceReport, PieceState,
    Placement, Setup, SetupContext, SetupError, Syntax, agents, diff,
};
use serde_json::{Value, json};

use crate::args::StoreArg;
use crate::confirm::asked;
use crate::exit::{Exit, Failure};
use crate::home::home;
use crate::print::{Paint, counted, note, one_line, printable};

/// Columns of a line of a diff.
const WIDTH: usize = 200;
/// What a person has to know before the hooks are there.
const HISTORY_WARNING: &str = "its hooks give pieces of the history of all agents in a directory to the model that it uses; \
     `quipu config set integrations.history off` keeps that back";
/// Names the directory of Quipu's own files.
const HOME_VARIABLE: &str = "QUIPU_HOME";
/// Lines of the diff of a file.
const MOST_LINES: usize = 500;

#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    /// Agents, such as `claude-code` or `codex`; without one, all that are installed.
    #[arg(value_name = "AGENT")]
    agents: Vec<String>,
    /// Show how each agent stands and change nothing. Exits with 1 unless each is set up.
    #[arg(long, conflicts_with_all = ["remove", "dry_run", "yes"])]
    check: bool,
    /// Take out what was set up. What you changed yourself stays.
    #[arg(long)]
    remove: bool,
    /// Show the changes and make none.
    #[arg(long)]
    dry_run: bool,
    /// Make the changes without a question.
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Print JSON for programs: one object per agent.
    #[arg(long)]
    json: bool,
}

/// This machine and user.
pub(crate) struct LocalAgents {
    pub(crate) home: PathBuf,
    user_home: PathBuf,
    program: String,
    environment: Vec<(&'static str, String)>,
}

impl LocalAgents {
    /// # Errors
    /// Without a home directory, and where the program cannot be named.
    pub(crate) fn of(home: &Home) -> Result<Self, Failure> {
        let user_home = std::env::home_dir().filter(|path| path.is_absolute()).ok_or_else(|| {
            Failure::usage("HOME is not set to a directory, so the settings of other agents cannot be found")
        })?;
        let mut environment = Vec::new();
        // An agent may start its servers without it.
        if std::env::var_os(HOME_VARIABLE).is_some_and(|value| !value.is_empty()) {
            let dir = home.dir.to_str().ok_or_else(|| Failure::usage("the path in QUIPU_HOME is no text"))?;
            environment.push((HOME_VARIABLE, dir.to_owned()));
        }
        Ok(Self { home: home.dir.clone(), user_home, program: program_path()?, environment })
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&SetupContext<'_>, &[Agent]) -> T) -> T {
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let context = SetupContext {
            variable: &variable,
            user_home: &self.user_home,
            home: &self.home,
            program: &self.program,
            environment: &self.environment,
        };
        let mut agents = agents(&context);
        for agent in &mut agents {
            add_hooks(&context, agent);
            if let Some(file) = agent.extension.clone() {
                let settings = self.environment.iter().map(|(name, value)| format!("{name}={value}"));
                let mut command: Vec<String> = settings.collect();
                if !command.is_empty() {
                    command.insert(0, "env".to_owned());
                }
                command.extend([self.program.clone(), "pi-helper".to_owned()]);
                let source = quipu_pi_extension::extension_source(&command);
                agent.add(file, None, PieceContent::File(source));
            }
        }
        act(&context, &agents)
    }
}

/// Adds the hooks that an agent calls.
fn add_hooks(context: &SetupContext<'_>, agent: &mut Agent) {
    let Some(mut hooks) = quipu_integrations::configuration(agent.name, Path::new(context.program)) else {
        return;
    };
    if let Some((_, home)) = context.environment.iter().find(|(name, _)| *name == HOME_VARIABLE) {
        hooks = hooks.with_home(Path::new(home));
    }
    for file in hooks.files {
        let variable = |place: &ConfigurationPlace| match place.variable {
            "HOME" => Some(context.user_home.to_owned()),
            name => (context.variable)(name).filter(|path| path.is_absolute()),
        };
        let place = file.places.iter().find_map(|place| Some((place, variable(place)?)));
        let Some((place, base)) = place else { continue };
        let path = base.join(place.path);
        let root = (place.variable != "HOME").then_some(base);
        match file.content {
            ConfigurationContent::Own(text) => agent.add(path, root, PieceContent::File(text)),
            ConfigurationContent::Json(additions) => {
                for addition in additions {
                    let (placement, value) = match addition.value {
                        JsonValue::Element(value) => (Placement::Element(addition.members), value),
                        JsonValue::Member(value) => (Placement::Member(addition.members), value),
                    };
                    let content = PieceContent::Value { syntax: Syntax::Json, placement, value };
                    agent.add(path.clone(), root.clone(), content);
                }
            }
        }
    }
    agent.remarks.extend(hooks.remark.map(|remark| format!("{}: {remark}", agent.title)));
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        Self::failed(error)
    }
}

/// What became of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Nothing,
    Shown,
    Changed,
    Declined,
    Failed,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Shown => "shown",
            Self::Changed => "changed",
            Self::Declined => "declined",
            Self::Failed => "failed",
        }
    }
}

pub(crate) fn run(args: &SetupArgs) -> Result<(), Failure> {
    let home = home(&StoreArg::default())?;
    let local = LocalAgents::of(&home)?;
    local.with(|context, agents| {
        let changes = !args.check && !args.dry_run;
        let setup = if changes { Setup::lock(&local.home)? } else { Setup::read(&local.home)? };
        let wanted = wanted(&setup, agents, args)?;
        if wanted.is_empty() {
            note(nothing_found(agents, args));
            return Ok(());
        }
        match args.check {
            true => check(&setup, context, &wanted, args),
            false => change(setup, context, &wanted, args),
        }
    })
}

fn nothing_found(agents: &[Agent], args: &SetupArgs) -> String {
    let titles: Vec<&str> =
        agents.iter().filter(|agent| !agent.pieces.is_empty()).map(|agent| &*agent.title).collect();
    match args.remove {
        true => "nothing is set up".to_owned(),
        false => format!("none of the agents that can be set up is installed here: {}", titles.join(", ")),
    }
}

/// The agents that are meant.
fn wanted<'a>(setup: &Setup, agents: &'a [Agent], args: &SetupArgs) -> Result<Vec<&'a Agent>, Failure> {
    let is_there = |agent: &Agent| {
        let is_known = agent.is_found() && !agent.pieces.is_empty();
        is_known || (args.remove || args.check) && setup.lists(agent.name)
    };
    if args.agents.is_empty() {
        return Ok(agents.iter().filter(|agent| is_there(agent)).collect());
    }
    let mut wanted: Vec<&Agent> = Vec::new();
    for name in &args.agents {
        let Some(agent) = agents.iter().find(|agent| agent.is_named(name)) else {
            let names: Vec<&str> = agents.iter().map(|agent| agent.name).collect();
            return Err(Failure::usage(format!(
                "there is no agent `{}` that can be set up; the agents are {}",
                printable(name),
                names.join(", ")
            )));
        };
        if !is_there(agent) {
            return Err(Failure::usage(format!(
                "{} is not installed for this user: its program is not on the PATH, and its directory does not exist",
                agent.title
            )));
        }
        if !wanted.iter().any(|one| one.name == agent.name) {
            wanted.push(agent);
        }
    }
    Ok(wanted)
}

/// How an agent stands, in a few words.
pub(crate) fn state_words(plan: &AgentPlan) -> String {
    let named = |state: PieceState| {
        let pieces = plan.pieces.iter().filter(|piece| piece.state == state);
        let pieces: Vec<String> =
            pieces.map(|piece| format!("{} in {}", piece.label, piece.file.display())).collect();
        pieces.join(", ")
    };
    match plan.state() {
        AgentState::Complete => "set up".to_owned(),
        AgentState::Absent => "not set up".to_owned(),
        AgentState::Empty => "nothing can be set up yet".to_owned(),
        AgentState::Partial => format!("not all is set up: {} is missing", named(PieceState::Missing)),
        AgentState::Changed => {
            let wanted = plan.pieces.iter().filter_map(wanted_words);
            let wanted: String = wanted.map(|words| format!("; {words}")).collect();
            format!("{} is not what setup writes and is left alone{wanted}", named(PieceState::Changed))
        }
        AgentState::Unusable => {
            let problems: Vec<String> = plan.problems.iter().map(SetupError::to_string).collect();
            problems.join("; ")
        }
        AgentState::Outdated => {
            let old = plan.pieces.iter().find_map(|piece| piece.old_program.as_deref());
            match old {
                Some(old) if !Path::new(old).exists() => {
                    format!("the program moved: {old}, which its settings name, is gone")
                }
                Some(old) => format!("set up by an earlier version, or for another program ({old})"),
                None => "set up by an earlier version".to_owned(),
            }
        }
    }
}

/// What the user can do about a piece that is the user's own.
fn wanted_words(piece: &PieceReport) -> Option<String> {
    let wanted = piece.wanted.as_ref()?;
    Some(format!("setup would write {wanted} as {}: add what yours lacks of it", piece.label))
}

fn check(
    setup: &Setup,
    context: &SetupContext<'_>,
    wanted: &[&Agent],
    args: &SetupArgs,
) -> Result<(), Failure> {
    let mut out = crate::console::stdout();
    let mut is_good = true;
    for agent in wanted {
        let plan = setup.plan(context, agent, Goal::Present);
        is_good &= plan.state() == AgentState::Complete;
        if args.json {
            writeln!(out, "{}", object(agent, &plan, Outcome::Shown, &[]))?;
        } else {
            writeln!(out, "{:<14} {}", agent.title, printable(&state_words(&plan)))?;
        }
    }
    out.flush()?;
    if is_good { Ok(()) } else { Err(Failure::silent(Exit::Failed)) }
}

fn change(
    mut setup: Setup,
    context: &SetupContext<'_>,
    wanted: &[&Agent],
    args: &SetupArgs,
) -> Result<(), Failure> {
    let goal = if args.remove { Goal::Absent } else { Goal::Present };
    let mut bad = 0_u64;
    for agent in wanted {
        let plan = setup.plan(context, agent, goal);
        if !args.json {
            show(agent, &plan)?;
        }
        let (outcome, backups) = one(&mut setup, agent, &plan, goal, args)?;
        bad += u64::from(matches!(outcome, Outcome::Declined | Outcome::Failed));
        if args.json {
            let mut out = crate::console::stdout();
            writeln!(out, "{}", object(agent, &plan, outcome, &backups))?;
            out.flush()?;
        }
        report(agent, &plan, outcome, &backups, args);
    }
    match bad {
        0 => Ok(()),
        _ => Err(Failure::failed(format!("{} not changed", counted_were(bad)))),
    }
}

fn counted_were(count: u64) -> String {
    format!("{} {}", counted(count, "agent"), if count == 1 { "was" } else { "were" })
}

/// Changes one agent, after a question.
fn one(
    setup: &mut Setup,
    agent: &Agent,
    plan: &AgentPlan,
    goal: Goal,
    args: &SetupArgs,
) -> Result<(Outcome, Vec<PathBuf>), Failure> {
    let is_blocked = plan.is_done() && !plan.problems.is_empty();
    if is_blocked {
        return Ok((Outcome::Failed, Vec::new()));
    }
    if args.dry_run {
        let outcome = if plan.is_done() { Outcome::Nothing } else { Outcome::Shown };
        return Ok((outcome, Vec::new()));
    }
    if !plan.is_done() && !args.yes {
        if goal == Goal::Present && !args.json && Host::named(agent.name).is_some() {
            note(format!("{}: {HISTORY_WARNING}", agent.title));
        }
        let what = match goal {
            Goal::Present => format!("Change these files of {}?", agent.title),
            Goal::Absent => format!("Take Quipu out of these files of {}?", agent.title),
        };
        // With JSON nobody has seen the change.
        let answer = if args.json { None } else { asked(&what)? };
        match answer {
            Some(true) => {}
            Some(false) => return Ok((Outcome::Declined, Vec::new())),
            None => {
                return Err(Failure::usage(
                    "the settings of other agents are changed only after you confirm: add --yes",
                ));
            }
        }
    }
    match setup.apply(plan, goal) {
        Ok(backups) if plan.is_done() => Ok((Outcome::Nothing, backups)),
        Ok(backups) => Ok((Outcome::Changed, backups)),
        Err(error) => {
            note(format!("{}: {error}", agent.title));
            Ok((Outcome::Failed, Vec::new()))
        }
    }
}

/// What became of it, for people.
fn report(agent: &Agent, plan: &AgentPlan, outcome: Outcome, backups: &[PathBuf], args: &SetupArgs) {
    let title = &agent.title;
    for problem in &plan.problems {
        note(format!("{title}: {problem}"));
    }
    for piece in plan.pieces.iter().filter(|piece| piece.state == PieceState::Changed) {
        let wanted = wanted_words(piece).map_or_else(String::new, |words| format!("; {words}"));
        note(format!(
            "{title}: {} in {} is not what setup writes; it is left as it is{wanted}",
            piece.label,
            piece.file.display()
        ));
    }
    match outcome {
        Outcome::Nothing => note(format!("{title}: nothing to do")),
        Outcome::Declined => note(format!("{title} was not changed")),
        Outcome::Shown | Outcome::Failed => {}
        Outcome::Changed => {
            let backups: Vec<String> = backups.iter().map(|path| path.display().to_string()).collect();
            let kept = match backups.as_slice() {
                [] => String::new(),
                backups => format!("; as it was: {}", backups.join(", ")),
            };
            match args.remove {
                true => note(format!("{title}: Quipu was taken out{kept}")),
                false => {
                    note(format!("{title} is set up, from its next session on{kept}"));
                    agent.remarks.iter().for_each(note);
                }
            }
        }
    }
}

/// The changes of an agent as a diff.
fn show(agent: &Agent, plan: &AgentPlan) -> Result<(), Failure> {
    if plan.is_done() {
        return Ok(());
    }
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    let paint = Paint::stdout();
    writeln!(out, "{}", paint.bold(&agent.title))?;
    for change in &plan.changes {
        let path = printable(&change.path.display().to_string());
        let target = match change.target() == change.path {
            true => String::new(),
            false => format!("  (in {})", printable(&change.target().display().to_string())),
        };
        writeln!(out, "  {} {path}{target}", action(change))?;
        let lines = lines_of(change);
        for line in lines.iter().take(MOST_LINES) {
            let text = one_line_kept(line);
            writeln!(
                out,
                "    {}",
                match text.as_bytes().first() {
                    Some(b'+') => paint.cyan(&text),
                    Some(b'-') => paint.red(&text),
                    _ => paint.dim(&text),
                }
            )?;
        }
        if lines.len() > MOST_LINES {
            writeln!(out, "    … {} more lines", lines.len() - MOST_LINES)?;
        }
    }
    out.flush()?;
    Ok(())
}

fn one_line_kept(line: &str) -> String {
    let text = printable(&line.replace('\t', "    "));
    if text.chars().count() <= WIDTH { text } else { one_line(&text, WIDTH) }
}

fn action(change: &FileChange) -> &'static str {
    match (change.before(), &change.after) {
        (None, _) => "new",
        (Some(_), Some(_)) => "edit",
        (Some(_), None) => "remove",
    }
}

/// The lines of a diff. A secret beside the change is not shown.
fn lines_of(change: &FileChange) -> Vec<String> {
    let sealer = Sealer::new([0; 32]);
    let line = |mark: &str, text: &str| format!("{mark}{}", sealer.seal(text));
    let lines = diff(change.before().unwrap_or_default(), change.after.as_deref().unwrap_or_default());
    let lines = lines.into_iter().map(|one| match one {
        DiffLine::Place { before, after } => format!("@@ {before} {after} @@"),
        DiffLine::Same(text) => line(" ", &text),
        DiffLine::Deletion(text) => line("-", &text),
        DiffLine::Addition(text) => line("+", &text),
        DiffLine::NoNewline => "\\ no newline at the end".to_owned(),
    });
    lines.collect()
}

/// An agent for programs.
fn object(agent: &Agent, plan: &AgentPlan, outcome: Outcome, backups: &[PathBuf]) -> Value {
    let changes = plan.changes.iter().map(|change| {
        json!({
            "file": change.path,
            "target": change.target(),
            "action": action(change),
            "diff": lines_of(change),
        })
    });
    let pieces = plan.pieces.iter().map(|piece| {
        json!({
            "file": piece.file,
            "name": piece.label,
            "state": piece.state,
            "program": piece.old_program,
            "wanted": piece.wanted,
        })
    });
    json!({
        "agent": agent.name,
        "title": agent.title,
        "state": plan.state().word(),
        "outcome": outcome.word(),
        "changes": changes.collect::<Vec<_>>(),
        "pieces": pieces.collect::<Vec<_>>(),
        "problems": plan.problems.iter().map(SetupError::to_string).collect::<Vec<_>>(),
        "backups": backups,
    })
}
