//! JSON as people write it (comments, names without quotes, commas at the end), made plain JSON with the same lines.

/// The text as plain JSON. What is no JSON5 either stays as it is, for whoever reads it to say where.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    // A comma that may be the last of its list.
    let mut comma = None;
    while let Some(letter) = letters.next() {
        if letter.is_whitespace() || letter == '\u{feff}' {
            out.push(if letter == '\n' { '\n' } else { ' ' });
            continue;
        }
        if letter == '/' && letters.peek() == Some(&'/') {
            while letters.next_if(|letter| *letter != '\n').is_some() {}
            continue;
        }
        if letter == '/' && letters.peek() == Some(&'*') {
            letters.next();
            let mut before = ' ';
            for letter in letters.by_ref() {
                if letter == '\n' {
                    out.push('\n');
                }
                if before == '*' && letter == '/' {
                    break;
                }
                before = letter;
            }
            continue;
        }
        if let Some(at) = comma.take()
            && !matches!(letter, '}' | ']')
        {
            out.insert(at, ',');
        }
        match letter {
            ',' => comma = Some(out.len()),
            '"' | '\'' => string(letter, &mut letters, &mut out),
            '+' => {}
            '-' | '.' | '0'..='9' => {
                let mut number = String::from(letter);
                while let Some(more) =
                    letters.next_if(|more| more.is_ascii_alphanumeric() || "+-.".contains(*more))
                {
                    number.push(more);
                }
                out.push_str(&plain_number(&number));
            }
            letter if letter.is_alphabetic() || letter == '_' || letter == '$' => {
                let mut word = String::from(letter);
                while let Some(more) = letters.next_if(|more| more.is_alphanumeric() || "_$".contains(*more))
                {
                    word.push(more);
                }
                match word.as_str() {
                    "true" | "false" | "null" => out.push_str(&word),
                    "NaN" | "Infinity" => out.push_str("null"),
                    word => {
                        out.push('"');
                        out.push_str(word);
                        out.push('"');
                    }
                }
            }
            letter => out.push(letter),
        }
    }
    if let Some(at) = comma {
        out.insert(at, ',');
    }
    out
}

/// A text up to its closing quote, in double quotes.
fn string(quote: char, letters: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    out.push('"');
    let mut lines = 0;
    while let Some(letter) = letters.next() {
        match letter {
            letter if letter == quote => {
                out.push('"');
                // Lines that the text went over.
                out.extend(std::iter::repeat_n('\n', lines));
                return;
            }
            '"' => out.push_str("\\\""),
            '\\' => match letters.next() {
                Some('\n') => lines += 1,
                Some('\r') => {
                    letters.next_if_eq(&'\n');
                    lines += 1;
                }
                Some('x') => {
                    out.push_str("\\u00");
                    out.extend(letters.by_ref().take(2));
                }
                Some('v') => out.push_str("\\u000b"),
                Some('0') => out.push_str("\\u0000"),
                Some(escape @ ('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' | 'u')) => {
                    out.push('\\');
                    out.push(escape);
                }
                Some(letter) => out.push(letter),
                None => return,
            },
            // Only lines end before a text does.
            letter if letter.is_ascii_control() && !matches!(letter, '\n' | '\r') => {
                out.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => out.push(letter),
        }
    }
}

fn plain_number(number: &str) -> String {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number),
    };
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))
        && let Ok(value) = u64::from_str_radix(hex, 16)
    {
        return format!("{sign}{value}");
    }
    if digits == "Infinity" {
        return "null".to_owned();
    }
    let digits = if digits.starts_with('.') { format!("0{digits}") } else { digits.to_owned() };
    let digits = digits.strip_suffix('.').unwrap_or(&digits);
    format!("{sign}{}", digits.replace(".e", ".0e").replace(".E", ".0E"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn json5_becomes_json_with_the_same_lines() {
        let text = "// first\n{\n  a: 'it\\'s \"x\"', /* two\n lines */ $b_1: [1, .5, 2., 0x1F, +3, -4,],\n  \"c\": true, // end\n  d: null,\n}\n";
        let plain = plain(text);
        let expect = json!({ "a": "it's \"x\"", "$b_1": [1, 0.5, 2, 31, 3, -4], "c": true, "d": null });
        assert_eq!(serde_json::from_str::<Value>(&plain).unwrap(), expect, "{plain}");
        let line = |text: &str, part: &str| text.lines().position(|line| line.contains(part));
        for part in ["$b_1", "\"c\""] {
            assert_eq!(line(&plain, part), line(text, part), "{part}");
        }
        assert_eq!(plain.lines().count(), text.lines().count());
    }

    #[test]
    fn plain_json_and_broken_texts_stay() {
        let text = "{\"a\": [1, \"x // no comment\", {\"b\": false}], \"c\": -1.5e3}";
        assert_eq!(plain(text), text);
        for broken in ["{", "{\"a\": ,,}", "/* open", "'open", "\"a\\", "{a: 1 b: 2}"] {
            assert!(serde_json::from_str::<Value>(&plain(broken)).is_err(), "{broken}");
        }
    }

    #[test]
    fn control_characters_may_stand_in_texts() {
        let parsed = |text: &str| serde_json::from_str::<Value>(&plain(text));
        assert_eq!(parsed("{a: 'x\ty\u{1}', \"b\tc\": 1}").unwrap(), json!({ "a": "x\ty\u{1}", "b\tc": 1 }));
        assert!(parsed("{a: 'x\ny'}").is_err());
    }
}
