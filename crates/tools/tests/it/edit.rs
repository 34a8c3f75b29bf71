use proptest::prelude::*;
use serde_json::{Value, json};

use crate::bench::{Bench, check};

/// `edits` as `old => new` pairs on a file `f`.
async fn edits(before: &str, pairs: &[(&str, &str)], expect: Result<&str, &str>) {
    let list: Vec<Value> = pairs.iter().map(|(old, new)| json!({"oldText": old, "newText": new})).collect();
    let args = json!({"path": "f", "edits": list});
    match expect {
        Ok(after) => {
            let said = format!("Successfully replaced {} block(s) in f.", pairs.len());
            check("edit", args, &[("f", before.as_bytes())], &said, &[("f", after.as_bytes())]).await;
        }
        Err(said) => {
            let file = &[("f", before.as_bytes())];
            check("edit", args, file, &format!("!{said}"), file).await;
        }
    }
}

#[tokio::test]
async fn exact() {
    edits("a b c", &[("b", "x")], Ok("a x c")).await;
    edits("a b c", &[("b ", "")], Ok("a c")).await;
    edits("a\nb\nc\n", &[("a\nb", "1\n2\n3"), ("c\n", "")], Ok("1\n2\n3\n")).await;
    edits("one two three", &[("three", "3"), ("one", "1")], Ok("1 two 3")).await;
    edits("a", &[("a", "$& $1 \\n")], Ok("$& $1 \\n")).await;
    edits("ab", &[("a", "1"), ("b", "2")], Ok("12")).await;
    edits("日本語", &[("本", "x")], Ok("日x語")).await;
}

#[tokio::test]
async fn line_ends_stay() {
    edits("a\r\nb\r\nc\r\n", &[("b", "x\ny")], Ok("a\r\nx\r\ny\r\nc\r\n")).await;
    edits("a\r\nb\nc\rd\n", &[("b", "x\ny")], Ok("a\r\nx\ny\nc\rd\n")).await;
    edits("a\r\nb\nc\rd\n", &[("a", "x\ny")], Ok("x\r\ny\r\nb\nc\rd\n")).await;
    edits("a\r\nb\nc\rd\n", &[("c", "x\ny")], Ok("a\r\nb\nx\ry\rd\n")).await;
    edits("a\r\nb\nc", &[("a\nb\nc", "a\nb\nd")], Ok("a\r\nb\nd")).await;
    edits("a\r\nb\nc\r\nd\n", &[("a\nb\nc\nd\n", "a\nb\nnew\nc\nd\n")], Ok("a\r\nb\nnew\nc\r\nd\n")).await;
    edits("a\r\nb\nc", &[("a\r\nb", "1\r\n2")], Ok("1\r\n2\nc")).await;
    edits("a\r\nb", &[("b", "b\nc\n")], Ok("a\r\nb\r\nc\r\n")).await;
    edits("a", &[("a", "a\r\nb")], Ok("a\nb")).await;
    edits("\u{feff}a\r\n", &[("a\n", "b\n")], Ok("\u{feff}b\r\n")).await;
}

#[tokio::test]
async fn loose() {
    edits("x = “a”;\ny = “b”;  \n", &[("x = \"a\";", "x = 1;")], Ok("x = 1;\ny = “b”;  \n")).await;
    edits("a  \nb\t\nc  \n", &[("a\nb", "x")], Ok("x\nc  \n")).await;
    edits("a – b\nkeep – this\n", &[("a - b\n", "c\n")], Ok("c\nkeep – this\n")).await;
    edits("q “a” and ‘b’  \r\nnext \r\n", &[("\"a\"", "A"), ("'b'", "B")], Ok("q A and B\r\nnext \r\n"))
        .await;
    edits("q “a”\nr ‘b’ \n", &[("\"a\"\n", ""), ("r 'b'", "B")], Ok("q B\n")).await;
    edits("“a”\nplain  \nend", &[("\"a\"", "A"), ("end", "END")], Ok("A\nplain  \nEND")).await;
    edits("“a”\nb", &[("\"a\"\nb", "A\nb\nc")], Ok("A\nb\nc")).await;
}

#[tokio::test]
async fn refusals() {
    let missing = "Could not find the exact text in f. The old text must match exactly including all whitespace and newlines.";
    edits("a", &[("b", "c")], Err(missing)).await;
    edits("", &[("b", "c")], Err(missing)).await;
    edits("a", &[("a", "c"), ("b", "c")], Err("Could not find edits[1] in f. The oldText must match exactly including all whitespace and newlines.")).await;
    let twice = "Found 2 occurrences of the text in f. The text must be unique. Please provide more context to make it unique.";
    edits("a b a", &[("a", "c")], Err(twice)).await;
    edits("a - b\na – b", &[("a – b", "c")], Err(twice)).await;
    edits("a b a", &[("b", "x"), ("a", "c")], Err("Found 2 occurrences of edits[1] in f. Each oldText must be unique. Please provide more context to make it unique.")).await;
    edits("a", &[("", "c")], Err("oldText must not be empty in f.")).await;
    edits("a", &[("a", "c"), ("", "c")], Err("edits[1].oldText must not be empty in f.")).await;
    edits(
        "a b c",
        &[("b c", "x"), ("a b", "y")],
        Err("edits[1] and edits[0] overlap in f. Merge them into one edit or target disjoint regions."),
    )
    .await;
    edits("a", &[("a", "a")], Err("No changes made to f. The replacement produced identical content. This might indicate an issue with special characters or the text not existing as expected.")).await;
    edits("a\r\nb", &[("a\nb", "a\r\nb")], Err("No changes made to f. The replacement produced identical content. This might indicate an issue with special characters or the text not existing as expected.")).await;
    edits(
        "a b",
        &[("a", "a"), ("b", "b")],
        Err("No changes made to f. The replacements produced identical content."),
    )
    .await;
    edits("a", &[], Err("Edit tool input is invalid. edits must contain at least one replacement.")).await;
    check(
        "edit",
        json!({"path": "g", "edits": [{"oldText": "a", "newText": "b"}]}),
        &[],
        "!Could not edit file: g. Error code: ENOENT.",
        &[],
    )
    .await;
}

#[tokio::test]
async fn whitespace_alone_is_found_everywhere_loosely() {
    edits("a b", &[("  ", "c")], Err("Found 2 occurrences of the text in f. The text must be unique. Please provide more context to make it unique.")).await;
}

#[tokio::test]
async fn invalid_utf8_stays_where_it_is() {
    let before: &[u8] = b"\xff\xfe one\ntwo \xe2\x82\n";
    check(
        "edit",
        json!({"path": "f", "edits": [{"oldText": "one", "newText": "1"}]}),
        &[("f", before)],
        "Successfully replaced 1 block(s) in f.",
        &[("f", b"\xff\xfe 1\ntwo \xe2\x82\n")],
    )
    .await;
}

#[tokio::test]
async fn details_show_what_changed() {
    let output = check(
        "edit",
        json!({"path": "f", "edits": [{"oldText": "b", "newText": "x\ny"}]}),
        &[("f", b"a\r\nb\r\nc")],
        "Successfully replaced 1 block(s) in f.",
        &[("f", b"a\r\nx\r\ny\r\nc")],
    )
    .await;
    assert_eq!(
        output.details.unwrap().value(),
        json!({
            "diff": " 1 a\n-2 b\n+2 x\n+3 y\n 3 c",
            "patch": "--- f\n+++ f\n@@ -1,3 +1,4 @@\n a\n-b\n+x\n+y\n c\n\\ No newline at end of file\n",
            "firstChangedLine": 2,
        })
    );
}

#[tokio::test]
async fn mode_and_link_stay() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new(&[("f", b"a")]);
    std::fs::set_permissions(bench.path("f"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("f", bench.path("link")).unwrap();
    bench.run("edit", json!({"path": "link", "edits": [{"oldText": "a", "newText": "b"}]})).await;
    assert_eq!(std::fs::read(bench.path("f")).unwrap(), b"b");
    assert!(bench.path("link").is_symlink());
    assert_eq!(std::fs::metadata(bench.path("f")).unwrap().permissions().mode() & 0o777, 0o755);
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let ends = prop::sample::select(vec!["\n", "\r\n", "\r"]);
    let body = prop_oneof![
        "[a-c –“é\u{a0}\t]{0,6}".prop_map(String::into_bytes),
        prop::collection::vec(prop::sample::select(vec![0xFFu8, 0xE2, b'a', b' ']), 0..4),
    ];
    (body, ends).prop_map(|(mut body, end)| {
        body.extend_from_slice(end.as_bytes());
        body
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(96)))]

    /// Many edits at once are as if each line were replaced on its own.
    #[test]
    fn many_edits_at_once(lines in prop::collection::vec((any::<bool>(), "[a-z ]{0,5}\n?[a-z]{0,3}", prop::bool::ANY), 1..20), reverse in any::<bool>()) {
        let (mut old, mut new, mut list) = (String::new(), String::new(), Vec::new());
        for (number, (edited, text, crlf)) in lines.iter().enumerate() {
            let end = if *crlf { "\r\n" } else { "\n" };
            let name = format!("<{number}>");
            old.push_str(&format!("{name}{end}"));
            if *edited {
                new.push_str(&format!("{}{end}", text.replace('\n', end)));
                list.push(json!({"oldText": name, "newText": text}));
            } else {
                new.push_str(&format!("{name}{end}"));
            }
        }
        if reverse {
            list.reverse();
        }
        prop_assume!(!list.is_empty());
        let said = format!("Successfully replaced {} block(s) in f.", list.len());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check("edit", json!({"path": "f", "edits": list}), &[("f", old.as_bytes())], &said, &[("f", new.as_bytes())]));
    }

    /// Whatever surrounds it, an edit of marked lines (exact or loose) leaves every other byte as it was.
    #[test]
    fn untouched_bytes_are_identical(
        before in prop::collection::vec(line(), 0..5),
        between in prop::collection::vec(line(), 0..5),
        after in prop::collection::vec(line(), 0..5),
        loose in any::<bool>(),
        end in prop::sample::select(vec!["\n", "\r\n"]),
    ) {
        let file = |one: &str, two: &str| -> Vec<u8> {
            let parts = [&before.concat(), one.as_bytes(), &between.concat(), two.as_bytes(), &after.concat()];
            parts.concat()
        };
        let old = file(&format!("«ONE»  {end}"), &format!("“TWO”{end}"));
        let new = file(&format!("1{end}1{end}"), &format!("2{end}"));
        let quote = if loose { "\"TWO\"" } else { "“TWO”" };
        let one = if loose { "«ONE»" } else { "«ONE»  " };
        let args = json!({"path": "f", "edits": [{"oldText": quote, "newText": "2"}, {"oldText": one, "newText": "1\n1"}]});
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check("edit", args, &[("f", &old)], "Successfully replaced 2 block(s) in f.", &[("f", &new)]));
    }
}
