//! Groups without a window: what they hold is handed over as a bounded table that stands in front
//! of the stream.
//!
//! COUNT, SUM, MIN, MAX and AVG can be computed from parts, so a group is its key and a part for
//! each aggregate. The snapshot has them ([`HeldGroups::hand_over`] writes them to a topic), and
//! the moved query makes the same of each row to come:
//!
//! ```text
//! SELECT k, COUNT(*), SUM(v) FROM t WHERE v > 0 GROUP BY k
//!
//! SELECT `key$0`, SUM(`part$0`), SUM(`part$1`) FROM (
//!   SELECT k AS `key$0`, 1 AS `part$0`, v AS `part$1` FROM t WHERE v > 0
//!   UNION ALL SELECT `key$0`, `part$0`, `part$1` FROM `moved$state` WHERE `move` = '…'
//! ) AS `moved` GROUP BY `key$0`
//! ```
//!
//! (Both sides are cast to the same types, which is left out here.)
//!
//! DISTINCT is a group without aggregates.
//!
//! **Invariants:**
//! - the output is one of upserts. Flink does not read one input before another, so a group may be
//!   written without what was handed over until that has been read, and each group is written
//!   again;
//! - rows of the topic that an earlier attempt has written are not counted: each attempt has a
//!   name.

use std::ops::Range;

use sqlparser::tokenizer::Token;
use thalweg_core::{DataType, Error, Result};

use super::clauses::{Clauses, Word, is_keyword, select_of};
use super::literals::quoted_name;
use super::needs::unmovable;
use super::tables::option;
use crate::ast::Insert;
use crate::logical::{Aggregate, LogicalKind, Node};
use crate::script_text::{Edit, ScriptText, closing, in_order, quoted_options};

/// The table of what is handed over.
const STATE: &str = "`moved$state`";
/// Which attempt a row belongs to.
const MOVE: &str = "`move`";

/// Where groups are handed over.
#[derive(Clone, Debug)]
pub struct HandOver {
    /// A topic of the brokers that the job reads from.
    pub topic: String,
    /// This attempt, different from all others.
    pub attempt: String,
}

/// Where a snapshot has the groups.
#[derive(Clone, Debug)]
pub struct HeldState<'a> {
    /// The folder of the job's snapshots.
    pub folder: &'a str,
    /// The number of the snapshot.
    pub snapshot: u64,
    /// The identifier of the operator.
    pub operator: &'a str,
}

/// The groups of a query.
#[derive(Debug)]
pub(super) struct HeldGroups {
    clauses: Clauses,
    keys: Vec<Held>,
    aggregates: Vec<HeldAggregate>,
}

/// A column of what is handed over.
#[derive(Debug)]
struct Held {
    name: String,
    /// What it is in the table of state.
    of_state: String,
    data_type: DataType,
}

#[derive(Debug)]
struct HeldAggregate {
    /// Its columns, with what each is of a row.
    parts: Vec<(Held, String)>,
    /// What it is made of its parts.
    merged: String,
    /// Where it is called.
    places: Vec<Range<usize>>,
}

/// A call in the text.
struct Call {
    function: String,
    is_distinct: bool,
    /// None for `*`.
    argument: Option<String>,
    filter: Option<String>,
    /// The same for equal calls.
    text: String,
    places: Vec<Range<usize>>,
}

impl HeldGroups {
    /// Those of an INSERT whose plan has this aggregate.
    ///
    /// # Errors
    /// If a group cannot be made of parts, or the text is not understood.
    pub(super) fn of(source: &ScriptText<'_>, insert: &Insert, node: &Node) -> Result<HeldGroups> {
        let at = |error: Error| error.at(insert.query.span);
        let LogicalKind::Aggregate { keys, aggregates, .. } = &node.kind else {
            return Err(Error::internal("groups are those of an aggregate"));
        };
        select_of(&insert.query).map_err(at)?;
        let clauses = Clauses::of(source, &insert.query)?;
        if clauses.group.is_none() && !clauses.is_distinct {
            return Err(at(unmovable(
                "it groups in a view or a sub-query, or all rows at once",
                "write the GROUP BY, with a key, in the SELECT of the INSERT",
            )));
        }
        // The keys of grouping sets have one more: the number of the set.
        if clauses.group.as_ref().is_some_and(|group| clauses.list(group).len() != keys.len()) {
            return Err(at(unmovable(
                "it groups by several sets of keys",
                "write a SELECT for each of them, in files of their own",
            )));
        }
        if let Some(having) =
            clauses.having.as_ref().filter(|having| !only_adds(source, clauses.words(having)))
        {
            let place = source.text[having.clone()].trim();
            return Err(at(unmovable(
                &format!(
                    "a group may no longer meet HAVING {place}, and Flink deletes only what it has written"
                ),
                "compare COUNT or MAX with > or >=, or MIN with < or <=, or filter where the table is read",
            )));
        }
        let calls = calls(source, &clauses);
        let named = aggregates.iter().map(|aggregate| &aggregate.name);
        if !named.eq(calls.iter().map(|call| &call.function)) {
            return Err(at(unmovable(
                "its aggregates are not all COUNT, SUM, MIN, MAX and AVG, or equal ones are written differently",
                "group by window_start and window_end, or write equal aggregates alike",
            )));
        }
        let held = aggregates.iter().zip(calls).enumerate();
        let aggregates =
            held.map(|(place, (aggregate, call))| held_aggregate(place, aggregate, call));
        let aggregates = aggregates.collect::<Result<Vec<_>>>().map_err(at)?;
        let key = |(place, key): (usize, &thalweg_expr::Expr)| {
            let (name, of_state) = (format!("key${place}"), quoted_name(&node.fields[place].name));
            Held { name, of_state, data_type: key.column_type.data_type.clone() }
        };
        let keys: Vec<Held> = keys.iter().enumerate().map(key).collect();
        let groups = HeldGroups { clauses, keys, aggregates };
        if let Some(held) = groups.columns().find(|held| !is_plain(&held.data_type)) {
            return Err(at(unmovable(
                &format!("its groups hold values of type {}", held.data_type),
                "group by numbers, texts and times",
            )));
        }
        Ok(groups)
    }

    fn columns(&self) -> impl Iterator<Item = &Held> {
        let parts = self.aggregates.iter().flat_map(|aggregate| &aggregate.parts);
        self.keys.iter().chain(parts.map(|(held, _)| held))
    }

    /// The declaration of the topic with these options, to be read if `is_read`.
    pub(super) fn declaration(
        &self,
        connection: &[(String, String)],
        topic: &str,
        is_read: bool,
    ) -> String {
        let mut options = connection.to_vec();
        options.extend([option("topic", topic), option("format", "json")]);
        if is_read {
            options.push(option("scan.startup.mode", "earliest-offset"));
            options.push(option("scan.bounded.mode", "latest-offset"));
        }
        let column = |held: &Held| format!(", `{}` {}", held.name, written_type(&held.data_type));
        let columns: String = self.columns().map(column).collect();
        let options = quoted_options(&options, ", ");
        format!("CREATE TABLE {STATE} ({MOVE} STRING{columns}) WITH ({options});\n")
    }

    /// The statement that writes the groups of a snapshot to the topic.
    pub(super) fn hand_over(&self, state: &HeldState<'_>, attempt: &str) -> String {
        let column =
            |held: &Held| format!(", CAST({} AS {})", held.of_state, written_type(&held.data_type));
        let columns: String = self.columns().map(column).collect();
        format!("INSERT INTO {STATE} SELECT {}{columns} FROM {};\n", text(attempt), state.table())
    }

    /// The edit of the query: it begins with what was handed over.
    pub(super) fn moved(&self, source: &ScriptText<'_>, attempt: &str) -> Edit {
        let state = list(self.columns().map(|held| held.cast(&held.quoted())));
        let state = format!("SELECT {state} FROM {STATE} WHERE {MOVE} = {}", text(attempt));
        let moved = match &self.clauses.group {
            Some(group) => self.grouped(source, &self.clauses.list(group), &state),
            None => self.distinct(source, &state),
        };
        (self.clauses.query.clone(), moved)
    }

    fn distinct(&self, source: &ScriptText<'_>, state: &str) -> String {
        let items = &source.text[self.clauses.items.clone()];
        let names = list(self.keys.iter().map(Held::quoted));
        let typed = list(self.keys.iter().map(|held| held.cast(&held.quoted())));
        let rows = self.rows(source);
        format!(
            "SELECT DISTINCT * FROM (SELECT {typed} FROM (SELECT{items} FROM{rows}) AS `read` ({names}) UNION ALL {state}) AS `moved`"
        )
    }

    fn grouped(&self, source: &ScriptText<'_>, keys: &[Range<usize>], state: &str) -> String {
        let key = |(range, held): (&Range<usize>, &Held)| {
            format!("{} AS {}", held.cast(&source.text[range.clone()]), held.quoted())
        };
        let parts = self.aggregates.iter().flat_map(|aggregate| &aggregate.parts);
        let parts = parts.map(|(held, row)| format!("{} AS {}", held.cast(row), held.quoted()));
        let of_row = list(keys.iter().zip(&self.keys).map(key).chain(parts));
        let edits = self.edits(keys);
        let items = source.edited(self.clauses.items.clone(), &edits);
        let having = self.clauses.having.as_ref();
        let having = having.map(|range| format!(" HAVING{}", source.edited(range.clone(), &edits)));
        let having = having.unwrap_or_default();
        let names = list(self.keys.iter().map(Held::quoted));
        let rows = self.rows(source);
        format!(
            "SELECT{items} FROM (SELECT {of_row} FROM{rows} UNION ALL {state}) AS `moved` GROUP BY {names}{having}"
        )
    }

    /// FROM and WHERE as they were written.
    fn rows(&self, source: &ScriptText<'_>) -> String {
        let from = &source.text[self.clauses.from.clone()];
        match &self.clauses.filter {
            Some(range) => format!("{from} WHERE{}", &source.text[range.clone()]),
            None => from.to_owned(),
        }
    }

    /// Keys and aggregates become columns of the parts.
    fn edits(&self, keys: &[Range<usize>]) -> Vec<Edit> {
        let mut edits: Vec<Edit> = Vec::new();
        for aggregate in &self.aggregates {
            edits.extend(aggregate.places.iter().map(|at| (at.clone(), aggregate.merged.clone())));
        }
        let calls: Vec<Range<usize>> = edits.iter().map(|(range, _)| range.clone()).collect();
        let clauses = [Some(&self.clauses.items), self.clauses.having.as_ref()];
        for words in clauses.into_iter().flatten().map(|clause| self.clauses.words(clause)) {
            for (key, held) in keys.iter().zip(&self.keys) {
                let places = places_of(words, self.clauses.words(key));
                let outside = places
                    .into_iter()
                    .filter(|place| !calls.iter().any(|call| call.contains(&place.start)));
                edits.extend(outside.map(|place| (place, held.quoted())));
            }
        }
        in_order(&mut edits);
        edits
    }
}

impl Held {
    fn quoted(&self) -> String {
        format!("`{}`", self.name)
    }

    /// A value of its type: both sides of UNION ALL have it, and no row time is among them.
    fn cast(&self, value: &str) -> String {
        format!("CAST({value} AS {})", self.data_type)
    }
}

impl HeldState<'_> {
    /// The state as a table.
    fn table(&self) -> String {
        format!("snapshot({}, {}, {})", text(self.folder), text(self.operator), self.snapshot)
    }

    /// A script whose one query counts the groups.
    pub fn count(&self) -> String {
        let table = self.table();
        format!("SET 'execution.runtime-mode' = 'batch';\nSELECT COUNT(*) FROM {table};")
    }
}

/// Where a sequence of words stands as an expression of its own.
fn places_of(words: &[Word], wanted: &[Word]) -> Vec<Range<usize>> {
    let is_part = |at: Option<usize>, tokens: &[Token]| {
        at.and_then(|at| words.get(at)).is_some_and(|(token, _)| tokens.contains(token))
    };
    let mut places = Vec::new();
    for at in 0..(words.len() + 1).saturating_sub(wanted.len().max(1)) {
        let found = &words[at..at + wanted.len()];
        let is_equal = found.iter().zip(wanted).all(|((one, _), (other, _))| one == other);
        let is_longer = is_part(at.checked_sub(1), &[Token::Period])
            || is_part(Some(at + wanted.len()), &[Token::Period, Token::LParen]);
        let is_alias = at > 0 && is_keyword(&words[at - 1].0, "AS");
        if let (true, false, false, [(_, first), ..]) = (is_equal, is_longer, is_alias, found) {
            places.push(first.start..found[found.len() - 1].1.end);
        }
    }
    places
}

/// Whether a group that meets a HAVING meets it for ever, as COUNT and MAX grow and MIN falls.
fn only_adds(source: &ScriptText<'_>, having: &[Word]) -> bool {
    let is_between = |(token, _): &Word| is_keyword(token, "AND") || is_keyword(token, "OR");
    having.split(is_between).all(|condition| {
        let has_call =
            |words: &[Word]| (0..words.len()).any(|at| call_at(source, &words[at..]).is_some());
        let Some((call, length)) = call_at(source, condition) else { return !has_call(condition) };
        let [(comparison, _), rest @ ..] = &condition[length..] else { return false };
        let is_monotonic = match call.function.as_str() {
            "COUNT" | "MAX" => matches!(comparison, Token::Gt | Token::GtEq),
            "MIN" => matches!(comparison, Token::Lt | Token::LtEq),
            _ => false,
        };
        is_monotonic && !has_call(rest)
    })
}

/// The aggregates that are called, each once, in the order of the text.
fn calls(source: &ScriptText<'_>, clauses: &Clauses) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let searched = [Some(&clauses.items), clauses.having.as_ref()];
    for words in searched.into_iter().flatten().map(|clause| clauses.words(clause)) {
        let mut at = 0;
        while at < words.len() {
            let Some((call, length)) = call_at(source, &words[at..]) else {
                at += 1;
                continue;
            };
            at += length;
            match calls.iter_mut().find(|known| known.text == call.text) {
                Some(known) => known.places.extend(call.places),
                None => calls.push(call),
            }
        }
    }
    calls
}

/// The aggregate that these words begin with, and how many of them it is.
fn call_at(source: &ScriptText<'_>, words: &[Word]) -> Option<(Call, usize)> {
    let [(name, _), (Token::LParen, _), ..] = words else { return None };
    let known = ["COUNT", "SUM", "MIN", "MAX", "AVG"];
    let function = known.into_iter().find(|known| is_keyword(name, known))?;
    let inside = |words: &[Word]| {
        let (first, last) = (words.first()?, words.last()?);
        Some(source.text[first.1.start..last.1.end].to_owned())
    };
    let mut end = closing(words)?;
    let mut arguments = &words[2..end];
    let is_distinct = arguments.first().is_some_and(|(token, _)| is_keyword(token, "DISTINCT"));
    if is_distinct {
        arguments = &arguments[1..];
    }
    let is_star = matches!(arguments, [(Token::Mul, _)]);
    let mut filter = None;
    if words.get(end + 1).is_some_and(|(token, _)| is_keyword(token, "FILTER")) {
        let last = end + 1 + closing(&words[end + 1..])?;
        // FILTER ( WHERE …
        filter = inside(words.get(end + 4..last)?);
        end = last;
    }
    let tokens = words[..=end].iter().map(|(token, _)| token.to_string());
    let place = words[0].1.start..words[end].1.end;
    Some((
        Call {
            function: function.to_owned(),
            is_distinct,
            argument: if is_star { None } else { inside(arguments) },
            filter,
            text: tokens.skip(1).fold(function.to_owned(), |text, token| text + " " + &token),
            places: Vec::from([place]),
        },
        end + 1,
    ))
}

impl Call {
    /// What a row adds: its value, or nothing where a condition does not hold.
    fn value(&self) -> String {
        let argument = self.argument.clone().unwrap_or_default();
        match &self.filter {
            Some(filter) => format!("CASE WHEN {filter} THEN {argument} END"),
            None => argument,
        }
    }

    /// Whether a row counts, as a number.
    fn counted(&self) -> String {
        let argument = self.argument.iter().map(|argument| format!("({argument}) IS NOT NULL"));
        let filter = self.filter.iter().map(|filter| format!("({filter})"));
        let conditions = argument.chain(filter).collect::<Vec<_>>().join(" AND ");
        match conditions.is_empty() {
            true => "1".to_owned(),
            false => format!("CASE WHEN {conditions} THEN 1 ELSE 0 END"),
        }
    }
}

/// What an aggregate is made of. The columns of its state are those that a snapshot has of it.
fn held_aggregate(place: usize, aggregate: &Aggregate, call: Call) -> Result<HeldAggregate> {
    if aggregate.distinct || call.is_distinct {
        return Err(unmovable(
            "an aggregate of DISTINCT values holds all of them",
            "group by window_start and window_end",
        ));
    }
    let result = &aggregate.column.column_type.data_type;
    let (part, count) = (format!("part${place}"), format!("count${place}"));
    let of_state = |suffix: &str| quoted_name(&format!("{}{suffix}", aggregate.column.name));
    let sum_of_state =
        || format!("CASE WHEN {} > 0 THEN {} END", of_state(".count"), of_state(".sum"));
    let held = |name: &str, of_state: String, data_type: &DataType| Held {
        name: name.to_owned(),
        of_state,
        data_type: data_type.clone(),
    };
    let (parts, merged) = match call.function.as_str() {
        "COUNT" => {
            let counts_rows = call.argument.is_none() && call.filter.is_none();
            let of_state = if counts_rows { "`$rows`".to_owned() } else { of_state("") };
            let counted = (held(&part, of_state, &DataType::BigInt), call.counted());
            (vec![counted], format!("SUM(`{part}`)"))
        }
        "SUM" => {
            let sum = (held(&part, sum_of_state(), result), call.value());
            (vec![sum], format!("SUM(`{part}`)"))
        }
        "AVG" if result.is_integer() || result.is_float() => {
            let of_sum = if result.is_integer() { DataType::BigInt } else { DataType::Double };
            let sum = (held(&part, sum_of_state(), &of_sum), call.value());
            let counted = (held(&count, of_state(".count"), &DataType::BigInt), call.counted());
            let merged = format!("CAST(SUM(`{part}`) / NULLIF(SUM(`{count}`), 0) AS {result})");
            (vec![sum, counted], merged)
        }
        "MIN" | "MAX" => {
            let chosen = (held(&part, of_state(""), result), call.value());
            (vec![chosen], format!("{}(`{part}`)", call.function))
        }
        _ => {
            return Err(unmovable(
                "the mean of DECIMALs cannot be handed over",
                "write SUM and COUNT, and divide where they are read",
            ));
        }
    };
    Ok(HeldAggregate { parts, merged, places: call.places })
}

/// Values of these types are the same on both when they are read from JSON.
fn is_plain(data_type: &DataType) -> bool {
    data_type.is_numeric()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Char(_)
                | DataType::Varchar(_)
                | DataType::Date
                | DataType::Time(_)
                | DataType::Timestamp(_)
                | DataType::TimestampLtz(_)
        )
}

/// How a value is written: as a text where a number of JSON is not exact.
fn written_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Decimal(..) | DataType::Float | DataType::Double => "STRING".to_owned(),
        other => other.to_string(),
    }
}

fn list(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}
