//! Whether the store has to say something of a request, found out without it: most requests have nothing to do with jumps.

use std::collections::HashSet;

use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use memchr::memmem;
use quipu_archive::ConversationDigest;

use crate::body::RequestBody;
use crate::jump::{MARK, command, plan_ref};
use crate::packed::unpacked;
use crate::session;
use crate::wire_kind::WireKind;

/// How JSON writes letters that it need not: a line may be hidden so.
const ESCAPED: &[u8] = b"\\u00";

/// Whether a body may hold a line for the proxy, as far as its bytes tell.
pub(crate) fn may_ask(headers: &HeaderMap, body: &[u8]) -> bool {
    headers.contains_key(CONTENT_ENCODING)
        || memmem::find(body, MARK.as_bytes()).is_some()
        || memmem::find(body, ESCAPED).is_some()
}

/// Whether a request asks something of the proxy, or is of a conversation that has a jump. `plans` are their refs.
pub(crate) fn is_concerned(
    wire: WireKind,
    headers: &HeaderMap,
    body: &[u8],
    plans: &HashSet<String>,
    seal: &dyn Fn(&str) -> String,
) -> bool {
    let Ok(bytes) = unpacked(headers, body) else { return false };
    let Some(body) = RequestBody::parse(wire, &bytes) else { return false };
    if let Some(last) = body.elements.last() {
        let last = body.with(vec![last.clone()]);
        if command(&wire.items(&last, ConversationDigest::default(), seal)).is_some() {
            return true;
        }
    }
    if plans.is_empty() {
        return false;
    }
    // Only the store knows of which conversation such a request is.
    if wire.previous(&body).is_some() {
        return true;
    }
    let own = wire.session(&body, headers);
    let items = match own {
        Some(_) => Vec::new(),
        None => wire.items(&body, ConversationDigest::default(), seal),
    };
    let session = session::session(own.as_deref(), &items, seal);
    plans.contains(plan_ref(&session::agent(headers, seal), &session).as_str())
}
