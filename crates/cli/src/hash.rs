//! `quipu hash`: the graph's hash of JSON values.

use std::io::{BufRead, Read as _, Write as _};

use crate::args::HashArgs;
use crate::exit::Failure;

/// Bytes of one line at most.
const LINE_LIMIT: u64 = 256 << 20;

pub(crate) fn run(args: &HashArgs) -> Result<(), Failure> {
    let mut stdin = std::io::BufReader::new(crate::console::stdin());
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if !args.jsonl {
        let mut bytes = Vec::new();
        if stdin.take(LINE_LIMIT + 1).read_to_end(&mut bytes)? as u64 > LINE_LIMIT {
            return Err(Failure::failed(format!("stdin: longer than the limit of {LINE_LIMIT} bytes")));
        }
        writeln!(out, "{}", hash(&bytes).map_err(|why| Failure::failed(format!("stdin: {why}")))?)?;
        return Ok(out.flush()?);
    }
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        if stdin.by_ref().take(LINE_LIMIT + 1).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.len() as u64 > LINE_LIMIT {
            out.flush()?;
            return Err(Failure::failed(format!(
                "line {number}: longer than the limit of {LINE_LIMIT} bytes"
            )));
        }
        // What was read before is written before the error is told.
        match hash(&line) {
            Ok(hash) => writeln!(out, "{hash}")?,
            Err(why) => {
                out.flush()?;
                return Err(Failure::failed(format!("line {number}: {why}")));
            }
        }
        // Answer at once when the writer waits for it.
        if stdin.buffer().is_empty() {
            out.flush()?;
        }
    }
    Ok(out.flush()?)
}

fn hash(bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))?;
    let hash = quipu_dag::hash_json(text.trim_matches([' ', '\t', '\r', '\n']))
        .map_err(|error| error.to_string())?;
    Ok(quipu_protocol::BlobId(hash).to_string())
}
