//! Lookup joins: with a table that is asked by key, and how tables are looked up (the `lookup.`
//! options, with the names of Flink).
//!
//! `JOIN t FOR SYSTEM_TIME AS OF l.proc_time` has two forms, by what the connector of `t` can do:
//!
//! | connector | cache | operator |
//! |---|---|---|
//! | reads the table as a whole | FULL | hash join (`hash_join`), read again periodically |
//! | answers calls by key | NONE, PARTIAL | [`LookupJoin`], many calls at the same time |
//!
//! Both emit rows in the order of the left side.
//!
//! What a table answers depends on when it is asked. So the ordered contracts refuse both calls and
//! periodic reloads, unless `pipeline.order.allow-nondeterministic` is set. A table that is read
//! once, before any row, is allowed.
//!
//! **Invariants:**
//! - the right side of a call is a bare scan: its keys are columns of the table, and columns that
//!   are computed or need a watermark are refused, since no stage lies between the answer and the
//!   join;
//! - rows of the left side are append-only (`logical::changes`): a retraction could get another
//!   answer than its insertion did.
//!
//! A reload runs on its own thread: a source of its own, the same chain of steps, and the finished
//! table is published at once. If it fails the old table stays.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use thalweg_core::connector::{AcceptedChanges, TableRequest};
use thalweg_core::graph::{Input, StageKind};
use thalweg_core::lookup::{AsyncLookup, LookupOptions, LookupRequest};
use thalweg_core::{Bundle, Error, Result, Source, SourcePoll, Stamps, Transform};
use thalweg_operators::chain::Chain;
use thalweg_operators::join::equi::EquiJoin;
use thalweg_operators::join::hash::{HashJoinSpec, Reader, Stop};
use thalweg_operators::join::lookup::LookupJoin;
use thalweg_operators::join::sides::{Side, Sides};

use super::chain::step_of;
use super::join::{PreparedSide, without_keys};
use super::lower::{Edges, Lowering};
use super::ordered::refuse;
use super::scan::plan_scan;
use super::window::Prepared;
use crate::catalog::parse_duration;
use crate::catalog::table_options::{
    CACHE, CAPACITY, EXPIRES, INTERVAL, MAX_RETRIES, MAX_ROWS, MISSING, STRATEGY, TIMEOUT,
};
use crate::logical::{JoinCondition, JoinKind, LogicalKind, Node};
use crate::resolved_table::ResolvedTable;

/// How a table is looked up.
/// Values are checked when the plan is made, so a mistake does not wait for the first row.
#[derive(Debug, PartialEq)]
pub(super) struct LookupSettings {
    /// How often a table that is read as a whole is read again.
    /// `None`: never.
    pub(super) reload: Option<Duration>,
    /// How a table that is asked by key is asked.
    pub(super) options: LookupOptions,
}

impl LookupSettings {
    /// Reads the options of a table.
    pub(super) fn of(table: &ResolvedTable) -> Result<Self> {
        let option = |name: &str| table.options.get(name).map(|text| text.trim().to_owned());
        let fail = |name: &str, what: &str| {
            Err(Error::plan(format!("table '{}', '{name}': {what}", table.name)))
        };
        let number = |name: &str| match option(name).map(|text| text.parse::<u32>()) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => fail(name, "a number is expected").map(|()| None),
        };
        if table.reading.changes != AcceptedChanges::Inserts {
            return Err(Error::plan(format!(
                "table '{}' holds changes of rows, and is looked up",
                table.name
            ))
            .hint("join it without FOR SYSTEM_TIME AS OF, or look up a file of the rows that are left"));
        }
        let duration = |name: &str| match option(name).map(|text| parse_duration(&text)) {
            None => Ok(None),
            Some(Ok(duration)) if !duration.is_zero() => Ok(Some(duration)),
            Some(_) => {
                fail(name, "a duration above zero is expected, such as '10 min'").map(|()| None)
            }
        };
        // The caches follow from the connector. The option is checked, so that a script from Flink
        // that asks for another one does not silently get this one.
        let default = if table.reading.is_looked_up { "NONE" } else { "FULL" };
        let cache = option(CACHE).unwrap_or(default.to_owned()).to_ascii_uppercase();
        match (cache.as_str(), table.reading.is_looked_up) {
            ("NONE" | "PARTIAL", true) | ("FULL", false) => {}
            ("FULL", true) => fail(CACHE, "this table is asked by key: NONE or PARTIAL")?,
            ("NONE" | "PARTIAL", false) => fail(CACHE, "this table is read as a whole: FULL")?,
            _ => fail(CACHE, "NONE, PARTIAL or FULL is expected")?,
        }
        if option(STRATEGY).is_some_and(|strategy| !strategy.eq_ignore_ascii_case("PERIODIC")) {
            fail(STRATEGY, "PERIODIC is known")?;
        }
        let known = LookupOptions::default();
        let cache_max_rows = match cache == "PARTIAL" {
            true => number(MAX_ROWS)?.unwrap_or(10_000) as usize,
            false => 0,
        };
        let options = LookupOptions {
            capacity: number(CAPACITY)?.map_or(known.capacity, |capacity| capacity.max(1) as usize),
            timeout: duration(TIMEOUT)?.unwrap_or(known.timeout),
            max_retries: number(MAX_RETRIES)?.unwrap_or(known.max_retries),
            cache_max_rows,
            cache_expires_after: duration(EXPIRES)?,
            caches_missing_keys: !option(MISSING)
                .is_some_and(|text| text.eq_ignore_ascii_case("false")),
        };
        Ok(LookupSettings { reload: duration(INTERVAL)?, options })
    }
}

impl Lowering<'_> {
    /// A join with a table that is asked by key.
    pub(super) fn lower_lookup(
        &mut self,
        node: &Node,
        (left, right): (&Node, &Node),
        kind: JoinKind,
        condition: &JoinCondition,
    ) -> Result<Edges> {
        let LogicalKind::Scan { table, columns } = &right.kind else {
            return Err(Error::internal("what is asked by key is a table"));
        };
        let environment = self.environment;
        if environment.order.is_ordered() && !environment.allows_nondeterministic {
            return Err(refuse("what a table that is asked by key answers", environment.order));
        }
        let of_left = PreparedSide::of(left, condition.keys.iter().map(|key| &key.left));
        let of_right = PreparedSide::of(right, condition.keys.iter().map(|key| &key.right));
        let widths = (left.fields.len(), of_left.columns.schema().len());
        let scan = plan_scan(table, columns, environment);
        if !scan.steps.is_empty() || scan.assigner.is_some() {
            return Err(Error::plan(format!(
                "table '{}' is asked by key, and has columns that are computed",
                table.name
            ))
            .hint("compute them after the join"));
        }
        let name = |&key: &usize| right.fields[key].name.clone();
        let keys = of_right.keys.iter().map(name).collect();
        let lookup: Arc<dyn AsyncLookup> = match environment.dry_run {
            true => Arc::new(NoLookup),
            false => {
                let request = LookupRequest { table: scan.request, keys };
                environment.places.connectors.find(&request.table)?.lookup(&request)?
            }
        };
        let spec = HashJoinSpec {
            join: EquiJoin {
                sides: Sides::new(of_left.columns.schema(), right.schema()),
                kind,
                left_keys: of_left.keys,
                right_keys: of_right.keys,
                residual: self.residual(condition, widths)?,
            },
            build: Side::Right,
            is_null_aware: false,
        };
        let settings = LookupSettings::of(table).map_err(|e| table.spans.locate(e))?;
        let name = format!("lookup {}", table.name);
        let clock = environment.clock.clone();
        let join = LookupJoin::new(name.clone(), spec, lookup, &settings.options, clock)?;
        let edges = self.prepare_input(left, of_left.columns)?;
        let id = self.identities.give("lookup", "", &[node]);
        let details = vec![
            node.describe(),
            format!("asks at most {} times at once", settings.options.capacity),
        ];
        let kind_of_stage = StageKind::Transform(Arc::new(join));
        let word = "lookup (free: no worker waits)";
        let stage = self.add(id, name, kind_of_stage, edges, word, details);
        let edges = vec![Input { from: stage, port: 0 }];
        Ok(match without_keys(node, kind, [widths, (right.fields.len(), right.fields.len())]) {
            None => edges,
            Some(step) => self.close_chain(edges, vec![step], node),
        })
    }
}

impl Lowering<'_> {
    /// How a table that is looked up is read again, and when, if its options say so.
    ///
    /// `None` if the side is no chain of row-by-row steps over one table: a view with an aggregate,
    /// for example, is read once.
    pub(super) fn reload(
        &self,
        input: &Node,
        columns: &Prepared,
    ) -> Result<Option<(Duration, Reader)>> {
        let mut steps = Vec::new();
        let mut below = input;
        while let Some(step) = step_of(below, self.environment.session)? {
            steps.push(step);
            below = below.inputs()[0];
        }
        let LogicalKind::Scan { table, columns: read } = &below.kind else { return Ok(None) };
        let Some(interval) = LookupSettings::of(table).map_err(|e| table.spans.locate(e))?.reload
        else {
            return Ok(None);
        };
        let environment = self.environment;
        if environment.order.is_ordered() && !environment.allows_nondeterministic {
            return Err(refuse(&format!("'{INTERVAL}'"), environment.order));
        }
        let scan = plan_scan(table, read, environment);
        if scan.assigner.is_some() {
            return Err(Error::plan(format!(
                "table '{}', '{INTERVAL}': it declares a WATERMARK",
                table.name
            ))
            .hint("declare the table without one to look it up"));
        }
        // Collected from the top down, so the scan's own steps are added backwards and all are
        // reversed.
        steps.extend(scan.steps.into_iter().rev());
        steps.reverse();
        steps.extend(columns.clone().into_step(input));
        let chain = Chain::new(format!("reload {}", table.name), steps, environment.clock.clone());
        let connectors = Arc::clone(environment.places.connectors);
        let request = TableRequest { is_read_again: true, ..scan.request };
        let reader = move |take: &mut dyn FnMut(RecordBatch) -> Result<()>, stop: &Stop| {
            read_all(connectors.source(&request)?, stop, &mut |batch| {
                take(chain.apply(Bundle::new(batch, Stamps::first()))?.batch)
            })
        };
        Ok(Some((interval, Box::new(reader))))
    }
}

/// Reads a source to its end, on the thread that calls.
///
/// The thread parks while the source has nothing; the source's waker unparks it.
fn read_all(
    mut source: Box<dyn Source>,
    stop: &Stop,
    take: &mut dyn FnMut(RecordBatch) -> Result<()>,
) -> Result<()> {
    let thread = std::thread::current();
    source.start(Arc::new(move || thread.unpark()))?;
    source.open()?;
    let result = loop {
        if stop.is_set() {
            break Ok(());
        }
        match source.poll(BATCH_ROWS) {
            Ok(SourcePoll::Batch(batch)) => {
                if let Err(error) = take(batch.batch) {
                    break Err(error);
                }
            }
            // A wake-up that came before this is not lost: it ends the next park at once.
            Ok(SourcePoll::Pending) => std::thread::park_timeout(LOOK_AGAIN),
            Ok(SourcePoll::Heartbeat(..) | SourcePoll::Split(..)) => {}
            Ok(SourcePoll::End) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    source.stop();
    result.and_then(|()| source.finish())
}

/// Rows that are asked for at once where a table is read again.
const BATCH_ROWS: usize = 8192;

/// How often a thread that waits for rows looks whether it should end.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Stands for a table in a plan that is only looked at.
struct NoLookup;

impl AsyncLookup for NoLookup {
    fn lookup(&self, _: RecordBatch) -> thalweg_core::lookup::Answer {
        Box::pin(async { Err(Error::internal("a plan that is only looked at asks nobody")) })
    }
}
