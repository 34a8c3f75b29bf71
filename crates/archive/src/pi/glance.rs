//! The end of a large file, read before the file is: what the next request to a model is made of.
//!
//! The lines are looked at, not parsed: kind, id and parent of each give the path to the last entry, and the last
//! compaction on it says where the context begins. What stands there, and what changes settings before it, is a file of its
//! own, a small one, which is imported like any other. A file that is in any way unusual is not looked at further: whoever
//! asks then waits until it was read as a whole.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Seek as _, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use memchr::memchr2;
use quipu_protocol::{Json, NodeId, SessionId};
use quipu_seal::Sealer;
use quipu_store::Store;

use super::header::Header;
use super::import::{Before, ImportOptions, move_main, take};
use super::{LINE_LIMIT, VERSION};
use crate::ArchiveError;
use crate::ahead::{Ahead, ReadyLines};
use crate::batches::off_the_runtime;
use crate::intake::open_file;
use crate::lines::{self, Lines};
use crate::tree::Key;

/// Files of fewer bytes are read before it would be worth the while.
pub(super) const LARGE: u64 = 4 << 20;
/// Bytes of the end at most; and it is no more than a quarter of the file.
const MOST: u64 = 16 << 20;

/// What an entry can mean for the next request, as far as its kind says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Header,
    Model,
    Thinking,
    Compaction,
    Other,
}

/// What is looked at of a line. Places are in the line.
#[derive(Debug)]
struct Shape {
    kind: Kind,
    id: Range<usize>,
    key: Key,
    /// `None` for `null`.
    parent: Option<Key>,
    /// The value of `parentId`.
    parent_at: Range<usize>,
    /// What a compaction says is kept.
    kept: Option<Key>,
}

/// An entry of the file.
struct Entry {
    offset: u64,
    length: usize,
    parent: Option<usize>,
    kind: Kind,
    kept: Option<Key>,
}

/// What was cut out of a file.
struct End {
    text: Vec<u8>,
    entries: u64,
}

/// The session of a file's header, which must be of the newest version and the first line.
fn header(line: &[u8]) -> Option<Header> {
    let header = Header::of(&Json::parse(std::str::from_utf8(line).ok()?).ok()?)?;
    (header.version == VERSION).then_some(header)
}

/// The session of a file, when its header is as usual.
pub(super) async fn session_of(path: &Path) -> Result<Option<SessionId>, ArchiveError> {
    let file = open_file(path)?;
    off_the_runtime(move || {
        let mut lines = Lines::new(BufReader::new(file), LINE_LIMIT);
        let line = lines.next().ok().flatten()?;
        Some(header(line.bytes)?.session)
    })
    .await
}

/// Puts the end of a file into a store of its own, and gives its last node. `None` where that is not worth the while, or
/// the file is unusual.
pub(super) async fn end_of(
    path: &Path,
    aside: &Arc<dyn Store>,
    sealer: &Arc<Sealer>,
) -> Result<Option<NodeId>, ArchiveError> {
    let file = open_file(path)?;
    let cut = off_the_runtime(move || {
        let end = cut(&file)?;
        // It has no name, so that it is gone with the process.
        let mut small = tempfile::tempfile().ok()?;
        small.write_all(&end.text).ok()?;
        small.rewind().ok()?;
        Some((small, end.entries))
    });
    let Some((small, entries)) = cut.await? else { return Ok(None) };
    let options = ImportOptions { dry_run: false, progress: &|_| {} };
    let taken = take(aside, sealer, small, path, Before::default(), &options).await?;
    let report = &taken.report;
    if report.added != entries || report.lost + report.repaired + report.changed > 0 || !taken.whole {
        return Ok(None);
    }
    move_main(&**aside, &report.session, taken.last, None).await.map(Some)
}

/// The end of a file. `None` where it is unusual, cannot be read, or where what is needed of it is a large part of it.
fn cut(file: &File) -> Option<End> {
    let size = file.metadata().ok()?.len();
    let mut lines = Lines::new(BufReader::with_capacity(1 << 20, file.try_clone().ok()?), LINE_LIMIT);
    let first = lines.next().ok()??;
    header(first.bytes).filter(|_| first.place.ended)?;
    let mut text = [first.bytes, b"\n"].concat();
    let mut lines = ReadyLines::new(lines, Ahead::of(size), |line: &lines::Line<'_>| {
        (line.place, if line.is_too_long() { None } else { shape(line.bytes) })
    });
    let mut entries: Vec<Entry> = Vec::new();
    let mut places: HashMap<Key, usize> = HashMap::new();
    while let Some((place, shape)) = lines.next().ok()? {
        let shape = shape.filter(|shape| place.ended && shape.kind != Kind::Header)?;
        // Each id once, and each entry behind the one that it follows: so nothing is astray, and nothing goes in a circle.
        let parent = match shape.parent {
            Some(parent) => Some(*places.get(&parent)?),
            None => None,
        };
        if places.insert(shape.key, entries.len()).is_some() {
            return None;
        }
        let length = usize::try_from(place.length).ok()?;
        entries.push(Entry { offset: place.offset, length, parent, kind: shape.kind, kept: shape.kept });
    }
    let mut path = Vec::new();
    let mut at = entries.len().checked_sub(1);
    while let Some(entry) = at {
        path.push(entry);
        at = entries.get(entry)?.parent;
    }
    path.reverse();
    let begin = begin_of(&path, &entries, &places)?;
    let is_needed = |(place, entry): (usize, &Entry)| {
        place >= begin || matches!(entry.kind, Kind::Model | Kind::Thinking)
    };
    let path: Vec<&Entry> = path.iter().filter_map(|at| entries.get(*at)).collect();
    let needed = path.iter().enumerate().filter(|(place, entry)| is_needed((*place, entry)));
    let needed: Vec<&Entry> = needed.map(|(_, entry)| *entry).collect();
    let bytes: u64 = needed.iter().map(|entry| entry.length as u64).sum();
    if bytes > MOST.min(size / 4) {
        return None;
    }
    let mut before = b"null".to_vec();
    for entry in &needed {
        let mut line = vec![0; entry.length];
        file.read_exact_at(&mut line, entry.offset).ok()?;
        let Shape { id, parent_at, .. } = shape(&line)?;
        text.extend_from_slice(line.get(..parent_at.start)?);
        text.extend_from_slice(&before);
        text.extend_from_slice(line.get(parent_at.end..)?);
        text.push(b'\n');
        before = line.get(id)?.to_vec();
    }
    Some(End { text, entries: needed.len() as u64 })
}

/// The place on the path from which on the context is made: what the last compaction keeps, or itself.
fn begin_of(path: &[usize], entries: &[Entry], places: &HashMap<Key, usize>) -> Option<usize> {
    let kind = |at: &usize| entries.get(*at).map(|entry| entry.kind);
    let Some(compaction) = path.iter().rposition(|at| kind(at) == Some(Kind::Compaction)) else {
        return Some(0);
    };
    // Else an answer says which model is asked, and that may stand anywhere before it.
    if !path.iter().any(|at| kind(at) == Some(Kind::Model)) {
        return None;
    }
    let kept = path.get(compaction).and_then(|at| entries.get(*at)?.kept);
    let Some(kept) = kept.and_then(|kept| places.get(&kept)) else { return Some(compaction) };
    let begin = path.iter().position(|at| at == kept).filter(|begin| *begin <= compaction)?;
    // What an earlier one keeps would be needed as well.
    let between = path.get(begin..compaction)?;
    between.iter().all(|at| kind(at) != Some(Kind::Compaction)).then_some(begin)
}

/// What a line says of its place; `None` for one that is not as Pi writes it. Its values are not checked.
fn shape(line: &[u8]) -> Option<Shape> {
    let text = |at: &Range<usize>| std::str::from_utf8(line.get(at.start + 1..at.end - 1)?).ok();
    let (mut kind, mut id, mut parent_at, mut kept) = (None, None, None, None);
    members(line, |name, value| {
        let slot = match name {
            b"type" => &mut kind,
            b"id" => &mut id,
            b"parentId" => &mut parent_at,
            b"firstKeptEntryId" => &mut kept,
            _ => return true,
        };
        slot.replace(value).is_none()
    })?;
    let string = |at: &Range<usize>| {
        let value = line.get(at.clone())?;
        // One with an escape can be spelled in many ways.
        (value.first() == Some(&b'"') && memchr::memchr(b'\\', value).is_none()).then(|| text(at)).flatten()
    };
    let kind = match string(&kind?)? {
        "session" => Kind::Header,
        "model_change" => Kind::Model,
        "thinking_level_change" => Kind::Thinking,
        "compaction" => Kind::Compaction,
        _ => Kind::Other,
    };
    let id = id?;
    let key = Key::of(string(&id)?);
    let parent_at = parent_at?;
    let parent = match line.get(parent_at.clone())? {
        b"null" => None,
        _ => Some(Key::of(string(&parent_at)?)),
    };
    let kept = match kept.filter(|_| kind == Kind::Compaction) {
        Some(kept) => Some(Key::of(string(&kept)?)),
        None => None,
    };
    Some(Shape { kind, id, key, parent, parent_at, kept })
}

/// Goes through the members of an object, the whole of a line. Names must have no escapes; `see` says whether to go on.
fn members(line: &[u8], mut see: impl FnMut(&[u8], Range<usize>) -> bool) -> Option<()> {
    let blank = |mut at: usize| {
        while let Some(b' ' | b'\t' | b'\r') = line.get(at) {
            at += 1;
        }
        at
    };
    let expect = |at: usize, byte: u8| (line.get(at) == Some(&byte)).then(|| blank(at + 1));
    let mut at = expect(blank(0), b'{')?;
    loop {
        let end = string_end(line, at)?;
        let name = line.get(at + 1..end - 1).filter(|name| memchr::memchr(b'\\', name).is_none())?;
        at = expect(blank(end), b':')?;
        let end = value_end(line, at)?;
        if !see(name, at..end) {
            return None;
        }
        at = blank(end);
        match line.get(at)? {
            b',' => at = blank(at + 1),
            b'}' => return (blank(at + 1) == line.len()).then_some(()),
            _ => return None,
        }
    }
}

/// Where a string ends that begins here.
fn string_end(line: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin + 1;
    if line.get(begin) != Some(&b'"') {
        return None;
    }
    loop {
        at += memchr2(b'"', b'\\', line.get(at..)?)?;
        match line.get(at)? {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

/// Where a value ends that begins here.
fn value_end(line: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin;
    let mut depth = 0_usize;
    loop {
        match line.get(at)? {
            b'"' => at = string_end(line, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
                continue;
            }
            b'}' | b']' if depth > 0 => {
                depth -= 1;
                at += 1;
            }
            b',' | b'}' | b']' if depth == 0 => return (at > begin).then_some(at),
            _ => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-02T03:04:05.678Z","cwd":"/p"}"#;

    fn line(kind: &str, id: &str, parent: &str, more: &str) -> String {
        let parent = if parent.is_empty() { "null".to_owned() } else { format!("\"{parent}\"") };
        format!(r#"{{"type":"{kind}","id":"{id}","parentId":{parent}{more}}}"#)
    }

    fn message(id: &str, parent: &str) -> String {
        let text = "x\\\"}],{".repeat(100);
        line(
            "message",
            id,
            parent,
            &format!(r#","message":{{"role":"user","content":[{{"text":"{text}"}}]}}"#),
        )
    }

    /// A path of `count` messages behind a model; every 20th is followed by a compaction that keeps four.
    fn lines(count: usize) -> Vec<String> {
        let mut lines = vec![
            HEADER.to_owned(),
            line("model_change", "m", "", ""),
            line("thinking_level_change", "t", "m", ""),
        ];
        let mut parent = "t".to_owned();
        for n in 0..count {
            let own = format!("a{n}");
            lines.push(message(&own, &parent));
            parent = own;
            if n % 20 == 19 {
                let own = format!("c{n}");
                let kept = format!(r#","firstKeptEntryId":"a{}","summary":"s""#, n - 3);
                lines.push(line("compaction", &own, &parent, &kept));
                parent = own;
            }
        }
        lines
    }

    fn cut_of(text: &str) -> Option<Vec<String>> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        let end = cut(&file)?;
        let lines: Vec<String> = String::from_utf8(end.text).unwrap().lines().map(str::to_owned).collect();
        assert_eq!(lines.len() as u64, end.entries + 1);
        Some(lines)
    }

    fn cut_lines(lines: &[String]) -> Option<Vec<String>> {
        cut_of(&format!("{}\n", lines.join("\n")))
    }

    fn ids(lines: &[String]) -> Vec<String> {
        let ids = lines.iter().skip(1).map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            format!("{} {}", value["id"].as_str().unwrap(), value["parentId"].as_str().unwrap_or("-"))
        });
        ids.collect()
    }

    #[test]
    fn the_end_is_what_the_last_compaction_keeps_and_what_came_after() {
        let lines = lines(102);
        let cut = cut_lines(&lines).unwrap();
        assert_eq!(cut[0], HEADER);
        let expect =
            ["m -", "t m", "a96 t", "a97 a96", "a98 a97", "a99 a98", "c99 a99", "a100 c99", "a101 a100"];
        assert_eq!(ids(&cut), expect);
        // What follows each other already is as it was.
        assert_eq!(cut[4], lines[lines.len() - 6]);
    }

    #[test]
    fn members_may_stand_in_any_order_and_other_branches_are_left_out() {
        let mut lines = lines(100);
        lines.push(message("other", "a3"));
        lines.push(
            r#" { "message" : {"id":"no","parentId":[1]} , "parentId":"c99" ,"id":"b","type":"message"}"#
                .into(),
        );
        let cut = cut_lines(&lines).unwrap();
        assert_eq!(ids(&cut).last().unwrap(), "b c99");
        assert!(cut.iter().all(|line| !line.contains("other")));
    }

    #[test]
    fn what_a_compaction_says_it_keeps_may_be_nothing() {
        for kept in [r#","firstKeptEntryId":"gone""#, r#","firstKeptEntryId":"z""#, ""] {
            let mut lines = lines(100);
            lines.push(line("compaction", "z", "c99", kept));
            lines.push(message("last", "z"));
            assert_eq!(ids(&cut_lines(&lines).unwrap()), ["m -", "t m", "z t", "last z"], "{kept}");
        }
    }

    #[test]
    fn an_unusual_file_has_no_end() {
        let usual = lines(100);
        assert!(cut_lines(&usual).is_some());
        let odd = |change: &dyn Fn(&mut Vec<String>)| {
            let mut lines = usual.clone();
            change(&mut lines);
            assert!(cut_lines(&lines).is_none(), "{:?}", lines.last());
        };
        odd(&|lines| lines.push(message("a5", "c99")));
        odd(&|lines| lines.push(message("x", "x")));
        odd(&|lines| lines.push(message("x", "nobody")));
        odd(&|lines| lines.push(String::new()));
        odd(&|lines| lines.push(r#"{"type":"message","id":"x","parentId":"c99""#.into()));
        odd(&|lines| lines.push(r#"{"type":"message","id":"x","parentId":"c99"} {}"#.into()));
        odd(&|lines| lines.push(r#"{"type":"message","id":"x"}"#.into()));
        odd(&|lines| lines.push(r#"{"type":"message","parentId":"c99"}"#.into()));
        odd(&|lines| lines.push(r#"{"type":"message","id":"x\u0031","parentId":"c99"}"#.into()));
        odd(&|lines| lines.push(r#"{"type":"message","i\u0064":"x","id":"y","parentId":"c99"}"#.into()));
        odd(&|lines| lines.push(r#"{"type":"message","id":"x","id":"y","parentId":"c99"}"#.into()));
        odd(&|lines| lines.push(r#"{"type":"message","id":7,"parentId":"c99"}"#.into()));
        odd(&|lines| lines.push("[]".into()));
        odd(&|lines| lines.push(HEADER.into()));
        odd(&|lines| lines.swap(10, 11));
        odd(&|lines| lines[0] = HEADER.replace(":3,", ":2,"));
        odd(&|lines| {
            lines.remove(0);
        });
        // No model is named, or the context is most of the file.
        odd(&|lines| lines[1] = line("custom", "m", "", ""));
        odd(&|lines| lines.retain(|line| !line.contains("firstKept")));
        // What is kept is on another branch, or begins before another compaction.
        odd(&|lines| {
            lines.push(message("b", "a3"));
            lines.push(line("compaction", "z", "c99", r#","firstKeptEntryId":"b""#));
        });
        odd(&|lines| lines.push(line("compaction", "z", "c99", r#","firstKeptEntryId":"a70""#)));
        // The last line has no end, the file holds nothing, or no entry.
        assert!(cut_of(&usual.join("\n")).is_none());
        assert!(cut_of("").is_none());
        assert!(cut_of(&format!("{HEADER}\n")).is_some_and(|cut| cut.len() == 1));
    }
}
