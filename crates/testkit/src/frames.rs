//! Frames of bytes, as some servers send their events: a prelude with its checksum, headers, a payload, a checksum.

use crate::Wire;

/// One frame with these headers, all of them strings.
pub fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in headers {
        head.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        head.extend(name.as_bytes());
        head.push(7);
        head.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        head.extend(value.as_bytes());
    }
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    let mut out = [length(16 + head.len() + payload.len()), length(head.len())].concat();
    out.extend(checksum(&out).to_be_bytes());
    out.extend(head);
    out.extend(payload);
    out.extend(checksum(&out).to_be_bytes());
    out
}

/// The CRC-32 of the bytes, bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum: u32, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

impl Wire {
    /// A stream that is written as text, as the wire has it. Where it has frames, each event of the text is one:
    /// `event: NAME`, or `exception: NAME`, and `data: PAYLOAD` in the next line. Other lines are left out.
    pub fn bytes(self, text: &str) -> Vec<u8> {
        match self {
            Self::Converse => {}
            Self::Messages
            | Self::Completions
            | Self::Responses
            | Self::Contents
            | Self::Subscription
            | Self::Chunks
            | Self::Gateway
            | Self::Envelope => return text.into(),
        }
        let mut out = Vec::new();
        for event in text.split("\n\n") {
            let line =
                |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
            let Some(payload) = line("data:") else { continue };
            let (kind, name, value) = match line("exception:") {
                Some(exception) => ("exception", ":exception-type", exception),
                None => ("event", ":event-type", line("event:").unwrap_or_default()),
            };
            // A name that does not fit into a header is no name.
            let value = if value.len() < 256 { value } else { "" };
            let headers = [(name, value), (":content-type", "application/json"), (":message-type", kind)];
            out.extend(frame(&headers, payload.as_bytes()));
        }
        out
    }
}
