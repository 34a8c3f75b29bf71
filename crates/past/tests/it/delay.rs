//! A changed cover is served one turn later.

use proptest::prelude::*;
use quipu_past::delay::CoverDelay;

/// What each turn serves.
fn served(covers: &[u8]) -> Vec<u8> {
    let mut delay = CoverDelay::default();
    covers.iter().map(|cover| *delay.turn(*cover)).collect()
}

#[test]
fn change_is_seen_one_turn_later() {
    assert_eq!(served(&[1, 1, 2, 2, 2]), [1, 1, 1, 2, 2]);
}

#[test]
fn change_at_each_turn_stays_one_turn_behind() {
    assert_eq!(served(&[1, 2, 3, 4, 5, 5, 5]), [1, 1, 2, 3, 4, 5, 5]);
    assert_eq!(served(&[1, 2, 1, 2, 2]), [1, 1, 2, 1, 2]);
}

#[test]
fn cover_and_floor_change_together() {
    let mut delay = CoverDelay::default();
    assert_eq!(delay.turn(("old", 10)), &("old", 10));
    assert_eq!(delay.turn(("new", 20)), &("old", 10));
    assert_eq!(delay.pending(), Some(&("new", 20)));
    assert_eq!(delay.turn(("new", 20)), &("new", 20));
    assert_eq!((delay.pending(), delay.served()), (None, Some(&("new", 20))));
}

#[test]
fn restart_serves_at_once() {
    let mut delay = CoverDelay::default();
    delay.turn(1);
    delay.turn(2);
    assert_eq!(delay.restart(3), &3);
    assert_eq!(delay.turn(3), &3);
}

proptest! {
    #[test]
    fn delay_survives_serialisation(covers in prop::collection::vec(0..4_u8, 1..30)) {
        let mut text = serde_json::to_string(&CoverDelay::<u8>::default()).unwrap();
        let mut after = Vec::new();
        for cover in &covers {
            let mut delay: CoverDelay<u8> = serde_json::from_str(&text).unwrap();
            after.push(*delay.turn(*cover));
            text = serde_json::to_string(&delay).unwrap();
        }
        prop_assert_eq!(&after, &served(&covers));
        // What a turn serves is the cover of the turn before.
        prop_assert_eq!(after[0], covers[0]);
        prop_assert_eq!(&after[1..], &covers[..covers.len() - 1]);
    }
}

#[test]
fn delay_goes_on_from_what_was_kept() {
    assert_eq!(CoverDelay::resumed(1, Some(2)).turn(3), &2);
    let mut delay = CoverDelay::resumed(1, None);
    assert_eq!(delay.turn(3), &1);
    assert_eq!(delay.pending(), Some(&3));
}
