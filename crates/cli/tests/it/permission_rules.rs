//! Permission rules: added, listed, tested, revoked, and held by sessions.

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::permissions::{at_terminal, confined, isolated, results};
use crate::pty::says;
use crate::support::*;

/// What the model was told of these commands.
fn ran(world: &World, args: &[&str], commands: &[&str]) -> Vec<String> {
    let mut answer = Answer::new();
    for (at, command) in commands.iter().enumerate() {
        answer = answer.tool_call(&format!("c{at}"), "bash", &json!({ "command": command }).to_string());
    }
    world.server.push(answer.reply());
    world.server.push(Answer::new().text("I see.").reply());
    world.run(&[args, &["-p", "go on"]].concat()).ok();
    results(world)
}

fn add(world: &World, effect: &str, rule: &str) {
    world.run(&["permissions", "add", effect, rule]).ok();
}

#[test]
fn allow_rule_lets_commands_run_in_the_mode_ask() {
    if !confined() {
        return;
    }
    let world = World::new([]);
    let told = ran(&world, &["--permissions", "ask"], &["printf one"]);
    assert!(told[0].contains("nobody is here"), "{told:?}");
    add(&world, "allow", "bash(cat *)");
    add(&world, "allow", "write(docs/**)");
    std::fs::create_dir(world.path("work/docs")).unwrap();
    std::fs::write(world.path("work/in"), "text").unwrap();
    let told = ran(
        &world,
        &[],
        &[
            "cat in && printf two",
            "cat in; tac in",
            "cat in > docs/out",
            "cat in > out",
            "cat in > ../outside",
            "cat $(tac in)",
        ],
    );
    assert_eq!(told[0], "texttwo");
    assert!(told[1].contains("nobody is here"), "{}", told[1]);
    assert!(!told[2].starts_with('!'), "{}", told[2]);
    assert_eq!(std::fs::read_to_string(world.path("work/docs/out")).unwrap(), "text");
    for refused in [3, 4, 5] {
        assert!(told[refused].contains("nobody is here"), "{}", told[refused]);
    }
    assert!(!world.path("work/out").exists() && !world.path("outside").exists());
}

#[test]
fn deny_and_ask_rules_hold_in_every_mode() {
    if !confined() {
        return;
    }
    for mode in ["ask", "workspace", "full"] {
        let world = World::new([]);
        add(&world, "deny", "bash(touch *)");
        add(&world, "ask", "bash(mkdir *)");
        let commands =
            ["touch a", "true && /usr/bin/touch b", "mkdir c", "x=touch; $x d", "env touch e", "printf free"];
        let told = ran(&world, &["--permissions", mode], &commands);
        assert!(told[0].contains("`bash(touch *)` denies this call"), "{mode}: {}", told[0]);
        assert!(told[1].contains("`bash(touch *)` denies this call"), "{mode}: {}", told[1]);
        assert!(told[2].contains("nobody is here"), "{mode}: {}", told[2]);
        assert!(told[3].contains("nobody is here"), "{mode}: {}", told[3]);
        assert!(told[4].contains("denies this call"), "{mode}: {}", told[4]);
        assert_eq!(told[5] == "free", mode != "ask", "{mode}: {}", told[5]);
        for absent in ["a", "b", "c", "d", "e"] {
            assert!(!world.path("work").join(absent).exists(), "{mode} {absent}");
        }
    }
}

#[test]
fn rules_for_files_and_tools_are_held() {
    let world = World::new([]);
    add(&world, "deny", "write(secret/**)");
    add(&world, "deny", "read(keys.txt)");
    add(&world, "allow", "write(/tmp/never/**)");
    std::fs::write(world.path("work/keys.txt"), "k").unwrap();
    let calls = [
        ("write", json!({ "path": "secret/a", "content": "x" })),
        ("write", json!({ "path": "open", "content": "x" })),
        ("read", json!({ "path": "keys.txt" })),
        ("write", json!({ "path": "sub/../secret/b", "content": "x" })),
    ];
    let mut answer = Answer::new();
    for (at, (tool, arguments)) in calls.iter().enumerate() {
        answer = answer.tool_call(&format!("c{at}"), tool, &arguments.to_string());
    }
    world.server.push(answer.reply());
    world.server.push(Answer::new().text("I see.").reply());
    world.run(&["-p", "go on"]).ok();
    let told = results(&world);
    for (denied, rule) in [(0, "write(secret/**)"), (2, "read(keys.txt)"), (3, "write(secret/**)")] {
        assert!(told[denied].contains(&format!("`{rule}` denies this call")), "{}", told[denied]);
    }
    assert!(!told[1].starts_with('!'), "{}", told[1]);
    assert!(!world.path("work/secret").exists());
}

#[test]
fn configuration_needs_a_rule_without_a_star() {
    let world = World::new([]);
    let write = |world: &World| {
        let call = json!({ "path": "AGENTS.md", "content": "x" }).to_string();
        world.server.push(Answer::new().tool_call("c", "write", &call).reply());
        world.server.push(Answer::new().text("I see.").reply());
        world.run(&["-p", "go on"]).ok();
        results(world).remove(0)
    };
    add(&world, "allow", "write(**)");
    assert!(write(&world).contains("nobody is here"));
    add(&world, "allow", "write(AGENTS.md)");
    assert!(!write(&world).starts_with('!'));
}

#[test]
fn rules_are_listed_tested_and_revoked() {
    let world = World::new([]);
    world.run(&["permissions", "add", "allow", "bash(git status *)"]).ok();
    world.run(&["permissions", "add", "deny", "bash(git push *)", "--everywhere"]).ok();
    world.run(&["permissions", "add", "deny", "bash(git push *)", "--everywhere"]).ok();
    world.run(&["permissions", "set", "ask"]).ok();
    for (rule, says) in [("bash(a; b)", "one command"), ("bash(", "parenthesis"), ("write(../x)", "`..`")] {
        world.run(&["permissions", "add", "allow", rule]).fails(2, &[says]);
    }
    let listed = world.run(&["permissions"]).ok().text();
    assert!(listed.contains("allow      bash(git status *)"), "{listed}");
    assert!(listed.contains("every directory") && listed.contains("deny       bash(git push *)"), "{listed}");
    let lines = world.run(&["permissions", "--json"]).ok().json_lines();
    assert_eq!(lines[0]["everywhere"], json!(true));
    assert_eq!(lines[0]["entries"].as_array().unwrap().len(), 1, "the same rule is one rule");
    let test = |args: &[&str], code: i32| -> Value {
        world.run(&[&["permissions", "test", "--json"], args].concat()).exits(code).json()
    };
    let tested = test(&["git status -s"], 0);
    assert_eq!(tested["decision"], "allowed");
    assert_eq!(tested["parts"][0]["rule"]["rule"], "bash(git status *)");
    let tested = test(&["git status && cargo test -p x"], 7);
    assert_eq!(tested["decision"], "asked");
    assert_eq!(tested["parts"][1]["part"], "cargo test -p x");
    assert_eq!(tested["offers"], json!(["bash(cargo test *)"]));
    let tested = test(&["git status; env git push -f"], 8);
    assert_eq!(tested["parts"][1]["rule"]["everywhere"], json!(true));
    assert_eq!(test(&["python -c 'x'"], 7)["offers"], json!([]));
    assert_eq!(test(&["--tool", "read", "a.txt"], 0)["decision"], "allowed");
    assert_eq!(test(&["--tool", "write", "a.txt"], 7)["decision"], "asked");
    assert_eq!(test(&["--tool", "mcp__a__b"], 7)["decision"], "asked");
    assert_eq!(test(&["--tool", "network", "api.example.com"], 8)["decision"], "denied");
    let text = world.run(&["permissions", "test", "git status; git push"]).exits(8).text();
    assert!(text.contains("git push  <- deny bash(git push *) (p2, in every directory)"), "{text}");
    let text = world.run(&["permissions", "test", "--tool", "read", "a.txt"]).ok().text();
    assert!(text.starts_with("allowed: no mode asks about it\n"), "{text}");
    world.run(&["permissions", "revoke", "p2"]).ok();
    assert_eq!(test(&["git push"], 7)["decision"], "asked");
    // A rule that is none, written by hand, opens nothing.
    let path = world.path("home/.quipu/permissions.json");
    let saved = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, saved.replace("bash(git status *)", "bash(git status")).unwrap();
    world.run(&["-p", "x"]).fails(1, &["permissions.json", "bash(git status", "parenthesis"]);
}

#[test]
fn rule_of_another_process_holds_for_the_next_call() {
    if !confined() {
        return;
    }
    let world = World::new([]);
    let program = world.program.display();
    let home = world.path("home");
    // The first command adds the rule as another process of the user does: it is not confined in the mode `full`.
    let add = format!("HOME={} {program} permissions add deny 'bash(touch *)'", home.display());
    world.server.push(bash("c1", &add));
    world.server.push(bash("c2", "touch made"));
    world.server.push(Answer::new().text("I see.").reply());
    world.run(&["--permissions", "full", "-p", "go on"]).ok();
    let told = results(&world);
    assert!(told[0].contains("`bash(touch *)` denies this call"), "{told:?}");
    assert!(!world.path("work/made").exists());
}

#[test]
fn offered_rule_is_kept_for_the_directory() {
    if !confined() {
        return;
    }
    let world = World::new([]);
    world.run(&["permissions", "set", "ask"]).ok();
    let calls = vec![bash("c1", "cat in | wc -c"), bash("c2", "cat in"), says("Done.")];
    std::fs::write(world.path("work/in"), "text").unwrap();
    let Some(shown) = at_terminal(&world, calls, "p\n") else { return };
    assert!(shown.contains("Rule: bash(cat *)") && shown.contains("Rule: bash(wc *)"), "{shown}");
    assert!(shown.contains("p the rule, always in this directory"), "{shown}");
    assert_eq!(results(&world), ["text"], "the second is not asked");
    let listed = world.run(&["permissions"]).ok().text();
    assert!(
        listed.contains("allow      bash(cat *)") && listed.contains("allow      bash(wc *)"),
        "{listed}"
    );
    let told = ran(&world, &[], &["wc -c in", "rm in"]);
    assert!(told[0].contains("4 in"), "{}", told[0]);
    assert!(told[1].contains("nobody is here"), "{}", told[1]);
}

#[test]
fn no_rule_is_offered_for_code_in_arguments() {
    if !confined() {
        return;
    }
    let world = World::new([]);
    world.run(&["permissions", "set", "ask"]).ok();
    let calls = vec![bash("c1", "python3 -c 'print(1)'"), says("Done.")];
    let Some(shown) = at_terminal(&world, calls, "n\n") else { return };
    assert!(!shown.contains("Rule:") && !shown.contains("the rule"), "{shown}");
}

#[test]
fn host_of_a_rule_is_reached_and_a_refusal_names_the_rule() {
    if !isolated() {
        return;
    }
    // Another address than that of the servers of the session, which are reached without the proxy.
    let listener = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for arrived in listener.incoming() {
            let mut arrived = arrived.unwrap();
            let mut head = [0; 4096];
            assert!(std::io::Read::read(&mut arrived, &mut head).unwrap() > 0);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved";
            std::io::Write::write_all(&mut arrived, answer).unwrap();
        }
    });
    let world = World::new([]);
    let fetch = format!(
        "python3 -c 'import urllib.request; print(urllib.request.urlopen(\"http://127.0.0.2:{port}/\").read())'"
    );
    let told = ran(&world, &[], &[&fetch]);
    assert!(
        told[0].starts_with('!') && !told[0].contains("proxy"),
        "without rules there is none: {}",
        told[0]
    );
    add(&world, "allow", "network(api.example.com)");
    let told = ran(&world, &[], &[&fetch, "cat < /dev/tcp/127.0.0.2/1"]);
    assert!(told[0].contains("403") && told[0].contains("`network(127.0.0.2)`"), "{}", told[0]);
    assert!(told[1].starts_with('!'), "{}", told[1]);
    add(&world, "allow", &format!("network(127.0.0.2:{port})"));
    let told = ran(&world, &[], &[&fetch]);
    assert!(told[0].contains("served"), "{}", told[0]);
    let closed = ran(&world, &["--no-network"], &[&fetch]);
    assert!(closed[0].starts_with('!') && !closed[0].contains("served"), "{}", closed[0]);
}

#[test]
fn rules_of_the_settings_count_beside_the_saved_ones() {
    let world = World::new([]);
    let user = json!({ "permissions": { "deny": ["bash(touch *)"], "allow": ["bash(cat *)"] } });
    std::fs::write(world.path("home/.quipu/settings.json"), user.to_string()).unwrap();
    std::fs::create_dir_all(world.path("work/.quipu")).unwrap();
    let project = json!({ "permissions": { "allow": ["bash(make *)"], "deny": [] } });
    std::fs::write(world.path("work/.quipu/settings.json"), project.to_string()).unwrap();
    world.run(&["permissions", "set", "ask"]).ok();
    add(&world, "allow", "bash(ls *)");
    let test =
        |command: &str, code: i32| world.run(&["permissions", "test", "--json", command]).exits(code).json();
    test("ls && cat x", 0);
    assert!(test("ls && touch x", 8)["reason"].as_str().unwrap().contains("`bash(touch *)`"));
    // What a project allows counts once somebody has accepted its file, and takes nothing away.
    test("make all", 7);
    world.run(&["config", "trust"]).ok();
    test("make all", 0);
    test("touch x", 8);
    std::fs::write(world.path("work/.quipu/settings.json"), project.to_string().replace("make", "rm"))
        .unwrap();
    test("rm all", 7);
    test("make all", 7);
}

#[test]
fn cdpath_does_not_lead_commands_elsewhere() {
    let done = Answer::new().text("Done.").reply();
    let arguments = json!({ "command": "cd sub && pwd" }).to_string();
    let call = Answer::new().tool_call("c1", "bash", &arguments).reply();
    let world = World::new([call, done]);
    for place in ["work/sub", "elsewhere/sub"] {
        std::fs::create_dir_all(world.path(place)).unwrap();
    }
    let mut command = world.quipu(&["-p", "go"]);
    command.env("CDPATH", world.path("elsewhere"));
    RunningCommand::start(command).wait().ok();
    let result = wire_text(messages(world.requests().last().unwrap()).last().unwrap());
    let work = world.path("work/sub").canonicalize().unwrap();
    assert_eq!(result.trim(), work.display().to_string());
}
