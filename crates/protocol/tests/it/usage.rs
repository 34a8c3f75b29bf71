//! Sums of usage.

use quipu_protocol::{Cost, Usage};

#[test]
fn usage_adds_tokens_and_cost() {
    let cost = Cost { input: 0.5, output: 0.25, cache_read: 0.125, cache_write: 1.0, total: 1.875 };
    let one = Usage {
        input: 1,
        output: 2,
        cache_read: 3,
        cache_write: 4,
        total_tokens: 10,
        cost,
        ..Usage::default()
    };
    let other = Usage { input: u64::MAX, reasoning: Some(5), cache_write_1h: Some(6), ..one };
    let mut sum = Usage::default();
    sum += &one;
    assert_eq!(sum, one);
    sum += &other;
    let doubled = Cost { input: 1.0, output: 0.5, cache_read: 0.25, cache_write: 2.0, total: 3.75 };
    let wanted = Usage {
        input: u64::MAX,
        output: 4,
        cache_read: 6,
        cache_write: 8,
        cache_write_1h: Some(6),
        reasoning: Some(5),
        total_tokens: 20,
        cost: doubled,
    };
    assert_eq!(sum, wanted);
}
