//! `--final`: what is left of a result when all changes were applied, in place of the changes.
//!
//! **Invariant:** an identifier is live while its row is in the result, and `counts` says how
//! often. A row that is retracted before it was inserted counts nothing.
//!
//! Rows are kept in memory until the input ends, as many as the result has. They are shown in the
//! order in which they came in last. On a terminal the newest ones are shown while the job runs
//! ([`LiveView`]).

use arrow_array::RecordBatch;
use thalweg_core::connector::SinkLayer;
use thalweg_core::{DataType, Result, RowKind, Sink, TableSchema};
use thalweg_operators::keys::KeyTable;

use super::live_view::LiveView;

/// Rows that are shown at once, so that a large result need not be in memory twice.
const SHOWN_ROWS: usize = 8192;

/// Applies changes, and hands the rows that are left to another sink.
pub struct FinalResult {
    inner: Box<dyn Sink>,
    schema: TableSchema,
    rows: KeyTable,
    /// For each row how often it is there, and when it came in last.
    counts: Vec<u64>,
    came: Vec<u64>,
    clock: u64,
    /// Where people watch.
    view: Option<LiveView>,
    /// False if the view shows the rows as they are.
    is_stale: bool,
}

impl FinalResult {
    /// Shows the rows of this schema that are left on `inner`.
    ///
    /// # Errors
    /// If there is a column of a type that can't be compared.
    pub fn new(inner: Box<dyn Sink>, schema: TableSchema) -> Result<Self> {
        let types: Vec<DataType> =
            schema.columns.iter().map(|column| column.column_type.data_type.clone()).collect();
        let rows = KeyTable::new(&types)?;
        let (counts, came) = (Vec::new(), Vec::new());
        let (view, is_stale) = (None, false);
        Ok(FinalResult { inner, schema, rows, counts, came, clock: 0, view, is_stale })
    }

    /// Shows the rows here as well, while they change.
    #[must_use]
    pub fn with_view(self, view: Option<LiveView>) -> Self {
        Self { view, ..self }
    }

    fn draw(&mut self) -> Result<()> {
        let left = self.left();
        let Some(view) = &mut self.view else { return Ok(()) };
        let shown = &left[left.len().saturating_sub(view.rows_max())..];
        let batch = RecordBatch::try_new(self.schema.arrow(), self.rows.take_keys(shown)?)?;
        self.is_stale = false;
        view.draw(&batch, left.len())
    }

    fn apply(&mut self, id: u32, kind: RowKind) {
        let row = id as usize;
        match kind {
            RowKind::Insert | RowKind::UpdateAfter => {
                self.clock += 1;
                self.counts[row] += 1;
                self.came[row] = self.clock;
            }
            RowKind::UpdateBefore | RowKind::Delete => {
                self.counts[row] = self.counts[row].saturating_sub(1);
            }
        }
        if self.counts[row] == 0 {
            self.rows.release(id);
        }
    }

    /// The rows that are left, each as often as it is there.
    fn left(&self) -> Vec<u32> {
        let mut live: Vec<u32> =
            (0..self.counts.len() as u32).filter(|&id| self.counts[id as usize] > 0).collect();
        live.sort_by_key(|&id| self.came[id as usize]);
        let times = |id: u32| std::iter::repeat_n(id, self.counts[id as usize] as usize);
        live.into_iter().flat_map(times).collect()
    }
}

impl SinkLayer for FinalResult {
    fn inner(&self) -> &dyn Sink {
        self.inner.as_ref()
    }
    fn inner_mut(&mut self) -> &mut dyn Sink {
        self.inner.as_mut()
    }
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        // A row that goes frees its identifier for the next one, so they are looked up one by one.
        let mut ids = Vec::with_capacity(1);
        for row in 0..batch.num_rows() {
            ids.clear();
            self.rows.intern_rows(batch.columns(), Some(&[row as u32]), 1, &mut ids)?;
            let most = self.rows.id_limit();
            self.counts.resize(most, 0);
            self.came.resize(most, 0);
            self.apply(ids[0], kinds.map_or(RowKind::Insert, |kinds| kinds[row]));
        }
        self.is_stale = true;
        if self.view.as_ref().is_some_and(|view| view.rest().is_zero()) {
            self.draw()?;
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        match &self.view {
            Some(view) if self.is_stale => std::thread::sleep(view.rest()),
            _ => return Ok(()),
        }
        self.draw()
    }
    fn finish(&mut self) -> Result<()> {
        if let Some(view) = &mut self.view {
            view.clear()?;
        }
        for ids in self.left().chunks(SHOWN_ROWS) {
            let columns = self.rows.take_keys(ids)?;
            let batch = RecordBatch::try_new(self.schema.arrow(), columns)?;
            self.inner.write(&batch, None)?;
        }
        self.inner.finish()
    }
}
