//! One job of a case: it runs along the lines of the inputs, crashes, and resumes from its
//! snapshot.
//!
//! **Invariant:** a snapshot is taken while nothing is left to be done. So all that was written,
//! and all rows that were late, lie in front of it, and a crash drops exactly what came behind.
//!
//! A crash comes at rest with one worker, and in the middle of what the lines before it cause with
//! several. Between a crash and the restore the clock moves and lines come in, which the job finds
//! when it resumes.

use std::sync::Arc;
use std::time::Duration;

use thalweg_core::shim::{Clock, ManualClock, SharedClock, SplitMix64};
use thalweg_core::snapshot::RestoredCut;
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{Column, DataType, Error, Extent, Result, RowKind, TableSchema, Watermark};
use thalweg_plan::physical::PhysicalPlan;
use thalweg_runtime::simulate::{Simulation, restored};
use thalweg_runtime::{RunOptions, SnapshotMode};

use super::cells;
use super::compare::Change;
use super::places::{JobAction, Moment, Places};
use crate::session::Session;

/// Steps that a job makes at most between its last rows and a crash.
const STEPS_BEFORE_CRASH_MAX: u64 = 8;

/// A row that came late, by its columns.
#[derive(Clone)]
pub(super) struct LateRow {
    pub schema: TableSchema,
    pub change: Change,
}

/// What a case is run with.
pub(super) struct JobOfCase<'a> {
    pub session: &'a Session,
    pub places: &'a Places,
    pub clock: &'a Arc<ManualClock>,
    pub zone: chrono_tz::Tz,
    pub options: RunOptions,
    /// 0 takes rows one by one, others take those of a moment together.
    pub seed: u64,
}

/// Where a job resumes.
struct Kept {
    cut: RestoredCut,
    /// How much was written, and the rows that were late.
    written: usize,
    late: Vec<LateRow>,
}

/// A job on its way.
struct Run<'a> {
    of: &'a JobOfCase<'a>,
    /// `None` between a crash and the restore behind it.
    simulation: Option<Simulation>,
    kept: Option<Kept>,
    /// Rows that were late in runs before this one.
    late: Vec<LateRow>,
}

impl JobOfCase<'_> {
    /// Runs a job until nothing more comes in. The rows that were late.
    pub(super) fn run(
        &self,
        plan: PhysicalPlan,
        timeline: Vec<Moment>,
        plan_again: impl Fn() -> Result<PhysicalPlan>,
    ) -> Result<Vec<LateRow>> {
        let moments = grouped(timeline, self.seed > 0);
        let has_actions = moments.iter().any(|moment| moment.action.is_some());
        let of = &JobOfCase {
            options: RunOptions {
                clock: Arc::clone(self.clock) as SharedClock,
                bundle_linger: Duration::ZERO,
                pool: None,
                snapshots: has_actions.then_some(SnapshotMode::ExactlyOnce),
                ..self.options.clone()
            },
            ..*self
        };
        let mut run = Run { of, simulation: None, kept: None, late: Vec::new() };
        run.begin(plan)?;
        run.settle();
        for (place, moment) in moments.iter().enumerate() {
            run.advance(moment.at_ms);
            let action = moment.action.map(|(action, _)| action);
            match action {
                Some(JobAction::Snapshot) => run.keep()?,
                Some(JobAction::Crash) => run.crash()?,
                Some(JobAction::Restore) => {
                    self.places.forget_opened();
                    run.begin(plan_again()?)?;
                    moments[..place].iter().try_for_each(|before| self.places.give(before))?;
                }
                None => {}
            }
            self.places.give(moment)?;
            let next = moments.get(place + 1).and_then(|next| next.action);
            match next {
                Some((JobAction::Crash, line)) if self.seed > 0 => run.step_a_little(line),
                _ => run.settle(),
            }
        }
        let late = run.finish()?;
        // The next job begins when this one did.
        self.clock.begin_again();
        Ok(late)
    }
}

impl Run<'_> {
    /// Starts the job, from its snapshot if it has one.
    fn begin(&mut self, plan: PhysicalPlan) -> Result<()> {
        let cut = self.kept.as_ref().map(|kept| &kept.cut);
        let JobOfCase { options, seed, places, .. } = self.of;
        let simulation = Simulation::begin(plan.graph, options.clone(), 1, *seed, cut)?;
        self.simulation = Some(simulation);
        places.begin();
        Ok(())
    }

    fn settle(&mut self) {
        self.simulation.iter_mut().for_each(Simulation::settle);
    }

    /// Begins what there is to do, and does not end it.
    fn step_a_little(&mut self, seed: usize) {
        let Some(simulation) = &mut self.simulation else { return };
        for _ in 0..SplitMix64::new(seed as u64).below(STEPS_BEFORE_CRASH_MAX) {
            if !simulation.is_over() {
                simulation.step();
            }
        }
    }

    /// Takes a snapshot.
    fn keep(&mut self) -> Result<()> {
        let simulation = self.running()?;
        let cut = simulation.take_cut(Extent::Full).and_then(restored)?;
        let (written, late) = (self.of.places.written(), self.late_rows()?);
        self.kept = Some(Kept { cut, written, late });
        Ok(())
    }

    /// Kills the job: what lies behind its snapshot was never there.
    fn crash(&mut self) -> Result<()> {
        self.running()?;
        self.simulation = None;
        let kept = self.kept.as_ref();
        self.of.places.roll_back(kept.map_or(0, |kept| kept.written));
        self.late = kept.map_or_else(Vec::new, |kept| kept.late.clone());
        Ok(())
    }

    /// The job, unless it has failed.
    fn running(&mut self) -> Result<&mut Simulation> {
        let has_failed = self.simulation.as_ref().is_some_and(Simulation::is_over);
        if has_failed && let Some(failed) = self.simulation.take() {
            failed.end()?;
        }
        self.simulation
            .as_mut()
            .ok_or_else(|| Error::internal("a job with snapshots ends by itself"))
    }

    /// Moves the clock, with a stop wherever something is due.
    fn advance(&mut self, to_ms: i64) {
        let clock = self.of.clock;
        loop {
            let left_ms = to_ms.saturating_sub(clock.wall_ms());
            let Ok(left_ms) = u64::try_from(left_ms) else { return };
            let now_ns = clock.now_ns();
            let target_ns = now_ns.saturating_add(left_ms.saturating_mul(1_000_000));
            let due_ns = self.simulation.as_ref().and_then(Simulation::due_ns);
            let due_ns = due_ns.map_or(target_ns, |due_ns| due_ns.min(target_ns));
            clock.advance(Duration::from_nanos(due_ns.saturating_sub(now_ns)));
            self.settle();
            let is_over = self.simulation.as_ref().is_some_and(Simulation::is_over);
            if due_ns >= target_ns || is_over {
                return;
            }
        }
    }

    /// Ends the job, or stops it where its inputs have no end.
    fn finish(self) -> Result<Vec<LateRow>> {
        let late = self.late_rows()?;
        let Some(mut simulation) = self.simulation else { return Ok(late) };
        if !simulation.is_over() {
            let control = simulation.control();
            match simulation.has_ended() && self.of.options.snapshots.is_some() {
                true => {
                    simulation.take_cut(Extent::Full)?;
                    control.complete()?;
                }
                false => {
                    control.cancel();
                    simulation.settle();
                }
            }
        }
        simulation.end()?;
        Ok(late)
    }

    /// The rows that were late, those of the runs before this one first.
    fn late_rows(&self) -> Result<Vec<LateRow>> {
        let mut late = self.late.clone();
        let Some(simulation) = &self.simulation else { return Ok(late) };
        let JobOfCase { session, zone, .. } = *self.of;
        let (control, layout) = (simulation.control(), simulation.control().layout());
        let column = |name: &str, data_type: DataType| Column::new(name, data_type.nullable());
        for at in control.late_rows() {
            let shown = session.shown_rows(at.late.batch.schema_ref(), None)?;
            let rows = cells::rows_of(&shown.shown(&at.late.batch)?, shown.columns(), zone);
            let own =
                [column("stage", DataType::STRING), column("watermark", DataType::Timestamp(3))];
            let columns = own.iter().chain(&shown.columns().columns).cloned().collect();
            let schema = TableSchema::new(columns);
            let stage = Some(layout.stages[at.stage].name.clone());
            for (row, values) in rows.into_iter().enumerate() {
                let before = at.late.watermark_before.at(row);
                let before =
                    (before > Watermark::MIN).then(|| format_timestamp_millis(before.0, 3));
                let cells = [stage.clone(), before].into_iter().chain(values).collect();
                let change = Change { kind: RowKind::Insert, at_ms: at.wall_ms, cells };
                late.push(LateRow { schema: schema.clone(), change });
            }
        }
        Ok(late)
    }
}

/// Neighbours that come together become one, if they are to.
fn grouped(timeline: Vec<Moment>, together: bool) -> Vec<Moment> {
    let mut moments: Vec<Moment> = Vec::new();
    for moment in timeline {
        match moments.last_mut() {
            Some(last)
                if together
                    && (last.at_ms, last.input, &last.split)
                        == (moment.at_ms, moment.input, &moment.split)
                    && last.is_row
                    && moment.is_row
                    && last.lines.end == moment.lines.start =>
            {
                last.lines.end = moment.lines.end;
            }
            _ => moments.push(moment),
        }
    }
    moments
}
