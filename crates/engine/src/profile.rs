//! Profiles: what a session is without that reads the answers of its model in its own way.

use quipu_protocol::{AssistantMessage, SessionProfile};
use quipu_transcript::{SHELL_TOOL, shell_answer};

use crate::engine::SessionOptions;
use crate::error::OpenError;
use crate::resume::Past;
use crate::travel::{HistorySettings, TravelSettings};

/// The system prompt of a session with this profile, without the project's rules.
pub fn profile_prompt(profile: SessionProfile) -> &'static str {
    match profile {
        SessionProfile::Shell => include_str!("prompts/shell.md"),
    }
}

/// What an answer says to a person that ends a run.
pub(crate) fn last_words(profile: Option<SessionProfile>, answer: &AssistantMessage) -> String {
    match profile {
        None => answer.text(),
        Some(SessionProfile::Shell) => shell_answer(answer).unwrap_or_default(),
    }
}

/// The profile of a session: that with which it began.
///
/// # Errors
/// `OtherProfile`; `NoShell`.
pub(crate) fn profile_of(
    options: &SessionOptions,
    past: Option<&Past>,
) -> Result<Option<SessionProfile>, OpenError> {
    let profile = match past {
        None => options.profile,
        Some(past) if options.profile.is_none_or(|wanted| past.epoch.profile == Some(wanted)) => {
            past.epoch.profile
        }
        Some(past) => {
            let word = |profile: Option<SessionProfile>| profile.map(SessionProfile::word);
            return Err(OpenError::OtherProfile {
                wanted: word(options.profile).unwrap_or_default(),
                began_with: word(past.epoch.profile),
            });
        }
    };
    let has_shell = || options.tools.iter().any(|tool| tool.spec().name == SHELL_TOOL);
    match profile {
        Some(SessionProfile::Shell) if !has_shell() => Err(OpenError::NoShell),
        profile => Ok(profile),
    }
}

impl SessionOptions {
    /// Takes away what a session with this profile cannot use.
    pub(crate) fn take_profile(&mut self, profile: Option<SessionProfile>) {
        self.profile = profile;
        match profile {
            None => {}
            Some(SessionProfile::Shell) => {
                self.keep_only_shell();
                self.tool_sources.clear();
                self.agents = None;
                self.planning.todo = false;
                (self.history, self.travel) = (HistorySettings::default(), TravelSettings::default());
                // What is left out could not be read again.
                self.prune.enabled = false;
            }
        }
    }

    /// No tool but the one that runs the commands.
    pub(crate) fn keep_only_shell(&mut self) {
        self.tools.retain(|tool| tool.spec().name == SHELL_TOOL);
    }
}
