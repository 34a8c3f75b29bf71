//! Which variables commands in a container get: none that hold a secret, and none by which a program takes code from elsewhere.

/// Beginnings of names that never pass.
const PREFIXES: [&str; 3] = ["LD_", "DYLD_", "BASH_FUNC_"];
/// Ends of names that hold secrets.
const SECRETS: [&str; 4] = ["_API_KEY", "_TOKEN", "_PASSWORD", "_SECRET"];
/// Names that pass by themselves, besides those that begin with `LC_`.
const USUAL: [&str; 5] = ["LANG", "LANGUAGE", "TERM", "TZ", "COLORTERM"];

/// Whether commands in a container may get a variable, whoever names it.
pub(super) fn passes(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    !name.is_empty()
        && !name.contains(['=', '\0', '\n'])
        && !PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
        && !SECRETS.iter().any(|end| upper.ends_with(end) || Some(upper.as_str()) == end.strip_prefix('_'))
        && !crate::protected::lines(include_str!("blocked_variables.txt")).any(|blocked| blocked == upper)
}

/// Whether a variable of the agent passes without anybody naming it.
pub(super) fn is_usual(name: &str) -> bool {
    USUAL.contains(&name) || name.starts_with("LC_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_with_secrets_or_code_do_not_pass() {
        for name in [
            "OPENAI_API_KEY",
            "github_token",
            "TOKEN",
            "DB_PASSWORD",
            "A_SECRET",
            "LD_PRELOAD",
            "DYLD_INSERT_LIBRARIES",
            "BASH_FUNC_ls%%",
            "BASH_ENV",
            "ENV",
            "NODE_OPTIONS",
            "PYTHONPATH",
            "GIT_SSH_COMMAND",
            "RUSTC_WRAPPER",
            "PATH",
            "HOME",
            "HTTPS_PROXY",
            "",
            "A=B",
        ] {
            assert!(!passes(name), "{name}");
        }
        for name in ["LANG", "LC_ALL", "CARGO_TERM_COLOR", "TOKENS", "MY_TOKEN_COUNT", "RUST_LOG"] {
            assert!(passes(name), "{name}");
        }
    }
}
