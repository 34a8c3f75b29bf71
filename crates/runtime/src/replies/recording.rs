//! How replies come into the store, grow there, and leave it.

use std::sync::atomic::Ordering;

use quipu::protocol::{Event, ItemId, Message, NodeId};
use quipu::store::{Durability, REPLY_OUTBOX, StoreError};
use quipu_outbound::{Delivery, Outbox, Progress, ReplyKey, StreamOutput};
use tokio::time::Instant;

use super::flow::{FlowWorld, ReplyFlow};
use super::rows::{OwedReply, ReplyRow, StoredReply};
use super::said::SaidMessages;
use super::{Replies, StripedGuard, lock};
use crate::inbox_rows::{RowChange, change_rows_that_are_there};
use crate::keys::SessionKey;
use crate::queue::Route;

impl Replies {
    /// What a process before this one took of a run is not taken again.
    pub(crate) fn knows(&self, flow: &mut ReplyFlow, said: &SaidMessages) {
        flow.knows(said, &*self.0.routes);
    }

    /// Makes replies of a message of a run and stores them.
    pub(crate) async fn take(
        &self,
        key: &SessionKey,
        flow: &mut ReplyFlow,
        node: NodeId,
        message: &Message,
    ) -> Result<(), StoreError> {
        let _changing = self.changing(key).await;
        let Some(mut owed) = self.owed(key) else { return Ok(()) };
        if !flow.is_new(node) {
            return Ok(());
        }
        if matches!(message, Message::User(_))
            && flow.has_answered()
            && let Some(is_own) = self.is_own_prompt(&owed, node).await?
        {
            flow.asked(is_own);
        }
        if flow.is_of_others() {
            return Ok(());
        }
        let outputs = self.flowing(&owed.route, &str::to_owned, |world| flow.said(message, world));
        // The first prompt is that of the turn. Others may come from people who are there.
        let is_prompt = matches!(message, Message::User(_)) && flow.is_prompted();
        if !is_prompt && !matches!(message, Message::Assistant(_)) {
            return Ok(());
        }
        owed.take(node, flow.next(), flow.take_moved());
        self.record(key, &owed.route.clone(), Some(owed), outputs).await
    }

    /// Stores what is sent of an answer that arrives. `seal` takes secrets out of it.
    pub(crate) async fn arrives(
        &self,
        key: &SessionKey,
        flow: &mut ReplyFlow,
        event: &Event,
        seal: &(dyn Fn(&str) -> String + Sync),
    ) -> Result<(), StoreError> {
        if !flow.is_streamed() || flow.is_of_others() {
            return Ok(());
        }
        self.grow(key, |route| self.flowing(route, seal, |world| flow.arrived(event, world))).await
    }

    /// Stores what is sent because time passed.
    pub(crate) async fn ticked(&self, key: &SessionKey, flow: &mut ReplyFlow) -> Result<(), StoreError> {
        let now = self.now();
        self.grow(key, |_| flow.ticked(now)).await
    }

    /// When [`Replies::ticked`] has something to do.
    pub(crate) fn deadline(&self, flow: &ReplyFlow) -> Option<Instant> {
        let due = u64::try_from(flow.deadline()?).unwrap_or(0);
        self.0.began.checked_add(std::time::Duration::from_millis(due))
    }

    async fn grow(
        &self,
        key: &SessionKey,
        outputs: impl FnOnce(&Route) -> Vec<StreamOutput>,
    ) -> Result<(), StoreError> {
        let Some(route) = self.owed(key).map(|owed| owed.route) else { return Ok(()) };
        let outputs = outputs(&route);
        if outputs.is_empty() {
            return Ok(());
        }
        let _changing = self.changing(key).await;
        // Nobody waits for more of it, where it was stopped meanwhile.
        if self.owed(key).is_none() {
            return Ok(());
        }
        self.record(key, &route, None, outputs).await
    }

    fn flowing<T>(
        &self,
        route: &Route,
        seal: &dyn Fn(&str) -> String,
        work: impl FnOnce(&FlowWorld<'_>) -> T,
    ) -> T {
        let progress = |key: &ReplyKey| self.progress(route, key);
        work(&FlowWorld { routes: &*self.0.routes, progress: &progress, seal, at: self.now() })
    }

    /// How much of a reply is stored, where it is not whole.
    fn progress(&self, route: &Route, key: &ReplyKey) -> Option<Progress> {
        let outboxes = lock(&self.0.outboxes);
        let outbox = &outboxes.get(route)?.outbox;
        outbox.reply(key).filter(|reply| !reply.closed)?;
        Some(outbox.progress(key))
    }

    /// Stores what a stream gives and has it delivered: parts of replies that are there already, and new replies. With it, what the
    /// conversation is owed.
    async fn record(
        &self,
        key: &SessionKey,
        route: &Route,
        owed: Option<OwedReply>,
        outputs: Vec<StreamOutput>,
    ) -> Result<(), StoreError> {
        let storing = self.0.storing.lock(route).await;
        let mut grown = Outbox::new();
        for output in &outputs {
            if let Some(key) = key_of(output)
                && grown.reply(key).is_none()
                && let Some(there) = self.stored_reply(route, key)
            {
                grown.add(there.delivery);
            }
        }
        grow(&mut grown, &outputs);
        // A reply that says nothing is none.
        let replies: Vec<_> = grown.replies().iter().filter(|reply| reply.part_count() > 0).collect();
        let mut changes = Vec::new();
        let mut new = Vec::new();
        for delivery in replies {
            let there = self.stored_reply(route, &delivery.key);
            let number = match &there {
                Some(there) => there.number,
                None => self.0.number.fetch_add(1, Ordering::Relaxed) + 1,
            };
            let reply = StoredReply { number, route: route.clone(), delivery: delivery.clone() };
            let row = ReplyRow::Reply(Box::new(reply.clone()));
            let queue = key.to_string();
            changes.push(match (&there, delivery.is_settled()) {
                (Some(_), true) => row.take(),
                (Some(_), false) => row.replace(&queue),
                (None, _) => row.put(&queue),
            });
            if there.is_none() {
                new.push(reply);
            }
        }
        match owed {
            Some(owed) => self.put_owed(key, owed, changes).await?,
            None => self.change(changes).await?,
        }
        // Acknowledgements may have come meanwhile: what is there grows, and is not replaced.
        if let Some(one) = lock(&self.0.outboxes).get_mut(route) {
            let there =
                |output: &&StreamOutput| key_of(output).is_some_and(|key| one.outbox.reply(key).is_some());
            let more: Vec<_> = outputs.iter().filter(there).cloned().collect();
            grow(&mut one.outbox, &more);
        }
        // One that was acknowledged meanwhile is still in the store; whoever takes it out forgets it.
        for delivery in grown.replies().iter().filter(|reply| reply.is_settled()) {
            self.forget(route, &delivery.key, &storing);
        }
        self.add(key, route, new);
        self.wake(route);
        Ok(())
    }

    /// Nothing more is owed of a turn: a reply that was begun has all its parts.
    pub(crate) async fn finish(&self, key: &SessionKey, turn: &ItemId) -> Result<(), StoreError> {
        let _changing = self.changing(key).await;
        let Some(owed) = self.owed(key).filter(|owed| owed.turn == *turn) else { return Ok(()) };
        let storing = self.0.storing.lock(&owed.route).await;
        let begun = self.begun(&owed);
        let (mut changes, mut delivered) = (Vec::new(), Vec::new());
        for key in &begun {
            let Some(mut reply) = self.stored_reply(&owed.route, key) else { continue };
            reply.delivery.closed = true;
            let (queue, is_settled) = (self.queue_of(&owed.route, key), reply.delivery.is_settled());
            let row = ReplyRow::Reply(Box::new(reply));
            changes.push(if is_settled { row.take() } else { row.replace(&queue) });
            delivered.extend(is_settled.then_some(key));
        }
        let route = owed.route.clone();
        changes.push(ReplyRow::Owed(Box::new(owed)).take());
        self.change(changes).await?;
        if let Some(one) = lock(&self.0.outboxes).get_mut(&route) {
            begun.iter().for_each(|key| one.outbox.close(key));
        }
        for key in delivered {
            self.forget(&route, key, &storing);
        }
        lock(&self.0.owed).remove(key);
        self.0.settled.notify_waiters();
        Ok(())
    }

    /// Replies of a run that were begun and not ended.
    fn begun(&self, owed: &OwedReply) -> Vec<ReplyKey> {
        let outboxes = lock(&self.0.outboxes);
        let replies = outboxes.get(&owed.route).map(|one| one.outbox.replies()).unwrap_or_default();
        let begun = replies.iter().filter(|reply| !reply.closed && is_of(&reply.key, owed));
        begun.map(|reply| reply.key.clone()).collect()
    }

    /// Ends replies that were begun by a run of which nothing is owed any more.
    pub(super) async fn end_abandoned(&self) -> Result<(), StoreError> {
        let abandoned: Vec<(Route, ReplyKey)> = {
            let owed = lock(&self.0.owed);
            let mut outboxes = lock(&self.0.outboxes);
            let mut abandoned = Vec::new();
            for (route, one) in outboxes.iter_mut() {
                let begun = one.outbox.replies().iter().filter(|reply| !reply.closed);
                let keys: Vec<_> = begun
                    .map(|reply| reply.key.clone())
                    .filter(|key| !owed.values().any(|owed| is_of(key, owed)))
                    .collect();
                for key in keys {
                    one.outbox.close(&key);
                    abandoned.push((route.clone(), key));
                }
            }
            abandoned
        };
        for (route, key) in abandoned {
            self.store_delivered(&route, &key).await?;
        }
        Ok(())
    }

    /// Stores that a part of a reply was acknowledged or refused. A reply that is delivered leaves the store.
    pub(super) async fn store_delivered(&self, route: &Route, key: &ReplyKey) -> Result<(), StoreError> {
        let storing = self.0.storing.lock(route).await;
        // It may have left the store with its last part.
        let Some(mut reply) = self.stored_reply(route, key) else { return Ok(()) };
        reply.delivery.settle();
        let settled = reply.delivery.settled;
        let (queue, is_settled) = (self.queue_of(route, key), reply.delivery.is_settled());
        let row = ReplyRow::Reply(Box::new(reply));
        self.change(vec![if is_settled { row.take() } else { row.replace(&queue) }]).await?;
        if let Some(one) = lock(&self.0.outboxes).get_mut(route) {
            one.outbox.settle(key, settled);
        }
        // What was acknowledged meanwhile is stored by whoever took it down.
        if is_settled {
            self.forget(route, key, &storing);
        }
        Ok(())
    }

    /// Stores changes of rows; what has left the store stays away.
    pub(super) async fn change(&self, changes: Vec<RowChange>) -> Result<(), StoreError> {
        let inbox = REPLY_OUTBOX.into();
        change_rows_that_are_there(&*self.0.store, &inbox, changes, Durability::Process).await
    }

    /// A reply as it is to be stored now.
    fn stored_reply(&self, route: &Route, key: &ReplyKey) -> Option<StoredReply> {
        let outboxes = lock(&self.0.outboxes);
        let one = outboxes.get(route)?;
        let delivery: Delivery = one.outbox.reply(key)?.clone();
        let (_, number) = one.rows.get(key)?;
        Some(StoredReply { number: *number, route: route.clone(), delivery })
    }

    /// The queue under which the store has a reply.
    pub(super) fn queue_of(&self, route: &Route, key: &ReplyKey) -> String {
        let outboxes = lock(&self.0.outboxes);
        let row = outboxes.get(route).and_then(|one| one.rows.get(key));
        row.map(|(queue, _)| queue.clone()).unwrap_or_default()
    }

    /// Removes a reply that is delivered, once the store has removed it.
    fn forget(&self, route: &Route, key: &ReplyKey, _storing: &StripedGuard<'_>) {
        let mut outboxes = lock(&self.0.outboxes);
        let Some(one) = outboxes.get_mut(route) else { return };
        one.outbox.forget(key);
        if one.outbox.reply(key).is_none() {
            one.rows.remove(key);
        }
        if one.outbox.replies().is_empty() {
            outboxes.remove(route);
        }
        drop(outboxes);
        self.0.settled.notify_waiters();
    }
}

/// Whether a reply is one of this run.
fn is_of(key: &ReplyKey, owed: &OwedReply) -> bool {
    key.as_str().rsplit_once('/').is_some_and(|(turn, _)| turn == owed.turn.as_str())
}

fn key_of(output: &StreamOutput) -> Option<&ReplyKey> {
    match output {
        StreamOutput::Block { key, .. } | StreamOutput::Closed { key, .. } => Some(key),
        StreamOutput::Flushed => None,
    }
}

fn grow(outbox: &mut Outbox, outputs: &[StreamOutput]) {
    for output in outputs {
        match output {
            // They come in order, so it can take them.
            StreamOutput::Block { key, part, block } => drop(outbox.record(key, *part, block.clone())),
            StreamOutput::Closed { key, .. } => outbox.close(key),
            StreamOutput::Flushed => {}
        }
    }
}
