//! Following files: those of a folder or glob as they appear and, where they are plain text, as
//! they grow.
//!
//! A look lists the files. Of each, in the order in which they were found, and in name order where
//! a look finds several, what is complete is read: a last record without an end waits for the look
//! that finds its end. Then nothing happens until the next look, `'source.monitor-interval'` later.
//! Compressed texts and files of rows cannot grow; they are read once, when they appear, so they
//! must appear complete (renamed into the folder).
//!
//! # Which file is which
//! A file is the one that lies where it lay (device and inode), whatever its name is now, also if
//! that name is not the table's any more. So a log that is rotated by renaming is read to its end,
//! and then the new one from its beginning. A handle of the [`HANDLES_MAX`] plain texts that grew
//! last stays open, so that the rest of one that was deleted or moved away is read as well, for
//! [`GONE_LOOKS`] looks.
//!
//! A plain text in which something else stands before the place where reading stopped, or which is
//! shorter, was either truncated and restarted (rotation by copying), and is read from its
//! beginning, or it was cut or edited, and that is an error. [`Contents`] decides.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thalweg_core::Result;
use thalweg_core::connector::TableRequest;

use super::blocks::{FIRST_BLOCK_BYTES, OpenText, cut_block, decoding, grown};
use super::identity::{Contents, HEAD_BYTES, Prefix, bytes_at};
use super::input_file::{InputFile, changed, changed_name, read_error};
use super::listing::Listing;
use super::objects::Objects;
use super::paths;
use super::position::{FileMark, FilePlace, Reached, TextPlace, Work};
use super::reading::{Reading, marking};
use super::recorded::{GROWN_LINE, ends_open};
use super::row_groups::rows_of;
use super::stamp::Stamp;
use crate::handover::{Cut, Splitter};

/// How many handles stay open between looks.
const HANDLES_MAX: usize = 256;
/// For how many looks a file that is gone may still get rows from a process that has it open.
const GONE_LOOKS: usize = 5;

/// Where the files are, and how often to look.
#[derive(Clone)]
pub struct Following {
    /// The table.
    pub request: TableRequest,
    /// The time between looks.
    pub interval: Duration,
    /// The object store that they lie in, if they do.
    pub objects: Option<Arc<Objects>>,
    /// What lists them, where that is not their folder.
    pub lister: Option<Lister>,
}

/// Lists the files that there are now.
pub type Lister = Arc<dyn Fn() -> Result<Vec<InputFile>> + Send + Sync>;

impl Following {
    /// The files that there are now.
    fn files(&self) -> Result<Vec<InputFile>> {
        if let Some(list) = &self.lister {
            return list();
        }
        let path = self.request.options.get("path").map_or("", String::as_str);
        match &self.objects {
            Some(objects) => objects.present(&self.request, path),
            None => paths::followed(&self.request, path),
        }
    }

    /// A file that lies where one lay, in the same folder, under a name that is not the table's.
    pub fn renamed(&self, label: &str, stamp: Stamp) -> Option<InputFile> {
        paths::at_place(&self.request, &self.request.base_dir.join(label), stamp)
    }
}

/// A file that is followed.
struct FollowedFile {
    file: Arc<InputFile>,
    at: Option<FilePlace>,
    /// Its length and stamp when it was read to its end, or there was nothing to read.
    read_at: Option<(u64, Option<Stamp>)>,
    handle: Option<File>,
    /// Looks that have not found it.
    looks_gone: usize,
}

impl FollowedFile {
    fn offset(&self) -> u64 {
        match self.at {
            Some(FilePlace::Text(at)) => at.offset,
            _ => 0,
        }
    }
}

/// What a look has found to be read.
struct FoundFile {
    file: Arc<InputFile>,
    /// The number of the file, if it is known.
    number: Option<usize>,
    /// It is gone, and this is the last time that it is read.
    is_last: bool,
}

/// Reads what there is, and looks again.
pub struct FollowSplitter {
    reading: Arc<Reading>,
    following: Following,
    known: BTreeMap<usize, FollowedFile>,
    /// Numbers that were assigned.
    numbers: usize,
    /// What this look has found and is not read yet.
    found: VecDeque<FoundFile>,
    /// What is to be noted before anything else is read.
    marks: VecDeque<FileMark>,
    /// Files with a handle, the one that was read last at the end.
    with_handle: VecDeque<usize>,
    open: Option<Current>,
    /// This look has been made.
    has_looked: bool,
    block_bytes: usize,
    /// The bytes of all files, as the last look has found them.
    known_bytes: Arc<AtomicU64>,
}

/// The file that is being read.
struct Current {
    number: usize,
    is_last: bool,
    pieces: Pieces,
}

enum Pieces {
    Text(OpenText),
    Rows(Box<dyn Splitter>),
}

impl FollowSplitter {
    /// Resumes with these files, and reads others as they appear.
    pub fn new(
        reading: Arc<Reading>,
        following: Following,
        work: Vec<Work>,
        known_bytes: Arc<AtomicU64>,
    ) -> Self {
        let numbers = work.iter().map(|work| work.number + 1).max().unwrap_or(0);
        let known = |Work { number, file, from, is_done }: Work| {
            let read_at = is_done.then_some((file.size, file.stamp));
            (number, FollowedFile { file, at: from, read_at, handle: None, looks_gone: 0 })
        };
        let known = work.into_iter().map(known).collect();
        let block_bytes = reading.first_block_bytes.unwrap_or(FIRST_BLOCK_BYTES);
        FollowSplitter {
            reading,
            following,
            known,
            numbers,
            found: VecDeque::new(),
            marks: VecDeque::new(),
            with_handle: VecDeque::new(),
            open: None,
            has_looked: false,
            block_bytes,
            known_bytes,
        }
    }

    /// Lists the files, and finds out which of them are known.
    fn look(&mut self) -> Result<()> {
        let mut listing = Listing::new(self.following.files()?.into_iter().map(Arc::new));
        let (mut same, mut others) = (Vec::new(), Vec::new());
        for (&number, known) in &mut self.known {
            match listing.take_same(&known.file.label, known.file.stamp) {
                Some(file) => {
                    known.looks_gone = 0;
                    same.push(FoundFile { file, number: Some(number), is_last: false });
                }
                None => others.push(number),
            }
        }
        for number in others {
            self.find(number, &mut listing)?;
        }
        let new = listing.into_rest().map(|file| FoundFile { file, number: None, is_last: false });
        same.extend(new);
        self.found.extend(same);
        // What was found first is older, also where it was renamed since.
        let found = self.found.make_contiguous();
        found.sort_by_key(|found| found.number.unwrap_or(usize::MAX));
        self.count_bytes();
        Ok(())
    }

    /// Counts the bytes of the files that a look has found, and of those that it has missed.
    fn count_bytes(&self) {
        let is_gone = |number: &usize| self.known.get(number).is_some_and(|of| of.looks_gone > 0);
        let found = self.found.iter().filter(|found| !found.number.as_ref().is_some_and(is_gone));
        let found: u64 = found.map(|found| found.file.size).sum();
        let missed = self.known.values().filter(|known| known.looks_gone > 0);
        let missed: u64 = missed.map(|known| known.file.size).sum();
        self.known_bytes.store(found + missed, Ordering::Relaxed);
    }

    /// Finds a file that is not where it was under its name.
    fn find(&mut self, number: usize, listing: &mut Listing) -> Result<()> {
        let known = self.known.get_mut(&number).expect("its number was taken from there");
        let moved = known.file.stamp.and_then(|stamp| {
            let renamed = || self.following.renamed(&known.file.label, stamp).map(Arc::new);
            listing.take_moved(stamp).or_else(renamed)
        });
        // Where a file was deleted a new one may lie. Those that grow are compared when they do.
        let is_it = |file: &InputFile| can_grow(&self.reading, file) || is_alike(file, &known.file);
        let moved = match moved {
            Some(file) if !is_it(&file) => {
                listing.put_back(file);
                None
            }
            moved => moved,
        };
        if let Some(file) = moved {
            known.looks_gone = 0;
            if known.file.label != file.label {
                known.file = Arc::new(known.file.renamed(&file));
                self.note(number, Reached::Block);
            }
            self.found.push_back(FoundFile { file, number: Some(number), is_last: false });
            return Ok(());
        }
        if let Some(file) = listing.labelled(&known.file.label).cloned()
            && self.is_copy(number, &file)?
        {
            listing.take(&file.label);
            let known = self.known.get_mut(&number).expect("looked at above");
            (known.handle, known.looks_gone) = (None, 0);
            self.found.push_back(FoundFile { file, number: Some(number), is_last: false });
            return Ok(());
        }
        self.miss(number)
    }

    /// Whether a file that has the name of a known one, but lies elsewhere, holds what was read of
    /// that one.
    ///
    /// # Errors
    /// If it holds that, but changed.
    fn is_copy(&self, number: usize, file: &Arc<InputFile>) -> Result<bool> {
        let known = &self.known[&number];
        if !can_grow(&self.reading, file) {
            return match is_alike(file, &known.file) {
                true => Ok(true),
                false => Err(changed(file, "was replaced by another one of its name")),
            };
        }
        let Some(FilePlace::Text(at)) = known.at else { return Ok(false) };
        if Prefix::open(file)?.has(at.offset, at.sum)? {
            return Ok(true);
        }
        let mut open = open(file)?;
        match self.contents(&mut open, known, &at).map_err(|e| read_error(file, &e))? {
            Contents::Changed => Err(changed(file, "was replaced by one that has other contents")),
            Contents::New | Contents::Unclear => Ok(false),
        }
    }

    fn contents(
        &self,
        file: &mut File,
        known: &FollowedFile,
        at: &TextPlace,
    ) -> io::Result<Contents> {
        let read = usize::try_from(at.offset).unwrap_or(usize::MAX).min(known.file.head.len());
        Contents::of(file, &known.file.head[..read], &at.tail, self.reading.header_lines())
    }

    /// A file is not there. What is left of it is read as long as its handle is open.
    fn miss(&mut self, number: usize) -> Result<()> {
        let known = self.known.get_mut(&number).expect("its number was taken from there");
        known.looks_gone += 1;
        let (file, offset) = (known.file.clone(), known.offset());
        let Some(handle) = &known.handle else {
            let is_read = match can_grow(&self.reading, &file) {
                true => offset >= file.size,
                false => known.read_at.is_some(),
            };
            if is_read {
                self.forget(number);
                return Ok(());
            }
            let left = file.size.saturating_sub(offset);
            let how = format!(
                "is not there any more, and {left} of its {} bytes had not been read",
                file.size
            );
            return Err(changed_name(&file.label, &how));
        };
        let length = handle.metadata().map_err(|e| read_error(&file, &e))?.len();
        let is_last = known.looks_gone >= GONE_LOOKS;
        let has_grown = known.read_at.is_none_or(|(size, _)| size != length);
        match length > offset && (has_grown || is_last) {
            true => {
                let file = Arc::new(InputFile { size: length, ..file.as_ref().clone() });
                self.found.push_back(FoundFile { file, number: Some(number), is_last });
            }
            false if is_last => self.forget(number),
            false => {}
        }
        Ok(())
    }

    /// Notes how far a file was read, under the name that it has now.
    fn note(&mut self, number: usize, reached: Reached) {
        let Some(FollowedFile { file, at, .. }) = self.known.get(&number) else { return };
        let nowhere = (reached == Reached::Gone).then(|| FilePlace::Text(TextPlace::default()));
        if let Some(place) = at.or(nowhere) {
            self.marks.push_back(FileMark { number, file: file.clone(), place, reached });
        }
    }

    fn forget(&mut self, number: usize) {
        self.note(number, Reached::Gone);
        self.known.remove(&number);
        self.with_handle.retain(|with| *with != number);
    }

    /// Begins the next file that has something new.
    fn begin(&mut self) -> Result<()> {
        while let Some(FoundFile { file, number, is_last }) = self.found.pop_front() {
            let number = match number {
                None if file.size == 0 => continue,
                None => None,
                Some(number) if is_last => Some(number),
                Some(number) => match self.has_more(number, &file)? {
                    More::Nothing => continue,
                    More::Rest => Some(number),
                    More::Everything => {
                        self.forget(number);
                        None
                    }
                },
            };
            if number.is_none() && file.size == 0 {
                continue;
            }
            return self.start(file, number, is_last);
        }
        Ok(())
    }

    /// What there is to be read of a file that is known.
    fn has_more(&mut self, number: usize, file: &Arc<InputFile>) -> Result<More> {
        let growable = can_grow(&self.reading, file);
        let known = self.known.get_mut(&number).expect("found by its number");
        if known.read_at == Some((file.size, file.stamp)) {
            return Ok(More::Nothing);
        }
        if !growable {
            let Some((size, stamp)) = known.read_at else { return Ok(More::Rest) };
            let is_replaced = match (file.stamp, stamp) {
                (Some(now), Some(then)) => now.replaces(then),
                _ => false,
            };
            return match size == file.size {
                _ if is_replaced => Err(changed(file, "was replaced after it was read")),
                true => Ok(More::Nothing),
                false => Err(changed(file, "has another length than when it was read")),
            };
        }
        let Some(FilePlace::Text(at)) = known.at else { return Ok(More::Rest) };
        if known.handle.is_none() {
            match File::open(file.path.as_deref().unwrap_or(Path::new(""))) {
                // It went since the look: the next one says what became of it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(More::Nothing),
                opened => known.handle = Some(opened.map_err(|e| read_error(file, &e))?),
            }
        }
        let failed = |e: io::Error| read_error(file, &e);
        let mut handle = known.handle.as_ref().expect("set above").try_clone().map_err(failed)?;
        // Where nothing was added, something may have been edited.
        let is_same = match file.size == at.offset {
            true => Prefix::open(file)?.has(at.offset, at.sum)?,
            false => holds(&mut handle, &known.file.head, &at).map_err(failed)?,
        };
        if is_same {
            if ends_open(&at.tail) && file.size > at.offset {
                return Err(changed(file, GROWN_LINE));
            }
            return Ok(More::Rest);
        }
        let known = &self.known[&number];
        match self.contents(&mut handle, known, &at).map_err(failed)? {
            Contents::New => Ok(More::Everything),
            Contents::Unclear => {
                let read_at = Some((file.size, file.stamp));
                self.known.get_mut(&number).expect("looked at above").read_at = read_at;
                Ok(More::Nothing)
            }
            Contents::Changed if file.size < at.offset => Err(changed(
                file,
                &format!(
                    "is shorter than what was read of it: it has {} bytes, {} were read",
                    file.size, at.offset
                ),
            )),
            Contents::Changed => Err(changed(file, "has other contents where it was read")),
        }
    }

    /// Begins to read a file, behind what was read of it if it is known.
    fn start(&mut self, file: Arc<InputFile>, number: Option<usize>, is_last: bool) -> Result<()> {
        let number = number.unwrap_or_else(|| {
            self.numbers += 1;
            self.numbers - 1
        });
        let new = || FollowedFile {
            file: file.clone(),
            at: None,
            read_at: None,
            handle: None,
            looks_gone: 0,
        };
        let known = self.known.entry(number).or_insert_with(new);
        let (from, is_done) = (known.at, false);
        let growable = can_grow(&self.reading, &file);
        let pieces = if growable {
            let failed = |e: io::Error| read_error(&file, &e);
            let mut handle = match known.handle.take() {
                Some(handle) => handle,
                None => open(&file)?,
            };
            let head = bytes_at(&mut handle, 0, HEAD_BYTES).map_err(failed)?;
            known.file = Arc::new(InputFile { head, ..file.as_ref().clone() });
            handle.seek(SeekFrom::Start(known.offset())).map_err(failed)?;
            let reader = handle.try_clone().map_err(failed)?;
            known.handle = Some(handle);
            let work = Work { number, file: known.file.clone(), from, is_done };
            Pieces::Text(OpenText::growing(work, Box::new(reader), is_last))
        } else {
            let head = head_of(&file)?;
            known.file = Arc::new(InputFile { head, ..file.as_ref().clone() });
            let work = Work { number, file: known.file.clone(), from, is_done };
            match self.reading.format().is_text() {
                true => Pieces::Text(OpenText::new(work)?),
                false => Pieces::Rows(rows_of(&self.reading, vec![work])),
            }
        };
        if growable {
            self.keep_handle(number);
        }
        self.open = Some(Current { number, is_last, pieces });
        Ok(())
    }

    /// Closes the handle that was used least recently if there are too many.
    fn keep_handle(&mut self, number: usize) {
        self.with_handle.retain(|with| *with != number);
        self.with_handle.push_back(number);
        if self.with_handle.len() > HANDLES_MAX
            && let Some(oldest) = self.with_handle.pop_front()
            && let Some(known) = self.known.get_mut(&oldest)
        {
            known.handle = None;
        }
    }

    /// The next piece of the file that is open.
    fn next(&mut self) -> Result<Option<Cut>> {
        let Some(Current { number, is_last, pieces }) = &mut self.open else { return Ok(None) };
        let (number, is_last) = (*number, *is_last);
        match pieces {
            Pieces::Rows(rows) => match rows.next_task()? {
                Cut::End => {}
                cut => return Ok(Some(cut)),
            },
            Pieces::Text(open) => {
                if let Some(block) = cut_block(
                    self.reading.format(),
                    open,
                    self.block_bytes,
                    self.reading.record_limit(),
                )? {
                    if self.reading.first_block_bytes.is_none() {
                        self.block_bytes = grown(self.block_bytes);
                    }
                    if let Some(known) = self.known.get_mut(&number) {
                        known.at = Some(block.end.place);
                    }
                    return Ok(Some(Cut::Task(decoding(block, &self.reading))));
                }
            }
        }
        let is_text = matches!(pieces, Pieces::Text(_));
        self.open = None;
        if let Some(known) = self.known.get_mut(&number) {
            known.read_at = Some((known.file.size, known.file.stamp));
            if is_text && !can_grow(&self.reading, &known.file) {
                self.note(number, Reached::End);
            }
        }
        if is_last {
            self.forget(number);
        }
        Ok(None)
    }
}

/// What there is to be read of a file.
enum More {
    Nothing,
    Rest,
    /// It was restarted.
    Everything,
}

/// True for a text that is not compressed.
fn can_grow(reading: &Reading, file: &InputFile) -> bool {
    reading.format().is_text() && file.can_grow()
}

/// True if a file that cannot grow has the length of one that is known, was written at the same
/// time, and begins as that one: file systems count time in steps of milliseconds.
fn is_alike(file: &InputFile, known: &InputFile) -> bool {
    let begins_alike =
        || known.head.is_empty() || head_of(file).is_ok_and(|head| head == known.head);
    (file.size, file.modified_ms) == (known.size, known.modified_ms) && begins_alike()
}

fn head_of(file: &InputFile) -> Result<Vec<u8>> {
    if file.object.is_some() {
        // Its stamp says all.
        return Ok(Vec::new());
    }
    bytes_at(&mut open(file)?, 0, HEAD_BYTES).map_err(|e| read_error(file, &e))
}

fn open(file: &InputFile) -> Result<File> {
    let path = file.path.as_deref().unwrap_or(Path::new(""));
    File::open(path).map_err(|e| read_error(file, &e))
}

/// True if a file has the first and the last bytes of what was read of it where they were.
fn holds(file: &mut File, head: &[u8], at: &TextPlace) -> io::Result<bool> {
    let tail = at.tail.bytes();
    let head = &head[..head.len().min(usize::try_from(at.offset).unwrap_or(usize::MAX))];
    Ok(bytes_at(file, at.offset - tail.len() as u64, tail.len())? == tail
        && bytes_at(file, 0, head.len())? == head)
}

impl Splitter for FollowSplitter {
    fn next_task(&mut self) -> Result<Cut> {
        loop {
            if let Some(mark) = self.marks.pop_front() {
                return Ok(Cut::Task(marking(mark, &self.reading)));
            }
            if let Some(cut) = self.next()? {
                return Ok(cut);
            }
            if !self.marks.is_empty() {
                continue;
            }
            if !self.found.is_empty() {
                self.begin()?;
                continue;
            }
            // A new file is seen at once, as at the beginning.
            self.block_bytes = self.reading.first_block_bytes.unwrap_or(FIRST_BLOCK_BYTES);
            if std::mem::replace(&mut self.has_looked, false) {
                return Ok(Cut::Wait(self.following.interval));
            }
            self.has_looked = true;
            self.look()?;
        }
    }
}
