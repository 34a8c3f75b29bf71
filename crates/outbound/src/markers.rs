//! Calls of tools and their results that a model writes as text.

/// The longest tag, in bytes, with its attributes.
pub(crate) const TAG_MOST: usize = 512;
/// How calls and results begin that a model writes as text, in any case.
const MARKERS: &[&str] = &["[Tool Call:", "[Tool Result"];
/// What can stand between such a call and its arguments.
const ARGUMENTS: &str = "Arguments:";
/// Bytes of the arguments of a call that is written as text, at most.
pub(crate) const ARGUMENTS_MOST: usize = 64 << 10;
/// Arguments without an end that are looked for in one message: each is read to the limit.
pub(crate) const UNENDED_MOST: u8 = 16;

/// Where arguments end.
pub(crate) enum ObjectEnd {
    At(usize),
    /// It may come.
    Open,
    None,
}

/// A JSON object that has not ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenObject {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl OpenObject {
    /// Where it ends in text that follows, which begins with its brace at first.
    pub(crate) fn end(&mut self, text: &str) -> Option<usize> {
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' if !self.in_string => self.depth += 1,
                b'}' if !self.in_string => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

pub(crate) enum MarkerScan {
    /// A call or result written as text, and whether a JSON object follows these bytes that belongs to it.
    Marker {
        length: usize,
        has_arguments: bool,
    },
    Unfinished,
    Text,
}

/// How the marker begins that these bytes begin, as far as they reach.
fn begin_of_marker(bytes: &[u8]) -> Option<&'static str> {
    MARKERS.iter().copied().find(|marker| {
        let length = bytes.len().min(marker.len());
        bytes[..length].eq_ignore_ascii_case(&marker.as_bytes()[..length])
    })
}

/// Reads `[Tool Call: …]` or `[Tool Result …]` at the start of `text`, which is `[`.
pub(crate) fn scan_marker(text: &str, finish: bool) -> MarkerScan {
    let bytes = &text.as_bytes()[..text.len().min(TAG_MOST)];
    let whole = finish || bytes.len() == TAG_MOST;
    let Some(marker) = begin_of_marker(bytes) else { return MarkerScan::Text };
    let unfinished = if whole { MarkerScan::Text } else { MarkerScan::Unfinished };
    let Some(inner) = bytes.get(marker.len()..) else { return unfinished };
    // `[Tool Results]` is a heading of somebody's.
    match inner.first() {
        None => return unfinished,
        Some(byte) if byte.is_ascii_alphanumeric() && !marker.ends_with(':') => return MarkerScan::Text,
        Some(_) => {}
    }
    let Some(end) = inner.iter().position(|byte| matches!(byte, b']' | b'\n' | b'[')) else {
        return unfinished;
    };
    if inner[end] != b']' {
        return MarkerScan::Text;
    }
    let length = marker.len() + end + 1;
    match bytes.get(length) {
        // The text of a link.
        Some(b'(') => return MarkerScan::Text,
        Some(b'[') => match begin_of_marker(&bytes[length..]) {
            Some(begin) if begin.len() > bytes.len() - length && !whole => return MarkerScan::Unfinished,
            Some(begin) if begin.len() <= bytes.len() - length => {}
            _ => return MarkerScan::Text,
        },
        _ => {}
    }
    let alone = MarkerScan::Marker { length, has_arguments: false };
    let blanks =
        |from: usize| from + bytes[from..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let mut at = blanks(length);
    let rest = &bytes[at..];
    let name = &ARGUMENTS.as_bytes()[..rest.len().min(ARGUMENTS.len())];
    if rest[..name.len()].eq_ignore_ascii_case(name) {
        if name.len() < ARGUMENTS.len() {
            return if whole { alone } else { MarkerScan::Unfinished };
        }
        at = blanks(at + name.len());
    }
    match bytes.get(at) {
        Some(b'{') => MarkerScan::Marker { length: at, has_arguments: true },
        None if !whole => MarkerScan::Unfinished,
        _ => alone,
    }
}
