//! Rows of a result on their way to a client: the job's sink puts them in, fetches take them out.
//!
//! **Invariant:** a sink waits while more rows are waiting than fit a page, so that memory stays
//! bounded however slow the client is; it waits in short steps, so a query that is closed ends.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use arrow_array::RecordBatch;
use thalweg_connectors::output::{ValueForm, row_arrays};
use thalweg_core::connector::Demand;
use thalweg_core::{Result, RowKind, Sink, TableSchema};
use thalweg_library::session::Tz;
use tokio::sync::Notify;

use crate::problem::Outcome;

/// Rows of a page.
pub const PAGE_ROWS_MAX: usize = 5_000;
/// Bytes that wait before the job does.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// How long a sink waits before it looks whether it is still wanted.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Rows that were written together.
#[derive(Clone)]
pub struct Piece {
    batch: RecordBatch,
    kinds: Option<Vec<RowKind>>,
}

impl Piece {
    fn split_off(&mut self, rows: usize) -> Piece {
        let first = Piece {
            batch: self.batch.slice(0, rows),
            kinds: self.kinds.as_ref().map(|kinds| kinds[..rows].to_vec()),
        };
        self.batch = self.batch.slice(rows, self.batch.num_rows() - rows);
        if let Some(kinds) = &mut self.kinds {
            kinds.drain(..rows);
        }
        first
    }

    /// The rows as the interface writes them, `{"kind":…,"fields":[…]}`.
    ///
    /// # Errors
    /// If a value cannot be written.
    pub fn shown(&self, form: ValueForm, schema: &TableSchema, zone: Tz) -> Result<Vec<String>> {
        let kind = |row: usize| self.kinds.as_ref().map_or(RowKind::Insert, |kinds| kinds[row]);
        let word = |kind| match kind {
            RowKind::Insert => "INSERT",
            RowKind::UpdateBefore => "UPDATE_BEFORE",
            RowKind::UpdateAfter => "UPDATE_AFTER",
            RowKind::Delete => "DELETE",
        };
        let arrays = row_arrays(form, schema, zone, &self.batch)?.into_iter().enumerate();
        let row = |(row, fields)| format!(r#"{{"kind":"{}","fields":{fields}}}"#, word(kind(row)));
        Ok(arrays.map(row).collect())
    }
}

#[derive(Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    rows: usize,
    bytes: usize,
    end: Option<Outcome<()>>,
    is_closed: bool,
}

/// Rows that wait for a client.
#[derive(Default)]
pub struct WaitingRows {
    queue: Mutex<Queue>,
    room: Condvar,
    /// Rows have come, or the end.
    pub news: Notify,
}

/// Some of them.
pub struct Taken {
    /// The rows.
    pub pieces: Vec<Piece>,
    /// There are no more, and never will be.
    pub is_end: bool,
}

impl WaitingRows {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no panic under this lock")
    }

    /// Rows that are all there.
    pub fn of(batch: Option<RecordBatch>) -> WaitingRows {
        let waiting = WaitingRows::default();
        waiting.put(batch.map(|batch| Piece { batch, kinds: None }));
        waiting.end(Ok(()));
        waiting
    }

    fn put(&self, piece: Option<Piece>) {
        let Some(piece) = piece.filter(|piece| piece.batch.num_rows() > 0) else { return };
        let mut queue = self.lock();
        queue.rows += piece.batch.num_rows();
        queue.bytes += piece.batch.get_array_memory_size();
        queue.pieces.push_back(piece);
        drop(queue);
        self.news.notify_waiters();
    }

    /// Waits until there is room, and adds rows unless nobody wants them any more.
    fn put_when_there_is_room(&self, piece: Piece) {
        let mut queue = self.lock();
        while !queue.is_closed && (queue.rows >= PAGE_ROWS_MAX || queue.bytes >= WAITING_BYTES_MAX)
        {
            let waited = self.room.wait_timeout(queue, LOOK_AGAIN);
            queue = waited.expect("no panic under this lock").0;
        }
        let is_wanted = !queue.is_closed;
        drop(queue);
        self.put(Some(piece).filter(|_| is_wanted));
    }

    /// No more rows come: all are there, or the job has failed.
    pub fn end(&self, end: Outcome<()>) {
        self.lock().end.get_or_insert(end);
        self.news.notify_waiters();
    }

    /// Nobody wants the rows any more.
    pub fn close(&self) {
        let mut queue = self.lock();
        *queue = Queue { is_closed: true, end: queue.end.take(), ..Queue::default() };
        drop(queue);
        self.room.notify_all();
        self.news.notify_waiters();
    }

    fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// True if a fetch would not have to wait.
    pub fn is_ready(&self) -> bool {
        let queue = self.lock();
        queue.rows > 0 || queue.end.is_some()
    }

    /// The next page.
    ///
    /// # Errors
    /// Why the job has failed, behind its last row.
    pub fn take(&self) -> Outcome<Taken> {
        let mut queue = self.lock();
        let (mut pieces, mut wanted) = (Vec::new(), PAGE_ROWS_MAX);
        while wanted > 0
            && let Some(mut piece) = queue.pieces.pop_front()
        {
            let rows = piece.batch.num_rows();
            let bytes = piece.batch.get_array_memory_size();
            if rows > wanted {
                pieces.push(piece.split_off(wanted));
                queue.pieces.push_front(piece);
                queue.rows -= wanted;
                break;
            }
            (wanted, queue.rows) = (wanted - rows, queue.rows - rows);
            queue.bytes = queue.bytes.saturating_sub(bytes);
            pieces.push(piece);
        }
        if queue.pieces.is_empty() {
            queue.bytes = 0;
        }
        let is_end = match (&queue.end, pieces.is_empty() && queue.pieces.is_empty()) {
            (Some(Err(problem)), true) => return Err(problem.clone()),
            (end, is_empty) => end.is_some() && is_empty,
        };
        drop(queue);
        self.room.notify_all();
        Ok(Taken { pieces, is_end })
    }
}

/// Takes the rows of a query.
pub struct WaitingSink(pub Arc<WaitingRows>);

impl Sink for WaitingSink {
    fn name(&self) -> String {
        "result".to_owned()
    }
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let piece = Piece { batch: batch.clone(), kinds: kinds.map(<[RowKind]>::to_vec) };
        self.0.put_when_there_is_room(piece);
        Ok(())
    }
    fn demand(&self) -> Demand {
        if self.0.is_closed() { Demand::Gone } else { Demand::More }
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}

#[cfg(test)]
mod tests {
    use crate::problem::Problem;
    use arrow_array::Int32Array;
    use thalweg_core::{Column, DataType};

    use super::*;

    fn numbers(count: i32) -> RecordBatch {
        let schema = schema().arrow();
        let column = Arc::new(Int32Array::from_iter_values(0..count));
        RecordBatch::try_new(schema, vec![column]).expect("a batch")
    }

    fn schema() -> TableSchema {
        TableSchema::new(vec![Column::new("n", DataType::Int.not_null())])
    }

    fn rows(taken: &Taken) -> usize {
        taken.pieces.iter().map(|piece| piece.batch.num_rows()).sum()
    }

    #[test]
    fn rows_come_in_pages_and_the_end_behind_them() {
        let waiting = WaitingRows::of(Some(numbers(12_001)));
        let pages: Vec<_> = std::iter::from_fn(|| {
            let taken = waiting.take().expect("rows");
            (!taken.is_end).then(|| rows(&taken))
        })
        .collect();
        assert_eq!(pages, [5_000, 5_000, 2_001]);
        assert!(waiting.take().expect("still the end").is_end);
    }

    #[test]
    fn a_sink_waits_for_a_slow_client_and_ends_with_it() {
        let waiting = Arc::new(WaitingRows::default());
        let mut sink = WaitingSink(Arc::clone(&waiting));
        sink.write(&numbers(5_000), None).expect("room");
        let writer = std::thread::spawn(move || {
            sink.write(&numbers(1), None).expect("room once a page was read");
            sink.write(&numbers(5_000), None).expect("the rows do not count, so there is room");
            sink.write(&numbers(1), None).expect("nobody wants it");
            sink.demand()
        });
        let first = loop {
            let taken = waiting.take().expect("rows");
            if rows(&taken) > 0 {
                break rows(&taken);
            }
        };
        assert_eq!(first, 5_000);
        while !waiting.is_ready() {
            std::thread::yield_now();
        }
        waiting.close();
        assert_eq!(writer.join().expect("it ends"), Demand::Gone);
        assert!(waiting.take().expect("nothing").pieces.is_empty());
    }

    #[test]
    fn a_failure_comes_behind_the_last_row() {
        let waiting = WaitingRows::default();
        waiting.put(Some(Piece { batch: numbers(2), kinds: None }));
        waiting.end(Err(Problem::new(422, "job-failed", "no")));
        assert_eq!(rows(&waiting.take().expect("rows first")), 2);
        assert!(waiting.take().is_err());
    }

    #[test]
    fn rows_have_their_kind() {
        let kinds = Some(vec![RowKind::UpdateBefore, RowKind::Delete]);
        let piece = Piece { batch: numbers(2), kinds };
        let shown = piece.shown(ValueForm::Json, &schema(), Tz::UTC).expect("rows");
        assert_eq!(shown[0], r#"{"kind":"UPDATE_BEFORE","fields":[0]}"#);
        assert_eq!(shown[1], r#"{"kind":"DELETE","fields":[1]}"#);
    }
}
