//! What the tools are called.

/// Gets a page.
pub(crate) const FETCH: &str = "web_fetch";
/// Asks a search service.
pub(crate) const SEARCH: &str = "web_search";
