//! Queues that are emptied at once.

use std::num::NonZeroU32;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn queues_that_are_emptied_at_once_keep_the_laws(moves in moves(), choices in prop::collection::vec(0_u8..8, 0..40)) {
        let mut world = World::new();
        let mut choices = choices.into_iter();
        for next in moves {
            if let Some(choice) = choices.next() {
                let drain = |at: u8| if choice & at > 0 { QueueDrain::All } else { QueueDrain::First };
                let (steering, follow_up) = (Some(drain(1)), Some(drain(2)));
                let auto_compaction = Some(choice & 4 > 0);
                let turns = NonZeroU32::new(u32::from(choice) % 4).map(TurnLimit::Newest);
                let turns = Some(turns.unwrap_or_default());
                world.give(MachineInput::Tuned(LiveChanges { auto_compaction, steering, follow_up, turns }));
            }
            world.play(next);
        }
        world.finish();
        world.laws.finish().unwrap();
        let conversation = quipu_transcript::project_messages(world.machine.messages.iter().cloned());
        quipu_transcript::check_conversation(&conversation).unwrap();
        let waiting = world.machine.steering.iter().chain(&world.machine.follow_up);
        let mut waiting: Vec<_> = waiting.map(|item| (item.session.clone(), item.id.clone())).collect();
        waiting.sort();
        world.inbox.sort();
        prop_assert_eq!(&world.inbox, &waiting, "the queues are what is stored");
    }
}
