//! The profile `shell`: the text of an answer is one command, its result the next message of the user.

use std::sync::Arc;

use quipu_protocol::{AssistantMessage, Body, Content, Json, Message, ToolResultMessage, UserMessage};
use serde::Deserialize;
use serde_json::json;

use crate::blocks::{is_input, says_something};
use crate::listing::iso;

/// The tool that runs the command.
pub const SHELL_TOOL: &str = "bash";
/// Seconds after which a command is ended that says nothing else.
pub const SHELL_PATIENCE: u64 = 300;
/// Seconds that a command can ask for.
const MOST_PATIENCE: u64 = 24 * 60 * 60;

/// What an answer of the profile says.
#[derive(Debug, Clone, PartialEq)]
pub enum ShellReply {
    /// One command: the arguments of a call of [`SHELL_TOOL`].
    Command(Json),
    /// Nothing that can run, with what the model is told.
    Unusable(String),
    /// The model is done. What it says to the person, which may be empty.
    Exit(String),
}

/// The result for the model when its reply has nothing to run.
const EMPTY: &str =
    "The reply was empty, so nothing ran. Reply with one command, or with `exit` when the task is done.";
/// The same when the output limit may have cut the command.
const CUT: &str = "The reply reached the output limit, so the command may be cut off and was not run. Write a shorter \
                   one, or write a long file in several commands.";
/// The same when it called tools as models do elsewhere.
const TOOL_CALL: &str = "There are no tools to call, so nothing ran. The text of the reply is the command.";
/// The same when it has a fenced block and something around it.
const PROSE: &str = "The reply has more than one command in it: text around a fenced block, or several blocks. Nothing \
                     ran. Reply with the command alone.";
/// The same when words that stand before a command have none behind them.
const NO_COMMAND: &str = "Nothing ran: `patience`, `reason`, `network` and `protected` stand before a command, such as \
                          `patience 20m cargo test`.";
/// The same when the time cannot be read.
const NO_TIME: &str = "Nothing ran: `patience` needs a time from 1 second to 24 hours, such as `patience 90 COMMAND`, \
                       `patience 20m COMMAND` or `patience 2h COMMAND`.";
/// The same when a quotation mark is missing.
const OPEN_REASON: &str =
    "Nothing ran: the reason has no closing quotation mark. Write `reason \"why\" COMMAND`.";
/// What stands for a result in which there is nothing.
const NO_OUTPUT: &str = "(no output)";
/// What stands behind the result of a command whose time was over.
const MORE_PATIENCE: &str = "If it needs longer, run it again with more time, such as `patience 20m COMMAND`; look at \
                             what it did so far first. For something that never ends, start it with `&` and look at its \
                             output in a file.";

impl ShellReply {
    /// Reads the text of an answer: the rules of the profile, in their order.
    pub fn of_text(text: &str) -> Self {
        let text = text.trim();
        if let Some(said) = behind_exit(text) {
            return Self::Exit(said);
        }
        let command = match unfenced(text) {
            Ok(command) => command.trim(),
            Err(why) => return Self::Unusable(why),
        };
        match behind_exit(command) {
            Some(said) => Self::Exit(said),
            None if command.is_empty() => Self::Unusable(EMPTY.into()),
            None => Preface::read(command).unwrap_or_else(|why| Self::Unusable(why.into())),
        }
    }

    /// Reads an answer. `is_cut`: the output limit ended it.
    pub fn of_answer(answer: &AssistantMessage, is_cut: bool) -> Self {
        if answer.tool_calls().next().is_some() {
            return Self::Unusable(TOOL_CALL.into());
        }
        match Self::of_text(&answer.text()) {
            Self::Command(_) | Self::Unusable(_) if is_cut => Self::Unusable(CUT.into()),
            reply => reply,
        }
    }
}

/// What an answer says to a person that ends a run; nothing for one with a command.
pub fn shell_answer(answer: &AssistantMessage) -> Option<String> {
    match ShellReply::of_answer(answer, false) {
        ShellReply::Exit(said) => Some(said),
        ShellReply::Command(_) | ShellReply::Unusable(_) => None,
    }
}

/// What the model is told behind the result of a command that was ended because its time was over.
pub fn shell_hint(result: &ToolResultMessage) -> Option<&'static str> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Details {
        #[serde(default)]
        timed_out: bool,
    }
    let details: Details = result.details.as_ref()?.read().ok()?;
    details.timed_out.then_some(MORE_PATIENCE)
}

/// An answer as requests of the profile have it: without calls. `None` where nothing is left to say.
pub(crate) fn said(message: &Arc<Message>, answer: &AssistantMessage) -> Option<Arc<Message>> {
    let is_call = |block: &Content| matches!(block, Content::ToolCall(_));
    let speaks = |block: &Content| match block {
        Content::Thinking(_) | Content::ToolCall(_) => false,
        Content::Text(_) | Content::Image(_) | Content::Other(_) => says_something(block),
    };
    if !answer.content.iter().any(speaks) {
        return None;
    }
    if !answer.content.iter().any(is_call) {
        return Some(message.clone());
    }
    let content = answer.content.iter().filter(|block| !is_call(block)).cloned().collect();
    Some(Arc::new(Message::Assistant(AssistantMessage { content, ..answer.clone() })))
}

/// A result as requests of the profile have it: a message of the user with the time and what the tool returned.
pub(crate) fn told(result: &ToolResultMessage) -> Message {
    let mut content: Vec<Content> = result.content.iter().filter(|block| is_input(block)).cloned().collect();
    if !content.iter().any(says_something) {
        content = vec![Content::text(NO_OUTPUT)];
    }
    if result.timestamp > 0 {
        let time = format!("{}Z", &iso(result.timestamp)[..19]);
        match content.first_mut() {
            Some(Content::Text(text)) => text.text = format!("{time}\n{}", text.text),
            _ => content.insert(0, Content::text(time)),
        }
    }
    Message::User(UserMessage { content: Body::Blocks(content), timestamp: result.timestamp })
}

/// What stands behind a first line that is `exit`.
fn behind_exit(text: &str) -> Option<String> {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    first.trim().eq_ignore_ascii_case("exit").then(|| rest.trim().to_owned())
}

/// A reply without the fence around all of it, or the backticks around its one line.
fn unfenced(text: &str) -> Result<&str, String> {
    let one_line = text.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    if let Some(inside) = one_line.filter(|inside| !inside.contains(['`', '\n'])) {
        return Ok(inside);
    }
    let Some(first) = text.lines().find_map(fence) else { return Ok(text) };
    let Some((opening, inside)) = text.split_once('\n').filter(|_| fence(text).is_some()) else {
        // Inside of what a command writes into a file, it says nothing.
        return if is_here_document(text, first) { Ok(text) } else { Err(PROSE.into()) };
    };
    let language = opening.trim().trim_start_matches(['`', '~']).trim();
    if !["", "sh", "bash", "shell", "zsh", "console", "terminal"].contains(&language) {
        return Err(format!(
            "The block is marked as `{language}`, and the reply is run by bash. Nothing ran. Reply with a bash command."
        ));
    }
    let last = inside.lines().next_back().filter(|line| is_closing(line, first));
    let Some(last) = last else { return Err(PROSE.into()) };
    let inside = inside[..inside.len() - last.len()].trim_end_matches('\n');
    match inside.lines().find_map(fence) {
        Some(inner) if !is_here_document(inside, inner) => Err(PROSE.into()),
        _ => Ok(inside),
    }
}

/// The marks that a line begins with, where it opens or closes a block.
fn fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let marks = line.len() - line.trim_start_matches(mark).len();
    (marks >= 3).then(|| &line[..marks])
}

fn is_closing(line: &str, opening: &str) -> bool {
    fence(line).is_some_and(|marks| marks == line.trim() && marks.starts_with(opening))
}

/// Whether the first of these marks stands behind the beginning of a here document.
fn is_here_document(text: &str, marks: &str) -> bool {
    text.find(marks).is_some_and(|at| text[..at].contains("<<"))
}

/// The words before a command.
#[derive(Default)]
struct Preface {
    patience: Option<u64>,
    reason: Option<String>,
    network: bool,
    protected: bool,
}

impl Preface {
    fn read(text: &str) -> Result<ShellReply, &'static str> {
        let (mut preface, mut rest) = (Self::default(), text);
        loop {
            let (word, behind) = word(rest);
            match word {
                "patience" => {
                    let (time, behind) = self::word(behind.trim_start());
                    preface.patience = Some(seconds(time).ok_or(NO_TIME)?);
                    rest = behind.trim_start();
                }
                "reason" => {
                    let (reason, behind) = reason(behind.trim_start()).ok_or(OPEN_REASON)?;
                    preface.reason = Some(reason);
                    rest = behind.trim_start();
                }
                "network" => (preface.network, rest) = (true, behind.trim_start()),
                "protected" => (preface.protected, rest) = (true, behind.trim_start()),
                _ => break,
            }
        }
        if rest.is_empty() {
            return Err(NO_COMMAND);
        }
        let Self { patience, reason, network, protected } = preface;
        let mut arguments = json!({ "command": rest, "timeout": patience.unwrap_or(SHELL_PATIENCE) });
        if let Some(reason) = reason {
            arguments["reason"] = reason.into();
        }
        for (name, is_there) in [("network", network), ("protected", protected)] {
            if is_there {
                arguments[name] = true.into();
            }
        }
        Ok(ShellReply::Command(Json::from(arguments)))
    }
}

/// The first word, and what is behind it.
fn word(text: &str) -> (&str, &str) {
    text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()))
}

/// Such as `90`, `90s`, `20m`, `2h`.
fn seconds(time: &str) -> Option<u64> {
    let (number, unit) = time.split_at(time.find(|c: char| !c.is_ascii_digit()).unwrap_or(time.len()));
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return None,
    };
    let seconds = number.parse::<u64>().ok()?.checked_mul(factor)?;
    (1..=MOST_PATIENCE).contains(&seconds).then_some(seconds)
}

/// A text in quotation marks, or the rest of the line, and what is behind it; `None` where the closing mark is missing.
fn reason(text: &str) -> Option<(String, &str)> {
    let Some(mark) = text.chars().next().filter(|first| matches!(first, '"' | '\'')) else {
        let (line, behind) = text.split_once('\n').unwrap_or((text, ""));
        return Some((line.trim().to_owned(), behind));
    };
    let mut reason = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' if mark == '"' => reason.extend(characters.next().map(|(_, escaped)| escaped)),
            _ if character == mark => return Some((reason, &text[at + 1..])),
            _ => reason.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn command(text: &str) -> serde_json::Value {
        match ShellReply::of_text(text) {
            ShellReply::Command(arguments) => arguments.value(),
            other => panic!("{text:?} is {other:?}"),
        }
    }

    #[track_caller]
    fn unusable(text: &str) -> String {
        match ShellReply::of_text(text) {
            ShellReply::Unusable(why) => why,
            other => panic!("{text:?} is {other:?}"),
        }
    }

    #[test]
    fn reply_is_one_command_whatever_stands_around_it() {
        for text in [
            "ls -la",
            "  ls -la\n",
            "`ls -la`",
            "```\nls -la\n```",
            "```bash\nls -la\n```",
            "~~~ sh\nls -la\n\n~~~",
            "````bash\nls -la\n````",
        ] {
            assert_eq!(command(text), json!({ "command": "ls -la", "timeout": 300 }), "{text}");
        }
        // Several lines are one script.
        assert_eq!(command("cd a\nls")["command"], "cd a\nls");
        let document = "cat > a.md <<'EOF'\n```js\n1\n```\nEOF";
        assert_eq!(command(document)["command"], document);
        assert_eq!(command(&format!("```bash\n{document}\n```"))["command"], document);
        // A command substitution is no Markdown.
        assert_eq!(command("`which ls` -la")["command"], "`which ls` -la");
        assert_eq!(command("echo `a` `b`")["command"], "echo `a` `b`");
    }

    #[test]
    fn reply_with_prose_around_a_block_is_unusable() {
        for text in [
            "Let me look:\n```bash\nls\n```",
            "```bash\nls\n```\nThat lists them.",
            "```bash\nls\n```\nthen\n```bash\npwd\n```",
            "```bash\nls",
        ] {
            assert_eq!(unusable(text), PROSE, "{text}");
        }
        assert!(unusable("```python\nprint(1)\n```").contains("`python`"));
        for text in ["", " \n", "```\n```", "```bash\n\n```"] {
            assert_eq!(unusable(text), EMPTY, "{text:?}");
        }
    }

    #[test]
    fn words_before_a_command_are_its_parameters() {
        let check = |text: &str, expect: serde_json::Value| assert_eq!(command(text), expect, "{text}");
        check("patience 90 make", json!({ "command": "make", "timeout": 90 }));
        check("patience 20m make -j", json!({ "command": "make -j", "timeout": 1_200 }));
        check("patience 2h\ncd a\nmake", json!({ "command": "cd a\nmake", "timeout": 7_200 }));
        check(
            r#"reason "it \"fails\"" patience 90s network curl x"#,
            json!({ "command": "curl x", "timeout": 90, "reason": "it \"fails\"", "network": true }),
        );
        check(
            "reason the index is old\nprotected git config a b",
            json!({ "command": "git config a b", "timeout": 300, "reason": "the index is old", "protected": true }),
        );
        check("reason 'a' b", json!({ "command": "b", "timeout": 300, "reason": "a" }));
        // Only before it.
        check("make && patience 20m ls", json!({ "command": "make && patience 20m ls", "timeout": 300 }));
        check("reasons", json!({ "command": "reasons", "timeout": 300 }));
        for text in
            ["patience", "patience soon make", "patience 0 make", "patience 25h make", "patience 5d x"]
        {
            assert_eq!(unusable(text), NO_TIME, "{text}");
        }
        for text in ["patience 20m", "reason \"why\"", "reason why", "network", "protected network"] {
            assert_eq!(unusable(text), NO_COMMAND, "{text}");
        }
        assert_eq!(unusable("reason \"why make"), OPEN_REASON);
    }

    #[test]
    fn exit_ends_with_what_stands_behind_it() {
        let check = |text: &str, said: &str| {
            assert_eq!(ShellReply::of_text(text), ShellReply::Exit(said.into()), "{text}");
        };
        check("exit", "");
        check(" EXIT \n", "");
        check("Exit\n\nAll done.\n\n```sh\nmake\n```", "All done.\n\n```sh\nmake\n```");
        check("```\nexit\n```", "");
        for text in ["exit 1", "make\nexit", "exit; ls", "exits"] {
            assert_eq!(command(text)["command"], text);
        }
    }

    #[test]
    fn cut_reply_is_not_run_and_ends_only_with_exit() {
        let of = |text: &str| AssistantMessage { content: vec![Content::text(text)], ..Default::default() };
        assert_eq!(ShellReply::of_answer(&of("rm -rf build/x"), true), ShellReply::Unusable(CUT.into()));
        assert_eq!(ShellReply::of_answer(&of("exit\nDone, and"), true), ShellReply::Exit("Done, and".into()));
    }
}
