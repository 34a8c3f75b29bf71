//! What each session of a process makes for itself and is mostly the same in all of them: equal values are one.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Values of a kind that sessions share, at most.
const SHARED: usize = 64;

/// The values of a kind that some session has.
pub(crate) struct SharedValues<T: ?Sized>(Mutex<Vec<Weak<T>>>);

impl<T: PartialEq + ?Sized> SharedValues<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// This value, or an equal one that some session has.
    pub(crate) fn shared(&self, value: impl Into<Arc<T>>) -> Arc<T> {
        let value = value.into();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|one| one.strong_count() > 0);
        if let Some(there) = known.iter().filter_map(Weak::upgrade).find(|there| **there == *value) {
            return there;
        }
        if known.len() < SHARED {
            known.push(Arc::downgrade(&value));
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_others_are_not() {
        let values = SharedValues::<str>::new();
        let (one, other) = (values.shared("one"), values.shared("other"));
        assert!(Arc::ptr_eq(&one, &values.shared("one")) && Arc::ptr_eq(&other, &values.shared("other")));
        assert_eq!((&*one, &*other), ("one", "other"));
        drop(one);
        assert_eq!(&*values.shared("one"), "one");
    }
}
