//! The objects of a file, found by reading it from its beginning to its end: tables of where they are, which damaged files have
//! wrong, are not used.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use super::filters::{data_start, unpack};
use super::limits::{Budget, DEPTH, PAGES, PdfError};
use super::object::{Dict, Object, Parser, is_space};

/// Objects of a file.
const OBJECTS: usize = 1_000_000;

/// Where an object stands.
#[derive(Debug, Clone)]
enum Place {
    /// In the file; the bytes of its stream, if it has one.
    File(usize, Option<Range<usize>>),
    /// In an unpacked stream of objects.
    Packed(Rc<Vec<u8>>, usize),
}

/// An object, and its stream where it has one.
type FoundObject<S> = (Object, Option<S>);

/// The bytes and where its objects are.
#[derive(Debug)]
pub(super) struct PdfFile<'a> {
    bytes: &'a [u8],
    /// By number, with the place in the file that decides which of two counts.
    places: BTreeMap<u32, (usize, Place)>,
    root: Option<u32>,
    /// Objects that call themselves pages, in the order of the file.
    loose_pages: Vec<u32>,
}

/// A page: its object, and the resources of the nodes above it.
#[derive(Debug, Clone)]
pub(super) struct Page {
    id: u32,
    inherited: Rc<Object>,
}

impl<'a> PdfFile<'a> {
    pub(super) fn open(bytes: &'a [u8], budget: &mut Budget<'_>) -> Result<Self, PdfError> {
        let mut file = Self { bytes, places: BTreeMap::new(), root: None, loose_pages: Vec::new() };
        let packs = file.scan(budget)?;
        for (number, at) in packs {
            file.unpack_objects(number, at, budget)?;
        }
        Ok(file)
    }

    /// Finds `N G obj`, and gives the streams that hold more objects.
    fn scan(&mut self, budget: &mut Budget<'_>) -> Result<Vec<(u32, usize)>, PdfError> {
        let mut packs = Vec::new();
        let mut at = 0;
        while let Some(found) = memchr::memmem::find(self.bytes.get(at..).unwrap_or_default(), b"obj") {
            let word = at + found;
            at = word + 3;
            let Some(id) = id_before(self.bytes, word) else { continue };
            let mut parser = Parser::new(self.bytes, at);
            let Some(object) = parser.object(budget)? else { break };
            let begins = word + 3;
            at = parser.at.max(at);
            let mut stream = None;
            if let Object::Dict(members) = &object {
                let mut ahead = parser.clone();
                if ahead.object(budget)?.is_some_and(|next| next.is_word("stream")) {
                    let from = data_start(self.bytes, ahead.at);
                    let to = self.stream_end(from, members, budget)?;
                    stream = Some(from..to);
                    at = to;
                }
                self.note(id, members, stream.is_some());
                if stream.is_some() && members.get("Type").and_then(Object::name) == Some("ObjStm") {
                    packs.push((id, word));
                }
                if members.contains_key("Encrypt") && stream.is_some() {
                    return Err(PdfError::Encrypted);
                }
            }
            if self.places.len() < OBJECTS {
                self.places.insert(id, (word, Place::File(begins, stream)));
            }
        }
        self.trailers(budget)?;
        Ok(packs)
    }

    /// What an object says of the file.
    fn note(&mut self, id: u32, members: &Dict, has_stream: bool) {
        match members.get("Type").and_then(Object::name) {
            Some("Catalog") => self.root = Some(id),
            Some("Page") if self.loose_pages.len() < PAGES => self.loose_pages.push(id),
            Some("XRef") if has_stream => {
                if let Some(Object::Ref(root)) = members.get("Root") {
                    self.root = Some(*root);
                }
            }
            _ => {}
        }
    }

    fn trailers(&mut self, budget: &mut Budget<'_>) -> Result<(), PdfError> {
        for at in memchr::memmem::find_iter(self.bytes, b"trailer").take(4096) {
            let mut parser = Parser::new(self.bytes, at + 7);
            let Some(Object::Dict(members)) = parser.object(budget)? else { continue };
            if members.contains_key("Encrypt") {
                return Err(PdfError::Encrypted);
            }
            if let Some(Object::Ref(root)) = members.get("Root") {
                self.root = Some(*root);
            }
        }
        Ok(())
    }

    /// Where the data of a stream ends: as long as it says, if it ends there, and else at the next word that ends one.
    fn stream_end(&self, from: usize, members: &Dict, budget: &mut Budget<'_>) -> Result<usize, PdfError> {
        let length = match members.get("Length") {
            // It mostly stands behind the stream, where it is not known yet.
            Some(Object::Ref(id)) => self.read(*id, budget)?.and_then(|(length, _)| length.count()),
            length => length.and_then(Object::count),
        };
        let ends = |to: &usize| {
            let mut parser = Parser::new(self.bytes, *to);
            parser.skip_space();
            parser.rest().starts_with(b"endstream")
        };
        if let Some(to) = length.and_then(|length| from.checked_add(length)).filter(ends) {
            return Ok(to);
        }
        let rest = self.bytes.get(from..).unwrap_or_default();
        Ok(memchr::memmem::find(rest, b"endstream").map_or(self.bytes.len(), |length| from + length))
    }

    /// Takes the objects of a stream of objects.
    fn unpack_objects(&mut self, number: u32, at: usize, budget: &mut Budget<'_>) -> Result<(), PdfError> {
        // One that a later one replaced holds nothing.
        if self.places.get(&number).is_none_or(|(there, _)| *there != at) {
            return Ok(());
        }
        let Some((Object::Dict(members), Some(data))) = self.stream(number, budget)? else { return Ok(()) };
        let count = members.get("N").and_then(Object::count).unwrap_or(0).min(OBJECTS);
        let first = members.get("First").and_then(Object::count).unwrap_or(0);
        let data = Rc::new(data);
        let mut header = Parser::new(&data, 0);
        for _ in 0..count {
            let (Some(id), Some(offset)) = (header.object(budget)?, header.object(budget)?) else { break };
            let id = id.count().and_then(|id| u32::try_from(id).ok());
            let (Some(id), Some(offset)) = (id, offset.count()) else { break };
            let is_newer = self.places.get(&id).is_none_or(|(there, _)| *there <= at);
            if is_newer && self.places.len() < OBJECTS {
                let begins = first.saturating_add(offset);
                if let Some(Object::Dict(members)) = Parser::new(&data, begins).object(budget)? {
                    self.note(id, &members, false);
                }
                self.places.insert(id, (at, Place::Packed(data.clone(), begins)));
            }
        }
        Ok(())
    }

    fn read(&self, id: u32, budget: &mut Budget<'_>) -> Result<Option<FoundObject<Range<usize>>>, PdfError> {
        let object = match self.places.get(&id) {
            None => None,
            Some((_, Place::File(at, stream))) => {
                Parser::new(self.bytes, *at).object(budget)?.map(|object| (object, stream.clone()))
            }
            Some((_, Place::Packed(data, at))) => {
                Parser::new(data, *at).object(budget)?.map(|object| (object, None))
            }
        };
        Ok(object)
    }

    /// What an object is, where it may be a reference.
    pub(super) fn resolve(&self, object: &Object, budget: &mut Budget<'_>) -> Result<Object, PdfError> {
        let mut object = object.clone();
        for _ in 0..DEPTH {
            let Object::Ref(id) = object else { return Ok(object) };
            object = self.read(id, budget)?.map_or(Object::Null, |(object, _)| object);
        }
        Ok(Object::Null)
    }

    /// A member of a dictionary, without a reference.
    pub(super) fn member(
        &self,
        members: &Dict,
        name: &str,
        budget: &mut Budget<'_>,
    ) -> Result<Object, PdfError> {
        members.get(name).map_or(Ok(Object::Null), |object| self.resolve(object, budget))
    }

    /// A member that is a dictionary; else an empty one.
    pub(super) fn dict(&self, members: &Dict, name: &str, budget: &mut Budget<'_>) -> Result<Dict, PdfError> {
        Ok(match self.member(members, name, budget)? {
            Object::Dict(members) => members,
            _ => Dict::new(),
        })
    }

    /// An object with what its stream holds.
    pub(super) fn stream(
        &self,
        id: u32,
        budget: &mut Budget<'_>,
    ) -> Result<Option<FoundObject<Vec<u8>>>, PdfError> {
        let Some((object, range)) = self.read(id, budget)? else { return Ok(None) };
        let (Object::Dict(members), Some(range)) = (&object, range) else { return Ok(Some((object, None))) };
        let mut packing = Dict::new();
        for name in ["Filter", "F", "DecodeParms", "DP"] {
            let value = match self.member(members, name, budget)? {
                Object::Array(items) => {
                    let items = items.iter().take(DEPTH).map(|item| self.resolve(item, budget));
                    Object::Array(items.collect::<Result<_, _>>()?)
                }
                value => value,
            };
            packing.insert(name.into(), value);
        }
        let data = unpack(self.bytes.get(range).unwrap_or_default(), &packing, budget)?;
        Ok(Some((object, data)))
    }

    /// The pages, in order. Where the tree of pages is lost, all that call themselves pages.
    pub(super) fn pages(&self, budget: &mut Budget<'_>) -> Result<Vec<Page>, PdfError> {
        let (mut pages, none) = (Vec::new(), Rc::new(Object::Null));
        if let Some(root) = self.root
            && let Object::Dict(catalog) = self.resolve(&Object::Ref(root), budget)?
            && let Some(top) = catalog.get("Pages")
        {
            self.collect(top, &none, &mut BTreeSet::new(), 0, &mut pages, budget)?;
        }
        if pages.is_empty() {
            pages.extend(self.loose_pages.iter().map(|id| Page { id: *id, inherited: none.clone() }));
        }
        Ok(pages)
    }

    fn collect(
        &self,
        node: &Object,
        inherited: &Rc<Object>,
        seen: &mut BTreeSet<u32>,
        depth: usize,
        pages: &mut Vec<Page>,
        budget: &mut Budget<'_>,
    ) -> Result<(), PdfError> {
        budget.step()?;
        let Object::Ref(id) = node else { return Ok(()) };
        if !seen.insert(*id) {
            return Ok(());
        }
        let Object::Dict(members) = self.resolve(node, budget)? else { return Ok(()) };
        match self.member(&members, "Kids", budget)? {
            Object::Array(kids) if depth < DEPTH => {
                let own = members.get("Resources").map(|own| Rc::new(own.clone()));
                let resources = own.as_ref().unwrap_or(inherited);
                for kid in &kids {
                    if pages.len() < PAGES {
                        self.collect(kid, resources, seen, depth + 1, pages, budget)?;
                    }
                }
            }
            Object::Array(_) => {}
            _ => pages.push(Page { id: *id, inherited: inherited.clone() }),
        }
        Ok(())
    }

    /// The members of a page, and its resources.
    pub(super) fn page(&self, page: &Page, budget: &mut Budget<'_>) -> Result<(Dict, Dict), PdfError> {
        let Object::Dict(members) = self.resolve(&Object::Ref(page.id), budget)? else {
            return Ok((Dict::new(), Dict::new()));
        };
        let own = self.dict(&members, "Resources", budget)?;
        if !own.is_empty() {
            return Ok((members, own));
        }
        match self.resolve(&page.inherited, budget)? {
            Object::Dict(inherited) => Ok((members, inherited)),
            _ => Ok((members, own)),
        }
    }
}

/// The number of the object whose `obj` is here.
fn id_before(bytes: &[u8], word: usize) -> Option<u32> {
    let before = bytes.get(word.saturating_sub(32)..word)?;
    let mut words = before.rsplit(|byte| is_space(*byte)).filter(|word| !word.is_empty());
    // Nothing stands between the generation and the word but blanks.
    let generation = words.next()?;
    let id = words.next()?;
    let digits = id.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let id = id.get(id.len() - digits..)?;
    if id.is_empty() || id.len() > 9 || !generation.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(id).ok()?.parse().ok().filter(|id| *id > 0)
}
