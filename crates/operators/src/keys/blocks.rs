//! The bytes of long texts, side by side in blocks: a text costs its bytes and four more, and no
//! allocation.
//!
//! A text is named by the view that its key has, as Arrow lays views out: length, first four bytes,
//! the number of its block, and where it begins there. Whoever has the views passes them in where
//! texts move.
//!
//! # Memory of texts that went
//! A block whose texts have gone for more than half, by bytes, is given up: what is left of it
//! moves to the block that is being filled, and so does what is left of that one itself once it has
//! [`OPEN_BYTES_MIN`]. So at most half of the bytes are dead, but for these, and each block is
//! given up at the price of moving less than half of it.
//!
//! Blocks may also be taken over from columns ([`TextBlocks::take_over`]): then nothing is copied
//! at all.
//!
//! **Invariants**
//! - `ids` of a block names every key whose text lies there, and perhaps some that have gone. A
//!   view of a key that is there decides: it names the block, or the entry is stale.
//! - A view that is handed out is valid until the next `remove` or `end_take_over`, which may move
//!   texts. Both change the views that the caller passes in.
//! - `live` counts bytes of live texts, so `is_mostly_dead` needs no walk.

use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::{Array, ArrayRef, StringViewArray};
use arrow_buffer::Buffer;
use thalweg_core::{Error, Result};

use crate::gradual::Pages;

/// A block takes no more than this, unless it is of one text.
const BLOCK_BYTES: usize = 128 * 1024;

/// A block that is being filled and has less than this is not given up, however little of it is
/// left.
const OPEN_BYTES_MIN: usize = 4 * 1024;

/// The longest text that lies within its view.
pub(super) const INLINE_MAX: u32 = 12;

/// True where the text lies in a block, and not in the view itself.
#[inline(always)]
pub(super) fn is_long(view: u128) -> bool {
    view as u32 > INLINE_MAX
}

fn length(view: u128) -> usize {
    view as u32 as usize
}

fn block_of(view: u128) -> u32 {
    (view >> 64) as u32
}

fn offset(view: u128) -> usize {
    (view >> 96) as u32 as usize
}

/// The same length and first bytes, at another place.
fn placed(view: u128, block: u32, offset: usize) -> u128 {
    u128::from(view as u64) | (u128::from(block) << 64) | ((offset as u128) << 96)
}

enum Bytes {
    Own(String),
    /// Texts that came in a column.
    Taken(Buffer),
}

struct Block {
    bytes: Bytes,
    /// Whose texts lie here, and of some that have gone.
    ids: Vec<u32>,
    /// The bytes of texts that are there.
    live: usize,
}

impl Default for Block {
    fn default() -> Self {
        Block { bytes: Bytes::Own(String::new()), ids: Vec::new(), live: 0 }
    }
}

impl Block {
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Own(text) => text.as_bytes(),
            Bytes::Taken(buffer) => buffer,
        }
    }
    fn text(&self, view: u128) -> &str {
        let place = offset(view)..offset(view) + length(view);
        match &self.bytes {
            Bytes::Own(text) => &text[place],
            Bytes::Taken(buffer) => {
                std::str::from_utf8(&buffer[place]).expect("what was a text of a column is UTF-8")
            }
        }
    }
    fn is_mostly_dead(&self) -> bool {
        self.live < self.bytes().len() / 2
    }
    fn memory(&self) -> usize {
        let bytes = match &self.bytes {
            Bytes::Own(text) => text.capacity(),
            Bytes::Taken(buffer) => buffer.len(),
        };
        bytes + self.ids.capacity() * size_of::<u32>()
    }
}

/// All memory that a column's texts lie in, with what else lies there.
fn memory_of(column: &StringViewArray) -> usize {
    // Buffers that were read together lie in one piece of memory, one behind the other.
    let mut last = None;
    let new = |buffer: &&Buffer| last.replace(buffer.data_ptr()) != Some(buffer.data_ptr());
    column.data_buffers().iter().filter(new).map(Buffer::capacity).sum()
}

/// Texts on their way into a column: it is seen of all at once that they are UTF-8.
#[derive(Default)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    /// Where each ends; `None` for NULL.
    ends: Vec<Option<usize>>,
}

impl Texts {
    #[inline]
    pub fn push(&mut self, text: Option<&[u8]>) {
        self.bytes.extend_from_slice(text.unwrap_or_default());
        self.ends.push(text.map(|_| self.bytes.len()));
    }

    /// The column.
    ///
    /// # Errors
    /// If they are not UTF-8, which texts of keys are.
    pub fn finish(self) -> Result<ArrayRef> {
        let no_text = || Error::internal("a key's text is not UTF-8");
        let texts = String::from_utf8(self.bytes).map_err(|_| no_text())?;
        let mut strings = StringViewBuilder::with_capacity(self.ends.len());
        let mut from = 0;
        for end in self.ends {
            let text = end.map(|end| texts.get(from..end).ok_or_else(no_text)).transpose()?;
            strings.append_option(text);
            from = end.unwrap_or(from);
        }
        Ok(Arc::new(strings.finish()))
    }
}

/// Texts in blocks.
#[derive(Default)]
pub(super) struct TextBlocks {
    /// By number.
    blocks: Vec<Block>,
    /// The block that is being filled.
    open: Option<u32>,
    /// Blocks without texts, some of them with memory.
    empty: Vec<u32>,
    /// Blocks to be given up.
    dead: Vec<u32>,
}

impl TextBlocks {
    /// The bytes of a long text.
    #[inline]
    pub fn bytes_of(&self, view: u128) -> &[u8] {
        &self.blocks[block_of(view) as usize].bytes()[offset(view)..offset(view) + length(view)]
    }

    /// Keeps a copy of the long text of a key. Returns its view.
    pub fn put(&mut self, id: u32, text: &str, view: u128) -> u128 {
        let number = self.block_for(text.len());
        let block = &mut self.blocks[number as usize];
        let Bytes::Own(bytes) = &mut block.bytes else {
            unreachable!("what is filled was not taken over");
        };
        let offset = bytes.len();
        bytes.push_str(text);
        block.ids.push(id);
        block.live += text.len();
        placed(view, number, offset)
    }

    /// A block of the table's own with room for this many bytes.
    ///
    /// The first block grows with its texts, since most tables have few long keys: they should not
    /// cost 128 KiB each.
    fn block_for(&mut self, bytes: usize) -> u32 {
        if let Some(open) = self.open {
            let used = self.blocks[open as usize].bytes().len();
            if used + bytes <= BLOCK_BYTES {
                return open;
            }
            self.close(open);
        }
        // While no other block has texts it grows with its own. (More than two have been needed at
        // some time.)
        let is_first = self.blocks.len() <= 2 && self.blocks.iter().all(|block| block.live == 0);
        let wanted = if is_first { bytes } else { bytes.max(BLOCK_BYTES) };
        let number = self.empty.pop().unwrap_or_else(|| {
            self.blocks.push(Block::default());
            self.blocks.len() as u32 - 1
        });
        if let Bytes::Own(text) = &mut self.blocks[number as usize].bytes {
            text.reserve_exact(wanted);
        }
        self.open = Some(number);
        number
    }

    fn close(&mut self, number: u32) {
        let block = &mut self.blocks[number as usize];
        block.ids.shrink_to_fit();
        if block.is_mostly_dead() {
            self.dead.push(number);
        }
        self.open = None;
    }

    /// The text of a key goes, whose view is none of `views` any more.
    pub fn remove(&mut self, view: u128, views: &mut Pages<u128>) {
        let number = block_of(view);
        let block = &mut self.blocks[number as usize];
        let was_mostly_dead = block.is_mostly_dead();
        block.live = block.live.saturating_sub(length(view));
        let is_open = self.open == Some(number);
        let is_due = if is_open { block.bytes().len() >= OPEN_BYTES_MIN } else { !was_mostly_dead };
        if is_due && block.is_mostly_dead() {
            self.open = self.open.filter(|_| !is_open);
            self.dead.push(number);
        }
        // What moves may fill a block that is mostly dead by then.
        while let Some(number) = self.dead.pop() {
            self.give_up(number, views);
        }
    }

    /// Moves what is left of a block.
    fn give_up(&mut self, number: u32, views: &mut Pages<u128>) {
        let block = std::mem::take(&mut self.blocks[number as usize]);
        for &id in &block.ids {
            let view = views[id as usize];
            // A key may have come to the block twice; then it has moved already.
            if is_long(view) && block_of(view) == number {
                views[id as usize] = self.put(id, block.text(view), view);
            }
        }
        self.empty.push(number);
    }

    /// Takes the blocks of a column over, if they hold little else than its texts. Returns the
    /// number of the first one: views of the column are then made those of texts with
    /// [`TextBlocks::put_taken`]. [`TextBlocks::end_take_over`] has to follow.
    pub fn take_over(&mut self, column: &StringViewArray) -> Option<u32> {
        let long = |view: &&u128| is_long(**view);
        let texts: usize = column.views().iter().filter(long).map(|&view| length(view)).sum();
        if texts == 0 || column.null_count() > 0 || memory_of(column) > texts + texts / 3 {
            return None;
        }
        let first = self.blocks.len() as u32;
        self.blocks.extend(
            column
                .data_buffers()
                .iter()
                .map(|buffer| Block { bytes: Bytes::Taken(buffer.clone()), ..Block::default() }),
        );
        Some(first)
    }

    /// The long text of a key stays where it lies in a column that was taken over. Returns its
    /// view.
    pub fn put_taken(&mut self, id: u32, view: u128, first: u32) -> u128 {
        let number = first + block_of(view);
        let block = &mut self.blocks[number as usize];
        block.ids.push(id);
        block.live += length(view);
        placed(view, number, offset(view))
    }

    /// All texts of a column have been put: gives blocks up that hold few.
    pub fn end_take_over(&mut self, first: u32, views: &mut Pages<u128>) {
        for number in first..self.blocks.len() as u32 {
            let block = &mut self.blocks[number as usize];
            block.ids.shrink_to_fit();
            if matches!(block.bytes, Bytes::Taken(_)) && block.is_mostly_dead() {
                self.give_up(number, views);
            }
        }
    }

    /// All texts go, and their memory but for the block that was being filled.
    pub fn clear(&mut self) {
        let open = self.open.map(|open| std::mem::take(&mut self.blocks[open as usize]));
        *self = TextBlocks::default();
        if let Some(mut block) = open {
            block.ids.clear();
            block.live = 0;
            if let Bytes::Own(text) = &mut block.bytes {
                text.clear();
            }
            self.blocks.push(block);
            self.open = Some(0);
        }
    }

    /// About how many bytes it takes.
    pub fn memory(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(Block::memory).sum();
        let numbers = (self.empty.capacity() + self.dead.capacity()) * size_of::<u32>();
        blocks + self.blocks.capacity() * size_of::<Block>() + numbers
    }
}
