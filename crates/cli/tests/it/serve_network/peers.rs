//! The clients of the API themselves, as `cargo xtask peers` installs them.

use quipu_testkit::{peer_files, peer_python};

use super::*;

/// What both clients are answered, in their order.
fn script() -> Vec<Reply> {
    let calls =
        Answer::new().text("I look.").tool_call("c1", "bash", r#"{"command":"cat note.txt"}"#).reply();
    vec![
        says("Hello from the agent."),
        calls,
        says("It says blue."),
        says("Noted."),
        says("It was 7."),
        says("A dot."),
        Reply::error(400, "invalid_request_error", "no such thing"),
    ]
}

fn checked(world: &World, server: Server, ran: &CommandOutput) {
    println!("{}\n{}", ran.text(), ran.err);
    assert_eq!(ran.text().lines().last(), Some("done"), "{}\n{}", ran.text(), ran.err);
    // The failed one was sent once.
    assert_eq!(world.requests().len(), 7);
    let texts: Vec<String> = messages(&world.requests()[4]).iter().map(wire_text).collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn client_of_npm_asks_and_streams() {
    let Some([node, module]) = peer_files(["node/bin/node", "openai/index.mjs"]) else { return };
    let world = world(script());
    world.file("note.txt", "blue\n");
    let server = Server::start(&world);
    let program = world.file("client.mjs", include_str!("client.mjs"));
    let mut command = world.command(node);
    command.arg(program).arg(module).arg(format!("http://{}/v1", server.address)).arg(&server.token);
    command.env("NO_PROXY", "127.0.0.1");
    let ran = RunningCommand::start(command).wait();
    checked(&world, server, &ran);
}

#[test]
fn client_of_pypi_asks_and_streams() {
    let Some(packages) = peer_python("openai") else { return };
    let world = world(script());
    world.file("note.txt", "blue\n");
    let server = Server::start(&world);
    let program = world.file("client.py", include_str!("client.py"));
    let mut command = world.command("python3");
    command.arg(program).arg(format!("http://{}/v1", server.address)).arg(&server.token);
    command.env("PYTHONPATH", packages).env("NO_PROXY", "127.0.0.1");
    let ran = RunningCommand::start(command).wait();
    checked(&world, server, &ran);
}
