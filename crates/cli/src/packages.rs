//! `quipu packages`: skills, templates, agents and MCP servers from a registry, a repository or a directory.

use std::io::Write as _;

use clap::{Args, Subcommand};
use quipu_host::Home;
use quipu_host::mcp::{McpFile, package_file, server_summary};
use quipu_host::packages::{
    InstalledPackage, PackageSource, PackageState, PreparedPackage, installed_packages, package_state,
    prepare_package, remove_package,
};
use quipu_host::resources::{ResourceSet, package_resources};
use quipu_mcp::ServerConfig;
use serde_json::{Value, json};

use crate::args::StoreArg;
use crate::confirm::asked;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, counted, note, one_line, printable};

/// Columns of a description.
const WIDTH: usize = 80;
/// Paths of one kind that are listed at most.
const MOST_ROWS: usize = 100;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PackagesArgs {
    #[command(subcommand)]
    action: Option<PackagesAction>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Args, Default)]
struct ListArgs {
    /// Print JSON for programs: one object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum PackagesAction {
    /// List the packages, and whether each is what you accepted. The same as `quipu packages`.
    List(ListArgs),
    /// Fetch a package, show what it contains, and use it once you accept it.
    Add {
        /// `npm:NAME[@VERSION]`, `git:HOST/PATH[@REF]`, the address of a Git repository, or a path.
        source: String,
        #[command(flatten)]
        accept: AcceptArgs,
    },
    /// Fetch packages again, show what changed, and use that once you accept it.
    Update {
        /// The name of the package; all without it.
        name: Option<String>,
        #[command(flatten)]
        accept: AcceptArgs,
    },
    /// Remove a package.
    Remove {
        /// Its name or source.
        name: String,
    },
}

#[derive(Debug, Args, Default)]
struct AcceptArgs {
    /// Accept the package without a question if its files have this hash, which `--dry-run` prints.
    #[arg(long, value_name = "SHA256")]
    hash: Option<String>,
    /// Show the package and change nothing.
    #[arg(long, conflicts_with = "hash")]
    dry_run: bool,
    /// Print JSON for programs: one object per package.
    #[arg(long)]
    json: bool,
}

/// What became of a package that was shown.
enum Outcome {
    Accepted,
    Unchanged,
    Shown,
}

/// `quipu packages`.
pub(crate) async fn run(args: &PackagesArgs) -> Result<(), Failure> {
    let home = home(&StoreArg::default())?;
    match &args.action {
        None => list(&home, &args.list),
        Some(PackagesAction::List(args)) => list(&home, args),
        Some(PackagesAction::Add { source, accept }) => {
            let source = PackageSource::parse(source, &current_dir()?)?;
            add(&home, source, accept).await.map(drop)
        }
        Some(PackagesAction::Update { name, accept }) => update(&home, name.as_deref(), accept).await,
        Some(PackagesAction::Remove { name }) => match remove_package(&home, name)? {
            Some(package) => {
                note(format!("removed {}, from {}", printable(&package.name), printable(&package.source)));
                Ok(())
            }
            None => Err(unknown(name)),
        },
    }
}

fn unknown(name: &str) -> Failure {
    Failure::usage(format!("there is no package `{}`; `quipu packages` lists them", printable(name)))
}

fn list(home: &Home, args: &ListArgs) -> Result<(), Failure> {
    let packages = installed_packages(home)?;
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    let paint = Paint::stdout();
    for package in &packages {
        let state = package_state(home, package);
        if args.json {
            writeln!(out, "{}", installed_json(package, &state))?;
            continue;
        }
        let name = format!("{:<28}", one_line(&package.name, 60));
        let what = match &state {
            PackageState::Usable(content) => {
                let skills = counted(content.skills.len() as u64, "skill");
                let mut what = format!("{skills}, {}", counted(content.templates.len() as u64, "template"));
                if !content.agents.is_empty() {
                    what += &format!(", {}", counted(content.agents.len() as u64, "agent"));
                }
                if content.servers.is_some() {
                    what += ", MCP servers";
                }
                what
            }
            PackageState::Unusable(why) => paint.red(&format!("not used: {}", one_line(why, 120))),
        };
        writeln!(out, "{}  {what}", paint.bold(&name))?;
        let version = if package.resolved.is_empty() { "a copy" } else { package.resolved.as_str() };
        let source =
            format!("{}  {}  {}", package.source, version, &package.hash.get(..12).unwrap_or_default());
        writeln!(out, "  {}", paint.dim(&one_line(&source, 200)))?;
    }
    out.flush()?;
    if packages.is_empty() && !args.json {
        note("there are no packages; `quipu packages add SOURCE` shows one and adds it");
    }
    Ok(())
}

fn installed_json(package: &InstalledPackage, state: &PackageState) -> Value {
    let mut line = json!({
        "name": package.name,
        "source": package.source,
        "resolved": package.resolved,
        "hash": package.hash,
        "files": package.files,
        "bytes": package.bytes,
    });
    match state {
        PackageState::Usable(content) => {
            line["used"] = true.into();
            line["skills"] = content.skills.len().into();
            line["templates"] = content.templates.len().into();
            line["agents"] = content.agents.len().into();
            line["servers"] = content.servers.is_some().into();
        }
        PackageState::Unusable(why) => {
            line["used"] = false.into();
            line["why"] = why.as_str().into();
        }
    }
    line
}

async fn update(home: &Home, name: Option<&str>, accept: &AcceptArgs) -> Result<(), Failure> {
    let mut packages = installed_packages(home)?;
    if let Some(name) = name {
        packages.retain(|one| one.name == name || one.source == name);
        if packages.is_empty() {
            return Err(unknown(name));
        }
    }
    if accept.hash.is_some() && packages.len() != 1 {
        return Err(Failure::usage("--hash accepts one package; name it"));
    }
    let here = current_dir()?;
    let mut failed = 0_u64;
    for package in &packages {
        let updated = match PackageSource::parse(&package.source, &here) {
            Ok(source) => add(home, source, accept).await,
            Err(failure) => Err(failure.into()),
        };
        match updated {
            Ok(Outcome::Unchanged) if !accept.json => {
                note(format!("{} is up to date", printable(&package.name)));
            }
            Ok(_) => {}
            Err(failure) if packages.len() == 1 => return Err(failure),
            Err(failure) => {
                failed += 1;
                note(format!("{}: {}", printable(&package.name), failure.message));
            }
        }
    }
    if failed > 0 {
        return Err(Failure::failed(format!("{} could not be updated", counted(failed, "package"))));
    }
    Ok(())
}

async fn add(home: &Home, source: PackageSource, accept: &AcceptArgs) -> Result<Outcome, Failure> {
    let package = prepare_package(home, source).await?;
    let resources = package_resources(&package.name, &package.directory(), &package.content);
    let directory = package.directory();
    let file =
        package.content.servers.as_ref().and_then(|path| package_file(&directory.join(path), &directory));
    let servers = ServerRows::of(file);
    let is_known = package.replaces.as_ref().is_some_and(|old| {
        old.hash == package.hash
            && old.source == package.source.to_string()
            && old.agents != package.content.agents.is_empty()
            && old.servers == package.content.servers.is_some()
            && matches!(package_state(home, old), PackageState::Usable(_))
    });
    if accept.json {
        writeln!(crate::console::stdout(), "{}", prepared_json(&package, &resources, &servers, is_known))?;
    } else if !is_known || accept.dry_run {
        show(home, &package, &resources, &servers)?;
    }
    for problem in resources.problems.iter().chain(&servers.problems) {
        note(format!("warning: {}", printable(problem)));
    }
    if accept.dry_run {
        return Ok(Outcome::Shown);
    }
    if is_known {
        return Ok(Outcome::Unchanged);
    }
    match &accept.hash {
        Some(hash) if *hash == package.hash => {}
        Some(_) => {
            return Err(Failure::failed(format!(
                "{} was not added: its files have the hash {}",
                printable(&package.source.to_string()),
                package.hash
            )));
        }
        None => {
            let name = printable(&package.name);
            let programs = match servers.rows.as_slice() {
                [] => "its programs run only through tools, as you permit.".to_owned(),
                rows => {
                    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
                    format!(
                        "sessions start its MCP servers ({}) with your rights, outside of the sandbox.",
                        printable(&names.join(", "))
                    )
                }
            };
            match asked(&format!("Use {name}? The model reads its texts; {programs}"))? {
                Some(true) => {}
                Some(false) => return Err(Failure::failed(format!("{name} was not added"))),
                None => {
                    return Err(Failure::usage(format!(
                        "a package is added only after you confirm: read what it contains, then add --hash {}",
                        package.hash
                    )));
                }
            }
        }
    }
    let added = package.accept(home)?;
    note(format!(
        "{} is used from the next session on; `quipu skills` lists what it gives",
        printable(&added.name)
    ));
    Ok(Outcome::Accepted)
}

/// An MCP server of a package.
struct ServerRow {
    name: String,
    /// What is run or called, with all that it gets.
    what: String,
}

#[derive(Default)]
struct ServerRows {
    rows: Vec<ServerRow>,
    problems: Vec<String>,
}

impl ServerRows {
    fn of(file: Option<McpFile>) -> Self {
        let Some(file) = file else { return Self::default() };
        let row = |(name, config): &(String, ServerConfig)| ServerRow {
            name: name.clone(),
            what: server_summary(config),
        };
        Self { rows: file.servers.iter().map(row).collect(), problems: file.problems }
    }
}

fn show(
    home: &Home,
    package: &PreparedPackage,
    resources: &ResourceSet,
    servers: &ServerRows,
) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    let paint = Paint::stdout();
    let size_of =
        |path: &str| package.files.iter().find(|file| file.path == path).map_or(0, |file| file.bytes);
    let version = if package.resolved.is_empty() { String::new() } else { format!("  {}", package.resolved) };
    writeln!(out, "{}{}", paint.bold(&one_line(&package.source.to_string(), 200)), printable(&version))?;
    writeln!(out, "  {}, {} bytes", counted(package.files.len() as u64, "file"), package.bytes)?;
    writeln!(out, "  sha256 {}", package.hash)?;
    for server in &servers.rows {
        writeln!(out, "  {:<9} {:<28}  {}", "server", server.name, printable(&server.what))?;
    }
    let mut row = |kind: &str, name: &str, bytes: Option<u64>, detail: &str| {
        let bytes = bytes.map_or(String::new(), |bytes| bytes.to_string());
        let line = format!("  {kind:<9} {:<28} {bytes:>8}  {}", one_line(name, 110), one_line(detail, WIDTH));
        writeln!(out, "{}", line.trim_end())
    };
    for skill in resources.skills.iter().take(MOST_ROWS) {
        row("skill", &skill.name, Some(skill.bytes()), &skill.description)?;
        for text in &skill.notes {
            row("", "", None, &format!("note: {text}"))?;
        }
    }
    for template in resources.templates.iter().take(MOST_ROWS) {
        row("template", &format!("/{}", template.name), Some(template.bytes()), &template.description)?;
        for text in &template.notes {
            row("", "", None, &format!("note: {text}"))?;
        }
    }
    for agent in resources.agents.iter().take(MOST_ROWS) {
        row("agent", &agent.definition.name, None, &agent.definition.description)?;
        for text in &agent.notes {
            row("", "", None, &format!("note: {text}"))?;
        }
    }
    for program in package.files.iter().filter(|file| file.is_program).take(MOST_ROWS) {
        row("program", &program.path, Some(size_of(&program.path)), "")?;
    }
    for (kind, path) in package.content.not_used.iter().take(MOST_ROWS) {
        row("not used", path, Some(size_of(path)), kind)?;
    }
    for left_out in package.left_out.iter().take(MOST_ROWS) {
        row("left out", left_out, None, "")?;
    }
    for text in &package.content.notes {
        row("note", text, None, "")?;
    }
    if let Some(old) = &package.replaces {
        let changes = package.changes(home);
        row("replaces", &old.resolved, None, &old.hash)?;
        for (kind, paths) in
            [("new", &changes.added), ("changed", &changes.changed), ("gone", &changes.removed)]
        {
            for path in paths.iter().take(MOST_ROWS) {
                row(kind, path, None, "")?;
            }
        }
    }
    out.flush()?;
    Ok(())
}

fn prepared_json(
    package: &PreparedPackage,
    resources: &ResourceSet,
    servers: &ServerRows,
    is_known: bool,
) -> Value {
    json!({
        "name": package.name,
        "source": package.source.to_string(),
        "resolved": package.resolved,
        "hash": package.hash,
        "bytes": package.bytes,
        "files": package.files.iter().map(|file| {
            json!({ "path": file.path, "bytes": file.bytes, "program": file.is_program })
        }).collect::<Vec<_>>(),
        "skills": resources.skills.iter().map(|skill| {
            json!({ "name": skill.name, "description": skill.description, "notes": skill.notes })
        }).collect::<Vec<_>>(),
        "templates": resources.templates.iter().map(|template| {
            json!({ "name": template.name, "description": template.description, "notes": template.notes })
        }).collect::<Vec<_>>(),
        "agents": resources.agents.iter().map(|agent| {
            let definition = &agent.definition;
            json!({ "name": definition.name, "description": definition.description, "notes": agent.notes })
        }).collect::<Vec<_>>(),
        "servers": servers.rows.iter().map(|row| json!({ "name": row.name, "what": row.what })).collect::<Vec<_>>(),
        "notUsed": package.content.not_used.iter().map(|(kind, path)| {
            json!({ "kind": kind, "path": path })
        }).collect::<Vec<_>>(),
        "leftOut": package.left_out,
        "notes": package.content.notes,
        "unchanged": is_known,
    })
}
