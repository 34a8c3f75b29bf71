//! What each place takes that holds content of sessions.

use quipu_host::Home;
use quipu_host::holders::HolderBytes;
use quipu_store::OpenOptions;

use super::{Finding, State};
use crate::home::holders;

/// What every place takes, in the order in which they are asked.
pub(super) async fn bytes(home: &Home) -> Vec<HolderBytes> {
    holders(home).bytes().await.into_iter().map(HolderBytes::from).collect()
}

/// The same in a line, and what is wrong.
pub(super) async fn findings(home: &Home, bytes: &[HolderBytes]) -> Vec<Finding> {
    let finding = |state, detail| Finding { what: "content", state, detail };
    let held: Vec<String> = bytes
        .iter()
        .filter_map(|one| Some((one, one.bytes.filter(|bytes| *bytes > 0)?)))
        .map(|(one, bytes)| format!("{} {} KiB", one.holder, bytes.div_ceil(1024)))
        .collect();
    let detail = if held.is_empty() { "nothing is kept".to_owned() } else { held.join(", ") };
    let mut found = vec![finding(State::Good, detail)];
    for one in bytes {
        if let Some(error) = &one.error {
            found.push(finding(State::Note, format!("{}: {error}", one.holder)));
        }
    }
    if has_remnants(home).await {
        let detail = "old pages of the store file still hold erased content, because the file could not be rewritten; run `quipu doctor --shrink`";
        found.push(finding(State::Note, detail.to_owned()));
    }
    found
}

async fn has_remnants(home: &Home) -> bool {
    if super::is_absent(home) {
        return false;
    }
    match home.open(&OpenOptions::default()) {
        // What cannot be read is told of where the store is looked at.
        Ok(store) => store.has_remnants().await.unwrap_or(false),
        Err(_) => false,
    }
}
