//! The text of a page: what its operators show, in their order, with spaces and line breaks by where it is shown.

use std::collections::HashMap;
use std::rc::Rc;

use super::file::{Page, PdfFile};
use super::fonts::Font;
use super::limits::{Budget, PdfError, VALUES};
use super::object::{Dict, Object, Parser, is_space};

/// How deep drawings may stand in drawings.
const FORMS: usize = 8;
/// Operands that an operator has at most.
const OPERANDS: usize = 4096;
/// States that are saved at most.
const SAVED: usize = 512;
/// Bytes of the text of a page.
pub(super) const PAGE_TEXT: usize = 1 << 20;

/// A matrix without its constant column.
type Matrix = [f64; 6];

const UNIT: Matrix = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0];

/// First `a`, then `b`.
fn times(a: &Matrix, b: &Matrix) -> Matrix {
    let [a0, a1, a2, a3, a4, a5] = *a;
    let [b0, b1, b2, b3, b4, b5] = *b;
    [
        a0 * b0 + a1 * b2,
        a0 * b1 + a1 * b3,
        a2 * b0 + a3 * b2,
        a2 * b1 + a3 * b3,
        a4 * b0 + a5 * b2 + b4,
        a4 * b1 + a5 * b3 + b5,
    ]
}

/// What saving keeps.
#[derive(Debug, Clone)]
struct State {
    ctm: Matrix,
    font: Rc<Font>,
    size: f64,
    char_space: f64,
    word_space: f64,
    scale: f64,
    leading: f64,
}

/// The text of a page, growing.
#[derive(Debug, Default)]
pub(super) struct PageText {
    pub(super) text: String,
    /// Characters of fonts that do not say what they are.
    pub(super) unknown: usize,
    /// There was more than a page may have.
    pub(super) is_cut: bool,
    /// Where the last character ended, and the size of it.
    last: Option<(f64, f64, f64)>,
}

impl PageText {
    /// Something is shown at a place, in a size.
    fn moved(&mut self, x: f64, y: f64, size: f64) {
        let Some((last_x, last_y, last_size)) = self.last else { return };
        let size = size.max(last_size).max(0.001);
        let down = (last_y - y).abs();
        if down > size * 1.9 {
            self.line_end();
            self.text.push('\n');
        } else if down > size * 0.6 {
            self.line_end();
        } else if (x - last_x > size * 0.2 || last_x - x > size * 1.5)
            && !self.text.ends_with([' ', '\n'])
            && !self.text.is_empty()
        {
            self.text.push(' ');
        }
    }

    fn line_end(&mut self) {
        self.text.truncate(self.text.trim_end_matches(' ').len());
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    fn show(&mut self, text: Option<&str>) {
        match text {
            _ if self.text.len() > PAGE_TEXT => self.is_cut = true,
            Some(text) => {
                self.text.extend(text.chars().filter(|char| !char.is_control()).flat_map(unligated));
            }
            None => {
                self.unknown += 1;
                self.text.push('\u{fffd}');
            }
        }
    }
}

/// The letters of a ligature, which is hard to search for.
fn unligated(char: char) -> impl Iterator<Item = char> {
    let letters = match char {
        '\u{fb00}' => "ff",
        '\u{fb01}' => "fi",
        '\u{fb02}' => "fl",
        '\u{fb03}' => "ffi",
        '\u{fb04}' => "ffl",
        _ => "",
    };
    letters.chars().chain(letters.is_empty().then_some(char))
}

/// Reads pages.
#[derive(Debug)]
pub(super) struct Reader<'a, 'f> {
    file: &'a PdfFile<'f>,
    fonts: HashMap<u32, Rc<Font>>,
}

impl<'a, 'f> Reader<'a, 'f> {
    pub(super) fn new(file: &'a PdfFile<'f>) -> Self {
        Self { file, fonts: HashMap::new() }
    }

    /// The text of a page.
    pub(super) fn page(&mut self, page: &Page, budget: &mut Budget<'_>) -> Result<PageText, PdfError> {
        let mut content = Vec::new();
        let (members, resources) = self.file.page(page, budget)?;
        let mut parts = match members.get("Contents") {
            None => Vec::new(),
            Some(contents @ Object::Ref(_)) => match self.file.resolve(contents, budget)? {
                Object::Array(parts) => parts,
                _ => vec![contents.clone()],
            },
            Some(Object::Array(parts)) => parts.clone(),
            Some(_) => Vec::new(),
        };
        parts.truncate(OPERANDS);
        for part in parts {
            let Object::Ref(id) = part else { continue };
            if let Some((_, Some(data))) = self.file.stream(id, budget)? {
                content.extend_from_slice(&data);
                content.push(b'\n');
            }
        }
        let mut text = PageText::default();
        let state = State {
            ctm: UNIT,
            font: Rc::default(),
            size: 1.0,
            char_space: 0.0,
            word_space: 0.0,
            scale: 1.0,
            leading: 0.0,
        };
        self.run(&content, &resources, state, 0, &mut text, budget)?;
        text.text.truncate(text.text.trim_end().len());
        Ok(text)
    }

    fn run(
        &mut self,
        content: &[u8],
        resources: &Dict,
        mut state: State,
        depth: usize,
        out: &mut PageText,
        budget: &mut Budget<'_>,
    ) -> Result<(), PdfError> {
        let mut parser = Parser::new(content, 0);
        let (mut operands, mut values) = (Vec::new(), 0);
        let mut saved: Vec<State> = Vec::new();
        let (mut tm, mut line) = (UNIT, UNIT);
        while let Some(item) = parser.object(budget)? {
            let Object::Word(operator) = &item else {
                values += parser.values;
                if operands.len() < OPERANDS && values < VALUES {
                    operands.push(item);
                }
                continue;
            };
            let number = |at: usize| operands.get(at).and_then(Object::number).unwrap_or(0.0);
            match &**operator {
                "q" if saved.len() < SAVED => saved.push(state.clone()),
                "Q" => state = saved.pop().unwrap_or(state),
                "cm" => state.ctm = times(&std::array::from_fn(number), &state.ctm),
                "BT" => (tm, line) = (UNIT, UNIT),
                "Tf" => {
                    if let Some(name) = operands.first().and_then(Object::name) {
                        state.font = self.font(resources, name, budget)?;
                    }
                    state.size = number(1);
                }
                "Tc" => state.char_space = number(0),
                "Tw" => state.word_space = number(0),
                "Tz" => state.scale = number(0) / 100.0,
                "TL" => state.leading = number(0),
                "Td" | "TD" => {
                    if &**operator == "TD" {
                        state.leading = -number(1);
                    }
                    line = times(&[1.0, 0.0, 0.0, 1.0, number(0), number(1)], &line);
                    tm = line;
                }
                "Tm" => {
                    line = std::array::from_fn(number);
                    tm = line;
                }
                "T*" => {
                    line = times(&[1.0, 0.0, 0.0, 1.0, 0.0, -state.leading], &line);
                    tm = line;
                }
                "Tj" | "TJ" => {
                    if let Some(text) = operands.last() {
                        show(text, &state, &mut tm, out, budget)?;
                    }
                }
                "'" | "\"" => {
                    if &**operator == "\"" {
                        (state.word_space, state.char_space) = (number(0), number(1));
                    }
                    line = times(&[1.0, 0.0, 0.0, 1.0, 0.0, -state.leading], &line);
                    tm = line;
                    if let Some(text) = operands.last() {
                        show(text, &state, &mut tm, out, budget)?;
                    }
                }
                "Do" if depth < FORMS => {
                    if let Some(name) = operands.first().and_then(Object::name) {
                        self.form(name, resources, &state, depth, out, budget)?;
                    }
                }
                "ID" => skip_image(&mut parser),
                _ => {}
            }
            operands.clear();
            values = 0;
            if out.is_cut {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A drawing that stands in another one.
    fn form(
        &mut self,
        name: &str,
        resources: &Dict,
        state: &State,
        depth: usize,
        out: &mut PageText,
        budget: &mut Budget<'_>,
    ) -> Result<(), PdfError> {
        let forms = self.file.dict(resources, "XObject", budget)?;
        let Some(Object::Ref(id)) = forms.get(name) else { return Ok(()) };
        // Images are large, and are not unpacked.
        let Object::Dict(members) = self.file.resolve(&Object::Ref(*id), budget)? else { return Ok(()) };
        if members.get("Subtype").and_then(Object::name) != Some("Form") {
            return Ok(());
        }
        let Some((_, Some(data))) = self.file.stream(*id, budget)? else { return Ok(()) };
        let mut state = state.clone();
        if let Object::Array(matrix) = self.file.member(&members, "Matrix", budget)? {
            let number = |at: usize| matrix.get(at).and_then(Object::number).unwrap_or(0.0);
            state.ctm = times(&std::array::from_fn(number), &state.ctm);
        }
        let own = self.file.dict(&members, "Resources", budget)?;
        let resources = if own.is_empty() { resources } else { &own };
        self.run(&data, resources, state, depth + 1, out, budget)
    }

    fn font(&mut self, resources: &Dict, name: &str, budget: &mut Budget<'_>) -> Result<Rc<Font>, PdfError> {
        let fonts = self.file.dict(resources, "Font", budget)?;
        let id = match fonts.get(name) {
            Some(Object::Ref(id)) => Some(*id),
            _ => None,
        };
        if let Some(font) = id.and_then(|id| self.fonts.get(&id)) {
            return Ok(font.clone());
        }
        let members = self.file.dict(&fonts, name, budget)?;
        let font = Rc::new(Font::of(self.file, &members, budget)?);
        if let Some(id) = id {
            self.fonts.insert(id, font.clone());
        }
        Ok(font)
    }
}

/// Shows a text, or texts with what lies between them.
fn show(
    shown: &Object,
    state: &State,
    tm: &mut Matrix,
    out: &mut PageText,
    budget: &mut Budget<'_>,
) -> Result<(), PdfError> {
    let items = match shown {
        Object::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    for item in items {
        match item {
            Object::Number(back) => {
                let x = -back / 1000.0 * state.size * state.scale;
                *tm = times(&[1.0, 0.0, 0.0, 1.0, x, 0.0], tm);
            }
            Object::Text(text) => {
                for glyph in state.font.glyphs(text) {
                    budget.step()?;
                    let at = times(tm, &state.ctm);
                    // How high a line of this size is on the page.
                    let size = state.size.abs() * at[2].hypot(at[3]);
                    out.moved(at[4], at[5], size);
                    if glyph.is_blank && out.text.ends_with([' ', '\n']) {
                        // One is enough.
                    } else {
                        out.show(glyph.text.as_deref());
                    }
                    let space = if glyph.is_blank { state.word_space } else { 0.0 };
                    let x = (glyph.width / 1000.0 * state.size + state.char_space + space) * state.scale;
                    *tm = times(&[1.0, 0.0, 0.0, 1.0, x, 0.0], tm);
                    let end = times(tm, &state.ctm);
                    out.last = Some((end[4], end[5], size));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Passes over the data of an image that stands between the operators.
fn skip_image(parser: &mut Parser<'_>) {
    let rest = parser.rest();
    let ends = |at: usize| {
        let before = at.checked_sub(1).and_then(|at| rest.get(at)).is_none_or(|byte| is_space(*byte));
        before && rest.get(at + 2).is_none_or(|byte| is_space(*byte))
    };
    let end = memchr::memmem::find_iter(rest, b"EI").find(|at| ends(*at));
    parser.at += end.map_or(rest.len(), |at| at + 2);
}
