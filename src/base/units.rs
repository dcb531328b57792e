//! Durations and sizes as people write them in rule files. A bare number is an error: its unit would be a guess.

use std::time::Duration;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `count` × 1024 bytes.
    pub const fn kib(count: u64) -> Self {
        Self(count * 1024)
    }

    /// `count` × 1024² bytes.
    pub const fn mib(count: u64) -> Self {
        Self(count * 1024 * 1024)
    }

    /// As a length in memory; saturates.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// As rule files write it, in the largest unit that leaves a whole number.
impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (count, unit) =
            whole(self.0, &[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]).unwrap_or((self.0, "B"));
        write!(f, "{count}{unit}")
    }
}

/// A duration as rule files write it, in the largest unit that leaves a whole number of them; parts of a millisecond are
/// left out.
pub fn duration_text(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let (count, unit) = whole(millis, &units).unwrap_or((millis, "ms"));
    format!("{count}{unit}")
}

/// `value` in the first unit that divides it.
fn whole(value: u64, units: &[(u64, &'static str)]) -> Option<(u64, &'static str)> {
    let (factor, unit) = units.iter().find(|(factor, _)| value > 0 && value.is_multiple_of(*factor))?;
    Some((value / factor, unit))
}

/// Why a text is no duration or size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The number has no unit.
    #[error("a number needs a unit: {expected}")]
    NoUnit {
        /// The units that would do.
        expected: &'static str,
    },
    /// The unit is not one of ours.
    #[error("`{unit}` is not a unit here: {expected}")]
    UnknownUnit {
        /// What was written.
        unit: String,
        /// The units that would do.
        expected: &'static str,
    },
    /// There is no number before the unit, or it is not a plain whole number.
    #[error("a whole number with a unit is wanted, such as {example}")]
    NoNumber {
        /// A text that would do.
        example: &'static str,
    },
    /// The product of number and unit does not fit.
    #[error("the number is too large")]
    TooLarge,
}

const DURATION_UNITS: &str = "ms, s, m, h or d";
const SIZE_UNITS: &str = "B, KiB, MiB or GiB";

fn split_unit(text: &str, expected: &'static str, example: &'static str) -> Result<(u64, String), UnitError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(UnitError::NoNumber { example });
    }
    if unit.is_empty() {
        return Err(UnitError::NoUnit { expected });
    }
    let number = number.parse().map_err(|_| UnitError::TooLarge)?;
    Ok((number, unit.to_owned()))
}

/// Reads a duration such as `250ms`, `3s`, `10m`, `24h` or `7d`.
///
/// # Errors
/// [`UnitError`] where there is no whole number, no unit, an unknown unit, or too large a product.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let (number, unit) = split_unit(text, DURATION_UNITS, "\"10s\"")?;
    let factor = match unit.as_str() {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(UnitError::UnknownUnit { unit, expected: DURATION_UNITS }),
    };
    number.checked_mul(factor).map(Duration::from_millis).ok_or(UnitError::TooLarge)
}

/// Reads a size such as `512B`, `64KiB`, `100MiB` or `2GiB`.
///
/// # Errors
/// [`UnitError`] where there is no whole number, no unit, an unknown unit, or too large a product.
pub fn parse_size(text: &str) -> Result<Bytes, UnitError> {
    let (number, unit) = split_unit(text, SIZE_UNITS, "\"64KiB\"")?;
    let factor = match unit.as_str() {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(UnitError::UnknownUnit { unit, expected: SIZE_UNITS }),
    };
    number.checked_mul(factor).map(Bytes).ok_or(UnitError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_read_with_their_units() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("2d"), Ok(Duration::from_secs(172_800)));
        assert_eq!(parse_size("64KiB"), Ok(Bytes(65_536)));
        assert_eq!(parse_size("2GiB"), Ok(Bytes(2 << 30)));
    }

    #[test]
    fn what_is_written_is_read_back_the_same() {
        for text in ["250ms", "61s", "2m", "90m", "36h", "7d", "0ms"] {
            assert_eq!(duration_text(parse_duration(text).unwrap()), text);
        }
        for text in ["0B", "1023B", "64KiB", "1025KiB", "100MiB", "3GiB"] {
            assert_eq!(parse_size(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_bare_number_is_refused_because_its_unit_would_be_a_guess() {
        assert_eq!(parse_duration("10"), Err(UnitError::NoUnit { expected: DURATION_UNITS }));
        assert_eq!(parse_size("10"), Err(UnitError::NoUnit { expected: SIZE_UNITS }));
        assert!(matches!(parse_size("10MB"), Err(UnitError::UnknownUnit { .. })));
        assert!(matches!(parse_duration("s"), Err(UnitError::NoNumber { .. })));
        assert_eq!(parse_duration("999999999999999999d"), Err(UnitError::TooLarge));
    }
}
