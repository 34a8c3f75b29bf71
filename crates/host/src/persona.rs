//! The prompt of a personal agent, from the files of its workspace.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu::{Context, ContextAsk, ContextSource, Rules, Section, SessionOptions, SourceError};
use quipu_persona::{
    Audience, FileContent, MemoryGuide, PersonaInputs, PersonaSection, PromptMode, Stability, ToolLine,
    WorkspaceFile, WorkspaceName, WorkspaceNotes, sections,
};
use quipu_protocol::{Epoch, Trust};
use quipu_store::Graph;

use crate::{Failure, Home, OpenRequest};

/// Bytes of a file of the workspace at most.
const READ_LIMIT: u64 = 2 << 20;
/// Bytes of all sections: the files with their budget, four bytes a character, and what stands around them.
const SECTIONS_LIMIT: usize = 1 << 20;

/// The source of what is the same from session to session.
pub(crate) const PERSONA: &str = "persona";
/// The source of what changes.
pub(crate) const PERSONA_NOW: &str = "persona-now";

/// Whether a session in `cwd` has the prompt of a personal agent: a new one where the settings say so, one that goes on with another prompt
/// where it had it.
pub(crate) fn is_wanted(home: &Home, request: &OpenRequest, cwd: &Path, last: Option<&Epoch>) -> bool {
    let had = |last: &Epoch| {
        last.context.as_ref().is_some_and(|context| context.sources.iter().any(|source| source == PERSONA))
    };
    request.system_prompt.is_none() && last.map_or_else(|| home.config_in(cwd).persona, had)
}

/// The paths of files of a workspace, also of those that are not there.
pub(crate) fn workspace_paths(cwd: &Path) -> impl Iterator<Item = PathBuf> {
    WorkspaceName::ALL.into_iter().map(move |name| cwd.join(name.file()))
}

/// The files of the workspace, without those that a command made and nobody accepted. Their problems go to people.
///
/// # Errors
/// What the store says.
pub(crate) async fn read_workspace(
    home: &Home,
    store: &dyn Graph,
    cwd: &Path,
) -> Result<Vec<WorkspaceFile>, Failure> {
    let mut files = Vec::new();
    for name in WorkspaceName::ALL {
        let at = cwd.join(name.file());
        let content = match read_file(cwd, &at) {
            FileContent::Text(text) => {
                let rules = vec![Rules { path: at.clone(), text, trust: Trust::Project }];
                let accepted = crate::rules::accepted_rules(home, store, cwd, rules).await?.pop();
                accepted.map_or_else(
                    || FileContent::Refused("a command made it, and nobody accepted it yet".to_owned()),
                    |rules| FileContent::Text(rules.text),
                )
            }
            FileContent::Refused(why) => {
                home.warn(format!("{} is not used: {why}", at.display()));
                FileContent::Refused(why)
            }
            FileContent::Missing => FileContent::Missing,
        };
        files.push(WorkspaceFile { name, path: cwd.display().to_string(), content });
    }
    Ok(files)
}

/// What is known of a file in a workspace: links that leave it are not followed.
fn read_file(workspace: &Path, path: &Path) -> FileContent {
    let refused = |why: &dyn std::fmt::Display| FileContent::Refused(why.to_string());
    // A link that leads nowhere is one that is not there.
    if !path.try_exists().unwrap_or(true) {
        return FileContent::Missing;
    }
    let (file, found) = match quipu_workspace::open_for_reading(path) {
        Ok(opened) => opened,
        Err(error) => return refused(&error),
    };
    // What was opened has to be what its true path names.
    let (root, target) = match (workspace.canonicalize(), path.canonicalize()) {
        (Ok(root), Ok(target)) => (root, target),
        (Err(error), _) | (_, Err(error)) => return refused(&error),
    };
    if !target.starts_with(&root) {
        return refused(&"it is a link out of the workspace");
    }
    match std::fs::metadata(&target) {
        Ok(named) if (named.dev(), named.ino()) == (found.dev(), found.ino()) => {}
        _ => return refused(&"it was replaced while it was read"),
    }
    let owner = found.uid();
    let (me, of_root) = (nix::unistd::geteuid().as_raw(), std::fs::metadata(&root).map(|root| root.uid()));
    let is_known = owner == me || owner == 0 || (me == 0 && of_root.is_ok_and(|root| root == owner));
    if !is_known {
        return refused(&format!("it belongs to another user (uid {owner})"));
    }
    if found.len() > READ_LIMIT {
        return refused(&format!("it has {} bytes; at most {READ_LIMIT} are read", found.len()));
    }
    let mut bytes = Vec::new();
    if let Err(error) = file.take(READ_LIMIT).read_to_end(&mut bytes) {
        return refused(&error);
    }
    let text = String::from_utf8_lossy(&bytes);
    FileContent::Text(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned())
}

/// Puts the prompt into the options, which have their tools already.
pub(crate) fn install(
    options: &mut SessionOptions,
    request: &OpenRequest,
    files: Vec<WorkspaceFile>,
    shares_memory: bool,
) {
    let inputs = inputs_of(options, request, files, shares_memory);
    // Sub-agents have what is in their prompts.
    let of_agents =
        PersonaInputs { mode: PromptMode::Minimal, audience: Audience::SubAgent, ..inputs.clone() };
    let of_agents: Vec<&'static str> = sections(&of_agents).into_iter().map(|section| section.id).collect();
    let mut all = sections(&inputs).into_iter();
    let identity = all.next().map(|section| section.text).unwrap_or_default();
    options.system = Some(quipu::system_base(&identity, &request.append_system_prompt));
    let (stable, now): (Vec<_>, Vec<_>) = all.partition(|section| section.stability == Stability::Stable);
    options.context_sources.insert(0, Arc::new(PersonaSource::new(PERSONA, stable, of_agents.clone())));
    options.context_sources.push(Arc::new(PersonaSource::new(PERSONA_NOW, now, of_agents)));
}

/// What the prompt is made of. `shares_memory`: what is remembered of the owner may be known where several people can speak; of conversations
/// that is the main one of an agent alone.
fn inputs_of(
    options: &SessionOptions,
    request: &OpenRequest,
    files: Vec<WorkspaceFile>,
    shares_memory: bool,
) -> PersonaInputs {
    let is_main = request.conversation.as_ref().is_some_and(|place| place.is_main);
    let (mode, audience) = match request {
        OpenRequest { is_unattended: true, .. } => (PromptMode::Minimal, Audience::Job),
        OpenRequest { is_shared: true, .. } if !(is_main && shares_memory) => {
            (PromptMode::Full, Audience::Group)
        }
        OpenRequest { .. } => (PromptMode::Full, Audience::Owner),
    };
    let tools: Vec<ToolLine> = options
        .tools
        .iter()
        .map(|tool| ToolLine {
            name: tool.spec().name.clone(),
            summary: first_sentence(&tool.spec().description),
        })
        .collect();
    let has_memory = tools.iter().any(|tool| tool.name == "memory_search");
    let zone = jiff::tz::TimeZone::system();
    PersonaInputs {
        mode,
        audience,
        program: "Quipu".to_owned(),
        tools,
        memory: if has_memory { MemoryGuide::Cited } else { MemoryGuide::Absent },
        workspace: Some(WorkspaceNotes { path: options.cwd.display().to_string(), notes: Vec::new() }),
        time_zone: zone.iana_name().unwrap_or_default().to_owned(),
        files,
        runtime: vec![
            ("os".to_owned(), std::env::consts::OS.to_owned()),
            ("arch".to_owned(), std::env::consts::ARCH.to_owned()),
        ],
        ..PersonaInputs::default()
    }
}

/// The first sentence of a description.
fn first_sentence(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    line.split_once(". ").map_or_else(|| line.to_owned(), |(first, _)| format!("{first}."))
}

/// Sections that are the same for as long as the session lives: files that change count in the next one.
struct PersonaSource {
    name: &'static str,
    sections: Vec<Section>,
    /// The ids of those that sub-agents have.
    of_agents: Vec<&'static str>,
}

impl PersonaSource {
    fn new(name: &'static str, sections: Vec<PersonaSection>, of_agents: Vec<&'static str>) -> Self {
        let section = |section: PersonaSection| Section {
            id: section.id.to_owned(),
            text: section.text,
            // The words of a file are those of the project.
            trust: if section.file.is_some() { Trust::Project } else { Trust::Owner },
        };
        Self { name, sections: sections.into_iter().map(section).collect(), of_agents }
    }
}

impl ContextSource for PersonaSource {
    fn name(&self) -> &str {
        self.name
    }

    fn limit(&self) -> usize {
        SECTIONS_LIMIT
    }

    fn changes(&self) -> bool {
        self.name == PERSONA_NOW
    }

    fn is_for_sub_agents(&self, section: &str) -> bool {
        self.of_agents.contains(&section)
    }

    fn context<'a>(&'a self, _: &'a ContextAsk) -> BoxFuture<'a, Result<Context, SourceError>> {
        let sections = self.sections.clone();
        Box::pin(std::future::ready(Ok(Context { sections, keep_recent: None })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConversationPlace;

    fn refused(found: &FileContent) -> &str {
        match found {
            FileContent::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_that_leave_the_workspace_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().join("w");
        std::fs::create_dir_all(workspace.join("inner")).unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        std::fs::write(workspace.join("inner/soul"), "\u{feff}calm").unwrap();
        let link = std::os::unix::fs::symlink::<&str, PathBuf>;
        link("../secret", workspace.join("AGENTS.md")).unwrap();
        link("inner/soul", workspace.join("SOUL.md")).unwrap();
        link("nowhere", workspace.join("USER.md")).unwrap();
        let read = |name: &str| read_file(&workspace, &workspace.join(name));
        assert_eq!(refused(&read("AGENTS.md")), "it is a link out of the workspace");
        assert_eq!(read("SOUL.md"), FileContent::Text("calm".into()));
        assert_eq!((read("USER.md"), read("TOOLS.md")), (FileContent::Missing, FileContent::Missing));
        // Neither by a link above.
        link("w/inner", dir.path().join("other")).unwrap();
        assert_eq!(read_file(&dir.path().join("other"), &dir.path().join("other/soul")), read("SOUL.md"));
    }

    #[test]
    fn files_that_are_too_large_or_no_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::File::create(at("AGENTS.md")).unwrap().set_len(READ_LIMIT + 1).unwrap();
        std::fs::create_dir(at("SOUL.md")).unwrap();
        nix::unistd::mkfifo(&at("USER.md"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(at("TOOLS.md"), [0xff, b'a']).unwrap();
        assert!(refused(&read_file(dir.path(), &at("AGENTS.md"))).contains("at most 2097152 are read"));
        for name in ["SOUL.md", "USER.md"] {
            assert!(refused(&read_file(dir.path(), &at(name))).contains("regular file"), "{name}");
        }
        assert_eq!(read_file(dir.path(), &at("TOOLS.md")), FileContent::Text("\u{fffd}a".into()));
    }

    #[test]
    fn request_decides_mode_and_files() {
        let script = Arc::new(quipu::Script::new(Vec::new()));
        let options = SessionOptions::new("/w", Arc::default(), script);
        let of = |request: &OpenRequest, shares_memory: bool| {
            let content = FileContent::Text("x".into());
            let all = WorkspaceName::ALL.into_iter();
            let all = all.map(|name| WorkspaceFile { name, path: "/w".into(), content: content.clone() });
            let inputs = inputs_of(&options, request, all.collect(), shares_memory);
            let sections = sections(&inputs);
            let files = sections.iter().filter_map(|section| section.file.as_ref());
            (inputs.mode, files.map(|file| file.name.file()).collect::<Vec<_>>())
        };
        let files = |request: &OpenRequest| of(request, false);
        let few = ["AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md"];
        let (mode, found) = files(&OpenRequest::default());
        assert_eq!((mode, found.len()), (PromptMode::Full, 8));
        let (mode, found) = files(&OpenRequest { is_shared: true, ..OpenRequest::default() });
        assert!(mode == PromptMode::Full && !found.contains(&"MEMORY.md") && found.len() == 7);
        let place =
            |is_main| ConversationPlace { agent: "main".into(), name: "agent:main:x".into(), is_main };
        let conversation = |is_main| OpenRequest {
            is_shared: true,
            conversation: Some(place(is_main)),
            ..OpenRequest::default()
        };
        assert_eq!(of(&conversation(true), true).1.len(), 8);
        assert_eq!(of(&conversation(true), false).1.len(), 7, "not unless the settings say so");
        assert_eq!(of(&conversation(false), true).1.len(), 7, "a group");
        let job = OpenRequest { is_unattended: true, is_shared: true, ..OpenRequest::default() };
        assert_eq!(files(&job), (PromptMode::Minimal, few.to_vec()));
    }

    #[test]
    fn summary_of_a_tool_is_its_first_sentence() {
        let sentences = ["Reads a file. More.", "Reads a file\nand more.", "Runs e.g. ls", ""];
        assert_eq!(sentences.map(first_sentence), ["Reads a file.", "Reads a file", "Runs e.g.", ""]);
    }
}
