//! Entries for people who read: as pieces of HTML, and as Markdown.
//!
//! Pure: knows what entries mean, and neither stores nor files; whoever writes a page puts it together.

mod change;
mod escape;
mod html;
mod markdown;
mod prose;
mod reading;

pub use escape::html_text;
pub use html::{HtmlEntry, html_entry};
pub use markdown::{MarkdownEntry, markdown_entry, markdown_inline};
