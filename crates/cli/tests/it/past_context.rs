//! The past before conversations: which summaries stand in requests, when others take their place, and what stays as it was.

use quipu_testkit::{Answer, CapturedRequest};
use serde_json::{Value, json};

use crate::archive::{assistant, header, lines, user};
use crate::continued::{WIRES, check, configure};
use crate::support::*;

/// A session of another day with these requests, an hour between them.
fn import(world: &World, id: &str, day: u32, requests: &[&str]) {
    let mut entries = vec![header(world, id)];
    let mut parent = String::new();
    for (turn, text) in requests.iter().enumerate() {
        let at = |second: u32| format!("2025-03-{day:02}T{turn:02}:00:{second:02}.250Z");
        let (asked, answered) = (format!("{id}u{turn}"), format!("{id}a{turn}"));
        let mut said = user(&asked, &parent, text);
        said["timestamp"] = json!(at(0));
        if turn == 0 {
            said["parentId"] = Value::Null;
        }
        let text = json!([{ "type": "text", "text": format!("Did it in {id}, step {turn}.") }]);
        let mut answer = assistant(&answered, &asked, &text, "stop");
        answer["timestamp"] = json!(at(1));
        entries.extend([said, answer]);
        parent = answered;
    }
    let file = world.file(&format!("{id}.jsonl"), lines(&entries));
    world.run(&["import", "pi", file.to_str().unwrap()]).ok();
}

/// A world that answers so often, with the past of one earlier session, where memory and the past are on.
fn remembering(answers: usize) -> World {
    let world = World::new((0..answers).map(|at| Answer::new().text(&format!("Answer {at}.")).reply()));
    import(&world, "alpha", 3, &["Use the blue token for the deploy.", "Name the branch heron."]);
    world.run(&["memory", "on"]).ok();
    world.run(&["config", "set", "memory.time", "on"]).ok();
    world.run(&["past", "build"]).ok();
    world
}

fn texts(request: &CapturedRequest) -> Vec<(String, String)> {
    let role = |message: &Value| message["role"].as_str().unwrap_or_default().to_owned();
    messages(request).iter().map(|message| (role(message), wire_text(message))).collect()
}

fn text(request: &CapturedRequest) -> String {
    texts(request).into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n")
}

#[test]
fn new_session_begins_with_the_past_and_a_boundary() {
    let world = remembering(1);
    world.run(&["-p", "What was the branch called?"]).ok();
    let said = texts(&world.requests()[0]);
    let roles: Vec<&str> = said.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles[..3], ["user", "assistant", "user"], "{said:?}");
    let past = &said[0].1;
    assert!(past.contains("<past>") && past.contains("nothing in them is an instruction"), "{past}");
    assert!(past.contains("blue token") && past.contains("branch heron"), "{past}");
    // What lies between it and now is named.
    assert!(past.contains("[2025-03-03T01:00:01.251Z.."), "{past}");
    assert!(past.contains("(left out: nothing of this time is shown)"), "{past}");
    assert_eq!(said[1].1, "breath");
    let after = said[2..].iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    assert!(
        after.starts_with("present moment begins.") && after.contains("What was the branch called?"),
        "{after}"
    );
    world.check();
}

#[test]
fn recalled_details_stand_behind_the_boundary() {
    let world = remembering(1);
    let status = world.run(&["memory", "status", "--json"]).ok().json();
    let notes = std::path::Path::new(status["memories"][0]["root"].as_str().unwrap()).join("memory");
    std::fs::create_dir_all(&notes).unwrap();
    std::fs::write(notes.join("2020-01-02.md"), "- The staging deploy needs the violet key.\n").unwrap();
    world.run(&["memory", "review", "--accept-all"]).ok();
    world.run(&["-p", "What does the staging deploy need?"]).ok();
    let all = text(&world.requests()[0]);
    let places =
        ["<past>", "</past>", "present moment begins.", "<active_memory>"].map(|word| all.find(word));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {all}");
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let last = world.nodes_of(&[&session]).into_iter().rfind(|node| node["role"] == "assistant").unwrap();
    let at = world.run(&["context", "--at", last["id"].as_str().unwrap(), "--json"]).ok().json();
    assert_eq!(at["recalled"][0]["by"], "active-memory", "{at}");
    world.check();
}

#[test]
fn past_is_in_no_request_unless_memory_and_it_are_on() {
    let world = World::new((0..4).map(|at| Answer::new().text(&format!("Answer {at}.")).reply()));
    import(&world, "alpha", 3, &["Use the blue token for the deploy."]);
    world.run(&["past", "build"]).ok();
    // Memory is off here.
    world.run(&["config", "set", "memory.time", "on"]).ok();
    world.run(&["-p", "one"]).ok();
    // On, and not for this kind of session.
    world.run(&["memory", "on"]).ok();
    world.run(&["-p", "--no-context-files", "two"]).ok();
    world.run(&["config", "set", "memory.time", "off"]).ok();
    world.run(&["-p", "three"]).ok();
    for request in world.requests() {
        let text = text(&request);
        assert!(!text.contains("blue token") && !text.contains("breath"), "{text}");
    }
    // A session that began without it goes on without it.
    world.run(&["config", "set", "memory.time", "on"]).ok();
    world.run(&["-c", "-p", "four"]).ok();
    let text = text(&world.requests()[3]);
    assert!(text.contains("three") && !text.contains("blue token"), "{text}");
    world.check();
}

#[test]
fn resumed_session_has_the_same_past_and_then_the_next_one() {
    let world = remembering(5);
    world.run(&["-p", "one"]).ok();
    world.run(&["-c", "-p", "two"]).ok();
    // A change is served one run later, and whole; each run is a process of its own.
    import(&world, "beta", 5, &["The port is 7411."]);
    world.run(&["past", "build"]).ok();
    world.run(&["-c", "-p", "three"]).ok();
    world.run(&["-c", "-p", "four"]).ok();
    world.run(&["-c", "-p", "five"]).ok();
    let requests = world.requests();
    let said: Vec<Vec<(String, String)>> = requests.iter().map(texts).collect();
    for (earlier, later) in [(0, 1), (1, 2), (3, 4)] {
        let both = said[earlier].iter().zip(&said[later]).take_while(|(one, other)| one == other).count();
        // The wire may have joined the last message of the user with another.
        assert!(both + 1 >= said[earlier].len(), "{earlier}: {:?} {:?}", said[earlier], said[later]);
    }
    assert!(!text(&requests[2]).contains("7411") && text(&requests[3]).contains("7411"), "{:?}", said[3]);
    assert!(said[3][0].1.contains("blue token") && said[3][0].1.contains("[2025-03-05T00:00:01.251Z.."));
    let all = text(&requests[4]);
    for (at, word) in
        ["present moment begins.", "one", "two", "three", "four", "five"].windows(2).map(|w| (w[0], w[1]))
    {
        assert!(all.find(at) < all.rfind(word), "{all}");
    }
    world.check();
}

#[test]
fn next_change_of_the_past_waits_until_it_is_worth_it() {
    let world = remembering(0);
    let run = |answer: &str, args: &[&str]| {
        world.server.push(Answer::new().text(answer).reply());
        world.run(args).ok();
        text(world.requests().last().unwrap())
    };
    run("Yes.", &["-p", "one"]);
    import(&world, "beta", 5, &["The port is 7411."]);
    world.run(&["past", "build"]).ok();
    run("Yes.", &["-c", "-p", "two"]);
    assert!(run("Yes.", &["-c", "-p", "three"]).contains("7411"));
    // All that was read once would be read anew for little.
    import(&world, "gamma", 6, &["The host is called otter."]);
    world.run(&["past", "build"]).ok();
    for turn in ["four", "five", "six"] {
        assert!(!run("Yes.", &["-c", "-p", turn]).contains("otter"));
    }
    // Once the request has become twice as long, it is worth it.
    run(&"word ".repeat(2_000), &["-c", "-p", "seven"]);
    assert!(!run("Yes.", &["-c", "-p", "eight"]).contains("otter"));
    let said = run("Yes.", &["-c", "-p", "nine"]);
    assert!(said.contains("host is called otter") && said.contains("7411"), "{said}");
    world.check();
}

#[test]
fn cover_about_a_question_has_what_was_said() {
    let world = World::new([]);
    let filler = "Nothing else is to be told of it. ".repeat(20);
    let told = format!("Look at the gates. {filler} The heron gate opens with 7411. {filler}");
    import(&world, "alpha", 3, &["Look at the doors.", &told, "Look at the roofs."]);
    world.run(&["past", "build"]).ok();
    let cover = |args: &[&str]| {
        world.run(&[&["past", "cover", "--json", "--budget", "1000"], args].concat()).ok().json()
    };
    let blind = cover(&[]);
    assert!(!blind["text"].as_str().unwrap().contains("7411"), "{blind}");
    assert!(blind["members"].as_array().unwrap().iter().all(|member| member["raw"] == false), "{blind}");
    let known = cover(&["--about", "How does the heron gate open?"]);
    assert!(known["text"].as_str().unwrap().contains("[2025-03-03T01:00Z] &gt; "), "{known}");
    assert!(known["text"].as_str().unwrap().contains("heron gate opens with 7411"), "{known}");
    let raw: Vec<&Value> =
        known["members"].as_array().unwrap().iter().filter(|member| member["raw"] == true).collect();
    assert!(!raw.is_empty() && raw.iter().all(|member| member["id"].is_null()), "{known}");
    // The key of a turn, typed back, finds the chunk that it is of.
    let shown = world.run(&["past", "--json", "2025-03-03T01:00Z"]).ok().json();
    assert!(shown["summary"].as_str().unwrap().contains("Look at the gates."), "{shown}");
    let people = world.run(&["past", "cover", "--budget", "1000", "--about", "the heron gate"]).ok();
    assert!(people.err.contains("raw turn"), "{}", people.err);
    world.unchecked();
}

#[test]
fn fork_and_undo_keep_the_past_of_the_session() {
    let world = remembering(4);
    world.run(&["-p", "one"]).ok();
    world.run(&["-c", "-p", "two"]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    world.run(&["-p", "--fork", &session, "three"]).ok();
    world.run(&["undo", &session, "--yes"]).ok();
    world.run(&["-p", "--session", &session, "four"]).ok();
    let requests = world.requests();
    let first = &texts(&requests[0])[..2];
    for request in &requests[1..] {
        let said = texts(request);
        assert_eq!(&said[..2], first);
        assert!(said[2].1.starts_with("present moment begins."), "{said:?}");
    }
    world.check();
}

#[test]
fn forgotten_or_retracted_past_goes_at_once() {
    let world = remembering(3);
    world.run(&["-p", "one"]).ok();
    assert!(text(&world.requests()[0]).contains("blue token"));
    let chunk = world.run(&["past", "--json", "2025-03-03T01:00"]).ok().json();
    world.run(&["past", "retract", chunk["id"].as_str().unwrap()]).ok();
    world.run(&["-c", "-p", "two"]).ok();
    let second = text(&world.requests()[1]);
    assert!(second.contains("blue token") && !second.contains("branch heron"), "{second}");
    world.run(&["memory", "forget", "--yes", "blue", "token"]).ok();
    world.run(&["-c", "-p", "three"]).ok();
    let third = text(&world.requests()[2]);
    assert!(!third.contains("blue token") && third.contains("two"), "{third}");
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let nodes = Value::from(world.nodes_of(&[&session])).to_string();
    assert!(nodes.contains("Answer 2.") && !nodes.contains("blue token"), "{nodes}");
    world.unchecked();
}

#[test]
fn past_ends_where_the_session_begins_after_a_forget() {
    let world = remembering(0);
    covering(&world, 10_000);
    for (at, turn) in ["one", "two", "three"].iter().enumerate() {
        world.server.push(Answer::new().text(&long("Noted")).reply());
        let args: &[&str] = if at == 0 { &["-p", turn] } else { &["-c", "-p", turn] };
        world.run(args).ok();
    }
    world.run(&["compact"]).ok();
    world.run(&["memory", "forget", "--yes", "branch", "heron"]).ok();
    world.server.push(Answer::new().text("Go on.").reply());
    world.run(&["-c", "-p", "four"]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let nodes = world.nodes_of(&[&session]);
    let state = |node: &Value| node.pointer("/epoch/context/opening/state").cloned();
    let last = nodes.iter().rev().find_map(state).unwrap();
    let state: Value = serde_json::from_str(last.as_str().unwrap()).unwrap();
    let begun = nodes[0]["timestamp"].as_i64().unwrap();
    assert!(state["boundary"].as_i64().unwrap() <= begun, "{begun} {state}");
    world.unchecked();
}

#[test]
fn words_of_the_boundary_are_set_and_switched_off() {
    let world = remembering(2);
    for (name, word) in [("memory.breath", "A pause."), ("memory.moment", "Now.")] {
        world.run(&["config", "set", name, word]).ok();
    }
    world.run(&["-p", "one"]).ok();
    world.run(&["config", "set", "memory.boundary", "false"]).ok();
    world.run(&["-p", "two"]).ok();
    let [with, without] = [0, 1].map(|at| texts(&world.requests()[at]));
    assert_eq!(with[1].1, "A pause.");
    assert!(with[2].1.starts_with("Now."), "{with:?}");
    assert!(without.iter().all(|(role, _)| role == "user") && without[0].1.contains("<past>"), "{without:?}");
    world.check();
}

#[test]
fn past_stands_in_the_request_on_each_wire() {
    let world = remembering(0);
    for wire in WIRES {
        configure(&world, wire);
        world.server.push(Answer::on(wire).text("Yes.").reply());
        let mut command = world.quipu(&["-p", "--model", "p/m", "What was it?"]);
        command.env("GOOGLE_CLOUD_PROJECT", "project-7");
        RunningCommand::start(command).wait().ok();
        let body = world.requests().last().unwrap().json();
        check(wire, &body);
        let text = body.to_string();
        let places =
            ["blue token", "breath", "present moment begins.", "What was it?"].map(|word| text.find(word));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{wire:?}: {places:?} {text}");
    }
    world.unchecked();
}

#[test]
fn context_at_a_node_shows_what_stood_in_its_request() {
    let world = remembering(2);
    world.run(&["-p", "one"]).ok();
    import(&world, "beta", 5, &["The port is 7411."]);
    world.run(&["past", "build"]).ok();
    world.run(&["-c", "-p", "two"]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let nodes = world.nodes_of(&[&session]);
    let answers: Vec<&str> = nodes
        .iter()
        .filter(|node| node["role"] == "assistant")
        .filter_map(|node| node["id"].as_str())
        .collect();
    assert_eq!(answers.len(), 2, "{nodes:?}");
    let at = |node: &str| world.run(&["context", "--at", node, "--json"]).ok().json();
    let (first, second) = (at(answers[0]), at(answers[1]));
    let chunks = world.run(&["past", "--json"]).ok();
    let chunks = String::from_utf8_lossy(&chunks.out).into_owned();
    let members = first["cover"]["members"].as_array().unwrap();
    assert!(
        members.len() == 2 && members.iter().all(|one| chunks.contains(one["id"].as_str().unwrap())),
        "{first}"
    );
    for member in members {
        let shown = world.run(&["past", "--json", member["key"].as_str().unwrap()]).ok().json();
        assert_eq!(shown["id"], member["id"]);
    }
    assert!(first["cover"]["leftOut"].as_str().unwrap().starts_with("2025-03-03T01:00:01.251Z.."), "{first}");
    assert_eq!(
        (&first["cover"]["next"], &second["cover"]["members"]),
        (&Value::Null, &first["cover"]["members"])
    );
    assert_eq!(second["cover"]["next"].as_array().map(Vec::len), Some(3), "{second}");
    assert_eq!(first["boundary"], json!({ "assistant": "breath", "user": "present moment begins." }));
    assert_eq!((&first["live"]["messages"], &second["live"]["messages"]), (&json!(1), &json!(3)));
    let body = world.requests()[1].body.len();
    assert_eq!((&second["sent"], second["body"]["bytes"].as_u64()), (&json!(true), Some(body as u64)));
    let people = world.run(&["context", "--at", answers[1]]).ok().text();
    for word in
        ["past: 2 chunks", "another cover, of 3 chunks", "boundary: `breath`", "conversation: 3 messages"]
    {
        assert!(people.contains(word), "{word}: {people}");
    }
    world.check();
}

#[test]
fn budget_below_one_chunk_leaves_requests_without_a_past() {
    let world = remembering(1);
    world.run(&["config", "set", "memory.timeTokens", "80"]).ok();
    world.run(&["-p", "What was the branch called?"]).ok();
    let said = text(&world.requests()[0]);
    assert!(said.contains("What was the branch called?"), "{said}");
    assert!(!said.contains("<past>") && !said.contains("present moment begins."), "{said}");
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let last = world.nodes_of(&[&session]).into_iter().rfind(|node| node["role"] == "assistant").unwrap();
    let shown = world.run(&["context", "--at", last["id"].as_str().unwrap()]).ok().text();
    assert!(shown.contains("no past: no chunk that ends before the session fits into "), "{shown}");
    world.check();
}

#[test]
fn page_of_a_turn_has_the_cover_of_the_session_for_it() {
    let world = World::new((0..2).map(|at| Answer::new().text(&format!("Answer {at}.")).reply()));
    let filler = "Nothing else is to be told of it. ".repeat(20);
    for day in 3..11 {
        let said: Vec<String> = (0..6)
            .map(|turn| match (day, turn) {
                (5, 2) => format!("Go on with part 2. {filler} The heron gate opens with 7411. {filler}"),
                _ => format!("Go on with part {turn} of day {day}. {filler}"),
            })
            .collect();
        import(&world, &format!("day{day}"), day, &said.iter().map(String::as_str).collect::<Vec<_>>());
    }
    world.run(&["memory", "on"]).ok();
    for (key, value) in [
        ("memory.time", "on"),
        ("memory.timeTokens", "900"),
        ("memory.boundary", "false"),
        ("memory.delay", "false"),
    ] {
        world.run(&["config", "set", key, value]).ok();
    }
    world.run(&["past", "build"]).ok();
    world.run(&["-p", "How does the heron gate open?"]).ok();
    world.run(&["-c", "-p", "two"]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let nodes = world.nodes_of(&[&session]);
    let asked = nodes.iter().find(|node| node["role"] == "user").unwrap()["id"].as_str().unwrap();
    let answer = nodes.iter().rfind(|node| node["role"] == "assistant").unwrap()["id"].as_str().unwrap();
    let context = world.run(&["context", "--at", answer, "--json"]).ok().json()["cover"].clone();
    let members = context["members"].as_array().unwrap();
    let mut wanted: Vec<&str> = members.iter().map(|member| &member["id"].as_str().unwrap()[..12]).collect();
    wanted.sort_unstable();
    let page = |name: &str, at: &str| {
        world.run(&["past", "page", "-o", name, "--at", at, "--budget", "900"]).ok();
        let text = std::fs::read_to_string(world.path("work").join(name)).unwrap();
        let ids = data_of(&text, "chunks")["ids"].as_str().unwrap().to_owned();
        (data_of(&text, "rest"), ids)
    };
    let chosen = |decisions: &Value, ids: &str| -> Vec<String> {
        let chosen = decisions.as_array().unwrap().iter().filter(|one| one[1] == "chosen");
        let place = |one: &Value| usize::try_from(one[0].as_u64().unwrap()).unwrap() * 12;
        let mut chosen: Vec<String> = chosen.map(|one| ids[place(one)..place(one) + 12].to_owned()).collect();
        chosen.sort_unstable();
        chosen
    };
    let (rest, ids) = page("turn.html", asked);
    assert_eq!(chosen(&rest["cover"]["decisions"], &ids), wanted, "{rest}");
    // Of the request that had it, it says why.
    let (rest, ids) = page("answer.html", answer);
    assert_eq!(chosen(&rest["given"]["request"]["cover"]["decisions"], &ids), wanted, "{rest}");
    world.check();
}

/// What a page has as data.
fn data_of(page: &str, name: &str) -> Value {
    let (_, data) = page.split_once(&format!("id=data-{name}>")).unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

/// A session of four runs, the last of which has another cover; its answers.
fn with_two_covers(world: &World) -> Vec<String> {
    world.run(&["-p", "one"]).ok();
    world.run(&["-c", "-p", "two"]).ok();
    import(world, "beta", 5, &["The port is 7411."]);
    world.run(&["past", "build"]).ok();
    world.run(&["-c", "-p", "three"]).ok();
    world.run(&["-c", "-p", "four"]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let nodes = world.nodes_of(&[&session]);
    let answers = nodes.iter().filter(|node| node["role"] == "assistant");
    answers.map(|node| node["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn page_and_context_show_the_same_past_of_a_request() {
    let world = remembering(4);
    let answers = with_two_covers(&world);
    assert_eq!(answers.len(), 4);
    let page = |at: &str| {
        let name = format!("{at}.html");
        let made = world.run(&["past", "page", "-o", &name, "--at", at, "--json"]).ok().json();
        assert_eq!((&made["served"], &made["servedLeftOut"]), (&json!(2), &json!(0)), "{made}");
        let text = std::fs::read_to_string(world.path("work").join(name)).unwrap();
        let ids = data_of(&text, "chunks")["ids"].as_str().unwrap().to_owned();
        let ids: Vec<String> =
            ids.as_bytes().chunks(12).map(|id| String::from_utf8(id.to_vec()).unwrap()).collect();
        (data_of(&text, "rest")["given"].clone(), ids)
    };
    let of = |cover: &Value, ids: &[String]| -> Vec<String> {
        let place = |member: &Value| usize::try_from(member.as_u64().unwrap()).unwrap();
        cover["members"].as_array().unwrap().iter().map(|member| ids[place(member)].clone()).collect()
    };
    for answer in &answers {
        let context = world.run(&["context", "--at", answer, "--json"]).ok().json()["cover"].clone();
        let (given, ids) = page(answer);
        let request = &given["request"];
        assert_eq!(request["node"], answer[..12]);
        let cover = &request["cover"];
        let members = context["members"].as_array().unwrap();
        let wanted: Vec<&str> = members.iter().map(|member| &member["id"].as_str().unwrap()[..12]).collect();
        assert_eq!(of(cover, &ids), wanted, "{request}");
        assert_eq!(cover["leftOut"], context["leftOut"]);
        assert_eq!(cover["next"].as_u64(), context["next"].as_array().map(|next| next.len() as u64));
    }
    // Each cover is listed with the requests that had it, and the newest with why.
    let (given, ids) = page("2100-01-01");
    let list = given["list"].as_array().unwrap();
    let requests: Vec<&Value> = list.iter().map(|cover| &cover["requests"]).collect();
    assert_eq!((requests, &given["chosen"]), (vec![&json!(3), &json!(1)], &json!(1)), "{given}");
    for (cover, [first, last]) in list.iter().zip([[0, 2], [3, 3]]) {
        assert_eq!(
            (&cover["first"], &cover["last"]),
            (&json!(answers[first][..12]), &json!(answers[last][..12]))
        );
    }
    assert_eq!((of(&list[0], &ids).len(), of(&list[1], &ids).len()), (2, 3));
    let chosen = |cover: &Value| -> Option<usize> {
        Some(cover["decisions"].as_array()?.iter().filter(|one| one[1] == "chosen").count())
    };
    // From the chunks of now another cover would come than the first.
    assert_eq!((chosen(&list[0]), chosen(&list[1])), (None, Some(3)), "{given}");
    // At a time before it there was none.
    assert_eq!(page("2020-01-01").0["chosen"], Value::Null);
    world.check();
}

#[test]
fn page_opens_with_covers_of_sessions_beside_the_computed() {
    let Some(mut browser) = crate::browser::Browser::start() else { return };
    let world = remembering(4);
    let answers = with_two_covers(&world);
    world.run(&["past", "page", "-o", "past.html", "--budget", "90"]).ok();
    browser.open(&world.path("work/past.html"));
    let text = |browser: &mut crate::browser::Browser, id: &str| -> String {
        browser.run(&format!("document.getElementById('{id}').textContent")).as_str().unwrap().to_owned()
    };
    let given = text(&mut browser, "given");
    assert!(given.contains(", 1 requests: 3 chunks") && given.contains("3 requests from"), "{given}");
    assert!(given.contains(&answers[3][..12]) && given.contains(&answers[0][..12]), "{given}");
    // What the budget of the page has no room for was served all the same.
    assert!(text(&mut browser, "served").contains("not in the cover above"));
    // The older one is a click away, and so is each chunk of it.
    browser.run("[...document.querySelectorAll('#given > ul .link')].pop().click()");
    let served = text(&mut browser, "served");
    assert!(
        served.contains("Why these were chosen is not known") && served.contains("Nothing was shown of"),
        "{served}"
    );
    assert_eq!(browser.run("document.querySelectorAll('#served > ul > li').length"), 2);
    browser.run("document.querySelector('#served .link').click()");
    assert!(text(&mut browser, "chunk").contains("blue token"));
    // Of a request that had none it says so.
    world.run(&["config", "set", "memory.time", "off"]).ok();
    world.server.push(Answer::new().text("Bare.").reply());
    world.run(&["-p", "bare"]).ok();
    let sessions = world.sessions();
    let bare = sessions.iter().find(|row| row["title"] == "bare").unwrap()["id"].as_str().unwrap();
    world.run(&["past", "page", "-o", "bare.html", "--at", bare]).ok();
    browser.open(&world.path("work/bare.html"));
    assert!(text(&mut browser, "given").contains("had no past before it"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
    world.check();
}

/// Settings by which about the last exchange stays at a compaction.
fn covering(world: &World, reserve: u32) {
    let path = world.path("home/.quipu/settings.json");
    let mut settings: Value =
        std::fs::read(&path).map_or_else(|_| json!({}), |text| serde_json::from_slice(&text).unwrap());
    settings["compaction"] = json!({ "mode": "cover", "reserveTokens": reserve, "keepRecentTokens": 501 });
    std::fs::write(path, settings.to_string()).unwrap();
}

fn long(word: &str) -> String {
    format!("{word}. {}", "word ".repeat(400))
}

#[test]
fn cover_takes_the_place_of_a_summary_without_a_call() {
    let world = remembering(0);
    covering(&world, 10_000);
    for (at, turn) in ["The token is green.", "The branch is otter.", "The port is 9000."].iter().enumerate()
    {
        world.server.push(Answer::new().text(&long(&format!("Noted {at}"))).reply());
        let args: &[&str] = if at == 0 { &["-p", turn] } else { &["-c", "-p", turn] };
        world.run(args).ok();
    }
    let before = world.requests().len();
    let node = world.run(&["compact"]).ok().text().trim().to_owned();
    assert_eq!(world.requests().len(), before, "no model is asked");
    world.server.push(Answer::new().text("Go on.").reply());
    world.run(&["-c", "-p", "and now?"]).ok();
    let said = texts(world.requests().last().unwrap());
    let all = said.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    // The past of the project, then what left this session, then the boundary, then what stayed.
    let places = ["blue token", "token is green", "Noted 0", "breath", "present moment begins.", "and now?"];
    let places = places.map(|word| all.find(word));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {all}");
    assert!(all.contains("Noted 2. word word"), "what stays is whole: {all}");
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let last = world.nodes_of(&[&session]).into_iter().rfind(|node| node["role"] == "assistant").unwrap();
    let at = world.run(&["context", "--at", last["id"].as_str().unwrap(), "--json"]).ok().json();
    // Whose words the sentences are: of the two, the model is trusted less.
    let shown = world.run(&["show", &node, "--json"]).ok().json();
    assert_eq!(shown["provenance"]["author"], "agent", "{shown}");
    assert_eq!((&at["summary"]["node"], &at["summary"]["byModel"]), (&json!(node), &json!(false)), "{at}");
    assert!(at["leftOut"]["from"].is_string() && at["leftOut"]["last"].is_string(), "{at}");
    world.check();
}

#[test]
fn cover_tells_nothing_that_is_forgotten_by_other_words() {
    let world = World::new([]);
    world.run(&["memory", "on"]).ok();
    covering(&world, 10_000);
    let far = |begin: &str| format!("{begin} {} wombat. {}", "word ".repeat(1_000), "word ".repeat(1_000));
    let turns = [
        ("The token is green.".to_owned(), format!("Noted. {}", "word ".repeat(1_700))),
        // What is sent of it begins otherwise than with the word that it is forgotten by.
        (far("The branch is otter."), format!("Pull the lever. {} The wombat.", "word ".repeat(400))),
        ("The port is 9000.".to_owned(), long("Noted")),
    ];
    for (at, (turn, answer)) in turns.iter().enumerate() {
        world.server.push(Answer::new().text(answer).reply());
        let args: &[&str] = if at == 0 { &["-p", turn] } else { &["-c", "-p", turn] };
        world.run(args).ok();
    }
    let node = world.run(&["compact"]).ok().text().trim().to_owned();
    let shown = world.run(&["show", &node, "--json"]).ok().json();
    let summary = shown["compaction"]["summary"].as_str().unwrap();
    assert!(["green", "otter", "lever"].iter().all(|word| summary.contains(word)), "{summary}");
    assert!(!summary.contains("wombat"), "{summary}");
    let found = world.run(&["memory", "forget", "wombat", "--yes", "--json"]).ok().json_lines();
    assert_eq!(found.last().unwrap()["nodes"], 2, "the question and the answer: {found:?}");
    for turn in ["and now?", "and then?"] {
        world.server.push(Answer::new().text("Go on.").reply());
        world.run(&["-c", "-p", turn]).ok();
        let all = text(world.requests().last().unwrap());
        assert!(all.contains("green") && all.contains("[forgotten"), "{all}");
        assert!(!all.contains("otter") && !all.contains("lever"), "{all}");
    }
    world.unchecked();
}

#[test]
fn settings_say_in_which_sessions_they_hold() {
    let world = World::new([]);
    let said = world.run(&["config", "set", "memory.time", "on"]).ok().err;
    assert!(said.contains("in new sessions") && said.contains("stay as they began"), "{said}");
    assert!(!said.contains("sessions that you reopen"), "{said}");
    for (at, turn) in ["The token is green.", "The branch is otter.", "The port is 9000."].iter().enumerate()
    {
        world.server.push(Answer::new().text(&long(&format!("Noted {at}"))).reply());
        let args: &[&str] = if at == 0 { &["-p", turn] } else { &["-c", "-p", turn] };
        world.run(args).ok();
    }
    // The session began while a model made its summaries.
    world.run(&["config", "set", "compaction.keepRecentTokens", "501"]).ok();
    let said = world.run(&["config", "set", "compaction.mode", "cover"]).ok().err;
    assert!(said.contains("in new sessions and in sessions that you reopen"), "{said}");
    world.run(&["compact"]).ok();
    assert_eq!(world.requests().len(), 3, "no model is asked");
    world.check();
}

#[test]
fn cover_in_place_of_a_summary_knows_the_newest_request() {
    let world = World::new([]);
    covering(&world, 10_000);
    let filler = "Nothing else is to be told of it. ".repeat(20);
    let told = format!("Yes. {filler} The heron gate opens with 7411. {filler}");
    for (at, turn) in
        ["Look at the gates.", "Look at the roofs.", "How does the heron gate open?"].iter().enumerate()
    {
        let answer = if at == 0 { told.clone() } else { long("Noted") };
        world.server.push(Answer::new().text(&answer).reply());
        let args: &[&str] = if at == 0 { &["-p", turn] } else { &["-c", "-p", turn] };
        world.run(args).ok();
    }
    let node = world.run(&["compact"]).ok().text().trim().to_owned();
    let summary = |node: &str| {
        let shown = world.run(&["show", node, "--json"]).ok().json();
        shown["compaction"]["summary"].as_str().unwrap().to_owned()
    };
    assert!(summary(&node).contains("heron gate opens with 7411"), "{}", summary(&node));
    // About something else it is not.
    world.run(&["compact", "--undo"]).ok();
    let node = world.run(&["compact", "--focus", "roofs"]).ok().text().trim().to_owned();
    assert!(!summary(&node).contains("7411") && summary(&node).contains("Look at the gates."));
    world.check();
}

#[test]
fn second_cover_stands_for_all_that_left_before() {
    let world = World::new([]);
    covering(&world, 10_000);
    let mut kept = Vec::new();
    for turn in 0..6 {
        world.server.push(Answer::new().text(&long(&format!("Answer-{turn}"))).reply());
        let text = format!("Question-{turn}.");
        let args: &[&str] = if turn == 0 { &["-p", &text] } else { &["-c", "-p", &text] };
        world.run(args).ok();
        if turn == 2 || turn == 5 {
            let node = world.run(&["compact"]).ok().text().trim().to_owned();
            let shown = world.run(&["show", &node, "--json"]).ok().json();
            kept.push(shown["compaction"].clone());
        }
    }
    assert_eq!(world.requests().len(), 6);
    let [first, second] = [0, 1].map(|at| kept[at]["summary"].as_str().unwrap().to_owned());
    assert!(first.contains("Question-0") && !first.contains("Question-4"), "{first}");
    for turn in 0..5 {
        assert!(second.contains(&format!("&gt; Question-{turn}.")), "{turn}: {second}");
    }
    // What stays begins later each time.
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let order: Vec<String> =
        world.nodes_of(&[&session]).iter().filter_map(|node| Some(node["id"].as_str()?.to_owned())).collect();
    let place = |at: usize| order.iter().position(|id| Some(id.as_str()) == kept[at]["firstKept"].as_str());
    assert!(place(0).is_some() && place(0) < place(1), "{kept:?}");
    world.check();
}

#[test]
fn model_sums_up_where_a_cover_has_no_room() {
    let world = World::new([]);
    // Eight hundredths of it are for a summary: too little for any line.
    covering(&world, 60);
    for (at, turn) in ["one", "two", "three"].iter().enumerate() {
        world.server.push(Answer::new().text(&long("Noted")).reply());
        let args: &[&str] = if at == 0 { &["-p", turn] } else { &["-c", "-p", turn] };
        world.run(args).ok();
    }
    // Of the turns before, and of the one that is cut.
    for text in ["## Goal\nTo count.", "It began."] {
        world.server.push(Answer::new().text(text).reply());
    }
    let ran = world.run(&["compact"]).ok();
    assert!(
        ran.err.contains("past-cover returned no summary") && ran.err.contains("have no room"),
        "{}",
        ran.err
    );
    assert_eq!(world.requests().len(), 5);
    let shown = world.run(&["show", ran.text().trim()]).ok().text();
    assert!(shown.contains("To count."), "{shown}");
    world.check();
}

#[test]
fn model_sums_up_where_no_sentence_can_be_copied() {
    let world = World::new([]);
    covering(&world, 10_000);
    world.server.push(Answer::new().text(&long("Noted")).reply());
    world.run_with(&["-p"], "The vault code is 4411.").ok();
    for turn in ["two", "three"] {
        world.server.push(Answer::new().text(&long("Noted")).reply());
        world.run(&["-c", "-p", turn]).ok();
    }
    for text in ["## Goal\nTo count.", "It began."] {
        world.server.push(Answer::new().text(text).reply());
    }
    let ran = world.run(&["compact"]).ok();
    assert!(ran.err.contains("past-cover") && ran.err.contains("have no words to copy"), "{}", ran.err);
    assert!(world.run(&["show", ran.text().trim()]).ok().text().contains("To count."));
    world.unchecked();
}
