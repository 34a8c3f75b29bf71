//! What happened so far, for a program that collects it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quipu::{Delivery, Session};
use quipu_protocol::{Ending, Event, Message, Outcome, Usage};

/// Counts of what happened since the server began.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    requests: BTreeMap<(&'static str, u16), u64>,
    runs: BTreeMap<&'static str, u64>,
    runs_active: u64,
    /// Clients of lines that are there.
    clients: BTreeMap<ClientKind, u64>,
    /// Why clients of lines were closed.
    closed: BTreeMap<&'static str, u64>,
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    cost: f64,
    errors: BTreeMap<&'static str, u64>,
}

/// A way to send lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClientKind {
    WebSocket,
    EventStream,
}

impl ClientKind {
    const fn name(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::EventStream => "events",
        }
    }
}

impl Metrics {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn answered(&self, route: &'static str, status: u16) {
        *self.counts().requests.entry((route, status)).or_default() += 1;
    }

    pub(crate) fn client_came(&self, kind: ClientKind) {
        *self.counts().clients.entry(kind).or_default() += 1;
    }

    pub(crate) fn client_left(&self, kind: ClientKind, why: &'static str) {
        let mut counts = self.counts();
        let clients = counts.clients.entry(kind).or_default();
        *clients = clients.saturating_sub(1);
        *counts.closed.entry(why).or_default() += 1;
    }

    fn add(&self, usage: &Usage) {
        let mut counts = self.counts();
        counts.input = counts.input.saturating_add(usage.input);
        counts.output = counts.output.saturating_add(usage.output);
        counts.cache_read = counts.cache_read.saturating_add(usage.cache_read);
        counts.cache_write = counts.cache_write.saturating_add(usage.cache_write);
        counts.cost += usage.cost.total;
    }

    /// Counts what a session does, until it ends. Holds nothing up.
    pub(crate) async fn follow(&self, session: &Session) {
        // One that ended already has nothing to say.
        let Ok((snapshot, mut events)) = session.subscribe(Delivery::Lossless).await else { return };
        let mut is_active = snapshot.run.is_some();
        if is_active {
            self.counts().runs_active += 1;
        }
        while let Some(envelope) = events.next().await {
            match &envelope.event {
                Event::RunStarted => {
                    is_active = true;
                    self.counts().runs_active += 1;
                }
                Event::RunEnded { outcome } => {
                    let mut counts = self.counts();
                    if std::mem::take(&mut is_active) {
                        counts.runs_active = counts.runs_active.saturating_sub(1);
                    }
                    *counts.runs.entry(outcome_name(outcome)).or_default() += 1;
                    match outcome {
                        Outcome::Failed(_) => *counts.errors.entry("model").or_default() += 1,
                        Outcome::StoreFailed(_) => *counts.errors.entry("store").or_default() += 1,
                        Outcome::Done | Outcome::Aborted | Outcome::Limit(_) => {}
                    }
                }
                Event::MessageEnded { message, ending, .. } => match (&**message, ending) {
                    (Message::Assistant(answer), Ending::Committed(_)) => self.add(&answer.usage),
                    (Message::Assistant(answer), Ending::Dropped(_)) => {
                        self.add(&answer.usage);
                        *self.counts().errors.entry("dropped_answer").or_default() += 1;
                    }
                    (Message::ToolResult(result), _) if result.is_error => {
                        *self.counts().errors.entry("tool").or_default() += 1;
                    }
                    _ => {}
                },
                // Its session is not one of the desk.
                Event::ChildEnded { cost, .. } => self.counts().cost += cost,
                _ => {}
            }
        }
        if is_active {
            let mut counts = self.counts();
            counts.runs_active = counts.runs_active.saturating_sub(1);
        }
    }

    /// All of it, in the text form of Prometheus.
    pub(crate) fn text(&self, sessions: usize, replies: usize) -> String {
        let counts = self.counts();
        let mut text = MetricText(String::new());
        text.head("quipu_sessions_open", "gauge", "Sessions that are open.");
        text.line("quipu_sessions_open", &[], sessions);
        text.head("quipu_replies_waiting", "gauge", "Replies that are offered and not acknowledged.");
        text.line("quipu_replies_waiting", &[], replies);
        text.head("quipu_clients", "gauge", "Clients of lines that are connected.");
        for kind in [ClientKind::WebSocket, ClientKind::EventStream] {
            let count = counts.clients.get(&kind).copied().unwrap_or_default();
            text.line("quipu_clients", &[("kind", kind.name())], count);
        }
        text.head("quipu_clients_closed_total", "counter", "Clients of lines that are gone, by reason.");
        for (reason, count) in &counts.closed {
            text.line("quipu_clients_closed_total", &[("reason", reason)], count);
        }
        text.head("quipu_http_requests_total", "counter", "Answered requests.");
        for ((route, status), count) in &counts.requests {
            let status = status.to_string();
            text.line("quipu_http_requests_total", &[("route", route), ("status", &status)], count);
        }
        text.head("quipu_runs_active", "gauge", "Runs under way.");
        text.line("quipu_runs_active", &[], counts.runs_active);
        text.head("quipu_runs_total", "counter", "Runs that ended, by outcome.");
        for (outcome, count) in &counts.runs {
            text.line("quipu_runs_total", &[("outcome", outcome)], count);
        }
        text.head("quipu_tokens_total", "counter", "Tokens of the answers of open sessions.");
        for (kind, count) in [
            ("input", counts.input),
            ("output", counts.output),
            ("cache_read", counts.cache_read),
            ("cache_write", counts.cache_write),
        ] {
            text.line("quipu_tokens_total", &[("kind", kind)], count);
        }
        text.head("quipu_cost_dollars_total", "counter", "US dollars, those of sub-agents included.");
        text.line("quipu_cost_dollars_total", &[], counts.cost);
        text.head("quipu_errors_total", "counter", "What went wrong in sessions.");
        for (kind, count) in &counts.errors {
            text.line("quipu_errors_total", &[("kind", kind)], count);
        }
        text.0
    }
}

const fn outcome_name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Aborted => "aborted",
        Outcome::Failed(_) => "failed",
        Outcome::Limit(_) => "limit",
        Outcome::StoreFailed(_) => "store_failed",
    }
}

struct MetricText(String);

impl MetricText {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.0.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// Values of labels are words of ours, which need no escapes.
    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.0.push_str(&format!("{name}{labels} {value}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_the_form_of_prometheus() {
        let metrics = Metrics::default();
        metrics.client_came(ClientKind::WebSocket);
        metrics.client_came(ClientKind::WebSocket);
        metrics.client_left(ClientKind::WebSocket, "stalled");
        metrics.answered("health", 200);
        metrics.add(&Usage { input: 3, output: 4, ..Usage::default() });
        let text = metrics.text(2, 1);
        for line in [
            "# TYPE quipu_sessions_open gauge",
            "quipu_sessions_open 2",
            "quipu_replies_waiting 1",
            "quipu_clients{kind=\"websocket\"} 1",
            "quipu_clients{kind=\"events\"} 0",
            "quipu_clients_closed_total{reason=\"stalled\"} 1",
            "quipu_http_requests_total{route=\"health\",status=\"200\"} 1",
            "quipu_tokens_total{kind=\"output\"} 4",
            "quipu_cost_dollars_total 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.ends_with('\n'));
    }
}
