//! Hooks that use a directory of Quipu's own files which is not the usual one.

use std::path::Path;

use serde_json::Value;

use crate::configuration::{Configuration, ConfigurationContent, JsonValue, quoted};

/// How the command lines of hooks end.
const END: &str = " 2>/dev/null || true";
/// The line of a plugin that the directory is written behind.
const IMPORT: &str = "import { spawn } from \"node:child_process\";\n";

impl Configuration {
    /// The same with hooks that find Quipu's own files in this directory, whatever the environment of the agent is.
    #[must_use]
    pub fn with_home(mut self, home: &Path) -> Self {
        for file in &mut self.files {
            match &mut file.content {
                ConfigurationContent::Own(text) => *text = own(text, home),
                ConfigurationContent::Json(additions) => {
                    for addition in additions {
                        let (JsonValue::Element(value) | JsonValue::Member(value)) = &mut addition.value;
                        call_with(value, home);
                    }
                }
            }
        }
        self
    }
}

/// A file of commands in JSON, or a plugin.
fn own(text: &str, home: &Path) -> String {
    if let Ok(mut value) = serde_json::from_str::<Value>(text) {
        call_with(&mut value, home);
        return format!("{value:#}\n");
    }
    let setting = format!("process.env.QUIPU_HOME = {};\n", Value::from(home.to_string_lossy()));
    text.replacen(IMPORT, &format!("{IMPORT}{setting}"), 1)
}

fn call_with(value: &mut Value, home: &Path) {
    match value {
        Value::String(text) if text.ends_with(END) => {
            *text = format!("QUIPU_HOME={} {text}", quoted(&home.to_string_lossy()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| call_with(item, home)),
        Value::Object(members) => members.values_mut().for_each(|member| call_with(member, home)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
