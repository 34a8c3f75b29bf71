//! Packages of skills and templates: listed, accepted, pinned, used.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use quipu_testkit::Answer;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use crate::pty::{ENTER, Terminal};
use crate::support::*;

fn put(world: &World, path: &str, text: &str) {
    let path = world.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// A package in a directory: two skills, a template, a program, an extension.
fn package(world: &World, directory: &str) {
    let skill =
        |name: &str| format!("---\nname: {name}\ndescription: About {name}.\n---\nDo {name} with care.\n");
    put(world, &format!("{directory}/skills/deploy/SKILL.md"), &skill("deploy"));
    put(world, &format!("{directory}/skills/deploy/scripts/go.sh"), "#!/bin/sh\ntouch ran\n");
    put(world, &format!("{directory}/skills/taken/SKILL.md"), &skill("taken"));
    put(world, &format!("{directory}/prompts/fix.md"), "Fix $1 now.");
    put(world, &format!("{directory}/extensions/index.ts"), "export default 1;");
}

fn prepared(world: &World, source: &str) -> Value {
    world.run(&["packages", "add", source, "--dry-run", "--json"]).ok().json()
}

fn hash_of(world: &World, source: &str) -> String {
    prepared(world, source)["hash"].as_str().unwrap().to_owned()
}

fn installed(world: &World) -> Vec<Value> {
    world.run(&["packages", "--json"]).ok().json_lines()
}

fn answers(world: &World, text: &str) {
    world.server.push(Answer::new().text(text).reply());
}

fn system(world: &World) -> String {
    world.requests().last().unwrap().json()["system"].to_string()
}

#[test]
fn package_is_shown_accepted_by_its_hash_and_used() {
    let world = World::new([]);
    package(&world, "kit");
    std::os::unix::fs::symlink("/etc/passwd", world.path("kit/prompts/link.md")).unwrap();
    put(&world, "home/.quipu/skills/taken/SKILL.md", "---\ndescription: My own.\n---\nMine.\n");
    // Nobody is there to say yes: it is shown and refused.
    let ran = world.run(&["packages", "add", "../kit"]).fails(2, &["only after you confirm", "--hash "]);
    for part in ["deploy", "About deploy.", "/fix", "go.sh", "extension", "link.md (neither", "sha256 "] {
        assert!(ran.text().contains(part), "{part} in {}", ran.text());
    }
    assert_eq!(installed(&world), Vec::<Value>::new());
    let wrong = "0".repeat(64);
    world.run(&["packages", "add", "../kit", "--hash", &wrong]).fails(1, &["its files have the hash"]);
    let hash = hash_of(&world, "../kit");
    world.run(&["packages", "add", "../kit", "--hash", &hash]).ok();
    // The origin may change: what was accepted stays.
    put(&world, "kit/prompts/fix.md", "Break $1 now.");
    let file = world.path(&format!("home/.quipu/packages/{hash}/skills/deploy/SKILL.md"));
    world.server.push(call("c1", "read", &json!({ "path": file })));
    answers(&world, "Read.");
    let ran = world.run(&["-p", "/fix it"]).ok();
    assert!(ran.err.contains("taken") && ran.err.contains("has the same name"), "{}", ran.err);
    let told = system(&world);
    assert!(told.contains("- deploy: About deploy.") && told.contains("- taken: My own."), "{told}");
    let texts: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
    assert!(texts.iter().any(|text| text == "Fix it now."), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("Do deploy with care.")), "{texts:?}");
    assert!(!world.path("work/ran").exists());
    let rows = world.run(&["skills", "--json"]).ok().json_lines();
    let row = rows.iter().find(|row| row["name"] == "deploy").unwrap();
    assert_eq!((&row["scope"], &row["package"]), (&json!("package"), &json!("kit")));
    // What was touched is not used, and says so.
    put(
        &world,
        &format!("home/.quipu/packages/{hash}/skills/deploy/SKILL.md"),
        "---\ndescription: Evil.\n---\n",
    );
    answers(&world, "Hm.");
    let ran = world.run(&["-p", "hello"]).ok();
    assert!(ran.err.contains("the package kit is not used: its files changed"), "{}", ran.err);
    assert!(!system(&world).contains("deploy"));
    assert_eq!(installed(&world)[0]["used"], false);
    // An update shows what is new, and it is used once that is accepted.
    let shown = world.run(&["packages", "update", "kit", "--dry-run"]).ok().text();
    assert!(shown.contains("changed") && shown.contains("prompts/fix.md"), "{shown}");
    let hash = hash_of(&world, "../kit");
    world.run(&["packages", "update", "kit", "--hash", &hash]).ok();
    answers(&world, "Well.");
    world.run(&["-p", "/fix it"]).ok();
    assert_eq!(wire_text(&messages(world.requests().last().unwrap()).pop().unwrap()), "Break it now.");
    assert!(world.run(&["packages", "update"]).ok().err.contains("kit is up to date"));
    world.run(&["packages", "remove", "kit"]).ok();
    assert!(installed(&world).is_empty() && !world.path(&format!("home/.quipu/packages/{hash}")).exists());
    world.run(&["packages", "remove", "kit"]).fails(2, &["there is no package `kit`"]);
}

#[test]
fn person_accepts_a_package_in_a_terminal() {
    let world = World::new([]);
    package(&world, "kit");
    for (answer, count) in [("n", 0), ("y", 1)] {
        let mut terminal = Terminal::open(&world, &["packages", "add", "../kit"]);
        terminal.shows("Use kit?");
        terminal.types(answer);
        terminal.types(ENTER);
        assert_eq!(terminal.ends(), Some(i32::from(count == 0)));
        assert_eq!(installed(&world).len(), count);
    }
}

#[test]
fn agents_and_servers_of_a_package_are_used_once_accepted() {
    let world = World::new([]);
    let script = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../mcp/tests/it/server.py");
    put(&world, "kit/server.py", &std::fs::read_to_string(script).unwrap());
    let log = world.path("tmp/log");
    let server = json!({
        "command": "python3",
        "args": ["${CLAUDE_PLUGIN_ROOT}/server.py", "good"],
        "env": { "SERVER_LOG": log, "KEY": "${PACKAGE_KEY:-none}" },
    });
    put(&world, "kit/.mcp.json", &json!({ "mcpServers": { "helper": server, "bad": 7 } }).to_string());
    put(
        &world,
        "kit/agents/scout.md",
        "---\nname: scout\ndescription: Looks around.\nhooks: x\n---\nLook.\n",
    );
    put(&world, "kit/hooks/hooks.json", "{}");
    let shown = world.run(&["packages", "add", "../kit"]).fails(2, &["only after you confirm"]);
    let text = shown.text();
    for part in [
        "agent     scout",
        "server    helper",
        "runs python3 ${CLAUDE_PLUGIN_ROOT}/server.py good",
        "with KEY=${PACKAGE_KEY:-none}",
        "hooks belong into settings.json",
        "to take one over, read it and add it to `hooks`",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(shown.err.contains("server \"bad\": bad: it must be an object"), "{}", shown.err);
    assert!(!log.exists());
    let hash = hash_of(&world, "../kit");
    let mut terminal = Terminal::open(&world, &["packages", "add", "../kit"]);
    terminal.shows("sessions start its MCP servers (helper) with your rights, outside of the sandbox.");
    terminal.types("y");
    terminal.types(ENTER);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(
        (&installed(&world)[0]["agents"], &installed(&world)[0]["servers"]),
        (&json!(1), &json!(true))
    );
    // Its tools are asked about as those of any server; its agents can be sent.
    world.server.push(call("c1", "mcp__helper__echo", &json!({ "text": "hello" })));
    answers(&world, "Hm.");
    world.run(&["-p", "go on"]).ok();
    let body = world.requests().last().unwrap().json();
    let result = wire_text(&messages(world.requests().last().unwrap()).pop().unwrap());
    assert!(result.contains("it is new here"), "{result}");
    assert!(body["tools"].to_string().contains("scout: Looks around."), "{}", body["tools"]);
    assert!(!std::fs::read_to_string(&log).unwrap().contains("call echo"));
    let listed = world.run(&["mcp", "list", "--json"]).ok().json();
    assert_eq!((&listed["name"], &listed["scope"]), (&json!("helper"), &json!("package")));
    // What was accepted before servers of packages were used is not started.
    std::fs::write(&log, "").unwrap();
    let list = world.path("home/.quipu/packages.json");
    let whole: Value = serde_json::from_str(&std::fs::read_to_string(&list).unwrap()).unwrap();
    let mut old = whole.clone();
    let members = old["packages"][0].as_object_mut().unwrap();
    members.remove("agents");
    members.remove("servers");
    std::fs::write(&list, old.to_string()).unwrap();
    answers(&world, "Hm.");
    world.run(&["-p", "go on"]).ok();
    let tools = world.requests().last().unwrap().json()["tools"].to_string();
    assert!(!tools.contains("helper") && !tools.contains("scout"), "{tools}");
    world.run(&["packages", "update", "kit"]).fails(2, &["only after you confirm"]);
    // Neither is what has another hash than the accepted one.
    std::fs::write(&list, whole.to_string()).unwrap();
    put(&world, &format!("home/.quipu/packages/{hash}/server.py"), "print('evil')");
    answers(&world, "Hm.");
    let ran = world.run(&["-p", "go on"]).ok();
    assert!(ran.err.contains("the package kit is not used: its files changed"), "{}", ran.err);
    assert!(!world.requests().last().unwrap().json()["tools"].to_string().contains("helper"));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "");
}

#[test]
fn hostile_package_is_refused() {
    let world = World::new([]);
    put(&world, "empty/README.md", "nothing");
    world.run(&["packages", "add", "../empty"]).fails(2, &["no skills, templates, agents or MCP servers"]);
    put(&world, "large/skills/a/SKILL.md", "---\ndescription: x\n---\n");
    std::fs::File::create(world.path("large/data")).unwrap().set_len(9 << 20).unwrap();
    world.run(&["packages", "add", "../large"]).fails(1, &["data is larger than 8 MiB"]);
    for at in 0..2_001 {
        put(&world, &format!("many/{at}"), "x");
    }
    world.run(&["packages", "add", "../many"]).fails(1, &["2000"]);
    put(&world, "hidden/skills/a/SKILL.md", "---\ndescription: Adds\u{200b}.\n---\n\u{e0041}\u{e0042}");
    let found = prepared(&world, "../hidden");
    assert!(found["skills"][0]["notes"].to_string().contains("3 invisible characters"), "{found}");
    assert_eq!(found["skills"][0]["description"], "Adds.");
    put(&world, "broken/package.json", "{");
    world.run(&["packages", "add", "../broken"]).fails(1, &["package.json is not valid"]);
    world.run(&["packages", "add", "kit"]).fails(2, &["names no package"]);
    // Nothing is left behind.
    let left: Vec<_> = std::fs::read_dir(world.path("home/.quipu/packages")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A registry: what it sends by path, and the requests that it got.
struct Registry {
    url: String,
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Registry {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let files = Arc::new(Mutex::new(BTreeMap::<String, Vec<u8>>::new()));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (served, seen) = (files.clone(), requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let first = lines.next().unwrap().unwrap();
                let path = first.split(' ').nth(1).unwrap().to_owned();
                let headers: Vec<String> =
                    lines.map(|line| line.unwrap()).take_while(|line| !line.is_empty()).collect();
                let token = headers.iter().find(|line| line.to_lowercase().starts_with("authorization:"));
                seen.lock().unwrap().push(format!("{path} {}", token.map_or("", |line| line.as_str())));
                let found = served.lock().unwrap().get(&path).cloned();
                let status = if found.is_some() { "200 OK" } else { "404 Not Found" };
                let body = found.unwrap_or_default();
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(&body).unwrap();
            }
        });
        Self { url, files, requests }
    }

    /// Publishes a package whose archive has these files.
    fn publish(&self, name: &str, version: &str, tag: &str, files: &[(&str, &str)], integrity: Option<&str>) {
        let mut archive =
            tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (path, text) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, format!("package/{path}"), text.as_bytes()).unwrap();
        }
        let archive = archive.into_inner().unwrap().finish().unwrap();
        let hash = base64::engine::general_purpose::STANDARD.encode(Sha512::digest(&archive));
        let integrity = integrity.map_or_else(|| format!("sha512-{hash}"), str::to_owned);
        let tarball = format!("{}/files/{version}.tgz", self.url);
        let dist = json!({ "tarball": tarball, "integrity": integrity });
        let metadata = json!({ "name": name, "version": version, "dist": dist }).to_string();
        let mut served = self.files.lock().unwrap();
        let escaped = name.replace('/', "%2f");
        for wanted in [version, tag] {
            served.insert(format!("/npm/{escaped}/{wanted}"), metadata.clone().into_bytes());
        }
        served.insert(format!("/files/{version}.tgz"), archive);
    }
}

#[test]
fn npm_package_comes_from_the_registry_of_the_user() {
    let world = World::new([]);
    let registry = Registry::start();
    let skill = "---\ndescription: About it.\n---\nDo it.\n";
    let manifest =
        r#"{"pi":{"skills":["./kit"]},"scripts":{"postinstall":"touch ran"},"dependencies":{"x":"1"}}"#;
    let files = [("package.json", manifest), ("kit/it/SKILL.md", skill), ("index.js", "1")];
    registry.publish("@own/kit", "1.0.0", "latest", &files, None);
    let host = registry.url.strip_prefix("http://").unwrap();
    let config = format!(
        "registry=https://none.invalid/\n@own:registry={}/npm/\n//{host}/npm/:_authToken=token-of-npm\n",
        registry.url
    );
    put(&world, "home/.npmrc", &config);
    // A project has no say in it.
    world.file(".npmrc", "@own:registry=https://evil.invalid/\n");
    let found = prepared(&world, "npm:@own/kit");
    assert_eq!((&found["resolved"], &found["skills"][0]["name"]), (&json!("1.0.0"), &json!("it")));
    assert!(found["notes"].to_string().contains("install scripts are not run"), "{found}");
    let seen = registry.requests.lock().unwrap().clone();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(
        seen[0].starts_with("/npm/@own%2fkit/latest") && seen[0].ends_with("Bearer token-of-npm"),
        "{seen:?}"
    );
    assert_eq!(seen[1], "/files/1.0.0.tgz ");
    let hash = found["hash"].as_str().unwrap();
    world.run(&["packages", "add", "npm:@own/kit", "--hash", hash]).ok();
    assert!(!world.path("work/ran").exists());
    assert_eq!(installed(&world)[0]["resolved"], "1.0.0");
    // The pinned version stays until a person takes another.
    registry.publish("@own/kit", "1.1.0", "latest", &[("skills/new/SKILL.md", skill)], None);
    answers(&world, "Well.");
    world.run(&["-p", "hello"]).ok();
    assert!(system(&world).contains("- it: About it."));
    let shown = world.run(&["packages", "update"]).fails(2, &["only after you confirm"]);
    assert!(shown.text().contains("1.1.0") && shown.text().contains("gone"), "{}", shown.text());
    assert_eq!(installed(&world)[0]["resolved"], "1.0.0");
    // What is not what the registry says is refused, and so is what has no hash.
    let other = base64::engine::general_purpose::STANDARD.encode([0; 64]);
    for integrity in [format!("sha512-{other}"), "sha1-x".to_owned()] {
        registry.publish("@own/bad", "2.0.0", "latest", &files, Some(&integrity));
        world.run(&["packages", "add", "npm:@own/bad"]).fails(1, &["cannot be used"]);
    }
    registry.publish("@own/bad", "3.0.0", "latest", &[], None);
    world
        .run(&["packages", "add", "npm:@own/bad@9.9.9"])
        .fails(1, &["has no package @own/bad with the version 9.9.9"]);
    let mut command = world.quipu(&["packages", "add", "npm:plain", "--dry-run"]);
    command.env("npm_config_registry", format!("{}/npm", registry.url));
    RunningCommand::start(command).wait().fails(1, &["has no package plain"]);
}

fn git(world: &World, args: &[&str]) -> String {
    let mut command = world.command("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b", "-C"]).arg(world.path("kit")).args(args);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn git_package_is_pinned_to_a_commit() {
    let world = World::new([]);
    package(&world, "kit");
    git(&world, &["init", "-q", "-b", "main"]);
    std::os::unix::fs::symlink("/etc/passwd", world.path("kit/skills/deploy/passwd")).unwrap();
    git(&world, &["add", "."]);
    git(&world, &["commit", "-qm", "one"]);
    git(&world, &["tag", "v1"]);
    let first = git(&world, &["rev-parse", "HEAD"]);
    let source = format!("git:file://{}@v1", world.path("kit").display());
    let found = prepared(&world, &source);
    assert_eq!(found["resolved"], first.as_str());
    assert!(found["leftOut"].to_string().contains("skills/deploy/passwd (a link)"), "{found}");
    world.run(&["packages", "add", &source, "--hash", found["hash"].as_str().unwrap()]).ok();
    // The tag moves: what was accepted is used, and an update asks.
    put(&world, "kit/prompts/fix.md", "Another $1.");
    git(&world, &["commit", "-qam", "two"]);
    git(&world, &["tag", "-f", "v1"]);
    answers(&world, "Well.");
    world.run(&["-p", "/fix it"]).ok();
    assert_eq!(wire_text(&messages(world.requests().last().unwrap()).pop().unwrap()), "Fix it now.");
    world.run(&["packages", "update", "kit"]).fails(2, &["only after you confirm"]);
    assert_eq!(installed(&world)[0]["resolved"], first.as_str());
    // The same by its commit, and one that is not there.
    assert_eq!(
        hash_of(&world, &source.replace("@v1", &format!("@{first}"))),
        found["hash"].as_str().unwrap()
    );
    let missing = source.replace("@v1", "@nowhere");
    world.run(&["packages", "add", &missing]).fails(1, &["git failed"]);
    // A package of the same name from elsewhere does not take its place.
    package(&world, "other/kit");
    world.run(&["packages", "add", "../other/kit"]).fails(2, &["a package kit is there already"]);
}
