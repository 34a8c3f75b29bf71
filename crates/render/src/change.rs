//! A change of a file, as coloured lines.

use crate::escape::push_text;

/// Lines that are coloured; what follows stands as it is.
const COLOURED: usize = 5_000;

/// Writes the lines of a change: those that begin with `+` or `-` are marked as added or removed.
pub(crate) fn change(out: &mut String, text: &str) {
    out.push_str("<pre class=diff>\n");
    let text = text.trim_end_matches('\n');
    let mut rest = text;
    for line in text.split_inclusive('\n').take(COLOURED) {
        rest = &rest[line.len()..];
        let tag = match line.as_bytes().first() {
            // The names of the files of a patch.
            Some(b'+') if !line.starts_with("+++ ") => Some("ins"),
            Some(b'-') if !line.starts_with("--- ") => Some("del"),
            _ => None,
        };
        if let Some(tag) = tag {
            out.push_str(&format!("<{tag}>"));
            push_text(out, line);
            out.push_str(&format!("</{tag}>"));
        } else {
            push_text(out, line);
        }
    }
    push_text(out, rest);
    out.push_str("</pre>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_are_marked_and_their_text_is_escaped() {
        let mut out = String::new();
        change(&mut out, "--- a/f\n+++ b/f\n@@ -1 +1 @@\n same <b>\n-old </del><script>\n+new\n");
        let wanted = "<pre class=diff>\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n same &lt;b&gt;\n\
            <del>-old &lt;/del&gt;&lt;script&gt;\n</del><ins>+new</ins></pre>\n";
        assert_eq!(out, wanted);
        let mut out = String::new();
        change(&mut out, &"+a\n".repeat(COLOURED + 10));
        assert_eq!(out.matches("<ins>").count(), COLOURED);
        assert_eq!(out.matches("+a").count(), COLOURED + 10);
    }
}
