//! `--output-schema`: the last answer of a run is JSON of a form, and stdout holds nothing else.

use std::io::Read as _;
use std::path::Path;

use quipu_protocol::{Content, Json, Message, UserInput};
use quipu_tools::OutputSchema;

use crate::exit::{Exit, Failure};
use crate::print::{note, one_line};

/// How often a model is asked again for an answer that does not fit.
const RETRIES: u32 = 2;
/// Bytes of a file that are read.
const FILE: u64 = 1 << 20;
/// Bytes of what is wrong that a model is shown.
const SHOWN: usize = 4 << 10;

/// The form that the last answer must have, and that answer.
pub(crate) struct StructuredOutput {
    schema: OutputSchema,
    answer: Option<String>,
    retries: u32,
}

/// What is to be done when a run has ended.
pub(crate) enum AnswerVerdict {
    /// The answer fits: its text, and its value.
    Fits(String, serde_json::Value),
    /// The model is asked again with this.
    Again(UserInput),
}

impl StructuredOutput {
    /// Reads the schema, before any model is called.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let bad = |why: String| Failure::usage(format!("--output-schema {}: {why}", path.display()));
        let found = std::fs::metadata(path).map_err(|error| bad(error.to_string()))?;
        if !found.is_file() {
            return Err(bad("it is not a regular file".to_owned()));
        }
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(|error| bad(error.to_string()))?;
        file.take(FILE).read_to_string(&mut text).map_err(|error| bad(error.to_string()))?;
        let schema = OutputSchema::parse(&text).map_err(|error| bad(error.to_string()))?;
        Ok(Self { schema, answer: None, retries: 0 })
    }

    /// The schema itself.
    pub(crate) fn schema(&self) -> Json {
        Json::from(self.schema.value().clone())
    }

    /// The instruction to the model about the form.
    pub(crate) fn instruction(&self) -> String {
        format!(
            "Your last answer must be one JSON value that fits this JSON Schema, with no other text around it:\n{}",
            self.schema.value()
        )
    }

    /// Remembers the text of an answer; the last one counts.
    pub(crate) fn observe(&mut self, message: &Message) {
        if let Message::Assistant(answer) = message {
            let texts: Vec<&str> = answer.content.iter().filter_map(Content::as_text).collect();
            self.answer = Some(texts.concat());
        }
    }

    /// Judges the last answer.
    ///
    /// # Errors
    /// It does not fit, and the model was asked often enough.
    pub(crate) fn check(&mut self) -> Result<AnswerVerdict, Failure> {
        let answer = self.answer.take().unwrap_or_default();
        let error = match self.schema.check(&answer) {
            Ok((text, value)) => return Ok(AnswerVerdict::Fits(text.to_owned(), value)),
            Err(error) => error.to_string(),
        };
        if self.retries == RETRIES {
            return Err(Failure::new(
                Exit::Output,
                format!("the answer does not fit --output-schema: {}", one_line(&error, 300)),
            ));
        }
        self.retries += 1;
        note(format!("The answer does not fit --output-schema; asking again: {}", one_line(&error, 200)));
        let shown = &error[..error.floor_char_boundary(SHOWN)];
        let text = format!("Your answer does not fit: {shown}\n{}", self.instruction());
        Ok(AnswerVerdict::Again(UserInput::from(text.as_str())))
    }
}
