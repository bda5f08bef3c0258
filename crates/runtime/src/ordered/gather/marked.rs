//! The outcome of an element with watermarks between its rows.
//!
//! Two sequences exist: rows that were caused by rows, by the row that caused them, and rows that
//! were made at marks, by mark, window end and partition. They meet by place, and at one place the
//! caused rows come first: a mark stands behind the rows at its place. Each row is moved once.

use std::cmp::Ordering;

use arrow_array::RecordBatch;
use arrow_select::interleave::interleave_record_batch;
use thalweg_core::operator::Emitted;
use thalweg_core::{Bundle, Place, Result, RowKind, Watermark, WatermarkBefore};
use thalweg_ordering::sync::Arc;

use super::{Gather, GatheredRows, Outcome, Port, Ports, by_port, in_bundles};
use crate::ordered::marks::{Mark, Marks};
use crate::ordered::rows::{Ordered, merged_indices, merged_kinds};

/// A row on its way into the outcome.
#[derive(Clone, Copy)]
struct PlacedRow {
    /// The number of its batch, and of the row in it.
    from: (usize, usize),
    place: i64,
    /// The watermark before the row that caused it, where changes come behind it.
    before_cause: Watermark,
}

/// What leaves by one port.
#[derive(Default)]
struct PortRows {
    parts: Vec<Ordered>,
    caused: Vec<PlacedRow>,
    at_marks: Vec<PlacedRow>,
}

impl Gather {
    /// Keeps what a partition emitted at a mark. Returns the bytes kept in all.
    pub(crate) fn keep_at_mark(
        &self,
        mark: u32,
        cell: usize,
        emitted: Vec<Emitted>,
        bytes: usize,
    ) -> usize {
        let mut kept = self.lock_emitted();
        kept.bytes += bytes;
        kept.of_marks.extend(emitted.into_iter().map(|emitted| (mark, cell, emitted)));
        kept.bytes
    }

    /// Puts everything together, in order.
    pub(super) fn marked_outcome(&self, ports: usize, emitted: GatheredRows) -> Result<Outcome> {
        let mut of_ports: Vec<PortRows> = (0..ports).map(|_| PortRows::default()).collect();
        for (number, of_bundle) in emitted.of_rows.into_iter().enumerate() {
            for (port, emitted) in by_port(of_bundle, ports) {
                of_ports[port].add_caused(&self.bundles[number], emitted);
            }
        }
        let mut of_marks = emitted.of_marks;
        of_marks.sort_by_key(|&(mark, ..)| mark);
        while let Some(&(mark, ..)) = of_marks.last() {
            let first = of_marks.partition_point(|&(of, ..)| of < mark);
            let at_mark = of_marks.drain(first..).map(|(_, cell, emitted)| (cell, emitted));
            for (port, emitted) in by_port(at_mark.collect(), ports) {
                of_ports[port].add_at_mark(self.marks[mark as usize].mark.place, emitted);
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
        let passed =
            |of: &super::TakenMark| if port == 0 { of.pass } else { Some(of.mark.watermark) };
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
        let (parts, sequence) = rows.in_sequence();
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
    /// Rows that were caused by rows of a bundle, by partition.
    fn add_caused(&mut self, bundle: &Bundle, emitted: Vec<Emitted>) {
        let places = bundle.stamps.row_places.as_ref();
        let places = places.expect("rows of an element with marks have places");
        let (first, parts) = (self.parts.len(), Ordered::by_cause(emitted));
        self.caused.extend(merged_indices(&parts).into_iter().map(|(part, row)| {
            let cause = parts[part].places[row] as usize;
            let before_cause = match &parts[part].kinds {
                Some(_) => bundle.stamps.watermark_before.at(cause),
                None => Watermark::MIN,
            };
            PlacedRow { from: (first + part, row), place: places[cause], before_cause }
        }));
        self.parts.extend(parts);
    }

    /// Rows that were made at one mark, by partition.
    fn add_at_mark(&mut self, place: i64, emitted: Vec<Emitted>) {
        let (first, parts) = (self.parts.len(), Ordered::by_window_end(emitted));
        self.at_marks.extend(merged_indices(&parts).into_iter().map(|(part, row)| PlacedRow {
            from: (first + part, row),
            place,
            before_cause: Watermark::MIN,
        }));
        self.parts.extend(parts);
    }

    /// All rows in the order of their places.
    fn in_sequence(mut self) -> (Vec<Ordered>, Vec<PlacedRow>) {
        // Marks come from the last to the first.
        self.at_marks.sort_by_key(|row| row.place);
        let PortRows { parts, caused, at_marks } = self;
        if at_marks.is_empty() {
            return (parts, caused);
        }
        let mut sequence = Vec::with_capacity(caused.len() + at_marks.len());
        let (mut caused, mut at_marks) =
            (caused.into_iter().peekable(), at_marks.into_iter().peekable());
        loop {
            let next = match (caused.peek(), at_marks.peek()) {
                (Some(caused_row), Some(at_mark)) => match caused_row.place.cmp(&at_mark.place) {
                    Ordering::Less | Ordering::Equal => caused.next(),
                    Ordering::Greater => at_marks.next(),
                },
                (Some(_), None) => caused.next(),
                (None, _) => at_marks.next(),
            };
            match next {
                Some(row) => sequence.push(row),
                None => return (parts, sequence),
            }
        }
    }
}

/// Rows without a cause that were made of some rows stand behind the last of these.
pub(crate) fn caused_by(emitted: Vec<Emitted>, last_row: impl Fn() -> u32) -> Vec<Emitted> {
    let caused = |emitted: Emitted| match emitted.place {
        Place::Caused(_) => emitted,
        _ => {
            let causes = vec![last_row(); emitted.batch.num_rows()];
            Emitted { place: Place::Caused(causes), ..emitted }
        }
    };
    emitted.into_iter().map(caused).collect()
}
