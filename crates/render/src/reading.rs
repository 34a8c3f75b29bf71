//! What of an entry is read by people, in the order in which it is read.

use quipu_protocol::{Body, Content, Entry, ImageContent, Message, ServerToolBlock, StopReason};
use quipu_transcript::{is_plan_note, message_of};

/// Lines and bytes of what a tool was given or returned that are shown unfolded.
const SHORT: (usize, usize) = (20, 2_000);

/// What stands above a text that Quipu put beside a message.
const NOTE: &str = "Note of plan mode";

/// What stands above an entry.
pub(crate) struct Title {
    /// One word for the kind of entry, for those who style it.
    pub(crate) kind: &'static str,
    /// Who speaks, or what happens.
    pub(crate) who: &'static str,
    /// The model, tool or the like; may be empty.
    pub(crate) of: String,
    /// What became of it; may be empty.
    pub(crate) more: String,
}

/// A part of an entry.
pub(crate) enum Part<'a> {
    /// What may be Markdown.
    Prose(&'a str),
    /// What a model thought, which may be Markdown.
    Thinking(&'a str),
    /// Thinking that nobody can read.
    Withheld,
    /// What is no Markdown, whatever it looks like.
    Code {
        what: &'static str,
        /// A language, or nothing.
        language: &'static str,
        text: &'a str,
        /// Whether it is folded.
        folded: bool,
    },
    /// The name of a tool that was called.
    Call(&'a str),
    /// A picture.
    Image(&'a ImageContent),
    /// How it ended, and why.
    End(&'static str, Option<&'a str>),
    /// What is known of something, in pairs.
    Facts(&'a [(&'static str, &'a str)]),
}

/// Gives `out` the parts of an entry.
pub(crate) fn read(entry: &Entry, out: &mut dyn FnMut(Part<'_>)) -> Title {
    match entry {
        Entry::Session(start) => {
            let model = format!("{}/{}", start.epoch.provider, start.epoch.model);
            let facts = [
                ("Session", start.session.as_str()),
                ("of", start.agent.as_str()),
                ("in", start.cwd.as_str()),
                ("with", model.as_str()),
            ];
            let known = if start.epoch.model.is_empty() { 3 } else { 4 };
            out(Part::Facts(&facts[..known]));
            title("session", "Session")
        }
        Entry::Epoch(epoch) => {
            Title { of: format!("{}/{}", epoch.provider, epoch.model), ..title("note", "Model") }
        }
        Entry::Compaction(compaction) => {
            out(Part::Prose(&compaction.summary));
            let more = format!("of {} tokens", compaction.tokens_before);
            Title { more, ..title("compaction", "Compaction") }
        }
        Entry::Message(message) => of_message(message, out),
        Entry::Meta(json) => match message_of(entry) {
            Some(message) => of_message(&message, out),
            None => {
                out(Part::Code {
                    what: "As it was written",
                    language: "json",
                    text: json.get(),
                    folded: true,
                });
                title("note", "Entry")
            }
        },
    }
}

fn title(kind: &'static str, who: &'static str) -> Title {
    Title { kind, who, of: String::new(), more: String::new() }
}

fn of_message(message: &Message, out: &mut dyn FnMut(Part<'_>)) -> Title {
    match message {
        Message::User(user) => {
            for block in user.content.blocks().iter() {
                match block.as_text().filter(|text| is_plan_note(text)) {
                    // Nobody typed it.
                    Some(text) => out(Part::Code { what: NOTE, language: "", text, folded: true }),
                    None => blocks(std::slice::from_ref(block), false, out),
                }
            }
            title("user", "User")
        }
        Message::Assistant(answer) => {
            blocks(&answer.content, false, out);
            let error = answer.error_message.as_deref();
            match answer.stop_reason {
                StopReason::Aborted => out(Part::End("Aborted", error)),
                StopReason::Length => out(Part::End("Cut off", error)),
                StopReason::Error => out(Part::End("Failed", error)),
                StopReason::Stop | StopReason::ToolUse | StopReason::Deferred | StopReason::Pending => {
                    if error.is_some() {
                        out(Part::End("Failed", error));
                    }
                }
            }
            Title { of: answer.model.clone(), ..title("assistant", "Assistant") }
        }
        Message::ToolResult(result) => {
            blocks(&result.content, true, out);
            // What an edit changed, as its tool reports it for people.
            let details = result.details.as_ref().map(quipu_protocol::Json::value);
            if let Some(diff) = details.as_ref().and_then(|details| details["diff"].as_str()) {
                code("Change", "diff", diff, out);
            }
            let more = if result.is_error { "(failed)".into() } else { String::new() };
            Title { of: result.tool_name.clone(), more, ..title("result", "Result of") }
        }
        Message::BashExecution(run) => {
            code("Command", "sh", &run.command, out);
            code("Output", "", &run.output, out);
            let failed = run.exit_code.filter(|code| *code != 0);
            let more = failed.map_or(String::new(), |code| format!("(exit code {code})"));
            Title { more, ..title("command", "Command") }
        }
        Message::Custom(custom) => {
            of_body(&custom.content, out);
            Title { of: custom.custom_type.clone(), ..title("note", "Message of") }
        }
        Message::BranchSummary(summary) => {
            out(Part::Prose(&summary.summary));
            title("compaction", "Summary of a branch")
        }
        Message::CompactionSummary(summary) => {
            out(Part::Prose(&summary.summary));
            title("compaction", "Summary")
        }
        Message::Other(json) => {
            code("Message", "json", json.get(), out);
            title("note", "Message")
        }
    }
}

fn of_body(body: &Body, out: &mut dyn FnMut(Part<'_>)) {
    match body {
        Body::Text(text) => out(Part::Prose(text)),
        Body::Blocks(content) => blocks(content, false, out),
    }
}

fn blocks(content: &[Content], of_a_tool: bool, out: &mut dyn FnMut(Part<'_>)) {
    for block in content {
        match block {
            Content::Text(text) if of_a_tool => code("Result", "", &text.text, out),
            Content::Text(text) => out(Part::Prose(&text.text)),
            Content::Thinking(thinking) if thinking.thinking.trim().is_empty() => out(Part::Withheld),
            Content::Thinking(thinking) => out(Part::Thinking(&thinking.thinking)),
            Content::Image(image) => out(Part::Image(image)),
            Content::ToolCall(call) => {
                out(Part::Call(&call.name));
                code("Arguments", "json", call.arguments.get(), out);
            }
            Content::Other(json) => match ServerToolBlock::of_json(json) {
                Some(used) => code("Provider tool", "", &used.text(), out),
                None => code("Content", "json", json.get(), out),
            },
        }
    }
}

fn code(what: &'static str, language: &'static str, text: &str, out: &mut dyn FnMut(Part<'_>)) {
    let (lines, bytes) = SHORT;
    if !text.trim().is_empty() {
        let folded = text.len() > bytes || text.lines().nth(lines).is_some();
        out(Part::Code { what, language, text, folded });
    }
}

/// Appends text with controls and marks of direction made visible, except line breaks and tabs.
pub(crate) fn push_visible(out: &mut String, text: &str) {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => out.push('\n'),
            '\n' | '\t' => out.push(c),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}' => {
                out.extend(c.escape_unicode());
            }
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
}
