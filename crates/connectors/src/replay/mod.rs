//! Dead letters that are read again: a source around that of a table, which gives the rows of
//! letters on a list ([`list`]) between those of its input.
//!
//! # Where the second position is
//! Next to that of the input, in the same text: the number of the last letter that was taken, and
//! those that could not be read this time either. So a snapshot holds both, and a row of a letter
//! is in the state of a job exactly if its number is in the position of the snapshot. While no
//! letter was taken the position is that of the input alone.
//!
//! **Invariants**
//! - A letter is taken only when the position of the input lies behind its record. Otherwise a job
//!   that went back to that position would read the record again, as a row or as a letter.
//! - When a job goes back, letters whose records lie behind the position it goes back to are taken
//!   off the list: their records are read again from the input.
//! - Letters are taken in the order of the list.
//!
//! It does not sort: in an input that is brought into the order of time a row of a letter has no
//! place, so nobody lists letters of such tables.

mod list;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use serde_json::{Value, json};
use thalweg_core::connector::{
    Origin, SourceBatch, SourceLayer, SourcePoll, SplitEvent, SplitId, Waker,
};
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::{Error, Result, Source};

pub use self::list::{Letter, List, ListedLetter, WAITING_MAX, letters_of, list_path};
use crate::pacing::timer;

/// How often the list is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What begins a position in which letters were taken.
const KEY: &str = "deadLetters";

/// Reads records of dead letters as the statements have them now.
pub trait LetterReader: Send {
    /// The row of a record, or why it is none.
    fn read(&self, letter: &Letter) -> Result<RecordBatch, String>;
}

/// A letter that could not be read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedLetter {
    /// Its number on the list.
    pub number: u64,
    /// Why.
    pub reason: String,
}

/// How far a position has come with letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LettersTaken {
    /// Those up to this number were taken.
    pub through: u64,
    /// Those of them that could not be read this time either.
    pub refused: Vec<RefusedLetter>,
}

impl LettersTaken {
    /// What the position of a source says; nothing was taken where it does not say. Other layers
    /// may have put something around it.
    pub fn of_position(position: &str) -> LettersTaken {
        fn find(value: &Value) -> Option<LettersTaken> {
            match value.get(KEY) {
                Some(taken) => LettersTaken::from_json(taken),
                None => find(value.get("inner")?),
            }
        }
        let value: Option<Value> = serde_json::from_str(position).ok();
        value.as_ref().and_then(find).unwrap_or_default()
    }

    /// True if a letter was taken, and is a row.
    pub fn has(&self, number: u64) -> bool {
        number <= self.through && self.reason(number).is_none()
    }

    /// Why a letter could not be read this time either.
    pub fn reason(&self, number: u64) -> Option<&str> {
        let found = self.refused.iter().find(|letter| letter.number == number);
        found.map(|letter| letter.reason.as_str())
    }

    fn from_json(value: &Value) -> Option<LettersTaken> {
        let refused = |own: &Value| {
            let number = own.get("number")?.as_u64()?;
            Some(RefusedLetter { number, reason: own.get("reason")?.as_str()?.to_owned() })
        };
        Some(LettersTaken {
            through: value.get("through")?.as_u64()?,
            refused: value.get("refused")?.as_array()?.iter().filter_map(refused).collect(),
        })
    }

    fn to_json(&self) -> Value {
        let refused = |own: &RefusedLetter| json!({"number": own.number, "reason": own.reason});
        let refused: Vec<Value> = self.refused.iter().map(refused).collect();
        json!({ "through": self.through, "refused": refused })
    }
}

/// The position of the input in a position of a table that reads dead letters again; any other
/// position is that itself.
///
/// # Errors
/// If what it says of letters makes no sense.
pub fn input_position(position: &str) -> Result<String> {
    Ok(parts_of(position)?.1)
}

/// How many bytes of dead letters a position of a table's own source covers.
fn covered(position: &str) -> u64 {
    let value: Value = serde_json::from_str(position).unwrap_or_default();
    let of_messages = || value.get("letters")?.get("bytes")?.as_u64();
    value.get("letterBytes").and_then(Value::as_u64).or_else(of_messages).unwrap_or(0)
}

/// A source that reads dead letters again.
pub struct ReplayedSource {
    inner: Box<dyn Source>,
    /// The file of dead letters, next to which the list is.
    letters: PathBuf,
    reader: Box<dyn LetterReader>,
    taken: LettersTaken,
    /// What the position that the job goes back to covers.
    covered_at_start: u64,
    /// Letters that were not taken yet.
    waiting: VecDeque<ListedLetter>,
    looked_ns: Option<u64>,
    clock: SystemClock,
    ticks: Option<timer::Registration>,
    /// The splits that are open.
    splits: Vec<(SplitId, Arc<str>)>,
    names_splits: bool,
    /// The input has said which splits it begins with.
    has_begun: bool,
    has_ended: bool,
}

impl ReplayedSource {
    /// Around the source of a table whose dead letters are in this file.
    pub fn new(inner: Box<dyn Source>, letters: PathBuf, reader: Box<dyn LetterReader>) -> Self {
        ReplayedSource {
            inner,
            letters,
            reader,
            taken: LettersTaken::default(),
            covered_at_start: 0,
            waiting: VecDeque::new(),
            looked_ns: None,
            clock: SystemClock::new(),
            ticks: None,
            splits: Vec::new(),
            names_splits: false,
            has_begun: false,
            has_ended: false,
        }
    }

    /// Looks for letters that were listed meanwhile.
    fn look(&mut self) -> Result<()> {
        let now_ns = self.clock.now_ns();
        let is_due = |looked: u64| now_ns.saturating_sub(looked) >= LOOK_EVERY.as_nanos() as u64;
        if !self.waiting.is_empty() || !self.looked_ns.is_none_or(is_due) {
            return Ok(());
        }
        self.looked_ns = Some(now_ns);
        if list_path(&self.letters).exists() {
            let through = self.taken.through;
            let new = List::read(&self.letters)?.letters.into_iter();
            self.waiting.extend(new.filter(|letter| letter.number > through));
        }
        Ok(())
    }

    /// The row of the next letter that can be taken.
    fn next_letter(&mut self) -> Result<Option<SourcePoll>> {
        self.look()?;
        while let Some(next) = self.waiting.front() {
            let position = self.inner.position().unwrap_or_default();
            if covered(&position) < next.letter.end {
                return Ok(None);
            }
            let Some(split) = self.split_of(&next.letter) else { return Ok(None) };
            let read = self.reader.read(&next.letter);
            let ListedLetter { number, letter } = self.waiting.pop_front().expect("seen above");
            self.taken.through = number;
            match read {
                Ok(batch) => {
                    let origin = Origin { file: letter.file.into(), first_row: letter.line };
                    let batch = SourceBatch { batch, origin: Some(origin), split };
                    return Ok(Some(SourcePoll::Batch(batch)));
                }
                Err(reason) => self.taken.refused.push(RefusedLetter { number, reason }),
            }
        }
        Ok(None)
    }

    /// The split that a letter is of, or another one that is open.
    fn split_of(&self, letter: &Letter) -> Option<SplitId> {
        if !self.names_splits {
            return Some(SplitId::ONLY);
        }
        // Of a message the place in its split stands behind the name.
        let is_own = |name: &str| match letter.file.strip_prefix(name) {
            Some(place) => place.is_empty() || place.starts_with(", "),
            None => false,
        };
        let own = self.splits.iter().find(|(_, name)| is_own(name));
        own.or_else(|| self.splits.first()).map(|(split, _)| *split)
    }

    fn note(&mut self, split: SplitId, event: &SplitEvent) {
        match event {
            SplitEvent::Opened(name) => {
                self.names_splits = true;
                self.splits.push((split, Arc::clone(name)));
            }
            SplitEvent::Ended => self.splits.retain(|(open, _)| *open != split),
        }
    }
}

/// What a position says of letters, and that of the input.
fn parts_of(position: &str) -> Result<(LettersTaken, String)> {
    let value: Value = serde_json::from_str(position).unwrap_or_default();
    let Some(taken) = value.get(KEY) else {
        return Ok((LettersTaken::default(), position.to_owned()));
    };
    let taken = LettersTaken::from_json(taken);
    taken.zip(value.get("inner").map(Value::to_string)).ok_or_else(|| {
        Error::user("the position says nothing of dead letters that makes sense")
            .hint("the snapshot is of another version, or damaged")
    })
}

impl SourceLayer for ReplayedSource {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }

    fn inner_mut(&mut self) -> &mut dyn Source {
        self.inner.as_mut()
    }

    fn start(&mut self, waker: Waker) -> Result<()> {
        self.inner.start(Arc::clone(&waker))?;
        self.ticks = Some(timer::register(waker, LOOK_EVERY.as_nanos() as u64)?);
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        self.inner.open()?;
        if list_path(&self.letters).exists() {
            let (through, covered) = (self.taken.through, self.covered_at_start);
            List::keep(&self.letters, |own| own.number <= through || own.letter.end <= covered)?;
        }
        Ok(())
    }

    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        if self.has_begun
            && let Some(row) = self.next_letter()?
        {
            return Ok(row);
        }
        if self.has_ended {
            return Ok(SourcePoll::End);
        }
        match self.inner.poll(rows_max)? {
            SourcePoll::Split(split, event) => {
                self.note(split, &event);
                Ok(SourcePoll::Split(split, event))
            }
            SourcePoll::End => {
                (self.has_begun, self.has_ended, self.looked_ns) = (true, true, None);
                Ok(self.next_letter()?.unwrap_or(SourcePoll::End))
            }
            other => {
                self.has_begun = true;
                Ok(other)
            }
        }
    }

    fn stop(&mut self) {
        self.ticks = None;
        self.inner.stop();
    }

    fn position(&self) -> Option<String> {
        let inner = self.inner.position()?;
        if self.taken.through == 0 {
            return Some(inner);
        }
        let taken = self.taken.to_json();
        Some(format!("{{\"{KEY}\":{taken},\"inner\":{inner}}}"))
    }

    fn seek(&mut self, position: &str) -> Result<()> {
        let (taken, inner) = parts_of(position)?;
        (self.taken, self.covered_at_start) = (taken, covered(&inner));
        self.inner.seek(&inner)
    }

    fn check_ended(&mut self, position: &str) -> Result<()> {
        let (taken, inner) = parts_of(position)?;
        self.taken = taken;
        self.inner.check_ended(&inner)
    }

    fn committed(&mut self, position: &str) -> Result<()> {
        self.inner.committed(&parts_of(position)?.1)
    }

    fn finish(&mut self) -> Result<()> {
        self.ticks = None;
        self.inner.finish()
    }
}

/// The source of a table, around which one reads dead letters again if the table keeps any.
///
/// # Errors
/// If the file of dead letters can't be where it is named.
pub(crate) fn replaying(
    source: Box<dyn Source>,
    letters: Option<&Path>,
    reader: impl FnOnce() -> Result<Box<dyn LetterReader>>,
) -> Result<Box<dyn Source>> {
    Ok(match letters {
        None => source,
        Some(letters) => Box::new(ReplayedSource::new(source, letters.to_path_buf(), reader()?)),
    })
}
