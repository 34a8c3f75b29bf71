//! Codes of a login: made by chance, and read from what a person pastes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use sha2::{Digest as _, Sha256};

use super::LoginError;

/// Bytes that are pasted at most.
const MAX_PASTE: usize = 16 << 10;

/// 32 bytes that nobody can guess, as letters, digits, `-` and `_`.
///
/// # Errors
/// Where the system has no random numbers.
pub fn random() -> Result<String, LoginError> {
    let mut bytes = [0; 32];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| LoginError::Unreachable {
        host: "this machine".into(),
        what: "random numbers",
        why: "the system gives none".into(),
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// What goes to the authorization server in place of the verifier (RFC 7636, S256).
pub fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

/// The code in what a person pasted: the whole address that the browser shows, its query, `CODE#STATE`, or the code.
///
/// # Errors
/// `NoCode` or `ForeignCode` for another text, `Denied` for a no.
pub fn pasted(text: &str, state: &str) -> Result<String, LoginError> {
    let text = text.trim();
    if text.is_empty() || text.len() > MAX_PASTE {
        return Err(LoginError::NoCode);
    }
    let query = |query: &str| {
        let url = Url::parse(&format!("http://localhost/?{query}")).ok();
        let value = |name: &str| {
            let url = url.as_ref()?;
            url.query_pairs().find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
        };
        (value("code"), value("state"), value("error"))
    };
    let (code, found, error) = if text.contains("://") {
        let url = Url::parse(text).map_err(|_| LoginError::NoCode)?;
        query(url.query().unwrap_or_default())
    } else if text.contains("code=") || text.contains("error=") {
        query(text.trim_start_matches('?'))
    } else if let Some((code, state)) = text.split_once('#') {
        (Some(code.to_owned()), Some(state.to_owned()), None)
    } else {
        (Some(text.to_owned()), None, None)
    };
    if found.is_some_and(|found| found != state) {
        return Err(LoginError::ForeignCode);
    }
    if let Some(error) = error {
        return Err(LoginError::Denied { words: format!(": {}", crate::failure::quote(&error)) });
    }
    let code = code.filter(|code| !code.is_empty() && !code.contains(char::is_whitespace));
    code.ok_or(LoginError::NoCode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_those_of_the_standard() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        let (one, other) = (random().unwrap(), random().unwrap());
        assert!(one != other && one.len() == 43);
    }

    #[test]
    fn pasted_codes_are_found_in_each_form() {
        let check = |text: &str, expect: Result<&str, LoginError>| {
            assert_eq!(pasted(text, "state-1"), expect.map(str::to_owned), "{text}");
        };
        check(" code-1\n", Ok("code-1"));
        check("code-1#state-1", Ok("code-1"));
        check("http://localhost:1/callback?code=code-1&state=state-1", Ok("code-1"));
        check("http://localhost:1/callback?code=code-1", Ok("code-1"));
        check("code=code%2F1&state=state-1", Ok("code/1"));
        check("code-1#other", Err(LoginError::ForeignCode));
        check("http://localhost:1/callback?code=code-1&state=x", Err(LoginError::ForeignCode));
        check(
            "?error=access_denied&state=state-1",
            Err(LoginError::Denied { words: ": access_denied".into() }),
        );
        for nothing in ["", " ", "two words", "http://localhost/", "#state-1", &"x".repeat(20 << 10)] {
            check(nothing, Err(LoginError::NoCode));
        }
    }
}
