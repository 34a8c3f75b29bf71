//! Servers that behave, and servers that do not.

use quipu_mcp::ServerStatus;
use quipu_protocol::Content;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{Bench, LIMIT, find, names, text};

#[tokio::test]
async fn tools_of_a_server_are_named_and_called() {
    let bench = Bench::new();
    let (server, source) = bench.ready("good", &json!({})).await;
    let ServerStatus::Ready(info) = server.status() else { panic!("{:?}", server.status()) };
    assert_eq!((info.name.as_str(), info.protocol.as_str()), ("test", "2025-11-25"));
    let names = names(&source);
    assert!(names.contains(&"mcp__srv__echo".to_owned()) && names.is_sorted(), "{names:?}");
    let output = bench.call(&source, "mcp__srv__echo", json!({ "text": "hé" })).await;
    assert_eq!((text(&output).as_str(), output.is_error), ("hé", false));
    let failed = bench.call(&source, "mcp__srv__fail", json!({})).await;
    assert_eq!((text(&failed).as_str(), failed.is_error), ("it did not work", true));
    let refused = bench.call(&source, "mcp__srv__refuse", json!({})).await;
    assert!(
        refused.is_error && text(&refused).contains("no such\\u{1b}[2J tool (error -32602)"),
        "{refused:?}"
    );
    let image = bench.call(&source, "mcp__srv__image", json!({})).await;
    assert!(matches!(image.content.as_slice(), [Content::Image(_)]));
    let env: Value =
        serde_json::from_str(&text(&bench.call(&source, "mcp__srv__env", json!({})).await)).unwrap();
    assert_eq!((&env["env"]["OWN"], env["env"].get("HIDDEN")), (&json!("own"), None));
    assert_eq!(env["cwd"], json!(bench.path("").to_str().unwrap().trim_end_matches('/')));
    assert!(bench.log().contains("initialize 2025-11-25\nnotifications/initialized\n"), "{}", bench.log());
}

#[tokio::test]
async fn older_versions_are_spoken_and_unknown_ones_refused() {
    let bench = Bench::new();
    let (server, _) = bench.ready("good", &json!({ "env": { "VERSION": "2024-11-05" } })).await;
    let ServerStatus::Ready(info) = server.status() else { panic!("{:?}", server.status()) };
    assert_eq!(info.protocol, "2024-11-05");
    let status = bench.server("old", &json!({})).settled(LIMIT).await;
    assert!(matches!(&status, ServerStatus::Waiting(why) if why.contains("\"1999-01-01\"")), "{status:?}");
}

#[tokio::test]
async fn progress_is_reported_while_a_call_runs() {
    let bench = Bench::new();
    let (_server, source) = bench.ready("good", &json!({})).await;
    let (output, reports) =
        bench.call_until(&source, "mcp__srv__progress", json!({}), CancellationToken::new()).await;
    assert_eq!((text(&output).as_str(), reports), ("whole", vec!["1/2 half".to_owned()]));
}

#[tokio::test]
async fn cancelled_call_ends_at_once_and_the_server_is_told() {
    let bench = Bench::new();
    let (_server, source) = bench.ready("good", &json!({})).await;
    let cancel = CancellationToken::new();
    let stop = async {
        bench.logs("call slow").await;
        cancel.cancel();
    };
    let call = bench.call_until(&source, "mcp__srv__slow", json!({}), cancel.clone());
    let ((output, _), ()) = tokio::join!(call, stop);
    assert!(output.is_error && text(&output) == "Operation aborted");
    bench.logs("cancelled ").await;
    assert_eq!(text(&bench.call(&source, "mcp__srv__echo", json!({ "text": "on" })).await), "on");
}

#[tokio::test]
async fn call_without_an_answer_ends_at_its_limit() {
    let bench = Bench::new();
    let (_server, source) = bench.ready("good", &json!({ "timeout": 200 })).await;
    let output = bench.call(&source, "mcp__srv__slow", json!({})).await;
    assert!(output.is_error && text(&output).contains("no answer within 0.2 s"), "{output:?}");
    bench.logs("cancelled ").await;
}

#[tokio::test]
async fn server_killed_in_mid_call_is_reported_and_restarted() {
    let bench = Bench::new();
    let (server, source) = bench.ready("good", &json!({})).await;
    let output = bench.call(&source, "mcp__srv__die", json!({})).await;
    let told = text(&output);
    assert!(output.is_error && told.contains("in the middle of the call"), "{told}");
    assert!(told.contains("signal: 9") && told.contains("it last wrote: I am dying"), "{told}");
    // The next call waits for the server that is started again.
    let output = bench.call(&source, "mcp__srv__echo", json!({ "text": "again" })).await;
    assert_eq!(text(&output), "again");
    assert_eq!(bench.log().matches("pid ").count(), 2);
    assert!(matches!(server.status(), ServerStatus::Ready(_)));
}

#[tokio::test]
async fn server_that_fails_each_time_is_left_alone() {
    let bench = Bench::new();
    let server = bench.server("crash", &json!({}));
    let status = server.settled(LIMIT).await;
    let ServerStatus::Waiting(why) = status else { panic!("{status:?}") };
    assert!(why.contains("exit status: 3") && why.contains("no configuration found"), "{why}");
    let missing = bench.server("good", &json!({ "command": "/nowhere/server" }));
    let status = missing.settled(LIMIT).await;
    assert!(matches!(&status, ServerStatus::Waiting(why) if why.contains("/nowhere/server")), "{status:?}");
}

#[tokio::test]
async fn server_that_never_answers_ends_at_its_limit() {
    let bench = Bench::new();
    let server = bench.server("mute", &json!({ "startup_timeout_ms": 300 }));
    let status = server.settled(LIMIT).await;
    assert!(matches!(&status, ServerStatus::Waiting(why) if why.contains("within 0.3 s")), "{status:?}");
}

#[tokio::test]
async fn million_tools_are_refused_and_thousands_cut() {
    let bench = Bench::new();
    let status = bench.server("million", &json!({})).settled(LIMIT).await;
    assert!(matches!(&status, ServerStatus::Waiting(why) if why.contains("more than 16 MiB")), "{status:?}");
    let (server, source) = bench.ready("thousands", &json!({})).await;
    let listing = server.listing().unwrap();
    assert_eq!((listing.definitions.len(), listing.is_cut), (quipu_mcp::SERVER_TOOLS, true));
    assert_eq!(names(&source), ["mcp_search"]);
    let told = "too many tools (more than 500, or 2 MiB, or too many pages); what comes after that is left out, and 500 are used";
    assert!(bench.notices.lock().unwrap().iter().any(|text| text.contains(told)));
    let status = bench.server("endless", &json!({})).settled(LIMIT).await;
    assert!(matches!(status, ServerStatus::Ready(_)), "{status:?}");
}

#[tokio::test]
async fn line_of_a_hundred_megabytes_ends_the_server_and_not_us() {
    let bench = Bench::new();
    let (_server, source) = bench.ready("good", &json!({})).await;
    let output = bench.call(&source, "mcp__srv__long", json!({})).await;
    assert!(output.is_error && text(&output).contains("a message of more than 16 MiB"), "{output:?}");
    let output = bench.call(&source, "mcp__srv__echo", json!({ "text": "again" })).await;
    assert_eq!(text(&output), "again");
}

#[tokio::test]
async fn lines_that_are_no_messages_are_borne_up_to_a_limit() {
    let bench = Bench::new();
    let (_server, source) = bench.ready("greet", &json!({})).await;
    assert_eq!(text(&bench.call(&source, "mcp__srv__utf8", json!({})).await), "after");
    let output = bench.call(&source, "mcp__srv__noise", json!({})).await;
    assert!(output.is_error && text(&output).contains("101 lines in a row"), "{output:?}");
}

#[tokio::test]
async fn duplicate_names_and_deep_schemas_leave_the_rest() {
    let bench = Bench::new();
    let (server, source) = bench.ready("duplicates", &json!({})).await;
    let listing = server.listing().unwrap();
    assert_eq!((listing.definitions.len(), listing.issues.len()), (3, 1));
    assert_eq!(find(&source, "mcp__srv__same").spec().description, "first");
    let two = names(&source).into_iter().filter(|name| name.starts_with("mcp__srv__a_b_")).count();
    assert_eq!(two, 2, "{:?}", names(&source));
    let bench = Bench::new();
    let (server, source) = bench.ready("deep", &json!({})).await;
    assert_eq!(names(&source), ["mcp__srv__flat"]);
    assert_eq!(server.listing().unwrap().issues.len(), 1);
}

#[tokio::test]
async fn pages_of_tools_are_read_to_the_end() {
    let bench = Bench::new();
    let (server, _source) = bench.ready("pages", &json!({})).await;
    assert_eq!(server.listing().unwrap().definitions.len(), 13);
    let only = json!({ "enabled_tools": ["echo", "slow"], "disabled_tools": ["slow"] });
    let (_server, source) = bench.ready("pages", &only).await;
    assert_eq!(names(&source), ["mcp__srv__echo"]);
}

#[tokio::test]
async fn hidden_characters_are_noticed_and_stripped() {
    let bench = Bench::new();
    let (_server, source) = bench.ready("hidden", &json!({})).await;
    assert_eq!(find(&source, "mcp__srv__add").spec().description, "Adds numbers.");
    assert!(bench.notices.lock().unwrap().iter().any(|text| text.contains("invisible characters")));
}

#[tokio::test]
async fn changed_tools_are_listed_again_and_old_ones_not_called() {
    let bench = Bench::new();
    let (server, source) = bench.ready("good", &json!({})).await;
    let old = find(&source, "mcp__srv__echo");
    let before = quipu::ToolSource::version(&source).number();
    bench.call(&source, "mcp__srv__change", json!({})).await;
    let mut listed = server.listing().unwrap();
    let until = std::time::Instant::now() + LIMIT;
    while !listed.definitions.iter().any(|one| one.description.contains("sends it away")) {
        assert!(std::time::Instant::now() < until, "it is never listed again");
        tokio::task::yield_now().await;
        listed = server.listing().unwrap();
    }
    source.settled().await;
    assert!(quipu::ToolSource::version(&source).number() > before);
    let new = find(&source, "mcp__srv__echo");
    assert!(new.spec().description.contains("sends it away"));
    let output = bench.run(&old, json!({ "text": "x" })).await;
    assert!(output.is_error && text(&output).contains("changed the definition"), "{output:?}");
    assert_eq!(text(&bench.run(&new, json!({ "text": "x" })).await), "x");
}

#[tokio::test]
async fn known_definitions_are_there_before_the_server_is() {
    let bench = Bench::new();
    let (server, source) = bench.ready("good", &json!({})).await;
    let before = names(&source);
    drop((server, source));
    let slow = bench.server("mute", &json!({}));
    let source = bench.source(&slow);
    assert_eq!(names(&source), before);
}

#[tokio::test]
async fn search_stands_in_for_many_tools_and_loads_some() {
    let bench = Bench::new();
    let (_server, source) = bench.ready("many", &json!({})).await;
    assert_eq!(names(&source), ["mcp_search"]);
    let spec = find(&source, "mcp_search").spec().clone();
    assert!(spec.description.contains("srv (201 tools)"), "{}", spec.description);
    let found = text(&bench.call(&source, "mcp_search", json!({ "query": "weather in a city" })).await);
    assert!(found.contains("mcp__srv__weather: Says what the weather is"), "{found}");
    assert!(names(&source).contains(&"mcp__srv__weather".to_owned()));
    assert_eq!(*find(&source, "mcp_search").spec(), spec, "the beginning of requests stays");
    let none = text(&bench.call(&source, "mcp_search", json!({ "query": "zzz" })).await);
    assert!(none.contains("No tool matches"), "{none}");
}

#[tokio::test]
async fn programs_end_with_their_source() {
    let bench = Bench::new();
    let (server, source) = bench.ready("good", &json!({})).await;
    let log = bench.log();
    let pid: i32 = log.lines().find_map(|line| line.strip_prefix("pid ")).unwrap().parse().unwrap();
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    drop((server, source));
    let until = std::time::Instant::now() + LIMIT;
    while std::path::Path::new(&format!("/proc/{pid}")).exists() || bench.registry.alive() > 0 {
        assert!(std::time::Instant::now() < until, "it still runs");
        tokio::task::yield_now().await;
    }
}

/// What a call adds, beside what the server needs: a table for a person, and no test of a busy machine.
#[tokio::test]
async fn calls_of_a_quick_server_are_counted() {
    let bench = Bench::new();
    let (_server, source) = bench.ready("good", &json!({})).await;
    let begun = std::time::Instant::now();
    for _ in 0..100 {
        bench.call(&source, "mcp__srv__echo", json!({ "text": "x" })).await;
    }
    println!("a call: {:?}", begun.elapsed() / 100);
    assert_eq!(bench.log().matches("call echo").count(), 100);
}

#[tokio::test]
async fn prompts_of_a_server_are_listed_and_asked_for() {
    let bench = Bench::new();
    let (server, _source) = bench.ready("good", &json!({})).await;
    let listing = server.listing().unwrap();
    let prompt = &listing.prompts[0];
    assert_eq!((prompt.name.as_str(), prompt.hint().as_str()), ("Review file", "path [depth]"));
    let arguments = prompt.arguments_of(&["a.rs".to_owned()]).unwrap();
    assert_eq!(server.prompt(&prompt.name, arguments).await.unwrap(), "Review a.rs.");
    assert!(bench.log().contains("prompt Review file {\"path\": \"a.rs\"}"), "{}", bench.log());
}

#[tokio::test]
async fn server_is_started_again_when_a_person_wants_it() {
    let bench = Bench::new();
    let (server, source) = bench.ready("good", &json!({})).await;
    server.reconnect();
    bench.logs("end of input").await;
    let output = bench.call(&source, "mcp__srv__echo", json!({ "text": "again" })).await;
    assert_eq!(text(&output), "again");
    assert_eq!(bench.log().matches("pid ").count(), 2);
    let reports = source.servers().upgrade().unwrap().reports();
    assert!(reports[0].tools.iter().any(|(name, ..)| name == "mcp__srv__echo"));
}
