//! What waits for a collector.

use std::collections::VecDeque;
use std::sync::Mutex;

/// How much waits for a collector, at most; then the oldest goes.
pub const WAITING_MAX: usize = 8_192;

/// What waits, oldest first, each with its number.
pub struct Outbox<T> {
    is_on: bool,
    waiting: Mutex<Waiting<T>>,
}

struct Waiting<T> {
    items: VecDeque<T>,
    /// The number of the oldest.
    first: u64,
}

/// The oldest of what waits.
pub struct Batch<T> {
    /// In the order in which they came.
    pub items: Vec<T>,
    /// The number behind the last of them.
    end: u64,
}

impl<T: Clone> Outbox<T> {
    /// Nothing yet. Where there is no collector nothing is kept.
    pub fn new(is_on: bool) -> Outbox<T> {
        Outbox { is_on, waiting: Mutex::new(Waiting { items: VecDeque::new(), first: 0 }) }
    }

    /// True if there is a collector that wants them.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Adds one.
    pub fn add(&self, item: T) {
        if !self.is_on {
            return;
        }
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        if waiting.items.len() == WAITING_MAX {
            waiting.pop();
        }
        waiting.items.push_back(item);
    }

    /// The oldest of them.
    pub fn oldest(&self, most: usize) -> Batch<T> {
        let waiting = self.waiting.lock().expect("no panic under this lock");
        let items: Vec<T> = waiting.items.iter().take(most).cloned().collect();
        let end = waiting.first + items.len() as u64;
        Batch { items, end }
    }

    /// Removes those that were sent. Some may have gone meanwhile, for want of room.
    pub fn remove(&self, sent: &Batch<T>) {
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        while waiting.first < sent.end {
            waiting.pop();
        }
    }
}

impl<T> Waiting<T> {
    fn pop(&mut self) {
        self.items.pop_front();
        self.first += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_when_nobody_takes_them() {
        let outbox = Outbox::new(true);
        (0..WAITING_MAX).for_each(|number| outbox.add(number));
        let batch = outbox.oldest(2);
        assert_eq!(batch.items, [0, 1]);
        outbox.add(WAITING_MAX);
        outbox.remove(&batch);
        assert_eq!(outbox.oldest(1).items, [2], "one had gone, one was sent");
        let off = Outbox::new(false);
        off.add(1);
        assert!(off.oldest(1).items.is_empty());
    }
}
