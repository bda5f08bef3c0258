//! The outcome of an element with watermarks between its rows.
//!
//! Two sequences exist: rows that were caused by rows, by the row that caused them, and rows that
//! were made at marks, by mark, window end and partition. They meet by place, and at one place the
//! caused rows come first: a mark stands behind the rows at its place. Each row is moved once.

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_select::interleave::interleave_record_batch;
use thalweg_core::operator::{CallPlaces, Emitted};
use thalweg_core::{Bundle, Place, Result, RowKind, Watermark, WatermarkBefore};
use thalweg_ordering::sync::Arc;

use super::{Gather, Outcome, Port, Ports, TakenMark, in_bundles};
use crate::ordered::marks::{Mark, Marks, ROWS_CALL, mark_call};
use crate::ordered::rows::{Ordered, merged_kinds, merged_places};

/// A row on its way into the outcome.
#[derive(Clone, Copy)]
struct PlacedRow {
    /// The number of its batch, and of the row in it.
    from: (usize, usize),
    place: i64,
    /// The watermark before the row that caused it, where changes come behind it.
    before_cause: Watermark,
}

/// Rows of one batch that were made in one call.
struct CallRows {
    part: usize,
    rows: Range<usize>,
}

/// What leaves by one port.
#[derive(Default)]
struct PortRows {
    /// Batches, with the cause or the window end of each row.
    parts: Vec<Ordered>,
    /// By bundle and partition.
    caused: Vec<((usize, usize), CallRows)>,
    /// By mark and partition.
    at_marks: Vec<((usize, usize), CallRows)>,
}

impl Gather {
    /// Keeps what a partition emitted in a call for an item over a bundle. Returns the bytes kept
    /// in all.
    pub(crate) fn keep_of_call(
        &self,
        of: (usize, u32),
        cell: usize,
        emitted: Vec<Emitted>,
        bytes: usize,
    ) -> usize {
        let mut kept = self.lock_emitted();
        kept.bytes += bytes;
        kept.of_calls.extend(emitted.into_iter().map(|emitted| (of, cell, emitted)));
        kept.bytes
    }

    /// Puts everything together, in order.
    pub(super) fn marked_outcome(
        &self,
        ports: usize,
        emitted: Vec<((usize, u32), usize, Emitted)>,
    ) -> Result<Outcome> {
        let mut of_ports: Vec<PortRows> = (0..ports).map(|_| PortRows::default()).collect();
        for (of, cell, emitted) in emitted {
            if let Some(rows) = of_ports.get_mut(emitted.port) {
                rows.add(of, cell, emitted);
            }
        }
        let mut out = Ports::without_rows(ports, None, None);
        for (port, rows) in of_ports.into_iter().enumerate() {
            out[port] = self.marked_port(port, rows)?;
        }
        Ok(Outcome { passage: self.passage, ports: out })
    }

    fn marked_port(&self, port: usize, rows: PortRows) -> Result<Port> {
        // What the operator passes on goes by its first port, and watermarks by the others.
        let passed = |of: &TakenMark| if port == 0 { of.pass } else { Some(of.mark.watermark) };
        let between = self.marks.iter().filter(|taken| !taken.is_behind_all());
        let between = between
            .filter_map(|taken| Some(Mark { place: taken.mark.place, watermark: passed(taken)? }));
        let between: Vec<Mark> = between.collect();
        let behind = self.marks.last().filter(|last| last.is_behind_all());
        let marks: Marks = (!between.is_empty()).then(|| between.into());
        let bundles = self.placed_bundle(rows)?.map_or_else(Vec::new, in_bundles);
        Ok(Port { bundles, marks, watermark: behind.and_then(passed) })
    }

    fn placed_bundle(&self, rows: PortRows) -> Result<Option<Bundle>> {
        let (parts, sequence) = rows.in_sequence(&self.bundles, &self.marks);
        if sequence.is_empty() {
            return Ok(None);
        }
        let indices: Vec<(usize, usize)> = sequence.iter().map(|row| row.from).collect();
        let kinds: Option<Arc<[RowKind]>> = merged_kinds(&parts, &indices);
        let batches: Vec<&RecordBatch> = parts.iter().map(|part| &part.batch).collect();
        let batch = interleave_record_batch(&batches, &indices)?;
        let places = sequence.iter().map(|row| row.place).collect();
        let ordered = Ordered { batch, kinds, places: Vec::new() };
        Ok(Some(self.bundle(ordered, Some(places), self.watermarks_before(&sequence))))
    }

    /// The watermark passed on before each row.
    fn watermarks_before(&self, sequence: &[PlacedRow]) -> WatermarkBefore {
        let mut passes =
            self.marks.iter().filter_map(|taken| Some((taken.mark.place, taken.pass?)));
        let (mut next, mut passed) = (passes.next(), self.passed_before);
        let before = sequence.iter().map(|row| {
            while let Some((_, watermark)) = next.filter(|&(place, _)| place < row.place) {
                (next, passed) = (passes.next(), watermark);
            }
            passed.max(row.before_cause).0
        });
        WatermarkBefore::Rows(before.collect())
    }
}

impl PortRows {
    /// What a partition emitted in a call, or has held of several.
    fn add(&mut self, (bundle, call): (usize, u32), cell: usize, emitted: Emitted) {
        let (part, rows) = (self.parts.len(), emitted.batch.num_rows());
        let one_call = |places| CallPlaces { ends: vec![(call, rows)], places };
        let of_calls = match emitted.place {
            Place::OfCalls(of_calls) => of_calls,
            Place::Caused(causes) if call == ROWS_CALL => {
                one_call(causes.into_iter().map(i64::from).collect())
            }
            Place::WindowEnds(ends) => one_call(ends),
            Place::WindowEnd(end) => one_call(vec![end; rows]),
            Place::Caused(_) | Place::AsEmitted => one_call(vec![i64::MAX; rows]),
        };
        let CallPlaces { ends, places } = of_calls;
        let mut first = 0;
        for (call, end) in ends {
            let rows = CallRows { part, rows: first..end };
            match call.checked_sub(mark_call(0)) {
                None => self.caused.push(((bundle, cell), rows)),
                Some(mark) => self.at_marks.push(((mark as usize, cell), rows)),
            }
            first = end;
        }
        let Emitted { batch, kinds, .. } = emitted;
        self.parts.push(Ordered { batch, kinds, places });
    }

    /// The rows that were caused by rows, in the order of their causes.
    fn placed_caused(&mut self, bundles: &[Bundle]) -> Vec<PlacedRow> {
        let mut placed = Vec::new();
        in_order(&self.parts, &mut self.caused, |bundle, (part, row)| {
            let stamps = &bundles[bundle].stamps;
            let places = stamps.row_places.as_ref();
            let places = places.expect("rows of an element with marks have places");
            let cause = self.parts[part].places[row] as usize;
            let before_cause = match &self.parts[part].kinds {
                Some(_) => stamps.watermark_before.at(cause),
                None => Watermark::MIN,
            };
            placed.push(PlacedRow { from: (part, row), place: places[cause], before_cause });
        });
        placed
    }

    /// The rows that were made at marks, in order.
    fn placed_at_marks(&mut self, marks: &[TakenMark]) -> Vec<PlacedRow> {
        let mut placed = Vec::new();
        in_order(&self.parts, &mut self.at_marks, |mark, from| {
            let place = marks[mark].mark.place;
            placed.push(PlacedRow { from, place, before_cause: Watermark::MIN });
        });
        placed
    }

    /// All rows in the order of their places.
    fn in_sequence(
        mut self,
        bundles: &[Bundle],
        marks: &[TakenMark],
    ) -> (Vec<Ordered>, Vec<PlacedRow>) {
        let (caused, at_marks) = (self.placed_caused(bundles), self.placed_at_marks(marks));
        if at_marks.is_empty() || caused.is_empty() {
            return (self.parts, if caused.is_empty() { at_marks } else { caused });
        }
        let mut sequence = Vec::with_capacity(caused.len() + at_marks.len());
        let mut at_marks = at_marks.into_iter().peekable();
        for row in caused {
            while let Some(at_mark) = at_marks.next_if(|at_mark| at_mark.place < row.place) {
                sequence.push(at_mark);
            }
            sequence.push(row);
        }
        sequence.extend(at_marks);
        (self.parts, sequence)
    }
}

/// Calls `each` for every row with its part, in the order of bundles or marks, and for each of them
/// in the order of places; rows at one place by partition.
fn in_order(
    parts: &[Ordered],
    of_calls: &mut [((usize, usize), CallRows)],
    mut each: impl FnMut(usize, (usize, usize)),
) {
    // Stable: what one partition made stays in the order in which it did.
    of_calls.sort_by_key(|&(of, _)| of);
    for group in of_calls.chunk_by(|((one, _), _), ((other, _), _)| one == other) {
        let ((of, _), first) = &group[0];
        if group.len() == 1 {
            first.rows.clone().for_each(|row| each(*of, (first.part, row)));
            continue;
        }
        let places = |(_, rows): &(_, CallRows)| &parts[rows.part].places[rows.rows.clone()];
        let places: Vec<&[i64]> = group.iter().map(places).collect();
        for (number, row) in merged_places(&places) {
            let (_, of_call) = &group[number];
            each(*of, (of_call.part, of_call.rows.start + row));
        }
    }
}

impl Gather {
    /// How many marks stand in front of the first row of a bundle, or of the end.
    pub(crate) fn marks_in_front_of(&self, bundle: usize) -> usize {
        let mut behind = self.bundles.iter().skip(bundle);
        let first = behind.find_map(|bundle| bundle.stamps.row_places.as_ref()?.first());
        let Some(&first) = first else { return self.marks.len() };
        self.marks.partition_point(|taken| taken.mark.place < first)
    }

    /// How many rows of an item over a bundle, of which the first `taken` are done, stand in front
    /// of a mark. `rows` are those meant; `None` means all.
    pub(crate) fn rows_in_front_of(
        &self,
        mark: u32,
        bundle: usize,
        rows: Option<&[u32]>,
        taken: usize,
    ) -> usize {
        let Some(bundle) = self.bundles.get(bundle) else { return 0 };
        let place = self.marks[mark as usize].mark.place;
        let places = bundle.stamps.row_places.as_ref();
        let places = places.expect("rows of an element with marks have places");
        taken
            + match rows {
                Some(rows) => rows[taken..].partition_point(|&row| places[row as usize] <= place),
                None => places[taken..].partition_point(|&of_row| of_row <= place),
            }
    }
}

/// Rows without a cause that were made of some rows stand behind the last of these.
pub(crate) fn caused_by(emitted: Vec<Emitted>, last_row: impl Fn() -> u32) -> Vec<Emitted> {
    let caused = |emitted: Emitted| match emitted.place {
        Place::Caused(_) | Place::OfCalls(_) => emitted,
        _ => {
            let causes = vec![last_row(); emitted.batch.num_rows()];
            Emitted { place: Place::Caused(causes), ..emitted }
        }
    };
    emitted.into_iter().map(caused).collect()
}
