//! Which model a person means.

use std::sync::Arc;

use quipu_protocol::{LEVELS, Model, Thinking, level_name};
use strsim::levenshtein;

use crate::parse_level;
use crate::scope::is_pattern;
use crate::settings::{Settings, is_supported};

/// Candidates that an error lists at most.
const MAX_LISTED: usize = 8;
/// Models of a provider that are named where one of them was wanted.
const NAMED_MODELS: usize = 3;

/// A model that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// The model that was found.
    pub model: Arc<Model>,
    /// The level of thinking that was written behind it (`name:high`).
    pub thinking: Option<Thinking>,
    /// What the user should know about the choice, in one line.
    pub note: Option<String>,
}

/// No model was found, or more than one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// The provider is not known.
    #[error("There is no provider {provider:?}.{}", did_you_mean(.similar))]
    UnknownProvider {
        /// What was asked for.
        provider: String,
        /// Ids that look like it.
        similar: Vec<String>,
    },
    /// No model matches.
    #[error("There is no model {pattern:?}.{}", did_you_mean(.similar))]
    UnknownModel {
        /// What was asked for.
        pattern: String,
        /// Models that look like it, as `provider/id`.
        similar: Vec<String>,
    },
    /// It names several models, or none, by `*`, `?` or `[`.
    #[error("{pattern:?} is a pattern, and one model is wanted.{}", matching(.matches))]
    Pattern {
        /// What was asked for.
        pattern: String,
        /// Models that can be called and match, as `provider/id`.
        matches: Vec<String>,
    },
    /// It names a provider, and no model that can be called.
    #[error("{provider} is a provider, and a model is wanted, such as {}.", .models.join(" or "))]
    Provider {
        /// The provider's id.
        provider: String,
        /// Some of its models, as `provider/id`.
        models: Vec<String>,
    },
    /// What follows the colon behind a model is not a level of thinking.
    #[error("There is no level of thinking {level:?}. The levels are {}.", LEVELS.map(level_name).join(", "))]
    UnknownLevel {
        /// What follows the colon.
        level: String,
    },
    /// Several models have this id.
    #[error("{pattern:?} could be {}. Write the provider before it.", .candidates.join(" or "))]
    Ambiguous {
        /// What was asked for.
        pattern: String,
        /// The models, as `provider/id`.
        candidates: Vec<String>,
    },
}

fn did_you_mean(similar: &[String]) -> String {
    if similar.is_empty() { String::new() } else { format!(" Did you mean {}?", similar.join(" or ")) }
}

fn matching(models: &[String]) -> String {
    if models.is_empty() {
        " No model matches it.".into()
    } else {
        format!(" It matches {}.", models.join(", "))
    }
}

impl Settings {
    /// The model that `pattern` means, of `provider` when it is given: an exact `provider/id` or id in any case,
    /// else a part of an id or name, where models that can be called, undated ids and then higher ids win. A
    /// level of thinking may follow after a colon when the whole is no model. With a known provider, an id that
    /// nobody knows is taken as it is, with a note; but not a pattern.
    ///
    /// # Errors
    /// With what the user could have meant.
    pub fn find(&self, provider: Option<&str>, pattern: &str) -> Result<Selection, FindError> {
        let pattern = pattern.trim();
        let provider = provider.map(|wanted| self.provider_named(wanted)).transpose()?;
        let found = self.search(provider, pattern)?;
        if provider.is_none()
            && !found
                .as_ref()
                .is_some_and(|model| self.is_available(model) || model.id.eq_ignore_ascii_case(pattern))
            && let Some(error) = self.names_provider(pattern)
        {
            return Err(error);
        }
        if let Some(model) = found {
            return Ok(Selection { model, thinking: None, note: None });
        }
        let split = pattern.rsplit_once(':').and_then(|(rest, level)| Some((rest, parse_level(level)?)));
        if let Some((rest, level)) = split
            && let Some(model) = self.search(provider, rest)?
        {
            return Ok(Selection { model, thinking: Some(level), note: None });
        }
        let (rest, thinking) = split.map_or((pattern, None), |(rest, level)| (rest, Some(level)));
        let (within, id) = match provider {
            Some(provider) => (Some(provider), rest),
            None => self.split_provider(rest),
        };
        if is_pattern(rest) {
            let whole = provider.map_or_else(|| rest.to_owned(), |provider| format!("{provider}/{rest}"));
            let matches =
                self.named(&[whole]).iter().take(MAX_LISTED).map(|(model, _)| full(model)).collect();
            return Err(FindError::Pattern { pattern: pattern.into(), matches });
        }
        // Behind a provider it may be a part of an id that nobody knows.
        if let Some((rest, level)) = pattern.rsplit_once(':')
            && (within.is_none() || level.is_empty())
            && self.search(provider, rest)?.is_some()
        {
            return Err(FindError::UnknownLevel { level: level.into() });
        }
        if let Some(within) = within
            && let Some(model) = self.made_up(within, id)
        {
            let note = format!(
                "{within} has no known model {id:?}; it is used with the limits and prices of another."
            );
            return Ok(Selection { model, thinking, note: Some(note) });
        }
        Err(FindError::UnknownModel { pattern: pattern.into(), similar: self.similar(provider, pattern) })
    }

    /// The model of a session that goes on: of this id and no other, as when it was chosen. One that the provider does
    /// not list any more, or never did, is asked for all the same; `Selection::note` says so.
    ///
    /// # Errors
    /// `UnknownProvider`, `UnknownModel`.
    pub fn find_again(&self, provider: &str, id: &str) -> Result<Selection, FindError> {
        let provider = self.provider_named(provider)?;
        let models = self.models_of(provider);
        if let Some(model) = models.iter().find(|model| model.id == id) {
            return Ok(Selection { model: Arc::clone(model), thinking: None, note: None });
        }
        let unknown =
            || FindError::UnknownModel { pattern: id.into(), similar: self.similar(Some(provider), id) };
        let model = self.made_up(provider, id).ok_or_else(unknown)?;
        let note = format!(
            "The model of this session, {provider}/{id}, is not a known model of {provider}. It is used with the limits and prices of another."
        );
        Ok(Selection { model, thinking: None, note: Some(note) })
    }

    fn provider_named(&self, wanted: &str) -> Result<&str, FindError> {
        let ids: Vec<_> = self.providers().into_iter().chain(self.local_ids()).collect();
        ids.iter().copied().find(|id| id.eq_ignore_ascii_case(wanted)).ok_or_else(|| {
            FindError::UnknownProvider {
                provider: wanted.into(),
                similar: nearest(wanted, ids.into_iter().map(String::from)),
            }
        })
    }

    /// That `pattern` is the id of a provider, if it is one with models.
    fn names_provider(&self, pattern: &str) -> Option<FindError> {
        let provider = self.provider_named(pattern).ok()?;
        let models: Vec<_> =
            self.models_of(provider).iter().take(NAMED_MODELS).map(|model| full(model)).collect();
        (!models.is_empty()).then(|| FindError::Provider { provider: provider.into(), models })
    }

    /// The provider before the first slash, when it is one, and what follows.
    fn split_provider<'a>(&self, pattern: &'a str) -> (Option<&str>, &'a str) {
        let split =
            pattern.split_once('/').and_then(|(id, rest)| Some((self.provider_named(id).ok()?, rest)));
        split.map_or((None, pattern), |(provider, rest)| (Some(provider), rest))
    }

    fn search(&self, provider: Option<&str>, pattern: &str) -> Result<Option<Arc<Model>>, FindError> {
        if pattern.is_empty() {
            return Ok(None);
        }
        if let Some(provider) = provider {
            // `--provider p --model p/id` is common.
            let own = pattern.split_once('/').filter(|(id, _)| id.eq_ignore_ascii_case(provider));
            let models = self.models_of(provider);
            return Ok(self.best(models, pattern).or_else(|| self.best(models, own?.1)));
        }
        if let (Some(provider), rest) = self.split_provider(pattern)
            && let Some(model) = self.best(self.models_of(provider), rest)
        {
            return Ok(Some(model));
        }
        let models = self.models();
        let exact: Vec<_> = models.iter().filter(|model| model.id.eq_ignore_ascii_case(pattern)).collect();
        match exact.as_slice() {
            [] => return Ok(self.best(&models, pattern)),
            [one] => return Ok(Some(Arc::clone(one))),
            _ => {}
        }
        let available: Vec<_> = exact.iter().filter(|model| self.is_available(model)).collect();
        match available.as_slice() {
            [one] => Ok(Some(Arc::clone(one))),
            [] => Err(ambiguous(pattern, exact.into_iter())),
            _ => Err(ambiguous(pattern, available.into_iter().copied())),
        }
    }

    /// The best of `models` for `pattern`: exact, or a part of the id or the name.
    fn best(&self, models: &[Arc<Model>], pattern: &str) -> Option<Arc<Model>> {
        if pattern.is_empty() {
            return None;
        }
        if let Some(exact) = models.iter().find(|model| model.id.eq_ignore_ascii_case(pattern)) {
            return Some(exact.clone());
        }
        let wanted = pattern.to_lowercase();
        models
            .iter()
            .enumerate()
            .filter(|(_, model)| {
                model.id.to_lowercase().contains(&wanted) || model.name.to_lowercase().contains(&wanted)
            })
            .max_by(|(place, a), (other, b)| {
                let rank =
                    |model: &Model| (self.is_available(model), is_supported(model), is_alias(&model.id));
                // Models stand in the order of their providers; of equals the first counts.
                rank(a).cmp(&rank(b)).then_with(|| a.id.cmp(&b.id)).then_with(|| other.cmp(place))
            })
            .map(|(_, model)| model.clone())
    }

    /// A model that the provider may have, like its default.
    fn made_up(&self, provider: &str, id: &str) -> Option<Arc<Model>> {
        let id = Some(id.trim()).filter(|id| !id.is_empty())?;
        if let Some(place) = self.place(provider) {
            return Some(Arc::new(crate::local::model(place, id)));
        }
        let models = self.models_of(provider);
        let default = crate::catalogue::provider(provider).and_then(|row| row.default.as_deref());
        let like = models.iter().find(|model| Some(model.id.as_str()) == default).or(models.first())?;
        Some(Arc::new(Model { id: id.into(), name: id.into(), ..Model::clone(like) }))
    }

    fn similar(&self, provider: Option<&str>, pattern: &str) -> Vec<String> {
        let models = match provider {
            Some(provider) => self.models_of(provider).to_vec(),
            None => self.models(),
        };
        let slash = pattern.contains('/');
        if let (None, Some((wanted, id))) = (provider, pattern.split_once('/')) {
            // A provider whose name is wrong, with a model that it has.
            let named = nearest(wanted, self.providers().into_iter().map(str::to_owned)).into_iter();
            let whole = named.filter_map(|named| Some(full(&*self.best(self.models_of(&named), id)?)));
            let whole: Vec<_> = whole.collect();
            if !whole.is_empty() {
                return whole;
            }
        }
        let mut found =
            nearest(pattern, models.iter().map(|model| if slash { full(model) } else { model.id.clone() }));
        if !slash {
            for id in &mut found {
                if let Some(model) = models.iter().find(|model| model.id == *id) {
                    *id = full(model);
                }
            }
        }
        found
    }
}

fn full(model: &Model) -> String {
    format!("{}/{}", model.provider, model.id)
}

fn ambiguous<'a>(pattern: &str, models: impl Iterator<Item = &'a Arc<Model>>) -> FindError {
    FindError::Ambiguous {
        pattern: pattern.into(),
        candidates: models.take(MAX_LISTED).map(|model| full(model)).collect(),
    }
}

/// Whether the id names a line of models, not one dated release.
fn is_alias(id: &str) -> bool {
    let date =
        id.rsplit_once('-').is_some_and(|(_, end)| end.len() == 8 && end.bytes().all(|b| b.is_ascii_digit()));
    id.ends_with("-latest") || !date
}

/// At most three of `known` that are close to `wanted`, nearest first: a third of its characters differs at most.
pub fn nearest(wanted: &str, known: impl Iterator<Item = String>) -> Vec<String> {
    let wanted: String = wanted.to_lowercase().chars().take(100).collect();
    let limit = wanted.chars().count().div_ceil(3);
    let mut near: Vec<_> = known
        .map(|id| (levenshtein(&wanted, &id.to_lowercase()), id))
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    near.sort();
    near.dedup();
    near.into_iter().take(3).map(|(_, id)| id).collect()
}
