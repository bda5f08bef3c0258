//! Timers of one partition, in the order in which they fire.
//!
//! **Invariant:** timers fire by (time, virtual partition, key), and a timer that is set while one
//! fires comes later than it. So their order depends on keys and times alone, the ranges of several
//! partitions put one behind the other are in that order too, and no timer can keep itself going.
//!
//! Setting is what happens often: timers of one time are a set without order, which is sorted once,
//! when its time has come.
//!
//! From the first capture on it is known which timers were set since the last one, and which of
//! those that it holds have gone; if more have gone than are there, the next capture has everything
//! instead.

use std::collections::BTreeMap;
use std::hash::BuildHasherDefault;

use hashbrown::HashSet;
use thalweg_core::{Extent, Watermark};

use super::key::{ProbeHasher, RowKey, virtual_partition};
use super::states::GONE_MIN;

/// The time of a timer that fires at the end of the input.
pub(super) const AT_END: i64 = i64::MAX;

/// Timers in no order: the time and the key of each.
type Unordered<K> = HashSet<(i64, K), BuildHasherDefault<ProbeHasher>>;

/// What has changed since the last capture.
struct TimerChanges<K> {
    /// Timers that were set; they are there.
    set: Unordered<K>,
    /// Those that were captured, and have gone.
    gone: Unordered<K>,
}

/// What a capture is to hold.
pub(super) struct MeantTimers<K> {
    pub extent: Extent,
    pub set: Vec<(i64, K)>,
    /// Those that have gone, among changes.
    pub gone: Vec<(i64, K)>,
}

/// The timers that are set.
pub(super) struct Timers<K> {
    waiting: BTreeMap<i64, HashSet<K, BuildHasherDefault<ProbeHasher>>>,
    count: usize,
    /// Timers of this time are firing.
    firing_ms: Option<i64>,
    /// Those that are left of them, the next one last.
    firing: Vec<(u8, K)>,
    /// Timers fire at multiples of this.
    grid_ms: Option<i64>,
    /// `None` while nobody notes them.
    changes: Option<TimerChanges<K>>,
}

impl<K: RowKey> Timers<K> {
    pub(super) fn new(grid_ms: Option<i64>) -> Self {
        let (waiting, firing) = (BTreeMap::new(), Vec::new());
        Timers { waiting, count: 0, firing_ms: None, firing, grid_ms, changes: None }
    }

    /// Sets a timer for a key at the first point of the grid at or after a time; the same one twice
    /// is one. Without a grid timers fire at the end. While a timer fires, the first point is
    /// behind its time; behind the end there is none.
    pub(super) fn add(&mut self, at_ms: i64, key: &K) {
        let at_ms = match self.firing_ms {
            Some(AT_END) => return,
            Some(firing_ms) => at_ms.max(firing_ms + 1),
            None => at_ms,
        };
        let time_ms = self.on_grid(at_ms);
        let of_time = self.waiting.entry(time_ms).or_default();
        if !of_time.contains(key) {
            of_time.insert(key.clone());
            self.count += 1;
            note_set(&mut self.changes, time_ms, key);
        }
    }

    fn on_grid(&self, at_ms: i64) -> i64 {
        self.grid_ms.map_or(AT_END, |grid_ms| round_up(at_ms, grid_ms))
    }

    /// Cancels the timer that was set for a key and a time, if there is one.
    pub(super) fn remove(&mut self, at_ms: i64, key: &K) {
        let time_ms = self.on_grid(at_ms);
        if self.firing_ms == Some(time_ms) {
            // Some of its time have fired, and this one may be among those that have not.
            if let Some(place) = self.firing.iter().position(|(_, other)| other == key) {
                self.firing.remove(place);
                self.count -= 1;
                note_gone(&mut self.changes, self.count, time_ms, key);
            }
        }
        let Some(of_time) = self.waiting.get_mut(&time_ms) else { return };
        if of_time.remove(key) {
            self.count -= 1;
            note_gone(&mut self.changes, self.count, time_ms, key);
        }
        if of_time.is_empty() {
            self.waiting.remove(&time_ms);
        }
    }

    /// Takes the first timer that this watermark reaches: it fires from its time minus 1 ms on.
    pub(super) fn pop(&mut self, watermark: Watermark) -> Option<(i64, K)> {
        while self.firing.is_empty() {
            self.firing_ms = None;
            let of_first = self.waiting.first_entry()?;
            let time_ms = *of_first.key();
            if watermark != Watermark::END && time_ms > watermark.0.saturating_add(1) {
                return None;
            }
            self.firing_ms = Some(time_ms);
            let keys = of_first.remove().into_iter();
            self.firing.extend(keys.map(|key| (virtual_partition(&key), key)));
            self.firing.sort_unstable_by(|one, other| other.cmp(one));
        }
        self.count -= 1;
        let (time_ms, (_, key)) = (self.firing_ms?, self.firing.pop()?);
        note_gone(&mut self.changes, self.count, time_ms, &key);
        Some((time_ms, key))
    }

    /// Puts the timer back that was taken last: it fires next.
    pub(super) fn put_back(&mut self, time_ms: i64, key: K) {
        note_set(&mut self.changes, time_ms, &key);
        self.firing_ms = Some(time_ms);
        self.firing.push((virtual_partition(&key), key));
        self.count += 1;
    }

    /// The watermark from which on the first timer fires.
    pub(super) fn first(&self) -> Watermark {
        let first_ms = self.firing_ms.or_else(|| self.waiting.keys().next().copied());
        match first_ms {
            Some(first_ms) if first_ms < AT_END => Watermark(first_ms - 1),
            _ => Watermark::END,
        }
    }

    /// Begins a capture: what it is to hold. Everything, if nobody has noted what changed.
    pub(super) fn mean(&mut self, extent: Extent) -> MeantTimers<K> {
        let (set, gone) = (Unordered::default(), Unordered::default());
        match (extent, self.changes.replace(TimerChanges { set, gone })) {
            (Extent::Incremental, Some(TimerChanges { set, gone })) => {
                let (set, gone) = (set.into_iter().collect(), gone.into_iter().collect());
                MeantTimers { extent, set, gone }
            }
            _ => {
                let set = self.all().map(|(time_ms, key)| (time_ms, key.clone())).collect();
                MeantTimers { extent: Extent::Full, set, gone: Vec::new() }
            }
        }
    }

    /// All timers, with their times.
    fn all(&self) -> impl Iterator<Item = (i64, &K)> {
        let waiting = self.waiting.iter();
        let waiting = waiting.flat_map(|(at_ms, keys)| keys.iter().map(move |key| (*at_ms, key)));
        let firing = self.firing.iter().map(|(_, key)| (self.firing_ms.unwrap_or(AT_END), key));
        firing.chain(waiting)
    }

    /// Restores a timer from a capture, for the time that it holds.
    pub(super) fn recall(&mut self, time_ms: i64, key: K) {
        if self.waiting.entry(time_ms).or_default().insert(key) {
            self.count += 1;
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.count
    }

    /// About how many bytes they take.
    pub(super) fn bytes(&self) -> usize {
        let noted = |changes: &TimerChanges<K>| changes.set.capacity() + changes.gone.capacity();
        let noted = self.changes.as_ref().map_or(0, noted);
        self.count * (size_of::<K>() + 32) + noted * (size_of::<(i64, K)>() + 1)
    }
}

/// Notes a timer that was not there.
fn note_set<K: RowKey>(changes: &mut Option<TimerChanges<K>>, time_ms: i64, key: &K) {
    let Some(TimerChanges { set, gone }) = changes else { return };
    let timer = (time_ms, key.clone());
    // One that was captured, has gone and has come again is as it was captured.
    if !gone.remove(&timer) {
        set.insert(timer);
    }
}

/// Notes that a timer has gone, of this many that are there.
fn note_gone<K: RowKey>(
    changes: &mut Option<TimerChanges<K>>,
    count: usize,
    time_ms: i64,
    key: &K,
) {
    let Some(TimerChanges { set, gone }) = changes else { return };
    let timer = (time_ms, key.clone());
    if set.remove(&timer) {
        return;
    }
    match gone.len() >= GONE_MIN.max(count) {
        true => *changes = None,
        false => {
            gone.insert(timer);
        }
    }
}

fn round_up(at_ms: i64, grid_ms: i64) -> i64 {
    let below = at_ms.div_euclid(grid_ms).saturating_mul(grid_ms);
    if below == at_ms { at_ms } else { below.saturating_add(grid_ms) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use thalweg_core::shim::SplitMix64;

    use super::*;

    #[test]
    fn timers_fire_on_the_grid_by_time_then_virtual_partition_then_key() {
        let mut timers = Timers::new(Some(1000));
        for key in 0..50u64 {
            timers.add(if key % 2 == 0 { 1 } else { 1001 }, &key);
        }
        timers.add(900, &0);
        assert_eq!(timers.len(), 50, "equal timers are one");
        assert!(timers.pop(Watermark(998)).is_none());
        let mut fired = Vec::new();
        while let Some((time_ms, key)) = timers.pop(Watermark(1999)) {
            fired.push((time_ms, virtual_partition(&key), key));
        }
        assert_eq!((fired.len(), timers.len()), (50, 0));
        assert!(fired.is_sorted());
        assert_eq!((fired[0].0, fired[49].0), (1000, 2000));
    }

    #[test]
    fn without_a_grid_they_wait_for_the_end() {
        let mut timers = Timers::new(None);
        timers.add(5, &"key".to_owned());
        assert!(timers.pop(Watermark(i64::MAX - 2)).is_none());
        assert_eq!(timers.pop(Watermark::END), Some((AT_END, "key".to_owned())));
        timers.add(5, &"key".to_owned());
        assert_eq!(timers.pop(Watermark::END), None, "nothing comes behind the end");
    }

    #[test]
    fn a_timer_set_by_a_timer_comes_later() {
        let mut timers = Timers::new(Some(10));
        timers.add(20, &1u64);
        assert_eq!(timers.pop(Watermark(100)), Some((20, 1)));
        timers.add(5, &1);
        timers.add(20, &1);
        assert_eq!(timers.pop(Watermark(100)), Some((30, 1)));
        assert_eq!(timers.pop(Watermark(100)), None);
        // Rows may set timers for times that have passed.
        timers.add(5, &1);
        assert_eq!(timers.pop(Watermark(100)), Some((10, 1)));
    }

    #[test]
    fn a_timer_that_was_cancelled_does_not_fire() {
        let mut timers = Timers::new(Some(10));
        (0..6u64).for_each(|key| timers.add(20, &key));
        timers.remove(15, &3);
        timers.remove(30, &4);
        timers.remove(20, &17);
        assert_eq!(timers.len(), 5);
        let (_, first) = timers.pop(Watermark(100)).expect("five are left");
        let second = (0..6u64).find(|key| *key != first && *key != 3).expect("another one");
        timers.remove(20, &second);
        let rest = std::iter::from_fn(|| timers.pop(Watermark(100))).count();
        assert_eq!((rest, timers.len()), (3, 0), "one fired, one was cancelled meanwhile");
        timers.add(40, &1);
        timers.remove(40, &1);
        assert_eq!(timers.first(), Watermark::END);
    }

    #[test]
    fn a_timer_that_is_put_back_fires_next() {
        let mut timers = Timers::new(Some(10));
        (0..6u64).for_each(|key| timers.add(20, &key));
        let mut again = Timers::new(Some(10));
        (0..6u64).for_each(|key| again.add(20, &key));
        for _ in 0..6 {
            let (time_ms, key) = timers.pop(Watermark(100)).expect("six are set");
            timers.put_back(time_ms, key);
            assert_eq!(timers.first(), Watermark(19));
            assert_eq!(timers.pop(Watermark(100)), again.pop(Watermark(100)));
        }
        assert_eq!((timers.len(), timers.pop(Watermark(100))), (0, None));
    }

    #[test]
    fn timers_that_are_restored_fire_as_they_would_have_also_those_of_a_time_that_fires() {
        let set = |timers: &mut Timers<u64>| {
            (0..20).for_each(|key| timers.add(10 + (key % 3) as i64, &key))
        };
        let mut timers = Timers::new(Some(1));
        set(&mut timers);
        (0..3).for_each(|_| assert!(timers.pop(Watermark(100)).is_some()));
        let mut again = Timers::new(Some(1));
        timers.all().for_each(|(time_ms, key)| again.recall(time_ms, *key));
        assert_eq!((again.len(), again.first()), (17, timers.first()));
        let rest = |timers: &mut Timers<u64>| -> Vec<(i64, u64)> {
            std::iter::from_fn(|| timers.pop(Watermark(100))).collect()
        };
        assert_eq!(rest(&mut again), rest(&mut timers));
    }

    /// The contents of incremental captures, put together.
    fn take_over(kept: &mut BTreeSet<(i64, u64)>, meant: MeantTimers<u64>) {
        if meant.extent == Extent::Full {
            kept.clear();
        }
        for timer in &meant.gone {
            assert!(kept.remove(timer), "only what was captured goes");
        }
        for timer in meant.set {
            assert!(kept.insert(timer), "only what was not captured comes");
        }
    }

    #[test]
    fn changes_put_together_are_all_timers() {
        for seed in 0..60 {
            let mut random = SplitMix64::new(seed);
            let mut timers = Timers::new(Some(1 + seed as i64 % 3));
            let (mut kept, mut now_ms, mut captures) = (BTreeSet::new(), 0, 0);
            for _ in 0..400 {
                let (at_ms, key) = (now_ms - 3 + random.below(20) as i64, random.below(20));
                match random.below(8) {
                    0..4 => timers.add(at_ms, &key),
                    4..6 => timers.remove(at_ms, &key),
                    6 => {
                        now_ms += random.below(4) as i64;
                        (0..random.below(4)).for_each(|_| {
                            timers.pop(Watermark(now_ms));
                        });
                    }
                    _ => {
                        let is_whole = captures == 0 || random.below(4) == 0;
                        let extent = if is_whole { Extent::Full } else { Extent::Incremental };
                        take_over(&mut kept, timers.mean(extent));
                        let all: BTreeSet<_> = timers.all().map(|(at, key)| (at, *key)).collect();
                        assert_eq!((&kept, kept.len()), (&all, timers.len()), "seed {seed}");
                        captures += 1;
                    }
                }
            }
            assert!(captures > 20);
        }
    }

    #[test]
    fn what_is_captured_follows_what_changes() {
        let mut timers = Timers::new(Some(1));
        let capture = |timers: &mut Timers<u64>| {
            let meant = timers.mean(Extent::Incremental);
            (meant.set.len(), meant.gone.len(), meant.extent)
        };
        (0..20_000).for_each(|key| timers.add(1000 + key as i64, &key));
        assert_eq!(
            capture(&mut timers),
            (20_000, 0, Extent::Full),
            "nobody has noted what changed"
        );
        assert_eq!(capture(&mut timers), (0, 0, Extent::Incremental));
        (0..10).for_each(|key| timers.remove(1000 + key as i64, &key));
        (0..30).for_each(|key| timers.add(500, &key));
        assert_eq!(std::iter::from_fn(|| timers.pop(Watermark(501))).count(), 30);
        (5..10).for_each(|key| timers.add(1000 + key as i64, &key));
        timers.add(7, &7);
        assert_eq!(
            capture(&mut timers),
            (1, 5, Extent::Incremental),
            "one new, and five that went"
        );
        // More go than are left.
        let many = 4 * GONE_MIN as u64;
        (0..many).for_each(|key| timers.add(50_000, &key));
        assert_eq!(capture(&mut timers).2, Extent::Incremental);
        (0..many - 5).for_each(|key| timers.remove(50_000, &key));
        assert_eq!(capture(&mut timers).2, Extent::Full, "names would be more than what is there");
    }

    #[test]
    fn times_round_up_below_zero_too() {
        assert_eq!((round_up(-1, 10), round_up(-10, 10), round_up(1, 10)), (0, -10, 10));
        assert_eq!(round_up(i64::MAX - 1, 10), i64::MAX);
    }
}
