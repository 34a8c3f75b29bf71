//! What tools and questions of a session need of its client.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use quipu_protocol::CallId;
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::params::ClientAbilities;

/// The way from a session to its client.
pub(crate) struct SessionLink {
    pub(crate) connection: Connection,
    pub(crate) abilities: ClientAbilities,
    /// The name that the client has for the session, once it is open.
    name: OnceLock<String>,
    calls: Mutex<CallNames>,
    stop: Mutex<CancellationToken>,
}

/// Names of tool calls: a model may use an id again, and a client may not get one twice.
#[derive(Default)]
struct CallNames {
    current: HashMap<CallId, String>,
    used: HashMap<CallId, usize>,
    /// Calls whose output is in a terminal of the client.
    in_terminals: HashSet<String>,
}

impl SessionLink {
    pub(crate) fn new(connection: Connection, abilities: ClientAbilities) -> Arc<Self> {
        let (name, calls, stop) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Arc::new(Self { connection, abilities, name, calls, stop })
    }

    pub(crate) fn set_name(&self, name: &str) {
        // It is opened once.
        drop(self.name.set(name.to_owned()));
    }

    /// `None` until the session is open.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.get().map(String::as_str)
    }

    fn calls(&self) -> MutexGuard<'_, CallNames> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new name for a call that an answer holds.
    pub(crate) fn begin_call(&self, call: &CallId) -> String {
        let mut calls = self.calls();
        let used = calls.used.entry(call.clone()).or_default();
        *used += 1;
        let name = if *used == 1 { call.to_string() } else { format!("{call}#{used}") };
        calls.current.insert(call.clone(), name.clone());
        name
    }

    /// The name of a call at work.
    pub(crate) fn call(&self, call: &CallId) -> String {
        self.calls().current.get(call).cloned().unwrap_or_else(|| call.to_string())
    }

    pub(crate) fn put_in_terminal(&self, name: &str) {
        self.calls().in_terminals.insert(name.to_owned());
    }

    pub(crate) fn is_in_terminal(&self, name: &str) -> bool {
        self.calls().in_terminals.contains(name)
    }

    /// Fires when the client stops what runs: nobody waits for its files then.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends what waits for the client's files, and lets what comes later wait again.
    pub(crate) fn stop_waiting(&self) {
        let mut stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *stop).cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_with_one_id_get_names_of_their_own() {
        let (lines, _held) = tokio::sync::mpsc::channel(1);
        let link = SessionLink::new(Connection::new(lines), ClientAbilities::default());
        let id = CallId::from("call_0");
        assert_eq!((link.begin_call(&id), link.call(&id)), ("call_0".into(), "call_0".into()));
        assert_eq!((link.begin_call(&id), link.call(&id)), ("call_0#2".into(), "call_0#2".into()));
    }
}
