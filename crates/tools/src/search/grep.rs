//! The tool that searches the contents of files.

use std::fs::File;
use std::future::Future;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use quipu_protocol::ToolSpec;
use quipu_workspace::{Access, FileError, file_key};
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::glob::Glob;
use super::lines::{Matcher, PatternFlags, matching};
use super::{ResultLines, Tree, entered, limit, shown, until_cancelled};
use crate::file_call::{FileArguments, FileCall, touched_files};
use crate::{Invocation, Tool, ToolContext, ToolOutput, Touches, spec};

/// Matches at most, where the call says nothing.
const MATCHES: usize = 100;
/// Lines around a match at most.
const CONTEXT: usize = 100;
/// Bytes of a line that are shown.
const LINE: usize = 500;
/// Bytes of a file that are searched at once.
const BLOCK: usize = 8 << 20;
/// Bytes of all files that one call searches.
const TOTAL: u64 = 8 << 30;
/// Bytes in which a zero byte makes a file a binary one.
const LOOK: usize = 8 << 10;

/// `grep {pattern, path?, glob?, ignoreCase?, literal?, context?, limit?}`: lines of files that match.
#[derive(Debug)]
pub struct Grep {
    spec: ToolSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    pattern: String,
    #[serde(default = "here")]
    path: String,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    literal: bool,
    context: Option<f64>,
    limit: Option<f64>,
}

/// The directory of the session.
pub(super) fn here() -> String {
    ".".to_owned()
}

impl FileArguments for Arguments {
    fn path(&self) -> &str {
        &self.path
    }
}

impl Grep {
    /// The tool.
    pub fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "description": "Regular expression" },
                "path": { "type": "string", "description": "File or directory; default: the working directory" },
                "glob": { "type": "string", "description": "Only files like *.ts or src/**/*.rs" },
                "ignoreCase": { "type": "boolean" },
                "literal": { "type": "boolean", "description": "The pattern is plain text" },
                "context": { "type": "integer", "description": "Lines around each match" },
                "limit": { "type": "integer", "description": "Matches at most (100)" },
            },
            "required": ["pattern"],
        });
        let description = "Search file contents. Gives path:line: text. Leaves out what .gitignore leaves out, \
             and binary files. Ends at 100 matches or 50KB; long lines are cut.";
        Self { spec: spec("grep", description, &parameters) }
    }
}

impl Default for Grep {
    fn default() -> Self {
        Self::new()
    }
}

impl Tool for Grep {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &serde_json::Value, cx: &ToolContext) -> Touches {
        Touches::Reads(directory_touched::<Arguments>(args, cx))
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(async move {
            let call: FileCall<Arguments> = match FileCall::new(&call, cx) {
                Ok(call) => call,
                Err(output) => return output,
            };
            until_cancelled(
                cx,
                call.run(|call| match Search::new(call) {
                    Ok(search) => search.run(),
                    Err(output) => Ok(output),
                }),
            )
            .await
        })
    }
}

/// The key of the directory or file that a search begins at; the session's directory where none is named.
pub(super) fn directory_touched<A: FileArguments>(
    args: &serde_json::Value,
    cx: &ToolContext,
) -> Vec<PathBuf> {
    let named = touched_files::<A>(args, cx);
    if named.is_empty() { vec![file_key(&cx.cwd)] } else { named }
}

struct Search<'a> {
    call: &'a FileCall<Arguments>,
    matcher: Matcher,
    glob: Option<Glob>,
    most: usize,
    context: usize,
    buffer: Vec<u8>,
    lines: ResultLines,
    found: usize,
    searched: u64,
    has_cut_line: bool,
    /// Files that may not be opened.
    closed: usize,
}

impl<'a> Search<'a> {
    fn new(call: &'a FileCall<Arguments>) -> Result<Self, ToolOutput> {
        let Arguments { pattern, glob, ignore_case, literal, context, limit: most, .. } = &call.arguments;
        let flags = PatternFlags { literal: *literal, ignore_case: *ignore_case };
        let matcher = Matcher::new(pattern, flags).map_err(|error| ToolOutput::error(error.to_string()))?;
        let glob = glob.as_deref().map(Glob::parse).transpose();
        let glob = glob.map_err(|error| ToolOutput::error(error.to_string()))?;
        let context =
            context.filter(|lines| *lines >= 1.0).map_or(0, |lines| limit(Some(lines), 0).min(CONTEXT));
        Ok(Self {
            call,
            matcher,
            glob,
            most: limit(*most, MATCHES),
            context,
            buffer: Vec::new(),
            lines: ResultLines::default(),
            found: 0,
            searched: 0,
            has_cut_line: false,
            closed: 0,
        })
    }

    fn run(mut self) -> Result<ToolOutput, FileError> {
        let path = self.call.path.clone();
        let real = file_key(&path);
        let found = std::fs::metadata(&real);
        let Ok(found) = found else {
            self.call.access.check_read(&path)?;
            return Ok(ToolOutput::error(format!("Path not found: {}", path.display())));
        };
        let mut notices = Vec::new();
        if found.is_dir() {
            let access = entered(&self.call.access, &path, &real)?;
            let glob = self.glob.take();
            let wanted = |path: &Path, is_directory: bool| {
                !is_directory && glob.as_ref().is_none_or(|glob| glob.matches(&shown(path)))
            };
            let tree = Tree::below(&real, &self.call.cancel, &wanted)?;
            for (path, _) in &tree.paths {
                let at = real.join(path);
                // Links are not followed: they may lead to what is found by its own name.
                if !at.symlink_metadata().is_ok_and(|found| found.is_file()) {
                    continue;
                }
                if !access.may_search("grep", &at) {
                    self.closed += 1;
                    continue;
                }
                if !self.file(&access, &at, &shown(path))? {
                    break;
                }
            }
            notices.extend(tree.notice());
        } else {
            let access = self.call.access.clone();
            let name = real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let (mut file, _) = access.open_for_reading(&path)?;
            self.search(&mut file, &name).map_err(|source| FileError::Io {
                path,
                action: "cannot read",
                source,
            })?;
            self.call.check_cancelled()?;
        }
        Ok(self.output(notices))
    }

    fn output(self, mut notices: Vec<String>) -> ToolOutput {
        let mut details = Vec::new();
        if self.found >= self.most {
            let (most, more) = (self.most, self.most * 2);
            notices.insert(
                0,
                format!("{most} matches limit reached. Use limit={more} for more, or refine pattern"),
            );
            details.push(("matchLimitReached", most as u64));
        }
        if self.searched >= TOTAL {
            notices.push("8 GB were searched, which is the most. Name a directory further down".to_owned());
        }
        if self.has_cut_line {
            notices.push(format!("Some lines truncated to {LINE} chars. Use read tool to see full lines"));
            details.push(("linesTruncated", 1));
        }
        if self.closed > 0 {
            notices.push(format!(
                "{} files were not searched: they hold secrets, or your rules close them",
                self.closed
            ));
        }
        self.lines.output("No matches found", notices, &details)
    }

    /// Searches a file that was found. Whether there is room for more.
    fn file(&mut self, access: &Access, path: &Path, name: &str) -> Result<bool, FileError> {
        self.call.check_cancelled()?;
        // A file that is gone, or that nobody may read, is none that matches.
        if let Ok((mut file, _)) = access.open_for_reading(path)
            && self.search(&mut file, name).is_err()
        {
            self.closed += 1;
        }
        Ok(self.found < self.most && !self.lines.is_full && self.searched < TOTAL)
    }

    fn search(&mut self, file: &mut File, name: &str) -> std::io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.blocks(file, name, &mut buffer, &self.call.cancel);
        self.buffer = buffer;
        result
    }

    /// Searches a file in blocks that end with a line.
    fn blocks(
        &mut self,
        file: &mut File,
        name: &str,
        buffer: &mut Vec<u8>,
        cancel: &CancellationToken,
    ) -> std::io::Result<()> {
        buffer.clear();
        let mut before = 0;
        loop {
            let had = buffer.len();
            let room = (BLOCK.saturating_sub(had)).max(64 << 10) as u64;
            let read = file.by_ref().take(room).read_to_end(buffer)?;
            self.searched += read as u64;
            let start = buffer.get(..LOOK.min(buffer.len())).unwrap_or_default();
            if before == 0 && memchr::memchr(0, start).is_some() {
                return Ok(());
            }
            let is_end = (read as u64) < room;
            let end = if is_end {
                buffer.len()
            } else {
                memchr::memrchr(b'\n', buffer).map_or(buffer.len(), |at| at + 1)
            };
            let block = buffer.get(..end).unwrap_or_default();
            let (shown, found) = matching(&self.matcher, block, self.most - self.found, self.context);
            self.found += found;
            for line in shown {
                let text = block.get(line.span.0..line.span.1).unwrap_or_default();
                self.push(name, before + line.number, line.is_match, text);
            }
            if is_end
                || self.found >= self.most
                || self.lines.is_full
                || self.searched >= TOTAL
                || cancel.is_cancelled()
            {
                return Ok(());
            }
            before += memchr::memchr_iter(b'\n', block).count() as u64;
            buffer.drain(..end);
        }
    }

    fn push(&mut self, name: &str, number: u64, is_match: bool, text: &[u8]) {
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let text = String::from_utf8_lossy(text.get(..text.len().min(LINE * 4)).unwrap_or_default());
        let line = match text.char_indices().nth(LINE) {
            Some((cut, _)) => {
                self.has_cut_line = true;
                format!("{}... [truncated]", &text[..cut])
            }
            None => text.into_owned(),
        };
        let line =
            if is_match { format!("{name}:{number}: {line}") } else { format!("{name}-{number}- {line}") };
        self.lines.push(&line);
    }
}
