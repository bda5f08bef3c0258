//! A statement that was sent, and how far it is.
//!
//! ```text
//! RUNNING ──▶ FINISHED: its result can be fetched; a query continues to write rows
//!    │  └───▶ ERROR: fetching says why
//!    └──────▶ CANCELED, CLOSED: by the client
//! ```
//!
//! A page of rows is asked for by its number. The next one and the one before can be asked for, so
//! that whoever has lost an answer asks again.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arrow_array::RecordBatch;
use thalweg_core::TableSchema;
use thalweg_core::connector::Waker;
use thalweg_library::session::Tz;
use thalweg_runtime::JobControl;
use tokio::sync::Notify;

use super::rows::{Piece, WaitingRows};
use crate::problem::{Outcome, Problem};

/// How long a fetch waits for rows before it says that there are none.
const FETCH_WAIT: Duration = Duration::from_millis(100);

/// How far an operation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Its statement is planned or starts.
    #[default]
    Running,
    /// Its result can be fetched.
    Finished,
    /// It has failed.
    Error,
    /// A client has cancelled it.
    Canceled,
    /// It was closed.
    Closed,
}

impl Status {
    /// The word of the interface.
    pub fn word(self) -> &'static str {
        match self {
            Status::Running => "RUNNING",
            Status::Finished => "FINISHED",
            Status::Error => "ERROR",
            Status::Canceled => "CANCELED",
            Status::Closed => "CLOSED",
        }
    }
}

/// What a statement has answered.
#[derive(Clone)]
pub struct Answer {
    /// It is of a query.
    pub is_query: bool,
    /// It says no more than that all is well.
    pub is_plain: bool,
    /// The job that it has started.
    pub job_id: Option<String>,
    /// The columns.
    pub schema: TableSchema,
    /// Where instants are shown.
    pub zone: Tz,
    /// The rows.
    pub rows: Arc<WaitingRows>,
}

impl Answer {
    /// Rows that are all there.
    pub fn of(schema: TableSchema, batch: RecordBatch) -> Answer {
        let rows = Arc::new(WaitingRows::of(Some(batch)));
        Answer { is_query: false, is_plain: false, job_id: None, schema, zone: Tz::UTC, rows }
    }
}

#[derive(Default)]
struct Progress {
    status: Status,
    answer: Option<Answer>,
    problem: Option<Problem>,
    /// The number of the next page.
    next: u64,
    /// The page before.
    last: Vec<Piece>,
    control: Option<JobControl>,
    cancellers: Vec<Waker>,
}

/// A statement that was sent.
#[derive(Default)]
pub struct Operation {
    /// Its name.
    pub handle: String,
    progress: Mutex<Progress>,
    /// It has got on.
    news: Notify,
    /// Fetches of one operation come one after another.
    fetching: tokio::sync::Mutex<()>,
}

/// What a fetch has found.
pub enum Page {
    /// There is no result yet.
    NotReady,
    /// Rows, perhaps none.
    Rows(Answer, Vec<Piece>),
    /// All rows were read.
    End(Answer),
}

impl Operation {
    /// One that begins.
    pub fn new(handle: String) -> Operation {
        Operation { handle, ..Operation::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("no panic under this lock")
    }

    /// How far it is.
    pub fn status(&self) -> Status {
        self.lock().status
    }

    /// True once nobody wants its result any more.
    pub fn is_left(&self) -> bool {
        matches!(self.status(), Status::Canceled | Status::Closed)
    }

    /// Its result can be fetched.
    pub fn answer(&self, answer: Answer) {
        let mut progress = self.lock();
        if progress.status == Status::Running {
            progress.status = Status::Finished;
            progress.answer = Some(answer);
        }
        drop(progress);
        self.news.notify_waiters();
    }

    /// It has failed; behind the rows of a query, if those can be fetched.
    pub fn fail(&self, problem: Problem) {
        let mut progress = self.lock();
        match &progress.answer {
            Some(answer) => answer.rows.end(Err(problem.clone())),
            None if progress.status == Status::Running => progress.status = Status::Error,
            None => {}
        }
        progress.problem = Some(problem);
        drop(progress);
        self.news.notify_waiters();
    }

    /// What ends the waits of its job while that starts.
    pub fn note_start(&self, cancellers: Vec<Waker>) {
        let mut progress = self.lock();
        progress.cancellers = cancellers;
        if progress.status != Status::Running {
            progress.cancellers.iter().for_each(|cancel| cancel());
        }
    }

    /// Its job runs.
    pub fn note_run(&self, control: &JobControl) {
        let mut progress = self.lock();
        progress.cancellers.clear();
        progress.control = Some(control.clone());
        if !matches!(progress.status, Status::Running | Status::Finished) {
            control.cancel();
        }
    }

    /// Nobody wants its result any more: its job is cut off.
    pub fn leave(&self, status: Status) {
        let mut progress = self.lock();
        progress.status = status;
        progress.cancellers.iter().for_each(|cancel| cancel());
        if let Some(control) = &progress.control {
            control.cancel();
        }
        let answer = progress.answer.take();
        progress.last.clear();
        drop(progress);
        if let Some(answer) = answer {
            answer.rows.close();
        }
        self.news.notify_waiters();
    }

    /// A page of its result.
    ///
    /// # Errors
    /// Why it has failed; if this page cannot be had.
    pub async fn fetch(&self, token: u64) -> Outcome<Page> {
        let _one_at_a_time = self.fetching.lock().await;
        let Some(answer) = self.await_answer().await? else { return Ok(Page::NotReady) };
        let next = {
            let progress = self.lock();
            if token.checked_add(1) == Some(progress.next) {
                return Ok(Page::Rows(answer, progress.last.clone()));
            }
            progress.next
        };
        if token != next {
            let detail = format!("Expecting token to be {next}, but found {token}.");
            return Err(Problem::new(409, "no-such-page", detail));
        }
        wait_for(&answer.rows.news, || answer.rows.is_ready()).await;
        let taken = answer.rows.take().inspect_err(|_| self.lock().status = Status::Error)?;
        if taken.is_end {
            return Ok(Page::End(answer));
        }
        let mut progress = self.lock();
        progress.next += 1;
        progress.last.clone_from(&taken.pieces);
        Ok(Page::Rows(answer, taken.pieces))
    }

    /// The result, once there is one; it is waited for a moment.
    async fn await_answer(&self) -> Outcome<Option<Answer>> {
        wait_for(&self.news, || self.status() != Status::Running).await;
        let progress = self.lock();
        match (progress.status, &progress.answer, &progress.problem) {
            (Status::Running, ..) => Ok(None),
            (_, Some(answer), _) => Ok(Some(answer.clone())),
            (_, None, Some(problem)) => Err(problem.clone()),
            (status, None, None) => {
                let detail = format!("the operation is {}: it has no result", status.word());
                Err(Problem::new(409, "no-such-page", detail))
            }
        }
    }
}

/// Waits until this is so, but not for long.
async fn wait_for(news: &Notify, is_so: impl Fn() -> bool) {
    let notice = news.notified();
    tokio::pin!(notice);
    // From now on a notice is not missed.
    notice.as_mut().enable();
    if !is_so() {
        let _ = tokio::time::timeout(FETCH_WAIT, notice).await;
    }
}
