//! A server over a store in memory.

use std::path::PathBuf;
use std::sync::Arc;

use quipu_mcp_server::{GraphServer, ScopeSetting, ServerOptions};
use quipu_seal::Sealer;

pub(crate) fn server() -> GraphServer {
    let store = quipu_store::in_memory().unwrap();
    GraphServer::new(ServerOptions {
        opener: Arc::new(move || Ok(Some(store.clone()))),
        sealer: Arc::new(Sealer::new([7; 32])),
        directory: PathBuf::from("/"),
        scope: ScopeSetting::All,
        memory: None,
        version: "1".into(),
        notify: Arc::new(|line| println!("{line}")),
    })
}
