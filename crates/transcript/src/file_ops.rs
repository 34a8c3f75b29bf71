//! What a tool call does to files, derived from its arguments: for our own tools and for those of other programs. The
//! arguments do not show what a command changes, except for a patch inside it. Where the states of files before and after a
//! call are known, they show what it changed.

use quipu_dag::Value;
use quipu_protocol::{FileChange, FileState};

/// Bytes of a path at most; a longer one is none.
const LONGEST_PATH: usize = 4_096;
/// The number of file operations of one call at most.
const MOST_FILE_OPS: usize = 512;
/// Members that name a file.
const PATHS: [&str; 6] = ["path", "file_path", "filePath", "notebook_path", "filename", "file"];
/// The line before which a patch does not begin.
const PATCH: &str = "*** Begin Patch";

/// What a call does to one file, by its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOp {
    /// The file as the call names it, with the directory that the call says it works in.
    pub path: String,
    /// What it does.
    pub kind: FileOpKind,
    /// The texts that it puts in place of others; of a [`FileOpKind::Write`] one, the whole content.
    pub changes: Vec<Change>,
}

/// A kind of operation on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileOpKind {
    /// It is read.
    Read,
    /// Its whole content is written.
    Write,
    /// Parts of it are changed.
    Edit,
    /// It is removed.
    Remove,
}

/// A text in place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What stood there; empty where that is not known.
    pub old: String,
    /// What stands there now.
    pub new: String,
    /// Whether both are whole lines.
    pub lines: bool,
}

/// The file operations of a call of this tool with these arguments, if it succeeds.
pub fn file_ops(tool: &str, arguments: &str) -> Vec<FileOp> {
    let Ok(arguments) = Value::parse(arguments) else { return Vec::new() };
    let tool = tool.to_ascii_lowercase();
    let text = |names: &[&str]| names.iter().find_map(|name| string(&arguments, name));
    let base = text(&["workdir", "working_directory", "cwd"]);
    let mut found = match text(&PATHS) {
        Some(path) => of_file(&tool, path, &arguments).into_iter().collect(),
        None => {
            let said = text(&["input", "patch", "patchText", "command", "cmd"]).or_else(|| words(&arguments));
            match said {
                Some(said) if said.contains(PATCH) => of_patch(&said),
                Some(said) if is_shell(&tool) => of_command(&said),
                Some(_) | None => Vec::new(),
            }
        }
    };
    found.retain(|op| !op.path.is_empty() && op.path.len() <= LONGEST_PATH);
    found.truncate(MOST_FILE_OPS);
    if let Some(base) = base.filter(|base| !base.is_empty()) {
        for op in &mut found {
            if !op.path.starts_with(['/', '~']) {
                op.path = format!("{base}/{}", op.path);
            }
        }
    }
    found
}

/// The file operations of a finished call, by absolute paths. Reads come from the arguments of a successful call. Changes come
/// from the states before and after the call, whether it succeeded or not; without such states, from the arguments.
pub fn performed_file_ops(
    cwd: &str,
    tool: &str,
    arguments: &str,
    has_failed: bool,
    states: &[FileChange],
) -> Vec<(String, FileOpKind)> {
    let named = file_ops(tool, arguments);
    let is_change = |op: &&FileOp| op.kind != FileOpKind::Read;
    // A call that names one file says itself what kind of change it is.
    let mut changing = named.iter().filter(is_change);
    let only = changing.next().filter(|_| changing.next().is_none()).map(|op| op.kind);
    let said = named.iter().filter(|op| !has_failed && (states.is_empty() || !is_change(op)));
    let mut done: Vec<_> = said.map(|op| (absolute_path(cwd, &op.path), op.kind)).collect();
    done.extend(states.iter().filter(|change| change.is_of_file()).map(|change| {
        let kind = match (&change.before, &change.after) {
            (_, FileState::Absent | FileState::Directory { .. }) => FileOpKind::Remove,
            (FileState::Absent | FileState::Directory { .. }, _) if only != Some(FileOpKind::Edit) => {
                FileOpKind::Write
            }
            _ => only.filter(|kind| *kind != FileOpKind::Remove).unwrap_or(FileOpKind::Edit),
        };
        (absolute_path(cwd, &change.path), kind)
    }));
    done
}

/// The absolute path of `path` for somebody in `cwd`, without `.` and `..`; links are not followed. A path in the home
/// directory begins with `~/`.
pub fn absolute_path(cwd: &str, path: &str) -> String {
    let path = path.strip_prefix("file://").unwrap_or(path);
    let path = path.strip_prefix('@').unwrap_or(path);
    let whole = if path.starts_with('/') || path == "~" || path.starts_with("~/") {
        path.to_owned()
    } else {
        format!("{cwd}/{path}")
    };
    let home = whole.starts_with('~');
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    if home { parts.join("/") } else { format!("/{}", parts.join("/")) }
}

fn string(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_text().map(|text| text.to_string_lossy().into_owned())
}

/// A command that is given as a list of words: the script of a shell, else all of them.
fn words(arguments: &Value) -> Option<String> {
    let Some(Value::Array(items)) = arguments.get("command").or_else(|| arguments.get("cmd")) else {
        return None;
    };
    let words: Vec<String> =
        items.iter().filter_map(|item| Some(item.as_text()?.to_string_lossy().into_owned())).collect();
    match words.as_slice() {
        [_, flag, script] if flag.starts_with('-') && flag.ends_with('c') => Some(script.clone()),
        _ => Some(words.join(" ")),
    }
}

fn is_shell(tool: &str) -> bool {
    ["bash", "shell", "exec", "terminal", "command"].iter().any(|word| tool.contains(word))
}

fn of_file(tool: &str, path: String, arguments: &Value) -> Option<FileOp> {
    let text = |value: &Value, names: &[&str]| names.iter().find_map(|name| string(value, name));
    let change = |value: &Value| {
        let old = text(value, &["oldText", "old_string", "oldString", "old_str"])?;
        let new = text(value, &["newText", "new_string", "newString", "new_str"])?;
        Some(Change { old, new, lines: false })
    };
    let mut changes: Vec<Change> = match arguments.get("edits") {
        Some(Value::Array(edits)) => edits.iter().filter_map(change).collect(),
        // Some models write the list as a text.
        Some(Value::String(edits)) => match Value::parse(&edits.to_string_lossy()) {
            Ok(Value::Array(edits)) => edits.iter().filter_map(change).collect(),
            Ok(_) | Err(_) => Vec::new(),
        },
        Some(_) | None => Vec::new(),
    };
    changes.extend(change(arguments));
    let inserted = text(arguments, &["insert_text", "new_source"]);
    changes.extend(inserted.map(|new| Change { old: String::new(), new, lines: true }));
    if !changes.is_empty() {
        return Some(FileOp { path, kind: FileOpKind::Edit, changes });
    }
    let writes = ["write", "create", "edit", "save"].iter().any(|word| tool.contains(word));
    if let Some(new) = text(arguments, &["content", "file_text", "contents"])
        && writes
    {
        let changes = vec![Change { old: String::new(), new, lines: true }];
        return Some(FileOp { path, kind: FileOpKind::Write, changes });
    }
    let looks = string(arguments, "command").is_some_and(|command| command == "view");
    let reads = looks || ["read", "view", "cat", "open"].iter().any(|word| tool.starts_with(word));
    reads.then_some(FileOp { path, kind: FileOpKind::Read, changes: Vec::new() })
}

/// Files of a patch in the form `*** Update File: PATH`, with lines that begin with a space, `+` or `-`.
fn of_patch(text: &str) -> Vec<FileOp> {
    let mut found: Vec<FileOp> = Vec::new();
    let Some(begin) = text.find(PATCH) else { return found };
    // Both sides of the part that is read.
    let (mut old, mut new) = (String::new(), String::new());
    let flush = |found: &mut Vec<FileOp>, old: &mut String, new: &mut String| {
        let (old, new) = (std::mem::take(old), std::mem::take(new));
        if let Some(op) = found.last_mut()
            && old != new
        {
            op.changes.push(Change { old, new, lines: true });
        }
    };
    for line in text[begin..].lines().skip(1) {
        let header = line.strip_prefix("*** ").and_then(|rest| rest.split_once(": "));
        if let Some((what, path)) = header {
            flush(&mut found, &mut old, &mut new);
            let path = path.trim().to_owned();
            let kind = match what {
                "Add File" => FileOpKind::Write,
                "Update File" => FileOpKind::Edit,
                "Delete File" => FileOpKind::Remove,
                "Move to" => {
                    // What is changed is changed under the new name.
                    if let Some(moved) = found.last_mut() {
                        moved.kind = FileOpKind::Remove;
                    }
                    FileOpKind::Edit
                }
                _ => continue,
            };
            found.push(FileOp { path, kind, changes: Vec::new() });
        } else if line.starts_with("*** End Patch") {
            break;
        } else if line.starts_with("@@") || line.starts_with("*** ") {
            flush(&mut found, &mut old, &mut new);
        } else if let Some(added) = line.strip_prefix('+') {
            new.push_str(added);
            new.push('\n');
        } else if let Some(removed) = line.strip_prefix('-') {
            old.push_str(removed);
            old.push('\n');
        } else {
            let same = line.strip_prefix(' ').unwrap_or(line);
            for side in [&mut old, &mut new] {
                side.push_str(same);
                side.push('\n');
            }
        }
    }
    flush(&mut found, &mut old, &mut new);
    found
}

/// Files that a command shows: those of `cat`, `head`, `tail`, `nl` and `sed -n`. A word that the shell would change is
/// no file here.
fn of_command(command: &str) -> Vec<FileOp> {
    let mut found = Vec::new();
    for part in command.split(['\n', ';', '|', '&']) {
        let mut words = part.split_whitespace();
        let script = match words.next() {
            Some("cat" | "head" | "tail" | "nl") => false,
            Some("sed") if part.split_whitespace().nth(1) == Some("-n") => true,
            Some(_) | None => continue,
        };
        let mut skip = usize::from(script);
        let mut number = false;
        for word in words {
            if std::mem::take(&mut number) {
                continue;
            }
            if word.starts_with('-') {
                // `-n 20`: what follows is a number.
                number = !script && word.len() == 2 && matches!(word, "-n" | "-c");
                continue;
            }
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let word = word.trim_matches(['"', '\'']);
            if word.contains(['*', '?', '$', '`', '<', '>', '(', '{', '"', '\'']) {
                break;
            }
            found.push(FileOp { path: word.to_owned(), kind: FileOpKind::Read, changes: Vec::new() });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(tool: &str, arguments: &serde_json::Value) -> Vec<String> {
        let word = |op: FileOp| {
            let changes: Vec<String> =
                op.changes.iter().map(|change| format!("{:?}>{:?}", change.old, change.new)).collect();
            format!("{:?} {} {}", op.kind, op.path, changes.join(" ")).trim_end().to_owned()
        };
        file_ops(tool, &arguments.to_string()).into_iter().map(word).collect()
    }

    #[test]
    fn calls_of_many_programs() {
        use serde_json::json;
        let check = |tool: &str, arguments: serde_json::Value, expect: &[&str]| {
            assert_eq!(short(tool, &arguments), expect, "{tool} {arguments}");
        };
        check("read", json!({ "path": "a.rs" }), &["Read a.rs"]);
        check("write", json!({ "path": "a", "content": "x\n" }), &["Write a \"\">\"x\\n\""]);
        check(
            "edit",
            json!({ "path": "a", "edits": [{ "oldText": "x", "newText": "y" }, { "oldText": "z", "newText": "" }] }),
            &["Edit a \"x\">\"y\" \"z\">\"\""],
        );
        check("edit", json!({ "path": "a", "oldText": "x", "newText": "y" }), &["Edit a \"x\">\"y\""]);
        check("Read", json!({ "file_path": "/a", "offset": 3 }), &["Read /a"]);
        check(
            "Edit",
            json!({ "file_path": "/a", "old_string": "x", "new_string": "y" }),
            &["Edit /a \"x\">\"y\""],
        );
        check(
            "MultiEdit",
            json!({ "file_path": "/a", "edits": [{ "old_string": "x", "new_string": "y" }] }),
            &["Edit /a \"x\">\"y\""],
        );
        check("NotebookEdit", json!({ "notebook_path": "/a", "new_source": "y" }), &["Edit /a \"\">\"y\""]);
        check("Write", json!({ "file_path": "/a", "content": "" }), &["Write /a \"\">\"\""]);
        check("write", json!({ "filePath": "/a", "content": "c" }), &["Write /a \"\">\"c\""]);
        check(
            "edit",
            json!({ "filePath": "/a", "oldString": "x", "newString": "y" }),
            &["Edit /a \"x\">\"y\""],
        );
        let patch = "*** Begin Patch\n*** Update File: a\n@@ fn\n same\n-x\n+y\n@@\n-p\n+q\n*** Add File: b\n+new\n\
                     *** Delete File: c\n*** Update File: d\n*** Move to: e\n-1\n+2\n*** End Patch\nafter";
        let expect = [
            "Edit a \"same\\nx\\n\">\"same\\ny\\n\" \"p\\n\">\"q\\n\"",
            "Write b \"\">\"new\\n\"",
            "Remove c",
            "Remove d",
            "Edit e \"1\\n\">\"2\\n\"",
        ];
        check("apply_patch", json!({ "input": patch }), &expect);
        check("patch", json!({ "patchText": patch }), &expect);
        check(
            "shell",
            json!({ "command": ["bash", "-lc", format!("apply_patch <<'E'\n{patch}\nE")] }),
            &expect,
        );
        check(
            "exec_command",
            json!({ "cmd": "cat a 'b' | head -n 3; sed -n 1,9p c", "workdir": "/w" }),
            &["Read /w/a", "Read /w/b", "Read /w/c"],
        );
        check("bash", json!({ "command": "cat <<E > x\nE\ncat $HOME/y; cat *.rs" }), &[]);
        check("ls", json!({ "path": "src" }), &[]);
        check("grep", json!({ "path": "src", "pattern": "x" }), &[]);
        check("read", json!({ "path": "x".repeat(5_000) }), &[]);
        check("read", json!([1]), &[]);
        assert_eq!(file_ops("read", "no json"), []);
    }

    #[test]
    fn states_override_call_arguments() {
        use quipu_protocol::Unknown::TooLarge;
        let there = |size| FileState::Unknown { why: TooLarge, size: Some(size) };
        let change = |path: &str, before, after| FileChange { path: path.into(), before, after };
        let made = change("a", FileState::Absent, there(1));
        let changed = change("sub/b", there(1), there(2));
        let gone = change("/else/c", there(1), FileState::Absent);
        let check = |tool: &str, arguments: &str, failed: bool, states: &[FileChange], expect: &[&str]| {
            let done = performed_file_ops("/w", tool, arguments, failed, states);
            let done: Vec<String> = done.iter().map(|(path, kind)| format!("{kind:?} {path}")).collect();
            assert_eq!(done, expect, "{tool} {arguments}");
        };
        let all = [made.clone(), changed.clone(), gone];
        let bash = r#"{"command":"cat x"}"#;
        check("bash", bash, false, &all, &["Read /w/x", "Write /w/a", "Edit /w/sub/b", "Remove /else/c"]);
        check("bash", bash, true, &all, &["Write /w/a", "Edit /w/sub/b", "Remove /else/c"]);
        let write = r#"{"path":"sub/b","content":"x"}"#;
        check("write", write, false, std::slice::from_ref(&changed), &["Write /w/sub/b"]);
        check("write", write, true, std::slice::from_ref(&changed), &["Write /w/sub/b"]);
        check("write", write, true, &[], &[]);
        check("write", write, false, &[], &["Write /w/sub/b"]);
        let edit = r#"{"path":"sub/b","oldText":"x","newText":"y"}"#;
        check("edit", edit, false, &[changed], &["Edit /w/sub/b"]);
        check("edit", edit, false, &[made], &["Edit /w/a"]);
        let directory = || FileState::Directory { mode: 0o755 };
        let states = [
            change("new", FileState::Absent, directory()),
            change("was", there(1), directory()),
            change("is", directory(), there(1)),
        ];
        check("bash", bash, true, &states, &["Remove /w/was", "Write /w/is"]);
    }

    #[test]
    fn paths_are_absolute() {
        for (cwd, path, expect) in [
            ("/w", "a/./b/../c", "/w/a/c"),
            ("/w", "../../../a", "/a"),
            ("/w", "/x//y/", "/x/y"),
            ("/w", "~/x/../y", "~/y"),
            ("/w", "file:///x", "/x"),
            ("/w", "@a", "/w/a"),
            ("", "a", "/a"),
        ] {
            assert_eq!(absolute_path(cwd, path), expect);
        }
    }
}
