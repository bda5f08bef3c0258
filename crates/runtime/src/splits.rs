//! The splits of a source as the runtime knows them: their watermarks, and which of them count.
//!
//! **Invariants**
//! - Neither the watermark of a split nor the joint one ever falls.
//! - The joint watermark is at most that of each split that has neither ended nor fallen idle.
//! - A row is judged by its own split's watermark, which is at least the joint one: no row comes
//!   into a window that is closed already.
//!
//! The first invariant and the third one meet where a split comes, or comes back: it begins at the
//! joint watermark. Where none counts, time goes to what any of them has reached, as it does where
//! all inputs of a stage are idle.

use std::sync::Arc;

use thalweg_core::connector::{MergedSplit, Source, SplitId};
use thalweg_core::snapshot::SplitState;
use thalweg_core::{Error, Result, Watermark};

use crate::metrics::SplitSnapshot;

/// The splits of a source.
#[derive(Default)]
pub struct Splits {
    /// By their numbers. One without a name stands for a source that opens none.
    list: Vec<Option<Split>>,
    joint: Watermark,
    /// Those of the snapshot that are not opened yet.
    restored: Vec<SplitState>,
}

/// A split.
pub(crate) struct Split {
    /// What a snapshot keeps.
    pub(crate) known: SplitState,
    /// When it gave something last.
    pub(crate) active_ns: u64,
    /// It gives nothing, because it is too far ahead.
    is_paused: bool,
    /// What has come of it in this run.
    given: GivenRows,
}

/// The rows that a split has given in this run.
#[derive(Clone, Copy, Default)]
struct GivenRows {
    rows: u64,
    /// When the last ones came.
    last_ns: Option<u64>,
    /// The latest time of the last ones, where it is known.
    last_time_ms: Option<i64>,
}

impl Split {
    fn new(known: SplitState, active_ns: u64) -> Split {
        Split { known, active_ns, is_paused: false, given: GivenRows::default() }
    }

    /// What metrics show of it, without what only the source knows.
    fn shown(&self) -> SplitSnapshot {
        SplitSnapshot {
            name: Arc::clone(&self.known.name),
            watermark: self.known.running,
            idle: self.known.idle,
            ended: self.known.ended,
            is_paused: self.is_paused,
            rows: self.given.rows,
            last_row_time_ms: self.given.last_time_ms,
            last_row_ns: self.given.last_ns,
            idle_since_ns: self.known.idle.then_some(self.active_ns),
            ..SplitSnapshot::default()
        }
    }

    /// True if the joint watermark waits for it.
    pub(crate) fn counts(&self) -> bool {
        !self.known.idle && !self.known.ended
    }
}

impl Splits {
    /// Those of a snapshot, to be opened, and the joint watermark.
    pub(crate) fn restore(&mut self, splits: Vec<SplitState>, joint: Watermark) {
        self.restored = splits;
        self.joint = joint;
    }

    /// What metrics show, with what the source knows.
    pub(crate) fn shown(&self, source: &dyn Source) -> Vec<SplitSnapshot> {
        let counting = || self.all().filter(|(_, split)| split.counts());
        let furthest = counting().map(|(_, split)| split.known.running).max();
        let shown = |(id, split): (SplitId, &Split)| SplitSnapshot {
            holds_back: split.counts()
                && split.known.running <= self.joint
                && furthest > Some(split.known.running),
            status: source.split_status(id),
            ..split.shown()
        };
        let merged = |split: MergedSplit| SplitSnapshot {
            name: split.name,
            watermark: Watermark(split.reached_ms.saturating_sub(1)),
            ended: split.has_ended,
            holds_back: split.holds_back,
            status: source.split_status(split.id),
            ..SplitSnapshot::default()
        };
        self.named().map(shown).chain(source.merged_splits().into_iter().map(merged)).collect()
    }

    /// What all of them have given, as if they were one.
    pub(crate) fn whole(&self, source: &dyn Source) -> SplitSnapshot {
        let mut whole = SplitSnapshot { watermark: self.joint, ..SplitSnapshot::default() };
        for (_, split) in self.all() {
            let of = split.shown();
            whole.rows += of.rows;
            if of.last_row_ns > whole.last_row_ns {
                (whole.last_row_ns, whole.last_row_time_ms) = (of.last_row_ns, of.last_row_time_ms);
            }
            whole.idle_since_ns = whole.idle_since_ns.max(of.idle_since_ns);
        }
        whole.idle = self.are_idle();
        whole.ended = self.all().next().is_some() && self.all().all(|(_, split)| split.known.ended);
        whole.idle_since_ns = whole.idle_since_ns.filter(|_| whole.idle);
        if !self.has_named() {
            whole.status = source.split_status(SplitId::ONLY);
        }
        whole
    }

    /// A split has given rows at this moment, the latest of them at `time_ms`.
    pub(crate) fn note_rows(
        &mut self,
        id: SplitId,
        rows: usize,
        now_ns: u64,
        time_ms: Option<i64>,
    ) {
        if rows > 0
            && let Some(split) = self.get_mut(id)
        {
            let rows = split.given.rows + rows as u64;
            split.given = GivenRows { rows, last_ns: Some(now_ns), last_time_ms: time_ms };
        }
    }

    /// What a snapshot keeps: nothing of a source that names no split.
    pub(crate) fn states(&self) -> Vec<SplitState> {
        let opened = self.named().map(|(_, split)| split.known.clone());
        opened.chain(self.restored.iter().cloned()).collect()
    }

    /// Those that have a name.
    pub(crate) fn named(&self) -> impl Iterator<Item = (SplitId, &Split)> {
        self.all().filter(|(_, split)| !split.known.name.is_empty())
    }

    /// True if one has a name.
    pub(crate) fn has_named(&self) -> bool {
        self.named().next().is_some()
    }

    fn all(&self) -> impl Iterator<Item = (SplitId, &Split)> {
        let numbered = (0..).map(SplitId).zip(&self.list);
        numbered.filter_map(|(id, split)| Some((id, split.as_ref()?)))
    }

    fn all_mut(&mut self) -> impl Iterator<Item = (SplitId, &mut Split)> {
        let numbered = (0..).map(SplitId).zip(&mut self.list);
        numbered.filter_map(|(id, split)| Some((id, split.as_mut()?)))
    }

    fn get(&self, id: SplitId) -> Option<&Split> {
        self.list.get(id.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: SplitId) -> Option<&mut Split> {
        self.list.get_mut(id.0 as usize)?.as_mut()
    }

    /// The joint watermark.
    pub(crate) fn joint(&self) -> Watermark {
        self.joint
    }

    /// The running watermark of a split.
    pub(crate) fn running(&self, id: SplitId) -> Watermark {
        self.get(id).map_or(self.joint, |split| split.known.running)
    }

    /// The least watermark of all splits that count but this one; the end of time if none does.
    pub(crate) fn least_of_others(&self, id: SplitId) -> Watermark {
        let others = self.all().filter(|(other, split)| *other != id && split.counts());
        others.map(|(_, split)| split.known.running).min().unwrap_or(Watermark::END)
    }

    /// A split is there. Says whether it counts: one that was idle when the snapshot was taken is
    /// so still.
    ///
    /// # Errors
    /// If the number is in use.
    pub(crate) fn open(&mut self, id: SplitId, name: &Arc<str>, now_ns: u64) -> Result<bool> {
        let place = id.0 as usize;
        if place >= self.list.len() {
            self.list.resize_with(place + 1, || None);
        }
        // What stood for all of the source while it had opened none.
        self.list[0].take_if(|split| split.known.name.is_empty());
        if self.list[place].is_some() {
            return Err(Error::internal(format!("split {place} ('{name}') is opened twice")));
        }
        let same = self.restored.iter().position(|split| split.name == *name);
        let known = match same.map(|at| self.restored.swap_remove(at)) {
            Some(known) => SplitState { ended: false, ..known },
            None => self.new_split(Arc::clone(name)),
        };
        let split = self.list[place].insert(Split::new(known, now_ns));
        Ok(split.counts())
    }

    /// What stands for a source that has opened none.
    fn add_only(&mut self, active_ns: u64) {
        self.list.push(Some(Split::new(self.new_split("".into()), active_ns)));
    }

    /// A split that has not given anything.
    fn new_split(&self, name: Arc<str>) -> SplitState {
        SplitState { name, running: self.joint, idle: false, ended: false }
    }

    /// A split gives something. It counts from here on, from the joint watermark on.
    ///
    /// # Errors
    /// If it is not open.
    pub(crate) fn begin(&mut self, id: SplitId, now_ns: u64) -> Result<()> {
        if id == SplitId::ONLY && self.list.is_empty() {
            self.add_only(now_ns);
        }
        let joint = self.joint;
        let Some(split) = self.get_mut(id).filter(|split| !split.known.ended) else {
            let number = id.0;
            return Err(Error::internal(format!(
                "the source gives something of split {number}, which is not open"
            )));
        };
        split.active_ns = now_ns;
        split.known.idle = false;
        // One that is open already is there; one that comes to an idle source may be behind.
        split.known.running = split.known.running.max(joint);
        Ok(())
    }

    /// No row of a split to come is at or before this.
    pub(crate) fn raise(&mut self, id: SplitId, to: Watermark) {
        if let Some(split) = self.get_mut(id) {
            split.known.running = split.known.running.max(to);
        }
        self.settle();
    }

    /// Others advanced without the source: splits that come back begin there.
    pub(crate) fn raise_joint(&mut self, to: Watermark) {
        self.joint = self.joint.max(to);
    }

    /// A split will never have more.
    pub(crate) fn end(&mut self, id: SplitId) {
        if let Some(split) = self.get_mut(id) {
            split.known.ended = true;
        }
        self.settle();
    }

    fn settle(&mut self) {
        let running = |(_, split): (SplitId, &Split)| split.known.running;
        let least = self.all().filter(|(_, split)| split.counts()).map(running).min();
        let joint = least.or_else(|| self.all().map(running).max());
        self.joint = self.joint.max(joint.unwrap_or(Watermark::MIN));
    }

    /// Splits with names are paused that are beyond this time, and others continue. Says which.
    pub(crate) fn keep_in_step(&mut self, limit: Watermark) -> Vec<(SplitId, bool)> {
        let mut changed = Vec::new();
        for (id, split) in self.all_mut().filter(|(_, split)| !split.known.name.is_empty()) {
            let is_ahead = split.known.running > limit;
            if std::mem::replace(&mut split.is_paused, is_ahead) != is_ahead {
                changed.push((id, is_ahead));
            }
        }
        changed
    }

    /// True if there are some, and none counts.
    pub(crate) fn are_idle(&self) -> bool {
        let mut all = self.all().peekable();
        all.peek().is_some() && all.all(|(_, split)| !split.counts())
    }

    /// Those that count and have given nothing since this moment fall idle if `may` says so, by
    /// number and name. Says since when the quietest of those left was active.
    pub(crate) fn let_idle(
        &mut self,
        quiet_before_ns: u64,
        may: impl Fn(SplitId, &str) -> bool,
    ) -> Option<u64> {
        if self.list.is_empty() {
            self.add_only(0);
        }
        for (id, split) in self.all_mut().filter(|(_, split)| split.counts()) {
            split.known.idle = split.active_ns < quiet_before_ns && may(id, &split.known.name);
        }
        self.settle();
        let left = self.all().filter(|(_, split)| split.counts());
        left.map(|(_, split)| split.active_ns).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000;

    fn opened(names: &[&str]) -> Splits {
        let mut splits = Splits::default();
        for (number, name) in (0..).zip(names) {
            assert!(splits.open(SplitId(number), &(*name).into(), NOW).expect("opens"));
        }
        splits
    }

    fn opened_at(named: &[(&str, i64)]) -> Splits {
        let names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
        let mut splits = opened(&names);
        for (number, (_, time)) in (0..).zip(named) {
            splits.raise(SplitId(number), Watermark(*time));
        }
        splits
    }

    #[test]
    fn the_joint_watermark_is_that_of_the_last_split_that_counts() {
        let mut splits = opened(&["a", "b", "c"]);
        let [a, b, c] = [0, 1, 2].map(SplitId);
        splits.raise(a, Watermark(50));
        splits.raise(b, Watermark(30));
        assert_eq!(splits.joint(), Watermark::MIN, "nothing is known of the third");
        splits.raise(c, Watermark(40));
        assert_eq!((splits.joint(), splits.least_of_others(b)), (Watermark(30), Watermark(40)));
        splits.let_idle(NOW + 1, |id, _| id == b);
        assert_eq!(splits.joint(), Watermark(40));
        // What comes back begins where the others are.
        splits.begin(b, NOW).expect("open");
        assert_eq!(splits.running(b), Watermark(40));
        splits.end(c);
        splits.raise(b, Watermark(45));
        assert_eq!(splits.joint(), Watermark(45));
        assert!(splits.begin(c, NOW).is_err(), "it has ended");
        assert!(splits.begin(SplitId(7), NOW).is_err(), "it was never opened");
        assert!(splits.open(b, &"d".into(), NOW).is_err(), "its number is in use");
        // A new one begins where they are, too.
        splits.open(SplitId(3), &"d".into(), NOW).expect("opens");
        assert_eq!((splits.running(SplitId(3)), splits.joint()), (Watermark(45), Watermark(45)));
    }

    #[test]
    fn time_advances_where_all_are_idle_as_far_as_any_of_them() {
        let mut splits = opened(&["a", "b"]);
        splits.raise(SplitId(0), Watermark(50));
        splits.raise(SplitId(1), Watermark(30));
        let quietest = splits.let_idle(NOW + 1, |_, name| name == "b");
        assert_eq!(
            (quietest, splits.joint(), splits.are_idle()),
            (Some(NOW), Watermark(50), false)
        );
        assert_eq!(splits.let_idle(NOW + 1, |_, _| true), None);
        assert!(splits.are_idle());
    }

    #[test]
    fn a_source_that_opens_none_has_one_until_it_does() {
        let mut splits = Splits::default();
        assert_eq!(splits.let_idle(0, |_, _| true), Some(0));
        splits.begin(SplitId::ONLY, NOW).expect("the only one");
        splits.raise(SplitId::ONLY, Watermark(5));
        assert!(splits.states().is_empty() && splits.joint() == Watermark(5));
        splits.open(SplitId(4), &"a".into(), NOW).expect("opens");
        splits.raise(SplitId(4), Watermark(9));
        assert_eq!(splits.joint(), Watermark(9));
    }

    #[test]
    fn splits_are_known_again_by_their_names() {
        let mut splits = opened(&["a", "b"]);
        splits.raise(SplitId(0), Watermark(50));
        splits.raise(SplitId(1), Watermark(30));
        splits.let_idle(NOW + 1, |_, name| name == "b");
        let mut again = Splits::default();
        again.restore(splits.states(), splits.joint());
        assert!(!again.open(SplitId(9), &"b".into(), NOW).expect("opens"), "idle as it was");
        assert!(again.open(SplitId(2), &"a".into(), NOW).expect("opens"));
        assert_eq!([9, 2].map(|id| again.running(SplitId(id))), [30, 50].map(Watermark));
        // No watermark moves before all of a snapshot are opened.
        let mut one_by_one = Splits::default();
        one_by_one.restore(opened_at(&[("a", 50), ("b", 30)]).states(), Watermark(30));
        for (number, name) in [(0, "a"), (1, "b")] {
            one_by_one.open(SplitId(number), &name.into(), NOW).expect("opens");
            one_by_one.begin(SplitId(number), NOW).expect("it is open");
        }
        assert_eq!([0, 1].map(|id| one_by_one.running(SplitId(id))), [50, 30].map(Watermark));
        // A snapshot without splits: its watermark holds for all.
        let mut older = Splits::default();
        older.restore(Vec::new(), Watermark(20));
        older.open(SplitId(0), &"a".into(), NOW).expect("opens");
        assert_eq!(older.running(SplitId(0)), Watermark(20));
    }

    #[test]
    fn splits_beyond_the_limit_are_paused_and_continue() {
        let mut splits = opened(&["a", "b"]);
        splits.raise(SplitId(0), Watermark(50));
        splits.raise(SplitId(1), Watermark(30));
        assert_eq!(splits.keep_in_step(Watermark(40)), [(SplitId(0), true)]);
        assert_eq!(splits.keep_in_step(Watermark(45)), []);
        assert_eq!(splits.keep_in_step(Watermark(50)), [(SplitId(0), false)]);
    }
}
