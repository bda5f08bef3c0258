//! From a sink to what holds it back.
//!
//! The *level* of a stage is the watermark that it would pass on if all rows that are read were
//! done: of a source that of its splits, of another stage the least level of its inputs, less what
//! it holds back by design. Watermarks of stages lag behind levels by the rows on the way, and
//! where epochs end at window ends by up to a window; so levels and not watermarks are compared.

use serde::{Deserialize, Serialize};

use crate::reading::{JobReading, SourceReading, StageKind, StageReading};

/// The level of what has ended: it holds nothing back.
const ENDED: i64 = i64::MAX;
/// The level of what has promised nothing.
const UNKNOWN: i64 = i64::MIN;
/// From this share on a stage is busy all the time.
pub(super) const BUSY: f64 = 0.8;
/// A sink with a call that takes longer than this is blocked by it.
const LONG_CALL_MS: i64 = 1_000;
/// A lookup without an answer for longer than this is blocked.
const LONG_LOOKUP_MS: i64 = 1_000;
/// A stage that waits for a cut for longer than this is blocked.
const LONG_CUT_MS: i64 = 1_000;

/// What holds results back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// The place of the stage.
    pub stage: usize,
    /// What the stage is called.
    pub name: String,
    /// What it is.
    pub kind: StageKind,
    /// The place of the split among those of the source, and its name; `None` where it is the stage
    /// that does not keep up.
    pub split: Option<(usize, String)>,
}

impl Holder {
    /// `meters[meters-7]`, `window o`
    pub fn label(&self) -> String {
        match &self.split {
            Some((_, split)) if !split.is_empty() => format!("{}[{split}]", self.name),
            _ => self.name.clone(),
        }
    }
}

/// The way from a sink to what holds it back.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) holder: Holder,
    pub(super) path: Vec<usize>,
    /// The level of the sink.
    pub(super) watermark: Option<i64>,
    /// When that moved last.
    pub(super) since_ms: Option<i64>,
}

/// The levels of all stages.
pub(super) struct Levels(Vec<i64>);

/// A split that is left out of account: the place of its source, and its own.
pub(super) type LeftOut = Option<(usize, usize)>;

impl Levels {
    /// As they are.
    pub(super) fn of(reading: &JobReading) -> Levels {
        Levels::without(reading, None)
    }

    /// As they would be without a split.
    pub(super) fn without(reading: &JobReading, left_out: LeftOut) -> Levels {
        let mut levels = Levels(Vec::with_capacity(reading.stages.len()));
        for (place, stage) in reading.stages.iter().enumerate() {
            let level = match &stage.source {
                Some(source) => {
                    let left_out = left_out.filter(|(of, _)| *of == place).map(|(_, split)| split);
                    source_level(stage, source, left_out)
                }
                None => levels.passed_on(reading, stage),
            };
            levels.0.push(level);
        }
        levels
    }

    /// The least of the inputs that count, less what the stage holds back.
    fn passed_on(&self, reading: &JobReading, stage: &StageReading) -> i64 {
        if stage.has_ended {
            return ENDED;
        }
        let inputs = || stage.inputs.iter().copied();
        let least =
            inputs().filter(|&input| !is_idle(reading, input)).map(|input| self.0[input]).min();
        let least = least.or_else(|| inputs().map(|input| self.0[input]).max()).unwrap_or(UNKNOWN);
        match least {
            ENDED => ENDED,
            _ if stage.passes_at_end || stage.gives_by_clock => UNKNOWN,
            UNKNOWN => UNKNOWN,
            least => least.saturating_sub(stage.held_back_ms),
        }
    }

    /// What a stage passes on.
    pub(super) fn at(&self, stage: usize) -> i64 {
        self.0[stage]
    }

    /// True of what has ended.
    pub(super) fn has_ended(&self, stage: usize) -> bool {
        self.0[stage] == ENDED
    }

    /// The same as a time.
    pub(super) fn time(&self, stage: usize) -> Option<i64> {
        Some(self.0[stage]).filter(|&level| level != ENDED && level != UNKNOWN)
    }
}

/// True if nobody waits for a stage: it is fed by idle sources alone.
pub(super) fn is_idle(reading: &JobReading, stage: usize) -> bool {
    let stage = &reading.stages[stage];
    match &stage.source {
        Some(source) => source.is_idle && !source.has_ended,
        None => {
            !stage.inputs.is_empty() && stage.inputs.iter().all(|&input| is_idle(reading, input))
        }
    }
}

fn source_level(stage: &StageReading, source: &SourceReading, left_out: Option<usize>) -> i64 {
    if source.has_ended || stage.has_ended {
        return ENDED;
    }
    let splits = source.splits.iter().enumerate().filter(|(place, _)| Some(*place) != left_out);
    let known = |watermark: Option<i64>| watermark.unwrap_or(UNKNOWN);
    let counting = splits.clone().filter(|(_, split)| split.counts());
    let least = counting.map(|(_, split)| known(split.watermark)).min();
    // Where none counts time is where the source is; where none is left, nothing waits for it.
    match (least, left_out) {
        (Some(least), _) => least,
        (None, Some(_)) => ENDED,
        (None, None) => known(stage.watermark),
    }
}

/// The input that holds a stage back: one that it says it waits for, else the one with the least
/// level; of several the first.
pub(super) fn holding_input(
    reading: &JobReading,
    levels: &Levels,
    stage: &StageReading,
) -> Option<usize> {
    let waits_for = stage.waits_for.filter(|input| stage.inputs.contains(input));
    let waking = stage.inputs.iter().copied().filter(|&input| !is_idle(reading, input));
    let least = waking.min_by_key(|&input| levels.at(input));
    // Of idle inputs the one that is furthest counts.
    let furthest = || stage.inputs.iter().copied().max_by_key(|&input| levels.at(input));
    waits_for.or(least).or_else(furthest)
}

/// True if a stage has its own work outstanding, and does not get on with it.
pub(super) fn is_slow(reading: &JobReading, place: usize) -> bool {
    let stage = &reading.stages[place];
    let is_busy = stage.recent.is_some_and(|recent| recent.busy > BUSY) && stage.queued >= 1.0;
    let is_in_call = stage.kind == StageKind::Sink && stage.in_call_ms > LONG_CALL_MS;
    is_busy || is_in_call || waits_for_answer(reading, stage)
}

/// True if the outside has not answered for long.
pub(super) fn waits_for_answer(reading: &JobReading, stage: &StageReading) -> bool {
    stage.unanswered_since_ms.is_some_and(|since_ms| reading.at_ms - since_ms > LONG_LOOKUP_MS)
}

/// The cut has not come by a stage for long.
pub(super) fn is_cutting(reading: &JobReading) -> bool {
    reading.cut.as_ref().is_some_and(|cut| reading.at_ms - cut.since_ms > LONG_CUT_MS)
}

/// True if a source is blocked because what it gave before is not taken.
pub(super) fn is_not_asked(reading: &JobReading, stage: &StageReading) -> bool {
    let Some(source) = &stage.source else { return false };
    let quiet_ms = source.asked_at_ms.map_or(0, |asked_at_ms| reading.at_ms - asked_at_ms);
    let is_blocked = stage
        .recent
        .is_some_and(|recent| recent.blocked.output > 0.5 || recent.blocked.memory > 0.5);
    source.is_ready && !source.has_ended && (is_blocked || quiet_ms > LONG_CALL_MS)
}

/// Goes from a sink to what holds it back.
pub(super) fn find(reading: &JobReading, sink: usize) -> Found {
    let levels = Levels::of(reading);
    let mut path = vec![sink];
    let mut place = sink;
    loop {
        let stage = &reading.stages[place];
        if stage.source.is_some() {
            break;
        }
        if stage.passes_at_end && !stage.has_ended && place != sink {
            break;
        }
        if is_slow(reading, place) {
            break;
        }
        let Some(input) = holding_input(reading, &levels, stage) else { break };
        path.push(input);
        place = input;
    }
    // A source that is not asked waits for a stage downstream.
    if is_not_asked(reading, &reading.stages[place])
        && let Some(slow) = slowest_downstream(reading, place)
    {
        let at = path.iter().position(|&stage| stage == slow);
        path.truncate(at.map_or(path.len(), |at| at + 1));
        place = slow;
    }
    let split = reading.stages[place].source.as_ref().and_then(holding_split);
    let stage = &reading.stages[place];
    let holder = Holder { stage: place, name: stage.name.clone(), kind: stage.kind, split };
    let since_ms = stage.watermark_at_ms.or_else(|| split_since(stage, &holder));
    Found { holder, path, watermark: levels.time(sink), since_ms }
}

/// Where a watermark has never moved: since the last row came.
fn split_since(stage: &StageReading, holder: &Holder) -> Option<i64> {
    let (place, _) = holder.split.as_ref()?;
    stage.source.as_ref()?.splits.get(*place)?.last_row_at_ms
}

/// The split that a source waits for: of those that count the one with the least watermark; else
/// the first one.
pub(super) fn holding_split(source: &SourceReading) -> Option<(usize, String)> {
    let splits = source.splits.iter().enumerate();
    let counting = splits.filter(|(_, split)| split.counts());
    let least = counting.min_by_key(|(_, split)| split.watermark.unwrap_or(UNKNOWN));
    let (place, split) = least.or_else(|| source.splits.iter().enumerate().next())?;
    Some((place, split.name.clone()))
}

/// The stage that does not keep up with what a source gives: of those behind it one that has its
/// own work outstanding, the furthest downstream first: what is before it waits for it.
fn slowest_downstream(reading: &JobReading, source: usize) -> Option<usize> {
    let mut is_behind = vec![false; reading.stages.len()];
    is_behind[source] = true;
    for (place, stage) in reading.stages.iter().enumerate().skip(source + 1) {
        is_behind[place] = stage.inputs.iter().any(|&input| is_behind[input]);
    }
    (source + 1..reading.stages.len())
        .rev()
        .find(|&place| is_behind[place] && is_slow(reading, place))
}

/// The stages of a path that hold back by design, with how much.
pub(super) fn by_design(reading: &JobReading, found: &Found) -> Vec<(String, i64)> {
    let stages = found.path.iter().map(|&place| &reading.stages[place]);
    // A millisecond is the difference between "before" and "at".
    let held_back = stages.filter(|stage| stage.held_back_ms > 1);
    held_back.map(|stage| (stage.name.clone(), stage.held_back_ms)).collect()
}
