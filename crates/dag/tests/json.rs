//! What the parser takes and refuses.

use quipu_dag::JsonErrorKind::{Character, Control, Depth, End, Escape, Number};
use quipu_dag::{JsonError, JsonErrorKind, MAX_DEPTH, Text, Value, canonical};

#[test]
fn valid_json_is_accepted() {
    let check = |text: &str, expect: Value| assert_eq!(Value::parse(text), Ok(expect), "{text}");
    check(" \t\r\nnull ", Value::Null);
    check("[true,false]", Value::Array(vec![true.into(), false.into()]));
    check("-0.5e+1", Value::Number(-5.0));
    check("1e999", Value::Number(f64::INFINITY));
    check("12345678901234567890", Value::Number(12_345_678_901_234_567_000.0));
    check(
        r#""a\u0041\/\"\\\b\f\n\r\t\ud83d\uDE00é😀""#,
        "aA/\"\\\u{8}\u{c}\n\r\té😀".replace("\té", "\t😀é").into(),
    );
    check(r#""\ud800x""#, Value::String(Text::from_utf16(&[0xD800, 0x78])));
    check(r#""é\udc00\ud800\ud83d\ude00""#, {
        Value::String(Text::from_utf16(&[0xE9, 0xDC00, 0xD800, 0xD83D, 0xDE00]))
    });
    check(r#""\ud800\u0041""#, Value::String(Text::from_utf16(&[0xD800, 0x41])));
    check("{}", Value::Object(vec![]));
    check(
        r#"{ "b" : 1 , "a" : [ ] , "__proto__" : { } , "b" : 2, "c":{}, "a":3 }"#,
        Value::object([
            ("b", Value::Number(2.0)),
            ("a", Value::Number(3.0)),
            ("__proto__", Value::Object(vec![])),
            ("c", Value::Object(vec![])),
        ]),
    );
}

#[test]
fn invalid_json_is_rejected() {
    let check = |text: &str, kind: JsonErrorKind, offset: usize| {
        assert_eq!(Value::parse(text), Err(JsonError { kind, offset }), "{text}");
    };
    check("", End, 0);
    check("  ", End, 2);
    check("[1", End, 2);
    check("[1,", End, 3);
    check("[1,]", Character(']'), 3);
    check("{\"a\":1,}", Character('}'), 7);
    check("{a:1}", Character('a'), 1);
    check("{\"a\"1}", Character('1'), 4);
    check("\"abc", End, 4);
    check("\"abc\\", End, 5);
    check("\"\\u12", End, 5);
    check("\"\\u12x4\"", Escape, 1);
    check("\"\\ud800\\x\"", Escape, 7);
    check("\"\\ud800\\u12\"", Escape, 7);
    check("\"\\a\"", Escape, 1);
    check("\"a\nb\"", Control, 2);
    check("01", Number, 0);
    check("-", Number, 0);
    check("1.", Number, 0);
    check("1e+", Number, 0);
    check("+1", Character('+'), 0);
    check(".5", Character('.'), 0);
    check("tru", End, 3);
    check("trie", Character('i'), 2);
    check("nulll", Character('l'), 4);
    check("1 é", Character('é'), 2);
    check("\u{feff}1", Character('\u{feff}'), 0);
    check("\u{a0}1", Character('\u{a0}'), 0);
    check("[1}", Character('}'), 2);
    check("NaN", Character('N'), 0);
}

#[test]
fn depth_is_limited_and_costs_no_stack() {
    let nested = |depth: usize| format!("{}1{}", "[{\"a\":".repeat(depth / 2), "}]".repeat(depth / 2));
    let small_stack = std::thread::Builder::new().stack_size(2 << 20);
    let test = small_stack.spawn(move || {
        let deep = Value::parse(&nested(MAX_DEPTH)).unwrap();
        // Derived code recurses: it must fit as well.
        let copy = deep.clone();
        assert_eq!(copy, deep);
        assert!(!format!("{deep:?}").is_empty());
        assert_eq!(canonical(&deep), nested(MAX_DEPTH));
        let error = Value::parse(&nested(MAX_DEPTH + 2)).unwrap_err();
        assert_eq!(error.kind, Depth);
        // A long run of brackets must not cost a long run of stack either.
        assert_eq!(Value::parse(&"[".repeat(1_000_000)).unwrap_err().kind, Depth);
    });
    test.unwrap().join().unwrap();
}

#[test]
fn many_equal_names_are_no_trap() {
    let text = format!("{{{}\"z\":0}}", "\"k\":1,\"j\":2,".repeat(50_000));
    let expect = [("k", 1.0), ("j", 2.0), ("z", 0.0)].map(|(key, number)| (key, Value::Number(number)));
    assert_eq!(Value::parse(&text), Ok(Value::object(expect)));
}
