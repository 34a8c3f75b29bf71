//! What is read anew for each session and seldom differs: a value that equals the latest one is that one, so that a process
//! with many sessions has it once.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The value of this kind that was made last, as long as somebody has it.
pub(crate) struct Latest<T>(Mutex<Weak<T>>);

impl<T: PartialEq> Latest<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// This value, or the latest one where that equals it.
    pub(crate) fn shared(&self, value: T) -> Arc<T> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = latest.upgrade().filter(|there| **there == value) {
            return there;
        }
        let value = Arc::new(value);
        *latest = Arc::downgrade(&value);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_others_are_not() {
        let latest = Latest::new();
        let first = latest.shared("a".to_owned());
        assert!(Arc::ptr_eq(&first, &latest.shared("a".to_owned())));
        let second = latest.shared("b".to_owned());
        assert_eq!((&**first, &**second), ("a", "b"));
        drop(second);
        assert_eq!(*latest.shared("b".to_owned()), "b");
    }
}
