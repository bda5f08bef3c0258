//! Which transactions a query sees: the server's own snapshots, `xmin:xmax:xip,…`.
//!
//! A transaction is visible if it had committed when the snapshot was made. That is exact, where
//! positions in the log are not: a commit is written to the log before others see it, and with a
//! synchronous standby that is any time later.

use thalweg_core::Error;

use crate::postgres::failure::Outcome;

/// What a query sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visibility {
    /// All earlier transactions have ended.
    xmin: u64,
    /// No transaction from here on had begun.
    xmax: u64,
    /// Transactions between that had not ended.
    running: Vec<u64>,
}

impl Visibility {
    /// Reads the text form of `pg_current_snapshot()`.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(text: &str) -> Outcome<Visibility> {
        Self::parse(text).ok_or_else(|| Error::data(format!("'{text}' is no snapshot")).into())
    }

    /// Reads it; `None` if it is none.
    pub fn parse(text: &str) -> Option<Visibility> {
        let mut parts = text.split(':');
        let (xmin, xmax) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let running = parts.next()?.split(',').filter(|xid| !xid.is_empty());
        let running = running.map(|xid| xid.parse().ok()).collect::<Option<_>>()?;
        Some(Visibility { xmin, xmax, running })
    }

    /// The text form.
    pub fn text(&self) -> String {
        let running: Vec<String> = self.running.iter().map(u64::to_string).collect();
        format!("{}:{}:{}", self.xmin, self.xmax, running.join(","))
    }

    /// True if the transaction is visible, if it has committed at all.
    pub fn sees(&self, xid: u64) -> bool {
        xid < self.xmin || xid < self.xmax && !self.running.contains(&xid)
    }

    /// The transactions that had not ended.
    pub fn running(&self) -> &[u64] {
        &self.running
    }

    /// The number of a transaction of which the log has the low half. It is within two thousand
    /// millions of the snapshot, since servers keep no older ones apart.
    pub fn complete(&self, xid: u32) -> u64 {
        let distance = xid.wrapping_sub(self.xmax as u32) as i32;
        self.xmax.saturating_add_signed(i64::from(distance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_seen_if_it_had_ended() {
        let seen = Visibility::parse("10:20:10,14").expect("a snapshot");
        let visible: Vec<u64> = (8..22).filter(|&xid| seen.sees(xid)).collect();
        assert_eq!(visible, [8, 9, 11, 12, 13, 15, 16, 17, 18, 19]);
        assert_eq!(Visibility::parse(&seen.text()), Some(seen));
        assert_eq!(Visibility::parse("10:10:").expect("a snapshot").running(), [0u64; 0]);
        assert!(Visibility::parse("10:20").is_none());
    }

    #[test]
    fn numbers_are_completed_around_the_snapshot() {
        let seen = Visibility::parse("4294967300:4294967310:").expect("a snapshot");
        assert_eq!(seen.complete(9), 4_294_967_305);
        assert_eq!(seen.complete(u32::MAX), 4_294_967_295);
        assert_eq!(seen.complete(100), 4_294_967_396);
    }
}
