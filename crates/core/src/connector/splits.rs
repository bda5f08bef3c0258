//! The parts of a source that have a sequence and a time of their own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A split of a source: a part with a sequence of its own (a partition of a topic, a shard, a
/// slot). Each has its own running watermark, by which its rows are judged, and falls idle on its
/// own, when it was quiet for the idle time-out and has no rows that were not given yet
/// ([`SplitStatus::is_caught_up`]); the watermark of the source is the least of those that have
/// neither ended nor fallen idle.
///
/// A source numbers its splits as it likes, from 0 on without large gaps; the numbers hold for one
/// run. What a split is called ([`SplitEvent::Opened`]) holds for all runs.
///
/// # Rules for sources with several splits
/// - A split is opened before anything else is given of it. Those that a source begins with, or
///   had at the position that it resumes from, are opened before any row is given: no watermark
///   moves before that. Others may come at any time; their rows are judged by what the source's
///   watermark had reached when they came.
/// - Rows of a split come in its order. A batch has rows of one split.
/// - An ended split gives nothing more, and its number is not used again. Its name may come again,
///   under another number, if the split does.
/// - What is given after a split has fallen idle brings it back: its watermark is then that of the
///   source, at least, and rows that this has passed are late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SplitId(pub u32);

impl SplitId {
    /// The split of a source that opens none.
    pub const ONLY: SplitId = SplitId(0);
}

/// What happens to a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitEvent {
    /// It is there, under this name, by which snapshots know it: `orders-3`.
    Opened(Arc<str>),
    /// It will never have more.
    Ended,
}

/// A split of a source that brings its splits into one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedSplit {
    /// Its number.
    pub id: SplitId,
    /// Its name.
    pub name: Arc<str>,
    /// None of its rows to come is older, in milliseconds since 1970; [`i64::MIN`] if that is not
    /// known.
    pub reached_ms: i64,
    /// Rows of others wait for it.
    pub holds_back: bool,
    /// It has no more rows.
    pub has_ended: bool,
}

/// What goes wrong outside at the moment and is tried again, as metrics show it, with how often
/// that was so. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Trouble(Arc<Mutex<TroubleState>>);

#[derive(Debug, Default)]
struct TroubleState {
    message: Option<String>,
    errors: u64,
    recoveries: u64,
}

impl Trouble {
    /// This goes wrong.
    pub fn set(&self, message: impl Into<String>) {
        let mut state = self.state();
        state.message = Some(message.into());
        state.errors += 1;
    }
    /// All is well again.
    pub fn clear(&self) {
        let mut state = self.state();
        state.recoveries += u64::from(state.message.take().is_some());
    }
    /// What goes wrong, if anything does.
    pub fn get(&self) -> Option<String> {
        self.state().message.clone()
    }
    /// How often something went wrong: each attempt that failed.
    pub fn errors(&self) -> u64 {
        self.state().errors
    }
    /// How often all was well again after that.
    pub fn recoveries(&self) -> u64 {
        self.state().recoveries
    }
    fn state(&self) -> MutexGuard<'_, TroubleState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a source knows of a split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitStatus {
    /// How far it is read, for people.
    pub position: Option<String>,
    /// Rows that are there and were not given yet, as far as that is known.
    pub lag_rows: Option<u64>,
    /// Bytes of it that are there and were not given yet, as far as that is known.
    pub lag_bytes: Option<u64>,
    /// All that is there was given: where nothing comes, there is nothing. A split that lags is
    /// never taken for an idle one.
    pub is_caught_up: bool,
    /// Rows that could not be read and were left out.
    pub bad_rows: u64,
    /// What went wrong last, and is tried again.
    pub last_error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_failed_and_recoveries_are_counted() {
        let trouble = Trouble::default();
        trouble.clear();
        assert_eq!((trouble.errors(), trouble.recoveries()), (0, 0));
        trouble.set("refused");
        trouble.clone().set("refused again");
        assert_eq!(trouble.get().as_deref(), Some("refused again"));
        trouble.clear();
        trouble.clear();
        assert_eq!((trouble.errors(), trouble.recoveries(), trouble.get()), (2, 1, None));
    }
}
