//! Pi with the graph: the extension that Pi loads, and the helper process that the extension starts.
//!
//! The extension ([`extension_source`]) is one file of TypeScript without dependencies. It gives the helper each entry of a
//! session as it is made, and asks it for the tools `life`, `recall`, `trace` and `tobe`. The helper ([`serve`]) speaks
//! lines of JSON over its standard streams ([docs/pi-extension.md]). Entries become nodes by the importer of Pi's session
//! files, so that a session has the same nodes whichever way it came.
//!
//! Knows the store, the importer and how the graph is looked at; knows no session of ours at work, no model, no files of the
//! user and no words of a command line.
//!
//! [docs/pi-extension.md]: https://github.com/quipu/quipu/blob/main/docs/pi-extension.md

mod entering;
mod error;
mod helper;
mod jump;
mod lines;
mod requests;
mod restoring;
mod sessions;
mod source;
mod tools;

pub use error::{HelperError, IdentityError, StoreOpenError};
pub use helper::{HelperEnd, HelperOptions, IdentitySource, StoreOpener, serve};
pub use lines::{LINE_LIMIT, REQUESTS};
pub use source::{EXTENSION_FILE, extension_source};
