//! What a server is started with, as a person judges it.

use std::collections::BTreeMap;

use quipu_mcp::{ServerConfig, TransportConfig, visible};

use super::install::is_secret_name;

/// What is run or called, with all that it gets, in one line that is never cut: nobody can judge what is not shown. A value that
/// stands for itself and has the name of a secret is not shown.
pub fn server_summary(config: &ServerConfig) -> String {
    let pairs = |pairs: &BTreeMap<String, String>| {
        let pair = |(name, value): (&String, &String)| match is_secret_name(name) && !value.contains("${") {
            true => format!(" with {name}=…"),
            false => format!(" with {name}={value}"),
        };
        pairs.iter().map(pair).collect::<String>()
    };
    let what = match &config.transport {
        TransportConfig::Stdio { command, args, env, cwd } => {
            let cwd = cwd.as_ref().map_or(String::new(), |cwd| format!(" in {cwd}"));
            format!("runs {command} {}{cwd}{}", args.join(" "), pairs(env))
        }
        TransportConfig::Http { url, headers, .. } => format!("calls {url}{}", pairs(headers)),
    };
    visible(&what).split_whitespace().collect::<Vec<_>>().join(" ")
}
