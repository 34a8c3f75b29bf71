//! English words without their endings, by the algorithm of M. F. Porter (1980). Words of other scripts stay as they are.

/// Letters of a word at most: what is longer is no word.
const LONGEST: usize = 32;

const SECOND: [(&str, &str); 21] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("logi", "log"),
];
const THIRD: [(&str, &str); 7] = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];
const FOURTH: [&str; 19] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism",
    "ate", "iti", "ous", "ive", "ize",
];

/// The stem of a folded word.
pub(super) fn stem(word: &str) -> String {
    if word.len() < 3 || word.len() > LONGEST || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let mut word = word.to_owned();
    first(&mut word);
    replace(&mut word, &SECOND);
    replace(&mut word, &THIRD);
    if let Some(ending) = FOURTH.iter().find(|ending| word.ends_with(**ending)) {
        let rest = &word[..word.len() - ending.len()];
        if measure(rest) > 1 && (*ending != "ion" || rest.ends_with(['s', 't'])) {
            word.truncate(rest.len());
        }
    }
    if let Some(rest) = word.strip_suffix('e') {
        let count = measure(rest);
        if count > 1 || count == 1 && !ends_short(rest) {
            word.pop();
        }
    }
    if word.ends_with("ll") && measure(&word) > 1 {
        word.pop();
    }
    word
}

/// Plurals, pasts and participles.
fn first(word: &mut String) {
    if word.ends_with("sses") || word.ends_with("ies") {
        word.truncate(word.len() - 2);
    } else if word.ends_with('s') && !word.ends_with("ss") {
        word.pop();
    }
    if let Some(rest) = word.strip_suffix("eed") {
        if measure(rest) > 0 {
            word.pop();
        }
    } else if let Some(length) = ["ed", "ing"]
        .iter()
        .find_map(|ending| word.strip_suffix(ending))
        .filter(|rest| has_vowel(rest))
        .map(str::len)
    {
        word.truncate(length);
        if ["at", "bl", "iz"].iter().any(|ending| word.ends_with(ending)) {
            word.push('e');
        } else if ends_double(word) && !word.ends_with(['l', 's', 'z']) {
            word.pop();
        } else if measure(word) == 1 && ends_short(word) {
            word.push('e');
        }
    }
    if word.strip_suffix('y').is_some_and(has_vowel) {
        word.pop();
        word.push('i');
    }
}

fn replace(word: &mut String, endings: &[(&str, &str)]) {
    if let Some((ending, by)) = endings.iter().find(|(ending, _)| word.ends_with(ending)) {
        let length = word.len() - ending.len();
        if measure(&word[..length]) > 0 {
            word.truncate(length);
            word.push_str(by);
        }
    }
}

fn is_vowel(bytes: &[u8], at: usize) -> bool {
    match bytes[at] {
        b'a' | b'e' | b'i' | b'o' | b'u' => true,
        b'y' => at > 0 && !is_vowel(bytes, at - 1),
        _ => false,
    }
}

fn has_vowel(word: &str) -> bool {
    let bytes = word.as_bytes();
    (0..bytes.len()).any(|at| is_vowel(bytes, at))
}

/// How often consonants follow vowels.
fn measure(word: &str) -> usize {
    let bytes = word.as_bytes();
    (1..bytes.len()).filter(|at| !is_vowel(bytes, *at) && is_vowel(bytes, at - 1)).count()
}

fn ends_double(word: &str) -> bool {
    let bytes = word.as_bytes();
    let length = bytes.len();
    length > 1 && bytes[length - 1] == bytes[length - 2] && !is_vowel(bytes, length - 1)
}

/// Consonant, vowel, consonant: as in "hop".
fn ends_short(word: &str) -> bool {
    let bytes = word.as_bytes();
    let length = bytes.len();
    length > 2
        && !is_vowel(bytes, length - 1)
        && is_vowel(bytes, length - 2)
        && !is_vowel(bytes, length - 3)
        && !matches!(bytes[length - 1], b'w' | b'x' | b'y')
}

#[cfg(test)]
mod tests {
    use super::stem;

    #[test]
    fn stems_of_one_word_are_the_same() {
        for (words, expected) in [
            ("connect connected connecting connection connections", "connect"),
            ("migrate migrated migrating migration migrations", "migrat"),
            ("hop hops hopped hopping", "hop"),
            ("relational relate related", "relat"),
            ("caress caresses caressed", "caress"),
            ("pony ponies", "poni"),
        ] {
            for word in words.split(' ') {
                assert_eq!(stem(word), expected, "{word}");
            }
        }
        for word in ["sky", "at", "x86", "größe", "yyyyyyyy", &"a".repeat(200)] {
            assert_eq!(stem(word).is_empty(), word.is_empty());
        }
        assert_eq!(stem("größe"), "größe");
        assert_eq!(stem("feed"), "feed");
        assert_eq!(stem("agreed"), "agre");
        assert_eq!(stem("controlling"), "control");
    }
}
