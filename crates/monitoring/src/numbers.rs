//! Counts, rates and times as people read them.

use thalweg_core::Watermark;

/// `412,907`
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut output = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            output.push(',');
        }
        output.push(digit);
    }
    output
}

/// `4,120`; a fraction only where there is little else.
pub fn rate(per_second: f64) -> String {
    if per_second > 0.0 && per_second < 10.0 {
        format!("{per_second:.1}")
    } else {
        count(per_second.max(0.0).round() as u64)
    }
}

/// `84.1 k`, `1.21 M`: for columns.
pub fn short_rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e9 => format!("{:.2} G", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

/// `310 MiB`
pub fn bytes(number: u64) -> String {
    match number {
        0..1_024 => format!("{number} B"),
        1_024..1_048_576 => format!("{} KiB", number >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", number >> 20),
        _ => format!("{:.1} GiB", number as f64 / 1_073_741_824.0),
    }
}

/// `120 ms`, `1.2 s`, `41 s`, `6 min 41 s`, `3 h 5 min`, `2 d 4 h`
pub fn span(time_ms: i64) -> String {
    let (ms, seconds) = (time_ms.max(0), time_ms.max(0) / 1_000);
    match seconds {
        0 => format!("{ms} ms"),
        1..10 if ms / 100 % 10 != 0 => format!("{:.1} s", ms as f64 / 1_000.0),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// `10:03:12.000`, with the day where it is another one than that of `now_ms`.
pub fn moment(time_ms: i64, now_ms: i64) -> String {
    const DAY_MS: i64 = 86_400_000;
    let whole = Watermark(time_ms).to_string();
    match whole.split_once(' ') {
        Some((_, clock)) if time_ms.div_euclid(DAY_MS) == now_ms.div_euclid(DAY_MS) => {
            clock.to_owned()
        }
        _ => whole,
    }
}

/// `1 window`, `17 windows`
pub fn plural(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count(number))
}

/// A part of a whole: `38 %`
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
