//! The search over notes, and the tools that models have of it.

use quipu_memory::AuthorClass;
use quipu_memory::ForgetList;
use quipu_memory::notes::Notebook;
use quipu_memory::search::{HitPlace, MemoryNotes, MemoryQuestion, MemorySearch};
use quipu_protocol::SessionId;
use serde_json::{Value, json};

use crate::support::{World, by, name};

impl World {
    fn search(&self) -> MemorySearch {
        let user = self.home().user();
        let user = Notebook::new(&self.home(), user, self.store.clone(), self.sealer.clone());
        MemorySearch::new(self.home(), self.store.clone(), vec![self.book(), user], self.sealer.clone())
    }

    fn tools(&self) -> MemoryNotes {
        MemoryNotes::new(self.search(), self.store.clone(), Some(vec!["/work".to_owned()]))
    }
}

/// The citations that answer a question, with their authors.
async fn ask(search: &MemorySearch, text: &str) -> Vec<(String, &'static str)> {
    let question = MemoryQuestion { text: text.to_owned(), limit: 10, ..MemoryQuestion::default() };
    let answer = search.search(&question).await.unwrap();
    let cited = |place: &HitPlace| match place {
        HitPlace::Note { memory, citation } => format!("{}/{citation}", memory.id),
        HitPlace::Node { node, .. } => node.short(),
    };
    answer.hits.iter().map(|hit| (cited(&hit.place), hit.author.name())).collect()
}

#[tokio::test]
async fn notes_are_found_as_soon_as_they_change() {
    let world = World::new();
    let (book, search) = (world.book(), world.search());
    let id = book.place().id.clone();
    book.append(&name("memory/2026-11-20.md"), &by(AuthorClass::Agent), "- The gate opens at nine.")
        .await
        .unwrap();
    book.append(&name("MEMORY.md"), &by(AuthorClass::Owner), "# Tools\n\nUse ripgrep.").await.unwrap();
    assert_eq!(
        ask(&search, "When does the gate open?").await,
        [(format!("{id}/memory/2026-11-20.md#L1"), "agent")]
    );
    assert_eq!(
        ask(&search, "Which tool?").await[0],
        (format!("{id}/MEMORY.md#L3"), "owner"),
        "a line has its heading"
    );
    // An editor writes: found at once, and untrusted until a person says so.
    world.put("memory/2026-11-20.md", "- The gate is closed.\n- Lunch is soup.\n");
    assert_eq!(
        ask(&search, "soup for lunch").await[0],
        (format!("{id}/memory/2026-11-20.md#L1-L2"), "untrusted")
    );
    assert!(ask(&search, "at nine").await.is_empty());
    std::fs::remove_file(book.place().root.join("memory/2026-11-20.md")).unwrap();
    assert!(ask(&search, "soup for lunch").await.is_empty());
    // Dreams are never searched, nor is what was forgotten.
    world.put("DREAMS.md", "A dream of ripgrep and soup.\n");
    assert!(ask(&search, "a dream of soup").await.is_empty());
    ForgetList::add(&world.home(), ["Use ripgrep."], []).unwrap();
    let left = ask(&search, "ripgrep").await;
    assert!(left.iter().all(|(place, _)| !place.ends_with("#L3")), "{left:?}");
}

async fn call(tools: &MemoryNotes, tool: &str, args: Value) -> Value {
    tools.call(tool, &args, Some(&SessionId::from("s"))).await.unwrap()
}

#[tokio::test]
async fn tools_search_read_and_note() {
    let world = World::new();
    let tools = world.tools();
    let lines: String = (1..=300).map(|n| format!("line {n}\n")).collect();
    world.put("memory/long.md", &lines);
    let found = call(&tools, "memory_search", json!({ "query": "line 7", "limit": 2 })).await;
    let results = found["results"].as_array().unwrap();
    assert_eq!(results.len(), 2, "{found}");
    assert_eq!(results[0]["path"], "memory/long.md#L5-L8");
    let read = call(&tools, "memory_get", json!({ "path": "memory/long.md#L5-L8" })).await;
    assert_eq!((&read["text"], &read["lines"]), (&json!("line 5\nline 6\nline 7\nline 8\n"), &json!(4)));
    let read = call(&tools, "memory_get", json!({ "path": "memory/long.md" })).await;
    assert_eq!(
        (&read["lines"], &read["truncated"], &read["nextFrom"]),
        (&json!(120), &json!(true), &json!(121))
    );
    let read = call(&tools, "memory_get", json!({ "path": "memory/long.md", "from": 299, "lines": 9 })).await;
    assert_eq!(read["text"], "line 299\nline 300\n");
    world.put("memory/wide.md", format!("{}\n", "x".repeat(50_000)));
    let read = call(&tools, "memory_get", json!({ "path": "memory/wide.md" })).await;
    assert!(read["text"].as_str().unwrap().len() <= 12_001);
    // What is not there is empty; what lies elsewhere is refused; both are answers.
    assert_eq!(call(&tools, "memory_get", json!({ "path": "memory/none.md" })).await["text"], "");
    for path in ["../secret.md", "memory/../../secret.md", "/etc/passwd", "memory/a.txt"] {
        let refused = call(&tools, "memory_get", json!({ "path": path })).await;
        assert_eq!((&refused["unavailable"], &refused["results"]), (&json!(true), &json!([])), "{path}");
        assert!(refused["error"].is_string() && refused["action"].is_string());
    }
    for (tool, args) in [
        ("memory_search", json!({})),
        ("memory_search", json!({ "query": "x", "since": "soon" })),
        ("memory_search", json!({ "query": "x", "kind": "nonsense" })),
        ("memory_note", json!({ "text": " " })),
        ("memory_note", json!({ "text": "x".repeat(5_000) })),
    ] {
        assert_eq!(call(&tools, tool, args.clone()).await["unavailable"], true, "{tool} {args}");
    }
    let noted = call(&tools, "memory_note", json!({ "text": "The user's dog\nis called Pluto." })).await;
    let cited = noted["noted"].as_str().unwrap();
    assert!(cited.starts_with("memory/") && cited.ends_with(".md#L1"), "{noted}");
    assert_eq!(noted["author"], "untrusted", "of a session that nobody knows");
    let found = call(&tools, "memory_search", json!({ "query": "What is the dog called?" })).await;
    assert_eq!(
        (&found["results"][0]["path"], &found["results"][0]["text"]),
        (&json!(cited), &json!("- The user's dog is called Pluto."))
    );
    assert!(tools.call("memory_forget", &json!({}), None).await.is_none());
}

#[tokio::test]
async fn note_forgotten_while_it_is_being_stored_does_not_stay() {
    let world = World::new();
    let tools = world.tools();
    call(&tools, "memory_note", json!({ "text": "The dog is called Pluto." })).await;
    let today = name(&format!("memory/{}.md", jiff::Zoned::now().date()));
    // Another process writes to the memory, so the note waits.
    let state = world.dir.path().join("home/memory-state");
    let lock = std::fs::File::open(state.join(format!("{}.lock", world.book().place().id))).unwrap();
    lock.lock().unwrap();
    let args = json!({ "text": "The cat is called Mia." });
    let mut noting = std::pin::pin!(call(&tools, "memory_note", args.clone()));
    let waits = tokio::time::timeout(std::time::Duration::ZERO, &mut noting).await;
    assert!(waits.is_err(), "what was forgotten before was looked at");
    ForgetList::add(&world.home(), ["the cat is called Mia"], []).unwrap();
    lock.unlock().unwrap();
    let refused = noting.await;
    assert_eq!(refused["error"], "the user had this forgotten", "{refused}");
    let text = world.book().read(&today).unwrap().text;
    assert_eq!(text, "- The dog is called Pluto.\n");
    assert_eq!(call(&tools, "memory_note", args).await["unavailable"], true);
}
