//! Looks rows up by key: each batch of keys is a query, and a few of them run at the same time.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, Sender, unbounded};
use thalweg_core::lookup::{Answer, AsyncLookup, LookupRequest};
use thalweg_core::{Error, Result, TableSchema};

use super::options::JdbcOptions;
use super::statements::{TextRow, is_one_of};
use crate::network::Cancel;
use crate::postgres::catalog::{ServerColumn, ServerTable, column_list};
use crate::postgres::decode::RowBuilder;
use crate::postgres::encode::TextRows;
use crate::postgres::failure::{Failure, Outcome};
use crate::postgres::session::Session;

/// Connections of a table, and so queries at the same time.
const CONNECTIONS: usize = 4;

/// A table that is looked up.
pub struct JdbcLookup {
    questions: Sender<Question>,
    keys: TableSchema,
    cancel: Cancel,
}

/// Keys that are looked up, and where the answer goes.
struct Question {
    keys: Vec<TextRow>,
    answer: Pending,
}

/// What is asked.
struct Asked {
    table: String,
    delivered: TableSchema,
    select: String,
    keys: Vec<ServerColumn>,
}

impl JdbcLookup {
    /// Finds the table.
    ///
    /// # Errors
    /// If it is not there, or lacks a column.
    pub fn open(request: &LookupRequest, options: &JdbcOptions) -> Result<JdbcLookup> {
        let (table, cancel) = (request.table.table.clone(), Cancel::default());
        let session =
            || Session::new(options.settings.clone(), cancel.clone(), options.give_up_after);
        let mut first = session();
        let named = &options.table_name;
        let found = ServerTable::open(&mut first, &table, named)?;
        let delivered = request.columns();
        let is_key = |name: &String| delivered.columns.iter().find(|column| column.name == *name);
        let keys = TableSchema::new(request.keys.iter().filter_map(is_key).cloned().collect());
        let columns = column_list(&found.match_columns(&delivered)?);
        let asked = Arc::new(Asked {
            table: format!("lookup {table}"),
            select: format!("SELECT {columns} FROM {}", found.sql_name()),
            keys: found.match_columns(&keys)?,
            delivered,
        });
        let (questions, queue) = unbounded();
        let others = (1..CONNECTIONS).map(|_| session());
        for mut session in std::iter::once(first).chain(others) {
            let (queue, asked) = (queue.clone(), Arc::clone(&asked));
            let body = move || answer_all(&mut session, &queue, &asked);
            let spawned = std::thread::Builder::new().name(format!("lookup {table}")).spawn(body);
            spawned.map_err(|e| Error::resource(format!("no thread for a connection: {e}")))?;
        }
        Ok(JdbcLookup { questions, keys, cancel })
    }
}

impl Drop for JdbcLookup {
    fn drop(&mut self) {
        self.cancel.set();
    }
}

impl AsyncLookup for JdbcLookup {
    fn lookup(&self, keys: RecordBatch) -> Answer {
        let rows = TextRows::new(&keys, &self.keys);
        let keys = (0..keys.num_rows()).map(|row| rows.row(row)).collect();
        let answer = Pending::default();
        // The threads end with the table.
        let _gone = self.questions.send(Question { keys, answer: answer.clone() });
        Box::pin(answer)
    }
}

/// Answers until the table has gone.
fn answer_all(session: &mut Session, questions: &Receiver<Question>, asked: &Asked) {
    while let Ok(Question { keys, answer }) = questions.recv() {
        // A connection that was idle may have been closed meanwhile; a second attempt shows it.
        let mut result = ask(session, asked, &keys);
        if result.as_ref().is_err_and(Failure::is_passing) {
            result = ask(session, asked, &keys);
        }
        answer.set(result.map_err(|failure| session.explained(failure, &asked.table)));
    }
}

fn ask(session: &mut Session, asked: &Asked, keys: &[TextRow]) -> Outcome<RecordBatch> {
    let columns: Vec<&ServerColumn> = asked.keys.iter().collect();
    let sql = format!("{} WHERE {}", asked.select, is_one_of(&columns, keys.iter()));
    session.try_call(&mut |connection| {
        let mut builder = RowBuilder::new(&asked.delivered);
        connection.query_each(&sql, &mut |row| Ok(builder.append(row.values())?))?;
        Ok(builder.finish()?)
    })
}

/// An answer that is on its way.
#[derive(Clone, Default)]
struct Pending(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    answer: Option<Result<RecordBatch>>,
    waker: Option<Waker>,
}

impl Pending {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, answer: Result<RecordBatch>) {
        let mut slot = self.slot();
        slot.answer = Some(answer);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }
}

impl Future for Pending {
    type Output = Result<RecordBatch>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.slot();
        match slot.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
