//! The user's catalogue, `catalogue.json`: models that a person took from a file or a URL. They come before the built-in
//! ones with the same id.
//!
//! A catalogue says what models are and cost; it does not decide where keys go. So a model of a known provider has an
//! address that the provider has already, no address names a variable, and headers are taken as they are written.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use quipu_protocol::{Model, Prices};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::catalogue;
use crate::failure::quote;
use crate::model_sources::{self, MAX_MODEL_BYTES, MAX_MODELS_PER_SOURCE};
use crate::net::{self, LocalRoute};
use crate::warning::Warning;

/// The name of the file in the home.
pub const CATALOGUE_FILE: &str = "catalogue.json";
/// Bytes of a catalogue at most.
pub const MAX_CATALOGUE_BYTES: u64 = 16 << 20;
/// How long a server may take to send one.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a catalogue says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CatalogueSource {
    /// The day of its data: `YYYY-MM-DD`. Empty where it does not say.
    pub date: String,
    /// The file or URL that it was taken from; `None` for the built-in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// Why there is no catalogue.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The file could not be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What it is taken from is no such address.
    #[error("{from} cannot be used: {problem}")]
    Address {
        /// The address.
        from: String,
        /// Why, and what to do.
        problem: &'static str,
    },
    /// The server did not send it.
    #[error("{from}: {problem}")]
    Server {
        /// The address.
        from: String,
        /// Why.
        problem: String,
    },
    /// It is not a catalogue.
    #[error("{from} is not a catalogue of models: {problem}")]
    Invalid {
        /// The file or address.
        from: String,
        /// Why.
        problem: String,
    },
}

/// A catalogue that was read and checked, and is not kept yet.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCatalogue {
    /// What it says of itself.
    pub source: CatalogueSource,
    /// How many models it has.
    pub models: usize,
    /// How many providers they are of.
    pub providers: usize,
    /// What is wrong with the models that it does not take, a line for each.
    pub problems: Vec<String>,
    /// The text of the file to keep.
    pub text: String,
}

#[derive(Deserialize)]
struct CatalogueText {
    #[serde(default)]
    source: CatalogueSource,
    providers: BTreeMap<String, Box<RawValue>>,
}

/// The models that are known without `models.json`: those of the user's catalogue, then the built-in ones.
#[derive(Default)]
pub(crate) struct Catalogue {
    source: Option<CatalogueSource>,
    groups: BTreeMap<String, Group>,
}

/// The models of one provider, parsed when they are asked for.
struct Group {
    text: Box<RawValue>,
    /// With the built-in ones that it does not have.
    models: OnceLock<Vec<Arc<Model>>>,
}

impl Catalogue {
    /// The one in `home`. A file that cannot be used gives a warning, and the built-in models alone.
    pub(crate) fn load(home: &Path, warnings: &mut Vec<Warning>) -> Self {
        let path = home.join(CATALOGUE_FILE);
        let text = match read_file(&path) {
            Ok(Some(text)) => text,
            Ok(None) => return Self::default(),
            Err(error) => {
                warnings.push(Warning(format!("{error}; only the built-in models are known.")));
                return Self::default();
            }
        };
        match parse(&path.display().to_string(), &text) {
            Ok(parsed) => {
                let group = |(id, text)| (id, Group { text, models: OnceLock::new() });
                let groups = parsed.providers.into_iter().map(group).collect();
                Self { source: Some(parsed.source), groups }
            }
            Err(error) => {
                let advice = "Take it anew, or remove it";
                warnings.push(Warning(format!("{error}; only the built-in models are known. {advice}.")));
                Self::default()
            }
        }
    }

    /// What the catalogue in use says of itself.
    pub(crate) fn source(&self) -> CatalogueSource {
        self.source.clone().unwrap_or_else(|| CatalogueSource { date: catalogue::date(), from: None })
    }

    /// The models of a provider, sorted by id.
    pub(crate) fn models(&self, provider: &str) -> &[Arc<Model>] {
        let Some(group) = self.groups.get(provider) else { return catalogue::models(provider) };
        group.models.get_or_init(|| {
            let known = catalogue::models(provider);
            let mut models: BTreeMap<String, Arc<Model>> =
                known.iter().map(|model| (model.id.clone(), Arc::clone(model))).collect();
            let (own, _) = checked(provider, &group.text);
            models.extend(own.into_iter().map(|model| (model.id.clone(), model)));
            models.into_values().collect()
        })
    }

    /// Whether the user's catalogue has this model.
    pub(crate) fn is_own(&self, model: &Arc<Model>) -> bool {
        self.groups.contains_key(&model.provider)
            && !catalogue::models(&model.provider).iter().any(|known| known == model)
    }

    /// Ids of the providers that only the user's catalogue has.
    pub(crate) fn own_providers(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(String::as_str).filter(|id| catalogue::provider(id).is_none())
    }
}

/// Reads a catalogue from `from`: a URL with `https://` (`http://` on this machine), else the path of a file. `today`
/// (`YYYY-MM-DD`) is its date where it has none.
///
/// # Errors
/// It cannot be had, or none of it can be used.
pub async fn fetch_catalogue(from: &str, today: &str) -> Result<NewCatalogue, CatalogueError> {
    let text = match Url::parse(from) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => download(from, &url).await?,
        // A file of a name such as `a:b`, or a path.
        _ => {
            let path = PathBuf::from(from);
            let shown = path.clone();
            let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
            let gone = |source| CatalogueError::Io { path: shown.clone(), source };
            let read = read.map_err(|error| gone(std::io::Error::other(error)))??;
            read.ok_or_else(|| gone(std::io::Error::other("there is no such file")))?
        }
    };
    let parsed = parse(from, &text)?;
    let (mut models, mut problems) = (BTreeMap::new(), Vec::new());
    for (provider, group) in &parsed.providers {
        let (usable, bad) = checked(provider, group);
        problems.extend(bad);
        if !usable.is_empty() {
            models.insert(provider.as_str(), usable);
        }
    }
    let invalid = |problem: String| CatalogueError::Invalid { from: from.to_owned(), problem };
    let count = models.values().map(Vec::len).sum();
    if count == 0 {
        let first = problems.first().map(|first| format!(" ({first})")).unwrap_or_default();
        return Err(invalid(format!("it has no model that can be used{first}")));
    }
    let mut source = parsed.source;
    source.from = Some(from.to_owned());
    if source.date.is_empty() {
        source.date = today.to_owned();
    }
    let failed = |error: serde_json::Error| invalid(error.to_string());
    let head = serde_json::to_string(&source).map_err(failed)?;
    let mut text = format!("{{\"source\":{head},\n\"providers\":{{");
    for (at, (provider, models)) in models.iter().enumerate() {
        let lines: Result<Vec<_>, _> =
            models.iter().map(|model| serde_json::to_string(&**model).map_err(failed)).collect();
        let (name, lines) = (serde_json::to_string(provider).map_err(failed)?, lines?.join(",\n"));
        text.push_str(if at == 0 { "\n" } else { ",\n" });
        text.push_str(&format!("{name}:[\n{lines}\n]"));
    }
    text.push_str("\n}}\n");
    Ok(NewCatalogue { source, models: count, providers: models.len(), problems, text })
}

fn read_file(path: &Path) -> Result<Option<String>, CatalogueError> {
    let failed = |source| CatalogueError::Io { path: path.to_path_buf(), source };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if !metadata.is_file() => {
            return Err(failed(std::io::Error::other("it is not a regular file")));
        }
        Ok(metadata) if metadata.len() > MAX_CATALOGUE_BYTES => {
            return Err(failed(std::io::Error::other(format!(
                "it is larger than {MAX_CATALOGUE_BYTES} bytes"
            ))));
        }
        Ok(_) => {}
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_CATALOGUE_BYTES).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

async fn download(from: &str, url: &Url) -> Result<String, CatalogueError> {
    let mut shown = url.clone();
    // What stands for a password is not repeated. It cannot fail for an address with a host.
    let _cannot_fail = (shown.set_username(""), shown.set_password(None));
    let address = |problem| CatalogueError::Address { from: shown.to_string(), problem };
    if url.scheme() == "http" && !net::is_loopback(url.host_str().unwrap_or_default()) {
        return Err(address("anybody on the way could change it; use an address that begins with https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(address(
            "the address is kept in a file, so it may not contain a user name or a password",
        ));
    }
    let server = |problem: String| CatalogueError::Server { from: from.to_owned(), problem };
    let client = net::client(url, LocalRoute::Direct).map_err(|error| server(error.to_string()))?;
    let work = async {
        let sent = client.get(url.clone()).send().await;
        let mut response = sent.map_err(|error| server(net::describe(&error.without_url())))?;
        let status = response.status();
        if status.is_redirection() {
            let to = response.headers().get("location").and_then(|to| to.to_str().ok()).unwrap_or_default();
            return Err(server(format!("it redirects to {}; use that address", quote(to))));
        }
        if !status.is_success() {
            return Err(server(format!("the server answered {status}")));
        }
        let mut body = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| server(net::describe(&error.without_url())))?
        {
            body.extend_from_slice(&chunk);
            if body.len() as u64 > MAX_CATALOGUE_BYTES {
                return Err(server(format!("it is larger than {MAX_CATALOGUE_BYTES} bytes")));
            }
        }
        String::from_utf8(body).map_err(|_| server("it is not UTF-8 text".into()))
    };
    let late = || server(format!("it was not complete after {} s", PATIENCE.as_secs()));
    tokio::time::timeout(PATIENCE, work).await.map_err(|_| late())?
}

fn parse(from: &str, text: &str) -> Result<CatalogueText, CatalogueError> {
    let invalid = |problem: String| CatalogueError::Invalid { from: from.to_owned(), problem };
    let text = text.trim_start_matches('\u{feff}').trim_start();
    if !text.starts_with('{') {
        return Err(invalid("it does not begin with a JSON object".into()));
    }
    let parsed: CatalogueText =
        serde_json::from_str(text).map_err(|error| invalid(quote(&error.to_string())))?;
    let date = &parsed.source.date;
    if !date.is_empty() && date.parse::<jiff::civil::Date>().is_err() {
        return Err(invalid(format!("its date is {}, not YYYY-MM-DD", quote(date))));
    }
    Ok(parsed)
}

/// The models of a provider that can be used, and what is wrong with the others.
fn checked(provider: &str, text: &RawValue) -> (Vec<Arc<Model>>, Vec<String>) {
    let mut problems = Vec::new();
    let shown = quote(provider);
    let rows: Vec<&RawValue> = match serde_json::from_str(text.get()) {
        Ok(rows) => rows,
        Err(_) => return (Vec::new(), vec![format!("{shown}: its models are not a list")]),
    };
    if rows.len() > MAX_MODELS_PER_SOURCE {
        problems.push(format!("{shown}: models after the first {MAX_MODELS_PER_SOURCE} are ignored"));
    }
    let known = catalogue::models(provider);
    let mut models: BTreeMap<String, Arc<Model>> = BTreeMap::new();
    for (at, row) in rows.iter().take(MAX_MODELS_PER_SOURCE).enumerate() {
        match model(provider, row, known) {
            Ok(model) => drop(models.insert(model.id.clone(), model)),
            Err(problem) => problems.push(format!("{shown}, model {}: {problem}", at + 1)),
        }
    }
    (models.into_values().collect(), problems)
}

fn model(provider: &str, row: &RawValue, known: &[Arc<Model>]) -> Result<Arc<Model>, String> {
    if row.get().len() > MAX_MODEL_BYTES {
        return Err(format!("it is larger than {MAX_MODEL_BYTES} bytes"));
    }
    let mut model: Model = serde_json::from_str(row.get()).map_err(|error| quote(&error.to_string()))?;
    provider.clone_into(&mut model.provider);
    // That a rate of 0 is one is for the user to say.
    model.cost.stated = false;
    if model.id.is_empty() || model.api.is_empty() {
        return Err("it needs \"id\" and \"api\"".into());
    }
    let id = quote(&model.id);
    if model.context_window == 0 || model.max_tokens == 0 {
        return Err(format!("{id} needs \"contextWindow\" and \"maxTokens\""));
    }
    if rates(&model.cost).any(|rate| !rate.is_finite() || rate < 0.0) {
        return Err(format!("{id} has a price below 0"));
    }
    if model.name.is_empty() {
        model.name.clone_from(&model.id);
    }
    let is_known_address = known.iter().any(|known| known.base_url == model.base_url);
    if !is_known_address {
        if model.base_url.is_empty() {
            return Err(format!("{id} has no \"baseUrl\""));
        }
        if let Some(obstacle) = model_sources::obstacle(&model, known) {
            return Err(format!("{id} {obstacle}"));
        }
    }
    Ok(model_sources::literal(&Arc::new(model)))
}

fn rates(prices: &Prices) -> impl Iterator<Item = f64> {
    let base = [prices.input, prices.output, prices.cache_read, prices.cache_write];
    let tiers = prices.tiers.iter().flat_map(|it| [it.input, it.output, it.cache_read, it.cache_write]);
    base.into_iter().chain(tiers)
}
