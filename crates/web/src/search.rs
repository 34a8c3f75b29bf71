//! The tool that searches the web at a service that the user set up.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;

use quipu_protocol::{Json, ToolSpec};
use quipu_providers::net::{self, LocalRoute};
use quipu_tools::{Invocation, Tool, ToolContext, ToolOutput, Touches};
use reqwest::Url;
use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::SearchSetupError;
use crate::frame::{framed, one_line};
use crate::get::body;
use crate::html::markdown;
use crate::limits::{QUERY_BYTES, RESULTS, SEARCH_BYTES, SEARCH_TIME, SNIPPET, URL_BYTES};
use crate::names::SEARCH;

/// How a service is asked, and where its answers have their parts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SearchService {
    /// Its name.
    pub id: String,
    /// Where it is; `None` for one that each user has elsewhere.
    base: Option<String>,
    path: String,
    /// The parameter of what is searched for.
    query: String,
    fixed: Map<String, Value>,
    #[serde(default)]
    post: bool,
    /// The header of the key; `None` where it needs none.
    key_header: Option<String>,
    #[serde(default)]
    key_prefix: String,
    /// The variable of the environment that may hold the key.
    pub variable: Option<String>,
    /// Where its list of results is: a JSON pointer.
    results: String,
    /// The member with the text of a result.
    snippet: String,
}

impl SearchService {
    /// Whether it needs a key.
    pub fn needs_key(&self) -> bool {
        self.key_header.is_some()
    }
}

/// Every service.
#[expect(clippy::expect_used, reason = "the file is part of the program, and a test reads it")]
pub static SEARCH_SERVICES: LazyLock<Vec<SearchService>> =
    LazyLock::new(|| serde_json::from_str(include_str!("services.json")).expect("services.json is valid"));

/// `web_search {query}`: titles, addresses and excerpts of pages.
pub struct WebSearch {
    spec: ToolSpec,
    service: &'static SearchService,
    url: Url,
    key: Option<HeaderValue>,
}

impl std::fmt::Debug for WebSearch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebSearch").field("service", &self.service.id).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Arguments {
    query: String,
}

impl WebSearch {
    /// The tool over a service; `address` in the place of its own. A key is sent over TLS, or to this machine.
    ///
    /// # Errors
    /// There is no such service, or it lacks its address or key.
    pub fn new(service: &str, address: Option<&str>, key: Option<&str>) -> Result<Self, SearchSetupError> {
        let known = SEARCH_SERVICES.iter().find(|known| known.id == service);
        let service = known.ok_or_else(|| SearchSetupError::Unknown(service.to_owned()))?;
        let base = address.or(service.base.as_deref()).ok_or(SearchSetupError::NoAddress(&service.id))?;
        let bad = |why: &str| SearchSetupError::Address(one_line(base, 200), why.to_owned());
        let text = format!("{}{}", base.trim_end_matches('/'), service.path);
        let url = Url::parse(&text).map_err(|error| bad(&error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err(bad("it must not hold a user, a password or parameters"));
        }
        let is_near = net::is_loopback(url.host_str().unwrap_or_default());
        match url.scheme() {
            "https" => {}
            "http" if is_near || !service.needs_key() => {}
            _ => return Err(bad("it must begin with https://")),
        }
        let key = match (service.needs_key(), key) {
            (false, _) => None,
            (true, None) => return Err(SearchSetupError::NoKey(&service.id)),
            (true, Some(key)) => {
                let value = HeaderValue::from_str(&format!("{}{}", service.key_prefix, key.trim()));
                let mut value = value.map_err(|_| SearchSetupError::NoKey(&service.id))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let parameters = json!({
            "type": "object",
            "properties": { "query": { "type": "string" } },
            "required": ["query"],
        });
        let description = "Search the web. Gives titles, addresses and excerpts of at most 10 pages.";
        let spec = ToolSpec {
            name: SEARCH.into(),
            description: description.into(),
            parameters: Json::from(parameters),
        };
        Ok(Self { spec, service, url, key })
    }

    async fn call(&self, call: &Invocation) -> ToolOutput {
        let query = match serde_json::from_value::<Arguments>(call.args.value()) {
            Ok(arguments) => arguments.query,
            Err(error) => return ToolOutput::error(format!("Invalid arguments: {error}")),
        };
        let query = query.trim();
        if query.is_empty() || query.len() > QUERY_BYTES {
            return ToolOutput::error("The query is empty, or longer than 2 KiB");
        }
        match tokio::time::timeout(SEARCH_TIME, self.answer(query)).await {
            Ok(Ok(answer)) => self.output(query, &answer),
            Ok(Err(why)) => ToolOutput::error(format!("The search at {} failed: {why}", self.service.id)),
            Err(_) => {
                let seconds = SEARCH_TIME.as_secs();
                ToolOutput::error(format!("The search at {} took more than {seconds} s", self.service.id))
            }
        }
    }

    async fn answer(&self, query: &str) -> Result<Value, SearchError> {
        let mut url = self.url.clone();
        let client =
            net::client(&url, LocalRoute::Direct).map_err(|error| SearchError::Client(error.message))?;
        let mut request = if self.service.post {
            let mut members = self.service.fixed.clone();
            members.insert(self.service.query.clone(), Value::from(query));
            client
                .post(url)
                .header("content-type", "application/json")
                .body(Value::Object(members).to_string())
        } else {
            let mut pairs = url.query_pairs_mut();
            pairs.append_pair(&self.service.query, query);
            for (name, value) in &self.service.fixed {
                pairs.append_pair(name, &value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            }
            drop(pairs);
            client.get(url)
        };
        if let (Some(name), Some(key)) = (&self.service.key_header, &self.key) {
            request = request.header(name, key.clone());
        }
        let sent = request.header("accept", "application/json").send().await;
        let response = sent.map_err(|error| SearchError::Client(net::describe(&error.without_url())))?;
        let status = response.status();
        let (bytes, is_cut) = body(response, SEARCH_BYTES).await.map_err(SearchError::Client)?;
        if !status.is_success() {
            let told = one_line(
                &String::from_utf8_lossy(bytes.get(..bytes.len().min(2_000)).unwrap_or_default()),
                200,
            );
            return Err(SearchError::Status(status.as_u16(), told));
        }
        if is_cut {
            return Err(SearchError::Long);
        }
        serde_json::from_slice(&bytes).map_err(|_| SearchError::Form)
    }

    fn output(&self, query: &str, answer: &Value) -> ToolOutput {
        let Some(results) = answer.pointer(&self.service.results).and_then(Value::as_array) else {
            return ToolOutput::error(format!(
                "The search at {} failed: {}",
                self.service.id,
                SearchError::Form
            ));
        };
        let mut text = String::new();
        let mut number = 0;
        for result in results {
            let part = |name: &str| result.get(name).and_then(Value::as_str).unwrap_or_default();
            let Some(url) =
                Url::parse(part("url")).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
            else {
                continue;
            };
            if url.as_str().len() > URL_BYTES || number == RESULTS {
                continue;
            }
            number += 1;
            // Parts may have tags and entities.
            let plain = |name: &str, most: usize| {
                let part = part(name);
                let part = &part[..part.floor_char_boundary(part.len().min(16 << 10))];
                one_line(&markdown(part, None).text, most)
            };
            text.push_str(&format!("{number}. {}\n   {url}\n", plain("title", 200)));
            let snippet = plain(&self.service.snippet, SNIPPET);
            if !snippet.is_empty() {
                text.push_str(&format!("   {snippet}\n"));
            }
        }
        if number == 0 {
            return ToolOutput::text("No results.");
        }
        let what = format!("Results of {} for: {}", self.service.id, one_line(query, 300));
        ToolOutput::text(framed(&what, text.trim_end()))
    }
}

#[derive(Debug, thiserror::Error)]
enum SearchError {
    #[error("{0}")]
    Client(String),
    #[error("the server answered with HTTP {0}: {1}")]
    Status(u16, String),
    #[error("the answer is longer than {} MiB", SEARCH_BYTES >> 20)]
    Long,
    #[error("the answer has no list of results; does the server give JSON?")]
    Form,
}

impl Tool for WebSearch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, _: &Value, _: &ToolContext) -> Touches {
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
