//! Limits of what servers send.

use std::time::Duration;

/// Bytes of an address.
pub(crate) const URL_BYTES: usize = 4 << 10;
/// Bytes of a page that are read, after they were unpacked.
pub(crate) const PAGE_BYTES: usize = 5 << 20;
/// Bytes of the answer of a search service.
pub(crate) const SEARCH_BYTES: usize = 2 << 20;
/// Bytes of text of one result.
pub(crate) const RESULT_BYTES: usize = 50 << 10;
/// How long a page may take, with all redirects.
pub(crate) const FETCH_TIME: Duration = Duration::from_secs(60);
/// How long a search may take.
pub(crate) const SEARCH_TIME: Duration = Duration::from_secs(30);
/// How long the addresses of a name may take.
pub(crate) const LOOKUP_TIME: Duration = Duration::from_secs(10);
/// Redirects of one call.
pub(crate) const REDIRECTS: usize = 5;
/// Pages that are kept to be read on.
pub(crate) const KEPT_PAGES: usize = 4;
/// Results of a search.
pub(crate) const RESULTS: usize = 10;
/// Characters of the text of one result.
pub(crate) const SNIPPET: usize = 1_000;
/// Bytes of what is searched for.
pub(crate) const QUERY_BYTES: usize = 2 << 10;
