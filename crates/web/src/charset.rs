//! Bytes of a page as text.

/// The text of bytes, by the name of their character set. Sets that are not known are read as UTF-8.
pub(crate) fn decoded(bytes: &[u8], charset: Option<&str>) -> String {
    if let Some(rest) = bytes.strip_prefix(b"\xef\xbb\xbf") {
        return String::from_utf8_lossy(rest).into_owned();
    }
    if let Some(rest) = bytes.strip_prefix(b"\xff\xfe") {
        return utf16(rest, u16::from_le_bytes);
    }
    if let Some(rest) = bytes.strip_prefix(b"\xfe\xff") {
        return utf16(rest, u16::from_be_bytes);
    }
    match charset.map(str::to_ascii_lowercase).as_deref() {
        Some("iso-8859-1" | "latin1" | "windows-1252" | "us-ascii" | "iso-8859-15")
            if std::str::from_utf8(bytes).is_err() =>
        {
            bytes.iter().map(|byte| windows_1252(*byte)).collect()
        }
        Some("utf-16" | "utf-16le") => utf16(bytes, u16::from_le_bytes),
        Some("utf-16be") => utf16(bytes, u16::from_be_bytes),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let units = bytes.chunks_exact(2).filter_map(|pair| pair.try_into().ok().map(unit));
    char::decode_utf16(units).map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

fn windows_1252(byte: u8) -> char {
    const HIGH: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}',
        '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
    ];
    match byte {
        0x80..=0x9f => HIGH.get(usize::from(byte - 0x80)).copied().unwrap_or(char::REPLACEMENT_CHARACTER),
        byte => char::from(byte),
    }
}

/// The character set that a page names in its first bytes.
pub(crate) fn named_in_page(bytes: &[u8]) -> Option<String> {
    let start = String::from_utf8_lossy(bytes.get(..1024.min(bytes.len()))?).to_ascii_lowercase();
    let (_, rest) = start.split_once("charset=")?;
    let name = rest.trim_start_matches(['"', '\'', ' ']);
    let name: String =
        name.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(20).collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_text_by_their_character_set() {
        let check = |bytes: &[u8], charset: Option<&str>, expect: &str| {
            assert_eq!(decoded(bytes, charset), expect, "{charset:?}");
        };
        check("é€".as_bytes(), None, "é€");
        check(b"\xe9\x80", Some("ISO-8859-1"), "é€");
        check("é".as_bytes(), Some("latin1"), "é");
        check(b"\xff\xfea\0", None, "a");
        check(b"\0a", Some("utf-16be"), "a");
        check(b"\xe9", None, "\u{fffd}");
        let page = b"<html><meta http-equiv=x content=\"text/html; charset=windows-1252\">";
        assert_eq!(named_in_page(page).as_deref(), Some("windows-1252"));
        assert_eq!(named_in_page(b"<p>"), None);
    }
}
