//! Which proxy a request goes through, and what is wrong with it.

use hyper_util::client::proxy::matcher::Matcher;
use quipu_protocol::{ModelError, ModelErrorKind};
use reqwest::Url;

use super::{Obstacle, describe};

const HTTP: [&str; 2] = ["HTTP_PROXY", "http_proxy"];
const HTTPS: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];
const ALL: [&str; 2] = ["ALL_PROXY", "all_proxy"];
const NONE: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// A proxy that requests go through.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    /// Host and port, for messages: never its user and password.
    address: String,
    /// The variable that names it; `None` where the settings of the system do.
    variable: Option<&'static str>,
    has_password: bool,
    /// Whether it is itself behind TLS.
    pub(super) secure: bool,
}

/// The passwords of the proxies that the environment names, as they stand there and as they are sent.
pub(crate) fn passwords(env: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let values = [HTTP, HTTPS, ALL].into_iter().flatten().filter_map(env);
    let found = values.filter_map(|value| {
        let (before, _) =
            value.split_once("://").map_or(value.as_str(), |(_, rest)| rest).rsplit_once('@')?;
        let (_, password) = before.split_once(':')?;
        Some([Some(password.to_owned()), decode(password)])
    });
    found.flatten().flatten().collect()
}

/// `text` with its `%XX` put back; `None` when there is none.
fn decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) => {
                out.push(decoded);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    (out.len() < bytes.len()).then(|| String::from_utf8_lossy(&out).into_owned())
}

/// The value of a pair of spellings: the first that is set counts, even when it is empty.
fn value(names: [&'static str; 2]) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| Some((name, std::env::var(name).ok()?)))
}

/// The proxy for `url`.
///
/// # Errors
/// `Network` when the variable that applies holds no address of a proxy. The value is not repeated: it may hold a
/// password.
pub(super) fn of(url: &Url) -> Result<Option<Proxy>, ModelError> {
    let specific = if url.scheme() == "https" { HTTPS } else { HTTP };
    let set = [specific, ALL].into_iter().filter_map(value).find(|(_, value)| !value.trim().is_empty());
    let excepted = value(NONE).is_some_and(|(_, list)| {
        let matcher = Matcher::builder().all("http://proxy.invalid:1").no(list).build();
        url.as_str().parse().is_ok_and(|uri| matcher.intercept(&uri).is_none())
    });
    if let Some((name, value)) = set.as_ref().filter(|_| !excepted) {
        let matcher = Matcher::builder().all(value.as_str()).build();
        if url.as_str().parse().is_ok_and(|uri| matcher.intercept(&uri).is_none()) {
            return Err(ModelError::new(
                ModelErrorKind::Network,
                format!(
                    "{name} does not hold the address of a proxy. Set it to one such as http://proxy.example:3128 or \
                     socks5h://127.0.0.1:1080, or unset it."
                ),
            ));
        }
    }
    let Some(intercept) = url.as_str().parse().ok().and_then(|uri| Matcher::from_system().intercept(&uri))
    else {
        return Ok(None);
    };
    Ok(Some(Proxy {
        address: intercept.uri().authority().map(ToString::to_string).unwrap_or_default(),
        variable: set.map(|(name, _)| name),
        secure: intercept.uri().scheme_str() == Some("https"),
        has_password: intercept.basic_auth().is_some() || intercept.raw_auth().is_some(),
    }))
}

impl Proxy {
    /// Its address and who named it, for messages.
    pub(crate) fn name(&self) -> String {
        let named_by = self.variable.unwrap_or("system settings");
        format!("the proxy {} ({named_by})", self.address)
    }

    /// What to set so that the proxy is another one, or none.
    pub(crate) fn advice(&self) -> String {
        match self.variable {
            Some(variable) => format!("Correct or unset {variable}, or name the host in NO_PROXY."),
            None => "Correct the proxy in the system's settings, or name the host in NO_PROXY.".into(),
        }
    }

    /// What to do about status 407.
    pub(crate) fn wants_password(&self) -> String {
        let variable = self.variable.unwrap_or("HTTPS_PROXY");
        if self.has_password {
            return format!("{} does not take the user and password in it. Correct {variable}.", self.name());
        }
        // No sample of an address with a password: it would be taken for a secret and sealed.
        format!(
            "{} wants a user and a password. Write both into {variable}, in front of the address, with : between them \
             and @ behind.",
            self.name(),
        )
    }

    /// What the proxy did to a request, when the failure was its own.
    pub(super) fn obstacle(&self, error: &reqwest::Error) -> Option<Obstacle> {
        if !error.is_connect() {
            return None;
        }
        // The types of these failures are private to the client, so this is where their words are known.
        let told = describe(error);
        let cause = told.rsplit(": ").next().unwrap_or_default();
        let detail = |what: &str| format!("{} {what}. {}", self.name(), self.advice());
        Some(if told.contains("proxy authorization required") || told.contains("credentials not accepted") {
            Obstacle { detail: self.wants_password(), lasting: true }
        } else if told.contains("tunnel error: failed to create underlying connection") {
            Obstacle { detail: detail(&format!("cannot be reached ({cause})")), lasting: false }
        } else if told.contains("tunnel error") || told.to_ascii_lowercase().contains("socks") {
            Obstacle { detail: detail(&format!("did not make the connection ({cause})")), lasting: false }
        } else {
            Obstacle { detail: detail(&format!("cannot be reached ({cause})")), lasting: false }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_found_where_they_stand() {
        let check = |value: &str, expect: &[&str]| {
            let found = passwords(&|name| (name == "https_proxy").then(|| value.to_owned()));
            assert_eq!(found, expect, "{value}");
        };
        check("http://proxy.example:3128", &[]);
        check("http://user@proxy.example:3128", &[]);
        check("http://user:pass:word@proxy.example", &["pass:word"]);
        check("user:p%40ss%2@[::1]:1", &["p%40ss%2", "p@ss%2"]);
        check("socks5h://u:a@b@host", &["a@b"]);
        check("", &[]);
    }
}
