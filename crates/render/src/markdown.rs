//! An entry as Markdown to read: text as it was written, everything else in fences that no content can close.

use quipu_protocol::Entry;

use crate::reading::{Part, push_visible, read};

/// Bytes of a line at most in which code spans are looked for.
const LINE: usize = 64 << 10;

/// An entry to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkdownEntry {
    /// Who speaks, or what happens; inline Markdown on one line.
    pub title: String,
    /// Blocks of Markdown, each ended by a line break; may be empty.
    pub body: String,
}

/// Writes an entry as Markdown. Headings in it are of the fourth level or below, no HTML of its content is HTML, images
/// are named and left out.
pub fn markdown_entry(entry: &Entry) -> MarkdownEntry {
    let mut out = String::new();
    let title = read(entry, &mut |part| match part {
        Part::Prose(text) => prose(&mut out, text),
        Part::Thinking(text) => fold(&mut out, "Thinking", |out| prose(out, text)),
        Part::Withheld => out.push_str("\n*Thinking, withheld by the provider*\n"),
        Part::Code { language, text, folded: false, .. } => fence(&mut out, language, text),
        Part::Code { what, language, text, folded: true } => {
            let what = format!("{what}, {} lines, {} bytes", text.lines().count(), text.len());
            fold(&mut out, &what, |out| fence(out, language, text));
        }
        Part::Call(name) => out.push_str(&format!("\n**Call** {}\n", code_span(name))),
        Part::Image(image) => {
            let bytes = image.data.len() / 4 * 3;
            out.push_str(&format!("\n*Image {}, {bytes} bytes*\n", code_span(&image.mime_type)));
        }
        Part::End(what, None) => out.push_str(&format!("\n**{what}**\n")),
        Part::End(what, Some(why)) => out.push_str(&format!("\n**{what}:** {}\n", markdown_inline(why))),
        Part::Facts(facts) => {
            let facts: Vec<_> = facts.iter().map(|(what, is)| format!("{what} {}", code_span(is))).collect();
            out.push_str(&format!("\n{}\n", facts.join(" ")));
        }
    });
    let of = if title.of.is_empty() { String::new() } else { code_span(&title.of) };
    let title = [title.who, &of, &title.more].into_iter().filter(|part| !part.is_empty());
    MarkdownEntry { title: title.collect::<Vec<_>>().join(" "), body: out }
}

fn fold(out: &mut String, what: &str, write: impl FnOnce(&mut String)) {
    // What stands between is Markdown because of the empty lines.
    out.push_str(&format!("\n<details>\n<summary>{what}</summary>\n"));
    write(out);
    out.push_str("\n</details>\n");
}

/// A fence that is longer than any run of backticks inside.
fn fence(out: &mut String, language: &str, text: &str) {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    out.push_str(&format!("\n{fence}{language}\n"));
    push_visible(out, text);
    if !text.ends_with('\n') {
        out.push('\n');
    }
    out.push_str(&format!("{fence}\n"));
}

/// Words as code within a line.
fn code_span(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let ticks = "`".repeat(longest_run(&text) + 1);
    let gap = if text.is_empty() || text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    let mut span = format!("{ticks}{gap}");
    push_visible(&mut span, &text);
    span.push_str(gap);
    span.push_str(&ticks);
    span
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// Plain text on one line, in which nothing is Markdown.
pub fn markdown_inline(text: &str) -> String {
    let mut visible = String::new();
    push_visible(&mut visible, &text.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut out = String::with_capacity(visible.len());
    for c in visible.chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '~' | '&' | '!') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Text that may be Markdown: its headings become lower ones, its HTML text, and a fence that it leaves open is closed.
fn prose(out: &mut String, text: &str) {
    let mut visible = String::with_capacity(text.len());
    push_visible(&mut visible, text.trim_matches('\n'));
    if visible.trim().is_empty() {
        return;
    }
    out.push('\n');
    let mut open: Option<(char, usize)> = None;
    // Whether a code span of the paragraph may still be open, so that what looks like one need not be one.
    let mut doubtful = false;
    for line in visible.lines() {
        let bare = line.trim_start_matches(' ');
        let mark = bare.chars().next().filter(|mark| matches!(mark, '`' | '~'));
        let run = mark.map_or(0, |mark| bare.chars().take_while(|c| *c == mark).count());
        if let Some((wanted, length)) = open {
            let closes = line.len() - bare.len() < 4
                && mark == Some(wanted)
                && run >= length
                && bare[run..].trim_matches([' ', '\t']).is_empty();
            if closes {
                open = None;
            }
            out.push_str(line);
        } else if let Some(mark) = mark.filter(|mark| {
            // An indented one may belong to a list, and end there.
            run >= 3 && bare.len() == line.len() && (*mark == '~' || !bare[run..].contains('`'))
        }) {
            open = Some((mark, run));
            doubtful = false;
            out.push_str(line);
        } else {
            if bare.is_empty() {
                doubtful = false;
            }
            let level = bare.chars().take_while(|c| *c == '#').count();
            if (1..=6).contains(&level)
                && bare[level..].chars().next().is_none_or(|c| matches!(c, ' ' | '\t'))
            {
                out.push_str(&"#".repeat(6.min(level + 3) - level));
            }
            doubtful |= without_html(out, line, doubtful);
        }
        out.push('\n');
    }
    if let Some((mark, length)) = open {
        out.extend(std::iter::repeat_n(mark, length));
        out.push('\n');
    }
}

/// Appends a line in which what would be HTML is text, except in code spans that end on it. Whether one is left open.
fn without_html(out: &mut String, line: &str, doubtful: bool) -> bool {
    // A cell of a table ends at its bar, in a code span too.
    let spans = !doubtful && line.len() <= LINE && !line.contains('|');
    let mut rest = line;
    let mut left_open = line.len() > LINE;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '\\' if rest[1..].starts_with(|next: char| next.is_ascii_punctuation() && next != '<') => {
                taken = 2;
            }
            '`' if line.len() <= LINE => {
                let run = rest.len() - rest.trim_start_matches('`').len();
                let mut at = run;
                let mut end = None;
                while let Some(next) = rest[at..].find('`').map(|next| at + next) {
                    let length = rest.len() - next - rest[next..].trim_start_matches('`').len();
                    at = next + length;
                    if length == run {
                        end = Some(at);
                        break;
                    }
                }
                left_open |= end.is_none();
                taken = end.filter(|_| spans).unwrap_or(run);
            }
            '<' => {
                out.push_str("&lt;");
                rest = &rest[1..];
                continue;
            }
            _ => {}
        }
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    left_open
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        let mut out = String::new();
        prose(&mut out, text);
        out
    }

    #[test]
    fn no_content_leaves_its_place() {
        for (text, wanted) in [
            ("# One\n## `x`", "\n#### One\n##### `x`\n"),
            ("a <img src=x onerror=y> `<b>` c", "\na &lt;img src=x onerror=y> `<b>` c\n"),
            ("\\<img>", "\n\\&lt;img>\n"),
            ("\\`<img>`", "\n\\`&lt;img>`\n"),
            // The span ends at the first tick of the second line.
            ("`\n` <img> `\n\n`<b>`", "\n`\n` &lt;img> `\n\n`<b>`\n"),
            ("| `a | <img> ` |", "\n| `a | &lt;img> ` |\n"),
            ("```rust\nlet a = b < c;", "\n```rust\nlet a = b < c;\n```\n"),
            ("- ```\n  ```\n<img>", "\n- ```\n  ```\n&lt;img>\n"),
            ("~~~\n<a>\n```\n~~~~\n<a>", "\n~~~\n<a>\n```\n~~~~\n&lt;a>\n"),
            ("a\r<b>\u{202e}\u{1b}[2J", "\na\n&lt;b>\\u{202e}\\u{1b}[2J\n"),
            ("\n \n", ""),
        ] {
            assert_eq!(written(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn a_fence_is_longer_than_what_is_inside() {
        let mut out = String::new();
        fence(&mut out, "json", "a\n````\nb");
        assert_eq!(out, "\n`````json\na\n````\nb\n`````\n");
        assert_eq!(code_span("a ``b"), "```a ``b```");
        assert_eq!(code_span("`"), "`` ` ``");
        assert_eq!(markdown_inline("# <a>\n*b*"), "\\# \\<a\\> \\*b\\*");
    }
}
