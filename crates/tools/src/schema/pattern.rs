//! Expressions of ECMAScript, which JSON Schema uses, in the words of the library here.

use std::fmt::Write;

use regex::{Regex, RegexBuilder};

/// Bytes of a compiled expression at most.
const LARGEST: usize = 1 << 20;

/// The same expression here; nothing where there is none, as with those that look around or back, or when it is too large.
pub(super) fn compiled(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(&translated(pattern)?).size_limit(LARGEST).build().ok()
}

/// Both write most things alike. There, `\d`, `\w` and `\b` know ASCII alone, `.` stops at each end of a line, and signs
/// within brackets that mean sets of sets here mean themselves.
fn translated(pattern: &str) -> Option<String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut brackets = false;
    let mut signs = pattern.chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            '\\' => match signs.next()? {
                'd' => out.push_str("[0-9]"),
                'D' => out.push_str("[^0-9]"),
                'w' => out.push_str("[A-Za-z0-9_]"),
                'W' => out.push_str("[^A-Za-z0-9_]"),
                'b' if brackets => out.push_str(r"\x08"),
                'b' => out.push_str(r"(?-u:\b)"),
                // These mean other things, or nothing, here.
                'a' | 'A' | 'z' | 'B' | 'U' | '<' | '>' => return None,
                // Whatever has no meaning of its own there may be escaped.
                other if other.is_ascii_punctuation() => {
                    write!(out, r"\x{:02x}", u32::from(other)).ok()?;
                }
                other => out.extend(['\\', other]),
            },
            '[' if !brackets => {
                brackets = true;
                out.push(sign);
                if signs.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // Nothing, or anything, between brackets.
                if signs.peek() == Some(&']') {
                    return None;
                }
            }
            ']' => {
                out.push_str(if brackets { "]" } else { r"\]" });
                brackets = false;
            }
            '-' if brackets && signs.peek() == Some(&'-') => return None,
            '[' | '&' | '~' if brackets => out.extend(['\\', sign]),
            '.' if !brackets => out.push_str(r"[^\n\r\u{2028}\u{2029}]"),
            other => out.push(other),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_follow_ecmascript() {
        let check = |pattern: &str, fits: &[&str], not: &[&str]| {
            let compiled = compiled(pattern).unwrap();
            for text in fits {
                assert!(compiled.is_match(text), "{pattern} {text:?}");
            }
            for text in not {
                assert!(!compiled.is_match(text), "{pattern} {text:?}");
            }
        };
        check(r"^\d+$", &["12"], &["", "١٢", "12\n"]);
        check(r"^[\w.-]+@[\w-]+\.[a-z]{2,}$", &["a.b@c-d.ef"], &["ä@c.de", "a@b"]);
        check(r"^[^\d]$", &["x", "٣"], &["3"]);
        check(r"^a.c$", &["abc", "a😀c"], &["a\nc", "a\rc"]);
        check(r"^https?:\/\/", &["https://x"], &["ftp://x"]);
        check(r"\bx\b", &["a x b", "äx"], &["ax"]);
        check(r"^[[&&~]+$", &["[&~"], &["x"]);
        check(r"^[a[b]]$", &["a]", "[]"], &["a"]);
        check("^\\u0041\\x42$", &["AB"], &["ab"]);
        check(r"^\-\_\'\@$", &["-_'@"], &[]);
        check(r"^(?<year>\d{4})(?:-(\d\d))?$", &["2026", "2026-11"], &["26"]);
        for unknown in
            [r"^(?!x)", r"(a)\1", "[^]", "[]", "[+--]", "(", r"\B", r"(?<=a)b", "a{1,1000}{1,1000}", "\\"]
        {
            assert!(compiled(unknown).is_none(), "{unknown}");
        }
    }
}
