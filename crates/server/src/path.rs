//! Parts of paths.

/// A part of a path without its escapes.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                bytes.push(u8::try_from(high * 16 + low).ok()?);
            }
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_undoes_escapes_of_a_path() {
        for (text, wanted) in [
            ("quipu", Some("quipu")),
            ("testing%2Ftest-1", Some("testing/test-1")),
            ("a/b", Some("a/b")),
            ("%e2%9c%93", Some("✓")),
            ("%", None),
            ("%2", None),
            ("%zz", None),
            ("%ff", None),
        ] {
            assert_eq!(decoded(text).as_deref(), wanted, "{text}");
        }
    }
}
