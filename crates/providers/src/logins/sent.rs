//! What goes with a token when calls are made.

use serde_json::{Map, Value};

use super::rows::{LoginRow, UrlScheme};

/// Where calls with this token go, where that is not the address of the model: the host that the token names, when it
/// is one that the row allows.
///
/// # Errors
/// That the token names another.
pub(crate) fn base_url(row: &LoginRow, access: &str) -> Result<Option<String>, String> {
    let Some(rule) = &row.sent.base_url else { return Ok(None) };
    let named = access.split(';').find_map(|part| part.trim().strip_prefix(&rule.field)?.strip_prefix('='));
    let Some(host) = named.filter(|host| !host.is_empty()) else {
        return Ok(Some(rule.fallback.clone()));
    };
    let (from, to) = &rule.replace;
    let host = host.strip_prefix(from.as_str()).map_or_else(|| host.to_owned(), |rest| format!("{to}{rest}"));
    let is_plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:".contains(&byte));
    let allowed = |domain: &String| {
        host == *domain || host.strip_suffix(domain.as_str()).is_some_and(|rest| rest.ends_with('.'))
    };
    if !is_plain || !rule.hosts.iter().any(allowed) {
        let host = crate::failure::quote(&host);
        return Err(format!("it sends calls to {host:.100}, which is not a host of this provider"));
    }
    let scheme = match rule.scheme {
        UrlScheme::Https => "https",
        UrlScheme::Http => "http",
    };
    Ok(Some(format!("{scheme}://{host}")))
}

/// Headers of calls, with the fields that were kept.
pub(crate) fn sent_headers(row: &LoginRow, fields: &Map<String, Value>) -> Vec<(String, String)> {
    let plain = row.sent.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
    let kept = row.sent.field_headers.iter().filter_map(|(name, field)| {
        let value = fields.get(field)?.as_str()?;
        Some((name.clone(), value.to_owned()))
    });
    plain.chain(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Logins;
    use super::*;

    #[test]
    fn tokens_send_calls_to_hosts_of_their_provider_only() {
        let logins = Logins::default();
        let row = logins.row("github-copilot").unwrap();
        let check = |token: &str, expect: Option<&str>| {
            assert_eq!(base_url(row, token).ok().flatten().as_deref(), expect, "{token}");
        };
        let usual = Some("https://api.individual.githubcopilot.com");
        check("tid=1;exp=2;proxy-ep=proxy.individual.githubcopilot.com;sku=x", usual);
        check("tid=1;exp=2", usual);
        check(
            "tid=1;proxy-ep=proxy.business.githubcopilot.com",
            Some("https://api.business.githubcopilot.com"),
        );
        for host in [
            "proxy.githubcopilot.com.example.com",
            "evilgithubcopilot.com",
            "proxy.example.com",
            "a@githubcopilot.com",
            "example.com/.githubcopilot.com",
            "example.com#.githubcopilot.com",
            "githubcopilot.com:9@example.com",
        ] {
            check(&format!("tid=1;proxy-ep={host}"), None);
        }
    }
}
