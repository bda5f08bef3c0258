//! Rows with a time, a key, a number and a rank among rows of one time; conditions over them.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray, TimestampMillisecondArray};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, DataType, TableSchema};
use thalweg_expr::build::{self, BinaryOp};
use thalweg_expr::{Expr, Session};

use crate::aggregate::resolve;
use crate::pattern::{Condition, End, MatchSpec, Output, Pattern, PatternValue, Skip, Variable};
use crate::sort::SortKey;
use crate::test_kit::{Event, stamped};
use crate::window::LatePolicy;

/// A row that comes in.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) time: i64,
    pub(super) key: Option<String>,
    pub(super) n: Option<i64>,
    pub(super) rank: i64,
}

const TIME: usize = 0;
const KEY: usize = 1;
const N: usize = 2;
const RANK: usize = 3;

pub(super) fn input() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("item", DataType::STRING.nullable()),
        Column::new("n", DataType::BigInt.nullable()),
        Column::new("rank", DataType::BigInt.nullable()),
    ])
}

pub(super) fn batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| row.time))),
        Arc::new(rows.iter().map(|row| row.key.clone()).collect::<StringViewArray>()),
        Arc::new(rows.iter().map(|row| row.n).collect::<Int64Array>()),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.rank))),
    ];
    RecordBatch::try_new(input().arrow(), columns).unwrap()
}

/// A script in which every row establishes its time minus `delay_ms`.
pub(super) fn script(rows: &[Row], delay_ms: i64, epoch_rows: usize) -> Vec<Event> {
    let watermarks: Vec<Option<i64>> = rows.iter().map(|row| Some(row.time - delay_ms)).collect();
    stamped(&batch(rows), &watermarks, epoch_rows)
}

/// Which rows fit a variable.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fits {
    All,
    /// n = this
    Is(i64),
    /// n >= this
    AtLeast(i64),
    /// It is the first of its variable, or n is above the one before.
    Rises,
    /// n is above the last one of a variable.
    AboveLast(usize),
    /// n is not below the first of the match.
    NotBelowFirst,
    /// The n of a variable, or of all, add up to less than this.
    SumBelow(Option<usize>, i64),
}

impl Fits {
    pub(super) fn random(random: &mut SplitMix64, variables: usize) -> Fits {
        let variable = random.below(variables as u64) as usize;
        match random.below(9) {
            0 => Fits::All,
            1 | 2 => Fits::Is(random.below(3) as i64),
            3 => Fits::AtLeast(random.below(4) as i64),
            4 => Fits::Rises,
            5 => Fits::AboveLast(variable),
            6 => Fits::NotBelowFirst,
            7 => Fits::SumBelow(None, 2 + random.below(9) as i64),
            _ => Fits::SumBelow(Some(variable), 1 + random.below(6) as i64),
        }
    }

    fn condition(self, tested: usize) -> Option<Condition> {
        let own = row(Some(tested), End::Last, 0);
        let constant = |n: i64| build::number_literal(&n.to_string()).unwrap();
        let compare = |op: BinaryOp, left: Expr, right: Expr| {
            build::binary(op, left, right, &Session::default()).unwrap()
        };
        let number = |place: usize| Expr::column(place, DataType::BigInt.nullable());
        let two = |op: BinaryOp, other: PatternValue| Condition {
            values: vec![own.clone(), other],
            predicate: compare(op, number(0), number(1)),
        };
        Some(match self {
            Fits::All => return None,
            Fits::Is(n) => Condition {
                values: vec![own],
                predicate: compare(BinaryOp::Equal, number(0), constant(n)),
            },
            Fits::AtLeast(n) => Condition {
                values: vec![own],
                predicate: compare(BinaryOp::GreaterOrEqual, number(0), constant(n)),
            },
            Fits::Rises => {
                let mut condition = two(BinaryOp::Greater, row(Some(tested), End::Last, 1));
                let is_first = build::is_null(number(1), false);
                condition.predicate = compare(BinaryOp::Or, is_first, condition.predicate);
                condition
            }
            Fits::AboveLast(variable) => two(BinaryOp::Greater, row(Some(variable), End::Last, 0)),
            Fits::NotBelowFirst => two(BinaryOp::GreaterOrEqual, row(None, End::First, 0)),
            Fits::SumBelow(variable, n) => Condition {
                values: vec![aggregate("SUM", variable)],
                predicate: compare(BinaryOp::Less, number(0), constant(n)),
            },
        })
    }
}

fn row(variable: Option<usize>, end: End, offset: u32) -> PatternValue {
    let column_type = DataType::BigInt.nullable();
    PatternValue::Row { variable, end, offset, column: N, column_type }
}

fn aggregate(name: &str, variable: Option<usize>) -> PatternValue {
    let n = DataType::BigInt.nullable();
    let types = if name == "COUNT" { vec![] } else { vec![n.clone()] };
    let (function, column_type) = resolve(name, false, &types).unwrap();
    let argument = (name != "COUNT").then(|| Expr::column(N, n));
    PatternValue::Aggregate { variable, function, argument, column_type }
}

/// A variable of a pattern under test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) min: u32,
    pub(super) max: Option<u32>,
    pub(super) is_greedy: bool,
    pub(super) fits: Fits,
}

/// A pattern under test.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) parts: Vec<Part>,
    pub(super) skip: Skip,
    pub(super) within_ms: Option<i64>,
    pub(super) by_key: bool,
    pub(super) by_rank: bool,
}

impl Case {
    /// A case that Flink would take.
    pub(super) fn random(random: &mut SplitMix64) -> Case {
        let count = 1 + random.below(4) as usize;
        let mut parts: Vec<Part> = (0..count).map(|_| Part::random(random, count)).collect();
        if parts.iter().all(|part| part.min == 0) {
            let at = random.below(count as u64) as usize;
            parts[at] = Part { min: 1, max: Some(1), is_greedy: false, ..parts[at] };
        }
        let last = parts.last_mut().unwrap();
        last.is_greedy = false;
        // A variable that has rows in every match, none of which is the first.
        let behind = (1..count).find(|&v| parts[v].min > 0 && parts[..v].iter().any(|p| p.min > 0));
        let skip = match (random.below(6), behind) {
            (0, _) => Skip::ToNextRow,
            (1 | 2, Some(variable)) => Skip::ToLast(variable),
            (3, Some(variable)) => Skip::ToFirst(variable),
            _ => Skip::PastLastRow,
        };
        Case {
            parts,
            skip,
            within_ms: (random.below(2) == 0).then(|| 1 + random.below(25) as i64),
            by_key: random.below(4) > 0,
            by_rank: random.below(3) == 0,
        }
    }

    /// Results: the key, the times of the first and the last row, how many rows each variable has,
    /// the sum of the last one's, the last but one of the first one's, and the time of the match.
    pub(super) fn spec(&self) -> MatchSpec {
        let variables = self.parts.iter().enumerate().map(|(number, part)| Variable {
            name: format!("V{number}"),
            min: part.min,
            max: part.max,
            is_greedy: part.is_greedy,
            condition: part.fits.condition(number),
        });
        let time = |end: End| PatternValue::Row {
            variable: None,
            end,
            offset: 0,
            column: TIME,
            column_type: DataType::Timestamp(3).not_null(),
        };
        let mut values = vec![time(End::First), time(End::Last)];
        values.extend((0..self.parts.len()).map(|number| aggregate("COUNT", Some(number))));
        values.push(aggregate("SUM", Some(self.parts.len() - 1)));
        values.push(row(Some(0), End::Last, 1));
        values.push(PatternValue::Time { column_type: DataType::Timestamp(3).not_null() });
        MatchSpec {
            pattern: Pattern {
                keys: if self.by_key { vec![KEY] } else { Vec::new() },
                rowtime: TIME,
                ties: if self.by_rank { vec![SortKey::descending(RANK)] } else { Vec::new() },
                variables: variables.collect(),
                skip: self.skip,
                within_ms: self.within_ms,
            },
            outputs: values
                .into_iter()
                .map(|value| Output { name: "r".to_owned(), value })
                .collect(),
            input: input(),
            late: LatePolicy::Drop,
        }
    }
}

impl Part {
    fn random(random: &mut SplitMix64, variables: usize) -> Part {
        let (min, max) = match random.below(7) {
            0 => (0, Some(1)),
            1 => (0, None),
            2 => (1, None),
            3 => (2, None),
            4 => {
                let min = random.below(3) as u32;
                (min, Some(min + 1 + random.below(2) as u32))
            }
            _ => (1, Some(1)),
        };
        let may_be_greedy = max != Some(min) && max != Some(1);
        let is_greedy = may_be_greedy && random.below(2) == 0;
        Part { min, max, is_greedy, fits: Fits::random(random, variables) }
    }
}
