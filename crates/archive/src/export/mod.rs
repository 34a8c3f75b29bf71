//! What is common to exports of accounts: an archive or a folder with a JSON list of conversations, and the files that they name.

mod elements;
mod files;
mod zip;

use std::io::{self, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

use quipu_protocol::{Entry, Json, UnixMs};
use quipu_seal::Sealer;

pub(crate) use elements::{Element, Elements};
pub(crate) use files::{Bytes, Files};

use crate::intake::{Item, LINE_LIMIT, Outline, Placer, Sessions, Start, Stop};
use crate::json::Members;
use crate::lineages::session_id;
use crate::{ArchiveError, ProblemKind, Report};

/// How the conversations of a service are read.
pub(crate) struct Shape {
    /// Whether a file of an archive holds conversations, by its name.
    pub(crate) is_main: fn(&str) -> bool,
    /// The id of a conversation; `None` for what is none.
    pub(crate) id: fn(&Members<'_>) -> Option<String>,
    /// Reads one, of which secrets were sealed.
    pub(crate) read: fn(&Members<'_>, &Outline, &mut Files, &Sealer, &mut Placer) -> Result<(), Stop>,
}

/// Begins the session of a conversation. Members that are `kept` stay with it as they are; others that are not `told`
/// elsewhere, and say something, are counted. Gives its owner.
pub(crate) fn begin(
    conversation: &Members<'_>,
    outline: &Outline,
    time: Option<UnixMs>,
    kept: &[&str],
    told: &[&str],
    out: &mut Placer,
) -> usize {
    let others: Vec<&str> =
        conversation.0.iter().map(|(name, _)| name.as_ref()).filter(|name| !kept.contains(name)).collect();
    for (name, value) in &conversation.0 {
        let says = !matches!(*value, "null" | "false" | "[]" | "{}" | "\"\"");
        if says && !kept.contains(&name.as_ref()) && !told.contains(&name.as_ref()) {
            out.report.skip(name);
        }
    }
    out.session(Start {
        session: outline.session.clone(),
        cwd: String::new(),
        time: time.unwrap_or_default(),
        parent: None,
        kept: Some(conversation.without(&others)),
    })
}

/// Opens an export.
pub(crate) fn open(path: &Path, shape: &'static Shape) -> Result<Box<dyn Sessions>, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
    let files = Files::open(path).map_err(fail)?;
    Ok(Box::new(Conversations { list: List::new(path, files, shape.is_main)?, shape, now: None }))
}

/// The elements of all lists of an export, one after the other, and what is to be told of it as a whole.
pub(crate) struct List {
    pub(crate) files: Files,
    /// Those that are not read yet, the next last.
    left: Vec<String>,
    now: Option<(String, Elements<BufReader<Bytes>>)>,
    /// Of the element that was given last, from 1.
    pub(crate) number: u64,
    bytes: u64,
    pub(crate) report: Report,
}

impl List {
    pub(crate) fn new(path: &Path, files: Files, is_main: fn(&str) -> bool) -> Result<Self, ArchiveError> {
        let mut left = files.mains(is_main);
        if left.is_empty() {
            let why = "it contains no conversations file of this service";
            return Err(ArchiveError::NotASession { path: path.to_owned(), why });
        }
        let bytes = files.size(&left);
        left.reverse();
        let report = Report::new(path.to_owned(), String::new().into());
        Ok(Self { files, left, now: None, number: 0, bytes, report })
    }

    /// The next file that holds conversations; one that cannot be opened is told.
    pub(crate) fn next_file(&mut self) -> Option<(String, Bytes)> {
        while let Some(name) = self.left.pop() {
            match self.files.main(&name) {
                Ok(bytes) => return Some((name, bytes)),
                Err(error) => self.unreadable(&name, &error),
            }
        }
        None
    }

    pub(crate) fn unreadable(&mut self, name: &str, error: &io::Error) {
        self.report.problem(0, ProblemKind::Unreadable, &format!("{name}: {error}"));
    }

    /// Whether a file is being read.
    pub(crate) fn is_open(&self) -> bool {
        self.now.is_some()
    }

    /// Begins with a file.
    pub(crate) fn open(&mut self, name: String, bytes: BufReader<Bytes>) {
        self.now = Some((name, Elements::new(bytes, LINE_LIMIT)));
    }

    /// The next element that is an object; what is none is counted. What cannot be read ends its file, and the next one is read.
    pub(crate) fn next(&mut self) -> Option<Json> {
        loop {
            if !self.is_open() {
                let (name, bytes) = self.next_file()?;
                self.open(name, BufReader::with_capacity(1 << 20, bytes));
            }
            if let Some(json) = self.next_here() {
                return Some(json);
            }
        }
    }

    /// The same of the file that is being read; `None` after its last.
    pub(crate) fn next_here(&mut self) -> Option<Json> {
        loop {
            let (name, elements) = self.now.as_mut()?;
            let element = match elements.next() {
                Ok(Some(element)) => element,
                Ok(None) => {
                    self.now = None;
                    return None;
                }
                Err(error) => {
                    let name = std::mem::take(name);
                    self.now = None;
                    self.unreadable(&name, &error);
                    return None;
                }
            };
            self.number += 1;
            let bytes = match element {
                Element::Whole(bytes) => bytes,
                Element::TooLong(length) => {
                    let detail = format!("{length} bytes; the limit is {LINE_LIMIT}");
                    self.report.problem(self.number, ProblemKind::TooLong, &detail);
                    continue;
                }
                Element::Torn => {
                    self.report.problem(self.number, ProblemKind::Torn, "");
                    continue;
                }
                Element::NoList => {
                    self.report.problem(self.number, ProblemKind::NotAnEntry, "not a list of conversations");
                    continue;
                }
            };
            let text = String::from_utf8_lossy(&bytes);
            match Json::parse(&text) {
                Ok(json) if json.get().starts_with('{') => {
                    if let std::borrow::Cow::Owned(_) = text {
                        self.report.problem(self.number, ProblemKind::Encoding, "");
                    }
                    return Some(crate::intake::without_space(&json));
                }
                Ok(json) => self.report.problem(self.number, ProblemKind::NotAnEntry, json.get()),
                Err(error) => self.report.problem(self.number, ProblemKind::Malformed, &error.to_string()),
            }
        }
    }

    /// Bytes of all files that hold conversations.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is to be told of the export as a whole.
    pub(crate) fn end(&mut self) -> Report {
        self.files.end(&mut self.report);
        self.report.clone()
    }
}

struct Conversations {
    list: List,
    shape: &'static Shape,
    now: Option<(Json, Outline)>,
}

impl Sessions for Conversations {
    fn next(&mut self) -> Result<Option<Outline>, ArchiveError> {
        self.now = None;
        while let Some(json) = self.list.next() {
            let id = Members::of(json.get()).as_ref().and_then(self.shape.id);
            let Some(id) = id.filter(|id| !id.is_empty()) else {
                self.list.report.problem(self.list.number, ProblemKind::NotAnEntry, json.get());
                continue;
            };
            // Nobody writes to what was exported.
            let outline = Outline::alone(session_id(&id), Duration::MAX);
            self.now = Some((json, outline.clone()));
            return Ok(Some(outline));
        }
        Ok(None)
    }

    fn read(&mut self, sealer: &Sealer, out: &mut Placer) -> Result<(), Stop> {
        let Some((json, outline)) = &self.now else { return Ok(()) };
        out.report.bytes = json.get().len() as u64;
        let sealed = sealer.seal_json(json);
        out.report.sealed += u64::from(sealed != *json);
        let Some(members) = Members::of(sealed.get()) else { return Ok(()) };
        (self.shape.read)(&members, outline, &mut self.list.files, sealer, out)
    }

    fn bytes(&self) -> u64 {
        self.list.bytes()
    }

    fn end(&mut self) -> Option<Report> {
        Some(self.list.end())
    }
}

/// A name that the user or a model gave to a conversation, beside its messages.
pub(crate) fn title(out: &mut Placer, owner: usize, session: &str, title: Option<&str>) -> Result<(), Stop> {
    out.settle()?;
    out.begin_at_end(owner);
    let Some(title) = title.filter(|title| !title.is_empty()) else { return Ok(()) };
    let text = format!("{{\"type\":\"session_info\",\"name\":{}}}", quipu_dag::quoted(title));
    let mut hash = quipu_protocol::ChunkId(quipu_dag::sha256(title.as_bytes())).to_string();
    hash.truncate(16);
    let entry = Entry::Meta(Json::parse(&text).unwrap_or_default());
    let mut item = Item::new(format!("{session}.{hash}"), entry, 0);
    (item.owner, item.time, item.is_head) = (owner, Some(out.began(owner)), false);
    out.item(item)
}

/// A record that says nothing to a model, whole.
pub(crate) fn record(kind: &str, json: &Json) -> Entry {
    let text = format!("{{\"type\":{},\"{kind}\":{json}}}", quipu_dag::quoted(kind));
    Entry::Meta(Json::parse(&text).unwrap_or_default())
}

/// Seconds, which may have a fraction, as milliseconds; numbers too large for that are milliseconds already.
pub(crate) fn time_of_number(text: &str) -> Option<UnixMs> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)?;
    let ms = if number > 1e11 { number } else { number * 1e3 };
    // Beyond the calendar it is none.
    #[expect(clippy::cast_possible_truncation, reason = "it is far below the largest whole number here")]
    (ms < 2.5e14).then(|| ms.round() as UnixMs)
}

/// Why a file that begins as an archive cannot be read as one.
pub(crate) fn fault(path: &Path) -> Option<io::Error> {
    let file = crate::intake::open_file(path).ok().filter(zip::is_zip)?;
    zip::Zip::open(file).err()
}

/// How the files begin that hold conversations: of an archive each of them, else the file itself; none where that cannot be read.
pub(crate) fn starts(path: &Path, is_main: fn(&str) -> bool) -> Vec<String> {
    /// Bytes that tell what a file is.
    const START: u64 = 1 << 20;
    let Ok(mut files) = Files::open(path) else { return Vec::new() };
    let mut starts = Vec::new();
    for name in files.mains(is_main) {
        let mut start = Vec::new();
        let read = files.main(&name).and_then(|bytes| bytes.take(START).read_to_end(&mut start));
        if read.is_ok() || !start.is_empty() {
            starts.push(String::from_utf8_lossy(&start).into_owned());
        }
    }
    starts
}
