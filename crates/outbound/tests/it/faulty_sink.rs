//! A chat that fails, delays, and loses acknowledgements.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use quipu_outbound::{Acknowledgement, MessageSink, Offer, ReplyKey, SinkError, SinkFuture};

/// What happens to an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is taken and acknowledged.
    Nothing,
    /// It does not arrive.
    Failure,
    /// It is taken, and the acknowledgement is lost.
    LostAcknowledgement,
    /// It is taken, and the acknowledgement comes later.
    DelayedAcknowledgement,
    /// The preview cannot be edited.
    NotEditable,
}

#[derive(Debug, Default)]
struct Chat {
    faults: VecDeque<Fault>,
    /// Texts as they stand in the chat, by the names of their messages.
    messages: Vec<(String, String)>,
    taken: BTreeMap<(ReplyKey, u32), String>,
    offers: u32,
}

/// Takes each key and part once, as [`MessageSink`] demands.
#[derive(Debug, Default)]
pub(crate) struct FaultySink {
    chat: Mutex<Chat>,
}

impl FaultySink {
    pub(crate) fn plan(&self, fault: Fault) {
        self.with(|chat| chat.faults.push_back(fault));
    }

    /// The texts that people see, in order.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.with(|chat| chat.messages.iter().map(|(_, text)| text.clone()).collect())
    }

    pub(crate) fn offers(&self) -> u32 {
        self.with(|chat| chat.offers)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Chat) -> T) -> T {
        act(&mut self.chat.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take(&self, offer: &Offer) -> Acknowledgement {
        self.with(|chat| {
            let named = (offer.key.clone(), offer.part);
            if let Some(message) = chat.taken.get(&named)
                && !offer.preview
            {
                return Acknowledgement { message: Some(message.clone()) };
            }
            let text = offer.block.text.clone();
            let edited = offer
                .replaces
                .as_ref()
                .and_then(|id| chat.messages.iter_mut().find(|(known, _)| known == id));
            let message = if let Some((id, shown)) = edited {
                *shown = text;
                id.clone()
            } else {
                let id = format!("m{}", chat.messages.len());
                chat.messages.push((id.clone(), text));
                id
            };
            if !offer.preview {
                chat.taken.insert(named, message.clone());
            }
            Acknowledgement { message: Some(message) }
        })
    }
}

impl MessageSink for FaultySink {
    fn offer(&self, offer: Offer) -> SinkFuture<'_> {
        let fault = self.with(|chat| {
            chat.offers += 1;
            chat.faults.pop_front().unwrap_or(Fault::Nothing)
        });
        let lost = || SinkError::Unavailable { reason: "no answer".to_owned(), retry_after: None };
        match fault {
            Fault::Nothing => Box::pin(std::future::ready(Ok(self.take(&offer)))),
            Fault::Failure => Box::pin(std::future::ready(Err(lost()))),
            Fault::NotEditable => {
                Box::pin(std::future::ready(Err(SinkError::NotEditable { reason: "too old".to_owned() })))
            }
            Fault::LostAcknowledgement => {
                self.take(&offer);
                Box::pin(std::future::ready(Err(lost())))
            }
            Fault::DelayedAcknowledgement => {
                let mut acknowledgement = Some(self.take(&offer));
                let mut polls = 0;
                Box::pin(std::future::poll_fn(move |_| {
                    polls += 1;
                    match (polls, acknowledgement.take()) {
                        (3.., Some(acknowledgement)) => Poll::Ready(Ok(acknowledgement)),
                        (_, kept) => {
                            acknowledgement = kept;
                            Poll::Pending
                        }
                    }
                }))
            }
        }
    }
}

/// Polls once.
pub(crate) fn poll(future: &mut SinkFuture<'_>) -> Option<Result<Acknowledgement, SinkError>> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}
