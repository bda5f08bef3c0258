//! Numbers as people read them: counts, rates, sizes, durations.

use std::time::Duration;

pub use thalweg::monitoring::numbers::count;

/// `950`, `12.3 k`, `4.56 M`, `1.20 G`: three digits, for what changes ten times a second.
pub fn short_count(number: f64) -> String {
    let (value, unit) = match number {
        n if n >= 1e9 => (n / 1e9, " G"),
        n if n >= 1e6 => (n / 1e6, " M"),
        n if n >= 1e3 => (n / 1e3, " k"),
        n => return format!("{n:.0}"),
    };
    format!("{}{unit}", three_digits(value))
}

/// `512 B`, `45.2 MiB`, `16.4 GiB`
pub fn bytes(number: usize) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), UNITS[unit])
}

/// `850 µs`, `12.3 ms`, `4.56 s`, `3 min 20 s`
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s < 1e-3 => format!("{} µs", time.as_micros()),
        s if s < 1.0 => format!("{} ms", three_digits(s * 1e3)),
        s if s < 60.0 => format!("{} s", three_digits(s)),
        s if s < 3600.0 => format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60),
        _ => format!("{} h {} min", time.as_secs() / 3600, time.as_secs() / 60 % 60),
    }
}

/// `5 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`: whole numbers, for what only grows.
pub fn age(time: Duration) -> String {
    const HOURS_OF_DAY: u64 = 24;
    let (seconds, hours) = (time.as_secs(), time.as_secs() / 3600);
    match seconds {
        s if s < 60 => format!("{s} s"),
        s if s < 3600 => format!("{} min {} s", s / 60, s % 60),
        s if hours < HOURS_OF_DAY => format!("{hours} h {} min", s / 60 % 60),
        _ => format!("{} d {} h", hours / HOURS_OF_DAY, hours % HOURS_OF_DAY),
    }
}

fn three_digits(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(328_521), "328,521");
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(short_count(999.4), "999");
        assert_eq!(short_count(12_345.0), "12.3 k");
        assert_eq!(short_count(1_059_745.0), "1.06 M");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(47_395_635), "45.2 MiB");
        assert_eq!(duration(Duration::from_micros(850)), "850 µs");
        assert_eq!(duration(Duration::from_micros(12_345)), "12.3 ms");
        assert_eq!(duration(Duration::from_secs(200)), "3 min 20 s");
        assert_eq!(age(Duration::from_millis(5900)), "5 s");
        assert_eq!(age(Duration::from_secs(200)), "3 min 20 s");
        assert_eq!(age(Duration::from_secs(100_000)), "1 d 3 h");
    }
}
