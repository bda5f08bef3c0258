//! First rows, and one row per key.
//!
//! | node | operator | state per key |
//! |---|---|---|
//! | TopN, updated SortLimit | `TopN` | the first rows; all if rows may be retracted |
//! | TopN per window | `TopN`, at the window's end | the first rows until then |
//! | Deduplicate, Normalize | `Deduplicate` | one row |
//! | a sink by upserts (no node) | `Materialize` | the rows of each primary key |
//! | a materialized table (no node) | `KeepRows` | the newest row of each primary key |
//!
//! Top-N over windows is final: its rows leave once, when the watermark closes the window (Flink's
//! WindowRank). If the ranked rows are the results of an aggregate that nobody else reads, the
//! aggregate itself need not emit more than the first rows of each window (`note_first_rows`).

use std::sync::Arc;

use thalweg_core::connector::{LIVE_CONNECTOR, TableRequest};
use thalweg_core::live::LiveTable;
use thalweg_core::{Error, Result};
use thalweg_operators::live::{KeepRows, KeepRowsSpec};
use thalweg_operators::sort::SortKey as OperatorSortKey;
use thalweg_operators::top_n::{
    Deduplicate, DeduplicateBy, DeduplicateSpec, Keep, Materialize, MaterializeSpec, RankFunction,
    TopN, TopNSpec,
};
use thalweg_operators::window::{LatePolicy, WindowTop};

use super::lower::{Edges, Lowering};
use super::window::windows_of_column;
use crate::logical::changes::window_end_key;
use crate::logical::{LogicalKind, Node, SortKey, TimeAttribute, column_of};
use crate::resolved_table::ResolvedTable;

impl Lowering<'_> {
    /// A Top-N, per window where its keys are those of one.
    pub(super) fn lower_top_n(&mut self, node: &Node) -> Result<Edges> {
        let LogicalKind::TopN { input, keys, order, function, ranks, shows_rank } = &node.kind
        else {
            return Err(Error::internal("no Top-N"));
        };
        // Contradicting conditions: no row has such a rank.
        if ranks.0 > ranks.1 {
            return Ok(self.lower_values(node, &[]));
        }
        let rank_column = shows_rank.then(|| node.fields[input.fields.len()].name.clone());
        // Rows of a window are complete when it closes; then their ranks leave, once.
        let retracts = self.changes.has_updates(input);
        // A row that may be retracted after its window has closed would have to change a result
        // that has left.
        let window_end = window_end_key(input, keys).filter(|_| !retracts);
        if window_end.is_some() && *function == RankFunction::RowNumber {
            self.note_first_rows(input, keys, order, ranks.1);
        }
        let session = self.environment.session;
        let windows = window_end.map(|end| windows_of_column(input, end, session));
        let operator = TopN::new(TopNSpec {
            keys: keys.clone(),
            order: order.iter().map(Into::into).collect(),
            function: *function,
            from: ranks.0,
            to: ranks.1,
            rank_column,
            input: input.schema(),
            retracts,
            unique: None,
            window_end,
            state_ttl_ms: self.environment.state_ttl_ms,
        })?;
        let operator = operator.of(windows.unwrap_or_default());
        self.lower_operator(node, input, Arc::new(operator), "top")
    }

    /// Where these are the first rows of whole windows of an aggregate that nobody else reads, the
    /// windows need not give others.
    ///
    /// Valid only if the ranks' partition is the window as a whole: with a further key each key has
    /// its first rows, and the window's would leave out keys. Every node between must have one
    /// reader, or that reader would miss rows. The order must be over results of the aggregate,
    /// which the operator can compare; an order over window columns is the same for all rows of a
    /// window.
    fn note_first_rows(&mut self, input: &Node, keys: &[usize], order: &[SortKey], rows: u64) {
        let is_of_window = |&key: &usize| {
            let time = input.fields[key].time;
            matches!(time, TimeAttribute::WindowStart(_) | TimeAttribute::WindowEnd(_))
        };
        let Ok(rows) = usize::try_from(rows) else { return };
        if !keys.iter().all(is_of_window) || order.is_empty() {
            return;
        }
        let (mut node, mut order) = (input, order.iter().map(Into::into).collect::<Vec<_>>());
        while self.has_one_reader(node) {
            match &node.kind {
                LogicalKind::Project { input, expressions } => {
                    for key in &mut order {
                        let OperatorSortKey { column, .. } = key;
                        let Some(below) = column_of(&expressions[*column]) else { return };
                        *column = below;
                    }
                    node = input;
                }
                LogicalKind::WindowAggregate { window, keys, aggregates, .. } => {
                    let is_result =
                        |key: &OperatorSortKey| key.column < keys.len() + aggregates.len();
                    if !window.id.by_clock && order.iter().all(is_result) {
                        self.tops.insert(Arc::as_ptr(node), WindowTop { order, rows });
                    }
                    return;
                }
                _ => return,
            }
        }
    }

    /// The first rows of everything, in an order of values.
    /// `LIMIT n OFFSET m` is the ranks m + 1 to m + n. Ranks saturate: a limit near the greatest
    /// number means "all".
    pub(super) fn lower_first_rows(
        &mut self,
        node: &Node,
        input: &Node,
        keys: &[SortKey],
        (limit, offset): (u64, u64),
    ) -> Result<Edges> {
        if limit == 0 {
            return Ok(self.lower_values(node, &[]));
        }
        let operator = Arc::new(TopN::new(TopNSpec {
            keys: Vec::new(),
            order: keys.iter().map(Into::into).collect(),
            function: RankFunction::RowNumber,
            from: offset.saturating_add(1),
            to: offset.saturating_add(limit),
            rank_column: None,
            input: input.schema(),
            retracts: self.changes.has_updates(input),
            unique: None,
            window_end: None,
            state_ttl_ms: self.environment.state_ttl_ms,
        })?);
        self.lower_operator(node, input, operator, "top")
    }

    /// What upserts leave of each key.
    pub(super) fn lower_normalize(
        &mut self,
        node: &Node,
        input: &Node,
        keys: &[usize],
    ) -> Result<Edges> {
        let operator = Arc::new(Deduplicate::new(DeduplicateSpec {
            keys: keys.to_vec(),
            keep: Keep::Last,
            by: DeduplicateBy::Upserts,
            input: input.schema(),
            state_ttl_ms: self.environment.state_ttl_ms,
            late: LatePolicy::Drop,
        })?);
        self.lower_operator(node, input, operator, "normalize")
    }

    /// The rows for a table that takes upserts, by its primary key.
    ///
    /// Not a node of the plan: it depends on all queries that write the table, and on its
    /// connector. It is identified by the table's name, so a change of the queries keeps its state.
    pub(super) fn materialize(&mut self, table: &ResolvedTable, edges: Edges) -> Result<Edges> {
        let operator = Arc::new(Materialize::new(MaterializeSpec {
            keys: table.primary_key.clone(),
            input: table.written_schema(),
            state_ttl_ms: self.environment.state_ttl_ms,
        })?);
        let id = self.identities.give("materialize", &table.name, &[]);
        let name = format!("materialize {}", table.name);
        let details = vec!["keeps the rows of each primary key".to_string()];
        Ok(self.add_named(id, name, operator, edges, details))
    }

    /// Keeps the rows of a materialized table, whose sink only publishes them. Rows of other tables
    /// go to their sink.
    ///
    /// # Errors
    /// If readers would never see a row.
    pub(super) fn keep_rows(
        &mut self,
        table: &ResolvedTable,
        request: &TableRequest,
        edges: Edges,
    ) -> Result<Edges> {
        if request.options.get("connector").is_none_or(|name| name != LIVE_CONNECTOR) {
            return Ok(edges);
        }
        if !self.is_bounded && !self.environment.takes_snapshots {
            return Err(Error::plan(format!(
                "materialized table {} would never show a row: its rows show when a snapshot is \
                 taken, and this job takes none",
                table.name
            ))
            .hint("SET 'execution.checkpointing.dir' = '…' in front of it")
            .at(table.spans.name));
        }
        let live = match self.environment.dry_run {
            true => Arc::new(LiveTable::new(request.schema.clone(), request.primary_key.clone())),
            false => self.environment.places.connectors.find(request)?.live_table(request)?,
        };
        let clock = self.environment.clock.clone();
        let operator = Arc::new(KeepRows::new(KeepRowsSpec { table: live, clock })?);
        let id = self.identities.give("keep", &table.name, &[]);
        let name = format!("keep rows of {}", table.name);
        let details = vec!["keeps the newest row of each primary key for readers".to_string()];
        Ok(self.add_named(id, name, operator, edges, details))
    }

    /// One row per key. Only the first row by row time judges lateness: an older row that comes
    /// later would have to replace it. The last row is simply updated, or not.
    pub(super) fn lower_deduplicate(
        &mut self,
        node: &Node,
        input: &Node,
        keys: &[usize],
        keeps_last: bool,
        rowtime: Option<usize>,
    ) -> Result<Edges> {
        let judged = rowtime.filter(|_| !keeps_last);
        let late = judged
            .map_or(Ok((Vec::new(), LatePolicy::Drop)), |rowtime| self.late_rows(input, rowtime))?;
        let operator = Arc::new(Deduplicate::new(DeduplicateSpec {
            keys: keys.to_vec(),
            keep: if keeps_last { Keep::Last } else { Keep::First },
            by: rowtime.map_or(DeduplicateBy::Arrival, DeduplicateBy::EventTime),
            input: input.schema(),
            state_ttl_ms: self.environment.state_ttl_ms,
            late: late.1,
        })?);
        if judged.is_none() {
            return self.lower_operator(node, input, operator, "deduplicate");
        }
        let edges = self.edges(input)?;
        Ok(self.add_late((node, input), operator, edges, "deduplicate", late, input.schema()))
    }
}
