//! What a tool of a server answered, as a result: bounded text and images.

use quipu_protocol::{Content, ImageContent, Json};
use quipu_tools::ToolOutput;
use serde_json::Value;

use crate::limits::{RESULT_BLOCKS, RESULT_IMAGE_BYTES, RESULT_TEXT_BYTES};
use crate::visible::{one_line, stripped};

/// The result of `tools/call`.
pub(crate) fn output(result: &Json) -> ToolOutput {
    let value: Value = match result.read() {
        Ok(value) => value,
        Err(error) => return ToolOutput::error(format!("The result of the server is not valid: {error}")),
    };
    let mut blocks = Blocks::default();
    let content = value["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    for block in content.iter().take(RESULT_BLOCKS) {
        blocks.add(block);
    }
    if content.len() > RESULT_BLOCKS {
        blocks.text(&format!("[{} more blocks were left out]", content.len() - RESULT_BLOCKS));
    }
    let structured = value.get("structuredContent").filter(|value| !value.is_null());
    if let Some(structured) = structured
        && blocks.is_empty()
    {
        blocks.text(&structured.to_string());
    }
    let mut output = blocks.output();
    output.is_error = value["isError"].as_bool().unwrap_or(false);
    output
}

#[derive(Default)]
struct Blocks {
    content: Vec<Content>,
    text: String,
    /// Bytes of text that were cut.
    cut: usize,
    total: usize,
    images: usize,
}

impl Blocks {
    fn is_empty(&self) -> bool {
        self.content.is_empty() && self.text.is_empty()
    }

    fn text(&mut self, text: &str) {
        let text = stripped(text);
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let room = RESULT_TEXT_BYTES.saturating_sub(self.total);
        let fits = text.floor_char_boundary(room.min(text.len()));
        self.text.push_str(&text[..fits]);
        self.total += fits;
        self.cut += text.len() - fits;
    }

    fn add(&mut self, block: &Value) {
        let words = |value: &Value| one_line(value.as_str().unwrap_or_default(), 300);
        match block["type"].as_str().unwrap_or_default() {
            "text" => self.text(block["text"].as_str().unwrap_or_default()),
            "image" => self.image(block),
            "resource" => {
                let resource = &block["resource"];
                match resource["text"].as_str() {
                    Some(text) => {
                        self.text(&format!("[resource {}]", words(&resource["uri"])));
                        self.text(text);
                    }
                    None => {
                        let bytes = resource["blob"].as_str().map_or(0, str::len) / 4 * 3;
                        let (uri, kind) = (words(&resource["uri"]), words(&resource["mimeType"]));
                        self.text(&format!("[resource {uri} {kind}: {bytes} bytes that are not text]"));
                    }
                }
            }
            "resource_link" => {
                let (uri, name) = (words(&block["uri"]), words(&block["name"]));
                self.text(&format!("[link to the resource {name}: {uri}]"));
            }
            "audio" => {
                self.text(&format!("[audio {}: models are not sent audio]", words(&block["mimeType"])));
            }
            other => self.text(&format!("[a block of the unknown type {:?}]", one_line(other, 40))),
        }
    }

    fn image(&mut self, block: &Value) {
        let (data, mime_type) = (block["data"].as_str(), block["mimeType"].as_str().unwrap_or_default());
        let known = matches!(mime_type, "image/png" | "image/jpeg" | "image/gif" | "image/webp");
        let data = data.filter(|data| {
            known && data.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))
        });
        match data {
            Some(data) if self.images + data.len() <= RESULT_IMAGE_BYTES => {
                self.images += data.len();
                self.end_text();
                let image = ImageContent { data: data.to_owned(), mime_type: mime_type.to_owned() };
                self.content.push(Content::Image(image));
            }
            Some(_) => {
                let limit = RESULT_IMAGE_BYTES >> 20;
                self.text(&format!("[an image was left out: images of a result have at most {limit} MiB]"));
            }
            None => self.text(&format!("[an image of the type {:?} was left out]", one_line(mime_type, 40))),
        }
    }

    fn end_text(&mut self) {
        if !self.text.is_empty() {
            self.content.push(Content::text(std::mem::take(&mut self.text)));
        }
    }

    fn output(mut self) -> ToolOutput {
        if self.cut > 0 {
            let (cut, limit) = (self.cut, RESULT_TEXT_BYTES >> 10);
            self.text.push_str(&format!(
                "\n\n[{cut} bytes of text were left out: the text of a result of an MCP server has at most {limit} KiB]"
            ));
        }
        self.end_text();
        ToolOutput { content: self.content, ..ToolOutput::default() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(output: &ToolOutput) -> String {
        output.content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn each_type_of_content_becomes_text_or_an_image() {
        let result = output(&Json::from(json!({ "isError": true, "content": [
            { "type": "text", "text": "one\u{200b}\u{1b}[31m" },
            { "type": "image", "data": "iVBO", "mimeType": "image/png" },
            { "type": "image", "data": "iVBO", "mimeType": "image/tiff" },
            { "type": "audio", "data": "", "mimeType": "audio/wav" },
            { "type": "resource", "resource": { "uri": "a://b", "text": "body" } },
            { "type": "resource", "resource": { "uri": "a://c", "blob": "AAAA", "mimeType": "x/y" } },
            { "type": "resource_link", "uri": "a://d", "name": "d" },
            { "type": "dance" },
        ]})));
        assert!(result.is_error);
        assert_eq!(result.content.iter().filter(|one| matches!(one, Content::Image(_))).count(), 1);
        let text = texts(&result);
        assert!(text.starts_with("one[31m|"), "{text}");
        for part in ["image/tiff", "audio/wav", "[resource a://b]\nbody", "3 bytes", "a://d", "dance"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn structured_content_counts_where_there_is_no_text() {
        let both = json!({ "content": [{ "type": "text", "text": "t" }], "structuredContent": { "a": 1 } });
        assert_eq!(texts(&output(&Json::from(both))), "t");
        assert_eq!(texts(&output(&Json::from(json!({ "structuredContent": { "a": 1 } })))), "{\"a\":1}");
        assert!(output(&Json::known("7")).content.is_empty());
    }

    #[test]
    fn long_results_are_cut_with_a_word_about_it() {
        let long = json!({ "content": [{ "type": "text", "text": "é".repeat(40_000) }, { "type": "text", "text": "end" }] });
        let text = texts(&output(&Json::from(long)));
        assert!(
            text.len() < RESULT_TEXT_BYTES + 200 && text.contains("28803 bytes of text were left out"),
            "{}",
            text.len()
        );
        let many: Vec<_> = (0..5_000).map(|_| json!({ "type": "text", "text": "x" })).collect();
        assert!(texts(&output(&Json::from(json!({ "content": many })))).contains("4000 more blocks"));
        let image = json!({ "type": "image", "data": "A".repeat(6 << 20), "mimeType": "image/png" });
        let images = output(&Json::from(json!({ "content": [image, image] })));
        assert!(texts(&images).contains("at most 8 MiB"));
    }
}
