//! `quipu hash`: the vectors of the graph's other writers, and lines that are none.

use crate::support::*;

/// Canonical text and its hash.
const VECTORS: [(&str, &str); 20] = [
    (
        r#"{"content":"hello","type":"text"}"#,
        "d3167d7e7b608d25db586005b1bdc1cfd12f1ffe39da11919fa112440d875a70",
    ),
    (r#"{"content":"","type":"text"}"#, "919e8aafe2527e2a4200f7b011a55b4fc3fa9dedc484a022db25f59dad04d076"),
    (
        r#"{"content":"hm","type":"thinking"}"#,
        "ffd18378b29aa4c62c1bd51c24a0a7e80dc45ff08b83ca4351251f1cc45c6b1f",
    ),
    (
        r#"{"content":{"arguments":{"offset":1,"path":"a.txt"},"id":"call_1","name":"read"},"type":"tool_call"}"#,
        "9df7a65c867fac3db34f2998d004edabbda3f221c0e21283963031f6239103ab",
    ),
    (
        r#"{"content":{"id":"call_1","name":"read"},"type":"tool_call"}"#,
        "5da2cf09df283b4557538a5903d28a58ca6a341a221c2d7f985878d9f531f3f9",
    ),
    (
        r#"{"content":{"content":[{"text":"ok","type":"text"}],"isError":false,"toolCallId":"call_1","toolName":"read"},"type":"tool_result"}"#,
        "e3119dbb3e8ff40d578fb88467e6d51c722b2f11fbcfecc005553b87197af67e",
    ),
    (
        r#"{"content":"You are Pi.","type":"system_prompt"}"#,
        "d355c57703a1273f61eb32b2c72914f951c246a1e1769179e5bddf013a469bc9",
    ),
    (
        r#"{"content":{"data":"AAAA","mimeType":"image/png","type":"image"},"type":"pi_meta"}"#,
        "65e7da33897431bed95435c978347f2ad929c27d03c9bc49382067a4c63c2311",
    ),
    (
        r#"{"content":{"9":2,"10":1,"4294967294":7,"-1":5,"01":4,"4294967295":6,"a":3,"b":1},"type":"pi_meta"}"#,
        "d00aa7a102596d91799d55095833007185452c917b98963136f174d270fbd498",
    ),
    (
        r#"{"content":[1,0,1e+21,100000000000000000000,123456789012345680000,0.000001,1e-7,null,null,0.1,5e-324,1.7976931348623157e+308],"type":"pi_meta"}"#,
        "3b8779c32ead4a42eaec6cde1e469b6da3592c86ebbae36176ba408e22d222b7",
    ),
    (
        "{\"content\":{\"Z\":5,\"z\":3,\"é\":4,\"😀\":2,\"\u{e000}\":1},\"type\":\"pi_meta\"}",
        "89a6e12b6f9a169031f021caad1e418274531ee502f132fecd6e2ae58af76af9",
    ),
    (
        r#"{"content":{"b":[null,null],"c":null},"type":"pi_meta"}"#,
        "de1b84cc23a4e7e5476d9a7e45cc4a274acde58217c7104be13353bc8702bc56",
    ),
    (
        r#"{"content":{"a":1},"type":"pi_meta"}"#,
        "2a167f7d77e33e726746f963e7d048788447705d1dfd609d1b223282bb1eba3e",
    ),
    (
        r#"{"content":"\ud800x","type":"text"}"#,
        "ec31c38fb3588d55b393730a18bbb5fb9d8528916a07f25809139272fd9efd00",
    ),
    (
        r#"{"content":"\u0000\u0001\b\f\u001f","type":"text"}"#,
        "053088337e48412f73fccda99cb7d623b97ce51d8dd64df2fe32eb2bf97097d5",
    ),
    (
        r#"{"external_id":"a1b2c3d4","parent_id":null,"parts_list":["d3167d7e7b608d25db586005b1bdc1cfd12f1ffe39da11919fa112440d875a70"],"role":"user","timestamp":1700000000000}"#,
        "4318789867f7c37d6e36d4f7a493028efc808bb3d53aa2ba75c69859413c59b9",
    ),
    (
        r#"{"external_id":"a1b2c3d4","parent_id":null,"parts_list":["d3167d7e7b608d25db586005b1bdc1cfd12f1ffe39da11919fa112440d875a70"],"role":"user","system_prompt_hash":"d355c57703a1273f61eb32b2c72914f951c246a1e1769179e5bddf013a469bc9","timestamp":1700000000000}"#,
        "eac0866bf382ba7026c751a27964f76be786b1647f0cedf8ed5262ae95e57d8c",
    ),
    (
        r#"{"external_id":"b1b2c3d4","parent_id":"4318789867f7c37d6e36d4f7a493028efc808bb3d53aa2ba75c69859413c59b9","parts_list":["ffd18378b29aa4c62c1bd51c24a0a7e80dc45ff08b83ca4351251f1cc45c6b1f","9df7a65c867fac3db34f2998d004edabbda3f221c0e21283963031f6239103ab"],"role":"assistant","timestamp":1700000001000}"#,
        "04bb023c7558de5b0e61da4800fd0918bdc6bdff7ac2dbbcb2f72d79f3777a96",
    ),
    (
        r#"{"parent_id":"04bb023c7558de5b0e61da4800fd0918bdc6bdff7ac2dbbcb2f72d79f3777a96","parts_list":["26d43244d1e021880aee7a5d6124793887fa31d87a2dff570a5ec6c10609b2d7"],"role":"toolResult","timestamp":1700000002000}"#,
        "1848f9948b9c0a6c752d7a0e43a51a6459ff0e5d08c773ac52cbdd67967c6f3c",
    ),
    (
        r#"{"external_id":null,"parent_id":null,"parts_list":["d3167d7e7b608d25db586005b1bdc1cfd12f1ffe39da11919fa112440d875a70"],"role":"user","timestamp":1700000000000}"#,
        "9e4a84ad91123bbfe9fd0b4673c6ffd418dc03790cbd4185daba383eb2b383ff",
    ),
];

const HELLO: &str = VECTORS[0].1;

#[test]
fn one_value_a_line_in_and_one_hash_a_line_out() {
    let world = World::new([]);
    let expect: String = VECTORS.iter().map(|(_, hash)| format!("{hash}\n")).collect();
    let lines = |end: &str| VECTORS.iter().map(|(text, _)| format!("{text}{end}")).collect::<String>();
    for input in [lines("\n"), lines("\r\n"), lines("\n").trim_end().to_owned(), lines(" \t\n")] {
        assert_eq!(world.run_with(&["hash", "--jsonl"], input).ok().text(), expect);
    }
    // Any order and spacing.
    let spaced = " { \"type\" : \"text\" , \"type\":\"text\", \"content\" : \"h\\u0065llo\" } ";
    assert_eq!(world.run_with(&["hash", "--jsonl"], spaced).ok().text().trim_end(), HELLO);
    assert_eq!(world.run_with(&["hash", "--jsonl"], "").ok().text(), "");
    // All of stdin as one value.
    assert_eq!(
        world.run_with(&["hash"], "{\n\"type\":\"text\",\n\"content\":\"hello\"\n}\n").ok().text().trim_end(),
        HELLO
    );
}

#[test]
fn hash_answers_the_lines_before_invalid_json() {
    let world = World::new([]);
    let good = VECTORS[0].0;
    let check = |bad: &[u8], words: &[&str]| {
        let input = [good.as_bytes(), b"\n", bad, b"\n", good.as_bytes(), b"\n"].concat();
        let ran = world.run_with(&["hash", "--jsonl"], input);
        let ran = ran.fails(1, words);
        assert_eq!(ran.text(), format!("{HELLO}\n"), "{}", String::from_utf8_lossy(bad));
    };
    check(b"{\"a\":", &["line 2"]);
    check(b"", &["line 2"]);
    check(b"1 2", &["line 2"]);
    check(b"\"\xff\"", &["line 2", "UTF-8"]);
    check(b"\"\0\"", &["line 2"]);
    check("[".repeat(1_000_000).as_bytes(), &["line 2"]);
}

#[test]
fn a_long_line_is_hashed_and_answers_come_at_once() {
    let world = World::new([]);
    let long = format!("{{\"type\":\"text\",\"content\":\"{}\"}}\n", "x".repeat(20 << 20));
    let ran = world.run_with(&["hash", "--jsonl"], long).ok();
    assert_eq!(ran.text().len(), 65);
    // A writer that waits for each answer gets it.
    let mut command = world.quipu(&["hash", "--jsonl"]);
    command.stdin(std::process::Stdio::piped());
    let mut running = RunningCommand::start(command);
    let mut stdin = running.child.stdin.take().unwrap();
    for (text, hash) in &VECTORS[..3] {
        use std::io::Write as _;
        writeln!(stdin, "{text}").unwrap();
        assert_eq!(running.line().unwrap(), *hash);
    }
    drop(stdin);
    running.wait().ok();
}
