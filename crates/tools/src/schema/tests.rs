//! Schemas with values that fit them, and values that do not.

use serde_json::{Value, json};

use super::Schema;

#[track_caller]
fn check(schema: Value, fits: &[Value], wrong: &[(Value, &str)]) {
    let schema = Schema::new(schema).unwrap();
    for value in fits {
        let found = schema.complaints(value, 20);
        assert!(found.is_empty(), "{value}: {found:?}");
        assert!(schema.takes(&schema.root, value), "{value}");
    }
    for (value, expect) in wrong {
        let found: Vec<String> =
            schema.complaints(value, 20).into_iter().map(|(path, text)| format!("{path}: {text}")).collect();
        assert_eq!(found.join(" | "), *expect, "{value}");
        assert!(!schema.takes(&schema.root, value), "{value}");
    }
}

#[test]
fn types_and_values() {
    check(json!(true), &[json!(1), json!(null)], &[]);
    check(json!({}), &[json!(1), json!({"a": []})], &[]);
    check(json!(false), &[], &[(json!(1), ": nothing is allowed here")]);
    check(
        json!({"type": "integer"}),
        &[json!(1), json!(1.0), json!(u64::MAX)],
        &[
            (json!(1.5), ": value is not of type \"integer\""),
            (json!("1"), ": value is not of type \"integer\""),
        ],
    );
    check(
        json!({"type": ["string", "null"]}),
        &[json!("x"), json!(null)],
        &[(json!(1), ": value is not of types \"string\", \"null\"")],
    );
    check(
        json!({"enum": ["a", 1, {"x": [1, 2.0], "y": null}]}),
        &[json!("a"), json!(1.0), json!({"y": null, "x": [1.0, 2]})],
        &[(json!("1"), r#": value is not one of "a", 1, {"x":[1,2.0],"y":null}"#)],
    );
    let many: Vec<u32> = (0..25).collect();
    let all = many[..20].iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let expect = format!(": value is not one of {all}, and 5 more");
    check(json!({"enum": many}), &[json!(24)], &[(json!(25), &expect)]);
    check(json!({"const": 0}), &[json!(-0.0)], &[(json!(false), ": value is not 0")]);
    check(
        json!({"const": 9_007_199_254_740_993_u64}),
        &[],
        &[(json!(9_007_199_254_740_992_u64), ": value is not 9007199254740993")],
    );
}

#[test]
fn numbers() {
    check(
        json!({"minimum": 1, "maximum": 2.5}),
        &[json!(1), json!(2.5), json!("0")],
        &[(json!(0.5), ": value must be at least 1"), (json!(3), ": value must be at most 2.5")],
    );
    check(
        json!({"exclusiveMinimum": 1, "exclusiveMaximum": 3}),
        &[json!(2)],
        &[(json!(1), ": value must be more than 1"), (json!(3.0), ": value must be less than 3")],
    );
    check(
        json!({"minimum": 1, "exclusiveMinimum": true, "maximum": 3, "exclusiveMaximum": false}),
        &[json!(1.5), json!(3)],
        &[(json!(1), ": value must be more than 1")],
    );
    check(
        json!({"minimum": 9_007_199_254_740_993_u64}),
        &[json!(9_007_199_254_740_993_u64)],
        &[(json!(9_007_199_254_740_992_u64), ": value must be at least 9007199254740993")],
    );
    check(
        json!({"multipleOf": 0.1}),
        &[json!(0.3), json!(7), json!(19.9)],
        &[(json!(0.35), ": value must be a multiple of 0.1")],
    );
    check(json!({"multipleOf": 3}), &[json!(-9)], &[(json!(10), ": value must be a multiple of 3")]);
}

#[test]
fn texts() {
    check(
        json!({"minLength": 2, "maxLength": 3}),
        &[json!("äö"), json!("😀😀😀"), json!(5)],
        &[
            (json!("ä"), ": value has 1 characters, and must have at least 2"),
            (json!("abcd"), ": value has 4 characters, and must have at most 3"),
        ],
    );
    check(
        json!({"pattern": r"^\d+$", "format": "date"}),
        &[json!("12"), json!([])],
        &[(json!("x"), r#": value does not match the pattern "^\\d+$""#)],
    );
}

#[test]
fn lists() {
    check(
        json!({"items": {"type": "number"}, "minItems": 1, "maxItems": 2, "uniqueItems": true}),
        &[json!([1, 2])],
        &[
            (json!([]), ": value has 0 items, and must have at least 1"),
            (json!([1, 2, 3]), ": value has 3 items, and must have at most 2"),
            (json!([1, 1.0]), ": value has an item twice"),
            (json!([1, "x"]), "1: value is not of type \"number\""),
        ],
    );
    check(
        json!({"prefixItems": [{"type": "string"}], "items": {"type": "number"}}),
        &[json!([]), json!(["x"]), json!(["x", 1])],
        &[(json!([1, "x"]), "0: value is not of type \"string\" | 1: value is not of type \"number\"")],
    );
    check(
        json!({"items": [{"type": "string"}], "additionalItems": false}),
        &[json!(["x"])],
        &[(json!(["x", 1]), ": value has 2 items, and must have at most 1")],
    );
    check(
        json!({"items": [true], "additionalItems": {"type": "null"}}),
        &[json!([1, null])],
        &[(json!([1, 2]), "1: value is not of type \"null\"")],
    );
    check(json!({"items": {}, "additionalItems": false}), &[json!([1, 2])], &[]);
    check(
        json!({"contains": {"const": 1}, "maxContains": 2}),
        &[json!([1]), json!([1, 2, 1])],
        &[
            (json!([2]), ": 0 items are as \"contains\" wants them"),
            (json!([1, 1, 1]), ": 3 items are as \"contains\" wants them"),
        ],
    );
    check(json!({"contains": {"const": 1}, "minContains": 0}), &[json!([])], &[]);
}

#[test]
fn members() {
    check(
        json!({
            "properties": {"a": {"properties": {"b": {"type": "string"}}, "required": ["b", "c"]}},
            "required": ["d"],
        }),
        &[json!({"d": 1}), json!({"d": 1, "a": {"b": "", "c": 0, "x": 1}}), json!([])],
        &[(
            json!({"a": {"b": 1}}),
            ": \"d\" is a required property | a: \"c\" is a required property | a.b: value is not of type \"string\"",
        )],
    );
    check(
        json!({"properties": {"a": {}}, "patternProperties": {"^x-": {"type": "number"}}, "additionalProperties": false}),
        &[json!({"a": 1, "x-b": 2})],
        &[
            (json!({"b": 1, "c": 2}), ": additional properties are not allowed: \"b\", \"c\""),
            (json!({"x-b": "2"}), "x-b: value is not of type \"number\""),
        ],
    );
    check(
        json!({"additionalProperties": {"type": "number"}, "minProperties": 1, "maxProperties": 2}),
        &[json!({"a": 1})],
        &[
            (json!({"a": "1"}), "a: value is not of type \"number\""),
            (json!({}), ": value has 0 properties, and must have at least 1"),
            (json!({"a": 1, "b": 1, "c": 1}), ": value has 3 properties, and must have at most 2"),
        ],
    );
    check(
        json!({"propertyNames": {"maxLength": 2}}),
        &[json!({"ab": 1})],
        &[(
            json!({"abc": 1}),
            ": the name \"abc\" is not allowed: value has 3 characters, and must have at most 2",
        )],
    );
    check(
        json!({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"required": ["d"]}}}),
        &[json!({"b": 1}), json!({"a": 1, "b": 1})],
        &[
            (json!({"a": 1}), ": \"b\" is a required property"),
            (json!({"c": 1}), ": \"d\" is a required property"),
        ],
    );
    check(
        json!({"dependencies": {"a": ["b"], "c": {"properties": {"d": false}}}}),
        &[json!({"a": 1, "b": 1, "d": 1})],
        &[
            (json!({"a": 1}), ": \"b\" is a required property"),
            (json!({"c": 1, "d": 1}), "d: nothing is allowed here"),
        ],
    );
}

#[test]
fn alternatives() {
    check(
        json!({"anyOf": [{"type": "string"}, {"properties": {"a": {"type": "null"}}, "type": "object"}]}),
        &[json!("x"), json!({"a": null})],
        &[
            (
                json!(1),
                ": value fits none of the alternatives (value is not of type \"string\"; value is not of type \"object\")",
            ),
            (
                json!({"a": 1}),
                ": value fits none of the alternatives (value is not of type \"string\"; a: value is not of type \"null\")",
            ),
        ],
    );
    check(
        json!({"oneOf": [{"minimum": 2}, {"multipleOf": 2}]}),
        &[json!(3), json!(0)],
        &[
            (json!(4), ": value fits 2 of the alternatives, and must fit exactly one"),
            (
                json!(1),
                ": value fits none of the alternatives (value must be at least 2; value must be a multiple of 2)",
            ),
        ],
    );
    check(
        json!({"allOf": [{"minimum": 2}, {"maximum": 4}]}),
        &[json!(3)],
        &[(json!(5), ": value must be at most 4")],
    );
    check(
        json!({"not": {"type": "null"}}),
        &[json!(0)],
        &[(json!(null), ": value fits what \"not\" forbids")],
    );
    check(
        json!({"if": {"minimum": 10}, "then": {"multipleOf": 10}, "else": {"maximum": 5}}),
        &[json!(20), json!(4), json!("x")],
        &[(json!(11), ": value must be a multiple of 10"), (json!(7), ": value must be at most 5")],
    );
}

#[test]
fn references() {
    let tree = json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "number"}},
        }},
    });
    check(
        tree,
        &[json!({"next": {"next": {"n": 1}}})],
        &[(json!({"next": {"next": {"n": "1"}}}), "next.next.n: value is not of type \"number\"")],
    );
    // As a builder of recursive types writes it.
    check(
        json!({"properties": {"t": {
            "$id": "T0", "type": "object", "properties": {"all": {"type": "array", "items": {"$ref": "T0"}}}
        }}}),
        &[json!({"t": {"all": [{}, {"all": []}]}})],
        &[(json!({"t": {"all": [{"all": [1]}]}}), "t.all.0.all.0: value is not of type \"object\"")],
    );
    // Within a document of its own, pointers begin at it.
    check(
        json!({
            "$id": "https://example.org/all.json",
            "properties": {"a": {"$ref": "https://example.org/part.json#/$defs/x"}, "b": {"$ref": "#/$defs/x"}},
            "$defs": {
                "x": {"type": "string"},
                "part": {
                    "$id": "https://example.org/part.json",
                    "properties": {"c": {"$ref": "#/$defs/x"}},
                    "$defs": {"x": {"type": "null"}},
                },
            },
            "additionalProperties": {"$ref": "https://example.org/part.json"},
        }),
        &[json!({"a": null, "b": "", "d": {"c": null}})],
        &[(
            json!({"a": "", "b": null, "d": {"c": 1}}),
            "a: value is not of type \"null\" | b: value is not of type \"string\" | d.c: value is not of type \"null\"",
        )],
    );
    check(
        json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"a": {"$ref": "#n", "maximum": 1}, "b": {"$ref": "#/definitions/a~1b%25"}},
            "definitions": {"n": {"$id": "#n", "type": "number"}, "a/b%": {"type": "null"}},
        }),
        &[json!({"a": 5, "b": null})],
        &[(
            json!({"a": "", "b": 1}),
            "a: value is not of type \"number\" | b: value is not of type \"null\"",
        )],
    );
    check(
        json!({"properties": {"a": {"$ref": "#n", "maximum": 1}}, "$defs": {"n": {"$anchor": "n", "type": "number"}}}),
        &[json!({"a": 1})],
        &[(json!({"a": 5}), "a: value must be at most 1")],
    );
}

#[test]
fn undecidable_schema_keyword_is_not_an_error() {
    let (text, object) = (json!({"v": "a"}), json!({"v": {"x": 1}}));
    let unknown = [
        (json!({"pattern": "^(?!a)"}), &text),
        (json!({"$ref": "http://json-schema.org/draft-07/schema#"}), &text),
        (json!({"$dynamicRef": "#x"}), &object),
        (json!({"unevaluatedProperties": false}), &object),
        // A circle.
        (json!({"$ref": "#/properties/v"}), &object),
    ];
    for (unknown, value) in unknown {
        let check = |part: Value| check(json!({"properties": {"v": part}}), std::slice::from_ref(value), &[]);
        check(unknown.clone());
        check(json!({"not": unknown}));
        check(json!({"anyOf": [false, unknown]}));
        check(json!({"oneOf": [true, unknown]}));
        check(json!({"if": unknown, "then": false, "else": false}));
        check(json!({"not": {"allOf": [true, unknown]}}));
    }
    // What is decided beside it counts.
    check(
        json!({"pattern": "^(?!a)", "maxLength": 1}),
        &[json!("a")],
        &[(json!("ab"), ": value has 2 characters, and must have at most 1")],
    );
    check(
        json!({"patternProperties": {"(?=a)": false}, "additionalProperties": false}),
        &[json!({"b": 1})],
        &[],
    );
    check(
        json!({"contains": {"pattern": "(?=a)"}}),
        &[json!(["b"])],
        &[(json!([]), ": 0 items are as \"contains\" wants them")],
    );
}

#[test]
fn hostile_schemas_end() {
    // Each step doubles the work; each leads back to the beginning.
    let both = json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]});
    check(both.clone(), &[json!(1)], &[]);
    check(json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#/allOf/0"}]}), &[json!(1)], &[]);
    let mut deep = json!(1);
    for _ in 0..120 {
        deep = json!({"next": deep, "other": 1});
    }
    let rules = json!({"additionalProperties": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}});
    check(rules, &[deep], &[]);
    let slow = json!({"pattern": "^(a+)+$"});
    let long = "a".repeat(100_000) + "b";
    assert_eq!(Schema::new(slow).unwrap().complaints(&json!(long), 20).len(), 1);
    let many: Vec<Value> = (0..100_000).map(|_| json!("x")).collect();
    let found = Schema::new(json!({"items": {"type": "null"}})).unwrap().complaints(&json!(many), 20);
    assert_eq!(found.len(), 20);
}

#[test]
fn schemas_that_are_none() {
    let check = |schema: Value, expect: &str| {
        assert_eq!(Schema::new(schema).map(drop).unwrap_err(), expect);
    };
    check(json!(5), "# is not a schema but 5");
    check(json!({"type": 5}), "\"type\" at # must be a type or a list of types, not 5");
    check(
        json!({"properties": {"a/b": {"type": "strin"}}}),
        "\"type\" at #/properties/a~1b must be a type or a list of types, not \"strin\"",
    );
    check(json!({"properties": []}), "\"properties\" at # must be an object, not []");
    check(json!({"properties": {"a": 1}}), "#/properties/a is not a schema but 1");
    check(json!({"required": true}), "\"required\" at # must be a list of names, not true");
    check(json!({"required": [1]}), "\"required\" at # must be a list of names, not [1]");
    check(json!({"items": 1}), "\"items\" at # must be a list of schemas, not 1");
    check(json!({"anyOf": {}}), "\"anyOf\" at # must be a list of schemas, not {}");
    check(json!({"not": null}), "\"not\" at # must be a schema, not null");
    check(json!({"enum": "a"}), "\"enum\" at # must be a list, not \"a\"");
    check(json!({"minimum": "1"}), "\"minimum\" at # must be a number, not \"1\"");
    check(json!({"minLength": -1}), "\"minLength\" at # must be a count, not -1");
    check(json!({"uniqueItems": 1}), "\"uniqueItems\" at # must be true or false, not 1");
    check(json!({"pattern": 1}), "\"pattern\" at # must be a text, not 1");
    check(
        json!({"dependencies": {"a": [1]}}),
        "\"dependencies\" at # must be names of properties, by name, not {\"a\":[1]}",
    );
    check(
        json!({"properties": {"a": {"$ref": "#/$defs/no"}}}),
        "\"#/$defs/no\", to which \"$ref\" at #/properties/a refers, is not in the schema",
    );
    check(
        json!({"$ref": "https://example.org/x"}),
        "\"https://example.org/x\", to which \"$ref\" at # refers, is not in the schema",
    );
    // What is only referred to is looked at as well, and data is not.
    check(
        json!({"$ref": "#/x/y", "x": {"y": {"type": 1}}}),
        "\"type\" at #/x/y must be a type or a list of types, not 1",
    );
    Schema::new(json!({"const": {"type": 5}, "default": {"type": 5}, "examples": [{"$ref": "no"}]})).unwrap();
}
