//! What was said to Gemini's apps, from Takeout: `My Activity` of an account, as JSON or as HTML.
//!
//! It is a list of prompts with their answers, the newest first, which says of none what conversation it was of. Those of a day
//! (UTC) are one session here. They have no ids: one is made of the second and of the words of the prompt.

mod html;
mod read;

use crate::intake::DatabaseFormat;

/// What these sessions are called in the store.
pub const AGENT: &str = "gemini-takeout";

pub(crate) const FORMAT: DatabaseFormat =
    DatabaseFormat { agent: AGENT, open: |path, _, _| read::open(path) };

/// Whether a file of an archive may be the activity; its folder has the service's name, in whatever language the rest is.
pub(crate) fn is_main(name: &str) -> bool {
    let small = name.to_lowercase();
    let file = small.rsplit('/').next().unwrap_or_default().replace(' ', "");
    let is_about = is_ours(name) || file.starts_with("myactivity");
    is_about && (file.ends_with(".json") || file.ends_with(".html"))
}

/// Whether it is this service that is spoken of.
pub(crate) fn is_ours(text: &str) -> bool {
    text.contains("Gemini") || text.contains("Bard")
}

/// Whether a file begins as the activity does.
pub(crate) fn begins(start: &str) -> bool {
    let is_list =
        start.contains("\"header\"") && start.contains("\"products\"") && start.contains("\"time\"");
    is_ours(start) && (is_list || start.contains("class=\"outer-cell"))
}
