//! The tools of a session, of all that give some: checked, put into one order, of two with one name the first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use quipu_protocol::ToolSpec;
use quipu_seal::Sealer;
use quipu_tools::Tool;

use super::{SOURCE_TOOL_BYTES, SOURCE_TOOLS, SourceError};
use crate::shared_values::SharedValues;

/// Names of tools that went away, which the model is informed about.
const GONE: usize = 1_024;

/// The lists of declarations.
static SPECS: SharedValues<[ToolSpec]> = SharedValues::new();

/// The tools that a session has at a time.
#[derive(Clone, Default)]
pub(crate) struct ToolSet {
    tools: HashMap<String, Arc<dyn Tool>>,
    specs: Arc<[ToolSpec]>,
    /// The names of those of program's sources, by source.
    from: BTreeMap<String, Vec<String>>,
    /// Those that sources took away, with the source.
    gone: HashMap<String, String>,
    /// All of them in the order of the model, also where none is declared.
    all: Arc<[ToolSpec]>,
    /// Those that a filter removed, with the reason.
    removed: HashMap<String, String>,
}

/// The tools that come with a session.
#[derive(Clone)]
pub(crate) struct FixedTools {
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    /// Whether the model is told which tools there are.
    pub(crate) are_declared: bool,
}

/// A tool of a source.
#[derive(Clone)]
pub(super) struct GivenTool {
    pub(super) tool: Arc<dyn Tool>,
    /// Its declaration as the model has it, sealed.
    pub(super) spec: ToolSpec,
}

/// Whether a tool can have this name.
pub(crate) fn is_tool_name(name: &str) -> bool {
    let fits = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    !name.is_empty() && name.len() <= 64 && fits
}

/// What a source of the program gave, where it can be taken.
pub(super) fn checked(sealer: &Sealer, tools: Vec<Arc<dyn Tool>>) -> Result<Vec<GivenTool>, SourceError> {
    if tools.len() > SOURCE_TOOLS {
        let count = tools.len();
        return Err(SourceError::new(format!("it returned {count} tools; the limit is {SOURCE_TOOLS}")));
    }
    let mut given = Vec::with_capacity(tools.len());
    for tool in tools {
        let ToolSpec { name, description, parameters } = tool.spec();
        if !is_tool_name(name) {
            let name: String = sealer.seal(name).chars().take(80).collect();
            let rule = "a name must have 1 to 64 letters, digits, `_` and `-`";
            return Err(SourceError::new(format!("it returned a tool named {name:?}; {rule}")));
        }
        let bytes = name.len() + description.len() + parameters.get().len();
        if bytes > SOURCE_TOOL_BYTES {
            return Err(SourceError::new(format!(
                "the declaration of its tool {name} has {bytes} bytes; the limit is {SOURCE_TOOL_BYTES}"
            )));
        }
        let spec = ToolSpec {
            name: name.clone(),
            description: sealer.seal(description).into_owned(),
            parameters: sealer.seal_json(parameters),
        };
        given.push(GivenTool { tool, spec });
    }
    Ok(given)
}

/// The tools in the order of the names in `before`, where they are the same ones: another order alone is no reason for another
/// prefix.
pub(super) fn in_order<'a>(
    mut given: Vec<GivenTool>,
    before: impl ExactSizeIterator<Item = &'a str>,
) -> Vec<GivenTool> {
    if given.len() != before.len() {
        return given;
    }
    let places: HashMap<&str, usize> = before.enumerate().map(|(place, name)| (name, place)).collect();
    if given.iter().all(|one| places.contains_key(&*one.spec.name)) {
        given.sort_by_key(|one| places.get(&*one.spec.name).copied());
    }
    given
}

impl ToolSet {
    /// Tools that come with the session, and behind them those of sources: each with its name, `None` for ours. Also what
    /// collides, for people.
    pub(super) fn of<'a>(
        fixed: &FixedTools,
        sources: impl Iterator<Item = (Option<&'a str>, &'a [GivenTool])>,
    ) -> (Self, Vec<String>) {
        let mut set = Self::default();
        let (mut specs, mut collisions) = (Vec::new(), Vec::new());
        let mut owners: HashMap<String, Option<&str>> = HashMap::new();
        for tool in &fixed.tools {
            let spec = tool.spec().clone();
            owners.insert(spec.name.clone(), None);
            set.tools.insert(spec.name.clone(), tool.clone());
            specs.push(spec);
        }
        for (source, given) in sources {
            for GivenTool { tool, spec } in given {
                if let Some(first) = owners.get(&spec.name) {
                    let first =
                        first.map_or("the session itself".to_owned(), |name| format!("the source {name}"));
                    let second = source.map_or("Quipu".to_owned(), |name| format!("the source {name}"));
                    let name = &spec.name;
                    collisions.push(format!(
                        "The tool {name} of {second} is ignored: {first} has a tool with the same name."
                    ));
                    continue;
                }
                owners.insert(spec.name.clone(), source);
                if let Some(source) = source {
                    set.from.entry(source.to_owned()).or_default().push(spec.name.clone());
                }
                set.tools.insert(spec.name.clone(), tool.clone());
                specs.push(spec.clone());
            }
        }
        set.all = SPECS.shared(specs);
        set.specs = if fixed.are_declared { set.all.clone() } else { Arc::default() };
        (set, collisions)
    }

    /// All tools in the order of the model, with the source of the program.
    pub(super) fn unfiltered(&self) -> Vec<(ToolSpec, Option<String>)> {
        let source_of: HashMap<&str, &str> = self
            .from
            .iter()
            .flat_map(|(source, names)| names.iter().map(move |name| (&**name, &**source)))
            .collect();
        let owned = |spec: &ToolSpec| source_of.get(&*spec.name).map(|source| (*source).to_owned());
        self.all.iter().map(|spec| (spec.clone(), owned(spec))).collect()
    }

    /// Takes tools away for these reasons.
    pub(super) fn remove(&mut self, removed: HashMap<String, String>) {
        if removed.is_empty() {
            return;
        }
        self.tools.retain(|name, _| !removed.contains_key(name));
        let rest = |specs: &[ToolSpec]| {
            let rest = specs.iter().filter(|spec| !removed.contains_key(&spec.name)).cloned();
            SPECS.shared(rest.collect::<Vec<_>>())
        };
        (self.all, self.specs) = (rest(&self.all), rest(&self.specs));
        self.from.retain(|_, names| {
            names.retain(|name| !removed.contains_key(name));
            !names.is_empty()
        });
        self.removed = removed;
    }

    /// Remembers the tools of sources that were there before and are not any more.
    pub(super) fn after(
        mut self,
        from: &BTreeMap<String, Vec<String>>,
        gone: &HashMap<String, String>,
    ) -> Self {
        let before = from.iter().flat_map(|(source, names)| names.iter().map(move |name| (name, source)));
        for (name, source) in before.chain(gone) {
            if !self.tools.contains_key(name) && !self.removed.contains_key(name) && self.gone.len() < GONE {
                self.gone.entry(name.clone()).or_insert_with(|| source.clone());
            }
        }
        self
    }

    /// As it follows another set.
    pub(super) fn after_set(self, before: &Self) -> Self {
        self.after(&before.from, &before.gone)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.values()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    pub(crate) fn specs(&self) -> &Arc<[ToolSpec]> {
        &self.specs
    }

    /// The names of tools by the source of the program that gave them.
    pub(crate) fn from(&self) -> &BTreeMap<String, Vec<String>> {
        &self.from
    }

    /// What the model is answered that calls a tool that is not there.
    pub(crate) fn missing(&self, name: &str) -> String {
        if let Some(why) = self.removed.get(name) {
            return format!("The tool {name} is not offered here: {why}. Continue without it.");
        }
        match self.gone.get(name) {
            Some(source) => {
                format!(
                    "The tool {name} is no longer available: its source {source} removed it. Continue without it."
                )
            }
            None => format!("Tool {name} not found"),
        }
    }
}
