//! Every `quipu` command line of the documents goes through the parser of arguments.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, FromArgMatches as _};
use quipu_host::settings::Key;
use quipu_testkit::documents;

use crate::args::{Cli, Cmd};
use crate::help::refuse_command;

/// Command lines that are not parsed: the document, the text, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// Placeholders whose value the parser checks. Other words in capitals are text, or stand for one of the values that
/// the parser lists.
const PLACEHOLDERS: &[(&str, &str)] = &[("N", "1"), ("USD", "0.50"), ("DIR", "."), ("FOLDER", ".")];

/// A command line of a document.
#[derive(Debug)]
struct Line {
    place: String,
    text: String,
    /// A name in a paragraph may leave out what the command needs.
    is_mention: bool,
}

/// What stands in blocks of shell commands, and code spans that begin with `quipu`.
fn lines() -> Vec<Line> {
    let mut found = Vec::new();
    for page in documents() {
        for block in page.blocks() {
            let all = matches!(block.language.as_str(), "sh" | "bash");
            if !all && !matches!(block.language.as_str(), "console" | "") {
                continue;
            }
            for (index, line) in block.text.lines().enumerate() {
                let line = match line.strip_prefix("$ ") {
                    Some(command) => command,
                    None if all || (block.language.is_empty() && line.starts_with("quipu ")) => line,
                    None => continue,
                };
                let place = format!("{}:{}", page.path, block.line + index);
                found.push(Line { place, text: line.to_owned(), is_mention: false });
            }
        }
        for span in page.spans() {
            if span.text == "quipu" || span.text.starts_with("quipu ") {
                let place = format!("{}:{}", page.path, span.line);
                found.push(Line { place, text: span.text, is_mention: true });
            }
        }
    }
    let is_exception = |line: &Line| {
        EXCEPTIONS.iter().any(|(page, text, _)| line.place.starts_with(page) && line.text == *text)
    };
    found.retain(|line| !is_exception(line));
    found
}

/// The line with and without each part in square brackets.
fn optional_parts(line: &str) -> Vec<String> {
    let parts = line.find('[').and_then(|open| {
        let mut depth = 0_usize;
        let close = line[open..].find(|c| {
            depth = if c == '[' { depth + 1 } else { depth - usize::from(c == ']') };
            depth == 0
        })?;
        Some((&line[..open], &line[open + 1..open + close], &line[open + close + 1..]))
    });
    match parts {
        Some((before, part, after)) => [format!("{before}{after}"), format!("{before}{part}{after}")]
            .iter()
            .flat_map(|line| optional_parts(line))
            .collect(),
        None => vec![line.to_owned()],
    }
}

/// The commands of a line of shell, each as its words. Redirections, comments and variables set for one command go.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let ends = |word: &mut Option<String>, commands: &mut Vec<Vec<String>>| {
        if let (Some(word), Some(command)) = (word.take(), commands.last_mut()) {
            command.push(word);
        }
    };
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ') => ends(&mut word, &mut commands),
            (None, '|' | '&') if word.is_none() => commands.push(Vec::new()),
            (None, ';') => {
                ends(&mut word, &mut commands);
                commands.push(Vec::new());
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    ends(&mut word, &mut commands);
    commands.iter().map(|words| without_redirections(words)).filter(|words| !words.is_empty()).collect()
}

fn without_redirections(words: &[String]) -> Vec<String> {
    let is_variable = |word: &&String| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
        })
    };
    let mut kept = Vec::new();
    let mut words = words.iter().skip_while(is_variable);
    while let Some(word) = words.next() {
        let from = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_placeholder = from.starts_with('<') && from.ends_with('>') && from.len() > 2;
        if is_placeholder || !from.starts_with(['<', '>']) {
            kept.push(word.clone());
        } else if from.len() == 1 {
            // Its file is the next word.
            words.next();
        }
    }
    kept
}

/// The command with each of the alternatives of `A|B`.
fn alternatives(words: &[String]) -> Vec<Vec<String>> {
    let mut lines = vec![Vec::new()];
    for word in words {
        let choices: Vec<&str> = word.split('|').collect();
        let grow = |line: &Vec<String>| {
            choices.iter().map(|choice| [&line[..], &[filled(choice)]].concat()).collect()
        };
        lines = lines.iter().flat_map::<Vec<Vec<String>>, _>(grow).collect();
    }
    lines
}

fn filled(word: &str) -> String {
    let word = word.trim_start_matches('<').trim_end_matches('>');
    let name = if word.len() > 2 { word.trim_end_matches("..") } else { word };
    let known = PLACEHOLDERS.iter().find(|(placeholder, _)| *placeholder == name);
    known.map_or(name, |(_, value)| value).to_owned()
}

fn is_placeholder(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_' || b == b'-')
}

/// Parses the words behind `quipu`.
fn parse(words: &[String], is_mention: bool) -> Result<(), String> {
    if let [_, config, get, rest @ ..] = words
        && config == "config"
        && matches!(get.as_str(), "get" | "set")
        && let Some(name) = rest.iter().find(|word| !word.starts_with('-') && !is_placeholder(word))
        && Key::named(name).is_none()
    {
        return Err(format!("there is no setting {name}"));
    }
    let mut words = words.to_vec();
    // A placeholder becomes the first of the values that the parser lists.
    for _ in 0..=words.len() {
        let error = match Cli::command().try_get_matches_from(&words) {
            Ok(matches) => return understand(&Cli::from_arg_matches(&matches).map_err(|e| e.to_string())?),
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return Ok(()),
            ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                if is_mention =>
            {
                return Ok(());
            }
            _ => {}
        }
        let value = match error.get(ContextKind::InvalidValue) {
            Some(ContextValue::String(value)) if is_placeholder(value) => value,
            _ => return Err(error.to_string()),
        };
        match (error.get(ContextKind::ValidValue), words.iter_mut().find(|word| *word == value)) {
            (Some(ContextValue::Strings(valid)), Some(word)) if !valid.is_empty() => *word = valid[0].clone(),
            _ => return Err(error.to_string()),
        }
    }
    Err("a placeholder has no value".to_owned())
}

/// What the parser leaves to the commands: words that look like one, and topics of help.
fn understand(cli: &Cli) -> Result<(), String> {
    match &cli.command {
        None if cli.task.print => Ok(()),
        None => refuse_command(&cli.task.messages).map_err(|failure| failure.message),
        Some(Cmd::Help(args)) => {
            let mut command = &Cli::command();
            for topic in args.topic.iter().filter(|topic| !is_placeholder(topic) && *topic != "all") {
                command = command.find_subcommand(topic).ok_or(format!("no command {topic} to explain"))?;
            }
            Ok(())
        }
        Some(_) => Ok(()),
    }
}

/// What is wrong with a line: each `quipu` command of it, in every form.
fn faults(line: &str, is_mention: bool) -> Vec<String> {
    let mut faults = Vec::new();
    for command in optional_parts(line).iter().flat_map(|line| commands(line)) {
        if command[0] != "quipu" {
            continue;
        }
        for words in alternatives(&command) {
            if let Err(error) = parse(&words, is_mention) {
                faults.push(format!("`{}`: {}", words.join(" "), error.lines().next().unwrap_or_default()));
            }
        }
    }
    faults
}

#[test]
fn commands_of_the_documents_are_accepted() {
    let lines = lines();
    let mut wrong = Vec::new();
    for line in &lines {
        wrong.extend(
            faults(&line.text, line.is_mention).iter().map(|fault| format!("{}: {fault}", line.place)),
        );
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(lines.len() >= 100, "{} command lines were found", lines.len());
}

#[test]
fn wrong_commands_are_found() {
    let count = |line: &str| faults(line, false).len();
    for right in [
        "quipu",
        "quipu -p \"…\" # a comment",
        "quipu tree [SESSION] [--all]",
        "quipu usage [--by day|project|model|agent|session] [--since WHEN]",
        "A=1 quipu doctor --repair >out.txt 2>&1; quipu undo && cat x | quipu -p",
        "quipu auth set anthropic < key.txt",
        "quipu blame FILE[:LINE]",
        "quipu --permissions MODE",
        "quipu --max-turns N \"fix <this>\"",
        "quipu fork <node>",
        "quipu help COMMAND",
        "quipu -p hello",
        "quipu config set --project KEY VALUE",
        "quipu config set theme light",
        "cargo run -- demo",
    ] {
        assert_eq!(faults(right, false), Vec::<String>::new(), "{right}");
    }
    assert_eq!(count("quipu jump"), 1);
    assert_eq!(count("quipu undo; quipu doctor --repare"), 1);
    assert_eq!(count("quipu tree [--al] [--every]"), 3);
    assert_eq!(count("quipu usage --by day|year|week"), 2);
    assert_eq!(count("quipu help frok"), 1);
    assert_eq!(count("quipu config get them"), 1);
    assert_eq!(count("quipu fork"), 1);
    assert_eq!(faults("quipu fork", true).len(), 0);
}
