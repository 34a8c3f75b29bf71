use std::time::{Duration, Instant};

use super::*;

const ALL: PageRange = PageRange { first: 0, count: None };

/// A file of these objects, numbered from 1; `{…}` behind an object is its stream.
fn file(objects: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = b"%PDF-1.7\n".to_vec();
    for (number, (object, stream)) in (1..).zip(objects) {
        bytes.extend(format!("{number} 0 obj\n{object}\n").bytes());
        if !stream.is_empty() {
            bytes.extend(b"stream\n");
            bytes.extend_from_slice(stream);
            bytes.extend(b"\nendstream\n");
        }
        bytes.extend(b"endobj\n");
    }
    bytes.extend(b"trailer <</Root 1 0 R>>\n%%EOF\n");
    bytes
}

const CATALOG: &str = "<</Type /Catalog /Pages 2 0 R>>";
const TREE: &str =
    "<</Type /Pages /Kids [3 0 R] /Count 1 /Resources <</Font <</F1 5 0 R>> /XObject <</X 6 0 R>>>>>>";
const PAGE: &str = "<</Type /Page /Parent 2 0 R /Contents 4 0 R>>";
const FONT: &str = "<</Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding>>";

/// One page with this content, in a font.
fn page(content: &[u8], font: &str) -> Vec<u8> {
    file(&[(CATALOG, b""), (TREE, b""), (PAGE, b""), ("<<>>", content), (font, b"")])
}

fn read(bytes: &[u8]) -> Result<PdfText, PdfError> {
    read_pages(bytes, ALL, 50 << 10, &CancellationToken::new())
}

fn check(content: &str, font: &str, expect: &str) {
    let text = read(&page(content.as_bytes(), font)).unwrap();
    assert_eq!(text.pages[0].text, expect, "{content}");
}

#[test]
fn text_of_a_page_has_its_words_and_lines() {
    check("BT /F1 12 Tf 72 700 Td (Hello, world) Tj ET", FONT, "Hello, world");
    check("BT /F1 12 Tf 14 TL 72 700 Td (one) Tj T* (two) Tj (three) ' ET", FONT, "one\ntwo\nthree");
    check("BT /F1 10 Tf 72 700 Td (a) Tj 0 -30 Td (b) Tj ET", FONT, "a\n\nb");
    check("BT /F1 10 Tf [(Wo) -20 (rd) -400 (next)] TJ ET", FONT, "Word next");
    check("BT /F1 10 Tf 0 0 Td (left) Tj 100 0 Td (right) Tj ET", FONT, "left right");
    check("q 2 0 0 2 0 0 cm BT /F1 10 Tf 1 0 0 1 5 5 Tm (big) Tj ET Q", FONT, "big");
    check(r"BT /F1 10 Tf (\(a\) \101\n <\251> \\) Tj ET", FONT, "(a) A <©> \\");
    check("BT /F1 10 Tf <48 69 2> Tj ET", FONT, "Hi");
    check("BI /W 1 /H 1 ID (x) Tj\0\0 EI BT /F1 9 Tf (after) Tj ET", FONT, "after");
    check("BT /F1 10 Tf (no end", FONT, "");
}

#[test]
fn codes_become_characters_by_the_encoding_of_the_font() {
    let named = "<</Subtype /Type1 /Encoding <</Differences [1 /fi /uni20AC 65 /Aring /alpha /x.alt]>>>>";
    check("BT /F1 10 Tf (\\001\\002ABC) Tj ET", named, "fi€Åαx");
    let mac = "<</Subtype /TrueType /Encoding /MacRomanEncoding>>";
    check("BT /F1 10 Tf (\\200\\212\\322x\\323) Tj ET", mac, "Ää“x”");
    check("BT /F1 10 Tf (it's \\256) Tj ET", "<</Subtype /Type1>>", "it’s fi");
}

#[test]
fn composite_fonts_are_read_by_their_own_table() {
    let table = "1 begincodespacerange <0000> <ffff> endcodespacerange\n2 beginbfchar <0001> <0048> <0002> <D83DDE00> \
                 endbfchar\n2 beginbfrange <0010> <0012> <0061> <0020> <0021> [<0066 0066> <0031>] endbfrange";
    let bytes = file(&[
        (CATALOG, b""),
        (TREE, b""),
        (PAGE, b""),
        ("<<>>", b"BT /F1 10 Tf <0001 0010 0012 0002 0020 0021 0099> Tj ET"),
        ("<</Subtype /Type0 /Encoding /Identity-H /ToUnicode 6 0 R /DescendantFonts [7 0 R]>>", b""),
        ("<<>>", table.as_bytes()),
        ("<</Subtype /CIDFontType2 /W [1 [500 600] 16 18 400]>>", b""),
    ]);
    let text = read(&bytes).unwrap();
    assert_eq!((text.pages[0].text.as_str(), text.pages[0].unknown), ("Hac😀ff1\u{fffd}", 1));
}

#[test]
fn packed_objects_and_streams_are_unpacked() {
    let content = b"BT /F1 10 Tf (packed) Tj ET".as_slice();
    let deflate = |bytes: &[u8]| miniz_oxide::deflate::compress_to_vec_zlib(bytes, 6);
    let packed = format!("2 0 3 {} 2 0 ", TREE.len() + 1);
    let first = packed.len();
    let objects = format!("{packed}{TREE} {PAGE}");
    let hex: String = deflate(content).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut bytes = b"%PDF-1.7\n".to_vec();
    for (number, head, data) in [
        (1, CATALOG.to_owned(), Vec::new()),
        (
            9,
            format!("<</Type /ObjStm /N 2 /First {first} /Filter /FlateDecode>>"),
            deflate(objects.as_bytes()),
        ),
        (4, "<</Filter [/ASCIIHexDecode /FlateDecode]>>".to_owned(), format!("{hex}>").into_bytes()),
        (5, FONT.to_owned(), Vec::new()),
    ] {
        bytes.extend(format!("{number} 0 obj {head}\n").bytes());
        if !data.is_empty() {
            bytes.extend(b"stream\r\n");
            bytes.extend(data);
            bytes.extend(b"\r\nendstream ");
        }
        bytes.extend(b"endobj\n");
    }
    bytes.extend(b"%%EOF");
    assert_eq!(read(&bytes).unwrap().pages[0].text, "packed");
}

#[test]
fn old_filters_are_undone() {
    let cancel = CancellationToken::new();
    let undo = |filter: &str, data: &[u8]| {
        let mut members = object::Dict::new();
        members.insert("Filter".into(), object::Object::Name(filter.into()));
        filters::unpack(data, &members, &mut Budget::new(&cancel)).unwrap()
    };
    assert_eq!(undo("ASCII85Decode", b"87cURD]i,\"Ebo80~>"), Some(b"Hello World!".to_vec()));
    assert_eq!(undo("RunLengthDecode", &[2, b'a', b'b', b'c', 254, b'x', 128]), Some(b"abcxxx".to_vec()));
    let lzw = [0x80, 0x0B, 0x60, 0x50, 0x22, 0x0C, 0x0C, 0x85, 0x01];
    assert_eq!(undo("LZWDecode", &lzw), Some(vec![45, 45, 45, 45, 45, 65, 45, 45, 45, 66]));
    assert_eq!(undo("DCTDecode", b"image"), None);
}

#[test]
fn forms_are_read_where_they_are_drawn() {
    let form = b"BT /F1 10 Tf (inside) Tj ET /X Do".as_slice();
    let bytes = file(&[
        (CATALOG, b""),
        (TREE, b""),
        (PAGE, b""),
        ("<<>>", b"BT /F1 10 Tf 0 50 Td (before) Tj ET /X Do"),
        (FONT, b""),
        ("<</Subtype /Form>>", form),
    ]);
    let text = read(&bytes).unwrap().pages[0].text.clone();
    assert!(text.starts_with("before\n\ninside"), "{text}");
}

#[test]
fn pages_are_read_by_number_and_as_far_as_is_enough() {
    let mut objects: Vec<(String, Vec<u8>)> = vec![(CATALOG.into(), vec![])];
    let kids: String = (0..10).map(|number| format!("{} 0 R ", 4 + 2 * number)).collect();
    objects.push((format!("<</Type /Pages /Kids [{kids}] /Resources <</Font <</F1 3 0 R>>>>>>"), vec![]));
    objects.push((FONT.into(), vec![]));
    for number in 0..10 {
        objects.push((format!("<</Type /Page /Contents {} 0 R>>", 5 + 2 * number), vec![]));
        objects.push(("<<>>".into(), format!("BT /F1 9 Tf (page {number}) Tj ET").into_bytes()));
    }
    let objects: Vec<(&str, &[u8])> =
        objects.iter().map(|(object, stream)| (object.as_str(), stream.as_slice())).collect();
    let bytes = file(&objects);
    let cancel = CancellationToken::new();
    let texts = |first, count, enough| {
        let text = read_pages(&bytes, PageRange { first, count }, enough, &cancel).unwrap();
        (text.total, text.pages.into_iter().map(|page| page.text).collect::<Vec<_>>())
    };
    assert_eq!(texts(0, None, 1 << 10).1.len(), 10);
    assert_eq!(texts(3, Some(2), 1 << 10), (10, vec!["page 3".into(), "page 4".into()]));
    assert_eq!(texts(8, None, 0), (10, vec!["page 8".into()]));
    assert_eq!(texts(99, None, 10), (10, vec![]));
}

#[test]
fn broken_files_say_what_is_wrong() {
    let whole = page(b"BT /F1 9 Tf (text) Tj ET", FONT);
    let encrypted = [&whole[..whole.len() - 8], b"trailer <</Root 1 0 R /Encrypt 7 0 R>> %%EOF"].concat();
    assert_eq!(read(&encrypted), Err(PdfError::Encrypted));
    assert_eq!(read(b"%PDF-1.4\nnothing"), Err(PdfError::NoPages));
    assert_eq!(read(b"%PDF-"), Err(PdfError::NoPages));
    // Without its end and its tree, the pages that are there are read.
    let lost = String::from_utf8(whole).unwrap().replace("/Type /Pages", "/Type /Lost");
    let lost = lost.replace("trailer <</Root 1 0 R>>\n%%EOF", "").replace("/Kids [3 0 R]", "");
    let lost = lost.replace("/Contents 4 0 R", "/Contents 4 0 R /Resources <</Font <</F1 5 0 R>>>>");
    let lost = lost.replace("/Pages 2 0 R", "");
    let text = read(lost.as_bytes()).unwrap();
    assert_eq!((text.pages[0].text.as_str(), text.is_truncated), ("text", true));
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    assert_eq!(read_pages(&page(b"(x) Tj", FONT), ALL, 9, &cancelled), Err(PdfError::Cancelled));
}

#[test]
fn bombs_end_at_a_limit() {
    let zeros = miniz_oxide::deflate::compress_to_vec_zlib(&vec![b' '; 130 << 20], 1);
    let bomb =
        file(&[(CATALOG, b""), (TREE, b""), (PAGE, b""), ("<</Filter /FlateDecode>>", &zeros), (FONT, b"")]);
    assert_eq!(read(&bomb), Err(PdfError::Bomb));
    // Each drawing draws the next one ten times.
    let ten: String = (0..10).map(|_| "/X Do ").collect();
    let forms = file(&[
        (CATALOG, b""),
        (TREE, b""),
        (PAGE, b""),
        ("<<>>", ten.as_bytes()),
        (FONT, b""),
        ("<</Subtype /Form>>", ten.repeat(40).as_bytes()),
    ]);
    assert_eq!(read(&forms), Err(PdfError::TooMuchWork));
    let nested = file(&[("[".repeat(1 << 20).as_str(), b""), ("<<".repeat(1 << 20).as_str(), b"")]);
    assert!(read(&nested).is_err());
    let numbers = file(&[(format!("[{}]", "0 ".repeat(2 << 20)).as_str(), b"")]);
    assert_eq!(read(&numbers), Err(PdfError::TooMuchWork));
    let circles = file(&[
        (CATALOG, b""),
        ("<</Type /Pages /Kids [2 0 R 3 0 R 3 0 R] /Resources 3 0 R>>", b""),
        ("<</Type /Page /Resources 4 0 R /Contents 3 0 R>>", b""),
        ("4 0 R", b""),
    ]);
    assert_eq!(read(&circles).unwrap().total, 1);
}

#[test]
fn any_bytes_are_read_in_bounded_time() {
    use proptest::prelude::*;
    let whole = page(b"q BT /F1 9 Tf [(te) 3 (xt)] TJ /X Do ET Q", FONT);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(256));
    let changes = proptest::collection::vec((0..whole.len(), any::<u8>()), 0..40);
    let begun = Instant::now();
    let checked = runner.run(&(changes, 0..whole.len()), |(changes, end)| {
        let mut bytes = whole.clone();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        drop(read(&bytes));
        drop(read(&bytes[..end]));
        Ok(())
    });
    checked.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}
