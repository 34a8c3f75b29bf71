//! Bytes that arrive in pieces, as text.

/// Decodes UTF-8 that arrives in arbitrary pieces. Each maximal invalid sequence becomes one U+FFFD; a character
/// that is cut by the end of a piece waits for the next. Holds at most three bytes.
#[derive(Debug, Clone, Default)]
pub struct Utf8Decoder {
    held: [u8; 4],
    len: usize,
}

const REPLACEMENT: &str = "\u{fffd}";

impl Utf8Decoder {
    /// Decodes one more piece; `sink` gets the text in order, in one or more slices.
    pub fn push(&mut self, mut bytes: &[u8], mut sink: impl FnMut(&str)) {
        // A held start of a character is tried with one byte more at a time, until it is whole or broken.
        while self.len > 0 {
            let Some((&next, rest)) = bytes.split_first() else { return };
            self.held[self.len] = next;
            match std::str::from_utf8(&self.held[..=self.len]) {
                Ok(text) => {
                    sink(text);
                    self.len = 0;
                    bytes = rest;
                }
                Err(error) if error.error_len().is_none() => {
                    self.len += 1;
                    bytes = rest;
                }
                // What was held is broken; the new byte is looked at afresh.
                Err(_) => {
                    sink(REPLACEMENT);
                    self.len = 0;
                }
            }
        }
        loop {
            match std::str::from_utf8(bytes) {
                Ok(text) => {
                    if !text.is_empty() {
                        sink(text);
                    }
                    return;
                }
                Err(error) => {
                    let (good, bad) = bytes.split_at(error.valid_up_to());
                    if let Ok(text) = std::str::from_utf8(good)
                        && !text.is_empty()
                    {
                        sink(text);
                    }
                    match error.error_len() {
                        Some(len) => {
                            sink(REPLACEMENT);
                            bytes = &bad[len..];
                        }
                        None => {
                            self.held[..bad.len()].copy_from_slice(bad);
                            self.len = bad.len();
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Ends the text: a character that never became whole is one U+FFFD.
    pub fn finish(&mut self, mut sink: impl FnMut(&str)) {
        if std::mem::take(&mut self.len) > 0 {
            sink(REPLACEMENT);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(pieces: &[&[u8]]) -> String {
        let (mut decoder, mut out) = (Utf8Decoder::default(), String::new());
        for piece in pieces {
            decoder.push(piece, |text| out.push_str(text));
        }
        decoder.finish(|text| out.push_str(text));
        out
    }

    #[test]
    fn characters_survive_every_split() {
        let text = "aé€😀\u{fffd}z";
        let bytes = text.as_bytes();
        for at in 0..=bytes.len() {
            assert_eq!(decode(&[&bytes[..at], &bytes[at..]]), text);
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(decode(&single), text);
    }

    proptest! {
        #[test]
        fn equals_decoding_at_once(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xE2), Just(0x82), Just(0xF0), Just(0x9F), Just(b'a')], 0..40), cuts in prop::collection::vec(0usize..40, 0..6)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(decode(&pieces), String::from_utf8_lossy(&bytes));
        }
    }
}
