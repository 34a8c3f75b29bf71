//! Spans and events of `tracing`, collected.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Metadata, Subscriber};

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A span, or an event in one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpanRecord {
    /// Its name; the message of an event.
    pub name: String,
    /// The place of the span around it in [`SpanCollector::all`].
    pub parent: Option<usize>,
    /// Its fields as text.
    pub fields: BTreeMap<String, String>,
    /// Whether it has ended; events have.
    pub ended: bool,
}

impl Visit for SpanRecord {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.name = value.to_owned(),
            name => drop(self.fields.insert(name.to_owned(), value.to_owned())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// Collects spans and events. Clones collect into one.
#[derive(Debug, Clone, Default)]
pub struct SpanCollector(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    all: Mutex<Vec<SpanRecord>>,
    /// Handles that are held of a span, and its place.
    open: Mutex<HashMap<u64, (usize, usize)>>,
    next: AtomicU64,
}

/// Collects while it is held.
#[derive(Debug)]
pub struct SpanGuard {
    _default: DefaultGuard,
    _other: Dispatch,
}

impl SpanCollector {
    /// Collects what this thread traces.
    pub fn collect(&self) -> SpanGuard {
        // With one alone, a span that another thread meets first would be taken for one that nobody wants.
        let other = Dispatch::new(Self::default());
        SpanGuard { _default: tracing::subscriber::set_default(self.clone()), _other: other }
    }

    /// What was collected, in order.
    pub fn all(&self) -> Vec<SpanRecord> {
        self.list().clone()
    }

    /// Names of a span and those around it, from the outermost, with `/` between them.
    pub fn path(&self, at: usize) -> String {
        let all = self.list();
        let mut names = Vec::new();
        let mut next = Some(at);
        while let Some(one) = next.and_then(|at| all.get(at)) {
            names.push(one.name.as_str());
            next = one.parent;
        }
        names.reverse();
        names.join("/")
    }

    fn list(&self) -> MutexGuard<'_, Vec<SpanRecord>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, (usize, usize)>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, id: u64) -> Option<usize> {
        self.open().get(&id).map(|(place, _)| *place)
    }

    fn around(&self, contextual: bool, parent: Option<&Id>) -> Option<usize> {
        let entered = || ENTERED.with_borrow(|entered| entered.last().copied());
        let id = if contextual { entered() } else { parent.map(Id::into_u64) };
        self.place(id?)
    }
}

impl Subscriber for SpanCollector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("quipu")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let parent = self.around(attributes.is_contextual(), attributes.parent());
        let name = attributes.metadata().name().to_owned();
        let mut span = SpanRecord { name, parent, ..SpanRecord::default() };
        attributes.record(&mut span);
        let id = self.0.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut all = self.list();
        self.open().insert(id, (all.len(), 1));
        all.push(span);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        if let Some(place) = self.place(span.into_u64())
            && let Some(span) = self.list().get_mut(place)
        {
            values.record(span);
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let parent = self.around(event.is_contextual(), event.parent());
        let mut one = SpanRecord { parent, ended: true, ..SpanRecord::default() };
        event.record(&mut one);
        self.list().push(one);
    }

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| {
            if let Some(at) = entered.iter().rposition(|id| *id == span.into_u64()) {
                entered.remove(at);
            }
        });
    }

    fn clone_span(&self, span: &Id) -> Id {
        if let Some((_, handles)) = self.open().get_mut(&span.into_u64()) {
            *handles += 1;
        }
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        let mut open = self.open();
        let Some((place, handles)) = open.get_mut(&span.into_u64()) else { return false };
        *handles -= 1;
        if *handles > 0 {
            return false;
        }
        let place = *place;
        open.remove(&span.into_u64());
        drop(open);
        if let Some(span) = self.list().get_mut(place) {
            span.ended = true;
        }
        true
    }
}
