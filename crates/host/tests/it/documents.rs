//! Every setting that the documents name exists, and the documents name every setting.

use std::sync::Arc;

use quipu_host::settings::{KEYS, settings_schema};
use quipu_host::{Home, SilentObserver};
use quipu_testkit::{Document, documents};
use serde_json::Value;

/// Names in code spans that begin like a setting and are something else.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("session.error", "an event of an agent that is imported"),
    ("session.resume", "an event of an agent that is imported"),
    ("session.shutdown", "an event of an agent that is imported"),
    ("session.idle", "an event of a peer"),
    ("agents.list", "a setting of a gateway"),
    ("session.idleMinutes", "a setting of a gateway"),
    ("session.resetByType", "a setting of a gateway"),
    ("tools.exec", "a setting of a gateway"),
    ("context.sources", "a field of the epoch node"),
    ("context.sections", "a field of the epoch node"),
    ("context.opening", "a field of the epoch node"),
    ("context.keepRecent", "a field of the epoch node"),
    ("search.meaning", "the former name of search.semantic"),
];

/// Ends of file names, which have dots as settings do.
const FILE_ENDS: &[&str] = &["md", "rs", "json", "jsonl", "toml", "lock", "db", "txt", "html"];

/// The members at the top of the schema.
fn sections() -> Vec<String> {
    let schema = settings_schema();
    schema["properties"].as_object().unwrap().keys().cloned().collect()
}

/// Whether the schema has a key or a section of this name.
fn is_setting(schema: &Value, name: &str) -> bool {
    let pointer: String = name.split('.').map(|member| format!("/properties/{member}")).collect();
    schema.pointer(&pointer).is_some()
}

/// The names of `a.{b, c.d}`: `a.b` and `a.c.d`.
fn expanded(name: &str) -> Vec<String> {
    match name.split_once('{').and_then(|(before, rest)| Some((before, rest.strip_suffix('}')?))) {
        Some((before, members)) => {
            members.split(',').map(|member| format!("{before}{}", member.trim())).collect()
        }
        None => vec![name.to_owned()],
    }
}

/// Whether a code span is a name with dots whose first member is one of the schema's.
fn looks_like_a_setting(text: &str, sections: &[String]) -> bool {
    let is_name = |text: &str| text.chars().all(|c| c.is_ascii_alphabetic() || ".{, }".contains(c));
    let Some((first, rest)) = text.split_once('.') else { return false };
    let is_file = FILE_ENDS.contains(&rest);
    is_name(text) && !is_file && sections.iter().any(|section| section == first)
}

/// What is wrong in a file of settings with this text.
fn problems(text: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path().to_owned(), Arc::new(SilentObserver));
    std::fs::write(home.settings_path(), text).unwrap();
    home.config().problems.iter().map(|problem| format!("{problem:?}")).collect()
}

/// Whether a block of JSON is a file of settings: in `settings.md` each is.
fn is_settings_file(page: &Document, text: &str, sections: &[String]) -> bool {
    let Ok(Value::Object(members)) = serde_json::from_str::<Value>(text) else { return false };
    // A line of a trace has a `session`, too.
    let is_trace = members.contains_key("span");
    page.path == "docs/settings.md" || !is_trace && members.keys().any(|name| sections.contains(name))
}

#[test]
fn settings_of_the_documents_exist() {
    let (schema, sections) = (settings_schema(), sections());
    let (mut wrong, mut names, mut files) = (Vec::new(), 0, 0);
    for page in documents() {
        for span in page.spans().iter().filter(|span| looks_like_a_setting(&span.text, &sections)) {
            for name in expanded(&span.text) {
                names += 1;
                if !is_setting(&schema, &name) && !OTHER_NAMES.iter().any(|(other, _)| *other == name) {
                    wrong.push(format!("{}:{}: there is no setting `{name}`", page.path, span.line));
                }
            }
        }
        for block in page.blocks().iter().filter(|block| block.language == "json") {
            if is_settings_file(&page, &block.text, &sections) {
                files += 1;
                let found = problems(&block.text);
                wrong.extend(found.iter().map(|problem| format!("{}:{}: {problem}", page.path, block.line)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(names >= 40 && files >= 4, "{names} names and {files} files were found");
}

#[test]
fn settings_page_has_every_key_of_the_schema() {
    let page = documents().into_iter().find(|page| page.path == "docs/settings.md").unwrap();
    let schema = settings_schema();
    for key in KEYS {
        assert!(is_setting(&schema, key.name), "the schema lacks {}", key.name);
        let row = format!("| `{}`: ", key.name);
        assert!(page.text.lines().any(|line| line.starts_with(&row)), "docs/settings.md lacks {}", key.name);
    }
    assert_eq!(leaves(&schema), KEYS.len() + 1, "the keys and $schema");
}

/// How many members of the schema are no sections.
fn leaves(schema: &Value) -> usize {
    schema["properties"].as_object().map_or(1, |members| members.values().map(leaves).sum())
}

#[test]
fn wrong_settings_are_found() {
    let sections = sections();
    assert!(looks_like_a_setting("context.prun", &sections) && !looks_like_a_setting("search.md", &sections));
    assert!(!is_setting(&settings_schema(), "context.prun"));
    assert_eq!(expanded("search.{tool, semantic}"), ["search.tool", "search.semantic"]);
    assert_eq!(problems(r#"{ "compaction": { "reserve": 1 } }"#).len(), 1);
    assert!(problems(r#"{ "compaction": { "reserveTokens": 1 } }"#).is_empty());
}
