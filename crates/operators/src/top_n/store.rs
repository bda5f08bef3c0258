//! Rows by number: where each lies, and which numbers are free.
//!
//! Rows of the piece in hand lie in it until [`Store::keep`] moves those that stay into the arena.
//! Until then every place that was named stays good, also of rows that are removed: changes may
//! still have to send them. Numbers are used again only after that, too.

use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use thalweg_core::Result;

use crate::join::regular::arena::{Arena, Place};

pub(super) struct Store {
    pub arena: Arena,
    places: Vec<Place>,
    free: Vec<u32>,
    /// Numbers of rows that were removed since the piece began.
    released: Vec<u32>,
    /// Numbers of the rows of the piece.
    arrived: Vec<u32>,
}

impl Store {
    pub fn new(schema: SchemaRef) -> Self {
        Store {
            arena: Arena::new(schema),
            places: Vec::new(),
            free: Vec::new(),
            released: Vec::new(),
            arrived: Vec::new(),
        }
    }

    /// Takes a row of the piece in.
    pub fn add(&mut self, piece_row: u32) -> u32 {
        let row = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::NONE);
            self.places.len() as u32 - 1
        });
        self.places[row as usize] = Place::of_piece(piece_row);
        self.arrived.push(row);
        row
    }

    #[inline]
    pub fn place(&self, row: u32) -> Place {
        self.places[row as usize]
    }

    pub fn remove(&mut self, row: u32) {
        let place = std::mem::replace(&mut self.places[row as usize], Place::NONE);
        if place.is_kept() {
            self.arena.remove(place);
        }
        self.released.push(row);
    }

    /// The columns of a row, and its number in them.
    pub fn find<'a>(&'a self, row: u32, piece: &'a [ArrayRef]) -> (&'a [ArrayRef], usize) {
        self.arena.find(self.place(row), piece)
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
        self.arena.bytes() + self.places.capacity() * size_of::<Place>() + numbers * 4
    }
}
