//! The sink over a folder: one that is written in transactions, or a partitioned one.
//!
//! # Without transactions
//! Parts are `part-0`, `part-1`, …, each `.partial` until everything was written. The parts of an
//! earlier run then give way, in the partitions that this one has written; if the table is appended
//! to, numbers continue behind theirs instead.
//!
//! # With transactions
//! Parts have names of their own and become visible when they are committed (`parts.rs`). Each ends
//! with its transaction at the latest, or when it is large or old enough. With the guarantee
//! at-least-once they become visible as soon as they are closed, which is once a second while rows
//! come; but none before the job has a snapshot, since a run without one would find files that it
//! did not write.
//!
//! # Invariants
//! - At most [`OPEN_FILES_MAX`] files are open: the one that was written longest ago is closed.
//! - What is not committed has no name that a reader looks at.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use thalweg_core::connector::{Sink, Waker};
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::snapshot::{MarkFit, OutputMark, OutputStart, SinkGuarantee};
use thalweg_core::{Error, Result, RowKind};

use super::claim::Claim;
use super::files::Files;
use super::marks::{self, MarkFile};
use super::partition_commit::{PartitionCommit, PartitionCompletion};
use super::partitions::FolderNames;
use super::parts::{Part, PartPolicy, Parts};
use super::sink::refuse_handle;
use super::writer::{Content, FileWriter, create_folder, failed, is_there, partial, publish};
use super::writing::{Delivery, Writing};

/// How many files are open at a time. Each has buffers of its own.
pub const OPEN_FILES_MAX: usize = 32;

/// Where the files of a table lie.
pub struct FolderLocation {
    /// The table's folder.
    pub root: PathBuf,
    /// How the names of files end.
    pub extension: &'static str,
}

impl FolderLocation {
    fn path(&self, folder: &str, part: usize) -> PathBuf {
        self.root.join(folder).join(format!("part-{part}.{}", self.extension))
    }
}

struct OpenPart {
    writer: FileWriter,
    last_used: u64,
    begun_ns: u64,
    /// With transactions: what it will be.
    part: Option<Part>,
}

/// What was written without transactions.
#[derive(Default)]
struct Plain {
    /// For each folder, the first part of this run and the one behind the last.
    begun: HashMap<Box<str>, (usize, usize)>,
}

/// What was written in transactions.
struct Transactions {
    parts: Parts,
    delivery: Delivery,
    /// A snapshot is kept: a run that resumes the job knows that the files are its own.
    has_snapshot: bool,
    /// Parts that are closed and in no transaction yet.
    closed: Vec<Part>,
    /// With at-least-once: parts that are visible, and in no transaction yet.
    published: Vec<Part>,
    /// When parts were published last.
    published_ns: u64,
    /// Parts of transactions that are not committed. Where the snapshot of one could not be kept,
    /// its parts go with the next.
    prepared: Vec<Part>,
}

enum Mode {
    Plain(Plain),
    Transactions(Transactions),
}

/// Writes each row into the folder of its partition.
pub struct FolderSink {
    files: Arc<dyn Files>,
    content: Content,
    names: FolderNames,
    place: FolderLocation,
    writing: Writing,
    mode: Mode,
    open: HashMap<Box<str>, OpenPart>,
    uses: u64,
    /// The right to the whole folder.
    pub claim: Option<Claim>,
    clock: SystemClock,
    /// This run has marked its output.
    is_marked: bool,
    /// The user lets it replace what an earlier run has left.
    overwrites: bool,
    /// Declares partitions complete.
    completion: Option<PartitionCompletion>,
}

impl FolderSink {
    /// A sink for a table whose folders are named so.
    pub fn new(
        files: Arc<dyn Files>,
        content: Content,
        names: FolderNames,
        place: FolderLocation,
        writing: Writing,
    ) -> Self {
        FolderSink {
            files,
            content,
            names,
            place,
            writing,
            mode: Mode::Plain(Plain::default()),
            open: HashMap::new(),
            uses: 0,
            claim: None,
            clock: SystemClock::new(),
            is_marked: false,
            overwrites: false,
            completion: None,
        }
    }

    /// The same, which declares partitions complete.
    #[must_use]
    pub fn with_partition_commit(self, policy: Option<PartitionCommit>) -> Self {
        FolderSink { completion: policy.map(PartitionCompletion::new), ..self }
    }

    /// The parts of the table that are written in transactions, in this run or another.
    fn parts(&self) -> Parts {
        let (root, extension) = (self.place.root.clone(), self.place.extension);
        Parts::new(self.files.clone(), root, extension, &self.content.table)
    }

    fn mark_file(&self, parts: &Parts) -> MarkFile {
        MarkFile::new(self.files.clone(), &self.place.root, parts.table())
    }

    /// Without transactions: what a job with snapshots has written here is in the way of rows that
    /// are no part of it.
    fn check_plain(&self, start: &OutputStart) -> Result<()> {
        let parts = self.parts();
        let mark = self.mark_file(&parts).read()?;
        if start.overwrites || !mark.as_ref().is_some_and(marks::is_of_a_job) {
            return Ok(());
        }
        let found = parts.survey()?;
        let shown = found.own.filter(|_| !self.writing.append);
        match found.hidden.or(shown) {
            Some(path) => Err(marks::needed(&self.content.table, &path)),
            None => Ok(()),
        }
    }

    /// Without transactions and where the user wants it: does away with what a job with snapshots
    /// has written here.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn leave_snapshots(&mut self) -> Result<()> {
        let mut parts = self.parts();
        let mark = self.mark_file(&parts);
        if self.overwrites && mark.read()?.as_ref().is_some_and(marks::is_of_a_job) {
            // First: the job must not resume once a part is gone.
            mark.release()?;
            parts.recover(None, self.going())?;
        }
        Ok(())
    }

    fn going(&self) -> PartPolicy {
        let (delivery, append) = (self.writing.delivery, self.writing.append);
        PartPolicy { delivery, append, overwrites: self.overwrites }
    }

    /// Refuses to start from scratch over what an earlier run has left, unless that is wanted.
    fn check_empty(
        &self,
        parts: &Parts,
        mark: Option<&OutputMark>,
        start: &OutputStart,
    ) -> Result<()> {
        let (table, append) = (&self.content.table, self.writing.append);
        let found = parts.survey()?;
        let is_abandoned = mark.is_some_and(|mark| Some(&mark.lineage) == start.abandoned.as_ref());
        let shown = || match (append, is_abandoned) {
            (true, false) => None,
            (true, true) => found.own.clone(),
            (false, _) => found.own.clone().or(found.foreign.clone()),
        };
        let in_the_way = match start.fit(mark) {
            // What is hidden is of this lineage and of no snapshot. What is visible is of it only
            // where that comes early.
            MarkFit::Fits if self.writing.delivery == Delivery::AtLeastOnce => None,
            MarkFit::Fits => shown(),
            _ => found.hidden.clone().or_else(shown),
        };
        match (in_the_way, found.foreign) {
            (None, _) => Ok(()),
            (Some(path), _) if !start.overwrites => Err(marks::occupied(table, &path)),
            (Some(_), Some(path)) if !append => Err(Error::plan(format!(
                "table {table}: the folder has a file that this table has not written, and --overwrite does not remove it"
            ))
            .in_file(path.display().to_string())
            .hint("remove it, or add to the folder: 'sink.append' = 'true'")),
            _ => Ok(()),
        }
    }

    /// The next part of a folder that has no open file.
    fn begin(&mut self, folder: &str) -> Result<OpenPart> {
        while self.open.len() >= OPEN_FILES_MAX {
            self.close_oldest()?;
        }
        let (path, part) = match &mut self.mode {
            Mode::Plain(plain) => {
                (plain.begin(self.files.as_ref(), folder, &self.place, self.writing.append)?, None)
            }
            Mode::Transactions(transactions) => {
                let (part, path) = transactions.parts.begin(folder)?;
                (path, Some(part))
            }
        };
        let writer = FileWriter::create(self.files.as_ref(), path, &self.content)?;
        Ok(OpenPart { writer, last_used: 0, begun_ns: self.clock.now_ns(), part })
    }

    fn close_oldest(&mut self) -> Result<()> {
        let oldest = self.open.iter().min_by_key(|(_, open)| open.last_used);
        let oldest = oldest.map(|(folder, _)| folder.clone());
        let open = oldest.and_then(|folder| self.open.remove(&folder));
        open.map_or(Ok(()), |open| self.close(open))
    }

    fn close(&mut self, open: OpenPart) -> Result<()> {
        let closed = open.writer.close();
        if let (Mode::Transactions(transactions), Some(part)) = (&mut self.mode, open.part) {
            // Also where closing failed: it is to be removed.
            transactions.closed.push(part);
        }
        closed
    }

    fn close_all(&mut self) -> Result<()> {
        let mut open: Vec<OpenPart> = self.open.drain().map(|(_, open)| open).collect();
        // In the order of their names, so that each run does the same.
        open.sort_by(|a, b| a.part.cmp(&b.part));
        open.into_iter().try_for_each(|open| self.close(open))
    }

    /// True if a part is as large or as old as it may get.
    fn is_full(&self, open: &OpenPart) -> bool {
        let age_ns = self.clock.now_ns().saturating_sub(open.begun_ns);
        open.writer.bytes() >= self.writing.part_bytes_max || age_ns >= self.writing.rollover_ns()
    }

    /// With at-least-once no snapshot is waited for: parts become visible once they are old enough.
    fn publish_old(&mut self) -> Result<()> {
        let now_ns = self.clock.now_ns();
        let rollover_ns = self.writing.rollover_ns();
        match &mut self.mode {
            Mode::Transactions(own)
                if own.shows_early() && now_ns.saturating_sub(own.published_ns) >= rollover_ns =>
            {
                own.published_ns = now_ns;
            }
            _ => return Ok(()),
        }
        self.close_all()?;
        match &mut self.mode {
            Mode::Transactions(transactions) => transactions.publish_closed(),
            Mode::Plain(_) => Ok(()),
        }
    }

    /// Removes the parts that an earlier run has left behind those of this one.
    fn remove_older(&self, folder: &str, mut part: usize) -> Result<()> {
        loop {
            let path = self.place.path(folder, part);
            let located = |e: std::io::Error| failed(Some(&path), &e);
            if self.files.length(&path).map_err(located)?.is_none() {
                return Ok(());
            }
            self.files.remove(&path).map_err(located)?;
            part += 1;
        }
    }

    fn finish_plain(&self, plain: &Plain) -> Result<()> {
        for (folder, &(first, end)) in &plain.begun {
            let paths: Vec<PathBuf> =
                (first..end).map(|part| self.place.path(folder, part)).collect();
            publish(self.files.as_ref(), &paths)?;
            if !self.writing.append {
                self.remove_older(folder, end)?;
            }
        }
        Ok(())
    }
}

impl Plain {
    /// The path that the next part of a folder is written to.
    fn begin(
        &mut self,
        files: &dyn Files,
        folder: &str,
        place: &FolderLocation,
        append: bool,
    ) -> Result<PathBuf> {
        let (first, part) = match self.begun.get(folder) {
            Some(begun) => *begun,
            None => {
                let mut free = 0;
                while append && is_there(files, &place.path(folder, free))? {
                    free += 1;
                }
                (free, free)
            }
        };
        let path = place.path(folder, part);
        create_folder(files, path.parent().unwrap_or(&path), &place.root, &path)?;
        self.begun.insert(folder.into(), (first, part + 1));
        Ok(partial(&path))
    }
}

impl Sink for FolderSink {
    fn name(&self) -> String {
        self.content.table.clone()
    }

    fn claim(&mut self) -> Result<()> {
        if self.claim.is_none() {
            let what = format!("table {}", self.content.table);
            self.claim = Some(self.files.claim_folder(&what, &self.place.root)?);
        }
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        self.claim()?;
        self.claim.iter_mut().for_each(Claim::begin);
        if matches!(self.mode, Mode::Plain(_)) {
            self.leave_snapshots()?;
        }
        self.files.create_folder(&self.place.root).map_err(|e| failed(Some(&self.place.root), &e))
    }

    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let (batch, kinds) = self.content.rows(batch, kinds)?;
        let folders = self.names.split(&batch);
        let batch = self.names.rest(&batch)?;
        for (folder, rows) in folders {
            let kinds: Option<Vec<RowKind>> =
                kinds.as_ref().map(|kinds| rows.iter().map(|&row| kinds[row as usize]).collect());
            let rows = match rows.len() == batch.num_rows() {
                true => batch.clone(),
                false => take_record_batch(&batch, &UInt32Array::from(rows))?,
            };
            let mut open = match self.open.remove(&folder) {
                Some(open) => open,
                None => self.begin(&folder)?,
            };
            self.uses += 1;
            open.last_used = self.uses;
            let written = open.writer.write(&rows, kinds.as_deref());
            let is_full = open.part.is_some() && self.is_full(&open);
            self.open.insert(folder.clone(), open);
            written?;
            if let Some(full) = is_full.then(|| self.open.remove(&folder)).flatten() {
                self.close(full)?;
            }
        }
        self.publish_old()
    }

    fn canceller(&self) -> Option<Waker> {
        self.files.canceller()
    }

    fn flush(&mut self) -> Result<()> {
        self.publish_old()?;
        self.open.values_mut().try_for_each(|open| open.writer.flush())
    }

    fn finish(&mut self) -> Result<()> {
        self.close_all()?;
        match &mut self.mode {
            Mode::Plain(_) => {}
            Mode::Transactions(transactions) => {
                // Empty if the last transaction was committed.
                transactions.parts.prepare(&transactions.closed)?;
                let closed = std::mem::take(&mut transactions.closed);
                transactions.parts.publish(&closed)?;
                if let Some(completion) = &mut self.completion {
                    completion.add(closed.iter().map(|part| part.folder.as_str()), 0);
                }
            }
        }
        if let Mode::Plain(plain) = &self.mode {
            self.finish_plain(plain)?;
        }
        if let Some(completion) = &mut self.completion {
            if let Mode::Plain(plain) = &self.mode {
                completion.add(plain.begun.keys().map(AsRef::as_ref), 0);
            }
            completion.finish(self.files.as_ref(), &self.place.root)?;
        }
        self.claim = None;
        Ok(())
    }

    fn abort(&mut self) {
        // Best effort: what was written so far may help to find the cause.
        let _ = self.flush();
        let open: Vec<OpenPart> = self.open.drain().map(|(_, open)| open).collect();
        if let Mode::Transactions(transactions) = &mut self.mode {
            transactions.closed.extend(open.into_iter().filter_map(|open| open.part));
            transactions.abandon();
        }
        self.claim = None;
    }

    fn use_transactions(&mut self) -> SinkGuarantee {
        let delivery = self.writing.delivery;
        if delivery != Delivery::None {
            let parts = self.parts();
            let (closed, published, prepared) = (Vec::new(), Vec::new(), Vec::new());
            let published_ns = self.clock.now_ns();
            self.mode = Mode::Transactions(Transactions {
                parts,
                delivery,
                has_snapshot: false,
                closed,
                published,
                published_ns,
                prepared,
            });
        }
        delivery.guarantee()
    }

    fn write_at_least_once(&mut self) {
        if self.writing.delivery == Delivery::ExactlyOnce {
            self.writing.delivery = Delivery::AtLeastOnce;
        }
        let _guarantee = self.use_transactions();
    }

    fn check_start(&mut self, handle: Option<&str>, start: &OutputStart) -> Result<()> {
        self.overwrites = start.overwrites;
        let Mode::Transactions(transactions) = &self.mode else {
            refuse_handle(&self.content.table, handle)?;
            return self.check_plain(start);
        };
        let parts = &transactions.parts;
        let mark = self.mark_file(parts).read()?;
        let Some(handle) = handle else { return self.check_empty(parts, mark.as_ref(), start) };
        let bears_twice = self.writing.delivery == Delivery::AtLeastOnce;
        let place = (self.content.table.as_str(), parts.root());
        marks::check_resumed(place, mark.as_ref(), start, bears_twice)?;
        parts.check(handle, self.going())
    }

    fn mark(&mut self, mark: &OutputMark) -> Result<()> {
        let is_first = !std::mem::replace(&mut self.is_marked, true);
        let Mode::Transactions(transactions) = &self.mode else { return Ok(()) };
        self.mark_file(&transactions.parts).write(mark, is_first)
    }

    fn recover(&mut self, handle: Option<&str>) -> Result<()> {
        let going = self.going();
        let Mode::Transactions(transactions) = &mut self.mode else {
            return refuse_handle(&self.content.table, handle);
        };
        transactions.has_snapshot = handle.is_some();
        transactions.parts.recover(handle, going)?;
        let Some(completion) = &mut self.completion else { return Ok(()) };
        completion.recover(handle);
        match handle {
            Some(handle) => {
                let now_ms = self.clock.wall_ms();
                completion.commit(self.files.as_ref(), &self.place.root, handle, now_ms)
            }
            None if going.overwrites && !going.append => {
                transactions.parts.remove_named(|name| completion.is_its_file(name))
            }
            None => Ok(()),
        }
    }

    fn prepare(&mut self) -> Result<Option<String>> {
        self.close_all()?;
        let Mode::Transactions(transactions) = &mut self.mode else { return Ok(None) };
        if transactions.shows_early() {
            transactions.publish_closed()?;
        }
        // Only now: what could not be prepared is tried again with the next one.
        let Transactions { closed, published, prepared, .. } = &*transactions;
        let all: Vec<Part> = [&prepared[..], published, closed].concat();
        let handle = transactions.parts.prepare(&all)?;
        transactions.prepared = all;
        transactions.published.clear();
        transactions.closed.clear();
        let Some(completion) = &mut self.completion else { return Ok(Some(handle)) };
        let folders = transactions.prepared.iter().map(|part| part.folder.as_str());
        completion.add(folders, self.clock.wall_ms());
        completion.noted_in(&handle).map(Some)
    }

    fn commit(&mut self, handle: &str) -> Result<()> {
        let Mode::Transactions(transactions) = &mut self.mode else { return Ok(()) };
        let committed = transactions.parts.commit(handle)?;
        transactions.has_snapshot = true;
        transactions.prepared.retain(|part| !committed.contains(part));
        let Some(completion) = &mut self.completion else { return Ok(()) };
        let now_ms = self.clock.wall_ms();
        completion.commit(self.files.as_ref(), &self.place.root, handle, now_ms)
    }
}

impl Transactions {
    /// True if parts are visible before their transaction is committed.
    fn shows_early(&self) -> bool {
        self.delivery == Delivery::AtLeastOnce && self.has_snapshot
    }

    /// Gives parts that are closed their names; the next transaction holds them all the same.
    fn publish_closed(&mut self) -> Result<()> {
        if !self.closed.is_empty() {
            self.parts.prepare(&self.closed)?;
            self.parts.publish(&self.closed)?;
            self.published.append(&mut self.closed);
        }
        Ok(())
    }

    /// Removes what is in no transaction, as far as that is possible; the next run does the rest.
    fn abandon(&mut self) {
        for part in self.closed.drain(..) {
            self.parts.discard(&part);
        }
    }
}
