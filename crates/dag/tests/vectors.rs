//! Published vectors: canonical texts with their hashes, and the ids of a small graph.

use quipu_dag::{
    Blob, BlobId, Node, NodeId, NodeRecord, PartsListError, Text, Value, Verdict, canonical, hash_content,
    hash_json, is_canonical, read_parts_list, sha256, write_parts_list,
};

fn hex(hash: [u8; 32]) -> String {
    BlobId(hash).to_string()
}

/// Name, canonical text, SHA-256.
const VECTORS: &[(&str, &str, &str)] = &[
    (
        "text_hello",
        r#"{"content":"hello","type":"text"}"#,
        "d3167d7e7b608d25db586005b1bdc1cfd12f1ffe39da11919fa112440d875a70",
    ),
    (
        "empty",
        r#"{"content":"","type":"text"}"#,
        "919e8aafe2527e2a4200f7b011a55b4fc3fa9dedc484a022db25f59dad04d076",
    ),
    (
        "thinking",
        r#"{"content":"hm","type":"thinking"}"#,
        "ffd18378b29aa4c62c1bd51c24a0a7e80dc45ff08b83ca4351251f1cc45c6b1f",
    ),
    (
        "tool_call",
        r#"{"content":{"arguments":{"offset":1,"path":"a.txt"},"id":"call_1","name":"read"},"type":"tool_call"}"#,
        "9df7a65c867fac3db34f2998d004edabbda3f221c0e21283963031f6239103ab",
    ),
    (
        "tool_call_noargs",
        r#"{"content":{"id":"call_1","name":"read"},"type":"tool_call"}"#,
        "5da2cf09df283b4557538a5903d28a58ca6a341a221c2d7f985878d9f531f3f9",
    ),
    (
        "tool_result",
        r#"{"content":{"content":[{"text":"ok","type":"text"}],"isError":false,"toolCallId":"call_1","toolName":"read"},"type":"tool_result"}"#,
        "e3119dbb3e8ff40d578fb88467e6d51c722b2f11fbcfecc005553b87197af67e",
    ),
    (
        "system_prompt",
        r#"{"content":"You are Pi.","type":"system_prompt"}"#,
        "d355c57703a1273f61eb32b2c72914f951c246a1e1769179e5bddf013a469bc9",
    ),
    (
        "image",
        r#"{"content":{"data":"AAAA","mimeType":"image/png","type":"image"},"type":"pi_meta"}"#,
        "65e7da33897431bed95435c978347f2ad929c27d03c9bc49382067a4c63c2311",
    ),
    (
        "int_keys",
        r#"{"content":{"9":2,"10":1,"4294967294":7,"-1":5,"01":4,"4294967295":6,"a":3,"b":1},"type":"pi_meta"}"#,
        "d00aa7a102596d91799d55095833007185452c917b98963136f174d270fbd498",
    ),
    (
        "nums",
        r#"{"content":[1,0,1e+21,100000000000000000000,123456789012345680000,0.000001,1e-7,null,null,0.1,5e-324,1.7976931348623157e+308],"type":"pi_meta"}"#,
        "3b8779c32ead4a42eaec6cde1e469b6da3592c86ebbae36176ba408e22d222b7",
    ),
    (
        "utf16sort",
        "{\"content\":{\"Z\":5,\"z\":3,\"é\":4,\"😀\":2,\"\u{e000}\":1},\"type\":\"pi_meta\"}",
        "89a6e12b6f9a169031f021caad1e418274531ee502f132fecd6e2ae58af76af9",
    ),
    (
        "undef",
        r#"{"content":{"b":[null,null],"c":null},"type":"pi_meta"}"#,
        "de1b84cc23a4e7e5476d9a7e45cc4a274acde58217c7104be13353bc8702bc56",
    ),
    (
        "proto",
        r#"{"content":{"a":1},"type":"pi_meta"}"#,
        "2a167f7d77e33e726746f963e7d048788447705d1dfd609d1b223282bb1eba3e",
    ),
    (
        "lone_surrogate",
        r#"{"content":"\ud800x","type":"text"}"#,
        "ec31c38fb3588d55b393730a18bbb5fb9d8528916a07f25809139272fd9efd00",
    ),
    (
        "ctrl",
        r#"{"content":"\u0000\u0001\b\f\u001f","type":"text"}"#,
        "053088337e48412f73fccda99cb7d623b97ce51d8dd64df2fe32eb2bf97097d5",
    ),
    (
        "text_nl",
        "{\"content\":\"line1\\nline2\\t\\\"q\\\" \\\\ / \u{2028} \u{7f} é 😀\",\"type\":\"text\"}",
        "f9a8e01b597c02f9765f43d38d2e3cddb4d94b87b321debf6cbda9f1c9a1e0f6",
    ),
    (
        "departure",
        r#"{"content":{"content":[{"text":"Incarnation initiated → aaaaaaaaaaaa","type":"text"}],"isError":false,"toolCallId":"tobe_departure","toolName":"tobe"},"type":"tool_result"}"#,
        "26d43244d1e021880aee7a5d6124793887fa31d87a2dff570a5ec6c10609b2d7",
    ),
    (
        "node_root",
        r#"{"external_id":"a1b2c3d4","parent_id":null,"parts_list":["d3167d7e7b608d25db586005b1bdc1cfd12f1ffe39da11919fa112440d875a70"],"role":"user","timestamp":1700000000000}"#,
        "4318789867f7c37d6e36d4f7a493028efc808bb3d53aa2ba75c69859413c59b9",
    ),
    (
        "node_root_sys",
        r#"{"external_id":"a1b2c3d4","parent_id":null,"parts_list":["d3167d7e7b608d25db586005b1bdc1cfd12f1ffe39da11919fa112440d875a70"],"role":"user","system_prompt_hash":"d355c57703a1273f61eb32b2c72914f951c246a1e1769179e5bddf013a469bc9","timestamp":1700000000000}"#,
        "eac0866bf382ba7026c751a27964f76be786b1647f0cedf8ed5262ae95e57d8c",
    ),
    (
        "node_child",
        r#"{"external_id":"b1b2c3d4","parent_id":"4318789867f7c37d6e36d4f7a493028efc808bb3d53aa2ba75c69859413c59b9","parts_list":["ffd18378b29aa4c62c1bd51c24a0a7e80dc45ff08b83ca4351251f1cc45c6b1f","9df7a65c867fac3db34f2998d004edabbda3f221c0e21283963031f6239103ab"],"role":"assistant","timestamp":1700000001000}"#,
        "04bb023c7558de5b0e61da4800fd0918bdc6bdff7ac2dbbcb2f72d79f3777a96",
    ),
    (
        "node_departure",
        r#"{"parent_id":"04bb023c7558de5b0e61da4800fd0918bdc6bdff7ac2dbbcb2f72d79f3777a96","parts_list":["26d43244d1e021880aee7a5d6124793887fa31d87a2dff570a5ec6c10609b2d7"],"role":"toolResult","timestamp":1700000002000}"#,
        "1848f9948b9c0a6c752d7a0e43a51a6459ff0e5d08c773ac52cbdd67967c6f3c",
    ),
    (
        "node_noext_null",
        r#"{"external_id":null,"parent_id":null,"parts_list":["d3167d7e7b608d25db586005b1bdc1cfd12f1ffe39da11919fa112440d875a70"],"role":"user","timestamp":1700000000000}"#,
        "9e4a84ad91123bbfe9fd0b4673c6ffd418dc03790cbd4185daba383eb2b383ff",
    ),
];

fn vector(name: &str) -> (&'static str, &'static str) {
    let found = VECTORS.iter().find(|(known, _, _)| *known == name);
    found.map_or_else(|| panic!("no vector {name}"), |(_, text, hash)| (*text, *hash))
}

#[test]
fn canonical_texts_have_the_published_hashes() {
    for (name, text, hash) in VECTORS {
        assert_eq!(hex(sha256(text.as_bytes())), *hash, "{name}");
        assert_eq!(hex(hash_json(text).unwrap()), *hash, "{name}");
        assert!(is_canonical(text), "{name}");
    }
}

#[test]
fn other_spellings_have_the_same_hashes() {
    let check = |name: &str, text: &str| {
        let value = Value::parse(text).unwrap();
        assert_eq!(canonical(&value), vector(name).0, "{name}");
        assert_eq!(hex(hash_content(&value)), vector(name).1, "{name}");
        assert!(!is_canonical(text), "{name}");
    };
    check("text_hello", r#" { "type" : "text" , "content" : "\u0068ello" } "#);
    check(
        "tool_call",
        r#"{"type":"tool_call","content":{"id":"call_1","name":"read","arguments":{"path":"a.txt","offset":1.0}}}"#,
    );
    check(
        "int_keys",
        r#"{"type":"pi_meta","content":{"b":1,"10":1,"9":2,"a":3,"01":4,"-1":5,"4294967295":6,"4294967294":7}}"#,
    );
    check(
        "nums",
        r#"{"type":"pi_meta","content":[1.0,-0,1e21,1e20,123456789012345678901,1E-6,0.0000001,1e999,-1e999,0.10,4.9e-324,1.7976931348623157e308]}"#,
    );
    check("proto", r#"{"type":"pi_meta","content":{"__proto__":{"x":1},"a":1}}"#);
    check("proto", r#"{"type":"pi_meta","content":{"a":0,"__proto__":2,"a":1}}"#);
    check("lone_surrogate", r#"{"type":"text","content":"\uD800x"}"#);
    check(
        "utf16sort",
        "{\"type\":\"pi_meta\",\"content\":{\"\u{e000}\":1,\"\\ud83d\\ude00\":2,\"z\":3,\"é\":4,\"Z\":5}}",
    );
    check(
        "node_root",
        r#"{"parent_id":null,"role":"user","parts_list":["d3167d7e7b608d25db586005b1bdc1cfd12f1ffe39da11919fa112440d875a70"],"timestamp":1700000000000,"external_id":"a1b2c3d4"}"#,
    );
}

#[test]
fn values_made_by_hand_are_written_as_javascript_would() {
    let check = |value: Value, expect: &str| assert_eq!(canonical(&value), expect);
    check(
        Value::Array(vec![Value::Number(f64::NAN), Value::Number(f64::NEG_INFINITY), Value::Number(-0.0)]),
        "[null,null,0]",
    );
    check(
        Value::object([("a", Value::Number(1.0)), ("b", true.into()), ("a", Value::Null)]),
        r#"{"a":null,"b":true}"#,
    );
    check(
        Value::String(Text::from_utf16(&[0xDC00, 0x0B, 0xD83D, 0xDE00, 0xD83D])),
        r#""\udc00\u000b😀\ud83d""#,
    );
    check(
        Value::Array(vec![Value::Array(vec![]), Value::Object(vec![]), "[".into(), "{".into()]),
        r#"[[],{},"[","{"]"#,
    );
    check(
        serde_json::json!({"b": [1, 2.5, u64::MAX], "a": "x"}).into(),
        r#"{"a":"x","b":[1,2.5,18446744073709552000]}"#,
    );
}

#[test]
fn blobs_keep_their_text_and_hash_its_meaning() {
    let check = |blob: &Blob, name: &str| {
        assert_eq!(blob.id.to_string(), vector(name).1, "{name}");
        assert_eq!(blob.verify(), Verdict::Valid, "{name}");
    };
    check(&Blob::text("hello"), "text_hello");
    check(&Blob::text(""), "empty");
    check(&Blob::text("line1\nline2\t\"q\" \\ / \u{2028} \u{7f} é 😀"), "text_nl");
    check(&Blob::text("\0\u{1}\u{8}\u{c}\u{1f}"), "ctrl");
    check(&Blob::string("thinking", "hm"), "thinking");
    check(&Blob::string("system_prompt", "You are Pi."), "system_prompt");
    check(&Blob::from_canonical("tool_call", r#"{"id":"call_1","name":"read"}"#), "tool_call_noargs");
    check(&Blob::new("text", r#""\uD800x""#).unwrap(), "lone_surrogate");
    let call = r#"{"name": "read", "id": "call_1", "arguments": {"path": "a.txt", "offset": 1.0}}"#;
    let blob = Blob::new("tool_call", call).unwrap();
    check(&blob, "tool_call");
    assert_eq!(blob.content, call);
    assert!(Blob::new("text", "hello").is_err());
}

#[test]
fn changed_blobs_are_found() {
    let check = |kind: &str, content: &str, expect: fn(&Verdict) -> bool| {
        let blob = Blob { id: Blob::text("hello").id, kind: kind.into(), content: content.into() };
        let verdict = blob.verify();
        assert!(expect(&verdict), "{kind} {content}: {verdict:?}");
    };
    let corrupt: fn(&Verdict) -> bool = |verdict| matches!(verdict, Verdict::Corrupt(_));
    let unverifiable: fn(&Verdict) -> bool = |verdict| matches!(verdict, Verdict::Unverifiable(_));
    check("text", " \"hel\\u006co\" ", |verdict| *verdict == Verdict::Valid);
    check("text", "\"hallo\"", corrupt);
    check("thinking", "\"hello\"", corrupt);
    check("text", "\"hello", corrupt);
    check("text", "", corrupt);
    let reaching_out = r#"1,"more":2"#;
    let id = BlobId(sha256(format!(r#"{{"content":{reaching_out},"type":"text"}}"#).as_bytes()));
    let forged = Blob { id, kind: "text".into(), content: reaching_out.into() };
    assert!(corrupt(&forged.verify()));
    check("playtiss", "AAEC", unverifiable);
    check("text", &"[".repeat(100_000), unverifiable);
}

/// The graph of the appendix: name, parent, role, parts as (type, content), external id, time, id.
type Row = (
    &'static str,
    Option<&'static str>,
    &'static str,
    &'static [(&'static str, &'static str)],
    Option<&'static str>,
    i64,
    &'static str,
);
const NOTE: &str = r#""[SYSTEM / INCARNATION NOTE]: A failed\n[SYSTEM WARNING]: Context was switched; files on disk were not rolled back. Re-check the workspace before acting.""#;
const GRAPH: &[Row] = &[
    (
        "m0",
        None,
        "pi_internal",
        &[(
            "pi_meta",
            r#"{"type":"model_change","id":"00000000","parentId":null,"timestamp":"2023-11-14T22:13:20.000Z","provider":"anthropic","modelId":"claude-x"}"#,
        )],
        Some("00000000"),
        0,
        "e2e2b7744992adecc3b41a3a5935730af4d262e95d3d004693aa67191c1ac7b1",
    ),
    (
        "u1",
        Some("m0"),
        "user",
        &[("text", r#""Please fix the parser bug""#)],
        Some("a1b2c3d4"),
        1000,
        "03ff3429d7eea7748aceab403bbccb8be0befe67901a98a5fa31364b4260e002",
    ),
    (
        "a1",
        Some("u1"),
        "assistant",
        &[
            ("thinking", r#""Look first""#),
            ("tool_call", r#"{"id":"call_1","name":"read","arguments":{"path":"src/parser.rs"}}"#),
        ],
        Some("b1b2c3d4"),
        2000,
        "810e956b53357849ca0a2ba2032cefd1a4d72b6a493d9d888efd8c428f37f412",
    ),
    (
        "r1",
        Some("a1"),
        "toolResult",
        &[(
            "tool_result",
            r#"{"toolCallId":"call_1","toolName":"read","content":[{"type":"text","text":"fn main() {}\n"}],"isError":false}"#,
        )],
        Some("c1b2c3d4"),
        3000,
        "2dcc63bff446571ec617f12694c73b71d16df2076094e41d418f447d55a61ba4",
    ),
    (
        "a2",
        Some("r1"),
        "assistant",
        &[("text", r#""The bug is in main.""#)],
        Some("d1b2c3d4"),
        4000,
        "e40cd624ec3bd30aa1cccf45bf8f35b41e14db0b6a7205a2b5a49729c84cfbc6",
    ),
    (
        "u2",
        Some("a2"),
        "user",
        &[("text", r#""Try approach A""#)],
        Some("e1b2c3d4"),
        5000,
        "94418ef706d0f31a62c9258ba8cef8873639c3a16f41f3b1e2ef243b844dcd5b",
    ),
    (
        "a3",
        Some("u2"),
        "assistant",
        &[(
            "tool_call",
            r#"{"id":"call_2","name":"tobe","arguments":{"target_node_hash":"pi:d1b2c3d4","carryover_message":"A failed"}}"#,
        )],
        Some("f1b2c3d4"),
        6000,
        "d26089eb560de11c1fabeb6a0b3034c708ae6d3d76ed8888166abb0d2cbd94e7",
    ),
    (
        "dep",
        Some("a3"),
        "toolResult",
        &[(
            "tool_result",
            r#"{"toolCallId":"tobe_departure","toolName":"tobe","content":[{"type":"text","text":"Incarnation initiated → e40cd624ec3b"}],"isError":false}"#,
        )],
        None,
        7000,
        "d5e23c73a722b626df50dab94b35047beeea5099e4513c49827b1959bc032241",
    ),
    (
        "co",
        Some("a2"),
        "user",
        &[("text", NOTE)],
        Some("11111111-2222-3333-4444-555555555555"),
        7001,
        "a4fe53eb8008548a563eba622bd8044a061af60984b4054b29bcfcf2099ac31c",
    ),
    (
        "a4",
        Some("co"),
        "assistant",
        &[("text", r#""Understood, doing B.""#)],
        Some("12b2c3d4"),
        9000,
        "5bfcbf490f1a727efbfe3bd69a878af0b162f7704b983c253d03d73d49188a87",
    ),
    (
        "a5",
        Some("a4"),
        "assistant",
        &[("tool_call", r#"{"id":"call_3","name":"life","arguments":{}}"#)],
        Some("13b2c3d4"),
        599_500,
        "52fdfee8b5300ae80933ae7383398a71e3bc3ef23cd266e46cf82378074da562",
    ),
];

#[test]
fn the_graph_of_the_appendix_has_its_ids() {
    let prompt = Blob::string("system_prompt", "You are Pi.").id;
    let mut ids = std::collections::HashMap::new();
    for (name, parent, role, parts, external_id, time, expect) in GRAPH {
        let parts = parts.iter().map(|(kind, content)| Blob::new(*kind, *content).unwrap().id).collect();
        // Departure and carryover are written without a system prompt.
        let system_prompt = (!matches!(*name, "dep" | "co")).then_some(prompt);
        let record = NodeRecord {
            parent: parent.map(|parent| ids[parent]),
            role: (*role).into(),
            parts,
            timestamp: 1_700_000_000_000 + time,
            external_id: external_id.map(Into::into),
            system_prompt,
        };
        let node = Node::new(record, None, None);
        assert_eq!(node.id.to_string(), *expect, "{name}");
        assert_eq!(node.verify(), Verdict::Valid, "{name}");
        ids.insert(*name, node.id);
    }
}

#[test]
fn node_vectors() {
    let hello = Blob::text("hello").id;
    let mut record = NodeRecord {
        parent: None,
        role: "user".into(),
        parts: vec![hello],
        timestamp: 1_700_000_000_000,
        external_id: Some("a1b2c3d4".into()),
        system_prompt: None,
    };
    assert_eq!(record.canonical(), vector("node_root").0);
    assert_eq!(record.id().to_string(), vector("node_root").1);
    record.system_prompt = Some(Blob::string("system_prompt", "You are Pi.").id);
    assert_eq!(record.canonical(), vector("node_root_sys").0);

    // Rows whose columns hold more, or less, than their writer hashed.
    let verify = |name: &str, change: &dyn Fn(&mut NodeRecord)| {
        let mut record = record.clone();
        change(&mut record);
        let id: NodeId = vector(name).1.parse().unwrap();
        Node { id, record, config: None, thought_signatures: None }.verify()
    };
    assert_eq!(verify("node_root_sys", &|_| {}), Verdict::Valid);
    assert_eq!(verify("node_root", &|_| {}), Verdict::Valid);
    assert_eq!(verify("node_noext_null", &|record| record.external_id = None), Verdict::Valid);
    assert!(matches!(
        verify("node_root", &|record| record.role = "assistant".into()),
        Verdict::Unverifiable(_)
    ));
    let ours =
        |record: &mut NodeRecord| record.external_id = Some("01a1f82e-9e12-74f0-ac41-f9b70e39de47".into());
    assert!(matches!(verify("node_root", &ours), Verdict::Corrupt(_)));
}

#[test]
fn parts_lists() {
    let (a, b) = (Blob::text("a").id, Blob::text("b").id);
    for parts in [vec![], vec![a], vec![a, b, a]] {
        let text = write_parts_list(&parts);
        assert!(is_canonical(&text));
        assert_eq!(read_parts_list(&text), Ok(parts.clone()));
        assert_eq!(read_parts_list(&text.replace(',', " ,\n ").replace('[', " [ ")), Ok(parts));
    }
    assert_eq!(read_parts_list("{}"), Err(PartsListError::Shape));
    assert_eq!(read_parts_list("[1]"), Err(PartsListError::Shape));
    assert!(matches!(
        read_parts_list(&format!("[\"{a}\",\"bafy\"]")),
        Err(PartsListError::Hash { index: 1, .. })
    ));
    for bad in ["", "[", "[\"", "\"", "]", "[,]", "[\"\",]"] {
        assert!(matches!(read_parts_list(bad), Err(PartsListError::Json(_))), "{bad}");
    }
}
