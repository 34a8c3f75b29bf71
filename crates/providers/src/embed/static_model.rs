//! A static model on disk: a row of numbers for each piece of a word, and the vector of a text is their mean. The
//! directory is as model2vec writes it: `model.safetensors`, `tokenizer.json`, `config.json`.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use quipu_protocol::{ModelError, ModelErrorKind};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::safetensors::{Kind, Tensor, Tensors};
use super::tokenizer::Tokenizer;
use super::{Embedder, Embeddings, MAX_DIMENSIONS};

/// Bytes of `tokenizer.json` at most.
const MAX_TOKENIZER: u64 = 64 << 20;
/// Bytes of `config.json` at most.
const MAX_CONFIG: u64 = 1 << 20;
/// Pieces of one text that are read at most.
const MOST_PIECES: usize = 512;

/// The files of a static model cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be used: {problem}.")]
pub struct StaticModelError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

/// A static model, open. Only the rows that are needed are read, each time.
#[derive(Debug)]
pub struct StaticModel {
    path: PathBuf,
    tokenizer: Tokenizer,
    tensors: Tensors,
    rows: Tensor,
    width: usize,
    /// The row of each piece, where several share one.
    mapping: Option<Vec<u64>>,
    /// How much each piece counts.
    weights: Option<Vec<f64>>,
    normalize: bool,
    id: String,
}

impl StaticModel {
    /// Opens the model in the directory `path`.
    ///
    /// # Errors
    /// When one of its files is missing, damaged, too large, or of a kind that is not read.
    pub fn open(path: &Path) -> Result<Self, StaticModelError> {
        let wrong = |name: &str| {
            let path = path.join(name);
            move |problem: String| StaticModelError { path, problem }
        };
        let config = read(path, "config.json", MAX_CONFIG).map_err(wrong("config.json"))?;
        let config: Value = serde_json::from_slice(&config)
            .map_err(|error| wrong("config.json")(format!("it is not JSON ({error})")))?;
        let json = read(path, "tokenizer.json", MAX_TOKENIZER).map_err(wrong("tokenizer.json"))?;
        let tokenizer = Tokenizer::read(&json).map_err(wrong("tokenizer.json"))?;
        let name = "model.safetensors";
        let tensors = open(path, name).and_then(Tensors::open).map_err(wrong(name))?;
        let (rows, width) = matrix(&tensors).map_err(wrong(name))?;
        let mut model = Self {
            path: path.join(name),
            normalize: config.get("normalize").and_then(Value::as_bool).unwrap_or(true),
            tokenizer,
            tensors,
            rows,
            width,
            mapping: None,
            weights: None,
            id: String::new(),
        };
        model.add_shared_rows().map_err(wrong(name))?;
        let mut hash = Sha256::new();
        hash.update(&json);
        hash.update([u8::from(model.normalize)]);
        let sampled = model.tensors.samples(&mut |bytes| hash.update(bytes));
        sampled.map_err(|error| wrong(name)(error.to_string()))?;
        let hash = hash.finalize();
        let hash = quipu_protocol::hex(&hash[..16]);
        model.id = format!("static {width} {hash}");
        Ok(model)
    }

    /// Rows that several pieces share, and how much each counts.
    fn add_shared_rows(&mut self) -> Result<(), String> {
        let pieces = self.tokenizer.rows();
        let list = |name: &str| -> Result<Option<Vec<f64>>, String> {
            let Some(tensor) = self.tensors.tensor(&[name])? else { return Ok(None) };
            let [count] = *tensor.shape.as_slice() else {
                return Err(format!("its tensor {name:?} is not a list"));
            };
            if count < pieces {
                return Err(format!("its tensor {name:?} has {count} numbers for {pieces} pieces of words"));
            }
            let count = usize::try_from(count).map_err(|error| error.to_string())?;
            let numbers = self.tensors.numbers(&tensor, 0, count).map_err(|error| error.to_string())?;
            if numbers.iter().any(|number| !number.is_finite()) {
                return Err(format!("its tensor {name:?} has a number that is not finite"));
            }
            Ok(Some(numbers))
        };
        let (mapping, weights) = (list("mapping")?, list("weights")?);
        let count = self.rows.shape.first().copied().unwrap_or(0);
        if let Some(mapping) = mapping {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "the range was looked at, and rows are far fewer than 2^52"
            )]
            let row = |number: &f64| (0.0..count as f64).contains(number).then_some(*number as u64);
            let mapping: Option<Vec<u64>> = mapping.iter().map(row).collect();
            self.mapping = Some(mapping.ok_or("its tensor \"mapping\" names a row that does not exist")?);
        } else if count < pieces {
            return Err(format!("it has {count} rows for {pieces} pieces of words"));
        }
        self.weights = weights;
        Ok(())
    }

    /// How many numbers a vector has.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The sum of the rows of a word's pieces: a vector that is neither scaled nor a mean.
    ///
    /// # Errors
    /// `InvalidRequest` where the file of the model is damaged.
    pub fn word(&self, word: &str) -> Result<Vec<f32>, ModelError> {
        let (sum, _) = self.sum(word)?;
        #[expect(clippy::cast_possible_truncation, reason = "less exact is enough")]
        Ok(sum.iter().map(|number| *number as f32).collect())
    }

    fn damaged(&self, problem: &str) -> ModelError {
        let path = self.path.display();
        ModelError::new(
            ModelErrorKind::InvalidRequest,
            format!(
                "{path} cannot be used: {problem}. Download the model again, or correct search.semantic.path."
            ),
        )
    }

    /// The sum of the rows of a text's pieces, and how many there are.
    fn sum(&self, text: &str) -> Result<(Vec<f64>, usize), ModelError> {
        let pieces = self.tokenizer.pieces(text, MOST_PIECES);
        let mut sum = vec![0.0_f64; self.width];
        for piece in &pieces {
            let place = usize::try_from(*piece).unwrap_or(usize::MAX);
            let row = match &self.mapping {
                Some(mapping) => mapping.get(place).copied().unwrap_or_default(),
                None => u64::from(*piece),
            };
            let weight = self.weights.as_ref().and_then(|all| all.get(place)).copied().unwrap_or(1.0);
            let numbers = self
                .tensors
                .numbers(&self.rows, row * self.width as u64, self.width)
                .map_err(|error| self.damaged(&error.to_string()))?;
            for (sum, number) in sum.iter_mut().zip(&numbers) {
                *sum += number * weight;
            }
        }
        Ok((sum, pieces.len()))
    }

    /// The vector of a text: zero when no piece of it is known.
    fn vector(&self, text: &str) -> Result<Vec<f32>, ModelError> {
        let (mut sum, count) = self.sum(text)?;
        #[expect(clippy::cast_precision_loss, reason = "at most 512")]
        let count = count.max(1) as f64;
        for number in &mut sum {
            *number /= count;
        }
        let length = sum.iter().map(|number| number * number).sum::<f64>().sqrt();
        if !length.is_finite() {
            return Err(self.damaged("a row has a number that is not finite"));
        }
        let scale = if self.normalize && length > 0.0 { length } else { 1.0 };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "less exact is enough; what is beyond is seen below"
        )]
        let vector: Vec<f32> = sum.iter().map(|number| (number / scale) as f32).collect();
        if vector.iter().all(|number| number.is_finite()) {
            Ok(vector)
        } else {
            Err(self.damaged("a row has a number that is not finite"))
        }
    }
}

impl Embedder for StaticModel {
    fn id(&self) -> &str {
        &self.id
    }

    fn is_local(&self) -> bool {
        true
    }

    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Embeddings, ModelError>> {
        Box::pin(async move {
            let mut made = Embeddings::default();
            for text in texts {
                made.vectors.push(self.vector(text)?);
            }
            Ok(made)
        })
    }
}

fn matrix(tensors: &Tensors) -> Result<(Tensor, usize), String> {
    let found = tensors.tensor(&["embeddings", "embedding.weight"])?;
    let tensor = found.ok_or("it has no tensor \"embeddings\"")?;
    if !matches!(tensor.kind, Kind::F16 | Kind::F32 | Kind::F64 | Kind::I8) {
        return Err("its tensor \"embeddings\" holds row numbers".into());
    }
    let &[_, width] = tensor.shape.as_slice() else {
        return Err(format!("its tensor \"embeddings\" is not a table: shape {:?}", tensor.shape));
    };
    let width = usize::try_from(width).ok().filter(|width| (1..=MAX_DIMENSIONS).contains(width));
    let width = width.ok_or_else(|| format!("its rows must have 1 to {MAX_DIMENSIONS} numbers"))?;
    Ok((tensor, width))
}

fn open(directory: &Path, name: &str) -> Result<File, String> {
    let path = directory.join(name);
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err("it does not exist".into()),
        Err(error) => Err(error.to_string()),
        Ok(found) if !found.is_file() => Err("it is not a regular file".into()),
        Ok(_) => File::open(&path).map_err(|error| error.to_string()),
    }
}

fn read(directory: &Path, name: &str, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = open(directory, name)?.take(most + 1).read_to_end(&mut bytes);
    match read.map_err(|error| error.to_string())? as u64 {
        read if read > most => Err(format!("it has more than {most} bytes")),
        _ => Ok(bytes),
    }
}
