//! What every connector must keep, as checks that any connector can be put through: the built-in
//! ones, and those of programs.
//!
//! | check | for | what is checked |
//! |---|---|---|
//! | [`check_description`] | every connector | the options that it describes are those that it takes |
//! | [`check_replayable`] | sources with positions | the same rows of each split however they are asked for, and from every position on those behind it |
//! | [`check_acknowledging`] | sources that keep records until they are acknowledged | each record counts once, whenever the job fails |
//! | [`check_source_cancel`] | sources whose peer may be stuck | no call blocks, and it ends within two seconds |
//! | [`check_start_cancel`] | sources whose start waits for a peer | it ends within two seconds once it is cancelled |
//! | [`check_sink`] | every sink | what its guarantee says, whenever the job fails: at every call, and at random |
//! | [`check_sink_cancel`] | sinks whose peer may be stuck | a call that blocks ends within two seconds |
//!
//! Each panics with what went wrong and the seed it went wrong with; the same seed does the same
//! again. What is not checked: what a power failure leaves behind (see the sink over files for
//! that).

mod cancel;
mod description;
mod queue;
mod sinks;
mod splits;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use thalweg_core::connector::{Source, SourcePoll, SplitEvent, SplitId};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Error, Result};

pub use self::cancel::{check_sink_cancel, check_source_cancel, check_start_cancel};
pub use self::description::check_description;
pub use self::queue::{MemoryQueue, QueueSource, check_acknowledging};
pub use self::sinks::{SinkCase, Visibility, check_sink};
pub use self::splits::{MemorySplits, SplitsSource};

/// A wake-up that takes longer than this does not come.
const WAKE_UP_TIMEOUT: Duration = Duration::from_secs(20);

/// A source that was started, and the wake-ups it has asked for.
pub(crate) struct Started {
    source: Box<dyn Source>,
    woken: Receiver<()>,
    /// The splits that it has opened, and whether they have ended.
    splits: BTreeMap<SplitId, (Arc<str>, bool)>,
}

/// Rows by the names of their splits; the name is empty where a source has none.
type RowsBySplit = BTreeMap<Arc<str>, Vec<RecordBatch>>;

impl Started {
    /// Resumes from a position, if there is one, in a job with snapshots.
    pub(crate) fn new(mut source: Box<dyn Source>, position: Option<&str>) -> Result<Started> {
        source.use_snapshots();
        Started::without_snapshots(source, position)
    }

    /// Resumes from a position, if there is one, in a job without snapshots.
    pub(crate) fn without_snapshots(
        mut source: Box<dyn Source>,
        position: Option<&str>,
    ) -> Result<Started> {
        if let Some(position) = position {
            source.seek(position)?;
        }
        let (wake, woken) = sync_channel(1);
        source.start(Arc::new(move || {
            // A wake-up that was not taken yet is enough.
            let _ = wake.try_send(());
        }))?;
        source.open()?;
        Ok(Started { source, woken, splits: BTreeMap::new() })
    }

    /// The first column of the next rows, which are this number.
    #[cfg(all(test, feature = "messaging"))]
    pub(crate) fn numbers(&mut self, count: usize) -> Vec<i64> {
        use arrow_array::{cast::AsArray, types::Int64Type};
        let mut numbers = Vec::new();
        while numbers.len() < count {
            let batch = self.next(count - numbers.len()).expect("rows").expect("no end");
            numbers.extend(batch.column(0).as_primitive::<Int64Type>().values());
        }
        numbers
    }

    /// The next rows; `None` at the end.
    pub(crate) fn next(&mut self, rows_max: usize) -> Result<Option<RecordBatch>> {
        Ok(self.next_of_split(rows_max)?.map(|(_, batch)| batch))
    }

    /// The next rows with the name of their split; `None` at the end.
    fn next_of_split(&mut self, rows_max: usize) -> Result<Option<(Arc<str>, RecordBatch)>> {
        loop {
            match self.source.poll(rows_max)? {
                SourcePoll::Batch(batch) => {
                    let rows = batch.batch.num_rows();
                    assert!(rows <= rows_max, "{rows} rows where {rows_max} were asked for");
                    return Ok(Some((self.open_split(batch.split), batch.batch)));
                }
                SourcePoll::Pending => {
                    let woken = self.woken.recv_timeout(WAKE_UP_TIMEOUT);
                    woken.map_err(|_| Error::internal("the source said Pending and never woke"))?;
                }
                SourcePoll::Heartbeat(split, _) => drop(self.open_split(split)),
                SourcePoll::Split(split, event) => self.note(split, event),
                SourcePoll::End => return Ok(None),
            }
        }
    }

    /// The name of a split of which something is given.
    fn open_split(&self, split: SplitId) -> Arc<str> {
        match self.splits.get(&split) {
            Some((name, false)) => Arc::clone(name),
            Some((name, true)) => panic!("split '{name}' has ended, and gives something"),
            None if self.splits.is_empty() && split == SplitId::ONLY => "".into(),
            None => panic!("{split:?} gives something and was not opened"),
        }
    }

    fn note(&mut self, split: SplitId, event: SplitEvent) {
        match event {
            SplitEvent::Opened(name) => {
                assert!(!name.is_empty(), "{split:?} is opened without a name");
                let is_open = |(known, has_ended): &(Arc<str>, bool)| *known == name && !has_ended;
                assert!(!self.splits.values().any(is_open), "split '{name}' is opened twice");
                let before = self.splits.insert(split, (name, false));
                assert!(before.is_none(), "{split:?} is given twice");
            }
            SplitEvent::Ended => {
                let name = self.open_split(split);
                self.splits.insert(split, (name, true));
            }
        }
    }

    /// The source.
    pub(crate) fn source(&mut self) -> &mut dyn Source {
        self.source.as_mut()
    }
}

/// All rows of a source.
fn read_all(source: Box<dyn Source>, rows_max: usize) -> Result<BTreeMap<Arc<str>, RecordBatch>> {
    let mut started = Started::new(source, None)?;
    let mut rows = RowsBySplit::new();
    while let Some((split, batch)) = started.next_of_split(rows_max)? {
        rows.entry(split).or_default().push(batch);
    }
    Ok(joined_by_split(&rows))
}

/// The rows of each split that has some as one batch.
fn joined_by_split(rows: &RowsBySplit) -> BTreeMap<Arc<str>, RecordBatch> {
    let one = |(split, batches): (&Arc<str>, &Vec<RecordBatch>)| {
        let rows = joined(batches).filter(|rows| rows.num_rows() > 0)?;
        Some((Arc::clone(split), rows))
    };
    rows.iter().filter_map(one).collect()
}

/// Rows as one batch; `None` if there is no batch at all.
pub(crate) fn joined(batches: &[RecordBatch]) -> Option<RecordBatch> {
    let first = batches.first()?;
    Some(concat_batches(&first.schema(), batches).expect("batches of one source are alike"))
}

/// Checks a source with positions, which `make` opens again over the same bounded input. Takes
/// `rounds` ways through the input, each with its own seed. The order of splits among each other
/// may be another one each time.
///
/// # Errors
/// Those of the source.
///
/// # Panics
/// If the source does not keep the contract.
pub fn check_replayable(make: &dyn Fn() -> Result<Box<dyn Source>>, rounds: u64) -> Result<()> {
    let expected = read_all(make()?, 1_000)?;
    assert!(!expected.is_empty(), "an input without rows checks nothing");
    for rows_max in [1, 7, usize::MAX] {
        assert_eq!(read_all(make()?, rows_max)?, expected, "asked for {rows_max} rows at a time");
    }
    let mut positions = Vec::new();
    for seed in 0..rounds {
        let rows = interrupted(make, &mut SplitMix64::new(seed), &mut positions)?;
        assert_eq!(joined_by_split(&rows), expected, "seed {seed}");
    }
    for (seed, position) in positions.iter().enumerate().take(8) {
        check_damaged(make, position, &mut SplitMix64::new(seed as u64))?;
    }
    Ok(())
}

/// Reads to the end, and gives up the source for a new one now and then.
fn interrupted(
    make: &dyn Fn() -> Result<Box<dyn Source>>,
    random: &mut SplitMix64,
    positions: &mut Vec<String>,
) -> Result<RowsBySplit> {
    let rows_max = 1 << random.below(12);
    let pause = 1 + random.below(12);
    let mut started = Started::new(make()?, None)?;
    let mut rows = RowsBySplit::new();
    let mut has_ended = false;
    loop {
        if has_ended || random.below(pause) == 0 {
            let position = started.source().position();
            let position = position.expect("a replayable source has a position");
            let again = reopened(make, &position);
            started.source().stop();
            started = Started::new(make()?, Some(&again?))?;
            positions.push(position);
        }
        match started.next_of_split(1 + random.below(rows_max) as usize)? {
            Some((split, batch)) => {
                assert!(!has_ended || batch.num_rows() == 0, "rows behind the end");
                rows.entry(split).or_default().push(batch);
            }
            None if has_ended => return Ok(rows),
            None => has_ended = true,
        }
    }
}

/// The position of a source that has a position and has not read on.
fn reopened(make: &dyn Fn() -> Result<Box<dyn Source>>, position: &str) -> Result<String> {
    let mut source = make()?;
    source.seek(position)?;
    Ok(source.position().expect("a source that found its position has one"))
}

/// What is no position must be an error, not a panic and not other rows.
fn check_damaged(
    make: &dyn Fn() -> Result<Box<dyn Source>>,
    position: &str,
    random: &mut SplitMix64,
) -> Result<()> {
    for damaged in ["", "{}", "[]", "null", "{\"row\":\"a\"}", "\u{0}"] {
        assert!(make()?.seek(damaged).is_err(), "{damaged:?} was taken for a position");
    }
    let cut = 1 + random.below(position.len() as u64 - 1) as usize;
    let cut = (0..=cut).rev().find(|&at| position.is_char_boundary(at)).unwrap_or(0);
    assert!(
        make()?.seek(&position[..cut]).is_err(),
        "{:?} was taken for a position",
        &position[..cut]
    );
    Ok(())
}
