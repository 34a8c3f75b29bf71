//! What is read out of entries, against the capture of the program whose forms these are.

#[cfg(test)]
mod tests {
    use quipu_protocol::Message;
    use quipu_rpc::{SessionEntries, last_answer_text};
    use serde_json::{Value, json};

    /// The data of the response with this id in the capture, as it was written.
    fn captured(id: &str) -> String {
        let start = format!("{{\"id\":\"{id}\",");
        let line = include_str!("data/pi-rpc.out").lines().find(|line| line.starts_with(&start)).unwrap();
        let (_, data) = line.split_once("\"data\":").unwrap();
        data.strip_suffix('}').unwrap().to_owned()
    }

    /// The entries of the capture, with the one that came after them.
    fn entries() -> SessionEntries {
        let data: Value = serde_json::from_str(&captured("4")).unwrap();
        let entries = data["entries"].as_array().unwrap();
        let mut lines: Vec<String> = entries.iter().map(Value::to_string).collect();
        lines.push(
            r#"{"type":"session_info","id":"0dd538b8","parentId":"f1defc96","timestamp":"2026-11-20T08:59:55.792Z","name":"my name"}"#
                .into(),
        );
        SessionEntries::new(lines)
    }

    #[test]
    fn tree_of_the_capture_is_written_as_it_was() {
        assert_eq!(entries().tree(), captured("8"));
    }

    #[test]
    fn lists_messages_and_sums_are_those_of_the_capture() {
        let entries = entries();
        let first: Value = serde_json::from_str(&captured("4")).unwrap();
        let list: Value = serde_json::from_str(&entries.list(0)).unwrap();
        assert_eq!(list["entries"].as_array().unwrap()[..5], first["entries"].as_array().unwrap()[..]);
        assert_eq!(list["leafId"], "0dd538b8");
        let since = entries.position("e1269467").unwrap() + 1;
        let list: Value = serde_json::from_str(&entries.list(since)).unwrap();
        assert_eq!(list["entries"].as_array().unwrap().len(), 2);
        assert_eq!(entries.position("nowhere"), None);
        assert_eq!(
            serde_json::to_string(&json!({ "messages": entries.fork_messages() })).unwrap(),
            captured("11")
        );
        let mut stats = serde_json::to_value(entries.stats()).unwrap();
        let mut expect: Value = serde_json::from_str(&captured("5")).unwrap();
        for own in ["sessionFile", "sessionId", "contextUsage"] {
            expect.as_object_mut().unwrap().shift_remove(own);
            stats.as_object_mut().unwrap().shift_remove(own);
        }
        assert_eq!(stats.to_string(), expect.to_string());
        assert_eq!(entries.user_text(2).as_deref(), Some("hello there"));
        assert_eq!(entries.user_text(3), None);
    }

    #[test]
    fn tree_has_labels_branches_and_entries_without_a_parent() {
        let line = |id: &str, parent: Option<&str>, time: u32, rest: &str| {
            let parent = parent.map_or("null".to_owned(), |parent| format!("\"{parent}\""));
            format!(
                r#"{{"type":"custom","id":"{id}","parentId":{parent},"timestamp":"2026-01-01T00:00:0{time}.000Z"{rest}}}"#
            )
        };
        let label = |id: &str, text: &str| {
            format!(
                r#"{{"type":"label","id":"{id}","parentId":"a","timestamp":"2026-01-01T00:00:09.000Z","targetId":"a","label":"{text}"}}"#
            )
        };
        let lines = vec![
            line("a", None, 1, ""),
            line("late", Some("a"), 5, ""),
            line("early", Some("a"), 2, ""),
            line("orphan", Some("gone"), 3, ""),
            line("self", Some("self"), 4, ""),
            label("l1", "first"),
            label("l2", "second"),
            "{\"type\":\"odd\",\"id\":5}".to_owned(),
        ];
        let tree: Value = serde_json::from_str(&SessionEntries::new(lines).tree()).unwrap();
        let roots: Vec<&str> =
            tree["tree"].as_array().unwrap().iter().filter_map(|root| root["entry"]["id"].as_str()).collect();
        assert_eq!(roots, ["a", "orphan", "self"]);
        let a = &tree["tree"][0];
        assert_eq!(
            (&a["label"], &a["labelTimestamp"]),
            (&json!("second"), &json!("2026-01-01T00:00:09.000Z"))
        );
        let below: Vec<&str> = a["children"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|child| child["entry"]["id"].as_str())
            .collect();
        assert_eq!(below, ["early", "late", "l1", "l2"]);
        assert_eq!(tree["leafId"], Value::Null);
    }

    #[test]
    fn long_conversations_are_written_without_recursion() {
        let line = |n: u32| {
            let parent = if n == 0 { "null".to_owned() } else { format!("\"{}\"", n - 1) };
            format!(
                r#"{{"type":"custom","id":"{n}","parentId":{parent},"timestamp":"2026-01-01T00:00:00.000Z"}}"#
            )
        };
        let tree = SessionEntries::new((0..200_000).map(line).collect()).tree();
        assert!(tree.ends_with(&format!("{}],\"leafId\":\"199999\"}}", "]}".repeat(200_000))));
    }

    #[test]
    fn last_answer_is_the_text_of_the_last_that_says_something() {
        let messages = |texts: &[&str]| -> Vec<Message> {
            texts.iter().map(|text| Message::parse(text).unwrap()).collect()
        };
        let answer = |content: &str, reason: &str| {
            format!(r#"{{"role":"assistant","content":{content},"stopReason":"{reason}","timestamp":1}}"#)
        };
        let said = answer(
            r#"[{"type":"text","text":" All "},{"type":"thinking","thinking":"x"},{"type":"text","text":"done. "}]"#,
            "stop",
        );
        let aborted = answer("[]", "aborted");
        let all = messages(&[&said, &aborted, r#"{"role":"user","content":"x","timestamp":1}"#]);
        assert_eq!(last_answer_text(all.iter()).as_deref(), Some("All done."));
        let none = messages(&[&said, &answer("[]", "stop")]);
        assert_eq!(last_answer_text(none.iter()), None);
        assert_eq!(last_answer_text([].iter()), None);
    }
}
