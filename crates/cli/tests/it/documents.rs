//! The examples of pages, run one after the other as they stand there. Ids and times are others each time: an id must be
//! the same wherever the page has the same. Here those of `docs/time-travel.md`.

use std::collections::BTreeMap;

use quipu_testkit::{Answer, Document, Reply, documents};
use serde_json::json;

use crate::support::*;

const PAGE: &str = "docs/time-travel.md";

/// The directory of the page.
const PLACE: &str = "/project";

/// What the model says in the examples, in their order.
fn script() -> Vec<Reply> {
    let says = |text: &str| Answer::new().text(text).reply();
    let write = |content: &str| call("c1", "write", &json!({ "path": "way.txt", "content": content }));
    vec![
        says("Left or right?"),
        write("left\n"),
        says("Left it is."),
        says("Then right."),
        write("right\n"),
        says("Right it is."),
        says("Over the hill."),
        says("I take the hill."),
    ]
}

/// A command of the page with what it prints.
struct Example {
    line: usize,
    command: String,
    output: Vec<String>,
}

/// The blocks marked `console` of a page.
fn examples(page: &Document) -> Vec<Example> {
    let mut found = Vec::<Example>::new();
    for block in page.blocks().iter().filter(|block| block.language == "console") {
        for (line, text) in (block.line..).zip(block.text.lines()) {
            match text.strip_prefix("$ ") {
                Some(command) => found.push(Example { line, command: command.into(), output: Vec::new() }),
                None => found.last_mut().expect("a command first").output.push(text.into()),
            }
        }
    }
    found
}

/// A piece of a line.
#[derive(Debug, PartialEq)]
enum Piece<'a> {
    /// Twelve or more hexadecimal digits, or the id of a session.
    Id(&'a str),
    /// How long ago, or when.
    Time,
    Text(&'a str),
}

fn is_id(word: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let parts: Vec<usize> = word.split('-').map(str::len).collect();
    hex(&word.replace('-', "")) && matches!(parts[..], [12] | [64] | [8, 4, 4, 4, 12])
}

fn pieces(line: &str) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let end = if first.is_alphanumeric() {
            rest.find(|c: char| !c.is_alphanumeric() && c != '-').unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (word, after) = rest.split_at(end);
        let age =
            word.strip_suffix(['s', 'm', 'h', 'd']).is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
        rest = after;
        match after.strip_prefix(" ago") {
            Some(after) if age => {
                rest = after;
                found.push(Piece::Time);
            }
            _ if word == "now" => found.push(Piece::Time),
            _ if is_date(word) => {
                // With the time of day.
                rest = &after[" 00:00".len()..];
                found.push(Piece::Time);
            }
            _ if is_id(word) => found.push(Piece::Id(word)),
            _ => found.push(Piece::Text(word)),
        }
    }
    found
}

fn is_date(word: &str) -> bool {
    let digits: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    digits == "0000-00-00"
}

/// The line with our ids in the place of the page's, whose ids are learned from what was printed.
fn expected(page: &str, printed: &str, ids: &mut BTreeMap<String, String>) -> String {
    let mut actual = pieces(printed).into_iter();
    let mut line = String::new();
    for piece in pieces(page) {
        let beside = actual.next();
        match piece {
            Piece::Text(text) => line.push_str(text),
            Piece::Time => push_time(&mut line),
            Piece::Id(id) => {
                let known =
                    ids.iter().find(|(long, _)| long.starts_with(id)).map(|(_, ours)| &ours[..id.len()]);
                let ours = match (known, beside) {
                    (Some(known), _) => known.to_owned(),
                    (None, Some(Piece::Id(ours))) if ours.len() == id.len() => {
                        ids.insert(id.into(), ours.into());
                        ours.into()
                    }
                    (None, _) => id.to_owned(),
                };
                line.push_str(&ours);
            }
        }
    }
    line
}

/// Adds a time, which may be padded to a column.
fn push_time(line: &mut String) {
    let length = line.trim_end_matches(' ').len();
    line.truncate(line.len().min(length + 1));
    line.push_str("TIME");
}

fn plain(line: &str) -> String {
    let mut text = String::new();
    for piece in pieces(line) {
        match piece {
            Piece::Text(word) | Piece::Id(word) => text.push_str(word),
            Piece::Time => push_time(&mut text),
        }
    }
    text
}

/// The command with our ids: of the page's, four characters are enough.
fn command(text: &str, ids: &BTreeMap<String, String>) -> String {
    let word = |word: &str| {
        let known = ids.iter().find(|(id, _)| word.len() >= 4 && id.starts_with(word));
        known.map_or_else(|| word.to_owned(), |(_, ours)| ours.clone())
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Runs the examples of the page of this path, at least `least`. The page has the current directory of the world as
/// `place`, and the home directory as `~`.
pub(crate) fn runs_as_written(page: &str, world: &World, place: &str, least: usize) {
    let program = std::path::Path::new(&world.program).parent().unwrap().to_owned();
    let work = world.path("work").display().to_string();
    let home = world.path("home").display().to_string();
    let path = format!("{}:/usr/bin:/bin", program.display());
    let (mut ids, mut differing) = (BTreeMap::new(), Vec::new());
    let page = documents().into_iter().find(|one| one.path == page).expect("the page");
    let examples = examples(&page);
    assert!(examples.len() >= least, "{} examples", examples.len());
    for Example { line, command: text, output } in &examples {
        let mut shell = world.command("sh");
        shell.args(["-c", &format!("exec 2>&1; {}", command(text, &ids))]).env("PATH", &path);
        let printed = RunningCommand::start(shell).wait().text().replace(&work, place).replace(&home, "~");
        let printed: Vec<&str> = printed.lines().collect();
        let page: Vec<String> = output
            .iter()
            .enumerate()
            .map(|(at, line)| expected(line, printed.get(at).unwrap_or(&""), &mut ids))
            .collect();
        let ours: Vec<String> = printed.iter().map(|line| plain(line)).collect();
        if page != ours {
            differing.push(format!("line {line}: $ {text}\n{}", printed.join("\n")));
        }
    }
    assert!(differing.is_empty(), "the page says otherwise:\n{}", differing.join("\n\n"));
}

#[test]
fn the_page_on_time_travel_tells_what_happens() {
    let world = World::new(script());
    runs_as_written(PAGE, &world, PLACE, 15);
    assert_eq!(world.requests().len(), script().len(), "all of the script is used");
}

#[test]
fn ids_and_times_are_told_apart() {
    let id = "6e824d93d6de";
    assert_eq!(
        pieces("6e824d93d6de (3m ago)"),
        [Piece::Id(id), Piece::Text(" "), Piece::Text("("), Piece::Time, Piece::Text(")")]
    );
    assert_eq!(plain("[2023-11-14 22:13] now"), "[TIME] TIME");
    let mut ids = BTreeMap::new();
    assert_eq!(expected("at 6e824d93d6de", "at 0123456789ab", &mut ids), "at 0123456789ab");
    assert_eq!(expected("6e824d93d6de", "ba9876543210", &mut ids), "0123456789ab", "the same is the same");
    assert_eq!(command("quipu life 6e82", &ids), "quipu life 0123456789ab");
}
