//! The lines of a file, each sealed before anybody looks at it.

use std::fs::File;
use std::io::BufReader;
use std::io::{self, Seek as _, SeekFrom};
use std::sync::Arc;

use quipu_protocol::{ChunkId, Json};
use quipu_seal::Sealer;
use sha2::{Digest as _, Sha256};

use super::{LINE_LIMIT, Placer, Stop};
use crate::ahead::{Ahead, ReadyLines};
use crate::lines::{Content, Hashing, Line, Lines, Place, without_mark};
use crate::packed::{about, damage, is_packed};
use crate::stamp::sha_of_next;
use crate::{Problem, ProblemKind};

/// One line that is a JSON object.
pub(crate) struct Text {
    /// With its secrets sealed.
    pub(crate) json: Json,
    /// From 1.
    pub(crate) number: u64,
    /// Whether the line has its end; only the last may not.
    pub(crate) ended: bool,
}

/// A place between two lines.
#[derive(Clone, Default)]
pub(crate) struct At {
    pub(super) bytes: u64,
    /// Lines before it.
    pub(super) number: u64,
    /// Of all bytes before it.
    pub(super) hash: Sha256,
}

impl At {
    pub(super) fn sha256(&self) -> ChunkId {
        ChunkId(self.hash.clone().finalize().into())
    }

    /// The place behind the lines that follow it, up to so many bytes.
    pub(super) fn moved(mut self, file: &mut File, bytes: u64, number: u64) -> io::Result<Self> {
        file.seek(SeekFrom::Start(self.bytes))?;
        sha_of_next(file, bytes.saturating_sub(self.bytes), &mut self.hash)?;
        Ok(Self { bytes, number, ..self })
    }
}

/// Looks at the bytes of a line and names those that nobody needs.
pub(crate) type Skip = fn(&[u8]) -> Option<&'static str>;

type Reader = BufReader<Content>;

/// A line, parsed and sealed.
struct Made {
    place: Place,
    skipped: Option<&'static str>,
    problems: Vec<Problem>,
    /// With its secrets sealed, and whether there were any.
    json: Option<(Json, bool)>,
}

/// Reads lines; what is no JSON object is counted and passed by.
pub(crate) struct SealedLines {
    /// `None` when they are being made ready.
    lines: Option<Lines<Reader>>,
    ready: Option<ReadyLines<Reader, Made>>,
    ahead: Ahead,
    total: u64,
    sealer: Arc<Sealer>,
    /// Of the last line.
    number: u64,
    /// Whether the last line had its end.
    whole: bool,
    /// Bytes and lines up to the last that had one.
    ended: (u64, u64),
    /// Whether it is kept in memory how far the file was read.
    is_kept: bool,
}

/// What was read of a file.
pub(super) struct End {
    pub(super) hash: Sha256,
    /// Bytes and lines up to the last line that has its end.
    pub(super) ended: (u64, u64),
    /// Of the file as it lies there, packed where it is.
    pub(super) bytes: u64,
    /// Whether that is all, and ends with a whole line.
    pub(super) whole: bool,
}

impl SealedLines {
    /// `file` stands at its beginning and has about `total` bytes. It may be packed.
    pub(super) fn new(file: File, total: u64, sealer: Arc<Sealer>) -> Self {
        let total = if is_packed(&file) { about(total) } else { total };
        let reader = BufReader::with_capacity(128 << 10, Content::of(file));
        let lines = Some(Lines::new(reader, LINE_LIMIT));
        let (ahead, ended) = (Ahead::of(total), (0, 0));
        Self { lines, ready: None, ahead, total, sealer, number: 0, whole: true, ended, is_kept: false }
    }

    /// Reads on from a place, at which `file` stands; about `total` bytes are left.
    pub(super) fn after(at: &At, file: File, total: u64, sealer: Arc<Sealer>) -> Self {
        let content = Content::Plain(Hashing { file, hash: at.hash.clone(), bytes: at.bytes });
        let reader = BufReader::with_capacity(64 << 10, content);
        let lines = Some(Lines::after(reader, LINE_LIMIT, at.number, at.bytes, 0));
        let (number, ended) = (at.number, (at.bytes, at.number));
        let ahead = Ahead::of(total);
        Self { lines, ready: None, ahead, total, sealer, number, whole: true, ended, is_kept: true }
    }

    /// From now on it is kept in memory how far the file was read.
    pub(super) fn keep(&mut self) {
        self.is_kept = self.lines.as_ref().is_some_and(Lines::is_plain);
    }

    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// What seals.
    pub(crate) fn sealer(&self) -> &Arc<Sealer> {
        &self.sealer
    }

    /// Bytes of all lines, about.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The next object; `None` at the end. `skip` is the same each time.
    pub(crate) fn next(&mut self, out: &mut Placer, skip: Skip) -> Result<Option<Text>, Stop> {
        if let Some(lines) = self.lines.take() {
            let sealer = Arc::clone(&self.sealer);
            let make = move |line: &Line<'_>| Made::of(line, skip, &sealer);
            self.ready = Some(ReadyLines::new(lines, self.ahead, make));
        }
        let Some(lines) = &mut self.ready else { return Ok(None) };
        loop {
            let Made { place, skipped, problems, json } = match lines.next() {
                Ok(Some(made)) => made,
                Ok(None) => return Ok(None),
                Err(error) => return self.torn(error, out).map(|()| None),
            };
            self.number = place.number;
            self.whole = place.ended;
            if place.ended {
                self.ended = (place.end(), place.number);
            }
            out.report.bytes = place.end();
            if let Some(kind) = skipped {
                out.report.skip(kind);
            }
            for problem in problems {
                out.report.problem(problem.line, problem.kind, &problem.detail);
            }
            if let Some((json, was_sealed)) = json {
                out.report.sealed += u64::from(was_sealed);
                return Ok(Some(Text { json, number: place.number, ended: place.ended }));
            }
        }
    }

    /// What is packed ends before its end, which is told; any other fault stops the import.
    fn torn(&mut self, error: std::io::Error, out: &mut Placer) -> Result<(), Stop> {
        let Some(why) = damage(&error) else { return Err(Stop::Io(error)) };
        out.report.problem(self.number + 1, ProblemKind::Damaged, &why);
        self.whole = false;
        Ok(())
    }

    /// Whether the file is one value on many lines, as programs write it for people. Asked before anything is read.
    pub(crate) fn is_document(&mut self) -> Result<bool, Stop> {
        let Some(lines) = &mut self.lines else { return Ok(false) };
        let start = without_mark(lines.peek().map_err(Stop::Io)?);
        Ok(matches!(start, [b'{', b'\n' | b'\r', ..]))
    }

    /// Whether the file begins with these bytes. Asked before anything is read.
    pub(crate) fn begin_with(&mut self, start: &[u8]) -> Result<bool, Stop> {
        let Some(lines) = &mut self.lines else { return Ok(false) };
        Ok(without_mark(lines.peek().map_err(Stop::Io)?).starts_with(start))
    }

    /// All that is left as one object; `None` when it is none, which is told.
    pub(crate) fn document(&mut self, out: &mut Placer) -> Result<Option<Text>, Stop> {
        let mut whole: Vec<u8> = Vec::new();
        let mut length = 0;
        self.whole = false;
        let Some(lines) = &mut self.lines else { return Ok(None) };
        loop {
            let line = match lines.next() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(error) => return self.torn(error, out).map(|()| None),
            };
            out.report.bytes = line.place.end();
            length += line.place.length + 1;
            if length > LINE_LIMIT as u64 {
                whole = Vec::new();
                continue;
            }
            whole.extend_from_slice(line.bytes);
            whole.push(b'\n');
        }
        if length > LINE_LIMIT as u64 {
            let detail = format!("{length} bytes; the limit is {LINE_LIMIT}");
            out.report.problem(1, ProblemKind::TooLong, &detail);
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&whole);
        let json = match Json::parse(&text) {
            Ok(json) if json.get().starts_with('{') => json,
            Ok(json) => {
                out.report.problem(1, ProblemKind::NotAnEntry, json.get());
                return Ok(None);
            }
            Err(error) => {
                let kind = if error.is_eof() { ProblemKind::Torn } else { ProblemKind::Malformed };
                out.report.problem(error.line() as u64, kind, &error.to_string());
                return Ok(None);
            }
        };
        if let std::borrow::Cow::Owned(_) = text {
            out.report.problem(1, ProblemKind::Encoding, "");
        }
        self.whole = true;
        let json = without_space(&json);
        let sealed = self.sealer.seal_json(&json);
        out.report.sealed += u64::from(sealed != json);
        Ok(Some(Text { json: sealed, number: 1, ended: true }))
    }

    /// A text from elsewhere, with its secrets sealed.
    pub(crate) fn seal(&self, text: &str) -> String {
        self.sealer.seal(text).into_owned()
    }

    pub(super) fn end(self) -> End {
        let reader = self.lines.map(Lines::into_inner).or_else(|| self.ready.map(ReadyLines::into_inner));
        let file = reader.map(|reader| reader.into_inner().into_inner());
        let (hash, bytes) = file.map(|Hashing { hash, bytes, .. }| (hash, bytes)).unwrap_or_default();
        End { hash, ended: self.ended, bytes, whole: self.whole }
    }
}

impl End {
    pub(super) fn sha256(&self) -> ChunkId {
        ChunkId(self.hash.clone().finalize().into())
    }
}

impl Lines<Reader> {
    /// Whether the file is not packed.
    fn is_plain(&self) -> bool {
        matches!(self.inner().get_ref(), Content::Plain(_))
    }
}

impl Made {
    fn of(line: &Line<'_>, skip: Skip, sealer: &Sealer) -> Self {
        let place = line.place;
        let skipped = if line.is_too_long() { None } else { skip(line.bytes) };
        if skipped.is_some() {
            return Self { place, skipped, problems: Vec::new(), json: None };
        }
        let (json, problems) = line.object();
        let json = json.map(|json| {
            let sealed = sealer.seal_json(&json);
            let was_sealed = sealed != json;
            (sealed, was_sealed)
        });
        Self { place, skipped, problems, json }
    }
}

/// The value in one line, so that what is kept of it verbatim does not depend on how it was laid out.
pub(crate) fn without_space(json: &Json) -> Json {
    let mut out = String::with_capacity(json.get().len());
    let (mut is_string, mut is_escaped) = (false, false);
    for letter in json.get().chars() {
        if is_string || !letter.is_ascii_whitespace() {
            out.push(letter);
        }
        match letter {
            '"' if !is_escaped => is_string = !is_string,
            '\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            _ => {}
        }
        is_escaped = false;
    }
    Json::parse(&out).unwrap_or_default()
}
