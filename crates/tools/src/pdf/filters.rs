//! Streams, unpacked.

use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_with_limit, decompress_to_vec_zlib_with_limit};

use super::limits::{Budget, PdfError};
use super::object::{Dict, Object, digit, is_space};

/// Filters of one stream at most.
const FILTERS: usize = 8;

/// The bytes of a stream; `None` where it is packed as only images are. `members` have no references.
pub(super) fn unpack(
    bytes: &[u8],
    members: &Dict,
    budget: &mut Budget<'_>,
) -> Result<Option<Vec<u8>>, PdfError> {
    let list = |short: &str, long: &str| match members.get(long).or_else(|| members.get(short)) {
        Some(Object::Array(items)) => items.clone(),
        Some(Object::Null) | None => Vec::new(),
        Some(one) => vec![one.clone()],
    };
    budget.looked_at(bytes.len())?;
    let (filters, parameters) = (list("F", "Filter"), list("DP", "DecodeParms"));
    if filters.is_empty() {
        budget.unpacked(bytes.len())?;
        return Ok(Some(bytes.to_vec()));
    }
    let mut data = bytes.to_vec();
    for (number, filter) in filters.iter().take(FILTERS).enumerate() {
        let parameters = match parameters.get(number) {
            Some(Object::Dict(parameters)) => parameters.clone(),
            _ => Dict::new(),
        };
        let unpacked = match filter.name() {
            Some("FlateDecode" | "Fl") => predicted(inflate(&data, budget)?, &parameters),
            Some("LZWDecode" | "LZW") => predicted(lzw(&data, &parameters, budget)?, &parameters),
            Some("ASCII85Decode" | "A85") => ascii85(&data),
            Some("ASCIIHexDecode" | "AHx") => ascii_hex(&data),
            Some("RunLengthDecode" | "RL") => run_length(&data, budget)?,
            _ => return Ok(None),
        };
        budget.unpacked(unpacked.len())?;
        data = unpacked;
    }
    Ok(Some(data))
}

/// What there is of a stream that breaks off.
fn inflate(bytes: &[u8], budget: &Budget<'_>) -> Result<Vec<u8>, PdfError> {
    let failed = match decompress_to_vec_zlib_with_limit(bytes, budget.room()) {
        Ok(data) => return Ok(data),
        Err(failed) => failed,
    };
    if failed.status == TINFLStatus::HasMoreOutput {
        return Err(PdfError::Bomb);
    }
    if !failed.output.is_empty() {
        return Ok(failed.output);
    }
    // Some streams have no header.
    match decompress_to_vec_with_limit(bytes, budget.room()) {
        Ok(data) => Ok(data),
        Err(failed) if failed.status == TINFLStatus::HasMoreOutput => Err(PdfError::Bomb),
        Err(failed) => Ok(failed.output),
    }
}

fn lzw(bytes: &[u8], parameters: &Dict, budget: &mut Budget<'_>) -> Result<Vec<u8>, PdfError> {
    let early = parameters.get("EarlyChange").and_then(Object::count).unwrap_or(1);
    let mut output: Vec<u8> = Vec::new();
    // Each code is a part of the output: where it begins, and how long it is.
    let mut table: Vec<(usize, usize)> = Vec::new();
    let (mut width, mut before): (usize, Option<(usize, usize)>) = (9, None);
    let (mut held, mut bits) = (0_usize, 0_usize);
    for byte in bytes {
        (held, bits) = (held << 8 | usize::from(*byte), bits + 8);
        if bits < width {
            continue;
        }
        budget.step()?;
        bits -= width;
        let code = held >> bits;
        held &= (1 << bits) - 1;
        let begins = output.len();
        match code {
            0..=255 => output.push(code.to_le_bytes()[0]),
            256 => {
                table.clear();
                (width, before) = (9, None);
                continue;
            }
            257 => break,
            _ => {
                let known = table.get(code - 258).copied();
                let unfinished = before.map(|(from, length)| (from, length + 1));
                let Some((from, length)) = known.or(unfinished) else { break };
                if output.len() + length > budget.room() {
                    return Err(PdfError::Bomb);
                }
                for at in from..from + length {
                    let Some(byte) = output.get(at).copied() else { break };
                    output.push(byte);
                }
            }
        }
        // What was read before, with the first byte of this.
        if let Some((from, length)) = before
            && table.len() < 4096 - 258
        {
            table.push((from, length + 1));
        }
        before = Some((begins, output.len() - begins));
        let next = table.len() + 258 + 1 + early.min(1);
        width = match next {
            0..=512 => 9,
            513..=1024 => 10,
            1025..=2048 => 11,
            _ => 12,
        };
    }
    Ok(output)
}

fn ascii85(bytes: &[u8]) -> Vec<u8> {
    let (mut output, mut group) = (Vec::new(), Vec::new());
    let flush = |group: &mut Vec<u8>, output: &mut Vec<u8>| {
        if group.len() < 2 {
            return;
        }
        let kept = group.len() - 1;
        group.resize(5, 84);
        let value =
            group.iter().fold(0_u32, |value, digit| value.wrapping_mul(85).wrapping_add(u32::from(*digit)));
        output.extend(value.to_be_bytes().iter().take(kept));
        group.clear();
    };
    for byte in bytes {
        match byte {
            b'z' if group.is_empty() => output.extend([0; 4]),
            b'!'..=b'u' => {
                group.push(byte - b'!');
                if group.len() == 5 {
                    flush(&mut group, &mut output);
                }
            }
            b'~' => break,
            _ => {}
        }
    }
    flush(&mut group, &mut output);
    output
}

fn ascii_hex(bytes: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> =
        bytes.iter().take_while(|byte| **byte != b'>').filter_map(|byte| digit(*byte)).collect();
    digits.chunks(2).map(|pair| pair.first().unwrap_or(&0) << 4 | pair.get(1).unwrap_or(&0)).collect()
}

fn run_length(bytes: &[u8], budget: &Budget<'_>) -> Result<Vec<u8>, PdfError> {
    let (mut output, mut rest) = (Vec::new(), bytes);
    while let Some((length, after)) = rest.split_first() {
        let length = usize::from(*length);
        rest = match length {
            0..=127 => {
                let (run, after) = after.split_at(after.len().min(length + 1));
                output.extend_from_slice(run);
                after
            }
            128 => break,
            _ => {
                let Some((byte, after)) = after.split_first() else { break };
                output.extend(std::iter::repeat_n(*byte, 257 - length));
                after
            }
        };
        if output.len() > budget.room() {
            return Err(PdfError::Bomb);
        }
    }
    Ok(output)
}

/// Undoes what was done to rows before they were packed.
fn predicted(data: Vec<u8>, parameters: &Dict) -> Vec<u8> {
    let parameter =
        |name: &str, default: usize| parameters.get(name).and_then(Object::count).unwrap_or(default);
    let predictor = parameter("Predictor", 1);
    let bits = parameter("Colors", 1).clamp(1, 32) * parameter("BitsPerComponent", 8).clamp(1, 16);
    let pixel = bits.div_ceil(8);
    let row = (bits * parameter("Columns", 1).clamp(1, 1 << 20)).div_ceil(8);
    if predictor < 10 || data.is_empty() {
        return data;
    }
    let row = row.min(data.len());
    let (mut output, mut before) = (Vec::with_capacity(data.len()), vec![0_u8; row]);
    for line in data.chunks(row + 1) {
        let Some((kind, line)) = line.split_first() else { break };
        let mut this = vec![0_u8; row];
        for (at, byte) in line.iter().enumerate() {
            let left = at.checked_sub(pixel).and_then(|at| this.get(at)).copied().unwrap_or(0);
            let up = before.get(at).copied().unwrap_or(0);
            let corner = at.checked_sub(pixel).and_then(|at| before.get(at)).copied().unwrap_or(0);
            let guess = match kind {
                1 => left,
                2 => up,
                3 => u8::midpoint(left, up),
                4 => paeth(left, up, corner),
                _ => 0,
            };
            if let Some(place) = this.get_mut(at) {
                *place = byte.wrapping_add(guess);
            }
        }
        this.truncate(line.len());
        output.extend_from_slice(&this);
        this.resize(row, 0);
        before = this;
    }
    output
}

fn paeth(left: u8, up: u8, corner: u8) -> u8 {
    let guess = i32::from(left) + i32::from(up) - i32::from(corner);
    let far = |byte: u8| (guess - i32::from(byte)).abs();
    if far(left) <= far(up) && far(left) <= far(corner) {
        left
    } else if far(up) <= far(corner) {
        up
    } else {
        corner
    }
}

/// Where the data of a stream begins, behind the word.
pub(super) fn data_start(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at..).unwrap_or_default() {
        [b'\r', b'\n', ..] => at + 2,
        [byte, ..] if is_space(*byte) => at + 1,
        _ => at,
    }
}
