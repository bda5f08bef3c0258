//! The rows of one side, as Arrow batches. What a piece of a small bundle appends is a *part* of
//! the open chunk, and the parts of many pieces become one *segment*; that of a large bundle is one
//! at once.
//!
//! **Invariants:**
//! - a live row knows its [`ArenaPlace`], and the segment knows its owner, so that rows may move;
//! - at least half of the rows of every segment are live, but for those that died in the piece in
//!   hand. Parts of the open chunk are not held to this. They have about [`OPEN_ROWS_MAX`] rows
//!   together, in columns of about [`OPEN_SOURCE_BYTES_MAX`];
//! - fewer than eight segments are of one class of size below the largest, so that bundles of one
//!   row do not become segments of one row.
//!
//! Rows move in [`Arena::tidy`] only, between two pieces.
//!
//! # The open chunk
//!
//! A part shares the columns of its bundle, and its rows keep the numbers that they have there:
//! nothing is copied, however few rows a piece has. When the chunk has [`OPEN_ROWS_MAX`] rows, or
//! its parts keep too much else in memory, its live rows are copied into a segment, once. A row
//! that goes again soon is never copied.
//!
//! # Segments
//!
//! ```text
//! class    0        1         2          3           4 (largest)
//! rows     1-7      8-63      64-511     512-4095    4096 or more
//!          at most 7 segments each, then 8 of them are merged      never merged, only thinned
//! ```
//!
//! A row is copied about once for each class that it grows through, at most four times, and then
//! again only when half of its neighbours are gone.
//!
//! **Protocol of a piece**
//! 1. Rows of the bundle in hand are named by `ArenaPlace::of_piece`; nothing is kept yet. A row
//!    that comes and goes within one piece never enters the arena.
//! 2. `remove` marks rows. Their values can be read until step 4, since a changelog emits what it
//!    removes.
//! 3. `append` adds what stays.
//! 4. `tidy` moves rows and reports each new place to its owner.
//!
//! A piece of a large bundle is a segment at once: shared with its bundle if it is all of it,
//! copied otherwise, as it would keep the whole bundle in memory, which others use again while it
//! is in the cache.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::interleave::interleave;
use thalweg_core::Result;
use thalweg_core::bundle::batch_bytes;

use super::columns::{keys_of, take_all};
use crate::rows::columns::batch_of;

/// No row, and no key.
pub(crate) const NIL: u32 = u32::MAX;

/// Where a row lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArenaPlace {
    segment: u32,
    row: u32,
}

/// No row: every column is NULL.
const NOTHING: u32 = u32::MAX;
/// A row of the bundle in hand.
const PIECE: u32 = u32::MAX - 1;
/// A row that was removed.
const GONE: u32 = u32::MAX - 2;

impl ArenaPlace {
    /// The row of NULLs that stands for a missing partner.
    pub const NULLS: ArenaPlace = ArenaPlace { segment: NOTHING, row: 0 };
    /// The place of a row that was removed.
    pub const NONE: ArenaPlace = ArenaPlace { segment: GONE, row: 0 };

    /// A row of the bundle in hand.
    pub fn of_piece(row: u32) -> ArenaPlace {
        ArenaPlace { segment: PIECE, row }
    }

    /// The row of the bundle in hand, if it is one.
    pub fn piece_row(self) -> Option<u32> {
        (self.segment == PIECE).then_some(self.row)
    }

    /// True if a segment holds the row.
    pub fn is_kept(self) -> bool {
        self.segment < GONE
    }
}

/// Segments of one class are merged when they are this many.
const FAN: usize = 8;
/// The class from which on segments are not merged: 4096 rows.
const LARGEST: usize = 4;

/// Pieces of larger bundles are segments at once.
const SMALL_BUNDLE_ROWS_MAX: usize = 1024;
/// The open chunk becomes a segment when it has this many rows.
const OPEN_ROWS_MAX: usize = 4096;
/// The same when the columns that its parts share take this much. They are memory that others would
/// use again while it is in the cache, and few of their rows may be kept here.
const OPEN_SOURCE_BYTES_MAX: usize = 2 << 20;
/// The same when it has this many parts: each is one more source to gather from.
const OPEN_PARTS_MAX: usize = 64;

/// For so few places the segments are listed without a table of all segments.
const FEW_PLACES: usize = 16;

fn class_of(rows: usize) -> usize {
    (rows.max(1).ilog2() as usize / FAN.ilog2() as usize).min(LARGEST)
}

struct ArenaSegment {
    batch: RecordBatch,
    /// The row number of each row; [`NIL`] where it is gone, or stays elsewhere.
    owners: Vec<u32>,
    live: usize,
    bytes: usize,
    /// True for a part of the open chunk.
    is_open: bool,
    is_thinned: bool,
}

/// What becomes a segment next.
#[derive(Default)]
struct OpenChunk {
    /// Its parts, by number.
    parts: Vec<u32>,
    /// Rows that came.
    rows: usize,
    /// What the columns take that its parts share.
    source_bytes: usize,
}

impl OpenChunk {
    fn is_full(&self) -> bool {
        self.rows >= OPEN_ROWS_MAX
            || self.source_bytes >= OPEN_SOURCE_BYTES_MAX
            || self.parts.len() >= OPEN_PARTS_MAX
    }
}

/// All rows of one side.
pub(crate) struct Arena {
    schema: SchemaRef,
    segments: Vec<Option<ArenaSegment>>,
    free: Vec<u32>,
    open: OpenChunk,
    /// Segments that may still be merged, by class.
    classes: [Vec<u32>; LARGEST],
    /// Segments that have lost more than half of their rows.
    thinned: Vec<u32>,
    bytes: usize,
}

impl Arena {
    pub fn new(schema: SchemaRef) -> Self {
        Arena {
            schema,
            segments: Vec::new(),
            free: Vec::new(),
            open: OpenChunk::default(),
            classes: Default::default(),
            thinned: Vec::new(),
            bytes: 0,
        }
    }

    /// Appends rows of a bundle; says where each of the owners now lies.
    pub fn append(
        &mut self,
        columns: &[ArrayRef],
        rows: &[u32],
        owners: Vec<u32>,
        bundle_rows: usize,
        mut moved: impl FnMut(u32, ArenaPlace),
    ) -> Result<()> {
        if bundle_rows > SMALL_BUNDLE_ROWS_MAX {
            let is_whole = rows.len() == bundle_rows;
            let columns = if is_whole { columns.to_vec() } else { take_all(columns, rows)? };
            return self.add(columns, owners, moved);
        }
        let mut part = self.part(columns, rows, bundle_rows)?;
        let owned = || rows.iter().copied().zip(owners.iter().copied());
        owned().for_each(|(row, owner)| part.owners[row as usize] = owner);
        self.bytes += part.bytes;
        let segment = self.put(part);
        owned().for_each(|(row, owner)| moved(owner, ArenaPlace { segment, row }));
        self.open.parts.push(segment);
        self.open.rows += rows.len();
        Ok(())
    }

    /// How many rows of the open chunk are live.
    fn open_rows(&self) -> usize {
        self.open.parts.iter().map(|&part| self.segment(part).live).sum()
    }

    /// A part of these rows, which have no owners yet. Without columns the bundle has as many rows
    /// as are named.
    fn part(
        &mut self,
        columns: &[ArrayRef],
        rows: &[u32],
        bundle_rows: usize,
    ) -> Result<ArenaSegment> {
        let named = rows.iter().map(|&row| row as usize + 1).max();
        let bundle_rows = bundle_rows.max(named.unwrap_or(0));
        let batch = batch_of(&self.schema, columns.to_vec(), bundle_rows)?;
        let source_bytes = batch_bytes(&batch);
        self.open.source_bytes += source_bytes;
        // Its rows count here, and the others of the bundle where they are kept.
        let bytes = bundle_rows * size_of::<u32>() + source_bytes * rows.len() / bundle_rows.max(1);
        let (owners, live) = (vec![NIL; bundle_rows], rows.len());
        Ok(ArenaSegment { batch, owners, live, bytes, is_open: true, is_thinned: false })
    }

    /// Adds a segment of rows that all are live.
    fn add(
        &mut self,
        mut columns: Vec<ArrayRef>,
        owners: Vec<u32>,
        mut moved: impl FnMut(u32, ArenaPlace),
    ) -> Result<()> {
        columns.iter_mut().for_each(release_text);
        let rows = owners.len();
        let batch = batch_of(&self.schema, columns, rows)?;
        let bytes = batch_bytes(&batch) + rows * size_of::<u32>();
        let (is_open, is_thinned) = (false, false);
        let number =
            self.put(ArenaSegment { batch, owners, live: rows, bytes, is_open, is_thinned });
        for (row, &owner) in self.segment(number).owners.iter().enumerate() {
            moved(owner, ArenaPlace { segment: number, row: row as u32 });
        }
        if class_of(rows) < LARGEST {
            self.classes[class_of(rows)].push(number);
        }
        self.bytes += bytes;
        Ok(())
    }

    fn put(&mut self, segment: ArenaSegment) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.segments.push(None);
            self.segments.len() as u32 - 1
        });
        self.segments[number as usize] = Some(segment);
        number
    }

    /// Forgets a row that a segment holds.
    ///
    /// The row's values stay readable until [`Arena::tidy`].
    pub fn remove(&mut self, place: ArenaPlace) {
        let segment = self.segments[place.segment as usize].as_mut().expect("a place is kept");
        segment.owners[place.row as usize] = NIL;
        segment.live -= 1;
        let is_settled = !segment.is_open && !segment.is_thinned;
        if is_settled && segment.live * 2 < segment.owners.len() {
            segment.is_thinned = true;
            self.thinned.push(place.segment);
        }
    }

    /// The columns that hold a row, and its number in them. `piece` are those of the bundle in
    /// hand.
    pub fn find<'a>(&'a self, place: ArenaPlace, piece: &'a [ArrayRef]) -> (&'a [ArrayRef], usize) {
        let columns = if place.segment == PIECE { piece } else { self.columns(place.segment) };
        (columns, place.row as usize)
    }

    fn columns(&self, segment: u32) -> &[ArrayRef] {
        self.segment(segment).batch.columns()
    }

    fn segment(&self, number: u32) -> &ArenaSegment {
        self.segments[number as usize].as_ref().expect("a place is kept")
    }

    /// Restores the invariants after removals and additions; says of each row that moves where it
    /// now lies.
    ///
    /// A place that was handed out before is still valid if `moved` does not name its row. The
    /// places of removed rows are not valid any more.
    pub fn tidy(&mut self, mut moved: impl FnMut(u32, ArenaPlace)) -> Result<()> {
        while let Some(number) = self.thinned.pop() {
            self.rewrite(&[number], &mut moved)?;
        }
        if self.open.is_full() || self.open_rows() == 0 {
            let OpenChunk { parts, .. } = std::mem::take(&mut self.open);
            self.rewrite(&parts, &mut moved)?;
        }
        // A merger adds to the next class, which comes next.
        for class in 0..LARGEST {
            while self.classes[class].len() >= FAN {
                // The newest segments of the class: they hold rows that came together and may leave
                // together.
                let from = self.classes[class].len() - FAN;
                let merged: Vec<u32> = self.classes[class][from..].to_vec();
                self.rewrite(&merged, &mut moved)?;
            }
        }
        Ok(())
    }

    /// Puts the live rows of these segments into a new one.
    fn rewrite(&mut self, numbers: &[u32], moved: &mut impl FnMut(u32, ArenaPlace)) -> Result<()> {
        let segments: Vec<ArenaSegment> =
            numbers.iter().filter_map(|&number| self.withdraw(number)).collect();
        let mut owners = Vec::with_capacity(segments.iter().map(|segment| segment.live).sum());
        let mut picks = Vec::with_capacity(owners.capacity());
        for (source, segment) in segments.iter().enumerate() {
            for (row, &owner) in segment.owners.iter().enumerate() {
                if owner != NIL {
                    owners.push(owner);
                    picks.push((source, row));
                }
            }
        }
        if owners.is_empty() {
            return Ok(());
        }
        let column = |n: usize| -> Result<ArrayRef> {
            if let [whole] = &segments[..]
                && whole.live == whole.owners.len()
            {
                return Ok(ArrayRef::clone(whole.batch.column(n)));
            }
            let sources: Vec<&dyn Array> =
                segments.iter().map(|segment| segment.batch.column(n).as_ref()).collect();
            Ok(interleave(&sources, &picks)?)
        };
        let columns = (0..self.schema.fields().len()).map(column).collect::<Result<_>>()?;
        self.add(columns, owners, moved)
    }

    fn withdraw(&mut self, number: u32) -> Option<ArenaSegment> {
        let segment = self.segments[number as usize].take()?;
        self.bytes -= segment.bytes;
        self.free.push(number);
        let class = class_of(segment.owners.len());
        if class < LARGEST && !segment.is_open {
            self.classes[class].retain(|&other| other != number);
        }
        Some(segment)
    }

    pub fn bytes(&self) -> usize {
        self.bytes + self.segments.capacity() * size_of::<Option<ArenaSegment>>()
    }

    /// The rows at these places, in the columns named. `piece` are those of the bundle in hand.
    pub fn gather(
        &self,
        places: &[ArenaPlace],
        piece: &[ArrayRef],
        columns: &[usize],
    ) -> Result<Vec<ArrayRef>> {
        let type_of = |n: usize| self.schema.field(n).data_type();
        if places.iter().all(|place| place.segment == NOTHING) {
            return Ok(columns.iter().map(|&n| new_null_array(type_of(n), places.len())).collect());
        }
        if places.iter().all(|place| place.segment == PIECE) {
            let rows: Vec<u32> = places.iter().map(|place| place.row).collect();
            return take_all(&keys_of(piece, columns), &rows);
        }
        let (sources, picks) = self.picks(places);
        let nothing = sources.contains(&NOTHING);
        let column = |&n: &usize| -> Result<ArrayRef> {
            let nothing = nothing.then(|| new_null_array(type_of(n), 1));
            let source = |&segment: &u32| match (segment, &nothing) {
                (NOTHING, Some(nothing)) => nothing.as_ref(),
                (PIECE, _) => piece[n].as_ref(),
                (segment, _) => self.columns(segment)[n].as_ref(),
            };
            let sources: Vec<&dyn Array> = sources.iter().map(source).collect();
            Ok(interleave(&sources, &picks)?)
        };
        columns.iter().map(column).collect()
    }

    /// The segments that the places lie in, and for each place which of these, and the row.
    fn picks(&self, places: &[ArenaPlace]) -> (Vec<u32>, Vec<(usize, usize)>) {
        let mut sources = Vec::new();
        if places.len() <= FEW_PLACES {
            let mut number = |segment: u32| {
                sources.iter().position(|&other| other == segment).unwrap_or_else(|| {
                    sources.push(segment);
                    sources.len() - 1
                })
            };
            let picks = places.iter().map(|place| (number(place.segment), place.row as usize));
            let picks = picks.collect();
            return (sources, picks);
        }
        // One number per segment; those of the bundle and of NULLs stand behind.
        let count = self.segments.len();
        let mut numbers = vec![NIL; count + 2];
        let picks = places.iter().map(|place| {
            let at = match place.segment {
                NOTHING => count,
                PIECE => count + 1,
                segment => segment as usize,
            };
            if numbers[at] == NIL {
                numbers[at] = sources.len() as u32;
                sources.push(place.segment);
            }
            (numbers[at] as usize, place.row as usize)
        });
        let picks = picks.collect();
        (sources, picks)
    }
}

/// Copies the text of views that hold on to a third more: it is counted by what the views show.
fn release_text(column: &mut ArrayRef) {
    if *column.data_type() != DataType::Utf8View {
        return;
    }
    let texts = column.as_string_view();
    let held: usize = texts.data_buffers().iter().map(|buffer| buffer.capacity()).sum();
    let used = texts.total_buffer_bytes_used();
    if held > used + used / 3 {
        *column = Arc::new(texts.gc());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int64Type;
    use arrow_array::{Int64Array, StringViewArray};
    use arrow_schema::{Field, Schema};
    use thalweg_core::shim::SplitMix64;

    use super::*;

    fn text(n: i64) -> String {
        format!("a text that is too long for a view: {n}")
    }

    fn columns(numbers: &[i64]) -> Vec<ArrayRef> {
        let texts = numbers.iter().map(|&n| text(n));
        vec![
            Arc::new(Int64Array::from(numbers.to_vec())),
            Arc::new(StringViewArray::from_iter_values(texts)),
        ]
    }

    fn arena() -> Arena {
        Arena::new(Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("s", DataType::Utf8View, true),
        ])))
    }

    /// Rows come in batches of any size and leave in any order; all that are left are found, and
    /// the memory is that of the rows that are left.
    #[test]
    fn rows_are_found_after_any_moves() {
        for seed in 0..10 {
            let mut random = SplitMix64::new(seed);
            let (mut arena, mut places) = (arena(), Vec::<ArenaPlace>::new());
            for _ in 0..300 {
                let start = places.len() as i64;
                let most = [2, 20, 3000][random.below(3) as usize];
                let count = 1 + random.below(most) as i64;
                let numbers: Vec<i64> = (start..start + count).collect();
                let owners: Vec<u32> = numbers.iter().map(|&n| n as u32).collect();
                places.resize(places.len() + count as usize, ArenaPlace::NONE);
                let rows: Vec<u32> = (0..count as u32).collect();
                let set = |owner: u32, place| places[owner as usize] = place;
                arena.append(&columns(&numbers), &rows, owners, count as usize, set).unwrap();
                for _ in 0..random.below(2 * count as u64) {
                    let place = &mut places[random.below((start + count) as u64) as usize];
                    if place.is_kept() {
                        arena.remove(*place);
                        *place = ArenaPlace::NONE;
                    }
                }
                arena.tidy(|owner, place| places[owner as usize] = place).unwrap();
            }
            let live: Vec<u32> =
                (0..places.len() as u32).filter(|&n| places[n as usize].is_kept()).collect();
            let found: Vec<ArenaPlace> = live.iter().map(|&n| places[n as usize]).collect();
            let gathered = arena.gather(&found, &[], &[0, 1]).unwrap();
            for (row, &n) in live.iter().enumerate() {
                let number = gathered[0].as_primitive::<Int64Type>().value(row);
                assert_eq!(number, i64::from(n), "seed {seed}");
                assert_eq!(gathered[1].as_string_view().value(row), text(number), "seed {seed}");
            }
            let row_bytes = 8 + 16 + text(100_000).len() + 4;
            let most = 2 * live.len() * row_bytes
                + OPEN_ROWS_MAX * row_bytes
                + 64 * arena.segments.len() * 8;
            assert!(arena.bytes() < most, "seed {seed}: {} of {most}", arena.bytes());
            assert!(arena.classes.iter().all(|class| class.len() < FAN), "seed {seed}");
        }
    }

    /// A quarter of the rows of each bundle come to this arena, as with four partitions.
    #[test]
    fn texts_that_are_counted_are_all_that_is_held_but_for_about_one_large_bundle() {
        for bundle in [200_u32, 3000, 20_000] {
            let (mut arena, mut places) = (arena(), vec![ArenaPlace::NONE; 100_000]);
            let mut owner = 0..100_000;
            while !owner.is_empty() {
                let owners: Vec<u32> = owner.by_ref().take(bundle as usize / 4).collect();
                let numbers: Vec<i64> = (0..i64::from(bundle)).collect();
                let rows: Vec<u32> = (0..bundle).step_by(4).take(owners.len()).collect();
                let set = |owner: u32, place| places[owner as usize] = place;
                let columns = columns(&numbers);
                arena.append(&columns, &rows, owners, bundle as usize, set).unwrap();
                arena.tidy(|owner, place| places[owner as usize] = place).unwrap();
            }
            let texts = |segment: &ArenaSegment| -> usize {
                let texts = segment.batch.column(1).as_string_view();
                texts.data_buffers().iter().map(|buffer| buffer.capacity()).sum()
            };
            let held: usize = arena.segments.iter().flatten().map(texts).sum();
            let of_rows = |rows: usize| rows * text(1000).len() * 3 / 2;
            let most = of_rows(100_000 + bundle as usize) + 2 * OPEN_SOURCE_BYTES_MAX;
            assert!(held <= most, "{held} bytes of {most}, bundles of {bundle}");
        }
    }

    /// What is found of rows that come and go does not depend on how many come together, nor on
    /// whether they are slices of one bundle or bundles of their own.
    #[test]
    fn rows_are_the_same_in_pieces_of_any_size() {
        const ROWS: usize = 40_000;
        let mut random = SplitMix64::new(5);
        // The row that goes when a row comes, if any.
        let leaving: Vec<Option<usize>> = (0..ROWS)
            .map(|row| {
                (random.below(3) > 0).then(|| row - random.below(row.min(9000) as u64 + 1) as usize)
            })
            .collect();
        let numbers: Vec<i64> = (0..ROWS as i64).collect();
        let all = columns(&numbers);
        let mut expected = None;
        for (piece_rows, is_slice) in [
            (1, true),
            (1, false),
            (7, true),
            (7, false),
            (1000, true),
            (1000, false),
            (ROWS, true),
        ] {
            let (mut arena, mut places) = (arena(), vec![ArenaPlace::NONE; ROWS]);
            for from in (0..ROWS).step_by(piece_rows) {
                let to = ROWS.min(from + piece_rows);
                for row in from..to {
                    places[row] = ArenaPlace::of_piece((row - from) as u32);
                    if let Some(gone) = leaving[row] {
                        let place = std::mem::replace(&mut places[gone], ArenaPlace::NONE);
                        if place.is_kept() {
                            arena.remove(place);
                        }
                    }
                }
                let left = (from..to).filter(|&row| places[row].piece_row().is_some());
                let owners: Vec<u32> = left.map(|row| row as u32).collect();
                let set = |owner: u32, place| places[owner as usize] = place;
                if is_slice {
                    arena.append(&all, &owners, owners.clone(), ROWS, set).unwrap();
                } else {
                    let own: Vec<ArrayRef> =
                        all.iter().map(|column| column.slice(from, to - from)).collect();
                    let rows: Vec<u32> = owners.iter().map(|row| row - from as u32).collect();
                    arena.append(&own, &rows, owners, to - from, set).unwrap();
                }
                arena.tidy(|owner, place| places[owner as usize] = place).unwrap();
            }
            let live = (0..ROWS).filter(|&row| places[row].is_kept());
            let live: Vec<ArenaPlace> = live.map(|row| places[row]).collect();
            let found = arena.gather(&live, &[], &[0, 1]).unwrap();
            let texts = found[1].as_string_view();
            for (number, shown) in found[0].as_primitive::<Int64Type>().values().iter().zip(texts) {
                assert_eq!(shown, Some(&text(*number)[..]));
            }
            let numbers = found[0].as_primitive::<Int64Type>().values().to_vec();
            assert_eq!(expected.get_or_insert_with(|| numbers.clone()), &numbers);
        }
        assert!(expected.is_some_and(|rows| rows.len() > ROWS / 3));
    }

    /// `SELECT COUNT(*)` over rows of which no column is read.
    #[test]
    fn rows_without_columns_come_and_go() {
        let mut arena = Arena::new(Arc::new(Schema::empty()));
        let mut places = vec![ArenaPlace::NONE; 3000];
        for row in 0..3000 {
            let set = |owner: u32, place| places[owner as usize] = place;
            arena.append(&[], &[row % 2], vec![row], 0, set).unwrap();
            arena.tidy(|owner, place| places[owner as usize] = place).unwrap();
        }
        assert!(places.iter().all(|place| place.is_kept()));
        places.iter().for_each(|&place| arena.remove(place));
        arena.tidy(|_, _| panic!("no row is left")).unwrap();
        assert_eq!(arena.bytes, 0);
    }

    /// A bundle that comes by two ways (the union of a table with itself) is not one part.
    #[test]
    fn rows_of_a_bundle_may_come_twice() {
        let (mut arena, mut places) = (arena(), vec![ArenaPlace::NONE; 20]);
        let columns = columns(&(0..10).collect::<Vec<i64>>());
        let rows: Vec<u32> = (0..10).collect();
        for first in [0, 10] {
            let owners = rows.iter().map(|row| first + row).collect();
            let set = |owner: u32, place| places[owner as usize] = place;
            arena.append(&columns, &rows, owners, 10, set).unwrap();
        }
        arena.remove(std::mem::replace(&mut places[3], ArenaPlace::NONE));
        arena.tidy(|owner, place| places[owner as usize] = place).unwrap();
        let kept: Vec<ArenaPlace> = places.into_iter().filter(|place| place.is_kept()).collect();
        let found = arena.gather(&kept, &[], &[0]).unwrap().swap_remove(0);
        let expected: Vec<i64> = (0..10).filter(|&n| n != 3).chain(0..10).collect();
        assert_eq!(found.as_primitive::<Int64Type>().values()[..], expected[..]);
    }

    #[test]
    fn segments_without_rows_are_freed() {
        let mut arena = arena();
        let mut places = vec![ArenaPlace::NONE; 5000];
        for start in 0..50_u32 {
            let owners: Vec<u32> = (0..100).map(|n| start * 100 + n).collect();
            let numbers: Vec<i64> = owners.iter().map(|&n| n.into()).collect();
            let rows: Vec<u32> = (0..100).collect();
            let set = |owner: u32, place| places[owner as usize] = place;
            arena.append(&columns(&numbers), &rows, owners, 100, set).unwrap();
        }
        arena.tidy(|owner, place| places[owner as usize] = place).unwrap();
        places.iter().for_each(|&place| arena.remove(place));
        arena.tidy(|_, _| panic!("no row is left")).unwrap();
        assert_eq!(arena.bytes, 0);
        assert!(arena.classes.iter().all(Vec::is_empty));
    }
}
