//! What no row causes: rows that have waited for long enough are called for, quiet inputs are
//! declared idle, splits that belong together are kept in step, and partitions are called when the
//! clock reaches what they wait for.
//!
//! **Invariant:** no input becomes idle while a cut is under way: the sources have said already
//! whether they are. What others have reached without an input is then never part of a snapshot in
//! which it is awake. An input may wake up meanwhile: nobody gets further by that. And the clock
//! may call: a call stands among the other items of a mailbox, in front of the cut or behind it.

use thalweg_core::{Result, Watermark};
use thalweg_ordering::sync::Ordering;

use crate::flow::Flow;
use crate::job::Job;
use crate::stage::{Item, SourceRun, SourceState};

/// A split that may not fall idle although it is quiet is looked at again after this time.
const LOOK_AGAIN_NS: u64 = 1_000_000;

/// Calls those who wait for the clock, if there are any.
pub(crate) fn look_at_the_clock(job: &Job) {
    if job.settings.ticks {
        tick_cells(job);
    }
}

/// Does all of it.
pub(crate) fn look_around(job: &Job) -> Result<()> {
    call_for_gathered_rows(job);
    keep_in_step(job);
    look_for_idle_inputs(job)?;
    if job.settings.ticks {
        tick_cells(job);
    }
    Ok(())
}

/// When [`look_around`] will have something to do next, as far as that is known.
#[cfg(any(test, feature = "simulator"))]
pub(crate) fn due_ns(job: &Job) -> Option<u64> {
    let now_ns = job.now_ns();
    let sources = job.stages.sources().filter(|(_, source)| !source.has_finished());
    let of_sources = sources.flat_map(|(_, source)| {
        let gathers_ns = source.gathers_until_ns.load(Ordering::Relaxed);
        let quiet_ns = source.idle_timeout.filter(|_| !source.bounded);
        let quiet_ns = quiet_ns.map(|_| source.quiet_at_ns.load(Ordering::Relaxed));
        let aligned_ns = source.alignment.as_ref().map(|alignment| {
            let interval_ns = alignment.update_interval.as_nanos() as u64;
            source.aligned_ns.load(Ordering::Relaxed).saturating_add(interval_ns)
        });
        [Some(gathers_ns), quiet_ns, aligned_ns]
    });
    let wall_ms = job.settings.clock.wall_ms();
    let cells = job.stages.operators().flat_map(|(_, operator)| &operator.cells);
    let ticks = cells.filter(|_| job.settings.ticks).map(|cell| {
        let wait_ms = cell.ticks_at.load(Ordering::Relaxed).saturating_sub(wall_ms);
        now_ns.saturating_add(u64::try_from(wait_ms).unwrap_or(0).saturating_mul(1_000_000))
    });
    // What is due now was done, or waits for something else than the clock.
    of_sources.flatten().chain(ticks).filter(|&at_ns| at_ns > now_ns && at_ns < u64::MAX).min()
}

/// Calls for rows that have waited for the end of their epoch for long enough.
fn call_for_gathered_rows(job: &Job) {
    let now_ns = job.now_ns();
    for (_, source) in job.stages.sources() {
        let until_ns = source.gathers_until_ns.load(Ordering::Relaxed);
        if (1..=now_ns).contains(&until_ns) && !source.ready.swap(true, Ordering::SeqCst) {
            job.news.notify();
        }
    }
}

/// Works out how far the splits of each group may go: as far as the last source that has a time and
/// is not idle, and the drift on top. A source that had to wait is called.
fn keep_in_step(job: &Job) {
    let now_ns = job.now_ns();
    for (_, source) in job.stages.sources() {
        let Some(alignment) = &source.alignment else { continue };
        let interval_ns = alignment.update_interval.as_nanos() as u64;
        if now_ns.saturating_sub(source.aligned_ns.load(Ordering::Relaxed)) < interval_ns {
            continue;
        }
        source.aligned_ns.store(now_ns, Ordering::Relaxed);
        let is_of_group = |(_, other): &(usize, &SourceRun)| {
            other.alignment.as_ref().is_some_and(|of| of.group == alignment.group)
                && !other.has_finished()
                && !other.idle.load(Ordering::SeqCst)
        };
        let members = job.stages.sources().filter(is_of_group);
        let times = members.map(|(place, _)| job.stages[place].metrics.watermark());
        let least = times.filter(|&time| time > Watermark::MIN).min();
        let limit_ms = least.map_or(i64::MAX, |time| time.0.saturating_add(alignment.max_drift_ms));
        if source.limit_ms.swap(limit_ms, Ordering::SeqCst) != limit_ms {
            source.ready.store(true, Ordering::SeqCst);
            job.news.notify();
        }
    }
}

/// Declares splits of unbounded inputs idle that have brought nothing for the timeout, and inputs
/// of which no split is left that counts.
pub(crate) fn look_for_idle_inputs(job: &Job) -> Result<()> {
    let now_ns = job.now_ns();
    for (place, source) in job.stages.sources().filter(|(_, source)| !source.bounded) {
        let Some(timeout) = source.idle_timeout else { continue };
        if now_ns < source.quiet_at_ns.load(Ordering::Relaxed) {
            continue;
        }
        let Some(_no_cut) = job.cuts.between() else { return Ok(()) };
        // Not while a worker is asking it: rows that come now must be stamped before or after.
        let Ok(mut state) = source.state.try_lock() else { continue };
        if state.has_given() || source.has_finished() {
            continue;
        }
        let timeout_ns = timeout.as_nanos() as u64;
        let joint_before = state.splits.joint();
        let quietest_ns = quietest(source, &mut state, now_ns.saturating_sub(timeout_ns));
        let quiet_at_ns = quietest_ns.map_or(u64::MAX, |since_ns| {
            since_ns.saturating_add(timeout_ns).max(now_ns.saturating_add(LOOK_AGAIN_NS))
        });
        source.quiet_at_ns.store(quiet_at_ns, Ordering::Relaxed);
        let flow = Flow::at(job, place);
        if state.splits.joint() > joint_before {
            state.show_watermark(&job.stages[place].metrics, || now_ns);
            flow.ingest_heartbeat(&mut state, i64::MIN)?;
        }
        if state.splits.are_idle() && !source.idle.swap(true, Ordering::SeqCst) {
            flow.become_idle()?;
        }
    }
    Ok(())
}

/// Declares splits idle that were quiet since this moment. Says since when the quietest of those
/// left was active, if any is left.
fn quietest(source: &SourceRun, state: &mut SourceState, quiet_before_ns: u64) -> Option<u64> {
    let asked_from_ns = source.asked_from_ns.load(Ordering::Relaxed);
    if asked_from_ns >= quiet_before_ns {
        return Some(asked_from_ns);
    }
    // One that is ready has rows and only waits for room; one that is held has some, too.
    let is_ready = source.ready.load(Ordering::SeqCst) || source.is_held.load(Ordering::SeqCst);
    let read = &state.source;
    state.splits.let_idle(quiet_before_ns, |id, name| match name {
        "" => !is_ready,
        _ => read.split_status(id).is_caught_up,
    })
}

/// Calls the partitions that wait for a time which the clock has reached.
fn tick_cells(job: &Job) {
    let wall_ms = job.settings.clock.wall_ms();
    for (place, operator) in job.stages.operators() {
        for (number, cell) in operator.cells.iter().enumerate() {
            let is_due = cell.ticks_at.load(Ordering::Relaxed) <= wall_ms;
            // One at a time: the mailbox's owner takes the mark back when the call is done.
            if is_due && !cell.is_ticking.swap(true, Ordering::AcqRel) {
                job.at(place).post(number, Item::Tick);
            }
        }
    }
}
