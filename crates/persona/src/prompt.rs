//! A prompt: its text, where each section is, and where the cache boundary is.

use crate::inputs::PersonaInputs;
use crate::sections::{PersonaSection, Stability, sections};

/// What stands between two sections.
const BETWEEN: &str = "\n\n";

/// A section, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedSection {
    /// The byte of the prompt at which it begins.
    pub start: usize,
    /// The section.
    pub section: PersonaSection,
}

/// A prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonaPrompt {
    /// All of it.
    pub text: String,
    /// Bytes of it before the cache boundary: they are the same as long as the stable inputs are.
    pub boundary: usize,
    /// Its sections, in their order.
    pub sections: Vec<PlacedSection>,
}

/// The prompt of these inputs. The same inputs give the same bytes.
///
/// ```
/// use quipu_persona::{PersonaInputs, render};
///
/// let inputs = PersonaInputs { runtime: vec![("os".into(), "Linux".into())], ..PersonaInputs::default() };
/// let (one, other) = (render(&inputs), render(&PersonaInputs { runtime: Vec::new(), ..inputs.clone() }));
/// assert_eq!(one.text[..one.boundary], other.text[..other.boundary]);
/// assert!(one.text[one.boundary..].contains("os=Linux"));
/// ```
#[must_use]
pub fn render(inputs: &PersonaInputs) -> PersonaPrompt {
    let mut prompt = PersonaPrompt { text: String::new(), boundary: 0, sections: Vec::new() };
    for section in sections(inputs) {
        if !prompt.text.is_empty() {
            prompt.text.push_str(BETWEEN);
        }
        let start = prompt.text.len();
        prompt.text.push_str(&section.text);
        if section.stability == Stability::Stable {
            prompt.boundary = prompt.text.len();
        }
        prompt.sections.push(PlacedSection { start, section });
    }
    prompt
}
