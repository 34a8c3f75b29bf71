//! `models.json`: the user's own providers and models, and changes to those of the catalogue.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use quipu_protocol::Model;
use serde_json::{Map, Value, json};

use crate::warning::Warning;
use crate::{jsonc, nearest};

/// Bytes of `models.json` at most.
const MAX_BYTES: u64 = 16 << 20;

/// The wires that there are: those that this version speaks, and those of the catalogue. One a line.
const WIRES: &str = include_str!("../data/wires.txt");

/// One provider of `models.json`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ProviderConfig {
    pub(crate) api_key: Option<String>,
    /// Whether the key is sent as a bearer token.
    pub(crate) auth_header: bool,
    base_url: Option<String>,
    api: Option<String>,
    headers: Map<String, Value>,
    compat: Map<String, Value>,
    models: Vec<Value>,
    overrides: Map<String, Value>,
}

impl ProviderConfig {
    /// Where it names wires, and which.
    fn named_apis(&self) -> Vec<(String, &str)> {
        let own = self.api.as_deref().map(|api| ("api".to_owned(), api));
        let models = self.models.iter().enumerate();
        let models =
            models.filter_map(|(at, model)| Some((format!("models[{at}].api"), model.get("api")?.as_str()?)));
        let changes = self.overrides.iter().filter_map(|(of, change)| {
            Some((format!("modelOverrides.{of}.api"), change.get("api")?.as_str()?))
        });
        own.into_iter().chain(models).chain(changes).collect()
    }

    /// Names and values of all headers that it sets, as they are written.
    pub(crate) fn all_headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let of_models = self.models.iter().chain(self.overrides.values());
        let of_models = of_models.filter_map(|model| model.get("headers")?.as_object());
        std::iter::once(&self.headers)
            .chain(of_models)
            .flatten()
            .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
    }
}

/// The providers of the file. A file that is not there has none; what is wrong is warned of and left out.
pub(crate) fn read(path: &Path, warnings: &mut Vec<Warning>) -> BTreeMap<String, ProviderConfig> {
    let name = path.display();
    let mut warn = |problem: String| warnings.push(Warning(format!("{name}: {problem}")));
    let file = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return BTreeMap::new(),
        Err(error) => Err(error),
        Ok(metadata) if !metadata.is_file() => Err(std::io::Error::other("it is not a regular file")),
        Ok(_) => File::open(path),
    };
    let mut text = String::new();
    if let Err(error) = file.and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text)) {
        warn(format!("it cannot be read ({error}); only the built-in models are known."));
        return BTreeMap::new();
    }
    if text.len() as u64 > MAX_BYTES {
        warn(format!("it is larger than {MAX_BYTES} bytes; only the built-in models are known."));
        return BTreeMap::new();
    }
    let parsed: Value = match serde_json::from_str(&jsonc::strip(&text)) {
        Ok(parsed) => parsed,
        Err(error) => {
            let place = format!("line {}, column {}", error.line(), error.column());
            warn(format!("it is not JSON ({place}); only the built-in models are known."));
            return BTreeMap::new();
        }
    };
    let Some(providers) = parsed.get("providers").and_then(Value::as_object) else {
        warn("it must hold an object \"providers\"; only the built-in models are known.".into());
        return BTreeMap::new();
    };
    let mut configs = BTreeMap::new();
    for (id, value) in providers {
        match provider(value) {
            Ok(config) => drop(configs.insert(id.clone(), config)),
            Err(problem) => warn(format!("the provider {id:?} is not used: {problem}.")),
        }
    }
    configs
}

fn provider(value: &Value) -> Result<ProviderConfig, String> {
    let object = value.as_object().ok_or("it must be an object")?;
    let text = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("{name} must be a string")),
    };
    let map = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map.clone()),
        Some(_) => Err(format!("{name} must be an object")),
    };
    Ok(ProviderConfig {
        api_key: text("apiKey")?,
        auth_header: object.get("authHeader").and_then(Value::as_bool).unwrap_or(false),
        base_url: text("baseUrl")?,
        api: text("api")?,
        headers: map("headers")?,
        compat: map("compat")?,
        models: match object.get("models") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(models)) => models.clone(),
            Some(_) => return Err("models must be an array".into()),
        },
        overrides: map("modelOverrides")?,
    })
}

/// The provider's models: the catalogue's, changed as the file says, and the file's own.
pub(crate) fn models(
    id: &str,
    config: &ProviderConfig,
    known: &[Arc<Model>],
    warnings: &mut Vec<Warning>,
) -> Vec<Arc<Model>> {
    for (place, api) in config.named_apis() {
        if !WIRES.lines().any(|wire| wire == api) {
            let near = nearest(api, WIRES.lines().map(str::to_owned));
            let near = near.first().map_or(String::new(), |wire| format!(" Did you mean {wire:?}?"));
            warnings.push(Warning(format!(
                "models.json: providers.{id}.{place}: there is no api {api:?}.{near}"
            )));
        }
    }
    let mut models: Vec<Arc<Model>> = Vec::new();
    let mut take = |place: String, model: Value| match serde_json::from_str::<Model>(&model.to_string()) {
        Ok(model) if model.id.is_empty() => {
            warnings.push(Warning(format!("models.json: {place} has no id.")));
        }
        Ok(model) if model.api.is_empty() || model.base_url.is_empty() => {
            let problem = "needs \"api\" and \"baseUrl\", its own or those of the provider";
            warnings.push(Warning(format!("models.json: {place} is not used: it {problem}.")));
        }
        Ok(model) => {
            let model = Arc::new(model);
            match models.iter_mut().find(|known| known.id == model.id) {
                Some(known) => *known = model,
                None => models.push(model),
            }
        }
        Err(error) => warnings.push(Warning(format!("models.json: {place} is not used: {error}."))),
    };
    for row in known {
        // The catalogue's own models always have a JSON form.
        let mut model = serde_json::to_value(&**row).unwrap_or_default();
        if let Some(base_url) = &config.base_url {
            model["baseUrl"] = json!(base_url);
        }
        merge(&mut model, "headers", &config.headers);
        merge(&mut model, "compat", &config.compat);
        if let Some(Value::Object(changes)) = config.overrides.get(&row.id) {
            apply(&mut model, changes);
        }
        take(format!("providers.{id}.modelOverrides.{}", row.id), model);
    }
    for (index, own) in config.models.iter().enumerate() {
        let place = format!("providers.{id}.models[{index}]");
        let Value::Object(own) = own else {
            // Refused like any value of the wrong shape.
            take(place, Value::Null);
            continue;
        };
        let like = known.first();
        let mut model = json!({
            "name": own.get("id"),
            "api": config.api.as_ref().or(like.map(|model| &model.api)),
            "baseUrl": config.base_url.as_ref().or(like.map(|model| &model.base_url)),
            "provider": id,
            "reasoning": false,
            "input": ["text"],
            "cost": {},
            "contextWindow": 128_000,
            "maxTokens": 16_384,
        });
        if let Some(model) = model.as_object_mut() {
            model.retain(|_, value| !value.is_null());
        }
        merge(&mut model, "headers", &config.headers);
        merge(&mut model, "compat", &config.compat);
        apply(&mut model, own);
        model["provider"] = json!(id);
        if let Some(id) = own.get("id").and_then(Value::as_str)
            && let Some(Value::Object(changes)) = config.overrides.get(id)
        {
            apply(&mut model, changes);
        }
        take(place, model);
    }
    models
}

/// Adds `extra` to the object `model[member]`.
fn merge(model: &mut Value, member: &str, extra: &Map<String, Value>) {
    if extra.is_empty() {
        return;
    }
    let place = &mut model[member];
    match place {
        Value::Object(known) => known.extend(extra.clone()),
        _ => *place = Value::Object(extra.clone()),
    }
}

/// Applies changes to a model: prices, headers, quirks and sampling member by member, all else as a whole.
fn apply(model: &mut Value, changes: &Map<String, Value>) {
    for (member, change) in changes {
        match (member.as_str(), change) {
            ("cost" | "headers" | "compat" | "samplingParams", Value::Object(change)) => {
                merge(model, member, change);
                if member == "cost" && ["input", "output"].iter().all(|rate| change.contains_key(*rate)) {
                    model["cost"]["stated"] = Value::Bool(true);
                }
            }
            _ => model[member.as_str()] = change.clone(),
        }
    }
}
