//! Which tables of state are captured in full and which incrementally, and where changes are
//! tracked at all.
//!
//! An incremental capture writes what has changed. It costs more than that: rows while they are
//! tracked, and the rewriting of the table once the files hold many rows that newer ones have
//! replaced. To capture the table from memory then costs less than to fold its files, and half of
//! its rows in replaced versions is when it pays.
//!
//! Where more than half of a table changes between two captures, each of them would be full. So
//! changes are not tracked either, for one capture at first. Then they are tracked once more; if as
//! much still changes, tracking pauses for twice as long, up to [`PAUSE_MAX`] captures. So a table
//! whose share of changes falls is found soon, and one where it never does costs what a full
//! capture costs.

use std::collections::BTreeMap;

use thalweg_core::{Extent, TableChanges, TableExtent};

/// Tracking pauses for at most this many captures.
pub const PAUSE_MAX: u32 = 8;

/// How long tracking pauses for a table.
#[derive(Clone, Copy, Debug, Default)]
struct Pause {
    /// Captures of the last pause; 0 if changes were few.
    length: u32,
    /// Captures that are left of this pause.
    left: u32,
}

/// What is known of the tables of a job, by stage and name.
#[derive(Debug, Default)]
pub struct Extents {
    pauses: BTreeMap<(String, &'static str), Pause>,
}

impl Extents {
    /// How a table of a stage is captured, whose partitions have these changes in sum. `asked` is
    /// how much is captured at most: [`Extent::Full`] where there is nothing that changes could
    /// build on.
    ///
    /// ```
    /// use thalweg_core::{Extent, TableChanges};
    /// use thalweg_state::decide::Extents;
    /// let mut extents = Extents::default();
    /// let mut choose = |changed| {
    ///     let table = TableChanges { name: "groups", live: 1000, changed: Some(changed), written:
    ///     1000 }; extents.choose("count", table, Extent::Incremental).extent
    /// };
    /// assert_eq!(choose(10), Extent::Incremental);
    /// assert_eq!(choose(900), Extent::Full);
    /// ```
    pub fn choose(&mut self, stage: &str, table: TableChanges, asked: Extent) -> TableExtent {
        let pause = self.pauses.entry((stage.to_owned(), table.name)).or_default();
        let Some(changed) = table.changed else {
            pause.left = pause.left.saturating_sub(1);
            return TableExtent { extent: Extent::Full, tracks: pause.left == 0 };
        };
        if changed > table.live / 2 {
            pause.length = (pause.length * 2).clamp(1, PAUSE_MAX);
            pause.left = pause.length;
            return TableExtent { extent: Extent::Full, tracks: false };
        }
        *pause = Pause::default();
        let files = table.written.saturating_add(changed);
        let is_full = asked == Extent::Full || files > table.live.saturating_add(table.live / 2);
        let extent = if is_full { Extent::Full } else { Extent::Incremental };
        TableExtent { extent, tracks: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(live: u64, changed: Option<u64>, written: u64) -> TableChanges {
        TableChanges { name: "groups", live, changed, written }
    }

    #[test]
    fn a_table_is_captured_in_full_where_half_changed_or_files_hold_half_too_much() {
        use Extent::{Full, Incremental};
        for (changes, asked, extent, tracks) in [
            (table(1000, Some(0), 1000), Incremental, Incremental, true),
            (table(1000, Some(10), 1000), Incremental, Incremental, true),
            (table(1000, Some(500), 1000), Incremental, Incremental, true),
            (table(1000, Some(501), 1000), Incremental, Full, false),
            (table(1000, Some(10), 1490), Incremental, Incremental, true),
            (table(1000, Some(10), 1491), Incremental, Full, true),
            // What is new replaces nothing: a table that grows is not written again.
            (table(2000, Some(1000), 1000), Incremental, Incremental, true),
            // Everything has gone, or nothing was there.
            (table(0, Some(0), 0), Incremental, Incremental, true),
            (table(0, Some(7), 7), Incremental, Full, false),
            (table(1000, None, 0), Incremental, Full, true),
            (table(1000, Some(10), 1000), Full, Full, true),
            (table(u64::MAX, Some(1), u64::MAX), Incremental, Incremental, true),
        ] {
            let chosen = Extents::default().choose("count", changes, asked);
            assert_eq!(chosen, TableExtent { extent, tracks }, "{changes:?}");
        }
    }

    /// Captures in turn of a table in which this share of 1,000 keys changes, and which of them
    /// were full.
    fn captures(extents: &mut Extents, stage: &str, shares: &[u64]) -> (String, String) {
        let (mut written, mut is_tracked) = (1000, true);
        let (mut extent_text, mut tracked_text) = (String::new(), String::new());
        for &share in shares {
            let changes = table(1000, is_tracked.then_some(share), written);
            let chosen = extents.choose(stage, changes, Extent::Incremental);
            written = match chosen.extent {
                Extent::Full => 1000,
                Extent::Incremental => written + share,
            };
            is_tracked = chosen.tracks;
            extent_text.push(if chosen.extent == Extent::Full { 'F' } else { 'i' });
            tracked_text.push(if chosen.tracks { 't' } else { '-' });
        }
        (extent_text, tracked_text)
    }

    #[test]
    fn tracking_pauses_ever_longer_while_most_changes_and_comes_back_when_it_does_not() {
        let mut extents = Extents::default();
        let (full, tracked) = captures(&mut extents, "count", &[900; 26]);
        assert_eq!(full, "F".repeat(26));
        assert_eq!(tracked, "-t--t----t--------t-------");
        // It is tracked again after at most eight captures, and incremental from then on.
        let (full, _) = captures(&mut Extents::default(), "count", &[900, 10, 10, 10]);
        assert_eq!(full, "FFii");
        let (full, tracked) = captures(&mut extents, "other", &[10; 3]);
        assert_eq!((&full[..], &tracked[..]), ("iii", "ttt"), "each stage on its own");
    }

    /// Rows that are written compared with full captures alone: less for each share, never more.
    #[test]
    fn no_share_costs_more_than_full_captures_do() {
        for (share, most) in
            [(1, 22), (10, 40), (100, 250), (300, 650), (500, 750), (501, 1000), (1000, 1000)]
        {
            let (full, _) = captures(&mut Extents::default(), "count", &[share; 600]);
            let rows = |capture: char| if capture == 'F' { 1000 } else { share };
            let written: u64 = full.chars().map(rows).sum();
            assert!(written <= most * 600, "{share} of 1,000: {} a capture", written / 600);
        }
    }
}
