//! The source: rows of the reader as batches, and the position behind the last of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_core::connector::{
    Source, SourceBatch, SourcePoll, SplitId, SplitStatus, TableRequest, Trouble, Waker,
};
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{Error, Result, RowKind, TableSchema};

use super::lsn;
use super::options::{CdcOptions, StartupMode};
use super::position::Position;
use super::reader::{Reader, Target};
use super::rows::{ChangedRow, Group};
use super::slot;
use crate::network::Cancel;
use crate::network::feed::{Fed, Feed};
use crate::postgres::decode::RowBuilder;
use crate::postgres::failure::{Failure, Outcome};
use crate::postgres::session::Session;

/// Groups that wait for the job.
const GROUPS_AHEAD: usize = 16;

/// The changes of a table.
pub struct CdcSource {
    request: TableRequest,
    options: CdcOptions,
    cancel: Cancel,
    /// Ends the waits of a start: the job may run all the same.
    starting: Cancel,
    waker: Option<Waker>,
    target: Option<Target>,
    feed: Option<Feed<Group>>,
    /// Behind the last row that was returned; `None` before the first.
    position: Option<Position>,
    /// Rows that the reader has handed over, and how many of them were returned.
    current: Option<(Group, usize)>,
    builder: RowBuilder,
    /// How many columns are those of the table.
    width: usize,
    /// The log up to here is not needed any more.
    confirmed: Arc<AtomicU64>,
    /// Positions of snapshots that are kept, oldest first.
    kept: VecDeque<u64>,
    /// What goes wrong and is tried again.
    trouble: Trouble,
}

impl CdcSource {
    /// A source of this table.
    pub fn new(request: TableRequest, options: CdcOptions) -> CdcSource {
        let delivered = request.delivered();
        let extra = request.metadata.len() + usize::from(request.reads_kinds);
        CdcSource {
            width: delivered.len() - extra,
            builder: RowBuilder::new(&delivered),
            request,
            options,
            cancel: Cancel::default(),
            starting: Cancel::default(),
            waker: None,
            target: None,
            feed: None,
            position: None,
            current: None,
            confirmed: Arc::default(),
            kept: VecDeque::new(),
            trouble: Trouble::default(),
        }
    }

    fn doing(&self) -> String {
        format!("table {}", self.request.table)
    }

    fn session(&self) -> Session {
        let settings = self.options.settings.clone();
        Session::new(settings, self.starting.clone(), self.options.give_up_after)
    }

    /// Finds the table, and checks that its changes can be read.
    fn find_target(&self, session: &mut Session) -> Outcome<Target> {
        let options = &self.options;
        let table = session.try_call(&mut |connection| {
            slot::check_server(connection)?;
            slot::find_table(connection, options)
        })?;
        let columns = self.request.delivered().columns.into_iter().take(self.width);
        let columns = table.match_columns(&TableSchema::new(columns.collect()))?;
        let is_key = |name: &String| table.columns.iter().find(|column| column.name == *name);
        let key: Vec<_> = table.key.iter().filter_map(is_key).cloned().collect();
        if key.is_empty() && self.options.startup.reads_table() {
            return Err(Failure::Error(
                Error::unsupported(format!("the table {} has no primary key", table.shown())).hint(
                    "its rows can't be read in chunks: add a PRIMARY KEY, or use 'scan.startup.mode' = 'latest-offset'",
                ),
            ));
        }
        slot::check_free(session, &self.options.slot)?;
        Ok(Target { table, columns, key })
    }

    /// Takes rows until there are `rows_max`, or none is left for now. What comes behind them.
    fn take(&mut self, rows_max: usize) -> Result<SourcePoll> {
        loop {
            if let Some((group, taken)) = self.current.take() {
                let rows = (group.rows.len() - taken).min(rows_max - self.builder.len());
                self.append(&group, taken, taken + rows)?;
                if taken + rows < group.rows.len() {
                    self.current = Some((group, taken + rows));
                    return Ok(SourcePoll::Pending);
                }
            }
            match self.feed.as_ref().map(Feed::next).transpose()? {
                Some(Fed::Item(group)) => self.current = Some((group, 0)),
                Some(Fed::Pending) => return Ok(SourcePoll::Pending),
                Some(Fed::End) | None => return Ok(SourcePoll::End),
            }
        }
    }

    /// Appends rows of a group, and moves the position behind them.
    fn append(&mut self, group: &Group, from: usize, to: usize) -> Result<()> {
        let time = format!("{}+00", format_timestamp_millis(group.time_ms, 3));
        for row in &group.rows[from..to] {
            self.append_row(row, &time)?;
        }
        let key = |row: &ChangedRow| row.key(self.width);
        let last = to.checked_sub(1).map(|last| key(&group.rows[last])).transpose();
        let last = last.map_err(|_| Error::internal("a row of a chunk has a key"))?;
        let position = self.position.get_or_insert_default();
        let is_whole = to == group.rows.len();
        position.follow(&group.origin, to as u64, last, is_whole);
        if is_whole {
            position.unseen.clone_from(&group.unseen);
            if let Some(reached) = group.reached {
                position.reach(reached);
            }
        }
        Ok(())
    }

    fn append_row(&mut self, row: &ChangedRow, time: &str) -> Result<()> {
        let target =
            self.target.as_ref().ok_or_else(|| Error::internal("polled before a start"))?;
        let mut extra: Vec<Option<&[u8]>> = Vec::with_capacity(self.request.metadata.len() + 1);
        for (key, _) in &self.request.metadata {
            extra.push(Some(match key.as_str() {
                "database_name" => self.options.settings.database.as_bytes(),
                "schema_name" => target.table.schema.as_bytes(),
                "table_name" => target.table.name.as_bytes(),
                "op_ts" => time.as_bytes(),
                "row_kind" => row.kind.short().as_bytes(),
                other => return Err(Error::internal(format!("no metadata '{other}'"))),
            }));
        }
        let code = self.request.reads_kinds.then(|| row.kind.code().to_string());
        extra.extend(code.as_ref().map(|code| Some(code.as_bytes())));
        let values = row.values(self.width).chain(extra);
        // Of a deletion by key only the key is known.
        match row.kind == RowKind::Delete {
            true => self.builder.append_key(values),
            false => self.builder.append(values),
        }
    }
}

impl Source for CdcSource {
    fn name(&self) -> String {
        self.request.table.clone()
    }

    fn start(&mut self, waker: Waker) -> Result<()> {
        let mut session = self.session();
        let target = self.find_target(&mut session);
        self.target = Some(target.map_err(|failure| session.explained(failure, &self.doing()))?);
        self.waker = Some(waker);
        if let Some(position) = &self.position {
            // What older snapshots need was confirmed by the run that kept them.
            self.kept.push_back(position.lsn);
        }
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        let (Some(target), Some(waker)) = (&self.target, &self.waker) else {
            return Err(Error::internal("opened before a start"));
        };
        let target = target.clone();
        let (options, cancel) = (self.options.clone(), self.cancel.clone());
        let (position, confirmed) = (self.position.clone(), self.confirmed.clone());
        let trouble = self.trouble.clone();
        let reader = Reader::new(options, target, position, confirmed, cancel.clone(), trouble);
        let doing = self.doing();
        let feed = Feed::start(
            format!("read {}", self.request.table),
            GROUPS_AHEAD,
            waker.clone(),
            cancel,
            move |writer| reader.run(writer, &doing),
        )?;
        self.feed = Some(feed);
        Ok(())
    }

    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let rest = self.take(rows_max.max(1))?;
        match self.builder.is_empty() {
            true => Ok(rest),
            false => Ok(SourcePoll::Batch(SourceBatch::new(self.builder.finish()?))),
        }
    }

    fn is_bounded(&self) -> bool {
        self.options.startup == StartupMode::Snapshot
    }

    fn stop(&mut self) {
        self.cancel.set();
        self.feed = None;
    }

    fn canceller(&self) -> Option<Waker> {
        Some(self.starting.waker())
    }

    fn reconnects(&self) -> Option<u64> {
        Some(self.trouble.recoveries())
    }

    fn split_status(&self, _split: SplitId) -> SplitStatus {
        SplitStatus {
            position: self.position.as_ref().map(|position| lsn::text(position.lsn)),
            is_caught_up: self.current.is_none(),
            last_error: self.trouble.get(),
            ..SplitStatus::default()
        }
    }

    fn position(&self) -> Option<String> {
        Some(self.position.clone().unwrap_or_default().write())
    }

    fn seek(&mut self, position: &str) -> Result<()> {
        let position = Position::read(position)?;
        // Nothing was read yet: the start is one from scratch.
        self.position = (position != Position::default()).then_some(position);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if self.is_bounded() {
            self.feed = None;
            // A flag of its own: that of the reader is set.
            let settings = self.options.settings.clone();
            let mut session = Session::new(settings, Cancel::default(), self.options.give_up_after);
            return slot::drop_slot(&mut session, &self.options.slot);
        }
        Ok(())
    }

    fn abort(&mut self) {
        self.stop();
    }

    fn committed(&mut self, position: &str) -> Result<()> {
        self.kept.push_back(Position::read(position)?.lsn);
        while self.kept.len() > self.options.commits_behind {
            if let Some(lsn) = self.kept.pop_front() {
                // Relaxed: the number alone is read.
                self.confirmed.fetch_max(lsn, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}
