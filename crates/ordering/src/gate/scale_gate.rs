//! The channel that merges (Viper's ScaleGate).
//!
//! **The invariant that makes it work:** a source publishes a tuple before it moves its frontier,
//! and a reader reads the frontier before it looks for a tuple; so if it finds none, every tuple
//! that it has not seen is at or after the frontier that it read.
//!
//! # Protocol
//! - Each source appends to a list of segments of its own: write the tuple into the next place,
//!   then raise `published` (Release), then the frontier (Release).
//! - Each reader has a cursor in each list. To get the next tuple it reads, source by source, first
//!   the frontier (Acquire), then whether a tuple stands at its cursor (Acquire of `published`).
//!   The least (time, source) among tuples and frontiers decides: if it is a tuple, the tuple is
//!   ready; if it is a frontier, the tuple may still come.
//! - Flow control: a reader acknowledges what it has taken of each source (Release), a source that
//!   is `bound` ahead of the slowest reader is refused (Acquire). Nothing is lost: the tuple comes
//!   back.
//!
//! # Why every reader sees the same sequence
//! The order (time, source, position) is total and depends on the tuples alone. A ready tuple is
//! the least of all tuples not taken yet: those that stand at cursors were compared, those that do
//! not are at or after the frontiers that were compared. So the sequence is the sorted one,
//! whatever the timing.
//!
//! # Memory
//! Segments are linked forwards and counted by reference; one is freed when the source and all
//! readers have left it. What it costs: a tuple is cloned once per reader.
//!
//! What it does not do: nobody waits in here. A reader without a ready tuple gets `None`, a source
//! without room its tuple back; who parks them is the caller's business.

use crate::sync::{Arc, AtomicI64, AtomicU64, AtomicUsize, Mutex, Ordering, UnsafeCell};

use super::Refused;

/// Tuples per segment.
#[cfg(not(loom))]
const SEGMENT: usize = 256;
#[cfg(loom)]
const SEGMENT: usize = 2;

/// Nothing more will come.
const ENDED: i64 = i64::MAX;

struct Segment<T> {
    /// Written by the source before it raises `published` past the place, read by readers after.
    tuples: Box<[UnsafeCell<Option<(i64, T)>>]>,
    /// How many places are filled. Written by the source, read by readers.
    published: AtomicUsize,
    /// The segment behind this one. Set by the source, once, before a tuple of it is published;
    /// readers look at it when they have read all places. The lock is touched once per segment.
    next: Mutex<Option<Arc<Segment<T>>>>,
}

// SAFETY: a place is written once, by the source, before `published` is raised past it with
// Release; readers load `published` with Acquire and only share what stands before it.
unsafe impl<T: Send + Sync> Sync for Segment<T> {}
// SAFETY: as above; the tuples move with the segment.
unsafe impl<T: Send + Sync> Send for Segment<T> {}

impl<T> Segment<T> {
    fn new() -> Arc<Self> {
        Arc::new(Segment {
            tuples: (0..SEGMENT).map(|_| UnsafeCell::new(None)).collect(),
            published: AtomicUsize::new(0),
            next: Mutex::new(None),
        })
    }
}

struct Source<T> {
    /// No later tuple is older. Written by the source, read by readers.
    frontier_ms: AtomicI64,
    /// What each reader has taken. Written by that reader, read by the source.
    taken: Box<[AtomicU64]>,
    /// The first segment, until all readers have begun.
    first: Mutex<Option<Arc<Segment<T>>>>,
}

/// What sources and readers share.
pub struct ScaleGate<T> {
    sources: Box<[Source<T>]>,
    bound: u64,
}

/// The right to add as one source.
pub struct GateSource<T> {
    gate: Arc<ScaleGate<T>>,
    place: usize,
    segment: Arc<Segment<T>>,
    /// Tuples added so far.
    added: u64,
    /// The slowest reader as last seen.
    slowest: u64,
}

/// The right to read the merged sequence, all of it.
pub struct GateReader<T> {
    gate: Arc<ScaleGate<T>>,
    place: usize,
    cursors: Vec<Cursor<T>>,
}

struct Cursor<T> {
    segment: Arc<Segment<T>>,
    /// The next place in it.
    next: usize,
    /// How many places were published when it was looked at.
    published: usize,
    taken: u64,
}

impl<T: Clone + Send + Sync> ScaleGate<T> {
    /// A channel: its sources, in the order in which ties are decided, and its readers. A source
    /// may be `bound` tuples ahead of the slowest reader.
    pub fn register(
        sources: usize,
        readers: usize,
        bound: usize,
    ) -> (Vec<GateSource<T>>, Vec<GateReader<T>>) {
        let source = |_| Source {
            frontier_ms: AtomicI64::new(i64::MIN),
            taken: (0..readers).map(|_| AtomicU64::new(0)).collect(),
            first: Mutex::new(Some(Segment::new())),
        };
        let sources_of: Box<[Source<T>]> = (0..sources).map(source).collect();
        let gate = Arc::new(ScaleGate { sources: sources_of, bound: bound.max(1) as u64 });
        let first = |place: usize| -> Arc<Segment<T>> {
            let first = gate.sources[place].first.lock().expect("no panic under this lock");
            Arc::clone(first.as_ref().expect("not taken yet"))
        };
        let cursor = |place| Cursor { segment: first(place), next: 0, published: 0, taken: 0 };
        let readers: Vec<GateReader<T>> = (0..readers)
            .map(|place| GateReader {
                gate: Arc::clone(&gate),
                place,
                cursors: (0..sources).map(cursor).collect(),
            })
            .collect();
        let sources = (0..sources)
            .map(|place| GateSource {
                gate: Arc::clone(&gate),
                place,
                segment: first(place),
                added: 0,
                slowest: 0,
            })
            .collect();
        for source in &gate.sources {
            source.first.lock().expect("no panic under this lock").take();
        }
        (sources, readers)
    }
}

impl<T> GateSource<T> {
    fn of(&self) -> &Source<T> {
        &self.gate.sources[self.place]
    }

    /// Adds a tuple.
    ///
    /// # Errors
    /// The tuple, if it is older than the one before it or than a promise, or if the slowest reader
    /// is too far behind. A time of `i64::MAX` is kept for the end.
    pub fn add(&mut self, time_ms: i64, tuple: T) -> Result<(), Refused<T>> {
        // Relaxed: only this source writes it.
        let frontier_ms = self.of().frontier_ms.load(Ordering::Relaxed);
        if time_ms < frontier_ms || time_ms == ENDED {
            return Err(Refused::OutOfOrder { tuple, frontier_ms });
        }
        if !self.has_room() {
            return Err(Refused::Full { tuple });
        }
        // Relaxed: only this source writes it.
        let mut place = self.segment.published.load(Ordering::Relaxed);
        if place == SEGMENT {
            let next = Segment::new();
            let mut link = self.segment.next.lock().expect("no panic under this lock");
            *link = Some(Arc::clone(&next));
            drop(link);
            (self.segment, place) = (next, 0);
        }
        // SAFETY: the place is not published, and only this source writes to its segments.
        self.segment.tuples[place].with_mut(|at| unsafe { *at = Some((time_ms, tuple)) });
        // Release: pairs with the Acquire in `Cursor::head`.
        self.segment.published.store(place + 1, Ordering::Release);
        self.added += 1;
        // Release: a reader that sees this frontier sees the tuple, which was published before.
        self.of().frontier_ms.store(time_ms, Ordering::Release);
        Ok(())
    }

    /// True if the slowest reader is less than the bound behind. Looks at the readers only when
    /// what it knows of them is too old.
    fn has_room(&mut self) -> bool {
        if self.added.saturating_sub(self.slowest) < self.gate.bound {
            return true;
        }
        // Acquire: pairs with the Release of the reader's acknowledgement.
        let taken = self.of().taken.iter().map(|taken| taken.load(Ordering::Acquire));
        self.slowest = taken.min().unwrap_or(self.added);
        self.added.saturating_sub(self.slowest) < self.gate.bound
    }

    /// Promises that no later tuple has a time at or before this one (a watermark, a heartbeat).
    pub fn advance(&mut self, watermark_ms: i64) {
        let frontier_ms = watermark_ms.saturating_add(1).min(ENDED - 1);
        // Relaxed: only this source writes it.
        if frontier_ms > self.of().frontier_ms.load(Ordering::Relaxed) {
            self.of().frontier_ms.store(frontier_ms, Ordering::Release);
        }
    }
}

/// A source that is dropped has ended: nothing more will come from it.
impl<T> Drop for GateSource<T> {
    fn drop(&mut self) {
        self.of().frontier_ms.store(ENDED, Ordering::Release);
    }
}

impl<T> Cursor<T> {
    /// The time of the tuple that stands here, if one is published.
    fn head(&mut self) -> Option<i64> {
        if self.next == self.published {
            // Acquire: pairs with the Release in `add`; what stands before it is visible.
            self.published = self.segment.published.load(Ordering::Acquire);
        }
        if self.next == SEGMENT {
            let next = self.segment.next.lock().expect("no panic under this lock").clone()?;
            (self.segment, self.next) = (next, 0);
            self.published = self.segment.published.load(Ordering::Acquire);
        }
        (self.next < self.published).then(|| self.at(|(time_ms, _)| *time_ms))
    }

    fn at<R>(&self, read: impl FnOnce(&(i64, T)) -> R) -> R {
        self.segment.tuples[self.next].with(|at| {
            // SAFETY: the place stands before `published`, so it is written and never written
            // again.
            let tuple = unsafe { &*at };
            read(tuple.as_ref().expect("a published place is filled"))
        })
    }
}

impl<T: Clone> GateReader<T> {
    /// The next ready tuple with its source and time; `None` if it may still come, or never will.
    pub fn get_ready(&mut self) -> Option<(usize, i64, T)> {
        // The frontier is read before the tuple is looked for, see the module header.
        let heads = self.cursors.iter_mut().enumerate().map(|(place, cursor)| {
            let frontier_ms = self.gate.sources[place].frontier_ms.load(Ordering::Acquire);
            match cursor.head() {
                Some(time_ms) => (time_ms, place, true),
                None => (frontier_ms, place, false),
            }
        });
        let (time_ms, place, is_tuple) = heads.min()?;
        if !is_tuple {
            return None;
        }
        let cursor = &mut self.cursors[place];
        let tuple = cursor.at(|(_, tuple)| tuple.clone());
        cursor.next += 1;
        cursor.taken += 1;
        // Release: acknowledges; the source may reuse the room.
        self.gate.sources[place].taken[self.place].store(cursor.taken, Ordering::Release);
        Some((place, time_ms, tuple))
    }

    /// True if all sources have ended and everything was read.
    pub fn has_ended(&mut self) -> bool {
        let gate = &self.gate;
        self.cursors.iter_mut().enumerate().all(|(place, cursor)| {
            let ended = gate.sources[place].frontier_ms.load(Ordering::Acquire) == ENDED;
            ended && cursor.head().is_none()
        })
    }
}

/// A reader that is dropped holds no source back.
impl<T> Drop for GateReader<T> {
    fn drop(&mut self) {
        for source in &self.gate.sources {
            source.taken[self.place].store(u64::MAX, Ordering::Release);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    //! Cost of the bounds: two sources with two tuples each on two threads, segments of two places,
    //! two preemptions; seconds in release.
    use super::*;
    use crate::sync::thread;

    #[test]
    fn every_schedule_gives_the_sorted_sequence() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let (mut sources, mut readers) = ScaleGate::<u32>::register(2, 1, 8);
            let mut reader = readers.pop().expect("one reader");
            let (mut right, mut left) = (sources.pop().expect("two"), sources.pop().expect("two"));
            let other = thread::spawn(move || {
                right.add(1, 21).expect("room");
                right.add(2, 22).expect("room");
            });
            let mut out = Vec::new();
            left.add(1, 11).expect("room");
            out.extend(reader.get_ready().map(|(_, _, tuple)| tuple));
            left.add(3, 13).expect("room");
            out.extend(reader.get_ready().map(|(_, _, tuple)| tuple));
            drop(left);
            other.join().expect("no panic");
            while let Some((_, _, tuple)) = reader.get_ready() {
                out.push(tuple);
            }
            assert_eq!(out, [11, 21, 22, 13]);
            assert!(reader.has_ended());
        });
    }
}
