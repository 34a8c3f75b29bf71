//! `image`: a model that sees images answers a question about image files, for a model that may see none.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use quipu_protocol::{Body, Content, Json, Message, StopReason, ToolSpec, Touches, UserMessage};
use quipu_providers::Provider;
use quipu_tools::{Invocation, Tool, ToolContext, ToolOutput, load_images, named_files};
use quipu_transcript::one_line;
use serde::Deserialize;

use crate::models::{Models, may_see, purpose_model};
use crate::runner::{Backend, CallRequest, Runner, RunnerError, RunnerPurpose};

/// The name of the tool.
pub const IMAGE_TOOL: &str = "image";
/// The purpose of its calls: its model is set in `purposeModels`.
pub const IMAGE_PURPOSE: &str = "image";

const SYSTEM: &str = include_str!("prompts/image.md");
/// Images of one call at most.
const MOST: usize = 8;
/// Bytes of a question at most.
const PROMPT: usize = 32 << 10;
/// Bytes of the answer that come back at most.
const ANSWER: usize = 32 << 10;

/// Whether a session has the tool `image`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImageQuestions {
    /// It has not.
    #[default]
    Off,
    /// It has: a model of the purpose [`IMAGE_PURPOSE`] answers, else that of the session.
    Answered,
}

/// Asks a model about images, for a session.
pub(crate) struct ImageTool {
    spec: ToolSpec,
    models: Option<Arc<dyn Models>>,
    /// What carries the requests of the session's own model; changes with the model.
    own: Mutex<Arc<dyn Provider>>,
    backend: OnceLock<Arc<dyn Backend>>,
}

#[derive(Deserialize)]
struct Args {
    #[serde(default)]
    prompt: String,
    path: Option<String>,
    #[serde(default)]
    paths: Vec<String>,
}

impl Args {
    fn files(self) -> (String, Vec<String>) {
        let named = self.path.into_iter().chain(self.paths).filter(|path| !path.trim().is_empty());
        (self.prompt, named.collect())
    }
}

impl ImageTool {
    pub(crate) fn new(models: Option<Arc<dyn Models>>, own: Arc<dyn Provider>) -> Self {
        let parameters = serde_json::json!({
            "type": "object",
            "properties": {
                "prompt": { "type": "string", "description": "What to find out" },
                "path": { "type": "string" },
                "paths": { "type": "array", "items": { "type": "string" }, "description": "Several, at most 8" },
            },
            "required": ["prompt"],
        });
        let description = "Ask a model that sees images about one image file or several (PNG, JPEG, GIF, WebP, BMP). It knows \
                           nothing but the prompt and the images."
            .to_owned();
        let spec = ToolSpec { name: IMAGE_TOOL.into(), description, parameters: Json::from(&parameters) };
        Self { spec, models, own: Mutex::new(own), backend: OnceLock::new() }
    }

    /// How it asks once its session is open.
    pub(crate) fn runs_through(&self, backend: Arc<dyn Backend>) {
        // Each session has its own tool.
        drop(self.backend.set(backend));
    }

    /// The session has another model, whose requests this carries.
    pub(crate) fn follows(&self, own: Arc<dyn Provider>) {
        *self.own.lock().unwrap_or_else(PoisonError::into_inner) = own;
    }

    /// The model that is to answer, by its provider's id and its own; `None` for the session's.
    async fn model(&self, cx: &ToolContext) -> Result<Option<(String, String)>, String> {
        let found = purpose_model(self.models.clone(), IMAGE_PURPOSE.to_owned()).await.map_err(|error| {
            let why = error.to_string();
            format!(
                "The model of `purposeModels.{IMAGE_PURPOSE}` cannot be used: {}.",
                why.trim_end_matches('.')
            )
        })?;
        let Some(found) = found else {
            return if cx.sees_images {
                Ok(None)
            } else {
                Err(format!(
                    "This session's model sees no images. The user can name one that does in `purposeModels.{IMAGE_PURPOSE}` of the settings."
                ))
            };
        };
        let (provider, id) = (found.model.provider.clone(), found.model.id.clone());
        if !found.model.sees_images() {
            return Err(format!(
                "{provider}/{id} (`purposeModels.{IMAGE_PURPOSE}`) is not known to see images."
            ));
        }
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !may_see(&*own, &*found.provider) {
            return Err(format!(
                "The images stay on this machine, as this session's model does: {provider}/{id} (`purposeModels.{IMAGE_PURPOSE}`) was not asked."
            ));
        }
        Ok(Some((provider, id)))
    }

    async fn ask(&self, call: Invocation, cx: &ToolContext) -> Result<ToolOutput, String> {
        let args: Args =
            call.args.read().map_err(|error| format!("The arguments cannot be read: {error}."))?;
        let (prompt, paths) = args.files();
        if prompt.trim().is_empty() {
            return Err("`prompt` is empty. Write what you want to know.".into());
        }
        if prompt.len() > PROMPT {
            return Err(format!("`prompt` has {} bytes; the limit is {PROMPT}.", prompt.len()));
        }
        match paths.len() {
            0 => return Err("No image is named: `path` is one, `paths` are several.".into()),
            count if count > MOST => {
                return Err(format!("{count} images are named; the limit is {MOST}. Ask several times."));
            }
            _ => {}
        }
        if let Some(address) = paths.iter().find(|path| is_address(path)) {
            return Err(format!(
                "{} is an address. Images are files: fetch it into one first.",
                one_line(address, 200)
            ));
        }
        let model = self.model(cx).await?;
        let images = load_images(&paths, cx).await.map_err(|error| error.to_string())?;
        let backend = self.backend.get().ok_or("The session is not open.")?;
        let mut content = vec![Content::text(prompt)];
        for (path, image) in paths.iter().zip(images) {
            content.push(Content::text(format!("[Image {}]", one_line(path, 200))));
            content.extend(image);
        }
        let message = UserMessage { content: Body::Blocks(content), timestamp: 0 };
        let purpose = RunnerPurpose::new(IMAGE_PURPOSE).map_err(|error| error.to_string())?;
        let request = CallRequest {
            system: SYSTEM.trim().to_owned(),
            messages: vec![Message::User(message)],
            ..CallRequest::new(purpose, "")
        };
        let runner = Runner::new(Some(backend.clone()), Some(cx.run.clone()));
        let (answer, cost) = tokio::select! {
            biased;
            // What is under way is aborted when nobody waits for it.
            () = cx.cancel.cancelled() => return Err("Operation aborted".into()),
            answer = runner.charged_call(request) => answer,
        };
        let answer = answer.map_err(|error| unanswered(&error))?;
        let by = (answer.message.provider.clone(), answer.message.model.clone());
        if model.as_ref().is_some_and(|model| *model != by) {
            return Err(format!("{}/{} answered, which does not see the images.", by.0, by.1));
        }
        let cut = answer.text.floor_char_boundary(ANSWER);
        let mut shown = answer.text[..cut].trim().to_owned();
        if shown.is_empty() {
            "The model gave no answer.".clone_into(&mut shown);
        }
        if cut < answer.text.len() || answer.message.stop_reason == StopReason::Length {
            shown.push_str("\n\n[The answer is cut.]");
        }
        let details = serde_json::json!({ "model": format!("{}/{}", by.0, by.1), "cost": cost });
        Ok(ToolOutput { details: Some(Json::from(&details)), ..ToolOutput::text(shown) })
    }
}

/// Whether it names something of a network.
fn is_address(path: &str) -> bool {
    let scheme = path.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| matches!(&*scheme, "http" | "https" | "ftp" | "data"))
}

fn unanswered(error: &RunnerError) -> String {
    match error {
        RunnerError::Aborted => "Operation aborted".into(),
        error => format!("No model was asked about the images, or it did not answer: {error}."),
    }
}

impl Tool for ImageTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &serde_json::Value, cx: &ToolContext) -> Touches {
        let files = Args::deserialize(args).map(|args| args.files().1).unwrap_or_default();
        Touches::Reads(named_files(&files[..files.len().min(MOST + 1)], cx))
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(async move { self.ask(call, cx).await.unwrap_or_else(ToolOutput::error) })
    }
}
