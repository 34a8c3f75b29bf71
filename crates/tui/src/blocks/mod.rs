//! What a session's events look like: functions from what happened, a width and a theme to lines.
//!
//! They know no state and no clock. No line is wider than `columns`, but those of code in Markdown. All text of others is
//! made safe here. None begins or ends with an empty line: what stands between two blocks is for who puts them together.

mod ask;
mod error;
mod output;
mod say;
mod status;
mod text;
mod tool;

pub use crate::amounts::bytes;
pub use ask::{AskView, ask, ask_body, queue, small_ask};
pub use error::{model_error, notice, outcome, retry};
pub use output::output;
pub use say::{branch_summary, compacting, compaction, image, label, thinking, user};
pub use status::{StatusView, status};
pub use text::{count, dollars, duration, home};
pub(crate) use text::{cut, one_line};
pub(crate) use tool::shell_more;
pub use tool::{ShellView, ToolState, ToolView, shell, tool};
