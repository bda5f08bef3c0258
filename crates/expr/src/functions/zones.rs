//! Time zones by the names that Java knows: those of the time zone database, three letters, and
//! `GMT+8` or `GMT-03:30`.

use chrono_tz::Tz;

use crate::kernels::datetime::{to_later_instant, to_local};

/// A time zone, or a distance from UTC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Zone {
    Named(Tz),
    FixedMs(i64),
}

/// What Java's three letters mean. Others of them are in the database.
const SHORT_NAMES: [(&str, Tz); 24] = [
    ("ACT", Tz::Australia__Darwin),
    ("AET", Tz::Australia__Sydney),
    ("AGT", Tz::America__Argentina__Buenos_Aires),
    ("ART", Tz::Africa__Cairo),
    ("AST", Tz::America__Anchorage),
    ("BET", Tz::America__Sao_Paulo),
    ("BST", Tz::Asia__Dhaka),
    ("CAT", Tz::Africa__Harare),
    ("CNT", Tz::America__St_Johns),
    ("CST", Tz::America__Chicago),
    ("CTT", Tz::Asia__Shanghai),
    ("EAT", Tz::Africa__Addis_Ababa),
    ("ECT", Tz::Europe__Paris),
    ("IET", Tz::America__Indiana__Indianapolis),
    ("IST", Tz::Asia__Kolkata),
    ("JST", Tz::Asia__Tokyo),
    ("MIT", Tz::Pacific__Apia),
    ("NET", Tz::Asia__Yerevan),
    ("NST", Tz::Pacific__Auckland),
    ("PLT", Tz::Asia__Karachi),
    ("PNT", Tz::America__Phoenix),
    ("PST", Tz::America__Los_Angeles),
    ("SST", Tz::Pacific__Guadalcanal),
    ("VST", Tz::Asia__Ho_Chi_Minh),
];

impl Zone {
    /// The zone of this name.
    pub fn named(name: &str) -> Option<Self> {
        let short = SHORT_NAMES.iter().find(|(short, _)| *short == name);
        short.map(|(_, zone)| *zone).or_else(|| name.parse().ok()).map(Zone::Named).or_else(|| {
            let offset = name.strip_prefix("GMT").or_else(|| name.strip_prefix("UTC"))?;
            offset_ms(offset).map(Zone::FixedMs)
        })
    }
    /// What a clock in the zone shows.
    pub fn local_ms(self, instant_ms: i64) -> i64 {
        match self {
            Zone::Named(zone) => to_local(instant_ms, zone),
            Zone::FixedMs(offset) => instant_ms.saturating_add(offset),
        }
    }
    /// When a clock in the zone shows this; of two instants the later one.
    pub fn later_instant_ms(self, local_ms: i64) -> i64 {
        match self {
            Zone::Named(zone) => to_later_instant(local_ms, zone),
            Zone::FixedMs(offset) => local_ms.saturating_sub(offset),
        }
    }
}

/// `+8`, `-03:30`, `+0800`
fn offset_ms(text: &str) -> Option<i64> {
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() > 2 => digits.split_at_checked(digits.len() - 2)?,
        None => (digits, "0"),
    };
    let number = |text: &str, below: i64| {
        let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let number = is_number.then(|| text.parse::<i64>().ok()).flatten();
        number.filter(|number| *number < below)
    };
    Some(sign * (number(hours, 24)? * 60 + number(minutes, 60)?) * 60_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_have_javas_names() {
        let cases = [
            ("Asia/Tokyo", Some(Zone::Named(Tz::Asia__Tokyo))),
            ("PST", Some(Zone::Named(Tz::America__Los_Angeles))),
            ("EST", Some(Zone::Named(Tz::EST))),
            ("GMT+08:00", Some(Zone::FixedMs(28_800_000))),
            ("GMT-3:30", Some(Zone::FixedMs(-12_600_000))),
            ("GMT+0530", Some(Zone::FixedMs(19_800_000))),
            ("GMT+24", None),
            ("+08:00", None),
            ("Nowhere", None),
        ];
        for (name, expected) in cases {
            assert_eq!(Zone::named(name), expected, "{name}");
        }
    }
}
