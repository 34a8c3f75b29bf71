//! The tool that reads a file.

use std::fs::File;
use std::future::Future;
use std::io::{self, Read as _};
use std::path::Path;
use std::pin::Pin;

use quipu_protocol::{Content, Json, ToolSpec};
use quipu_workspace::{FileError, LineRange, ReadLimits, read_lines};
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::file_call::{FileArguments, FileCall, touched_files};
use crate::images::{self, ImageKind};
use crate::pdf::{self, PageRange, PdfText};
use crate::truncate::{MAX_BYTES, MAX_LINES, Truncation, TruncationLimit, format_size};
use crate::{Invocation, Tool, ToolContext, ToolOutput, Touches, spec};

/// `read {path, offset?, limit?}`: lines of a text file, pages of a PDF file, or an image.
#[derive(Debug)]
pub struct Read {
    spec: ToolSpec,
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    offset: Option<f64>,
    limit: Option<f64>,
}

impl FileArguments for Arguments {
    fn path(&self) -> &str {
        &self.path
    }
}

impl Read {
    /// The tool.
    pub fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string" },
                "offset": { "type": "integer", "description": "First line, from 1" },
                "limit": { "type": "integer" },
            },
            "required": ["path"],
        });
        let description = "Read a text file, PDF (by pages) or image. Text ends after 2000 lines or 50KB; go on with offset.";
        Self { spec: spec("read", description, &parameters) }
    }
}

impl Default for Read {
    fn default() -> Self {
        Self::new()
    }
}

impl Tool for Read {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &serde_json::Value, cx: &ToolContext) -> Touches {
        Touches::Reads(touched_files::<Arguments>(args, cx))
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
            let sees_images = cx.sees_images;
            tokio::select! {
                biased;
                // A read that hangs inside the system is left to itself.
                () = cx.cancel.cancelled() => ToolOutput::error(FileError::Cancelled.to_string()),
                output = call.run(move |call| ReadJob { call, sees_images }.run()) => output,
            }
        })
    }
}

struct ReadJob<'a> {
    call: &'a FileCall<Arguments>,
    sees_images: bool,
}

/// Bytes that are passed over at most to come to the first line.
const SKIP_LIMIT: u64 = 1 << 30;
/// Bytes that are read at most only to count the lines that follow.
const COUNT_LIMIT: u64 = 16 << 20;
/// Bytes that an image file may have at all.
pub(crate) const IMAGE_FILE_LIMIT: u64 = 64 << 20;

impl ReadJob<'_> {
    fn run(&self) -> Result<ToolOutput, FileError> {
        let (mut file, metadata) = self.call.access.open_for_reading(&self.call.path)?;
        let failed = |source| FileError::Io { path: self.call.path.clone(), action: "cannot read", source };
        let mut magic = Vec::new();
        file.by_ref().take(64).read_to_end(&mut magic).map_err(failed)?;
        if let Some(kind) = images::kind(&magic) {
            if metadata.len() > IMAGE_FILE_LIMIT {
                return Ok(ToolOutput::text(format!("Read image file [{kind}]\n{}", images::NOT_CONVERTED)));
            }
            let bytes = load(&mut file, magic, &self.call.path, &self.call.cancel, IMAGE_FILE_LIMIT)?;
            return if images::is_animated_png(&bytes) {
                self.text(&mut bytes.as_slice())
            } else {
                Ok(self.image(&bytes, kind))
            };
        }
        if pdf::is_pdf(&magic) {
            return Ok(self.pdf(&load(
                &mut file,
                magic,
                &self.call.path,
                &self.call.cancel,
                pdf::FILE_LIMIT,
            )?));
        }
        self.text(&mut magic.as_slice().chain(file))
    }

    fn pdf(&self, bytes: &[u8]) -> ToolOutput {
        let Arguments { offset, limit, .. } = &self.call.arguments;
        let first = offset.map_or(0, |offset| count(offset).saturating_sub(1));
        let range = PageRange { first, count: limit.map(count) };
        match pdf::read_pages(bytes, range, MAX_BYTES, &self.call.cancel) {
            Ok(text) => pages(&text, first),
            Err(error) => ToolOutput::error(error.to_string()),
        }
    }

    fn image(&self, bytes: &[u8], kind: ImageKind) -> ToolOutput {
        let mut output = ToolOutput::default();
        let (mut text, image) = match images::prepare(bytes, kind) {
            Ok(prepared) => {
                let mut text = format!("Read image file [{}]", prepared.kind);
                for hint in &prepared.hints {
                    text.push('\n');
                    text.push_str(hint);
                }
                (text, Some(prepared.into_content()))
            }
            Err(problem) => (format!("Read image file [{kind}]\n{problem}"), None),
        };
        if !self.sees_images {
            text.push_str(
                "\n[Current model does not support images. The image will be omitted from this request.]",
            );
        }
        output.content.push(Content::text(text));
        output.content.extend(image);
        output
    }

    fn text(&self, file: &mut impl io::Read) -> Result<ToolOutput, FileError> {
        let Arguments { path, offset, limit } = &self.call.arguments;
        let start = offset.map_or(0, |offset| count(offset).saturating_sub(1));
        let range = LineRange { start, count: limit.map(count) };
        let limits = ReadLimits { lines: MAX_LINES, bytes: MAX_BYTES, skip: SKIP_LIMIT, count: COUNT_LIMIT };
        let window = read_lines(file, &self.call.path, range, limits, &self.call.cancel)?;
        let total = window.total_lines;
        let at_least = if window.is_counted { "" } else { "at least " };
        // Where the limit was reached within a line, the lines before it are known; the one that is asked for is not.
        if start >= total || (!window.is_counted && window.lines == 0 && window.total_lines <= start + 1) {
            let asked = start.saturating_add(1);
            if !window.is_counted {
                let size = format_size(SKIP_LIMIT);
                return Ok(ToolOutput::error(format!(
                    "Offset {asked} is too far into the file: only the first {size} are searched for it, which hold \
                     {total} lines. Use bash: tail -n +{asked} {path} | head -n {MAX_LINES}"
                )));
            }
            return Ok(ToolOutput::error(format!(
                "Offset {asked} is beyond end of file ({total} lines total)"
            )));
        }
        let cut = Truncation::head(&window);
        let first = start + 1;
        let max = format_size(MAX_BYTES as u64);
        let (text, notice) = match cut.truncated_by {
            Some(_) if cut.first_line_exceeds_limit => {
                let size = format_size(window.first_line_bytes);
                let notice = format!(
                    "[Line {first} is {at_least}{size}, exceeds {max} limit. Use bash: sed -n '{first}p' {path} | head -c \
                     {MAX_BYTES}]"
                );
                (notice, None)
            }
            Some(by) => {
                let last = start + cut.output_lines;
                let next = last + 1;
                let limit = match by {
                    TruncationLimit::Lines => String::new(),
                    TruncationLimit::Bytes => format!(" ({max} limit)"),
                };
                let notice = format!(
                    "[Showing lines {first}-{last} of {at_least}{total}{limit}. Use offset={next} to continue.]"
                );
                (cut.content.clone(), Some(notice))
            }
            None => {
                let after = start + window.lines;
                let rest = total - after;
                let next = after + 1;
                let notice = (rest > 0).then(|| {
                    format!("[{at_least}{rest} more lines in file. Use offset={next} to continue.]")
                });
                (cut.content.clone(), notice)
            }
        };
        let mut output = ToolOutput::text(match notice {
            Some(notice) => format!("{text}\n\n{notice}"),
            None => text,
        });
        if cut.truncated {
            output.details = Some(Json::from(json!({ "truncation": cut })));
        }
        Ok(output)
    }
}

/// Pages as the model gets them: as many whole ones as fit, or the beginning of the first.
fn pages(text: &PdfText, first: u64) -> ToolOutput {
    let total = text.total;
    if first >= total {
        return ToolOutput::error(format!(
            "Offset {} is beyond the last page ({total} pages)",
            first.saturating_add(1)
        ));
    }
    let (mut shown, mut next, mut unknown, mut lines) = (String::new(), first, 0, 0);
    for page in &text.pages {
        let body = if page.text.is_empty() {
            "(no text on this page; it may be an image)"
        } else {
            page.text.as_str()
        };
        let mut part = format!("[Page {} of {total}]\n{body}\n\n", next + 1);
        lines += part.lines().count();
        if shown.len() + part.len() > MAX_BYTES || lines > MAX_LINES {
            if next > first {
                break;
            }
            let end = body.lines().take(MAX_LINES - 4).map(|line| line.len() + 1).sum::<usize>();
            let end = body.floor_char_boundary(end.min(MAX_BYTES).min(body.len()));
            let (kept, whole) = (format_size(end as u64), format_size(body.len() as u64));
            let body = &body[..end];
            part = format!(
                "[Page {} of {total}]\n{body}\n[The page is cut: {kept} of {whole} are shown.]\n\n",
                next + 1
            );
        }
        shown.push_str(&part);
        unknown += page.unknown;
        next += 1;
    }
    let mut notes = Vec::new();
    if next < total {
        notes.push(format!("Pages {}-{next} of {total}. Use offset={} to continue.", first + 1, next + 1));
    }
    if unknown > 0 {
        notes.push(format!(
            "{unknown} characters are of fonts that do not say what they are, and are shown as \u{fffd}."
        ));
    }
    if text.is_truncated {
        notes.push("The file is damaged or truncated: pages may be missing.".to_owned());
    }
    match notes.is_empty() {
        true => shown.truncate(shown.trim_end().len()),
        false => shown.push_str(&format!("[{}]", notes.join(" "))),
    }
    ToolOutput::text(shown)
}

pub(crate) fn load(
    file: &mut File,
    mut bytes: Vec<u8>,
    path: &Path,
    cancel: &CancellationToken,
    limit: u64,
) -> Result<Vec<u8>, FileError> {
    loop {
        if cancel.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        match file.by_ref().take(1 << 20).read_to_end(&mut bytes) {
            Ok(0) => return Ok(bytes),
            Ok(_) if bytes.len() as u64 > limit => {
                let size = bytes.len() as u64;
                return Err(FileError::TooLarge { path: path.to_owned(), size, limit });
            }
            Ok(_) => {}
            Err(source) => {
                return Err(FileError::Io { path: path.to_owned(), action: "cannot read", source });
            }
        }
    }
}

/// A number of lines, as a model gives it; less than none is none.
fn count(number: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    let count = number as u64;
    count
}
