//! Images, made fit for a request.

use std::fmt;
use std::io::Cursor;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::imageops::FilterType;
use image::metadata::Orientation;
use image::{
    DynamicImage, ImageBuffer, ImageDecoder, ImageEncoder, ImageFormat, ImageReader, Limits, Pixel, imageops,
};
use quipu_protocol::{Content, ImageContent};

/// Pixels in a side at most.
const MAX_SIDE: u32 = 2000;
/// Characters of base64 that an image must stay below.
const MAX_BASE64: usize = 4608 * 1024;
/// Bytes of memory that a decoded image may take.
const MAX_DECODED: u64 = 256 << 20;
/// Pixels in a side that are decoded at all.
const MAX_DECODED_SIDE: u32 = 20_000;
const JPEG_QUALITIES: [u8; 5] = [80, 85, 70, 55, 40];

/// What is said of an image that cannot be decoded, or not within the limits.
pub(crate) const NOT_CONVERTED: &str =
    "[Image omitted: could not be converted to a supported inline image format.]";

/// Kinds of images that are read as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageKind {
    Png,
    Jpeg,
    Gif,
    Webp,
    Bmp,
}

impl fmt::Display for ImageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
            Self::Bmp => "image/bmp",
        })
    }
}

impl ImageKind {
    fn format(self) -> ImageFormat {
        match self {
            Self::Png => ImageFormat::Png,
            Self::Jpeg => ImageFormat::Jpeg,
            Self::Gif => ImageFormat::Gif,
            Self::Webp => ImageFormat::WebP,
            Self::Bmp => ImageFormat::Bmp,
        }
    }
}

/// Why an image is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImageProblem {
    #[error("{NOT_CONVERTED}")]
    NotConverted,
    #[error("[Image omitted: could not be resized below the inline image size limit.]")]
    TooLarge,
}

/// An image fit for a request.
#[derive(Debug)]
pub(crate) struct PreparedImage {
    pub(crate) kind: ImageKind,
    /// What the model should know of it.
    pub(crate) hints: Vec<String>,
    base64: String,
}

impl PreparedImage {
    pub(crate) fn into_content(self) -> Content {
        Content::Image(ImageContent { data: self.base64, mime_type: self.kind.to_string() })
    }
}

/// The kind of image that a file beginning with `magic` (64 bytes are enough) is.
pub(crate) fn kind(magic: &[u8]) -> Option<ImageKind> {
    match magic {
        [0x89, b'P', b'N', b'G', ..] => Some(ImageKind::Png),
        // The lossless kind, which nothing reads.
        [0xFF, 0xD8, 0xFF, 0xF7, ..] => None,
        [0xFF, 0xD8, 0xFF, ..] => Some(ImageKind::Jpeg),
        [b'G', b'I', b'F', ..] => Some(ImageKind::Gif),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(ImageKind::Webp),
        [b'B', b'M', ..] if magic.len() >= 26 => Some(ImageKind::Bmp),
        _ => None,
    }
}

/// Whether a PNG holds an animation: its control chunk stands before the first pixels.
pub(crate) fn is_animated_png(bytes: &[u8]) -> bool {
    if !bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return false;
    }
    let mut at = 8;
    while let Some(header) = bytes.get(at..at + 8) {
        match &header[4..] {
            b"acTL" => return true,
            b"IDAT" => return false,
            _ => {}
        }
        let size = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        at += 12 + usize::try_from(size).unwrap_or(usize::MAX / 2);
    }
    false
}

/// Keeps a small image as it is; fits a large one into the limits; turns what models do not take into PNG.
pub(crate) fn prepare(bytes: &[u8], kind: ImageKind) -> Result<PreparedImage, ImageProblem> {
    let (image, orientation) = decode(bytes, kind)?;
    let (mut width, mut height) = (image.width(), image.height());
    if is_on_its_side(orientation) {
        (width, height) = (height, width);
    }
    let small = width.max(height) <= MAX_SIDE && base64_len(bytes.len()) < MAX_BASE64;
    if small && kind != ImageKind::Bmp {
        return Ok(PreparedImage { kind, hints: Vec::new(), base64: STANDARD.encode(bytes) });
    }
    let image = upright(plain(image), orientation);
    let mut shown = match width.max(height) {
        most if most > MAX_SIDE => resized(&image, within(width, most), within(height, most)),
        _ => image,
    };
    loop {
        if let Some((to, encoded)) = encode(&shown) {
            let mut hints = Vec::new();
            if to != kind {
                hints.push(format!("[Image converted from {kind} to {to}.]"));
            }
            if (shown.width(), shown.height()) != (width, height) {
                let scale = f64::from(width) / f64::from(shown.width());
                hints.push(format!(
                    "[Image: original {width}x{height}, displayed at {}x{}. Multiply coordinates by {scale:.2} to \
                     map to original image.]",
                    shown.width(),
                    shown.height()
                ));
            }
            return Ok(PreparedImage { kind: to, hints, base64: STANDARD.encode(encoded) });
        }
        if shown.width() == 1 && shown.height() == 1 {
            return Err(ImageProblem::TooLarge);
        }
        let less = |side: u32| (side * 3 / 4).max(1);
        shown = resized(&shown, less(shown.width()), less(shown.height()));
    }
}

/// The image of a file as a model gets it from the tool `read`: the image, and in words how it was changed or why it is left
/// out. `None` for what is no image, or an animation.
#[must_use]
pub fn image_blocks(bytes: &[u8]) -> Option<Vec<Content>> {
    let kind = kind(bytes).filter(|_| !is_animated_png(bytes))?;
    Some(match prepare(bytes, kind) {
        Ok(prepared) => {
            let hints = prepared.hints.iter().map(Content::text).collect::<Vec<_>>();
            std::iter::once(prepared.into_content()).chain(hints).collect()
        }
        Err(problem) => vec![Content::text(problem.to_string())],
    })
}

/// A side of an image whose longer one becomes [`MAX_SIDE`].
fn within(side: u32, longer: u32) -> u32 {
    let exact = (u64::from(side) * u64::from(MAX_SIDE) * 2 + u64::from(longer)) / (u64::from(longer) * 2);
    u32::try_from(exact).unwrap_or(MAX_SIDE).max(1)
}

/// Eight bits for each of one, three or four channels, as the image will be encoded: what is done to it is compiled for
/// these three, and not for all ten that there are.
fn plain(image: DynamicImage) -> DynamicImage {
    let color = image.color();
    if color.has_alpha() {
        image.into_rgba8().into()
    } else if color.has_color() {
        image.into_rgb8().into()
    } else {
        image.into_luma8().into()
    }
}

fn resized(image: &DynamicImage, width: u32, height: u32) -> DynamicImage {
    let filter = FilterType::Lanczos3;
    match image {
        DynamicImage::ImageLuma8(image) => imageops::resize(image, width, height, filter).into(),
        DynamicImage::ImageRgb8(image) => imageops::resize(image, width, height, filter).into(),
        other => imageops::resize(&other.to_rgba8(), width, height, filter).into(),
    }
}

fn is_on_its_side(orientation: Orientation) -> bool {
    match orientation {
        Orientation::Rotate90
        | Orientation::Rotate270
        | Orientation::Rotate90FlipH
        | Orientation::Rotate270FlipH => true,
        Orientation::NoTransforms
        | Orientation::Rotate180
        | Orientation::FlipHorizontal
        | Orientation::FlipVertical => false,
    }
}

fn upright(image: DynamicImage, orientation: Orientation) -> DynamicImage {
    match image {
        image if orientation == Orientation::NoTransforms => image,
        DynamicImage::ImageLuma8(image) => turned(image, orientation).into(),
        DynamicImage::ImageRgb8(image) => turned(image, orientation).into(),
        other => turned(other.into_rgba8(), orientation).into(),
    }
}

fn turned<P: Pixel<Subpixel = u8> + 'static>(
    image: ImageBuffer<P, Vec<u8>>,
    orientation: Orientation,
) -> ImageBuffer<P, Vec<u8>> {
    let mut turned = match orientation {
        Orientation::Rotate90 | Orientation::Rotate90FlipH => imageops::rotate90(&image),
        Orientation::Rotate270 | Orientation::Rotate270FlipH => imageops::rotate270(&image),
        _ => image,
    };
    match orientation {
        Orientation::Rotate180 => imageops::rotate180_in_place(&mut turned),
        Orientation::FlipHorizontal | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH => {
            imageops::flip_horizontal_in_place(&mut turned);
        }
        Orientation::FlipVertical => imageops::flip_vertical_in_place(&mut turned),
        Orientation::NoTransforms | Orientation::Rotate90 | Orientation::Rotate270 => {}
    }
    turned
}

/// All of it is decoded even when its bytes are kept: a provider refuses the whole request for a broken one.
fn decode(bytes: &[u8], kind: ImageKind) -> Result<(DynamicImage, Orientation), ImageProblem> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_DECODED_SIDE);
    limits.max_image_height = Some(MAX_DECODED_SIDE);
    limits.max_alloc = Some(MAX_DECODED);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), kind.format());
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|_| ImageProblem::NotConverted)?;
    if decoder.total_bytes() > MAX_DECODED {
        return Err(ImageProblem::NotConverted);
    }
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let image = DynamicImage::from_decoder(decoder).map_err(|_| ImageProblem::NotConverted)?;
    Ok((image, orientation))
}

/// As PNG, else as JPEG, whichever first is small enough.
fn encode(image: &DynamicImage) -> Option<(ImageKind, Vec<u8>)> {
    let fits = |encoded: &Vec<u8>| base64_len(encoded.len()) < MAX_BASE64;
    let png = match image.color().has_alpha() {
        true => DynamicImage::from(image.to_rgba8()),
        false => DynamicImage::from(image.to_rgb8()),
    };
    let mut encoded = Vec::new();
    let done = PngEncoder::new(&mut encoded).write_image(
        png.as_bytes(),
        png.width(),
        png.height(),
        png.color().into(),
    );
    if done.is_ok() && fits(&encoded) {
        return Some((ImageKind::Png, encoded));
    }
    let flat = on_white(image);
    JPEG_QUALITIES.iter().find_map(|quality| {
        let mut encoded = Vec::new();
        let done = JpegEncoder::new_with_quality(&mut encoded, *quality).encode_image(&flat);
        (done.is_ok() && fits(&encoded)).then_some((ImageKind::Jpeg, encoded))
    })
}

/// JPEG has no transparency; what shows through is white, as on most pages.
fn on_white(image: &DynamicImage) -> image::RgbImage {
    if !image.color().has_alpha() {
        return image.to_rgb8();
    }
    let source = image.to_rgba8();
    image::RgbImage::from_fn(source.width(), source.height(), |x, y| {
        let [r, g, b, a] = source.get_pixel(x, y).0;
        let over = |c: u8| {
            let blended = (u32::from(c) * u32::from(a) + 255 * (255 - u32::from(a))) / 255;
            u8::try_from(blended).unwrap_or(u8::MAX)
        };
        image::Rgb([over(r), over(g), over(b)])
    })
}

fn base64_len(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Vec::new();
        let image = image::RgbImage::from_fn(width, height, |x, y| {
            image::Rgb([x.to_le_bytes()[0], y.to_le_bytes()[0], 7])
        });
        DynamicImage::from(image).write_to(&mut Cursor::new(&mut bytes), format).unwrap();
        bytes
    }

    #[test]
    fn kinds_by_their_first_bytes() {
        let check = |format, expect| assert_eq!(kind(&picture(2, 2, format)[..64]), Some(expect));
        check(ImageFormat::Png, ImageKind::Png);
        check(ImageFormat::Jpeg, ImageKind::Jpeg);
        check(ImageFormat::Bmp, ImageKind::Bmp);
        assert_eq!(kind(&[0xFF, 0xD8, 0xFF, 0xF7]), None);
        assert_eq!(kind(b"BM"), None);
        assert_eq!(kind(b"hello"), None);
        assert_eq!(kind(b""), None);
        let animated = b"\x89PNG\r\n\x1a\n\0\0\0\0IHDR1234\0\0\0\x02acTLxx".as_slice();
        assert!(is_animated_png(animated));
        assert!(!is_animated_png(&picture(2, 2, ImageFormat::Png)));
        assert!(!is_animated_png(b"\x89PNG\r\n\x1a\n\xff\xff\xff\xffIHDR"));
    }

    #[test]
    fn small_ones_are_kept_and_others_fitted() {
        let png = picture(30, 20, ImageFormat::Png);
        let kept = prepare(&png, ImageKind::Png).unwrap();
        assert_eq!(STANDARD.decode(&kept.base64).unwrap(), png);
        assert!(kept.hints.is_empty());

        let bmp = prepare(&picture(30, 20, ImageFormat::Bmp), ImageKind::Bmp).unwrap();
        assert_eq!(
            (bmp.kind, &*bmp.hints[0]),
            (ImageKind::Png, "[Image converted from image/bmp to image/png.]")
        );

        let wide = prepare(&picture(3000, 30, ImageFormat::Png), ImageKind::Png).unwrap();
        assert_eq!(
            wide.hints,
            [
                "[Image: original 3000x30, displayed at 2000x20. Multiply coordinates by 1.50 to map to original image.]"
            ]
        );
    }

    #[test]
    fn cameras_are_turned() {
        let image = image::RgbaImage::from_fn(3, 2, |x, y| {
            image::Rgba([x.to_le_bytes()[0], y.to_le_bytes()[0], 7, 200])
        });
        for image in [
            DynamicImage::from(image.clone()),
            DynamicImage::from(image.clone()).to_rgb8().into(),
            DynamicImage::from(image).to_luma8().into(),
        ] {
            for orientation in (1..=8).map(|code| Orientation::from_exif(code).unwrap()) {
                let mut expect = image.clone();
                expect.apply_orientation(orientation);
                let turned = upright(image.clone(), orientation);
                assert_eq!(is_on_its_side(orientation), turned.width() == 2, "{orientation:?}");
                assert_eq!(turned, expect, "{orientation:?}");
            }
        }
    }

    #[test]
    fn every_kind_of_pixel_is_fitted() {
        let image = image::RgbaImage::from_fn(2500, 7, |x, y| {
            image::Rgba([x.to_le_bytes()[0], y.to_le_bytes()[0], 7, 255])
        });
        let image = DynamicImage::from(image);
        for image in [
            image.to_luma8().into(),
            image.to_luma16().into(),
            image.to_luma_alpha8().into(),
            image.to_luma_alpha16().into(),
            image.to_rgb8().into(),
            image.to_rgb16().into(),
            image.to_rgba16().into(),
            image,
        ] {
            let mut bytes = Vec::new();
            image.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png).unwrap();
            let prepared = prepare(&bytes, ImageKind::Png).unwrap();
            let shown = image::load_from_memory(&STANDARD.decode(&prepared.base64).unwrap()).unwrap();
            let expect = image.resize(MAX_SIDE, MAX_SIDE, FilterType::Lanczos3);
            assert_eq!((shown.width(), shown.height()), (expect.width(), expect.height()));
            assert_eq!(shown.color().has_alpha(), image.color().has_alpha());
            for (shown, expect) in shown.to_rgba8().pixels().zip(expect.to_rgba8().pixels()) {
                let near = shown.0.iter().zip(expect.0).all(|(a, b)| a.abs_diff(b) <= 1);
                assert!(near, "{:?}: {shown:?} {expect:?}", image.color());
            }
        }
    }

    #[test]
    fn broken_ones_are_refused() {
        let png = picture(30, 20, ImageFormat::Png);
        assert_eq!(prepare(&png[..png.len() / 2], ImageKind::Png).unwrap_err(), ImageProblem::NotConverted);
        // A header that promises more pixels than we take.
        let mut bomb = png;
        bomb[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
        assert_eq!(prepare(&bomb, ImageKind::Png).unwrap_err(), ImageProblem::NotConverted);
    }
}
