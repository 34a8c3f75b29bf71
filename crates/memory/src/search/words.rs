//! The words of a static model, each read once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use quipu_providers::{Embedder as _, StaticModel};
use quipu_store::WordVectors;

/// Words that are kept in memory at most.
const KEPT: usize = 20_000;

pub(super) struct ModelWords {
    model: StaticModel,
    id: String,
    known: Mutex<HashMap<String, Arc<[f32]>>>,
}

impl ModelWords {
    pub(super) fn new(model: StaticModel) -> Self {
        let id = format!("words of {}", model.id());
        Self { model, id, known: Mutex::default() }
    }
}

impl WordVectors for ModelWords {
    fn id(&self) -> &str {
        &self.id
    }

    fn width(&self) -> usize {
        self.model.width()
    }

    fn word(&self, word: &str) -> Arc<[f32]> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(vector) = known.get(word) {
            return vector.clone();
        }
        if known.len() >= KEPT {
            known.clear();
        }
        // A word that cannot be read counts for nothing.
        let vector = self.model.word(word).unwrap_or_default();
        let vector: Arc<[f32]> =
            if vector.iter().all(|number| number.is_finite()) { vector.into() } else { Arc::default() };
        known.insert(word.to_owned(), vector.clone());
        vector
    }
}
