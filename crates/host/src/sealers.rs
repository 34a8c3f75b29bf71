//! The sealers of this process: what is written beside the store, by whomever, passes all of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use quipu::Sealer;
use quipu_protocol::Json;

static SEALERS: Mutex<Vec<Weak<Sealer>>> = Mutex::new(Vec::new());

fn sealers() -> MutexGuard<'static, Vec<Weak<Sealer>>> {
    SEALERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on [`sealed`] seals with this as well, as long as somebody holds it.
pub fn seals_with(sealer: &Arc<Sealer>) {
    let mut all = sealers();
    all.retain(|one| one.strong_count() > 0);
    all.push(Arc::downgrade(sealer));
}

/// A text without the secrets that any sealer of this process knows, or finds by their form.
pub fn sealed(text: &str) -> String {
    // Not held while text is searched.
    let all: Vec<Arc<Sealer>> = sealers().iter().filter_map(Weak::upgrade).collect();
    all.iter().fold(text.to_owned(), |text, sealer| sealer.seal(&text).into_owned())
}

/// The same for the texts in JSON.
pub fn sealed_json(json: &Json) -> Json {
    let all: Vec<Arc<Sealer>> = sealers().iter().filter_map(Weak::upgrade).collect();
    all.iter().fold(json.clone(), |json, sealer| sealer.seal_json(&json))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sealer_seals_while_it_is_held() {
        let (one, two) = (Arc::new(Sealer::new([1; 32])), Arc::new(Sealer::new([2; 32])));
        one.know("one", "horse-battery");
        two.know("two", "staple-correct");
        seals_with(&one);
        seals_with(&two);
        let text = sealed("horse-battery staple-correct");
        assert!(text.contains("[REDACTED:one:") && text.contains("[REDACTED:two:"), "{text}");
        let json = sealed_json(&Json::from(serde_json::json!({ "a": "horse-battery" })));
        assert!(json.get().contains("[REDACTED:one:"), "{json}");
        drop(two);
        assert!(sealed("staple-correct").ends_with("staple-correct"));
    }
}
