//! Images: what is said of one, and what a terminal is told that draws it in rows which are kept free. Nothing is decoded
//! here but base64 and the first fields of a file; what is too large for a terminal to decode is only named.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quipu_protocol::ImageContent;

/// Characters of base64 of an image that is looked at.
const LONGEST: usize = 8 << 20;
/// Pixels of an image that a terminal is asked to draw.
const PIXELS: u64 = 25_000_000;
/// Columns and rows of one at most.
const SPACE: (u64, u64) = (60, 16);
/// Characters of base64 that Kitty takes together.
const CHUNK: usize = 4_096;

/// How a terminal draws images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Graphics {
    /// Kitty's protocol (<https://sw.kovidgoyal.net/kitty/graphics-protocol/>): PNG.
    Kitty,
    /// iTerm2's (<https://iterm2.com/documentation-images.html>): any kind.
    Iterm2,
}

/// What images are drawn on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canvas {
    /// In which way.
    pub graphics: Graphics,
    /// Width and height of a cell, in pixels.
    pub cell: (u32, u32),
    /// Rows that one may take.
    pub rows: usize,
}

/// An image to be drawn from a line on, in rows that are kept free for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Rows that it takes.
    pub(crate) rows: usize,
    /// Columns that it takes.
    pub(crate) columns: usize,
    /// What a terminal is told.
    pub(crate) bytes: Vec<u8>,
}

/// What is said of an image: its kind and size.
pub(crate) fn caption(image: &ImageContent) -> String {
    let bytes = image.data.len() as u64 / 4 * 3;
    let size = crate::amounts::bytes(bytes);
    match measured(image) {
        Some((kind, width, height)) => format!("[{kind} image, {width} × {height}, {size}]"),
        None => format!("[{}, {size}, not readable]", image.mime_type),
    }
}

/// An image for a terminal; nothing for what it cannot draw.
pub(crate) fn picture(image: &ImageContent, columns: usize, canvas: Canvas) -> Option<Picture> {
    let (kind, width, height) = measured(image)?;
    let (width, height) = (u64::from(width), u64::from(height));
    if width * height > PIXELS || canvas.graphics == Graphics::Kitty && kind != "PNG" {
        return None;
    }
    let (cell_width, cell_height) = (u64::from(canvas.cell.0.max(1)), u64::from(canvas.cell.1.max(1)));
    let room = SPACE.0.min(columns as u64).max(1);
    let mut across = width.div_ceil(cell_width).min(room);
    let mut down = (height * across * cell_width).div_ceil(width * cell_height).max(1);
    if height <= down * cell_height && width <= across * cell_width {
        down = height.div_ceil(cell_height);
    }
    let most = SPACE.1.min(canvas.rows as u64).max(1);
    if down > most {
        down = most;
        across = (width * down * cell_height / (height * cell_width)).clamp(1, room);
    }
    let data = image.data.as_str();
    let mut out = String::with_capacity(data.len() + data.len() / 256 + 128);
    // Writing to a string cannot fail.
    let _written = match canvas.graphics {
        Graphics::Iterm2 => write!(
            out,
            "\x1b]1337;File=inline=1;size={};width={across};height={down};preserveAspectRatio=1;doNotMoveCursor=1:{data}\x07",
            data.len() / 4 * 3
        ),
        Graphics::Kitty => {
            let mut head = format!("a=T,f=100,q=2,C=1,c={across},r={down},");
            let mut rest = data;
            while !rest.is_empty() {
                let (chunk, more) = rest.split_at(rest.len().min(CHUNK));
                let _written = write!(out, "\x1b_G{head}m={};{chunk}\x1b\\", u8::from(!more.is_empty()));
                head = "q=2,".to_owned();
                rest = more;
            }
            Ok(())
        }
    };
    Some(Picture {
        rows: usize::try_from(down).ok()?,
        columns: usize::try_from(across).ok()?,
        bytes: out.into_bytes(),
    })
}

/// The kind of an image, its width and its height, neither of them 0. Its base64 is sound then.
fn measured(image: &ImageContent) -> Option<(&'static str, u32, u32)> {
    if image.data.len() > LONGEST {
        return None;
    }
    let bytes = STANDARD.decode(&image.data).ok()?;
    measure(&bytes).filter(|(_, width, height)| *width > 0 && *height > 0)
}

fn measure(bytes: &[u8]) -> Option<(&'static str, u32, u32)> {
    let little = |at: usize, count: usize| {
        let found = bytes.get(at..at + count)?;
        Some(found.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    };
    let big = |at: usize, count: usize| {
        let found = bytes.get(at..at + count)?;
        Some(found.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    };
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") && bytes.get(12..16)? == b"IHDR" {
        return Some(("PNG", big(16, 4)?, big(20, 4)?));
    }
    if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
        return Some(("GIF", little(6, 2)?, little(8, 2)?));
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12)? == b"WEBP" {
        let size = match bytes.get(12..16)? {
            b"VP8X" => (little(24, 3)? + 1, little(27, 3)? + 1),
            b"VP8L" => (little(21, 2)? % 0x4000 + 1, (little(22, 3)? >> 6) % 0x4000 + 1),
            b"VP8 " => (little(26, 2)? % 0x4000, little(28, 2)? % 0x4000),
            _ => return None,
        };
        return Some(("WebP", size.0, size.1));
    }
    if bytes.starts_with(b"\xff\xd8") {
        let mut at = 2;
        loop {
            let marker = *bytes.get(at + 1).filter(|_| bytes.get(at) == Some(&0xff))?;
            match marker {
                0xff => at += 1,
                0xc4 | 0xc8 | 0xcc => at += 2 + usize::try_from(big(at + 2, 2)?).ok()?,
                0xc0..=0xcf => return Some(("JPEG", big(at + 7, 2)?, big(at + 5, 2)?)),
                _ => at += 2 + usize::try_from(big(at + 2, 2)?).ok()?,
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(bytes: &[u8]) -> ImageContent {
        ImageContent { data: STANDARD.encode(bytes), mime_type: "image/x\x1b[2J".into() }
    }

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes.resize(9_000, 7);
        bytes
    }

    #[test]
    fn kinds_and_sizes() {
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc2\0\x11\x08\x01\x02\x03\x04rest";
        for (bytes, expected) in [
            (png(800, 600), Some(("PNG", 800, 600))),
            (b"GIF89a\x20\x03\x58\x02..".to_vec(), Some(("GIF", 800, 600))),
            (b"RIFF....WEBPVP8X........\x1f\x03\0\x57\x02\0".to_vec(), Some(("WebP", 800, 600))),
            (b"RIFF....WEBPVP8 ..........\x20\x03\x58\x02".to_vec(), Some(("WebP", 800, 600))),
            // 799 in 14 bits, then 599 in 14 bits.
            (b"RIFF....WEBPVP8L....\x2f\x1f\xc3\x95\0.".to_vec(), Some(("WebP", 800, 600))),
            (jpeg.to_vec(), Some(("JPEG", 0x304, 0x102))),
            (b"\xff\xd8\xff\xe0\0\0\xff\xe0".to_vec(), None),
            (b"\xff\xd8".to_vec(), None),
            (b"\x89PNG\r\n\x1a\n".to_vec(), None),
            (b"RIFF....WEBPVP8L".to_vec(), None),
            (Vec::new(), None),
        ] {
            assert_eq!(measure(&bytes), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn pictures_fit_and_keep_their_aspect_ratio() {
        let canvas = Canvas { graphics: Graphics::Kitty, cell: (10, 20), rows: 50 };
        for (size, columns, expected) in [
            ((800, 600), 80, (42, 16)),
            ((100, 100), 80, (10, 5)),
            ((5, 5), 80, (1, 1)),
            ((4_000, 10), 80, (60, 1)),
            ((10, 4_000), 80, (1, 16)),
            ((800, 600), 10, (10, 4)),
        ] {
            let drawn = picture(&image(&png(size.0, size.1)), columns, canvas).unwrap();
            assert_eq!((drawn.columns, drawn.rows), expected, "{size:?}");
            let text = String::from_utf8(drawn.bytes).unwrap();
            assert!(text.starts_with("\x1b_Ga=T,f=100,q=2,C=1,c="), "{text}");
            assert_eq!(text.matches("\x1b_G").count(), 3);
            assert!(text.contains("m=1;") && text.split("\x1b_G").last().unwrap().starts_with("q=2,m=0;"));
        }
        let jpeg = image(b"\xff\xd8\xff\xc0\0\x11\x08\x01\x02\x03\x04rest");
        assert_eq!(picture(&jpeg, 80, canvas), None);
        let iterm = picture(&jpeg, 80, Canvas { graphics: Graphics::Iterm2, ..canvas }).unwrap();
        assert!(iterm.bytes.starts_with(b"\x1b]1337;File=inline=1;size=") && iterm.bytes.ends_with(b"\x07"));
    }

    #[test]
    fn hostile_image_is_shown_as_a_caption() {
        let canvas = Canvas { graphics: Graphics::Iterm2, cell: (0, 0), rows: 0 };
        let mut broken = image(&png(10, 10));
        broken.data.push_str("\x07\x1b]0;x");
        let long = ImageContent { data: "A".repeat(LONGEST + 4), mime_type: "image/png".into() };
        for image in [image(b"no image"), image(&png(100_000, 100_000)), image(&png(0, 9)), broken, long] {
            assert_eq!(picture(&image, 80, canvas), None);
            assert!(caption(&image).contains(','));
        }
    }
}
