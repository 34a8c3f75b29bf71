//! Time travel: what a model may see of the graph. `life`, `trace` and `tobe` will stand beside `recall`.
//!
//! These tools need the store and the place where their session stands, so they live here and not with the tools that
//! work on files. What they show is framed as archive, so that nobody takes it for something that is said now.

mod recall;
#[cfg(test)]
mod tests;
mod text;

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use crate::subscribe::View;

pub(crate) use recall::Recall;

/// Where the session of a tool stands: known when the session is at work.
pub(crate) type Standing = Arc<OnceLock<watch::Receiver<View>>>;
