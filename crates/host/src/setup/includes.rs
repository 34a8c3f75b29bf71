//! `$include` of settings in JSON5: other files whose members stand where it stands.
//!
//! Objects are merged and lists joined; of all else the including file counts. Only files below the directory of the first one are
//! read, wherever links lead. What is broken is reported, and keeps nothing else from being taken.

use std::mem::take;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::entries::{Entry, entries_below, member_name};
use super::json5;

/// The member that names files.
pub(crate) const INCLUDE: &str = "$include";
/// Files within each other at most.
const DEPTH: usize = 10;
/// Files at most, and bytes of one of them and of all.
const FILES: usize = 256;
const FILE_BYTES: u64 = 2 << 20;
const ALL_BYTES: u64 = 16 << 20;

/// A file that could not be put in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IncludeProblem {
    /// Where it is named: the file, and the line, from 1.
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    /// The names of the object that names it, with dots between them; empty for the whole file.
    pub(crate) key: String,
    pub(crate) why: String,
}

/// The members of a file with those that it includes.
///
/// # Errors
/// What is wrong with the file itself, and in which line.
pub(super) fn with_includes(
    path: &Path,
    text: &str,
) -> Result<(Vec<Entry>, Vec<IncludeProblem>), (usize, String)> {
    let (_, entries, problems) = resolved(path, text)?;
    Ok((entries, problems))
}

/// The same as one value.
///
/// # Errors
/// What is wrong with the file itself.
pub(crate) fn whole_config(path: &Path, text: &str) -> Result<(Value, Vec<IncludeProblem>), String> {
    let plain = json5::plain(text);
    // Only the place: the words of the parser may quote what stands there.
    let bad = |line: usize| format!("it is not JSON (line {line}); nothing of it is taken");
    let value: Value = serde_json::from_str(&plain).map_err(|error| bad(error.line()))?;
    if !value.is_object() {
        return Err("it is not a JSON object; nothing of it is taken".to_owned());
    }
    if !has_include(&value) {
        return Ok((value, Vec::new()));
    }
    let (value, _, problems) =
        resolved(path, text).map_err(|(line, why)| format!("{why} (line {line}); nothing of it is taken"))?;
    Ok((value, problems))
}

/// Whether a file is named in a value.
pub(crate) fn has_include(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_include),
        Value::Object(members) => members.contains_key(INCLUDE) || members.values().any(has_include),
        _ => false,
    }
}

type ResolvedConfig = (Value, Vec<Entry>, Vec<IncludeProblem>);

fn resolved(path: &Path, text: &str) -> Result<ResolvedConfig, (usize, String)> {
    // Without an include it is read in one piece, and may be longer.
    if text.len() as u64 > FILE_BYTES && text.contains(INCLUDE) {
        return Err((1, "it includes files, and has more than 2 MiB itself".to_owned()));
    }
    let cannot = |error: std::io::Error| (1, format!("it cannot be read: {error}"));
    let real = path.canonicalize().map_err(cannot)?;
    // Of a link to a collection of settings the files beside the link are meant.
    let root = path.parent().unwrap_or(path).canonicalize().map_err(cannot)?;
    let mut reader = IncludeReader {
        main: path,
        root,
        left: super::entries::MOST,
        files: 0,
        bytes: 0,
        problems: Vec::new(),
    };
    let plain = json5::plain(text);
    // Nothing is what is left of a file whose writing broke off.
    if plain.trim().is_empty() {
        return Err((1, "it is empty".to_owned()));
    }
    let (own, entries) = entries_below(&plain, "", None, &mut reader.left)?;
    if !own.is_object() {
        return Err((1, "it is not a JSON object".to_owned()));
    }
    let (mut value, mut entries) = reader.object(&[real], "", entries);
    if !value.is_object() {
        let why = "what is included is not an object; nothing of it is taken".to_owned();
        reader.problems.push(IncludeProblem { file: path.to_owned(), line: 1, key: String::new(), why });
        (value, entries) = (Value::Object(Map::new()), Vec::new());
    }
    match reader.left {
        0 => Err((1, super::entries::too_many())),
        _ => Ok((value, entries, reader.problems)),
    }
}

struct IncludeReader<'a> {
    main: &'a Path,
    root: PathBuf,
    left: usize,
    files: usize,
    bytes: u64,
    problems: Vec<IncludeProblem>,
}

impl IncludeReader<'_> {
    /// The members of an object with what it includes: an object as well, or whatever stands for one without other members. Where
    /// something is missing, its value still has the `$include`, for whoever has to know that it is not whole. `chain` has the files
    /// that include each other, the one of the object last.
    fn object(&mut self, chain: &[PathBuf], above: &str, mut entries: Vec<Entry>) -> (Value, Vec<Entry>) {
        // Of members with one name the last one counts.
        for at in (0..entries.len()).rev() {
            if entries
                .iter()
                .skip(at + 1)
                .any(|later| Some(&later.key) == entries.get(at).map(|one| &one.key))
            {
                entries.remove(at);
            }
        }
        let (mut includes, own): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| member_name(&entry.key, above) == INCLUDE);
        let own: Vec<Entry> = own.into_iter().map(|entry| self.member(chain, entry)).collect();
        let own = (object_of(above, &own), own);
        let Some(include) = includes.pop() else { return own };
        let problems = self.problems.len();
        let mut sum: Option<(Value, Vec<Entry>)> = None;
        for path in paths(&include.value) {
            self.files += 1;
            // Of those behind the limit one is reported.
            if self.files > FILES + 1 {
                if self.problems.len() == problems {
                    let why = format!("there are more than {FILES} files; nothing of it is taken");
                    self.problem(&include, above, why);
                }
                break;
            }
            match path.and_then(|path| self.file(chain, above, path)) {
                Ok(next) => {
                    sum = Some(match sum {
                        Some(sum) => merged(above, sum, next),
                        None => next,
                    });
                }
                Err(why) => self.problem(&include, above, why),
            }
        }
        let mut all = match sum {
            None => own,
            Some(sum) if own.1.is_empty() => sum,
            Some(sum) if sum.0.is_object() => merged(above, sum, own),
            Some(_) => {
                let why = "what is included beside other members is not an object".to_owned();
                self.problem(&include, above, why);
                own
            }
        };
        if self.problems.len() > problems {
            match &mut all.0 {
                Value::Object(members) => drop(members.insert(INCLUDE.to_owned(), include.value)),
                // A list has an item that is none of its own.
                Value::Array(items) => items.push(json!({ INCLUDE: include.value })),
                _ => {}
            }
        }
        all
    }

    fn problem(&mut self, include: &Entry, above: &str, why: String) {
        let file = include.file.as_deref().unwrap_or(self.main).to_owned();
        self.problems.push(IncludeProblem { file, line: include.line, key: above.to_owned(), why });
    }

    fn member(&mut self, chain: &[PathBuf], mut entry: Entry) -> Entry {
        let value = take(&mut entry.value);
        if value.is_object() {
            let members = take(&mut entry.members);
            (entry.value, entry.members) = self.object(chain, &entry.key, members);
        } else {
            entry.value = self.items(chain, &entry, &entry.key, value);
        }
        entry
    }

    /// The items of a list with what they include.
    fn items(&mut self, chain: &[PathBuf], around: &Entry, key: &str, value: Value) -> Value {
        if !has_include(&value) {
            return value;
        }
        match value {
            Value::Array(items) => (0..)
                .zip(items)
                .map(|(at, item)| self.items(chain, around, &format!("{key}[{at}]"), item))
                .collect(),
            Value::Object(members) => {
                let entries = of_value(around, key, members);
                self.object(chain, key, entries).0
            }
            other => other,
        }
    }

    /// What a file says, with what that includes.
    fn file(&mut self, chain: &[PathBuf], above: &str, written: &str) -> Result<(Value, Vec<Entry>), String> {
        let fault = |why: &str| Err(format!("{written} {why}; nothing of it is taken"));
        if self.files > FILES {
            return fault(&format!("is one of more than {FILES} files"));
        }
        if chain.len() > DEPTH {
            return fault(&format!("would be more than {DEPTH} files within each other"));
        }
        let including = chain.last().filter(|_| chain.len() > 1);
        let from = including.and_then(|file| file.parent()).unwrap_or(&self.root);
        let real = match from.join(written).canonicalize() {
            Ok(real) => real,
            Err(error) => return fault(&format!("cannot be read: {error}")),
        };
        if !real.starts_with(&self.root) {
            return fault("is outside of the directory of openclaw.json");
        }
        if chain.contains(&real) {
            return fault("includes itself");
        }
        let bytes = match crate::bounded_file::read(&real, FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) => return fault(&format!("cannot be read: {}", error.in_words("2 MiB"))),
        };
        self.bytes += bytes.len() as u64;
        if self.bytes > ALL_BYTES {
            return fault("has more than 16 MiB together with the others");
        }
        let Ok(text) = String::from_utf8(bytes) else { return fault("is not text (UTF-8)") };
        let file: Rc<Path> = real.as_path().into();
        let plain = json5::plain(text.strip_prefix('\u{feff}').unwrap_or(&text));
        // What was in it is not known.
        if plain.trim().is_empty() {
            return fault("is empty");
        }
        let read = entries_below(&plain, above, Some(&file), &mut self.left);
        let (value, entries) = match read {
            Ok(read) => read,
            Err((line, _)) => return fault(&format!("is not valid JSON (line {line})")),
        };
        // A number or a depth that cannot be read would be null.
        if serde_json::from_str::<Value>(&plain).is_err() {
            return fault("has a value that cannot be read");
        }
        let chain: Vec<PathBuf> = chain.iter().cloned().chain([real]).collect();
        if value.is_object() {
            return Ok(self.object(&chain, above, entries));
        }
        let around = Entry {
            key: above.to_owned(),
            line: 1,
            file: Some(file),
            value: Value::Null,
            members: Vec::new(),
        };
        Ok((self.items(&chain, &around, above, value), Vec::new()))
    }
}

/// The files that are named.
fn paths(value: &Value) -> Vec<Result<&str, String>> {
    let text = |value: &'_ Value| value.as_str().is_some_and(|path| !path.is_empty() && !path.contains('\0'));
    let path = |value| match value {
        value if !text(value) => Err("it does not name a file; nothing is included".to_owned()),
        value => Ok(value.as_str().unwrap_or_default()),
    };
    match value {
        Value::Array(all) => all.iter().map(path).collect(),
        one => vec![path(one)],
    }
}

/// The second one put over the first one.
fn merged(above: &str, under: (Value, Vec<Entry>), over: (Value, Vec<Entry>)) -> (Value, Vec<Entry>) {
    let ((under, mut members), (over, more)) = (under, over);
    match (under, over) {
        (Value::Object(mut below), Value::Object(mut above_it)) => {
            // What one of them misses the whole misses.
            let missing = above_it.remove(INCLUDE).or_else(|| below.remove(INCLUDE));
            for entry in more {
                match members.iter_mut().find(|known| known.key == entry.key) {
                    Some(known) => {
                        let (value, inner) = merged(
                            &entry.key,
                            (take(&mut known.value), take(&mut known.members)),
                            (entry.value, entry.members),
                        );
                        *known = Entry {
                            key: entry.key,
                            line: entry.line,
                            file: entry.file,
                            value,
                            members: inner,
                        };
                    }
                    None => members.push(entry),
                }
            }
            let mut whole = object_of(above, &members);
            if let (Some(missing), Some(whole)) = (missing, whole.as_object_mut()) {
                whole.insert(INCLUDE.to_owned(), missing);
            }
            (whole, members)
        }
        (Value::Array(mut items), Value::Array(more)) => {
            items.extend(more);
            (Value::Array(items), Vec::new())
        }
        (_, over) => (over, more),
    }
}

fn object_of(above: &str, entries: &[Entry]) -> Value {
    let name = |entry: &Entry| member_name(&entry.key, above).to_owned();
    Value::Object(entries.iter().map(|entry| (name(entry), entry.value.clone())).collect())
}

/// Members of an object that stands in a list, all with the line of the list.
fn of_value(around: &Entry, above: &str, members: Map<String, Value>) -> Vec<Entry> {
    let entry = |(name, value): (String, Value)| {
        let key = if above.is_empty() { name } else { format!("{above}.{name}") };
        let members =
            value.as_object().cloned().map(|inner| of_value(around, &key, inner)).unwrap_or_default();
        Entry { key, line: around.line, file: around.file.clone(), value, members }
    };
    members.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Files(tempfile::TempDir);

    impl Files {
        fn of(files: &[(&str, &str)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in files {
                let path = dir.path().join("state").join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            Self(dir)
        }

        fn main(&self) -> PathBuf {
            self.0.path().join("state/openclaw.json")
        }

        fn read(&self) -> (Value, Vec<Entry>, Vec<IncludeProblem>) {
            let text = std::fs::read_to_string(self.main()).unwrap();
            let mut whole = whole_config(&self.main(), &text).unwrap();
            // Where the file itself misses something, no member says so.
            whole.0.as_object_mut().unwrap().remove(INCLUDE);
            let (entries, problems) = with_includes(&self.main(), &text).unwrap();
            assert_eq!((&object_of("", &entries), &problems), (&whole.0, &whole.1));
            (whole.0, entries, problems)
        }
    }

    #[test]
    fn includes_are_merged_below_what_includes_them() {
        let files = Files::of(&[
            (
                "openclaw.json",
                "{\n $include: ['./base.json5', 'parts/more.json5'],\n agents: { defaults: { model: 'own' }, list: [{ id: 'own' }, { $include: 'parts/ops.json5', name: 'x' }] },\n channels: { $include: './channels.json5' } }",
            ),
            (
                "base.json5",
                "{ tools: { deny: ['a'], profile: 'full' },\n agents: { defaults: { model: 'base', workspace: '/w' } } }",
            ),
            (
                "parts/more.json5",
                "{ tools: { deny: ['b'],\n profile: 'coding' }, agents: { list: { $include: 'list.json5' } } }",
            ),
            ("parts/list.json5", "[ { id: 'first' } ]"),
            ("parts/ops.json5", "{ id: 'ops', name: 'y', tools: { deny: ['exec'] } }"),
            ("channels.json5", "{ irc: {} }"),
        ]);
        let (value, entries, problems) = files.read();
        let expect = json!({
            "tools": { "deny": ["a", "b"], "profile": "coding" },
            "agents": {
                "defaults": { "model": "own", "workspace": "/w" },
                "list": [{ "id": "first" }, { "id": "own" }, { "id": "ops", "name": "x", "tools": { "deny": ["exec"] } }],
            },
            "channels": { "irc": {} },
        });
        assert_eq!((value, problems), (expect, vec![]));
        let profile = &entries[0].members[1];
        assert_eq!((profile.key.as_str(), profile.line), ("tools.profile", 2));
        assert!(profile.file.as_ref().unwrap().ends_with("parts/more.json5"));
        assert_eq!(entries[1].members[0].members[0].file, None, "the model is that of the first file");
    }

    #[test]
    fn broken_includes_are_told_and_keep_the_rest() {
        let files = Files::of(&[
            (
                "openclaw.json",
                "{ a: 1,\n b: { $include: 'gone.json5', own: 2 },\n c: { $include: '../outside.json5' },\n d: { $include: 'link.json5' },\n e: { $include: 'broken.json5' }, f: { $include: 'loop.json5' },\n g: { $include: 7 }, h: { x: 1, $include: 'list.json5' }, i: [ { $include: 'gone.json5', j: 1 } ] }",
            ),
            ("../outside.json5", "{ secret: 1 }"),
            ("broken.json5", "{ x: \n"),
            ("loop.json5", "{ x: 1, y: { $include: 'loop.json5' } }"),
            ("list.json5", "[1]"),
        ]);
        std::os::unix::fs::symlink("../outside.json5", files.0.path().join("state/link.json5")).unwrap();
        let (value, _, problems) = files.read();
        let expect = json!({
            "a": 1, "b": { "own": 2, "$include": "gone.json5" }, "c": { "$include": "../outside.json5" },
            "d": { "$include": "link.json5" }, "e": { "$include": "broken.json5" },
            "f": { "x": 1, "y": { "$include": "loop.json5" }, "$include": "loop.json5" }, "g": { "$include": 7 },
            "h": { "x": 1, "$include": "list.json5" }, "i": [{ "j": 1, "$include": "gone.json5" }],
        });
        assert_eq!(value, expect);
        let told: Vec<(&str, usize)> = problems.iter().map(|one| (one.key.as_str(), one.line)).collect();
        assert_eq!(
            told,
            [("b", 2), ("c", 3), ("d", 4), ("e", 5), ("f.y", 1), ("g", 6), ("h", 6), ("i[0]", 6)],
            "{problems:?}"
        );
        assert!(problems[4].file.ends_with("state/loop.json5"), "{problems:?}");
    }

    #[test]
    fn file_that_is_empty_or_no_object_is_refused() {
        for (text, why) in [
            ("", "it is empty"),
            (" // nothing\n", "it is empty"),
            ("[1]", "it is not a JSON object"),
            ("null", "it is not a JSON object"),
        ] {
            let files = Files::of(&[("openclaw.json", text)]);
            assert_eq!(with_includes(&files.main(), text).unwrap_err(), (1, why.to_owned()), "{text}");
        }
    }

    #[test]
    fn includes_are_bounded() {
        let chain: Vec<(String, String)> = (0..20)
            .map(|at| (format!("{at}.json5"), format!("{{ k{at}: 1, $include: '{}.json5' }}", at + 1)))
            .collect();
        let mut all = vec![("openclaw.json", "{ $include: '0.json5' }")];
        all.extend(chain.iter().map(|(name, text)| (name.as_str(), text.as_str())));
        let (value, _, problems) = Files::of(&all).read();
        assert_eq!((value.as_object().unwrap().len(), problems.len()), (DEPTH, 1));
        let wide = format!("{{ $include: [{}] }}", "'next.json5',".repeat(200));
        let files = [
            ("openclaw.json", wide.as_str()),
            ("next.json5", "{ $include: ['last.json5', 'last.json5'] }"),
            ("last.json5", "{ a: [1] }"),
        ];
        let (value, _, problems) = Files::of(&files).read();
        assert!(value["a"].as_array().unwrap().len() < FILES);
        assert!((1..=200).contains(&problems.len()), "{}", problems.len());
        // Also of paths that are none.
        let hollow = format!("{{ $include: [{}] }}", "0,".repeat(10_000));
        let (_, _, problems) = Files::of(&[("openclaw.json", &hollow)]).read();
        assert_eq!(problems.len(), FILES + 1);
        // Each object behind the limit is reported, and marked as one that misses something.
        let many: String = (0..300).map(|at| format!("k{at}: {{ $include: 'last.json5' }},")).collect();
        let files = [("openclaw.json", format!("{{ {many} }}")), ("last.json5", "{ a: 1 }".to_owned())];
        let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let (value, _, problems) = Files::of(&files).read();
        assert_eq!(problems.len(), 300 - FILES);
        assert!(value["k299"].get(INCLUDE).is_some() && value["k0"].get(INCLUDE).is_none());
    }
}
