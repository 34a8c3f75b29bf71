//! Packages of a registry for npm: what the user's configuration says of it, the metadata of one version, and its archive.
//!
//! No program of npm runs, and no script of a package.

use std::path::PathBuf;

use base64::Engine as _;
use quipu_providers::net::{DownloadError, download};
use serde::Deserialize;
use sha2::{Digest as _, Sha512};

use super::archive::unpack;
use super::tree::TreeWriter;
use crate::bounded_file;

/// Where packages are when nothing else is configured.
const DEFAULT_REGISTRY: &str = "https://registry.npmjs.org/";
/// Bytes of a configuration, of metadata and of an archive at most.
const MOST_CONFIG: u64 = 256 << 10;
const MOST_METADATA: u64 = 4 << 20;
const MOST_ARCHIVE: u64 = 16 << 20;

/// The user's configuration of npm, as far as it says where packages are.
#[derive(Default)]
pub(super) struct NpmConfig {
    registry: Option<String>,
    /// Registries of scopes.
    scopes: Vec<(String, String)>,
    /// What begins the addresses that get a token, without their scheme, and the token.
    tokens: Vec<(String, String)>,
}

impl std::fmt::Debug for NpmConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never a token.
        f.debug_struct("NpmConfig").field("registry", &self.registry).finish_non_exhaustive()
    }
}

impl NpmConfig {
    /// That of an environment and the user's file. A project's file is not read.
    pub(super) fn of_user(env: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let named = env("npm_config_userconfig").or_else(|| env("NPM_CONFIG_USERCONFIG")).map(PathBuf::from);
        let path = named.or_else(|| std::env::home_dir().map(|home| home.join(".npmrc")));
        let mut config = Self::default();
        if let Some(path) = path.filter(|path| path.is_file()) {
            let shown = path.display();
            let bytes = bounded_file::read(&path, MOST_CONFIG)
                .map_err(|error| format!("{shown}: {}", error.in_words("256 KiB")))?;
            config.read(&String::from_utf8_lossy(&bytes), env);
        }
        if let Some(registry) = env("npm_config_registry").or_else(|| env("NPM_CONFIG_REGISTRY")) {
            config.registry = Some(registry);
        }
        Ok(config)
    }

    fn read(&mut self, text: &str, env: &dyn Fn(&str) -> Option<String>) {
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            let Some((key, value)) = line.split_once('=') else { continue };
            let (key, value) = (key.trim(), value.trim().trim_matches('"'));
            let Some(value) = with_variables(value, env) else { continue };
            if key == "registry" {
                self.registry = Some(value);
            } else if let Some(scope) = key.strip_suffix(":registry").filter(|scope| scope.starts_with('@')) {
                self.scopes.push((scope.to_owned(), value));
            } else if let Some(place) = key.strip_suffix(":_authToken") {
                let place = place.trim_start_matches('/').trim_end_matches('/');
                self.tokens.push((format!("{place}/"), value));
            }
        }
    }

    /// The registry of a package, with a slash at its end.
    fn registry_of(&self, name: &str) -> String {
        let scope = name.split_once('/').map(|(scope, _)| scope);
        let of_scope = self.scopes.iter().find(|(known, _)| Some(known.as_str()) == scope);
        let registry = of_scope.map(|(_, registry)| registry.as_str()).or(self.registry.as_deref());
        format!("{}/", registry.unwrap_or(DEFAULT_REGISTRY).trim_end_matches('/'))
    }

    /// The header `Authorization` for an address: that of the longest place that it begins with.
    fn authorization(&self, address: &str) -> Option<String> {
        let (_, rest) = address.split_once("://")?;
        let of_address = self.tokens.iter().filter(|(place, _)| rest.starts_with(place.as_str()));
        let (_, token) = of_address.max_by_key(|(place, _)| place.len())?;
        Some(format!("Bearer {token}"))
    }
}

/// A value with `${NAME}` in place; `None` where a variable is missing.
fn with_variables(value: &str, env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let (mut text, mut rest) = (String::new(), value);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}')?;
        text.push_str(before);
        text.push_str(&env(name)?);
        rest = after;
    }
    text.push_str(rest);
    Some(text)
}

#[derive(Deserialize)]
struct Metadata {
    version: String,
    dist: Distribution,
}

#[derive(Deserialize)]
struct Distribution {
    tarball: String,
    #[serde(default)]
    integrity: String,
}

/// Fetches a package and writes its files. Gives its version.
pub(super) async fn fetch(
    config: &NpmConfig,
    name: &str,
    version: Option<&str>,
    writer: &mut TreeWriter,
) -> Result<String, String> {
    let registry = config.registry_of(name);
    let wanted = version.unwrap_or("latest");
    let address = format!("{registry}{}/{wanted}", name.replace('/', "%2f"));
    let authorization = |address: &str| config.authorization(address);
    let text = download(&address, &authorization, MOST_METADATA).await.map_err(|error| match error {
        DownloadError::Status { status: 404 | 405, .. } => {
            format!("the registry {registry} has no package {name} with the version {wanted}")
        }
        error => error.to_string(),
    })?;
    let metadata: Metadata = serde_json::from_slice(&text)
        .map_err(|error| format!("{registry} describes {name} in no known form: {error}"))?;
    let Distribution { tarball, integrity } = metadata.dist;
    let expected = expected_hash(&integrity).ok_or_else(|| {
        format!("{registry} gives no SHA-512 of {name}, without which its archive cannot be checked")
    })?;
    if is_here(&tarball) && !is_here(&registry) {
        return Err(format!(
            "{registry} says that the archive of {name} is on this machine; it is not fetched"
        ));
    }
    let archive =
        download(&tarball, &authorization, MOST_ARCHIVE).await.map_err(|error| error.to_string())?;
    if Sha512::digest(&archive)[..] != expected[..] {
        return Err(format!("the archive of {name} has another hash than {registry} says; it is not used"));
    }
    unpack(flate2::read::GzDecoder::new(&archive[..]), 1, writer)?;
    Ok(metadata.version)
}

/// Whether an address is one of this machine.
fn is_here(address: &str) -> bool {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let place = place.rsplit('@').next().unwrap_or_default();
    let host = match place.strip_prefix('[') {
        Some(inner) => inner.split(']').next(),
        None => place.split(':').next(),
    };
    host.is_some_and(quipu_providers::net::is_loopback)
}

/// The SHA-512 in a text of integrity, which may have several hashes.
fn expected_hash(integrity: &str) -> Option<Vec<u8>> {
    let texts = integrity.split_whitespace().filter_map(|one| one.strip_prefix("sha512-"));
    let decoded = texts.filter_map(|text| {
        let text = text.split('?').next().unwrap_or_default();
        base64::engine::general_purpose::STANDARD.decode(text).ok()
    });
    decoded.into_iter().find(|hash| hash.len() == 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_decides_registry_and_token() {
        let env = |name: &str| (name == "NPM_TOKEN").then(|| "secret".to_owned());
        let mut config = NpmConfig::default();
        config.read(
            "; note\nregistry = https://one.example/npm/\n@own:registry=https://two.example/\n//two.example/:_authToken=${NPM_TOKEN}\n//one.example/npm/:_authToken=${MISSING}\nrubbish",
            &env,
        );
        assert_eq!(config.registry_of("a"), "https://one.example/npm/");
        assert_eq!(config.registry_of("@own/a"), "https://two.example/");
        assert_eq!(config.authorization("https://two.example/@own%2fa/1").as_deref(), Some("Bearer secret"));
        for address in
            ["https://one.example/npm/a", "https://two.example.evil/x", "https://evil/two.example/"]
        {
            assert_eq!(config.authorization(address), None, "{address}");
        }
        assert!(!format!("{config:?}").contains("secret"));
        assert!(NpmConfig::default().registry_of("a").starts_with("https://"));
        for (address, expect) in [
            ("http://127.0.0.1:80/x", true),
            ("https://u@localhost/x", true),
            ("https://[::1]:1/x", true),
            ("https://one.example/127.0.0.1", false),
        ] {
            assert_eq!(is_here(address), expect, "{address}");
        }
    }

    #[test]
    fn integrity_needs_a_whole_hash() {
        let hash = base64::engine::general_purpose::STANDARD.encode([7; 64]);
        assert_eq!(expected_hash(&format!("sha1-x sha512-{hash}?x")).unwrap(), [7; 64]);
        for text in ["", "sha1-aaaa", "sha512-aaaa", "sha512-!"] {
            assert_eq!(expected_hash(text), None, "{text}");
        }
    }
}
