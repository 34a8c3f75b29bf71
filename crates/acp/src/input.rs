//! The blocks of a prompt as a message of the session.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quipu_protocol::{AuthorClass, Content, Origin, Provenance, UserInput};
use quipu_tools::image_blocks;

use crate::params::{ContentParams, ResourceParams};
use crate::wire::WireError;

/// Bytes of the text of one resource.
const RESOURCE: usize = 1 << 20;

/// How the text of a resource begins.
pub(crate) const RESOURCE_START: &str = "<resource uri=\"";

/// A prompt of a client: the message, and what a person typed of it.
#[derive(Debug, PartialEq)]
pub(crate) struct PromptInput {
    pub(crate) input: UserInput,
    pub(crate) typed: String,
}

/// Reads the blocks. Texts and links that follow each other are one text, as the person sees them.
///
/// # Errors
/// Where a block is not supported, or none has anything in it.
pub(crate) fn read(blocks: Vec<ContentParams>) -> Result<PromptInput, WireError> {
    let (mut content, mut typed) = (Vec::new(), String::new());
    let mut resources = Vec::new();
    for block in blocks {
        match block {
            ContentParams::Text { text } => {
                add_text(&mut content, &text);
                typed.push_str(&text);
            }
            ContentParams::ResourceLink { uri, name } => add_text(&mut content, &link(&uri, &name)),
            ContentParams::Image { data } => content.extend(image(&data)?),
            ContentParams::Resource { resource } => resources.push(resource),
            ContentParams::Unknown => {
                return Err(WireError::params(
                    "a prompt can have blocks of the types text, image, resource and resource_link",
                ));
            }
        }
    }
    let mut input = UserInput::new(content);
    for resource in resources {
        add_resource(&mut input, resource)?;
    }
    if input.content.iter().all(|block| block.as_text().is_some_and(|text| text.trim().is_empty())) {
        return Err(WireError::params("the prompt is empty"));
    }
    Ok(PromptInput { input, typed })
}

fn add_text(content: &mut Vec<Content>, text: &str) {
    match content.last_mut() {
        Some(Content::Text(last)) => last.text.push_str(text),
        _ => content.push(Content::text(text)),
    }
}

/// A link as text: a file by its path, which tools take.
fn link(uri: &str, name: &str) -> String {
    match uri.strip_prefix("file://") {
        Some(path) => format!("`{}`", decoded(path)),
        None => format!("[{name}]({uri})"),
    }
}

/// A path without the escapes of its address.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| path.to_owned())
}

fn image(data: &str) -> Result<Vec<Content>, WireError> {
    let bytes = STANDARD.decode(data.trim().as_bytes());
    let bytes = bytes.map_err(|error| WireError::params(format!("an image is not base64: {error}")))?;
    image_blocks(&bytes)
        .ok_or_else(|| WireError::params("an image is none that models take: PNG, JPEG, GIF, WebP or BMP"))
}

/// Adds a resource: data that the person attached, and did not write.
fn add_resource(input: &mut UserInput, resource: ResourceParams) -> Result<(), WireError> {
    let ResourceParams { uri, text, blob } = resource;
    let source = Provenance::new(Origin::Person, AuthorClass::Untrusted).named(uri.clone());
    match (text, blob) {
        (Some(text), _) => {
            let cut = text.floor_char_boundary(RESOURCE);
            let note = if cut < text.len() { "\n[The rest is left out.]" } else { "" };
            input.add(format!("{RESOURCE_START}{uri}\">\n{}{note}\n</resource>", &text[..cut]), source);
        }
        (None, Some(blob)) => match image(&blob) {
            Ok(blocks) => input.content.extend(blocks),
            Err(_) => input.add(format!("[{uri} is left out: it is neither text nor an image.]"), source),
        },
        (None, None) => return Err(WireError::params("a resource has neither `text` nor `blob`")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn blocks(value: Value) -> Vec<ContentParams> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn texts_and_links_are_one_text_and_resources_stand_apart() {
        let read = read(blocks(json!([
            { "type": "text", "text": "Look at " },
            { "type": "resource_link", "uri": "file:///work/a%20b.rs", "name": "a b.rs" },
            { "type": "text", "text": " please" },
            { "type": "resource", "resource": { "uri": "file:///work/c.rs", "text": "fn c() {}" } },
        ])))
        .unwrap();
        assert_eq!(read.input.own_text(), "Look at `/work/a b.rs` please");
        assert_eq!(read.typed, "Look at  please");
        assert!(read.input.text().contains("<resource uri=\"file:///work/c.rs\">\nfn c() {}"));
        assert_eq!(read.input.added.len(), 1);
    }

    #[test]
    fn blocks_that_cannot_be_used_are_refused() {
        let check = |value: Value, why: &str| {
            let error = read(blocks(value)).unwrap_err();
            assert!(error.message.contains(why), "{}", error.message);
        };
        check(json!([]), "empty");
        check(json!([{ "type": "text", "text": " " }]), "empty");
        check(json!([{ "type": "audio", "data": "", "mimeType": "audio/wav" }]), "types text, image");
        check(json!([{ "type": "image", "data": "!", "mimeType": "image/png" }]), "base64");
        check(json!([{ "type": "image", "data": "aGVsbG8=", "mimeType": "image/png" }]), "models take");
        check(json!([{ "type": "resource", "resource": { "uri": "x" } }]), "neither");
    }
}
