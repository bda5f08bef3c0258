//! The states of the keys of one partition, and which of them are too old.
//!
//! A state that is too old is found when its key is used next, and by looking at keys in a line.
//!
//! **Invariant:** with a lifetime, each state has one entry in the line (others of its key are
//! stale and dropped when they come up). One that was used since is put back at the end, so looking
//! costs a step for each lifetime of a state, whatever the number of rows, and none outlives two
//! lifetimes.
//!
//! From the first capture on it is known which states were used since the last one, and which keys
//! have gone; if more have gone than are there, the next capture is full instead.

use std::collections::VecDeque;
use std::hash::BuildHasherDefault;

use hashbrown::hash_table::Entry;
use hashbrown::{HashSet, HashTable};
use thalweg_core::{Extent, TableChanges};

use super::key::{ProbeHasher, RowKey, hash_key, probe};

/// States that are measured to estimate how large all of them are.
const MEASURED_STATES: usize = 32;
/// Keys that are looked at between two looks at the clock.
const UNCHECKED_KEYS: usize = 64;
/// Up to this many keys that have gone are noted, however few are there.
pub(super) const GONE_MIN: usize = 64 * 1024;

/// A state and when it was used last.
struct StateOfKey<K, S> {
    key: K,
    state: S,
    used_ms: i64,
    /// The time of its entry in the line; others of its key are of states that were forgotten.
    look_ms: i64,
    /// It was used since the last capture.
    is_used: bool,
}

/// A key, its state, and when that was used last.
pub(super) type KeptState<'a, K, S> = (&'a K, &'a S, i64);

/// What a capture is to hold.
pub(super) struct Meant<'a, K, S> {
    pub extent: Extent,
    pub kept: Vec<KeptState<'a, K, S>>,
    /// Keys that have gone, among changes.
    pub gone: Vec<K>,
}

/// Keys in no order.
type Keys<K> = HashSet<K, BuildHasherDefault<ProbeHasher>>;

/// The states of the keys.
pub(super) struct States<K, S> {
    kept: HashTable<StateOfKey<K, S>>,
    ttl_ms: Option<i64>,
    /// Keys, and when each is to be looked at, in the order in which they are.
    line: VecDeque<(i64, K)>,
    /// Keys that have gone since the last capture; `None` while nobody notes them.
    gone: Option<Keys<K>>,
    /// How many states were used since the last capture.
    used: usize,
    /// How many captures have written since the last full one, that one included.
    written: usize,
}

impl<K: RowKey, S: Default> States<K, S> {
    /// No states. They live for `ttl_ms` behind their last use, or for ever.
    pub(super) fn new(ttl_ms: Option<i64>) -> Self {
        let (kept, line) = (HashTable::new(), VecDeque::new());
        States { kept, ttl_ms, line, gone: None, used: 0, written: 0 }
    }

    /// Uses the state of a key with this [hash](hash_key); a new one if there is none or if it is
    /// too old.
    pub(super) fn with(
        &mut self,
        (key, hash): (&K, u64),
        now_ms: i64,
        function: impl FnOnce(&mut S),
    ) {
        let kept = match self.kept.entry(probe(hash), |kept| kept.key == *key, probe_of) {
            Entry::Occupied(kept) => kept.into_mut(),
            Entry::Vacant(free) => {
                let look_ms = self.ttl_ms.map_or(i64::MAX, |ttl_ms| now_ms.saturating_add(ttl_ms));
                if self.ttl_ms.is_some() {
                    self.line.push_back((look_ms, key.clone()));
                }
                let (key, state) = (key.clone(), S::default());
                let new = StateOfKey { key, state, used_ms: now_ms, look_ms, is_used: false };
                free.insert(new).into_mut()
            }
        };
        if is_over(self.ttl_ms, kept.used_ms, now_ms) {
            kept.state = S::default();
        }
        kept.used_ms = now_ms;
        self.used += usize::from(!std::mem::replace(&mut kept.is_used, true));
        function(&mut kept.state);
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Entry::Occupied(kept) = entry(&mut self.kept, key) {
            let (kept, _) = kept.remove();
            self.used -= usize::from(kept.is_used);
            note_gone(&mut self.gone, self.kept.len(), key);
        }
    }

    /// Begins a capture: what it is to hold. Everything, if nobody has noted what changed.
    pub(super) fn mean(&mut self, extent: Extent) -> Meant<'_, K, S> {
        let noted = self.gone.replace(Keys::default());
        let (extent, gone) = match (extent, noted) {
            (Extent::Incremental, Some(gone)) => (Extent::Incremental, gone),
            _ => (Extent::Full, Keys::default()),
        };
        self.written = match extent {
            Extent::Full => self.kept.len(),
            Extent::Incremental => self.written + self.used + gone.len(),
        };
        self.used = 0;
        let mut kept = Vec::new();
        for of_key in &mut self.kept {
            if std::mem::take(&mut of_key.is_used) || extent == Extent::Full {
                kept.push((&of_key.key, &of_key.state, of_key.used_ms));
            }
        }
        Meant { extent, kept, gone: gone.into_iter().collect() }
    }

    /// What is known before a capture of the table with this name.
    pub(super) fn changes(&self, name: &'static str) -> TableChanges {
        TableChanges {
            name,
            live: self.kept.len() as u64,
            changed: self.gone.as_ref().map(|gone| (self.used + gone.len()) as u64),
            written: self.written as u64,
        }
    }

    /// Stops noting which keys have gone: the next capture is full.
    pub(super) fn stop_tracking(&mut self) {
        self.gone = None;
    }

    /// Restores a state from a capture.
    pub(super) fn recall(&mut self, key: K, state: S, used_ms: i64) {
        let look_ms = self.ttl_ms.map_or(i64::MAX, |ttl_ms| used_ms.saturating_add(ttl_ms));
        if self.ttl_ms.is_some() {
            self.line.push_back((look_ms, key.clone()));
        }
        let hash = probe(hash_key(&key));
        let kept = StateOfKey { key, state, used_ms, look_ms, is_used: false };
        self.kept.insert_unique(hash, kept, probe_of);
    }

    /// All states have been restored: keys are looked at in the order of their times.
    pub(super) fn recalled(&mut self) {
        self.line.make_contiguous().sort_by_key(|(look_ms, _)| *look_ms);
    }

    /// When to look at keys next.
    pub(super) fn looks_at(&self) -> Option<i64> {
        self.line.front().map(|(at_ms, _)| *at_ms)
    }

    /// Forgets keys that are too old. True when there are no more, false when time was up before.
    pub(super) fn expire(&mut self, now_ms: i64, time_is_up: impl Fn() -> bool) -> bool {
        let mut looked = 0;
        while self.looks_at().is_some_and(|at_ms| at_ms <= now_ms) {
            if looked % UNCHECKED_KEYS == UNCHECKED_KEYS - 1 && time_is_up() {
                return false;
            }
            looked += 1;
            let Some((look_ms, key)) = self.line.pop_front() else { break };
            let Entry::Occupied(mut entry) = entry(&mut self.kept, &key) else { continue };
            let used_ms = entry.get().used_ms;
            if entry.get().look_ms != look_ms {
                continue;
            }
            if is_over(self.ttl_ms, used_ms, now_ms) {
                let (kept, _) = entry.remove();
                self.used -= usize::from(kept.is_used);
                note_gone(&mut self.gone, self.kept.len(), &key);
            } else if let Some(ttl_ms) = self.ttl_ms {
                entry.get_mut().look_ms = used_ms.saturating_add(ttl_ms);
                self.line.push_back((entry.get().look_ms, key));
            }
        }
        true
    }

    /// How many keys have a state.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// About how many bytes the states take, estimated from some of them.
    pub(super) fn bytes(&self, extra_bytes: impl Fn(&S) -> usize) -> usize {
        let of_key = size_of::<StateOfKey<K, S>>() + 1;
        let measured = self.kept.iter().take(MEASURED_STATES);
        let (count, extra) =
            measured.fold((0, 0), |(count, sum), kept| (count + 1, sum + extra_bytes(&kept.state)));
        let extra = (extra * self.kept.len()).checked_div(count).unwrap_or(0);
        let gone = self.gone.as_ref().map_or(0, |gone| gone.capacity() * (size_of::<K>() + 1));
        gone + self.kept.capacity() * of_key + self.line.capacity() * size_of::<(i64, K)>() + extra
    }
}

/// What the table of states is probed with for a key that it holds.
fn probe_of<K: RowKey, S>(kept: &StateOfKey<K, S>) -> u64 {
    probe(hash_key(&kept.key))
}

/// The place of a key in the table of states.
fn entry<'a, K: RowKey, S>(
    kept: &'a mut HashTable<StateOfKey<K, S>>,
    key: &K,
) -> Entry<'a, StateOfKey<K, S>> {
    kept.entry(probe(hash_key(key)), |kept| kept.key == *key, probe_of)
}

/// Notes that a key has gone, of this many that are there.
fn note_gone<K: RowKey>(gone: &mut Option<Keys<K>>, kept: usize, key: &K) {
    match gone {
        None => {}
        Some(keys) if keys.len() >= GONE_MIN.max(kept) => *gone = None,
        Some(keys) => {
            keys.insert(key.clone());
        }
    }
}

fn is_over(ttl_ms: Option<i64>, used_ms: i64, now_ms: i64) -> bool {
    ttl_ms.is_some_and(|ttl_ms| now_ms.saturating_sub(used_ms) >= ttl_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(states: &mut States<u64, Vec<i64>>, key: u64, now_ms: i64) -> usize {
        let mut rows = 0;
        states.with((&key, hash_key(&key)), now_ms, |state| {
            state.push(now_ms);
            rows = state.len();
        });
        rows
    }

    #[test]
    fn a_state_that_was_not_used_for_its_lifetime_starts_from_its_default() {
        let mut states = States::new(Some(10));
        assert_eq!(add(&mut states, 1, 100), 1);
        assert_eq!(add(&mut states, 1, 109), 2);
        assert_eq!(add(&mut states, 1, 118), 3);
        assert_eq!(add(&mut states, 1, 128), 1);
    }

    #[test]
    fn keys_that_nobody_uses_go_and_others_stay() {
        let mut states = States::new(Some(10));
        for key in 0..1000 {
            add(&mut states, key, 0);
        }
        add(&mut states, 7, 5);
        assert_eq!(states.looks_at(), Some(10));
        assert!(!states.expire(10, || true), "there is more than one call may do");
        while !states.expire(10, || true) {}
        assert_eq!((states.kept.len(), states.looks_at()), (1, Some(15)));
        assert!(states.expire(15, || false));
        assert_eq!((states.kept.len(), states.looks_at()), (0, None));
    }

    #[test]
    fn keys_that_are_forgotten_and_come_back_leave_nothing_in_the_line() {
        let mut states = States::new(Some(10));
        for now_ms in 0..1000 {
            add(&mut states, 1, now_ms);
            states.remove(&1);
            add(&mut states, 1, now_ms);
            assert!(states.expire(now_ms, || false));
            assert!(states.line.len() <= 24, "{}", states.line.len());
        }
    }

    #[test]
    fn changes_are_what_was_used_and_what_has_gone_since_the_last_capture() {
        let mut states = States::new(None);
        let capture = |states: &mut States<u64, Vec<i64>>, extent| {
            let meant = states.mean(extent);
            let mut keys: Vec<u64> = meant.kept.iter().map(|(key, ..)| **key).collect();
            keys.sort_unstable();
            (meant.extent, keys, meant.gone)
        };
        (0..3).for_each(|key| assert_eq!(add(&mut states, key, 0), 1));
        let all = (Extent::Full, vec![0, 1, 2], vec![]);
        assert_eq!(capture(&mut states, Extent::Incremental), all, "nobody has noted what changed");
        assert_eq!(
            capture(&mut states, Extent::Incremental),
            (Extent::Incremental, vec![], vec![])
        );
        add(&mut states, 1, 1);
        states.remove(&2);
        states.remove(&7);
        assert_eq!(
            capture(&mut states, Extent::Incremental),
            (Extent::Incremental, vec![1], vec![2])
        );
        assert_eq!(capture(&mut states, Extent::Full).1, [0, 1]);
    }

    #[test]
    fn states_that_are_restored_end_when_they_would_have() {
        let mut states = States::<u64, Vec<i64>>::new(Some(10));
        for (key, used_ms) in [(1, 7), (2, 3), (3, 5)] {
            states.recall(key, vec![used_ms], used_ms);
        }
        states.recalled();
        assert_eq!(states.looks_at(), Some(13));
        assert!(states.expire(15, || false));
        assert_eq!((states.kept.len(), add(&mut states, 1, 16)), (1, 2));
    }

    #[test]
    fn without_a_lifetime_nothing_is_kept_for_looking() {
        let mut states = States::new(None);
        add(&mut states, 1, 0);
        assert_eq!(add(&mut states, 1, i64::MAX), 2);
        assert_eq!(states.looks_at(), None);
        let of_one = states.bytes(|_| 0);
        assert_eq!(states.bytes(|state| state.len() * 8), of_one + 16);
    }
}
