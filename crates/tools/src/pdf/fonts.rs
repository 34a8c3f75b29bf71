//! Which characters the codes of a font are, and how wide.

use std::collections::BTreeMap;

use super::file::PdfFile;
use super::glyphs::{mac_roman, of_name, standard, win_ansi};
use super::limits::{Budget, PdfError, VALUES};
use super::object::{Dict, Object, Parser};

/// How codes become characters.
#[derive(Debug)]
pub(super) struct Font {
    /// Bytes of a code.
    bytes: usize,
    /// By the file's own table: first code, last code, the characters of the first.
    table: BTreeMap<u32, (u32, String)>,
    /// Of fonts with one byte a code.
    names: BTreeMap<u32, String>,
    base: fn(u8) -> Option<char>,
    /// Codes are characters.
    is_utf16: bool,
    /// First code, last code, the width of each.
    widths: BTreeMap<u32, (u32, f64)>,
    width: Option<f64>,
}

/// A code of a text.
#[derive(Debug)]
pub(super) struct Glyph {
    /// What it is; nothing where that is not known.
    pub(super) text: Option<String>,
    /// In thousandths of the size.
    pub(super) width: f64,
    /// The single byte 32, which may be stretched.
    pub(super) is_blank: bool,
}

impl Default for Font {
    fn default() -> Self {
        Self {
            bytes: 1,
            table: BTreeMap::new(),
            names: BTreeMap::new(),
            base: win_ansi,
            is_utf16: false,
            widths: BTreeMap::new(),
            width: None,
        }
    }
}

impl Font {
    pub(super) fn of(file: &PdfFile<'_>, members: &Dict, budget: &mut Budget<'_>) -> Result<Self, PdfError> {
        let mut font = Self::default();
        if let Some(Object::Ref(id)) = members.get("ToUnicode")
            && let Some((_, Some(data))) = file.stream(*id, budget)?
        {
            font.table = unicode_table(&data, budget)?;
        }
        match members.get("Subtype").and_then(Object::name) {
            Some("Type0") => font.composite(file, members, budget)?,
            kind => font.simple(file, members, kind, budget)?,
        }
        Ok(font)
    }

    fn simple(
        &mut self,
        file: &PdfFile<'_>,
        members: &Dict,
        kind: Option<&str>,
        budget: &mut Budget<'_>,
    ) -> Result<(), PdfError> {
        if kind == Some("Type1") {
            self.base = standard;
        }
        let named = |name: Option<&str>| -> Option<fn(u8) -> Option<char>> {
            match name? {
                "WinAnsiEncoding" => Some(win_ansi),
                "MacRomanEncoding" => Some(mac_roman),
                "StandardEncoding" => Some(standard),
                _ => None,
            }
        };
        match file.member(members, "Encoding", budget)? {
            Object::Dict(encoding) => {
                self.base = named(encoding.get("BaseEncoding").and_then(Object::name)).unwrap_or(self.base);
                if let Object::Array(items) = file.member(&encoding, "Differences", budget)? {
                    let mut code = 0_u32;
                    for item in &items {
                        budget.entry()?;
                        if let Some(next) = item.count() {
                            code = u32::try_from(next).unwrap_or(u32::MAX);
                        } else if let Some(name) = item.name() {
                            if let Some(text) = of_name(name) {
                                self.names.insert(code, text);
                            }
                            code = code.saturating_add(1);
                        }
                    }
                }
            }
            encoding => self.base = named(encoding.name()).unwrap_or(self.base),
        }
        let first = file.member(members, "FirstChar", budget)?.count().unwrap_or(0);
        if let Object::Array(widths) = file.member(members, "Widths", budget)? {
            for (code, width) in widths.iter().take(256).enumerate() {
                if let Some(width) = file.resolve(width, budget)?.number() {
                    let code = u32::try_from(first + code).unwrap_or(u32::MAX);
                    self.widths.insert(code, (code, width));
                }
            }
        }
        // Widths of such a font are in units of its own matrix.
        if kind == Some("Type3") {
            self.widths.clear();
        }
        Ok(())
    }

    fn composite(
        &mut self,
        file: &PdfFile<'_>,
        members: &Dict,
        budget: &mut Budget<'_>,
    ) -> Result<(), PdfError> {
        self.bytes = 2;
        let encoding = file.member(members, "Encoding", budget)?;
        self.is_utf16 = encoding.name().is_some_and(|name| name.contains("UCS2") || name.contains("UTF16"));
        let Object::Array(descendants) = file.member(members, "DescendantFonts", budget)? else {
            return Ok(());
        };
        let Some(descendant) = descendants.first() else { return Ok(()) };
        let Object::Dict(descendant) = file.resolve(descendant, budget)? else { return Ok(()) };
        self.width = Some(file.member(&descendant, "DW", budget)?.number().unwrap_or(1000.0));
        let Object::Array(widths) = file.member(&descendant, "W", budget)? else { return Ok(()) };
        let mut items = widths.iter();
        while let Some(first) = items.next().and_then(Object::count) {
            let first = u32::try_from(first).unwrap_or(u32::MAX);
            let Some(next) = items.next() else { break };
            match file.resolve(next, budget)? {
                Object::Array(list) => {
                    for (code, width) in (first..).zip(&list) {
                        budget.entry()?;
                        if let Some(width) = width.number() {
                            self.widths.insert(code, (code, width));
                        }
                    }
                }
                last => {
                    let (Some(last), Some(width)) = (last.count(), items.next().and_then(Object::number))
                    else {
                        break;
                    };
                    budget.entry()?;
                    self.widths.insert(first, (u32::try_from(last).unwrap_or(u32::MAX), width));
                }
            }
        }
        Ok(())
    }

    /// The codes of a text.
    pub(super) fn glyphs(&self, text: &[u8]) -> impl Iterator<Item = Glyph> {
        text.chunks(self.bytes).map(|code| {
            let number = code.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
            let text = self.text(number);
            let width = self.widths.range(..=number).next_back().filter(|(_, (last, _))| number <= *last);
            let width = width.map(|(_, (_, width))| *width).or(self.width);
            let width = width.unwrap_or_else(|| guessed_width(text.as_deref()));
            Glyph { text, width, is_blank: self.bytes == 1 && number == 32 }
        })
    }

    fn text(&self, code: u32) -> Option<String> {
        if let Some((first, (last, text))) = self.table.range(..=code).next_back()
            && code <= *last
        {
            return Some(after(text, code - first));
        }
        if self.bytes == 1 {
            let of_base = || u8::try_from(code).ok().and_then(self.base).map(String::from);
            let blank = || matches!(code, 9 | 10 | 13).then(String::new);
            return self.names.get(&code).cloned().or_else(of_base).or_else(blank);
        }
        if self.is_utf16 { char::from_u32(code).map(String::from) } else { None }
    }
}

/// The characters of a code so far behind the one whose characters are known: the last one counts on.
fn after(text: &str, offset: u32) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    if let Some(last) = chars.last_mut() {
        *last = char::from_u32(u32::from(*last).saturating_add(offset)).unwrap_or(*last);
    }
    chars.into_iter().collect()
}

/// The width of a character in a font that does not say it, as in the fonts that every reader has.
fn guessed_width(text: Option<&str>) -> f64 {
    match text.and_then(|text| text.chars().next()) {
        Some('i' | 'j' | 'l' | '|' | '\'' | '.' | ',' | ':' | ';' | '!' | 'I' | 't' | 'f' | ' ' | '/') => {
            278.0
        }
        Some('m' | 'w' | 'M' | 'W' | '@') => 830.0,
        Some(char) if char.is_uppercase() => 690.0,
        _ => 540.0,
    }
}

fn unicode_table(data: &[u8], budget: &mut Budget<'_>) -> Result<BTreeMap<u32, (u32, String)>, PdfError> {
    let (mut table, mut parser) = (BTreeMap::new(), Parser::new(data, 0));
    let (mut operands, mut values) = (Vec::new(), 0);
    while let Some(item) = parser.object(budget)? {
        let Object::Word(word) = &item else {
            values += parser.values;
            // More than any operator takes.
            if values < VALUES {
                operands.push(item);
            }
            continue;
        };
        match &**word {
            "endbfchar" => {
                for pair in operands.chunks(2) {
                    if let [Object::Text(code), Object::Text(text)] = pair {
                        let code = number_of(code);
                        budget.entry()?;
                        table.insert(code, (code, utf16(text)));
                    }
                }
            }
            "endbfrange" => {
                for three in operands.chunks(3) {
                    let [Object::Text(first), Object::Text(last), target] = three else { continue };
                    let (first, last) = (number_of(first), number_of(last));
                    match target {
                        Object::Text(text) if last >= first => {
                            budget.entry()?;
                            table.insert(first, (last, utf16(text)));
                        }
                        Object::Array(items) => {
                            for (code, item) in (first..=last).zip(items) {
                                if let Object::Text(text) = item {
                                    budget.entry()?;
                                    table.insert(code, (code, utf16(text)));
                                }
                            }
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        operands.clear();
        values = 0;
    }
    Ok(table)
}

fn number_of(code: &[u8]) -> u32 {
    code.iter().take(4).fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn utf16(text: &[u8]) -> String {
    let units: Vec<u16> = text
        .chunks(2)
        .take(16)
        .map(|pair| match pair {
            [high, low] => u16::from_be_bytes([*high, *low]),
            other => other.first().map_or(0, |byte| u16::from(*byte)),
        })
        .collect();
    String::from_utf16_lossy(&units)
}
