//! The three ways of the README to a first task, each from a home that has nothing in it: its commands, run as they
//! stand there by a shell. The providers are servers of ours behind a proxy, under the names that the program knows.

use quipu_testkit::{
    Answer, Authority, CapturedRequest, FakeProxy, FakeServer, Reply, Validity, Wire, documents,
};
use serde_json::json;

use crate::support::*;

/// The commands below a heading of the README.
fn commands(heading: &str) -> Vec<String> {
    let page = documents().into_iter().find(|page| page.path == "README.md").unwrap();
    let at = page.text.lines().position(|line| line == heading).expect("the heading") + 1;
    let block = page.blocks().into_iter().find(|block| block.line > at).expect("a block");
    assert_eq!(block.language, "sh", "{heading}");
    block.text.lines().map(str::to_owned).collect()
}

/// A world without a home directory of ours, in which a model writes a file.
fn empty_world() -> World {
    let world = World::new([]);
    std::fs::remove_dir_all(world.path("home/.quipu")).unwrap();
    world.file("key.txt", format!("{KEY}\n"));
    world
}

/// The model's part of the task.
fn script(wire: Wire) -> [Reply; 2] {
    let arguments = json!({ "path": "fixed.txt", "content": "it passes\n" }).to_string();
    [
        Answer::on(wire).tool_call("call_1", "write", &arguments).reply(),
        Answer::on(wire).text("The test passes now.").reply(),
    ]
}

/// Runs the commands one by one; the task must be done after the last.
fn follow(world: &World, commands: &[String], environment: &[(&str, &str)]) {
    let program = std::path::Path::new(&world.program).parent().unwrap().to_owned();
    let mut printed = String::new();
    for command in commands {
        let mut shell = world.command("sh");
        shell.args(["-c", command]).env("PATH", format!("{}:/usr/bin:/bin", program.display()));
        shell.envs(environment.iter().copied());
        printed = RunningCommand::start(shell).wait().ok().text();
    }
    assert_eq!(printed, "The test passes now.\n");
    assert_eq!(std::fs::read_to_string(world.path("work/fixed.txt")).unwrap(), "it passes\n");
}

/// A server under these names, which the variables lead to.
fn provider(
    world: &World,
    hosts: &[&str],
    script: Vec<Reply>,
) -> (FakeServer, FakeProxy, [(&'static str, String); 2]) {
    let authority = Authority::new("Private");
    let server = FakeServer::start_tls(script, &authority.issue(hosts, Validity::Now));
    let proxy = FakeProxy::to(&server);
    let trusted = world.path("tmp/ca.pem");
    std::fs::write(&trusted, authority.pem()).unwrap();
    let environment = [
        ("HTTPS_PROXY", format!("http://{}", proxy.address())),
        ("SSL_CERT_FILE", trusted.display().to_string()),
    ];
    (server, proxy, environment)
}

/// No model server of this machine is looked for.
const NO_SERVERS: (&str, &str) = ("QUIPU_LOCAL_SERVERS", "false");

fn asked(requests: &[CapturedRequest]) -> Vec<String> {
    let host = |request: &CapturedRequest| request.header("host").unwrap_or_default().to_owned();
    requests.iter().map(|request| format!("{}{}", host(request), request.path)).collect()
}

#[test]
fn key_of_a_provider_leads_to_a_done_task() {
    let world = empty_world();
    let (server, _proxy, environment) =
        provider(&world, &["api.anthropic.com"], script(Wire::Messages).into());
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
    let commands = commands("### With a key");
    follow(&world, &commands, &[environment[0], environment[1], NO_SERVERS]);
    let requests = server.requests();
    assert_eq!(asked(&requests), ["api.anthropic.com/v1/messages"; 2]);
    assert_eq!(requests[0].header("x-api-key"), Some(KEY));
    assert_eq!(mode(&world.path("home/.quipu/auth.json")), 0o600);
    world.unchecked();
}

#[test]
fn subscription_leads_to_a_done_task() {
    let world = empty_world();
    let reply = |body: serde_json::Value| Reply::new(200, "application/json", body.to_string());
    let code =
        reply(json!({ "device_code": "device-1", "user_code": "ABCD-1234", "interval": 1, "expires_in": 900,
        "verification_uri": format!("https://{}/device", "accounts.x.ai") }));
    let tokens = reply(
        json!({ "access_token": "access-token-1", "refresh_token": "refresh-token-1", "expires_in": 36_000 }),
    );
    let replies = [code, tokens].into_iter().chain(script(Wire::Responses)).collect();
    let (server, _proxy, environment) = provider(&world, &["auth.x.ai", "api.x.ai"], replies);
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
    let commands = commands("### With a subscription");
    follow(&world, &commands, &[environment[0], environment[1], NO_SERVERS]);
    let requests = server.requests();
    assert_eq!(
        asked(&requests),
        [
            "auth.x.ai/oauth2/device/code",
            "auth.x.ai/oauth2/token",
            "api.x.ai/v1/responses",
            "api.x.ai/v1/responses"
        ]
    );
    assert_eq!(requests[2].header("authorization"), Some("Bearer access-token-1"));
    world.unchecked();
}

#[test]
fn local_server_leads_to_a_done_task() {
    let world = empty_world();
    let list = json!({ "object": "list", "data": [{ "id": "qwen3:8b" }] }).to_string();
    let lists = [(); 2].map(|()| Reply::new(200, "application/json", list.clone()));
    let server = FakeServer::start(lists.into_iter().chain(script(Wire::Completions)));
    let servers = json!({ "ollama": format!("{}/v1", server.url()), "llama.cpp": null, "lmstudio": null,
        "vllm": null, "sglang": null, "jan": null, "koboldcpp": null, "docker": null });
    let commands = commands("### With a server on this machine");
    follow(&world, &commands, &[("QUIPU_LOCAL_SERVERS", &servers.to_string())]);
    assert!(server.requests().iter().all(|request| request.header("authorization").is_none()));
    assert!(!world.path("home/.quipu/auth.json").exists());
    world.unchecked();
}
