//! The lines of a file, each sealed before anybody looks at it.

use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;

use quipu_protocol::{ChunkId, Json};
use quipu_seal::Sealer;
use sha2::{Digest as _, Sha256};

use super::{LINE_LIMIT, Placer, Stop};
use crate::ProblemKind;
use crate::lines::{Hashing, Lines};

/// One line that is a JSON object.
pub(crate) struct Text {
    /// With its secrets sealed.
    pub(crate) json: Json,
    /// From 1.
    pub(crate) number: u64,
}

/// Reads lines; what is no JSON object is counted and passed by.
pub(crate) struct SealedLines {
    lines: Lines<BufReader<Hashing>>,
    sealer: Arc<Sealer>,
    /// Whether the last line had its end.
    whole: bool,
}

impl SealedLines {
    /// `file` stands at its beginning.
    pub(super) fn new(file: File, sealer: Arc<Sealer>) -> Self {
        let reader = BufReader::with_capacity(1 << 20, Hashing { file, hash: Sha256::new() });
        Self { lines: Lines::new(reader, LINE_LIMIT), sealer, whole: true }
    }

    /// The next object; `None` at the end. `skip` looks at the bytes of a line and names those that nobody needs.
    pub(crate) fn next(
        &mut self,
        out: &mut Placer,
        skip: impl Fn(&[u8]) -> Option<&'static str>,
    ) -> Result<Option<Text>, Stop> {
        loop {
            let Some(line) = self.lines.next().map_err(Stop::Io)? else { return Ok(None) };
            self.whole = line.ended;
            out.report.bytes = line.offset + line.length + u64::from(line.ended);
            if line.is_too_long() {
                let detail = format!("{} bytes, and {LINE_LIMIT} are the limit", line.length);
                out.report.problem(line.number, ProblemKind::TooLong, &detail);
                continue;
            }
            if let Some(kind) = skip(line.bytes) {
                out.report.skip(kind);
                continue;
            }
            let Some(json) = line.json(&mut out.report) else { continue };
            if !json.get().starts_with('{') {
                out.report.problem(line.number, ProblemKind::NotAnEntry, json.get());
                continue;
            }
            let sealed = self.sealer.seal_json(&json);
            out.report.sealed += u64::from(sealed != json);
            return Ok(Some(Text { json: sealed, number: line.number }));
        }
    }

    /// Whether the file is one value on many lines, as programs write it for people. Asked before anything is read.
    pub(crate) fn is_document(&mut self) -> Result<bool, Stop> {
        let start = self.lines.peek().map_err(Stop::Io)?.trim_ascii_start();
        Ok(matches!(start, [b'{', b'\n' | b'\r', ..]))
    }

    /// All that is left as one object; `None` when it is none, which is told.
    pub(crate) fn document(&mut self, out: &mut Placer) -> Result<Option<Text>, Stop> {
        let mut whole: Vec<u8> = Vec::new();
        let mut length = 0;
        self.whole = false;
        while let Some(line) = self.lines.next().map_err(Stop::Io)? {
            out.report.bytes = line.offset + line.length + u64::from(line.ended);
            length += line.length + 1;
            if length > LINE_LIMIT as u64 {
                whole = Vec::new();
                continue;
            }
            whole.extend_from_slice(line.bytes);
            whole.push(b'\n');
        }
        if length > LINE_LIMIT as u64 {
            let detail = format!("{length} bytes, and {LINE_LIMIT} are the limit");
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
        Ok(Some(Text { json: sealed, number: 1 }))
    }

    /// A text from elsewhere, with its secrets sealed.
    pub(crate) fn seal(&self, text: &str) -> String {
        self.sealer.seal(text).into_owned()
    }

    /// The hash of all that was read, and whether the file ends with a whole line.
    pub(super) fn end(self) -> (ChunkId, bool) {
        let hash = self.lines.into_inner().into_inner().hash;
        (ChunkId(hash.finalize().into()), self.whole)
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
