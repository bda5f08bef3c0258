//! A cut on its way through a job: who has reached it, and what was found there.
//!
//! A [`CutUnderWay`] is begun by whoever takes a snapshot and is passed to nobody: stages that the
//! cut reaches find it at the job ([`Cuts::current`]) and report to it. Each source reports when it
//! has placed the cut, each other stage that has something to report when the cut has come by all
//! of its lanes; the last one to report makes it complete. `snapshots` has the whole protocol.
//!
//! **Invariants:**
//! - one cut at a time: the next one begins when every stage has reported to this one, also where
//!   nobody waits for it any more;
//! - each source places a cut once, between two bundles;
//! - no input becomes idle while a cut is under way: whoever declares that holds the lock without
//!   which no cut begins ([`Cuts::between`]).

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;

use thalweg_core::snapshot::{
    Captured, Extent, InputState, SinkState, SourceState, TableChanges, TableExtent,
};
use thalweg_core::{Error, Partition, Result};
use thalweg_ordering::sync::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering,
};

/// Says how a table of the stage with this identifier is captured.
pub type ChooseExtent = dyn FnMut(&str, TableChanges) -> TableExtent + Send;

/// The cut of a job, if one is under way, and whether its sources are paused.
#[derive(Default)]
pub(crate) struct Cuts {
    is_paused: AtomicBool,
    /// Sources that have not placed the cut. A hint: each of them knows for itself.
    unplaced: AtomicUsize,
    /// How many cuts have begun.
    begun: AtomicU64,
    /// True while a cut is under way; changed under the lock.
    is_under_way: AtomicBool,
    current: Mutex<Option<Arc<CutUnderWay>>>,
}

impl Cuts {
    /// Sources are not asked from here on, or are again. Before a cut begins: nothing is read
    /// behind it then.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::SeqCst);
    }

    /// True while sources are not asked.
    pub(crate) fn is_paused(&self) -> bool {
        // SeqCst: whoever asks a source behind a cut sees that it was paused before.
        self.is_paused.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<CutUnderWay>>> {
        self.current.lock().expect("no panic under this lock")
    }

    /// The cut that is under way.
    pub(crate) fn current(&self) -> Arc<CutUnderWay> {
        self.lock().clone().expect("what has reached a stage is under way")
    }

    /// The cut that is under way, if there is one.
    pub(crate) fn under_way(&self) -> Option<Arc<CutUnderWay>> {
        self.lock().clone()
    }

    /// True while a cut is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_under_way.load(Ordering::SeqCst)
    }

    /// What stands behind more cuts than this is behind the one that is under way.
    pub(crate) fn cuts_before(&self) -> u64 {
        if self.is_under_way() { self.begun.load(Ordering::SeqCst) - 1 } else { u64::MAX }
    }

    /// Keeps cuts from beginning for as long as what is returned lives. `None` while one is under
    /// way.
    pub(crate) fn between(&self) -> Option<impl Sized + '_> {
        self.current.try_lock().ok().filter(|current| current.is_none())
    }

    /// A cut begins, unless the one before is still under way. Then sources are to be asked for it.
    pub(crate) fn begin(&self, cut: &Arc<CutUnderWay>, sources: usize) -> bool {
        let mut current = self.lock();
        if current.is_some() {
            return false;
        }
        *current = Some(Arc::clone(cut));
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.is_under_way.store(true, Ordering::SeqCst);
        self.unplaced.store(sources, Ordering::SeqCst);
        true
    }

    /// True while some source has to place the cut.
    #[inline]
    pub(crate) fn is_unplaced(&self) -> bool {
        self.unplaced.load(Ordering::SeqCst) > 0
    }

    /// A source has placed the cut.
    pub(crate) fn note_placed(&self) {
        self.unplaced.fetch_sub(1, Ordering::SeqCst);
    }

    /// A stage has reported. True if it was the last one: the cut is complete, and another may
    /// begin.
    pub(crate) fn report(&self, cut: &CutUnderWay) -> bool {
        // Under the lock: whoever sees that it is complete can begin the next one.
        let mut current = self.lock();
        let is_last = cut.missing.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last {
            *current = None;
            self.is_under_way.store(false, Ordering::SeqCst);
        }
        is_last
    }
}

/// A cut on its way through a job.
pub(crate) struct CutUnderWay {
    extent: Extent,
    choose: Mutex<Box<ChooseExtent>>,
    stages: Vec<Mutex<StageAtCut>>,
    /// Stages that have not reported.
    missing: AtomicUsize,
    /// Elements ingested before the cut (ordered contracts).
    serial: AtomicU64,
    began_ns: u64,
    /// When the first source placed it.
    placed_ns: AtomicU64,
    /// The longest that a source was held for it.
    hold_ns: AtomicU64,
}

/// What a stage is at a cut.
#[derive(Default)]
pub(crate) struct StageAtCut {
    pub(crate) ended: bool,
    pub(crate) inputs: Option<InputState>,
    pub(crate) places: u64,
    pub(crate) source: Option<SourceState>,
    pub(crate) sink: Option<SinkState>,
    /// Where a sink says what it has prepared.
    pub(crate) reply: Option<Receiver<Option<String>>>,
    /// By partition.
    pub(crate) state: BTreeMap<usize, Captured>,
    pub(crate) waiting: Option<Captured>,
    /// Why nothing can be made of the cut.
    pub(crate) problem: Option<Error>,
    /// From the moment at which a source placed the cut.
    pub(crate) after_ns: Option<u64>,
    tables: Tables,
}

/// The tables of a stage.
#[derive(Default)]
struct Tables {
    changes: BTreeMap<&'static str, TableChanges>,
    /// Those that are captured in full.
    full: Vec<&'static str>,
    /// Those whose changes are not tracked behind the capture.
    untracked: Vec<&'static str>,
}

impl CutUnderWay {
    /// A cut of a job with this number of stages, of which `reporting` have something to report.
    pub(crate) fn new(
        (stages, reporting): (usize, usize),
        choose: Box<ChooseExtent>,
        extent: Extent,
        began_ns: u64,
    ) -> Self {
        CutUnderWay {
            extent,
            choose: Mutex::new(choose),
            stages: (0..stages).map(|_| Mutex::default()).collect(),
            missing: AtomicUsize::new(reporting),
            serial: AtomicU64::new(0),
            began_ns,
            placed_ns: AtomicU64::new(u64::MAX),
            hold_ns: AtomicU64::new(0),
        }
    }

    /// What is known of a stage.
    pub(crate) fn stage(&self, stage: usize) -> MutexGuard<'_, StageAtCut> {
        self.stages[stage].lock().expect("no panic under this lock")
    }

    /// True once every stage has reported.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing.load(Ordering::SeqCst) == 0
    }

    /// When it was begun.
    pub(crate) fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// The longest that a source was held.
    pub(crate) fn hold_ns(&self) -> u64 {
        self.hold_ns.load(Ordering::Relaxed)
    }

    /// A source places it, and stages behind it may reach it at once.
    pub(crate) fn note_placed(&self, now_ns: u64) {
        // Relaxed: only measured.
        self.placed_ns.fetch_min(now_ns, Ordering::Relaxed);
    }

    /// A source was held from one moment to another to place it.
    pub(crate) fn note_hold(&self, from_ns: u64, to_ns: u64) {
        // Relaxed: read when the cut is complete.
        self.hold_ns.fetch_max(to_ns.saturating_sub(from_ns), Ordering::Relaxed);
    }

    /// A stage has reached it by now.
    pub(crate) fn note_reached(&self, stage: usize, now_ns: u64) {
        let placed_ns = self.placed_ns.load(Ordering::Relaxed);
        self.stage(stage).after_ns = Some(now_ns.saturating_sub(placed_ns));
    }

    /// The number of elements that were ingested before it.
    pub(crate) fn set_serial(&self, serial: u64) {
        self.serial.store(serial, Ordering::SeqCst);
    }

    /// Elements ingested before it.
    pub(crate) fn serial(&self) -> u64 {
        self.serial.load(Ordering::SeqCst)
    }

    /// A partition says how its tables have changed.
    pub(crate) fn note_changes(&self, stage: usize, changes: Vec<TableChanges>) {
        let mut at_cut = self.stage(stage);
        for of_table in changes {
            let sum = at_cut.tables.changes.entry(of_table.name);
            sum.and_modify(|sum| *sum = sum.with(of_table)).or_insert(of_table);
        }
    }

    /// All partitions of a stage have said so: how each table is captured.
    pub(crate) fn choose_extents(&self, stage: usize, id: &str) {
        let mut at_cut = self.stage(stage);
        let Tables { changes, full, untracked } = &mut at_cut.tables;
        let mut choose = self.choose.lock().expect("no panic under this lock");
        for (&table, &changes) in changes.iter() {
            let TableExtent { extent, tracks } = choose(id, changes);
            full.extend((extent == Extent::Full).then_some(table));
            untracked.extend((!tracks).then_some(table));
        }
    }

    /// Captures what a partition keeps.
    pub(crate) fn capture(&self, stage: usize, cell: usize, partition: &mut dyn Partition) {
        let (full, untracked) = {
            let tables = &self.stage(stage).tables;
            (tables.full.clone(), tables.untracked.clone())
        };
        // Captures of such a table are full the next time, and nothing is noted for them until
        // then.
        full.iter().for_each(|table| partition.stop_tracking(table));
        let captured = partition.capture(self.extent);
        untracked.iter().for_each(|table| partition.stop_tracking(table));
        let mut at_cut = self.stage(stage);
        match captured {
            Ok(captured) => drop(at_cut.state.insert(cell, captured)),
            Err(error) => at_cut.note_problem(error),
        }
    }

    /// What a stage is, for whoever takes the cut.
    ///
    /// # Errors
    /// If the stage had a problem.
    pub(crate) fn take(&self, stage: usize) -> Result<StageAtCut> {
        let mut at_cut = std::mem::take(&mut *self.stage(stage));
        at_cut.problem.take().map_or(Ok(at_cut), Err)
    }
}

impl StageAtCut {
    /// Nothing can be made of the cut; the first reason counts.
    pub(crate) fn note_problem(&mut self, error: Error) {
        self.problem.get_or_insert(error);
    }
}
