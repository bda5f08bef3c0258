//! Positions in the log of a server, as it writes them: `16/B374D848`.

use thalweg_core::Error;

use crate::postgres::failure::Outcome;

/// Reads a position.
///
/// # Errors
/// If it is none.
pub fn read(text: &str) -> Outcome<u64> {
    parse(text).ok_or_else(|| Error::data(format!("'{text}' is no position in a log")).into())
}

/// Reads a position; `None` if it is none.
pub fn parse(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let part = |text: &str| u32::from_str_radix(text, 16).ok();
    Some(u64::from(part(high)?) << 32 | u64::from(part(low)?))
}

/// A position as a server writes it.
pub fn text(lsn: u64) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn & 0xFFFF_FFFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_have_one_form() {
        assert_eq!(parse("16/B374D848"), Some(0x16_B374_D848));
        assert_eq!(text(0x16_B374_D848), "16/B374D848");
        assert_eq!(parse("16"), None);
    }
}
