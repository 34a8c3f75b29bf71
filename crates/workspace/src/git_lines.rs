//! Which commit each line of a file comes from, and what the messages of these commits say.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::git::{Git, GitError};

/// How long git may take for one file.
const LONGEST: Duration = Duration::from_secs(10);
/// Bytes that git may print beyond the content of the file, and of all messages together.
const OUTPUT: u64 = 16 << 20;
/// Commits whose messages are read, the first that lines name.
const COMMITS: usize = 2_000;
/// Bytes of a message.
const MESSAGE: usize = 64 << 10;
/// Values of a trailer in one message.
const VALUES: usize = 64;
/// Characters of a value.
const VALUE: usize = 200;

/// The lines of a file by their commits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommittedLines {
    /// For each line its commit, as a place in `commits`; `None` for a line that is in no commit.
    pub lines: Vec<Option<usize>>,
    /// The commits.
    pub commits: Vec<LineCommit>,
    /// Whether there are more commits than are read: lines of the others have none.
    pub is_cut: bool,
}

/// A commit that lines come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineCommit {
    /// Its id, in hexadecimal digits.
    pub id: String,
    /// When it was made, in milliseconds since 1970; `None` where it does not say.
    pub at: Option<i64>,
    /// What stands behind the key in lines of the message, wherever they are; at most 64.
    pub values: Vec<String>,
    /// Whether there are more.
    pub is_cut: bool,
}

/// Asks git which commit each line of `content` comes from, where that is the file at `path`, and reads lines of the form
/// `KEY: VALUE` from the messages of these commits: of a trailer, or of one that a squash put into the body. `None` when the
/// file is in no repository, or in no commit of it.
///
/// # Errors
/// [`GitError`], also where git takes longer than ten seconds or prints more than 16 MiB beyond the content.
pub fn committed_lines(
    path: &Path,
    content: &str,
    key: &str,
    cancel: &CancellationToken,
) -> Result<Option<CommittedLines>, GitError> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    if !directory.ancestors().any(|above| above.join(".git").symlink_metadata().is_ok()) {
        return Ok(None);
    }
    let git = Git::reading(directory, cancel).within(LONGEST);
    // What settings say of conversions, and of commits to be left out, does not count. No file of such commits is opened.
    let mut arguments: Vec<&std::ffi::OsStr> =
        ["blame", "--porcelain", "--no-textconv", "--no-ignore-revs-file", "--contents", "-", "--"]
            .map(std::ffi::OsStr::new)
            .to_vec();
    arguments.push(name);
    let blamed = git
        .clone()
        .up_to(OUTPUT + 2 * content.len() as u64)
        .run_with(&arguments, content.as_bytes().to_vec());
    let blamed = match blamed {
        Ok(blamed) => blamed,
        Err(GitError::Failed { complaint, .. }) if is_no_fault(&complaint) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut found = lines(&blamed);
    let wanted: String = found.commits.iter().map(|commit| commit.id.clone() + "\n").collect();
    let messages = git.up_to(OUTPUT).run_with(&["cat-file", "--batch"], wanted.into_bytes())?;
    let mut rest = messages.as_slice();
    for commit in &mut found.commits {
        let Some(object) = next_object(&mut rest) else { break };
        (commit.values, commit.is_cut) = values(object, key);
        commit.at = time(object);
    }
    Ok(Some(found))
}

/// Whether git says no more than that the file, or everything, is in no commit, or that there is no repository.
fn is_no_fault(complaint: &str) -> bool {
    ["no such path", "no such ref", "not a git repository", "bad revision 'HEAD'", "outside repository"]
        .iter()
        .any(|text| complaint.contains(text))
}

/// The commits of the lines, as `--porcelain` prints them.
fn lines(output: &[u8]) -> CommittedLines {
    let mut found = CommittedLines::default();
    let mut places: HashMap<&[u8], Option<usize>> = HashMap::new();
    let mut current = None;
    let mut is_header = true;
    for line in output.split(|byte| *byte == b'\n') {
        if line.first() == Some(&b'\t') {
            found.lines.push(current);
            is_header = true;
            continue;
        }
        if !is_header {
            continue;
        }
        is_header = false;
        let Some(id) = line.split(|byte| *byte == b' ').next().filter(|id| is_id(id)) else { continue };
        current = match places.get(id) {
            Some(place) => *place,
            // Lines that are in no commit have this one.
            None if id.iter().all(|digit| *digit == b'0') => None,
            None if found.commits.len() == COMMITS => {
                found.is_cut = true;
                None
            }
            None => {
                let id = String::from_utf8_lossy(id).into_owned();
                found.commits.push(LineCommit { id, ..LineCommit::default() });
                Some(found.commits.len() - 1)
            }
        };
        places.insert(id, current);
    }
    found
}

fn is_id(text: &[u8]) -> bool {
    matches!(text.len(), 40 | 64) && text.iter().all(u8::is_ascii_hexdigit)
}

/// Takes one object from what `cat-file --batch` prints; nothing of one that is missing.
fn next_object<'a>(output: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = output.iter().position(|byte| *byte == b'\n')?;
    let (head, rest) = output.split_at(end);
    let rest = &rest[1..];
    let mut words = head.split(|byte| *byte == b' ').skip(1);
    if words.next() != Some(b"commit") {
        *output = rest;
        return Some(&[]);
    }
    let size: usize = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let object = rest.get(..size)?;
    *output = rest.get(size + 1..)?;
    Some(object)
}

/// When a commit was made, by its head.
fn time(commit: &[u8]) -> Option<i64> {
    let mut head = commit.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    let committer = head.find_map(|line| line.strip_prefix(b"committer "))?;
    let seconds = committer.rsplit(|byte| *byte == b' ').nth(1)?;
    std::str::from_utf8(seconds).ok()?.parse::<i64>().ok()?.checked_mul(1_000)
}

/// The values of a key in the message of a commit, and whether there are more.
fn values(commit: &[u8], key: &str) -> (Vec<String>, bool) {
    let message = match memchr::memmem::find(commit, b"\n\n") {
        Some(at) => &commit[at..],
        None => commit,
    };
    let is_long = message.len() > MESSAGE;
    let message = &message[..message.len().min(MESSAGE)];
    let of_line = |line: &[u8]| {
        let line = line.trim_ascii();
        let (name, value) = line.split_at_checked(key.len())?;
        let value = value.strip_prefix(b":")?.trim_ascii();
        let value = std::str::from_utf8(value).ok()?;
        name.eq_ignore_ascii_case(key.as_bytes()).then(|| value.chars().take(VALUE).collect::<String>())
    };
    let mut found: Vec<String> = Vec::new();
    for value in message.split(|byte| *byte == b'\n').filter_map(of_line) {
        if found.contains(&value) {
            continue;
        }
        if found.len() == VALUES {
            return (found, true);
        }
        found.push(value);
    }
    (found, is_long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_git_prints_them() {
        let (a, b, none) = ("a".repeat(40), "b".repeat(64), "0".repeat(40));
        let output = format!(
            "{a} 1 1 2\nauthor x\nsummary {b} 1 1\nfilename f\n\tone\n{a} 2 2\n\t{b} 1 1\n{b} 1 3 1\nauthor y\n\ttwo\n\
             {none} 4 4 1\n\tnew\n{a} 3 5 1\n\t\n"
        );
        let found = lines(output.as_bytes());
        assert_eq!(found.lines, [Some(0), Some(0), Some(1), None, Some(0)]);
        assert_eq!(found.commits.iter().map(|commit| &*commit.id).collect::<Vec<_>>(), [a, b]);
    }

    #[test]
    fn values_stand_anywhere_in_a_message_and_are_bounded() {
        let read = |message: &str| values(format!("tree x\nKey: no\n\n{message}").as_bytes(), "Key").0;
        assert_eq!(
            read("title\n\nKey: one\nkey:two\r\n    Key:  three \nKey: one\n"),
            ["one", "two", "three"]
        );
        assert_eq!(read("title\n\nKeys: one\nKey one\nAKey: two\n"), <[&str; 0]>::default());
        let many: String = (0..100).map(|at| format!("Key: {at}\n")).collect();
        let (found, is_cut) = values(format!("tree x\n\n{many}").as_bytes(), "Key");
        assert!(found.len() == VALUES && is_cut);
        let long = format!("tree x\n\n{}\nKey: late\n", "x".repeat(MESSAGE));
        assert_eq!(values(long.as_bytes(), "Key"), (Vec::new(), true));
    }

    #[test]
    fn times_are_those_of_the_committer() {
        let commit = |committer: &str| {
            format!("tree x\nauthor a <a> 5 +0000\n{committer}\n\ncommitter m <m> 6 +0000\n")
        };
        assert_eq!(time(commit("committer c d <c@d> 1795794101 +0100").as_bytes()), Some(1_795_794_101_000));
        for none in [
            "",
            "gpgsig x",
            "committer c",
            "committer c <c> x +0000",
            "committer c <c> 9223372036854775807 +0",
        ] {
            assert_eq!(time(commit(none).as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn objects_are_taken_one_by_one() {
        let mut output: &[u8] = b"aa commit 4\nab\n\n\nbb missing\ncc tree 3\n";
        assert_eq!(next_object(&mut output), Some(&b"ab\n\n"[..]));
        assert_eq!(next_object(&mut output), Some(&b""[..]));
        assert_eq!(next_object(&mut output), Some(&b""[..]));
        assert_eq!(next_object(&mut output), None);
    }
}
