//! `quipu context`, and old results that requests leave out.

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, Captured, Gate, Reply, Wire};
use serde_json::{Value, json};

use crate::support::*;

fn set(world: &World, settings: &Value) {
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
}

/// About six results of 3,300 tokens fill a tenth of the window.
fn pruning() -> Value {
    let prune = json!({
        "enabled": true, "triggerPercent": 10, "clearAtLeastPercent": 5, "keepTurns": 2, "minCharacters": 3000,
    });
    json!({ "context": { "prune": prune } })
}

/// The output of `quipu context` as people see it in so many columns.
fn shown(world: &World, columns: &str, args: &[&str]) -> CommandOutput {
    let mut command = world.quipu(&[&["context"], args].concat());
    command.env("COLUMNS", columns);
    RunningCommand::start(command).wait().ok()
}

#[test]
fn a_context_is_told_in_any_width_and_of_any_model() {
    let picture =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg==";
    let world = World::new([
        call("c1", "read", &json!({ "path": "dot.png" })),
        Answer::new().text("A dot.").usage(3_000, 20, 0, 0).reply(),
    ]);
    world.file("dot.png", crate::wires::base64(picture));
    world.run(&["-p", "what is it?"]).ok();

    for columns in ["200", "80", "40", "nonsense", "1"] {
        let text = shown(&world, columns, &[]).text();
        assert!(!text.contains('\u{1b}'), "no colours off a terminal: {text}");
        let most = match columns {
            "200" | "80" | "nonsense" => 80,
            _ => 40,
        };
        // The first line holds an id, which is never cut.
        let longest = text.lines().skip(1).map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= if columns == "200" { 200 } else { most }, "{columns}: {longest}\n{text}");
        assert!(text.contains("images") && text.contains('█') && text.contains('░'), "{text}");
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains("180,596 tokens left until compaction, at 183,616."), "{text}");
        assert!(flat.contains("window of 200,000 tokens"), "{text}");
    }
    let told = shown(&world, "80", &["--json"]).json();
    assert_eq!((&told["compaction"]["at"], &told["pruning"]), (&json!(183_616), &json!(false)));
    let left = told["compaction"]["left"].as_u64().unwrap();
    assert_eq!(left + told["tokens"].as_u64().unwrap(), 183_616);
    assert_eq!(told["left"].as_u64().unwrap() + told["tokens"].as_u64().unwrap(), 200_000);
    assert_eq!((&told["pruned"], &told["agent"]), (&json!(null), &json!("quipu")));

    // A model that is gone, one without a window, and compaction that is off.
    let gone = shown(&world, "80", &["--model", "nothing-like-it"]);
    assert!(gone.err.contains("warning: ") && !gone.text().contains("free"), "{}", gone.text());
    let gone = shown(&world, "80", &["--json", "--model", "nothing-like-it"]).json();
    for member in ["model", "window", "left", "compaction", "nextTurn"] {
        assert_eq!(gone[member], json!(null), "{member}");
    }
    set(&world, &json!({ "compaction": { "enabled": false } }));
    let off = shown(&world, "80", &["--model", "thinker"]).text();
    assert!(off.contains("Compaction is turned off.") && off.contains("the model has no price"), "{off}");

    // A session that was removed says how to have it back.
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    world.check();
    // From here on no session is there to be asked.
    world.unchecked();
    world.run(&["rm", "--yes", &id]).ok();
    world.run(&["context", &id]).fails(2, &["was removed", "quipu fork"]);
}

#[test]
fn foreign_token_count_corrects_only_what_it_covers() {
    let world = World::new([]);
    let header = json!({ "type": "session", "version": 3, "id": "s1", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": world.path("work") });
    let user = |id: &str, parent: Value, text: &str| {
        json!({
            "type": "message", "id": id, "parentId": parent, "timestamp": "2026-01-01T00:00:01.000Z",
            "message": { "role": "user", "content": text, "timestamp": 1 },
        })
    };
    let usage = json!({
        "input": 5000, "output": 10, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 5010,
        "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0 },
    });
    let answer = json!({
        "type": "message", "id": "b", "parentId": "a", "timestamp": "2026-01-01T00:00:02.000Z",
        "message": {
            "role": "assistant", "content": [{ "type": "text", "text": "Hello." }], "api": "x", "provider": "gone",
            "model": "gone-1", "usage": usage, "stopReason": "stop", "timestamp": 2,
        },
    });
    let lines = [header, user("a", json!(null), "hi"), answer, user("c", json!("b"), &"word ".repeat(80))];
    let file: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let path = world.file("s.jsonl", file);
    world.run(&["import", "pi", path.to_str().unwrap()]).ok();
    let told = world.run(&["context", "s1", "--json"]).ok().json();
    // A hundred tokens came after the count, and become four hundred at most.
    assert_eq!((&told["counted"], &told["agent"]), (&json!(5_010), &json!("pi")));
    assert!((5_300..=5_410).contains(&told["tokens"].as_u64().unwrap()), "{told}");
    let text = shown(&world, "80", &["s1"]).text();
    assert!(text.contains("written by pi"), "{text}");
}

fn body(request: &Captured) -> String {
    String::from_utf8(request.body.to_vec()).unwrap()
}

/// The pointers of a request, as what they say to call.
fn pointers(request: &Captured) -> Vec<Value> {
    let said: Vec<String> = messages(request).iter().map(wire_text).collect();
    let said = said.join("\n");
    let calls = said.split("read it with recall(").skip(1);
    calls.map(|rest| serde_json::from_str(rest.split_once(").]").unwrap().0).unwrap()).collect()
}

#[test]
fn old_results_are_pruned_in_steps_on_both_wires() {
    for wire in [Wire::Messages, Wire::Completions] {
        let read = |turn: usize| {
            let path = json!({ "path": format!("f{turn}") }).to_string();
            Answer::on(wire).tool_call(&format!("c{turn}"), "read", &path).reply()
        };
        let says = |text: &str| -> Reply { Answer::on(wire).text(text).reply() };
        let script = (0..20).map(read).chain([says("Read.")]);
        let world = World::new(script);
        if wire == Wire::Completions {
            let model = json!({
                "id": MODEL, "api": "openai-completions", "reasoning": false, "input": ["text"],
                "contextWindow": 200_000, "maxTokens": 8_000,
            });
            let provider = json!({ "baseUrl": world.server.url(), "apiKey": KEY, "models": [model] });
            let file = json!({ "providers": { "testing": provider } });
            std::fs::write(world.path("home/.quipu/models.json"), file.to_string()).unwrap();
        }
        for turn in 0..20 {
            world.file(
                &format!("f{turn}"),
                format!("file {turn} begins\n{}file {turn} ends\n", "a line\n".repeat(1_900)),
            );
        }
        set(&world, &pruning());
        let lines = world.run(&["-p", "--mode", "json", "read them"]).ok().json_lines();
        let steps: Vec<&Value> = lines.iter().filter(|line| line["type"] == "quipu_context_pruned").collect();
        let requests = world.requests();
        let cold = |pair: &&[Captured]| {
            let shared = pair[0].body.iter().zip(&pair[1].body).take_while(|(a, b)| a == b).count();
            shared + 60 < pair[0].body.len()
        };
        let broken = requests.windows(2).filter(cold).count();
        assert!(steps.len() == broken && (3..7).contains(&broken), "{wire:?}: {broken} {steps:?}");
        assert!(steps.iter().all(|step| step["results"].as_u64().unwrap() > 2), "{steps:?}");

        // What is said, and by the command.
        let last = requests.last().unwrap();
        let left_out = pointers(last);
        let told = world.run(&["context", "--json"]).ok().json();
        assert_eq!(told["pruned"]["results"], left_out.len());
        assert!(told["pruned"]["tokens"].as_u64().unwrap() > 2_000 * left_out.len() as u64, "{told}");
        let text = world.run(&["context"]).ok().text();
        assert!(text.contains("old tool results are pruned, which saves"), "{text}");
        // The same as people read it.
        let id = left_out[2]["hash"].as_str().unwrap();
        assert!(world.run(&["show", id]).ok().text().contains("file 2 begins"));

        // Read again by a call of the model, with all of it in pages.
        let first = left_out[2].to_string();
        let next = json!({ "hash": id, "budget": 50_000, "offset": 5_000 }).to_string();
        for args in [first, next] {
            world.server.push(Answer::on(wire).tool_call("again", "recall", &args).reply());
        }
        world.server.push(says("I see."));
        world.run(&["-p", "-c", "look again"]).ok();
        let said: String = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
        assert!(
            said.contains("--- archived node content ---")
                && said.contains("[tool_result: read → file 2 begins")
        );
        assert!(said.contains("file 2 ends\n") && said.contains("// text truncated (showing 5000-"));
        // What was sent stays.
        let resumed = world.requests()[requests.len()].clone();
        assert!(!cold(&&[last.clone(), resumed][..]));

        // Off: everything is there, and nothing is offered.
        set(&world, &json!({ "search": { "tool": false } }));
        world.server.push(says("All of it."));
        world.run(&["-p", "-c", "and now?"]).ok();
        let whole = world.requests().pop().unwrap();
        assert!(pointers(&whole).is_empty() && !body(&whole).contains("\"name\":\"recall\",\"description\""));
        assert!(body(&whole).contains("file 2 begins\\na line\\na line"));
        assert_eq!(world.run(&["context", "--json"]).ok().json()["pruned"], json!(null));
    }
}

#[test]
fn session_killed_after_pruning_resumes_with_equal_bytes() {
    let gate = Gate::new();
    let read = |turn: usize| call(&format!("c{turn}"), "read", &json!({ "path": format!("f{turn}") }));
    let gated = Reply::sse("").then_gate(&gate).then(Answer::new().text("Read.").stream());
    let mut world = World::new((0..13).map(read).chain([gated]));
    for turn in 0..13 {
        world.file(&format!("f{turn}"), format!("file {turn}\n{}", "a line\n".repeat(1_900)));
    }
    set(&world, &pruning());
    let running = world.start(&["-p", "read them"]);
    reached(&gate);
    running.signal(Signal::SIGKILL);
    running.wait();
    gate.open();
    let before = world.requests().pop().unwrap();
    assert!(pointers(&before).len() > 4);
    world.another_server([Answer::new().text("On I go.").reply()]);
    world.run(&["-p", "-c", "go on"]).ok();
    let after = world.requests().pop().unwrap();
    let (before, after) = (messages(&before), messages(&after));
    // The last message carries the mark of the cache, and what is said next goes into it.
    assert_eq!(before[..before.len() - 1], after[..before.len() - 1]);
}

/// A recording of a session in which results were left out goes the same way when it is played, and its export is read
/// by a store that knows none of its nodes.
#[test]
fn pruned_results_replay_pruned_and_export_whole() {
    let read = |turn: usize| call(&format!("c{turn}"), "read", &json!({ "path": format!("f{turn}") }));
    let world = World::new((0..16).map(read).chain([Answer::new().text("Read.").reply()]));
    for turn in 0..16 {
        world.file(&format!("f{turn}"), format!("file {turn}\n{}", "a line\n".repeat(1_900)));
    }
    set(&world, &pruning());
    let steps = |ran: CommandOutput| -> Vec<(Value, Value)> {
        let lines = ran.ok().json_lines().into_iter();
        let steps = lines.filter(|line| line["type"] == "quipu_context_pruned");
        steps.map(|line| (line["results"].clone(), line["estimatedTokensAfter"].clone())).collect()
    };
    let recorded = steps(world.run(&["-p", "--mode", "json", "--record", "r.rec", "read them"]));
    assert!(recorded.len() > 1, "{recorded:?}");
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(steps(world.run(&["--mode", "json", "--replay", "r.rec"])), recorded);

    world.run(&["export", "--format", "pi", &id, "-o", "s.jsonl"]).ok();
    let file = std::fs::read_to_string(world.path("work/s.jsonl")).unwrap();
    assert_eq!(file.matches("quipu.prune").count(), recorded.len());
    assert!((0..16).all(|turn| file.contains(&format!("file {turn}\\na line"))), "all is in it");
    world.run(&["import", "pi", "s.jsonl", "--store", "other.db"]).ok();
    let told = world.run(&["context", &id, "--json", "--store", "other.db"]).ok().json();
    assert_eq!((&told["pruned"], &told["pruning"]), (&json!(null), &json!(true)), "its nodes have other ids");
}

#[test]
fn nothing_is_left_out_and_nothing_offered_unless_it_is_wanted() {
    let world = World::new([Answer::new().text("Hello.").reply(), Answer::new().text("Hello.").reply()]);
    set(&world, &json!({ "search": { "tool": false } }));
    world.run(&["-p", "hello"]).ok();
    let sent = world.requests().pop().unwrap();
    assert!(!body(&sent).contains("recall") && sent.body.len() < 5 * 1024, "{}", sent.body.len());
    set(
        &world,
        &json!({ "search": { "tool": false }, "context": { "prune": { "enabled": "yes", "keepTurns": 0 } } }),
    );
    let ran = world.run(&["-p", "hello"]).ok();
    assert!(ran.err.contains("context.prune.enabled must be true or false"), "{}", ran.err);
    assert!(ran.err.contains("context.prune.keepTurns must be a whole number of 1 or more"), "{}", ran.err);
    assert!(!body(&world.requests().pop().unwrap()).contains("recall"));
}
