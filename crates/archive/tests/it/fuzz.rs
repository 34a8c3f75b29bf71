//! Any bytes as a session file. See `docs/development.md`.

use quipu_protocol::Json;

use crate::support::archive;

const WORDS: &str = r#"{ } [ ] , : " \ \\ \n \u0000 \ud800 null 1.0 {"type":"session" "version":1 "version":2 "id":" "parentId":"
    "parentId":null "timestamp":"2026-01-02T03:04:05.678Z" "type":"message" "message":{ "role":"user" "role":"assistant"
    "type":"compaction" "firstKeptEntryIndex":1 "firstKeptEntryId":" "role":"hookMessage" "content":[ "type":"label""#;

fn law(bytes: &[u8]) -> Result<(), String> {
    let archive = archive();
    let path = archive.file("a.jsonl", bytes);
    let Ok(report) = archive.try_import(&path) else { return Ok(()) };
    if report.read != report.added || report.present + report.changed > 0 {
        return Err(format!("the counts do not add up: {report:?}"));
    }
    let text = String::from_utf8_lossy(bytes);
    let is_entry = |line: &&str| Json::parse(line).is_ok_and(|json| json.get().starts_with('{'));
    if text.split('\n').filter(is_entry).count() as u64 != 1 + report.read {
        return Err(format!("entries were dropped: {report:?}"));
    }
    let export = archive.export(report.session.as_str());
    if export.lines().count() as u64 != 1 + report.added {
        return Err(format!("{} entries were added, and written are {export}", report.added));
    }
    if let Some(line) = export.lines().find(|line| !is_entry(line)) {
        return Err(format!("no entry: {line}"));
    }
    let copy = archive.file("b.jsonl", bytes);
    let again = archive.try_import(&copy).map_err(|error| error.to_string())?;
    if again.added > 0 || again.changed > 0 {
        return Err(format!("importing again: {again:?}"));
    }
    let back = archive.try_import(&archive.file("c.jsonl", &export)).map_err(|error| error.to_string())?;
    if back.lost > 0 || back.added > 0 || back.changed > 0 {
        return Err(format!("importing what was written: {back:?}"));
    }
    Ok(())
}

#[test]
fn fuzz_session_files() {
    let words: Vec<String> = WORDS.split_whitespace().map(str::to_owned).collect();
    let corpus = ["it/__fuzz__/session_files/corpus"];
    crate::driver::run(bolero::check!(name = "session_files"), "fuzz_session_files", &corpus, &words, law);
}
