//! One row for each key, by the key's number.
//!
//! Rows of the piece in hand lie in it until [`KeptRows::keep`]; until then every place that was
//! named stays good.

use arrow_array::{Array, ArrayRef};
use arrow_schema::SchemaRef;
use thalweg_core::Result;

use crate::rows::arena::{Arena, ArenaPlace};

pub(super) struct KeptRows {
    pub arena: Arena,
    places: Vec<ArenaPlace>,
}

impl KeptRows {
    pub fn new(schema: SchemaRef) -> Self {
        KeptRows { arena: Arena::new(schema), places: Vec::new() }
    }

    pub fn grow(&mut self, limit: usize) {
        self.places.resize(limit, ArenaPlace::NONE);
    }

    /// A row of the piece takes the place of the one before, which is returned.
    #[inline]
    pub fn set(&mut self, id: u32, piece_row: u32) -> Option<ArenaPlace> {
        let old = std::mem::replace(&mut self.places[id as usize], ArenaPlace::of_piece(piece_row));
        self.released(old)
    }

    pub fn remove(&mut self, id: u32) -> Option<ArenaPlace> {
        let old = std::mem::replace(&mut self.places[id as usize], ArenaPlace::NONE);
        self.released(old)
    }

    fn released(&mut self, old: ArenaPlace) -> Option<ArenaPlace> {
        if old.is_kept() {
            self.arena.remove(old);
        }
        (old != ArenaPlace::NONE).then_some(old)
    }

    /// The columns of a key's row and its number in them.
    pub fn find<'a>(&'a self, id: u32, piece: &'a [ArrayRef]) -> Option<(&'a [ArrayRef], usize)> {
        self.has(id).then(|| self.arena.find(self.places[id as usize], piece))
    }

    pub fn has(&self, id: u32) -> bool {
        self.places[id as usize] != ArenaPlace::NONE
    }

    /// Where the row of a key lies; [`ArenaPlace::NONE`] without one.
    pub fn place(&self, id: u32) -> ArenaPlace {
        self.places.get(id as usize).copied().unwrap_or(ArenaPlace::NONE)
    }

    /// Ends a piece: `rows` are the numbers of its keys and its rows, as they came.
    pub fn keep(
        &mut self,
        rows: impl Iterator<Item = (u32, u32)>,
        columns: &[ArrayRef],
    ) -> Result<()> {
        let KeptRows { arena, places } = self;
        let is_kept = |&(id, row): &(u32, u32)| places[id as usize] == ArenaPlace::of_piece(row);
        let (owners, rows): (Vec<u32>, Vec<u32>) = rows.filter(is_kept).unzip();
        let mut set = |id: u32, place| places[id as usize] = place;
        if !rows.is_empty() {
            let piece_rows = columns.first().map_or(0, |column| column.len());
            arena.append(columns, &rows, owners, piece_rows, &mut set)?;
        }
        arena.tidy(&mut set)
    }

    pub fn bytes(&self) -> usize {
        self.arena.bytes() + self.places.capacity() * size_of::<ArenaPlace>()
    }
}
