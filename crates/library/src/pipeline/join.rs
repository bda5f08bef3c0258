//! Joins in the builder, by the operators that SQL uses.
//!
//! ```
//! use std::sync::Arc;
//! use arrow_array::{ArrayRef, Int64Array, RecordBatch};
//! use thalweg::pipeline::{Collect, JoinKind, MemorySource, Pipeline, Stream};
//! use thalweg::{Column, DataType, Result, RunOptions, TableSchema};
//!
//! let pipeline = Pipeline::new();
//! let read = |name: &str, columns: [&str; 2], values: [&[i64]; 2]| -> Result<Stream> {
//!     let column = |name: &&str| Column::new(*name, DataType::BigInt.not_null());
//!     let schema = TableSchema::new(columns.iter().map(column).collect());
//!     let column = |of: &[i64]| Arc::new(Int64Array::from(of.to_vec())) as ArrayRef;
//!     let batch = RecordBatch::try_new(schema.arrow(), values.map(column).into())?;
//!     Ok(pipeline.read(name, MemorySource::new(schema.clone(), vec![batch]), schema))
//! };
//! let orders = read("orders", ["id", "buyer"], [&[1, 2, 3], &[70, 71, 70]])?;
//! let buyers = read("buyers", ["buyer", "age"], [&[70, 72], &[33, 54]])?;
//! let results = Collect::new();
//! // The right side is read first, whole.
//! let joined = orders.join(JoinKind::Left, buyers).on(&[("buyer", "buyer")])?.hashed()?;
//! let names: Vec<&str> = joined.schema().columns.iter().map(|column| &*column.name).collect();
//! assert_eq!(names, ["id", "buyer", "buyer0", "age"]);
//! joined.write("results", results.sink());
//! pipeline.run(RunOptions::default())?;
//! assert_eq!(results.num_rows(), 3);
//! # Ok::<(), thalweg::Error>(())
//! ```

use std::sync::Arc;

use thalweg_core::{Column, DataType, Error, Operator, Result, TableSchema};
use thalweg_expr::{Expr, build};
use thalweg_operators::chain::Step;
use thalweg_operators::join::equi::EquiJoin;
use thalweg_operators::join::hash::{HashJoin, HashJoinSpec};
use thalweg_operators::join::interval::{IntervalJoin, IntervalJoinSpec};
use thalweg_operators::join::regular::{JoinSpec, RegularJoin};
use thalweg_operators::join::sides::{Side, Sides, TagSide};
use thalweg_operators::join::temporal::{TemporalJoin, TemporalJoinSpec};
use thalweg_operators::join::window::{WindowJoin, WindowJoinSpec};
use thalweg_operators::window::{KnownWindows, LatePolicy, WindowSpec};

use super::build::NodeKind;
use super::stream::Stream;
use super::window::{Window, column_text};

/// Which rows a join keeps.
pub use thalweg_operators::join::JoinKind;

/// The columns that say which window a row belongs to.
const WINDOW_COLUMNS: [&str; 3] = ["window_start", "window_end", "window_time"];

/// Two streams that are to be joined: name the keys by [`StreamJoin::on`], then choose how long
/// rows wait for partners.
///
/// | method | a row meets | what leaves is updated |
/// |---|---|---|
/// | [`unbounded`](Self::unbounded) | all rows of the other side | for all kinds but inner and semi joins |
/// | [`within`](Self::within) | those whose times lie within a distance | never |
/// | [`in_windows`](Self::in_windows), [`in_same_windows`](Self::in_same_windows) | those in the same window | never |
/// | [`as_of`](Self::as_of) | the version that the right side had at its time | as the left side |
/// | [`hashed`](Self::hashed) | all rows of the right side, which is read first | as the left side |
///
/// The result has the columns of the left side, then those of the right side; a name of the right
/// side that the left side has too gets a number (`id0`). Keys are equal as in SQL: NULL equals
/// nothing. Semi and anti joins have the columns of the left side alone.
pub struct StreamJoin {
    left: Stream,
    right: Stream,
    kind: JoinKind,
    keys: (Vec<usize>, Vec<usize>),
    condition: Option<Expr>,
    state_ttl_ms: Option<i64>,
    name: Option<String>,
}

impl Stream {
    /// Begins a join with the rows of another stream of the pipeline.
    pub fn join(self, kind: JoinKind, right: Stream) -> StreamJoin {
        let (keys, condition, name) = ((Vec::new(), Vec::new()), None, None);
        StreamJoin { left: self, right, kind, keys, condition, state_ttl_ms: None, name }
    }
}

impl StreamJoin {
    /// Pairs of columns, of the left and of the right side, that are equal in partners. Without any
    /// each row meets each.
    ///
    /// # Errors
    /// If there is no such column, or the types of a pair differ.
    pub fn on(mut self, keys: &[(&str, &str)]) -> Result<Self> {
        for (left, right) in keys {
            let (of_left, of_right) =
                (self.column(Side::Left, left)?, self.column(Side::Right, right)?);
            let data_type = |side: &Stream, place: usize| {
                side.schema.columns[place].column_type.data_type.clone()
            };
            let types = (data_type(&self.left, of_left), data_type(&self.right, of_right));
            if types.0 != types.1 {
                let (one, other) = types;
                return Err(self
                    .error(format!("'{left}' is {one}, and '{right}' is {other}"))
                    .hint("cast one of them by `project`"));
            }
            self.keys.0.push(of_left);
            self.keys.1.push(of_right);
        }
        Ok(self)
    }

    /// What must hold of a pair besides, over the columns of the left side, then those of the right
    /// side.
    #[must_use]
    pub fn condition(self, condition: Expr) -> Self {
        Self { condition: Some(condition), ..self }
    }

    /// Names the join: under this name its state is found again in snapshots, where another of the
    /// pipeline computes the same.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// Lets an [unbounded](Self::unbounded) join forget rows that came so long ago, by the wall
    /// clock.
    #[must_use]
    pub fn state_ttl_ms(self, ttl_ms: i64) -> Self {
        Self { state_ttl_ms: Some(ttl_ms), ..self }
    }

    /// Each row meets all rows of the other side, whenever they come. Rows without a partner leave
    /// at once, padded, and are retracted when one comes. Both sides are kept.
    ///
    /// # Errors
    /// If the sides do not fit together.
    pub fn unbounded(self) -> Result<Stream> {
        let sides = self.sides()?;
        let ttl_ms = self.state_ttl_ms;
        let join = RegularJoin::new(JoinSpec {
            join: self.join(&sides),
            null_equals_null: vec![false; self.keys.0.len()],
            left_unique: false,
            right_unique: false,
            state_ttl_ms: (ttl_ms, ttl_ms),
        })?;
        let appends = (!self.left.has_updates, !self.right.has_updates);
        let has_updates = !join.emits_inserts_only(appends.0, appends.1);
        let output = join.output_schema().clone();
        let bound = format!("unbounded {ttl_ms:?}");
        Ok(self.place(&sides, Arc::new(join), output, &bound).with_updates(has_updates))
    }

    /// Each row meets those whose times lie within a distance: `right + lower_ms <= left <= right +
    /// upper_ms`. Rows are kept as long as a partner can come; then those without one leave.
    ///
    /// # Errors
    /// If a time is no timestamp column, or the sides do not fit together.
    pub fn within(
        self,
        (left_time, right_time): (&str, &str),
        lower_ms: i64,
        upper_ms: i64,
    ) -> Result<Stream> {
        self.check_inserts("within a time")?;
        let sides = self.sides()?;
        let join = IntervalJoin::new(IntervalJoinSpec {
            join: self.join(&sides),
            left_time: self.time(Side::Left, left_time)?,
            right_time: self.time(Side::Right, right_time)?,
            lower_ms,
            upper_ms,
            late: LatePolicy::Drop,
        })?;
        let output = join.output_schema().clone();
        let bound = format!("within {left_time} {right_time} {lower_ms} {upper_ms}");
        Ok(self.place(&sides, Arc::new(join), output, &bound))
    }

    /// Each row meets those in the same window, and leaves when the window closes. Three columns
    /// follow those of both sides: `window_start`, `window_end` and `window_time`.
    ///
    /// # Errors
    /// If a time is no timestamp column, windows do not depend on time alone (sessions), or the
    /// sides do not fit together.
    pub fn in_windows(
        mut self,
        window: Window,
        (left_time, right_time): (&str, &str),
    ) -> Result<Stream> {
        let Some(spec) = window.aligned().filter(|spec| *spec != WindowSpec::Whole) else {
            return Err(self
                .error(format!("{window} are no windows that depend on time alone"))
                .hint("aggregate each side by its sessions, and join those `in_same_windows`"));
        };
        let times = (self.time(Side::Left, left_time)?, self.time(Side::Right, right_time)?);
        let (left, right) = (self.left.schema.len(), self.right.schema.len());
        self.left = with_windows(self.left, spec, times.0);
        self.right = with_windows(self.right, spec, times.1);
        let kind = self.kind;
        let joined = self.join_windows(Some(spec))?;
        if !kind.has_right_columns() {
            return Ok(joined);
        }
        let column = |place: usize| {
            let column = &joined.schema.columns[place];
            (column.name.clone(), Expr::column(place, column.column_type.clone()))
        };
        let right_first = left + WINDOW_COLUMNS.len();
        let mut columns: Vec<_> =
            (0..left).chain(right_first..right_first + right).map(column).collect();
        for (number, name) in WINDOW_COLUMNS.iter().enumerate() {
            // Of a row without a partner only its own side has the window.
            let (of_left, of_right) =
                (column(left + number).1, column(right_first + right + number).1);
            let is_there = build::is_null(of_left.clone(), true);
            let window = build::case(vec![(is_there, of_left)], Some(of_right))?;
            columns.push(((*name).to_owned(), window));
        }
        let columns = columns.iter().map(|(name, of)| (name.as_str(), of.clone())).collect();
        Ok(joined.project("window columns", columns))
    }

    /// The same for sides whose rows have their window in the columns `window_start` and
    /// `window_end`, as the results of windows do.
    ///
    /// # Errors
    /// If a side has no such columns, or the sides do not fit together.
    pub fn in_same_windows(self) -> Result<Stream> {
        self.join_windows(None)
    }

    fn join_windows(self, spec: Option<WindowSpec>) -> Result<Stream> {
        self.check_inserts("by windows")?;
        let sides = self.sides()?;
        let window = |side| -> Result<(usize, usize)> {
            Ok((self.time(side, WINDOW_COLUMNS[0])?, self.time(side, WINDOW_COLUMNS[1])?))
        };
        let join = WindowJoin::new(WindowJoinSpec {
            join: self.join(&sides),
            left_window: window(Side::Left)?,
            right_window: window(Side::Right)?,
        })?;
        let join = join.of(KnownWindows { zone: None, ends: spec.map(|spec| spec.ends()) });
        let output = join.output_schema().clone();
        let bound = format!("windows {}", spec.map(|spec| spec.identity()).unwrap_or_default());
        Ok(self.place(&sides, Arc::new(join), output, &bound))
    }

    /// Each row of the left side meets the version of its key that the right side had at its time:
    /// the latest earlier or equal row, or of a changelog the row as it was then. Inner and left
    /// joins.
    ///
    /// # Errors
    /// If a time is no timestamp column, or the sides do not fit together.
    pub fn as_of(self, left_time: &str, right_time: &str) -> Result<Stream> {
        let sides = self.sides()?;
        let join = TemporalJoin::new(TemporalJoinSpec {
            join: self.join(&sides),
            left_time: self.time(Side::Left, left_time)?,
            right_time: self.time(Side::Right, right_time)?,
        })?;
        let join = if self.right.has_updates { join } else { join.append_only_versions() };
        let (output, has_updates) = (join.output_schema().clone(), self.left.has_updates);
        let bound = format!("as of {left_time} {right_time}");
        Ok(self.place(&sides, Arc::new(join), output, &bound).with_updates(has_updates))
    }

    /// The right side, which ends, is read first and kept as a table; no row of the left side is
    /// read before. Then each row of the left side is looked up in passing. Inner, left, semi and
    /// anti joins.
    ///
    /// # Errors
    /// If a source feeds both sides, or the sides do not fit together.
    pub fn hashed(self) -> Result<Stream> {
        if !HashJoin::can(self.kind, Side::Right) {
            return Err(self
                .error("rows of the side that is read first do not leave alone".into())
                .hint("exchange the sides, or use `unbounded`"));
        }
        self.check_same_pipeline()?;
        self.right.check_inserts("the side of a join that is read first")?;
        let sides = self.sides()?;
        let join = HashJoin::new(HashJoinSpec {
            join: self.join(&sides),
            build: Side::Right,
            is_null_aware: false,
        })?;
        let (name, computes) = (self.name(), self.identity(&sides, "hashed"));
        let pipeline = self.left.pipeline.clone();
        let build = NodeKind::Operator(Arc::new(join.build()));
        let table = format!("table of {name}");
        let inputs = vec![self.right.flush()];
        let stage = pipeline.add_computing((&table, computes), build, inputs);
        pipeline.add_gate(self.left.from, stage.from)?;
        let step = Step::Probe { table: Arc::new(join.probe()), what: name.clone() };
        Ok(self.left.step(&name, join.output_schema().clone(), step))
    }

    /// What all joins of these sides say.
    fn join(&self, sides: &Sides) -> EquiJoin {
        EquiJoin {
            sides: sides.clone(),
            kind: self.kind,
            left_keys: self.keys.0.clone(),
            right_keys: self.keys.1.clone(),
            residual: self.condition.clone(),
        }
    }

    /// Puts an operator of two inputs behind both sides.
    fn place(
        self,
        sides: &Sides,
        operator: Arc<dyn Operator>,
        output: TableSchema,
        bound: &str,
    ) -> Stream {
        let (name, computes) = (self.name(), self.identity(sides, bound));
        let pipeline = self.left.pipeline.clone();
        let tagged = |side: Side, stream: Stream| {
            let transform = Arc::new(TagSide::new(side, sides));
            let word = side.pick("left", "right");
            let kind = NodeKind::Transform(transform);
            pipeline.add(&format!("{word} side of {name}"), kind, vec![stream.flush()])
        };
        let inputs = vec![tagged(Side::Left, self.left), tagged(Side::Right, self.right)];
        let kind = NodeKind::Operator(operator);
        let from = pipeline.add_computing((&name, computes), kind, inputs);
        Stream::new(pipeline, from, output)
    }

    /// The columns of both sides, each name once.
    fn sides(&self) -> Result<Sides> {
        self.check_same_pipeline()?;
        let (left, mut right) = (self.left.schema.clone(), self.right.schema.clone());
        if self.kind.has_right_columns() {
            let mut taken: Vec<String> = left.columns.iter().map(|c| c.name.clone()).collect();
            for column in &mut right.columns {
                let numbered = (0..).map(|number| format!("{}{number}", column.name));
                let mut names = std::iter::once(column.name.clone()).chain(numbered);
                let free = names.find(|name| !taken.contains(name));
                column.name = free.expect("numbers do not end");
                taken.push(column.name.clone());
            }
        }
        Ok(Sides::new(left, right))
    }

    fn check_same_pipeline(&self) -> Result<()> {
        match self.left.pipeline.is(&self.right.pipeline) {
            true => Ok(()),
            false => Err(self.error("its sides belong to two pipelines".to_owned())),
        }
    }

    fn check_inserts(&self, how: &str) -> Result<()> {
        let what = format!("'{}', a join {how},", self.name());
        self.left.check_inserts(&what).and(self.right.check_inserts(&what))
    }

    fn stream(&self, side: Side) -> &Stream {
        side.pick(&self.left, &self.right)
    }

    fn column(&self, side: Side, name: &str) -> Result<usize> {
        let word = side.pick("left", "right");
        self.stream(side).column(name).map_err(|error| self.error(format!("{word} side: {error}")))
    }

    fn time(&self, side: Side, name: &str) -> Result<usize> {
        let place = self.column(side, name)?;
        let data_type = &self.stream(side).schema.columns[place].column_type.data_type;
        match data_type.is_timestamp() {
            true => Ok(place),
            false => Err(self.error(format!("the time '{name}' is {data_type}, no timestamp"))),
        }
    }

    fn error(&self, what: String) -> Error {
        Error::plan(format!("'{}': {what}", self.name()))
    }

    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.kind.name().to_owned())
    }

    /// What the state of it depends on: all columns, since it keeps rows.
    fn identity(&self, sides: &Sides, bound: &str) -> String {
        let of_side = |side: Side| {
            let schema = sides.schema(side);
            let columns = schema.columns.iter().map(|column| column_text(schema, &column.name));
            columns.collect::<Vec<_>>().join(", ")
        };
        let condition = self.condition.iter().map(Expr::to_string).collect::<String>();
        let (kind, keys) = (self.kind, &self.keys);
        let (left, right) = (of_side(Side::Left), of_side(Side::Right));
        format!("{kind:?} {bound}\non {keys:?} {condition}\n{left}\n{right}")
    }
}

/// Each row once for each of its windows, which is appended to it.
fn with_windows(stream: Stream, window: WindowSpec, rowtime: usize) -> Stream {
    let mut schema = stream.schema.clone();
    let column = |name: &&str| Column::new(*name, DataType::Timestamp(3).not_null());
    schema.columns.extend(WINDOW_COLUMNS.iter().map(column));
    let step = Step::WindowRows { window, rowtime, zone: None };
    stream.step("windows", schema, step)
}
