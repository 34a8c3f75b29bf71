//! The system prompt of a session.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu::{ContextSource, Engine, HookAnswer, Resources, Rules, RulesSource, SessionOptions, StartupHooks};
use quipu_persona::{WorkspaceFile, WorkspaceName};
use quipu_protocol::{Epoch, SessionProfile};

use crate::resources::{NestedRules, ResourceSet, SkillsSource, found_rules, rules_above};
use crate::{Failure, Home, OpenRequest};

/// What is known of a session before its system prompt is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemRequest<'a> {
    /// It goes on, and has a prompt.
    pub is_resumed: bool,
    /// How it stands where it goes on, if its prompt is ours.
    pub kept: Option<&'a Epoch>,
    /// How answers are read.
    pub profile: Option<SessionProfile>,
}

/// Puts the system prompt into the options, with the project's rules as a source of it. A session that goes on keeps its own,
/// with the rules as they were. Gives the files of the workspace where the session is to have the prompt of a personal agent,
/// which is made once its tools are known.
pub(crate) async fn put_system(
    options: &mut SessionOptions,
    home: &Home,
    engine: &Engine,
    request: &OpenRequest,
    SystemRequest { is_resumed, kept, profile }: SystemRequest<'_>,
    resources: &ResourceSet,
) -> Result<Option<Vec<WorkspaceFile>>, Failure> {
    let cwd = &*options.cwd;
    if !request.no_context_files {
        let nested = NestedRules::new(home, engine.store().clone(), cwd, rules_above(home), resources);
        options.hooks.push(Arc::new(nested));
    }
    let asked = request.system_prompt.is_some() || !request.append_system_prompt.is_empty();
    if is_resumed && !asked {
        options.system = None;
        return Ok(None);
    }
    let ours = profile.map_or(quipu::SYSTEM_PROMPT, quipu::profile_prompt);
    let base = request.system_prompt.as_deref().unwrap_or(ours);
    let is_persona = profile.is_none() && crate::persona::is_wanted(home, request, cwd, kept);
    let (rules, problems) = if request.no_context_files || request.is_light {
        Default::default()
    } else {
        let (rules, mut problems) = found_rules(home, cwd, resources);
        // It is a file of the workspace then.
        let is_rule = |one: &Rules| !is_persona || one.path != cwd.join(WorkspaceName::Agents.file());
        let rules = rules.into_iter().filter(is_rule).collect();
        let rules = rules_of_hooks(home, engine, request, cwd, rules, &mut problems).await;
        let rules = crate::rules::accepted_rules(home, &**engine.store(), cwd, rules).await?;
        (rules, problems)
    };
    for problem in problems {
        home.warn(problem);
    }
    options.system = Some(quipu::system_base(base, &request.append_system_prompt));
    options.system_end = Some(quipu::system_end(cwd));
    if !rules.is_empty() {
        let rules: Arc<dyn ContextSource> = Arc::new(RulesSource::new(rules));
        options.context_sources.insert(0, rules);
    }
    let (skills, cut) = SkillsSource::new(&resources.skills);
    if let Some(cut) = cut {
        home.warn(cut);
    }
    if let Some(skills) = skills {
        options.context_sources.push(Arc::new(skills));
    }
    let mut workspace = None;
    if is_persona {
        let store = &**engine.store();
        workspace = Some(match request.no_context_files || resources.leaves_project {
            true => Vec::new(),
            false => {
                let mut files = crate::persona::read_workspace(home, store, cwd).await?;
                files.retain(|file| !request.is_light || file.name == WorkspaceName::Heartbeat);
                files
            }
        });
    }
    crate::memory::install_sections(options, home, engine, request);
    Ok(workspace)
}

/// The rules that hooks of the program make of those that were found.
async fn rules_of_hooks(
    home: &Home,
    engine: &Engine,
    request: &OpenRequest,
    cwd: &Path,
    found: Vec<Rules>,
    problems: &mut Vec<String>,
) -> Vec<Rules> {
    if request.hooks.is_empty() {
        return found;
    }
    let hooks = StartupHooks::new(&request.hooks, engine.sealer().clone(), cwd);
    let paths: Vec<PathBuf> = found.iter().map(|one| one.path.clone()).collect();
    let HookAnswer { value, notices } = hooks.resources(Resources { rules: paths.clone() }).await;
    for notice in notices {
        home.note(notice);
    }
    if value.rules == paths {
        return found;
    }
    let mut rules = Vec::with_capacity(value.rules.len());
    for path in value.rules {
        match found.iter().find(|one| one.path == path) {
            Some(known) => rules.push(known.clone()),
            None => {
                let (read, failed) = quipu::read_rules_at(&home.dir, &[path]);
                rules.extend(read);
                problems.extend(failed);
            }
        }
    }
    rules
}
