//! Spans and events as lines of JSON: one when a span begins, one when it ends, one for each event. Each line has the ids of
//! the spans around it, and passes the sealers of the process before it is written.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quipu::Sealer;
use quipu_protocol::Json;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use super::filter::Filter;
use super::sink::Sink;

/// Characters of a text in a line; the rest is left out.
const TEXT: usize = 2_000;
/// What lines inside of a span have of it.
const IDS: [&str; 6] = ["session", "run", "turn", "call", "purpose", "job"];

thread_local! {
    /// Spans that this thread is in, the innermost last.
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Writes what the filter lets pass.
pub(super) struct LineWriter {
    filter: Filter,
    sink: Sink,
    /// Held, so that it seals for as long as lines are written.
    _sealer: Arc<Sealer>,
    open: Mutex<HashMap<u64, OpenSpan>>,
    next: AtomicU64,
}

/// A span that has not ended.
struct OpenSpan {
    metadata: &'static Metadata<'static>,
    parent: Option<u64>,
    /// Of the spans around it.
    ids: Map<String, Value>,
    fields: Map<String, Value>,
    since: Instant,
    /// How many hold it: who has its handle, and spans inside of it.
    handles: usize,
}

/// Collects the fields of a span or an event.
struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

impl LineWriter {
    pub(super) fn new(filter: Filter, sink: Sink, sealer: Arc<Sealer>) -> Self {
        Self { filter, sink, _sealer: sealer, open: Mutex::default(), next: AtomicU64::new(1) }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, OpenSpan>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn around(contextual: bool, parent: Option<&Id>) -> Option<u64> {
        match contextual {
            true => ENTERED.with_borrow(|entered| entered.last().copied()),
            false => parent.map(Id::into_u64),
        }
    }

    /// The ids of a span and of those around it.
    fn ids_within(open: &HashMap<u64, OpenSpan>, span: Option<u64>) -> Map<String, Value> {
        let Some(span) = span.and_then(|id| open.get(&id)) else { return Map::new() };
        let mut ids = span.ids.clone();
        for name in IDS {
            if let Some(value) = span.fields.get(name) {
                ids.insert(name.to_owned(), value.clone());
            }
        }
        ids
    }

    fn write(
        &self,
        (phase, name): (&str, &str),
        metadata: &Metadata<'_>,
        (span, parent): (Option<u64>, Option<u64>),
        ids: Map<String, Value>,
        fields: Map<String, Value>,
    ) {
        let mut line = Map::new();
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        line.insert("time".into(), now.into());
        line.insert("level".into(), metadata.level().as_str().to_ascii_lowercase().into());
        line.insert("target".into(), metadata.target().into());
        line.insert("phase".into(), phase.into());
        line.insert("name".into(), name.into());
        line.extend(span.map(|id| ("span".to_owned(), id.into())));
        line.extend(parent.map(|id| ("parent".to_owned(), id.into())));
        line.extend(ids);
        line.extend(fields);
        for value in line.values_mut() {
            if let Value::String(text) = value
                && let Some((at, _)) = text.char_indices().nth(TEXT)
            {
                // Sealed first: half a secret would not be known as one.
                *text = quipu_host::sealed(text);
                text.truncate(text.ceil_char_boundary(at.min(text.len())));
                text.push('…');
            }
        }
        let line = quipu_host::sealed_json(&Json::from(Value::Object(line)));
        self.sink.write(line.get());
    }
}

impl Subscriber for LineWriter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.filter.enables(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.filter.enables(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.most())
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let parent = Self::around(attributes.is_contextual(), attributes.parent());
        let metadata = attributes.metadata();
        let mut fields = Map::new();
        attributes.record(&mut Fields(&mut fields));
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let ids = {
            let mut open = self.open();
            let ids = Self::ids_within(&open, parent);
            if let Some(parent) = parent.and_then(|id| open.get_mut(&id)) {
                parent.handles += 1;
            }
            let (since, kept) = (Instant::now(), fields.clone());
            open.insert(id, OpenSpan { metadata, parent, ids: ids.clone(), fields: kept, since, handles: 1 });
            ids
        };
        self.write(("begin", metadata.name()), metadata, (Some(id), parent), ids, fields);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        if let Some(span) = self.open().get_mut(&span.into_u64()) {
            values.record(&mut Fields(&mut span.fields));
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let parent = Self::around(event.is_contextual(), event.parent());
        let mut fields = Map::new();
        event.record(&mut Fields(&mut fields));
        let name = match fields.shift_remove("message") {
            Some(Value::String(message)) => message,
            _ => event.metadata().name().to_owned(),
        };
        let ids = Self::ids_within(&self.open(), parent);
        self.write(("event", &name), event.metadata(), (None, parent), ids, fields);
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
        if let Some(span) = self.open().get_mut(&span.into_u64()) {
            span.handles += 1;
        }
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        let mut next = Some(span.into_u64());
        let mut closed = false;
        // The last handle of a span is one of the span around it.
        while let Some(id) = next {
            let ended = {
                let mut open = self.open();
                let Some(span) = open.get_mut(&id) else { break };
                span.handles -= 1;
                if span.handles > 0 { None } else { open.remove(&id) }
            };
            let Some(OpenSpan { metadata, parent, ids, mut fields, since, .. }) = ended else { break };
            fields.insert("ms".into(), (since.elapsed().as_micros() as f64 / 1_000.0).into());
            self.write(("end", metadata.name()), metadata, (Some(id), parent), ids, fields);
            (next, closed) = (parent, true);
        }
        closed
    }
}
