//! Replies that wait for somebody to take them: each is shown to whoever reads, until it is acknowledged.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quipu_host::{Home, StreamingConfig, StreamingMode};
use quipu_outbound::{
    Acknowledgement, Block, ChunkOptions, MessageSink, Offer, ReplyKey, SinkError, SinkFuture,
};
use quipu_outbound::{BreakPreference, CoalesceOptions, ReplyMode, StreamOptions};
use quipu_runtime::{
    AckPatience, ReplyRoute, ReplyRoutes, ReplyTiming, Route, SESSIONS_CHANNEL, SessionKey, offered_block,
};
use serde_json::{Value, json};
use tokio::sync::{broadcast, oneshot, watch};

/// The channel of messages that name none.
pub(crate) const DEFAULT_CHANNEL: &str = "http";
/// Characters of a reply, in the units of messages: a longer answer has several parts.
const REPLY: usize = 64 << 10;
/// News of runs that wait for one reader; one that is slower misses some.
const NEWS: usize = 256;

/// Replies that nobody has acknowledged, and news of runs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Mailboxes(Arc<Inner>);

struct Inner {
    offers: Mutex<Offers>,
    /// How many were ever offered.
    offered: watch::Sender<u64>,
    news: broadcast::Sender<RunNews>,
}

#[derive(Default)]
struct Offers {
    /// In the order in which they were offered.
    waiting: BTreeMap<u64, WaitingOffer>,
    numbers: HashMap<String, u64>,
    last: u64,
}

struct WaitingOffer {
    conversation: SessionKey,
    id: String,
    reply: OfferedReply,
    /// Takes the acknowledgement; none once it came.
    give: Option<oneshot::Sender<Acknowledgement>>,
    /// Those who wait until it is stored.
    stored: Vec<oneshot::Sender<()>>,
}

/// A reply as it was offered.
#[derive(Clone)]
struct OfferedReply {
    key: ReplyKey,
    part: u32,
    route: Route,
    block: Block,
    /// Units of its text at most.
    most: usize,
}

impl OfferedReply {
    /// What a reader is shown now: files can go while a reply waits.
    fn event(self, id: &str, conversation: &SessionKey) -> Value {
        let block = offered_block(self.block, self.most);
        json!({
            "id": id, "key": self.key, "part": self.part, "conversation": conversation.to_string(), "route": self.route,
            "text": block.text, "media": block.media, "replyTo": block.reply_to, "voice": block.voice,
        })
    }
}

/// What happens to messages of a conversation: for whoever reads now, and not kept.
#[derive(Debug, Clone)]
pub(crate) struct RunNews {
    pub(crate) conversation: SessionKey,
    pub(crate) event: Arc<Value>,
}

/// Which replies a reader is shown.
#[derive(Debug, Clone)]
pub(crate) enum MailboxFilter {
    /// Those of all conversations.
    All,
    /// Those of one.
    Conversation(Box<SessionKey>),
}

/// What became of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckOutcome {
    /// It is stored: the reply is not offered again.
    Stored,
    /// No such reply waits in this conversation.
    Unknown,
    /// The server is about to offer it anew.
    Retry,
}

impl MailboxFilter {
    pub(crate) fn takes(&self, conversation: &SessionKey) -> bool {
        match self {
            Self::All => true,
            Self::Conversation(key) => **key == *conversation,
        }
    }
}

impl Default for Mailboxes {
    fn default() -> Self {
        let (news, _) = broadcast::channel(NEWS);
        Self(Arc::new(Inner { offers: Mutex::default(), offered: watch::Sender::new(0), news }))
    }
}

/// The name of a part of a reply in paths.
fn id_of(key: &ReplyKey, part: u32) -> String {
    format!("{}.{part}", key.as_str().replace('/', "."))
}

impl Mailboxes {
    fn offers(&self) -> MutexGuard<'_, Offers> {
        self.0.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what happens to a message.
    pub(crate) fn tell(&self, news: RunNews) {
        // Nobody may be reading.
        drop(self.0.news.send(news));
    }

    pub(crate) fn news(&self) -> broadcast::Receiver<RunNews> {
        self.0.news.subscribe()
    }

    /// Changes with each reply that is offered.
    pub(crate) fn offered(&self) -> watch::Receiver<u64> {
        self.0.offered.subscribe()
    }

    /// How many replies are offered.
    pub(crate) fn waiting(&self) -> usize {
        self.offers().waiting.len()
    }

    /// The first reply behind this number.
    pub(crate) fn next(&self, seen: u64, filter: &MailboxFilter) -> Option<(u64, String, Value)> {
        let (number, id, conversation, reply) = {
            let offers = self.offers();
            let mut behind = offers.waiting.range(seen.saturating_add(1)..);
            let (number, offer) =
                behind.find(|(_, offer)| offer.give.is_some() && filter.takes(&offer.conversation))?;
            (*number, offer.id.clone(), offer.conversation.clone(), offer.reply.clone())
        };
        let event = reply.event(&id, &conversation);
        Some((number, id, event))
    }

    /// Acknowledges a part of a reply. Resolved = it is stored.
    pub(crate) async fn acknowledge(
        &self,
        conversation: &SessionKey,
        id: &str,
        acknowledgement: Acknowledgement,
    ) -> AckOutcome {
        let stored = {
            let mut offers = self.offers();
            let Some(number) = offers.numbers.get(id).copied() else { return AckOutcome::Unknown };
            let Some(offer) = offers.waiting.get_mut(&number) else { return AckOutcome::Unknown };
            if offer.conversation != *conversation {
                return AckOutcome::Unknown;
            }
            if let Some(give) = offer.give.take()
                && give.send(acknowledgement).is_err()
            {
                // Who offered it is gone, and offers it again.
                offers.remove(number);
                return AckOutcome::Retry;
            }
            let (stored, is_stored) = oneshot::channel();
            offer.stored.push(stored);
            is_stored
        };
        match stored.await {
            Ok(()) => AckOutcome::Stored,
            Err(_) => AckOutcome::Retry,
        }
    }

    /// Forgets all that is offered: who offered it has ended.
    pub(crate) fn clear(&self) {
        let mut offers = self.offers();
        offers.waiting.clear();
        offers.numbers.clear();
    }
}

impl Offers {
    fn remove(&mut self, number: u64) -> Option<WaitingOffer> {
        let offer = self.waiting.remove(&number)?;
        if self.numbers.get(&offer.id) == Some(&number) {
            self.numbers.remove(&offer.id);
        }
        Some(offer)
    }
}

/// The mailboxes of a server, as the settings of its home have them at each moment.
pub(crate) struct MailboxRoutes {
    pub(crate) mailboxes: Mailboxes,
    pub(crate) home: Home,
}

impl ReplyRoutes for MailboxRoutes {
    fn route(&self, conversation: &SessionKey, route: &Route) -> Option<ReplyRoute> {
        self.mailboxes.route(conversation, route, &self.home.config().streaming)
    }
}

impl Mailboxes {
    fn route(
        &self,
        conversation: &SessionKey,
        route: &Route,
        streaming: &StreamingConfig,
    ) -> Option<ReplyRoute> {
        // Requests for a completion and heartbeats have their own readers.
        if !is_channel(&route.channel) {
            return None;
        }
        let (options, timing) = match streaming.mode_of(&route.channel) {
            StreamingMode::Off => (options(REPLY, REPLY), ReplyTiming::Whole),
            StreamingMode::Blocks => (blocks(streaming), ReplyTiming::Streamed),
        };
        let (conversation, route, most) = (conversation.clone(), route.clone(), options.chunks.max);
        let sink = Mailbox { all: self.clone(), conversation, route, most };
        Some(ReplyRoute { sink: Arc::new(sink), options, timing, patience: AckPatience::Unlimited })
    }
}

fn options(min: usize, max: usize) -> StreamOptions {
    let preference = BreakPreference::Paragraph;
    let chunks = ChunkOptions { min, max, preference, flush_on_paragraph: false };
    StreamOptions { chunks, reply_mode: ReplyMode::Explicit, ..StreamOptions::default() }
}

/// How answers are cut that are sent while they arrive.
fn blocks(streaming: &StreamingConfig) -> StreamOptions {
    let default = ChunkOptions::default();
    let max = streaming.max_chars.unwrap_or(default.max);
    // Between the two is where a block can end at a good place.
    let min = streaming.min_chars.unwrap_or(default.min).min(max / 2);
    let idle_ms = streaming.join_ms.unwrap_or(CoalesceOptions::default().idle_ms);
    let coalesce = (idle_ms > 0).then_some(CoalesceOptions { min, max, idle_ms });
    StreamOptions { coalesce, ..options(min, max) }
}

/// Whether messages can come from a channel of this name: not from that of messages between conversations.
pub(crate) fn is_channel(name: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "_-".contains(letter);
    !name.is_empty() && name.len() <= 64 && name.chars().all(fits) && name != SESSIONS_CHANNEL
}

/// Where the replies of a conversation on a route wait.
struct Mailbox {
    all: Mailboxes,
    conversation: SessionKey,
    route: Route,
    /// Units of a text at most.
    most: usize,
}

impl MessageSink for Mailbox {
    fn offer(&self, offer: Offer) -> SinkFuture<'_> {
        let (give, acknowledged) = oneshot::channel();
        let id = id_of(&offer.key, offer.part);
        let Offer { key, part, block, .. } = offer;
        let reply = OfferedReply { key, part, route: self.route.clone(), block, most: self.most };
        let number = {
            let mut offers = self.all.offers();
            offers.last += 1;
            let number = offers.last;
            if let Some(before) = offers.numbers.insert(id.clone(), number) {
                offers.waiting.remove(&before);
            }
            let conversation = self.conversation.clone();
            let offer = WaitingOffer { conversation, id, reply, give: Some(give), stored: Vec::new() };
            offers.waiting.insert(number, offer);
            number
        };
        self.all.0.offered.send_replace(number);
        Box::pin(async move {
            acknowledged.await.map_err(|_| SinkError::Unavailable {
                reason: "another offer took its place".to_owned(),
                retry_after: None,
            })
        })
    }

    fn stored(&self, key: &ReplyKey, part: u32) {
        let mut offers = self.all.offers();
        let Some(number) = offers.numbers.get(&id_of(key, part)).copied() else { return };
        let waiting = offers.remove(number).into_iter().flat_map(|offer| offer.stored);
        // Those who are gone hear nothing.
        waiting.filter(|stored| !stored.is_closed()).for_each(|stored| stored.send(()).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use quipu_protocol::RunId;

    use super::*;

    fn offer(run: &str, text: &str) -> Offer {
        Offer {
            key: ReplyKey::of(&RunId::from(run), 1),
            part: 0,
            block: Block { text: text.to_owned(), ..Block::default() },
            attempt: 1,
            preview: false,
            replaces: None,
        }
    }

    #[test]
    fn blocks_have_room_to_end_at_a_good_place() {
        let config = StreamingConfig { max_chars: Some(100), ..StreamingConfig::default() };
        assert_eq!((blocks(&config).chunks.min, blocks(&config).chunks.max), (50, 100));
        let config = StreamingConfig { min_chars: Some(500), max_chars: Some(60), ..config };
        assert_eq!((blocks(&config).chunks.min, blocks(&config).chunks.max), (30, 60));
    }

    fn key(text: &str) -> SessionKey {
        SessionKey::parse(text).unwrap()
    }

    #[tokio::test]
    async fn reply_is_shown_until_its_acknowledgement_is_stored() {
        let all = Mailboxes::default();
        let (anna, bob) = (key("agent:main:direct:anna"), key("agent:main:direct:bob"));
        let route = Route { channel: DEFAULT_CHANNEL.into(), ..Route::default() };
        let sink = all.route(&anna, &route, &StreamingConfig::default()).unwrap().sink;
        let mut offered = sink.offer(offer("turn-1", "Hello"));
        assert!(futures_util::poll!(offered.as_mut()).is_pending());
        let own = MailboxFilter::Conversation(Box::new(anna.clone()));
        let (number, id, event) = all.next(0, &own).unwrap();
        assert_eq!((&*id, event["text"].as_str()), ("turn-1.1.0", Some("Hello")));
        assert!(all.next(number, &own).is_none());
        assert!(all.next(0, &MailboxFilter::Conversation(Box::new(bob.clone()))).is_none());
        assert!(all.next(0, &MailboxFilter::All).is_some());
        let given = || Acknowledgement { message: Some("7".into()) };
        assert_eq!(all.acknowledge(&bob, &id, given()).await, AckOutcome::Unknown);
        let mut ack = std::pin::pin!(all.acknowledge(&anna, &id, given()));
        assert!(futures_util::poll!(ack.as_mut()).is_pending());
        assert_eq!(offered.await, Ok(given()));
        assert!(all.next(0, &own).is_none(), "it is on its way into the store");
        sink.stored(&ReplyKey::of(&RunId::from("turn-1"), 1), 0);
        assert_eq!(ack.await, AckOutcome::Stored);
        assert_eq!(all.acknowledge(&anna, &id, given()).await, AckOutcome::Unknown);
        assert_eq!(all.waiting(), 0);
    }

    #[tokio::test]
    async fn reply_that_waits_is_shown_without_files_that_went() {
        let all = Mailboxes::default();
        let anna = key("agent:main:direct:anna");
        let route = Route { channel: DEFAULT_CHANNEL.into(), ..Route::default() };
        let sink = all.route(&anna, &route, &StreamingConfig::default()).unwrap().sink;
        let folder = tempfile::tempdir().unwrap();
        let plot = folder.path().canonicalize().unwrap().join("plot.png");
        std::fs::write(&plot, "a plot").unwrap();
        let mut reply = offer("turn-1", "Look:");
        reply.block.media.push(plot.display().to_string());
        let offered = sink.offer(reply);
        let shown = || all.next(0, &MailboxFilter::All).unwrap().2;
        assert_eq!(shown()["media"], json!([plot]));
        std::fs::rename(&plot, plot.with_file_name("moved.png")).unwrap();
        std::os::unix::fs::symlink("moved.png", &plot).unwrap();
        assert_eq!(shown()["media"], json!([]));
        let line = "(`plot.png` is not sent: it is gone, or a link took its place.)";
        assert_eq!(shown()["text"], format!("Look:\n{line}"));
        drop(offered);
    }

    #[tokio::test]
    async fn offer_that_nobody_waits_for_is_acknowledged_later() {
        let all = Mailboxes::default();
        let anna = key("agent:main:direct:anna");
        let route = |channel: &str| {
            let route = Route { channel: channel.into(), ..Route::default() };
            all.route(&anna, &route, &StreamingConfig::default())
        };
        let sink = route("irc").unwrap().sink;
        drop(sink.offer(offer("turn-1", "Hello")));
        let ack = all.acknowledge(&anna, "turn-1.1.0", Acknowledgement::default());
        assert_eq!(ack.await, AckOutcome::Retry);
        let again = sink.offer(offer("turn-1", "Hello"));
        let (number, ..) = all.next(0, &MailboxFilter::All).unwrap();
        assert_eq!((number, all.waiting()), (2, 1));
        drop(again);
        all.clear();
        assert_eq!(all.waiting(), 0);
        for channel in ["", "chat.completions", "Irc", &"x".repeat(65)] {
            assert!(route(channel).is_none());
        }
    }
}
