//! The source over files: starts the threads, takes their batches in order, writes dead letters.

use std::sync::Arc;

use thalweg_core::connector::{Source, SourceBatch, SourcePoll, SplitId, SplitStatus, Waker};
use thalweg_core::{Error, Result};

use super::blocks::{BlockSplitter, RECORD_BYTES_MAX};
use super::dead_letter::DeadLetters;
use super::follow::{FollowSplitter, Following};
use super::input_file::InputFile;
use super::objects::Objects;
use super::position::{FileMark, Progress, Renamed};
use super::reading::Reading;
use super::row_groups::rows_of;
use crate::handover::{Decoded, Handover, Next, Splitter};

/// How many batches of one task may wait. Text has one batch a task; a Parquet row group has many.
const QUEUE_LENGTH: usize = 32;

/// Reads files.
pub struct FileSource {
    reading: Arc<Reading>,
    progress: Progress,
    parallelism: usize,
    handover: Option<Handover>,
    /// What is left of a batch, and where reading resumes behind it.
    rest: Option<(SourceBatch, Option<FileMark>)>,
    dead_letters: Option<DeadLetters>,
    bad_rows: u64,
    /// Files are followed as they appear and grow.
    following: Option<Following>,
    /// The object store that the files lie in, if they do.
    objects: Option<Arc<Objects>>,
}

impl FileSource {
    /// A source over these files, in this order.
    pub fn new(
        reading: Reading,
        files: Vec<InputFile>,
        parallelism: usize,
        dead_letters: Option<DeadLetters>,
    ) -> Self {
        let files: Vec<Arc<InputFile>> = files.into_iter().map(Arc::new).collect();
        FileSource {
            progress: Progress::new(reading.format(), &files),
            reading: Arc::new(reading),
            parallelism,
            handover: None,
            rest: None,
            dead_letters,
            bad_rows: 0,
            following: None,
            objects: None,
        }
    }

    /// No record and no batch may take more than an eighth of this limit: a few copies of it are
    /// there at once, as text, as values and as a dead letter.
    #[must_use]
    pub fn with_memory_limit(mut self, memory_limit_bytes: usize) -> Self {
        let reading = Arc::get_mut(&mut self.reading).expect("no reader has begun");
        reading.batch_bytes_max = memory_limit_bytes / 8;
        reading.record_bytes_max = reading.batch_bytes_max.min(RECORD_BYTES_MAX);
        self
    }

    /// The files lie in an object store, if there is one.
    #[must_use]
    pub fn in_store(mut self, objects: Option<Arc<Objects>>) -> Self {
        self.objects = objects;
        self
    }

    /// Follows the files for ever.
    #[must_use]
    pub fn following(mut self, following: Following) -> Self {
        self.progress.follow();
        self.following = Some(following);
        self
    }

    /// Takes a batch over, without the rows that were given before the position.
    fn accept(&mut self, decoded: Decoded) -> Result<()> {
        let Decoded { mut batch, bad, end } = decoded;
        self.bad_rows = self.bad_rows.saturating_add(bad.len() as u64);
        if let Some(letters) = &mut self.dead_letters {
            letters.write(&bad)?;
        }
        if let Some(end) = &end {
            let rows = batch.batch.num_rows();
            let dropped = self.progress.arrive(end, rows as u64)? as usize;
            batch = behind(batch, dropped);
        }
        if batch.batch.num_rows() == 0 {
            self.complete(end.as_ref());
        } else {
            self.rest = Some((batch, end));
        }
        Ok(())
    }

    /// Gives rows of what is left.
    fn give(
        &mut self,
        (mut batch, end): (SourceBatch, Option<FileMark>),
        rows_max: usize,
    ) -> SourceBatch {
        let rows = batch.batch.num_rows().min(rows_max);
        if let Some(end) = &end {
            self.progress.give(end, rows as u64);
        }
        if rows == batch.batch.num_rows() {
            self.complete(end.as_ref());
        } else {
            self.rest = Some((behind(batch.clone(), rows), end));
            batch.batch = batch.batch.slice(0, rows);
        }
        batch
    }

    fn complete(&mut self, end: Option<&FileMark>) {
        let letters = self.dead_letters.as_ref().map(DeadLetters::mark).unwrap_or_default();
        if let Some(end) = end {
            self.progress.complete(end, self.bad_rows, letters);
        }
    }
}

/// A batch without its first rows. The origin is exact where a row is a line, which is nearly
/// everywhere.
fn behind(mut batch: SourceBatch, rows: usize) -> SourceBatch {
    if rows > 0 {
        batch.batch = batch.batch.slice(rows, batch.batch.num_rows() - rows);
        if let Some(origin) = &mut batch.origin {
            origin.first_row += rows as u64;
        }
    }
    batch
}

impl Source for FileSource {
    fn name(&self) -> String {
        self.reading.layout().table.clone()
    }

    fn claim(&mut self) -> Result<()> {
        self.dead_letters.as_mut().map_or(Ok(()), DeadLetters::claim)
    }

    fn start(&mut self, waker: Waker) -> Result<()> {
        let (reading, work) = (self.reading.clone(), self.progress.work());
        let splitter: Box<dyn Splitter> = match &self.following {
            Some(following) => {
                let known_bytes = self.progress.known_bytes();
                Box::new(FollowSplitter::new(reading, following.clone(), work, known_bytes))
            }
            None if reading.format().is_text() => Box::new(BlockSplitter::new(reading, work)),
            None => rows_of(&reading, work),
        };
        let (name, parallelism) = (&self.reading.layout().table, self.parallelism);
        self.handover = Some(Handover::start(name, splitter, parallelism, QUEUE_LENGTH, &waker)?);
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        if let Some(letters) = &mut self.dead_letters {
            letters.open(self.bad_rows)?;
            self.progress.begin_letters(letters.mark());
        }
        Ok(())
    }

    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        loop {
            if let Some(rest) = self.rest.take() {
                // Of a block with dead letters all rows are given at once: the position lies
                // between blocks then, and says nothing of rows: mended statements find others.
                let gives_all = self.dead_letters.is_some() && self.reading.format().is_text();
                let rows_max = if gives_all { usize::MAX } else { rows_max.max(1) };
                return Ok(SourcePoll::Batch(self.give(rest, rows_max)));
            }
            let Some(handover) = &mut self.handover else {
                return Err(Error::internal("a source was polled before it was started"));
            };
            match handover.next()? {
                Next::Batch(decoded) => self.accept(decoded)?,
                Next::Pending => return Ok(SourcePoll::Pending),
                Next::End => {
                    self.progress.end();
                    return Ok(SourcePoll::End);
                }
            }
        }
    }

    fn abort(&mut self) {
        self.dead_letters.iter_mut().for_each(DeadLetters::abort);
    }

    fn is_bounded(&self) -> bool {
        self.following.is_none()
    }

    fn stop(&mut self) {
        if let Some(handover) = &mut self.handover {
            handover.stop();
        }
        if let Some(objects) = &self.objects {
            objects.cancel();
        }
    }

    /// A resumed job looks for the files that it knows before it starts.
    fn canceller(&self) -> Option<Waker> {
        self.objects.as_deref().map(Objects::canceller)
    }

    fn prepare(&mut self) -> Result<()> {
        self.dead_letters.as_mut().map_or(Ok(()), DeadLetters::sync)
    }

    fn finish(&mut self) -> Result<()> {
        let bad_rows = self.bad_rows;
        self.dead_letters.as_mut().map_or(Ok(()), |letters| letters.finish(bad_rows))
    }

    fn bad_rows(&self) -> u64 {
        self.bad_rows
    }

    fn split_status(&self, _split: SplitId) -> SplitStatus {
        let lag_bytes = self.progress.lag_bytes();
        SplitStatus { is_caught_up: true, lag_bytes, ..SplitStatus::default() }
    }

    fn position(&self) -> Option<String> {
        self.progress.to_json()
    }

    fn seek(&mut self, position: &str) -> Result<()> {
        let find = |label: &str, stamp| self.following.as_ref()?.renamed(label, stamp);
        let header_lines = self.reading.header_lines();
        let renamed = Renamed { find: &find, header_lines };
        self.progress.seek(position, self.following.is_some().then_some(&renamed))?;
        self.bad_rows = self.progress.bad_rows();
        if let Some(letters) = &mut self.dead_letters {
            letters.seek(self.progress.letters());
        }
        Ok(())
    }

    fn check_ended(&mut self, position: &str) -> Result<()> {
        let (bad_rows, letters) = self.progress.check_ended(position)?;
        self.bad_rows = bad_rows;
        if let Some(own) = &mut self.dead_letters {
            own.end_at(letters);
        }
        Ok(())
    }
}
