//! Schemas of tools as servers take them.

use proptest::prelude::*;
use quipu_protocol::Json;
use serde_json::{Value, json};

use super::*;

const ALL: [SchemaDialect; 4] = [
    SchemaDialect::JsonSchema,
    SchemaDialect::WithoutSizes,
    SchemaDialect::WithoutUnions,
    SchemaDialect::Subset,
];

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
    ALL.iter().for_each(|dialect| stays(*dialect, plain));
    // Half of a pair is replaced when it is sent, as ever.
    ALL.iter().for_each(|dialect| stays(*dialect, r#"{"type":"object","description":"\ud800"}"#));
    stays(
        SchemaDialect::JsonSchema,
        r#"{"type":"object","properties":{"a":{"$ref":"\u0023/$defs/A"}},"$defs":{"A":{"const":1}}}"#,
    );
}

#[test]
fn root_becomes_an_object() {
    for dialect in ALL {
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
    for dialect in ALL {
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
fn type_beside_alternatives_of_parts_goes() {
    let parts = json!([{ "anyOf": [{ "enum": ["a"] }, {}] }, { "type": "array", "items": {} }]);
    let expected = json!({ "items": {}, "anyOf": [{ "enum": ["a"] }, {}] });
    for part in [
        json!({ "allOf": parts }),
        json!({ "type": "string", "oneOf": [{ "anyOf": [{ "enum": ["a"] }, {}], "items": {} }] }),
    ] {
        let whole = |part| json!({ "type": "object", "properties": { "p": part } });
        check(SchemaDialect::Subset, whole(part), whole(expected.clone()));
    }
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

#[test]
fn bounds_of_lengths_are_dropped_where_refused() {
    let dialect = SchemaDialect::WithoutSizes;
    check(
        dialect,
        json!({
            "type": "object",
            "properties": {
                "minLength": { "type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a" },
                "list": { "type": "array", "minItems": 1, "maxItems": 4, "uniqueItems": true, "contains": {}, "minContains": 1,
                    "maxContains": 2, "items": { "anyOf": [{ "type": "string", "maxLength": 1 }, { "type": "null" }] } },
                "n": { "type": "number", "minimum": 0, "default": { "minLength": 3 } },
            },
            "required": ["minLength"],
            "$defs": { "A": { "type": "string", "minLength": 2 } },
        }),
        json!({
            "type": "object",
            "properties": {
                "minLength": { "type": "string", "pattern": "^a" },
                "list": { "type": "array", "uniqueItems": true, "contains": {},
                    "items": { "anyOf": [{ "type": "string" }, { "type": "null" }] } },
                "n": { "type": "number", "minimum": 0, "default": { "minLength": 3 } },
            },
            "required": ["minLength"],
            "$defs": { "A": { "type": "string" } },
        }),
    );
    stays(
        dialect,
        r##"{"type":"object","properties":{"a":{"oneOf":[{"const":1},{"$ref":"#/$defs/A"}]}},"$defs":{"A":{}}}"##,
    );
}

#[test]
fn alternatives_become_one_schema_where_refused() {
    let dialect = SchemaDialect::WithoutUnions;
    let property = |before: Value, after: Value| {
        let schema = |one: Value| json!({ "type": "object", "properties": { "p": one } });
        check(dialect, schema(before), schema(after));
    };
    property(
        json!({ "anyOf": [{ "const": "a" }, { "enum": ["b", "a"] }, { "type": "null" }], "description": "d" }),
        json!({ "description": "d", "type": "string", "enum": ["a", "b"] }),
    );
    property(
        json!({ "anyOf": [{ "type": "integer", "minimum": 1 }, { "type": "null" }], "default": null }),
        json!({ "default": null, "type": "integer", "minimum": 1 }),
    );
    property(
        json!({ "type": ["integer", "null"], "oneOf": [{ "type": "integer" }] }),
        json!({ "type": "integer" }),
    );
    property(
        json!({ "oneOf": [{ "type": "string", "pattern": "a" }, { "type": "string", "format": "uri" }] }),
        json!({ "type": "string" }),
    );
    property(
        json!({ "anyOf": [{ "type": "array", "items": { "type": "string" } }, { "type": "array" }] }),
        json!({ "type": "array", "items": {} }),
    );
    property(
        json!({ "anyOf": [{ "description": "x" }, { "type": "string", "maxLength": 3 }, { "type": "array", "items": {} }] }),
        json!({ "type": "string", "maxLength": 3 }),
    );
    property(
        json!({ "type": "string", "anyOf": [{ "minLength": 1 }, { "pattern": "^$" }] }),
        json!({ "type": "string" }),
    );
    property(
        json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"], "anyOf": [
            { "required": ["b"], "properties": { "b": { "oneOf": [{ "type": "string" }, { "type": "null" }] } } },
            { "required": ["b", "c"], "properties": { "b": {}, "c": { "type": "integer" } } },
        ] }),
        json!({ "type": "object", "properties": {
            "a": { "type": "string" }, "b": { "type": "string" }, "c": { "type": "integer" } },
            "required": ["a", "b"] }),
    );
    property(json!({ "anyOf": [{ "type": "null" }], "title": "t" }), json!({ "title": "t" }));
    property(json!({ "oneOf": {}, "anyOf": "x" }), json!({}));
}

#[test]
fn references_among_alternatives_are_followed() {
    let node = json!({ "type": "object", "properties": {
        "value": { "anyOf": [{ "type": "integer" }, { "type": "string" }] },
        "next": { "anyOf": [{ "$ref": "#/$defs/Node" }, { "type": "null" }] },
        "either": { "oneOf": [{ "$ref": "#/$defs/Node" }, { "$ref": "#/$defs/Leaf" }] },
    } });
    check(
        SchemaDialect::WithoutUnions,
        json!({
            "type": "object",
            "properties": {
                "tree": { "$ref": "#/$defs/Node" },
                "lost": { "$ref": "#/properties/gone/anyOf/0", "description": "kept" },
                "gone": { "anyOf": [{ "type": "string" }, { "type": "string" }] },
                "self": { "anyOf": [{ "$ref": "#/properties/self" }, { "$ref": "#/properties/self" }] },
            },
            "$defs": { "Node": node, "Leaf": { "type": "object", "properties": { "leaf": { "const": 1 } } } },
        }),
        json!({
            "type": "object",
            "properties": {
                "tree": { "$ref": "#/$defs/Node" },
                "lost": { "description": "kept" },
                "gone": { "type": "string" },
                "self": {},
            },
            "$defs": {
                "Node": { "type": "object", "properties": {
                    "value": { "type": "integer" },
                    "next": { "$ref": "#/$defs/Node" },
                    "either": { "type": "object", "properties": {
                        "value": { "type": "integer" },
                        "next": { "$ref": "#/$defs/Node" },
                        "either": { "type": "object", "properties": { "leaf": { "const": 1 } } },
                        "leaf": { "const": 1 },
                    } },
                } },
                "Leaf": { "type": "object", "properties": { "leaf": { "const": 1 } } },
            },
        }),
    );
}

#[test]
fn dialect_is_that_of_the_server_or_the_model() {
    let dialect = |provider: &str, id: &str, base_url: &str, compat: &str| {
        crate::schema_dialect(&quipu_protocol::Model {
            provider: provider.into(),
            id: id.into(),
            api: "openai-responses".into(),
            base_url: base_url.into(),
            compat: Json::parse(compat).ok(),
            ..quipu_protocol::Model::default()
        })
    };
    assert_eq!(dialect("xai", "tuned", "", "{}"), SchemaDialect::WithoutSizes);
    assert_eq!(dialect("mine", "tuned", "https://eu.api.x.ai/v1", "{}"), SchemaDialect::WithoutSizes);
    assert_eq!(dialect("openrouter", "x-ai/grok-4.7", "", "{}"), SchemaDialect::WithoutSizes);
    assert_eq!(dialect("openrouter", "deepseek/deepseek-r1", "", "{}"), SchemaDialect::JsonSchema);
    assert_eq!(dialect("deepseek", "m", "", "{}"), SchemaDialect::WithoutUnions);
    assert_eq!(dialect("mine", "m", "https://api.deepseek.com", "{}"), SchemaDialect::WithoutUnions);
    assert_eq!(dialect("mine", "m", "", "{}"), SchemaDialect::JsonSchema);
    assert_eq!(dialect("mine", "m", "", r#"{"toolSchema":"subset"}"#), SchemaDialect::Subset);
    assert_eq!(dialect("xai", "m", "", r#"{"toolSchema":"json-schema"}"#), SchemaDialect::JsonSchema);
    assert_eq!(dialect("xai", "m", "", r#"{"toolSchema":"unheard-of"}"#), SchemaDialect::WithoutSizes);
    let table = [("xai", SchemaDialect::WithoutSizes), ("deepseek", SchemaDialect::WithoutUnions)];
    for (provider, expected) in table {
        let models = crate::catalogue::models(provider);
        assert!(!models.is_empty(), "{provider}");
        assert!(models.iter().all(|model| crate::schema_dialect(model) == expected), "{provider}");
    }
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
    // A megabyte of values, and of properties that refer to a large schema.
    let values: Vec<Value> = (0..100_000).map(|at| json!(format!("value{at}"))).collect();
    let listed = json!({ "type": "object", "properties": { "a": { "type": "string", "enum": values } } });
    let large: Value = (0..3_000)
        .map(|at| (format!("p{at}"), json!({ "type": "string", "format": "uri" })))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let referring: serde_json::Map<String, Value> =
        (0..2_000).map(|at| (format!("r{at}"), json!({ "$ref": "#/$defs/large" }))).collect();
    let referring = json!({ "type": "object", "properties": referring, "$defs": { "large": { "type": "object", "properties": large } } });
    let schemas = [
        (deep(10_000), SchemaChange::TooDeep),
        (
            Json::parse(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))).unwrap(),
            SchemaChange::TooDeep,
        ),
        (Json::from(&json!({ "type": "object", "properties": wide })), SchemaChange::TooLarge),
        (Json::from(&texts), SchemaChange::TooLarge),
        (Json::from(&cyclic), SchemaChange::Root),
        (Json::from(&listed), SchemaChange::TooLarge),
    ];
    for dialect in ALL {
        for (schema, change) in &schemas {
            let made = tool_schema(schema, dialect);
            assert_eq!(schema_problem(&made.schema, dialect), None, "{change:?}");
            assert!(made.changes.contains(change), "{:?}", made.changes);
            assert_eq!(tool_schema(&made.schema, dialect).changes, []);
        }
        let kept = tool_schema(&schemas[3].0, dialect);
        assert_eq!(kept.schema.value()["properties"]["a"]["type"], "string", "texts go first");
        let kept = tool_schema(&schemas[5].0, dialect);
        assert_eq!(kept.schema.value()["properties"]["a"], json!({ "type": "string" }), "then long lists");
        for schema in [&doubling, &referring] {
            let schema = Json::from(schema);
            let made = tool_schema(&schema, dialect);
            assert_eq!(schema_problem(&made.schema, dialect), None);
        }
    }
}

/// What would take minutes and gigabytes if each mention of a schema were worked on, or each value compared with each.
#[test]
fn hostile_unions_cost_little() {
    let numbers = |from: usize| -> Vec<Value> { (from..from + 15_000).map(|at| json!(at)).collect() };
    let names: Vec<String> = (0..10_000).map(|at| format!("n{at}")).collect();
    let large: serde_json::Map<String, Value> =
        (0..4_000).map(|at| (format!("p{at}"), json!({ "type": "string", "enum": ["a", "b"] }))).collect();
    let again = |reference: &str| vec![json!({ "$ref": reference }); 250];
    let alternatives = |name: &str| json!({ "oneOf": again(name) });
    let schemas = [
        // Lists of values that have little in common.
        json!({ "anyOf": [
            { "properties": { "a": { "enum": numbers(0) } } }, { "properties": { "a": { "enum": numbers(5_000) } } } ] }),
        json!({ "type": "object", "properties": { "a": { "anyOf": [{ "enum": numbers(0) }, { "enum": numbers(5_000) }] } } }),
        // Names that each variant requires.
        json!({ "anyOf": [
            { "required": names }, { "required": names }, { "required": names, "properties": { "n1": {} } } ] }),
        // A large schema in the place of many references, and itself a union of itself.
        json!({ "anyOf": again("#"), "oneOf": again("#/anyOf/0"), "allOf": again("#"), "properties": large }),
        json!({ "type": "object", "properties": { "a": alternatives("#"), "b": alternatives("#/properties/a") },
            "$defs": { "large": { "properties": large } } }),
        json!({ "type": "object", "properties": { "a": alternatives("#/$defs/large"), "b": alternatives("#/$defs/mid") },
            "$defs": { "large": { "properties": large }, "mid": alternatives("#/$defs/large") } }),
        // Twice the next one, among alternatives.
        json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/d0" } }, "$defs": (0..40)
            .map(|at| {
                let next = json!({ "$ref": format!("#/$defs/d{}", at + 1) });
                (format!("d{at}"), json!({ "anyOf": [next, { "type": "object", "properties": { "l": next, "r": next } }] }))
            })
            .collect::<serde_json::Map<_, _>>() }),
    ];
    for dialect in ALL {
        for (at, schema) in schemas.iter().enumerate() {
            let schema = Json::from(schema);
            assert!(schema.get().len() <= SCHEMA_BYTES, "{at}: it is worked on as it is");
            let made = tool_schema(&schema, dialect);
            assert_eq!(schema_problem(&made.schema, dialect), None, "{at}");
            assert_eq!(tool_schema(&made.schema, dialect).changes, [], "{at} {dialect:?}");
        }
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
        for dialect in ALL {
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
