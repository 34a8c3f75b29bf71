//! Schemas of tools as servers take them.

use proptest::prelude::*;
use quipu_protocol::Json;
use serde_json::{Value, json};

use super::*;

const BOTH: [SchemaDialect; 2] = [SchemaDialect::JsonSchema, SchemaDialect::Subset];

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "written where it is given")]
fn check(dialect: SchemaDialect, schema: Value, expected: Value) {
    let schema = Json::from(&schema);
    let made = tool_schema(&schema, dialect);
    assert_eq!(made.schema.value(), expected);
    assert_eq!(schema_problem(&made.schema, dialect), None);
    assert_eq!(tool_schema(&made.schema, dialect).changes, [], "it is done once");
}

#[track_caller]
fn stays(dialect: SchemaDialect, schema: &str) {
    let schema = Json::parse(schema).unwrap();
    let made = tool_schema(&schema, dialect);
    assert!(matches!(made.schema, Cow::Borrowed(_)), "{:?}: {}", made.changes, made.schema.get());
    assert_eq!(made.changes, []);
}

#[test]
fn schemas_that_are_taken_keep_their_bytes() {
    let plain = r#"{"type": "object", "properties": {"path":{"type":"string","description":"A \u0041 path"},
        "limit":{"type":"integer","minimum":1},"mode":{"enum":["a","b"]},
        "edits":{"type":"array","items":{"type":"object","properties":{},"additionalProperties":false}}},
        "required":["path"],"additionalProperties":false}"#;
    BOTH.iter().for_each(|dialect| stays(*dialect, plain));
    // Half of a pair is replaced when it is sent, as ever.
    BOTH.iter().for_each(|dialect| stays(*dialect, r#"{"type":"object","description":"\ud800"}"#));
    stays(
        SchemaDialect::JsonSchema,
        r#"{"type":"object","properties":{"a":{"$ref":"\u0023/$defs/A"}},"$defs":{"A":{"const":1}}}"#,
    );
}

#[test]
fn root_becomes_an_object() {
    for dialect in BOTH {
        let anything = json!({ "type": "object", "properties": {} });
        for schema in [json!({}), json!(true), json!(null), json!([]), json!("x")] {
            check(dialect, schema, anything.clone());
        }
        check(
            dialect,
            json!({ "properties": { "a": { "type": "string" } }, "required": ["a"] }),
            json!({ "properties": { "a": { "type": "string" } }, "required": ["a"], "type": "object" }),
        );
        check(dialect, json!({ "type": "array", "items": {} }), anything.clone());
    }
}

#[test]
fn union_at_the_root_is_flattened() {
    for dialect in BOTH {
        check(
            dialect,
            json!({ "anyOf": [
                { "type": "object", "required": ["kind", "a"], "properties": {
                    "kind": { "type": "string", "enum": ["one"] }, "a": { "type": "string" } } },
                { "type": "object", "required": ["b", "kind"], "properties": {
                    "kind": { "type": "string", "enum": ["two"] }, "b": { "type": "integer" } } },
            ] }),
            json!({
                "type": "object",
                "properties": {
                    "kind": { "type": "string", "enum": ["one", "two"] },
                    "a": { "type": "string" },
                    "b": { "type": "integer" },
                },
                "required": ["kind"],
            }),
        );
        check(
            dialect,
            json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"],
                "allOf": [{ "properties": { "b": { "type": "string" } }, "required": ["b"] },
                    { "oneOf": [{ "properties": { "c": { "type": "string" } } }] }] }),
            json!({ "type": "object", "properties": {
                "a": { "type": "string" }, "b": { "type": "string" }, "c": { "type": "string" } },
                "required": ["a", "b"] }),
        );
    }
    let referred = json!({
        "oneOf": [{ "$ref": "#/$defs/A" }, { "$ref": "#/$defs/B" }],
        "$defs": {
            "A": { "type": "object", "properties": { "a": { "type": "string" } } },
            "B": { "type": "object", "properties": { "b": { "type": "string" } } },
        },
    });
    check(
        SchemaDialect::Subset,
        referred,
        json!({ "properties": { "a": { "type": "string" }, "b": { "type": "string" } }, "type": "object" }),
    );
}

#[test]
fn keywords_of_the_subset_are_dropped() {
    check(
        SchemaDialect::Subset,
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "x", "type": "object",
            "properties": {
                "pattern": { "type": "string", "pattern": "^a", "minLength": 1, "maxLength": 2, "format": "uri" },
                "n": { "type": "number", "minimum": 0, "maximum": 9, "multipleOf": 3, "examples": [3] },
                "list": { "type": "array", "items": { "type": "string", "not": {} }, "minItems": 1, "uniqueItems": true },
                "map": { "type": "object", "patternProperties": { "^x": {} }, "additionalProperties": { "type": "string" } },
            },
            "required": ["n", "gone"], "additionalProperties": false, "minProperties": 1,
        }),
        json!({
            "properties": {
                "pattern": { "type": "string" },
                "n": { "type": "number" },
                "list": { "items": { "type": "string" }, "type": "array" },
                "map": { "type": "object" },
            },
            "type": "object",
            "required": ["n"],
        }),
    );
}

#[test]
fn constants_and_nothing_are_said_otherwise() {
    check(
        SchemaDialect::Subset,
        json!({ "type": "object", "properties": {
            "one": { "const": "x" },
            "maybe": { "type": ["string", "null"], "description": "d" },
            "either": { "anyOf": [{ "type": "string" }, { "type": "null" }], "default": null },
            "word": { "oneOf": [{ "const": "a" }, { "const": "b" }, { "enum": ["b", "c"] }] },
            "both": { "type": "string", "anyOf": [{ "type": "string" }, { "type": "integer" }] },
            "part": { "allOf": [{ "type": "object", "properties": { "p": { "const": 1 } }, "required": ["p"] }] },
        } }),
        json!({ "properties": {
            "one": { "enum": ["x"] },
            "maybe": { "description": "d", "type": "string" },
            "either": { "default": null, "type": "string" },
            "word": { "type": "string", "enum": ["a", "b", "c"] },
            "both": { "anyOf": [{ "type": "string" }, { "type": "integer" }] },
            "part": { "type": "object", "properties": { "p": { "enum": [1] } }, "required": ["p"] },
        }, "type": "object" }),
    );
}

#[test]
fn references_are_replaced_and_cycles_end() {
    check(
        SchemaDialect::Subset,
        json!({
            "type": "object",
            "properties": {
                "tree": { "$ref": "#/$defs/Node" },
                "away": { "$ref": "https://example.org/other.json", "description": "kept", "minLength": 1 },
                "lost": { "$ref": "#/$defs/None", "title": "t" },
                "self": { "$ref": "#/properties/self" },
            },
            "$defs": { "Node": { "type": "object", "properties": {
                "value": { "type": "string" },
                "children": { "type": "array", "items": { "$ref": "#/$defs/Node" } },
            } } },
        }),
        json!({
            "properties": {
                "tree": { "properties": {
                    "value": { "type": "string" },
                    "children": { "items": {}, "type": "array" },
                }, "type": "object" },
                "away": { "description": "kept" },
                "lost": { "title": "t" },
                "self": {},
            },
            "type": "object",
        }),
    );
}

/// Nested objects, so many.
fn deep(levels: usize) -> Json {
    let open = r#"{"type":"object","properties":{"a":"#.repeat(levels);
    Json::parse(&format!("{open}{{}}{}", "}}".repeat(levels))).unwrap()
}

#[test]
fn schemas_from_hell_are_bounded() {
    let wide: Value = (0..100_000)
        .map(|at| (format!("p{at}"), json!({ "type": "string", "description": "x".repeat(80) })))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let texts = json!({ "type": "object", "description": "y".repeat(10 << 20), "properties": { "a": { "type": "string" } } });
    // Each definition refers to the next one twice.
    let mut doubling = json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/d0" } } });
    for at in 0..60 {
        let next = json!({ "$ref": format!("#/$defs/d{}", at + 1) });
        doubling["$defs"][format!("d{at}")] =
            json!({ "type": "object", "properties": { "l": next, "r": next } });
    }
    let cyclic =
        json!({ "anyOf": [{ "$ref": "#/anyOf/0" }, { "$ref": "#" }, { "anyOf": [{ "$ref": "#" }] }] });
    let schemas = [
        (deep(10_000), SchemaChange::TooDeep),
        (
            Json::parse(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))).unwrap(),
            SchemaChange::TooDeep,
        ),
        (Json::from(&json!({ "type": "object", "properties": wide })), SchemaChange::TooLarge),
        (Json::from(&texts), SchemaChange::TooLarge),
        (Json::from(&cyclic), SchemaChange::Root),
    ];
    for dialect in BOTH {
        for (schema, change) in &schemas {
            let made = tool_schema(schema, dialect);
            assert_eq!(schema_problem(&made.schema, dialect), None, "{change:?}");
            assert!(made.changes.contains(change), "{:?}", made.changes);
            assert_eq!(tool_schema(&made.schema, dialect).changes, []);
        }
        let kept = tool_schema(&schemas[3].0, dialect);
        assert_eq!(kept.schema.value()["properties"]["a"]["type"], "string", "texts go first");
        let doubled = Json::from(&doubling);
        let doubled = tool_schema(&doubled, dialect);
        assert_eq!(schema_problem(&doubled.schema, dialect), None);
    }
}

/// Anything that looks like a schema, and things that do not.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!(true)),
        Just(json!(null)),
        Just(json!({ "type": "string", "minLength": 1 })),
        Just(json!({ "type": ["integer", "null"] })),
        Just(json!({ "type": ["null"] })),
        Just(json!({ "const": "a" })),
        Just(json!({ "const": null })),
        Just(json!({ "enum": ["a", "b"] })),
        Just(json!({ "enum": [1, "b", null] })),
        Just(json!({ "$ref": "#" })),
        Just(json!({ "$ref": "#/$defs/x" })),
        Just(json!({ "$ref": "#/properties/a" })),
        Just(json!({ "$ref": 5, "type": 7, "required": "a", "anyOf": {}, "properties": [] })),
    ];
    leaf.prop_recursive(5, 60, 4, |inner| {
        let several = prop::collection::vec(inner.clone(), 0..4);
        let named = prop::collection::btree_map("[ax]|type|anyOf|\\$ref", inner.clone(), 0..4);
        prop_oneof![
            named
                .clone()
                .prop_map(|own| json!({ "type": "object", "properties": own, "required": ["a", "z"] })),
            (named, inner.clone())
                .prop_map(|(own, x)| json!({ "properties": own, "$defs": { "x": x }, "$ref": "#/$defs/x" })),
            several.clone().prop_map(|all| json!({ "anyOf": all })),
            several.clone().prop_map(|all| json!({ "oneOf": all, "type": "string", "$schema": "s" })),
            several.clone().prop_map(|all| json!({ "allOf": all, "additionalProperties": false })),
            several.prop_map(|all| json!({ "type": "array", "items": all })),
            inner.clone().prop_map(|one| json!({ "type": "array", "items": one, "not": one })),
            inner.prop_map(|one| json!({ "type": "object", "additionalProperties": one, "if": one })),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_result_is_taken_and_final(schema in schemas()) {
        let schema = Json::from(&schema);
        for dialect in BOTH {
            let made = tool_schema(&schema, dialect);
            prop_assert_eq!(schema_problem(&made.schema, dialect), None, "{}", made.schema.get());
            let again = tool_schema(&made.schema, dialect);
            prop_assert_eq!(&again.changes, &vec![], "{}", made.schema.get());
            prop_assert_eq!(again.schema.get(), made.schema.get());
        }
    }

    #[test]
    fn cut_texts_are_json(schema in schemas(), most in 1..8usize) {
        let text = schema.to_string();
        let cut = depth::cut(&text, most);
        prop_assert!(depth::of(&cut) <= most);
        prop_assert!(serde_json::from_str::<Value>(&cut).is_ok(), "{cut}");
    }
}
