//! A server over a store in memory.

use std::path::PathBuf;
use std::sync::Arc;

use quipu_mcp_server::{GraphServer, ScopeSetting, ServerOptions};
use quipu_seal::Sealer;
use quipu_store::Graph;

pub(crate) fn server() -> GraphServer {
    server_over(quipu_store::in_memory().unwrap(), ScopeSetting::All, "/")
}

pub(crate) fn server_over(store: Arc<dyn Graph>, scope: ScopeSetting, directory: &str) -> GraphServer {
    GraphServer::new(ServerOptions {
        opener: Arc::new(move || Ok(Some(store.clone()))),
        sealer: Arc::new(Sealer::new([7; 32])),
        directory: PathBuf::from(directory),
        scope,
        memory: None,
        version: "1".into(),
        notify: Arc::new(|line| println!("{line}")),
    })
}
