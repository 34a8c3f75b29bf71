//! Modes and options of a session, as clients set them.

use std::sync::Arc;

use quipu::{PermissionMode, Session};
use quipu_host::SavedPermissions;
use quipu_protocol::{Model, Setting, Snapshot, Thinking, level_name, levels, parse_level};
use serde_json::{Value, json};

use crate::wire::WireError;

/// The mode that only reads.
const PLAN: &str = "plan";
const MODE: &str = "mode";
const MODEL: &str = "model";
const THINKING: &str = "thinking";

/// Modes by their names, what they are called and what they do.
const MODES: [(&str, &str, &str); 4] = [
    ("ask", "Ask", "Asks before every command and every change"),
    ("workspace", "Workspace", "Works freely in the workspace, with commands confined to it"),
    (PLAN, "Plan", "Only reads, and hands in a plan"),
    ("full", "Full access", "Asks nothing and confines nothing"),
];

/// What a session is set to.
pub(crate) struct OptionState<'a> {
    pub(crate) session: &'a Session,
    pub(crate) permissions: &'a SavedPermissions,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) models: &'a [Arc<Model>],
}

/// The mode that a session is in.
pub(crate) fn mode_of(session: &Session, permissions: &SavedPermissions) -> &'static str {
    if session.is_planning() { PLAN } else { permissions.mode().word() }
}

fn name_of(model: &Model) -> String {
    format!("{}/{}", model.provider, model.id)
}

impl OptionState<'_> {
    /// `modes` of an answer.
    pub(crate) fn modes(&self) -> Value {
        let mode = |(id, name, description): (&str, &str, &str)| json!({ "id": id, "name": name, "description": description });
        json!({
            "currentModeId": mode_of(self.session, self.permissions),
            "availableModes": MODES.map(mode),
        })
    }

    /// `configOptions` of an answer.
    pub(crate) fn options(&self) -> Value {
        let value = |(id, name, description): (&str, &str, &str)| json!({ "value": id, "name": name, "description": description });
        let current = &self.snapshot.model;
        let mut models: Vec<&Model> = self.models.iter().map(|model| &**model).collect();
        if models.iter().all(|model| name_of(model) != name_of(current)) {
            models.insert(0, current);
        }
        let model = |model: &&Model| json!({ "value": name_of(model), "name": shown_name(model), "description": name_of(model) });
        let level = |level: &Thinking| json!({ "value": level_name(*level), "name": level_name(*level) });
        let select = |id: &str, name: &str, category: &str, current: &str, options: Vec<Value>| {
            json!({
                "id": id, "name": name, "category": category, "type": "select", "currentValue": current,
                "options": options,
            })
        };
        let mode = mode_of(self.session, self.permissions);
        let thinking = level_name(self.snapshot.thinking);
        json!([
            select(MODE, "Mode", "mode", mode, MODES.map(value).into()),
            select(MODEL, "Model", "model", &name_of(current), models.iter().map(model).collect()),
            select(
                THINKING,
                "Thinking",
                "thought_level",
                thinking,
                levels(current).iter().map(level).collect()
            ),
        ])
    }
}

fn shown_name(model: &Model) -> &str {
    if model.name.is_empty() { &model.id } else { &model.name }
}

/// Puts a session in a mode. The mode is for this session alone.
///
/// # Errors
/// Where there is no such mode, or the session cannot have it.
pub(crate) async fn set_mode(
    session: &Session,
    permissions: &SavedPermissions,
    mode: &str,
) -> Result<(), WireError> {
    let set = async |setting: Setting| {
        let refused = |error: quipu::Refusal| WireError::params(format!("the mode cannot be set: {error}"));
        session.send(quipu_protocol::Command::Set { setting }).await.map(drop).map_err(refused)
    };
    if mode == PLAN {
        return set(Setting::Plan { on: true }).await;
    }
    let wanted: PermissionMode = quipu_host::mode_named(mode).ok_or_else(|| {
        let known = MODES.map(|(id, ..)| id).join(", ");
        WireError::params(format!("there is no mode `{mode}`; there are {known}"))
    })?;
    permissions.set_here(wanted).map_err(|failure| WireError::params(failure.message))?;
    if session.is_planning() {
        set(Setting::Plan { on: false }).await?;
    }
    set(Setting::Permissions).await
}

/// Sets an option.
///
/// # Errors
/// Where there is no such option or value, or the session cannot have it.
pub(crate) async fn set_option(
    session: &Session,
    permissions: &SavedPermissions,
    option: &str,
    value: &Value,
) -> Result<(), WireError> {
    let Some(value) = value.as_str() else {
        return Err(WireError::params(format!("the value of `{option}` must be a text")));
    };
    let setting = match option {
        MODE => return set_mode(session, permissions, value).await,
        MODEL => {
            let (provider, id) = value.split_once('/').ok_or_else(|| {
                WireError::params(format!("a model is named PROVIDER/MODEL, not `{value}`"))
            })?;
            Setting::Model { provider: provider.to_owned(), id: id.to_owned() }
        }
        THINKING => {
            let level = parse_level(value)
                .ok_or_else(|| WireError::params(format!("there is no thinking level `{value}`")))?;
            Setting::Thinking { level }
        }
        _ => {
            return Err(WireError::params(format!(
                "there is no option `{option}`; there are {MODE}, {MODEL}, {THINKING}"
            )));
        }
    };
    let refused =
        |error: quipu::Refusal| WireError::params(format!("`{option}` cannot be set to `{value}`: {error}"));
    session.send(quipu_protocol::Command::Set { setting }).await.map(drop).map_err(refused)
}
