//! Secrets: neither the model nor the store sees one, and a file that holds one can still be edited.

use std::sync::Arc;

use base64::Engine as _;
use quipu::protocol::{Answer, Command, Content, Event, ImageContent, Json, Outcome};
use quipu::store::{Store, Until};
use quipu::{Decision, Delivery, Engine, Policy, Proposal, Sealer};
use serde_json::json;

use crate::support::{KEY, Reply, World, call, say, text_of};

/// Looks like a key of a common kind, and is none.
const SECRET: &str = "ghp_Zk3vQ9xT1mB7cR5nW8yL2dF6hJ4pS0aGuE1o";
/// Known to the program by itself.
const KNOWN: &str = "correct-horse/battery+staple";

fn sealer() -> Arc<Sealer> {
    let sealer = Sealer::new(KEY);
    sealer.know("api-key", KNOWN);
    Arc::new(sealer)
}

fn world() -> World {
    let mut world = World::new();
    world.tools = quipu::builtin();
    world.engine = Engine::new(world.store.clone(), sealer(), world.dir.path().join("spill"));
    world
}

/// No spelling of a secret stands in anything that was sent or stored.
async fn assert_sealed(world: &World, secrets: &[&str]) {
    let mut texts: Vec<Vec<u8>> = world.fake.bodies().iter().map(|body| body.to_vec()).collect();
    for head in world.store.heads("").await.unwrap() {
        for node in world.store.lineage(head.node, Until::Root).await.unwrap() {
            texts.push(format!("{node:?}").into_bytes());
            let blobs = world.store.blobs(&node.record.parts).await.unwrap();
            texts.extend(blobs.iter().flatten().map(|blob| blob.content.clone().into_bytes()));
            let decoded =
                quipu::store::decode_nodes(&*world.store, std::slice::from_ref(&node)).await.unwrap();
            texts.push(format!("{decoded:?}").into_bytes());
        }
    }
    for name in ["quipu.db", "quipu.db-wal"] {
        texts.push(std::fs::read(world.dir.path().join(name)).unwrap_or_default());
    }
    for secret in secrets {
        for spelling in [
            (*secret).to_owned(),
            base64::engine::general_purpose::STANDARD.encode(secret),
            secret.replace('/', "%2F").replace('+', "%2B"),
        ] {
            let found = texts.iter().any(|text| memchr::memmem::find(text, spelling.as_bytes()).is_some());
            assert!(!found, "{spelling} is nowhere");
        }
    }
}

fn placeholder_in(text: &str) -> String {
    let at = text.find("[REDACTED:").unwrap_or_else(|| panic!("a placeholder in {text}"));
    text[at..].split_inclusive(']').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_file_with_a_secret_is_read_edited_and_never_seen() {
    let world = world();
    let file = world.cwd().join("config");
    std::fs::write(&file, format!("user = me\ntoken = {SECRET}\nport = 1\n")).unwrap();
    world.fake.push([call(&[("read", json!({"path": "config"}))])]);
    let live = world.create().await;
    let id = live.id();
    assert_eq!(live.run(&format!("my key is {KNOWN}, mind {SECRET}")).await, Outcome::Done);
    let placeholder = placeholder_in(&live.results()[0].1);
    assert!(live.said()[0].contains(&placeholder), "the same secret has the same name in the prompt");
    let edit = |port: u32| {
        let old = format!("token = {placeholder}\nport = {port}");
        let new = format!("token = {placeholder}\nport = {}", port + 1);
        call(&[("edit", json!({"path": "config", "edits": [{ "oldText": old, "newText": new }]}))])
    };
    world.fake.push([edit(1)]);
    assert_eq!(live.run("edit").await, Outcome::Done);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("user = me\ntoken = {SECRET}\nport = 2\n"));
    live.finish().await;
    // A new process has not seen the secret: it looks into the file.
    let mut world = world.check().await;
    world.engine = Engine::new(world.store.clone(), sealer(), world.dir.path().join("spill"));
    let (live, _) = world.open(&id).await;
    world.fake.push([edit(2)]);
    assert_eq!(live.run("edit again").await, Outcome::Done);
    let results = live.results();
    assert!(!results[0].2, "{results:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("user = me\ntoken = {SECRET}\nport = 3\n"));
    live.finish().await;
    assert_sealed(&world, &[SECRET, KNOWN]).await;
    world.check().await;
}

#[tokio::test]
async fn unknown_placeholder_is_not_run_and_not_written() {
    let world = world();
    let unknown = "[REDACTED:github:0badcafe]";
    world.fake.push([call(&[
        ("bash", json!({ "command": format!("echo {unknown} > leaked") })),
        ("write", json!({ "path": "leaked", "content": unknown })),
        ("edit", json!({ "path": "none", "edits": [{ "oldText": "a", "newText": unknown }] })),
    ])]);
    let live = world.create().await;
    assert_eq!(live.run("go").await, Outcome::Done);
    for (_, text, error) in live.results() {
        assert!(error && text.contains("not run") && text.contains(unknown), "{text}");
    }
    assert!(!world.cwd().join("leaked").exists());
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn known_credentials_are_sealed_in_every_spelling() {
    let world = world();
    let encoded = base64::engine::general_purpose::STANDARD.encode(KNOWN);
    let url = KNOWN.replace('/', "%2F").replace('+', "%2B");
    std::fs::write(world.cwd().join("f"), format!("{KNOWN}\n{encoded}\nhttps://x/?k={url}\n")).unwrap();
    let mut reply = call(&[
        ("read", json!({"path": "f"})),
        ("bash", json!({"command": "cat f; cat f >&2; exit 3"})),
        ("bash", json!({"command": format!("printf %s '{KNOWN}' | wc -c")})),
        ("nope", json!({ "x": KNOWN })),
        ("read", json!({ "path": KNOWN, "offset": "x" })),
    ]);
    reply.calls.push((format!("c-{KNOWN}"), format!("tool {KNOWN}"), Json::object()));
    reply.text = format!("I know {KNOWN}");
    reply.thinking = Some(format!("so {url}"));
    reply.unknown = vec![Json::from(json!({ "type": "new", "says": KNOWN }))];
    // Pieces go to fronts as they come; what is sealed is the whole.
    world.fake.push([Reply { silent: true, ..reply }]);
    struct AskPolicy;
    impl Policy for AskPolicy {
        fn decide(&self, proposal: &Proposal<'_>) -> Decision {
            match proposal.text("command") {
                Some(command) if command.starts_with("printf") => {
                    Decision::Ask { question: "Run?".into(), subject: command }
                }
                _ => Decision::Allow,
            }
        }
    }
    let options = quipu::SessionOptions {
        system: Some(format!("Use {KNOWN}.")),
        policy: Arc::new(AskPolicy),
        ..world.options()
    };
    let live = world.create_with(options).await;
    let (_, mut events) = live.session.subscribe_and_answer(Delivery::Lossless).await.unwrap();
    let session = live.session.clone();
    let person = tokio::spawn(async move {
        while let Some(envelope) = events.next().await {
            let Event::AskOpened { ask } = &envelope.event else { continue };
            assert!(!ask.permission().unwrap().subject.contains(KNOWN));
            let answer = Answer::Deny { reason: Some(format!("not with {KNOWN}")) };
            session.send(Command::Answer { ask: ask.id.clone(), answer }).await.unwrap();
            break;
        }
    });
    assert_eq!(live.run("go").await, Outcome::Done);
    person.await.unwrap();
    live.session.prompt(KNOWN).await.unwrap();
    live.settled(2).await;
    let results = live.results();
    assert!(results[0].1.matches("[REDACTED:api-key:").count() == 3, "{results:?}");
    assert!(results[2].1.contains("not with [REDACTED:"));
    live.finish().await;
    assert_sealed(&world, &[KNOWN]).await;
    world.check().await;
}

#[tokio::test]
async fn the_running_tool_gets_the_true_value() {
    let world = world();
    world.fake.push([say("ok")]);
    let live = world.create().await;
    assert_eq!(live.run(&format!("use {KNOWN}")).await, Outcome::Done);
    let placeholder = placeholder_in(&text_of(&world.fake.last_messages()[0]));
    world.fake.push([call(&[
        (
            "bash",
            json!({ "command": format!("printf %s '{placeholder}' | wc -c; printf %s '{placeholder}' > g") }),
        ),
        ("read", json!({ "path": "g" })),
    ])]);
    assert_eq!(live.run("go").await, Outcome::Done);
    let results = live.results();
    assert_eq!(results[0].1.trim(), KNOWN.len().to_string());
    assert_eq!(results[1].1, placeholder);
    assert_eq!(std::fs::read_to_string(world.cwd().join("g")).unwrap(), KNOWN);
    live.finish().await;
    assert_sealed(&world, &[KNOWN]).await;
    world.check().await;
}

/// What a picture says beside what it shows: in one that a tool reads, and in one that is sent along.
#[tokio::test]
async fn text_inside_of_pictures_goes_nowhere() {
    let world = world();
    let chunk = |name: &[u8; 4], data: &[u8]| {
        let size = u32::try_from(data.len()).unwrap().to_be_bytes();
        // The checksum over name and data, by its definition.
        let sum = name.iter().chain(data).fold(u32::MAX, |sum, byte| {
            (0..8)
                .fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
        });
        [&size[..], name, data, &(!sum).to_be_bytes()].concat()
    };
    let plain = base64::engine::general_purpose::STANDARD.decode(PNG).unwrap();
    let text = chunk(b"tEXt", format!("Comment\0{SECRET} {SECRET} {SECRET}").as_bytes());
    let picture = [&plain[..33], &text, &plain[33..]].concat();
    std::fs::write(world.cwd().join("a.png"), &picture).unwrap();
    world.fake.push([call(&[("read", json!({ "path": "a.png" }))]), say("done")]);
    let live = world.create().await;
    let data = base64::engine::general_purpose::STANDARD.encode(&picture);
    let sent = Content::Image(ImageContent { data, mime_type: "image/png".into() });
    let input = quipu::protocol::UserInput::new(vec![sent]);
    live.session.prompt(input).await.unwrap();
    live.settled(1).await;
    let last = String::from_utf8_lossy(world.fake.bodies().last().unwrap()).into_owned();
    assert_eq!(last.matches(PNG).count(), 2, "both are there as they are seen: {last}");
    // Whatever the alignment of base64.
    for at in 0..3 {
        let spelled = base64::engine::general_purpose::STANDARD.encode(&SECRET.as_bytes()[at..at + 27]);
        assert!(!last.contains(&spelled), "{spelled}");
    }
    live.finish().await;
    assert_sealed(&world, &[SECRET]).await;
    world.check().await;
}

/// A picture of one pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg==";
