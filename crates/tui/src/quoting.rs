//! Words of a line as a shell would have them.

/// Words of a line as a shell would have them, as far as quotes go.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut open) = (String::new(), None, false);
    for letter in line.chars() {
        match quote {
            Some(mark) if letter == mark => quote = None,
            Some(_) => word.push(letter),
            None if letter == '"' || letter == '\'' => {
                quote = Some(letter);
                open = true;
            }
            None if letter.is_whitespace() => {
                if open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            None => word.push(letter),
        }
    }
    if open || !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(words(r#" a "b c"  'd "e' "" f"#), ["a", "b c", "d \"e", "", "f"]);
        assert_eq!(words("an 'open one"), ["an", "open one"]);
    }
}
