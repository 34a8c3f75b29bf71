//! Any bytes as a session file. See `docs/development.md`.

use quipu_protocol::Json;

use crate::support::archive;

/// Words of the formats that share one intake.
const AGENT_WORDS: &str = r#"{ } [ ] , : " \ \n \ud800 null 1.0 "uuid":"u1" "uuid":"u2" "uuid":"u3" "parentUuid":"u1" "parentUuid":"u2"
    "parentUuid":null "logicalParentUuid":"u1" "sessionId":"s" "requestSessionId":"r" "type":"user" "type":"assistant" "type":"system"
    "type":"attachment" "isSidechain":true "isMeta":true "isCompactSummary":true "isApiErrorMessage":true "subtype":"compact_boundary"
    "message":{ "id":"m1" "content":[ "content":"x" "stop_reason":"end_turn" "stop_reason":null "usage":{ "input_tokens":5
    {"type":"text","text":"x"} {"type":"tool_use","id":"t1","name":"n","input":{}} {"type":"tool_result","tool_use_id":"t1","content":"x"}
    {"type":"image","source":{ "timestamp":"2026-01-02T03:04:05.678Z" "toolUseResult":{ "attachment":{
    {"type":"session_meta","payload":{"id":"s"}} "payload":{ "ordinal":3 "type":"response_item" "type":"event_msg" "type":"compacted"
    "type":"token_usage_record" "type":"message" "type":"reasoning" "type":"function_call" "type":"function_call_output" "call_id":"t1"
    "role":"user" "role":"assistant" "role":"developer" "output":"x" "type":"item_completed" "item":{ "type":"task_complete" "error":{
    "type":"thread_rolled_back" "num_turns":1 "type":"token_count" "forked_from_id":"r" "forked_from_ordinal_exclusive":7"#;

/// Words of chains of events.
const EVENT_WORDS: &str = r#"{ } [ ] , : " \ \n \ud800 null 1.0 "id":"e1" "id":"e2" "id":"e3" "parentId":"e1" "parentId":"e2" "parentId":null
    "timestamp":"2026-01-02T03:04:05.678Z" {"type":"session.start","data":{"sessionId":"s"}} "type":"user.message" "type":"abort"
    "type":"assistant.message" "type":"tool.execution_complete" "type":"tool.execution_start" "type":"session.usage_record"
    "type":"session.error" "type":"session.compaction_complete" "summaryContent":"x" "data":{ "content":"x" "toolRequests":[
    {"toolCallId":"c1","name":"n","arguments":{}} "toolCallId":"c1" "success":false "result":{"content":"x"} "apiCallId":"r1"
    "usage":{"inputTokens":5,"cacheReadTokens":9} "agentId":"a" "ephemeral":true "reasoningText":"x" "reasoningBlocks":{"blocks":["#;

const CHAT_WORDS: &str = r#"{ } [ ] , : " \ \n \ud800 null 1.0 "requestId":"r1" "requestId":"r2" "responseId":"a1" "message":"x" "timestamp":5
    "message":{"text":"x"} "response":[ {"value":"x"} {"kind":"thinking","value":"x"} "isCanceled":true "isHidden":true "modelId":"a/b"
    {"kind":"toolInvocationSerialized","toolCallId":"c1","toolId":"n"} "result":{ "metadata":{ "toolCallRounds":[ "toolCallResults":{
    {"response":"x","toolCalls":[{"id":"c1","name":"n","arguments":"{}"}]} "c1":{"content":[{"value":"x"}]} "errorDetails":{"message":"x"}
    "promptTokens":5 "outputTokens":9 "responderUsername":"x" "requests":[ "sessionId":"s" "creationDate":5 "customTitle":"x" {"node":{"text":"x","children":[
    {"kind":0,"v":{ {"kind":1,"k":["requests",0],"v":{ {"kind":2,"k":["requests"],"i":0,"v":[ {"kind":3,"k":["requests"]}"#;

/// Words of logs of operations.
const LOG_WORDS: &str = r#"{ } [ ] , : " \ \n \ud800 null 1.0 "id":"m1" "id":"m2" "id":"m3" "sessionId":"s" "projectHash":"h"
    "startTime":"2026-01-02T03:04:05.678Z" "timestamp":"2026-01-02T03:04:05.678Z" {"$set":{ "messages":[ "messages":[] "summary":"x"
    {"$rewindTo":"m1"} {"$rewindTo":"m2"} "type":"user" "type":"gemini" "type":"info" "type":"error" "content":"x" "content":[{"text":"x"}]
    "content":[{"text":"<session_context>"}] "content":[{"text":"<state_snapshot>"}] "thoughts":[{"subject":"x","description":"y"}]
    "tokens":{"input":5,"output":3,"cached":9} "toolCalls":[{"id":"c1","name":"n","args":{}}] {"functionCall":{"id":"c1","name":"n"}}
    {"functionResponse":{"id":"c1","name":"n","response":{"output":"x"}}} "result":[ "status":"error" {"inlineData":{"thought":true"#;

/// Words of exports, and of archives.
const TREE_WORDS: &str = r#"{ } [ ] , : " \ \n \ud800 null 1.0 "id":"one" "id":"a" "mapping":{ "a":{ "b":{ "parent":"a" "parent":"b" "parent":null
    "message":{ "message":null "author":{"role":"user"} "author":{"role":"assistant"} "author":{"role":"tool","name":"python"} "recipient":"python"
    "content":{"content_type":"text","parts":["x"]} "content":{"content_type":"code","text":"{}"} "create_time":1767322800.5 "current_node":"a"
    "status":"in_progress" "metadata":{"attachments":[{"id":"file-x"}]} "asset_pointer":"sediment://file-x" "uuid":"u1" "uuid":"u2" "chat_messages":[
    "sender":"human" "sender":"assistant" "parent_message_uuid":"u1" {"type":"text","text":"x"} {"type":"tool_use","id":"t1","name":"n","input":{}}
    {"type":"tool_result","tool_use_id":"t1","content":"x"} "attachments":[{"file_name":"x","extracted_content":"y"}] PK conversations.json"#;

/// Words of lists of activity, and of pages.
const ACTIVITY_WORDS: &str = r#"{ } [ ] , : " \ \n \ud800 null "header":"Gemini" "products":["Gemini"] "title":"Prompted_x" "title":"x" "time":"2026-01-02T03:04:05Z"
    "safeHtmlItem":[{"html":"<p>x</p>"}] "attachedFiles":["dot.png"] <div class="outer-cell <div class="content-cell > </div> <br> <p> </p> <li> <pre>
    &amp; &nbsp; &#65; 2026, 3:04:05 AM UTC GMT+99 <a href="dot.png"> mdl-typography--title">Gemini</p> 02.01.2026 PK MyActivity.json"#;

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
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
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

/// What holds of any bytes for an agent whose files go through the one intake.
fn agent_law(agent: &str, bytes: &[u8]) -> Result<(), String> {
    let archive = archive();
    let Ok(reports) = archive.try_take(agent, &archive.file("a.jsonl", bytes)) else { return Ok(()) };
    for report in &reports {
        if report.read != report.added + report.present {
            return Err(format!("the counts do not add up: {report:?}"));
        }
    }
    let before = archive.all();
    let again =
        archive.try_take(agent, &archive.file("b.jsonl", bytes)).map_err(|error| error.to_string())?;
    if again.iter().any(|again| again.added > 0 || again.changed > 0) {
        return Err(format!("importing again: {again:?} after {reports:?}"));
    }
    if archive.all() != before {
        return Err("importing again moved something".into());
    }
    for report in reports.iter().filter(|report| report.head.is_some()) {
        archive.shown(report.session.as_str());
    }
    Ok(())
}

#[test]
fn fuzz_claude_code_files() {
    let words: Vec<String> = AGENT_WORDS.split_whitespace().map(str::to_owned).collect();
    let corpus = ["it/__fuzz__/claude_code_files/corpus"];
    let law = |bytes: &[u8]| agent_law("claude-code", bytes);
    crate::driver::run(
        bolero::check!(name = "claude_code_files"),
        "fuzz_claude_code_files",
        &corpus,
        &words,
        law,
    );
}

#[test]
fn fuzz_codex_files() {
    let words: Vec<String> = AGENT_WORDS.split_whitespace().map(str::to_owned).collect();
    let corpus = ["it/__fuzz__/codex_files/corpus"];
    let law = |bytes: &[u8]| agent_law("codex", bytes);
    crate::driver::run(bolero::check!(name = "codex_files"), "fuzz_codex_files", &corpus, &words, law);
}

#[test]
fn fuzz_opencode_files() {
    let words: Vec<String> = AGENT_WORDS.split_whitespace().map(str::to_owned).collect();
    let corpus = ["it/__fuzz__/opencode_files/corpus"];
    let law = |bytes: &[u8]| agent_law("opencode", bytes);
    crate::driver::run(bolero::check!(name = "opencode_files"), "fuzz_opencode_files", &corpus, &words, law);
}

#[test]
fn fuzz_gemini_files() {
    let words: Vec<String> = LOG_WORDS.split_whitespace().map(str::to_owned).collect();
    let corpus = ["it/__fuzz__/gemini_files/corpus"];
    let law = |bytes: &[u8]| agent_law("gemini-cli", bytes);
    crate::driver::run(bolero::check!(name = "gemini_files"), "fuzz_gemini_files", &corpus, &words, law);
}

#[test]
fn fuzz_copilot_files() {
    let words: Vec<String> = EVENT_WORDS.split_whitespace().map(str::to_owned).collect();
    let corpus = ["it/__fuzz__/copilot_files/corpus"];
    let law = |bytes: &[u8]| agent_law("copilot-cli", bytes);
    crate::driver::run(bolero::check!(name = "copilot_files"), "fuzz_copilot_files", &corpus, &words, law);
}

#[test]
fn fuzz_chat_files() {
    let words: Vec<String> = CHAT_WORDS.split_whitespace().map(str::to_owned).collect();
    let corpus = ["it/__fuzz__/chat_files/corpus"];
    let law = |bytes: &[u8]| agent_law("vscode-chat", bytes);
    crate::driver::run(bolero::check!(name = "chat_files"), "fuzz_chat_files", &corpus, &words, law);
}

/// The same of an export, which may tell of one conversation in two ways.
fn export_law(agent: &str, bytes: &[u8]) -> Result<(), String> {
    let archive = archive();
    let Ok(reports) = archive.try_take(agent, &archive.file("a.json", bytes)) else { return Ok(()) };
    if reports.iter().any(|report| report.read != report.added + report.present + report.changed) {
        return Err(format!("the counts do not add up: {reports:?}"));
    }
    let before = archive.all();
    let again = archive.try_take(agent, &archive.file("b.json", bytes)).map_err(|error| error.to_string())?;
    if again.iter().any(|again| again.added > 0) {
        return Err(format!("importing again: {again:?} after {reports:?}"));
    }
    if archive.all().1 != before.1 {
        return Err("importing again added something".into());
    }
    for report in reports.iter().filter(|report| report.head.is_some()) {
        archive.shown(report.session.as_str());
    }
    Ok(())
}

#[test]
fn fuzz_chatgpt_files() {
    let words: Vec<String> = TREE_WORDS.split_whitespace().map(str::to_owned).collect();
    let corpus = ["it/__fuzz__/chatgpt_files/corpus"];
    let law = |bytes: &[u8]| export_law("chatgpt", bytes);
    crate::driver::run(bolero::check!(name = "chatgpt_files"), "fuzz_chatgpt_files", &corpus, &words, law);
}

#[test]
fn fuzz_claude_ai_files() {
    let words: Vec<String> = TREE_WORDS.split_whitespace().map(str::to_owned).collect();
    let corpus = ["it/__fuzz__/claude_ai_files/corpus"];
    let law = |bytes: &[u8]| export_law("claude-ai", bytes);
    crate::driver::run(
        bolero::check!(name = "claude_ai_files"),
        "fuzz_claude_ai_files",
        &corpus,
        &words,
        law,
    );
}

#[test]
fn fuzz_gemini_takeout_files() {
    let words: Vec<String> = ACTIVITY_WORDS.split_whitespace().map(str::to_owned).collect();
    let corpus = ["it/__fuzz__/gemini_takeout_files/corpus"];
    let law = |bytes: &[u8]| export_law("gemini-takeout", bytes);
    let target = bolero::check!(name = "gemini_takeout_files");
    crate::driver::run(target, "fuzz_gemini_takeout_files", &corpus, &words, law);
}

/// What holds of any database of nodes: those that come are what their ids say.
fn graph_law(bytes: &[u8]) -> Result<(), String> {
    let archive = archive();
    let Ok(reports) = archive.try_take("playfilo", &archive.file("a.db", bytes)) else { return Ok(()) };
    if reports.iter().any(|report| report.read != report.added + report.present) {
        return Err(format!("the counts do not add up: {reports:?}"));
    }
    let before = archive.all();
    let nodes =
        crate::support::block_on(archive.store.nodes(&before.1)).map_err(|error| error.to_string())?;
    if let Some(node) = nodes.iter().flatten().find(|node| node.verify() != quipu_dag::Verdict::Valid) {
        return Err(format!("not what its id says: {node:?}"));
    }
    let again =
        archive.try_take("playfilo", &archive.file("b.db", bytes)).map_err(|error| error.to_string())?;
    if again.iter().any(|again| again.added > 0) || archive.all() != before {
        return Err(format!("importing again: {again:?} after {reports:?}"));
    }
    Ok(())
}

#[test]
fn fuzz_playfilo_files() {
    let words: Vec<String> = WORDS.split_whitespace().map(str::to_owned).collect();
    let corpus = ["it/__fuzz__/playfilo_files/corpus"];
    crate::driver::run(
        bolero::check!(name = "playfilo_files"),
        "fuzz_playfilo_files",
        &corpus,
        &words,
        graph_law,
    );
}

#[test]
fn fuzz_openclaw_files() {
    let words: Vec<String> = WORDS.split_whitespace().map(str::to_owned).collect();
    let corpus = ["it/__fuzz__/openclaw_files/corpus"];
    let law = |bytes: &[u8]| agent_law("openclaw", bytes);
    crate::driver::run(bolero::check!(name = "openclaw_files"), "fuzz_openclaw_files", &corpus, &words, law);
}
