//! Commands that change settings.

use std::sync::PoisonError;

use quipu_host::settings::{SettingError, SettingsFile, set_setting};

use super::active::ActiveSession;
use super::settings::LiveSettings;
use super::state::{CommandOutcome, FrontState};

impl FrontState {
    /// Changes a setting of the session and of the user's file.
    pub(super) async fn change_settings(
        &self,
        active: &ActiveSession,
        change: impl FnOnce(&mut LiveSettings),
        name: &'static str,
        word: &'static str,
    ) -> CommandOutcome {
        let settings = {
            let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut settings);
            *settings
        };
        settings.apply(&active.session).await;
        if self.request.in_memory {
            // Nothing of such a session is kept.
            return Ok(None);
        }
        let home = self.home.clone();
        let keep = move || set_setting(&home, &SettingsFile::User, name, word);
        match tokio::task::spawn_blocking(keep).await {
            Ok(Ok(_)) => Ok(None),
            Ok(Err(error)) => Err(not_kept(name, &why(error)).into()),
            Err(error) => Err(not_kept(name, &error.to_string()).into()),
        }
    }
}

fn not_kept(name: &str, why: &str) -> String {
    format!("it holds for this session, but `{name}` could not be saved in settings.json: {why}")
}

fn why(error: SettingError) -> String {
    match error {
        SettingError::Unknown { name, .. } => format!("there is no setting `{name}`"),
        SettingError::Invalid(what) => what,
        SettingError::Refused { why, .. } => why.to_owned(),
        SettingError::Syntax { path, line } => {
            format!("{}: line {line}: the file is not valid JSON; correct it first", path.display())
        }
        SettingError::NotAnObject { path, name } => {
            format!("{}: `{name}` must be an object; correct it first", path.display())
        }
        SettingError::Unreadable { path, why } => format!("{} cannot be read: {why}", path.display()),
        SettingError::Failed(failure) => failure.message,
        SettingError::Io(error) => error.to_string(),
    }
}
