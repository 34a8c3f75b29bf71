//! A client that sends without end and never reads.

use quipu_mcp_server::{StdioEnd, serve_stdio};
use serde_json::json;
use tokio::io::{AsyncWriteExt as _, split};
use tokio_util::sync::CancellationToken;

use crate::support::server;

#[tokio::test(start_paused = true)]
async fn client_that_never_reads_is_left_after_bounded_work() {
    let (ours, theirs) = tokio::io::duplex(1 << 12);
    let (reader, writer) = split(theirs);
    let served = tokio::spawn(serve_stdio(server(), reader, writer, CancellationToken::new()));
    let (_unread, mut writer) = split(ours);
    let begin = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": { "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } },
    });
    writer.write_all(format!("{begin}\n").as_bytes()).await.unwrap();
    let mut sent = 0;
    for id in 1..100_000 {
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" });
        if writer.write_all(format!("{call}\n").as_bytes()).await.is_err() {
            break;
        }
        sent = id;
    }
    assert_eq!(served.await.unwrap().unwrap(), StdioEnd::Stalled);
    assert!((100..2_000).contains(&sent), "{sent} calls were taken in");
}
