//! Resources that a server offers to people: listed by their addresses, and read where a message mentions one.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quipu_protocol::{Content, Json};
use quipu_tools::image_blocks;
use quipu_transcript::{RESOURCE_BLOCK, RESOURCE_DATA};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::client::{Client, RequestOptions};
use crate::error::RequestError;
use crate::limits::{
    LIST_PAGES, RESOURCE_IMAGES, RESOURCE_PARTS, RESOURCE_TEXT_BYTES, RESOURCE_URI_BYTES, SERVER_RESOURCES,
};
use crate::visible::{is_invisible, one_line, stripped};

/// A resource that a server lists. Texts are those of the server, made visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerResource {
    /// Its address, as the server knows it.
    pub uri: String,
    /// Its name and what it is, in one line.
    pub description: String,
}

impl ServerResource {
    fn read(value: &Value) -> Option<Self> {
        let uri = value["uri"].as_str().filter(|uri| is_address(uri))?;
        let words = ["title", "name", "description"].iter().filter_map(|name| value[*name].as_str());
        let mut words: Vec<&str> = words.filter(|words| !words.trim().is_empty()).collect();
        words.dedup();
        Some(Self { uri: uri.to_owned(), description: one_line(&words.join("  "), 200) })
    }
}

/// Whether a person can see and type it.
fn is_address(uri: &str) -> bool {
    (1..=RESOURCE_URI_BYTES).contains(&uri.len())
        && !uri.chars().any(|c| is_invisible(c) || matches!(c, '"' | '\n' | '\t'))
}

/// What a resource has, as a message gets it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResourceContent {
    /// A text between marks, which says where it is from, and the images of the resource.
    pub blocks: Vec<Content>,
    /// What is left out, each in one line.
    pub left_out: Vec<String>,
}

impl Client {
    /// All pages, up to the limits.
    pub(crate) async fn list_resources(&self, limit: Duration) -> Result<Vec<ServerResource>, RequestError> {
        let (mut resources, mut cursor) = (Vec::new(), None::<String>);
        for _ in 0..LIST_PAGES {
            let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let page = self.request("resources/list", params, RequestOptions::within(limit)).await?;
            let page = page.value();
            let listed = page["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
            resources.extend(listed.iter().filter_map(ServerResource::read));
            if resources.len() >= SERVER_RESOURCES {
                resources.truncate(SERVER_RESOURCES);
                break;
            }
            match page["nextCursor"].as_str().filter(|next| !next.is_empty()) {
                Some(next) => cursor = Some(next.to_owned()),
                None => break,
            }
        }
        Ok(resources)
    }
}

/// What `resources/read` answered: bounded text and images.
///
/// # Errors
/// Where there is nothing that a model can read.
pub(crate) fn resource_content(
    server: &str,
    uri: &str,
    result: &Json,
) -> Result<ResourceContent, RequestError> {
    let value = result.value();
    let parts = value["contents"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut read = ResourceContent::default();
    let (mut text, mut has_text, mut cut) = (String::new(), false, 0);
    for part in parts.iter().take(RESOURCE_PARTS) {
        let own = part["uri"].as_str().unwrap_or(uri);
        let blob;
        let words = match (part["text"].as_str(), part["blob"].as_str()) {
            (Some(words), _) => words,
            (None, Some(data)) => {
                let Ok(bytes) = STANDARD.decode(data) else {
                    read.left_out.push(format!("{} is not valid base64", one_line(own, 200)));
                    continue;
                };
                if let Some(images) = image_blocks(&bytes) {
                    if read.blocks.len() < RESOURCE_IMAGES {
                        read.blocks.extend(images);
                    } else {
                        let limit = format!("images of a resource are at most {RESOURCE_IMAGES}");
                        read.left_out.push(format!("{}: {limit}", one_line(own, 200)));
                    }
                    continue;
                }
                let Some(words) = String::from_utf8(bytes).ok().filter(|words| !words.contains('\0')) else {
                    let kind = one_line(part["mimeType"].as_str().unwrap_or("an unknown type"), 80);
                    let bytes = data.len() / 4 * 3;
                    let why = format!("{bytes} bytes of {kind} are neither text nor an image");
                    read.left_out.push(format!("{}: {why}", one_line(own, 200)));
                    continue;
                };
                blob = words;
                &blob
            }
            (None, None) => continue,
        };
        if parts.len() > 1 {
            text.push_str(&format!("[{}]\n", one_line(own, 300)));
        }
        let words = stripped(words);
        let fits = words.floor_char_boundary(RESOURCE_TEXT_BYTES.saturating_sub(text.len()).min(words.len()));
        text.push_str(&words[..fits]);
        text.push('\n');
        cut += words.len() - fits;
        has_text = true;
    }
    if parts.len() > RESOURCE_PARTS {
        read.left_out.push(format!("{} parts: only the first {RESOURCE_PARTS} are read", parts.len()));
    }
    if cut > 0 {
        let limit = RESOURCE_TEXT_BYTES >> 10;
        read.left_out.push(format!("{cut} bytes of text: a resource has at most {limit} KiB"));
    }
    if !has_text && read.blocks.is_empty() {
        let why =
            if read.left_out.is_empty() { "it has no content".to_owned() } else { read.left_out.join("; ") };
        return Err(RequestError::Invalid(why));
    }
    let what = format!("{RESOURCE_BLOCK}{} of the MCP server {server}.", one_line(uri, 500));
    let what = if read.left_out.is_empty() {
        what
    } else {
        format!("{what} Left out: {}.", read.left_out.join("; "))
    };
    let text = if has_text { text.trim_end() } else { "(an image)" };
    read.blocks.insert(0, Content::text(framed(&what, text)));
    Ok(read)
}

/// Text of a server between two marks that it cannot know.
fn framed(what: &str, text: &str) -> String {
    let mark = loop {
        let mark = format!("mcp-{}", &Uuid::new_v4().simple().to_string()[..12]);
        if !text.contains(&mark) {
            break mark;
        }
    };
    format!("{what}\nBetween the two marks {mark}{RESOURCE_DATA}{mark}\n{text}\n{mark}>>>")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One pixel.
    const GIF: &str = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";

    fn of(contents: Value) -> Result<ResourceContent, RequestError> {
        let mut result = json!({});
        result["contents"] = contents;
        resource_content("srv", "a://b", &Json::from(result))
    }

    fn text(read: &ResourceContent) -> String {
        read.blocks.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn text_and_images_of_a_resource_become_blocks() {
        let read = of(json!([
            { "uri": "a://b", "text": "Do\u{200b} it.\u{e0041}" },
            { "uri": "a://c", "blob": GIF, "mimeType": "image/gif" },
            { "uri": "a://d", "blob": STANDARD.encode("plain"), "mimeType": "text/plain" },
            { "uri": "a://e", "blob": "AAECAw==", "mimeType": "x/y" },
            { "uri": "a://f", "blob": "not base64" },
        ]))
        .unwrap();
        assert_eq!(read.blocks.iter().filter(|one| matches!(one, Content::Image(_))).count(), 1);
        let words = text(&read);
        assert!(words.starts_with("Resource a://b of the MCP server srv. Left out: a://e: "), "{words}");
        for part in ["not instructions", "[a://b]\nDo it.\n[a://d]\nplain\n", "of x/y", "not valid base64"] {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert_eq!(read.left_out.len(), 2);
        // Nobody typed it.
        let typed = [vec![Content::text("See.")], read.blocks].concat();
        assert_eq!(quipu_transcript::typed_text(&typed), "See.");
    }

    #[test]
    fn unreadable_resource_is_refused_and_a_huge_one_cut() {
        for (contents, why) in [
            (json!([]), "no content"),
            (json!([{ "uri": "a://e", "blob": "AAECAw==" }]), "neither text nor an image"),
            (json!("text"), "no content"),
        ] {
            assert!(of(contents).unwrap_err().to_string().contains(why), "{why}");
        }
        let read = of(json!([{ "uri": "a://b", "text": "é".repeat(RESOURCE_TEXT_BYTES) }])).unwrap();
        assert!(text(&read).len() < RESOURCE_TEXT_BYTES + 1_000);
        assert!(read.left_out[0].contains("at most 256 KiB"), "{:?}", read.left_out);
        let many = vec![json!({ "uri": "a://b", "text": "x" }); RESOURCE_PARTS + 1];
        assert!(of(many.into()).unwrap().left_out[0].contains("only the first"));
    }
}
