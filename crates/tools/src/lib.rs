//! The Tool trait and the built-in tools: read, write, edit, bash, and apply_patch in the place of write and edit; grep, find
//! and ls for who wants them.
//!
//! Over `quipu-workspace`, which does the guarded IO. A tool knows its arguments and its context; it must not
//! know sessions, models, stores or how its result is drawn.

mod background;
mod background_tool;
mod bash;
mod closed;
mod edit;
mod file_call;
mod function;
mod image_files;
mod images;
mod invisible;
mod output_schema;
mod patch;
mod pdf;
mod read;
mod ready;
mod schema;
mod search;
mod tool;
mod truncate;
mod validate;
mod write;

use std::sync::{Arc, LazyLock};

use quipu_protocol::{Json, ToolSpec};
use quipu_workspace::ProcessRegistry;

pub use background::{
    BackgroundCommands, BackgroundError, BackgroundEvent, BackgroundObserver, BackgroundStatus,
    MOST_BACKGROUND, UnreadText,
};
pub use background_tool::BackgroundTool;
pub use bash::Bash;
pub use edit::{Edit, changed_lines};
pub use function::FunctionTool;
pub use image_files::{ImageFileError, load_images, named_files};
pub use images::image_blocks;
pub use invisible::{is_invisible, quoted, stripped};
pub use output_schema::{AnswerError, OutputSchema, OutputSchemaError};
pub use patch::ApplyPatch;
pub use quipu_protocol::Touches;
pub use read::Read;
pub use search::{Find, Glob, GlobError, Grep, Ls};
pub use tool::*;
pub use truncate::{MAX_BYTES, MAX_LINES, Truncation, TruncationLimit};
pub use validate::{ArgumentsError, validate};
pub use write::Write;

/// The built-in tools, in the order in which models are shown them: read, bash, edit, write.
///
/// What bash leaves running in the background dies when the last of these tools is dropped; see
/// [`builtin_with`] to decide that yourself.
pub fn builtin() -> Vec<Arc<dyn Tool>> {
    builtin_with(Arc::default())
}

/// [`builtin`], for a session whose commands are confined: the model is told so.
pub fn builtin_confined() -> Vec<Arc<dyn Tool>> {
    around(Bash::confined(Arc::default()))
}

/// [`builtin_confined`], for a session whose commands run in namespaces: the model is told that, and how to ask for more.
pub fn builtin_isolated() -> Vec<Arc<dyn Tool>> {
    around(Bash::isolated(Arc::default()))
}

/// [`builtin_confined`], for a session whose commands run in a container: what the model reads of them says so.
pub fn builtin_contained() -> Vec<Arc<dyn Tool>> {
    around(Bash::contained(Arc::default()))
}

/// What confines the commands of the built-in tools, which models are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Confinement {
    /// Nothing: [`builtin`].
    #[default]
    None,
    /// The file system: [`builtin_confined`].
    Files,
    /// Namespaces: [`builtin_isolated`].
    Namespaces,
    /// A container: [`builtin_contained`].
    Container,
}

/// The built-in tools with background commands: `bash` takes `run_in_background` and `yield`, and `background` stands behind it. They
/// need [`ToolContext::background`].
pub fn builtin_with_background(confinement: Confinement) -> Vec<Arc<dyn Tool>> {
    let registry = Arc::default();
    let bash = match confinement {
        Confinement::None => Bash::new(registry),
        Confinement::Files => Bash::confined(registry),
        Confinement::Namespaces => Bash::isolated(registry),
        Confinement::Container => Bash::contained(registry),
    };
    let mut tools = around(bash.with_background());
    tools.insert(2, BACKGROUND.clone());
    tools
}

/// [`builtin`], with background processes owned by `registry`: they die when it is told so or dropped.
pub fn builtin_with(registry: Arc<ProcessRegistry>) -> Vec<Arc<dyn Tool>> {
    around(Bash::new(registry))
}

// These remember nothing: all sessions of a process have the same.
static READ: LazyLock<Arc<Read>> = LazyLock::new(Arc::default);
static EDIT: LazyLock<Arc<Edit>> = LazyLock::new(Arc::default);
static WRITE: LazyLock<Arc<Write>> = LazyLock::new(Arc::default);
static BACKGROUND: LazyLock<Arc<BackgroundTool>> = LazyLock::new(Arc::default);

/// The built-in tools with this one for commands.
fn around(bash: Bash) -> Vec<Arc<dyn Tool>> {
    vec![READ.clone(), Arc::new(bash), EDIT.clone(), WRITE.clone()]
}

fn spec(name: &str, description: &str, parameters: &serde_json::Value) -> ToolSpec {
    ToolSpec { name: name.into(), description: description.into(), parameters: Json::from(parameters) }
}

/// Arguments in a tool's own type. They are valid by then, so a failure is a bug of the caller, told in text.
fn arguments<T: serde::de::DeserializeOwned>(args: &Json) -> Result<T, String> {
    serde_json::from_value(args.value()).map_err(|error| format!("Invalid arguments: {error}"))
}
