//! The `google-vertex` wire: the same bodies and streams at other addresses.
//!
//! With an API key requests go to an address without a project; an access token is for one project in one location.

use quipu_protocol::{ModelError, ModelErrorKind};
use reqwest::header::HeaderMap;

use super::{key_headers, path_segment};
use crate::access::{self, WireForm};
use crate::call;
use crate::credentials::{InvalidCredential, Scheme};

/// The wire's name in catalogues and messages.
pub const API: &str = "google-vertex";
/// What stands in the base URL of the catalogue: one that says nothing of a server of the user's own.
pub(crate) const LOCATION: &str = "{location}";

const HOST: &str = "aiplatform.googleapis.com";
const VERSION: &str = "v1";
/// How access tokens begin; they are sent as bearer tokens wherever they came from.
const TOKEN_PREFIX: &str = "ya29.";

/// The project that is billed and the location of the servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VertexPlace {
    /// `GOOGLE_CLOUD_PROJECT`.
    pub project: Option<String>,
    /// `GOOGLE_CLOUD_LOCATION`, such as `europe-west1` or `global`.
    pub location: Option<String>,
}

/// What is put around a body on this wire.
pub(super) struct Form {
    pub(super) model: String,
    pub(super) place: VertexPlace,
}

fn is_token(scheme: &Scheme) -> bool {
    match scheme {
        Scheme::Key(secret) => secret.expose().starts_with(TOKEN_PREFIX),
        Scheme::Bearer(_) | Scheme::Header { .. } | Scheme::Signer(_) | Scheme::None => true,
    }
}

impl Form {
    /// That of a model, when the place has what calls need.
    ///
    /// # Errors
    /// `InvalidRequest` when a name cannot be one, or `known`, the first credential, is a token and a name is missing.
    pub(super) fn new(
        model: &quipu_protocol::Model,
        place: VertexPlace,
        known: Option<&Scheme>,
    ) -> Result<Self, ModelError> {
        let names = [("GOOGLE_CLOUD_PROJECT", &place.project), ("GOOGLE_CLOUD_LOCATION", &place.location)];
        let needed = model.base_url.contains(LOCATION) && known.is_some_and(is_token);
        for (name, value) in names {
            let problem = match value.as_deref() {
                None if needed => "is not set. An access token needs a project and a location",
                Some(text) if text.is_empty() || !text.bytes().all(is_name_byte) => "is not a valid name",
                None | Some(_) => continue,
            };
            let text =
                format!("{name} {problem}. Set this environment variable, or use GOOGLE_CLOUD_API_KEY.");
            return Err(ModelError::new(ModelErrorKind::InvalidRequest, text));
        }
        Ok(Self { model: model.id.clone(), place })
    }

    fn model_path(&self) -> String {
        let id = path_segment(&self.model);
        let path = match id.split_once('/') {
            None => format!("publishers/google/models/{id}"),
            Some(("publishers" | "models", _)) => id,
            Some((maker, name)) => format!("publishers/{maker}/models/{name}"),
        };
        format!("{path}:streamGenerateContent?alt=sse")
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'_')
}

impl WireForm for Form {
    fn address(&self, base_url: &str) -> String {
        let base = base_url.trim_end_matches('/');
        let path = self.model_path();
        if base.contains(LOCATION) {
            return format!("https://{HOST}/{VERSION}/{path}");
        }
        let is_version = |part: &str| {
            part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        };
        let version = if base.split('/').skip(3).any(is_version) { "" } else { "/v1" };
        format!("{base}{version}/{path}")
    }

    fn address_for(&self, base_url: &str, scheme: &Scheme) -> String {
        let VertexPlace { project: Some(project), location: Some(location) } = &self.place else {
            return self.address(base_url);
        };
        if !base_url.contains(LOCATION) || !is_token(scheme) {
            return self.address(base_url);
        }
        let host = match location.as_str() {
            "global" => HOST.to_owned(),
            "us" | "eu" => format!("aiplatform.{location}.rep.googleapis.com"),
            _ => format!("{location}-{HOST}"),
        };
        let path = self.model_path();
        format!("https://{host}/{VERSION}/projects/{project}/locations/{location}/{path}")
    }

    fn headers(&self, scheme: &Scheme) -> Result<HeaderMap, InvalidCredential> {
        match scheme {
            Scheme::Key(_) if is_token(scheme) => {
                let mut all = call::common_headers();
                access::add_scheme(&mut all, scheme, access::BEARER)?;
                Ok(all)
            }
            other => key_headers(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use quipu_protocol::Model;

    use super::*;
    use crate::Secret;

    const BASE: &str = "https://{location}-aiplatform.googleapis.com";

    fn form(base_url: &str, place: [Option<&str>; 2], scheme: &Scheme) -> Result<Form, ModelError> {
        let model = Model { id: "m-3".into(), base_url: base_url.into(), ..Model::default() };
        let [project, location] = place.map(|name| name.map(String::from));
        Form::new(&model, VertexPlace { project, location }, Some(scheme))
    }

    #[test]
    fn address_depends_on_the_credential_and_the_place() {
        let check = |base: &str, place: [Option<&str>; 2], scheme: &Scheme, expect: &str| {
            let address = form(base, place, scheme).unwrap().address_for(base, scheme);
            let end = "publishers/google/models/m-3:streamGenerateContent?alt=sse";
            assert_eq!(address, format!("https://{expect}/{end}"));
        };
        let key = &Scheme::Key(Secret::new("key"));
        let token = &Scheme::Bearer(Secret::new("token"));
        let short = &Scheme::Key(Secret::new("ya29.token"));
        let set = |location| [Some("p-1"), Some(location)];
        let place = |host: &str, location: &str| format!("{host}/v1/projects/p-1/locations/{location}");
        check(BASE, [None, None], key, "aiplatform.googleapis.com/v1");
        check(BASE, set("europe-west1"), key, "aiplatform.googleapis.com/v1");
        for token in [token, short] {
            let host = "europe-west1-aiplatform.googleapis.com";
            check(BASE, set("europe-west1"), token, &place(host, "europe-west1"));
            check(BASE, set("global"), token, &place("aiplatform.googleapis.com", "global"));
            check(BASE, set("eu"), token, &place("aiplatform.eu.rep.googleapis.com", "eu"));
            check("https://own.example/", [None, None], token, "own.example/v1");
            check("https://own.example/x/v1beta1", set("global"), token, "own.example/x/v1beta1");
        }
    }

    #[test]
    fn missing_or_invalid_place_is_named() {
        let token = &Scheme::Bearer(Secret::new("token"));
        for (place, words) in [
            ([None, Some("global")], "GOOGLE_CLOUD_PROJECT is not set"),
            ([Some("p"), None], "GOOGLE_CLOUD_LOCATION is not set"),
            ([Some("p"), Some("x/evil.example/")], "GOOGLE_CLOUD_LOCATION is not a valid name"),
            ([Some("../p"), Some("global")], "GOOGLE_CLOUD_PROJECT is not a valid name"),
        ] {
            let error = form(BASE, place, token).err().unwrap();
            assert!(error.message.starts_with(words) && !error.message.contains('\n'), "{error}");
        }
        assert!(form(BASE, [None, None], &Scheme::Key(Secret::new("key"))).is_ok());
    }

    #[test]
    fn tokens_are_sent_as_bearer_and_keys_are_not() {
        let of = |scheme: Scheme| {
            let place = VertexPlace::default();
            let headers = Form { model: "m".into(), place }.headers(&scheme).unwrap();
            ["authorization", "x-goog-api-key"]
                .map(|name| headers.get(name).map(|value| value.to_str().unwrap().to_owned()))
        };
        assert_eq!(of(Scheme::Key(Secret::new("key"))), [None, Some("key".into())]);
        assert_eq!(of(Scheme::Key(Secret::new("ya29.t"))), [Some("Bearer ya29.t".into()), None]);
        assert_eq!(of(Scheme::Bearer(Secret::new("t"))), [Some("Bearer t".into()), None]);
    }
}
