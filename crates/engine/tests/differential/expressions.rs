//! Random scalar expressions, conditions and aggregates over columns that are in scope.

use crate::data::{Dice, Kind};
use crate::sql;
use crate::sql::Sql;

/// A column in scope: how to write it, and its type.
#[derive(Clone, Debug)]
pub struct Column {
    /// With the name of its relation where it needs one.
    pub name: String,
    /// Its type.
    pub kind: Kind,
}

/// An expression and its type.
pub type Typed = (Sql, Kind);

/// The columns of one type.
pub fn of_kind(scope: &[Column], kind: Kind) -> Vec<&Column> {
    scope.iter().filter(|column| column.kind == kind).collect()
}

/// Any column.
pub fn any_column(scope: &[Column], dice: &mut Dice) -> Column {
    scope[dice.below(scope.len())].clone()
}

/// A random expression; half of them are columns.
pub fn scalar(scope: &[Column], dice: &mut Dice) -> Typed {
    let column = any_column(scope, dice);
    let (name, kind) = (column.name.as_str(), column.kind);
    if dice.percent(50) {
        return (Sql::one(name), kind);
    }
    match dice.below(4) {
        0 => (conditional(&column, scope, dice), kind),
        1 => (sql!("COALESCE(", name, ", ", &literal(kind, dice), ")"), kind),
        2 => (sql!("NULLIF(", name, ", ", &literal(kind, dice), ")"), kind),
        _ => computed(&column, scope, dice),
    }
}

fn conditional(column: &Column, scope: &[Column], dice: &mut Dice) -> Sql {
    let test = condition(scope, dice);
    let otherwise = match dice.below(3) {
        0 => Sql::default(),
        1 => sql!(" ELSE ", &literal(column.kind, dice)),
        _ => {
            let others = of_kind(scope, column.kind);
            sql!(" ELSE ", others[dice.below(others.len())].name.as_str())
        }
    };
    sql!("CASE WHEN ", &test, " THEN ", column.name.as_str(), &otherwise, " END")
}

fn computed(column: &Column, scope: &[Column], dice: &mut Dice) -> Typed {
    let name = column.name.as_str();
    let expression = match column.kind {
        Kind::Boolean => sql!("NOT ", name),
        Kind::Time => sql!(name, " + INTERVAL '3' SECOND"),
        Kind::String if dice.percent(50) => return (sql!("CHAR_LENGTH(", name, ")"), Kind::Int),
        Kind::String => sql!("UPPER(", name, ") || 'q'"),
        kind => {
            let others = of_kind(scope, kind);
            let other = others[dice.below(others.len())].name.as_str();
            match dice.below(if kind == Kind::Decimal { 3 } else { 6 }) {
                0 => sql!(name, " + ", other),
                1 => sql!(name, " - ", other),
                2 => sql!("-", name),
                3 => sql!(name, " % 3"),
                4 => sql!(name, &Sql::two(" / 2", " // 2")),
                _ => return (sql!("CAST(", name, " AS BIGINT)"), Kind::BigInt),
            }
        }
    };
    (sql!("(", &expression, ")"), column.kind)
}

/// A value of a type.
pub fn literal(kind: Kind, dice: &mut Dice) -> Sql {
    match kind {
        Kind::Int => Sql::one(dice.below(5).to_string()),
        Kind::BigInt => Sql::one(format!("CAST({} AS BIGINT)", dice.below(5))),
        Kind::Decimal => Sql::one(format!(
            "CAST({} AS DECIMAL(10, 2))",
            dice.pick(&["0.5", "1.25", "2.01", "-1", "30"])
        )),
        Kind::String => Sql::one(dice.pick(&["'x'", "'y'", "'xy'", "'w'"])),
        Kind::Boolean => Sql::one(dice.pick(&["TRUE", "FALSE"])),
        Kind::Time => Sql::one(format!("TIMESTAMP '1970-01-01 00:01:{:02}'", 35 + dice.below(25))),
    }
}

/// A condition, sometimes of several.
pub fn condition(scope: &[Column], dice: &mut Dice) -> Sql {
    let first = simple_condition(scope, dice);
    match dice.below(10) {
        0 => sql!("(", &first, " OR ", &simple_condition(scope, dice), ")"),
        1 | 2 => sql!(&first, " AND ", &simple_condition(scope, dice)),
        3 => sql!("NOT (", &first, ")"),
        _ => first,
    }
}

fn simple_condition(scope: &[Column], dice: &mut Dice) -> Sql {
    let column = any_column(scope, dice);
    let (name, kind) = (column.name.as_str(), column.kind);
    let compare = dice.pick(&["=", "<>", "<>", "<", "<=", ">", ">=", ">="]);
    match dice.below(8) {
        0 => sql!(name, dice.pick(&[" IS NULL", " IS NOT NULL", " IS NOT NULL"])),
        1 if kind == Kind::Boolean => sql!(name, dice.pick(&["", " IS TRUE", " IS NOT FALSE"])),
        1 if kind == Kind::String => sql!(name, " LIKE 'x%'"),
        2 => sql!(
            name,
            dice.pick(&[" IN (", " NOT IN (", " NOT IN ("]),
            &literal(kind, dice),
            ", ",
            &literal(kind, dice),
            ")"
        ),
        3 | 4 => {
            let others = of_kind(scope, kind);
            let other = others[dice.below(others.len())].name.as_str();
            let compare = dice.pick(&[compare, "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]);
            sql!(name, " ", compare, " ", other)
        }
        _ if kind == Kind::Boolean => sql!(name),
        _ => sql!(name, " ", compare, " ", &literal(kind, dice)),
    }
}

/// A random aggregate.
pub fn aggregate(scope: &[Column], dice: &mut Dice) -> Typed {
    if dice.percent(15) {
        return collected(scope, dice);
    }
    let (call, kind) = aggregate_call(scope, dice);
    if dice.percent(15) {
        let filter = sql!(" FILTER (WHERE ", &condition(scope, dice), ")");
        // What stands for AVG in the other dialect is two calls, each with the filter.
        let theirs = call.theirs.replace(" // ", &format!("{} // ", filter.theirs));
        return (Sql::two(call.ours + &filter.ours, theirs + &filter.theirs), kind);
    }
    (call, kind)
}

/// What holds for a collecting aggregate whatever the sequence of rows, and of a percentile
/// without a fraction.
fn collected(scope: &[Column], dice: &mut Dice) -> Typed {
    let column = any_column(scope, dice);
    let name = column.name.as_str();
    let distinct = if dice.percent(30) { "DISTINCT " } else { "" };
    match column.kind {
        Kind::String => {
            let texts = format!("{distinct}{name}, '; '");
            let theirs = format!("LENGTH(STRING_AGG({texts}))");
            (Sql::two(format!("CHAR_LENGTH(LISTAGG({texts}))"), theirs), Kind::Int)
        }
        Kind::Int | Kind::BigInt => {
            let fraction = dice.pick(&["0", "0.25", "0.5", "1"]);
            let percentile = |function: &str| {
                format!("CAST({function}({distinct}{name}, {fraction}) * 4 AS BIGINT)")
            };
            (Sql::two(percentile("PERCENTILE"), percentile("QUANTILE_CONT")), Kind::BigInt)
        }
        _ => {
            let theirs = format!("LEN(LIST({distinct}{name}))");
            (Sql::two(format!("CARDINALITY(ARRAY_AGG({distinct}{name}))"), theirs), Kind::Int)
        }
    }
}

/// An aggregate without FILTER.
pub fn aggregate_call(scope: &[Column], dice: &mut Dice) -> Typed {
    let column = any_column(scope, dice);
    let (name, kind) = (column.name.as_str(), column.kind);
    let distinct = if dice.percent(20) { "DISTINCT " } else { "" };
    match dice.below(8) {
        0 | 1 => (Sql::one("COUNT(*)"), Kind::BigInt),
        2 => (sql!("COUNT(", distinct, name, ")"), Kind::BigInt),
        3 | 4 => (sql!(dice.pick(&["MIN(", "MAX("]), name, ")"), kind),
        5 if matches!(kind, Kind::Int | Kind::BigInt) => {
            let theirs = format!("SUM({name}) // COUNT({name})");
            (Sql::two(format!("AVG({name})"), theirs), kind)
        }
        _ if kind == Kind::Int => {
            (sql!("SUM(", distinct, "CAST(", name, " AS BIGINT))"), Kind::BigInt)
        }
        _ if kind.is_number() => (sql!("SUM(", distinct, name, ")"), kind),
        _ => (sql!(dice.pick(&["MAX(", "MIN("]), name, ")"), kind),
    }
}
