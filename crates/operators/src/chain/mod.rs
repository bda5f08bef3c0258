//! A fused chain of stateless steps: no queue and no dispatch between them.
//!
//! A filter only marks the rows that continue. The chain compacts the marked rows once, at its end,
//! or before a step that needs dense rows: one whose expressions can fail (they must not see rows
//! that a filter has taken out), one that changes the number of rows, or one that would compute
//! over mostly dead rows. Columns that no later step reads are dropped before they are compacted
//! (see `prune.rs`). Where no row is left the remaining steps are skipped: the chain keeps the
//! empty batch that it has returned once, so its first bundle runs through all steps in any case.
//!
//! Invariants:
//! - one bundle in, one bundle out, with the same stamps, also when no row is left; a chain that
//!   multiplies rows makes its bundle in parts, each with these stamps, in the order of the rows;
//! - `watermark_before` and row kinds follow their rows.
//!
//! A chain keeps no state and judges no lateness.
//!
//! # Example
//!
//! `SELECT a + 1 FROM t WHERE b > 0 AND 10 / b < 3`:
//!
//! ```text
//! Filter(b > 0)        marks rows, copies nothing
//! Filter(10 / b < 3)   can fail: rows are compacted first, so b = 0 is not seen
//! Project(a + 1)       reads `a` alone: `b` is dropped before rows are compacted the last time
//! ```

mod effort;
mod outside;
mod parts;
mod prune;
mod rows;
mod unnest;
mod window_rows;

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;
use chrono_tz::Tz;
use thalweg_core::bundle::batch_bytes;
use thalweg_core::operator::{Part, Rest};
use thalweg_core::shim::SharedClock;
use thalweg_core::{
    Bundle, Column, Error, ErrorKind, Result, Span, Stamps, TableSchema, Transform, Watermark,
    WatermarkBefore,
};
use thalweg_expr::{Executor, Expr};

use crate::join::hash::{Probe, Probed};
use crate::window::WindowSpec;
pub use outside::OutsideChain;

use effort::{Effort, Lengths, PART_NS_MAX};
use parts::{Cursor, Pending, Stack};
use rows::{Rows, columns_of_exprs, not_null_violation};

/// A function over whole batches that keeps the number of rows.
pub type BatchFunction = Arc<dyn Fn(RecordBatch) -> Result<RecordBatch> + Send + Sync>;

/// A function over whole batches that says of each row whether it continues (true, not NULL).
pub type MaskFunction = Arc<dyn Fn(&RecordBatch) -> Result<BooleanArray> + Send + Sync>;

/// A function over whole batches that returns any number of rows and, for each, the position of
/// the input row that it comes from.
pub type FlatMapFunction =
    Arc<dyn Fn(&RecordBatch) -> Result<(RecordBatch, Vec<u32>)> + Send + Sync>;

/// A column that must not be NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotNull {
    /// Its position.
    pub column: usize,
    /// It is part of the table's primary key.
    pub is_key: bool,
    /// Where the text says what is written into it.
    pub span: Span,
}

/// A stateless step of a [`Chain`].
#[derive(Clone)]
pub enum Step {
    /// Learns from a TINYINT column what each row does ([`RowKind::code`](thalweg_core::RowKind)).
    /// The column stays until a projection drops it.
    TakeKinds(usize),
    /// Keeps the rows for which the BOOLEAN expression is TRUE.
    Filter(Expr),
    /// Replaces the columns by these.
    Project(Vec<(Column, Expr)>),
    /// Fails at a NULL in one of these columns, as Flink's sinks do by default.
    CheckNotNull {
        /// The columns that are declared NOT NULL.
        columns: Vec<NotNull>,
        /// The table that is written to, for the message.
        sink: String,
    },
    /// Repeats each row once per element of an array (or entry of a map) and appends the element.
    Unnest {
        /// The ARRAY or MAP.
        array: Expr,
        /// The appended columns: one per element; one per field where elements are rows; key and
        /// value of a map; then, with `ordinality`, the element's number.
        columns: Vec<Column>,
        /// True if a row without elements stays, with NULLs (LEFT JOIN UNNEST).
        outer: bool,
        /// True if the last of `columns` is the element's number from 1, an INT.
        ordinality: bool,
    },
    /// Repeats each row once per window that it belongs to, the latest window first, and appends
    /// window_start, window_end and window_time.
    WindowRows {
        /// The windows.
        window: WindowSpec,
        /// The position of the row time.
        rowtime: usize,
        /// Set for a TIMESTAMP_LTZ row time: windows are aligned in the wall time of this zone.
        zone: Option<Tz>,
    },
    /// User code that keeps some of the rows.
    Select {
        /// Its name, for messages.
        name: String,
        /// The code.
        function: MaskFunction,
    },
    /// User code that keeps the number of rows.
    Custom {
        /// Its name, for messages.
        name: String,
        /// The code.
        function: BatchFunction,
    },
    /// User code that may return more or fewer rows.
    FlatMap {
        /// Its name, for messages.
        name: String,
        /// The code.
        function: FlatMapFunction,
    },
    /// Looks rows up in a table that was read before.
    Probe {
        /// The table and how rows are joined with it.
        table: Arc<Probe>,
        /// The same in words.
        what: String,
    },
}

impl Step {
    /// Where the functions run that it calls and no worker may wait for.
    pub fn executors(&self) -> Vec<Arc<dyn Executor>> {
        match self {
            Step::Filter(expr) | Step::Unnest { array: expr, .. } => expr.executors(),
            Step::Project(columns) => {
                columns.iter().flat_map(|(_, expr)| expr.executors()).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::TakeKinds(column) => write!(f, "TakeKinds({column})"),
            Step::Filter(predicate) => write!(f, "Filter({predicate:?})"),
            Step::Project(columns) => write!(f, "Project({columns:?})"),
            Step::CheckNotNull { columns, sink } => write!(f, "CheckNotNull({columns:?}, {sink})"),
            Step::Unnest { array, columns, .. } => write!(f, "Unnest({array:?}, {columns:?})"),
            Step::WindowRows { window, rowtime, .. } => {
                write!(f, "WindowRows({window:?}, {rowtime})")
            }
            Step::Select { name, .. } => write!(f, "Select({name})"),
            Step::Custom { name, .. } => write!(f, "Custom({name})"),
            Step::FlatMap { name, .. } => write!(f, "FlatMap({name})"),
            Step::Probe { what, .. } => write!(f, "Probe({what})"),
        }
    }
}

/// A step with what can be known about it before the first bundle.
enum Prepared {
    Filter { predicate: Expr, can_fail: bool, effort: Effort },
    Project(Project),
    Keep(Vec<usize>),
    Unnest(unnest::Unnest),
    Other(Step),
}

struct Project {
    schema: SchemaRef,
    exprs: Vec<Expr>,
    can_fail: bool,
    computes: bool,
    effort: Effort,
}

/// What one part of a bundle may take.
struct Bounds<'a> {
    room_bytes: usize,
    wall_ms: i64,
    clock: &'a SharedClock,
}

/// A fused chain of stateless steps.
pub struct Chain {
    name: String,
    steps: Vec<Prepared>,
    clock: SharedClock,
    /// True if a result can depend on the time of day: else the clock is not read.
    reads_clock: bool,
    /// What the chain returns where no row is left, once that is known.
    empty: OnceLock<RecordBatch>,
}

impl Chain {
    /// A chain of these steps, run in order, with the clock for processing time.
    pub fn new(name: String, steps: Vec<Step>, clock: SharedClock) -> Chain {
        let reads_clock = steps.iter().any(reads_clock);
        let mut lengths = Lengths::default();
        let prepare = |step| prepare(step, &mut lengths);
        let steps = prune::prune(steps).into_iter().map(prepare).collect();
        Chain { name, steps, clock, reads_clock, empty: OnceLock::new() }
    }

    /// Takes the rows that are next through all steps that are left for them, until about this many
    /// bytes come of one that multiplies; the rest is put on the stack.
    fn run(&self, stack: &mut Stack, room_bytes: usize, wall_ms: i64) -> Result<Option<Rows>> {
        let Some(Pending { step: first, mut rows, mut from }) = stack.pop() else {
            return Ok(None);
        };
        for (number, step) in self.steps.iter().enumerate().skip(first) {
            if rows.is_empty()
                && let Some(empty) = self.empty.get()
            {
                rows.empty(empty);
                break;
            }
            if !step.multiplies() {
                self.step(step, &mut rows, wall_ms)?;
                continue;
            }
            rows.compact()?;
            let input = rows.clone();
            let bounds = Bounds { room_bytes, wall_ms, clock: &self.clock };
            let next = multiply(step, &mut rows, &std::mem::take(&mut from), &bounds)?;
            stack.extend(next.map(|from| Pending { step: number, rows: input, from }));
        }
        rows.compact()?;
        if self.empty.get().is_none() {
            // Not a slice, which would keep the rows. Another thread may be first: theirs is as
            // good.
            let _ = self.empty.set(RecordBatch::new_empty(rows.batch.schema()));
        }
        Ok(Some(rows))
    }

    /// The next part of a bundle with these stamps. One without rows only if nothing follows.
    fn part(&self, mut stack: Stack, stamps: Stamps, room_bytes: usize) -> Result<Part> {
        let wall_ms = if self.reads_clock { self.clock.wall_ms() } else { 0 };
        let begun_ns = self.clock.now_ns();
        loop {
            let rows = self.run(&mut stack, room_bytes, wall_ms)?;
            let rows =
                rows.ok_or_else(|| Error::internal("a bundle without rows to begin with"))?;
            let is_late = || self.clock.now_ns() >= begun_ns + PART_NS_MAX;
            if !stack.is_empty() && rows.is_empty() && !is_late() {
                continue;
            }
            let rest = (!stack.is_empty())
                .then(|| Box::new(Unfinished { stack, stamps: stamps.clone() }) as Rest);
            let stamps = Stamps {
                watermark_before: rows.watermark_before,
                row_places: rows.places,
                ..stamps
            };
            let mut bundle = Bundle::new(rows.batch, stamps);
            bundle.kinds = rows.kinds;
            return Ok(Part { bundle, rest });
        }
    }

    fn step(&self, step: &Prepared, rows: &mut Rows, wall_ms: i64) -> Result<()> {
        match step {
            Prepared::Filter { predicate, can_fail, .. } => {
                if *can_fail || rows.is_sparse() {
                    rows.compact()?;
                }
                rows.filter(predicate, wall_ms)
            }
            Prepared::Project(project) => {
                if project.can_fail || (project.computes && rows.is_sparse()) {
                    rows.compact()?;
                }
                rows.project(&project.schema, &project.exprs, wall_ms)
            }
            Prepared::Keep(columns) => {
                rows.batch = rows.batch.project(columns)?;
                Ok(())
            }
            Prepared::Unnest(_) => unreachable!("it multiplies rows"),
            Prepared::Other(step) => self.other_step(step, rows),
        }
    }

    fn other_step(&self, step: &Step, rows: &mut Rows) -> Result<()> {
        if let Step::CheckNotNull { columns, sink } = step {
            return check_not_null(rows, columns, sink);
        }
        rows.compact()?;
        match step {
            Step::TakeKinds(column) => rows.take_kinds(*column),
            Step::Select { name, function } => select(rows, name, function),
            Step::Custom { name, function } => custom(rows, name, function),
            Step::Filter(_)
            | Step::Project(_)
            | Step::CheckNotNull { .. }
            | Step::Unnest { .. }
            | Step::WindowRows { .. }
            | Step::FlatMap { .. }
            | Step::Probe { .. } => {
                unreachable!("these are prepared, handled above, or multiply rows")
            }
        }
    }
}

impl Transform for Chain {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn apply(&self, bundle: Bundle) -> Result<Bundle> {
        match self.begin_parts(bundle, usize::MAX)? {
            Part { bundle, rest: None } => Ok(bundle),
            Part { .. } => Err(Error::internal("a chain with all the room there is has stopped")),
        }
    }

    fn multiplies(&self) -> bool {
        self.steps.iter().any(Prepared::multiplies)
    }

    fn begin_parts(&self, bundle: Bundle, room_bytes: usize) -> Result<Part> {
        let mut stamps = bundle.stamps;
        let places = stamps.row_places.take();
        let before = std::mem::replace(&mut stamps.watermark_before, NO_WATERMARK);
        let rows = Rows::new(bundle.batch, before, bundle.kinds, places);
        self.part(vec![Pending { step: 0, rows, from: Cursor::default() }], stamps, room_bytes)
    }

    fn next_part(&self, rest: Rest, room_bytes: usize) -> Result<Part> {
        let rest = rest.downcast::<Unfinished>();
        let Unfinished { stack, stamps } =
            *rest.map_err(|_| Error::internal("a chain was given what another stage has left"))?;
        self.part(stack, stamps, room_bytes)
    }
}

/// What a chain has not made yet of a bundle with these stamps.
struct Unfinished {
    stack: Stack,
    stamps: Stamps,
}

/// Where the watermarks of rows travel with the rows.
const NO_WATERMARK: WatermarkBefore = WatermarkBefore::All(Watermark::MIN);

impl Prepared {
    /// True if it may make many rows of one, long rows of short ones, or take long for a row.
    fn multiplies(&self) -> bool {
        match self {
            Prepared::Unnest(_) => true,
            Prepared::Other(step) => {
                matches!(step, Step::WindowRows { .. } | Step::FlatMap { .. } | Step::Probe { .. })
            }
            Prepared::Project(Project { effort, .. }) | Prepared::Filter { effort, .. } => {
                *effort != Effort::Small
            }
            Prepared::Keep(_) => false,
        }
    }
}

/// Does a step that multiplies rows from a place on, as long as there is room; where to continue if
/// there is not for all.
fn multiply(
    step: &Prepared,
    rows: &mut Rows,
    from: &Cursor,
    bounds: &Bounds,
) -> Result<Option<Cursor>> {
    let &Bounds { room_bytes, wall_ms, .. } = bounds;
    match step {
        Prepared::Unnest(unnest) => unnest.apply(rows, wall_ms, from, room_bytes),
        Prepared::Project(project) => compute(rows, project.effort, from, bounds, |rows| {
            rows.project(&project.schema, &project.exprs, wall_ms)
        }),
        Prepared::Filter { predicate, effort, .. } => {
            compute(rows, *effort, from, bounds, |rows| rows.filter(predicate, wall_ms))
        }
        Prepared::Other(Step::WindowRows { window, rowtime, zone }) => {
            window_rows::window_rows(rows, window, (*rowtime, *zone), from, room_bytes)
        }
        Prepared::Other(Step::FlatMap { name, function }) => {
            flat_map(rows, (name, function), from, bounds)
        }
        Prepared::Other(Step::Probe { table, .. }) => probe(rows, table, from, room_bytes, wall_ms),
        _ => unreachable!("only these multiply rows"),
    }
}

/// True if what the step computes can depend on the time of day.
fn reads_clock(step: &Step) -> bool {
    // What is not deterministic mixes the time into its values.
    let reads = |expr: &Expr| expr.uses_wall_clock() || !expr.is_deterministic();
    match step {
        Step::Filter(predicate) => reads(predicate),
        Step::Project(columns) => columns.iter().any(|(_, expr)| reads(expr)),
        Step::Unnest { array, .. } => reads(array),
        Step::Probe { table, .. } => table.reads_clock(),
        Step::TakeKinds(_)
        | Step::CheckNotNull { .. }
        | Step::WindowRows { .. }
        | Step::Select { .. }
        | Step::Custom { .. }
        | Step::FlatMap { .. } => false,
    }
}

fn prepare(step: prune::Pruned, lengths: &mut Lengths) -> Prepared {
    match step {
        prune::Pruned::Keep(columns) => {
            lengths.keep(&columns);
            Prepared::Keep(columns)
        }
        prune::Pruned::Step(Step::Filter(predicate)) => {
            let (can_fail, effort) = (predicate.can_fail(), lengths.effort([&predicate]));
            Prepared::Filter { predicate, can_fail, effort }
        }
        prune::Pruned::Step(Step::Project(columns)) => {
            let (columns, exprs): (Vec<Column>, Vec<Expr>) = columns.into_iter().unzip();
            let effort = lengths.effort(&exprs);
            lengths.project(&exprs);
            Prepared::Project(Project {
                schema: TableSchema::new(columns).arrow(),
                can_fail: exprs.iter().any(Expr::can_fail),
                computes: columns_of_exprs(&exprs).is_none(),
                effort,
                exprs,
            })
        }
        prune::Pruned::Unnest(unnest) => Prepared::Unnest(unnest),
        prune::Pruned::Step(other) => {
            if matches!(other, Step::FlatMap { .. } | Step::Custom { .. } | Step::Probe { .. }) {
                lengths.forget();
            }
            Prepared::Other(other)
        }
    }
}

fn check_not_null(rows: &Rows, columns: &[NotNull], sink: &str) -> Result<()> {
    let violated = columns.iter().find(|checked| not_null_violation(rows, checked.column));
    let Some(violated) = violated else { return Ok(()) };
    let name = rows.batch.schema_ref().field(violated.column).name();
    let (why, remedy) = match violated.is_key {
        true => ("part of the primary key", "filter such rows out"),
        false => ("NOT NULL", "declare the column without NOT NULL, or filter such rows out"),
    };
    Err(Error::data(format!(
        "column '{name}' of table '{sink}' is {why}, but a NULL is to be written into it"
    ))
    .hint(format!("{remedy}: WHERE … IS NOT NULL (a DECIMAL that does not fit its type is NULL)"))
    .at(violated.span))
}

fn select(rows: &mut Rows, name: &str, function: &MaskFunction) -> Result<()> {
    let mask = function(&rows.batch)?;
    if mask.len() != rows.batch.num_rows() {
        let (returned, before) = (mask.len(), rows.batch.num_rows());
        return Err(Error::new(
            ErrorKind::User,
            format!("function '{name}' returned {returned} answers for {before} rows"),
        ));
    }
    rows.select(&mask);
    Ok(())
}

fn custom(rows: &mut Rows, name: &str, function: &BatchFunction) -> Result<()> {
    let before = rows.batch.num_rows();
    let result = function(rows.batch.clone())?;
    if result.num_rows() != before {
        return Err(Error::new(
            ErrorKind::User,
            format!("function '{name}' returned {} rows for {before}", result.num_rows()),
        )
        .hint("use a flat map for functions that return more or fewer rows"));
    }
    rows.batch = result;
    Ok(())
}

/// How many rows user code is given at first, where what it makes of them must not be too much.
const FLAT_MAP_ROWS: usize = 1024;

fn flat_map(
    rows: &mut Rows,
    (name, function): (&str, &FlatMapFunction),
    from: &Cursor,
    bounds: &Bounds,
) -> Result<Option<Cursor>> {
    let (all, begun_ns) = (rows.batch.num_rows(), bounds.clock.now_ns());
    let before = begin_part(rows, from, FLAT_MAP_ROWS, bounds);
    let (result, origins) = function(&rows.batch)?;
    if origins.len() != result.num_rows() {
        let returned = result.num_rows();
        return Err(Error::new(
            ErrorKind::User,
            format!("function '{name}' returned {returned} rows but {} origins", origins.len()),
        ));
    }
    if let Some(origin) = origins.iter().find(|&&origin| origin as usize >= before) {
        return Err(Error::new(
            ErrorKind::User,
            format!("function '{name}' named input row {origin}, but there are {before}"),
        ));
    }
    let bytes = batch_bytes(&result);
    rows.replace(result, &origins);
    Ok(next_part(from, (before, all), bytes, (begun_ns, PART_NS_MAX / 2), bounds))
}

/// Computes the next part of some rows.
fn compute(
    rows: &mut Rows,
    effort: Effort,
    from: &Cursor,
    bounds: &Bounds,
    step: impl FnOnce(&mut Rows) -> Result<()>,
) -> Result<Option<Cursor>> {
    let (all, begun_ns) = (rows.batch.num_rows(), bounds.clock.now_ns());
    let taken = begin_part(rows, from, effort.first_rows(&rows.batch), bounds);
    step(rows)?;
    let time = (begun_ns, effort.part_ns());
    Ok(next_part(from, (taken, all), batch_bytes(&rows.batch), time, bounds))
}

/// Keeps the rows of the next part; how many they are. `few` are tried where nothing is known yet.
fn begin_part(rows: &mut Rows, from: &Cursor, few: usize, bounds: &Bounds) -> usize {
    let all = rows.batch.num_rows();
    let few = if bounds.room_bytes == usize::MAX { all } else { few };
    let taken = from.rows_max.unwrap_or(few).min(all - from.row);
    if taken < all {
        *rows = rows.slice(from.row, taken);
    }
    taken
}

/// Where to continue behind a part of some rows that has led to these bytes: the part after it
/// takes half of the room, the time that a part should take, and at most 16 times the rows.
fn next_part(
    from: &Cursor,
    (taken, all): (usize, usize),
    bytes: usize,
    (begun_ns, part_ns): (u64, u64),
    bounds: &Bounds,
) -> Option<Cursor> {
    let took_ns = bounds.clock.now_ns().saturating_sub(begun_ns);
    let by_room = bounds.room_bytes / 2 / bytes.div_ceil(taken.max(1)).max(1);
    let by_time = part_ns as usize / (took_ns as usize).div_ceil(taken.max(1)).max(1);
    let rows_max = by_room.min(by_time).clamp(1, taken.saturating_mul(16).max(1));
    let next = Cursor { row: from.row + taken, rows_max: Some(rows_max), ..Cursor::default() };
    (next.row < all).then_some(next)
}

fn probe(
    rows: &mut Rows,
    table: &Probe,
    from: &Cursor,
    room_bytes: usize,
    wall_ms: i64,
) -> Result<Option<Cursor>> {
    let all = rows.batch.num_rows();
    let tried = from.rows_max.unwrap_or(all).min(all - from.row);
    let pairs_max = parts::rows_in(room_bytes, &rows.batch, table.columns());
    let input = if tried == all { rows.clone() } else { rows.slice(from.row, tried) };
    let (probed, taken) = table.apply(&input.batch, wall_ms, pairs_max)?;
    *rows = if taken == tried { input } else { input.slice(0, taken) };
    match probed {
        Probed::Kept(kept) => rows.select(&kept),
        Probed::Joined { batch, origins: None } => rows.batch = batch,
        Probed::Joined { batch, origins: Some(origins) } => rows.replace(batch, &origins),
    }
    let row = from.row + taken;
    // What is found for rows that are not taken is found again: about as many are tried as can be
    // taken.
    let rows_max = if taken == tried { all } else { taken.saturating_mul(4).max(16) };
    let next = Cursor { row, rows_max: Some(rows_max), ..Cursor::default() };
    Ok((row < all).then_some(next))
}

#[cfg(test)]
mod tests;
