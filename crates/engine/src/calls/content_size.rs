//! How much a content holds.

use quipu_protocol::Content;

/// Bytes of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ContentSize {
    /// Of everything but images.
    pub(crate) text: usize,
    /// Of images, as they are written (base64).
    pub(crate) images: usize,
}

impl ContentSize {
    pub(crate) fn of(content: &[Content]) -> Self {
        let mut size = Self::default();
        for block in content {
            match block {
                Content::Text(text) => size.text += text.text.len(),
                Content::Thinking(thinking) => size.text += thinking.thinking.len(),
                Content::ToolCall(call) => size.text += call.arguments.get().len(),
                Content::Image(image) => size.images += image.data.len(),
                Content::Other(json) => size.text += json.get().len(),
            }
        }
        size
    }

    pub(crate) fn of_text(text: &str) -> Self {
        Self { text: text.len(), images: 0 }
    }

    pub(crate) fn total(self) -> usize {
        self.text.saturating_add(self.images)
    }
}
