//! Proofs of a past, and its page, as people use them.

use quipu_dag::{Node, NodeRecord};
use quipu_protocol::{
    AuthorClass, Body, Content, CustomMessage, Entry, Json, Message, Origin, Provenance, StepInfo,
};
use quipu_store::{Commit, OpenOptions, RefMove, RefName, SqliteStore, Store as _};
use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::archive::{assistant, header, lines, user};
use crate::browser::Browser;
use crate::support::*;

/// Markup and letters that would be seen if they were not quoted.
const HOSTILE: &str = "</script><script>hit=1</script><img src=x onerror=hit=1>\" onmouseover=hit=1 '<!--<style>*{display:none} a\u{202e}b\u{200b}c";
const READY: &str = "new Promise(done => { const look = () => {
    const ready = document.documentElement.dataset.ready; ready ? done(ready) : setTimeout(look, 5) }; look() })";

/// A session with what was said in it on a day of January 2025, a turn each hour.
fn import(world: &World, id: &str, day: u32, said: &[(&str, &str)]) {
    let mut entries = vec![header(world, id)];
    let mut parent = String::new();
    for (turn, (question, answer)) in said.iter().enumerate() {
        let at = |second: u32| format!("2025-01-{:02}T{:02}:00:{second:02}.000Z", day + 1, turn);
        let (asked, answered) = (format!("{id}u{turn}"), format!("{id}a{turn}"));
        let mut said = user(&asked, &parent, question);
        said["timestamp"] = json!(at(0));
        if turn == 0 {
            said["parentId"] = Value::Null;
        }
        let text = json!([{ "type": "text", "text": answer }]);
        let mut answer = assistant(&answered, &asked, &text, "stop");
        answer["timestamp"] = json!(at(1));
        entries.extend([said, answer]);
        parent = answered;
    }
    let file = world.file(&format!("{id}.jsonl"), lines(&entries));
    world.run(&["import", "pi", file.to_str().unwrap()]).ok();
}

/// The node of a session that says this.
fn node_with(world: &World, session: &str, words: &str) -> String {
    let nodes = world.nodes_of(&[session]);
    let found = nodes.iter().find(|node| node.to_string().contains(words));
    found.unwrap()["id"].as_str().unwrap().to_owned()
}

/// A chunk of the past of everything, as a model of another program might have left it.
fn forge(world: &World, summary: &str, sources: &[&str]) {
    let start = 1_735_700_000_000_i64;
    let sources: Vec<Value> = sources.iter().map(|node| json!({ "node": node })).collect();
    let record = json!({
        "kind": "chunk", "scope": { "kind": "all" }, "level": 0, "start": start, "end": start + 60_000, "sources": sources,
        "method": { "by": "model", "model": "p/m", "prompt": "00" },
    });
    let message = CustomMessage {
        custom_type: "quipu.past".into(),
        content: Body::Blocks(vec![Content::text(summary)]),
        display: true,
        details: None,
        timestamp: start,
    };
    let step = StepInfo {
        provenance: Some(Provenance::new(Origin::Model, AuthorClass::Agent).named("p/m")),
        extra: [("quipu.past".to_owned(), Json::from(&record))].into(),
        ..StepInfo::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(&world.store(), &OpenOptions::default()).unwrap();
        let name = RefName::from("quipu/past-all");
        let stands = store.head(&name).await.unwrap();
        let encoded = quipu_transcript::encode(&Entry::Message(Message::Custom(message)), &step);
        let record = NodeRecord {
            parent: stands,
            role: encoded.role,
            parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
            timestamp: start,
            external_id: None,
            system_prompt: None,
        };
        let node = Node::new(record, None, None);
        let head = node.id;
        let mut commit = Commit { blobs: encoded.blobs, nodes: vec![node], ..Commit::default() };
        commit.moves.push(RefMove::swap(name, stands, head, "test"));
        store.commit(commit).await.unwrap();
    });
}

#[test]
fn requests_of_sessions_equal_what_the_graph_gives() {
    let world = World::new([
        call("c1", "read", &json!({ "path": "f.txt" })),
        Answer::new().text("It says hello.").reply(),
        Reply::error(400, "invalid_request_error", "no"),
        Answer::new().text("Again.").reply(),
        Answer::new().text("A branch.").reply(),
    ]);
    world.file("f.txt", "hello\n");
    world.run(&["-p", "Read f.txt."]).ok();
    world.run(&["-p", "-c", "Fail."]).fails(1, &["no"]);
    world.run(&["-p", "-c", "Once more."]).ok();
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    world.run(&["-p", "--fork", &id, "And here?"]).ok();
    let proof = world.run(&["past", "prove", "--all", "--json"]).ok().json();
    let structure = &proof["structure"];
    assert_eq!((&structure["sessions"], &structure["requests"]), (&json!(2), &json!(5)), "{proof}");
    assert_eq!((&structure["equal"], &structure["different"]), (&json!(5), &json!([])), "{proof}");
    assert_eq!(proof["holds"], true);
    // What is put together with other settings is not what was sent.
    world.run(&["config", "set", "cacheRetention", "none"]).ok();
    let proof = world.run(&["past", "prove", "--all", "--json"]).exits(1).json();
    let different = proof["structure"]["different"].as_array().unwrap();
    assert!(!different.is_empty() && proof["holds"] == false, "{proof}");
    assert!(different.iter().all(|one| one["at"].as_str().unwrap().contains("cache_control")), "{proof}");
    let text = world.run(&["past", "prove", "--all", "--requests", "1"]).exits(1).text();
    assert!(text.contains("3 not looked at"), "{text}");
    // A model that is not known any more cannot be asked how it writes.
    world.run(&["config", "set", "cacheRetention", "short"]).ok();
    std::fs::write(world.path("home/.quipu/models.json"), "{}").unwrap();
    let proof = world.run(&["past", "prove", "--all", "--json"]).ok().json();
    assert_eq!(proof["structure"]["unchecked"], json!({ "its model is not known here any more": 5 }));
}

#[test]
fn requests_with_a_past_before_them_equal_too() {
    let world = World::new((0..3).map(|at| Answer::new().text(&format!("Answer {at}.")).reply()));
    import(&world, "alpha", 0, &[("The port is 8123.", "Noted.")]);
    world.run(&["memory", "on"]).ok();
    world.run(&["config", "set", "memory.time", "on"]).ok();
    world.run(&["past", "build"]).ok();
    world.run(&["-p", "One."]).ok();
    world.run(&["-p", "-c", "Two."]).ok();
    import(&world, "beta", 1, &[("The key is violet.", "Noted.")]);
    world.run(&["past", "build"]).ok();
    world.run(&["-p", "-c", "Three."]).ok();
    let sent = messages(&world.requests()[2])[0].to_string();
    assert!(sent.contains("8123"), "{sent}");
    let proof = world.run(&["past", "prove", "--json"]).ok().json();
    let structure = &proof["structure"];
    assert_eq!((&structure["equal"], &structure["different"]), (&json!(3), &json!([])), "{proof}");
    // What a person had forgotten is not put together again.
    world.run(&["memory", "forget", "--yes", "8123"]).ok();
    let structure = world.run(&["past", "prove", "--json"]).ok().json()["structure"].clone();
    assert_eq!((&structure["equal"], &structure["different"]), (&json!(0), &json!([])), "{structure}");
    world.unchecked();
}

#[test]
fn chunk_of_another_program_is_checked_and_left_out() {
    let world = World::new([]);
    import(&world, "alpha", 0, &[("The port is 8123.", "Noted."), ("Marta calls.", "Good.")]);
    world.run(&["past", "build", "--all"]).ok();
    let proof = world.run(&["past", "prove", "--all", "--json"]).ok().json();
    assert_eq!((&proof["grounding"]["chunks"], &proof["grounding"]["ungrounded"]), (&json!(2), &json!(0)));
    forge(&world, "The port is 9999, says Marta.", &[&node_with(&world, "alpha", "8123")]);
    let covered = world.run(&["past", "cover", "--all", "--json"]).ok().json();
    assert!(!covered["text"].as_str().unwrap().contains("9999"), "{covered}");
    assert!(covered["decisions"].to_string().contains("ungrounded"), "{covered}");
    let proof = world.run(&["past", "prove", "--all", "--json"]).exits(1).json();
    let found = &proof["grounding"]["list"][0];
    assert_eq!((&found["keptOut"], &found["findings"][0]["text"]), (&json!(true), &json!("9999")), "{proof}");
    // The verdict is kept: the node of the proof is one of the past.
    let shown = world.run(&["show", proof["node"].as_str().unwrap()]).ok().text();
    assert!(shown.contains("Proof: 0 of 0 requests equal, 2 of 3 chunks grounded"), "{shown}");
    let text = world.run(&["past", "prove", "--all"]).exits(1).text();
    assert!(text.contains("1 chunks say what their sources do not") && text.contains("9999"), "{text}");
    // Who reads it and finds it good decides.
    world.run(&["past", "review", found["id"].as_str().unwrap(), "--all"]).ok();
    assert!(world.run(&["past", "cover", "--all"]).ok().text().contains("9999"));
}

#[test]
fn answers_are_asked_with_and_without_the_past() {
    // Each reply but the last is for requests with these words alone.
    let knows = || Answer::new().text("8123").reply().only_for("port of alpha is 8123");
    let unknown = || Answer::new().text("unknown").reply();
    let script = [knows(), unknown(), unknown(), unknown(), unknown()];
    let world = World::new(script);
    import(&world, "alpha", 0, &[("The port of alpha is 8123.", "Noted.")]);
    world.run(&["past", "build", "--all"]).ok();
    let questions = world.file(
        "questions.jsonl",
        json!({ "question": "What is the port of alpha?", "answer": 8123 }).to_string(),
    );
    let questions = questions.to_str().unwrap();
    let prove = |more: &[&str]| {
        world.run(&[&["past", "prove", "--all", "--json", "--questions", questions], more].concat())
    };
    // Nothing is paid without leave.
    prove(&[]).fails(2, &["may cost money", "the budget is 0"]);
    assert_eq!(world.requests().len(), 0);
    prove(&["--model", "nobody"]).fails(2, &["nobody"]);
    for wrong in ["nan", "inf", "-1"] {
        prove(&["--budget", wrong]).fails(2, &["--budget"]);
    }
    let proof = prove(&["--budget", "50", "--chunks", "1"]).ok().json();
    let asked = &proof["ablation"]["questions"][0];
    for (name, wanted) in [
        ("with", json!(true)),
        ("without", json!(false)),
        ("disturbed", json!(false)),
        ("changedWithout", json!(true)),
        ("changedDisturbed", json!(true)),
        ("members", json!(1)),
    ] {
        assert_eq!(asked[name], wanted, "{name} in {proof}");
    }
    assert_eq!(asked["answers"], json!({ "with": "8123", "without": "unknown", "disturbed": "unknown" }));
    assert!(asked["chunks"][0]["changes"].as_u64().unwrap() >= 1, "{proof}");
    assert!(proof["ablation"]["cost"].as_f64().unwrap() > 0.0);
    // The only chunk alone is the whole cover: it was asked already.
    assert_eq!(world.requests().len(), 3);
    world.run(&["past", "prove", "--all", "--questions", "no-file"]).fails(2, &["no-file"]);
    let bad = world.file("bad.jsonl", "{}");
    world
        .run(&["past", "prove", "--all", "--questions", bad.to_str().unwrap()])
        .fails(2, &["line 1 is no question"]);
    // A budget that is too small for a question.
    let proof = prove(&["--budget", "0.0001"]).ok().json();
    assert_eq!((&proof["ablation"]["unasked"], &proof["ablation"]["questions"]), (&json!(1), &json!([])));
}

#[test]
fn answer_that_fails_ends_the_questions_and_not_the_proof() {
    let world = World::new([Reply::error(400, "invalid_request_error", "no such thing")]);
    import(&world, "alpha", 0, &[("The port of alpha is 8123.", "Noted.")]);
    world.run(&["past", "build", "--all"]).ok();
    let question = json!({ "question": "What is the port of alpha?", "answer": 8123 });
    let file = world.file("questions.jsonl", question.to_string());
    let args = ["past", "prove", "--all", "--json", "--budget", "50", "--questions", file.to_str().unwrap()];
    let proof = world.run(&args).exits(1).json();
    assert_eq!((&proof["ablation"]["unasked"], &proof["grounding"]["chunks"]), (&json!(1), &json!(1)));
    assert!(proof["ablation"]["failed"].as_str().unwrap().contains("no such thing"), "{proof}");
    assert!(proof["node"].is_string(), "{proof}");
}

#[test]
fn attempts_that_break_off_count_against_the_questions() {
    // Each answer costs up to thirty cents, and what breaks off may have.
    let broken = Reply::sse(Answer::new().text("81").unfinished()).then_reset();
    let good = Answer::new().text("8123").usage(10, 300, 0, 0).reply();
    let world = World::new([broken, good.clone(), good]);
    price(&world);
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"retry":{"baseDelayMs":1}}"#).unwrap();
    import(&world, "alpha", 0, &[("The port of alpha is 8123.", "Noted.")]);
    world.run(&["past", "build", "--all"]).ok();
    let question = json!({ "question": "What is the port of alpha?", "answer": 8123 });
    let file = world.file("questions.jsonl", question.to_string());
    let args = ["past", "prove", "--all", "--json", "--budget", "0.7", "--questions", file.to_str().unwrap()];
    let proof = world.run(&args).ok().json();
    assert_eq!(world.requests().len(), 2, "what is left pays for no third one: {proof}");
    let cost = proof["ablation"]["cost"].as_f64().unwrap();
    assert!((cost - 0.6).abs() < 1e-9, "{proof}");
    assert_eq!(proof["ablation"]["unasked"], 1);
    world.unchecked();
}

#[test]
fn page_shows_chunks_cover_evidence_and_proofs() {
    let Some(mut browser) = Browser::start() else { return };
    let world = World::new([]);
    let said: Vec<String> = (0..9).map(|turn| format!("Step {turn} of the parser. {HOSTILE}")).collect();
    let turns: Vec<(&str, &str)> = said.iter().map(|text| (text.as_str(), "Done.")).collect();
    import(&world, "alpha", 0, &turns);
    world.run(&["past", "build", "--all"]).ok();
    import(&world, "late", 0, &[("Something late.", "Yes.")]);
    forge(&world, "The port is 9999.", &[&"0".repeat(64)]);
    // Nobody can tell whether that is true.
    let text = world.run(&["past", "prove", "--all"]).ok().text();
    assert!(text.contains("1 not checked: a source or a child of theirs is not there"), "{text}");
    forge(&world, "The port is 7777.", &[&node_with(&world, "alpha", "Step 7")]);
    world.run(&["past", "prove", "--all"]).exits(1);
    let args = [
        "past",
        "page",
        "-o",
        "page.html",
        "--all",
        "--budget",
        "400",
        "--at",
        "2025-02-01",
        "--about",
        HOSTILE,
    ];
    world.run(&args).ok();
    world.run(&args).fails(1, &["page.html could not be written", "choose another file"]);
    let file = world.path("work/page.html");
    browser.open(&file);
    assert_eq!(browser.run(READY), "yes");
    for (script, wanted) in [
        ("typeof hit", json!("undefined")),
        ("document.querySelectorAll('script').length", json!(4)),
        (
            "document.querySelectorAll('img, iframe, object, form, base, main style, [onerror], [onmouseover]').length",
            json!(0),
        ),
        (
            "document.body.textContent.includes('\\u202e') || document.body.textContent.includes('\\u200b')",
            json!(false),
        ),
        ("document.querySelectorAll('#tree .link').length > 0", json!(true)),
        ("/of 400 tokens/.test(document.getElementById('cover').textContent)", json!(true)),
        ("document.querySelectorAll('#cover h2.chosen').length", json!(1)),
        ("/2 late/.test(document.getElementById('evidence').textContent)", json!(true)),
        ("/1 missing/.test(document.getElementById('evidence').textContent)", json!(true)),
        ("/ranges without a summary/.test(document.getElementById('evidence').textContent)", json!(true)),
        ("/Structure: 0 of 0 requests/.test(document.getElementById('proofs').textContent)", json!(true)),
        (
            "/[1-9]\\d* say what their sources do not/.test(document.getElementById('proofs').textContent)",
            json!(true),
        ),
        ("/Ablation: no questions/.test(document.getElementById('proofs').textContent)", json!(true)),
    ] {
        assert_eq!(browser.run(script), wanted, "{script}");
    }
    // The forged one is dropped, and says why.
    let dropped = browser.run("document.getElementById('cover').textContent");
    assert!(dropped.as_str().unwrap().contains("excluded: ungrounded"), "{dropped}");
    // A search finds a leaf; one click shows it, with its sources.
    let found = browser.run(
        "new Promise(done => { const find = document.getElementById('find'); find.value = 'step 7'; find.dispatchEvent(new Event('input'));
            const look = () => document.getElementById('hits').textContent ? done(document.getElementById('hits').textContent) : setTimeout(look, 5);
            look(); })",
    );
    assert!(found.as_str().unwrap().contains(" of "), "{found}");
    browser.run(
        "[...document.querySelectorAll('#tree li')].filter(li => li.textContent.includes('Step 7')).pop().querySelector('.link').click()",
    );
    let shown = browser.run("document.getElementById('chunk').textContent");
    let shown = shown.as_str().unwrap();
    assert!(
        shown.contains("Step 7 of the parser.") && shown.contains("</script><script>hit=1</script>"),
        "{shown}"
    );
    assert!(
        shown.contains("a[U+202E]b[U+200B]c") && shown.contains("Sources") && shown.contains("Done."),
        "{shown}"
    );
    assert_eq!(browser.run("document.querySelectorAll('#chunk .source').length"), 2);
    // What lies above it is one click away too, and the canvas has something on it.
    browser.run("document.getElementById('in').click(); document.getElementById('whole').click()");
    let painted = browser.run(
        "(() => { const c = document.getElementById('lanes'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            for (let at = 3; at < d.length; at += 4) if (d[at]) return true; return false; })()",
    );
    assert_eq!(painted, true);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.run("typeof hit"), "undefined");
    // Where the page is changed by somebody, nothing else runs in it either.
    let text = std::fs::read_to_string(&file).unwrap().replace("<main>", &format!("<main>{HOSTILE}"));
    browser.open(&world.file("changed.html", text));
    assert_eq!(browser.run("typeof hit"), "undefined");
}

#[test]
fn page_of_a_node_has_the_cover_of_then() {
    let world = World::new([]);
    import(&world, "alpha", 0, &[("The port is 8123.", "Noted."), ("Where is the port?", "8123.")]);
    import(&world, "beta", 3, &[("Something of later.", "Yes.")]);
    world.run(&["past", "build", "--all"]).ok();
    let rest = |name: &str, at: &str| -> Value {
        let made = world.run(&["past", "page", "-o", name, "--all", "--at", at, "--json"]).ok().json();
        assert_eq!(made["chunks"], 3);
        let text = std::fs::read_to_string(world.path("work").join(name)).unwrap();
        assert_eq!(made["bytes"], text.len());
        let (_, data) = text.split_once("id=data-rest>").unwrap();
        serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
    };
    // The question is that of the node, and what was later is not served.
    let node = node_with(&world, "alpha", "Where is the port?");
    let then = rest("then.html", &node);
    assert_eq!(then["cover"]["about"], "Where is the port?");
    let kinds = |value: &Value| -> Vec<String> {
        value["cover"]["decisions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one[1].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(kinds(&then), ["chosen", "dropped", "dropped"], "{then}");
    assert_eq!(kinds(&rest("now.html", "2026-01-01")), ["chosen", "chosen", "chosen"]);
    world.run(&["past", "page", "-o", "x.html", "--all", "--at", "nonsense"]).fails(2, &["nonsense"]);
}

#[test]
fn page_about_a_secret_does_not_have_it() {
    let world = World::new([]);
    import(&world, "alpha", 0, &[("The port is 8123.", "Noted.")]);
    world.run(&["past", "build", "--all"]).ok();
    let secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let about = format!("Which port had {secret}?");
    world.run(&["past", "page", "-o", "about.html", "--all", "--about", &about]).ok();
    let text = std::fs::read_to_string(world.path("work/about.html")).unwrap();
    assert!(text.contains("Which port had ") && !text.contains(secret), "{text}");
}
