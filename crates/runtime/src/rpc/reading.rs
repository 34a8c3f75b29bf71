//! Commands that read the session and the user's files.

use std::path::{Path, PathBuf};

use quipu_host::export::{self, ExportError, ExportFormat, SessionEntry};
use quipu_host::holders::WrittenKind;
use quipu_host::resources::{ResourceScope, TemplateOrigin};
use quipu_protocol::{Message, NodeId};
use quipu_rpc::{
    CommandForm, CommandSource, ContextFill, ModelForm, SessionEntries, SessionState, SourceInfo, data_text,
    last_answer_text,
};

use super::active::ActiveSession;
use super::state::{CommandOutcome, FrontState};

/// Names that are tried for a page in the working directory.
const PAGES: u32 = 1_000;

impl FrontState {
    /// The entries of the session, and the node of each.
    pub(super) async fn read_entries(
        &self,
        active: &ActiveSession,
    ) -> Result<(SessionEntries, Vec<NodeId>), String> {
        let id = active.session.view().session;
        let entries = export::session_entries(&*active.store, &id).await;
        let entries = entries.map_err(|failure| self.worded(&failure))?;
        let (lines, nodes) = entries.into_iter().map(|SessionEntry { line, node }| (line, node)).unzip();
        Ok((SessionEntries::new(lines), nodes))
    }

    pub(super) async fn state(&self, active: &ActiveSession) -> CommandOutcome {
        let snapshot = active.snapshot().await?;
        let (model, thinking_level) = self.model_of(active).await?;
        let name = active.shown.wanted().name.unwrap_or(snapshot.name);
        let settings = self.live_settings();
        let state = SessionState {
            model: ModelForm::from(&*model),
            thinking_level,
            is_streaming: snapshot.run.is_some(),
            is_compacting: snapshot.compaction.is_some(),
            steering_mode: settings.steering,
            follow_up_mode: settings.follow_up,
            session_file: active.file.as_ref().map(|file| file.path.as_str()),
            session_id: snapshot.session.as_str(),
            session_name: Some(name.as_str()).filter(|name| !name.is_empty()),
            auto_compaction_enabled: settings.auto_compaction,
            message_count: active.messages(snapshot.head).await?.len(),
            pending_message_count: snapshot.steering.len() + snapshot.follow_up.len() + active.shown.held(),
        };
        Ok(Some(data_text(&state)))
    }

    pub(super) async fn messages(&self, active: &ActiveSession) -> CommandOutcome {
        let messages = active.messages(active.session.view().head).await?;
        let texts: Vec<String> = messages.iter().map(|message| data_text(&**message)).collect();
        Ok(Some(format!("{{\"messages\":[{}]}}", texts.join(","))))
    }

    pub(super) async fn last_answer(&self, active: &ActiveSession) -> CommandOutcome {
        let messages = active.messages(active.session.view().head).await?;
        let messages: Vec<&Message> = messages.iter().map(|message| &**message).collect();
        let data = match last_answer_text(messages.into_iter()) {
            Some(answer) => data_text(&serde_json::json!({ "text": answer })),
            None => "{}".into(),
        };
        Ok(Some(data))
    }

    pub(super) async fn entries(&self, active: &ActiveSession, since: Option<&str>) -> CommandOutcome {
        let (entries, _) = self.read_entries(active).await?;
        let from = match since {
            None => 0,
            Some(id) => entries.position(id).ok_or_else(|| format!("Entry not found: {id}"))? + 1,
        };
        Ok(Some(entries.list(from)))
    }

    pub(super) async fn tree(&self, active: &ActiveSession) -> CommandOutcome {
        Ok(Some(self.read_entries(active).await?.0.tree()))
    }

    pub(super) async fn fork_messages(&self, active: &ActiveSession) -> CommandOutcome {
        let messages = self.read_entries(active).await?.0.fork_messages();
        Ok(Some(data_text(&serde_json::json!({ "messages": messages }))))
    }

    pub(super) async fn stats(&self, active: &ActiveSession) -> CommandOutcome {
        let (entries, _) = self.read_entries(active).await?;
        let snapshot = active.snapshot().await?;
        let tokens = snapshot.context.or(snapshot.head.is_none().then_some(0));
        let mut stats = entries.stats();
        stats.session_file = active.file.as_ref().map(|file| file.path.clone());
        stats.session_id = snapshot.session.to_string();
        stats.context_usage = ContextFill::of(tokens, snapshot.model.context_window);
        Ok(Some(data_text(&stats)))
    }

    pub(super) async fn export_page(&self, active: &ActiveSession, path: Option<String>) -> CommandOutcome {
        let id = active.session.view().session;
        let row = export::session_row(&*active.store, &id).await.map_err(|failure| self.worded(&failure))?;
        let row = row.ok_or("Nothing to export yet - start a conversation first")?;
        let cwd = active.session.cwd();
        let path = match path.filter(|path| !path.is_empty()) {
            Some(path) => cwd.join(path),
            None => free_page(cwd, id.as_str())?,
        };
        let written = export::write_file(&*active.store, &row, ExportFormat::Html, &path).await;
        written.map_err(|error| match error {
            ExportError::Read(failure) => self.worded(&failure),
            ExportError::Write(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                format!("{} exists; name another file, or remove it first", path.display())
            }
            ExportError::Write(error) => format!("{} could not be written: {error}", path.display()),
        })?;
        self.home.wrote(&path, WrittenKind::Export, std::slice::from_ref(&id));
        Ok(Some(data_text(&serde_json::json!({ "path": path.to_string_lossy() }))))
    }

    pub(super) fn commands(&self, active: &ActiveSession) -> CommandOutcome {
        let resources = &active.resources;
        let template_names = resources.templates.iter().map(|template| template.name.clone());
        let skills = resources.skills.iter().filter(|skill| skill.for_person);
        let skill_names =
            skills.clone().flat_map(|skill| [skill.name.clone(), format!("skill:{}", skill.name)]);
        let known: std::collections::HashSet<String> = template_names.chain(skill_names).collect();
        let described = |description: &str| Some(description.to_owned()).filter(|text| !text.is_empty());
        let mut commands = Vec::new();
        for spec in self.home.commands().runnable().into_iter().filter(|spec| !known.contains(&spec.name)) {
            commands.push(CommandForm {
                name: spec.name,
                description: described(&spec.help),
                source: CommandSource::Extension,
                source_info: source_info(format!("<{}>", spec.source), None, None, &spec.source),
            });
        }
        for template in &resources.templates {
            let source_info = match &template.origin {
                TemplateOrigin::BuiltIn(_) => source_info("<built-in>".into(), None, None, "quipu"),
                TemplateOrigin::File { path, scope, package, .. } => {
                    source_info(path.display().to_string(), Some(*scope), package.as_deref(), "local")
                }
            };
            commands.push(CommandForm {
                name: template.name.clone(),
                description: described(&template.description),
                source: CommandSource::Prompt,
                source_info,
            });
        }
        for skill in skills {
            let path = skill.path.display().to_string();
            commands.push(CommandForm {
                name: format!("skill:{}", skill.name),
                description: described(&skill.description),
                source: CommandSource::Skill,
                source_info: source_info(path, Some(skill.scope), skill.package.as_deref(), "local"),
            });
        }
        Ok(Some(data_text(&serde_json::json!({ "commands": commands }))))
    }
}

fn source_info(
    path: String,
    scope: Option<ResourceScope>,
    package: Option<&str>,
    source: &str,
) -> SourceInfo {
    let scope = match scope {
        Some(ResourceScope::Project) => "project",
        Some(ResourceScope::User | ResourceScope::Package) => "user",
        None => "temporary",
    };
    SourceInfo {
        path,
        source: package.unwrap_or(source).to_owned(),
        scope: scope.into(),
        origin: if package.is_some() { "package" } else { "top-level" }.into(),
    }
}

/// The name of a page that nothing has yet.
fn free_page(cwd: &Path, id: &str) -> Result<PathBuf, String> {
    let names = (1..=PAGES).map(|number| match number {
        1 => format!("quipu-session-{id}.html"),
        _ => format!("quipu-session-{id}-{number}.html"),
    });
    let mut paths = names.map(|name| cwd.join(name));
    let free = paths.find(|path| path.symlink_metadata().is_err());
    free.ok_or_else(|| format!("{} holds too many pages of this session; name a file", cwd.display()))
}
