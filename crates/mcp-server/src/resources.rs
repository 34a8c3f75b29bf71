//! Sessions and nodes as resources.

use quipu_history::minute;
use quipu_store::Graph;
use quipu_transcript::one_line;
use rmcp::model::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate,
};

use crate::archive::Archive;
use crate::error::CallError;
use crate::place::sessions;
use crate::reach::Reach;
use crate::read::{ReadArguments, read};
use crate::search::title;

/// Sessions of a page.
const PAGE: usize = 50;
/// Characters of a title and of a name.
const NAME: usize = 80;
const SESSION: &str = "quipu://session/";
const NODE: &str = "quipu://node/";
const TEXT: &str = "text/plain";

/// Sessions, the last changed first.
pub(crate) async fn list(
    archive: &Archive,
    reach: &Reach,
    cursor: Option<String>,
) -> Result<ListResourcesResult, CallError> {
    let skip = match &cursor {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| CallError::Arguments("cursor is none that resources/list gave".into()))?,
    };
    let store = match archive.store() {
        Err(CallError::Empty) => return Ok(ListResourcesResult::default()),
        store => store?,
    };
    let store: &dyn Graph = &*store;
    let (rows, more) = sessions(store, reach, skip, PAGE).await?;
    let resources: Vec<Resource> = rows
        .iter()
        .map(|row| {
            let about = format!("{}, {}", one_line(&row.agent, NAME), minute(row.updated));
            let title = match one_line(title(row), NAME) {
                title if title.is_empty() => format!("Session {}", row.id),
                title => title,
            };
            Resource::new(format!("{SESSION}{}", row.id), title).with_description(about).with_mime_type(TEXT)
        })
        .collect();
    let mut result = ListResourcesResult::with_all_items(resources);
    result.next_cursor = more.then(|| (skip + PAGE).to_string());
    Ok(result)
}

/// The forms of addresses.
pub(crate) fn templates() -> ListResourceTemplatesResult {
    let template = |start: &str, name: &str, about: &str| {
        ResourceTemplate::new(format!("{start}{{id}}{{?cursor}}"), name)
            .with_description(about)
            .with_mime_type(TEXT)
    };
    ListResourceTemplatesResult::with_all_items(vec![
        template(SESSION, "session", "The messages of a session, the newest page first"),
        template(NODE, "node", "A node in full, in pages"),
    ])
}

/// A session or a node.
pub(crate) async fn contents(
    archive: &Archive,
    reach: &Reach,
    uri: &str,
) -> Result<ReadResourceResult, CallError> {
    let (address, cursor) = match uri.split_once("?cursor=") {
        Some((address, cursor)) => (address, Some(cursor.to_owned())),
        None => (uri, None),
    };
    let id = address.strip_prefix(SESSION).or_else(|| address.strip_prefix(NODE));
    let Some(id) = id.filter(|id| !id.is_empty()) else {
        return Err(CallError::Name(format!("There is no resource {}", one_line(uri, NAME))));
    };
    let page = read(archive, reach, ReadArguments { id: id.to_owned(), cursor }).await?;
    let text = match &page.next {
        Some(next) => format!("{}\nMore: read {address}?cursor={next}", page.text),
        None => page.text,
    };
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(TEXT)]))
}
