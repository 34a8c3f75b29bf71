//! The tools that look for files: `grep`, `find` and `ls`. No session has them unless it is set up with them.

mod find;
mod glob;
mod grep;
mod lines;
mod ls;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use quipu_workspace::{Access, FileError, MOST_ENTRIES, walk};
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub use find::Find;
pub use glob::{Glob, GlobError};
pub use grep::Grep;
pub use ls::Ls;

use crate::truncate::{MAX_BYTES, format_size};
use crate::{ToolContext, ToolOutput};

/// Results as lines, bounded by their bytes.
#[derive(Default)]
struct ResultLines {
    text: String,
    is_full: bool,
}

impl ResultLines {
    /// Whether there was room for it.
    fn push(&mut self, line: &str) -> bool {
        let more = line.len() + usize::from(!self.text.is_empty());
        if self.is_full || self.text.len() + more > MAX_BYTES {
            self.is_full = true;
            return false;
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
        true
    }

    /// The result, with what there is to say of it in one bracket.
    fn output(self, empty: &str, mut notices: Vec<String>, details: &[(&str, u64)]) -> ToolOutput {
        if self.is_full {
            notices.push(format!("{} limit reached", format_size(MAX_BYTES as u64)));
        }
        let mut text = if self.text.is_empty() { empty.to_owned() } else { self.text };
        if !notices.is_empty() {
            text.push_str(&format!("\n\n[{}]", notices.join(". ")));
        }
        let mut output = ToolOutput::text(text);
        if !details.is_empty() {
            let members: serde_json::Map<String, serde_json::Value> =
                details.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
            output.details = Some(serde_json::Value::Object(members).into());
        }
        output
    }
}

/// A result, or that the call was stopped. What hangs inside the system is left to itself.
async fn until_cancelled(cx: &ToolContext, work: impl Future<Output = ToolOutput>) -> ToolOutput {
    tokio::select! {
        biased;
        () = cx.cancel.cancelled() => ToolOutput::error(FileError::Cancelled.to_string()),
        output = work => output,
    }
}

/// What was found below a directory.
struct Tree {
    /// Paths relative to it, sorted, and whether each is a directory.
    paths: Vec<(PathBuf, bool)>,
    /// There were more than are looked at.
    is_cut: bool,
}

impl Tree {
    /// Everything below a true directory that `wanted` wants, without what `.gitignore` files leave out.
    fn below(
        root: &Path,
        cancel: &CancellationToken,
        wanted: &dyn Fn(&Path, bool) -> bool,
    ) -> Result<Self, FileError> {
        let mut tree = Self { paths: Vec::new(), is_cut: false };
        let mut each = |found: Option<quipu_workspace::FoundPath<'_>>| {
            let Some(found) = found else {
                return if cancel.is_cancelled() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                };
            };
            if wanted(found.path, found.is_directory) {
                if tree.paths.len() >= MOST_ENTRIES {
                    tree.is_cut = true;
                    return ControlFlow::Break(());
                }
                tree.paths.push((found.path.to_path_buf(), found.is_directory));
            }
            ControlFlow::Continue(())
        };
        walk(root, &mut each).map_err(|source| FileError::Io {
            path: root.to_path_buf(),
            action: "cannot read directory",
            source,
        })?;
        if cancel.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        tree.paths.sort();
        Ok(tree)
    }

    fn notice(&self) -> Option<String> {
        self.is_cut
            .then(|| format!("Only {MOST_ENTRIES} files were looked at. Name a directory further down"))
    }
}

/// Refuses a directory that may not be read; then what lies below it may be.
fn entered(access: &Access, asked: &Path, real: &Path) -> Result<Access, FileError> {
    access.check_read(asked)?;
    Ok(access.reading_below(real))
}

/// A relative path as models read it.
fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A number of a limit.
fn limit(given: Option<f64>, default: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    given.map_or(default, |given| given.clamp(1.0, 100_000.0) as usize)
}
