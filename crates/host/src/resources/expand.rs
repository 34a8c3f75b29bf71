//! What a template becomes: its arguments are put in, files that it names follow it, and commands are left to the model.

use std::path::{Path, PathBuf};

use super::files::text_of;

/// Bytes of what a template becomes at most.
pub(super) const MOST_BYTES: usize = 1 << 20;
/// Files that follow at most.
const MOST_FILES: usize = 20;
/// Stands beside the text of a template that has commands.
const COMMANDS: &str = "Text in square brackets that begins with \"output of\" stands for the output of that command. Before anything \
    else, run these commands with the tool `bash`, and take what they print in their place.";

/// The words of a line, as a template takes it apart.
pub(crate) fn command_words(line: &str) -> Vec<String> {
    Arguments::of(line).words
}

/// What was typed behind a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Arguments {
    /// As it was typed.
    raw: String,
    /// Its words, without quotes.
    words: Vec<String>,
}

impl Arguments {
    /// Takes it apart as a shell does: quotes at the beginning of a word or behind its `=` hold it together. A quote that is not closed is
    /// a letter, and so is a backslash before anything but a space, a quote or a backslash.
    pub(super) fn of(raw: &str) -> Self {
        let raw = raw.trim();
        let (mut words, mut word, mut in_word) = (Vec::new(), String::new(), false);
        let mut rest = raw;
        while let Some(letter) = rest.chars().next() {
            let behind = &rest[letter.len_utf8()..];
            let opens = !in_word || word.ends_with('=');
            rest = match letter {
                letter if letter.is_whitespace() => {
                    if std::mem::take(&mut in_word) {
                        words.push(std::mem::take(&mut word));
                    }
                    behind
                }
                '"' | '\'' if opens && close_of(behind, letter).is_some() => {
                    let end = close_of(behind, letter).unwrap_or_default();
                    in_word = true;
                    if letter == '"' {
                        unescape(&behind[..end], &mut word);
                    } else {
                        word.push_str(&behind[..end]);
                    }
                    &behind[end + 1..]
                }
                '\\' if behind.starts_with([' ', '"', '\'', '\\']) => {
                    in_word = true;
                    word.push_str(&behind[..1]);
                    &behind[1..]
                }
                letter => {
                    in_word = true;
                    word.push(letter);
                    behind
                }
            };
        }
        if in_word {
            words.push(word);
        }
        Self { raw: raw.to_owned(), words }
    }

    /// As it was typed.
    pub(super) fn raw(&self) -> &str {
        &self.raw
    }

    /// The value of a word `NAME=VALUE`.
    fn named(&self, name: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// Words from a number on, counted from 1, as one text.
    fn from(&self, first: usize, count: usize) -> String {
        let words: Vec<&str> =
            self.words.iter().skip(first.max(1) - 1).take(count).map(String::as_str).collect();
        words.join(" ")
    }
}

/// Where a quote is closed.
fn close_of(text: &str, quote: char) -> Option<usize> {
    let mut escapes = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escapes => escapes = false,
            '\\' if quote == '"' => escapes = true,
            letter if letter == quote => return Some(at),
            _ => {}
        }
    }
    None
}

fn unescape(text: &str, word: &mut String) {
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('\\', Some(next @ ('"' | '\\'))) => {
                word.push(*next);
                letters.next();
            }
            (letter, _) => word.push(letter),
        }
    }
}

/// What stands in a text for an argument, and how long it is.
enum Slot<'a> {
    /// The word of a number.
    Word(usize),
    /// All words; or all as it was typed.
    Words,
    Raw,
    /// Words from a number on, so many.
    Slice(usize, usize),
    /// The value of `NAME=VALUE`, or the word whose position has this name.
    Name(&'a str),
}

/// Puts arguments into a text, or behind it where it has no place for them. `names` are those of its words by their positions; `dollars`
/// makes `$$` a dollar.
///
/// # Errors
/// When it becomes too large.
pub(super) fn with_arguments(
    body: &str,
    arguments: &Arguments,
    names: &[String],
    dollars: bool,
) -> Result<String, String> {
    let (mut out, is_used) = filled(body, arguments, names, dollars)?;
    // Nothing that a person typed is lost.
    if !is_used && !arguments.raw.is_empty() {
        out = format!("{}\n\n{}\n", out.trim_end(), arguments.raw);
    }
    Ok(out)
}

/// The text with arguments in it, and whether there was a place for them.
///
/// # Errors
/// When it becomes too large.
pub(super) fn filled(
    body: &str,
    arguments: &Arguments,
    names: &[String],
    dollars: bool,
) -> Result<(String, bool), String> {
    let mut out = String::new();
    let mut rest = body;
    let mut is_used = false;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if dollars && rest.starts_with("$$") {
            out.push('$');
            rest = &rest[2..];
            continue;
        }
        let found = slot(rest);
        let value = found.as_ref().and_then(|(slot, default, _)| {
            let value = value_of(slot, arguments, names)?;
            Some(if value.is_empty() { default.unwrap_or_default().to_owned() } else { value })
        });
        match (value, found) {
            (Some(value), Some((_, _, length))) => {
                is_used = true;
                out.push_str(&value);
                rest = &rest[length..];
            }
            _ => {
                out.push('$');
                rest = &rest[1..];
            }
        }
        if out.len() > MOST_BYTES {
            return Err(format!("it becomes larger than {} KiB", MOST_BYTES >> 10));
        }
    }
    out.push_str(rest);
    if out.len() > MOST_BYTES {
        return Err(format!("it becomes larger than {} KiB", MOST_BYTES >> 10));
    }
    Ok((out, is_used))
}

/// The slot that a text begins with, its default, and its length.
fn slot(text: &str) -> Option<(Slot<'_>, Option<&str>, usize)> {
    let rest = text.strip_prefix('$')?;
    if let Some(inner) = rest.strip_prefix('{') {
        let end = inner.find('}')?;
        let inner = &inner[..end];
        let length = end + 3;
        if let Some((name, default)) = inner.split_once(":-") {
            return Some((named(name)?, Some(default), length));
        }
        if let Some(slice) = inner.strip_prefix("@:").or_else(|| inner.strip_prefix("ARGUMENTS:")) {
            let (first, count) = match slice.split_once(':') {
                Some((first, count)) => (first, count.trim().parse().ok()?),
                None => (slice, usize::MAX),
            };
            return Some((Slot::Slice(first.trim().parse().ok()?, count), None, length));
        }
        return Some((named(inner)?, None, length));
    }
    if rest.starts_with('@') {
        return Some((Slot::Words, None, 2));
    }
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if digits > 0 {
        return Some((named(&rest[..digits])?, None, 1 + digits));
    }
    let length = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
    let name = &rest[..length];
    // Counted from 0.
    if let Some(number) = rest[length..].strip_prefix('[').filter(|_| name == "ARGUMENTS") {
        let end = number.find(']')?;
        return Some((
            Slot::Word(number[..end].parse::<usize>().ok()?.checked_add(1)?),
            None,
            1 + length + end + 2,
        ));
    }
    Some((named(name)?, None, 1 + length))
}

fn named(name: &str) -> Option<Slot<'_>> {
    match name {
        "@" => Some(Slot::Words),
        "ARGUMENTS" => Some(Slot::Raw),
        number if number.bytes().all(|byte| byte.is_ascii_digit()) && !number.is_empty() => {
            // `$0` is something of a shell.
            number.parse().ok().filter(|number| *number > 0).map(Slot::Word)
        }
        name if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') => Some(Slot::Name(name)),
        _ => None,
    }
}

/// The text for a slot; `None` for what is none, such as a variable of a shell.
fn value_of(slot: &Slot<'_>, arguments: &Arguments, names: &[String]) -> Option<String> {
    Some(match slot {
        Slot::Word(number) => arguments.from(*number, 1),
        Slot::Words => arguments.from(1, usize::MAX),
        Slot::Raw => arguments.raw.clone(),
        Slot::Slice(first, count) => arguments.from(*first, *count),
        Slot::Name(name) => match arguments.named(name) {
            Some(value) => value.to_owned(),
            None => arguments.from(names.iter().position(|known| known == name)? + 1, 1),
        },
    })
}

/// Whether a text has commands for a shell.
pub(super) fn has_commands(text: &str) -> bool {
    next_command(text).is_some()
}

/// Where a command stands: its mark, the command, and what follows.
fn next_command(text: &str) -> Option<(usize, &str, usize)> {
    let mut from = 0;
    while let Some(at) = text[from..].find('!') {
        let at = from + at;
        let (before, behind) = (&text[..at], &text[at + 1..]);
        if let Some(line) = before.strip_suffix("```").filter(|line| line.is_empty() || line.ends_with('\n'))
            && let Some(start) = behind.find('\n')
            && let Some(end) = behind[start + 1..].find("\n```")
        {
            let lines = &behind[start + 1..start + 1 + end];
            return Some((line.len(), lines.trim(), at + 1 + start + 1 + end + 4));
        }
        let is_apart =
            before.is_empty() || before.ends_with(|c: char| c.is_whitespace() || "([:\"'".contains(c));
        if is_apart
            && let Some(command) = behind.strip_prefix('`')
            && let Some(end) = command.find('`')
            && !command[..end].trim().is_empty()
        {
            return Some((at, command[..end].trim(), at + 2 + end + 1));
        }
        from = at + 1;
    }
    None
}

/// The text with commands as the model has them: it runs them itself, with its tool and the permissions that hold for it.
pub(super) fn with_commands(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((at, command, end)) = next_command(rest) {
        out.push_str(&rest[..at]);
        out.push_str("[output of `");
        out.push_str(command);
        out.push_str("`]");
        rest = &rest[end..];
    }
    if out.is_empty() {
        return text.to_owned();
    }
    out.push_str(rest);
    format!("{}\n\n{COMMANDS}\n", out.trim_end())
}

/// A file that a text names, and its text as the model gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// The files that a text names as `@path`, each once: texts below `cwd`. The model can read others with its tools.
pub(super) fn named_files(text: &str, cwd: &Path) -> Vec<NamedFile> {
    let mut bytes = text.len();
    let mut files: Vec<NamedFile> = Vec::new();
    for name in quipu::mentioned_files(text) {
        let path = cwd.join(name.trim_end_matches(|c: char| ",;:.!?)".contains(c)));
        let is_new = files.iter().all(|file| file.path != path);
        if files.len() >= MOST_FILES || !is_new || !path.is_file() {
            continue;
        }
        let Ok(content) = text_of(&path, Some(cwd)) else { continue };
        let text = format!("<file name=\"{}\">\n{}\n</file>", path.display(), content.trim_end());
        if bytes + text.len() <= MOST_BYTES {
            bytes += text.len();
            files.push(NamedFile { path, text });
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expanded(body: &str, arguments: &str) -> String {
        let names = ["issue".to_owned(), "branch".to_owned()];
        with_arguments(body, &Arguments::of(arguments), &names, false).unwrap()
    }

    #[test]
    fn words_are_split_as_in_a_shell() {
        for (text, expect) in [
            ("a  'b c' \"d \\\" e\"", &["a", "b c", "d \" e"][..]),
            ("don't break it", &["don't", "break", "it"]),
            ("'open \"quote", &["'open", "\"quote"]),
            ("FILE=\"a b\" x\\ y \\d+", &["FILE=a b", "x y", "\\d+"]),
            ("\"\" ''", &["", ""]),
            (" ", &[]),
        ] {
            assert_eq!(Arguments::of(text).words, expect, "{text}");
        }
    }

    #[test]
    fn every_form_of_argument_is_filled_in() {
        let typed = "one \"two three\" four FILE='x y'";
        for (body, expect) in [
            ("$1|$2|$9|", "one|two three||"),
            ("$@", "one two three four FILE=x y"),
            ("$ARGUMENTS", typed),
            ("${ARGUMENTS}", typed),
            ("$ARGUMENTS[1]", "two three"),
            ("${@:2}", "two three four FILE=x y"),
            ("${@:2:1}", "two three"),
            ("${@:0:1}", "one"),
            ("${1:-x} ${7:-seven}", "one seven"),
            ("$FILE and ${FILE}", "x y and x y"),
            ("$issue/$branch", "one/two three"),
            ("$1 costs $HOME $ $0 $(ls) ${x y} $$ ${", "one costs $HOME $ $0 $(ls) ${x y} $$ ${"),
            ("$10", ""),
        ] {
            assert_eq!(expanded(body, typed), expect, "{body}");
        }
        assert_eq!(expanded("${@:-all} ${ARGUMENTS:-of it}", ""), "all of it");
        // What is put in is not read again, and what nobody takes is not lost.
        assert_eq!(expanded("$1", "'$2' x"), "$2");
        assert_eq!(expanded("Do it.\n", "now"), "Do it.\n\nnow\n");
        let dollars = with_arguments("$$1 $1", &Arguments::of("a"), &[], true).unwrap();
        assert_eq!(dollars, "$1 a");
    }

    #[test]
    fn template_bomb_ends_at_the_limit() {
        let body = "$@".repeat(100_000);
        let error = with_arguments(&body, &Arguments::of(&"x".repeat(100_000)), &[], false).unwrap_err();
        assert!(error.contains("1024 KiB"), "{error}");
    }

    #[test]
    fn commands_are_left_to_the_model() {
        let text = with_commands("Status: !`git status`\n```!\ngit diff\ngit log\n```\nwow!`no` `!x`");
        assert!(
            text.starts_with(
                "Status: [output of `git status`]\n[output of `git diff\ngit log`]\nwow!`no` `!x`"
            ),
            "{text}"
        );
        assert!(text.contains("run these commands with the tool `bash`"));
        for plain in ["hey! `x`", "!", "!``", "no", "```!"] {
            assert_eq!(with_commands(plain), plain);
        }
    }

    #[test]
    fn named_files_follow_if_they_are_below_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().join("work");
        std::fs::create_dir(&cwd).unwrap();
        std::fs::write(cwd.join("a.txt"), "content\n").unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        let files = named_files("See @a.txt, @a.txt and @../secret and @none.", &cwd);
        assert_eq!(files.len(), 1, "{files:?}");
        assert!(files[0].text.contains("\ncontent\n"), "{files:?}");
    }

    proptest! {
        #[test]
        fn any_template_is_filled_or_refused(
            body in "[$@{}:\\-1A!`\\[\\]é \n]{0,60}",
            typed in "[\"'\\\\ =$A1é]{0,30}",
        ) {
            let text = with_arguments(&body, &Arguments::of(&typed), &[], false).unwrap();
            drop(with_commands(&text));
        }
    }
}
