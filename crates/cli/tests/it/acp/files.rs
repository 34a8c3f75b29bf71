//! Files of the client: an editor with changes that are not saved.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::client::Client;
use super::says;
use crate::support::*;

/// The buffers of an editor.
struct Editor {
    client: Client,
    buffers: HashMap<PathBuf, String>,
    /// Methods and paths that were asked for, in order.
    asked: Vec<(String, PathBuf)>,
}

impl Editor {
    fn start(world: &World) -> Self {
        let files = json!({ "fs": { "readTextFile": true, "writeTextFile": true } });
        Self { client: Client::start(world, &files), buffers: HashMap::new(), asked: Vec::new() }
    }

    /// Sends a prompt and answers what the agent asks for, until the turn ends.
    fn says(&mut self, session: &str, text: &str) -> String {
        let id = self.client.prompt(session, text);
        loop {
            if let Some(request) = self.client.request_or_answer(id) {
                self.serve(&request);
            } else {
                return self.client.result(id)["stopReason"].as_str().unwrap().to_owned();
            }
        }
    }

    fn serve(&mut self, request: &Value) {
        let path = PathBuf::from(request["params"]["path"].as_str().unwrap());
        let method = request["method"].as_str().unwrap();
        self.asked.push((method.to_owned(), path.clone()));
        let result = match method {
            "fs/read_text_file" => {
                let content = self.buffers.get(&path).cloned();
                content
                    .or_else(|| std::fs::read_to_string(&path).ok())
                    .map(|content| json!({ "content": content }))
            }
            "fs/write_text_file" => {
                let content = request["params"]["content"].as_str().unwrap();
                self.buffers.insert(path.clone(), content.to_owned());
                std::fs::write(&path, content).unwrap();
                Some(json!({}))
            }
            _ => panic!("{request}"),
        };
        self.client.reply(request, &result.unwrap());
    }
}

#[test]
fn unsaved_buffer_is_read_edited_and_can_be_undone() {
    let edit = json!({ "path": "a.txt", "edits": [{ "oldText": "typed", "newText": "changed" }] });
    let world = World::new([
        call("c1", "read", &json!({ "path": "a.txt" })),
        call("c2", "edit", &edit),
        call("c3", "write", &json!({ "path": "new.txt", "content": "made\n" })),
        says("Done."),
    ]);
    let path = world.file("a.txt", "saved\n");
    let mut editor = Editor::start(&world);
    let session = editor.client.open(&world);
    editor.buffers.insert(path.clone(), "typed, not saved\n".into());
    assert_eq!(editor.says(&session, "Change it"), "end_turn");
    let sent = messages(world.requests().last().unwrap());
    let sent = Value::from(sent).to_string();
    assert!(sent.contains("typed, not saved"), "{sent}");
    assert_eq!(editor.buffers[&path], "changed, not saved\n");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "changed, not saved\n");
    assert_eq!(editor.buffers[&world.path("work/new.txt")], "made\n");
    editor.client.leave();
    // What the person had typed was there before the edit, so undo comes back to it.
    world.run(&["undo", "--files", "--yes"]).ok();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "typed, not saved\n");
    assert!(!world.path("work/new.txt").exists());
}

#[test]
fn guards_hold_for_files_of_the_client() {
    let outside = "../outside.txt";
    let world = World::new([
        call("c1", "read", &json!({ "path": outside })),
        call("c2", "write", &json!({ "path": outside, "content": "mine" })),
        says("Neither."),
    ]);
    let path = world.path("outside.txt");
    std::fs::write(&path, "theirs\n").unwrap();
    let mut editor = Editor::start(&world);
    let session = editor.client.open(&world);
    editor.buffers.insert(path.clone(), "secret buffer\n".into());
    let id = editor.client.prompt(&session, "Look outside");
    for _ in 0..2 {
        // The person is asked, and nothing else of the client before.
        let request = editor.client.request();
        assert_eq!(request["method"], "session/request_permission", "{request}");
        editor.client.reply(&request, &json!({ "outcome": { "outcome": "selected", "optionId": "reject" } }));
    }
    assert_eq!(editor.client.result(id)["stopReason"], "end_turn");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "theirs\n");
    let sent = Value::from(messages(world.requests().last().unwrap())).to_string();
    assert!(!sent.contains("secret buffer"), "{sent}");
    editor.client.leave();
}

#[test]
fn client_without_files_or_with_errors_leaves_the_disk() {
    let read = |id: &str| call(id, "read", &json!({ "path": "a.txt" }));
    let world = World::new([read("c1"), says("Read."), read("c2"), says("Read.")]);
    world.file("a.txt", "on disk\n");
    let mut client = Client::start(&world, &json!({}));
    let session = client.open(&world);
    assert_eq!(client.says(&session, "Read it"), "end_turn");
    client.leave();
    let mut editor = Editor::start(&world);
    let session = editor.client.open(&world);
    let id = editor.client.prompt(&session, "Read it");
    let request = editor.client.request();
    assert_eq!(request["method"], "fs/read_text_file");
    let error =
        json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": -32_603, "message": "binary" } });
    editor.client.line(&error.to_string());
    assert_eq!(editor.client.result(id)["stopReason"], "end_turn");
    let sent = Value::from(messages(world.requests().last().unwrap())).to_string();
    assert!(sent.contains("on disk"), "{sent}");
    editor.client.leave();
}
