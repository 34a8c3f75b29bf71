//! The models and providers that we know without being told: data, unpacked and parsed when it is asked for and no
//! sooner.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use flate2::read::DeflateDecoder;
use quipu_protocol::Model;
use serde::Deserialize;

/// `data/models.json` and `data/login_models.json`, each provider's array packed alone (`build.rs`).
static MODELS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/models.deflate"));
/// Where each provider's models are in it.
static PACKED: &[(&str, Range<usize>)] = include!(concat!(env!("OUT_DIR"), "/models.rs"));
/// Where its data is from.
static SOURCE: &str = include_str!(concat!(env!("OUT_DIR"), "/source.json"));
static PROVIDERS: &str = include_str!("../data/providers.json");

/// What is known of a provider beside its models.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProviderRow {
    /// The model to begin with.
    pub(crate) default: Option<String>,
    /// Variables that may hold its credential, the first one that is set counts.
    pub(crate) env: Vec<EnvRow>,
    /// Variables that its base URL names in braces.
    pub(crate) vars: Vec<String>,
    /// Whether its keys are used on after a failure: it passes requests on to others, which fail by themselves.
    pub(crate) never_rests: bool,
    /// Variables that hold other secrets of it.
    pub(crate) secrets: Vec<String>,
}

/// A variable that may hold a credential.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EnvRow {
    pub(crate) name: String,
    /// Whether it is sent as a bearer token.
    pub(crate) bearer: bool,
}

/// The day of its data, such as `2026-11-10`.
pub(crate) fn date() -> String {
    #[derive(Deserialize)]
    struct Source {
        date: String,
    }
    serde_json::from_str::<Source>(SOURCE).map(|source| source.date).unwrap_or_default()
}

/// The providers of the table, in its order: those that models come from first.
pub(crate) fn providers() -> &'static [(String, ProviderRow)] {
    static ROWS: OnceLock<Vec<(String, ProviderRow)>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let rows: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(PROVIDERS).unwrap_or_default();
        rows.into_iter().map(|(id, row)| (id, serde_json::from_value(row).unwrap_or_default())).collect()
    })
}

/// The row of one provider.
pub(crate) fn provider(id: &str) -> Option<&'static ProviderRow> {
    providers().iter().find(|(known, _)| known == id).map(|(_, row)| row)
}

/// The models of one provider, sorted by id; empty for a provider that we do not know. Only they are unpacked.
pub(crate) fn models(provider: &str) -> &'static [Arc<Model>] {
    static GROUPS: OnceLock<BTreeMap<&'static str, OnceLock<Vec<Arc<Model>>>>> = OnceLock::new();
    let groups =
        GROUPS.get_or_init(|| providers().iter().map(|(id, _)| (id.as_str(), OnceLock::new())).collect());
    let Some(group) = groups.get(provider) else { return &[] };
    group.get_or_init(|| {
        let packed = PACKED.iter().find(|(known, _)| *known == provider);
        let packed = packed.and_then(|(_, range)| MODELS.get(range.clone())).unwrap_or_default();
        let mut text = String::new();
        let unpacked = DeflateDecoder::new(packed).read_to_string(&mut text);
        let mut models: Vec<Model> =
            unpacked.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_default();
        for model in &mut models {
            provider.clone_into(&mut model.provider);
        }
        models.into_iter().map(Arc::new).collect()
    })
}

/// Tokens that the server of a model reads at most, where we know it: what `models.json` says of its window may be any
/// number, and another address or other headers may be those of another server.
pub(crate) fn window(model: &Model) -> Option<u64> {
    let known = models(&model.provider).iter().find(|known| known.id == model.id)?;
    let same = known.base_url == model.base_url && known.headers == model.headers && known.api == model.api;
    Some(known.context_window).filter(|_| same && !known.base_url.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_sound() {
        let rows: BTreeMap<String, ProviderRow> = serde_json::from_str(PROVIDERS).unwrap();
        assert_eq!(rows.len(), providers().len());
        let files = [include_str!("../data/models.json"), include_str!("../data/login_models.json")];
        let files = files.map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap());
        let groups = || files.iter().flat_map(|file| file["providers"].as_object().unwrap());
        assert_eq!(groups().count(), PACKED.len());
        let mut count = 0;
        for (id, group) in groups() {
            assert!(rows.contains_key(id), "{id} has no row in providers.json");
            let models = models(id);
            assert_eq!(models.len(), group.as_array().unwrap().len(), "{id}");
            for model in models {
                let place = format!("{id}/{}", model.id);
                assert!(!model.id.is_empty() && !model.api.is_empty() && model.provider == *id, "{place}");
                // Some servers have an address per customer.
                assert!(model.base_url.starts_with("https://") || model.base_url.is_empty(), "{place}");
                assert!(model.context_window > 0 && model.max_tokens > 0, "{place}");
                count += 1;
            }
        }
        assert!(count > 1_000);
        for (id, row) in providers() {
            if let Some(default) = &row.default {
                assert!(models(id).iter().any(|model| model.id == *default), "{id}: {default}");
            }
        }
        assert!(models("nobody").is_empty());
        assert!(date().parse::<jiff::civil::Date>().is_ok(), "{}", date());
    }
}
