use quipu_protocol::Content;
use quipu_tools::Touches;
use serde_json::{Value, json};

use crate::bench::{Bench, check, text};

async fn reads(bytes: &[u8], args: Value, expect: &str) -> Option<Value> {
    let mut args = args;
    args["path"] = json!("f");
    let output = check("read", args, &[("f", bytes)], expect, &[("f", bytes)]).await;
    output.details.map(|details| details.value())
}

#[tokio::test]
async fn short_files_are_byte_exact() {
    for text in ["", "a", "a\n", "a\r\nb\r\n", "\n\n", "\u{feff}bom\n", "tab\té😀\n", "nul\0\n"] {
        assert_eq!(reads(text.as_bytes(), json!({}), text).await, None);
    }
    reads(b"a\xffb\xe2\x82\n", json!({}), "a\u{fffd}b\u{fffd}\n").await;
}

#[tokio::test]
async fn windows() {
    let abc = b"a\nb\nc";
    reads(abc, json!({"offset": 2}), "b\nc").await;
    reads(abc, json!({"offset": 0}), "a\nb\nc").await;
    reads(abc, json!({"offset": -3}), "a\nb\nc").await;
    reads(
        abc,
        json!({"offset": "2", "limit": "1"}),
        "b\n\n[1 more lines in file. Use offset=3 to continue.]",
    )
    .await;
    reads(abc, json!({"offset": null, "limit": 1}), "a\n\n[2 more lines in file. Use offset=2 to continue.]")
        .await;
    reads(abc, json!({"limit": 3}), "a\nb\nc").await;
    reads(abc, json!({"limit": 99}), "a\nb\nc").await;
    reads(abc, json!({"offset": 4}), "!Offset 4 is beyond end of file (3 lines total)").await;
    reads(b"a\n", json!({"offset": 2}), "").await;
    reads(b"a\n", json!({"offset": 3}), "!Offset 3 is beyond end of file (2 lines total)").await;
    reads(b"a\nb\n", json!({"limit": 2}), "a\nb\n\n[1 more lines in file. Use offset=3 to continue.]").await;
    reads(b"", json!({"offset": 2}), "!Offset 2 is beyond end of file (1 lines total)").await;
}

#[tokio::test]
async fn long_files_are_cut_by_lines() {
    let lines =
        |range: std::ops::RangeInclusive<usize>| -> Vec<String> { range.map(|n| n.to_string()).collect() };
    let exact = lines(1..=2000).join("\n") + "\n";
    assert_eq!(reads(exact.as_bytes(), json!({}), &exact).await, None);
    let long = lines(1..=2001).join("\n");
    let head = lines(1..=2000).join("\n");
    let expect = format!("{head}\n\n[Showing lines 1-2000 of 2001. Use offset=2001 to continue.]");
    let details = reads(long.as_bytes(), json!({}), &expect).await.unwrap();
    assert_eq!(
        details,
        json!({"truncation": {"content": head, "truncated": true, "truncatedBy": "lines", "totalLines": 2001,
            "totalBytes": long.len(), "outputLines": 2000, "outputBytes": head.len(), "lastLinePartial": false,
            "firstLineExceedsLimit": false, "maxLines": 2000, "maxBytes": 51200}})
    );
    reads(long.as_bytes(), json!({"offset": 2001}), "2001").await;
    let longer = lines(1..=5000).join("\n") + "\n";
    let expect = format!(
        "{}\n\n[Showing lines 11-2010 of 5001. Use offset=2011 to continue.]",
        lines(11..=2010).join("\n")
    );
    let details = reads(longer.as_bytes(), json!({"offset": 11}), &expect).await.unwrap();
    assert_eq!(details["truncation"]["totalLines"], 4990);
}

#[tokio::test]
async fn long_files_are_cut_by_bytes_between_lines() {
    let line = "é".repeat(500);
    let text = vec![line.as_str(); 100].join("\n");
    // 51 lines of 1,000 bytes and 50 line feeds.
    let head = vec![line.as_str(); 51].join("\n");
    let expect = format!("{head}\n\n[Showing lines 1-51 of 100 (50.0KB limit). Use offset=52 to continue.]");
    let details = reads(text.as_bytes(), json!({}), &expect).await.unwrap();
    assert_eq!(details["truncation"]["truncatedBy"], "bytes");
    assert_eq!(details["truncation"]["outputBytes"], 51_050);

    let fits = "x".repeat(51_200);
    assert_eq!(reads(fits.as_bytes(), json!({}), &fits).await, None);
    let too_long = format!("a\n{fits}y\nb");
    let notice = "[Line 2 is 50.0KB, exceeds 50.0KB limit. Use bash: sed -n '2p' f | head -c 51200]";
    let details = reads(too_long.as_bytes(), json!({"offset": 2}), notice).await.unwrap();
    assert_eq!(details["truncation"]["firstLineExceedsLimit"], true);
    reads(
        too_long.as_bytes(),
        json!({}),
        "a\n\n[Showing lines 1-1 of 3 (50.0KB limit). Use offset=2 to continue.]",
    )
    .await;
}

#[tokio::test]
async fn read_refuses_special_files() {
    let bench = Bench::new(&[]);
    nix::unistd::mkfifo(&bench.path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (path, expect) in [
        ("nothing", "ENOENT: no such file or directory: CWD/nothing"),
        ("fifo", "EINVAL: CWD/fifo is a fifo (named pipe), not a regular file"),
        ("/dev/zero", "EINVAL: /dev/zero is a character device, not a regular file"),
        ("..", "EISDIR: CWD/.. is a directory, not a regular file. List it with a command such as ls"),
    ] {
        let output = bench.run("read", json!({"path": path})).await;
        let said = text(&output).replace(&bench.cx.cwd.display().to_string(), "CWD");
        assert_eq!((said.as_str(), output.is_error), (expect, true));
    }
}

/// A grey PNG of one pixel.
const PIXEL: &[u8] = b"\x89\x50\x4e\x47\x0d\x0a\x1a\x0a\x00\x00\x00\x0d\x49\x48\x44\x52\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00\x3a\x7e\x9b\x55\x00\x00\x00\x0a\x49\x44\x41\x54\x78\x9c\x63\x68\x00\x00\x00\x82\x00\x81\x77\xcd\x72\xb6\x00\x00\x00\x00\x49\x45\x4e\x44\xae\x42\x60\x82";

#[tokio::test]
async fn images() {
    let mut bench = Bench::new(&[("image.txt", PIXEL), ("cut.png", &PIXEL[..40])]);
    let output = bench.run("read", json!({"path": "image.txt"})).await;
    match &output.content[..] {
        [Content::Text(text), Content::Image(image)] => {
            assert_eq!(text.text, "Read image file [image/png]");
            assert_eq!(image.mime_type, "image/png");
            assert!(image.data.starts_with("iVBORw0KGgo"));
        }
        other => panic!("{other:?}"),
    }
    let output = bench.run("read", json!({"path": "cut.png"})).await;
    assert_eq!(output.content.len(), 1);
    assert_eq!(
        text(&output),
        "Read image file [image/png]\n[Image omitted: could not be converted to a supported inline image format.]"
    );
    bench.cx.sees_images = false;
    let output = bench.run("read", json!({"path": "image.txt"})).await;
    assert_eq!(output.content.len(), 2);
    assert_eq!(
        text(&output),
        "Read image file [image/png]\n[Current model does not support images. The image will be omitted from this request.]"
    );
}

#[test]
fn file_tools_report_the_paths_they_touch() {
    let bench = Bench::new(&[("f", b"")]);
    std::os::unix::fs::symlink("f", bench.path("link")).unwrap();
    let key = |name: &str| bench.cx.cwd.canonicalize().unwrap().join(name);
    let touches = |tool: &str, path: &str| bench.tool(tool).touches(&json!({ "path": path }), &bench.cx);
    assert_eq!(touches("read", "link"), Touches::Reads(vec![key("f")]));
    assert_eq!(touches("edit", "@./f"), Touches::Writes(vec![key("f")]));
    assert_eq!(touches("write", "new/g"), Touches::Writes(vec![key("new/g")]));
    assert_eq!(touches("bash", ""), Touches::Anything);
}

/// 20 GB, of which the system keeps none: a part of it is there at once, and what is not counted is not claimed.
#[tokio::test]
async fn part_of_a_20_gb_file_is_read_alone() {
    const LENGTH: u64 = 20 << 30;
    let bench = Bench::new(&[("log", b"one\ntwo\nthree\n")]);
    let file = std::fs::OpenOptions::new().write(true).open(bench.path("log")).unwrap();
    file.set_len(LENGTH).unwrap();
    let said = async |args: Value| {
        let mut args = args;
        args["path"] = json!("log");
        text(&bench.run("read", args).await).to_owned()
    };
    let notice = "[at least 2 more lines in file. Use offset=3 to continue.]";
    assert_eq!(said(json!({"limit": 2})).await, format!("one\ntwo\n\n{notice}"));
    let whole = said(json!({})).await;
    assert_eq!(
        whole,
        "one\ntwo\nthree\n\n[Showing lines 1-3 of at least 4 (50.0KB limit). Use offset=4 to continue.]"
    );
    let far = said(json!({"offset": 5, "limit": 1})).await;
    let command = "tail -n +5 log | head -n 2000";
    assert!(
        far.contains("Offset 5 is too far into the file: only the first 1024.0MB") && far.ends_with(command)
    );
}

/// Huge file, huge output: the peak of the whole process stays small. Runs this binary again (`helper`).
#[cfg(target_os = "linux")]
#[test]
fn memory_stays_small() {
    let helper = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "read::helper", "--nocapture", "--test-threads=1"])
        .env("QUIPU_TEST_HELPER", "1")
        .output()
        .unwrap();
    let said = [helper.stdout, helper.stderr].concat();
    assert!(helper.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[cfg(target_os = "linux")]
#[test]
fn helper() {
    if std::env::var_os("QUIPU_TEST_HELPER").is_none() {
        return;
    }
    let bench = Bench::new(&[]);
    std::fs::File::create(bench.path("huge")).unwrap().set_len(2 << 30).unwrap();
    std::fs::write(bench.path("lines"), "x\n".repeat(1 << 20)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let huge = bench.run("read", json!({"path": "huge", "limit": 10})).await;
        assert!(text(&huge).starts_with("[Line 1 is at least 16.0MB, exceeds 50.0KB limit."), "{huge:?}");
        let lines = bench.run("read", json!({"path": "lines", "limit": 10})).await;
        assert!(
            text(&lines).ends_with("[1048567 more lines in file. Use offset=11 to continue.]"),
            "{lines:?}"
        );
        let printed = bench.run("bash", json!({"command": "yes | head -c 200000000"})).await;
        assert!(text(&printed).contains("[Showing lines 99998001-100000000 of 100000000. Full output: "));
    });
    let memory = quipu_testkit::process_memory(std::process::id()).unwrap();
    assert!(memory.peak < 64 << 10, "{memory:?}");
}

/// Tools and prompt together have 5 KB of each request.
#[test]
fn declarations_are_short() {
    let bench = Bench::new(&[]);
    let specs: Vec<_> =
        ["read", "bash", "edit", "write"].map(|name| bench.tool(name).spec().clone()).into_iter().collect();
    let bytes = serde_json::to_string(&specs).unwrap().len();
    assert!(bytes <= 2400, "{bytes}");
}

/// A PDF file with these texts, one on each page.
fn pdf(texts: &[&str]) -> Vec<u8> {
    let kids: String = (0..texts.len()).map(|page| format!("{} 0 R ", 4 + 2 * page)).collect();
    let mut file = format!(
        "%PDF-1.4\n1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj\n2 0 obj <</Type /Pages /Kids [{kids}] /Resources \
         <</Font <</F 3 0 R>>>>>> endobj\n3 0 obj <</Type /Font /Subtype /Type1>> endobj\n"
    );
    for (page, text) in texts.iter().enumerate() {
        let (page, content) = (4 + 2 * page, 5 + 2 * page);
        file.push_str(&format!(
            "{page} 0 obj <</Type /Page /Contents {content} 0 R>> endobj\n{content} 0 obj <<>>\n"
        ));
        file.push_str("stream\nBT /F 12 Tf 14 TL 72 700 Td\n");
        file.extend(text.lines().map(|line| format!("({line}) Tj T*\n")));
        file.push_str("ET\nendstream endobj\n");
    }
    file.push_str("trailer <</Root 1 0 R>>\n%%EOF\n");
    file.into_bytes()
}

#[tokio::test]
async fn pages_of_a_pdf_file_are_read_by_number() {
    let three = pdf(&["first page\nsecond line", "", "third"]);
    let empty = "(no text on this page; it may be an image)";
    let whole =
        format!("[Page 1 of 3]\nfirst page\nsecond line\n\n[Page 2 of 3]\n{empty}\n\n[Page 3 of 3]\nthird");
    reads(&three, json!({}), &whole).await;
    reads(
        &three,
        json!({"offset": 2, "limit": 1}),
        &format!("[Page 2 of 3]\n{empty}\n\n[Pages 2-2 of 3. Use offset=3 to continue.]"),
    )
    .await;
    reads(&three, json!({"offset": 3}), "[Page 3 of 3]\nthird").await;
    reads(&three, json!({"offset": 4}), "!Offset 4 is beyond the last page (3 pages)").await;
}

#[tokio::test]
async fn long_pages_of_a_pdf_file_are_cut_and_continued() {
    let long = "x".repeat(90).as_str().to_owned() + "\n";
    let (page, endless) = (long.repeat(300), long.repeat(900));
    let bench = Bench::new(&[("f", &pdf(&[&page, &page, &endless, "end"]))]);
    let first = bench.run("read", json!({"path": "f"})).await;
    let shown = text(&first);
    assert!(shown.starts_with("[Page 1 of 4]\nxxx") && !shown.contains("[Page 2"), "{}", shown.len());
    assert!(shown.ends_with("[Pages 1-1 of 4. Use offset=2 to continue.]"), "{}", &shown[shown.len() - 99..]);
    let third = bench.run("read", json!({"path": "f", "offset": 3})).await;
    let shown = text(&third);
    assert!(
        shown.len() < 52_000 && shown.contains("[The page is cut: 50.0KB of 80.0KB are shown.]"),
        "{shown}"
    );
    assert!(shown.ends_with("[Pages 3-3 of 4. Use offset=4 to continue.]"));
}

#[tokio::test]
async fn pdf_files_that_cannot_be_read_say_why() {
    let mut encrypted = pdf(&["x"]);
    encrypted.extend(b"trailer <</Encrypt 9 0 R>>");
    let sealed =
        "!The PDF file is encrypted, and encrypted files are not read. Use a copy without a password.";
    reads(&encrypted, json!({}), sealed).await;
    reads(b"%PDF-1.7 nothing", json!({}), "!The PDF file is damaged or truncated: no page was found in it.")
        .await;
    let whole = pdf(&["kept", "lost"]);
    let cut = whole.len() - 40;
    let broken = "[Page 1 of 2]\nkept\n\n[Page 2 of 2]\nlost\n\n[The file is damaged or truncated: pages may be missing.]";
    reads(&whole[..cut], json!({}), broken).await;
}
