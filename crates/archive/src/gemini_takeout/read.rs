//! Entries of the activity to items, day by day.

use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use quipu_protocol::{
    AssistantMessage, Body, Content, Entry, Json, Message, StopReason, UnixMs, UserMessage,
};
use quipu_seal::Sealer;

use super::html::{Card, Cards, has_more_than_words, said, text};
use super::{AGENT, is_main, is_ours};
use crate::export::{Bytes, Files, List, record};
use crate::intake::{Follows, Item, LINE_LIMIT, Outline, Placer, Sessions, Start, Stop};
use crate::json::{Members, list, text_of, time_of};
use crate::lineages::session_id;
use crate::{ArchiveError, ProblemKind, Report};

/// Bytes of the entries of one day that are held at once; a day with more is read in pieces.
const HELD: usize = 32 << 20;
const DAY: UnixMs = 86_400_000;
/// What the title of a prompt begins with.
const VERBS: [&str; 5] = ["Prompted with: ", "Prompted ", "Asked Bard: ", "Asked ", "Said "];

pub(super) fn open(path: &Path) -> Result<Box<dyn Sessions>, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
    let files = Files::open(path).map_err(fail)?;
    let list = List::new(path, files, is_main)?;
    Ok(Box::new(Days { list, page: None, ahead: None, now: Vec::new() }))
}

/// One entry.
struct Activity {
    prompt: Option<String>,
    time: Option<UnixMs>,
    /// Its words, and as it was where that says more.
    answer: Option<(String, Option<String>)>,
    files: Vec<String>,
    /// All else that is said of it.
    rest: Json,
    size: usize,
}

struct Days {
    list: List,
    /// A page that is being read, and its name.
    page: Option<(String, Cards<BufReader<Bytes>>)>,
    /// The first entry of the day after.
    ahead: Option<Activity>,
    /// All entries of a day, in the order of the file.
    now: Vec<Activity>,
}

impl Activity {
    fn day(&self) -> Option<UnixMs> {
        self.time.map(|time| time.div_euclid(DAY))
    }

    /// From an element of the list; `None` for what is of another service.
    fn of_json(json: &Json) -> Option<Self> {
        let members = Members::of(json.get())?;
        let about =
            [members.get("header"), members.get("products")].into_iter().flatten().collect::<String>();
        if !is_ours(&about) {
            return None;
        }
        let items = list(members.get("safeHtmlItem").unwrap_or("[]"));
        let html = |item: &str| Members::of(item)?.get("html").and_then(text_of);
        let html: Vec<String> = items.into_iter().filter_map(html).collect();
        let html = html.join("\n");
        let mut files: Vec<String> =
            list(members.get("attachedFiles").unwrap_or("[]")).into_iter().filter_map(text_of).collect();
        files.extend(members.get("imageFile").and_then(text_of));
        let time = members.string("time").and_then(|time| time_of(&time));
        let rest = members.without(&["title", "time", "safeHtmlItem"]);
        let title = members.get("title").and_then(text_of).unwrap_or_default();
        let answer = Some(html.as_str()).filter(|html| !html.is_empty());
        Some(Self { size: json.get().len(), ..Self::of(&title, time, answer, files, rest) })
    }

    fn of_card(card: &str) -> Option<Self> {
        let said = said(card)?;
        if !is_ours(&said.header) {
            return None;
        }
        let rest =
            Json::parse(&format!("{{\"header\":{}}}", quipu_dag::quoted(&said.header))).unwrap_or_default();
        let answer = Some(said.answer).filter(|answer| !answer.is_empty());
        Some(Self { size: card.len(), ..Self::of(&said.title, said.time, answer, said.files, rest) })
    }

    fn of(title: &str, time: Option<UnixMs>, html: Option<&str>, files: Vec<String>, rest: Json) -> Self {
        let title = title.replace(['\u{a0}', '\u{202f}'], " ");
        let asked = VERBS.iter().find_map(|verb| title.strip_prefix(verb));
        let mut rest = rest;
        let prompt = match (asked, html) {
            (Some(prompt), _) => Some(prompt.to_owned()),
            // In another language, or of another kind: what was answered was asked.
            (None, Some(_)) => Some(title),
            (None, None) => {
                let title = quipu_dag::quoted(&title);
                let inner = rest.get().trim_start_matches('{').to_owned();
                let comma = if inner == "}" { "" } else { "," };
                rest = Json::parse(&format!("{{\"title\":{title}{comma}{inner}")).unwrap_or(rest);
                None
            }
        };
        let answer = html.map(|html| (text(html), has_more_than_words(html).then(|| html.to_owned())));
        Self { prompt, time, answer, files, rest, size: 0 }
    }

    /// Made of the second and of the words, so that it is the same whichever way the activity was exported.
    fn id(&self) -> String {
        let words = self.prompt.as_deref().unwrap_or_else(|| self.rest.get());
        let words: Vec<&str> = words.split_whitespace().collect();
        let said = format!("{} {}", self.time.map_or(0, |time| time.div_euclid(1_000)), words.join(" "));
        let hash = quipu_protocol::ChunkId(quipu_dag::sha256(said.as_bytes())).to_string();
        format!("activity-{}", &hash[..24])
    }
}

impl Days {
    /// The next entry of any file; what is none is counted.
    fn next_activity(&mut self) -> Option<Activity> {
        loop {
            if let Some((name, page)) = &mut self.page {
                let card = match page.next() {
                    Ok(Some(card)) => card,
                    Ok(None) => {
                        self.page = None;
                        continue;
                    }
                    Err(error) => {
                        let name = std::mem::take(name);
                        self.page = None;
                        self.list.unreadable(&name, &error);
                        continue;
                    }
                };
                self.list.number += 1;
                let number = self.list.number;
                let Card::Whole(card) = card else {
                    let detail = format!("the limit is {LINE_LIMIT} bytes");
                    self.list.report.problem(number, ProblemKind::TooLong, &detail);
                    continue;
                };
                let text = String::from_utf8_lossy(&card);
                match Activity::of_card(&text) {
                    Some(activity) => {
                        if let std::borrow::Cow::Owned(_) = text {
                            self.list.report.problem(number, ProblemKind::Encoding, "");
                        }
                        return Some(activity);
                    }
                    None => self.list.report.skip("other kind of activity"),
                }
                continue;
            }
            if !self.list.is_open() {
                let (name, bytes) = self.list.next_file()?;
                let mut bytes = BufReader::with_capacity(1 << 20, bytes);
                // A page begins with a tag, whatever its name is.
                match std::io::BufRead::fill_buf(&mut bytes)
                    .map(|start| start.trim_ascii_start().first() == Some(&b'<'))
                {
                    Ok(true) => self.page = Some((name, Cards::new(bytes, LINE_LIMIT))),
                    Ok(false) => self.list.open(name, bytes),
                    Err(error) => self.list.unreadable(&name, &error),
                }
                continue;
            }
            let Some(json) = self.list.next_here() else { continue };
            match Activity::of_json(&json) {
                Some(activity) => return Some(activity),
                None => self.list.report.skip("other kind of activity"),
            }
        }
    }
}

impl Sessions for Days {
    fn next(&mut self) -> Result<Option<Outline>, ArchiveError> {
        self.now.clear();
        let Some(first) = self.ahead.take().or_else(|| self.next_activity()) else { return Ok(None) };
        let day = first.day();
        let mut size = first.size;
        self.now.push(first);
        while size < HELD {
            match self.next_activity() {
                Some(activity) if activity.day() == day => {
                    size += activity.size;
                    self.now.push(activity);
                }
                other => {
                    self.ahead = other;
                    break;
                }
            }
        }
        let date = day.and_then(|day| jiff::Timestamp::from_millisecond(day.saturating_mul(DAY)).ok());
        let date = date.map(|date| date.to_string()[..10].to_owned());
        let session = format!("gemini-{}", date.as_deref().unwrap_or("undated"));
        // Nobody writes to what was exported.
        Ok(Some(Outline::alone(session_id(&session), Duration::MAX)))
    }

    fn read(&mut self, sealer: &Sealer, out: &mut Placer) -> Result<(), Stop> {
        // The newest stand first, and nothing says so.
        let mut now = std::mem::take(&mut self.now);
        now.reverse();
        now.sort_by_key(|activity| activity.time.unwrap_or(0));
        let day = now.first().and_then(Activity::day).unwrap_or(0);
        let session = out.report.session.clone();
        let owner =
            out.session(Start { session, cwd: String::new(), time: day * DAY, parent: None, kept: None });
        let mut last = Follows::Nothing;
        for (at, activity) in now.into_iter().enumerate() {
            out.report.bytes += activity.size as u64;
            let (id, line, time) = (activity.id(), at as u64 + 1, activity.time);
            let sealed = sealer.seal_json(&activity.rest);
            let mut is_sealed = sealed != activity.rest;
            let mut seal = |text: &str| {
                let sealed = sealer.seal(text);
                is_sealed |= *sealed != *text;
                sealed.into_owned()
            };
            let mut items: Vec<(String, Entry, Option<Json>)> = Vec::new();
            let timestamp = time.unwrap_or_default();
            match activity.prompt.as_deref().map(&mut seal) {
                Some(prompt) => {
                    let mut content = vec![Content::text(prompt)];
                    for name in &activity.files {
                        content.extend(self.list.files.asset(name, name, line, sealer, &mut out.report));
                    }
                    let content = Body::Blocks(content);
                    let entry = Entry::Message(Message::User(UserMessage { content, timestamp }));
                    items.push((id.clone(), entry, Some(sealed)));
                }
                None => items.push((id.clone(), record("activity", &sealed), None)),
            }
            if let Some((answer, html)) = &activity.answer {
                let answer = AssistantMessage {
                    content: vec![Content::text(seal(answer))],
                    api: AGENT.into(),
                    provider: "google".into(),
                    stop_reason: StopReason::Stop,
                    timestamp,
                    ..AssistantMessage::default()
                };
                let html = html.as_deref().map(|html| {
                    Json::parse(&format!("{{\"html\":{}}}", quipu_dag::quoted(&seal(html))))
                        .unwrap_or_default()
                });
                items.push((format!("{id}.answer"), Entry::Message(Message::Assistant(answer)), html));
            }
            out.report.sealed += u64::from(is_sealed);
            for (id, entry, kept) in items {
                let mut item = Item::new(id.clone(), entry, line);
                (item.owner, item.time, item.kept) = (owner, time, kept);
                item.follows = std::mem::replace(&mut last, Follows::Item(id));
                out.item(item)?;
            }
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.list.bytes()
    }

    fn end(&mut self) -> Option<Report> {
        Some(self.list.end())
    }
}
