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

    /// The hash of all that was read, and whether the file ends with a whole line.
    pub(super) fn end(self) -> (ChunkId, bool) {
        let hash = self.lines.into_inner().into_inner().hash;
        (ChunkId(hash.finalize().into()), self.whole)
    }
}
