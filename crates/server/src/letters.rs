//! Dead letters of a job: which there are, which of them are to be read again, and what came of it.
//!
//! Whoever wants letters to be read again puts them on a list next to their file
//! ([`thalweg_connectors::replay`]); the job takes them from there, and its snapshots say how far
//! it has come. Nothing here is remembered: what became of a letter follows from the file, the list
//! and the newest snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use serde::{Deserialize, Serialize};
use thalweg_connectors::replay::{Letter, LettersTaken, List, letters_of};
use thalweg_core::shim::Clock;
use thalweg_core::{OrderContract, Watermark, WatermarkBefore};
use thalweg_library::session::Session;
use thalweg_state::SnapshotStore;

use crate::catalogue::{JobRecord, Revision};
use crate::lifecycle::State;
use crate::operations::{Operation, OperationKind, ReplayedLetters};
use crate::problem::{Outcome, Problem};
use crate::run::store_of;
use crate::server::Server;

/// Letters that are read again by one request at most.
const LETTERS_MAX: usize = 10_000;
/// Reasons that an operation names at most; the list of letters has all.
const REASONS_MAX: usize = 100;
/// How often is looked whether a snapshot has come.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Which dead letters are to be read again: those with these names, those for which a condition is
/// true, or else all that were not read again yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReplayBody {
    /// Only those of this table.
    pub table: Option<String>,
    /// Their names, as `GET …/dead-letters` shows them (`id`).
    #[serde(default)]
    pub ids: Vec<String>,
    /// A condition in SQL over `file`, `line`, `reason` and `raw`.
    #[serde(default, rename = "where")]
    pub condition: Option<String>,
}

/// What became of a letter that was to be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    /// It is on the list, and no snapshot has its row yet.
    Listed,
    /// Its row is in a snapshot.
    Done,
    /// It could not be read this time either.
    Refused,
}

impl Replay {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Replay::Listed => "listed",
            Replay::Done => "done",
            Replay::Refused => "refused",
        }
    }
}

/// The tables of a job that keep dead letters in a file, and what its newest snapshot says of them.
pub struct Kept {
    /// Each table with its file.
    pub files: Vec<(String, PathBuf)>,
    positions: BTreeMap<String, String>,
}

impl Kept {
    /// How far the newest snapshot has come with letters of a table.
    pub fn taken(&self, table: &str) -> LettersTaken {
        self.positions.get(table).map(|own| LettersTaken::of_position(own)).unwrap_or_default()
    }
}

/// What a letter is called.
pub fn name_of(table: &str, letter: &Letter) -> String {
    format!("{table}:{}", letter.end)
}

impl Server {
    /// The dead letters of a job.
    ///
    /// # Errors
    /// If its statements are wrong by now.
    pub fn dead_letters_kept(&self, record: &JobRecord, revision: Revision) -> Outcome<Kept> {
        let options = self.session_options(record, &revision)?;
        let plan = self.plan(record, &revision)?;
        let revision = self.with_params(revision)?;
        let of_text = |error| Problem::of_error(&error, &revision.sql);
        let files = Session::new(options)?.dead_letter_files(&revision.sql).map_err(of_text)?;
        let positions = match store_of(&plan)? {
            Some(store) => positions_of(&store)?,
            None => BTreeMap::new(),
        };
        Ok(Kept { files, positions })
    }

    /// Dead letters are to be read again, with the statements that the job has now. The operation
    /// ends when a snapshot has their rows.
    ///
    /// # Errors
    /// If the job does not run, takes no snapshots or keeps no letters; if its contract has no
    /// place for rows that come a second time.
    pub fn replay(self: &Arc<Self>, name: &str, body: &ReplayBody, by: &str) -> Outcome<Operation> {
        self.check_open()?;
        let job = self.job(name)?;
        let (record, shown) = {
            let state = job.lock();
            (state.record.clone(), state.shown)
        };
        if !matches!(shown, State::Running | State::Paused) {
            let detail = format!("the job is {}: only a job that runs reads letters", shown.word());
            return Err(Problem::new(409, "does-not-run", detail));
        }
        let revision = self.catalogue.revision(name, record.revision)?;
        let revision = revision
            .ok_or_else(|| Problem::new(409, "no-such-revision", "the job has no statements"))?;
        let plan = self.plan(&record, &revision)?;
        let Some(store) = store_of(&plan)? else {
            return Err(Problem::new(
                409,
                "no-snapshots",
                "the job takes no snapshots, so nothing would say which letters were read again",
            ));
        };
        let kept = self.dead_letters_kept(&record, revision)?;
        check_order(plan.order, &kept)?;
        let wanted = chosen(&kept, body)?;
        let mut listed = Vec::new();
        for (table, path, letters) in wanted {
            let taken = kept.taken(&table);
            let numbers = List::add(&path, &letters, |number| taken.reason(number).is_none())?;
            let names = letters.iter().map(|letter| name_of(&table, letter));
            let letters = numbers.into_iter().zip(names).collect();
            listed.push(Listed { table, path, letters });
        }
        let count: usize = listed.iter().map(|own| own.letters.len()).sum();
        self.event(&job, "request", "replay", Some(format!("{count} dead letters")), by);
        let operation = {
            let state = job.lock();
            let about = (name, state.record.generation);
            let now_ms = self.clock.wall_ms();
            self.operations.add(OperationKind::Replay, about, (state.shown, now_ms))
        };
        let (own, id) = (Arc::clone(self), operation.id.clone());
        let wait = move || {
            let ended = own.replayed(&job, &store, &listed);
            own.operations.end_replay(&id, ended, own.clock.wall_ms());
        };
        let thread = std::thread::Builder::new().name("replay".to_owned()).spawn(wait);
        thread.map_err(|error| Problem::new(503, "no-threads", error.to_string()))?;
        Ok(operation)
    }

    /// Waits until a snapshot says what became of all letters.
    fn replayed(
        &self,
        job: &crate::job::Job,
        store: &SnapshotStore,
        listed: &[Listed],
    ) -> Outcome<ReplayedLetters> {
        let mut looked_at = None;
        loop {
            let newest = store.newest_number_of(store.lineage()?.as_ref())?;
            if newest != looked_at || listed.iter().all(|own| own.letters.is_empty()) {
                looked_at = newest;
                if let Some(done) = done(&positions_of(store)?, listed)? {
                    return Ok(done);
                }
            }
            let shown = job.lock().shown;
            if self.is_closing() || shown.is_at_rest() {
                let detail = format!(
                    "the job is {} before a snapshot had the rows: the letters stay listed, and it reads them when it \
                     runs again",
                    shown.word()
                );
                return Err(Problem::new(409, "does-not-run", detail));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// Letters of a table that are on its list.
struct Listed {
    table: String,
    path: PathBuf,
    /// The number on the list, and the name.
    letters: Vec<(u64, String)>,
}

/// What became of all letters, once that is known.
fn done(
    positions: &BTreeMap<String, String>,
    listed: &[Listed],
) -> Outcome<Option<ReplayedLetters>> {
    let mut done = ReplayedLetters::default();
    for Listed { table, path, letters } in listed {
        let taken = positions.get(table).map(|own| LettersTaken::of_position(own));
        let taken = taken.unwrap_or_default();
        let mut open = letters.iter().filter(|(number, _)| *number > taken.through).peekable();
        if open.peek().is_some() {
            let list = List::read(path)?;
            let is_off = |number: u64| !list.letters.iter().any(|own| own.number == number);
            if open.any(|(number, _)| is_off(*number)) {
                let detail = "the job went back to a snapshot before the records of these letters, and reads those \
                              again from its input: look which letters there are by then";
                return Err(Problem::new(409, "went-back", detail));
            }
            return Ok(None);
        }
        for (number, name) in letters {
            match taken.reason(*number) {
                None => done.rows += 1,
                Some(reason) => {
                    done.refused += 1;
                    if done.reasons.len() < REASONS_MAX {
                        done.reasons.push((name.clone(), reason.to_owned()));
                    }
                }
            }
        }
    }
    Ok(Some(done))
}

/// The positions of the sources in the newest snapshot, by the names of their tables.
fn positions_of(store: &SnapshotStore) -> Outcome<BTreeMap<String, String>> {
    let Some(number) = store.newest_number_of(store.lineage()?.as_ref())? else {
        return Ok(BTreeMap::new());
    };
    let stages = store.describe(number)?.stages.into_iter();
    let position =
        |stage: thalweg_core::snapshot::StageState<_>| Some((stage.name, stage.source?.position?));
    Ok(stages.filter_map(position).collect())
}

/// A row that comes a second time has no place where inputs are in the order of time.
fn check_order(order: OrderContract, kept: &Kept) -> Outcome<()> {
    let is_sorted = |position: &String| position.contains("\"leftMs\":");
    let sorted =
        kept.files.iter().find(|(table, _)| kept.positions.get(table).is_some_and(is_sorted));
    let what = match (order, sorted) {
        (OrderContract::EventTime, _) => "the contract 'event_time'".to_owned(),
        (_, Some((table, _))) => format!("'source.sort-within' of table {table}"),
        _ => return Ok(()),
    };
    let detail = format!(
        "{what} brings rows into the order of their time, in which a row that comes a second time has no place: \
         append the mended records to the input, or start the job from scratch"
    );
    Err(Problem::new(409, "order", detail))
}

/// A table, its file, and letters of it.
type TableLetters = (String, PathBuf, Vec<Letter>);

/// The letters that a request means.
fn chosen(kept: &Kept, body: &ReplayBody) -> Outcome<Vec<TableLetters>> {
    let is_meant = |name: &String| body.table.as_ref().is_none_or(|table| table == name);
    let files: Vec<_> = kept.files.iter().filter(|(table, _)| is_meant(table)).collect();
    if files.is_empty() {
        let detail = "no such table of the job keeps dead letters in a file: 'bad-data' = 'dead-letter' and \
                      'dead-letter.path' do";
        return Err(Problem::new(409, "no-letters", detail));
    }
    let session = Session::default();
    let (mut found, mut count, mut missing) = (Vec::new(), 0, body.ids.clone());
    for (table, path) in files {
        let (list, taken) = (List::read(path)?, kept.taken(table));
        let done = list.letters.iter().filter(|own| taken.has(own.number));
        let done: BTreeSet<u64> = done.map(|own| own.letter.end).collect();
        let mut letters = Vec::new();
        letters_of(path, u64::MAX, |letter| {
            let name = name_of(table, &letter);
            let is_named = body.ids.is_empty() || body.ids.contains(&name);
            missing.retain(|id| *id != name);
            if is_named && !done.contains(&letter.end) {
                letters.push(letter);
            }
        })?;
        if let Some(condition) = &body.condition {
            letters = fulfilling(&session, condition, letters)?;
        }
        count += letters.len();
        found.push((table.clone(), path.clone(), letters));
    }
    if let Some(id) = missing.first() {
        let detail = format!("there is no dead letter '{id}'; GET dead-letters shows their names");
        return Err(Problem::new(404, "no-such-letter", detail));
    }
    if count > LETTERS_MAX {
        let detail = format!(
            "{count} letters are meant, and one request takes {LETTERS_MAX}: choose by 'where'"
        );
        return Err(Problem::new(413, "too-many", detail));
    }
    Ok(found)
}

/// Those for which a condition is true.
fn fulfilling(session: &Session, condition: &str, letters: Vec<Letter>) -> Outcome<Vec<Letter>> {
    let of_text = |error| Problem::of_error(&error, condition);
    let texts = |of: fn(&Letter) -> String| -> arrow_array::ArrayRef {
        Arc::new(letters.iter().map(of).map(Some).collect::<StringArray>())
    };
    let numbers = |of: fn(&Letter) -> u64| -> arrow_array::ArrayRef {
        Arc::new(letters.iter().map(|letter| of(letter) as i64).collect::<Int64Array>())
    };
    let batch = RecordBatch::try_from_iter([
        ("file", texts(|letter| letter.file.clone())),
        ("line", numbers(|letter| letter.line)),
        ("reason", texts(|letter| letter.reason.clone())),
        ("raw", texts(|letter| String::from_utf8_lossy(&letter.raw).into_owned())),
        ("$end", numbers(|letter| letter.end)),
    ])
    .map_err(thalweg_core::Error::from)?;
    let shown = session.shown_rows(batch.schema_ref(), Some(condition)).map_err(of_text)?;
    let rows = shown.show(&batch, None, &WatermarkBefore::All(Watermark::MIN)).map_err(of_text)?;
    let ends: Vec<u64> = rows
        .iter()
        .filter_map(|row| {
            serde_json::from_str::<serde_json::Value>(&row.json).ok()?["$end"].as_u64()
        })
        .collect();
    Ok(letters.into_iter().filter(|letter| ends.binary_search(&letter.end).is_ok()).collect())
}
