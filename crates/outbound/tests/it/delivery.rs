//! Delivery through a chat that fails, and after crashes.

use proptest::prelude::*;
use quipu_outbound::{
    Acknowledgement, Block, ChunkOptions, DeliveryError, MessageSink, Offer, Outbox, PartState, ReplyKey,
    ReplyStream, SinkError, SinkFuture, StreamInput, StreamOptions, StreamOutput,
};

use crate::faulty_sink::{Fault, FaultySink, poll};
use crate::splits::{pieces, sizes};

fn key(message: u32) -> ReplyKey {
    ReplyKey::of(&"run".into(), message)
}

fn block(text: &str) -> Block {
    Block { text: text.to_owned(), end: text.len(), ..Block::default() }
}

fn settle(outbox: &mut Outbox, offer: &Offer, result: Result<Acknowledgement, SinkError>, at: i64) {
    match result {
        Ok(acknowledgement) => outbox.acknowledge(&offer.key, offer.part, acknowledgement).unwrap(),
        Err(error) => outbox.fail(&offer.key, offer.part, &error, at).unwrap(),
    }
}

/// Delivers until nothing waits.
fn deliver(outbox: &mut Outbox, sink: &FaultySink, at: &mut i64) {
    while let Some(due) = outbox.deadline(*at) {
        *at = (*at).max(due);
        let Some(offer) = outbox.next(*at) else { continue };
        let mut future = sink.offer(offer.clone());
        let result = loop {
            if let Some(result) = poll(&mut future) {
                break result;
            }
        };
        settle(outbox, &offer, result, *at);
    }
}

fn stored(outbox: &Outbox) -> String {
    serde_json::to_string(outbox).unwrap()
}

fn restored(text: &str) -> Outbox {
    serde_json::from_str(text).unwrap()
}

#[test]
fn lost_acknowledgement_is_offered_again_under_the_same_key() {
    let sink = FaultySink::default();
    sink.plan(Fault::LostAcknowledgement);
    let mut outbox = Outbox::new();
    assert_eq!(outbox.record(&key(0), 0, block("Hello")), Ok(true));
    let first = outbox.next(0).unwrap();
    assert_eq!(outbox.next(0), None, "one offer at a time");
    let result = poll(&mut sink.offer(first.clone())).unwrap();
    settle(&mut outbox, &first, result, 0);
    assert_eq!(outbox.deadline(0), Some(1000));
    assert_eq!(outbox.next(999), None);
    let second = outbox.next(1000).unwrap();
    assert_eq!((&second.key, second.part, second.attempt), (&first.key, first.part, 2));
    let result = poll(&mut sink.offer(second.clone())).unwrap();
    settle(&mut outbox, &second, result, 1000);
    assert_eq!(sink.texts(), ["Hello"]);
    outbox.close(&key(0));
    assert!(outbox.reply(&key(0)).unwrap().is_settled());
    outbox.forget(&key(0));
    assert_eq!(outbox.replies(), []);
}

#[test]
fn crash_during_an_offer_offers_it_again() {
    let mut outbox = Outbox::new();
    outbox.record(&key(0), 0, block("Hello")).unwrap();
    let before = stored(&outbox);
    let offer = outbox.next(0).unwrap();
    let mut outbox = restored(&before);
    let again = outbox.next(0).unwrap();
    assert_eq!((again.key, again.part, again.block), (offer.key, offer.part, offer.block));
}

#[test]
fn pauses_double_up_to_a_minute() {
    let mut outbox = Outbox::new();
    outbox.record(&key(0), 0, block("Hello")).unwrap();
    let error = |retry_after| SinkError::Unavailable { reason: "no answer".to_owned(), retry_after };
    let mut at = 0;
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let offer = outbox.next(at).unwrap();
        outbox.fail(&offer.key, offer.part, &error(None), at).unwrap();
        let due = outbox.deadline(at).unwrap();
        pauses.push(due - at);
        at = due;
    }
    assert_eq!(pauses, [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]);
    let offer = outbox.next(at).unwrap();
    outbox.fail(&offer.key, offer.part, &error(Some(std::time::Duration::from_secs(90))), at).unwrap();
    assert_eq!(outbox.deadline(at), Some(at + 90_000));
    assert_eq!(outbox.deadline(at - 1_000_000), Some(at - 1_000_000));
    assert!(outbox.next(at - 1_000_000).is_some());
}

#[test]
fn refused_part_does_not_stop_the_next() {
    let mut outbox = Outbox::new();
    outbox.record(&key(0), 0, block("Bad")).unwrap();
    outbox.record(&key(0), 1, block("Good")).unwrap();
    let offer = outbox.next(0).unwrap();
    outbox.fail(&offer.key, offer.part, &SinkError::Refused { reason: "too rude".to_owned() }, 0).unwrap();
    let refused = PartState::Refused { reason: "too rude".to_owned() };
    assert_eq!(outbox.reply(&key(0)).unwrap().parts[0].state, refused);
    assert_eq!(outbox.next(0).unwrap().block.text, "Good");
}

#[test]
fn parts_are_recorded_once_and_in_order() {
    let mut outbox = Outbox::new();
    assert_eq!(outbox.record(&key(0), 0, block("Hello")), Ok(true));
    assert_eq!(outbox.record(&key(0), 0, block("Hello")), Ok(false));
    assert_eq!(
        outbox.record(&key(0), 2, block("!")),
        Err(DeliveryError::Gap { key: key(0), part: 2, expected: 1 })
    );
    outbox.close(&key(0));
    assert_eq!(outbox.record(&key(0), 0, block("Hello")), Ok(false));
    assert_eq!(outbox.record(&key(0), 1, block("!")), Err(DeliveryError::Closed { key: key(0), part: 1 }));
    let unknown = Err(DeliveryError::Unknown { key: key(9), part: 0 });
    assert_eq!(outbox.acknowledge(&key(9), 0, Acknowledgement::default()), unknown);
}

#[test]
fn final_reply_takes_the_place_of_its_preview() {
    for (faults, expected) in [
        (vec![], vec!["Hello world", "More"]),
        (vec![Fault::LostAcknowledgement], vec!["Hello world", "More"]),
        // The preview cannot be edited: a message under the same key follows it.
        (vec![Fault::NotEditable], vec!["Hel", "Hello world", "More"]),
    ] {
        let sink = FaultySink::default();
        let mut outbox = Outbox::new();
        for text in ["H", "Hel"] {
            let preview = outbox.preview(&key(0), text).unwrap();
            assert_eq!((preview.part, preview.preview), (0, true));
            let acknowledgement = poll(&mut sink.offer(preview)).unwrap().unwrap();
            outbox.acknowledge_preview(&key(0), acknowledgement);
        }
        assert_eq!(sink.texts(), ["Hel"]);
        let mut outbox = restored(&stored(&outbox));
        outbox.record(&key(0), 0, block("Hello world")).unwrap();
        outbox.record(&key(0), 1, block("More")).unwrap();
        assert_eq!(outbox.preview(&key(0), "late"), None);
        for fault in faults {
            sink.plan(fault);
        }
        deliver(&mut outbox, &sink, &mut 0);
        assert_eq!(sink.texts(), expected);
    }
}

fn fault() -> impl Strategy<Value = Fault> {
    prop::sample::select(vec![
        Fault::Nothing,
        Fault::Failure,
        Fault::LostAcknowledgement,
        Fault::DelayedAcknowledgement,
    ])
}

#[derive(Debug, Clone)]
enum Step {
    Record { message: u32 },
    Offer(Fault),
    Poll,
    Store,
    Crash,
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_u32..3).prop_map(|message| Step::Record { message }),
        5 => fault().prop_map(Step::Offer),
        4 => Just(Step::Poll),
        2 => Just(Step::Store),
        2 => Just(Step::Crash),
        2 => (-5_000_i64..70_000).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The outbox is stored with each part that is recorded, and otherwise now and then.
    #[test]
    fn nothing_is_lost_and_nothing_has_two_keys(steps in prop::collection::vec(step(), 0..60)) {
        let sink = FaultySink::default();
        let mut outbox = Outbox::new();
        let mut store = stored(&outbox);
        let mut recorded: Vec<(ReplyKey, u32, String)> = Vec::new();
        let mut flight: Option<(Offer, SinkFuture<'_>)> = None;
        let mut at = 0;
        let mut open = 0;
        for step in steps {
            match step {
                // Replies begin one after the other; a part can only be added to the last.
                Step::Record { message } => {
                    open = message.max(open);
                    let key = key(open);
                    let part = outbox.progress(&key).parts;
                    let text = format!("text {}", recorded.len());
                    prop_assert_eq!(outbox.record(&key, part, block(&text)), Ok(true));
                    store = stored(&outbox);
                    recorded.push((key, part, text));
                }
                Step::Offer(fault) => {
                    if flight.is_none() && let Some(offer) = outbox.next(at) {
                        sink.plan(fault);
                        flight = Some((offer.clone(), sink.offer(offer)));
                    }
                }
                Step::Poll => {
                    if let Some((offer, mut future)) = flight.take() {
                        match poll(&mut future) {
                            Some(result) => settle(&mut outbox, &offer, result, at),
                            None => flight = Some((offer, future)),
                        }
                    }
                }
                Step::Store => store = stored(&outbox),
                Step::Crash => {
                    flight = None;
                    outbox = restored(&store);
                }
                Step::Wait(wait) => at += wait,
            }
        }
        if let Some((offer, _)) = flight.take() {
            let error = SinkError::Unavailable { reason: "dropped".to_owned(), retry_after: None };
            settle(&mut outbox, &offer, Err(error), at);
        }
        deliver(&mut outbox, &sink, &mut at);
        let expected: Vec<String> = recorded.into_iter().map(|(_, _, text)| text).collect();
        prop_assert_eq!(sink.texts(), expected);
    }

    /// The process is killed while an answer streams; the next one has the whole answer and the stored outbox.
    #[test]
    fn answer_is_continued_after_a_crash(
        words in prop::collection::vec("[a-z]{1,9}[.!]?", 1..60),
        separators in prop::collection::vec(prop::sample::select(vec![" ", "\n", "\n\n", "\n```\n"]), 60),
        sizes in sizes(),
        crash in 0_usize..400,
        faults in prop::collection::vec(fault(), 0..20),
    ) {
        let text: String = words.iter().zip(separators.iter().cycle()).flat_map(|(word, separator)| [word.as_str(), separator]).collect();
        let options = StreamOptions { chunks: ChunkOptions { min: 8, max: 40, ..ChunkOptions::default() }, ..StreamOptions::default() };
        let sink = FaultySink::default();
        for fault in &faults {
            sink.plan(*fault);
        }
        let mut outbox = Outbox::new();
        let mut at = 0;
        let mut stream = ReplyStream::new("run".into(), options.clone());
        let record = |outbox: &mut Outbox, outputs: Vec<StreamOutput>| {
            for output in outputs {
                match output {
                    StreamOutput::Block { key, part, block } => assert_eq!(outbox.record(&key, part, block), Ok(true)),
                    StreamOutput::Closed { key, .. } => outbox.close(&key),
                    StreamOutput::Flushed => {}
                }
            }
        };
        let mut ended = true;
        record(&mut outbox, stream.on(StreamInput::MessageStarted, at));
        for (index, piece) in pieces(&text, &sizes).iter().enumerate() {
            if index == crash {
                ended = false;
                break;
            }
            record(&mut outbox, stream.on(StreamInput::Text(piece), at));
            if index % 3 == 0 && let Some(offer) = outbox.next(at) {
                let result = poll(&mut sink.offer(offer.clone()));
                let lost = SinkError::Unavailable { reason: "dropped".to_owned(), retry_after: None };
                settle(&mut outbox, &offer, result.unwrap_or(Err(lost)), at);
            }
        }
        if ended {
            record(&mut outbox, stream.on(StreamInput::MessageEnded { text: None }, at));
        } else {
            outbox = restored(&stored(&outbox));
            let mut stream = ReplyStream::resume("run".into(), options, 0, outbox.progress(&key(0)));
            record(&mut outbox, stream.on(StreamInput::MessageStarted, at));
            record(&mut outbox, stream.on(StreamInput::MessageEnded { text: Some(&text) }, at));
        }
        deliver(&mut outbox, &sink, &mut at);
        prop_assert!(outbox.reply(&key(0)).unwrap().is_settled());
        let plain = |text: &str| text.replace("```", "").split_whitespace().collect::<String>();
        prop_assert_eq!(plain(&sink.texts().join(" ")), plain(&text));
        prop_assert!(sink.offers() > 0);
    }
}

#[test]
fn parts_that_are_over_take_no_room() {
    let mut outbox = Outbox::new();
    let block = |text: &str| Block { text: text.to_owned(), ..Block::default() };
    for part in 0..3 {
        outbox.record(&key(0), part, block(&format!("part {part}"))).unwrap();
    }
    for part in 0..2 {
        outbox.next(0).unwrap();
        outbox.acknowledge(&key(0), part, Acknowledgement::default()).unwrap();
    }
    outbox.settle(&key(0), 1);
    assert_eq!((outbox.reply(&key(0)).unwrap().parts.len(), outbox.progress(&key(0)).parts), (2, 3));
    outbox.settle(&key(0), 9);
    let stored = serde_json::to_string(&outbox).unwrap();
    assert!(!stored.contains("part 1") && stored.contains("part 2"), "{stored}");
    // It goes on where it was, and a late acknowledgement changes nothing.
    let mut outbox: Outbox = serde_json::from_str(&stored).unwrap();
    outbox.acknowledge(&key(0), 1, Acknowledgement::default()).unwrap();
    assert!(!outbox.record(&key(0), 1, block("other")).unwrap());
    assert!(outbox.record(&key(0), 3, block("part 3")).unwrap());
    assert_eq!(outbox.next(0).unwrap().part, 2);
    outbox.acknowledge(&key(0), 2, Acknowledgement::default()).unwrap();
    assert_eq!(outbox.next(0).unwrap().part, 3);
    outbox.acknowledge(&key(0), 3, Acknowledgement::default()).unwrap();
    outbox.close(&key(0));
    assert!(outbox.reply(&key(0)).unwrap().is_settled());
    outbox.forget(&key(0));
    assert_eq!(outbox.replies(), []);
}
