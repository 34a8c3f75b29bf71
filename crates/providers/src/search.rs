//! The web search that providers run themselves: which models have it, and what a search costs.

use std::sync::LazyLock;

use quipu_protocol::{Model, ModelRequest};
use serde::Deserialize;

use crate::model_rows::{ModelRow, begins};

/// Whether models may search the web at their provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WebSearch {
    /// No search is offered to a model.
    #[default]
    Off,
    /// A model that has a search may use it, where the request has tools.
    On,
}

/// Searches of one answer at most: a limit where the API has one, elsewhere what a bound of the cost goes by.
pub(crate) const MAX_SEARCHES: u32 = 5;

#[derive(Deserialize)]
struct Table {
    rows: Vec<Row>,
}

/// Models with a search.
#[derive(Deserialize)]
struct Row {
    #[serde(flatten)]
    of: ModelRow,
    /// How ids begin of those that have it beside other tools; all of them where there is none.
    #[serde(default)]
    beside_tools: Option<Vec<String>>,
    /// US dollars for a search.
    price: f64,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../data/web_search.json")).unwrap_or(Table { rows: Vec::new() })
});

/// What a model has of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchSupport {
    /// It searches.
    Yes,
    /// It searches only where it has no other tools, which it always has here.
    NotBesideTools,
    /// It does not, or nothing is known of it.
    No,
}

fn row(model: &Model) -> Option<&'static Row> {
    TABLE.rows.iter().find(|row| row.of.covers(model))
}

/// Whether the model can search the web at its provider. `compat.supportsWebSearch` of the model comes before the table.
pub fn search_support(model: &Model) -> SearchSupport {
    let own = model.compat.as_ref().map(quipu_protocol::Json::value).unwrap_or_default();
    let known_api = TABLE.rows.iter().any(|row| row.of.is_of_api(&model.api));
    match own.get("supportsWebSearch").and_then(serde_json::Value::as_bool) {
        Some(true) if known_api => return SearchSupport::Yes,
        Some(_) => return SearchSupport::No,
        None => {}
    }
    let Some(row) = row(model) else { return SearchSupport::No };
    match row.beside_tools.as_deref().is_none_or(|starts| begins(model, starts)) {
        true => SearchSupport::Yes,
        false => SearchSupport::NotBesideTools,
    }
}

/// Whether a request offers the search: the user wants it, the model has it, and the request has tools, which those for
/// summaries and the like do not have.
pub(crate) fn is_offered(request: &ModelRequest, wanted: WebSearch) -> bool {
    wanted == WebSearch::On
        && !request.tools.is_empty()
        && search_support(&request.model) == SearchSupport::Yes
}

/// US dollars for so many searches of this model.
pub(crate) fn price(model: &Model, searches: u64) -> f64 {
    let same_server = || TABLE.rows.iter().find(|row| row.of.is_of_server(model));
    row(model).or_else(same_server).map_or(0.0, |row| row.price * searches as f64)
}

#[cfg(test)]
mod tests {
    use quipu_protocol::Json;

    use super::*;

    #[test]
    fn table_names_apis_and_models_of_the_catalogue() {
        assert!(!TABLE.rows.is_empty());
        for row in &TABLE.rows {
            row.of.check(|model| search_support(model) != SearchSupport::No);
        }
    }

    #[test]
    fn support_follows_the_table_and_compat() {
        let of = |provider: &str, api: &str, id: &str, compat: Option<&str>| {
            let compat = compat.and_then(|compat| Json::parse(compat).ok());
            let model = Model {
                id: id.into(),
                provider: provider.into(),
                api: api.into(),
                compat,
                ..Model::default()
            };
            search_support(&model)
        };
        use SearchSupport::{No, NotBesideTools, Yes};
        assert_eq!(of("anthropic", "anthropic-messages", "claude-opus-5", None), Yes);
        assert_eq!(of("minimax", "anthropic-messages", "claude-opus-5", None), No);
        assert_eq!(of("openai", "openai-responses", "gpt-5.5", None), Yes);
        assert_eq!(of("openai", "openai-responses", "gpt-4", None), No);
        assert_eq!(of("openai", "openai-completions", "gpt-5.5", None), No);
        assert_eq!(of("google", "google-generative-ai", "gemini-2.5-pro", None), NotBesideTools);
        let on = Some(r#"{"supportsWebSearch":true}"#);
        assert_eq!(of("mine", "anthropic-messages", "x", on), Yes);
        assert_eq!(of("mine", "openai-completions", "x", on), No);
        assert_eq!(of("openai", "openai-responses", "gpt-5.5", Some(r#"{"supportsWebSearch":false}"#)), No);
    }
}
