//! The tool that fetches a page.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use quipu_protocol::{Json, ToolSpec};
use quipu_tools::{Invocation, Tool, ToolContext, ToolOutput, Touches};
use serde::Deserialize;
use serde_json::json;

use crate::access::{HostDecision, WebAccess, checked_url};
use crate::error::FetchError;
use crate::frame::{framed, one_line, shown_url};
use crate::get::{FetchEnd, get};
use crate::limits::{KEPT_PAGES, PAGE_BYTES, RESULT_BYTES};
use crate::names::FETCH;
use crate::page::Page;

/// `web_fetch {url, offset?}`: a page as Markdown.
#[derive(Debug)]
pub struct WebFetch {
    spec: ToolSpec,
    access: Arc<WebAccess>,
    /// The pages that were fetched last, to be read on.
    kept: Mutex<VecDeque<(String, Arc<Page>)>>,
}

#[derive(Deserialize)]
struct Arguments {
    url: String,
    offset: Option<f64>,
}

impl WebFetch {
    /// The tool; it reaches what `access` lets it reach.
    pub fn new(access: Arc<WebAccess>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "url": { "type": "string" },
                "offset": { "type": "integer", "description": "First byte of a long page" },
            },
            "required": ["url"],
        });
        let description =
            "Fetch a page by GET. HTML becomes Markdown. A result ends after 50KB; go on with offset.";
        let spec = ToolSpec {
            name: FETCH.into(),
            description: description.into(),
            parameters: Json::from(parameters),
        };
        Self { spec, access, kept: Mutex::default() }
    }

    async fn call(&self, call: &Invocation) -> ToolOutput {
        let arguments: Arguments = match serde_json::from_value(call.args.value()) {
            Ok(arguments) => arguments,
            Err(error) => return ToolOutput::error(format!("Invalid arguments: {error}")),
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
        let offset = arguments.offset.map_or(0, |offset| offset.clamp(0.0, 1e9) as usize);
        match self.page(&arguments.url, offset).await {
            Ok(Ok(page)) => output(&page, offset),
            Ok(Err(output)) => output,
            Err(error) => ToolOutput::error(error.to_string()),
        }
    }

    async fn page(&self, text: &str, offset: usize) -> Result<Result<Arc<Page>, ToolOutput>, FetchError> {
        let (url, host) = checked_url(text)?;
        if let HostDecision::Denied(why) = self.access.decide(&host) {
            return Err(FetchError::Refused(why));
        }
        let key = url.as_str().to_owned();
        if offset > 0
            && let Some(page) = self.kept(&key)
        {
            return Ok(Ok(page));
        }
        match get(&self.access, url, host).await? {
            FetchEnd::Page(raw) => {
                let made = tokio::task::spawn_blocking(move || Arc::new(Page::of(raw))).await;
                let page = made.map_err(|_| FetchError::Address("The page could not be read.".to_owned()))?;
                self.keep(key, page.clone());
                Ok(Ok(page))
            }
            FetchEnd::Elsewhere(to) => {
                let what = "The server redirects to another address, which is not fetched unasked. Call web_fetch with it if the \
                            task needs it.";
                Ok(Err(ToolOutput::text(framed(what, &shown_url(&to)))))
            }
        }
    }

    fn kept(&self, url: &str) -> Option<Arc<Page>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(known, _)| known == url).map(|(_, page)| page.clone())
    }

    fn keep(&self, url: String, page: Arc<Page>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(known, _)| *known != url);
        kept.push_back((url, page));
        if kept.len() > KEPT_PAGES {
            kept.pop_front();
        }
    }
}

impl Tool for WebFetch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// No file; [`WebPolicy`](crate::WebPolicy) judges the host.
    fn touches(&self, _: &serde_json::Value, _: &ToolContext) -> Touches {
        Touches::Nothing
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                () = cx.cancel.cancelled() => ToolOutput::error("Operation aborted"),
                output = self.call(&call) => output,
            }
        })
    }
}

fn output(page: &Page, offset: usize) -> ToolOutput {
    let Page { url, status, kind, title, text, size, is_cut } = page;
    let kind = one_line(kind, 80);
    let mut what = format!("{} (HTTP {status}, {kind}, {size} bytes", shown_url(url));
    if *is_cut {
        what.push_str(&format!(
            "; the page is longer, and only its first {} MiB were read",
            PAGE_BYTES >> 20
        ));
    }
    what.push(')');
    let is_error = !(200..300).contains(status);
    let Some(text) = text else {
        let mut output = ToolOutput::text(format!("{what}\nThis is not text, so it is not shown."));
        output.is_error = is_error;
        return output;
    };
    let total = text.len();
    if offset > 0 && offset >= total {
        return ToolOutput::error(format!(
            "Offset {offset} is beyond the end of the page ({total} bytes of text)"
        ));
    }
    let start = text.floor_char_boundary(offset);
    let mut end = text.floor_char_boundary((start + RESULT_BYTES).min(total));
    if end < total
        && let Some(line) =
            text.get(start..end).and_then(|part| part.rfind('\n')).filter(|at| *at > RESULT_BYTES / 2)
    {
        end = start + line + 1;
    }
    let shown = text.get(start..end).unwrap_or_default();
    let shown = match title {
        Some(title) if start == 0 => format!("Title: {title}\n\n{shown}"),
        _ if text.is_empty() => "(the page has no text)".to_owned(),
        _ => shown.to_owned(),
    };
    let mut result = framed(&what, &shown);
    if end < total || start > 0 {
        let more = if end < total { format!(" Use offset={end} to continue.") } else { String::new() };
        result.push_str(&format!("\n\n[Showing bytes {start}-{end} of {total}.{more}]"));
    }
    let mut output = ToolOutput::text(result);
    output.is_error = is_error;
    output.details = Some(Json::from(json!({ "status": status, "type": kind, "bytes": size })));
    output
}
