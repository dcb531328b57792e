//! Strings in Huffman's code (RFC 7541 5.2, Appendix B).
//!
//! The code is canonical: codes of one length count upwards in the order of their symbols, and the next length goes on where
//! the last one ended. So the lengths say all of it, and the tables are made of them by the compiler. Decoding looks at twelve
//! bits at a time, which are one or two of the symbols that heads are made of; longer codes are found by their length. It
//! refuses a code that is not whole, padding of more than seven bits or of others than ones, and the end symbol.

use super::DecodeError;

/// Bits of the code of each symbol; the last one is the end of a string, which is never written.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26, 30,
];

/// Bits that are looked at together, and how many values they have.
const WINDOW: u32 = 12;
const WINDOWS: usize = 1 << WINDOW;
/// The longest code.
const LONGEST: u32 = 30;
/// Lengths of codes that don't fit into a window.
const LONG: usize = (LONGEST - WINDOW) as usize;
/// Bits that make a whole byte of padding.
const PADDING_MAX: u32 = 8;

/// How many bytes a string has in the code.
pub(super) fn encoded_length(plain: &[u8]) -> usize {
    plain.iter().map(|byte| u64::from(code(*byte).length)).sum::<u64>().div_ceil(8) as usize
}

/// Writes a string in the code.
pub(super) fn encode(plain: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u64, 0_u32);
    for byte in plain {
        let code = code(*byte);
        bits = bits << code.length | u64::from(code.bits);
        count += code.length;
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    if count > 0 {
        let padded = bits << (64 - count) | u64::MAX >> count;
        out.extend_from_slice(padded.to_be_bytes().get(..count.div_ceil(8) as usize).unwrap_or_default());
    }
}

/// Puts what a string in the code says behind `out`. On an error what is there is of no use.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let start = out.len();
    // No code is shorter than five bits, and the last write may be of two symbols where there is but one.
    out.resize(start + coded.len() * 8 / 5 + 2, 0);
    let length = decode_into(coded, out.get_mut(start..).unwrap_or_default())?;
    out.truncate(start + length);
    Ok(())
}

/// Gives back how many bytes it has written.
fn decode_into(coded: &[u8], plain: &mut [u8]) -> Result<usize, DecodeError> {
    // Bits that are still to be decoded, the first one highest, and how many.
    let (mut bits, mut count) = (0_u64, 0_u32);
    let mut length = 0;
    let (chunks, rest) = coded.as_chunks::<4>();
    for chunk in chunks {
        bits |= u64::from(u32::from_be_bytes(*chunk)) << 32 >> count;
        count += 32;
        while count >= LONGEST {
            let step = step(bits)?;
            *place(plain, length)? = step.plain;
            length += usize::from(step.symbols);
            bits <<= step.bits;
            count -= u32::from(step.bits);
        }
    }
    for byte in rest {
        bits |= u64::from(*byte) << 56 >> count;
        count += 8;
    }
    // From here on ones are behind the bits that count.
    bits |= u64::MAX.checked_shr(count).unwrap_or(0);
    while bits != u64::MAX || count >= PADDING_MAX {
        let mut step = step(bits)?;
        if u32::from(step.bits) > count {
            step = step.first();
        }
        count = count.checked_sub(u32::from(step.bits)).ok_or(DecodeError)?;
        bits = !(!bits << step.bits);
        *place(plain, length)? = step.plain;
        length += usize::from(step.symbols);
    }
    Ok(length)
}

/// Where the next symbols go. There is always room for two.
fn place(plain: &mut [u8], length: usize) -> Result<&mut [u8; 2], DecodeError> {
    plain.get_mut(length..length + 2).and_then(|place| place.as_mut_array()).ok_or(DecodeError)
}

/// One or two symbols.
#[derive(Clone, Copy)]
#[repr(C)]
struct Step {
    /// Bits of all of them.
    bits: u8,
    /// How many; 0 where there is no whole code in a window.
    symbols: u8,
    plain: [u8; 2],
}

impl Step {
    /// The first symbol alone.
    fn first(self) -> Self {
        let [first, _] = self.plain;
        Self { symbols: 1, bits: code(first).length as u8, ..self }
    }
}

/// What these bits begin with. Of those behind there may be more in it than count.
fn step(bits: u64) -> Result<Step, DecodeError> {
    match STEPS.get((bits >> (64 - WINDOW)) as usize) {
        Some(step) if step.symbols > 0 => Ok(*step),
        _ => long_step(bits),
    }
}

/// The same where they begin with a code that is longer than a window.
#[cold]
fn long_step(bits: u64) -> Result<Step, DecodeError> {
    for run in &LONG_RUNS {
        let code = (bits >> (64 - run.bits)) as u32;
        if let Some(from_last) = run.last.checked_sub(code) {
            let place = usize::from(run.last_place).wrapping_sub(from_last as usize);
            // The place behind the last one is the end symbol's.
            let symbol = SYMBOLS.get(place).ok_or(DecodeError)?;
            return Ok(Step { plain: [*symbol, 0], symbols: 1, bits: run.bits as u8 });
        }
    }
    Err(DecodeError)
}

/// A symbol's code.
#[derive(Clone, Copy)]
struct Code {
    bits: u32,
    length: u32,
}

#[expect(clippy::indexing_slicing, reason = "a byte is below 256, which the compiler sees")]
fn code(byte: u8) -> Code {
    CODES[usize::from(byte)]
}

/// Codes of one length that are longer than a window.
#[derive(Clone, Copy)]
struct LongRun {
    bits: u32,
    last: u32,
    /// Where the last one's symbol stands.
    last_place: u16,
}

/// By the byte.
static CODES: [Code; 256] = codes();
static SYMBOLS: [u8; 256] = symbols();
static LONG_RUNS: [LongRun; LONG] = long_runs();
/// By the bits in a window.
static STEPS: [Step; WINDOWS] = steps();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which refuses an index outside")]
const fn codes() -> [Code; 256] {
    let mut codes = [Code { bits: 0, length: 0 }; 256];
    let (mut length, mut next) = (1, 0);
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < codes.len() {
            if LENGTHS[symbol] as u32 == length {
                codes[symbol] = Code { bits: next, length };
                next += 1;
            }
            symbol += 1;
        }
        next <<= 1;
        length += 1;
    }
    codes
}

/// The symbols in the order of their codes.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which refuses an index outside")]
const fn symbols() -> [u8; 256] {
    let mut symbols = [0; 256];
    let (mut length, mut place) = (1, 0);
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < symbols.len() {
            if LENGTHS[symbol] as u32 == length {
                symbols[place] = symbol as u8;
                place += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    symbols
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which refuses an index outside")]
const fn long_runs() -> [LongRun; LONG] {
    let mut runs = [LongRun { bits: 0, last: 0, last_place: 0 }; LONG];
    let (mut length, mut next, mut place) = (1, 0_u32, 0);
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as u32 == length {
                next += 1;
                place += 1;
            }
            symbol += 1;
        }
        if length > WINDOW {
            // Where a length has no codes, this is the last one of the shorter ones, which have been looked for before.
            runs[(length - WINDOW - 1) as usize] = LongRun { bits: length, last: next - 1, last_place: place - 1 };
        }
        next <<= 1;
        length += 1;
    }
    runs
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which refuses an index outside")]
const fn steps() -> [Step; WINDOWS] {
    let none = Step { plain: [0; 2], symbols: 0, bits: 0 };
    let mut singles = [none; WINDOWS];
    let mut symbol = 0;
    while symbol < 256 {
        let Code { bits, length } = CODES[symbol];
        if length <= WINDOW {
            let mut window = (bits << (WINDOW - length)) as usize;
            let end = window + (1 << (WINDOW - length));
            while window < end {
                singles[window] = Step { plain: [symbol as u8, 0], symbols: 1, bits: length as u8 };
                window += 1;
            }
        }
        symbol += 1;
    }
    let mut steps = singles;
    let mut window = 0;
    while window < WINDOWS {
        let first = singles[window];
        let second = singles[window << first.bits & (WINDOWS - 1)];
        if first.symbols > 0 && second.symbols > 0 && first.bits + second.bits <= WINDOW as u8 {
            steps[window] =
                Step { plain: [first.plain[0], second.plain[0]], symbols: 2, bits: first.bits + second.bits };
        }
        window += 1;
    }
    steps
}
