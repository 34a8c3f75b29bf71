//! Sources of media that a reply may name.

/// The longest source, in characters.
const SOURCE_MOST: usize = 4096;

/// The source that the rest of a `MEDIA:` line names: an `https` address of a public host, or a path without `..`. None when it is
/// neither; the line is text then.
pub fn media_source(text: &str) -> Option<String> {
    let text = text.trim();
    let quoted = ['`', '"', '\''].into_iter().find_map(|quote| {
        text.strip_prefix(quote)?.strip_suffix(quote).filter(|inner| !inner.contains(quote))
    });
    let source = quoted.unwrap_or(text).trim();
    let source = strip_file_scheme(source);
    if source.is_empty() || source.chars().count() > SOURCE_MOST || source.chars().any(char::is_control) {
        return None;
    }
    if let Some((scheme, rest)) = source.split_once("://") {
        let https = scheme.eq_ignore_ascii_case("https");
        let valid = https && !source.contains(char::is_whitespace) && is_public(rest);
        return valid.then(|| source.to_owned());
    }
    is_path(source).then(|| source.to_owned())
}

fn strip_file_scheme(source: &str) -> &str {
    match source.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case("file://") => &source[7..],
        _ => source,
    }
}

fn is_path(source: &str) -> bool {
    let bytes = source.as_bytes();
    let drive = bytes.len() > 2
        && bytes[0].is_ascii_alphabetic()
        && bytes[1] == b':'
        && matches!(bytes[2], b'/' | b'\\');
    let has_scheme = !drive && source.split(['/', '\\']).next().is_some_and(|first| first.contains(':'));
    let path = drive || source.starts_with("\\\\") || source.contains('/');
    path && !has_scheme && !source.split(['/', '\\']).any(|segment| segment == "..")
}

/// Whether the host after `https://` has several labels, and is none of this machine or its network by name or number.
fn is_public(rest: &str) -> bool {
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    if authority.contains('@') || authority.starts_with('[') {
        return false;
    }
    let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let labels: Vec<_> = host.split('.').collect();
    let spelled = labels.iter().all(|label| {
        !label.is_empty()
            && label.chars().all(|character| character.is_alphanumeric() || matches!(character, '-' | '_'))
    });
    let Some(last) = labels.last().filter(|_| spelled && labels.len() > 1) else { return false };
    // A host that ends in a number is an address: of four decimal numbers, or of an old form that hides one.
    if last.starts_with(|character: char| character.is_ascii_digit()) {
        return is_public_address(&labels);
    }
    !matches!(*last, "local" | "localhost" | "internal" | "localdomain" | "lan" | "home")
        && host != "home.arpa"
        && !host.ends_with(".home.arpa")
}

fn is_public_address(labels: &[&str]) -> bool {
    let plain = labels.iter().all(|label| !(label.len() > 1 && label.starts_with('0')));
    let numbers: Option<Vec<u8>> = labels.iter().map(|label| label.parse().ok()).collect();
    match numbers.as_deref() {
        Some([a, b, _, _]) if plain => !matches!(
            (*a, *b),
            (0 | 10 | 127 | 224..=255, _)
                | (100, 64..=127)
                | (169, 254)
                | (172, 16..=31)
                | (192, 168)
                | (198, 18 | 19)
        ),
        _ => false,
    }
}
