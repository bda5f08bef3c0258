//! Following files: those of a folder or glob as they appear and, where they are plain text, as they grow.
//!
//! A look lists the files. Of each, in name order, what is complete is read: a last record without an end
//! waits for the look that finds its end. Then nothing happens until the next look, `'source.monitor-interval'`
//! later. Compressed texts and files of rows cannot grow; they are read once, when they appear, so they must
//! appear complete (renamed into the folder).
//!
//! A file that became shorter, or whose bytes around the last place are others, is an error; one that was read
//! to its end may go.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use thalweg_core::Result;
use thalweg_core::connector::TableRequest;

use super::blocks::{FIRST_BLOCK_BYTES, Open, cut_block, decoding, grown};
use super::compression::Compression;
use super::paths::{self, InputFile};
use super::position::{Place, Work, changed};
use super::source::{Reading, rows_of};
use crate::handover::{Cut, Splitter};

/// Where the files are, and how often to look.
#[derive(Clone)]
pub struct Following {
    /// The table.
    pub request: TableRequest,
    /// The time between looks.
    pub interval: Duration,
}

/// What is known of a file.
struct Known {
    number: usize,
    at: Option<Place>,
    /// Its length when it was read last, in bytes.
    size: u64,
}

/// Reads what there is, and looks again.
pub struct FollowSplitter {
    reading: Arc<Reading>,
    following: Following,
    /// By label.
    known: HashMap<Arc<str>, Known>,
    /// Numbers that were given.
    numbers: usize,
    /// What this look has found and is not read yet.
    found: VecDeque<InputFile>,
    open: Option<Current>,
    /// This look has been made.
    has_looked: bool,
    block_bytes: usize,
}

/// The file that is being read.
enum Current {
    Text { label: Arc<str>, open: Open, last: Option<Place> },
    Rows(Box<dyn Splitter>),
}

impl FollowSplitter {
    /// Goes on with these files, and with others as they appear.
    pub fn new(reading: Arc<Reading>, following: Following, work: Vec<Work>) -> Self {
        let numbers = work.iter().map(|work| work.number + 1).max().unwrap_or(0);
        let known = |work: Work| {
            let known = Known { number: work.number, at: work.from, size: 0 };
            (work.file.label.clone(), known)
        };
        let known = work.into_iter().map(known).collect();
        let block_bytes = reading.first_block_bytes.unwrap_or(FIRST_BLOCK_BYTES);
        FollowSplitter {
            reading,
            following,
            known,
            numbers,
            found: VecDeque::new(),
            open: None,
            has_looked: false,
            block_bytes,
        }
    }

    /// Lists the files.
    fn look(&mut self) -> Result<()> {
        let Following { request, .. } = &self.following;
        let path = request.options.get("path").map_or("", String::as_str);
        self.found = paths::present(request, path)?.into();
        // Those that have gone are forgotten: one of that name is another file.
        let names: HashSet<&str> = self.found.iter().map(|file| file.label.as_ref()).collect();
        self.known.retain(|label, _| names.contains(label.as_ref()));
        Ok(())
    }

    /// Begins the next file that has something new.
    fn begin(&mut self) -> Result<()> {
        while let Some(file) = self.found.pop_front() {
            let can_grow = self.reading.format.is_text()
                && file.path.as_deref().map(Compression::of) == Some(Compression::None);
            let known = self.known.get(&file.label).map(|known| (known.at, known.size));
            let (at, size) = known.unwrap_or((None, 0));
            if known.is_some() && size == file.size {
                continue;
            }
            if known.is_some() && size > 0 && (!can_grow || file.size < size) {
                return Err(changed(&file, "has another length than when it was read"));
            }
            if file.size == 0 {
                continue;
            }
            self.start(file, at, can_grow)?;
            return Ok(());
        }
        Ok(())
    }

    fn start(&mut self, file: InputFile, from: Option<Place>, can_grow: bool) -> Result<()> {
        let (label, file) = (file.label.clone(), Arc::new(file));
        let numbers = &mut self.numbers;
        let known = self.known.entry(label.clone()).or_insert_with(|| {
            *numbers += 1;
            Known { number: *numbers - 1, at: None, size: 0 }
        });
        known.size = file.size;
        let work = Work { number: known.number, file, from };
        self.open = Some(match self.reading.format.is_text() {
            true => Current::Text { label, open: Open::new(work, can_grow)?, last: from },
            false => Current::Rows(rows_of(&self.reading, vec![work])),
        });
        Ok(())
    }

    /// The next piece of the file that is open.
    fn next(&mut self) -> Result<Option<Cut>> {
        match &mut self.open {
            None => Ok(None),
            Some(Current::Rows(rows)) => match rows.next_task()? {
                Cut::End => {
                    self.open = None;
                    Ok(None)
                }
                cut => Ok(Some(cut)),
            },
            Some(Current::Text { label, open, last }) => {
                let block = cut_block(&self.reading.format, open, self.block_bytes)?;
                if let Some(block) = block {
                    *last = Some(block.end.place);
                    if self.reading.first_block_bytes.is_none() {
                        self.block_bytes = grown(self.block_bytes);
                    }
                    return Ok(Some(Cut::Task(decoding(block, &self.reading))));
                }
                if let Some(known) = self.known.get_mut(label) {
                    known.at = *last;
                }
                self.open = None;
                Ok(None)
            }
        }
    }
}

impl Splitter for FollowSplitter {
    fn next_task(&mut self) -> Result<Cut> {
        loop {
            if let Some(cut) = self.next()? {
                return Ok(cut);
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
