//! Sub-agents: the tool `task`, its limits and permissions, and the files that agents come from.

use quipu_testkit::{Answer, CapturedRequest, Gate, Reply};
use serde_json::{Value, json};

use crate::pty::{CTRL_D, ENTER, ESCAPE, Terminal};
use crate::support::*;

fn put(world: &World, path: &str, text: &str) {
    let path = world.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The user's settings, with the tool `task` on.
fn settings(world: &World, agents: &Value) {
    let mut agents = agents.clone();
    agents["tool"] = "on".into();
    put(
        world,
        "home/.quipu/settings.json",
        &json!({ "retry": { "baseDelayMs": 1 }, "agents": agents }).to_string(),
    );
}

fn task(id: &str, prompt: &str) -> Reply {
    call(id, "task", &json!({ "prompt": prompt, "description": "Look" }))
}

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// The text of the result of the call.
fn result(request: &CapturedRequest) -> String {
    wire_text(&messages(request).pop().unwrap())
}

/// Names of the tools that a request offers.
fn tools(request: &CapturedRequest) -> Vec<String> {
    let body: Value = request.json();
    let tools = body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn system(request: &CapturedRequest) -> String {
    let body: Value = request.json();
    let blocks = body["system"].as_array().unwrap();
    blocks.iter().map(|block| block["text"].as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn sub_agent_works_in_a_session_below_its_parent() {
    let world = World::new([
        task("c1", "Write the file and report."),
        call("w1", "write", &json!({ "path": "made.txt", "content": "by the child" })),
        says("The file is written."),
        says("All done."),
    ]);
    settings(&world, &json!({}));
    world.file("AGENTS.md", "Rules of the house.");
    let ran = world.run(&["-p", "Delegate it"]).ok();
    assert!(ran.text().contains("All done."), "{}", ran.text());
    assert_eq!(std::fs::read_to_string(world.path("work/made.txt")).unwrap(), "by the child");
    let requests = world.requests();
    // It does not see the conversation, and sends nobody itself.
    assert_eq!(messages(&requests[1]).len(), 1);
    assert_eq!(wire_text(&messages(&requests[1])[0]), "Write the file and report.");
    assert!(
        tools(&requests[0]).contains(&"task".to_owned()) && !tools(&requests[1]).contains(&"task".to_owned())
    );
    assert!(tools(&requests[1]).contains(&"write".to_owned()));
    assert_eq!(system(&requests[1]), system(&requests[0]));
    assert!(system(&requests[1]).contains("Rules of the house."));
    let returned = result(&requests[3]);
    assert!(returned.starts_with("The file is written.\n\n[session child-"), "{returned}");
    // The parent names the child, and the child the parent.
    let sessions = world.sessions();
    let child = sessions.iter().find(|row| row["id"].as_str().unwrap().starts_with("child-")).unwrap();
    let parent = sessions.iter().find(|row| row["id"] != child["id"]).unwrap();
    assert_eq!(child["parentSession"], parent["id"]);
    let nodes = world.nodes_of(&[parent["id"].as_str().unwrap()]);
    let named = format!(r#""child":"{}""#, child["id"].as_str().unwrap());
    let of_call = nodes.iter().map(Value::to_string).find(|node| node.contains(&named));
    let of_call = of_call.unwrap_or_else(|| panic!("{nodes:#?}"));
    assert!(of_call.contains(r#""outcome":"done""#) && of_call.contains(r#""calls":1"#), "{of_call}");
    // Lists leave it out, and show it when it is asked for.
    let listed = world.run(&["sessions", "--json"]).ok().json_lines();
    assert_eq!(listed.len(), 1);
    // The jump back leaves the child where it is.
    world.run(&["undo", "--yes"]).ok();
    assert_eq!(world.sessions().len(), sessions.len());
}

/// A reply of the model that waits at the gate; only for requests with these words.
fn held(gate: &Gate, words: &str, text: &str) -> Reply {
    Reply::sse("").then_gate(gate).then(Answer::new().text(text).stream()).only_for(words)
}

/// An answer with a call for each prompt.
fn tasks(prompts: &[&str]) -> Reply {
    let mut answer = Answer::new();
    for (at, prompt) in prompts.iter().enumerate() {
        answer = answer.tool_call(&format!("c{at}"), "task", &json!({ "prompt": prompt }).to_string());
    }
    answer.reply()
}

#[test]
fn sub_agents_of_one_answer_work_at_once() {
    let (one, two) = (Gate::new(), Gate::new());
    let world = World::new([
        tasks(&["Task one", "Task two"]),
        held(&one, "Task one", "First answer."),
        held(&two, "Task two", "Second answer."),
        says("Both."),
    ]);
    settings(&world, &json!({}));
    let running = world.start(&["-p", "Both, please"]);
    // Both requests are there before either is answered.
    reached(&one);
    reached(&two);
    one.open();
    two.open();
    running.wait().ok();
    let requests = world.requests();
    let returned = requests[3].json()["messages"].to_string();
    // In the order of the calls, each with its own session.
    let at = |text: &str| returned.find(text).unwrap_or_else(|| panic!("{text}: {returned}"));
    assert!(at("First answer.") < at("Second answer."));
    assert_eq!(returned.matches("[session child-").count(), 2);
}

#[test]
fn sub_agents_wait_for_their_turn_and_end_with_their_share() {
    let one = Gate::new();
    let world = World::new([
        tasks(&["Task one", "Task two", "Task three"]),
        held(&one, "Task one", "First answer."),
        says("Second answer.").only_for("Task two"),
        says("Well."),
    ]);
    settings(&world, &json!({ "maxAtOnce": 1, "maxPerRun": 2 }));
    let running = world.start(&["-p", "All, please"]);
    reached(&one);
    // The second waits for the first, the third is one too many.
    assert_eq!(world.requests().len(), 2);
    one.open();
    running.wait().ok();
    let returned = world.requests()[3].json()["messages"].to_string();
    assert!(returned.contains("First answer.") && returned.contains("Second answer."), "{returned}");
    assert!(returned.contains("begun 2 sub-agents, which is the limit (`agents.maxPerRun`)"), "{returned}");
}

#[test]
fn sub_agent_that_never_ends_is_stopped_by_its_turns() {
    let looping = |at: usize| bash(&format!("b{at}"), "true").only_for("Loop for ever");
    let script =
        [task("c1", "Loop for ever")].into_iter().chain((0..3).map(looping)).chain([says("Stopped, then.")]);
    let world = World::new(script);
    settings(&world, &json!({ "maxTurns": 3 }));
    let ran = world.run(&["-p", "Go"]).ok();
    assert!(ran.text().contains("Stopped, then."), "{}", ran.text());
    let returned = result(world.requests().last().unwrap());
    assert!(
        returned
            .starts_with("The sub-agent was stopped: it reached its limit of 3 turns (`agents.maxTurns`)."),
        "{returned}"
    );
    assert_eq!(world.requests().len(), 5);
}

#[test]
fn sub_agent_costs_its_parents_run() {
    // A token costs 0.001 dollars. The child may spend half of what is left, and the run ends when all is spent.
    let spending = |text: &str| Answer::new().text(text).usage(10, 40, 0, 0).reply();
    let first =
        Answer::new().tool_call("c1", "task", &json!({ "prompt": "Spend" }).to_string()).usage(10, 10, 0, 0);
    let world = World::new([first.reply(), spending("Spent.").only_for("Spend"), spending("Well.")]);
    settings(&world, &json!({}));
    world.run(&["-p", "--max-cost", "100", "Go"]).ok();
    let sessions = world.sessions();
    let cost = |id: &dyn Fn(&str) -> bool| {
        sessions.iter().find(|row| id(row["id"].as_str().unwrap())).unwrap()["cost"].as_f64().unwrap()
    };
    assert!((cost(&|id| id.starts_with("child-")) - 0.05).abs() < 1e-9, "{sessions:?}");
    // What is too little for an answer of the child begins none.
    world.server.push(task("c2", "More"));
    world.server.push(says("Well."));
    let ran = world.run(&["-p", "--max-cost", "3", "Again"]);
    let returned = world.requests().iter().map(|one| one.json()["messages"].to_string()).collect::<String>();
    assert!(returned.contains("agents.maxCost") || ran.err.contains("limit"), "{} {returned}", ran.err);
}

#[test]
fn question_of_a_sub_agent_is_refused_without_a_person() {
    let world = World::new([
        task("c1", "Write it"),
        call("w1", "write", &json!({ "path": "/etc/made-by-a-test", "content": "x" })),
        says("I could not."),
        says("Well."),
    ]);
    settings(&world, &json!({}));
    world.run(&["-p", "Go"]).ok();
    let requests = world.requests();
    let refused = result(&requests[2]);
    assert!(refused.contains("not run") || refused.contains("permission"), "{refused}");
    assert!(!std::path::Path::new("/etc/made-by-a-test").exists());
    // A rule about the tool holds as for others.
    let denied = json!({ "agents": { "tool": "on" }, "permissions": { "deny": ["task"] } });
    put(&world, "home/.quipu/settings.json", &denied.to_string());
    world.server.push(task("c2", "Again"));
    world.server.push(says("Well."));
    world.run(&["-p", "Go"]).ok();
    assert_eq!(world.requests().len(), 6, "no child began");
    assert!(result(world.requests().last().unwrap()).contains("task"));
}

#[test]
fn parent_that_dies_finds_its_sub_agent_named() {
    let gate = Gate::new();
    let world =
        World::new([task("c1", "Take long"), held(&gate, "Take long", "Too late."), says("Going on.")]);
    settings(&world, &json!({}));
    let mut running = world.start(&["-p", "Go"]);
    reached(&gate);
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    gate.open();
    world.run(&["-p", "-c", "And now?"]).ok();
    let requests = world.requests();
    // Nothing ran again.
    assert_eq!(requests.len(), 3);
    let said = requests[2].json()["messages"].to_string();
    let child =
        world.sessions().into_iter().find(|row| row["id"].as_str().unwrap().starts_with("child-")).unwrap();
    assert!(said.contains("The sub-agent was not continued"), "{said}");
    let child = child["id"].as_str().unwrap();
    assert!(said.contains(&format!("[session {child}]")), "{said}");
    // A person can go on in it.
    world.server.push(says("Going on."));
    let ran = world.run(&["-p", "--session", child, "Go on"]).ok();
    assert!(ran.text().contains("Going on."), "{}", ran.text());
}

/// An agent in the form that most files have.
fn agent(world: &World, path: &str, head: &str, prompt: &str) {
    put(world, path, &format!("---\n{head}\n---\n{prompt}\n"));
}

#[test]
fn named_agents_come_from_every_kind_of_file() {
    let world = World::new([
        call("c1", "task", &json!({ "agent": "reviewer", "prompt": "Review it" })),
        call("w1", "write", &json!({ "path": "made.txt", "content": "x" })),
        says("I only read."),
        says("Well."),
    ]);
    agent(&world, "home/.quipu/agents/own.md", "description: Ours.", "Do our work.");
    agent(
        &world,
        "home/.claude/agents/reviewer.md",
        "name: reviewer\ndescription: Reviews code.\ntools: Read, Bash\nmodel: thinker\ncolor: red\nhooks:\n  a: b",
        "You review code.",
    );
    put(
        &world,
        "home/.codex/agents/explorer.toml",
        "name = 'explorer'\ndescription = 'Explores.'\ndeveloper_instructions = 'Explore.'\nsandbox_mode = 'read-only'\n",
    );
    put(&world, "home/.quipu/agents/broken.md", "---\nname: broken\ndescr");
    let ran = world.run(&["-p", "Go"]).ok();
    assert!(ran.err.contains("broken.md is not used"), "{}", ran.err);
    let requests = world.requests();
    let declared = requests[0].json()["tools"].to_string();
    for line in ["own: Ours.", "reviewer: Reviews code.", "explorer: Explores."] {
        assert!(declared.contains(line), "{line}: {declared}");
    }
    // Its own prompt, tools and model; the directory stays.
    assert!(system(&requests[1]).starts_with("You review code."), "{}", system(&requests[1]));
    assert!(system(&requests[1]).contains(world.path("work").to_str().unwrap()));
    assert_eq!(tools(&requests[1]), ["read", "bash"]);
    assert_eq!(requests[1].json()["model"], "thinker");
    assert!(!world.path("work/made.txt").exists(), "it has no tool that writes");
    let listed = world.run(&["agents", "--json"]).ok().json_lines();
    let names: Vec<&str> = listed.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["own", "reviewer", "explorer"]);
    assert_eq!(listed[2]["mode"], "read-only");
    let shown = world.run(&["agents"]).ok();
    assert!(shown.text().contains("note: `hooks` has no effect"), "{}", shown.text());
    assert!(shown.err.contains("broken.md is not used"), "{}", shown.err);
}

#[test]
fn agents_of_a_project_are_used_once_it_is_trusted() {
    let world = World::new([says("Well."), says("Well.")]);
    agent(&world, "work/.claude/agents/theirs.md", "name: theirs\ndescription: Theirs.", "Obey.");
    world.run(&["-p", "Go"]).ok();
    assert!(!tools(&world.requests()[0]).contains(&"task".to_owned()));
    let listed = world.run(&["agents"]).ok();
    assert!(listed.text().contains("project, not used"), "{}", listed.text());
    world.run(&["config", "trust"]).ok();
    world.run(&["-p", "Go"]).ok();
    assert!(tools(&world.requests()[1]).contains(&"task".to_owned()));
}

#[test]
fn read_only_agent_changes_nothing_that_its_parent_could() {
    let world = World::new([
        call("c1", "task", &json!({ "agent": "reader", "prompt": "Look" })),
        call("w1", "write", &json!({ "path": "made.txt", "content": "x" })),
        bash("b1", "touch by-command.txt"),
        bash("b2", "echo seen"),
        says("I only read."),
        call("c2", "task", &json!({ "agent": "nobody", "prompt": "Look" })),
        says("Well."),
    ]);
    agent(&world, "home/.quipu/agents/reader.md", "description: Reads.\npermissionMode: plan", "Read.");
    world.run(&["-p", "--permissions", "full", "Go"]).ok();
    let requests = world.requests();
    assert!(result(&requests[2]).contains("The agent `reader` is read-only"), "{}", result(&requests[2]));
    assert!(!world.path("work/made.txt").exists() && !world.path("work/by-command.txt").exists());
    assert!(result(&requests[4]).contains("seen"), "a command that reads runs: {}", result(&requests[4]));
    let unknown = result(requests.last().unwrap());
    assert!(unknown.contains("There is no agent `nobody`. Known agents: reader."), "{unknown}");
}

#[test]
fn question_of_a_sub_agent_is_asked_in_front_of_its_parent() {
    let outside = |world: &World| world.path("tmp").join("asked.txt").display().to_string();
    let world = World::new([]);
    agent(&world, "home/.quipu/agents/writer.md", "description: Writes.", "Write.");
    let path = outside(&world);
    world.server.push(call("c1", "task", &json!({ "agent": "writer", "prompt": "Write it" })));
    world.server.push(call("w1", "write", &json!({ "path": path, "content": "allowed" })));
    world.server.push(says("Written."));
    world.server.push(says("All done."));
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("delegate it\r");
    terminal.shows("writer (sub-agent): Allow writing");
    assert!(!std::path::Path::new(&path).exists());
    terminal.types("\u{1b}y");
    terminal.shows("All done.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "allowed");
}

#[test]
fn sub_agent_is_watched_steered_and_stopped_in_the_terminal() {
    let (gate, never) = (Gate::new(), Gate::new());
    let world = World::new([
        task("c1", "Take long"),
        Reply::sse("").then_gate(&gate).then(
            Answer::new().tool_call("b1", "bash", &json!({ "command": "echo looked" }).to_string()).stream(),
        ),
        Reply::sse("").then_gate(&never).then(Answer::new().text("Never.").stream()),
        says("It was stopped, I see."),
    ]);
    settings(&world, &json!({}));
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("delegate it\r");
    reached(&gate);
    // How far it is stands below its call.
    terminal.shows("turn 1, 0 tool calls");
    terminal.types("/agents");
    terminal.types(ENTER);
    terminal.shows("/stop stops it");
    terminal.types("look at tests too");
    terminal.types(ENTER);
    gate.open();
    terminal.shows("› look at tests too");
    reached(&never);
    let steered = world.requests()[2].json()["messages"].to_string();
    assert!(steered.contains("looked") && steered.contains("look at tests too"), "{steered}");
    terminal.types("/stop");
    terminal.types(ENTER);
    terminal.shows("It has ended.");
    terminal.types(ESCAPE);
    terminal.hides("It has ended.");
    terminal.shows("It was stopped, I see.");
    never.open();
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let returned = result(world.requests().last().unwrap());
    assert!(returned.starts_with("The user stopped the sub-agent."), "{returned}");
}

#[test]
fn undo_of_a_parent_restores_files_of_its_sub_agent() {
    let world = World::new([
        task("c1", "Edit the file"),
        bash("b1", "echo two > text.txt && rm old.txt"),
        call("w1", "write", &json!({ "path": "made.txt", "content": "made" })),
        says("Edited."),
        says("All done."),
    ]);
    settings(&world, &json!({}));
    put(&world, "work/text.txt", "one\n");
    put(&world, "work/old.txt", "old\n");
    let ran = world.run(&["-p", "Delegate it"]).ok();
    assert!(ran.err.contains("• task sub-agent: Look"), "{}", ran.err);
    let state = || {
        let read = |name: &str| std::fs::read_to_string(world.path(name)).ok();
        [read("work/text.txt"), read("work/old.txt"), read("work/made.txt")]
    };
    let text = |text: &str| Some(text.to_owned());
    let after = [text("two\n"), None, text("made")];
    assert_eq!(state(), after);
    world.run(&["undo", "--files", "--yes"]).ok();
    assert_eq!(state(), [text("one\n"), text("old\n"), None]);
    world.run(&["redo", "--files", "--yes"]).ok();
    assert_eq!(state(), after);
    // What a person changed since is not overwritten.
    put(&world, "work/text.txt", "mine\n");
    let refused = world.run(&["undo", "--files", "--yes"]);
    assert!(refused.err.contains("text.txt"), "{}", refused.err);
    assert_eq!(state()[0], text("mine\n"));
}

#[test]
fn undo_finds_files_of_a_sub_agent_that_was_killed() {
    let gate = Gate::new();
    let world = World::new([
        task("c1", "Edit the file"),
        call("w1", "write", &json!({ "path": "text.txt", "content": "two" })),
        Reply::sse("").then_gate(&gate).then(Answer::new().text("Late.").stream()),
    ]);
    settings(&world, &json!({}));
    put(&world, "work/text.txt", "one");
    let mut running = world.start(&["-p", "Go"]);
    reached(&gate);
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    gate.open();
    world.server.push(says("I see."));
    world.run(&["-p", "-c", "And?"]).ok();
    assert_eq!(std::fs::read_to_string(world.path("work/text.txt")).unwrap(), "two");
    world.run(&["undo", "--steps", "2", "--files", "--yes"]).ok();
    assert_eq!(std::fs::read_to_string(world.path("work/text.txt")).unwrap(), "one");
    // Its own session is settled once somebody opens it.
    let sessions = world.sessions();
    let mut ids = sessions.iter().map(|row| row["id"].as_str().unwrap());
    let child = ids.find(|id| id.starts_with("child-")).unwrap();
    world.server.push(says("Going on."));
    world.run(&["-p", "--session", child, "Go on"]).ok();
}

#[test]
fn model_of_an_agent_that_cannot_be_used_is_named() {
    let send = |id: &str| call(id, "task", &json!({ "agent": "own", "prompt": "Look" }));
    let world = World::new([send("c1"), says("Seen."), send("c2"), says("Seen."), says("Well.")]);
    agent(&world, "home/.quipu/agents/own.md", "description: Ours.\nmodel: no-such-model", "Do our work.");
    let ran = world.run(&["-p", "Go"]).ok();
    let told = "The agent `own` names the model `no-such-model`, which cannot be used";
    assert_eq!(ran.err.matches(told).count(), 1, "once in a session: {}", ran.err);
    let returned = result(&world.requests()[2]);
    assert!(returned.contains(told) && returned.contains("It works with "), "{returned}");
}

#[test]
fn programs_see_sub_agents_begin_and_end() {
    let world = World::new([task("c1", "Look around"), says("Seen."), says("Well.")]);
    settings(&world, &json!({}));
    let lines = world.run(&["-p", "--mode", "json", "Go"]).ok().json_lines();
    let place = |kind: &str| {
        lines.iter().position(|line| line["type"] == kind).unwrap_or_else(|| panic!("{kind}: {lines:#?}"))
    };
    let (begun, ended) = (&lines[place("quipu_child_start")], &lines[place("quipu_child_end")]);
    assert!(place("quipu_child_start") < place("quipu_child_end"));
    assert_eq!(
        (&begun["toolCallId"], &begun["agent"], &begun["title"]),
        (&json!("c1"), &json!("sub-agent"), &json!("Look"))
    );
    assert_eq!(
        (&ended["child"], &ended["outcome"], &ended["turns"]),
        (&begun["child"], &json!("done"), &json!(1))
    );
    let result = lines.iter().position(|line| line["type"] == "tool_execution_end").unwrap();
    assert!(place("quipu_child_end") < result);
}
