//! What the sandbox of commands is made of: `sandbox` of the settings, and ourselves as its keeper.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quipu::{
    AccessMode, ContainerEnd, ContainerMount, ContainerReport, Containers, Doors, Launcher, Network,
    PermissionRules, Permissions, PruneLimits, WorkspaceAccess,
};

use quipu_store::SessionRow;

use crate::{
    ConversationPlace, Failure, Home, OpenRequest, SandboxMode, SandboxScope, SandboxSettings,
    SandboxWorkspace, SessionTarget,
};

/// The argument with which we become the keeper of a sandbox.
pub const SANDBOX: &str = "__sandbox";

/// Ourselves, also when we were replaced meanwhile.
pub fn launcher() -> Launcher {
    Launcher { program: "/proc/self/exe".into(), arguments: vec![SANDBOX.into()] }
}

/// What the settings open between the network of commands and this machine: `sandbox.ports`, `sandbox.services`.
pub(crate) fn doors(home: &Home) -> Doors {
    let sandbox = &home.config().sandbox;
    let mut doors = Doors { ports: sandbox.ports.clone(), ..Doors::default() };
    for service in &sandbox.services {
        if !service.starts_with('/') {
            doors.services.push(service.clone());
            continue;
        }
        if !std::path::Path::new(service).exists() {
            home.warn_of_settings(format!(
                "sandbox.services names {service}, which does not exist; commands reach it only in sessions that start while it exists"
            ));
        }
        doors.sockets.push(service.into());
    }
    doors
}

/// Where commands in a container find the workspace.
const WORKSPACE: &str = "/workspace";
/// The agent of sessions that are for no conversation.
pub(crate) const MAIN: &str = "main";

/// Whether the session of a conversation works in a sandbox of a scope.
pub(crate) fn applies(settings: &SandboxSettings, conversation: Option<&ConversationPlace>) -> bool {
    match settings.mode {
        SandboxMode::Off => false,
        SandboxMode::NonMain => conversation.is_some_and(|place| !place.is_main),
        SandboxMode::All => true,
    }
}

/// What the sessions of a sandbox have in common.
fn scope(settings: &SandboxSettings, conversation: Option<&ConversationPlace>, project: &Path) -> String {
    match (settings.scope, conversation) {
        (SandboxScope::Shared, _) => "shared".to_owned(),
        (SandboxScope::Agent, place) => format!("agent:{}", place.map_or(MAIN, |place| place.agent.as_str())),
        (SandboxScope::Session, Some(place)) => format!("session:{}", place.name),
        // Of a person at this machine, who has one session after the other in a directory.
        (SandboxScope::Session, None) => format!("directory:{}", project.display()),
    }
}

/// The folder that sessions of a sandbox work in, where they have nothing of their own workspace.
fn own_workspace(home: &Home, scope: &str) -> PathBuf {
    sandboxes(home).join(crate::permissions::project_name(Path::new(scope)))
}

fn sandboxes(home: &Home) -> PathBuf {
    // As sessions name their directories.
    home.dir.canonicalize().unwrap_or_else(|_| home.dir.clone()).join("sandboxes")
}

/// The folder that a session begun in a directory works in; `None` where that is the directory itself. Makes nothing.
pub(crate) fn own_folder(
    home: &Home,
    conversation: Option<&ConversationPlace>,
    directory: &Path,
) -> Option<PathBuf> {
    let config = home.config();
    let settings = &config.sandbox;
    let is_own = applies(settings, conversation) && settings.workspace == SandboxWorkspace::Own;
    is_own.then(|| own_workspace(home, &scope(settings, conversation, directory)))
}

/// The request for a session in the folder of its sandbox, where it works in one of its own.
///
/// # Errors
/// The folder cannot be made.
pub(crate) fn in_own_workspace(home: &Home, request: &OpenRequest) -> Result<Option<OpenRequest>, Failure> {
    let Some(own) = own_folder(home, request.conversation.as_ref(), &request.here) else { return Ok(None) };
    let make = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
    make(&home.dir).and_then(|()| make(&sandboxes(home))).map_err(|error| {
        Failure::failed(format!("the folder of sandboxes cannot be made ({}): {error}", home.dir.display()))
    })?;
    make(&own).map_err(|error| {
        Failure::failed(format!("the workspace of the sandbox cannot be made ({}): {error}", own.display()))
    })?;
    let mut request = request.clone();
    match request.which {
        SessionTarget::New | SessionTarget::Newest => request.here = own,
        SessionTarget::Session(_) | SessionTarget::Fork(_) => request.cwd = Some(own),
    }
    Ok(Some(request))
}

/// The directory that a session belongs to, which works in the folder of its sandbox: the one that it would work in without.
pub(crate) fn directory_of(home: &Home, asked: &OpenRequest, resumed: Option<&SessionRow>) -> PathBuf {
    let begun = resumed.map(|row| PathBuf::from(&row.cwd));
    let begun = begun.filter(|cwd| cwd.is_dir() && !cwd.starts_with(sandboxes(home)));
    asked.cwd.clone().or(begun).unwrap_or_else(|| asked.here.clone())
}

/// Puts the sandbox of a session in a directory into its rules.
///
/// # Errors
/// The session has a workspace that its sandbox does not give it.
pub(crate) fn put(
    home: &Home,
    conversation: Option<&ConversationPlace>,
    project: &Path,
    rules: &mut PermissionRules,
) -> Result<(), Failure> {
    let config = home.config();
    let settings = &config.sandbox;
    if !applies(settings, conversation) {
        return Ok(());
    }
    if settings.workspace == SandboxWorkspace::Own {
        if !project.starts_with(sandboxes(home)) {
            return Err(Failure::request(
                "`sandbox.workspaceAccess` was set to `none` while the session was open; open it again",
            ));
        }
        // What was added for the directory is not of this sandbox.
        rules.add_dirs.clear();
        if let Some(namespaces) = &mut rules.namespaces {
            namespaces.visible.push(rules.cwd.clone());
        }
    }
    if settings.workspace == SandboxWorkspace::Read {
        rules.workspace = WorkspaceAccess::Read;
    }
    let access = match settings.workspace {
        SandboxWorkspace::Read => AccessMode::Read,
        SandboxWorkspace::Own | SandboxWorkspace::Write => AccessMode::Write,
    };
    let workspace = ContainerMount { source: rules.cwd.clone(), target: WORKSPACE.into(), access };
    let scope = scope(settings, conversation, project);
    let Some(mut containers) = containers(home, settings, scope, workspace) else { return Ok(()) };
    let added = rules.add_dirs.iter();
    containers.mounts.extend(added.map(|path| ContainerMount {
        source: path.clone(),
        target: path.clone(),
        access,
    }));
    if rules.network == Network::Closed {
        "none".clone_into(&mut containers.network);
    }
    containers.home.clone_from(&rules.home);
    rules.containers = Some(containers);
    Ok(())
}

/// The containers of the settings; `None` where commands run in namespaces.
fn containers(
    home: &Home,
    settings: &SandboxSettings,
    scope: String,
    workspace: ContainerMount,
) -> Option<Containers> {
    let container = settings.container.clone()?;
    Some(Containers {
        engine: container.engine,
        image: container.image,
        runtime: container.runtime,
        network: container.network,
        prefix: container.prefix,
        scope,
        workspace,
        mounts: container.mounts,
        variables: container.variables,
        limits: container.limits,
        prune: PruneLimits::default(),
        end: ContainerEnd::Stopped,
        state: home.dir.join("containers"),
        home: std::env::home_dir(),
        hidden: vec![home.dir.clone()],
    })
}

/// What the settings say of containers on this machine.
#[derive(Debug)]
pub enum ContainerFindings {
    /// Commands run in none.
    Unused,
    /// They are named, and no session has a sandbox of a scope.
    Off,
    /// What of them is there.
    Used(Box<ContainerReport>),
}

/// Looks at the containers that the settings ask for; each call of their program may take so long.
pub fn containers_here(home: &Home, patience: Duration) -> ContainerFindings {
    let config = home.config();
    let settings = &config.sandbox;
    let workspace =
        ContainerMount { source: PathBuf::new(), target: WORKSPACE.into(), access: AccessMode::Read };
    let Some(containers) = containers(home, settings, "check".to_owned(), workspace) else {
        return ContainerFindings::Unused;
    };
    if settings.mode == SandboxMode::Off {
        return ContainerFindings::Off;
    }
    let report = quipu_workspace::check_containers(&containers, quipu::Helpers::of_this_process(), patience);
    ContainerFindings::Used(Box::new(report))
}

/// Why commands do not run in namespaces, and what they can reach then.
pub fn isolation_here(permissions: &Permissions) -> Option<String> {
    let sandbox = quipu::Policy::sandbox(permissions)?;
    let why = match sandbox.isolation() {
        Ok(Ok(())) => return None,
        Ok(Err(why)) => why.to_string(),
        Err(error) => error.to_string(),
    };
    Some(format!(
        "commands run without namespaces ({why}), so they can use the network (unless it is closed) and Unix sockets, read secrets in the home directory, write .git/config and git hooks, and see other processes"
    ))
}
