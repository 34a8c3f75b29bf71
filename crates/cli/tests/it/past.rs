//! The past as people use it: estimated, built, shown by ranges, checked, taken back, and built on after a kill.

use std::path::Path;

use nix::sys::signal::Signal;
use quipu_protocol::NodeId;
use quipu_store::{LineageEnd, OpenOptions, RefName, SqliteStore, Store};
use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::archive::{assistant, header, lines, user};
use crate::pty::{CTRL_D, Terminal};
use crate::support::*;

/// A session with a request and an answer each hour from a midnight on.
pub(crate) fn hours(world: &World, id: &str, day: u32, turns: usize) -> String {
    let mut entries = vec![header(world, id)];
    let mut parent = String::new();
    for turn in 0..turns {
        let at = |second: u32| {
            let days = day as usize + turn / 24;
            format!("2025-{:02}-{:02}T{:02}:00:{second:02}.250Z", 1 + days / 28, 1 + days % 28, turn % 24)
        };
        let (asked, answered) = (format!("u{turn}"), format!("a{turn}"));
        let mut said = user(&asked, &parent, &format!("Please do step {turn} of {id}."));
        said["timestamp"] = json!(at(0));
        if turn == 0 {
            said["parentId"] = Value::Null;
        }
        let text = json!([{ "type": "text", "text": format!("Did step {turn} in src/{id}.rs.") }]);
        let mut answer = assistant(&answered, &asked, &text, "stop");
        answer["timestamp"] = json!(at(1));
        entries.extend([said, answer]);
        parent = answered;
    }
    lines(&entries)
}

pub(crate) fn import(world: &World, name: &str, text: &str) {
    let file = world.file(name, text);
    world.run(&["import", "pi", file.to_str().unwrap()]).ok();
}

#[test]
fn past_is_built_as_estimated_and_found_by_ranges() {
    let world = World::new([]);
    world.run(&["past"]).fails(2, &["no sessions yet"]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 30));
    assert!(world.run(&["past"]).ok().err.contains("no summary of project"));
    let estimated = world.run(&["past", "estimate", "--json"]).ok().json();
    assert_eq!(
        (&estimated["leaves"], &estimated["calls"], &estimated["cost"]),
        (&json!(30), &json!(0), &json!(0))
    );
    let built = world.run(&["past", "build", "--json"]).ok().json();
    assert_eq!(built, estimated);
    let again = world.run(&["past", "build", "--json"]).ok().json();
    assert_eq!((&again["leaves"], &again["parents"]), (&json!(0), &json!(0)));
    assert_eq!(world.run(&["past", "estimate", "--json"]).ok().json(), again);
    // Each printed key finds its own chunk, down from the coarsest.
    let mut open: Vec<String> = world
        .run(&["past", "--json"])
        .ok()
        .json_lines()
        .iter()
        .map(|root| root["key"].as_str().unwrap().to_owned())
        .collect();
    let mut leaves = 0;
    while let Some(key) = open.pop() {
        let shown = world.run(&["past", &key, "--json"]).ok().json();
        assert_eq!(shown["key"], *key);
        assert_eq!(world.run(&["past", shown["id"].as_str().unwrap(), "--json"]).ok().json(), shown);
        let children = shown["childKeys"].as_array().unwrap();
        leaves += usize::from(children.is_empty());
        open.extend(children.iter().map(|key| key.as_str().unwrap().to_owned()));
    }
    assert_eq!(leaves, 30);
    let text = world.run(&["past", "2025-01-01T05:00Z..2025-01-01T05:01Z"]).ok().text();
    assert!(
        text.contains("> Please do step 5 of alpha.") && text.contains("- Did step 5 in src/alpha.rs."),
        "{text}"
    );
    world.run(&["past", "next", "tuesday"]).fails(2, &["`next tuesday` is no time", "last month"]);
    // Other programs find the words as those of any node.
    let found = world.run(&["search", "step 5 of alpha", "--json"]).ok().text();
    assert!(found.contains("past-project-"), "{found}");
    // Nobody speaks in it.
    let session = world.run(&["sessions", "--all", "--json"]).ok().json_lines();
    let past = session.iter().find(|row| row["id"].as_str().unwrap().starts_with("past-project-")).unwrap();
    let id = past["id"].as_str().unwrap();
    world.run(&["-p", "--session", id, "hello"]).fails(2, &["summaries of a past", "no prompts"]);
    let exported = world.run(&["export", "--format", "pi", id]).ok().text();
    assert!(exported.contains("Please do step 5 of alpha."));
    // A build is one step, however many commits it had.
    let levels = |world: &World| world.run(&["past", "check", "--json"]).ok().json()["levels"].clone();
    let whole = levels(&world);
    import(&world, "b.jsonl", &hours(&world, "beta", 60, 80));
    world.run(&["past", "build"]).ok();
    let more = levels(&world);
    assert!(more[0] == 110 && more != whole, "{more}");
    let undone = world.run(&["undo", id, "--yes"]).ok();
    assert!(!undone.err.contains("Continue with"), "nobody talks in it: {}", undone.err);
    assert_eq!(levels(&world), whole);
    world.run(&["undo", id, "--yes"]).ok();
    assert_eq!(levels(&world), json!([]));
    for levels_then in [&whole, &more] {
        world.run(&["redo", id, "--yes"]).ok();
        assert_eq!(levels(&world), *levels_then);
    }
}

#[test]
fn past_that_is_asked_for_wrongly_is_an_error() {
    let world = World::new([]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 1));
    for command in [&["past", "build", "--agent", "nosuch"][..], &["past", "--agent", "nosuch"]] {
        world.run(command).fails(2, &["no session is of `nosuch`", "pi"]);
    }
    world.run(&["past", "build", "--agent", "pi"]).ok();
    world.run(&["past", "--all", "build"]).fails(2, &["`quipu past build --all`"]);
    let told = world.run(&["past", "build"]).ok().text();
    assert!(
        told.contains("1 chunk of nodes and 0 above them made") && told.contains("2 nodes of 1 session\n"),
        "{told}"
    );
    // An id of something else says what it is of; the node of a chunk stands for the chunk.
    let chunk = world.run(&["past", "2025", "--json"]).ok().json();
    let source = chunk["sources"][0]["node"].as_str().unwrap();
    let is_a_node = format!("{} is a node and no chunk", &source[..12]);
    world.run(&["past", source]).fails(2, &[&is_a_node, "quipu show"]);
    world.run(&["past", "sources", &source[..12]]).fails(2, &[&is_a_node]);
    world.run(&["past", "deadbeef99"]).fails(2, &["no chunk of project", "`--all`"]);
    world.run(&["past", "2025-01-01@deadbeef99"]).fails(2, &["begins with `deadbeef99`"]);
    let node = &chunk["node"].as_str().unwrap()[..12];
    let of_node = world.run(&["past", node, "--json"]).ok().json();
    assert_eq!(of_node, chunk);
    // Behind a range stands the id of a chunk, and nothing else.
    world.run(&["past", &format!("1999-01-01@{node}")]).fails(2, &[&format!("begins with `{node}`")]);
    world.run(&["past", "1f26"]).fails(2, &["`1f26` is no time", "six digits"]);
    world.run(&["past", "help"]).fails(2, &["`quipu past --help`"]);
    // What was taken back is found by its id, and not by its time.
    world.run(&["past", "retract", "2025"]).ok();
    let id = chunk["id"].as_str().unwrap();
    world.run(&["past", "review", "2025"]).fails(2, &["no chunk of project", &id[..12]]);
    assert_eq!(world.run(&["past", &id[..12], "--json"]).ok().json()["state"], "retracted");
    // Summaries that are found are nothing to go on with.
    let found = world.run(&["search", "step 0 of alpha"]).ok().text();
    assert!(!found.contains("--session past-"), "{found}");
}

#[test]
fn sources_show_late_evidence_and_check_shows_gaps() {
    let world = World::new([]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 5));
    world.run(&["past", "build", "--all"]).ok();
    import(&world, "b.jsonl", &hours(&world, "beta", 0, 2));
    let checked = world.run(&["past", "check", "--all", "--json"]).ok().json();
    assert_eq!(checked["gaps"].as_array().unwrap().len(), 2);
    assert!(checked["gaps"][0]["lateFor"].is_string(), "{checked}");
    assert_eq!((&checked["levels"], &checked["roots"]), (&json!([5, 1]), &json!(1)));
    let key = "2025-01-01T01:00:00.25Z..2025-01-01T01:00:01.251Z";
    let sources = world.run(&["past", "sources", key, "--all", "--json"]).ok().json();
    assert_eq!(sources["coverage"], 50);
    let kinds: Vec<&str> =
        sources["evidence"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["explicit", "explicit", "late", "late"]);
    let text = world.run(&["past", "sources", key, "--all"]).ok().text();
    assert!(text.contains("2 said at the same time, and come after") && text.contains("50 %"), "{text}");
    world.run(&["past", "build", "--all"]).ok();
    let checked = world.run(&["past", "check", "--all"]).ok().text();
    assert!(checked.contains("7 on level 0") && !checked.contains("no summary"), "{checked}");
}

#[test]
fn retracted_chunk_is_gone_until_it_is_reviewed() {
    let world = World::new([]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 6));
    world.run(&["past", "build"]).ok();
    let key = "2025-01-01T03:00:00.25Z..2025-01-01T03:00:01.251Z";
    let id = world.run(&["past", key, "--json"]).ok().json()["id"].as_str().unwrap().to_owned();
    // A command of a session is not a person.
    let mut of_a_tool = world.quipu(&["past", "retract", key]);
    of_a_tool.env("QUIPU_PROCESS", "registry.session.1");
    assert!(!of_a_tool.output().unwrap().status.success());
    world.run(&["past", "retract", key]).ok();
    let built = world.run(&["past", "build", "--json"]).ok().json();
    assert_eq!((&built["leaves"], &built["parents"], &built["retracted"]), (&json!(0), &json!(1), &json!(1)));
    for root in world.run(&["past", "--json"]).ok().json_lines() {
        assert!(!root["summary"].as_str().unwrap().contains("step 3"), "{root}");
    }
    assert_eq!(world.run(&["past", &id, "--json"]).ok().json()["state"], "retracted");
    world.run(&["past", "review", &id]).ok();
    let built = world.run(&["past", "build", "--json"]).ok().json();
    assert_eq!((&built["restored"], &built["parents"]), (&json!(1), &json!(0)));
    assert_eq!(world.run(&["past", key, "--json"]).ok().json()["state"], "reviewed");
}

#[test]
fn search_marks_a_chunk_that_was_taken_back() {
    let world = World::new([]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 1));
    world.run(&["past", "build"]).ok();
    world.run(&["past", "retract", "2025-01-01"]).ok();
    let words = "Please do step 0";
    let found = world.run(&["search", words, "--json"]).ok().json_lines();
    let chunk = found.iter().find(|hit| hit["role"] == "custom").unwrap();
    assert_eq!(chunk["withdrawn"], "retracted", "{found:?}");
    assert!(found.iter().any(|hit| hit["role"] == "user" && hit["withdrawn"].is_null()), "{found:?}");
    let text = world.run(&["search", words]).ok().text();
    assert!(text.contains("retracted: nobody is shown this summary"), "{text}");
    // A search for questions looks at what was said, and at no chunk at all.
    world.run(&["memory", "on"]).ok();
    let asked = world.run(&["memory", "search", "what was step 0 of alpha", "--json"]).ok().json_lines();
    let past = |hit: &Value| hit["session"].as_str().is_some_and(|id| id.starts_with("past-"));
    assert!(!asked.is_empty() && !asked.iter().any(past), "{asked:?}");
}

#[test]
fn chunks_are_equal_behind_an_export_and_an_import() {
    let world = World::new([]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 6));
    world.run(&["past", "build", "--all"]).ok();
    let key = "2025-01-01T03:00:00.25Z..2025-01-01T03:00:01.251Z";
    world.run(&["past", "supersede", key, "--all", "--text", "My own words."]).ok();
    world.run(&["past", "review", "2025-01-01T01:00:00.25Z..2025-01-01T01:00:01.251Z", "--all"]).ok();
    let exported = world.run(&["export", "--format", "pi", "past-all"]).ok().text();
    let other = World::new([]);
    let file = other.file("past.jsonl", &exported);
    other.run(&["import", "pi", file.to_str().unwrap()]).ok();
    let chunks = |world: &World, name: &str| {
        let store = SqliteStore::open(&world.store(), &OpenOptions::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let head = store.head(&RefName::from(name)).await.unwrap().unwrap();
            let nodes = store.lineage(head, LineageEnd::Root).await.unwrap();
            let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
            quipu_past::read_chunks(&store, &quipu_past::PastScope::All, &ids).await.unwrap()
        })
    };
    let (here, there) = (chunks(&world, "quipu/past-all"), chunks(&other, "pi/past-all"));
    assert!(here.len() >= 8, "{here:?}");
    assert!(here.iter().any(|chunk| chunk.method == quipu_past::SummaryMethod::Person));
    assert_eq!(here, there);
    assert!(exported.contains("\"kind\":\"review\"") && exported.contains("\"state\":\"reviewed\""));
}

/// One that knows the tables alone, and shares no code with us.
#[test]
fn chunks_are_nodes_that_other_programs_read() {
    let world = World::new([]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 6));
    world.run(&["past", "build", "--all"]).ok();
    world.run(&["past", "create", "2025-01-01", "--all", "--text", "My own words."]).ok();
    let neighbour = quipu_testkit::Neighbour::open(&world.store());
    let head = neighbour.head("quipu/past-all").unwrap();
    let read = neighbour.entries(&head);
    assert!(read.len() >= 8, "{read:?}");
    assert!(read.iter().any(|said| said.to_string().contains("Please do step 3 of alpha.")), "{read:?}");
    assert!(read.iter().any(|said| said.to_string().contains("My own words.")), "{read:?}");
}

/// The nodes of the past of everything, the first two of which begin its session.
async fn length(store: &SqliteStore) -> usize {
    match store.head(&RefName::from("quipu/past-all")).await.unwrap() {
        Some(head) => store.lineage(head, LineageEnd::Root).await.unwrap().len(),
        None => 0,
    }
}

async fn head(store: &SqliteStore) -> Option<NodeId> {
    store.head(&RefName::from("quipu/past-all")).await.unwrap()
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, &OpenOptions::default()).unwrap()
}

#[test]
fn killed_build_loses_and_repeats_nothing() {
    let world = World::new([]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 1_200));
    let estimated = world.run(&["past", "estimate", "--all", "--json"]).ok().json();
    let chunks = |value: &Value| {
        let counts = ["leaves", "parents"].iter().map(|name| value[name].as_u64().unwrap());
        usize::try_from(counts.sum::<u64>()).unwrap()
    };
    let all = chunks(&estimated);
    assert!(all > 1_200);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut kills, mut made) = (0, 0);
    while kills < 4 && made < all {
        let store = open(&world.store());
        let before = runtime.block_on(head(&store));
        let mut running = world.start(&["past", "build", "--all"]);
        while runtime.block_on(head(&store)) == before && running.child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        kills += u32::from(running.child.try_wait().unwrap().is_none());
        running.signal(Signal::SIGKILL);
        running.wait();
        // What was committed is there; what is left is what is missing.
        let length = runtime.block_on(length(&store));
        assert!(length - 2 > made, "a run adds something");
        made = length - 2;
        drop(store);
        let left = world.run(&["past", "estimate", "--all", "--json"]).ok().json();
        assert_eq!((chunks(&left), &left["superseded"]), (all - made, &json!(0)));
    }
    assert!(kills > 0, "the builds were over before they could be killed");
    let built = world.run(&["past", "build", "--all", "--json"]).ok().json();
    assert_eq!(chunks(&built), all - made);
    let store = open(&world.store());
    assert_eq!(runtime.block_on(length(&store)) - 2, all, "each chunk was made once");
    let ids = |world: &World| -> Vec<Value> {
        let roots = world.run(&["past", "--all", "--json"]).ok().json_lines();
        roots.into_iter().map(|root| root["id"].clone()).collect()
    };
    let killed = ids(&world);
    // The same as without a kill.
    runtime.block_on(async {
        let name = RefName::from("quipu/past-all");
        let mut commit = quipu_store::Commit::default();
        let head = store.head(&name).await.unwrap().unwrap();
        let first = store.lineage(head, LineageEnd::Root).await.unwrap().remove(1).id;
        commit.moves.push(quipu_store::RefMove::swap(name, Some(head), first, "test"));
        store.commit(commit).await.unwrap();
    });
    drop(store);
    world.run(&["past", "build", "--all"]).ok();
    assert_eq!(ids(&world), killed);
}

#[test]
fn cover_fits_its_budget_and_leads_to_what_it_is_about() {
    let world = World::new([]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 30));
    import(&world, "b.jsonl", &hours(&world, "beta", 9, 30));
    let empty = world.run(&["past", "cover"]).ok();
    assert!(empty.out.is_empty() && empty.err.contains("no summary of project"), "{}", empty.err);
    world.run(&["past", "build"]).ok();
    let whole = world.run(&["past", "cover", "--json", "--budget", "100000"]).ok().json();
    let text = whole["text"].as_str().unwrap();
    assert!(text.contains("step 29 of alpha") && text.contains("step 29 of beta"), "{text}");
    assert_eq!((&whole["shortfall"], &whole["faults"]), (&Value::Null, &json!([])));
    // A quarter of that: beta in more detail than alpha.
    let budget = (whole["cost"].as_u64().unwrap() / 4).to_string();
    let about = ["past", "cover", "--budget", &budget, "--about", "beta.rs"];
    let served = world.run(&[&about[..], &["--json"]].concat()).ok().json();
    let text = served["text"].as_str().unwrap();
    assert!(served["cost"].as_u64().unwrap() <= budget.parse::<u64>().unwrap(), "{served}");
    assert!(served["cost"].as_u64().unwrap() >= text.chars().count() as u64 / 4, "{served}");
    let count = |word: &str| text.matches(word).count();
    assert!(count("src/beta.rs") > count("src/alpha.rs"), "{text}");
    assert_eq!(world.run(&about).ok().text(), text);
    for (budget, words) in [("0", "no room for a chunk"), ("60", "the smallest takes")] {
        let none = world.run(&["past", "cover", "--budget", budget]).ok();
        assert!(none.out.is_empty() && none.err.contains(words), "{}", none.err);
    }
}

#[test]
fn forgotten_words_leave_the_past_at_once() {
    let world = World::new([]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 12));
    world.run(&["past", "build"]).ok();
    world.run(&["memory", "on"]).ok();
    let words = "Please do step 5 of alpha.";
    let shows = |command: &[&str]| world.run(command).ok().text().contains("step 5 of alpha");
    let covers = ["past", "cover", "--budget", "100000"];
    assert!(shows(&covers) && shows(&["search", words]));
    world.run(&["memory", "forget", words, "--yes"]).ok();
    for _ in 0..2 {
        assert!(!shows(&["past"]) && !shows(&covers));
        let found = world.run(&["search", words]);
        let found = String::from_utf8_lossy(&found.out);
        assert!(!found.contains("step 5 of alpha"), "{found}");
        world.run(&["past", "build"]).ok();
    }
    // The others are summed up again.
    let text = world.run(&covers).ok().text();
    assert!(text.contains("step 4 of alpha") && text.contains("step 6 of alpha"), "{text}");
}

#[test]
fn person_writes_chunks_and_puts_them_in_the_place_of_others() {
    let world = World::new([]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 6));
    world.run(&["past", "build"]).ok();
    let key = "2025-01-01T03:00:00.25Z..2025-01-01T03:00:01.251Z";
    let node =
        world.run(&["past", key, "--json"]).ok().json()["sources"][0]["node"].as_str().unwrap().to_owned();
    let day = "2025-01-01T00:00Z..2025-01-02T00:00Z";
    let made = ["past", "create", day, "--text", "A day of steps.", "--source", &node, "--json"];
    let made = world.run(&made).ok().json();
    assert_eq!(
        (&made["class"], &made["key"]),
        (&json!("owner"), &json!("2025-01-01T00:00:00Z..2025-01-02T00:00:00Z"))
    );
    let shown = world.run(&["past", day, "--json"]).ok().json();
    assert_eq!((&shown["summary"], &shown["author"]), (&json!("A day of steps."), &json!("person")));
    assert_eq!(shown["sources"][0]["node"], *node);
    // Words from a pipe, without the secrets in them.
    let secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    world.run_with(&["past", "supersede", key, "--json"], format!("Step 3 used {secret}.")).ok();
    let shown = world.run(&["past", key, "--json"]).ok().json();
    assert_eq!((&shown["author"], &shown["class"]), (&json!("person"), &json!("owner")));
    let summary = shown["summary"].as_str().unwrap();
    assert!(summary.starts_with("Step 3 used") && !summary.contains(secret), "{summary}");
    world.run(&["past", "build"]).ok();
    let cover = world.run(&["past", "cover", "--budget", "100000"]).ok().text();
    assert!(cover.contains("Step 3 used") && !cover.contains("Please do step 3"), "{cover}");
    let check = world.run(&["past", "check"]).ok().text();
    // Where a person's words stand, nothing is missed.
    assert!(!check.contains("taken back"), "{check}");
    // One that is there takes the place of it.
    let day = made["id"].as_str().unwrap();
    world.run(&["past", "supersede", key, "--by", day]).ok();
    assert!(!world.run(&["past", "cover", "--budget", "100000"]).ok().text().contains("Step 3 used"));
    for (command, why) in [
        (&["past", "create", "2025-01-01", "--text", " "][..], "a summary has 1 to"),
        (&["past", "create", "9000-01-01", "--text", "x"], "begins in the future"),
        (&["past", "create", "2025-02-01", "--text", "x", "--source", &node], "reaches beyond"),
        (&["past", "create", "sometime", "--text", "x"], "is no time"),
        (&["past", "supersede", "deadbeef99", "--text", "x"], "no chunk of project"),
        (&["past", "supersede", key, "--text", "x", "--by", "y"], "cannot be used with"),
    ] {
        world.run(command).fails(2, &[why]);
    }
}

#[test]
fn command_of_a_session_decides_on_no_past() {
    let world = World::new([]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 6));
    world.run(&["past", "build"]).ok();
    let before = world.run(&["past", "--json"]).ok().json_lines();
    let session = world.run(&["sessions", "--all", "--json"]).ok().json_lines();
    let past = session.iter().find(|row| row["id"].as_str().unwrap().starts_with("past-project-")).unwrap();
    let (id, head) = (past["id"].as_str().unwrap(), before[0]["node"].as_str().unwrap());
    let other = session.iter().find(|row| row["id"] != past["id"]).unwrap()["id"].as_str().unwrap();
    let key = "2025-01-01T03:00:00.25Z..2025-01-01T03:00:01.251Z";
    for command in [
        &["undo", id, "--yes"][..],
        &["redo", id, "--yes"],
        &["rm", id, "--yes"],
        &["past", "create", "2025-01-01", "--text", "Obey."],
        &["past", "supersede", key, "--text", "Obey."],
        &["past", "review", key],
    ] {
        let mut of_a_tool = world.quipu(command);
        of_a_tool.env("QUIPU_PROCESS", "registry.session.1").stdin(std::process::Stdio::null());
        let done = of_a_tool.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains("this command is a person's"), "{command:?}: {said}");
    }
    // Nobody speaks in it, not even to go back.
    world.run(&["tobe", head, "Obey.", "--yes"]).fails(2, &["no prompts"]);
    world.run(&["branch", head]).fails(2, &["no prompts"]);
    world.run(&["merge", other, "--into", id]).fails(2, &["no prompts"]);
    assert_eq!(world.run(&["past", "--json"]).ok().json_lines(), before);
}

/// What a tool answered last.
fn answered(world: &World) -> Value {
    let messages = messages(world.requests().last().unwrap());
    serde_json::from_str(&wire_text(messages.last().unwrap())).unwrap()
}

/// Whether the model has a tool of this name.
fn has_tool(world: &World, name: &str) -> bool {
    world.requests().last().unwrap().json().to_string().contains(&format!("\"name\":\"{name}\""))
}

#[test]
fn model_reads_the_past_by_ranges_and_is_shown_keys() {
    let world = World::new([]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 30));
    world.run(&["memory", "on"]).ok();
    world.server.push(Answer::new().text("Well.").reply());
    world.run(&["-p", "hello"]).ok();
    assert!(!has_tool(&world, "memory_range"), "there is no past yet");
    world.run(&["past", "build"]).ok();
    let ask = |range: &str, nth: usize| call(&format!("c{nth}"), "memory_range", &json!({ "range": range }));
    let asked = ["2025-01-01T05:00Z..2025-01-01T06:00Z", "soon", "1999", "deadbeef99"];
    for (nth, range) in asked.iter().enumerate() {
        world.server.push(ask(range, nth));
    }
    world.server.push(Answer::new().text("Done.").reply());
    world.run(&["-p", "What did I do?"]).ok();
    assert!(has_tool(&world, "memory_range") && !has_tool(&world, "memory_create"));
    let requests = world.requests();
    let answers: Vec<Value> = requests[requests.len() - 4..]
        .iter()
        .map(|request| serde_json::from_str(&wire_text(messages(request).last().unwrap())).unwrap())
        .collect();
    let (found, last) = (&answers[0], &answers[3]);
    assert!(found["text"].as_str().unwrap().contains("Please do step 5 of alpha."), "{found}");
    assert_eq!((&found["by"], found["sources"].as_array().unwrap().len()), (&json!("build"), 2));
    assert!(answers[1..3].iter().all(|answer| answer["keys"].is_null() && answer["unavailable"] == true));
    let roots = world.run(&["past", "--json"]).ok().json_lines();
    let keys: Vec<&Value> = roots.iter().rev().map(|root| &root["key"]).collect();
    assert_eq!(last["keys"].as_array().unwrap().iter().collect::<Vec<_>>(), keys);
    // In another session nobody has failed yet; a key leads to its parts.
    world.server.push(ask("soon", 9));
    world.server.push(ask(keys[0].as_str().unwrap(), 10));
    world.server.push(Answer::new().text("Done.").reply());
    world.run(&["-p", "And now?"]).ok();
    let requests = world.requests();
    let first: Value =
        serde_json::from_str(&wire_text(messages(&requests[requests.len() - 2]).last().unwrap())).unwrap();
    assert!(first["keys"].is_null(), "{first}");
    assert!(answered(&world)["parts"].as_array().unwrap().len() >= 4);
}

#[test]
fn model_writes_chunks_only_where_the_settings_say_so() {
    let world = World::new([]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 6));
    world.run(&["memory", "on"]).ok();
    world.run(&["past", "build"]).ok();
    let keys = [
        "2025-01-01T01:00:00.25Z..2025-01-01T01:00:01.251Z",
        "2025-01-01T02:00:00.25Z..2025-01-01T02:00:01.251Z",
    ];
    let write = || call("c", "memory_create", &json!({ "text": "Two steps.", "chunks": keys }));
    world.server.push(write());
    world.server.push(Answer::new().text("Done.").reply());
    world.run(&["-p", "hello"]).ok();
    assert!(world.run(&["past", "--json"]).ok().json_lines().iter().all(|root| root["author"] == "build"));
    world.run(&["config", "set", "memory.create", "true"]).ok();
    world.server.push(write());
    world.server.push(Answer::new().text("Done.").reply());
    world.run(&["-p", "hello"]).ok();
    assert!(has_tool(&world, "memory_create"));
    let written = answered(&world);
    // It is of what another agent said.
    assert_eq!(written["author"], "untrusted", "{written}");
    let shown = world.run(&["past", written["id"].as_str().unwrap(), "--json"]).ok().json();
    assert_eq!((&shown["author"], &shown["method"]), (&json!("agent"), &json!({ "by": "agent" })));
    assert_eq!((&shown["summary"], &shown["level"]), (&json!("Two steps."), &json!(1)));
    for (nth, args) in [
        json!({ "text": "Nothing." }),
        json!({ "text": "What?", "chunks": ["deadbeef99"] }),
        json!({ "text": "What?", "nodes": ["deadbeef99"] }),
    ]
    .iter()
    .enumerate()
    {
        world.server.push(call(&format!("d{nth}"), "memory_create", args));
        world.server.push(Answer::new().text("Done.").reply());
        world.run(&["-p", "hello"]).ok();
        assert_eq!(answered(&world)["unavailable"], true);
    }
}

#[test]
fn past_in_the_terminal_writes_as_the_command_does() {
    let world = World::new([]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 6));
    let store = world.store();
    let mut terminal = Terminal::open(&world, &["--store", store.to_str().unwrap()]);
    terminal.shows("test-1");
    terminal.types("/past create 2025-01-01\r");
    terminal.shows("the words are missing");
    terminal.types("/past create 2025-01-01 --text 'A day of steps.'\r");
    terminal.shows("2025-01-0");
    terminal.types("/past cover\r");
    terminal.shows("A day of steps.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}
