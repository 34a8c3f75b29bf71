//! Requests to items.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use quipu_protocol::{
    AssistantMessage, Body, Content, Entry, ImageContent, Json, Message, SessionId, StopReason,
    ThinkingContent, ToolResultMessage, UnixMs, Usage, UserMessage,
};

use super::log::{self, Log};
use super::parts::{self, Part, Round, Tool};
use super::{Header, directory};
use crate::ProblemKind;
use crate::intake::{CompletedRead, Item, ItemParent, NodeBuilder, Outline, REST, SealedLines, Start, Stop};
use crate::json::{Members, list, text_of};
use crate::key::Key;

pub(super) fn read(
    lines: &mut SealedLines,
    outline: &Outline,
    mut out: NodeBuilder,
) -> Result<CompletedRead, Stop> {
    whole(lines, outline, &mut out)?;
    Ok(CompletedRead::whole(out))
}

fn whole(lines: &mut SealedLines, outline: &Outline, out: &mut NodeBuilder) -> Result<(), Stop> {
    let Some(json) = value(lines, out)? else { return Ok(()) };
    let chat = Members::of(json.get()).unwrap_or_else(|| Members(Vec::new()));
    let header = Header::of(&chat);
    let cwd = directory(&out.report.path).map(|cwd| lines.seal(&cwd)).unwrap_or_default();
    let owner = out.session(Start {
        session: outline.session.clone(),
        cwd,
        time: header.as_ref().and_then(|header| header.time).unwrap_or_default(),
        parent: None,
        // What changes while the chat goes on is left out.
        kept: Some(chat.without(&[
            "requests",
            "lastMessageDate",
            "customTitle",
            "computedTitle",
            "inputState",
            "hasPendingEdits",
            "pendingRequests",
        ])),
    });
    let mut reader = Reader {
        out,
        session: outline.session.clone(),
        owner,
        last: ItemParent::Nothing,
        undone: None,
        used: HashSet::new(),
        line: 0,
    };
    let requests = list(chat.get("requests").unwrap_or("[]"));
    let count = requests.len();
    for (at, request) in requests.into_iter().enumerate() {
        reader.line = at as u64 + 1;
        match Members::of(request) {
            Some(members) => reader.request(&members, at + 1 == count, outline.idle)?,
            None => reader.out.report.problem(reader.line, ProblemKind::NotAnEntry, request),
        }
    }
    reader.out.settle()?;
    reader.out.begin_at_end(owner);
    reader.title(header.and_then(|header| header.title))
}

/// The chat: the file itself, or what its changes give.
fn value(lines: &mut SealedLines, out: &mut NodeBuilder) -> Result<Option<Json>, Stop> {
    if !lines.begin_with(log::START)? {
        return Ok(lines.document(out)?.map(|text| text.json));
    }
    let mut log = Log::new();
    while let Some(text) = lines.next(out, |_| None)? {
        if let Err(why) = log.apply(text.json.get()) {
            out.report.problem(text.number, ProblemKind::NotAnEntry, why);
        }
    }
    Ok(Some(log.end()))
}

struct Reader<'a> {
    out: &'a mut NodeBuilder,
    session: SessionId,
    owner: usize,
    last: ItemParent,
    /// What tells of the requests that were undone, and what they follow.
    undone: Option<(String, ItemParent)>,
    /// Ids of requests and of responses.
    used: HashSet<Key>,
    /// The number of the request.
    line: u64,
}

/// Members of a request that tell of its response.
const BESIDE: [&str; 10] = [
    "isCanceled",
    "modelState",
    "usage",
    "responseErrorDetails",
    "timeSpentWaiting",
    "editedFileEvents",
    "responseMarkdownInfo",
    "contentReferences",
    "codeCitations",
    "usedContext",
];
/// Members that change as long as the chat is open: the node would be another one each time.
const CHANGING: [&str; 3] = ["followups", "vote", "voteDownReason"];

/// The members of a response that no entry holds.
#[derive(Default, serde::Serialize)]
struct UnmappedResponse {
    #[serde(skip_serializing_if = "is_empty")]
    result: Option<Json>,
    #[serde(skip_serializing_if = "is_empty")]
    metadata: Option<Json>,
    #[serde(skip_serializing_if = "is_empty")]
    request: Option<Json>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rounds: Vec<Json>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Json>,
}

impl UnmappedResponse {
    fn json(self) -> Option<Json> {
        Json::of(&self).ok().filter(|json| json.get() != "{}")
    }
}

#[expect(clippy::ref_option, reason = "serde gives a field like this")]
fn is_empty(json: &Option<Json>) -> bool {
    json.as_ref().is_none_or(|json| json.get() == "{}")
}

/// The object with these members alone, but for those that say nothing.
fn only(members: &Members<'_>, names: &[&str]) -> Json {
    let is_told =
        |name: &str, value: &str| names.contains(&name) && !["null", "[]", "false"].contains(&value);
    let others = members.0.iter().filter(|(name, value)| !is_told(name, value));
    let others: Vec<&str> = others.map(|(name, _)| name.as_ref()).collect();
    members.without(&others)
}

/// A message of an answer, with the results of its calls.
struct Step {
    content: Vec<Content>,
    results: Vec<ToolResultMessage>,
    usage: Usage,
    time: Option<UnixMs>,
    kept: Vec<Json>,
}

impl Step {
    fn new() -> Self {
        Self {
            content: Vec::new(),
            results: Vec::new(),
            usage: Usage::default(),
            time: None,
            kept: Vec::new(),
        }
    }

    fn say(&mut self, text: &str) {
        match self.content.last_mut() {
            Some(Content::Text(last)) => last.text.push_str(text),
            _ => self.content.push(Content::text(text)),
        }
    }
}

impl Reader<'_> {
    fn request(&mut self, request: &Members<'_>, is_last: bool, idle: Duration) -> Result<(), Stop> {
        let string =
            |name: &str| request.string(name).filter(|id| !id.is_empty()).map(std::borrow::Cow::into_owned);
        let time = request.get("timestamp").and_then(|text| text.parse::<UnixMs>().ok());
        let mut id = string("requestId").unwrap_or_else(|| format!("{}#{}", self.session, self.line));
        if !self.used.insert(Key::of(&id)) {
            self.out.report.problem(self.line, ProblemKind::DuplicateId, &id);
            id = format!("{}#{}", self.session, self.line);
        }
        let is = |name: &str| request.get(name).is_some_and(|value| value != "null" && value != "false");
        // Undone, alone or with those before it: what comes next follows what stood before them.
        let is_undone = is("shouldBeRemovedOnSend") || is("isHidden");
        let marks = ["shouldBeRemovedOnSend", "isHidden"].map(|name| request.get(name).unwrap_or_default());
        let mark = is_undone.then(|| marks.concat());
        if self.undone.as_ref().map(|(mark, _)| mark) != mark.as_ref() {
            if let Some((_, before)) = self.undone.take() {
                self.last = before;
            }
            self.undone = mark.map(|mark| (mark, self.last.clone()));
        }
        self.user(request, id.clone(), time, !is_undone)?;

        let is_done = is("result") || is("isCanceled") || is("responseErrorDetails");
        if is_last && !is_done && idle < REST {
            self.out.unfinished(self.line, "");
            return Ok(());
        }
        let response: Vec<Part<'_>> =
            list(request.get("response").unwrap_or("[]")).into_iter().map(Part::of).collect();
        let result = request.get("result").and_then(Members::of);
        let metadata = result.as_ref().and_then(|result| Members::of(result.get("metadata")?));
        let (mut steps, others) = steps(response, metadata.as_ref(), time.unwrap_or_default());

        let error = result.as_ref().and_then(|result| result.get("errorDetails"));
        let error = error.or_else(|| request.get("responseErrorDetails")).and_then(Members::of);
        let told = error.as_ref().map(|error| error.get("message").and_then(text_of).unwrap_or_default());
        let state = request.get("modelState").and_then(Members::of);
        let state = |name: &str| state.as_ref().and_then(|state| state.get(name)?.parse::<i64>().ok());
        let code = error.as_ref().and_then(|error| error.string("code"));
        let is_aborted = request.get("isCanceled") == Some("true")
            || state("value") == Some(2)
            || code.as_deref() == Some("canceled");
        if steps.is_empty() && (told.is_some() || is_aborted) {
            steps.push(Step::new());
        }
        let mut kept = Some(UnmappedResponse {
            result: result.as_ref().map(|result| result.without(&["metadata"])),
            metadata: metadata.as_ref().map(|data| data.without(&["toolCallRounds", "toolCallResults"])),
            request: Some(only(request, &BESIDE)),
            rounds: Vec::new(),
            parts: others,
        });
        for name in CHANGING.iter().filter(|name| is(name)) {
            self.out.report.skip(name);
        }
        if steps.is_empty() {
            let json = kept.take().and_then(UnmappedResponse::json);
            if let Some(inner) = json {
                // Nothing that a model would be shown, but not nothing.
                let text = format!("{{\"type\":\"response\",\"response\":{inner}}}");
                let entry = Entry::Meta(Json::parse(&text).unwrap_or_default());
                self.put(format!("{id}.response"), entry, time, None, !is_undone)?;
            }
        }
        // A participant that tells no more counts the last prompt, and all that was said.
        let counts = metadata.as_ref().filter(|metadata| metadata.get("promptTokens").is_some());
        let own = request.get("usage").and_then(Members::of);
        let result_usage = result.as_ref().and_then(|result| Members::of(result.get("usage")?));
        let all =
            counts.map(parts::usage).or_else(|| own.as_ref().or(result_usage.as_ref()).map(parts::usage));
        if let Some(all) = all
            && steps.iter().all(|step| step.usage == Usage::default())
            && let Some(step) = steps.last_mut()
        {
            step.usage = all;
        }
        let model = string("modelId").unwrap_or_default();
        let (provider, model) = model.split_once('/').unwrap_or(("copilot", &model));
        let provider = if provider == "copilot" { "github-copilot" } else { provider };
        let resolved = metadata.as_ref().and_then(|metadata| metadata.string("resolvedModel"));
        let base = string("responseId").filter(|base| self.used.insert(Key::of(base)));
        let base = base.unwrap_or_else(|| format!("{id}.response"));
        let count = steps.len();
        for (number, step) in steps.into_iter().enumerate() {
            let ends = number + 1 == count;
            let has_calls = step.content.iter().any(|block| block.as_tool_call().is_some());
            let at = step.time.or_else(|| state("completedAt").filter(|_| ends)).or(time);
            let mut answer = AssistantMessage {
                content: step.content,
                api: "vscode-chat".into(),
                provider: provider.to_owned(),
                model: model.to_owned(),
                usage: step.usage,
                stop_reason: if has_calls { StopReason::ToolUse } else { StopReason::Stop },
                timestamp: at.unwrap_or_default(),
                response_model: resolved.as_deref().map(str::to_owned),
                ..AssistantMessage::default()
            };
            if ends && is_aborted {
                answer.stop_reason = StopReason::Aborted;
                answer.error_message.clone_from(&told);
            } else if ends && told.is_some() {
                answer.stop_reason = StopReason::Error;
                answer.error_message.clone_from(&told);
            }
            let mut beside = kept.take().unwrap_or_default();
            beside.rounds = step.kept;
            let beside = beside.json();
            let own = if number == 0 { base.clone() } else { format!("{base}.{}", number + 1) };
            self.put(own, Entry::Message(Message::Assistant(answer)), at, beside, !is_undone)?;
            for result in step.results {
                let id = format!("{base}.{}", result.tool_call_id);
                self.put(id, Entry::Message(Message::ToolResult(result)), at, None, !is_undone)?;
            }
        }
        Ok(())
    }

    fn user(
        &mut self,
        request: &Members<'_>,
        id: String,
        time: Option<UnixMs>,
        is_head: bool,
    ) -> Result<(), Stop> {
        let message = request.get("message").unwrap_or("\"\"");
        let inner = Members::of(message);
        let words = match &inner {
            Some(inner) => inner.get("text").and_then(text_of),
            None => text_of(message),
        };
        let mut content: Vec<Content> = words.into_iter().map(Content::text).collect();
        let variables = request.get("variableData").and_then(Members::of);
        let variables = list(variables.as_ref().and_then(|data| data.get("variables")).unwrap_or("[]"));
        content.extend(variables.into_iter().filter_map(|variable| image(&Members::of(variable)?)));
        #[derive(serde::Serialize)]
        struct UnmappedRequest {
            request: Json,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<Json>,
        }
        // One part is the text again.
        let inner = inner.filter(|inner| list(inner.get("parts").unwrap_or("[]")).len() > 1);
        // What the response is made of, and what is still changed later.
        let mut later = vec!["requestId", "timestamp", "message", "response", "responseId", "result"];
        later.extend(["shouldBeRemovedOnSend", "isHidden"].iter().chain(&BESIDE).chain(&CHANGING));
        let kept = UnmappedRequest {
            request: request.without(&later),
            message: inner.map(|inner| inner.without(&["text"])),
        };
        let kept = Json::of(&kept).ok();
        if content.is_empty() {
            let message = request.get("message").unwrap_or("null");
            let text = format!("{{\"type\":\"request\",\"message\":{message}}}");
            return self.put(id, Entry::Meta(Json::parse(&text).unwrap_or_default()), time, kept, is_head);
        }
        let content = Body::Blocks(content);
        let timestamp = time.unwrap_or_default();
        let entry = Entry::Message(Message::User(UserMessage { content, timestamp }));
        self.put(id, entry, time, kept, is_head)
    }

    fn put(
        &mut self,
        id: String,
        entry: Entry,
        time: Option<UnixMs>,
        kept: Option<Json>,
        is_head: bool,
    ) -> Result<(), Stop> {
        let mut item = Item::new(id.clone(), entry, self.line);
        (item.owner, item.time, item.kept, item.is_head) = (self.owner, time, kept, is_head);
        item.follows = std::mem::replace(&mut self.last, ItemParent::Item(id));
        self.out.item(item)
    }

    fn title(&mut self, title: Option<String>) -> Result<(), Stop> {
        let Some(title) = title else { return Ok(()) };
        let text = format!("{{\"type\":\"session_info\",\"name\":{}}}", quipu_dag::quoted(&title));
        let mut hash = quipu_protocol::ChunkId(quipu_dag::sha256(title.as_bytes())).to_string();
        hash.truncate(16);
        let entry = Entry::Meta(Json::parse(&text).unwrap_or_default());
        let mut item = Item::new(format!("{}.{hash}", self.session), entry, 0);
        (item.owner, item.time, item.is_head) = (self.owner, Some(self.out.began(self.owner)), false);
        self.out.item(item)
    }
}

/// The messages of a response, and the parts that are in none of them.
fn steps(
    response: Vec<Part<'_>>,
    metadata: Option<&Members<'_>>,
    timestamp: UnixMs,
) -> (Vec<Step>, Vec<Json>) {
    let rounds = list(metadata.and_then(|metadata| metadata.get("toolCallRounds")).unwrap_or("[]"));
    let rounds: Vec<Round<'_>> = rounds.into_iter().filter_map(Round::of).collect();
    let rounds: Vec<Round<'_>> = rounds.into_iter().filter(|round| !round.content.is_empty()).collect();
    let mut others = Vec::new();
    let mut steps: Vec<Step> = Vec::new();
    if rounds.is_empty() {
        for part in response {
            let ends = |step: &Step| {
                !step.results.is_empty() || step.content.iter().any(|block| block.as_tool_call().is_some())
            };
            let is_call = matches!(part, Part::Tool(_));
            if !matches!(part, Part::Other(_)) && steps.last().is_none_or(|step| !is_call && ends(step)) {
                steps.push(Step::new());
            }
            match (part, steps.last_mut()) {
                (Part::Text(text), Some(step)) => step.say(&text),
                (Part::Thinking(thinking), Some(step)) if !thinking.is_empty() => {
                    step.content
                        .push(Content::Thinking(ThinkingContent { thinking, ..ThinkingContent::default() }));
                }
                (Part::Tool(tool), Some(step)) => {
                    step.content.push(Content::ToolCall(tool.call()));
                    step.results.extend(tool.result(timestamp));
                }
                (Part::Other(json), _) => others.push(json),
                (Part::Text(_) | Part::Thinking(_) | Part::Tool(_), _) => {}
            }
        }
        steps.retain(|step| !step.content.is_empty());
        return (steps, others);
    }
    // What was said behind the last tool is an answer too, when no round tells of it.
    let mut tail = Step::new();
    let mut tools: HashMap<String, Tool<'_>> = HashMap::new();
    for part in response {
        match part {
            Part::Text(text) => tail.say(&text),
            Part::Thinking(_) => {}
            Part::Tool(tool) => {
                tail = Step::new();
                tools.insert(tool.id.clone(), tool);
            }
            Part::Other(json) => others.push(json),
        }
    }
    let results = metadata.and_then(|metadata| Members::of(metadata.get("toolCallResults")?));
    for round in rounds {
        let mut step = Step::new();
        step.time = round.members.get("timestamp").and_then(|text| text.parse().ok());
        step.usage =
            round.members.get("usage").and_then(Members::of).as_ref().map(parts::usage).unwrap_or_default();
        for call in round.content.iter().filter_map(Content::as_tool_call) {
            let tool = tools.remove(call.id.as_str());
            let told = results.as_ref().and_then(|results| results.get(call.id.as_str()));
            match (told, &tool) {
                (Some(text), _) => step.results.push(parts::result(call, text, tool.as_ref(), timestamp)),
                (None, Some(shown)) => step.results.extend(shown.result(timestamp)),
                (None, None) => {}
            }
        }
        let rest = round.rest();
        step.kept.extend((rest.get() != "{}").then_some(rest));
        step.content = round.content;
        steps.push(step);
    }
    // Tools under other names than the model gave them.
    let mut left: Vec<(String, Json)> = tools.into_iter().map(|(id, tool)| (id, tool.details())).collect();
    left.sort_by(|one, other| one.0.cmp(&other.0));
    others.extend(left.into_iter().map(|(_, details)| details));
    let is_open =
        steps.last().is_some_and(|step| step.content.iter().any(|block| block.as_tool_call().is_some()));
    if is_open && !tail.content.is_empty() {
        steps.push(tail);
    }
    (steps, others)
}

/// An image that the user gave, when it is whole.
fn image(variable: &Members<'_>) -> Option<Content> {
    let kind = variable.string("mimeType").filter(|kind| kind.starts_with("image/"))?.into_owned();
    let value = Members::of(variable.get("value")?)?;
    let data = value.string("$base64").or_else(|| value.string("base64"))?.into_owned();
    Some(Content::Image(ImageContent { data, mime_type: kind }))
}
