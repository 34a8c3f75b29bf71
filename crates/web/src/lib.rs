//! Tools that fetch pages and search the web.
//!
//! [`WebFetch`] reads one page, [`WebSearch`] asks a search service that the user set up. [`WebPolicy`] asks before a host is
//! reached that no rule allows. All that a server sends is hostile until it is checked: it is bounded, made text without what
//! a person would not see, and framed as data.
//!
//! This crate must not know files of users, words of a command line, models, or how a session is made.

mod access;
mod charset;
mod error;
mod fetch;
mod frame;
mod get;
mod html;
mod limits;
mod names;
mod page;
mod policy;
mod search;

pub use access::{HostJudge, WebAccess};
pub use error::SearchSetupError;
pub use fetch::WebFetch;
pub use html::{Markdown, markdown};
pub use policy::WebPolicy;
pub use search::{SEARCH_SERVICES, SearchService, WebSearch};
