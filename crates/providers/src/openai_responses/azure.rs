//! The `azure-openai-responses` wire: the same bodies, at an address of the customer's own, with another header for the
//! key and names that the customer gave the models.

use quipu_protocol::{Model, ModelError, ModelErrorKind};
use reqwest::Url;

/// The wire's name in catalogues and messages.
pub const AZURE_API: &str = "azure-openai-responses";

const BASE_URL: &str = "AZURE_OPENAI_BASE_URL";
const RESOURCE_NAME: &str = "AZURE_OPENAI_RESOURCE_NAME";
const API_VERSION: &str = "AZURE_OPENAI_API_VERSION";
const DEPLOYMENTS: &str = "AZURE_OPENAI_DEPLOYMENT_NAME_MAP";
/// What is below a host of the service.
const PATH: &str = "/openai/v1";
const HOSTS: [&str; 3] = [".openai.azure.com", ".cognitiveservices.azure.com", ".ai.azure.com"];
/// The header that carries the key.
pub(super) const KEY_HEADER: &str = "api-key";

/// Where a customer's deployment of a model is, and what it is called there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AzureDeployment {
    /// The base URL, which ends before `/responses`.
    pub base_url: String,
    /// The version of the API that is asked for.
    pub api_version: String,
    /// The name of the deployment, where it is not the model's id.
    pub name: Option<String>,
}

impl AzureDeployment {
    /// The deployment of `model`, as its base URL and these variables say: `AZURE_OPENAI_BASE_URL` or
    /// `AZURE_OPENAI_RESOURCE_NAME`, where it has no base URL; `AZURE_OPENAI_API_VERSION`;
    /// `AZURE_OPENAI_DEPLOYMENT_NAME_MAP` (`model=name,model=name`).
    ///
    /// # Errors
    /// `InvalidRequest` when nothing says where it is.
    pub fn of(model: &Model, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ModelError> {
        let set =
            |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|it| !it.is_empty());
        let base_url = Some(model.base_url.clone()).filter(|url| !url.is_empty()).or_else(|| set(BASE_URL));
        let base_url = base_url
            .or_else(|| set(RESOURCE_NAME).map(|name| format!("https://{name}.openai.azure.com{PATH}")));
        let base_url = base_url.ok_or_else(|| {
            let provider = &model.provider;
            let message = format!(
                "{provider}/{} has no address. Set {BASE_URL} or {RESOURCE_NAME}, or \"baseUrl\" of {provider} in models.json.",
                model.id
            );
            ModelError::new(ModelErrorKind::InvalidRequest, message)
        })?;
        let names = set(DEPLOYMENTS).unwrap_or_default();
        let name = names.split(',').filter_map(|entry| entry.split_once('=')).find_map(|(id, name)| {
            let name = name.trim();
            (id.trim() == model.id && !name.is_empty()).then(|| name.to_owned())
        });
        let api_version = set(API_VERSION).unwrap_or_else(|| "v1".to_owned());
        Ok(Self { base_url, api_version, name })
    }
}

/// Where requests go.
pub(super) fn address(base_url: &str, api_version: &str) -> String {
    let base = base_url.trim_end_matches('/');
    let is_bare = Url::parse(base).is_ok_and(|url| {
        let host = url.host_str().unwrap_or_default();
        let path = url.path().trim_end_matches('/');
        HOSTS.iter().any(|end| host.ends_with(end)) && matches!(path, "" | "/openai")
    });
    let base = base.trim_end_matches("/responses");
    let path = match is_bare {
        true if base.ends_with("/openai") => "/v1",
        true => PATH,
        false => "",
    };
    format!("{base}{path}/responses?api-version={api_version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn azure_address_has_path_and_version() {
        for (base, expect) in [
            (
                "https://mine.openai.azure.com",
                "https://mine.openai.azure.com/openai/v1/responses?api-version=v1",
            ),
            (
                "https://mine.openai.azure.com/",
                "https://mine.openai.azure.com/openai/v1/responses?api-version=v1",
            ),
            (
                "https://mine.ai.azure.com/openai",
                "https://mine.ai.azure.com/openai/v1/responses?api-version=v1",
            ),
            (
                "https://mine.openai.azure.com/openai/v1/responses",
                "https://mine.openai.azure.com/openai/v1/responses?api-version=v1",
            ),
            ("https://gateway.example/azure", "https://gateway.example/azure/responses?api-version=v1"),
        ] {
            assert_eq!(address(base, "v1"), expect);
        }
    }

    #[test]
    fn azure_deployment_comes_from_variables() {
        let model = Model { id: "gpt-5".into(), provider: "azure".into(), ..Model::default() };
        let of = |model: &Model, set: &[(&str, &str)]| {
            AzureDeployment::of(model, |name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let place = |base_url: &str, api_version: &str, name: Option<&str>| AzureDeployment {
            base_url: base_url.into(),
            api_version: api_version.into(),
            name: name.map(String::from),
        };
        let map = (DEPLOYMENTS, "gpt-4=old, gpt-5 = mine ,gpt-5=other");
        assert_eq!(
            of(&model, &[(RESOURCE_NAME, "res"), map]),
            Ok(place("https://res.openai.azure.com/openai/v1", "v1", Some("mine")))
        );
        let both = [(RESOURCE_NAME, "res"), (BASE_URL, " https://a.example "), (API_VERSION, "preview")];
        assert_eq!(of(&model, &both), Ok(place("https://a.example", "preview", None)));
        let own = Model { base_url: "https://own.example".into(), ..model.clone() };
        assert_eq!(of(&own, &both).unwrap().base_url, "https://own.example");
        let error = of(&model, &[(BASE_URL, " ")]).unwrap_err();
        assert_eq!(
            error.message,
            "azure/gpt-5 has no address. Set AZURE_OPENAI_BASE_URL or AZURE_OPENAI_RESOURCE_NAME, or \"baseUrl\" of azure in models.json."
        );
    }
}
