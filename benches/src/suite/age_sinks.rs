//! Sinks that record how late results leave, on the clock on which events are due.
//!
//! [`WindowAges`]: the first and the last row of each window, from the window's end on that clock;
//! the first row anywhere counts (as in the measurements of Jet). [`RowAges`]: a sample of rows,
//! each from the time at which its event was due, exactly, by the event's number. Both add up what
//! they see for the check.
//!
//! The time is read once for each batch that is written, before its rows are looked at.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use hdrhistogram::Histogram;
use thalweg::{Result, RowKind, Sink};

use super::oracle::{Sum, hash_row};
use super::percentiles::{Percentiles, histogram};
use super::schedule::Schedule;

/// When the first event was due, once that is known.
#[derive(Clone, Default)]
pub struct Began(Arc<OnceLock<Instant>>);

impl Began {
    /// The clock starts now, unless it has.
    pub fn start(&self) -> Instant {
        *self.0.get_or_init(Instant::now)
    }

    /// When it started.
    pub fn get(&self) -> Option<Instant> {
        self.0.get().copied()
    }

    /// How long it has run.
    pub fn now_ns(&self) -> u64 {
        self.get().map_or(0, |began| began.elapsed().as_nanos() as u64)
    }
}

/// The first and last rows of a window, in nanoseconds on the clock.
#[derive(Clone, Copy, Default)]
struct Window {
    first_ns: u64,
    last_ns: u64,
}

/// What a sink of windows has seen.
#[derive(Clone)]
pub struct WindowAges(Arc<Mutex<Windows>>);

struct Windows {
    began: Began,
    base_ms: i64,
    slide_ms: i64,
    /// By (end - base) / slide.
    windows: Vec<Window>,
    sum: Sum,
}

/// Where the columns of a row of a window are.
#[derive(Clone, Copy)]
pub struct WindowColumns {
    pub end: usize,
    /// Two numbers that are hashed with the end.
    pub hashed: (usize, usize),
}

impl WindowAges {
    /// Of windows that end at `base_ms` and every `slide_ms` behind it.
    pub fn new(began: Began, base_ms: i64, slide_ms: i64) -> WindowAges {
        let windows =
            Windows { began, base_ms, slide_ms, windows: Vec::new(), sum: Sum::default() };
        WindowAges(Arc::new(Mutex::new(windows)))
    }

    /// A sink that records here.
    pub fn sink(&self, columns: WindowColumns) -> impl Sink + 'static {
        let ages = self.clone();
        each("window ages", move |batch| ages.lock().take(batch, columns))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Windows> {
        self.0.lock().expect("no sink panics")
    }

    /// Rows and hashes so far.
    pub fn sum(&self) -> Sum {
        self.lock().sum
    }

    /// Windows that ended in this span on the clock: the age of the first and of the last row of
    /// each, by end, in (milliseconds on the clock, nanoseconds of age).
    pub fn between(&self, from_ms: u64, to_ms: u64) -> Vec<(u64, u64, u64)> {
        let seen = self.lock();
        let slide_ms = seen.slide_ms as u64;
        let places = (0..seen.windows.len() as u64)
            .filter(|place| (from_ms..to_ms).contains(&(place * slide_ms)));
        let age = |place: u64| {
            let (window, end_ms) = (seen.windows[place as usize], place * slide_ms);
            let since = |at_ns: u64| at_ns.saturating_sub(end_ms * 1_000_000);
            (window.last_ns > 0).then(|| (end_ms, since(window.first_ns), since(window.last_ns)))
        };
        places.filter_map(age).collect()
    }

    /// Percentiles of the first and of the last rows of the windows that ended in this span.
    pub fn percentiles(
        &self,
        from_ms: u64,
        to_ms: u64,
    ) -> (Option<Percentiles>, Option<Percentiles>) {
        let (mut first, mut last) = (histogram(), histogram());
        for (_, first_ns, last_ns) in self.between(from_ms, to_ms) {
            first.saturating_record(first_ns.max(1));
            last.saturating_record(last_ns.max(1));
        }
        (Percentiles::of(&first), Percentiles::of(&last))
    }
}

impl Windows {
    fn take(&mut self, batch: &RecordBatch, columns: WindowColumns) {
        let now_ns = self.began.now_ns();
        let ends = batch.column(columns.end).as_primitive::<TimestampMillisecondType>().values();
        let mut before = None;
        for &end in ends {
            if before != Some(end) {
                self.row(end, now_ns);
                before = Some(end);
            }
        }
        let (first, second) = columns.hashed;
        let longs = |at: usize| batch.column(at).as_primitive::<Int64Type>().values();
        for ((&first, &second), &end) in longs(first).iter().zip(longs(second)).zip(ends) {
            self.sum.add(hash_row(first, end, second));
        }
    }

    fn row(&mut self, end: i64, now_ns: u64) {
        let place = usize::try_from((end - self.base_ms) / self.slide_ms).unwrap_or(0);
        if place >= self.windows.len() {
            self.windows.resize(place + 1024, Window::default());
        }
        let window = &mut self.windows[place];
        if window.last_ns == 0 {
            window.first_ns = now_ns;
        }
        window.last_ns = now_ns.max(1);
    }
}

/// What a sink of rows has seen.
#[derive(Clone)]
pub struct RowAges(Arc<Mutex<Rows>>);

struct Rows {
    began: Began,
    schedule: Schedule,
    /// Rows whose events are due in this span on the clock are measured.
    from_ns: u64,
    to_ns: u64,
    /// Measures one row of this many.
    every: u64,
    seen: u64,
    sum: Sum,
    ages: Histogram<u64>,
}

impl RowAges {
    /// Of events that are due between two times on the clock, in nanoseconds; one of `every` is
    /// measured.
    pub fn new(began: Began, schedule: Schedule, span_ns: (u64, u64), every: u64) -> RowAges {
        let (from_ns, to_ns) = span_ns;
        let (every, seen, sum, ages) = (every.max(1), 0, Sum::default(), histogram());
        RowAges(Arc::new(Mutex::new(Rows {
            began,
            schedule,
            from_ns,
            to_ns,
            every,
            seen,
            sum,
            ages,
        })))
    }

    /// A sink that records here; the column has the number of the event.
    pub fn sink(&self, number_column: usize) -> impl Sink + 'static {
        let ages = self.clone();
        each("row ages", move |batch| {
            ages.0.lock().expect("no sink panics").take(batch, number_column);
        })
    }

    /// Rows, and the sum of the numbers of their events.
    pub fn sum(&self) -> Sum {
        self.0.lock().expect("no sink panics").sum
    }

    /// Of what was measured.
    pub fn percentiles(&self) -> Option<Percentiles> {
        Percentiles::of(&self.0.lock().expect("no sink panics").ages)
    }
}

impl Rows {
    fn take(&mut self, batch: &RecordBatch, number_column: usize) {
        let now_ns = self.began.now_ns();
        let numbers = batch.column(number_column).as_primitive::<Int64Type>().values();
        self.sum.rows += numbers.len() as u64;
        self.sum.hash = numbers.iter().fold(self.sum.hash, |sum, &n| sum.wrapping_add(n as u64));
        // The next that is measured lies so far behind the beginning of this batch.
        let skipped = (self.every - self.seen % self.every) % self.every;
        self.seen += numbers.len() as u64;
        for &number in numbers.iter().skip(skipped as usize).step_by(self.every as usize) {
            let due_ns = self.schedule.due_ns(number as u64);
            if (self.from_ns..self.to_ns).contains(&due_ns) {
                self.ages.saturating_record(now_ns.saturating_sub(due_ns).max(1));
            }
        }
    }
}

/// A sink that hands batches to a closure.
pub fn each(
    name: &'static str,
    mut take: impl FnMut(&RecordBatch) + Send + 'static,
) -> impl Sink + 'static {
    each_change(name, move |batch, _| take(batch))
}

/// The same with what is said of each row; nothing if all are new.
pub fn each_change(
    name: &'static str,
    take: impl FnMut(&RecordBatch, Option<&[RowKind]>) + Send + 'static,
) -> impl Sink + 'static {
    Each { name, take }
}

/// A sink that looks at nothing.
pub fn nothing() -> impl Sink + 'static {
    each("nothing", |_| {})
}

struct Each<F> {
    name: &'static str,
    take: F,
}

impl<F: FnMut(&RecordBatch, Option<&[RowKind]>) + Send> Sink for Each<F> {
    fn name(&self) -> String {
        self.name.to_owned()
    }
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        (self.take)(batch, kinds);
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array, TimestampMillisecondArray};

    #[test]
    fn the_first_and_the_last_row_of_a_window_count() {
        let began = Began::default();
        began.start();
        let ages = WindowAges::new(began, 1_000, 10);
        let batch = |ends: Vec<i64>| {
            let rows = ends.len() as i64;
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
            let ends: ArrayRef = Arc::new(TimestampMillisecondArray::from(ends));
            RecordBatch::try_from_iter([("n", numbers), ("end", ends)]).expect("two columns")
        };
        let columns = WindowColumns { end: 1, hashed: (0, 0) };
        let mut sink = ages.sink(columns);
        sink.write(&batch(vec![1_000, 1_000, 1_010]), None).expect("writes");
        std::thread::sleep(std::time::Duration::from_millis(20));
        sink.write(&batch(vec![1_010]), None).expect("writes");
        let seen = ages.between(0, 100);
        assert_eq!(seen.iter().map(|window| window.0).collect::<Vec<_>>(), [0, 10]);
        let (_, first_ns, last_ns) = seen[1];
        assert!(first_ns < 10_000_000 && last_ns >= 10_000_000, "{first_ns} and {last_ns}");
        assert_eq!(ages.sum().rows, 4);
    }

    #[test]
    fn one_row_of_this_many_is_measured_across_batches() {
        let began = Began::default();
        began.start();
        let ages = RowAges::new(began, Schedule::constant(1_000_000_000), (0, u64::MAX), 3);
        let mut sink = ages.sink(0);
        for from in [0, 4, 5] {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + 4));
            let batch = RecordBatch::try_from_iter([("seq", numbers)]).expect("a column");
            sink.write(&batch, None).expect("writes");
        }
        assert_eq!(ages.percentiles().expect("some").count, 4, "rows 0, 3, 6 and 9 of 12");
        assert_eq!(ages.sum(), Sum { rows: 12, hash: 6 + 22 + 26 });
    }
}
