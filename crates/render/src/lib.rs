//! Entries for people who read: as pieces of HTML, and as Markdown.
//!
//! Pure: knows what entries mean, and neither stores nor files; whoever writes a page puts it together.

mod html;
mod markdown;
mod reading;

pub use html::{HtmlEntry, html_entry, html_text};
pub use markdown::{MarkdownEntry, markdown_entry, markdown_inline};
