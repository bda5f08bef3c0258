//! What no row causes: rows that have waited for long enough are called for, quiet inputs are
//! declared idle, and partitions are called when the clock reaches what they wait for.
//!
//! **Invariant:** no input becomes idle while a cut is under way: the sources have said already
//! whether they are. What others have reached without an input is then never part of a snapshot in
//! which it is awake. An input may wake up meanwhile: nobody gets further by that. And the clock
//! may call: a call stands among the other items of a mailbox, in front of the cut or behind it.

use thalweg_core::Result;
use thalweg_ordering::sync::Ordering;

use crate::flow::Flow;
use crate::job::Job;
use crate::stage::{Item, SourceRun};

/// Calls those who wait for the clock, if there are any.
pub(crate) fn look_at_the_clock(job: &Job) {
    if job.settings.ticks {
        tick_cells(job);
    }
}

/// Does all of it.
pub(crate) fn look_around(job: &Job) -> Result<()> {
    call_for_gathered_rows(job);
    look_for_idle_inputs(job)?;
    if job.settings.ticks {
        tick_cells(job);
    }
    Ok(())
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

/// Declares unbounded inputs idle that have brought nothing for the timeout.
fn look_for_idle_inputs(job: &Job) -> Result<()> {
    let Some(timeout) = job.settings.idle_timeout else { return Ok(()) };
    let Some(_no_cut) = job.cuts.between() else { return Ok(()) };
    let now_ns = job.now_ns();
    let is_quiet = |source: &SourceRun| {
        let since_ns = source.last_rows_ns.load(Ordering::Relaxed);
        now_ns.saturating_sub(since_ns) > timeout.as_nanos() as u64
    };
    for (place, source) in job.stages.sources() {
        if source.bounded || !is_quiet(source) {
            continue;
        }
        // Not while a worker is asking it: rows that come now must be stamped before or after.
        let Ok(unpolled) = source.state.try_lock() else { continue };
        // One that is ready has rows and only waits for room.
        let is_waiting = source.ready.load(Ordering::SeqCst)
            || !unpolled.batcher.is_empty()
            || source.finished.load(Ordering::SeqCst)
            || !is_quiet(source);
        if !is_waiting && !source.idle.swap(true, Ordering::SeqCst) {
            Flow::at(job, place).become_idle()?;
        }
    }
    Ok(())
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
