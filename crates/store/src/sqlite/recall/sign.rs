//! A vector in one bit for each number: enough to tell which ones are worth a look.
//!
//! A vector is turned first, by the same amount each time, so that what it says is spread evenly over its numbers. The bit says
//! which side of nothing a number is on. From the bits of one vector and the numbers of another their cosine is estimated
//! (as RaBitQ does it): for 256 numbers it is off by 0.05 in two of three cases.

use super::words::weight;

/// Numbers whose bits are looked up together.
const BITS: usize = 8;
/// Bytes behind the bits: how much of the vector they hold.
const HELD: usize = 2;
/// What the numbers of a question are multiplied by.
const SCALE: f32 = 8_192.0;

/// How many numbers a turned vector has.
fn turned_width(width: usize) -> usize {
    width.next_power_of_two().max(BITS)
}

/// Bytes of a sign of a vector of so many numbers.
pub(super) fn size(width: usize) -> usize {
    turned_width(width) / BITS + HELD
}

/// A vector of length 1 in this direction, turned; `None` for one without a direction.
fn turned(vector: &[f32]) -> Option<Vec<f32>> {
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    if !(length.is_finite() && length > 0.0) {
        return None;
    }
    let mut turned: Vec<f32> = vector.iter().map(|number| number / length).collect();
    turned.resize(turned_width(vector.len()), 0.0);
    let scale = 1.0 / (turned.len() as f32).sqrt();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..2 {
        for number in &mut turned {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            *number *= if random & 1 == 0 { scale } else { -scale };
        }
        // Sums and differences of each two, of each two of these, and so on (Hadamard).
        let mut half = 1;
        while half < turned.len() {
            for pair in turned.chunks_exact_mut(2 * half) {
                let (left, right) = pair.split_at_mut(half);
                for (a, b) in left.iter_mut().zip(right) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            half *= 2;
        }
    }
    Some(turned)
}

/// The sign of a vector; nothing but zeros for one without a direction.
pub(super) fn of(vector: &[f32]) -> Vec<u8> {
    let mut sign = vec![0; size(vector.len())];
    let Some(turned) = turned(vector) else { return sign };
    let mut held = 0.0;
    for (byte, numbers) in sign.iter_mut().zip(turned.chunks_exact(BITS)) {
        for (bit, number) in numbers.iter().enumerate() {
            *byte |= u8::from(*number >= 0.0) << bit;
            held += number.abs();
        }
    }
    // At most the root of the width, where all numbers are the same.
    let share = f64::from(held) / (turned.len() as f64).sqrt();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 65,535")]
    let share = (share * 65_535.0).clamp(1.0, 65_535.0) as u16;
    let end = sign.len() - HELD;
    sign[end..].copy_from_slice(&share.to_le_bytes());
    sign
}

/// A vector that signs are compared with.
pub(super) struct SignTarget {
    /// For each byte of a sign and each value of it what its bits add.
    sums: Vec<[i16; 1 << BITS]>,
    /// What a sum is divided by for a cosine, but for the share that a sign holds.
    root: f32,
}

impl SignTarget {
    /// `None` for a vector without a direction.
    pub(super) fn new(vector: &[f32]) -> Option<Self> {
        let turned = turned(vector)?;
        let mut sums = vec![[0_i16; 1 << BITS]; turned.len() / BITS];
        for (sums, numbers) in sums.iter_mut().zip(turned.chunks_exact(BITS)) {
            for (bits, sum) in sums.iter_mut().enumerate() {
                let add = |(bit, number): (usize, &f32)| if bits >> bit & 1 == 1 { *number } else { -number };
                let all: f32 = numbers.iter().enumerate().map(add).sum();
                // Eight numbers of a vector of length 1 add up to 2.9 at most.
                #[expect(clippy::cast_possible_truncation, reason = "below 32,767")]
                let whole = (all * SCALE).round() as i16;
                *sum = whole;
            }
        }
        let root = weight((turned.len() as f64).sqrt()) * SCALE / 65_535.0;
        Some(Self { sums, root })
    }

    /// About how near a vector is by its sign; `None` for one without a direction.
    pub(super) fn nearness(&self, sign: &[u8]) -> Option<f32> {
        let (bits, held) = sign.split_at_checked(self.sums.len())?;
        let held = u16::from_le_bytes(held.try_into().ok()?);
        if held == 0 {
            return None;
        }
        let sum: i32 =
            bits.iter().zip(&self.sums).map(|(byte, sums)| i32::from(sums[usize::from(*byte)])).sum();
        Some(sum as f32 / (self.root * f32::from(held)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u64, width: usize) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % 2_001) as f32 - 1_000.0
        };
        (0..width).map(|_| (0..4).map(|_| next()).sum()).collect()
    }

    #[test]
    fn cosines_are_estimated_from_signs() {
        for width in [1, 4, 100, 256] {
            let nothing = of(&vec![0.0; width]);
            assert_eq!((nothing.len(), nothing.iter().max()), (size(width), Some(&0)));
            let vector = random(7, width);
            let near = SignTarget::new(&vector).and_then(|wanted| wanted.nearness(&of(&vector)));
            assert!(near.is_some_and(|near| (near - 1.0).abs() < 0.01), "{width}: {near:?}");
        }
        assert!(SignTarget::new(&[0.0; 4]).is_none());
        let (mut off, mut count) = (0.0, 0.0);
        for seed in 1..200 {
            let (one, noise) = (random(seed, 256), random(seed + 1_000, 256));
            let share = seed as f32 / 200.0;
            let other: Vec<f32> =
                one.iter().zip(&noise).map(|(a, b)| share * a + (1.0 - share) * b).collect();
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            let cosine = dot(&one, &other) / (dot(&one, &one) * dot(&other, &other)).sqrt();
            let near = SignTarget::new(&one).unwrap().nearness(&of(&other)).unwrap();
            assert!((near - cosine).abs() < 0.2, "{near} for {cosine}");
            off += (near - cosine).powi(2);
            count += 1.0;
        }
        assert!((off / count).sqrt() < 0.05, "{}", (off / count).sqrt());
    }
}
