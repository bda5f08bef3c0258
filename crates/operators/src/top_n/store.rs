//! Rows by number: where each lies, and which numbers are free.
//!
//! Rows of the piece in hand lie in it until [`Store::keep`] moves those that stay into the arena.
//! Until then every place that was named stays good, also of rows that are removed: changes may
//! still have to send them. Numbers are used again only after that, too.
//!
//! Where rows are captured one by one, captures learn here which of them come, go and take the
//! place of others ([`crate::capture`]).
//!
//! A row has two names: its number (`u32`, used again) in the order and in lists, and its serial
//! (`u64`, never used again) in snapshots.

use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use thalweg_core::Result;

use crate::capture::rows::RowTracker;
use crate::rows::arena::{Arena, ArenaPlace};

pub(crate) struct Store {
    pub arena: Arena,
    places: Vec<ArenaPlace>,
    free: Vec<u32>,
    /// Numbers of rows that were removed since the piece began.
    released: Vec<u32>,
    /// Numbers of the rows of the piece.
    arrived: Vec<u32>,
    /// Where rows are captured one by one: set once there has been a capture.
    pub tracker: Option<RowTracker>,
    /// Rows that have gone since the piece began, and that the capture under way has yet to read,
    /// as they were.
    uncaptured: Vec<NumberedRow>,
}

/// A row at the time of a capture: its serial, and where it lies.
pub(crate) type NumberedRow = (u64, ArenaPlace);

impl Store {
    pub fn new(schema: SchemaRef) -> Self {
        Store {
            arena: Arena::new(schema),
            places: Vec::new(),
            free: Vec::new(),
            released: Vec::new(),
            arrived: Vec::new(),
            tracker: None,
            uncaptured: Vec::new(),
        }
    }

    /// Takes a row of the piece in.
    pub fn add(&mut self, piece_row: u32) -> u32 {
        let row = self.free.pop().unwrap_or_else(|| {
            self.places.push(ArenaPlace::NONE);
            self.places.len() as u32 - 1
        });
        self.places[row as usize] = ArenaPlace::of_piece(piece_row);
        self.arrived.push(row);
        if let Some(tracker) = &mut self.tracker {
            tracker.add(row);
        }
        row
    }

    /// Removes a row whose place in the order another one has taken; to captures they are one.
    pub fn replace(&mut self, old: u32, new: u32) {
        self.touch(old);
        if let Some(tracker) = &mut self.tracker {
            tracker.replace(old, new);
        }
        self.release(old);
    }

    /// A row is about to go: it is captured as it is if a capture has yet to read it.
    fn touch(&mut self, row: u32) {
        if let Some(tracker) = &mut self.tracker
            && tracker.touch(row)
        {
            self.uncaptured.push((tracker.serial(row), self.places[row as usize]));
        }
    }

    #[inline]
    pub fn place(&self, row: u32) -> ArenaPlace {
        self.places[row as usize]
    }

    /// Removes a row. Its serial, if a capture has it.
    pub fn remove(&mut self, row: u32) -> Option<u64> {
        self.touch(row);
        let serial = self.tracker.as_mut().and_then(|tracker| tracker.remove(row));
        self.release(row);
        serial
    }

    fn release(&mut self, row: u32) {
        let place = std::mem::replace(&mut self.places[row as usize], ArenaPlace::NONE);
        if place.is_kept() {
            self.arena.remove(place);
        }
        self.released.push(row);
    }

    /// The columns of a row, and its number in them.
    pub fn find<'a>(&'a self, row: u32, piece: &'a [ArrayRef]) -> (&'a [ArrayRef], usize) {
        self.arena.find(self.place(row), piece)
    }

    /// Some rows that the capture under way has yet to read; `None` once there are none left.
    pub fn take_unread(&mut self, most: usize) -> Option<Vec<NumberedRow>> {
        let tracker = self.tracker.as_mut()?;
        let unread = tracker.take_unread(most, self.places.len());
        let numbered = |&row: &u32| (tracker.serial(row), self.places[row as usize]);
        let live = unread.iter().filter(|&&row| self.places[row as usize].is_kept());
        (!unread.is_empty()).then(|| live.map(numbered).collect())
    }

    /// Rows that have gone since the piece began, and that the capture under way has yet to read,
    /// as they were.
    pub fn take_uncaptured(&mut self) -> Vec<NumberedRow> {
        std::mem::take(&mut self.uncaptured)
    }

    /// Numbers are below this.
    pub fn limit(&self) -> usize {
        self.places.len()
    }

    /// How many rows there are.
    pub fn live(&self) -> usize {
        self.places.len() - self.free.len() - self.released.len()
    }

    /// Ends a piece of rows of these columns.
    pub fn keep(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let Store { arena, places, arrived, .. } = self;
        let mut rows = Vec::with_capacity(arrived.len());
        let mut owners = Vec::with_capacity(arrived.len());
        for row in arrived.drain(..) {
            if let Some(of_piece) = places[row as usize].piece_row() {
                rows.push(of_piece);
                owners.push(row);
            }
        }
        let mut set = |row: u32, place| places[row as usize] = place;
        if !rows.is_empty() {
            let piece_rows = columns.first().map_or(0, |column| column.len());
            arena.append(columns, &rows, owners, piece_rows, &mut set)?;
        }
        arena.tidy(&mut set)?;
        self.free.append(&mut self.released);
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        let numbers = self.free.capacity() + self.released.capacity() + self.arrived.capacity();
        self.arena.bytes()
            + self.places.capacity() * size_of::<ArenaPlace>()
            + numbers * 4
            + self.uncaptured.capacity() * size_of::<NumberedRow>()
            + self.tracker.as_ref().map_or(0, RowTracker::bytes)
    }
}
