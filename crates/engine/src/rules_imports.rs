//! Which files a text imports: `@path` outside of code.

/// Names that one text imports at most.
const NAMES: usize = 1_000;

/// The names that stand behind an `@` at the beginning of a word, in order; none of code spans and blocks of code. A space
/// in a name has a backslash before it.
pub fn mentioned_files(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let marks = fence_of(line);
        match (fence, marks) {
            (None, Some(marks)) => fence = Some(marks),
            (Some(open), Some(marks))
                if marks.starts_with(open) && line.trim().trim_start_matches(marks).is_empty() =>
            {
                fence = None;
            }
            (Some(_), _) => {}
            (None, None) => line_imports(line, &mut names),
        }
        if names.len() >= NAMES {
            break;
        }
    }
    names
}

/// The marks that a line opens or closes a block of code with.
fn fence_of(line: &str) -> Option<&str> {
    let text = line.trim_start();
    let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let end = text.find(|c| c != mark).unwrap_or(text.len());
    (end >= 3).then(|| &text[..end])
}

fn line_imports(line: &str, names: &mut Vec<String>) {
    let mut rest = line;
    let mut starts_word = true;
    while let Some(next) = rest.chars().next() {
        if next == '`' {
            let run = rest.len() - rest.trim_start_matches('`').len();
            let (marks, behind) = rest.split_at(run);
            rest = close_of(behind, marks).map_or(behind, |at| &behind[at..]);
            starts_word = false;
        } else if next == '@' && starts_word {
            let (name, behind) = name_at(&rest[1..]);
            if name.chars().next().is_some_and(|c| c.is_alphanumeric() || "./~_-".contains(c)) {
                names.push(name);
            }
            rest = behind;
            starts_word = false;
        } else {
            starts_word = next.is_whitespace();
            rest = &rest[next.len_utf8()..];
        }
    }
}

/// Where a code span with these marks ends: behind them.
fn close_of(text: &str, marks: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(start) = text[at..].find('`') {
        let start = at + start;
        let run = text.len() - start - text[start..].trim_start_matches('`').len();
        if run == marks.len() {
            return Some(start + run);
        }
        at = start + run;
    }
    None
}

/// A name up to the next space, and what follows it.
fn name_at(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' if text[at + 1..].starts_with(' ') => {
                name.push(' ');
                letters.next();
            }
            letter if letter.is_whitespace() => return (name, &text[at..]),
            letter => name.push(letter),
        }
    }
    (name, "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_found_outside_of_code() {
        for (text, expect) in [
            ("@a.md", &["a.md"][..]),
            ("- @~/x.md and @./y.md.", &["~/x.md", "./y.md."]),
            ("mail me@b.md", &[]),
            ("`@a.md` ``@b ` @c`` @d", &["d"]),
            ("` @open.md", &["open.md"]),
            ("```sh\n@a\n~~~\n@b\n```\n@c", &["c"]),
            ("````\n```\n@a\n````\n@c", &["c"]),
            ("@my\\ file.md @", &["my file.md"]),
            ("@ @@x", &[]),
        ] {
            assert_eq!(mentioned_files(text), expect, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in "[@`~a \n\\\\.é]{0,60}") {
            for name in mentioned_files(&text) {
                prop_assert!(!name.is_empty());
            }
        }
    }
}
