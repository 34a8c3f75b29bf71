//! An answer that has to be JSON of a form.

use serde_json::Value;

use crate::schema::Schema;

/// A longer schema is refused.
const SCHEMA_BYTES: usize = 256 << 10;
/// A longer answer does not fit.
const ANSWER_BYTES: usize = 4 << 20;
/// What is wrong with an answer, at most.
const COMPLAINTS: usize = 20;

/// A JSON Schema for an answer.
pub struct OutputSchema {
    schema: Schema,
    value: Value,
}

impl std::fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputSchema").field("value", &self.value).finish_non_exhaustive()
    }
}

/// Why a text is no schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputSchemaError {
    /// It is too long.
    #[error("it is longer than 256 KiB")]
    Length,
    /// It is not JSON.
    #[error("it is not JSON: {0}")]
    Json(String),
    /// It is not an object.
    #[error("it is not a JSON object")]
    Object,
    /// It says something that no schema says.
    #[error("it is no JSON Schema: {0}")]
    Schema(String),
}

/// Why an answer does not fit. The text is for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// It is too long.
    #[error("it is longer than 4 MiB")]
    Length,
    /// It is not JSON.
    #[error("it is not JSON: {0}")]
    Json(String),
    /// It is JSON of another form.
    #[error("{}", .0.join("; "))]
    Form(Vec<String>),
}

impl OutputSchema {
    /// Reads a schema.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, OutputSchemaError> {
        if text.len() > SCHEMA_BYTES {
            return Err(OutputSchemaError::Length);
        }
        let value: Value = serde_json::from_str(text.trim_start_matches('\u{feff}'))
            .map_err(|error| OutputSchemaError::Json(error.to_string()))?;
        if !value.is_object() {
            return Err(OutputSchemaError::Object);
        }
        let schema = Schema::new(value.clone()).map_err(OutputSchemaError::Schema)?;
        Ok(Self { schema, value })
    }

    /// The schema.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The JSON of an answer, which may stand in a fenced block of Markdown that is all of the answer.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check<'a>(&self, answer: &'a str) -> Result<(&'a str, Value), AnswerError> {
        if answer.len() > ANSWER_BYTES {
            return Err(AnswerError::Length);
        }
        let text = unfenced(answer.trim());
        let value: Value =
            serde_json::from_str(text).map_err(|error| AnswerError::Json(error.to_string()))?;
        let complaints = self.schema.complaints(&value, COMPLAINTS);
        if complaints.is_empty() {
            return Ok((text, value));
        }
        let line = |(path, message): &(String, String)| {
            format!("{}: {message}", if path.is_empty() { "root" } else { path })
        };
        Err(AnswerError::Form(complaints.iter().map(line).collect()))
    }
}

fn unfenced(text: &str) -> &str {
    let inner = || {
        let (first, rest) = text.strip_prefix("```")?.split_once('\n')?;
        let is_tag = matches!(first.trim(), "" | "json" | "JSON");
        rest.strip_suffix("```").filter(|_| is_tag)
    };
    inner().unwrap_or(text).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged_by_their_schema() {
        let schema = OutputSchema::parse(
            r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}"#,
        )
        .unwrap();
        assert_eq!(schema.check(" {\"n\": 1}\n").unwrap().0, "{\"n\": 1}");
        assert_eq!(schema.check("```json\n{\"n\":1}\n```").unwrap().0, "{\"n\":1}");
        assert!(matches!(schema.check("Here: {\"n\":1}"), Err(AnswerError::Json(_))));
        let Err(AnswerError::Form(wrong)) = schema.check("{\"n\":\"x\",\"m\":2}") else { panic!("it fits") };
        assert!(wrong.iter().any(|line| line.starts_with("n: ")), "{wrong:?}");
        assert!(matches!(schema.check(&"x".repeat(5 << 20)), Err(AnswerError::Length)));
        assert!(matches!(OutputSchema::parse("[]"), Err(OutputSchemaError::Object)));
        assert!(matches!(OutputSchema::parse("{"), Err(OutputSchemaError::Json(_))));
        assert!(matches!(OutputSchema::parse(r#"{"type":"thing"}"#), Err(OutputSchemaError::Schema(_))));
        assert!(matches!(OutputSchema::parse(&" ".repeat(300 << 10)), Err(OutputSchemaError::Length)));
    }
}
