//! Durations and sizes as Flink's configuration writes them: `30 s`, `100ms`, `1 h`, `512 mb`.
//!
//! Source: the classes TimeUtils and MemorySize of Apache Flink: a number, optional blanks, a
//! unit. A duration without a unit is in milliseconds, a size without a unit in bytes.
//!
//! Numbers are whole, units are not case-sensitive, and what does not fit into 64 bits (of
//! nanoseconds: 584 years) is an error.

use std::time::Duration;

use thalweg_core::{Error, Result};

const NANOS: u64 = 1;
const MICROS: u64 = 1_000;
const MILLIS: u64 = 1_000_000;
const SECONDS: u64 = 1_000 * MILLIS;

/// Units of time with their length in nanoseconds.
const TIME_UNITS: [(&[&str], u64); 7] = [
    (&["d", "day", "days"], 86_400 * SECONDS),
    (&["h", "hour", "hours"], 3_600 * SECONDS),
    (&["m", "min", "minute", "minutes"], 60 * SECONDS),
    (&["s", "sec", "secs", "second", "seconds"], SECONDS),
    (&["", "ms", "milli", "millis", "millisecond", "milliseconds"], MILLIS),
    (&["us", "µs", "micro", "micros", "microsecond", "microseconds"], MICROS),
    (&["ns", "nano", "nanos", "nanosecond", "nanoseconds"], NANOS),
];

/// Units of memory with their size in bytes.
const SIZE_UNITS: [(&[&str], u64); 5] = [
    (&["", "b", "bytes"], 1),
    (&["k", "kb", "kib", "kibibytes"], 1 << 10),
    (&["m", "mb", "mib", "mebibytes"], 1 << 20),
    (&["g", "gb", "gib", "gibibytes"], 1 << 30),
    (&["t", "tb", "tib", "tebibytes"], 1 << 40),
];

/// Reads a duration.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(thalweg_plan::catalog::parse_duration("1 min")?, Duration::from_secs(60));
/// # Ok::<(), thalweg_core::Error>(())
/// ```
pub fn parse_duration(text: &str) -> Result<Duration> {
    quantity(text, &TIME_UNITS).map(Duration::from_nanos).ok_or_else(|| {
        Error::plan(format!("'{text}' is not a duration"))
            .hint("write a whole number and a unit, such as '30 s', '100 ms', '5 min', '1 h'")
    })
}

/// Reads an amount of memory in bytes.
///
/// ```
/// assert_eq!(thalweg_plan::catalog::parse_size_bytes("512 mb")?, 512 << 20);
/// # Ok::<(), thalweg_core::Error>(())
/// ```
pub fn parse_size_bytes(text: &str) -> Result<u64> {
    quantity(text, &SIZE_UNITS).ok_or_else(|| {
        Error::plan(format!("'{text}' is not a size"))
            .hint("write a whole number and a unit, such as '512 mb' or '4 gb'")
    })
}

fn quantity(text: &str, units: &[(&[&str], u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim().to_lowercase();
    let (_, factor) = units.iter().find(|(names, _)| names.contains(&unit.as_str()))?;
    number.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_as_in_flink() {
        let durations = [
            ("30 s", 30_000_000_000),
            ("100ms", 100_000_000),
            ("250", 250_000_000),
            ("1 H", 3_600_000_000_000),
            (" 2 days ", 172_800_000_000_000),
            ("7 µs", 7_000),
            ("0 s", 0),
        ];
        for (text, nanos) in durations {
            assert_eq!(parse_duration(text).ok(), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for text in ["", "s", "-1 s", "1.5 s", "1 fortnight", "99999999999999999999", "300000 d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(parse_size_bytes("1gb").ok(), Some(1 << 30));
        assert_eq!(parse_size_bytes("4096").ok(), Some(4096));
        assert!(parse_size_bytes("1 pb").is_err());
    }
}
