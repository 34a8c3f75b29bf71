use quipu_protocol::{Json, ToolSpec};
use quipu_tools::validate;
use serde_json::{Value, json};

use crate::bench::Bench;

fn spec(parameters: Value) -> ToolSpec {
    ToolSpec { name: "t".into(), description: String::new(), parameters: Json::from(parameters) }
}

#[test]
fn convertible_argument_types_are_accepted() {
    let spec = spec(json!({
        "type": "object",
        "properties": {
            "s": {"type": "string"}, "n": {"type": "number"}, "i": {"type": "integer"}, "b": {"type": "boolean"},
            "l": {"type": "array", "items": {"type": "number"}}, "o": {"type": "object", "properties": {"n": {"type": "number"}}},
            "m": {"type": ["string", "null"]}, "e": {"enum": ["x", null]}
        },
        "required": [],
    }));
    let check = |given: Value, expect: Value| {
        assert_eq!(validate(&spec, &Json::from(&given)).unwrap().value(), expect, "{given}");
    };
    check(json!({"n": "5", "i": " 6 ", "b": "true"}), json!({"n": 5, "i": 6, "b": true}));
    check(json!({"n": "1.5", "b": 0, "s": 1}), json!({"n": 1.5, "b": false, "s": "1"}));
    check(json!({"s": true, "i": true}), json!({"s": "true", "i": 1}));
    check(
        json!({"s": null, "n": null, "m": null, "e": null, "x": null}),
        json!({"m": null, "e": null, "x": null}),
    );
    check(json!({"l": "[1, \"2\"]", "o": "{\"n\": \"3\"}"}), json!({"l": [1, 2], "o": {"n": 3}}));
    check(json!({"l": 4}), json!({"l": [4]}));
    check(json!({"s": "5", "other": [1]}), json!({"s": "5", "other": [1]}));
    check(json!({"i": 3.0}), json!({"i": 3.0}));
    // Nothing to mend: not a byte changes.
    let text = r#"{ "n": 1.0,"s":"\u0041" ,"z":12345678901234567890123}"#;
    assert_eq!(validate(&spec, &Json::parse(text).unwrap()).unwrap().get(), text);
}

#[test]
fn complaints() {
    let bench = Bench::new(&[]);
    let check = |tool: &str, given: &str, expect: &str| {
        let spec = bench.tool(tool).spec().clone();
        assert_eq!(validate(&spec, &Json::parse(given).unwrap()).unwrap_err().to_string(), expect);
    };
    check(
        "read",
        r#"{"offset":"x"}"#,
        "Validation failed for tool \"read\":\n  - root: \"path\" is a required property\n  - offset: value is not of type \"integer\"\n\nReceived arguments:\n{\n  \"offset\": \"x\"\n}",
    );
    check(
        "edit",
        r#"{"path":"a","edits":[{"oldText":"x"}]}"#,
        "Validation failed for tool \"edit\":\n  - edits.0: \"newText\" is a required property\n\nReceived arguments:\n{\n  \"path\": \"a\",\n  \"edits\": [\n    {\n      \"oldText\": \"x\"\n    }\n  ]\n}",
    );
    check(
        "bash",
        r#""{\"command\": \"ls""#,
        "Validation failed for tool \"bash\":\n  - root: the arguments are not valid JSON\n\nReceived arguments:\n{\"command\": \"ls",
    );
    check(
        "bash",
        "[1]",
        "Validation failed for tool \"bash\":\n  - root: the arguments must be a JSON object\n\nReceived arguments:\n[1]",
    );
    let long = format!("\"{}\"", "é".repeat(5000));
    let error = validate(bench.tool("bash").spec(), &Json::parse(&long).unwrap()).unwrap_err().to_string();
    assert!(error.ends_with(&format!("{}… (10000 bytes in all)", "é".repeat(2000))), "{error}");
    let deep = "[".repeat(5000) + &"]".repeat(5000);
    validate(bench.tool("bash").spec(), &Json::from(json!({"command": deep, "timeout": "1e999"})))
        .unwrap_err();
    let bad = validate(&spec(json!({"type": 5})), &Json::object()).unwrap_err().to_string();
    assert!(bad.starts_with("The schema of tool \"t\" is not valid"), "{bad}");
}

#[test]
fn edits_in_other_forms() {
    let bench = Bench::new(&[]);
    let spec = bench.tool("edit").spec().clone();
    let one = json!({"oldText": "a", "newText": "b"});
    let check = |given: Value, edits: Value| {
        let valid = validate(&spec, &Json::from(&given)).unwrap().value();
        assert_eq!(valid, json!({"path": "p", "edits": edits}), "{given}");
    };
    check(json!({"path": "p", "edits": one.to_string()}), json!([one]));
    check(json!({"path": "p", "edits": json!([one]).to_string()}), json!([one]));
    check(json!({"path": "p", "edits": one}), json!([one]));
    check(json!({"path": "p", "oldText": "a", "newText": "b"}), json!([one]));
    check(
        json!({"path": "p", "edits": [one], "oldText": "c", "newText": "d"}),
        json!([one, {"oldText": "c", "newText": "d"}]),
    );
    check(
        json!({"path": "p", "edits": null, "oldText": "c", "newText": "d"}),
        json!([{"oldText": "c", "newText": "d"}]),
    );
}
