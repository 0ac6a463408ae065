//! Records what is sent to `tracing`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// Everything that is logged on this thread while it is kept.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Entry>>>);

/// An event, a new span, or what is added to a span.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub level: Level,
    pub target: String,
    /// The span's name, or the event's message.
    pub name: String,
    pub fields: BTreeMap<String, String>,
    /// The surrounding spans, the innermost last.
    pub within: Vec<&'static str>,
    pub is_event: bool,
}

impl Log {
    /// Listens on this thread until the guard is dropped.
    pub fn listen() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::registry().with(log.clone());
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// Listens on all threads without a listener of their own. Once for each program.
    pub fn listen_everywhere() -> Self {
        let log = Self::default();
        let subscriber = tracing_subscriber::registry().with(log.clone());
        tracing::subscriber::set_global_default(subscriber).unwrap();
        log
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.0.lock().unwrap().clone()
    }

    pub fn events(&self) -> Vec<Entry> {
        let mut entries = self.entries();
        entries.retain(|entry| entry.is_event);
        entries
    }

    fn add(&self, entry: Entry) {
        self.0.lock().unwrap().push(entry);
    }
}

impl Entry {
    pub fn field(&self, name: &str) -> &str {
        let found = self.fields.get(name);
        found.unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    pub fn names(&self) -> Vec<&str> {
        self.fields.keys().map(String::as_str).collect()
    }
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl<S> Layer<S> for Log
where
    S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        span.record(&mut fields);
        self.add(entry(span.metadata(), fields, &context, false));
    }

    fn on_record(&self, span: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        record.record(&mut fields);
        let metadata = context.metadata(span).expect("it is open");
        self.add(entry(metadata, fields, &context, false));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.add(entry(event.metadata(), fields, &context, true));
    }
}

fn entry<S>(
    metadata: &'static tracing::Metadata<'static>,
    mut fields: Fields,
    context: &Context<'_, S>,
    is_event: bool,
) -> Entry
where
    S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let message = fields.0.remove("message");
    let current = context.lookup_current();
    let within = current.iter().flat_map(|span| span.scope().from_root());
    Entry {
        level: *metadata.level(),
        target: metadata.target().to_owned(),
        name: message.unwrap_or_else(|| metadata.name().to_owned()),
        fields: fields.0,
        within: within.map(|span| span.name()).collect(),
        is_event,
    }
}
