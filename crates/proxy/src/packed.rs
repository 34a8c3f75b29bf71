//! Bodies that are packed, read for the record.

use std::borrow::Cow;
use std::io::Read as _;

use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// Bytes of an unpacked body at most.
pub(crate) const UNPACKED: usize = 128 << 20;

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PackedError {
    #[error("it is packed as {0}, which the proxy does not read")]
    Unknown(String),
    #[error("unpacked it has more than {} MiB", UNPACKED >> 20)]
    TooLarge,
    #[error("its packing is damaged")]
    Damaged,
}

/// A body without its packing.
pub(crate) fn unpacked<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Cow<'a, [u8]>, PackedError> {
    let mut encodings =
        headers.get_all(CONTENT_ENCODING).iter().map(|value| value.to_str().unwrap_or("?").trim());
    let Some(encoding) = encodings.next().filter(|encoding| !encoding.is_empty()) else {
        return Ok(Cow::Borrowed(body));
    };
    if encodings.next().is_some() {
        return Err(PackedError::Unknown("several packings".into()));
    }
    match encoding.to_ascii_lowercase().as_str() {
        "identity" => Ok(Cow::Borrowed(body)),
        "gzip" | "x-gzip" => read(flate2::read::MultiGzDecoder::new(body)),
        "zstd" => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(body).map_err(|_| PackedError::Damaged)?;
            read(decoder)
        }
        other => Err(PackedError::Unknown(other.chars().take(40).collect())),
    }
}

/// All that comes before a fault counts: a stream that was cut off ends in the middle.
fn read<'a>(reader: impl std::io::Read) -> Result<Cow<'a, [u8]>, PackedError> {
    let mut out = Vec::new();
    let read = reader.take(UNPACKED as u64 + 1).read_to_end(&mut out);
    if out.len() > UNPACKED {
        return Err(PackedError::TooLarge);
    }
    match read {
        Err(_) if out.is_empty() => Err(PackedError::Damaged),
        Ok(_) | Err(_) => Ok(Cow::Owned(out)),
    }
}
