//! What every request of a client's model carries.

use quipu_mcp_server::serve_stdio;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, split};
use tokio_util::sync::CancellationToken;

use crate::support::server;

/// Tokens of all definitions together.
const MOST: u64 = 500;

#[tokio::test]
async fn definitions_of_all_tools_cost_at_most_500_tokens() {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = split(theirs);
    let served = tokio::spawn(serve_stdio(server(), reader, writer, CancellationToken::new()));
    let (reader, mut writer) = split(ours);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "tester", "version": "1" },
    });
    let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta } });
    writer.write_all(format!("{ask}\n").as_bytes()).await.unwrap();
    let line = BufReader::new(reader).lines().next_line().await.unwrap().unwrap();
    drop(writer);
    let answer: Value = serde_json::from_str(&line).unwrap();
    // What a client hands to its model: the name, the description and the parameters.
    let handed: Vec<Value> = answer["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| {
            assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");
            json!({ "name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"] })
        })
        .collect();
    assert_eq!(handed.len(), 5);
    let tokens = quipu_transcript::estimate_text(&Value::from(handed).to_string());
    assert!(tokens <= MOST, "{tokens} tokens");
    served.abort();
}
