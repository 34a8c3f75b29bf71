//! `quipu config`: the settings, where each comes from, and how one is changed.

use std::io::Write as _;

use clap::{Args, Subcommand};
use quipu_host::mcp::{McpFileUse, server_summary};
use quipu_host::settings::{
    Effect, FileChange, KEYS, Key, ProjectUse, SettingError, SettingsFile, StoredSetting,
    project_settings_path, project_to_trust, set_setting, trust_project, unset_setting,
};
use quipu_host::{Home, ProblemKind, SettingRow, Settings, Source};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::StoreArg;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, note, one_line, printable};

/// Columns of a value in the list.
const WIDTH: usize = 40;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    action: Option<ConfigAction>,
    /// Print JSON for programs: one object, or one per line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum ConfigAction {
    /// List every setting, its value and the source of the value.
    List {
        /// Print JSON for programs: one object per line.
        #[arg(long)]
        json: bool,
    },
    /// Print the value of a setting; as JSON if it is not text.
    Get {
        /// The setting, such as `compaction.enabled`.
        key: String,
        /// Print JSON for programs, with the source of the value.
        #[arg(long)]
        json: bool,
    },
    /// Set a setting in your file. The rest of the file does not change.
    Set {
        /// The setting, such as `compaction.enabled`.
        key: String,
        /// The value: a word, a number, or JSON for lists and objects.
        value: String,
        /// Use the file of the project: `.quipu/settings.json` at the root of its repository.
        #[arg(long)]
        project: bool,
    },
    /// Remove a setting from your file.
    Unset {
        /// The setting, or an unknown name in the file.
        key: String,
        /// Use the file of the project.
        #[arg(long)]
        project: bool,
    },
    /// Open your file in your editor ($VISUAL, $EDITOR), then report problems in it.
    Edit {
        /// Use the file of the project.
        #[arg(long)]
        project: bool,
    },
    /// Show what this project brings along (settings, skills, templates, rules) and accept it in its current form.
    Trust {
        /// Use nothing of the project's skills, templates and rules, `AGENTS.md` included.
        #[arg(long)]
        refuse: bool,
    },
}

/// `quipu config`.
pub(crate) async fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let home = home(&StoreArg::default())?;
    match &args.action {
        None => list(&home, args.json),
        Some(ConfigAction::List { json }) => list(&home, *json),
        Some(ConfigAction::Get { key, json }) => get(&home, key, *json),
        Some(ConfigAction::Set { key, value, project }) => {
            let kept = set_setting(&home, &file(*project)?, key, value).map_err(failure)?;
            tell(&home, &kept)
        }
        Some(ConfigAction::Unset { key, project }) => {
            let kept = unset_setting(&home, &file(*project)?, key).map_err(failure)?;
            tell(&home, &kept)
        }
        Some(ConfigAction::Edit { project }) => edit(&home, *project).await,
        Some(ConfigAction::Trust { refuse: false }) => trust(&home),
        Some(ConfigAction::Trust { refuse: true }) => refuse(&home),
    }
}

fn file(of_project: bool) -> Result<SettingsFile, Failure> {
    Ok(if of_project { SettingsFile::Project(current_dir()?) } else { SettingsFile::User })
}

fn list(home: &Home, json: bool) -> Result<(), Failure> {
    let settings = home.config_in(&current_dir()?);
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    let paint = Paint::stdout();
    let widest = KEYS.iter().map(|key| key.name.len()).max().unwrap_or(0);
    for row in settings.rows() {
        if json {
            writeln!(out, "{}", object(&row))?;
            continue;
        }
        let name = format!("{:<widest$}", row.key.name);
        let value = one_line(&in_words(&row.value), WIDTH);
        let source = printable(&row.source.to_string());
        writeln!(out, "{}  {value:<WIDTH$}  {}", paint.bold(&name), paint.dim(&source))?;
    }
    Ok(out.flush()?)
}

fn get(home: &Home, name: &str, json: bool) -> Result<(), Failure> {
    let key = Key::named(name).ok_or_else(|| {
        let formerly = KEYS.iter().find(|key| key.formerly == Some(name)).map(|key| key.name.to_owned());
        let near =
            || quipu_providers::nearest(name, KEYS.iter().map(|key| key.name.to_owned())).into_iter().next();
        failure(SettingError::Unknown { name: name.to_owned(), nearest: formerly.or_else(near) })
    })?;
    let settings = home.config_in(&current_dir()?);
    let row = settings.row(key);
    let mut out = crate::console::stdout();
    if json {
        writeln!(out, "{}", object(&row))?;
    } else {
        writeln!(out, "{}", printable(&in_words(&row.value)))?;
    }
    Ok(())
}

/// A setting for programs.
fn object(row: &SettingRow<'_>) -> Value {
    let from = match row.source {
        Source::BuiltIn => Value::Null,
        source => Value::from(source.to_string()),
    };
    serde_json::json!({
        "key": row.key.name,
        "value": row.value,
        "source": row.source.word(),
        "from": from,
        "holds": row.key.effect.word(),
        "project": row.key.project == ProjectUse::Allowed,
        "variable": row.key.variable(),
        "help": row.key.help,
    })
}

/// A value as it is said on a command line.
pub(crate) fn in_words(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Where a value comes from, in a few words.
pub(crate) fn origin(source: &Source) -> String {
    match source {
        Source::BuiltIn => "built-in".to_owned(),
        Source::User(_) => "your settings.json".to_owned(),
        Source::Project(_) => "the project's settings.json".to_owned(),
        Source::Environment(name) => name.clone(),
        Source::Flag(name) => (*name).to_owned(),
    }
}

/// What a change came to, and when it holds.
pub(crate) fn description(kept: &StoredSetting, now: &Settings) -> String {
    let path = kept.path.display();
    let name = printable(&kept.name);
    let mut description = match &kept.value {
        Some(value) => format!("{name} is now {}, in {path}", printable(&in_words(value))),
        None if kept.changed == FileChange::No => format!("{path} does not set {name}"),
        None => format!("removed {name} from {path}"),
    };
    let Some(key) = kept.key else { return description };
    let row = now.row(key);
    let counts = match (row.source, kept.changed) {
        (_, FileChange::Untrusted) => true,
        (Source::User(from) | Source::Project(from), _) => *from == kept.path,
        (Source::BuiltIn, _) => true,
        (Source::Environment(_) | Source::Flag(_), _) => false,
    };
    if !counts {
        let more = format!("; {} overrides it with {}", origin(row.source), printable(&in_words(&row.value)));
        description.push_str(&more);
    } else if kept.changed == FileChange::Untrusted {
        description.push_str("; it has no effect until you accept the file with `quipu config trust`");
    }
    if matches!(key.name, "search.tool" | "travel.tools") && kept.value == Some(Value::Bool(true)) {
        description.push_str("; sessions that started without these tools stay without them");
    }
    description
}

fn tell(home: &Home, kept: &StoredSetting) -> Result<(), Failure> {
    let text = description(kept, &home.config_in(&current_dir()?));
    let when = match (kept.key.map(|key| key.effect), kept.changed) {
        (None, _) | (_, FileChange::No) => "",
        (Some(Effect::NextSession), _) if kept.name == "agents.byId" => {
            ". Of an agent, `budget` takes effect at once, also in open sessions; `model` and `tools` in new sessions and in those that are opened again; `workspace` in new sessions; `heartbeat` within a minute in a running `quipu serve`, and at once when a heartbeat is due or woken or a message comes"
        }
        (Some(Effect::Now), _) => "; it takes effect at once, also in open sessions",
        (Some(Effect::NewSession), _) => {
            "; it takes effect in new sessions. Those that there are stay as they began, also when you reopen them"
        }
        (Some(Effect::NextSession), _) => "; it takes effect in new sessions and in sessions that you reopen",
        (Some(Effect::NextStart), _) => "; it takes effect when you next start the terminal",
    };
    note(format!("{text}{when}"));
    Ok(())
}

/// Why a setting is not changed, and what to do.
pub(crate) fn failure(error: SettingError) -> Failure {
    match error {
        SettingError::Unknown { name, nearest } => {
            let near = nearest.map_or_else(|| ";".to_owned(), |near| format!("; did you mean `{near}`?"));
            Failure::usage(format!(
                "there is no setting `{}`{near} `quipu config` lists them",
                printable(&name)
            ))
        }
        // It may also say what such a value in a file comes to.
        SettingError::Invalid(what) => Failure::usage(format!("nothing is changed: {what}")),
        SettingError::Refused { key, why } => Failure::usage(format!(
            "the settings of a project cannot set {}: {why}; leave --project out to set it in your own",
            key.name
        )),
        SettingError::Syntax { path, line } => Failure::usage(format!(
            "{}: line {line}: the file is not valid JSON; correct it first (`quipu config edit`)",
            path.display()
        )),
        SettingError::NotAnObject { path, name } if name.is_empty() => Failure::usage(format!(
            "{}: the file must be a JSON object; correct it first (`quipu config edit`)",
            path.display()
        )),
        SettingError::NotAnObject { path, name } => Failure::usage(format!(
            "{}: {name} must be an object; correct it first (`quipu config edit`)",
            path.display()
        )),
        SettingError::Unreadable { path, why } => {
            Failure::usage(format!("{} cannot be read: {why}; correct it first", path.display()))
        }
        SettingError::Failed(failure) => failure.into(),
        SettingError::Io(error) => error.into(),
    }
}

async fn edit(home: &Home, of_project: bool) -> Result<(), Failure> {
    let here = current_dir()?;
    let path = if of_project { project_settings_path(home, &here)? } else { home.settings_path() };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let was_accepted =
        !path.exists() || project_to_trust(home, &here).is_ok_and(|project| project.is_trusted);
    let mut editor = quipu_tui::users_editor().map_err(|error| Failure::usage(error.to_string()))?;
    editor.arg(&path);
    // Ctrl-C is for the editor.
    let _interrupts = signal(SignalKind::interrupt())?;
    let ended = tokio::process::Command::from(editor).kill_on_drop(true).status().await?;
    if !ended.success() {
        return Err(Failure::failed(format!(
            "the editor ended with {ended}; {} stays as the editor left it",
            path.display()
        )));
    }
    if of_project && was_accepted && path.exists() {
        // You changed it, and you had accepted what it was.
        trust_project(home, &project_to_trust(home, &here)?)?;
    }
    // A reading of its own: what was wrong before counts as well.
    let settings = crate::home::home(&StoreArg::default())?.config_in(&here);
    let wrong = settings.problems.iter().filter(
        |problem| matches!(&problem.source, Source::User(from) | Source::Project(from) if *from == path),
    );
    match wrong.count() {
        0 => note(format!("{} is well", path.display())),
        count => note(format!("{}: {count} problems", path.display())),
    }
    Ok(())
}

/// Files of the project that configure servers; whether there are any.
fn trust_servers(home: &Home) -> Result<bool, Failure> {
    let here = current_dir()?;
    let files = quipu_host::mcp::mcp_files(home, &here).files;
    let files: Vec<_> =
        files.iter().filter(|file| !matches!(file.counts, McpFileUse::User | McpFileUse::Package)).collect();
    let mut out = crate::console::stdout();
    for file in &files {
        for problem in &file.problems {
            note(format!("warning: {problem}"));
        }
        for (name, config) in &file.servers {
            writeln!(out, "server {}  {}", printable(name), printable(&server_summary(config)))?;
        }
        if file.servers.is_empty() {
            continue;
        }
        let path = file.path.display();
        if file.counts == McpFileUse::Accepted {
            note(format!("{path} was already accepted"));
        } else {
            quipu_host::mcp::trust_mcp_file(home, &here, file)?;
            note(format!("{path} is accepted in its current form; after a change you must accept it again"));
        }
    }
    Ok(files.iter().any(|file| !file.servers.is_empty()))
}

fn trust(home: &Home) -> Result<(), Failure> {
    let cwd = current_dir()?;
    let has_servers = trust_servers(home)?;
    let has_resources = trust_resources(home, &cwd)?;
    let has_settings = project_settings_path(home, &cwd).is_ok_and(|path| path.exists());
    if has_settings || !(has_servers || has_resources) {
        trust_settings(home, &cwd)?;
    }
    Ok(())
}

/// Uses nothing of what the project says to agents.
fn refuse(home: &Home) -> Result<(), Failure> {
    let cwd = current_dir()?;
    let Some(resources) = quipu_host::resources::project_resources(home, &cwd) else {
        note("this project has no skills, templates and rules");
        return Ok(());
    };
    quipu_host::resources::refuse_resources(home, &resources)?;
    note(format!(
        "nothing of the skills, templates and rules of {} is used from now on; `quipu config trust` accepts them",
        resources.root.display()
    ));
    Ok(())
}

/// Skills, templates and rules of the project; whether there are any.
fn trust_resources(home: &Home, cwd: &std::path::Path) -> Result<bool, Failure> {
    let Some(resources) = quipu_host::resources::project_resources(home, cwd) else { return Ok(false) };
    let mut out = crate::console::stdout();
    for row in resources.rows() {
        writeln!(out, "{}", printable(&row))?;
    }
    let was_accepted = quipu_host::resources::project_decision(home, &resources) == Some(true);
    quipu_host::resources::trust_resources(home, &resources)?;
    let root = resources.root.display();
    note(if was_accepted {
        format!("the skills, templates and rules of {root} were already accepted")
    } else {
        format!(
            "the skills, templates and rules of {root} are used from now on; Quipu asks again when a program in them changes"
        )
    });
    Ok(true)
}

fn trust_settings(home: &Home, cwd: &std::path::Path) -> Result<(), Failure> {
    let project = project_to_trust(home, cwd)?;
    let path = project.path.display();
    let mut out = crate::console::stdout();
    for problem in project.problems.iter().filter(|problem| problem.kind != ProblemKind::Untrusted) {
        note(format!("warning: {}", printable(&problem.to_string())));
    }
    for (key, value) in &project.values {
        writeln!(out, "{}  {}", key.name, printable(&in_words(value)))?;
    }
    trust_project(home, &project)?;
    note(if project.is_trusted {
        format!("{path} was already accepted")
    } else {
        format!("{path} is accepted in its current form; after a change you must accept it again")
    });
    Ok(())
}
