//! Random entries and how their steps went.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use quipu_protocol::{
    AddedBlock, AssistantMessage, Attempt, AuthorClass, BashExecutionMessage, BlobId, Body,
    BranchSummaryMessage, CallId, CallRecord, Checkpoint, ChunkId, Compaction, CompactionReason,
    CompactionSummaryMessage, Content, Cost, CustomMessage, Entry, Epoch, EpochContext, EpochOpening,
    EpochPlan, Fallback, FileChange, FileState, FormerModel, ImageContent, Json, Message, ModelErrorKind,
    NodeId, OpeningBoundary, Origin, PromptSection, Provenance, RunId, SessionId, SessionProfile,
    SessionStart, StepInfo, StopReason, TextContent, Thinking, ThinkingContent, ToolCall, ToolResultMessage,
    ToolSpec, Trust, Unknown, Usage, UserMessage,
};

pub(crate) fn text() -> BoxedStrategy<String> {
    prop_oneof![
        select(vec![
            "",
            " ",
            "a",
            "hello",
            "line\nnext",
            "\"q\" \\ /",
            "{\"=\":\"1\"}",
            "{\"=\":\"",
            "\u{0}\u{1f}\u{7f}",
            "😀\u{e000}\u{2028}",
            "\\ud800",
            "[erased]",
        ])
        .prop_map(String::from),
        ".{0,12}",
        vec(any::<char>(), 0..6).prop_map(String::from_iter),
    ]
    .boxed()
}

/// JSON in any spelling, deep ones included.
pub(crate) fn json() -> BoxedStrategy<Json> {
    let leaf = prop_oneof![
        select(vec![
            "null",
            "true",
            "false",
            "0",
            "-0",
            "1.0",
            "1e21",
            "9007199254740993",
            "12345678901234567890",
            "0.1",
            "1E2",
            "\"a\"",
            "\"\\u0061\"",
            "\"\\ud800\"",
            "\"\\uD83D\\uDE00\"",
            "\"{\\\"=\\\":\\\"1\\\"}\"",
            "{\"=\":\"1\"}",
            "{\"=\":\"\"}",
            "[ ]",
            "{ }",
            "\"\\/\"",
        ])
        .prop_map(String::from),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_filter("JSON", |n| n.is_finite()).prop_map(|n| format!("{n:?}")),
        text().prop_map(|text| serde_json::Value::from(text).to_string()),
    ];
    let name = prop_oneof![
        select(vec![
            "__proto__",
            "9",
            "10",
            "a",
            "b",
            "=",
            "text",
            "type",
            "role",
            "id",
            "message",
            "content"
        ])
        .prop_map(String::from),
        text(),
    ]
    .prop_map(|name| serde_json::Value::from(name).to_string());
    leaf.prop_recursive(4, 16, 4, move |inner| {
        let items = vec(inner.clone(), 0..4);
        let members = vec((name.clone(), inner), 0..4);
        prop_oneof![
            items.prop_map(|items| format!("[{}]", items.join(","))),
            members.prop_map(|members| {
                let members: Vec<_> =
                    members.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
                format!("{{{}}}", members.join(", "))
            }),
        ]
    })
    .prop_flat_map(|text| {
        let deep = 0..64_usize;
        deep.prop_map(move |deep| match deep {
            0 => format!("{}{text}{}", "[".repeat(2_500), "]".repeat(2_500)),
            1 => format!("{{\"type\":\"text\",\"text\":{text}}}"),
            2 => format!("{{\"role\":\"user\",\"x\":{text}}}"),
            _ => text.clone(),
        })
    })
    .prop_map(|text| Json::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}")))
    .boxed()
}

fn number() -> BoxedStrategy<u64> {
    prop_oneof![0..100_000_u64, select(vec![1 << 53, (1 << 53) + 1, u64::MAX]), any::<u64>()].boxed()
}

fn time() -> BoxedStrategy<i64> {
    prop_oneof![Just(0), 1_700_000_000_000..1_800_000_000_000_i64, any::<i64>()].boxed()
}

fn usage() -> BoxedStrategy<Usage> {
    let money = || prop_oneof![Just(0.0), 0.0..100.0, select(vec![1e21, 5e-324, -0.0, f64::MAX])];
    let cost = (money(), money(), money(), money(), money()).prop_map(
        |(input, output, cache_read, cache_write, total)| Cost {
            input,
            output,
            cache_read,
            cache_write,
            total,
        },
    );
    (number(), number(), number(), number(), option::of(number()), option::of(number()), number(), cost)
        .prop_map(
            |(input, output, cache_read, cache_write, cache_write_1h, reasoning, total_tokens, cost)| Usage {
                input,
                output,
                cache_read,
                cache_write,
                cache_write_1h,
                reasoning,
                total_tokens,
                cost,
            },
        )
        .boxed()
}

fn call_id() -> BoxedStrategy<CallId> {
    prop_oneof![select(vec!["call_1", "call_2", ""]).prop_map(CallId::from), text().prop_map(CallId::from)]
        .boxed()
}

fn content() -> BoxedStrategy<Content> {
    let image = prop_oneof![
        vec(any::<u8>(), 0..9)
            .prop_map(|bytes| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes)),
        select(vec!["AAAA", "AA", "AB==", "A A A A", "not base64!", "\u{e9}"]).prop_map(String::from),
    ];
    prop_oneof![
        (text(), option::of(text()))
            .prop_map(|(text, text_signature)| Content::Text(TextContent { text, text_signature })),
        (text(), option::of(text()), option::of(any::<bool>())).prop_map(
            |(thinking, thinking_signature, redacted)| {
                Content::Thinking(ThinkingContent { thinking, thinking_signature, redacted })
            }
        ),
        (image, text()).prop_map(|(data, mime_type)| Content::Image(ImageContent { data, mime_type })),
        (call_id(), text(), json(), option::of(text()), option::of(text())).prop_map(
            |(id, name, arguments, thought_signature, namespace)| {
                Content::ToolCall(ToolCall { id, name, arguments, thought_signature, namespace })
            }
        ),
        json().prop_map(Content::Other),
    ]
    .boxed()
}

fn body() -> BoxedStrategy<Body> {
    prop_oneof![text().prop_map(Body::Text), vec(content(), 0..5).prop_map(Body::Blocks)].boxed()
}

fn stop_reason() -> BoxedStrategy<StopReason> {
    use StopReason::{Aborted, Deferred, Error, Length, Pending, Stop, ToolUse};
    select(vec![Stop, Length, ToolUse, Error, Aborted, Deferred, Pending]).boxed()
}

pub(crate) fn message() -> BoxedStrategy<Message> {
    let assistant = (
        vec(content(), 0..6),
        (text(), text(), text(), usage(), stop_reason(), time()),
        (option::of(text()), option::of(text()), option::of(text()), option::of(text())),
    )
        .prop_map(|(content, (api, provider, model, usage, stop_reason, timestamp), optional)| {
            let (response_model, response_id, error_message, raw_stop_reason) = optional;
            Message::Assistant(AssistantMessage {
                content,
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
            })
        });
    let result = (
        call_id(),
        text(),
        vec(content(), 0..5),
        option::of(json()),
        option::of(usage()),
        any::<bool>(),
        time(),
    )
        .prop_map(|(tool_call_id, tool_name, content, details, usage, is_error, timestamp)| {
            Message::ToolResult(ToolResultMessage {
                tool_call_id,
                tool_name,
                content,
                details,
                usage,
                is_error,
                timestamp,
            })
        });
    let bash = (
        (text(), text(), option::of(any::<i32>()), any::<bool>(), any::<bool>()),
        (option::of(text()), option::of(any::<bool>()), time()),
    )
        .prop_map(
            |(
                (command, output, exit_code, cancelled, truncated),
                (full_output_path, exclude_from_context, timestamp),
            )| {
                Message::BashExecution(BashExecutionMessage {
                    command,
                    output,
                    exit_code,
                    cancelled,
                    truncated,
                    full_output_path,
                    exclude_from_context,
                    timestamp,
                })
            },
        );
    let custom = (text(), body(), any::<bool>(), option::of(json()), time()).prop_map(
        |(custom_type, content, display, details, timestamp)| {
            Message::Custom(CustomMessage { custom_type, content, display, details, timestamp })
        },
    );
    prop_oneof![
        2 => (body(), time()).prop_map(|(content, timestamp)| Message::User(UserMessage { content, timestamp })),
        4 => assistant,
        4 => result,
        1 => bash,
        1 => custom,
        1 => (text(), option::of(text()), option::of(json()), time()).prop_map(
            |(summary, from_id, details, timestamp)| {
                // `null` is no details.
                let details = details.filter(|details| details.get() != "null");
                Message::BranchSummary(BranchSummaryMessage { summary, from_id, details, timestamp })
            },
        ),
        1 => (text(), number(), time()).prop_map(|(summary, tokens_before, timestamp)| {
            Message::CompactionSummary(CompactionSummaryMessage { summary, tokens_before, timestamp })
        }),
        1 => json().prop_map(Message::Other),
    ]
    .boxed()
}

fn epoch() -> BoxedStrategy<Epoch> {
    let tool = (text(), text(), json()).prop_map(|(name, description, parameters)| ToolSpec {
        name,
        description,
        parameters,
    });
    let thinking = select(vec![Thinking::Off, Thinking::Medium, Thinking::Max]);
    let blob = || option::of(any::<[u8; 32]>().prop_map(BlobId));
    let prompt = (blob(), blob(), blob());
    let numbers = (option::of(number()), any::<bool>());
    let sources =
        (option::of(epoch_context()), btree_map(text(), vec(text(), 0..3), 0..3), option::of(fallback()));
    let sources = (sources, option::of(epoch_plan()), option::of(Just(SessionProfile::Shell)));
    (text(), text(), thinking, prompt, vec(tool, 0..3), numbers, sources)
        .prop_map(|(provider, model, thinking, prompt, tools, (max_tokens, prune), sources)| {
            let (system, identity, declined) = prompt;
            let ((context, tool_sources, fallback), plan, profile) = sources;
            Epoch {
                provider,
                model,
                thinking,
                system,
                identity,
                declined,
                tools: tools.into(),
                max_tokens,
                prune,
                context,
                tool_sources,
                fallback,
                plan,
                profile,
            }
        })
        .boxed()
}

fn epoch_plan() -> BoxedStrategy<EpochPlan> {
    let thinking = select(vec![Thinking::Off, Thinking::High]);
    let before = (text(), text(), thinking).prop_map(|(provider, model, thinking)| FormerModel {
        provider,
        model,
        thinking,
    });
    (any::<bool>(), option::of(before)).prop_map(|(on, before)| EpochPlan { on, before }).boxed()
}

fn fallback() -> BoxedStrategy<Fallback> {
    let thinking = select(vec![Thinking::Off, Thinking::High]);
    let reason = select(vec![ModelErrorKind::Overloaded, ModelErrorKind::AuthRevoked]);
    (text(), text(), thinking, reason, time())
        .prop_map(|(provider, model, thinking, reason, until)| Fallback {
            provider,
            model,
            thinking,
            reason,
            until,
        })
        .boxed()
}

fn epoch_context() -> BoxedStrategy<EpochContext> {
    let trust = select(vec![Trust::Owner, Trust::Project, Trust::Untrusted]);
    let section =
        (text(), text(), trust, number(), number()).prop_map(|(source, id, trust, start, bytes)| {
            let main_only = start % 2 == 1;
            PromptSection { source, id, trust, start, bytes, main_only }
        });
    let boundary = (text(), text()).prop_map(|(assistant, user)| OpeningBoundary { assistant, user });
    let opening = (
        text(),
        text(),
        option::of(boundary),
        vec(any::<[u8; 32]>().prop_map(NodeId), 0..3),
        option::of(text()),
    )
        .prop_map(|(source, text, boundary, nodes, state)| EpochOpening {
            source,
            text,
            boundary,
            nodes,
            state,
        });
    (number(), vec(text(), 0..3), vec(section, 0..3), btree_map(text(), number(), 0..3), option::of(opening))
        .prop_map(|(at, sources, sections, keep_recent, opening)| EpochContext {
            changing: at / 2,
            at,
            sources,
            sections,
            keep_recent,
            opening,
        })
        .boxed()
}

fn compaction() -> BoxedStrategy<Compaction> {
    let reason =
        select(vec![CompactionReason::Threshold, CompactionReason::Overflow, CompactionReason::Manual]);
    let checkpoint = (text(), epoch())
        .prop_map(|(session, epoch)| Checkpoint { session: SessionId::from(session), epoch });
    let first = option::of(any::<[u8; 32]>().prop_map(NodeId));
    (
        (text(), first, number(), time(), option::of(json())),
        (
            option::of(json()),
            option::of(usage()),
            option::of(any::<bool>()),
            option::of(reason),
            option::of(checkpoint),
        ),
    )
        .prop_map(|((summary, first_kept, tokens_before, timestamp, details), rest)| {
            let (retained_tail, usage, from_hook, reason, checkpoint) = rest;
            Compaction {
                summary,
                first_kept,
                retained_tail,
                tokens_before,
                timestamp,
                details,
                usage,
                from_hook,
                reason,
                checkpoint,
            }
        })
        .boxed()
}

pub(crate) fn entry() -> BoxedStrategy<Entry> {
    let session = (text(), text(), text(), option::of(text()), epoch()).prop_map(
        |(session, cwd, agent, parent, epoch)| {
            Entry::Session(SessionStart {
                session: SessionId::from(session),
                cwd,
                agent,
                parent_session: parent.map(SessionId::from),
                epoch,
            })
        },
    );
    prop_oneof![
        8 => message().prop_map(Entry::Message),
        1 => session,
        1 => epoch().prop_map(Entry::Epoch),
        1 => compaction().prop_map(Entry::Compaction),
        1 => json().prop_map(Entry::Meta),
    ]
    .boxed()
}

pub(crate) fn step() -> BoxedStrategy<StepInfo> {
    let kind = select(vec![ModelErrorKind::Overloaded, ModelErrorKind::Network]);
    let attempt = (time(), option::of(kind), option::of(any::<u16>()))
        .prop_map(|(at, error, status)| Attempt { at, error, status, credential: None });
    let hash = || any::<[u8; 32]>();
    let call = (
        (text(), text(), text(), any::<bool>(), any::<u32>()),
        (hash(), option::of(hash()), hash(), hash(), number()),
        (time(), option::of(number()), option::of(number()), vec(attempt, 0..3)),
    )
        .prop_map(
            |((api, provider, model, local, projection), (head, system, tools, body, body_bytes), timing)| {
                let (started, first_token_ms, duration_ms, attempts) = timing;
                CallRecord {
                    api,
                    provider,
                    model,
                    local,
                    projection,
                    head: NodeId(head),
                    system: system.map(BlobId),
                    tools: ChunkId(tools),
                    body: ChunkId(body),
                    body_bytes,
                    before_hooks: None,
                    headers: std::collections::BTreeMap::new(),
                    removed_headers: Vec::new(),
                    started,
                    first_token_ms,
                    duration_ms,
                    attempts,
                }
            },
        );
    let provenance = || {
        let origin = select(vec![Origin::Person, Origin::Hook, Origin::Tool, Origin::Import]);
        let author = select(vec![AuthorClass::Owner, AuthorClass::Untrusted, AuthorClass::System]);
        (origin, author, option::of(text())).prop_map(|(origin, author, name)| Provenance {
            origin,
            author,
            name,
        })
    };
    let name = prop_oneof![select(vec!["__proto__", "9", "a"]).prop_map(String::from), text()];
    (
        option::of(text()),
        option::of(call),
        option::of(time()),
        option::of(number()),
        vec((text(), state(), state()), 0..3),
        vec(any::<[u8; 32]>(), 0..3),
        btree_map(name, json(), 0..3),
        (option::of(provenance()), vec((any::<u32>(), provenance()), 0..3)),
    )
        .prop_map(|(run, call, started, duration_ms, files, merge, extra, (provenance, added))| StepInfo {
            run: run.map(RunId::from),
            call,
            started,
            duration_ms,
            provenance,
            added: added.into_iter().map(|(block, provenance)| AddedBlock { block, provenance }).collect(),
            files: files
                .into_iter()
                .map(|(path, before, after)| FileChange { path, before, after })
                .collect(),
            merge: merge.into_iter().map(NodeId).collect(),
            extra,
        })
        .boxed()
}

fn state() -> BoxedStrategy<FileState> {
    let why = select(vec![
        Unknown::TooLarge,
        Unknown::Secret,
        Unknown::Unreadable,
        Unknown::BeforeUnknown,
        Unknown::Dropped,
        Unknown::Other,
    ]);
    prop_oneof![
        Just(FileState::Absent),
        (0..0o10000_u32, number(), any::<[u8; 32]>()).prop_map(|(mode, size, content)| FileState::File {
            mode,
            size,
            content: ChunkId(content)
        }),
        text().prop_map(|target| FileState::Link { target }),
        (why, option::of(number())).prop_map(|(why, size)| FileState::Unknown { why, size }),
    ]
    .boxed()
}
