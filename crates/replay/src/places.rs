//! What differs between two machines by nature: paths, times, ids. Replaced before recordings are compared.

use std::path::{Path, PathBuf};

use quipu_protocol::Json;

const OPEN: char = '⟦';
const WORKSPACE: &str = "⟦workspace⟧";
const UNITS: [&str; 12] =
    ["ns", "us", "µs", "ms", "s", "sec", "secs", "second", "seconds", "min", "minute", "minutes"];

/// Directories whose names say something of this machine and nothing of the work.
///
/// `docs/recording.md` lists what is replaced by what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// The directory that the session works in; absolute, without links.
    pub workspace: PathBuf,
    /// The user's own directory.
    pub home: Option<PathBuf>,
    /// Directories for temporary files.
    pub temporary: Vec<PathBuf>,
}

impl Places {
    /// The places of this process, for a session that works in `workspace`: `HOME`, `TMPDIR`, `/tmp`, `/var/tmp`.
    pub fn of(workspace: impl Into<PathBuf>) -> Self {
        let mut temporary = vec![std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()];
        temporary.extend(temporary.clone().iter().filter_map(|path| path.canonicalize().ok()));
        // A longer name may lie below a shorter one.
        temporary.sort_by_key(|path| std::cmp::Reverse(path.as_os_str().len()));
        temporary.dedup();
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        Self { workspace: workspace.into(), home, temporary }
    }

    /// The text with everything replaced that may differ by nature. Doing it twice changes nothing more.
    pub(crate) fn comparable(&self, text: &str) -> String {
        let mut text = replace_outputs(text);
        if let Some(workspace) = name(&self.workspace) {
            text = replace_path(&text, workspace, |_| Some((0, WORKSPACE)));
        }
        for place in self.temporary.iter().filter_map(|path| name(path)) {
            text = replace_path(&text, place, |rest| {
                let first = component(rest)?;
                // Confined commands have a directory of their own there; what matters is in it.
                let second = component(&rest[first..]).filter(|_| rest.starts_with("/quipu-"));
                Some((first + second.unwrap_or(0), "⟦tmp⟧"))
            });
        }
        if let Some(home) = self.home.as_deref().and_then(name) {
            text = replace_path(&text, home, |_| Some((0, "⟦home⟧")));
        }
        replace_times(&replace_ids(&text))
    }

    /// The text without the workspace's own path, so that it can be said again in another. [`Self::here`] is the
    /// way back.
    pub(crate) fn portable(&self, text: &str) -> String {
        let text = text.replace(OPEN, "⟦⟦");
        match name(&self.workspace) {
            Some(workspace) => replace_path(&text, workspace, |_| Some((0, WORKSPACE))),
            None => text,
        }
    }

    /// What [`Self::portable`] gave, in this workspace.
    pub(crate) fn here(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(OPEN) {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix(WORKSPACE) {
                out.push_str(&self.workspace.to_string_lossy());
                rest = after;
                continue;
            }
            let after = &rest[OPEN.len_utf8()..];
            rest = after.strip_prefix(OPEN).unwrap_or(after);
            out.push(OPEN);
        }
        out.push_str(rest);
        out
    }

    /// [`Self::portable`] for every string in a JSON text.
    pub(crate) fn portable_json(&self, json: &Json) -> Json {
        map_strings(json, |text| self.portable(text))
    }

    /// [`Self::here`] for every string in a JSON text.
    pub(crate) fn here_json(&self, json: &Json) -> Json {
        map_strings(json, |text| self.here(text))
    }
}

/// A path that can be told apart from the rest of a text: not `/`, and text itself.
fn name(path: &Path) -> Option<&str> {
    path.to_str().filter(|path| path.len() > 1 && path.starts_with('/'))
}

/// Characters of file names that go on when one of them ends a path that was found.
fn in_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '~' | '@')
}

/// The length of `/name` at the beginning of a text.
fn component(text: &str) -> Option<usize> {
    let name = text.strip_prefix('/')?;
    let length = name.find(|c| !in_name(c)).unwrap_or(name.len());
    (length > 0).then_some(1 + length)
}

/// Replaces each place where `path` stands as a whole. `by` sees what follows and says how much of it goes too and
/// what comes instead.
fn replace_path(text: &str, path: &str, by: impl Fn(&str) -> Option<(usize, &'static str)>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for (at, _) in text.match_indices(path) {
        let end = at + path.len();
        if at < copied || !begins(&text[..at]) || !ends(&text[end..]) {
            continue;
        }
        let Some((more, instead)) = by(&text[end..]) else { continue };
        out.push_str(&text[copied..at]);
        out.push_str(instead);
        copied = end + more;
    }
    out.push_str(&text[copied..]);
    out
}

/// Whether a path can begin behind this: not in the middle of another one or of what stands for one, except behind a
/// flag such as `-I`.
fn begins(before: &str) -> bool {
    if before.ends_with('⟧') {
        return false;
    }
    let word = before.trim_end_matches(in_name);
    let last = &before[word.len()..];
    last.is_empty() || (last.starts_with('-') && !word.ends_with(['/', '⟧']))
}

/// Whether a path can end before this. A full stop belongs to the sentence unless a name goes on behind it.
fn ends(after: &str) -> bool {
    let mut rest = after.chars();
    match rest.next() {
        Some('.') => !rest.next().is_some_and(in_name),
        Some(c) => !in_name(c),
        None => true,
    }
}

/// Files that hold the whole of a long output have names by chance.
fn replace_outputs(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("/quipu-bash-") {
        let tail = &rest[at + "/quipu-bash-".len()..];
        let chance = tail.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(tail.len());
        let Some(after) = tail[chance..].strip_prefix(".log").filter(|_| chance > 0) else {
            let (done, more) = rest.split_at(at + 1);
            out.push_str(done);
            rest = more;
            continue;
        };
        let start = rest[..at]
            .rfind(|c: char| c.is_whitespace() || c == '"')
            .map_or(0, |space| space + rest[space..].chars().next().map_or(1, char::len_utf8));
        out.push_str(&rest[..start]);
        out.push_str("⟦output⟧");
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Ids of sealed secrets depend on the machine's key.
fn replace_ids(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("[REDACTED:") {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        let end = found.find(']').unwrap_or(found.len());
        let id = found[..end].rfind(':').map_or(end, |colon| colon + 1);
        let is_id =
            end < found.len() && end - id == 8 && found[id..end].bytes().all(|b| b.is_ascii_hexdigit());
        if is_id {
            out.push_str(&found[..id]);
            out.push_str("⟦id⟧");
            rest = &found[end..];
        } else {
            out.push_str("[REDACTED:");
            rest = &found["[REDACTED:".len()..];
        }
    }
    out.push_str(rest);
    out
}

/// Points in time and durations.
fn replace_times(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        let inside = out.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'));
        let known = match inside {
            true => None,
            false => point(found)
                .map(|end| (end, "⟦time⟧"))
                .or_else(|| duration(found).map(|end| (end, "⟦duration⟧"))),
        };
        let end = known.map_or_else(|| digits(found), |(end, _)| end);
        out.push_str(known.map_or(&found[..end], |(_, instead)| instead));
        rest = &found[end..];
    }
    out.push_str(rest);
    out
}

/// How many digits a text begins with.
fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// The length of a form at the beginning of a text: `0` stands for a digit.
fn form(text: &str, form: &str) -> Option<usize> {
    let fits = |(is, wanted): (u8, u8)| if wanted == b'0' { is.is_ascii_digit() } else { is == wanted };
    (text.len() >= form.len() && text.bytes().zip(form.bytes()).all(fits)).then_some(form.len())
}

/// A number with a fraction.
fn number(text: &str) -> Option<usize> {
    let whole = Some(digits(text)).filter(|count| *count > 0)?;
    let part = text[whole..].strip_prefix('.').map_or(0, digits);
    Some(if part > 0 { whole + 1 + part } else { whole })
}

/// A time of day with seconds, or a date with a time.
fn point(text: &str) -> Option<usize> {
    let date = form(text, "0000-00-00T").or_else(|| form(text, "0000-00-00 ")).unwrap_or(0);
    let mut end =
        date + form(&text[date..], "00:00").filter(|_| date > 0 || form(text, "00:00:00").is_some())?;
    if form(&text[end..], ":00").is_some() {
        end += ":00".len();
        let part = text[end..].strip_prefix('.').map_or(0, digits);
        end += if part > 0 { 1 + part } else { 0 };
    }
    if date > 0 {
        let rest = &text[end..];
        let zone = ["Z", "+00:00", "-00:00", "+0000", "-0000"].iter().find_map(|zone| form(rest, zone));
        end += zone.unwrap_or(0);
    }
    boundary(&text[end..]).then_some(end)
}

fn duration(text: &str) -> Option<usize> {
    let first = number(text)?;
    // As the shell's `time` says it: 0m0.003s.
    if let Some(rest) = text[first..].strip_prefix('m')
        && let Some(second) = number(rest)
        && let Some(after) = rest[second..].strip_prefix('s')
        && boundary(after)
    {
        return Some(text.len() - after.len());
    }
    let rest = text[first..].strip_prefix(' ').unwrap_or(&text[first..]);
    let unit = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
    UNITS.contains(&&rest[..unit]).then_some(text.len() - rest.len() + unit)
}

fn boundary(rest: &str) -> bool {
    !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Changes strings, names of members too, and leaves every other byte as it is.
fn map_strings(json: &Json, map: impl Fn(&str) -> String) -> Json {
    let text = json.get();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('"') {
        out.push_str(&rest[..at]);
        let mut escaped = false;
        let length = rest[at + 1..].bytes().position(|b| {
            let end = b == b'"' && !escaped;
            escaped = b == b'\\' && !escaped;
            end
        });
        let Some(length) = length else { break };
        let end = at + length + 2;
        let literal = &rest[at..end];
        // A string with lone surrogates is no text; it stays as it is.
        let changed = serde_json::from_str::<String>(literal).ok().and_then(|plain| {
            let mapped = map(&plain);
            (mapped != plain).then(|| serde_json::to_string(&mapped).ok()).flatten()
        });
        out.push_str(changed.as_deref().unwrap_or(literal));
        rest = &rest[end..];
    }
    out.push_str(rest);
    Json::parse(&out).unwrap_or_else(|_| json.clone())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places() -> Places {
        Places {
            workspace: "/src".into(),
            home: Some("/home/me".into()),
            temporary: vec!["/var/tmp".into(), "/tmp".into()],
        }
    }

    #[test]
    fn volatile_values_are_replaced() {
        let check = |text: &str, expect: &str| assert_eq!(places().comparable(text), expect, "{text}");
        check(
            "/src /src/a '/src' -I/src/x file:///src.",
            "⟦workspace⟧ ⟦workspace⟧/a '⟦workspace⟧' -I⟦workspace⟧/x file://⟦workspace⟧.",
        );
        check("/usr/src /srcs /src.old /a-/src", "/usr/src /srcs /src.old /a-/src");
        check("0s-/src 0s -I/src", "⟦duration⟧-/src ⟦duration⟧ -I⟦workspace⟧");
        check("/home/me/x /home/meg", "⟦home⟧/x /home/meg");
        check("/tmp/tmp.AbC/x /var/tmp/y /tmp /tmp/", "⟦tmp⟧/x ⟦tmp⟧ /tmp /tmp/");
        check("/tmp/quipu-AbC/tmp.XyZ/x /tmp/quipu-AbC/ /tmp/quipu-AbC", "⟦tmp⟧/x ⟦tmp⟧/ ⟦tmp⟧");
        check("[Full output: /home/me/.quipu/outputs/quipu-bash-a1B2.log]", "[Full output: ⟦output⟧]");
        check("quipu-bash-a.log /quipu-bash-.log", "quipu-bash-a.log /quipu-bash-.log");
        check("[REDACTED:github:0badcafe] [REDACTED:x", "[REDACTED:github:⟦id⟧] [REDACTED:x");
        check("in 0.03s, 12 ms; 5 seconds 3µs", "in ⟦duration⟧, ⟦duration⟧; ⟦duration⟧ ⟦duration⟧");
        check("real\t0m0.003s 7 sheep 10 20 v1.2s", "real\t⟦duration⟧ 7 sheep 10 20 v1.2s");
        check("2026-11-20T08:59:27.123Z 2026-11-20 08:59 12:34:56", "⟦time⟧ ⟦time⟧ ⟦time⟧");
        check("2026-11-20 12:34 12:3 12:34:567", "⟦time⟧ 12:3 12:34:567");
        check("expected 180, got 190", "expected 180, got 190");
        assert_eq!(Places::default().comparable("/ a"), "/ a");
    }

    #[test]
    fn strings_of_json_are_changed_and_nothing_else() {
        let json = Json::parse(r#"{ "b":1.0, "a" : "\/src/x", "\ud800/src":"/src⟦" }"#).unwrap();
        let portable = places().portable_json(&json);
        assert_eq!(portable.get(), r#"{ "b":1.0, "a" : "⟦workspace⟧/x", "\ud800/src":"⟦workspace⟧⟦⟦" }"#);
        let there = Places { workspace: "/a\"b".into(), ..Places::default() };
        assert_eq!(
            there.here_json(&portable).get(),
            r#"{ "b":1.0, "a" : "/a\"b/x", "\ud800/src":"/a\"b⟦" }"#
        );
    }

    proptest! {
        #[test]
        fn comparing_twice_is_comparing_once(text in "([0-9:.smTZ -]|/src|/tmp|/home/me|⟦|\\[REDACTED:k:0badcafe\\]|\\PC){0,40}") {
            let once = places().comparable(&text);
            prop_assert_eq!(places().comparable(&once), once);
        }

        #[test]
        fn placeholders_round_trip(text in "(/src|⟦workspace⟧|⟦|/|a|\\PC){0,20}") {
            prop_assert_eq!(places().here(&places().portable(&text)), text);
        }
    }
}
