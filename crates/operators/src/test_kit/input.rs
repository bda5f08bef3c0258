//! Scripts: cutting them into bundles, and making random ones.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_select::concat::concat_batches;
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Bundle, RowKind, Stamps, Watermark, WatermarkBefore};

use super::Event;

/// How a script is cut.
pub(super) struct Cut {
    pub bundle_rows: usize,
    pub empty_bundles: bool,
    pub early: bool,
}

/// What the driver does next.
pub(super) enum Action {
    Rows(Bundle),
    Watermark(Watermark),
}

/// The calls that a script becomes, ending with the end of time.
pub(super) fn actions(script: &[Event], cut: &Cut, random: &mut SplitMix64) -> Vec<Action> {
    let mut numbering = Numbering::default();
    let mut actions = Vec::new();
    let mut epoch = Vec::new();
    let end = Event::Watermark(Watermark::END);
    let ended = matches!(script.last(), Some(Event::Watermark(Watermark::END)));
    for event in script.iter().chain((!ended).then_some(&end)) {
        match event {
            Event::Rows { lane, batch, watermark_before } => {
                let arrived = Arrived::new(*lane, batch, None, watermark_before);
                add(&mut epoch, arrived);
            }
            Event::Changes { lane, batch, kinds, watermark_before } => {
                let arrived = Arrived::new(*lane, batch, Some(kinds), watermark_before);
                add(&mut epoch, arrived);
            }
            Event::Watermark(watermark) => {
                for arrived in epoch.drain(..) {
                    numbering.bundles(&arrived, cut, random, &mut actions);
                }
                numbering.next_epoch();
                actions.push(Action::Watermark(*watermark));
            }
        }
    }
    if cut.early {
        advance_rows(&mut actions, random);
    }
    actions
}

/// Rows of one lane.
struct Arrived {
    lane: u32,
    batch: RecordBatch,
    kinds: Option<Vec<RowKind>>,
    stamps: WatermarkBefore,
}

impl Arrived {
    fn new(
        lane: u32,
        batch: &RecordBatch,
        kinds: Option<&Vec<RowKind>>,
        stamps: &WatermarkBefore,
    ) -> Self {
        assert!(kinds.is_none_or(|kinds| kinds.len() == batch.num_rows()), "one kind per row");
        Arrived { lane, batch: batch.clone(), kinds: kinds.cloned(), stamps: stamps.clone() }
    }
}

/// Rows that follow others of their lane belong to the same stretch.
fn add(epoch: &mut Vec<Arrived>, arrived: Arrived) {
    let Some(last) = epoch.last_mut().filter(|last| {
        last.lane == arrived.lane && last.kinds.is_some() == arrived.kinds.is_some()
    }) else {
        return epoch.push(arrived);
    };
    let joined = join((&last.batch, &last.stamps), (&arrived.batch, &arrived.stamps));
    (last.batch, last.stamps) = joined;
    if let (Some(kinds), Some(more)) = (&mut last.kinds, arrived.kinds) {
        kinds.extend(more);
    }
}

type Stamped<'a> = (&'a RecordBatch, &'a WatermarkBefore);

fn join(first: Stamped<'_>, second: Stamped<'_>) -> (RecordBatch, WatermarkBefore) {
    let schema = first.0.schema();
    let batch = concat_batches(&schema, [first.0, second.0]).expect("one schema per lane");
    if let (WatermarkBefore::All(a), WatermarkBefore::All(b)) = (first.1, second.1)
        && a == b
    {
        return (batch, first.1.clone());
    }
    let each = |(batch, stamps): Stamped<'_>| {
        (0..batch.num_rows()).map(|row| stamps.at(row).0).collect::<Vec<_>>()
    };
    let mut stamps = each(first);
    stamps.extend(each(second));
    (batch, WatermarkBefore::Rows(stamps.into()))
}

/// Counts what the runtime counts.
#[derive(Default)]
struct Numbering {
    epoch: u64,
    ordinals: Vec<u64>,
    serials: Vec<u64>,
}

impl Numbering {
    fn next_epoch(&mut self) {
        self.epoch += 1;
        self.ordinals.iter_mut().for_each(|ordinal| *ordinal = 0);
    }

    fn stamps(&mut self, lane: u32, watermark_before: WatermarkBefore) -> Stamps {
        let at = lane as usize;
        self.ordinals.resize(self.ordinals.len().max(at + 1), 0);
        self.serials.resize(self.serials.len().max(at + 1), 0);
        let stamps = Stamps {
            lane,
            epoch: self.epoch,
            ordinal: self.ordinals[at],
            serial: self.serials[at],
            watermark_before,
            ..Stamps::first()
        };
        self.ordinals[at] += 1;
        self.serials[at] += 1;
        stamps
    }

    fn bundles(
        &mut self,
        arrived: &Arrived,
        cut: &Cut,
        random: &mut SplitMix64,
        actions: &mut Vec<Action>,
    ) {
        let Arrived { lane, batch, kinds, stamps } = arrived;
        let lane = *lane;
        let pieces = split_rows(batch, stamps, cut.bundle_rows);
        let mut kinds_left = kinds.as_deref();
        let Some((_, first)) = pieces.first() else { return };
        let nothing = batch.slice(0, 0);
        let start = first.clone();
        for (rows, stamps) in pieces {
            if cut.empty_bundles && random.below(2) == 0 {
                let empty = match &start {
                    WatermarkBefore::Rows(_) => WatermarkBefore::Rows(Vec::new().into()),
                    all => all.clone(),
                };
                let stamps = self.stamps(lane, empty);
                actions.push(Action::Rows(Bundle::new(nothing.clone(), stamps)));
            }
            let stamps = self.stamps(lane, stamps);
            let mut bundle = Bundle::new(rows, stamps);
            if let Some(left) = &mut kinds_left {
                let (these, rest) = left.split_at(bundle.num_rows());
                bundle.kinds = Some(these.into());
                *left = rest;
            }
            actions.push(Action::Rows(bundle));
        }
    }
}

/// Cuts rows into pieces of at most this many. A batch without rows stays one piece.
pub fn split_rows(
    batch: &RecordBatch,
    watermark_before: &WatermarkBefore,
    rows_max: usize,
) -> Vec<(RecordBatch, WatermarkBefore)> {
    let count = batch.num_rows();
    let rows_max = rows_max.clamp(1, count.max(1));
    let starts = (0..count.max(1)).step_by(rows_max);
    starts
        .map(|start| {
            let length = rows_max.min(count - start);
            let stamps = match watermark_before {
                WatermarkBefore::All(watermark) => WatermarkBefore::All(*watermark),
                WatermarkBefore::Rows(rows) => WatermarkBefore::Rows(rows.slice(start, length)),
            };
            (batch.slice(start, length), stamps)
        })
        .collect()
}

/// Moves bundles before watermarks that they follow, and swaps neighbours within an epoch.
fn advance_rows(actions: &mut [Action], random: &mut SplitMix64) {
    for _ in 0..3 {
        for at in 1..actions.len() {
            let later_is_rows = matches!(actions[at], Action::Rows(_));
            if later_is_rows && random.below(2) == 0 {
                actions.swap(at - 1, at);
            }
        }
    }
}

/// Puts the items in random order.
pub(super) fn shuffle<T>(items: &mut [T], random: &mut SplitMix64) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// A script of one lane from rows and what each establishes: the running watermark stamps the
/// rows, and a watermark ends the epoch after every `epoch_rows` rows if it has advanced.
pub fn stamped(batch: &RecordBatch, watermarks: &[Option<i64>], epoch_rows: usize) -> Vec<Event> {
    assert_eq!(batch.num_rows(), watermarks.len(), "one watermark per row");
    let mut script = Vec::new();
    let (mut running, mut last) = (i64::MIN, i64::MIN);
    for start in (0..batch.num_rows()).step_by(epoch_rows.max(1)) {
        let length = epoch_rows.max(1).min(batch.num_rows() - start);
        let mut stamps = Vec::with_capacity(length);
        for watermark in &watermarks[start..start + length] {
            stamps.push(running);
            running = running.max(watermark.unwrap_or(i64::MIN));
        }
        script.push(Event::Rows {
            lane: 0,
            batch: batch.slice(start, length),
            watermark_before: WatermarkBefore::Rows(stamps.into()),
        });
        if running > last {
            last = running;
            script.push(Event::Watermark(Watermark(running)));
        }
    }
    script
}

/// Batches of random sizes, the columns of which are made by `columns` from the generator and a
/// number of rows.
pub fn random_batches(
    count: usize,
    rows_max: u64,
    random: &mut SplitMix64,
    columns: &dyn Fn(&mut SplitMix64, usize) -> Vec<(&'static str, ArrayRef)>,
) -> Vec<RecordBatch> {
    (0..count)
        .map(|_| {
            let rows = random.below(rows_max + 1) as usize;
            let (names, arrays): (Vec<_>, Vec<_>) = columns(random, rows).into_iter().unzip();
            let fields: Vec<_> = names
                .into_iter()
                .zip(&arrays)
                .map(|(name, array): (&str, &ArrayRef)| {
                    arrow_schema::Field::new(name, array.data_type().clone(), true)
                })
                .collect();
            RecordBatch::try_new(Arc::new(arrow_schema::Schema::new(fields)), arrays)
                .expect("columns of equal length")
        })
        .collect()
}
