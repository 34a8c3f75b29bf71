//! Notes on background commands in every order of events.

use quipu_protocol::{Body, CustomMessage};

use super::*;

impl World {
    /// A background command ended.
    fn note(&mut self, wakes: bool) {
        self.note_that(wakes.then(|| NoteWake::Idle(RunId::from(format!("woken{}", self.sent)))));
    }

    fn note_that(&mut self, wake: Option<NoteWake>) {
        let message = CustomMessage {
            custom_type: "note".into(),
            content: Body::Text(format!("ended {}", self.sent)),
            display: true,
            details: None,
            timestamp: 0,
        };
        let draft = Draft::new(Entry::Message(Message::Custom(message)));
        self.give(MachineInput::Background(Box::new(BackgroundNote { draft, wake })));
    }

    fn notes(&self) -> usize {
        let is_note = |entry: &Entry| matches!(entry, Entry::Message(Message::Custom(_)));
        self.tree.values().filter(|(_, entry)| is_note(entry)).count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn notes_of_background_commands_become_nodes_once(
        moves in moves(), notes in prop::collection::vec(0_u8..6, 0..120), closes in any::<bool>(),
        has_hooks in any::<bool>(),
    ) {
        let mut world = World::of(Start { has_hooks, ..start() });
        let (mut notes, mut given) = (notes.into_iter(), 0);
        for next in moves {
            world.play(next);
            // There is none before the first call of a tool, or after the end.
            if let Some(choice @ 0..=2) = notes.next()
                && world.machine.head().is_some()
                && !world.machine.is_closing()
            {
                match choice {
                    2 => world.note_that(Some(NoteWake::Running)),
                    choice => world.note(choice == 0),
                }
                given += 1;
            }
        }
        if closes {
            world.command(Command::Close);
        }
        world.finish();
        world.laws.finish().unwrap();
        prop_assert_eq!(world.stopped, u32::from(closes));
        if !closes {
            // What could not be stored goes with the next commit.
            world.command(Command::Prompt { input: "again".into(), when: QueueMode::Now });
            world.finish();
            world.is_as_resumed();
        }
        prop_assert!(world.machine.background.is_empty());
        let waiting = world.machine.unsaved.iter().filter(|draft| message_is_note(draft)).count();
        prop_assert_eq!(world.notes() + waiting, given, "each is a node once");
    }
}

fn message_is_note(draft: &Draft) -> bool {
    matches!(&*draft.entry, Entry::Message(Message::Custom(_)))
}

/// An idle session with one run behind it.
fn idle() -> World {
    let mut world = World::of(start());
    world.command(Command::Prompt { input: "begin".into(), when: QueueMode::Now });
    world.finish();
    world
}

#[test]
fn note_wakes_an_idle_session_and_a_quiet_one_waits() {
    let mut world = idle();
    let requests = world.requests.len();
    world.note(false);
    world.finish();
    assert_eq!((world.notes(), world.requests.len()), (1, requests), "a node, and no request");
    world.note(true);
    world.finish();
    assert_eq!(world.notes(), 2);
    assert!(world.requests.len() > requests, "the model is asked");
    world.is_as_resumed();
}

#[test]
fn notes_wake_no_session_for_ever() {
    let mut world = idle();
    let requests = world.requests.len();
    for _ in 0..40 {
        world.note(true);
        world.finish();
    }
    assert_eq!(world.notes(), 40);
    let woken = world.requests.len() - requests;
    assert!((20..40).contains(&woken), "{woken}");
    world.command(Command::Prompt { input: "more".into(), when: QueueMode::Now });
    world.finish();
    let requests = world.requests.len();
    world.note(true);
    world.finish();
    assert!(world.requests.len() > requests, "a person spoke");
}
