use std::fs;

use quipu_protocol::Json;
use quipu_tools::{ApplyPatch, Invocation, Tool as _, Touches};
use quipu_workspace::{Access, AccessRules, file_key};
use serde_json::json;

use crate::bench::{Bench, text};

type Files<'a> = &'a [(&'a str, &'a [u8])];

/// Runs one patch on a fresh directory. A text that begins with `!` must be an error, after which nothing is changed.
async fn patched(before: Files<'_>, body: &str, expect: &str, after: Files<'_>) {
    whole(before, &format!("*** Begin Patch\n{body}*** End Patch\n"), expect, after).await;
}

async fn whole(before: Files<'_>, input: &str, expect: &str, after: Files<'_>) {
    let bench = Bench::new(before);
    let output = run(&bench, input).await;
    let (is_error, expect) = match expect.strip_prefix('!') {
        Some(expect) => (true, expect),
        None => (false, expect),
    };
    let said = text(&output).replace(&bench.cx.cwd.display().to_string(), "CWD");
    assert_eq!(said, expect, "{input}");
    assert_eq!(output.is_error, is_error, "{input}");
    let after = if is_error { before } else { after };
    let after: Vec<(String, Vec<u8>)> =
        after.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect();
    assert_eq!(bench.files(), after, "{input}");
}

async fn run(bench: &Bench, input: &str) -> quipu_tools::ToolOutput {
    let args = Json::from(json!({ "input": input }));
    let checked = quipu_tools::validate(ApplyPatch::new().spec(), &args).unwrap();
    ApplyPatch::new().run(Invocation { id: "c".into(), args: checked }, &bench.cx).await
}

/// A change of the file `f`.
async fn changed(before: &str, hunks: &str, after: Result<&str, &str>) {
    let files: Files<'_> = &[("f", before.as_bytes())];
    let body = format!("*** Update File: f\n{hunks}");
    match after {
        Ok(after) => {
            let said = "Success. Updated the following files:\nM f";
            patched(files, &body, said, &[("f", after.as_bytes())]).await;
        }
        Err(said) => patched(files, &body, &format!("!{said}"), files).await,
    }
}

#[tokio::test]
async fn patch_changes_several_files_at_once() {
    let body = "*** Add File: new\n+one\n+\n*** Update File: a\n@@\n x\n-y\n+z\n*** Delete File: gone\n\
                *** Update File: old\n*** Move to: moved\n@@\n-1\n+2\n";
    let said = "Success. Updated the following files:\nA new\nM a\nD gone\nM old -> moved";
    let before: Files<'_> = &[("a", b"x\ny\n"), ("gone", b"\0"), ("old", b"1\n")];
    patched(before, body, said, &[("a", b"x\nz\n"), ("moved", b"2\n"), ("new", b"one\n\n")]).await;
    let body = "*** Update File: old\n*** Move to: moved\n";
    patched(
        &[("old", b"\xff1")],
        body,
        "Success. Updated the following files:\nM old -> moved",
        &[("moved", b"\xff1")],
    )
    .await;
}

#[tokio::test]
async fn place_of_a_change_is_found() {
    changed("a\nb\nc\n", "-b\n+x\n", Ok("a\nx\nc\n")).await;
    changed("f1\n  x\nf2\n  x\n", "@@ f2\n-  x\n+  y\n", Ok("f1\n  x\nf2\n  y\n")).await;
    changed(
        "class A\ndef f\n x\nclass B\ndef f\n x\n",
        "@@ class B\n@@ def f\n- x\n+ y\n",
        Ok("class A\ndef f\n x\nclass B\ndef f\n y\n"),
    )
    .await;
    changed("x\nx\nx\n", "-x\n+y\n*** End of File\n", Ok("x\nx\ny\n")).await;
    changed("x\na\nx\n", "-x\n+1\n@@\n-x\n+2\n", Ok("1\na\n2\n")).await;
    changed("a\nb\n", "@@ a\n+x\n", Ok("a\nx\nb\n")).await;
    changed("a\n", "@@\n+x\n+y\n", Ok("a\nx\ny\n")).await;
    changed("", "@@\n+x\n", Ok("x\n")).await;
    changed("a\n\nb\n", " a\n\n-b\n+c\n\n", Ok("a\n\nc\n")).await;
    changed("a\nb\nc\nd\n", " a\n-b\n+1\n c\n-d\n+2\n", Ok("a\n1\nc\n2\n")).await;
    changed("a\nb\n", "@@ -1,2 +1,2 @@\n-a\n+x\n", Ok("x\nb\n")).await;
}

#[tokio::test]
async fn white_space_and_look_alikes_are_tolerated() {
    changed("  a  \n\tb\n", " a\n-b\n+c\n", Ok("  a  \nc\n")).await;
    changed("x “y” – z\nk\n", " x \"y\" - z\n-k\n+l\n", Ok("x “y” – z\nl\n")).await;
    // As it is comes before what looks like it.
    changed(" b\nb\n", "-b\n+c\n", Ok(" b\nc\n")).await;
}

#[tokio::test]
async fn line_ends_and_a_missing_last_one_stay() {
    changed("a\r\nb\r\nc\r\n", " a\n-b\n+x\n+y\n", Ok("a\r\nx\r\ny\r\nc\r\n")).await;
    changed("a\nb", "-b\n+c\n", Ok("a\nc")).await;
    changed("a\nb", " b\n+c\n", Ok("a\nb\nc")).await;
    changed("a\nb", "-b\n", Ok("a")).await;
    changed("a", "-a\n", Ok("")).await;
    changed("a\nb", "-a\n", Ok("b")).await;
    changed("\u{feff}a\r\n", "-a\n+b\n", Ok("\u{feff}b\r\n")).await;
    whole(
        &[("f", b"a\n")],
        "*** Begin Patch\r\n*** Update File: f\r\n-a\r\n+b\r\n*** End Patch\r\n",
        "Success. Updated the following files:\nM f",
        &[("f", b"b\n")],
    )
    .await;
}

#[tokio::test]
async fn commands_around_a_patch_are_left_out() {
    let input = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: f\n+x\n*** End Patch\nEOF\n";
    whole(&[], input, "Success. Updated the following files:\nA f", &[("f", b"x\n")]).await;
}

#[tokio::test]
async fn bad_patches_change_nothing() {
    let file: Files<'_> = &[("f", b"a\nb\n")];
    let check = async |body: &str, said: &str| patched(file, body, &format!("!{said}"), file).await;
    let missing = "Could not find the 1 lines of a change, from \"z\", in f. Read the file and send lines that it has. No file was changed.";
    check("*** Update File: f\n-z\n+y\n", missing).await;
    check("*** Add File: g\n+x\n*** Update File: f\n-z\n+y\n", missing).await;
    check("*** Update File: f\n@@ z\n-a\n", "Could not find the line \"z\" in f. No file was changed.").await;
    check("*** Update File: f\n-b\n+x\n@@\n-a\n+y\n", "Could not find the 1 lines of a change, from \"a\", in f below line 2. Read the file and send lines that it has. No file was changed.").await;
    check("*** Update File: none\n-z\n", "There is no file none. No file was changed.").await;
    check("*** Delete File: none\n", "There is no file none. No file was changed.").await;
    check(
        "*** Add File: f\n+x\n",
        "f exists already. Change it with `*** Update File: `. No file was changed.",
    )
    .await;
    check("*** Update File: f\n-a\n+a\n", "The patch changes nothing in f. No file was changed.").await;
    check(
        "*** Update File: f\n-a\n*** Update File: ./f\n-b\n",
        "The patch has several sections for ./f. Put its changes into one. No file was changed.",
    )
    .await;
    check(
        "*** Update File: f\n*** Move to: f\n-a\n",
        "The patch has several sections for f. Put its changes into one. No file was changed.",
    )
    .await;
    check("", "The patch changes no file.").await;
    check("*** Update File: f\n", "The patch has a change of f without lines.").await;
    check(
        "hello\n",
        "Line 2 of the patch: expected `*** Add File: `, `*** Update File: ` or `*** Delete File: `.",
    )
    .await;
    check("*** Add File: g\nx\n", "Line 3 of the patch: each line of the new file g must begin with `+`.")
        .await;
    check(
        "*** Update File: f\nab\n",
        "Line 3 of the patch: a line of a change begins with a space, `-` or `+`, and a new place with `@@`.",
    )
    .await;
    check("*** Delete File: f\n-a\n", "Line 3 of the patch: a section that deletes f has no more lines.")
        .await;
    check("*** Update File: \n-a\n", "Line 2 of the patch: the name of the file is missing.").await;
    whole(
        file,
        "*** Begin Patch\n*** Delete File: f\n",
        "!The patch has no line `*** End Patch`. It may be cut; send all of it.",
        file,
    )
    .await;
    whole(file, "nothing", "!The patch must begin with the line `*** Begin Patch`.", file).await;
    let binary: Files<'_> = &[("f", b"a\0\n")];
    patched(
        binary,
        "*** Update File: f\n+x\n",
        "!f is a binary file, which a patch cannot change. No file was changed.",
        binary,
    )
    .await;
    let huge = format!("*** Add File: g\n+{}\n", "x".repeat(10 << 20));
    patched(file, &huge, "!The patch has 10485808 bytes. The limit is 4 MiB. Make several calls.", file)
        .await;
    let many: String = (0..300).map(|n| format!("*** Add File: g{n}\n+x\n")).collect();
    patched(file, &many, "!Line 514 of the patch: a patch has at most 256 files. Make several calls.", file)
        .await;
}

#[tokio::test]
async fn patch_stays_within_the_workspace() {
    let mut bench = Bench::new(&[("f", b"a\n")]);
    let elsewhere = tempfile::tempdir().unwrap();
    let outside = elsewhere.path().join("o");
    fs::write(&outside, "a\n").unwrap();
    let rules = AccessRules { write: vec![bench.cx.cwd.clone()], ..AccessRules::default() };
    bench.cx.access = Access::within(rules);
    let shown = outside.display();
    for body in [
        format!("*** Update File: f\n-a\n+b\n*** Update File: {shown}\n-a\n+b\n"),
        format!("*** Update File: f\n-a\n+b\n*** Delete File: {shown}\n"),
        format!("*** Update File: f\n-a\n+b\n*** Add File: {shown}2\n+b\n"),
        format!("*** Update File: f\n*** Move to: {shown}2\n-a\n+b\n"),
    ] {
        let output = run(&bench, &format!("*** Begin Patch\n{body}*** End Patch")).await;
        assert!(output.is_error && text(&output).contains("EPERM"), "{body}: {}", text(&output));
        assert_eq!(bench.files(), [("f".to_owned(), b"a\n".to_vec())], "{body}");
        assert_eq!(fs::read(&outside).unwrap(), b"a\n", "{body}");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1, "{body}");
    }
}

/// Where a later file cannot be written, what was written before is put back.
#[tokio::test]
async fn failed_patch_takes_its_files_back() {
    let bench = Bench::new(&[("a", b"a\n"), ("gone", b"g\n"), ("file", b"")]);
    let body = "*** Update File: a\n-a\n+b\n*** Add File: new\n+n\n*** Delete File: gone\n*** Add File: file/below\n+x\n";
    let output = run(&bench, &format!("*** Begin Patch\n{body}*** End Patch")).await;
    let said = text(&output);
    assert!(output.is_error && said.contains("ENOTDIR") && said.ends_with("No file was changed."), "{said}");
    let expect: [(String, Vec<u8>); 3] =
        [("a".into(), b"a\n".to_vec()), ("file".into(), Vec::new()), ("gone".into(), b"g\n".to_vec())];
    assert_eq!(bench.files(), expect);
}

#[tokio::test]
async fn patch_touches_all_files_that_it_names() {
    let bench = Bench::new(&[("a", b"a\n")]);
    let touches = |input: &str| ApplyPatch::new().touches(&json!({ "input": input }), &bench.cx);
    let input =
        "*** Begin Patch\n*** Update File: a\n*** Move to: b\n-a\n*** Add File: d/c\n+x\n*** End Patch";
    let at = |name: &str| file_key(&bench.cx.cwd.join(name));
    assert_eq!(touches(input), Touches::Writes(vec![at("a"), at("b"), at("d/c")]));
    assert_eq!(touches("no patch"), Touches::Writes(Vec::new()));
    let output = run(&bench, "*** Begin Patch\n*** Update File: a\n-a\n+b\n*** End Patch").await;
    let details = output.details.unwrap().value();
    assert_eq!(details["diff"], "-1 a\n+1 b");
    assert_eq!(details["patch"], "--- a\n+++ a\n@@ -1,1 +1,1 @@\n-a\n+b\n");
}
