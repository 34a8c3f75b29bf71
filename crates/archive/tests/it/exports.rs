//! Exports of accounts: archives, the folders that they are unpacked to, and what may be wrong with them.

use std::collections::BTreeMap;

use quipu_archive::{Agent, ProblemKind, Report};
use quipu_protocol::{Content, Message, StopReason};
use serde_json::{Value, json};

use crate::agents::{answers, shorts};
use crate::support::{Archive, SECRET, archive, fixture};
use crate::zips::{deflated, stored, zip};

/// A picture of one point.
pub(crate) const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

impl Archive {
    /// Imports an export; the reports of its sessions by their names, and that of the whole.
    pub(crate) fn take_all(
        &self,
        agent: &str,
        name: &str,
        content: impl AsRef<[u8]>,
    ) -> (BTreeMap<String, Report>, Report) {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut reports = self.try_take(agent, &self.file(name, content)).unwrap();
        let whole = reports.pop().unwrap();
        assert_eq!(whole.session.as_str(), "", "{whole:?}");
        let added = |report: &Report| report.read == report.added + report.present + report.changed;
        assert!(reports.iter().all(added), "{reports:?}");
        (reports.into_iter().map(|report| (report.session.to_string(), report)).collect(), whole)
    }
}

/// Whose exports there are.
fn whose(path: &std::path::Path) -> Vec<&'static str> {
    Agent::exports(path).unwrap().iter().map(|(agent, _)| agent.name).collect()
}

/// The kinds of all problems of a report.
fn kinds(report: &Report) -> Vec<ProblemKind> {
    report.problems.iter().map(|problem| problem.kind).collect()
}

mod chatgpt {
    use super::*;

    const AGENT: &str = "chatgpt";
    const ONE: &str = "6939aaaa-0000-4000-8000-000000000001";
    const TWO: &str = "6939aaaa-0000-4000-8000-000000000002";

    fn export() -> Vec<u8> {
        zip(
            &[
                deflated("conversations.json", fixture("chatgpt/conversations.json").as_bytes()),
                stored("user.json", b"{}"),
                stored("chat.html", b"<html>"),
                stored("file_00aa-sanitized.dat", PNG),
                deflated("user-x/file-bbb-notes.txt", format!("beta {SECRET}").as_bytes()),
                stored("file-ccc-paper.pdf", b"%PDF\0\xff"),
                stored("file-ddd-nobody.png", PNG),
                stored("dalle-generations/", b""),
            ],
            false,
        )
    }

    #[test]
    fn an_archive() {
        let archive = archive();
        let (reports, whole) = archive.take_all(AGENT, "export.zip", export());
        assert_eq!(reports.len(), 2);
        let one = &reports[ONE];
        assert_eq!((one.added, one.lost, one.repaired, one.branches), (16, 0, 0, 3), "{one:?}");
        let skipped: Vec<(&str, u64)> =
            one.skipped.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
        let expect = [
            ("default_model_slug", 1),
            ("file missing from the export", 1),
            ("node without a message", 1),
            ("safe_urls", 1),
        ];
        assert_eq!(skipped, expect);
        let messages = archive.messages(ONE);
        let said = shorts(&messages);
        assert!(said[0].starts_with("u <image/png> {\"content_type\":\"image_asset_pointer\",\"asset_pointer\":\"file-service://file-gone\""), "{said:?}");
        assert!(said[0].contains("Look. notes.txt:\n\nbeta [REDACTED:"), "{said:?}");
        assert!(
            said[0].contains("{\"type\":\"file\",\"name\":\"paper.pdf\",\"data\":\"JVBERgD/\"}"),
            "{said:?}"
        );
        let expect = [
            "a (hm)",
            "a a6=python",
            "r a6=python 1\n",
            "a One.",
            "u And on the web?",
            "a b0=web.search",
            "r b0=web.search found",
            "c web.search more",
            "a Found.",
        ];
        assert_eq!(said[1..], expect);
        archive.shown(ONE);
        let answers = answers(&messages);
        let calls: Vec<&str> =
            answers.iter().flat_map(|answer| answer.tool_calls()).map(|call| call.arguments.get()).collect();
        assert_eq!(calls, [r#"{"input":"print(1)"}"#, r#"{"b":1.0,"a":"x"}"#]);
        assert_eq!((answers[0].provider.as_str(), answers[0].model.as_str()), ("openai", "gpt-5"));
        let row = archive.row(ONE);
        assert_eq!(
            (row.called.as_str(), row.created, row.agent.as_str()),
            ("A title", 1_767_322_800_500, AGENT)
        );
        let Message::User(user) = &messages[0] else { panic!("{:?}", messages[0]) };
        assert_eq!(user.timestamp, 1_767_322_803_250);
        let Content::Image(image) = &user.content.blocks()[0] else { panic!("{user:?}") };
        assert_eq!(image.data, "iVBORw0KGgo=");
        assert_eq!(
            whole.skipped,
            BTreeMap::from([
                ("chat.html".into(), 1),
                ("file that no message refers to".into(), 1),
                ("user.json".into(), 1)
            ])
        );
        assert_eq!((whole.lost, whole.repaired), (0, 0));
        // The other branch is there, and says how its answer ended.
        let heads = archive.all().0;
        let tip = |head: &&(String, quipu_protocol::NodeId)| head.0.starts_with(&format!("{AGENT}/{ONE}/"));
        assert_eq!(heads.iter().filter(tip).count(), 3, "two branches, and the title");
        let again = archive.try_take(AGENT, &archive.dir.path().join("export.zip")).unwrap();
        assert!(again.len() == 1 && again[0].unchanged);
    }

    #[test]
    fn what_does_not_fit() {
        let archive = archive();
        let (reports, _) = archive.take_all(AGENT, "export.zip", export());
        let two = &reports[TWO];
        assert_eq!(kinds(two), [ProblemKind::Orphan], "{two:?}");
        assert_eq!((two.added, two.branches), (6, 3));
        assert_eq!(two.skipped["node without a message"], 3);
        // The node at which it stands is not there: it stands at the last of the file.
        assert_eq!(shorts(&archive.messages(TWO)), ["u Round."]);
        let nodes = archive.all().1;
        let lineages = quipu_lineages(&archive, TWO);
        let failed = lineages.iter().find(|said| said.iter().any(|one| one == "u Run it.")).unwrap();
        assert_eq!(failed, &["u Run it.", "a d2=python", "r d2=python! it failed", "aborted"]);
        assert!(nodes.len() > 20);
    }

    /// What is said on each branch of a session.
    fn quipu_lineages(archive: &Archive, session: &str) -> Vec<Vec<String>> {
        let heads = archive.all().0;
        let tips = heads.into_iter().filter(|(name, _)| name.starts_with(&format!("{AGENT}/{session}/")));
        tips.map(|(_, node)| shorts(&archive.branch(node))).collect()
    }

    #[test]
    fn the_same_whatever_way_it_comes() {
        let expect = archive();
        expect.take_all(AGENT, "export.zip", export());
        // Unpacked, in parts, as ZIP64, laid out otherwise, in a folder of its own: the same nodes.
        let text = fixture("chatgpt/conversations.json");
        let values: Vec<Value> = serde_json::from_str(&text).unwrap();
        let assets = [
            stored("x/file_00aa-sanitized.png", PNG),
            stored("x/file-bbb-notes.txt", format!("beta {SECRET}").as_bytes()),
            stored("x/file-ccc-paper.pdf", b"%PDF\0\xff"),
        ];
        let pretty: Vec<String> =
            values.iter().map(|value| serde_json::to_string_pretty(&[value]).unwrap()).collect();
        let mut files = vec![
            stored("x/conversations-000.json", pretty[1].as_bytes()),
            deflated("x/conversations-001.json", pretty[0].as_bytes()),
        ];
        files.extend(assets.iter().cloned());
        let other = archive();
        other.take_all(AGENT, "export.zip", zip(&files, true));
        assert_eq!(other.all(), expect.all());
        let folder = archive();
        for file in &assets {
            let path = folder.dir.path().join(&file.name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &file.packed).unwrap();
        }
        std::fs::write(folder.dir.path().join("x/conversations.json"), &text).unwrap();
        // A folder that leads back to itself.
        std::os::unix::fs::symlink(folder.dir.path(), folder.dir.path().join("x/loop")).unwrap();
        let agent = Agent::exports(folder.dir.path()).unwrap()[0].0;
        assert_eq!(agent.name, AGENT);
        let found = agent.files(folder.dir.path()).unwrap().files;
        assert_eq!(found.len(), 1);
        folder.try_take(AGENT, &found[0]).unwrap();
        assert_eq!(folder.all(), expect.all());
        let (reports, _) = folder.take_all(AGENT, "export.zip", export());
        assert!(reports.values().all(|report| report.added == 0 && report.changed == 0), "{reports:?}");
        assert_eq!(folder.all(), expect.all());
    }

    #[test]
    fn a_later_export_adds_what_is_new() {
        let text = fixture("chatgpt/conversations.json");
        let later: Vec<Value> = serde_json::from_str(&text).unwrap();
        let mut earlier = later.clone();
        // Before the second branch was there, and the answer was still written.
        let mapping = earlier[0]["mapping"].as_object_mut().unwrap();
        mapping.shift_remove("c1");
        mapping.shift_remove("c0");
        mapping["b3"]["message"]["status"] = json!("in_progress");
        mapping["b3"]["message"]["content"]["parts"][0] = json!("Fo");
        earlier[0]["title"] = json!("Another");
        earlier.truncate(1);
        let store = archive();
        let (reports, _) = store.take_all(AGENT, "one/conversations.json", json!(earlier).to_string());
        assert_eq!(kinds(&reports[ONE]), [ProblemKind::Unfinished]);
        let (reports, _) = store.take_all(AGENT, "two/conversations.json", &text);
        assert_eq!(
            (reports[ONE].added, reports[ONE].changed, reports[ONE].present),
            (4, 0, 12),
            "{:?}",
            reports[ONE]
        );
        assert_eq!(store.row(ONE).called, "A title");
        // The other way round: the same nodes.
        let other = archive();
        other.take_all(AGENT, "two/conversations.json", &text);
        other.take_all(AGENT, "one/conversations.json", json!(earlier).to_string());
        assert_eq!(other.all().1, store.all().1);
        // What was edited stays as it was, and is told.
        let mut edited = later;
        edited[0]["mapping"]["a8"]["message"]["content"]["parts"][0] = json!("Two.");
        let (reports, _) = store.take_all(AGENT, "three/conversations.json", json!(edited).to_string());
        assert_eq!((reports[ONE].added, reports[ONE].changed), (0, 1));
    }
}

mod claude_ai {
    use super::*;

    const AGENT: &str = "claude-ai";
    const ONE: &str = "7a39aaaa-0000-4000-8000-000000000001";
    const TWO: &str = "7a39aaaa-0000-4000-8000-000000000002";

    #[test]
    fn an_archive() {
        let archive = archive();
        let text = fixture("claude-ai/conversations.json");
        let files = [
            deflated("conversations.json", text.as_bytes()),
            stored("users.json", b"[]"),
            stored("files/dot.png", PNG),
        ];
        let (reports, whole) = archive.take_all(AGENT, "data.zip", zip(&files, false));
        let one = &reports[ONE];
        assert_eq!((one.added, one.lost, one.repaired, one.branches), (11, 0, 0, 3), "{one:?}");
        assert_eq!(
            one.skipped,
            BTreeMap::from([("file missing from the export".into(), 1), ("summary".into(), 1)])
        );
        let messages = archive.messages(ONE);
        let expect = [
            "u Look. notes.txt:\n\nalpha <image/png>",
            "a (hm) Reading. toolu_1=repl toolu_2=web_search",
            "r toolu_1=repl! one",
            "r toolu_2=web_search two {\"type\":\"knowledge\",\"title\":\"t\",\"url\":\"https://example.invalid\"}",
            "a Done.",
            "u Right?",
            "a Right.",
        ];
        assert_eq!(shorts(&messages), expect);
        archive.shown(ONE);
        let answers = answers(&messages);
        assert_eq!(
            (answers[0].stop_reason, answers[0].provider.as_str()),
            (StopReason::ToolUse, "anthropic")
        );
        assert_eq!(answers[0].tool_calls().next().unwrap().arguments.get(), r#"{"b":1.0,"a":"x"}"#);
        let row = archive.row(ONE);
        assert_eq!((row.called.as_str(), row.created), ("Reading", 1_767_322_800_123));
        assert_eq!(whole.skipped, BTreeMap::from([("users.json".into(), 1)]));

        let two = &reports[TWO];
        assert_eq!(kinds(two), [ProblemKind::NotAnEntry, ProblemKind::Orphan], "{two:?}");
        // One that follows nothing that is there begins a branch; the last one of the file says it follows that.
        assert_eq!(shorts(&archive.messages(TWO)), ["u Thanks."]);
        let (again, _) = archive.take_all(AGENT, "unpacked/conversations.json", &text);
        assert!(again.values().all(|report| report.added == 0), "{again:?}");
    }

    #[test]
    fn older_exports_and_later_ones() {
        let text = fixture("claude-ai/conversations.json");
        let mut earlier: Vec<Value> = serde_json::from_str(&text).unwrap();
        earlier[0]["chat_messages"].as_array_mut().unwrap().truncate(4);
        earlier[1]["chat_messages"].as_array_mut().unwrap().truncate(2);
        let store = archive();
        store.take_all(AGENT, "one/conversations.json", json!(earlier).to_string());
        assert_eq!(
            shorts(&store.messages(TWO)),
            ["u An older one.", "a q2.call1=artifacts", "r q2.call1=artifacts OK", "a Yes."]
        );
        let (reports, _) = store.take_all(AGENT, "two/conversations.json", &text);
        assert_eq!(
            (reports[ONE].added, reports[ONE].present, reports[ONE].changed),
            (3, 8, 0),
            "{:?}",
            reports[ONE]
        );
        let other = archive();
        other.take_all(AGENT, "two/conversations.json", &text);
        other.take_all(AGENT, "one/conversations.json", json!(earlier).to_string());
        assert_eq!(other.all().1, store.all().1);
    }

    #[test]
    fn whose_it_is() {
        let archive = archive();
        let text = fixture("claude-ai/conversations.json");
        let path = archive.file("data.zip", zip(&[deflated("a/conversations.json", text.as_bytes())], false));
        assert_eq!(whose(&path), [AGENT]);
        let theirs = archive.file("conversations.json", fixture("chatgpt/conversations.json"));
        assert_eq!(whose(&theirs), ["chatgpt"]);
        let other = archive.file("other.zip", zip(&[stored("a.txt", b"hello")], false));
        assert!(whose(&other).is_empty());
        let error = archive.try_take(AGENT, &other).unwrap_err();
        assert!(error.to_string().contains("no conversations file"), "{error}");
        let error = archive.try_take(AGENT, &theirs).unwrap_err();
        assert!(error.to_string().contains("not an entry"), "{error}");
        assert!(Agent::exports(&archive.dir.path().join("none.zip")).is_err());
    }
}

mod gemini_takeout {
    use super::*;

    const AGENT: &str = "gemini-takeout";
    const PLACE: &str = "Takeout/My Activity/Gemini Apps";

    fn archived(text: &str, name: &str) -> Vec<u8> {
        let files = [
            deflated(&format!("{PLACE}/{name}"), text.as_bytes()),
            stored(&format!("{PLACE}/dot.png"), PNG),
            stored("Takeout/archive_browser.html", b"<html>"),
        ];
        zip(&files, false)
    }

    #[test]
    fn each_day_is_a_session() {
        let archive = archive();
        let text = fixture("gemini-takeout/MyActivity.json");
        let (reports, whole) = archive.take_all(AGENT, "takeout.zip", archived(&text, "MyActivity.json"));
        let days: Vec<&str> = reports.keys().map(String::as_str).collect();
        assert_eq!(days, ["gemini-2026-01-02", "gemini-2026-01-03", "gemini-undated"]);
        let expect = [
            "u Nobody answered.",
            "u Look. Now.",
            "a One.\nTwo.",
            "u Eingegebener Prompt: Hallo <image/png>",
            "a Guten Tag.",
        ];
        assert_eq!(shorts(&archive.messages("gemini-2026-01-02")), expect);
        archive.shown("gemini-2026-01-02");
        assert_eq!(
            reports["gemini-2026-01-02"].skipped,
            BTreeMap::from([("file missing from the export".into(), 1)])
        );
        // Feedback is kept, and not shown.
        assert_eq!(
            shorts(&archive.messages("gemini-2026-01-03")),
            ["u And then?", "a Then this:\n\n- a & b\n- c"]
        );
        assert_eq!(reports["gemini-2026-01-03"].added, 3);
        let undated = &reports["gemini-undated"];
        assert_eq!((kinds(undated), undated.added), (vec![ProblemKind::NoTime; 2], 2));
        assert_eq!(kinds(&whole), [ProblemKind::NotAnEntry]);
        let expect = [("other kind of activity", 1), ("archive_browser.html", 1)];
        assert_eq!(whole.skipped, expect.map(|(kind, count)| (kind.to_owned(), count)).into());
        let messages = archive.messages("gemini-2026-01-02");
        assert_eq!(answers(&messages)[1].timestamp, 1_767_398_399_999);
        assert_eq!(archive.row("gemini-2026-01-02").created, 1_767_312_000_000);
    }

    #[test]
    fn pages_and_lists_are_the_same_and_grow() {
        let text = fixture("gemini-takeout/MyActivity.json");
        let page = fixture("gemini-takeout/MyActivity.html");
        let store = archive();
        let (reports, whole) = store.take_all(AGENT, "page.zip", archived(&page, "My Activity.html"));
        assert_eq!(reports.values().map(|report| report.added).sum::<u64>(), 7, "{reports:?}");
        assert_eq!(whole.skipped["other kind of activity"], 1);
        let said = shorts(&store.messages("gemini-2026-01-02"));
        let expect = [
            "u Nobody answered.",
            "u Look. Now.",
            "a One.\nTwo.",
            "u Eingegebener Prompt: Hallo <image/png>",
            "a Guten Tag.",
        ];
        assert_eq!(said, expect);
        // The list says more of the same, and has more.
        let (reports, _) = store.take_all(AGENT, "list.zip", archived(&text, "MyActivity.json"));
        assert_eq!(reports.values().map(|report| report.added).sum::<u64>(), 3, "{reports:?}");
        assert_eq!(shorts(&store.messages("gemini-2026-01-02")), expect);
        // An earlier export of the same list, then the whole: the same as the whole at once.
        let values: Vec<Value> = serde_json::from_str(&text).unwrap();
        let earlier = json!(values[3..]).to_string();
        let grown = archive();
        grown.take_all(AGENT, "one/MyActivity.json", earlier);
        let whole = archive();
        for archive in [&grown, &whole] {
            let (reports, _) = archive.take_all(AGENT, "two.zip", archived(&text, "MyActivity.json"));
            assert!(reports.values().all(|report| report.changed == 0), "{reports:?}");
        }
        assert_eq!(grown.all(), whole.all());
    }

    #[test]
    fn whose_it_is() {
        let archive = archive();
        for name in ["MyActivity.json", "MyActivity.html"] {
            let path = archive.file(&format!("x{name}"), fixture(&format!("gemini-takeout/{name}")));
            assert_eq!(whose(&path), [AGENT]);
            let path =
                archive.file("takeout.zip", archived(&fixture(&format!("gemini-takeout/{name}")), name));
            assert_eq!(whose(&path), [AGENT]);
        }
        let error = archive.try_take(AGENT, &archive.file("a.html", "<html>nothing</html>")).unwrap();
        assert_eq!((error.len(), error[0].read), (1, 0));
    }
}

/// A conversation of one message with a file.
fn naming(file: &str) -> String {
    let attachment = json!({ "id": file, "name": file });
    let message = json!({ "id": "a", "author": { "role": "user" }, "content": { "content_type": "text", "parts": ["Look."] },
        "create_time": 1_767_322_800.0, "metadata": { "attachments": [attachment] } });
    json!([{ "id": "one", "create_time": 1_767_322_800.0, "mapping": { "a": { "id": "a", "parent": null, "message": message } } }]).to_string()
}

#[test]
fn archives_that_are_not_as_they_should_be() {
    let text = naming("file-x");
    let main = deflated("conversations.json", text.as_bytes());
    let check = |files: &[crate::zips::File], expect: &str| {
        let archive = archive();
        let (reports, whole) = archive.take_all("chatgpt", "export.zip", zip(files, false));
        let all: Vec<String> =
            reports["one"].problems.iter().chain(&whole.problems).map(|one| one.detail.clone()).collect();
        assert!(all.len() == 1 && all[0].contains(expect), "{expect}: {all:?}");
        assert_eq!(shorts(&archive.messages("one")), ["u Look."], "{expect}");
        assert_eq!(reports["one"].lost + whole.lost, 1);
    };
    let good = stored("file-x.txt", b"beta");
    let with = |change: &dyn Fn(&mut crate::zips::File)| {
        let mut file = good.clone();
        change(&mut file);
        [main.clone(), file]
    };
    check(&with(&|file| file.name = "../file-x.txt".into()), "leads outside the archive");
    check(&with(&|file| file.name = "/etc/file-x.txt".into()), "leads outside the archive");
    check(&with(&|file| file.name = "C:\\file-x.txt".into()), "leads outside the archive");
    check(&with(&|file| file.name = "a\\..\\..\\file-x.txt".into()), "leads outside the archive");
    check(&with(&|file| file.flags = 1), "encrypted");
    check(&with(&|file| file.attributes = 0o120_777 << 16), "it is a link");
    check(&with(&|file| file.method = 93), "compression method is not supported");
    check(&with(&|file| file.offset = Some(9_999_999)), "not where the archive index says");
    check(&with(&|file| file.offset = Some(3)), "shares its bytes");
    check(&with(&|file| file.crc ^= 1), "checksum does not match");
    check(&with(&|file| file.size = 40), "ends too early");
    check(&with(&|file| file.size = 3), "larger than the archive index says");
    check(&with(&|file| (file.method, file.packed) = (8, vec![0xff; 40])), "its compressed data is damaged");
    check(&with(&|file| *file = stored("file-x.txt", &vec![b'x'; (32 << 20) + 1])), "larger than 32 MiB");
    check(&with(&|file| *file = deflated("file-x.txt", &vec![0; 65 << 20])), "larger than 32 MiB");
    // Twice the same name: the last one counts.
    let twice = [main.clone(), stored("file-x.txt", b"alpha"), good.clone()];
    let (_, whole) = archive().take_all("chatgpt", "export.zip", zip(&twice, false));
    assert!(whole.problems[0].detail.contains("a later file in the archive has the same name"));
}

#[test]
fn what_can_be_read_of_a_damaged_archive_is() {
    // The list of conversations itself is a bomb, ends early, or has another checksum: what came before is kept.
    let one = naming("");
    let list = one.trim_end_matches(']').to_owned();
    let bomb = list.clone() + ",{\"id\":\"two\",\"mapping\":{" + &" ".repeat(80 << 20) + "}}]";
    let mut cut = stored("conversations.json", one.as_bytes());
    cut.size += 9;
    let mut wrong = deflated("conversations.json", one.as_bytes());
    wrong.crc ^= 1;
    for (file, expect) in [
        (deflated("conversations.json", bomb.as_bytes()), "compression ratio is above 200"),
        (cut, "ends too early"),
        (wrong, "checksum"),
    ] {
        let archive = archive();
        let more = deflated("conversations-1.json", one.replace("\"one\"", "\"other\"").as_bytes());
        let (reports, whole) = archive.take_all("chatgpt", "export.zip", zip(&[file, more], false));
        assert_eq!((reports.len(), kinds(&whole)), (2, vec![ProblemKind::Unreadable]), "{expect}: {whole:?}");
        assert!(whole.problems[0].detail.contains(expect), "{whole:?}");
        assert!(reports["one"].added > 0 && reports["other"].added > 0);
        // It is not noted as done.
        assert!(!archive.try_take("chatgpt", &archive.dir.path().join("export.zip")).unwrap()[0].unchanged);
    }
    let whole = zip(&[stored("conversations.json", one.as_bytes())], false);
    let archive = archive();
    for (bytes, expect) in [
        (whole[..whole.len() - 30].to_vec(), "its end is missing"),
        (whole.iter().map(|byte| if *byte == 1 { 9 } else { *byte }).collect(), "its file list"),
        (b"PK\x03\x04".to_vec(), "its end is missing"),
        (b"{\"a\":1}".to_vec(), "not an entry"),
        (b"[{\"mapping\":".to_vec(), "the last line is incomplete"),
        (b"hello".to_vec(), "not a list of conversations"),
    ] {
        let error = archive.try_take("chatgpt", &archive.file("export.zip", bytes)).unwrap_err();
        assert!(error.to_string().contains(expect), "{expect}: {error}");
    }
}
