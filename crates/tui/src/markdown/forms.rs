//! What is written within a paragraph in a form of its own: the target of a link, a tag, a URL, an entity.

/// `(url "title")`: the URL, and how long it all is.
pub(super) fn target(rest: &str) -> Option<(String, usize)> {
    let inner = rest.strip_prefix('(')?.trim_start_matches([' ', '\n']);
    let (url, after) = if let Some(pointed) = inner.strip_prefix('<') {
        let end = pointed.find(['>', '\n', '<']).filter(|end| pointed[*end..].starts_with('>'))?;
        (&pointed[..end], &pointed[end + 1..])
    } else {
        let (mut depth, mut end, mut escaped) = (0usize, inner.len(), false);
        for (at, c) in inner.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '(' if depth == 32 => return None,
                '(' => depth += 1,
                ')' if depth == 0 => {
                    end = at;
                    break;
                }
                ')' => depth -= 1,
                c if c <= ' ' => {
                    end = at;
                    break;
                }
                _ => {}
            }
        }
        (&inner[..end], &inner[end..])
    };
    let mut after = after.trim_start_matches([' ', '\n']);
    if let Some(open) = after.chars().next().filter(|c| "\"'(".contains(*c)) {
        let close = if open == '(' { ')' } else { open };
        let mut escaped = false;
        let end = after[1..].find(|c| {
            let ends = c == close && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        after = after[end + 2..].trim_start_matches([' ', '\n']);
    }
    let after = after.strip_prefix(')')?;
    let mut unescaped = String::with_capacity(url.len());
    let mut characters = url.chars().peekable();
    while let Some(c) = characters.next() {
        match characters.peek() {
            Some(next) if c == '\\' && next.is_ascii_punctuation() => {}
            _ => unescaped.push(c),
        }
    }
    Some((unescaped, rest.len() - after.len()))
}

/// How long a tag of HTML, a comment or a processing instruction is.
pub(super) fn tag(rest: &str) -> Option<usize> {
    for (open, close) in [("<!--", "-->"), ("<?", "?>"), ("<![CDATA[", "]]>")] {
        if let Some(inner) = rest.strip_prefix(open) {
            return inner.find(close).map(|end| open.len() + end + close.len());
        }
    }
    let name =
        rest.strip_prefix("</").or_else(|| rest.strip_prefix("<!")).or_else(|| rest.strip_prefix('<'))?;
    let after = name.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '-');
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !after.starts_with([' ', '\n', '\t', '/', '>'])
    {
        return None;
    }
    let mut quote = None;
    for (at, c) in after.char_indices() {
        match (c, quote) {
            ('>', None) => return Some(rest.len() - after.len() + at + 1),
            ('<', None) => return None,
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            _ => {}
        }
    }
    None
}

/// How long a URL is that stands in the text as it is.
pub(super) fn bare_url(rest: &str) -> Option<usize> {
    let host = rest.strip_prefix("https://").or_else(|| rest.strip_prefix("http://"))?;
    let start = rest.len() - host.len();
    let end = host
        .find(|c: char| c.is_whitespace() || c.is_control() || "<>[]\"`|".contains(c))
        .unwrap_or(host.len());
    let mut url = &rest[..start + end];
    loop {
        let before = url.len();
        url = url.trim_end_matches(['.', ',', ':', ';', '!', '?', '*', '_', '~', '\'']);
        if url.ends_with(')') && url.matches(')').count() > url.matches('(').count() {
            url = &url[..url.len() - 1];
        }
        if url.len() == before {
            break;
        }
    }
    (url.len() > start).then_some(url.len())
}

/// A character that is written by its name or number.
pub(super) fn entity(rest: &str) -> Option<(String, usize)> {
    const NAMES: [(&str, &str); 30] = [
        ("amp", "&"),
        ("lt", "<"),
        ("gt", ">"),
        ("quot", "\""),
        ("apos", "'"),
        ("nbsp", "\u{a0}"),
        ("copy", "©"),
        ("reg", "®"),
        ("trade", "™"),
        ("hellip", "…"),
        ("mdash", "—"),
        ("ndash", "–"),
        ("lsquo", "‘"),
        ("rsquo", "’"),
        ("ldquo", "“"),
        ("rdquo", "”"),
        ("laquo", "«"),
        ("raquo", "»"),
        ("times", "×"),
        ("middot", "·"),
        ("bull", "•"),
        ("deg", "°"),
        ("plusmn", "±"),
        ("ne", "≠"),
        ("le", "≤"),
        ("ge", "≥"),
        ("rarr", "→"),
        ("larr", "←"),
        ("euro", "€"),
        ("sect", "§"),
    ];
    let end = rest.bytes().take(12).position(|byte| byte == b';')?;
    let name = rest.get(1..end)?;
    if let Some(number) = name.strip_prefix('#') {
        let value = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        };
        let character = char::from_u32(value.ok()?).filter(|c| *c != '\0').unwrap_or('\u{fffd}');
        return Some((character.to_string(), end + 1));
    }
    let (_, text) = NAMES.iter().find(|(known, _)| *known == name)?;
    Some(((*text).to_owned(), end + 1))
}
