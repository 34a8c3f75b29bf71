//! Files of tensors: eight bytes with the length of a JSON header, the header, and the numbers.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use serde_json::{Map, Value};

/// Bytes of a header at most.
const MAX_HEADER: u64 = 16 << 20;

/// A file whose header was read. The numbers are read where they are asked for.
#[derive(Debug)]
pub(super) struct Tensors {
    file: File,
    /// Where the numbers begin.
    data: u64,
    length: u64,
    header: Map<String, Value>,
}

/// How a number is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
}

impl Kind {
    fn size(self) -> u64 {
        match self {
            Self::I8 => 1,
            Self::F16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }
}

/// Where a tensor is, and what it is made of. All of it lies within the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tensor {
    pub(super) kind: Kind,
    pub(super) shape: Vec<u64>,
    start: u64,
}

impl Tensors {
    /// Reads the header.
    pub(super) fn open(file: File) -> Result<Self, String> {
        let length = file.metadata().map_err(|error| error.to_string())?.len();
        let mut size = [0; 8];
        file.read_exact_at(&mut size, 0).map_err(|_| "it has no header".to_owned())?;
        let size = u64::from_le_bytes(size);
        if size > MAX_HEADER || size + 8 > length {
            return Err(format!("its header would have {size} bytes, and the file has {length}"));
        }
        let mut header = vec![0; usize::try_from(size).map_err(|error| error.to_string())?];
        file.read_exact_at(&mut header, 8).map_err(|error| error.to_string())?;
        match serde_json::from_slice(&header) {
            Ok(Value::Object(header)) => Ok(Self { file, data: 8 + size, length: length - 8 - size, header }),
            Ok(_) => Err("its header is not an object".into()),
            Err(error) => Err(format!("its header is not JSON ({error})")),
        }
    }

    /// A tensor of one of these names; `None` when there is none.
    pub(super) fn tensor(&self, names: &[&str]) -> Result<Option<Tensor>, String> {
        let Some((name, entry)) = names.iter().find_map(|name| Some((*name, self.header.get(*name)?))) else {
            return Ok(None);
        };
        let wrong = |what: &str| format!("its tensor {name:?} {what}");
        let kind = match entry.get("dtype").and_then(Value::as_str) {
            Some("F16") => Kind::F16,
            Some("F32") => Kind::F32,
            Some("F64") => Kind::F64,
            Some("I8") => Kind::I8,
            Some("I32") => Kind::I32,
            Some("I64") => Kind::I64,
            other => {
                return Err(wrong(&format!(
                    "has numbers of the type {:?}, which is not supported; F16, F32, F64, I8, I32 and I64 are",
                    other.unwrap_or_default()
                )));
            }
        };
        let numbers = |name: &str| -> Option<Vec<u64>> {
            entry.get(name)?.as_array()?.iter().map(Value::as_u64).collect()
        };
        let (Some(shape), Some(offsets)) = (numbers("shape"), numbers("data_offsets")) else {
            return Err(wrong("has no shape or no offsets"));
        };
        let wanted = shape.iter().try_fold(kind.size(), |product, count| product.checked_mul(*count));
        match (offsets.as_slice(), wanted) {
            ([start, end], Some(wanted))
                if *start <= *end && *end <= self.length && end - start == wanted =>
            {
                Ok(Some(Tensor { kind, shape, start: *start }))
            }
            _ => Err(wrong(&format!("does not fit the file: shape {shape:?}, from {offsets:?}"))),
        }
    }

    /// `count` numbers of a tensor, from the number `from` on. Whoever asks stays within its shape.
    pub(super) fn numbers(&self, tensor: &Tensor, from: u64, count: usize) -> io::Result<Vec<f64>> {
        let size = tensor.kind.size();
        let mut bytes = vec![0; count * usize::try_from(size).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, self.data + tensor.start + from * size)?;
        Ok(match tensor.kind {
            Kind::F16 => words(&bytes).map(|word| f64::from(half(u16::from_le_bytes(word)))).collect(),
            Kind::F32 => words(&bytes).map(|word| f64::from(f32::from_le_bytes(word))).collect(),
            Kind::F64 => words(&bytes).map(f64::from_le_bytes).collect(),
            Kind::I8 => words(&bytes).map(|word| f64::from(i8::from_le_bytes(word))).collect(),
            Kind::I32 => words(&bytes).map(|word| f64::from(i32::from_le_bytes(word))).collect(),
            #[expect(clippy::cast_precision_loss, reason = "row numbers, which are far below 2^52")]
            Kind::I64 => words(&bytes).map(|word| i64::from_le_bytes(word) as f64).collect(),
        })
    }

    /// Bytes that tell one file from another: the header, and pieces of the numbers.
    pub(super) fn samples(&self, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        const PIECES: u64 = 256;
        const PIECE: u64 = 1 << 10;
        take(&self.data.to_le_bytes());
        take(&self.length.to_le_bytes());
        take(Value::Object(self.header.clone()).to_string().as_bytes());
        for n in 0..PIECES {
            let from = self.length.saturating_sub(PIECE) / (PIECES - 1) * n;
            let mut piece = vec![0; usize::try_from(PIECE.min(self.length)).map_err(io::Error::other)?];
            self.file.read_exact_at(&mut piece, self.data + from)?;
            take(&piece);
        }
        Ok(())
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.as_chunks().0.iter().copied()
}

/// A number of half precision (IEEE 754).
fn half(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let (exponent, fraction) = (u32::from(bits >> 10) & 0x1f, u32::from(bits) & 0x3ff);
    match exponent {
        // Zero, and numbers below the normal ones: steps of 2^-24.
        0 => f32::from_bits(sign | (f32::from(bits & 0x3ff) * 2.0_f32.powi(-24)).to_bits()),
        0x1f => f32::from_bits(sign | 0x7f80_0000 | (fraction << 13)),
        _ => f32::from_bits(sign | ((exponent + 112) << 23) | (fraction << 13)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision() {
        for (bits, number) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x7bff, 65_504.0),
            (0x0400, 6.103_515_6e-5),
            (0x0001, 5.960_464_5e-8),
            (0x8000, -0.0),
            (0x7c00, f32::INFINITY),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(half(bits).to_bits(), f32::to_bits(number), "{bits:#x}");
        }
        assert!(half(0x7e00).is_nan());
    }
}
