//! What waits for a time: items by the millisecond at which they are due, in buckets of 16 ms.
//!
//! An item is looked at when its bucket is reached, so at most 16 times before it leaves, however
//! often and however unevenly time moves on. It does not order what is due.
//!
//! Why buckets and not a heap: most items are due at times near each other and leave in bulk at a
//! watermark, and whoever takes them sorts them anyway (by key and arrival, too).

use std::collections::BTreeMap;

/// Buckets of 2⁴ ms.
const SHIFT: u32 = 4;

/// Items with the time at which they are due.
pub(crate) struct DueQueue<T> {
    buckets: BTreeMap<i64, Vec<(i64, T)>>,
    count: usize,
}

impl<T: Copy> DueQueue<T> {
    /// Nothing waits.
    pub fn new() -> Self {
        DueQueue { buckets: BTreeMap::new(), count: 0 }
    }

    /// An item waits until time has reached `due`.
    pub fn push(&mut self, due: i64, item: T) {
        self.buckets.entry(due >> SHIFT).or_default().push((due, item));
        self.count += 1;
    }

    /// Hands over what is due at this time, in no order.
    pub fn pop_due(&mut self, time: i64, mut take: impl FnMut(i64, T)) {
        let last = time >> SHIFT;
        while let Some(mut entry) = self.buckets.first_entry().filter(|e| *e.key() <= last) {
            let items = entry.get_mut();
            let before = items.len();
            items.retain(|&(due, item)| {
                if due <= time {
                    take(due, item);
                }
                due > time
            });
            self.count -= before - items.len();
            if !items.is_empty() {
                return;
            }
            entry.remove();
        }
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What is due at this time, though it has been reached; in the order in which it came.
    pub fn overdue(&self, time: i64) -> impl Iterator<Item = (i64, T)> + '_ {
        let buckets = self.buckets.range(..=time >> SHIFT).flat_map(|(_, items)| items);
        buckets.copied().filter(move |&(due, _)| due <= time)
    }

    /// The first and the last millisecond of the first bucket: nothing is due before.
    pub fn first_bucket(&self) -> Option<(i64, i64)> {
        let (bucket, _) = self.buckets.first_key_value()?;
        Some((bucket << SHIFT, (bucket << SHIFT) + ((1 << SHIFT) - 1)))
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        // Buckets grow by doubling.
        self.count * size_of::<(i64, T)>() * 3 / 2 + self.buckets.len() * 48
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_leave_when_they_are_due_and_not_before() {
        let mut waiting = DueQueue::new();
        for due in [5, -3, 40, 5, 16, 15, i64::MAX, i64::MIN] {
            waiting.push(due, due);
        }
        let due = |waiting: &mut DueQueue<i64>, time: i64| {
            let mut taken = Vec::new();
            waiting.pop_due(time, |due, item| {
                assert_eq!(due, item);
                taken.push(item);
            });
            taken.sort_unstable();
            taken
        };
        assert_eq!(due(&mut waiting, -4), [i64::MIN]);
        assert_eq!(waiting.first_bucket(), Some((-16, -1)));
        let overdue: Vec<i64> = waiting.overdue(5).map(|(due, _)| due).collect();
        assert_eq!(overdue, [-3, 5, 5]);
        assert_eq!(due(&mut waiting, 5), [-3, 5, 5]);
        assert_eq!(due(&mut waiting, 14), [0; 0]);
        assert_eq!(due(&mut waiting, 15), [15]);
        assert_eq!(due(&mut waiting, i64::MAX), [16, 40, i64::MAX]);
        assert_eq!(waiting.bytes(), 0);
    }
}
