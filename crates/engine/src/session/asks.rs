//! Questions of others than the machine: of a host, a hook, an extension. They live in memory, and their answers go to whoever
//! asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{Answer, Ask, AskId, AskKind, Event};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::task::Task;

/// Questions that can be open at once; of more, each is answered by its default.
const OPEN: usize = 64;

/// A question that somebody wants to ask.
pub(super) struct Question {
    pub(super) kind: AskKind,
    pub(super) default: Answer,
    pub(super) wait: Option<Duration>,
    pub(super) reply: oneshot::Sender<Answer>,
}

struct OpenQuestion {
    default: Answer,
    until: Option<Instant>,
    reply: oneshot::Sender<Answer>,
}

/// The questions that are open.
#[derive(Default)]
pub(super) struct Questions {
    open: HashMap<AskId, OpenQuestion>,
    counter: u64,
}

impl Questions {
    pub(super) fn is_open(&self, ask: &AskId) -> bool {
        self.open.contains_key(ask)
    }

    /// The next question whose time is up; `None` at once when none has a deadline.
    pub(super) async fn overdue(&self) -> Option<AskId> {
        let next = self.open.iter().filter_map(|(id, open)| Some((open.until?, id))).min()?;
        tokio::time::sleep_until(next.0).await;
        Some(next.1.clone())
    }
}

impl Task {
    pub(super) fn ask(&mut self, Question { kind, default, wait, reply }: Question) {
        if self.answerers == 0 || self.questions.open.len() >= OPEN {
            // Whoever asked may have gone.
            return drop(reply.send(default));
        }
        self.questions.counter += 1;
        let id = AskId::from(format!("q{}", self.questions.counter));
        let millis = |wait: Duration| i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        let deadline = wait.map(|wait| self.clock.now().saturating_add(millis(wait)));
        let until = wait.and_then(|wait| Instant::now().checked_add(wait));
        let ask = Ask { id: id.clone(), deadline, default: default.clone(), kind };
        self.questions.open.insert(id, OpenQuestion { default, until, reply });
        let run = self.machine.run().cloned();
        self.emit(Event::Asked { ask: Arc::new(ask) }, run);
    }

    pub(super) fn answer_question(&mut self, ask: &AskId, answer: Answer) {
        if let Some(open) = self.questions.open.remove(ask) {
            drop(open.reply.send(answer.clone()));
            self.question_closed(ask, Some(answer));
        }
    }

    /// Nobody answered.
    pub(super) fn close_question(&mut self, ask: &AskId) {
        if let Some(open) = self.questions.open.remove(ask) {
            drop(open.reply.send(open.default));
            self.question_closed(ask, None);
        }
    }

    /// Nobody is left who could answer.
    pub(super) fn withdraw_questions(&mut self) {
        let open: Vec<AskId> = self.questions.open.keys().cloned().collect();
        for ask in open {
            self.close_question(&ask);
        }
    }

    fn question_closed(&mut self, ask: &AskId, by: Option<Answer>) {
        let run = self.machine.run().cloned();
        self.emit(Event::AskClosed { ask: ask.clone(), by, by_policy: false }, run);
    }
}
