//! Words that belong to one room of the house. Comments are free: only code and string literals are read.

use super::Finding;
use crate::repo::{Repo, Role, RustFile, crate_of};
use crate::rust_source::has_word;

/// Makers of models and of other agents, in lower case; found anywhere in code or literals, in any case.
const VENDORS: &[&str] = &[
    "anthropic",
    "bedrock",
    "cerebras",
    "chatgpt",
    "claude",
    "codex",
    "copilot",
    "deepseek",
    "fireworks",
    "gemini",
    "groq",
    "huggingface",
    "kimi",
    "llama",
    "lmstudio",
    "minimax",
    "mistral",
    "moonshot",
    "openai",
    "opencode",
    "openrouter",
    "qwen",
    "vertexai",
    "vertex-ai",
];
/// Folders of makers whose names are also those of hosts, browsers and accounts, and so stand elsewhere.
const VENDOR_FOLDERS: &[&str] = &["google"];
/// File names that projects really have; a name on disk couples us to no vendor.
const FREE_LITERALS: &[&str] = &["CLAUDE.md", "CLAUDE.MD", "CLAUDE.local.md"];

const SQL: &[&str] = &[
    "ALTER TABLE ",
    "BEGIN IMMEDIATE",
    "CREATE INDEX ",
    "CREATE TABLE ",
    "CREATE TEMP ",
    "CREATE TRIGGER ",
    "CREATE VIEW ",
    "CREATE VIRTUAL ",
    "DELETE FROM ",
    "DROP TABLE ",
    "INSERT INTO ",
    "INSERT OR ",
    "PRAGMA ",
    "REPLACE INTO ",
];

/// Words by which a pure crate would read a clock, draw a random number or touch the machine.
const IMPURE: &[&str] = &[
    "std::env",
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant",
    "tokio",
    "rand",
    "getrandom",
    "now_v7",
    "new_v4",
    "now",
];
const PURE_CRATES: &[&str] =
    &["protocol", "dag", "transcript", "seal", "machine", "rules", "outbound", "policy", "persona"];

fn rust(repo: &Repo) -> impl Iterator<Item = (&str, &RustFile)> {
    repo.rust.iter().map(|(path, file)| (path.as_str(), file))
}

pub(crate) fn vendors(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in rust(repo) {
        let Some(name) = crate_of(path).filter(|name| *name != "xtask") else { continue };
        let home = matches!(name, "providers" | "archive" | "integrations");
        let folder = path
            .strip_prefix("crates/")
            .and_then(|path| path.split_once("/src/"))
            .and_then(|(_, path)| path.split_once('/'));
        let own_folder = folder.is_some_and(|(folder, _)| {
            VENDOR_FOLDERS.contains(&folder) || VENDORS.iter().any(|vendor| folder.contains(vendor))
        });
        if home && (own_folder || file.role == Role::Test) || file.role == Role::Data {
            continue;
        }
        let mut report = |line: usize, text: &str, code: bool| {
            let text = text.to_lowercase();
            if let Some(vendor) = VENDORS.iter().find(|vendor| text.contains(**vendor)) {
                if home && code && names_module(&text, vendor) {
                    return;
                }
                let home = "providers/src/<vendor>/, archive/src/<agent>/ or data";
                findings.push(Finding::fault(path, line, format!("{vendor:?} is named outside {home}")));
            }
        };
        file.source.lines().for_each(|(line, code)| report(line, code, true));
        for literal in &file.source.literals {
            // What a test feeds in or expects back is data.
            if !FREE_LITERALS.contains(&literal.text.as_str()) && !file.is_test(literal.line) {
                report(literal.line, &literal.text, false);
            }
        }
    }
    findings
}

/// True for `mod vendor;`, imports and paths through it: somewhere the adapters have to be listed.
fn names_module(line: &str, vendor: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().take(3).collect();
    let declared = words.iter().any(|word| *word == "mod" || *word == "use");
    declared
        || line.match_indices(vendor).all(|(at, _)| {
            let rest = line[at..].trim_start_matches(|next: char| next.is_alphanumeric() || next == '_');
            rest.starts_with("::")
        })
}

pub(crate) fn sql(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    // The kit for tests is another program on the same tables, too.
    let free = |path: &str| matches!(crate_of(path), Some("store" | "testkit" | "xtask"));
    for (path, file) in rust(repo).filter(|(path, _)| !free(path)) {
        for literal in &file.source.literals {
            let text = literal.text.split_whitespace().collect::<Vec<_>>().join(" ") + " ";
            let select = text.find("SELECT ").is_some_and(|at| text[at..].contains(" FROM ") || at == 0);
            let update = text.find("UPDATE ").is_some_and(|at| text[at..].contains(" SET "));
            if select || update || SQL.iter().any(|word| text.contains(word)) {
                findings.push(Finding::fault(path, literal.line, "SQL outside crates/store"));
            }
        }
        for (line, _) in file.source.lines().filter(|(_, code)| has_word(code, "rusqlite")) {
            findings.push(Finding::fault(path, line, "rusqlite outside crates/store"));
        }
    }
    findings
}

/// Tests of the command that speak to it as a client of the protocol.
const CLIENTS: [&str; 2] = ["crates/cli/tests/it/mcp_server/", "crates/cli/tests/it/acp/"];

pub(crate) fn json_rpc(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in rust(repo).filter(|(path, _)| {
        !CLIENTS.iter().any(|clients| path.starts_with(clients))
            && !matches!(crate_of(path), Some("rpc" | "acp" | "mcp" | "mcp-server" | "extensions" | "xtask"))
    }) {
        let code = file.source.lines().map(|(line, code)| (line, code.to_lowercase()));
        let literals = file.source.literals.iter().map(|literal| (literal.line, literal.text.to_lowercase()));
        for (line, text) in code.chain(literals) {
            if ["jsonrpc", "json_rpc", "json-rpc"].iter().any(|word| text.contains(word)) {
                findings.push(Finding::fault(path, line, "JSON-RPC outside rpc, acp, mcp and extensions"));
            }
        }
    }
    findings
}

/// A library that prints writes into the terminal of whoever embeds it.
pub(crate) fn print(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in rust(repo) {
        if matches!(crate_of(path), Some("cli" | "xtask"))
            || matches!(file.role, Role::Example | Role::BuildScript)
        {
            continue;
        }
        for (line, code) in file.source.lines().filter(|(line, _)| !file.is_test(*line)) {
            for word in ["println!", "print!", "eprintln!", "eprint!"] {
                if has_word(code, word) {
                    findings.push(Finding::fault(
                        path,
                        line,
                        format!("{word} outside cli, xtask and examples"),
                    ));
                }
            }
        }
    }
    findings
}

pub(crate) fn unfinished(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in rust(repo) {
        for (line, code) in file.source.lines() {
            for word in ["todo!", "unimplemented!", "dbg!"] {
                if has_word(code, word) {
                    findings.push(Finding::fault(path, line, format!("{word} is left in the code")));
                }
            }
        }
    }
    findings
}

/// An exception from a lint stands beside its line, and says why.
pub(crate) fn lints(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in rust(repo) {
        let code = &file.source.code;
        for (start, marker) in ["#![allow", "#![expect", "#[allow", "#[expect"]
            .iter()
            .flat_map(|marker| code.match_indices(marker))
        {
            let line = 1 + code[..start].matches('\n').count();
            let attribute = &code[start..start + code[start..].find(']').unwrap_or(0)];
            if marker.ends_with("allow") {
                let message =
                    format!("{marker}]: use #[expect(.., reason = \"..\")], which tells when it is over");
                findings.push(Finding::fault(path, line, message));
            } else if !has_word(attribute, "reason") {
                findings.push(Finding::fault(path, line, format!("{marker}] without a reason")));
            }
        }
    }
    findings
}

/// Pure crates take time, randomness and bytes as arguments.
pub(crate) fn pure(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in rust(repo) {
        if !crate_of(path).is_some_and(|name| PURE_CRATES.contains(&name)) || file.role != Role::Source {
            continue;
        }
        for (line, code) in file.source.lines().filter(|(line, _)| !file.is_test(*line)) {
            for word in IMPURE {
                let called = *word != "now" || code.contains("::now(");
                if called && has_word(code, word) {
                    findings.push(Finding::fault(path, line, format!("a pure crate may not mention {word}")));
                }
            }
            for word in grouped_std_modules(code) {
                if IMPURE.contains(&format!("std::{word}").as_str()) {
                    findings.push(Finding::fault(
                        path,
                        line,
                        format!("a pure crate may not mention std::{word}"),
                    ));
                }
            }
        }
    }
    findings
}

/// The modules of `use std::{a, b::c};`, when it stands on one line.
fn grouped_std_modules(code: &str) -> impl Iterator<Item = &str> {
    let group = code.split_once("std::{").map_or("", |(_, group)| group);
    group.split([',', '{', '}']).map(|item| item.trim().split("::").next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::expect;

    #[test]
    fn vendors_stay_at_home() {
        let code = "// Anthropic is free in comments\nfn use_OpenAi() {}\nconst X: &str = \"https://api.anthropic.com\";\nconst Y: &str = \"CLAUDE.md\";\n";
        expect(
            vendors,
            &[
                ("crates/engine/src/lib.rs", code),
                ("crates/engine/tests/it.rs", "const K: &str = \"claude-x\";\nfn claude() {}"),
                ("crates/providers/src/anthropic/wire.rs", code),
                (
                    "crates/providers/src/lib.rs",
                    "pub mod anthropic;\nlet x = [anthropic::adapter()];\nlet ollama = 1;\npub use anthropic::AnthropicWire;",
                ),
                ("crates/providers/src/shared/sse.rs", "fn for_mistral() {}"),
                ("crates/providers/tests/wire.rs", code),
                ("crates/seal/src/data/kinds.rs", code),
                ("crates/engine/docs/models.md", "Claude"),
            ],
            &[
                "crates/engine/src/lib.rs:2: \"openai\" is named outside providers/src/<vendor>/, archive/src/<agent>/ or data",
                "crates/engine/src/lib.rs:3: \"anthropic\" is named outside providers/src/<vendor>/, archive/src/<agent>/ or data",
                "crates/engine/tests/it.rs:2: \"claude\" is named outside providers/src/<vendor>/, archive/src/<agent>/ or data",
                "crates/providers/src/lib.rs:3: \"llama\" is named outside providers/src/<vendor>/, archive/src/<agent>/ or data",
                "crates/providers/src/shared/sse.rs:1: \"mistral\" is named outside providers/src/<vendor>/, archive/src/<agent>/ or data",
            ],
        );
    }

    #[test]
    fn sql_stays_in_store() {
        let code = "let a = \"SELECT id\n  FROM nodes\";\nlet b = \"Select a model from the list\";\nlet c = \"UPDATE refs SET x\";\nuse rusqlite::Row;\n";
        expect(
            sql,
            &[("crates/store/src/lib.rs", code), ("crates/cli/src/main.rs", code)],
            &[
                "crates/cli/src/main.rs:1: SQL outside crates/store",
                "crates/cli/src/main.rs:4: SQL outside crates/store",
                "crates/cli/src/main.rs:5: rusqlite outside crates/store",
            ],
        );
    }

    #[test]
    fn json_rpc_stays_with_the_wires_that_speak_it() {
        let code = "struct JsonRpcId;\nlet x = \"jsonrpc\";";
        expect(
            json_rpc,
            &[("crates/rpc/src/lib.rs", code), ("crates/engine/src/lib.rs", code)],
            &[
                "crates/engine/src/lib.rs:1: JSON-RPC outside rpc, acp, mcp and extensions",
                "crates/engine/src/lib.rs:2: JSON-RPC outside rpc, acp, mcp and extensions",
            ],
        );
    }

    #[test]
    fn libraries_do_not_print() {
        let code = "fn a() {\n    eprintln!(\"x\");\n    writeln!(out, \"println!\");\n}\n#[cfg(test)]\nmod tests {\n    fn b() { println!() }\n}\n";
        expect(
            print,
            &[
                ("crates/dag/src/lib.rs", code),
                ("crates/cli/src/main.rs", code),
                ("crates/dag/examples/x.rs", code),
                ("crates/dag/build.rs", code),
            ],
            &["crates/dag/src/lib.rs:2: eprintln! outside cli, xtask and examples"],
        );
    }

    #[test]
    fn unfinished_code_is_found() {
        expect(
            unfinished,
            &[(
                "crates/dag/src/lib.rs",
                "fn a() { todo!() } // todo!\nfn b() { x.unimplemented!(\"todo!\") }\nfn c() { not_todo!() }",
            )],
            &[
                "crates/dag/src/lib.rs:1: todo! is left in the code",
                "crates/dag/src/lib.rs:2: unimplemented! is left in the code",
            ],
        );
    }

    #[test]
    fn exceptions_from_lints_say_why() {
        let code = "#![allow(dead_code)]\n#[allow(unused)]\n#[expect(unused)]\n#[expect(\n  unused,\n  reason = \"x\",\n)]\n#![expect(unused)]\nconst A: &str = \"#![allow\";\n";
        expect(
            lints,
            &[("crates/dag/src/lib.rs", code)],
            &[
                "crates/dag/src/lib.rs:1: #![allow]: use #[expect(.., reason = \"..\")], which tells when it is over",
                "crates/dag/src/lib.rs:2: #[allow]: use #[expect(.., reason = \"..\")], which tells when it is over",
                "crates/dag/src/lib.rs:3: #[expect] without a reason",
                "crates/dag/src/lib.rs:8: #![expect] without a reason",
            ],
        );
    }

    #[test]
    fn pure_crates_know_no_machine() {
        let code = "use std::{collections::BTreeMap, fs};\nuse std::time::Instant;\nfn now() {}\nlet t = Timestamp::now();\nlet operand = 1;\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        expect(
            pure,
            &[
                ("crates/dag/src/lib.rs", code),
                ("crates/store/src/lib.rs", code),
                ("crates/dag/tests/it.rs", code),
            ],
            &[
                "crates/dag/src/lib.rs:1: a pure crate may not mention std::fs",
                "crates/dag/src/lib.rs:2: a pure crate may not mention Instant",
                "crates/dag/src/lib.rs:4: a pure crate may not mention now",
            ],
        );
    }
}
