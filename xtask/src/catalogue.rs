//! The catalogue of models, made from the model table of a published package.
//!
//! The transformation is pure ([`convert`]); around it, npm fetches the package and tar unpacks it. The result
//! is written to `crates/providers/data/models.json`: one model a line, sorted, so that a new version of the
//! table reads well as a difference.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

const PACKAGE: &str = "@earendil-works/pi-ai";
/// Where the package keeps one JSON file per provider: models by wire, then by kind and id.
const TABLES: &str = "package/dist/providers/data";
const OUTPUT: &str = "crates/providers/data/models.json";

/// What a line holds, in this order, where the table has it.
const MEMBERS: [&str; 13] = [
    "id",
    "name",
    "api",
    "baseUrl",
    "reasoning",
    "thinkingLevelMap",
    "input",
    "cost",
    "contextWindow",
    "maxTokens",
    "samplingParams",
    "headers",
    "compat",
];

/// Headers that would pass us off as another program.
const IDENTITIES: [&str; 4] =
    ["user-agent", "editor-version", "editor-plugin-version", "copilot-integration-id"];

/// `catalogue [--version V]`: fetches the package (its latest version by default) and writes the catalogue.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    let version = match arguments {
        [] => "latest",
        [flag, version] if flag == "--version" => version,
        _ => bail!("usage: cargo xtask catalogue [--version V]"),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent directory")?;
    let directory = Scratch::new()?;
    let packed = command(
        Command::new("npm").args(["pack", "--silent", &format!("{PACKAGE}@{version}")]),
        &directory.0,
    )?;
    let archive = packed.lines().last().context("npm pack named no file")?.trim().to_owned();
    command(Command::new("tar").args(["-xzf", &archive]), &directory.0)?;

    let manifest = read(&directory.0.join("package/package.json"))?;
    let version = manifest["version"].as_str().context("the package has no version")?;
    let mut tables = BTreeMap::new();
    for file in
        std::fs::read_dir(directory.0.join(TABLES)).context("the package keeps its tables elsewhere now")?
    {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        // A hidden file describes the others.
        if let Some(provider) = name.strip_suffix(".json").filter(|provider| !provider.starts_with('.')) {
            tables.insert(provider.to_owned(), read(&file.path())?);
        }
    }
    let name = format!("{PACKAGE}@{version}");
    let times = command(Command::new("npm").args(["view", &name, "time", "--json"]), &directory.0)?;
    let times: Value = serde_json::from_str(&times).context("npm view did not print JSON")?;
    let date = times[version].as_str().and_then(|time| time.get(..10)).context("the version has no date")?;
    let (text, count) = convert(version, date, &tables)?;
    let output = root.join(OUTPUT);
    std::fs::write(&output, text).with_context(|| format!("cannot write {}", output.display()))?;
    println!("{OUTPUT}: {count} models of {} providers from {PACKAGE} {version}", tables.len());
    Ok(true)
}

/// The catalogue's text and how many models it holds.
fn convert(version: &str, date: &str, tables: &BTreeMap<String, Value>) -> Result<(String, usize)> {
    let mut count = 0;
    let source = serde_json::json!({ "package": PACKAGE, "version": version, "date": date });
    let mut text = format!("{{\"source\":{source},\n\"providers\":{{");
    let mut first = true;
    for (provider, table) in tables {
        let mut models = BTreeMap::new();
        for (wire, by_key) in
            table.as_object().with_context(|| format!("{provider}: the table is no object"))?
        {
            for (key, model) in
                by_key.as_object().with_context(|| format!("{provider}: {wire} is no object"))?
            {
                // The tables also hold classifiers and image generators.
                if model.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "chat") {
                    continue;
                }
                let model = line(model).with_context(|| format!("{provider}: {key}"))?;
                let id = model["id"].as_str().unwrap_or_default().to_owned();
                ensure!(models.insert(id, model).is_none(), "{provider}: {key} occurs twice");
            }
        }
        if models.is_empty() {
            continue;
        }
        text.push_str(if first { "\n" } else { ",\n" });
        first = false;
        text.push_str(&Value::from(provider.as_str()).to_string());
        text.push_str(":[\n");
        count += models.len();
        let lines: Vec<_> = models.into_values().map(|model| Value::Object(model).to_string()).collect();
        text.push_str(&lines.join(",\n"));
        text.push_str("\n]");
    }
    text.push_str("\n}}\n");
    Ok((text, count))
}

/// One model in our members and their order.
fn line(model: &Value) -> Result<Map<String, Value>> {
    let mut line = Map::new();
    for member in MEMBERS {
        let Some(value) = model.get(member) else { continue };
        let mut value = value.clone();
        if member == "headers"
            && let Some(headers) = value.as_object_mut()
        {
            headers.retain(|name, _| !IDENTITIES.contains(&name.to_ascii_lowercase().as_str()));
        }
        if value.as_object().is_none_or(|object| !object.is_empty()) {
            line.insert(member.to_owned(), value);
        }
    }
    for member in ["id", "name", "api", "baseUrl", "input", "cost", "contextWindow", "maxTokens"] {
        ensure!(line.contains_key(member), "it has no {member}");
    }
    Ok(line)
}

fn read(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))
}

fn command(command: &mut Command, directory: &Path) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.current_dir(directory).output().with_context(|| format!("{program} cannot be started"))?;
    ensure!(output.status.success(), "{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A directory that is gone when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("quipu-catalogue-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left to the system's own cleaning when it fails.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_become_one_model_a_line() {
        let model = |id: &str| {
            serde_json::json!({"type": "chat", "provider": "p", "maxTokens": 2, "contextWindow": 1, "id": id,
                "name": "N", "api": "w", "baseUrl": "u", "reasoning": false, "input": ["text"], "cost": {"input": 1},
                "headers": {"User-Agent": "Other/1"}, "inputLimits": {}})
        };
        let image = serde_json::json!({"type": "image", "id": "i"});
        let table =
            serde_json::json!({"w": {"chat:b": model("b"), "image:i": image}, "v": {"chat:a": model("a")}});
        let empty = serde_json::json!({"w": {"image:i": image}});
        let tables = BTreeMap::from([("p".to_owned(), table), ("q".to_owned(), empty)]);
        let expect = r#"{"source":{"package":"@earendil-works/pi-ai","version":"1","date":"2026-01-02"},
"providers":{
"p":[
{"id":"a","name":"N","api":"w","baseUrl":"u","reasoning":false,"input":["text"],"cost":{"input":1},"contextWindow":1,"maxTokens":2},
{"id":"b","name":"N","api":"w","baseUrl":"u","reasoning":false,"input":["text"],"cost":{"input":1},"contextWindow":1,"maxTokens":2}
]
}}
"#;
        assert_eq!(convert("1", "2026-01-02", &tables).unwrap(), (expect.to_owned(), 2));
    }
}
