//! Aggregation: the names that SELECT, HAVING and ORDER BY can use behind GROUP BY.
//!
//! While those clauses are bound, keys, window columns and aggregates have provisional positions
//! (keys, then the three window columns, then aggregates as they are met). [`GroupLayout`] moves
//! them to where the operator puts them once all aggregates are known.
//!
//! ```text
//! SELECT k, window_end, SUM(v), COUNT(*) … GROUP BY k, window_start, window_end
//!
//! provisional:  k | window_start | window_end | window_time | SUM | COUNT
//! final:        k | SUM | COUNT | window_start | window_end | window_time
//! ```
//!
//! **Invariants:**
//! - an expression behind GROUP BY is built from keys, window columns and aggregates alone: a
//!   column that is neither is an error, also if it depends on a key (as in Flink);
//! - a key is matched by the text of the bound expression, so `GROUP BY t.a + b` and `SELECT a +
//!   t.b` name the same key;
//! - equal aggregates are computed once, by the same comparison;
//! - expressions inside of an aggregate are over the input, all others over the result.
//!
//! Windows: `GROUP BY window_start, window_end` takes the windowing function out of the plan below
//! ([`strip`]) and makes one WindowAggregate of the two. GROUPING SETS repeat the rows below it
//! ([`Sets`]).

use sqlparser::ast::{self as sql, Expr as SqlExpr};
use thalweg_core::{Column, ColumnType, Error, Result};
use thalweg_expr::build::{self, BinaryOp};
use thalweg_expr::{Expr, Session};
use thalweg_operators::window::WindowKind;

use super::composed_aggregates::without_null_clause;
use super::functions::{
    GROUP_ID, JSON_AGGREGATES, function_name, is_aggregate, is_group_window_function,
    is_later_aggregate, is_star_call, plain_arguments,
};
use super::group::{GroupBy, GroupWindow};
use super::names::{Names, PlainNames};
use super::scope::{Scope, name_parts};
use super::sets::{Sets, grouping_arguments, grouping_value, is_grouping};
use super::spans::span_of;
use super::strip::{Stripped, strip};
use super::{Binder, unsupported};
use crate::logical::fields::window_fields;
use crate::logical::{
    Aggregate, Field, LogicalKind, LogicalPlan, Node, TimeAttribute, Window, column_of,
};

/// The columns of a window among the provisional ones of a grouping.
pub(super) const WINDOW_COLUMNS: usize = 3;

/// An aggregation while its query is being bound.
pub(super) struct Grouping<'a> {
    scope: &'a Scope,
    group: GroupBy,
    // Of the keys as written, without the number of a grouping set.
    key_texts: Vec<String>,
    aggregates: Vec<Aggregate>,
    aggregate_texts: Vec<String>,
    state_ttl_ms: Option<i64>,
}

/// Where provisional positions end up.
/// Made by [`Grouping::finish`]; without a window the three window positions are never used.
pub(super) struct GroupLayout {
    keys: usize,
    aggregates: usize,
}

impl GroupLayout {
    /// An expression over the columns of the aggregate.
    pub(super) fn place(&self, expr: &Expr) -> Expr {
        expr.remap(&|i| match i.checked_sub(self.keys) {
            None => i,
            Some(window @ 0..=2) => self.keys + self.aggregates + window,
            Some(aggregate) => self.keys + aggregate - 3,
        })
    }
}

impl<'a> Grouping<'a> {
    /// Binds GROUP BY over the columns of an input.
    pub(super) fn new(
        binder: &Binder<'_>,
        (scope, input): (&'a Scope, &Node),
        list: &[SqlExpr],
    ) -> Result<Self> {
        let mut group = binder.bind_group_by(scope, list, input)?;
        let key_texts = group.keys.iter().map(ToString::to_string).collect();
        if group.sets.is_some() {
            // Behind the input's columns, where no name reaches.
            group.keys.push(Expr::column(scope.fields.len(), Sets::number_type()));
        }
        Ok(Grouping {
            scope,
            group,
            key_texts,
            aggregates: Vec::new(),
            aggregate_texts: Vec::new(),
            state_ttl_ms: None,
        })
    }

    /// The same with keys that are kept for so long, if that is said, 0 being for ever.
    pub(super) fn kept_for(mut self, state_ttl_ms: Option<i64>) -> Self {
        self.state_ttl_ms = state_ttl_ms;
        self
    }

    /// True if rows are not grouped by a window.
    pub(super) fn is_unwindowed(&self) -> bool {
        matches!(self.group.window, GroupWindow::None)
    }

    fn key_column(&self, key: usize) -> Expr {
        Expr::column(key, self.key_type(key))
    }

    /// The type of a key: nullable where a set lacks it.
    /// The last key is the number of the set, if there are sets, and is never NULL.
    fn key_type(&self, key: usize) -> ColumnType {
        let own = self.group.keys[key].column_type.clone();
        let is_number = key + 1 == self.group.keys.len();
        match &self.group.sets {
            Some(sets) if !is_number && !sets.all_have(key) => own.with_nullable(true),
            _ => own,
        }
    }

    /// `GROUPING(k, …)`: which of these keys the set of a row lacks, a bit for each.
    /// The first argument is the highest bit.
    fn grouping(&self, binder: &Binder<'_>, call: &sql::Function) -> Result<Expr> {
        let mut keys = Vec::new();
        for argument in grouping_arguments(call)? {
            let mut names = PlainNames::of(self.scope, "GROUPING");
            let text = binder.expression(argument, &mut names)?.to_string();
            let key = self.key_texts.iter().position(|key| *key == text).ok_or_else(|| {
                Error::plan(format!("{argument} in GROUPING is no key of GROUP BY"))
                    .at(span_of(argument))
            })?;
            keys.push(key);
        }
        match &self.group.sets {
            None => Ok(grouping_value(0)),
            Some(sets) => sets.grouping(binder, &keys, &self.key_column(self.group.keys.len() - 1)),
        }
    }

    /// The window column at 0 (start), 1 (end) or 2 (time).
    fn window_column(&self, part: usize, nullable: bool) -> Expr {
        let is_instant = match &self.group.window {
            GroupWindow::Columns { is_instant, .. } => *is_instant,
            GroupWindow::Legacy(window) => window.is_instant,
            GroupWindow::None => false,
        };
        let id = crate::logical::WindowId::default();
        let column_type = window_fields(id, is_instant)[part].column_type.clone();
        Expr::column(self.group.keys.len() + part, column_type.with_nullable(nullable))
    }

    /// What an input column means behind GROUP BY, if it may be used.
    /// window_time only if GROUP BY names it, as in Flink.
    fn grouped_column(&self, input: usize) -> Result<Expr> {
        let field = &self.scope.fields[input];
        if let GroupWindow::Columns { id, with_time, .. } = &self.group.window {
            let part = match field.time {
                TimeAttribute::WindowStart(of) if of == *id => Some(0),
                TimeAttribute::WindowEnd(of) if of == *id => Some(1),
                TimeAttribute::WindowTime(of) if of == *id && *with_time => Some(2),
                _ => None,
            };
            if let Some(part) = part {
                return Ok(self.window_column(part, false));
            }
        }
        let text = self.scope.column(input).to_string();
        match self.key_texts.iter().position(|key| *key == text) {
            Some(key) => Ok(self.key_column(key)),
            None => Err(Error::plan(format!(
                "column '{}' stands neither in GROUP BY nor inside an aggregate",
                field.name
            ))
            .hint(format!("add {} to GROUP BY, or aggregate it: MAX({})", field.name, field.name))),
        }
    }

    /// An aggregate's provisional column; the same call again is the same column.
    fn aggregate(&mut self, binder: &Binder<'_>, call: &sql::Function) -> Result<Expr> {
        let name = function_name(call);
        if is_later_aggregate(&name) {
            return Err(unsupported::aggregate(&name));
        }
        if JSON_AGGREGATES.contains(&name.as_str()) {
            let (call, is_absent) = without_null_clause(call, &name)?;
            let members = self.aggregate_of(binder, &call, "LISTAGG".to_owned(), |arguments| {
                Ok(vec![binder.json_member(arguments, is_absent)?])
            })?;
            return binder.json_of_members(members, &name);
        }
        if name == "COLLECT" {
            let null_treatment = Some(sql::NullTreatment::IgnoreNulls);
            let call = sql::Function { null_treatment, ..call.clone() };
            let values = self.aggregate_of(binder, &call, "ARRAY_AGG".to_owned(), Ok)?;
            return build::call("MULTISET$", vec![values], binder.session);
        }
        if name == "PERCENTILE" && plain_arguments(call)?.len() == 3 {
            return self.weighted_percentile(binder, call);
        }
        if let Some(function) = binder.function_over_values(&name) {
            let values =
                self.aggregate_of(binder, call, "ARRAY_AGG".to_owned(), values_together)?;
            return build::call(function, vec![values], binder.session);
        }
        let is_count = name == "COUNT";
        self.aggregate_of(binder, call, name, |arguments| match is_count {
            true => counted_together(arguments),
            false => Ok(arguments),
        })
    }

    /// `PERCENTILE(value, fraction, frequency)`, from all values with their frequencies.
    fn weighted_percentile(&mut self, binder: &Binder<'_>, call: &sql::Function) -> Result<Expr> {
        let mut names = PlainNames::of(self.scope, "an aggregate");
        let fraction = binder.expression(plain_arguments(call)?[1], &mut names)?;
        let null_treatment = Some(sql::NullTreatment::IgnoreNulls);
        let call = sql::Function { null_treatment, ..call.clone() };
        let prepare = |arguments| binder.value_with_frequency(arguments);
        let values = self.aggregate_of(binder, &call, "ARRAY_AGG".to_owned(), prepare)?;
        binder.percentile_of(values, fraction)
    }

    /// The column of an aggregate over what `prepare` makes of the arguments.
    fn aggregate_of(
        &mut self,
        binder: &Binder<'_>,
        call: &sql::Function,
        name: String,
        prepare: impl Fn(Vec<Expr>) -> Result<Vec<Expr>>,
    ) -> Result<Expr> {
        let bound = self.bind_call(binder, call, name, prepare)?;
        // The text of a number is the same in every type.
        let text = format!("{bound} {}", bound.column.column_type.data_type);
        let index = match self.aggregate_texts.iter().position(|known| *known == text) {
            Some(index) => index,
            None => {
                self.aggregates.push(bound);
                self.aggregate_texts.push(text);
                self.aggregates.len() - 1
            }
        };
        let column_type = self.aggregates[index].column.column_type.clone();
        Ok(Expr::column(self.group.keys.len() + 3 + index, column_type))
    }

    fn bind_call(
        &self,
        binder: &Binder<'_>,
        call: &sql::Function,
        name: String,
        prepare: impl Fn(Vec<Expr>) -> Result<Vec<Expr>>,
    ) -> Result<Aggregate> {
        let mut names = PlainNames::of(self.scope, "an aggregate");
        let arguments = if is_star_call(call) {
            if name != "COUNT" {
                return Err(Error::plan(format!("{name}(*) means nothing: only COUNT takes *")));
            }
            Vec::new()
        } else {
            plain_arguments(call)?
        };
        let arguments = arguments.into_iter().map(|arg| binder.expression(arg, &mut names));
        let arguments = prepare(arguments.collect::<Result<Vec<Expr>>>()?)?;
        let Treatment { distinct, skips_nulls } = treatment(call, &name)?;
        let (function, column_type) =
            binder.resolve_aggregate(&name, distinct, skips_nulls, &arguments)?;
        let filter = match &call.filter {
            None => None,
            Some(condition) => Some(binder.condition(condition, "FILTER (WHERE …)", &mut names)?),
        };
        let column =
            Column::new(format!("{}${}", name.to_lowercase(), self.aggregates.len()), column_type);
        let argument = arguments.into_iter().next();
        Ok(Aggregate { function, name, column, argument, distinct, filter })
    }

    /// `TUMBLE_START(ts, …)` and its kin.
    /// Its arguments are bound again and compared with the window of GROUP BY.
    fn window_function(&self, binder: &Binder<'_>, call: &sql::Function) -> Result<Expr> {
        let name = function_name(call);
        let GroupWindow::Legacy(window) = &self.group.window else {
            return Err(Error::plan(format!("{name} needs GROUP BY with the same window"))
                .hint("after TABLE(TUMBLE(…)) use window_start, window_end and window_time"));
        };
        let (function, part) = name.split_once('_').unwrap_or((name.as_str(), ""));
        let renamed =
            sql::Function { name: vec![sql::Ident::new(function)].into(), ..call.clone() };
        let same = binder.legacy_window(self.scope, &SqlExpr::Function(renamed))?;
        if !same.is_some_and(|w| w.kind == window.kind && w.rowtime == window.rowtime) {
            return Err(Error::plan(format!(
                "{name} has other arguments than the window of GROUP BY"
            )));
        }
        let by_clock = window.id.by_clock;
        match part {
            "START" => Ok(self.window_column(0, false)),
            "END" => Ok(self.window_column(1, false)),
            "ROWTIME" if !by_clock => Ok(self.window_column(2, true)),
            "PROCTIME" if by_clock => Ok(self.window_column(2, false)),
            "ROWTIME" => Err(Error::plan(format!("{name} needs a window over a row time"))
                .hint(format!("over the processing time it is {function}_PROCTIME"))),
            _ => Err(Error::plan(format!("{name} needs a window over the processing time"))
                .hint(format!("over a row time it is {function}_ROWTIME"))),
        }
    }

    /// A key that is an expression, matched by what it computes.
    /// `None` if the expression can't be bound over the input: it may hold an aggregate, or be no
    /// key at all.
    fn matching_key(&self, binder: &Binder<'_>, expr: &SqlExpr) -> Option<Expr> {
        // Also a key that came out as a column may have been written as more: COALESCE of what is
        // never NULL. Where sets lack it, it is NULL as a whole.
        let computed =
            self.group.sets.is_some() || self.group.keys.iter().any(|key| column_of(key).is_none());
        if !computed || binder.contains_aggregate(expr) {
            return None;
        }
        let bound = binder.expression(expr, &mut PlainNames::of(self.scope, "SELECT")).ok()?;
        let text = bound.to_string();
        let key = self.key_texts.iter().position(|key| *key == text)?;
        Some(self.key_column(key))
    }

    /// The aggregate over its input.
    ///
    /// A window that can't be taken out of the plan makes a node that is refused later, with the
    /// columns that it would have had, so that mistakes in the select list are reported first.
    pub(super) fn finish(self, binder: &Binder<'_>, input: Node) -> Result<(Node, GroupLayout)> {
        let layout = GroupLayout { keys: self.group.keys.len(), aggregates: self.aggregates.len() };
        let span = self.group.span;
        let stripped = match &self.group.window {
            GroupWindow::None => return Ok((self.unwindowed(binder, input)?, layout)),
            GroupWindow::Legacy(window) => {
                Stripped::unchanged(binder.with_times(input, window.rowtime), window.clone())
            }
            GroupWindow::Columns { id, .. } => match strip(&input, *id).map_err(|e| e.at(span))? {
                Some(stripped) => stripped,
                None => {
                    let error = unsupported::later(
                        "GROUP BY with the columns of a window that is not directly below",
                    );
                    return Ok((self.refused(input, error.at(span)), layout));
                }
            },
        };
        let node = self.windowed(binder, stripped).map_err(|e| e.at(span))?;
        Ok((node, layout))
    }

    fn refused(&self, input: Node, error: Error) -> Node {
        let mut fields = self.result_fields();
        fields.extend(
            window_fields(crate::logical::WindowId::default(), false).map(Field::without_time),
        );
        LogicalPlan::node(LogicalKind::Refused { inputs: vec![input], error }, fields)
    }

    /// Keys and aggregates.
    fn result_fields(&self) -> Vec<Field> {
        let keys = self.group.keys.iter().enumerate().map(|(i, key)| {
            let field = column_of(key).and_then(|c| self.scope.fields.get(c));
            let name = field.map_or_else(|| format!("key${i}"), |field| field.name.clone());
            Field::plain(name, self.key_type(i))
        });
        let aggregates = self
            .aggregates
            .iter()
            .map(|a| Field::plain(a.column.name.clone(), a.column.column_type.clone()));
        keys.chain(aggregates).collect()
    }

    /// An aggregate that is updated, behind the expansion of grouping sets if there are some.
    fn unwindowed(self, binder: &Binder<'_>, input: Node) -> Result<Node> {
        let fields = self.result_fields();
        let Grouping { mut group, aggregates, state_ttl_ms, .. } = self;
        let (mut node, mut keys) = (input, std::mem::take(&mut group.keys));
        if let Some(sets) = &group.sets {
            keys.pop();
            (node, keys) = sets.expand(binder, node, keys)?;
        }
        if keys.is_empty() && aggregates.is_empty() {
            return Err(unsupported::later("a group of all rows of which nothing is computed")
                .hint("add COUNT(*), or leave GROUP_ID() and HAVING out")
                .at(group.span));
        }
        let kind = LogicalKind::Aggregate { input: node, keys, aggregates, state_ttl_ms };
        Ok(LogicalPlan::node(kind, fields))
    }

    /// An aggregate per window over the stripped plan, to whose columns keys and arguments are
    /// moved.
    fn windowed(self, binder: &Binder<'_>, stripped: Stripped) -> Result<Node> {
        let mut fields = self.result_fields();
        let mapped = |expr: &Expr| {
            stripped.map(expr).ok_or_else(|| {
                unsupported::later("an aggregate over window columns")
                    .hint("window_start and window_end are the same for all rows of a group")
            })
        };
        // The number of the set is added by `expand`, over the expanded rows.
        let own = self.group.keys.len() - usize::from(self.group.sets.is_some());
        let keys = self.group.keys[..own].iter().map(mapped);
        let mut keys = keys.collect::<Result<Vec<Expr>>>()?;
        let mut aggregates = Vec::with_capacity(self.aggregates.len());
        for aggregate in &self.aggregates {
            let argument = aggregate.argument.as_ref().map(mapped).transpose()?;
            let filter = aggregate.filter.as_ref().map(mapped).transpose()?;
            aggregates.push(Aggregate { argument, filter, ..aggregate.clone() });
        }
        let mut window = stripped.window.clone();
        let first_window = fields.len();
        let mut input = stripped.node;
        if let Some(sets) = &self.group.sets {
            (input, keys) = sets.expand(binder, input, keys)?;
        }
        // Behind the sets: a session of a key is none of a set without it.
        check_session_keys(window.kind, &window.partition_by, &keys, &self.group.window)?;
        window.partition_by.clear();
        let mut node = match stripped.carried {
            None => {
                fields.extend(window_fields(window.id, window.is_instant));
                let kind = LogicalKind::WindowAggregate {
                    input,
                    window,
                    keys,
                    aggregates,
                    read: [true; 3],
                };
                LogicalPlan::node(kind, fields)
            }
            Some(ends) => {
                let closing =
                    Window { id: binder.next_window(TimeAttribute::None), ..window.clone() };
                by_carried_window((input, ends), (window, closing), (keys, aggregates), fields)
            }
        };
        // Conditions on window columns below GROUP BY hold for whole windows, so they may come
        // after it.
        let after = super::strip::conjunction(stripped.after, binder.session)?;
        if let Some(after) = after {
            node = LogicalPlan::filter(node, after.remap(&|part| first_window + part));
        }
        Ok(node)
    }
}

/// An aggregate of windows that its rows carry at `ends`: start and end are keys, and stand behind
/// the aggregates in the result as those of any other window. `fields` are keys and aggregates.
fn by_carried_window(
    (input, ends): (Node, (usize, usize)),
    (window, closing): (Window, Window),
    (mut keys, aggregates): (Vec<Expr>, Vec<Aggregate>),
    mut fields: Vec<Field>,
) -> Node {
    let first_end = keys.len();
    keys.extend([ends.0, ends.1].map(|at| input.fields[at].at(at)));
    let [start, end, time] = window_fields(window.id, window.is_instant);
    fields.splice(first_end..first_end, [start.clone(), end.clone()]);
    let time_at = fields.len() + 2;
    fields.extend([start.without_time(), end.without_time(), time]);
    let shown =
        (0..first_end).chain(first_end + 2..time_at - 2).chain([first_end, first_end + 1, time_at]);
    let shown = shown.map(|at| fields[at].named_at(at)).collect();
    let kind =
        LogicalKind::WindowAggregate { input, window: closing, keys, aggregates, read: [true; 3] };
    LogicalPlan::project(LogicalPlan::node(kind, fields), shown)
}

/// A session belongs to a key, so the keys of GROUP BY and of PARTITION BY must be the same.
fn check_session_keys(
    kind: WindowKind,
    partition_by: &[usize],
    keys: &[Expr],
    group: &GroupWindow,
) -> Result<()> {
    if !matches!(kind, WindowKind::Session { .. }) || matches!(group, GroupWindow::Legacy(_)) {
        return Ok(());
    }
    let mut of_group: Vec<Option<usize>> = keys.iter().map(column_of).collect();
    let mut of_session: Vec<Option<usize>> = partition_by.iter().map(|&c| Some(c)).collect();
    of_group.sort_unstable();
    of_session.sort_unstable();
    if of_group == of_session {
        return Ok(());
    }
    Err(unsupported::later("SESSION with other keys in PARTITION BY than in GROUP BY")
        .hint("write the same columns in both: SESSION(TABLE t PARTITION BY k, …) … GROUP BY window_start, window_end, k"))
}

/// The values of several arguments as one row.
fn values_together(arguments: Vec<Expr>) -> Result<Vec<Expr>> {
    match arguments.len() {
        0 | 1 => Ok(arguments),
        _ => Ok(vec![build::call("ROW", arguments, &Session::default())?]),
    }
}

/// `COUNT(a, b)`: several values count if none of them is NULL.
pub(super) fn counted_together(arguments: Vec<Expr>) -> Result<Vec<Expr>> {
    if arguments.len() < 2 {
        return Ok(arguments);
    }
    let session = Session::default();
    let mut are_there = build::boolean_literal(true);
    for argument in &arguments {
        let is_there = build::is_null(argument.clone(), true);
        are_there = build::binary(BinaryOp::And, are_there, is_there, &session)?;
    }
    let row = build::call("ROW", arguments, &session)?;
    Ok(vec![build::case(vec![(are_there, row)], None)?])
}

/// Which values an aggregate takes.
pub(super) struct Treatment {
    /// Equal ones once.
    pub(super) distinct: bool,
    /// IGNORE NULLS was written.
    pub(super) skips_nulls: bool,
}

/// DISTINCT and IGNORE NULLS of a call; other clauses inside of its brackets are refused.
pub(super) fn treatment(call: &sql::Function, name: &str) -> Result<Treatment> {
    let mut treatment = Treatment { distinct: false, skips_nulls: false };
    let sql::FunctionArguments::List(list) = &call.args else { return Ok(treatment) };
    let mut of_nulls = call.null_treatment;
    for clause in &list.clauses {
        match clause {
            sql::FunctionArgumentClause::IgnoreOrRespectNulls(nulls) => of_nulls = Some(*nulls),
            other => {
                let error = unsupported::later(&format!("{other} inside an aggregate"));
                return Err(error.at(span_of(other)));
            }
        }
    }
    if of_nulls == Some(sql::NullTreatment::RespectNulls) && name != "ARRAY_AGG" {
        return Err(unsupported::later("RESPECT NULLS"));
    }
    if !call.within_group.is_empty() {
        return Err(unsupported::later("WITHIN GROUP"));
    }
    treatment.skips_nulls = of_nulls == Some(sql::NullTreatment::IgnoreNulls);
    treatment.distinct = list.duplicate_treatment == Some(sql::DuplicateTreatment::Distinct);
    Ok(treatment)
}

impl Names for Grouping<'_> {
    fn intercept(&mut self, binder: &Binder<'_>, expr: &SqlExpr) -> Result<Option<Expr>> {
        if let SqlExpr::Function(call) = expr {
            let name = function_name(call);
            if call.over.is_some() {
                return Err(unsupported::over_here(&name));
            }
            if is_grouping(&name) {
                return self.grouping(binder, call).map(Some);
            }
            if name == GROUP_ID && plain_arguments(call)?.is_empty() {
                return Ok(Some(grouping_value(0)));
            }
            if is_aggregate(binder, &name) {
                return self.aggregate(binder, call).map(Some);
            }
            if is_group_window_function(&name) {
                return self.window_function(binder, call).map(Some);
            }
        }
        if let Some(parts) = name_parts(expr) {
            let (input, fields) = self.scope.resolve_path(parts)?;
            if let Some(key) = self.matching_key(binder, expr) {
                return Ok(Some(key));
            }
            return binder.fields(self.grouped_column(input)?, fields).map(Some);
        }
        Ok(self.matching_key(binder, expr))
    }

    fn column(&mut self, input: usize) -> Result<Expr> {
        self.grouped_column(input)
    }

    fn is_rowtime(&self, column: usize) -> bool {
        column == self.group.keys.len() + 2
    }
}
