//! Which model answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu::Provider;
use quipu_protocol::{Epoch, Model, ModelErrorKind, Thinking};
use quipu_providers::{Selection, Settings, level_name};

use crate::model_choices::KeptChoices;
use crate::{Advice, Failure, FailureKind, Home, HostNotice, OpenRequest};

/// A model, its provider and its level of thinking.
pub(crate) type ModelChoice = (Arc<Model>, Arc<dyn Provider>, Thinking);

/// The model that a task in `cwd` asks for. `request` counts first, then what the session had `last`, then what a person
/// chose for the directory, `defaultModel` of the settings, what a person chose last elsewhere, and the default of the
/// first provider that can be used. The level of thinking follows the same order.
pub(crate) fn real_model(
    home: &Home,
    settings: &Settings,
    request: &OpenRequest,
    (cwd, last): (&Path, Option<&Epoch>),
) -> Result<ModelChoice, Failure> {
    let kept = Defaults::of(home, cwd)?;
    let ChosenModel { selection, origin } = choose_model(settings, request, &kept, last)?;
    let Selection { model, thinking, note: hint } = selection;
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
        let failure = match origin {
            Some(origin) => Failure::new(kind, format!("{origin}, {}/{}: {error}", model.provider, model.id)),
            None => Failure::new(kind, error),
        };
        match other {
            Some(other) => failure.advise(with_another(Some(&other))),
            None if kind == FailureKind::Request => failure.advise(Advice::ListModels),
            None => match settings.login_owner(&model.provider) {
                Some(agent) => failure.advise(Advice::UseLogin(agent.to_owned())),
                None => failure,
            },
        }
    })?;
    let asked = request.thinking.or(thinking);
    let wanted = match (asked, last) {
        (Some(level), _) => level,
        (None, Some(epoch)) => epoch.chosen().2,
        (None, None) => {
            kept.choices.thinking(&model.provider, &model.id).or(kept.thinking).unwrap_or(Thinking::Medium)
        }
    };
    let thinking = quipu_providers::clamp_level(&model, wanted);
    if asked.is_some_and(|asked| asked != thinking) {
        let text = other_level(&model, wanted, thinking);
        home.observer().notice(HostNotice { is_warning: false, text, advice: None });
    }
    Ok((model, provider, thinking))
}

/// Why a model thinks at another level than was asked for.
fn other_level(model: &Model, wanted: Thinking, thinking: Thinking) -> String {
    let Model { provider, id, reasoning, .. } = model;
    let (wanted, level) = (level_name(wanted), level_name(thinking));
    match reasoning {
        true => format!("{provider}/{id} has no level of thinking {wanted}; it is called with {level}."),
        false => format!("{provider}/{id} does not think; the level {wanted} is not used."),
    }
}

/// What holds for a session that begins, where its request says nothing.
struct Defaults {
    choices: KeptChoices,
    cwd: PathBuf,
    model: Option<String>,
    thinking: Option<Thinking>,
}

impl Defaults {
    fn of(home: &Home, cwd: &Path) -> Result<Self, Failure> {
        let config = home.config_in(cwd);
        if let Some(problem) = config.problem_of("defaultModel") {
            return Err(Failure::request(problem.to_string()));
        }
        let (model, thinking) = (config.default_model.clone(), config.default_thinking);
        Ok(Self { choices: KeptChoices::of(home), cwd: cwd.to_owned(), model, thinking })
    }

    /// The models that were chosen, the one that counts most first, each with where it was chosen.
    fn models(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let here =
            self.choices.in_directory(&self.cwd).map(|model| (model, "The model chosen in this directory"));
        let set = self.model.as_deref().map(|model| (model, "`defaultModel` of the settings"));
        let last = self.choices.last().map(|model| (model, "The model chosen last"));
        here.into_iter().chain(set).chain(last)
    }
}

/// A model, and where it was chosen if that was not by the request.
struct ChosenModel {
    selection: Selection,
    origin: Option<&'static str>,
}

fn choose_model(
    settings: &Settings,
    request: &OpenRequest,
    kept: &Defaults,
    last: Option<&Epoch>,
) -> Result<ChosenModel, Failure> {
    let provider = request.provider.as_deref();
    let asked = |selection| ChosenModel { selection, origin: None };
    match (&request.model, last) {
        (Some(pattern), _) => settings
            .find(provider, pattern)
            .map(asked)
            .map_err(|error| Failure::request(error).advise(Advice::ListModels)),
        (None, Some(epoch)) if provider.is_none() && !epoch.model.is_empty() => {
            let (provider, model, _) = epoch.chosen();
            settings.find_again(provider, model).map(asked).map_err(|error| {
                Failure::request(format!(
                    "the session last used {provider}/{model}, which is not available any more. {error}"
                ))
                .advise(with_another(settings.default_model().as_deref()))
            })
        }
        (None, _) => {
            for (pattern, origin) in kept.models() {
                let found = settings.find(None, pattern);
                let other = |found: &Selection| provider.is_some_and(|asked| asked != found.model.provider);
                match found {
                    Ok(found) if other(&found) => {}
                    Ok(selection) => return Ok(ChosenModel { selection, origin: Some(origin) }),
                    // With a provider in the request the choice need not be understood.
                    Err(_) if provider.is_some() => {}
                    Err(error) => {
                        return Err(Failure::request(format!("{origin}: {error}")).advise(Advice::ListModels));
                    }
                }
            }
            let model = default_model(settings, provider).ok_or_else(|| no_model(settings, provider))?;
            Ok(asked(Selection { model, thinking: None, note: None }))
        }
    }
}

/// How a session goes on whose model cannot be asked. Another one is never chosen for it: what was said may be meant for
/// this machine alone, and prices differ.
fn with_another(other: Option<&Model>) -> Advice {
    Advice::AnotherModel(other.map(|other| (other.provider.clone(), other.id.clone())))
}

/// The model that a task in `cwd` would be asked of.
pub fn model_of(
    home: &Home,
    settings: &Settings,
    request: &OpenRequest,
    (cwd, last): (&Path, Option<&Epoch>),
) -> Result<Arc<Model>, Failure> {
    choose_model(settings, request, &Defaults::of(home, cwd)?, last).map(|chosen| chosen.selection.model)
}

fn no_model(settings: &Settings, provider: Option<&str>) -> Failure {
    match provider {
        Some(provider) if !settings.providers().contains(&provider) => {
            Failure::request(format!("there is no provider `{provider}`")).advise(Advice::ListProviders)
        }
        Some(provider) => {
            let tried = settings.models_of(provider).first().map(|model| settings.provider_for(model, None));
            match tried {
                // A key is there, or would not help.
                Some(Err(error)) if error.kind == ModelErrorKind::InvalidRequest => {
                    Failure::request(format!("no model of `{provider}` can be used: {error}"))
                        .advise(Advice::ListModels)
                }
                _ => Failure::new(FailureKind::Credential, format!("no model of `{provider}` can be used"))
                    .advise(crate::login::credential_advice(settings, provider)),
            }
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
