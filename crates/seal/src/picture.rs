//! Text inside of pictures, where no search looks: it is left out.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Its base64 as far as it is whole.
const BEGINS: &str = "iVBORw0KGg";

/// A picture as base64, without the text chunks of a PNG (`tEXt`, `zTXt`, `iTXt`) and without what stands behind its end. What
/// cannot be read as chunks to the end is left as it is.
pub fn without_text(base64: &str) -> Cow<'_, str> {
    if !base64.starts_with(BEGINS) {
        return Cow::Borrowed(base64);
    }
    let Ok(bytes) = STANDARD.decode(base64) else { return Cow::Borrowed(base64) };
    match stripped(&bytes) {
        Some(kept) => Cow::Owned(STANDARD.encode(kept)),
        None => Cow::Borrowed(base64),
    }
}

/// What is left; `None` where all of it is.
fn stripped(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut rest = bytes.strip_prefix(SIGNATURE)?;
    let mut kept = SIGNATURE.to_vec();
    loop {
        let (size, name) = (rest.first_chunk::<4>()?, rest.get(4..8)?);
        let size = usize::try_from(u32::from_be_bytes(*size)).ok()?.checked_add(12)?;
        let (chunk, behind) = rest.split_at_checked(size)?;
        if !matches!(name, b"tEXt" | b"zTXt" | b"iTXt") {
            kept.extend_from_slice(chunk);
        }
        if name == b"IEND" {
            return (kept.len() < bytes.len()).then_some(kept);
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(name: &[u8; 4], data: &[u8]) -> Vec<u8> {
        let size = u32::try_from(data.len()).unwrap().to_be_bytes();
        [&size[..], name, data, b"crc!"].concat()
    }

    fn png(chunks: &[Vec<u8>]) -> String {
        STANDARD.encode([SIGNATURE.to_vec(), chunks.concat()].concat())
    }

    #[test]
    fn text_chunks_are_left_out_and_nothing_else() {
        let (head, data, end) = (chunk(b"IHDR", &[7; 13]), chunk(b"IDAT", b"pixels"), chunk(b"IEND", b""));
        let plain = png(&[head.clone(), data.clone(), end.clone()]);
        assert!(matches!(without_text(&plain), Cow::Borrowed(same) if same == plain));
        for name in [b"tEXt", b"zTXt", b"iTXt"] {
            let text = chunk(name, b"Comment\0secret");
            for chunks in [
                [&head, &text, &data, &end],
                [&head, &data, &text, &end],
                // What stands behind the end is shown by nobody, either.
                [&head, &data, &end, &text],
            ] {
                assert_eq!(without_text(&png(&chunks.map(Clone::clone))), plain);
            }
        }
    }

    #[test]
    fn incomplete_png_stays() {
        let (head, text) = (chunk(b"IHDR", &[7; 13]), chunk(b"tEXt", b"a"));
        let mut huge = chunk(b"IDAT", b"x");
        huge[0] = 0xff;
        let broken =
            [png(&[]), png(&[head.clone(), text]), png(&[head, huge]), format!("{BEGINS}!"), String::new()];
        for data in broken {
            assert_eq!(without_text(&data), data);
        }
    }
}
