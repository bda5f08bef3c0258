//! An unbounded row of places in blocks that are used again: what the master queue and the queues
//! of the partitions are made of.
//!
//! **The invariant that makes it work:** a block's memory lives as long as the row. Whoever looks
//! at a place too late sees another *turn* there, never freed memory.
//!
//! # Protocol
//! - A [`Position`] is one word: the turn of a block (its ordinal in the chain), which block, and
//!   the offset within. `back` and `front` are such words and only move forward, so a
//!   compare-and-swap of one succeeds only if nothing has happened since it was read.
//! - *Claim at the back*: add 1 to `back`. The claimed place is written by this thread alone, and
//!   says when it is written by carrying the turn.
//! - *Advance to the next block*: whoever gets an offset behind the end of a block links another
//!   block, if nobody has, and moves `back` there, if nobody has. No thread waits for another to do
//!   it.
//! - *Leave a block at the front*: see to it that `back` has left it too, move `front` to the next
//!   one, then keep the block for use again. It gets a new turn when a thread is about to link it;
//!   threads with `back` still there would then look in vain for what is linked behind it.
//!
//! # Why a place is never in two hands
//! A place is claimed again only after its block was kept and linked again: `front` has passed it,
//! so its earlier value was taken. That taking happens before the keeping (Release of `kept`), the
//! taking out of it (Acquire), the link (Release, Acquire), the move of `back` (Release), and the
//! claim (Acquire; claims in between are read-modify-writes and pass it on). A stale thread can't
//! link: a link is swapped in for "nothing, in this turn", and turns don't come back.
//!
//! # Limits
//! 2^21 blocks, and 1900 threads that add at one moment: each may add 1 behind the end of a block
//! once, and the offset has 11 bits. A turn comes again after 2^32 blocks, hours at full speed; a
//! block that has slept so long is not used, a thread that has slept so long, to the block, is not
//! provided for. Memory is given back when the row is dropped, not before.

use std::sync::OnceLock;

use crate::sync::{AtomicU64, Ordering};

/// Bits of a word under its turn.
pub(super) const PAYLOAD_BITS: u32 = 32;
const PAYLOAD: u64 = (1 << PAYLOAD_BITS) - 1;
/// Bits of a position under the number of its block.
const OFFSET_BITS: u32 = 11;
/// Chunks of blocks beyond the first: 1, 2, 4 and so on, so that none has to move.
const CHUNKS: usize = (PAYLOAD_BITS - OFFSET_BITS) as usize;

/// Blocks that every row has.
const FIRST: usize = 2;

/// The turn that no block has.
pub(super) const NEVER: u64 = 0;

/// A word: 32 bits of turn over 32 bits of something.
pub(super) fn word(turn: u64, payload: u64) -> u64 {
    debug_assert!(payload <= PAYLOAD);
    turn << PAYLOAD_BITS | payload
}

pub(super) fn turn_of(word: u64) -> u64 {
    word >> PAYLOAD_BITS
}

pub(super) fn payload_of(word: u64) -> u64 {
    word & PAYLOAD
}

fn turn_after(turn: u64) -> u64 {
    // Only NEVER is not used again.
    wrapped(turn + 1).max(1)
}

fn wrapped(turn: u64) -> u64 {
    turn & (u64::MAX >> PAYLOAD_BITS)
}

/// Where a place is: turn, block and offset in one word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Position(pub(super) u64);

impl Position {
    fn start(turn: u64, block: u64) -> Self {
        Position(word(turn, block << OFFSET_BITS))
    }

    pub(super) fn turn(self) -> u64 {
        turn_of(self.0)
    }

    fn block(self) -> usize {
        (payload_of(self.0) >> OFFSET_BITS) as usize
    }

    pub(super) fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize
    }

    /// The position `places` places later, within the block or at its end.
    pub(super) fn after(self, places: usize) -> Self {
        Position(self.0 + places as u64)
    }
}

struct Block<S, const SIZE: usize> {
    /// Turn of this block, and the number of the next one plus 1, or 0 while nothing is linked.
    next: AtomicU64,
    /// While this block is kept: the number plus 1 of the one kept before it.
    below: AtomicU64,
    places: [S; SIZE],
}

impl<S: Default, const SIZE: usize> Block<S, SIZE> {
    fn new(turn: u64) -> Self {
        Block {
            next: AtomicU64::new(word(turn, 0)),
            below: AtomicU64::new(0),
            places: std::array::from_fn(|_| S::default()),
        }
    }
}

/// Alone on its cache line.
#[repr(align(64))]
struct Apart<T>(T);

/// The row.
pub(super) struct Segments<S, const SIZE: usize> {
    /// Where the next place is claimed. Raised by those who add; whoever leaves a block may help.
    back: Apart<AtomicU64>,
    /// Where the next place is taken; its users say how it moves.
    front: Apart<AtomicU64>,
    /// Blocks to use again, the last one on top: a count of changes as the turn, number plus 1.
    kept: AtomicU64,
    /// How many blocks there are.
    blocks: AtomicU64,
    /// The blocks of a row that never gets long. Finding them costs no look into memory.
    first: [Block<S, SIZE>; FIRST],
    chunks: [OnceLock<Box<[Block<S, SIZE>]>>; CHUNKS],
}

impl<S: Default, const SIZE: usize> Segments<S, SIZE> {
    pub(super) fn new() -> Self {
        const { assert!(SIZE <= 128, "an offset has room for those that add behind the end") };
        let first = Position::start(1, 0).0;
        Segments {
            back: Apart(AtomicU64::new(first)),
            front: Apart(AtomicU64::new(first)),
            kept: AtomicU64::new(0),
            blocks: AtomicU64::new(1),
            first: std::array::from_fn(|block| Block::new(if block == 0 { 1 } else { NEVER })),
            chunks: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    /// Claims the place at the back: it, and the turn to mark it with when it is written.
    #[inline]
    pub(super) fn claim(&self) -> (&S, u64) {
        // Acquire: with the Release of `move_back`, see "Why a place is never in two hands".
        let at = Position(self.back.0.fetch_add(1, Ordering::Acquire));
        if at.offset() < SIZE { (self.place(at), at.turn()) } else { self.claim_behind(at) }
    }

    /// Claims a place in the block behind that of the position.
    #[cold]
    #[inline(never)]
    fn claim_behind(&self, end: Position) -> (&S, u64) {
        let mut at = end;
        while at.offset() >= SIZE {
            self.extend(at);
            // Acquire: as in `claim`.
            at = Position(self.back.0.fetch_add(1, Ordering::Acquire));
        }
        (self.place(at), at.turn())
    }

    /// The place at a position that is not the end of a block.
    #[inline]
    pub(super) fn place(&self, at: Position) -> &S {
        &self.block(at.block()).places[at.offset()]
    }

    /// The position at the front.
    pub(super) fn front(&self, order: Ordering) -> Position {
        Position(self.front.0.load(order))
    }

    /// About how many places are claimed behind the position.
    pub(super) fn claimed_behind(&self, at: Position) -> usize {
        // Relaxed: a guess.
        let back = Position(self.back.0.load(Ordering::Relaxed));
        let blocks = back.turn().wrapping_sub(at.turn()) as usize;
        blocks.wrapping_mul(SIZE).wrapping_add(back.offset()).wrapping_sub(at.offset())
    }

    /// The cell of the front, to move it within a block.
    pub(super) fn front_cell(&self) -> &AtomicU64 {
        &self.front.0
    }

    /// True if the position is the end of a block.
    pub(super) fn is_end(at: Position) -> bool {
        at.offset() == SIZE
    }

    /// The position behind the end of a block, if another one is linked to it in this turn.
    pub(super) fn behind(&self, end: Position) -> Option<Position> {
        // Acquire: with the Release of `link`, for the fields of the next block.
        let next = self.block(end.block()).next.load(Ordering::Acquire);
        let linked = turn_of(next) == end.turn() && payload_of(next) > 0;
        linked.then(|| Position::start(turn_after(end.turn()), payload_of(next) - 1))
    }

    /// Moves the front from the end of a block to the next one. False if there is none, or if the
    /// front is elsewhere.
    #[cold]
    #[inline(never)]
    pub(super) fn leave(&self, end: Position) -> bool {
        let Some(start) = self.behind(end) else { return false };
        self.move_back(end, start);
        // AcqRel: all have taken their items of the block before it is kept. Partners: the moves of
        // `front` within the block; the Acquire load of `front` in the master queue.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        if self.front.0.compare_exchange(end.0, start.0, order.0, order.1).is_err() {
            return false;
        }
        self.keep(end.block());
        true
    }

    /// The back has passed the end of a block: links another one, unless it is, and moves on.
    fn extend(&self, end: Position) {
        // Relaxed: `link` compares, `behind` looks properly.
        let link = &self.block(end.block()).next;
        if link.load(Ordering::Relaxed) == word(end.turn(), 0) {
            self.link(link, end.turn());
        }
        if let Some(start) = self.behind(end) {
            self.move_back(end, start);
        }
    }

    /// Links a block after that of the turn, unless another thread does.
    fn link(&self, link: &AtomicU64, turn: u64) {
        let turn_of_next = turn_after(turn);
        // Relaxed: nobody else has the block. Its places still carry the turn it had last.
        let usable = |&block: &usize| {
            turn_of(self.block(block).next.load(Ordering::Relaxed)) != turn_of_next
        };
        let block = self.take_kept().filter(usable).unwrap_or_else(|| self.make());
        // Relaxed: published by the link.
        self.block(block).next.store(word(turn_of_next, 0), Ordering::Relaxed);
        let next = word(turn, block as u64 + 1);
        // Release: the block's fields, and that its places are free. Partner: `behind`.
        let order = (Ordering::Release, Ordering::Relaxed);
        if link.compare_exchange(word(turn, 0), next, order.0, order.1).is_err() {
            self.keep(block);
        }
    }

    /// Moves the back out of the block, if it is still there.
    fn move_back(&self, end: Position, start: Position) {
        // Relaxed: the swap decides.
        let mut back = self.back.0.load(Ordering::Relaxed);
        while turn_of(back) == end.turn() {
            // Release: the next block's places are free (seen by `behind`). Partner: `claim`.
            let order = (Ordering::Release, Ordering::Relaxed);
            match self.back.0.compare_exchange_weak(back, start.0, order.0, order.1) {
                Ok(_) => return,
                Err(now) => back = now,
            }
        }
    }

    /// Keeps a block for use again.
    fn keep(&self, block: usize) {
        let below = &self.block(block).below;
        // Relaxed: the swap below decides.
        let mut kept = self.kept.load(Ordering::Relaxed);
        loop {
            below.store(payload_of(kept), Ordering::Relaxed);
            let top = word(wrapped(turn_of(kept) + 1), block as u64 + 1);
            // Release: `below`, and that the block's places have been taken. Partner: `take_kept`.
            let order = (Ordering::Release, Ordering::Relaxed);
            match self.kept.compare_exchange_weak(kept, top, order.0, order.1) {
                Ok(_) => return,
                Err(now) => kept = now,
            }
        }
    }

    fn take_kept(&self) -> Option<usize> {
        // Acquire: with the Release of `keep`; takings in between are read-modify-writes.
        let mut kept = self.kept.load(Ordering::Acquire);
        loop {
            let block = payload_of(kept).checked_sub(1)? as usize;
            // Relaxed: if the block has been taken by now, the swap fails for the count of changes.
            let below = self.block(block).below.load(Ordering::Relaxed);
            let top = word(wrapped(turn_of(kept) + 1), below);
            let order = (Ordering::Acquire, Ordering::Acquire);
            match self.kept.compare_exchange_weak(kept, top, order.0, order.1) {
                Ok(_) => return Some(block),
                Err(now) => kept = now,
            }
        }
    }

    #[cfg(test)]
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    fn make(&self) -> usize {
        // Relaxed: only hands out numbers.
        let block = self.blocks.fetch_add(1, Ordering::Relaxed) as usize;
        assert!(block + 1 < 1 << CHUNKS, "a queue holds at most 2^21 blocks");
        if block >= FIRST {
            let (chunk, _) = chunk_of(block);
            self.chunks[chunk].get_or_init(|| (0..1 << chunk).map(|_| Block::new(NEVER)).collect());
        }
        block
    }
}

impl<S, const SIZE: usize> Segments<S, SIZE> {
    #[inline]
    fn block(&self, number: usize) -> &Block<S, SIZE> {
        if number < FIRST { &self.first[number] } else { self.other_block(number) }
    }

    #[cold]
    #[inline(never)]
    fn other_block(&self, number: usize) -> &Block<S, SIZE> {
        let (chunk, within) = chunk_of(number);
        &self.chunks[chunk].get().expect("a block has its number after its chunk is made")[within]
    }
}

/// The chunk of a block that is not one of the first, and which one it is there.
fn chunk_of(block: usize) -> (usize, usize) {
    let number = block - FIRST + 1;
    let chunk = number.ilog2() as usize;
    (chunk, number - (1 << chunk))
}
