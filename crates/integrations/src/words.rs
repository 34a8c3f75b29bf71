//! Words to search for: those of a prompt that say something, and the line of an output that names the error.

/// Words that say nothing of what is asked.
const COMMON: &[&str] = &[
    "about", "after", "again", "all", "also", "and", "any", "are", "because", "been", "before", "but", "can",
    "change", "check", "code", "could", "did", "does", "done", "each", "error", "file", "files", "fix",
    "for", "from", "get", "give", "has", "have", "help", "here", "how", "into", "its", "just", "know", "let",
    "like", "look", "make", "more", "need", "new", "not", "now", "one", "only", "other", "our", "out",
    "please", "run", "see", "should", "show", "some", "still", "such", "sure", "tell", "test", "tests",
    "than", "thank", "thanks", "that", "the", "their", "them", "then", "there", "these", "they", "thing",
    "this", "those", "too", "try", "update", "use", "using", "very", "want", "was", "way", "well", "were",
    "what", "when", "where", "which", "while", "who", "why", "will", "with", "work", "works", "would",
    "write", "yes", "you", "your",
];
/// Characters of a word.
const SHORTEST: usize = 3;
const LONGEST: usize = 64;

/// Words of a text in its order, each once, at most `most`: without common ones and numbers.
pub(crate) fn telling_words(text: &str, most: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    for word in text.split(|c: char| !is_part(c)) {
        let word = word.trim_matches('-').to_lowercase();
        let count = word.chars().count();
        if !(SHORTEST..=LONGEST).contains(&count)
            || !word.chars().any(char::is_alphabetic)
            || COMMON.contains(&word.as_str())
            || is_an_id(&word)
            || words.contains(&word)
        {
            continue;
        }
        words.push(word);
        if words.len() == most {
            break;
        }
    }
    words
}

/// Whether a word is a hash or another id, which stands for one thing of one day.
fn is_an_id(word: &str) -> bool {
    let digits = word.chars().filter(char::is_ascii_digit).count();
    word.len() >= 7 && digits >= 2 && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

/// What a line of an error begins with or holds, the most telling first.
const SIGNS: [&[&str]; 3] = [
    &["error[", "error:", "panicked at", "fatal:", "exception:", "err!", "command not found"],
    &[
        "error",
        "cannot",
        "can't",
        "no such file",
        "not found",
        "permission denied",
        "undefined",
        "unresolved",
    ],
    &["failed", "failure", "unexpected", "invalid", "unable", "refused", "timed out", "missing"],
];

/// The line of an output that names the error; `None` where no line looks like one.
pub(crate) fn error_line(output: &str) -> Option<String> {
    /// Lines at the end that are looked at.
    const LINES: usize = 400;
    let mut best: Option<(usize, String)> = None;
    let lines: Vec<&str> = output.lines().rev().take(LINES).collect();
    for line in lines.into_iter().rev() {
        let line = plain(line);
        let lower = line.to_lowercase();
        let Some(rank) = SIGNS.iter().position(|signs| signs.iter().any(|sign| lower.contains(sign))) else {
            continue;
        };
        if telling_words(&line, 2).len() == 2 && best.as_ref().is_none_or(|(known, _)| rank < *known) {
            best = Some((rank, line));
        }
    }
    best.map(|(_, line)| line)
}

/// The last line that says something.
pub(crate) fn last_line(output: &str) -> Option<String> {
    let mut lines = output.lines().rev().map(plain);
    lines.find(|line| telling_words(line, 2).len() == 2)
}

/// A line without the sequences that colour it, and not too long.
fn plain(line: &str) -> String {
    const LONGEST_LINE: usize = 400;
    let mut out = String::new();
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            if characters.next() == Some('[') {
                characters.by_ref().find(|c| ('@'..='~').contains(c));
            }
        } else if out.len() < LONGEST_LINE {
            out.push(if character.is_control() { ' ' } else { character });
        }
    }
    out.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_prompt_are_those_that_say_something() {
        let text = "Please fix the flaky PaymentRetry test in src/pay_retry.rs, see 4711 and 3fa85f64a1";
        assert_eq!(telling_words(text, 8), ["flaky", "paymentretry", "src", "pay_retry"]);
        assert_eq!(telling_words("ok, do it", 8), Vec::<String>::new());
        assert_eq!(telling_words("Änder die Größe", 8), ["änder", "die", "größe"]);
    }

    #[test]
    fn line_of_the_error_is_found() {
        let cases = [
            (
                "   Compiling x\n\u{1b}[31merror[E0432]: unresolved import `serde`\u{1b}[0m\n --> src/a.rs:1\nerror: could not compile",
                Some("error[E0432]: unresolved import `serde`"),
            ),
            ("npm ERR! missing script: build\nnpm ERR! log", Some("npm ERR! missing script: build")),
            ("sh: 1: frobnicate: command not found", Some("sh: 1: frobnicate: command not found")),
            ("3 passed\n2 failed", None),
            ("all is well", None),
            ("", None),
        ];
        for (output, line) in cases {
            assert_eq!(error_line(output).as_deref(), line, "{output}");
        }
    }
}
