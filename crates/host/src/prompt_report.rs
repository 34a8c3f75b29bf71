//! How large the parts of a system prompt are, and where its cache boundary is.

use quipu::{Engine, OpenError, PromptPart, PromptPartKind, RulesSource};
use quipu_protocol::{NodeId, Trust};

use crate::persona::{PERSONA, PERSONA_NOW};
use crate::resources::SkillsSource;

/// Sizes of what stands before the conversation in the requests of a session. Characters are Unicode scalar values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptReport {
    /// Bytes of the system prompt.
    pub bytes: usize,
    /// Characters of it.
    pub characters: usize,
    /// Bytes of it before the cache boundary: what stands before it is the same in the next session of the directory, as long as tools, settings and
    /// files are.
    pub boundary: usize,
    /// Characters before the cache boundary.
    pub boundary_characters: usize,
    /// The parts of the system prompt, in their order.
    pub sections: Vec<SectionSize>,
    /// The files among them.
    pub files: Vec<FileSize>,
    /// The skills that they list.
    pub skills: Vec<SkillSize>,
    /// The declarations of tools, which stand beside the system prompt.
    pub tools: Vec<ToolSize>,
}

/// A part of a system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionSize {
    /// The source; `None` for what the program itself says.
    pub source: Option<String>,
    /// What it is called.
    pub id: String,
    /// Whose words it holds; `None` for the program's.
    pub trust: Option<Trust>,
    /// The byte at which it begins.
    pub start: usize,
    /// Characters.
    pub characters: usize,
}

/// A file in a system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSize {
    /// Its name, or its path.
    pub name: String,
    /// Characters that it had; `None` where that was not recorded.
    pub raw: Option<usize>,
    /// Characters of it that are there, with the marks of what was cut.
    pub injected: usize,
}

/// A skill in a system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillSize {
    /// Its name.
    pub name: String,
    /// Characters of its line.
    pub characters: usize,
}

/// The declaration of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSize {
    /// Its name.
    pub name: String,
    /// Characters of its description.
    pub description: usize,
    /// Characters of the schema of its arguments.
    pub schema: usize,
}

/// Measures the system prompt of the session that ends at `head`, as it is stored.
///
/// # Errors
/// What the store says.
pub async fn prompt_report(engine: &Engine, head: NodeId) -> Result<PromptReport, OpenError> {
    let prompt = engine.prompt_parts(head).await?;
    let boundary = boundary_of(&prompt.parts);
    let mut report = PromptReport {
        bytes: prompt.system.len(),
        characters: characters(&prompt.system),
        boundary,
        boundary_characters: characters(prompt.system.get(..boundary).unwrap_or_default()),
        sections: Vec::new(),
        files: Vec::new(),
        skills: Vec::new(),
        tools: Vec::new(),
    };
    for part in &prompt.parts {
        report.add(part);
    }
    report.tools.extend(prompt.tools.iter().map(|tool| ToolSize {
        name: tool.name.clone(),
        description: characters(&tool.description),
        schema: characters(tool.parameters.get()),
    }));
    Ok(report)
}

impl PromptReport {
    fn add(&mut self, part: &PromptPart) {
        let PromptPart { kind, start, text } = part;
        let own = |id: &str| (None, id.to_owned(), None);
        let (source, id, trust) = match kind {
            PromptPartKind::Identity => own("identity text"),
            PromptPartKind::Beginning => own("beginning"),
            PromptPartKind::End => own("end"),
            PromptPartKind::Section { source, id, trust } => (Some(source.clone()), id.clone(), Some(*trust)),
        };
        match source.as_deref() {
            Some(PERSONA | PERSONA_NOW) => {
                if let Some((raw, injected)) = quipu_persona::described_file(text) {
                    self.files.push(FileSize { name: id.clone(), raw: Some(raw), injected });
                } else if is_file_line(&id, text) {
                    self.files.push(FileSize { name: id.clone(), raw: None, injected: characters(text) });
                }
            }
            Some(RulesSource::NAME) => {
                let content = quipu::rules_content(text).unwrap_or(text);
                let injected = characters(content);
                let raw = (!quipu::are_rules_cut(content)).then_some(injected);
                self.files.push(FileSize { name: id.clone(), raw, injected });
            }
            Some(SkillsSource::NAME) => self.skills.extend(text.lines().filter_map(skill_of)),
            _ => {}
        }
        self.sections.push(SectionSize { source, id, trust, start: *start, characters: characters(text) });
    }
}

/// Behind the last part that is no section of what changes, and not the end of the prompt, which names the directory.
fn boundary_of(parts: &[PromptPart]) -> usize {
    let is_stable = |part: &&PromptPart| match &part.kind {
        PromptPartKind::Identity | PromptPartKind::Beginning => true,
        PromptPartKind::Section { source, .. } => source != PERSONA_NOW,
        PromptPartKind::End => false,
    };
    parts.iter().take_while(is_stable).last().map_or(0, |part| part.start + part.text.len())
}

/// Whether a section is the line in the place of a file.
fn is_file_line(id: &str, text: &str) -> bool {
    text.strip_prefix('[').is_some_and(|text| text.starts_with(id) && text.ends_with(']'))
}

/// A line of a list of skills.
fn skill_of(line: &str) -> Option<SkillSize> {
    let rest = line.strip_prefix("- ")?;
    let name = rest.split([':', ' ']).next().unwrap_or(rest).to_owned();
    Some(SkillSize { name, characters: characters(line) })
}

fn characters(text: &str) -> usize {
    text.chars().count()
}
