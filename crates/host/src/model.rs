//! Which model answers.

use std::sync::Arc;

use quipu::Provider;
use quipu_protocol::{Epoch, Model, ModelErrorKind, Thinking};
use quipu_providers::{Selection, Settings};

use crate::{Advice, Failure, FailureKind, Home, HostNotice, OpenRequest};

/// A model, its provider and its level of thinking.
pub(crate) type ModelChoice = (Arc<Model>, Arc<dyn Provider>, Thinking);

/// The model that a task asks for.
pub(crate) fn real_model(
    home: &Home,
    settings: &Settings,
    request: &OpenRequest,
    last: Option<&Epoch>,
) -> Result<ModelChoice, Failure> {
    let Selection { model, thinking, note: hint } = choose_model(settings, request, last)?;
    if let Some(hint) = hint {
        let advice = Some(with_another(None));
        home.observer().notice(HostNotice { is_warning: false, text: hint, advice });
    }
    let provider = settings.provider_for(&model, request.api_key.as_deref()).map_err(|error| {
        let kind = match error.kind {
            ModelErrorKind::InvalidRequest => FailureKind::Request,
            _ => FailureKind::Credential,
        };
        // A session that was begun elsewhere names a model of there.
        let other = last.filter(|_| request.model.is_none()).and_then(|_| settings.default_model());
        let failure = Failure::new(kind, error);
        match other {
            Some(other) => failure.advise(with_another(Some(&other))),
            None if kind == FailureKind::Request => failure.advise(Advice::ListModels),
            None => failure,
        }
    })?;
    let wanted = match (request.thinking, last) {
        (Some(level), _) => level,
        (None, Some(epoch)) => thinking.unwrap_or(epoch.thinking),
        (None, None) => thinking.unwrap_or(Thinking::Medium),
    };
    let thinking = quipu_providers::clamp_level(&model, wanted);
    Ok((model, provider, thinking))
}

fn choose_model(
    settings: &Settings,
    request: &OpenRequest,
    last: Option<&Epoch>,
) -> Result<Selection, Failure> {
    let provider = request.provider.as_deref();
    let found = match (&request.model, last) {
        (Some(pattern), _) => settings.find(provider, pattern),
        (None, Some(epoch)) if provider.is_none() && !epoch.model.is_empty() => {
            return settings.find_again(&epoch.provider, &epoch.model).map_err(|error| {
                Failure::request(format!(
                    "the session last used {}/{}, which is not available any more. {error}",
                    epoch.provider, epoch.model,
                ))
                .advise(with_another(settings.default_model().as_deref()))
            });
        }
        (None, _) => {
            let model = default_model(settings, provider).ok_or_else(|| no_model(settings, provider))?;
            Ok(Selection { model, thinking: None, note: None })
        }
    };
    found.map_err(|error| Failure::request(error).advise(Advice::ListModels))
}

/// How a session goes on whose model cannot be asked. Another one is never chosen for it: what was said may be meant for
/// this machine alone, and prices differ.
fn with_another(other: Option<&Model>) -> Advice {
    Advice::AnotherModel(other.map(|other| (other.provider.clone(), other.id.clone())))
}

/// The model that a task would be asked of.
pub fn model_of(
    settings: &Settings,
    request: &OpenRequest,
    last: Option<&Epoch>,
) -> Result<Arc<Model>, Failure> {
    choose_model(settings, request, last).map(|selection| selection.model)
}

fn no_model(settings: &Settings, provider: Option<&str>) -> Failure {
    match provider {
        Some(provider) if !settings.providers().contains(&provider) => {
            Failure::request(format!("there is no provider `{provider}`")).advise(Advice::ListProviders)
        }
        Some(provider) => {
            Failure::new(FailureKind::Credential, format!("no model of `{provider}` can be used"))
                .advise(Advice::SetKey(Some(provider.to_owned())))
        }
        None => {
            let offer = settings.local_offer().map(|offer| format!(" {offer}")).unwrap_or_default();
            let why = format!("no model can be used, because no credential is known.{offer}");
            Failure::new(FailureKind::Credential, why).advise(Advice::SetKey(None))
        }
    }
}

/// The model to use when only a provider, or not even that, is named.
fn default_model(settings: &Settings, provider: Option<&str>) -> Option<Arc<Model>> {
    let Some(provider) = provider else { return settings.default_model() };
    let default = settings.default_model().filter(|model| model.provider == provider);
    default
        .or_else(|| settings.models_of(provider).iter().find(|model| settings.is_available(model)).cloned())
}
