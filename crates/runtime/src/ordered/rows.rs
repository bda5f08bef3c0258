//! Puts rows into their order: pieces of a bundle, results of partitions, branches that meet.
//!
//! Pure functions over batches; whoever calls them owns everything they touch. All orders used here
//! are total and depend on the rows' places alone, never on which worker was faster:
//! - pieces of one bundle by the row that caused them ([`by_cause`]);
//! - results of partitions at a watermark by window end, then partition ([`by_window_end`]);
//! - branches that meet by the row of the source bundle, then edge ([`by_ordinal`]).

use std::sync::OnceLock;

use arrow_array::RecordBatch;
use arrow_buffer::ScalarBuffer;
use arrow_select::interleave::interleave_record_batch;
use thalweg_core::operator::Emitted;
use thalweg_core::{Bundle, Place, Result, RowKind, Stamps, Watermark, WatermarkBefore};
use thalweg_ordering::sync::Arc;

/// The ordinal of rows that were made at the watermark behind a bundle: after all of its rows.
pub const AT_WATERMARK: i64 = i64::MAX;

/// Parts of one window each leave as they are if they have at least this many rows on average: one
/// batch would be a copy of every row.
const PART_ROWS: usize = 1024;

/// Rows in order: a batch, kinds where there are any, and each row's place.
pub(crate) struct Ordered {
    pub batch: RecordBatch,
    pub kinds: Option<Arc<[RowKind]>>,
    /// One per row, ascending.
    pub places: Vec<i64>,
}

/// What the partitions made of one bundle, in the order of the rows that caused it. Partitions come
/// in ascending order in `emitted`; rows of one cause come from one partition.
pub(crate) fn by_cause(emitted: Vec<Emitted>) -> Result<Option<Ordered>> {
    let parts = emitted.into_iter().map(|emitted| {
        let rows = emitted.batch.num_rows();
        let places = match emitted.place {
            Place::Caused(causes) => causes.into_iter().map(i64::from).collect(),
            // Without causes rows stand behind those that have them.
            _ => vec![AT_WATERMARK; rows],
        };
        Ordered { batch: emitted.batch, kinds: emitted.kinds, places }
    });
    merge(parts.collect())
}

/// What the partitions made at one watermark: by window end, then partition, then as emitted. In
/// several batches where each part is of one window and they are large.
pub(crate) fn by_window_end(emitted: Vec<Emitted>) -> Result<Vec<Ordered>> {
    let parts = emitted.into_iter().map(|emitted| {
        let rows = emitted.batch.num_rows();
        let places = match emitted.place {
            Place::WindowEnd(end) => vec![end; rows],
            Place::WindowEnds(ends) => ends,
            _ => vec![i64::MAX; rows],
        };
        Ordered { batch: emitted.batch, kinds: emitted.kinds, places }
    });
    let mut parts: Vec<Ordered> = parts.filter(|part| !part.places.is_empty()).collect();
    let rows: usize = parts.iter().map(|part| part.places.len()).sum();
    let are_of_one_end = parts.iter().all(|part| part.places.first() == part.places.last());
    if are_of_one_end && rows >= PART_ROWS * parts.len() {
        // Stable: parts of one end stay as they stand.
        parts.sort_by_key(|part| part.places[0]);
        return Ok(parts);
    }
    Ok(merge(parts)?.into_iter().collect())
}

/// A stable merge of parts by place; ties go to the part that stands first.
pub(crate) fn merge(parts: Vec<Ordered>) -> Result<Option<Ordered>> {
    let mut parts: Vec<Ordered> = parts.into_iter().filter(|p| !p.places.is_empty()).collect();
    if parts.len() <= 1 {
        return Ok(parts.pop());
    }
    let indices = merged_indices(&parts);
    let places = indices.iter().map(|&(part, row)| parts[part].places[row]).collect();
    let kinds = merged_kinds(&parts, &indices);
    let batches: Vec<&RecordBatch> = parts.iter().map(|part| &part.batch).collect();
    let batch = interleave_record_batch(&batches, &indices)?;
    Ok(Some(Ordered { batch, kinds, places }))
}

/// Where each row of the merged sequence comes from: a stable sort by place of the parts one
/// behind the other.
fn merged_indices(parts: &[Ordered]) -> Vec<(usize, usize)> {
    let places: Vec<&[i64]> = parts.iter().map(|part| &part.places[..]).collect();
    merged_places(&places)
}

/// The same for the ascending places of each part.
pub(super) fn merged_places(parts: &[&[i64]]) -> Vec<(usize, usize)> {
    let total = parts.iter().map(|places| places.len()).sum();
    let first = parts.iter().filter_map(|places| places.first()).min().copied();
    let last = parts.iter().filter_map(|places| places.last()).max().copied();
    let (first, last) = (first.unwrap_or(0), last.unwrap_or(0));
    let span = last.abs_diff(first);
    if span < 4 * total as u64 + 64 {
        return counted_indices(parts, first, span as usize + 1, total);
    }
    let rows = parts.iter().enumerate();
    let mut indices: Vec<(usize, usize)> = Vec::with_capacity(total);
    rows.for_each(|(part, of)| indices.extend((0..of.len()).map(|row| (part, row))));
    // Each part is a run, which a stable sort finds and merges.
    indices.sort_by_key(|&(part, row)| parts[part][row]);
    indices
}

/// The same where places lie close together, as rows of one bundle do: each place gets its range of
/// the sequence, whatever the number of parts.
fn counted_indices(
    parts: &[&[i64]],
    first: i64,
    places: usize,
    total: usize,
) -> Vec<(usize, usize)> {
    let mut next = vec![0u32; places + 1];
    let slot = |place: i64| (place - first) as usize;
    for part in parts {
        part.iter().for_each(|&place| next[slot(place) + 1] += 1);
    }
    for place in 1..places {
        next[place] += next[place - 1];
    }
    let mut indices = vec![(0, 0); total];
    for (number, part) in parts.iter().enumerate() {
        for (row, &place) in part.iter().enumerate() {
            let at = &mut next[slot(place)];
            indices[*at as usize] = (number, row);
            *at += 1;
        }
    }
    indices
}

pub(super) fn merged_kinds(
    parts: &[Ordered],
    indices: &[(usize, usize)],
) -> Option<Arc<[RowKind]>> {
    if parts.iter().all(|part| part.kinds.is_none()) {
        return None;
    }
    let kind = |&(part, row): &(usize, usize)| {
        parts[part].kinds.as_ref().map_or(RowKind::Insert, |kinds| kinds[row])
    };
    Some(indices.iter().map(kind).collect())
}

/// Bundles of one serial that come by several edges, in the order of the source's rows, then of
/// the edges (which is the order of `bundles`).
pub(crate) fn by_ordinal(bundles: Vec<Bundle>) -> Result<Option<Bundle>> {
    let mut bundles: Vec<Bundle> = bundles.into_iter().filter(|b| b.num_rows() > 0).collect();
    if bundles.len() <= 1 {
        return Ok(bundles.pop());
    }
    let part = |bundle: &Bundle| Ordered {
        batch: bundle.batch.clone(),
        kinds: bundle.kinds.clone(),
        places: ordinals_of(bundle),
    };
    let parts: Vec<Ordered> = bundles.iter().map(part).collect();
    let indices = merged_indices(&parts);
    let kinds = merged_kinds(&parts, &indices);
    let batches: Vec<&RecordBatch> = parts.iter().map(|part| &part.batch).collect();
    let stamps = Stamps {
        watermark_before: merged_watermarks(&bundles, &indices),
        row_places: Some(indices.iter().map(|&(part, row)| parts[part].places[row]).collect()),
        origin: None,
        time_extremes: OnceLock::new(),
        ..bundles[0].stamps.clone()
    };
    let batch = interleave_record_batch(&batches, &indices)?;
    Ok(Some(Bundle { batch, kinds, stamps }))
}

fn ordinals_of(bundle: &Bundle) -> Vec<i64> {
    match &bundle.stamps.row_places {
        Some(places) => places.to_vec(),
        None => (0..bundle.num_rows() as i64).collect(),
    }
}

/// Each row keeps the running watermark of its own split.
pub(crate) fn merged_watermarks(bundles: &[Bundle], indices: &[(usize, usize)]) -> WatermarkBefore {
    let befores = bundles.iter().map(|bundle| &bundle.stamps.watermark_before);
    if let Some(watermark) = WatermarkBefore::one_of(befores) {
        return WatermarkBefore::All(watermark);
    }
    let before = |&(bundle, row): &(usize, usize)| -> i64 {
        let Watermark(ms) = bundles[bundle].stamps.watermark_before.at(row);
        ms
    };
    WatermarkBefore::Rows(indices.iter().map(before).collect::<ScalarBuffer<i64>>())
}

/// Some rows of a bundle.
pub(crate) fn slice(bundle: &Bundle, from: usize, rows: usize) -> Bundle {
    if (from, rows) == (0, bundle.num_rows()) {
        return bundle.clone();
    }
    let mut stamps = bundle.stamps.clone();
    stamps.watermark_before = match stamps.watermark_before {
        WatermarkBefore::Rows(before) => WatermarkBefore::Rows(before.slice(from, rows)),
        all => all,
    };
    if let Some(origin) = &mut stamps.origin {
        origin.first_row += from as u64;
    }
    stamps.time_extremes = OnceLock::new();
    let kinds = bundle.kinds.as_ref().map(|kinds| kinds[from..from + rows].into());
    Bundle { batch: bundle.batch.slice(from, rows), kinds, stamps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Int64Array};
    use proptest::prelude::*;

    fn batch(values: &[i64]) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        RecordBatch::try_from_iter([("n", column)]).expect("one column")
    }

    fn values(batch: &RecordBatch) -> Vec<i64> {
        batch.column(0).as_primitive::<Int64Type>().values().to_vec()
    }

    proptest! {
        /// However places are spread over parts, the merge equals a stable sort by place with the
        /// parts one behind the other.
        #[test]
        fn merge_is_a_stable_sort(
            mut parts in prop::collection::vec(prop::collection::vec(0i64..20, 0..30), 1..6),
            // Places close together, apart, and at both ends of time.
            stretch in prop::sample::select(vec![1, 1_000_000, i64::MAX / 20]),
        ) {
            let mut expected = Vec::new();
            let mut number = 0;
            let mut given = Vec::new();
            for places in &mut parts {
                places.sort_unstable();
                places.iter_mut().for_each(|place| *place = *place * stretch - 7);
                let names: Vec<i64> = places.iter().map(|_| { number += 1; number }).collect();
                expected.extend(places.iter().copied().zip(names.iter().copied()));
                given.push(Ordered { batch: batch(&names), kinds: None, places: places.clone() });
            }
            expected.sort_by_key(|&(place, _)| place);
            let merged = merge(given).expect("same columns");
            let (places, names): (Vec<i64>, Vec<i64>) = expected.into_iter().unzip();
            match merged {
                None => prop_assert!(names.is_empty()),
                Some(merged) => {
                    prop_assert_eq!(values(&merged.batch), names);
                    prop_assert_eq!(merged.places, places);
                }
            }
        }
    }

    proptest! {
        /// Whether parts leave as they are or are put together, the rows and their order are those
        /// of the merge.
        #[test]
        fn large_parts_of_one_window_leave_as_they_are(
            ends in prop::collection::vec(0i64..3, 1..6),
            rows in prop::sample::select(vec![3, PART_ROWS]),
        ) {
            let names = |part: usize| (0..rows).map(|row| (part * rows + row) as i64).collect::<Vec<_>>();
            let emitted = |(part, &end): (usize, &i64)| Emitted {
                batch: batch(&names(part)),
                kinds: None,
                place: Place::WindowEnd(end),
                port: 0,
            };
            let given = |(part, &end): (usize, &i64)| Ordered {
                batch: batch(&names(part)),
                kinds: None,
                places: vec![end; rows],
            };
            let left = by_window_end(ends.iter().enumerate().map(emitted).collect()).expect("fine");
            let merged = merge(ends.iter().enumerate().map(given).collect()).expect("fine").expect("rows");
            prop_assert_eq!(left.len(), if rows < PART_ROWS { 1 } else { ends.len() });
            let rows: Vec<i64> = left.iter().flat_map(|part| values(&part.batch)).collect();
            prop_assert_eq!(rows, values(&merged.batch));
            let places: Vec<i64> = left.into_iter().flat_map(|part| part.places).collect();
            prop_assert_eq!(places, merged.places);
        }
    }

    #[test]
    fn branches_meet_by_source_row_then_edge() {
        let bundle = |names: &[i64], rows: &[i64], before: i64| {
            let stamps = Stamps {
                row_places: Some(rows.to_vec().into()),
                watermark_before: WatermarkBefore::All(Watermark(before)),
                ..Stamps::first()
            };
            Bundle { batch: batch(names), kinds: None, stamps }
        };
        let left = bundle(&[10, 11, 12], &[0, 2, 2], 7);
        let right = bundle(&[20, 21], &[0, 1], 8);
        let met = by_ordinal(vec![left, right]).expect("same columns").expect("rows");
        assert_eq!(values(&met.batch), [10, 20, 21, 11, 12]);
        let before: Vec<i64> = (0..5).map(|row| met.stamps.watermark_before.at(row).0).collect();
        assert_eq!(before, [7, 8, 8, 7, 7]);
        let ordinals = met.stamps.row_places.expect("kept");
        assert_eq!(ordinals.to_vec(), [0, 0, 1, 2, 2]);
    }
}
