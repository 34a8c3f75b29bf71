//! What hooks and sources want done beside the conversation, on its way to the session task.

use std::collections::HashMap;
use std::sync::Arc;

use crate::mailbox;
use futures_util::future::BoxFuture;
use quipu_protocol::RunId;
use quipu_seal::Sealer;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Mail;
use super::live_agents::AgentReply;
use crate::agents::AGENT_PURPOSE;
use crate::children::{ChildTerms, Children};
use crate::runner::{
    AgentOrder, AgentReport, Backend, CallAnswer, CallOrder, ChildAnswer, ChildOrder, ModelRoute,
    RunnerError, Terms,
};

/// Something that a hook or a source wants done.
pub(super) struct SideAsk {
    pub(super) what: SideWork,
    /// The model, where it is another than the session's.
    pub(super) carried: Option<ModelRoute>,
    /// The model that the file of an agent names and that cannot be used, and why.
    pub(super) unusable: Option<(String, String)>,
    /// Cancelled when nobody waits for it any more.
    pub(super) cancel: CancellationToken,
    /// It is its turn.
    pub(super) permit: OwnedSemaphorePermit,
}

pub(super) enum SideWork {
    Call(Box<CallOrder>, oneshot::Sender<SideReply<CallOrder, CallAnswer>>),
    Child(Box<ChildOrder>, oneshot::Sender<SideReply<ChildOrder, ChildAnswer>>),
    /// With what questions of the sub-agent go through.
    Agent(Box<AgentOrder>, mailbox::WeakSender<Mail>, AgentReply),
}

impl SideWork {
    /// Whether whoever asks named the model.
    pub(super) fn names_model(&self) -> bool {
        let terms = match self {
            Self::Call(order, _) => &order.terms,
            Self::Child(order, _) => &order.terms,
            // A file names it, and not the user.
            Self::Agent(..) => return false,
        };
        terms.model.is_some()
    }
}

/// What becomes of it.
pub(super) enum SideReply<O, A> {
    Done(Result<A, RunnerError>),
    /// The session has no name yet under which it could be recorded.
    NoName(Box<O>, Box<ChildTerms>),
}

/// What is under way beside the conversation, with the run that pays for it.
#[derive(Default)]
pub(super) struct Sides(HashMap<RunId, (Option<RunId>, CancellationToken)>);

impl Sides {
    pub(super) fn begin(&mut self, id: RunId, run: Option<RunId>, cancel: CancellationToken) {
        self.0.insert(id, (run, cancel));
    }

    /// Stops all.
    pub(super) fn stop(&self) {
        self.0.values().for_each(|(_, cancel)| cancel.cancel());
    }

    /// Stops those of a run.
    pub(super) fn stop_of(&self, run: &RunId) {
        let of_run = self.0.values().filter(|(of, _)| of.as_ref() == Some(run));
        of_run.for_each(|(_, cancel)| cancel.cancel());
    }

    pub(super) fn over(&mut self, id: &RunId) {
        self.0.remove(id);
    }
}

/// Asks models for the hooks and the sources of a session.
pub(super) struct SessionRunner {
    /// Weak: a session that nobody holds ends, whatever is still asked.
    pub(super) mail: mailbox::WeakSender<Mail>,
    pub(super) sealer: Arc<Sealer>,
    pub(super) children: Children,
}

impl Backend for SessionRunner {
    fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    fn call(&self, order: CallOrder) -> BoxFuture<'static, Result<CallAnswer, RunnerError>> {
        let (mail, children) = (self.mail.clone(), self.children.clone());
        Box::pin(async move {
            let terms = order.terms.clone();
            let (reply, answer) = oneshot::channel();
            let _guard = ask(mail, &children, &terms, SideWork::Call(Box::new(order), reply)).await?;
            match answer.await {
                Ok(SideReply::Done(answer)) => answer,
                Ok(SideReply::NoName(order, alone)) => children.call_for(*order, *alone).await,
                Err(_) => Err(RunnerError::Closed),
            }
        })
    }

    fn session(&self, order: ChildOrder) -> BoxFuture<'static, Result<ChildAnswer, RunnerError>> {
        let (mail, children) = (self.mail.clone(), self.children.clone());
        Box::pin(async move {
            children.allows_child()?;
            let terms = order.terms.clone();
            let (reply, answer) = oneshot::channel();
            let _guard = ask(mail, &children, &terms, SideWork::Child(Box::new(order), reply)).await?;
            match answer.await {
                Ok(SideReply::Done(answer)) => answer,
                Ok(SideReply::NoName(order, alone)) => children.session_for(*order, *alone).await,
                Err(_) => Err(RunnerError::Closed),
            }
        })
    }

    fn agent(&self, order: AgentOrder) -> BoxFuture<'static, Result<AgentReport, RunnerError>> {
        let this =
            Self { mail: self.mail.clone(), sealer: self.sealer.clone(), children: self.children.clone() };
        Box::pin(async move {
            this.children.allows_child()?;
            let permit = tokio::select! {
                permit = order.permits.clone().acquire_owned() => permit.map_err(|_| RunnerError::Closed)?,
                () = order.cancel.cancelled() => return Err(RunnerError::Aborted),
            };
            let (carried, unusable) = this.agent_model(&order).await;
            let cancel = CancellationToken::new();
            let (reply, report) = oneshot::channel();
            let what = SideWork::Agent(Box::new(order), this.mail.clone(), reply);
            let ask = SideAsk { what, carried, unusable, cancel: cancel.clone(), permit };
            let mail = this.mail.upgrade().ok_or(RunnerError::Closed)?;
            mail.send(Mail::Side(Box::new(ask))).await.map_err(|_| RunnerError::Closed)?;
            drop(mail);
            let _guard = cancel.drop_guard();
            report.await.unwrap_or(Err(RunnerError::Closed))
        })
    }
}

impl SessionRunner {
    /// The model of a sub-agent: the one that its file names, else the one that the user set for all of them; and the one of its
    /// file that cannot be used, with the reason. Without any it has that of the session.
    async fn agent_model(&self, order: &AgentOrder) -> (Option<ModelRoute>, Option<(String, String)>) {
        let named = order.agent.as_ref().and_then(|agent| agent.model.clone());
        let Some(models) = self.children.options().models.clone() else {
            return (None, named.map(|name| (name, "this session has no other models".to_owned())));
        };
        let find = tokio::task::spawn_blocking(move || {
            let (mut found, mut unusable) = (None, None);
            if let Some(name) = named {
                match models.find_named(&name) {
                    Ok(route) => found = Some(route),
                    Err(error) => unusable = Some((name, error.to_string())),
                }
            }
            let of_purpose =
                || models.find_for(AGENT_PURPOSE).ok().flatten().map(|one| (one.model, one.provider));
            (found.or_else(of_purpose), unusable)
        });
        find.await.unwrap_or_default()
    }
}

/// Asks the session task; what it does is cancelled when the guard is dropped.
async fn ask(
    mail: mailbox::WeakSender<Mail>,
    children: &Children,
    terms: &Terms,
    what: SideWork,
) -> Result<DropGuard, RunnerError> {
    let permit = children.permit(terms).await?;
    let carried = children.find(terms).await?;
    let cancel = CancellationToken::new();
    let ask = SideAsk { what, carried, unusable: None, cancel: cancel.clone(), permit };
    let mail = mail.upgrade().ok_or(RunnerError::Closed)?;
    mail.send(Mail::Side(Box::new(ask))).await.map_err(|_| RunnerError::Closed)?;
    Ok(cancel.drop_guard())
}
