//! `quipu proxy`: the real command between real clients and a fake server.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use quipu_testkit::{Answer, FakeServer, Gate, Reply};
use serde_json::{Value, json};

use crate::peers::{ModelBlock, Reply as ModelReply, Server, installed, required, with_messages_at};
use crate::support::*;

/// A proxy, which is killed with its test.
struct ProxyCommand {
    command: Option<RunningCommand>,
    address: String,
}

fn proxied(world: &World, upstream: &str) -> ProxyCommand {
    let mut command = world.start(&["proxy", "--listen", "127.0.0.1:0", "--upstream", upstream]);
    let line = command.line_with("Serving");
    let address = line.split("http://").nth(1).unwrap().split(';').next().unwrap().to_owned();
    ProxyCommand { command: Some(command), address }
}

impl Drop for ProxyCommand {
    fn drop(&mut self) {
        if let Some(command) = self.command.take() {
            command.signal(Signal::SIGKILL);
        }
    }
}

impl ProxyCommand {
    fn ends(&mut self, signal: Signal) -> CommandOutput {
        let command = self.command.take().unwrap();
        command.signal(signal);
        command.wait()
    }

    fn begins(&self, turns: &[&str]) -> TcpStream {
        let turns = turns.iter().enumerate().map(|(at, text)| {
            let role = if at % 2 == 0 { "user" } else { "assistant" };
            json!({ "role": role, "content": text })
        });
        let body = json!({
            "model": "m", "max_tokens": 9, "stream": true, "messages": turns.collect::<Vec<_>>(),
            "metadata": { "user_id": "user_a_account__session_talk" },
        });
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        write!(
            stream,
            "POST /v1/messages HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nUser-Agent: some-cli/1\r\nX-Api-Key: {KEY}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        stream
    }

    fn says(&self, turns: &[&str]) -> String {
        let mut answer = String::new();
        self.begins(turns).read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let head = answer.split("\r\n\r\n").next().unwrap().to_owned();
        let events = answer.lines().filter_map(|line| line.strip_prefix("data: "));
        let events = events.filter_map(|data| serde_json::from_str::<Value>(data).ok());
        let text: String =
            events.filter_map(|event| event["delta"]["text"].as_str().map(str::to_owned)).collect();
        format!("{head}\r\n\r\n{text}")
    }
}

/// The session of this name, when it has so many entries.
fn kept(world: &World, entries: u64) -> Value {
    for _ in 0..600 {
        let all = world.sessions();
        let found = all.into_iter().find(|row| row["session"] == "talk" || row["id"] == "talk");
        if let Some(found) = found.filter(|row| row["entries"] == entries) {
            return found;
        }
    }
    panic!("{entries} entries are not kept: {:?}", world.sessions());
}

#[test]
fn kills_lose_at_most_the_exchange_under_way() {
    let gate = Gate::new();
    let server = FakeServer::start([
        Answer::new().text("One.").reply(),
        Reply::sse(Answer::new().text("Half").unfinished()).then_gate(&gate),
        Answer::new().text("Two.").reply(),
    ]);
    let world = World::new([]);
    let mut proxy = proxied(&world, &server.url());
    proxy.says(&["First?"]);
    kept(&world, 2);
    let client = proxy.begins(&["First?", "One.", "Second?"]);
    reached(&gate);
    proxy.ends(Signal::SIGKILL);
    drop(client);
    let row = kept(&world, 2);
    assert_eq!((&row["agent"], &row["title"]), (&json!("some-cli"), &json!("First?")));
    let mut proxy = proxied(&world, &server.url());
    assert!(proxy.says(&["First?", "One.", "Second?"]).contains("Two."));
    let ended = proxy.ends(Signal::SIGTERM).exits(143);
    assert!(ended.err.contains("1 exchanges kept, 0 not readable, 0 lost"), "{}", ended.err);
    kept(&world, 4);
    let shown = world.run(&["show", "talk"]).ok().text();
    assert!(shown.contains("Second?"), "{shown}");
    assert!(world.run(&["search", "Second"]).ok().text().contains("Second?"));
}

#[test]
fn jumps_are_confirmed_listed_and_released_by_command() {
    let server = FakeServer::start(["One.", "Two.", "Three."].map(|text| Answer::new().text(text).reply()));
    let world = World::new([]);
    let mut proxy = proxied(&world, &server.url());
    world.run(&["proxy", "status"]).ok();
    proxy.says(&["First?"]);
    kept(&world, 2);
    proxy.says(&["First?", "One.", "Second?"]);
    kept(&world, 4);
    let nodes = world.nodes_of(&["talk"]);
    let first = nodes.iter().find(|node| node.to_string().contains("One.")).unwrap();
    let first = first["id"].as_str().unwrap();
    let line = format!("quipu: tobe {first}\nSecond was wrong.");
    let answer = proxy.says(&["First?", "One.", "Second?", "Two.", &line]);
    assert!(answer.contains("quipu proxy confirm "), "{answer}");
    let status = world.run(&["proxy", "status", "--json"]).ok().json_lines();
    assert_eq!((&status[0]["state"], &status[0]["session"]), (&json!("asked"), &json!("talk")));
    let id = status[0]["id"].as_str().unwrap();
    world.run(&["proxy", "confirm", "no-such"]).fails(2, &["no jump is asked for", "quipu proxy status"]);
    world.run(&["proxy", "confirm", id]).ok();
    assert!(world.run(&["proxy", "status"]).ok().text().contains("requests go out as of"));

    // In force across a kill.
    proxy.ends(Signal::SIGKILL);
    let mut proxy = proxied(&world, &server.url());
    let answer = proxy.says(&["First?", "One.", "Second?", "Two.", &line, "Confirm it.", "Third?"]);
    assert!(answer.contains("quipu-proxy-tobe: ") && answer.contains("Three."), "{answer}");
    let sent = server.requests().pop().unwrap().json();
    let text = sent["messages"].to_string();
    assert!(text.contains("Second was wrong.") && text.contains("Third?"), "{text}");
    assert!(!text.contains("Second?") && !text.contains("Two."), "{text}");
    let ended = proxy.ends(Signal::SIGINT).exits(130);
    assert!(ended.err.contains("request sent as of"), "{}", ended.err);
    world.run(&["proxy", "release", "talk"]).ok();
    assert_eq!(world.run(&["proxy", "status", "--json"]).ok().text(), "");
    assert!(world.run(&["trace", "talk"]).ok().text().contains("Second was wrong."));
}

#[test]
fn addresses_that_are_not_safe_are_refused() {
    let world = World::new([]);
    world.run(&["proxy", "--listen", "0.0.0.0:0"]).fails(2, &["not an address of this machine alone"]);
    world
        .run(&["proxy", "--upstream", "http://example.com"])
        .fails(2, &["neither https nor on this machine"]);
    world.run(&["proxy", "--upstream", "mail=https://example.com"]).fails(2, &["not a wire"]);
    world.run(&["proxy", "confirm", "x"]).fails(2, &["there are no sessions yet"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    world.run(&["proxy", "--listen", &address]).fails(1, &["cannot be listened at", "another port"]);
    let own = format!("http://{address}");
    drop(taken);
    world.run(&["proxy", "--listen", &address, "--upstream", &own]).fails(2, &["the proxy itself"]);
}

/// A model that answers these, one after the other.
fn answers(texts: &[&'static str]) -> Server {
    let server = Server::start();
    let replies: Vec<ModelReply> =
        texts.iter().map(|text| ModelReply::Says(vec![ModelBlock::Text(text)])).collect();
    server.load(&replies);
    server
}

fn ran(command: std::process::Command) -> CommandOutput {
    let ran = RunningCommand::start(command).wait();
    println!("{:?}\n{}\n{}", ran.status, ran.text(), ran.err);
    ran
}

/// The conversation of the only session that is beside no other, as a text.
fn only_session(world: &World) -> (Value, String) {
    let all = world.sessions();
    let is_child = |row: &Value| row.to_string().contains("\"child-");
    let own: Vec<&Value> = all.iter().filter(|row| !is_child(row)).collect();
    assert_eq!(own.len(), 1, "{all:?}");
    let id = own[0]["session"].as_str().or(own[0]["id"].as_str()).unwrap();
    (own[0].clone(), world.run(&["export", "--format", "markdown", id]).ok().text())
}

#[test]
fn peer_with_projects_talks_through_the_proxy() {
    let Some(program) = installed(&["@anthropic-ai", "claude-code-*", "claude"]) else { return };
    let world = World::new([]);
    let model = answers(&["Blue.", "Green."]);
    let mut proxy = proxied(&world, &model.url);
    for args in [&["-p", "Which paint?"][..], &["-c", "-p", "And for the gate?"]] {
        let mut command = world.command(&program);
        command.args(args);
        with_messages_at(&mut command, &format!("http://{}", proxy.address));
        ran(command).ok();
    }
    let ended = proxy.ends(Signal::SIGTERM).exits(143);
    assert!(ended.err.contains("0 lost"), "{}", ended.err);
    let (row, text) = only_session(&world);
    for part in ["Which paint?", "Blue.", "And for the gate?", "Green."] {
        assert!(text.contains(part), "{row}: {text}");
    }
    assert_eq!(row["entries"].as_u64().map(|count| count < 8), Some(true), "{row}");
}

#[test]
fn peer_with_rollouts_talks_through_the_proxy() {
    let Some(program) = required(&["@openai", "codex-*", "vendor", "*", "bin", "codex"]) else { return };
    let world = World::new([]);
    let model = answers(&["Blue.", "Green."]);
    let mut proxy = proxied(&world, &model.url);
    let home = world.path("home/.codex");
    std::fs::create_dir_all(&home).unwrap();
    let settings = format!(
        "model = \"m\"\nmodel_provider = \"fake\"\ncheck_for_update_on_startup = false\n\
         [model_providers.fake]\nname = \"fake\"\nbase_url = \"http://{}/v1\"\nwire_api = \"responses\"\nenv_key = \"PEER_KEY\"\n\
         request_max_retries = 0\nstream_max_retries = 0\n[analytics]\nenabled = false\n[otel]\nexporter = \"none\"\n",
        proxy.address
    );
    std::fs::write(home.join("config.toml"), settings).unwrap();
    let flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];
    for args in [
        &["exec", flags[0], flags[1], "Which paint?"][..],
        &["exec", flags[0], flags[1], "resume", "--last", "And for the gate?"],
    ] {
        let mut command = world.command(&program);
        command.args(args).env("CODEX_HOME", &home).env("PEER_KEY", "k").env("NO_PROXY", "127.0.0.1");
        ran(command).ok();
    }
    let ended = proxy.ends(Signal::SIGTERM).exits(143);
    assert!(ended.err.contains("0 lost"), "{}", ended.err);
    let (row, text) = only_session(&world);
    for part in ["Which paint?", "Blue.", "And for the gate?", "Green."] {
        assert!(text.contains(part), "{row}: {text}");
    }
}

#[test]
fn peer_with_models_in_a_file_talks_through_the_proxy() {
    let program = ["@earendil-works", "pi-coding-agent", "dist", "bundle", "cli.js"];
    let (Some(node), Some(program)) = (required(&["node", "bin", "node"]), required(&program)) else {
        return;
    };
    let world = World::new([]);
    let model = answers(&["Blue.", "Green."]);
    let mut proxy = proxied(&world, &model.url);
    let models = json!({ "providers": { "fake": { "baseUrl": format!("http://{}", proxy.address), "api": "anthropic-messages",
        "apiKey": "k", "models": [{ "id": "m", "contextWindow": 100_000 }] } } });
    let agent = world.path("home/.pi/agent");
    std::fs::create_dir_all(&agent).unwrap();
    std::fs::write(agent.join("models.json"), models.to_string()).unwrap();
    for args in [&["-p", "Which paint?"][..], &["-c", "-p", "And for the gate?"]] {
        let mut command = world.command(&node);
        command.arg(&program).args(["--model", "fake/m"]).args(args);
        command.env("PI_OFFLINE", "1").env("NO_PROXY", "127.0.0.1");
        ran(command).ok();
    }
    let ended = proxy.ends(Signal::SIGTERM).exits(143);
    assert!(ended.err.contains("0 lost"), "{}", ended.err);
    let (row, text) = only_session(&world);
    for part in ["Which paint?", "Blue.", "And for the gate?", "Green."] {
        assert!(text.contains(part), "{row}: {text}");
    }
}

#[test]
fn signals_that_the_parent_blocks_end_it_all_the_same() {
    let world = World::new([]);
    // The mask of a thread is inherited by what it starts.
    let blocked = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    blocked.thread_block().unwrap();
    let mut proxy = proxied(&world, "messages=http://127.0.0.1:1");
    blocked.thread_unblock().unwrap();
    let ended = proxy.ends(Signal::SIGINT);
    let said = ended.exits(130).err;
    assert!(said.contains("0 exchanges kept"), "{said}");
}
