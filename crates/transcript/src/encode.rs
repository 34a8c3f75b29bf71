//! Entries to parts.

use quipu_dag::{Blob, quoted};
use quipu_protocol::{
    AssistantMessage, Body, Checkpoint, Compaction, Content, CustomMessage, Entry, Epoch, Json, Message,
    SessionStart, StepInfo, ToolResultMessage, UserMessage,
};

use crate::blocks::{Blocks, json_of};
use crate::exact::{Canonical, exact, plain, usage as usage_value, verbatim};
use crate::own_part::Draft;
use crate::project::summary_message;
use crate::{EncodedEntry, INTERNAL, Listing, listing};

/// Without a listing, as it was before other programs could list it: so imports give the nodes that they gave.
pub(crate) fn encode(entry: &Entry, step: &StepInfo, listing: Option<&Listing<'_>>) -> EncodedEntry {
    let (draft, role, encoded) = match entry {
        Entry::Message(message) => encode_message(message, listing),
        Entry::Session(session) => {
            let mut draft = Draft::new("session");
            let value = session_value(session, &mut draft);
            draft.set("session", value);
            let listed = listing.and_then(|at| listing::settings(&session.epoch, "quipu.session", at));
            (draft, INTERNAL.into(), listed.map_or_else(Blocks::default, Blocks::one))
        }
        Entry::Epoch(epoch) => {
            let mut draft = Draft::new("epoch");
            let value = epoch_value(epoch, &mut draft);
            draft.set("epoch", value);
            let listed = listing.and_then(|at| listing::settings(epoch, "quipu.epoch", at));
            (draft, INTERNAL.into(), listed.map_or_else(Blocks::default, Blocks::one))
        }
        Entry::Compaction(compaction) => {
            let mut draft = Draft::new("compaction");
            if let Some(blob) = listing.and_then(|listing| listing::compaction(compaction, listing)) {
                let mut value = compaction_value(compaction, &mut draft);
                value.push(("timestamp", Canonical::from(compaction.timestamp)));
                draft.set("compaction", members(value));
                draft.set("whole", Canonical::from(true));
                let encoded = Blocks::one(blob);
                return finished(draft, INTERNAL.into(), encoded, step);
            }
            let value = compaction_value(compaction, &mut draft);
            draft.set("compaction", members(value));
            // Other programs read it as the message that it is for them.
            let message = summary_message(compaction);
            let role = message.role().map_or_else(|| INTERNAL.into(), std::borrow::Cow::into_owned);
            let blocks = whole(&mut draft, &json_of(&message));
            (draft, role, blocks)
        }
        Entry::Meta(json) => {
            let mut draft = Draft::new("meta");
            let blocks = match listing.and_then(|listing| listing::meta(json, &mut draft, listing)) {
                Some(blob) => {
                    draft.set("whole", Canonical::from(true));
                    Blocks::one(blob)
                }
                None => whole(&mut draft, json),
            };
            (draft, INTERNAL.into(), blocks)
        }
    };
    finished(draft, role, encoded, step)
}

fn finished(mut draft: Draft, role: String, mut encoded: Blocks, step: &StepInfo) -> EncodedEntry {
    encode_step(&mut draft, step);
    encoded.describe(&mut draft);
    encoded.blobs.push(draft.blob());
    EncodedEntry { role, blobs: encoded.blobs, chunks: encoded.chunks }
}

fn encode_message(message: &Message, listing: Option<&Listing<'_>>) -> (Draft, String, Blocks) {
    let mut draft = Draft::new("message");
    let role = message.role().map_or_else(|| INTERNAL.into(), std::borrow::Cow::into_owned);
    let blocks = match message {
        Message::User(UserMessage { content, timestamp }) => {
            draft.set("message", members([("timestamp", Canonical::from(*timestamp))]));
            body(&mut draft, content)
        }
        Message::Assistant(assistant) => {
            draft.set("message", assistant_fields(assistant));
            Blocks::of(&assistant.content)
        }
        Message::ToolResult(result) => tool_result(&mut draft, result),
        Message::Custom(custom) if !is_one_part(custom) => {
            let CustomMessage { custom_type, content, display, details, timestamp } = custom;
            let mut fields = vec![
                ("customType", Canonical::from(custom_type.as_str())),
                ("display", Canonical::from(*display)),
                ("timestamp", Canonical::from(*timestamp)),
            ];
            fields.extend(details.as_ref().map(|details| ("details", exact(details))));
            draft.set("message", members(fields));
            body(&mut draft, content)
        }
        // Messages without a list of blocks are one `pi_meta` part, as Pi writes them.
        Message::BashExecution(_)
        | Message::Custom(_)
        | Message::BranchSummary(_)
        | Message::CompactionSummary(_) => {
            let json = json_of(message);
            match listing.and_then(|listing| listing::message(&json, &mut draft, listing)) {
                Some(blob) => {
                    draft.set("whole", Canonical::from(true));
                    Blocks::one(blob)
                }
                None => whole(&mut draft, &json),
            }
        }
        Message::Other(json) => {
            draft.set("other", Canonical::from(true));
            if role == INTERNAL {
                draft.set("whole", verbatim(json));
                Blocks::default()
            } else {
                whole(&mut draft, json)
            }
        }
    };
    (draft, role, blocks)
}

/// All but the content, which is in the parts. None of it is free-form JSON.
fn assistant_fields(assistant: &AssistantMessage) -> Canonical {
    let AssistantMessage {
        content: _,
        api,
        provider,
        model,
        usage,
        stop_reason,
        timestamp,
        response_model,
        response_id,
        error_message,
        raw_stop_reason,
    } = assistant;
    let mut fields = vec![
        ("api", Canonical::from(api.as_str())),
        ("provider", Canonical::from(provider.as_str())),
        ("model", Canonical::from(model.as_str())),
        ("usage", usage_value(usage)),
        ("stopReason", plain(stop_reason)),
        ("timestamp", Canonical::from(*timestamp)),
    ];
    let optional = [
        ("responseModel", response_model),
        ("responseId", response_id),
        ("errorMessage", error_message),
        ("rawStopReason", raw_stop_reason),
    ];
    fields.extend(
        optional.into_iter().filter_map(|(name, text)| Some((name, Canonical::from(text.as_deref()?)))),
    );
    members(fields)
}

/// Pi keeps a custom message with a plain text as one part. A `null` beside it would not come back from there.
fn is_one_part(custom: &CustomMessage) -> bool {
    let null = custom.details.as_ref().is_some_and(|details| details.get() == "null");
    matches!(custom.content, Body::Text(_)) && !null
}

fn body(draft: &mut Draft, body: &Body) -> Blocks {
    match body {
        Body::Text(text) => {
            draft.set("plain", Canonical::from(true));
            Blocks::of(&[Content::text(text.as_str())])
        }
        Body::Blocks(blocks) => Blocks::of(blocks),
    }
}

fn tool_result(draft: &mut Draft, result: &ToolResultMessage) -> Blocks {
    let ToolResultMessage { tool_call_id, tool_name, content, details, usage, is_error, timestamp } = result;
    // Call and name stand here as well, so that the pair holds when the result's blob is missing or erased.
    let mut fields = vec![
        ("toolCallId", Canonical::from(tool_call_id.as_str())),
        ("toolName", Canonical::from(tool_name.as_str())),
        ("isError", Canonical::from(*is_error)),
        ("timestamp", Canonical::from(*timestamp)),
    ];
    fields.extend(details.as_ref().map(|details| ("details", exact(details))));
    fields.extend(usage.as_ref().map(|usage| ("usage", usage_value(usage))));
    draft.set("message", members(fields));

    let (mut blocks, texts) = Blocks::of_result(content);
    // Members in canonical order: the longest texts of a session need no parser to be checked.
    let (is_error, call, name) =
        (if *is_error { "true" } else { "false" }, quoted(tool_call_id.as_str()), quoted(tool_name));
    let content = texts.iter().enumerate().flat_map(|(at, text)| [if at > 0 { "," } else { "" }, text]);
    let members = ["],\"isError\":", is_error, ",\"toolCallId\":", &call, ",\"toolName\":", &name, "}"];
    let parts: Vec<&str> = std::iter::once("{\"content\":[").chain(content).chain(members).collect();
    blocks.blobs.push(Blob::from_canonical("tool_result", parts.concat()));
    blocks
}

/// One `pi_meta` part for the whole of `json`; in our part when it is too deep for other readers.
fn whole(draft: &mut Draft, json: &Json) -> Blocks {
    match Blob::new("pi_meta", json.get()) {
        Ok(blob) => {
            draft.set("whole", Canonical::from(true));
            Blocks::one(blob)
        }
        Err(_) => {
            draft.set("whole", verbatim(json));
            Blocks::default()
        }
    }
}

fn session_value(session: &SessionStart, draft: &mut Draft) -> Canonical {
    let SessionStart { session, cwd, agent, parent_session, epoch } = session;
    let mut fields = vec![
        ("session", Canonical::from(session.as_str())),
        ("cwd", Canonical::from(cwd.as_str())),
        ("agent", Canonical::from(agent.as_str())),
        ("epoch", epoch_value(epoch, draft)),
    ];
    fields.extend(parent_session.as_ref().map(|parent| ("parentSession", Canonical::from(parent.as_str()))));
    members(fields)
}

fn epoch_value(epoch: &Epoch, draft: &mut Draft) -> Canonical {
    let Epoch {
        provider,
        model,
        thinking,
        system,
        identity,
        declined,
        tools,
        max_tokens,
        prune,
        context,
        tool_sources,
        fallback,
        plan,
        profile,
    } = epoch;
    for blob in [system, identity].into_iter().flatten() {
        draft.refer(blob.0);
    }
    let tools = tools.iter().map(|tool| {
        members([
            ("name", Canonical::from(tool.name.as_str())),
            ("description", Canonical::from(tool.description.as_str())),
            ("parameters", exact(&tool.parameters)),
        ])
    });
    let mut fields = vec![
        ("provider", Canonical::from(provider.as_str())),
        ("model", Canonical::from(model.as_str())),
        ("thinking", plain(thinking)),
        ("tools", Canonical::list(tools)),
    ];
    fields.extend(system.as_ref().map(|system| ("system", plain(system))));
    fields.extend(identity.as_ref().map(|identity| ("identity", plain(identity))));
    fields.extend(declined.as_ref().map(|declined| ("declined", plain(declined))));
    fields.extend(max_tokens.as_ref().map(|limit| ("maxTokens", plain(limit))));
    fields.extend(prune.then_some(("prune", Canonical::from(true))));
    fields.extend(context.as_ref().map(|context| ("context", plain(context))));
    fields.extend((!tool_sources.is_empty()).then(|| ("toolSources", plain(tool_sources))));
    fields.extend(fallback.as_ref().map(|fallback| ("fallback", plain(fallback))));
    fields.extend(plan.as_ref().map(|switched| ("plan", plain(switched))));
    fields.extend(profile.as_ref().map(|profile| ("profile", plain(profile))));
    members(fields)
}

/// All but what the message of the summary says.
fn compaction_value(compaction: &Compaction, draft: &mut Draft) -> Vec<(&'static str, Canonical)> {
    let Compaction {
        summary: _,
        first_kept,
        retained_tail,
        tokens_before: _,
        timestamp: _,
        details,
        usage,
        from_hook,
        reason,
        checkpoint,
    } = compaction;
    if let Some(first_kept) = first_kept {
        draft.refer(first_kept.0);
    }
    let mut fields = Vec::new();
    fields.extend(first_kept.as_ref().map(|node| ("firstKept", plain(node))));
    fields.extend(retained_tail.as_ref().map(|tail| ("retainedTail", exact(tail))));
    fields.extend(details.as_ref().map(|details| ("details", exact(details))));
    fields.extend(usage.as_ref().map(|usage| ("usage", usage_value(usage))));
    fields.extend(from_hook.as_ref().map(|hook| ("fromHook", plain(hook))));
    fields.extend(reason.as_ref().map(|reason| ("reason", plain(reason))));
    fields.extend(checkpoint.as_ref().map(|Checkpoint { session, epoch }| {
        let session = ("session", Canonical::from(session.as_str()));
        ("checkpoint", members([session, ("epoch", epoch_value(epoch, draft))]))
    }));
    fields
}

fn encode_step(draft: &mut Draft, step: &StepInfo) {
    if *step == StepInfo::default() {
        return;
    }
    if let Some(call) = &step.call {
        draft.refer(call.head.0);
        draft.refer(call.tools.0);
        draft.refer(call.body.0);
        if let Some(system) = &call.system {
            draft.refer(system.0);
        }
    }
    let StepInfo { run, call, started, duration_ms, provenance, added, files, merge, extra } = step;
    // Members of their own, so that a reader that does not know an origin loses no more than that.
    if let Some(provenance) = provenance {
        draft.set("provenance", plain(provenance));
    }
    draft.set_list("added", added.iter().map(plain).collect());
    // A member of its own, so that a reader that does not know a state loses no more than that.
    draft.set_list("files", files.iter().map(plain).collect());
    for state in files.iter().flat_map(|change| [&change.before, &change.after]) {
        if let Some(content) = state.content() {
            draft.refer(content.0);
        }
    }
    if !merge.is_empty() {
        let parents = Canonical::list(merge.iter().map(plain));
        draft.set("merge", members([("parents", parents)]));
        merge.iter().for_each(|parent| draft.refer(parent.0));
    }
    // Additions are pairs and not members: a name may be one that objects in JavaScript lose or reorder.
    let pairs = extra.iter().map(|(name, json)| Canonical::list([name.as_str().into(), exact(json)]));
    draft.set_list("extra", pairs.collect());
    draft.set(
        "step",
        plain(&StepInfo {
            run: run.clone(),
            call: call.clone(),
            started: *started,
            duration_ms: *duration_ms,
            ..StepInfo::default()
        }),
    );
}

fn members(members: impl IntoIterator<Item = (&'static str, Canonical)>) -> Canonical {
    Canonical::object(members)
}
