//! JSON with comments.

/// `text` without a byte order mark and with its `//` and `/* */` comments replaced by spaces, so that places
/// in error messages stay right.
pub(crate) fn strip(text: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let blank = |c: char| if c == '\n' { '\n' } else { ' ' };
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('"', _) => {
                out.push(c);
                while let Some(c) = chars.next() {
                    out.push(c);
                    match c {
                        '"' => break,
                        '\\' => out.extend(chars.next()),
                        _ => {}
                    }
                }
            }
            ('/', Some('/')) => {
                out.push(' ');
                while let Some(c) = chars.next_if(|&c| c != '\n') {
                    out.push(blank(c));
                }
            }
            ('/', Some('*')) => {
                out.push_str("  ");
                chars.next();
                let mut before = ' ';
                for c in chars.by_ref() {
                    out.push(blank(c));
                    if before == '*' && c == '/' {
                        break;
                    }
                    before = c;
                }
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_become_spaces() {
        let check = |text: &str, expect: &str| assert_eq!(strip(text), expect);
        check("\u{feff}{} // é\n", "{}     \n");
        check("{/* a\n*/}", "{    \n  }");
        check("/*/ x */1", "        1");
        check(r#"{"a//":"b\"/*c*/"}"#, r#"{"a//":"b\"/*c*/"}"#);
        check("/", "/");
        check("/* open", "       ");
        check("\"open \\", "\"open \\");
    }
}
