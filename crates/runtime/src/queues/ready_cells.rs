//! Where cells with something in their mailbox are listed, and which of them comes next.
//!
//! | scheme | a cell is listed | the next one is |
//! |---|---|---|
//! | [`Cells`](PartitionScheme::Cells) | when it gets work and nobody is at it | of the worker's own the one listed first, then of another's |
//! | [`Partitioned`](PartitionScheme::Partitioned) | the same | the next in turn behind the worker's last |
//! | [`Hybrid`](PartitionScheme::Hybrid) | for each item (a *call*) | that of the oldest call |
//!
//! **Invariants.** With `Cells` and `Partitioned` a listed cell has no worker and belongs to
//! whoever takes it from here. With `Hybrid` a call belongs to nobody: whoever takes it makes it
//! ([`Mailbox::call`](thalweg_ordering::Mailbox::call)) and becomes the cell's worker, or leaves
//! the item to the one there is (Prasaad et al., Fig. 7). Each item is in its mailbox before it is
//! called.
//!
//! **Own cells.** Where stages share lines ([`Lines`]), each worker has one, and a cell is always
//! listed in the same: its state stays in the cache of one core while all are busy. Nobody waits
//! for an owner, though: a worker without cells of its own takes those of others before it begins a
//! bundle. Nor do cells wait because others are busy with their own: whoever has emptied its line
//! comes to theirs, and lines are only filled by bundles, which come last.
//!
//! Marks of `Partitioned` are bits: set with Release by whoever lists a cell, cleared with Acquire
//! by the one worker that takes it.
//!
//! What it does not do: cells whose worker has a watermark to hand on are listed elsewhere
//! (`urgent`, lines, too).

use thalweg_ordering::sync::{AtomicU64, AtomicUsize, Ordering, Queue};

use crate::policies::PartitionScheme;

/// Marks in one word.
const BITS: usize = u64::BITS as usize;

/// Cells with something to do.
pub(crate) enum ReadyCells {
    /// Of all stages in one line for each worker.
    ByAge(Lines),
    /// Each stage has a line of its own.
    ByAgeOfStage(Box<[Queue<usize>]>),
    /// A mark for each cell.
    InTurn(Marks),
}

/// A line for each worker, in which those cells stand whose number has its remainder.
pub(crate) struct Lines(Box<[Queue<(usize, usize)>]>);

/// A bit for each cell; stages begin at whole words.
pub(crate) struct Marks {
    words: Box<[AtomicU64]>,
    /// The first word of each stage, and where the last one ends.
    first: Box<[usize]>,
    /// For each worker, the mark behind the one it took last.
    turns: Box<[AtomicUsize]>,
}

impl ReadyCells {
    /// Nothing is listed. `cells` has the number of each stage's cells.
    pub(crate) fn new(
        scheme: PartitionScheme,
        cells: &[usize],
        workers: usize,
        of_stages: bool,
    ) -> Self {
        match scheme {
            PartitionScheme::Partitioned => ReadyCells::InTurn(Marks::new(cells, workers)),
            PartitionScheme::Cells if !of_stages => ReadyCells::ByAge(Lines::new(workers)),
            PartitionScheme::Cells | PartitionScheme::Hybrid => {
                ReadyCells::ByAgeOfStage(cells.iter().map(|_| Queue::new()).collect())
            }
        }
    }

    /// Lists a cell.
    pub(crate) fn list(&self, stage: usize, cell: usize) {
        match self {
            ReadyCells::ByAge(lines) => lines.list(stage, cell),
            ReadyCells::ByAgeOfStage(lines) => lines[stage].push(cell),
            ReadyCells::InTurn(marks) => marks.set(stage, cell),
        }
    }

    /// Takes the cell that is next for a worker; of several stages with lines of their own, from
    /// the one furthest downstream.
    pub(crate) fn take(&self, worker: usize) -> Option<(usize, usize)> {
        match self {
            ReadyCells::ByAge(lines) => lines.take(worker),
            ReadyCells::ByAgeOfStage(lines) => {
                let mut stages = (0..lines.len()).rev();
                stages.find_map(|stage| lines[stage].pop().map(|cell| (stage, cell)))
            }
            ReadyCells::InTurn(marks) => marks.take(worker, 0, marks.words.len()),
        }
    }

    /// The same for one stage, where stages have lines of their own or marks.
    pub(crate) fn take_at(&self, stage: usize, worker: usize) -> Option<usize> {
        match self {
            ReadyCells::ByAge(_) => None,
            ReadyCells::ByAgeOfStage(lines) => lines[stage].pop(),
            ReadyCells::InTurn(marks) => {
                let taken = marks.take(worker, marks.first[stage], marks.first[stage + 1]);
                taken.map(|(_, cell)| cell)
            }
        }
    }
}

impl Lines {
    pub(crate) fn new(workers: usize) -> Self {
        Lines((0..workers.max(1)).map(|_| Queue::new()).collect())
    }

    /// Lists a cell in the line of the worker that it belongs to.
    pub(crate) fn list(&self, stage: usize, cell: usize) {
        self.0[cell % self.0.len()].push((stage, cell));
    }

    /// The first of a worker's own line, or of the next line that has any.
    pub(crate) fn take(&self, worker: usize) -> Option<(usize, usize)> {
        let lines = self.0.len();
        (0..lines).find_map(|step| self.0[(worker + step) % lines].pop())
    }
}

impl Marks {
    fn new(cells: &[usize], workers: usize) -> Self {
        let mut first = vec![0];
        for cells in cells {
            first.push(first[first.len() - 1] + cells.div_ceil(BITS));
        }
        Marks {
            words: (0..first[cells.len()]).map(|_| AtomicU64::new(0)).collect(),
            first: first.into(),
            turns: (0..workers.max(1)).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    fn set(&self, stage: usize, cell: usize) {
        let word = &self.words[self.first[stage] + cell / BITS];
        // Release: hands the cell's state to whoever takes it.
        word.fetch_or(1 << (cell % BITS), Ordering::Release);
    }

    /// Takes the next mark in turn among these words.
    fn take(&self, worker: usize, from: usize, to: usize) -> Option<(usize, usize)> {
        if from == to {
            return None;
        }
        let turn = &self.turns[worker % self.turns.len()];
        // Relaxed: the worker's own, and only a starting point.
        let begin = match turn.load(Ordering::Relaxed) {
            begin if (from * BITS..to * BITS).contains(&begin) => begin,
            _ => from * BITS,
        };
        let ahead = u64::MAX << (begin % BITS);
        let words = (begin / BITS..to).chain(from..begin / BITS).map(|word| (word, u64::MAX));
        let mut words = words.chain([(begin / BITS, !ahead)]);
        let first = words.next().map(|(word, _)| (word, ahead));
        let (word, bit) = first
            .into_iter()
            .chain(words)
            .find_map(|(word, among)| self.take_of_word(word, among).map(|bit| (word, bit)))?;
        turn.store(word * BITS + bit + 1, Ordering::Relaxed);
        let stage = self.first.partition_point(|&first| first <= word) - 1;
        Some((stage, (word - self.first[stage]) * BITS + bit))
    }

    fn take_of_word(&self, word: usize, among: u64) -> Option<usize> {
        // Relaxed: whatever is seen here is taken below, or is another worker's.
        let mut marks = self.words[word].load(Ordering::Relaxed) & among;
        while marks != 0 {
            let bit = marks.trailing_zeros();
            // Acquire: takes the cell's state over from whoever listed it.
            let before = self.words[word].fetch_and(!(1 << bit), Ordering::Acquire);
            if before & (1 << bit) != 0 {
                return Some(bit as usize);
            }
            marks = before & among & (u64::MAX << bit);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_takes_its_own_cells_first_and_then_those_of_others() {
        let ready = ReadyCells::new(PartitionScheme::Cells, &[0, 4, 4], 3, false);
        for (stage, cell) in [(1, 0), (1, 1), (2, 3), (2, 2), (1, 3)] {
            ready.list(stage, cell);
        }
        assert_eq!(ready.take(0), Some((1, 0)), "what was listed first");
        assert_eq!(ready.take(0), Some((2, 3)));
        assert_eq!(ready.take(2), Some((2, 2)));
        assert_eq!(ready.take(2), Some((1, 3)), "none of its own: the next worker's");
        assert_eq!(ready.take(5), Some((1, 1)), "more workers than lines");
        assert_eq!(ready.take(0), None);
    }

    #[test]
    fn marks_are_taken_in_turn_from_where_the_worker_was() {
        let ready = ReadyCells::new(PartitionScheme::Partitioned, &[0, 100, 0, 3], 2, false);
        for (stage, cell) in [(3, 2), (1, 99), (1, 5), (1, 64)] {
            ready.list(stage, cell);
        }
        assert_eq!(ready.take(0), Some((1, 5)));
        ready.list(1, 4);
        assert_eq!(ready.take(0), Some((1, 64)), "4 is behind, its turn comes again");
        assert_eq!(ready.take(1), Some((1, 4)), "the other worker begins at the first");
        assert_eq!(ready.take_at(3, 1), Some(2));
        assert_eq!(ready.take_at(0, 1), None);
        ready.list(1, 0);
        assert_eq!(ready.take(0), Some((1, 99)));
        assert_eq!(ready.take(0), Some((1, 0)));
        assert_eq!(ready.take(0), None);
    }

    #[test]
    fn each_mark_is_taken_once() {
        let rounds = if cfg!(miri) { 5 } else { 2_000 };
        let ready = ReadyCells::new(PartitionScheme::Partitioned, &[70], 3, false);
        let taken: [AtomicUsize; 70] = std::array::from_fn(|_| AtomicUsize::new(0));
        let left = AtomicUsize::new(70 * rounds);
        (0..70).for_each(|cell| ready.list(0, cell));
        std::thread::scope(|scope| {
            for worker in 0..3 {
                let (ready, taken, left) = (&ready, &taken, &left);
                scope.spawn(move || {
                    while left.load(Ordering::Relaxed) > 0 {
                        let Some((_, cell)) = ready.take(worker) else { continue };
                        left.fetch_sub(1, Ordering::Relaxed);
                        if taken[cell].fetch_add(1, Ordering::Relaxed) + 1 < rounds {
                            ready.list(0, cell);
                        }
                    }
                });
            }
        });
        assert!(taken.iter().all(|taken| taken.load(Ordering::Relaxed) == rounds));
        assert_eq!(ready.take(0), None);
    }
}
