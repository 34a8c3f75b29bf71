//! `quipu skills`: what lies on this machine and in this project for agents, and what of it is used.

use std::io::Write as _;

use clap::Args;
use quipu_host::Home;
use quipu_host::resources::{ResourceSet, TemplateOrigin, found_rules, resources_in, skills_bytes};
use quipu_protocol::Trust;
use serde_json::{Value, json};

use crate::args::StoreArg;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, note, one_line, printable};

/// Bytes of text that count as a token.
const TOKEN: usize = 4;

#[derive(Debug, Args)]
pub(crate) struct SkillsArgs {
    /// Print JSON for programs: one object per line.
    #[arg(long)]
    json: bool,
}

/// Files of rules that the start of a session names.
const RULES_SHOWN: usize = 4;

/// A line of the list.
struct Row {
    kind: &'static str,
    name: String,
    scope: String,
    path: String,
    bytes: u64,
    detail: String,
    notes: Vec<String>,
    used: bool,
    more: Value,
}

pub(crate) fn run(args: &SkillsArgs) -> Result<(), Failure> {
    let home = home(&StoreArg::default())?;
    let cwd = current_dir()?;
    let (set, unused) = resources_in(&home, &cwd);
    let (mut rows, mut problems) = rules_rows(&home, &cwd, &set);
    problems.extend(set.problems.iter().cloned());
    rows.extend(rows_of(&set, true));
    if let Some(project) = &unused {
        rows.extend(rows_of(&project.set, false));
        if set.leaves_project {
            rows.extend(project.open_rules.iter().map(|path| unused_rules(path, String::new())));
        }
        problems.extend(project.set.problems.iter().cloned());
    }
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    let paint = Paint::stdout();
    for row in &rows {
        if args.json {
            writeln!(out, "{}", row.json())?;
            continue;
        }
        let name = format!("{:<28}", one_line(&row.name, 60));
        let scope = if row.used { row.scope.clone() } else { format!("{}, not used", row.scope) };
        let what = format!("{:<8}  {}  {:>7}  {scope}", row.kind, paint.bold(&name), row.bytes);
        writeln!(out, "{what}")?;
        for text in [row.detail.as_str(), row.path.as_str()].into_iter().filter(|text| !text.is_empty()) {
            writeln!(out, "          {}", paint.dim(&one_line(text, 160)))?;
        }
        for text in &row.notes {
            writeln!(out, "          {}", paint.dim(&format!("note: {}", one_line(text, 160))))?;
        }
    }
    out.flush()?;
    for problem in problems {
        note(format!("warning: {}", printable(&problem)));
    }
    if !args.json {
        let bytes = skills_bytes(&set);
        note(format!(
            "Skills take {bytes} bytes of the system prompt, about {} tokens; the model reads the rest when it needs it.",
            bytes.div_ceil(TOKEN)
        ));
    }
    if let Some(project) = &unused {
        let root = project.root.display();
        let not_used = match (project.set.is_empty(), set.leaves_project) {
            (_, true) => format!("What {root} brings along is not used"),
            (false, false) => format!("What {root} brings along beside AGENTS.md is not used"),
            (true, false) => {
                format!("AGENTS.md of {root} is read, although you have not accepted the project")
            }
        };
        note(format!("{not_used}; `quipu config trust` shows it and accepts it."));
    }
    Ok(())
}

/// What a new session in a directory has, in one line; `None` where that is nothing but our own.
pub(crate) fn summary(
    home: &Home,
    cwd: &std::path::Path,
    set: &ResourceSet,
    with_rules: bool,
) -> Option<String> {
    let mut parts = Vec::new();
    let rules = if with_rules { found_rules(home, cwd, set).0 } else { Vec::new() };
    if !rules.is_empty() {
        let name = |one: &quipu::Rules| {
            let lines = one.text.lines().count();
            format!("{} ({lines} line{})", short(&one.path, cwd), if lines == 1 { "" } else { "s" })
        };
        let mut names: Vec<String> = rules.iter().take(RULES_SHOWN).map(name).collect();
        if rules.len() > RULES_SHOWN {
            names.push(format!("{} more", rules.len() - RULES_SHOWN));
        }
        parts.push(format!("Rules: {}.", names.join(", ")));
    }
    if !set.skills.is_empty() {
        let tokens = skills_bytes(set).div_ceil(TOKEN);
        parts.push(format!("Skills: {} (about {tokens} tokens).", set.skills.len()));
    }
    let templates = set.templates.iter().filter(|template| template.origin.path().is_some()).count();
    if templates > 0 {
        parts.push(format!("Templates: {templates}."));
    }
    if parts.is_empty() {
        return None;
    }
    parts.push("/skills lists them.".to_owned());
    Some(parts.join(" "))
}

/// A path as people write it.
fn short(path: &std::path::Path, cwd: &std::path::Path) -> String {
    let home = std::env::home_dir();
    let below_home = home.and_then(|home| path.strip_prefix(home).ok().map(std::path::Path::to_owned));
    match (path.strip_prefix(cwd), below_home) {
        (Ok(below), _) => below.display().to_string(),
        (_, Some(below)) => format!("~/{}", below.display()),
        _ => path.display().to_string(),
    }
}

fn rules_rows(home: &Home, cwd: &std::path::Path, set: &ResourceSet) -> (Vec<Row>, Vec<String>) {
    let (rules, problems) = found_rules(home, cwd, set);
    let row = |one: &quipu::Rules| Row {
        kind: "rules",
        name: one.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        scope: if one.trust == Trust::Owner { "user" } else { "project" }.to_owned(),
        path: one.path.display().to_string(),
        bytes: one.text.len() as u64,
        detail: String::new(),
        notes: Vec::new(),
        used: true,
        more: json!({}),
    };
    (rules.iter().map(row).collect(), problems)
}

fn rows_of(set: &ResourceSet, used: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    if !used {
        rows.extend(set.rules.iter().map(|path| unused_rules(path, String::new())));
    }
    rows.extend(set.path_rules.iter().map(|rules| Row {
        scope: rules.scope.word().to_owned(),
        used,
        ..unused_rules(&rules.path, format!("for {}", rules.patterns.join(", ")))
    }));
    rows.extend(set.skills.iter().map(|skill| Row {
        kind: "skill",
        name: skill.name.clone(),
        scope: in_package(skill.scope.word(), skill.package.as_deref()),
        path: skill.path.display().to_string(),
        bytes: skill.bytes(),
        detail: skill.description.clone(),
        notes: skill.notes.clone(),
        used,
        more: json!({ "forModel": skill.for_model, "forPerson": skill.for_person, "package": skill.package }),
    }));
    rows.extend(set.templates.iter().map(|template| Row {
        kind: "template",
        name: format!("/{}", template.name),
        scope: in_package(template.origin.word(), package_of(&template.origin)),
        path: template.origin.path().map_or(String::new(), |path| path.display().to_string()),
        bytes: template.bytes(),
        detail: format!("{} {}", template.hint, template.description).trim_start().to_owned(),
        notes: template.notes.clone(),
        used,
        more: json!({ "hasCommands": template.has_commands, "package": package_of(&template.origin) }),
    }));
    rows
}

/// A file of rules that is not in the prompt.
fn unused_rules(path: &std::path::Path, detail: String) -> Row {
    Row {
        kind: "rules",
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        scope: "project".to_owned(),
        path: path.display().to_string(),
        bytes: std::fs::metadata(path).map_or(0, |found| found.len()),
        detail,
        notes: Vec::new(),
        used: false,
        more: json!({}),
    }
}

/// Whose something is, and of which package.
fn in_package(scope: &str, package: Option<&str>) -> String {
    package.map_or_else(|| scope.to_owned(), |name| format!("{scope} {name}"))
}

fn package_of(origin: &TemplateOrigin) -> Option<&str> {
    match origin {
        TemplateOrigin::File { package, .. } => package.as_deref(),
        TemplateOrigin::BuiltIn(_) => None,
    }
}

impl Row {
    fn json(&self) -> Value {
        let mut object = json!({
            "kind": self.kind,
            "name": self.name,
            "scope": self.scope.split(' ').next(),
            "path": (!self.path.is_empty()).then_some(&self.path),
            "bytes": self.bytes,
            "description": self.detail,
            "notes": self.notes,
            "used": self.used,
        });
        if let (Some(members), Value::Object(more)) = (object.as_object_mut(), &self.more) {
            members.extend(more.clone());
        }
        object
    }
}
