//! The bodies of requests beside those of Pi, whose own providers send the same conversations to a recorder: they differ
//! where `data/peer-differences.json` says so, with a reason, and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use quipu_protocol::{
    AssistantMessage, Content, Json, Message, Model, ModelRequest, StopReason, Thinking, ToolSpec,
};
use quipu_providers::level_name;
use quipu_testkit::peer_files;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::conversations::{model, other, own, proof};
use crate::encode::{body, call, image, request, result, thinking, user};
use crate::wires::{WIRES, Wire, api};

/// What differs in the bodies of an API.
#[derive(Debug, Deserialize)]
struct Difference {
    /// Members, with `[]` for each position in a list; `*` at the end for all below.
    paths: Vec<String>,
    /// The conversations in which it does; without them, all that have such a member.
    #[serde(default)]
    rows: BTreeSet<String>,
    /// Why.
    reason: String,
}

/// A conversation, as text: it may hold what a JSON value cannot, such as half of a surrogate pair.
fn asked(request: &ModelRequest) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Context<'a> {
        system_prompt: &'a str,
        messages: &'a [Arc<Message>],
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        tools: &'a [ToolSpec],
    }
    #[derive(Serialize)]
    struct Question<'a> {
        api: &'a str,
        model: &'a Model,
        context: Context<'a>,
        options: Value,
    }
    let mut options = json!({ "apiKey": "sk-test-0123456789", "sessionId": request.session });
    if request.thinking != Thinking::Off {
        options["reasoning"] = level_name(request.thinking).into();
    }
    let context =
        Context { system_prompt: &request.system, messages: &request.messages, tools: &request.tools };
    let asked = Question { api: &request.model.api, model: &request.model, context, options };
    serde_json::to_string(&asked).unwrap()
}

/// The same for a model whose name both agents know, where what is sent depends on the name.
fn known(wire: Wire, mut request: ModelRequest) -> ModelRequest {
    if wire != Wire::Contents {
        return request;
    }
    let id = "gemini-3-pro-preview";
    let before = model(wire).id;
    let renamed = |message: &Arc<Message>| match &**message {
        Message::Assistant(answer) if answer.model == before => {
            Arc::new(Message::Assistant(AssistantMessage { model: id.into(), ..answer.clone() }))
        }
        _ => message.clone(),
    };
    request.messages = Arc::new(request.messages.iter().map(renamed).collect());
    request.model = Arc::new(Model { id: id.into(), ..Model::clone(&request.model) });
    request
}

/// Conversations that both agents can have, for the model of this API.
fn table(wire: Wire) -> Vec<(&'static str, ModelRequest)> {
    let say = |text: &str| user(vec![Content::text(text)]);
    let text = |text: &str| vec![Content::text(text)];
    let read = |id: &str, path: &str| call(id, "read", &format!(r#"{{"path":"{path}"}}"#));
    let with = |messages: Vec<Message>, level: Thinking| {
        let parameters = r#"{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#;
        let tool = |name: &str| ToolSpec {
            name: name.into(),
            description: format!("The {name} tool."),
            parameters: Json::parse(parameters).unwrap(),
        };
        let tools = vec![tool("read"), tool("bash")].into();
        ModelRequest { thinking: level, tools, ..request(model(wire), messages) }
    };
    let thought = |text: &str| thinking(text, Some(proof(wire)), None);
    let mut failed = own(wire, text("Half an ans"));
    if let Message::Assistant(answer) = &mut failed {
        answer.stop_reason = StopReason::Error;
    }
    let plain = || vec![say("Hi"), own(wire, text("Hello.")), say("Bye")];
    let mut bare = with(vec![say("Hi")], Thinking::Off);
    bare.tools = Vec::new().into();
    let mut sampled = with(plain(), Thinking::Off);
    let mut drawn = Model::clone(&sampled.model);
    drawn.sampling_params = Json::parse(r#"{"temperature":0.5}"#).ok();
    sampled.model = Arc::new(drawn);
    let tools = vec![
        say("Look"),
        own(wire, vec![Content::text("Both."), read("call_a", "a"), read("call_b", "b")]),
        result("call_a", text("one"), false),
        result("call_b", text("two"), false),
        own(wire, text("Seen.")),
        say("Thanks"),
    ];
    let thoughts = vec![
        say("Think"),
        own(wire, vec![thought("Hm."), Content::text("So."), read("call_a", "a")]),
        result("call_a", text("ok"), false),
        own(wire, text("Done.")),
        say("More"),
    ];
    let images = vec![
        user(vec![Content::text("What is this?"), image()]),
        own(wire, vec![read("call_a", "a.png")]),
        result("call_a", vec![Content::text("An image."), image()], false),
        own(wire, text("Both are the same.")),
        say("Good"),
    ];
    let errors = vec![
        say("Try"),
        own(wire, vec![read("call_a", "a")]),
        result("call_a", text("no such file"), true),
        failed,
        say("And now?"),
        own(wire, vec![read("call_b", "b")]),
        say("Never mind"),
    ];
    let elsewhere = other(wire);
    let moved = vec![
        say("Begin"),
        own(elsewhere, vec![Content::text("I look."), read("call_a", "a")]),
        result("call_a", text("one"), false),
        own(elsewhere, text("There.")),
        say("Go on"),
    ];
    let turn = |at: usize| {
        let id = format!("call_{at}");
        let path = format!("file-{at}.txt");
        [
            say(&path),
            own(wire, vec![read(&id, &path)]),
            result(&id, text(&path), false),
            own(wire, text(&path)),
        ]
    };
    let mut long: Vec<Message> = (0..100).flat_map(turn).collect();
    long.push(say("The end."));
    vec![
        ("bare", bare),
        ("text", with(plain(), Thinking::Off)),
        ("sampled", sampled),
        ("tools", with(tools, Thinking::Off)),
        ("thinking", with(thoughts, Thinking::High)),
        ("images", with(images, Thinking::Off)),
        ("errors", with(errors, Thinking::Off)),
        ("moved", with(moved, Thinking::Low)),
        ("long", with(long, Thinking::Medium)),
    ]
}

/// What the other agent sends for each.
fn sent(peer: &[PathBuf; 2], asked: &[String]) -> Vec<Value> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/peer/bodies.mjs");
    let mut child = Command::new(&peer[0])
        .arg(script)
        .arg(&peer[1])
        .env_clear()
        // Its cloud library signs with what it is given, over a connection that the recorder has.
        .envs([("AWS_REGION", "us-east-1"), ("AWS_BEDROCK_FORCE_HTTP1", "1"), ("AWS_BEDROCK_SKIP_AUTH", "1")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text = format!("[{}]", asked.join(","));
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(output.status.success() && lines.len() == asked.len(), "{} of {}", lines.len(), asked.len());
    lines
}

/// Where two values differ, with what stands there in ours and in theirs.
fn differences(
    path: &str,
    ours: Option<&Value>,
    theirs: Option<&Value>,
    found: &mut BTreeMap<String, String>,
) {
    match (ours, theirs) {
        (Some(Value::Object(ours)), Some(Value::Object(theirs))) => {
            for name in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
                differences(&format!("{path}.{name}"), ours.get(name), theirs.get(name), found);
            }
        }
        (Some(Value::Array(ours)), Some(Value::Array(theirs))) => {
            for at in 0..ours.len().max(theirs.len()) {
                differences(&format!("{path}[]"), ours.get(at), theirs.get(at), found);
            }
        }
        (Some(ours), Some(theirs)) if ours == theirs => {}
        // 1.0 is 1.
        (Some(Value::Number(ours)), Some(Value::Number(theirs))) if ours.as_f64() == theirs.as_f64() => {}
        (ours, theirs) => {
            let show = |value: Option<&Value>| value.map_or("nothing".into(), ToString::to_string);
            let shown = format!("{} | {}", show(ours), show(theirs));
            found.entry(path.trim_start_matches('.').to_owned()).or_insert(shown);
        }
    }
}

impl Difference {
    fn covers(&self, row: &str, path: &str) -> bool {
        let covers = |listed: &String| match listed.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == listed,
        };
        (self.rows.is_empty() || self.rows.contains(row)) && self.paths.iter().any(covers)
    }
}

#[test]
fn bodies_differ_from_the_peers_where_the_list_says_so() {
    let Some(peer) = peer_files(["node/bin/node", "@earendil-works/pi-ai"]) else { return };
    let listed: BTreeMap<String, Vec<Difference>> =
        serde_json::from_str(include_str!("../data/peer-differences.json")).unwrap();
    // The peer has no such API; its body is compared with that of the wire within.
    let wires = WIRES.into_iter().filter(|wire| *wire != Wire::Envelope);
    let rows = wires.flat_map(|wire| table(wire).into_iter().map(move |row| (wire, row)));
    let rows: Vec<_> = rows.map(|(wire, (row, request))| (wire, (row, known(wire, request)))).collect();
    let theirs = sent(&peer, &rows.iter().map(|(_, (_, request))| asked(request)).collect::<Vec<_>>());
    let mut used: BTreeSet<(String, usize, String)> = BTreeSet::new();
    let mut unlisted = Vec::new();
    for ((wire, (row, request)), theirs) in rows.iter().zip(&theirs) {
        let (api, row) = (api(*wire), *row);
        let Some(sent) = theirs["body"].as_str() else {
            unlisted.push(format!("{api} {row}: {theirs}"));
            continue;
        };
        let sent: Value = serde_json::from_str(sent).unwrap();
        let mut found = BTreeMap::new();
        differences("", Some(&body(request)), Some(&sent), &mut found);
        let of_api = listed.get(api).map(Vec::as_slice).unwrap_or_default();
        for (path, shown) in found {
            let covering = of_api.iter().position(|one| one.covers(row, &path));
            match covering {
                Some(at) => drop(used.insert((api.to_owned(), at, row.to_owned()))),
                None => unlisted
                    .push(format!("{api} {row} {path}: {}", shown.chars().take(300).collect::<String>())),
            }
        }
    }
    assert!(unlisted.is_empty(), "ours | theirs\n{}", unlisted.join("\n"));
    // What is listed does differ, and says why.
    for (api, all) in &listed {
        for (at, one) in all.iter().enumerate() {
            assert!(!one.reason.is_empty(), "{api} {:?}", one.paths);
            let differs = |row: &str| used.contains(&(api.clone(), at, row.to_owned()));
            let unused: Vec<_> = one.rows.iter().filter(|row| !differs(row)).collect();
            let never = one.rows.is_empty() && !used.iter().any(|(of, place, _)| (of, *place) == (api, at));
            assert!(unused.is_empty() && !never, "{api} {unused:?}: {:?} does not differ", one.paths);
        }
    }
}
