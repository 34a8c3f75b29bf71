//! What may be answered to a question, and the keys that answer it.

use quipu_protocol::{Answer, Ask, AskKind, Json, Scope};

/// Why what was written is no answer.
#[derive(Debug, thiserror::Error)]
pub enum FormError {
    /// It is other JSON.
    #[error("The form must be a JSON object")]
    NotAnObject,
    /// It is no JSON.
    #[error("The form is no JSON: {0}")]
    NotJson(#[source] serde_json::Error),
}

/// One of the answers that a question takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// A tool call runs.
    Allow(Scope),
    /// It does not; a reason may be written.
    Deny,
    /// Accept.
    Yes,
    /// Decline.
    No,
    /// One of several: its place, its id, its label.
    Option(usize, String, String),
    /// Something is written.
    Write,
    /// No answer is given.
    Cancel,
}

impl Choice {
    /// Those of permission, all of them.
    pub const PERMISSION: [Self; 7] = [
        Self::Allow(Scope::Once),
        Self::Allow(Scope::Session),
        Self::Allow(Scope::Always),
        Self::Allow(Scope::SessionRule),
        Self::Allow(Scope::ProjectRule),
        Self::Allow(Scope::AlwaysRule),
        Self::Deny,
    ];

    /// What a question takes, in the order in which it is shown.
    #[must_use]
    pub fn of(ask: &Ask) -> Vec<Self> {
        match &ask.kind {
            AskKind::Permission(permission) => {
                let scopes = permission.scopes.iter().map(|scope| Self::Allow(*scope));
                scopes.chain([Self::Deny]).collect()
            }
            AskKind::Confirm { .. } | AskKind::OpenUrl { .. } => vec![Self::Yes, Self::No],
            AskKind::Choose { options, .. } => {
                let options = options.iter().enumerate();
                let options =
                    options.map(|(at, option)| Self::Option(at, option.id.clone(), option.label.clone()));
                options.chain([Self::Cancel]).collect()
            }
            AskKind::Text { .. } | AskKind::Edit { .. } | AskKind::Form { .. } => {
                vec![Self::Write, Self::Cancel]
            }
        }
    }

    /// The key that chooses it; none of an option behind the ninth.
    #[must_use]
    pub fn letter(&self) -> Option<char> {
        match self {
            Self::Allow(Scope::Once) | Self::Yes => Some('y'),
            Self::Allow(Scope::Session) => Some('s'),
            Self::Allow(Scope::Always) => Some('a'),
            Self::Allow(Scope::SessionRule) => Some('r'),
            Self::Allow(Scope::ProjectRule) => Some('p'),
            Self::Allow(Scope::AlwaysRule) => Some('e'),
            Self::Deny | Self::No => Some('n'),
            Self::Option(at, ..) => u32::try_from(at + 1).ok().and_then(|at| char::from_digit(at, 10)),
            Self::Write => Some('w'),
            Self::Cancel => Some('c'),
        }
    }

    /// What it means, in a word.
    #[must_use]
    pub fn word(&self) -> &str {
        match self {
            Self::Allow(Scope::Once) => "once",
            Self::Allow(Scope::Session) => "session",
            Self::Allow(Scope::Always) => "always",
            Self::Allow(Scope::SessionRule) => "rule for the session",
            Self::Allow(Scope::ProjectRule) => "rule here",
            Self::Allow(Scope::AlwaysRule) => "rule everywhere",
            Self::Deny | Self::No => "no",
            Self::Yes => "yes",
            Self::Option(_, _, label) => label,
            Self::Write => "write",
            Self::Cancel => "cancel",
        }
    }

    /// What it means.
    #[must_use]
    pub fn meaning(&self) -> &str {
        match self {
            Self::Allow(Scope::Once) => "this time",
            Self::Allow(Scope::Session) => "in this session",
            Self::Allow(Scope::Always) => "always in this directory",
            Self::Allow(Scope::SessionRule) => "what the rule allows, in this session",
            Self::Allow(Scope::ProjectRule) => "what the rule allows, always in this directory",
            Self::Allow(Scope::AlwaysRule) => "what the rule allows, always in every directory",
            Self::Deny | Self::No => "no",
            Self::Yes => "yes",
            Self::Option(_, _, label) => label,
            Self::Write => "write the answer",
            Self::Cancel => "give no answer",
        }
    }

    /// Whether something is to be written with it.
    #[must_use]
    pub fn is_written(&self) -> bool {
        matches!(self, Self::Deny | Self::Write)
    }

    /// Whether it agrees to what is asked, so that all of that has to be seen before.
    #[must_use]
    pub fn agrees(&self) -> bool {
        matches!(self, Self::Allow(_) | Self::Yes | Self::Option(..))
    }

    /// The answer, with what was written.
    ///
    /// # Errors
    /// What was written is no form.
    pub fn answer(&self, ask: &Ask, written: Option<String>) -> Result<Answer, FormError> {
        Ok(match self {
            Self::Allow(scope) => Answer::Allow { scope: *scope },
            Self::Deny => Answer::Deny { reason: written.filter(|reason| !reason.is_empty()) },
            Self::Yes => Answer::Confirm { yes: true },
            Self::No => Answer::Confirm { yes: false },
            Self::Option(_, id, _) => Answer::Choose { option: id.clone() },
            Self::Write => match &ask.kind {
                AskKind::Form { .. } => match Json::parse(&written.unwrap_or_default()) {
                    Ok(value) if value.get().starts_with('{') => Answer::Form { value },
                    Ok(_) => return Err(FormError::NotAnObject),
                    Err(error) => return Err(FormError::NotJson(error)),
                },
                _ => Answer::Text { text: written.unwrap_or_default() },
            },
            Self::Cancel => Answer::Cancel,
        })
    }

    /// What stands there when something is to be written.
    #[must_use]
    pub fn begins(&self, ask: &Ask) -> String {
        match (self, &ask.kind) {
            (Self::Write, AskKind::Edit { text, .. }) => text.clone(),
            (Self::Write, AskKind::Form { .. }) => "{}".into(),
            _ => String::new(),
        }
    }
}
