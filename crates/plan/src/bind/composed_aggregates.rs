//! Aggregates that are made of others: JSON_ARRAYAGG and JSON_OBJECTAGG join the members of a group
//! by LISTAGG and put them in brackets, COLLECT counts the values of ARRAY_AGG, and PERCENTILE with
//! a frequency sorts them.
//!
//! So they have the states of those, and retract as they do. The keys of an object are put in order
//! when it is shown; of a key that comes twice, the last value stays.

use sqlparser::ast::{self as sql, FunctionArgumentClause, FunctionArguments, JsonNullClause};
use thalweg_core::{DataType, Error, Result};
use thalweg_expr::Expr;
use thalweg_expr::build::{self, BinaryOp};

use super::Binder;
use super::spans::span_of;

/// The names of the aggregates that are made of others.
pub const COMPOSED_AGGREGATES: [&str; 3] = ["COLLECT", "JSON_ARRAYAGG", "JSON_OBJECTAGG"];

/// The length that Flink gives the results.
const RESULT: DataType = DataType::Varchar(2000);

/// The call without its clause for NULL, and whether NULLs are left out.
pub fn without_null_clause(call: &sql::Function, name: &str) -> Result<(sql::Function, bool)> {
    let mut call = call.clone();
    let mut is_absent = name == "JSON_ARRAYAGG";
    if let FunctionArguments::List(list) = &mut call.args {
        if list.duplicate_treatment.is_some() {
            return Err(Error::plan(format!("{name} takes no DISTINCT")).at(span_of(&call)));
        }
        list.clauses.retain(|clause| match clause {
            FunctionArgumentClause::JsonNullClause(clause) => {
                is_absent = *clause == JsonNullClause::AbsentOnNull;
                false
            }
            _ => true,
        });
    }
    Ok((call, is_absent))
}

impl Binder<'_> {
    /// The text that a row adds; NULL if it adds none.
    pub(super) fn json_member(&self, arguments: Vec<Expr>, is_absent: bool) -> Result<Expr> {
        let session = self.session;
        let json = |value: Expr| {
            let text = build::call("JSON_STRING", vec![value], session)?;
            match text.column_type.nullable {
                true => build::call("COALESCE", vec![text, build::string_literal("null")], session),
                false => Ok(text),
            }
        };
        let [key @ .., value] = &arguments[..] else {
            return Err(Error::plan("there is nothing to aggregate"));
        };
        let text = match key {
            [] => json(value.clone())?,
            [key] if key.column_type.data_type.is_string() => {
                let colon = build::string_literal(":");
                let key = build::call("JSON_STRING", vec![key.clone()], session)?;
                let key = build::binary(BinaryOp::Concat, key, colon, session)?;
                build::binary(BinaryOp::Concat, key, json(value.clone())?, session)?
            }
            [key] => {
                let got = &key.column_type.data_type;
                return Err(Error::plan(format!("the keys of an object are texts, not {got}")));
            }
            _ => return Err(Error::plan("an object is made of one key and one value")),
        };
        if !is_absent || !value.column_type.nullable {
            return Ok(text);
        }
        let is_there = build::is_null(value.clone(), true);
        build::case(vec![(is_there, text)], None)
    }

    /// The joined members of a group as JSON.
    pub(super) fn json_of_members(&self, members: Expr, name: &str) -> Result<Expr> {
        let session = self.session;
        let members = build::call("COALESCE", vec![members, build::string_literal("")], session)?;
        let (open, close) = if name == "JSON_ARRAYAGG" { ("[", "]") } else { ("{", "}") };
        let parts = vec![build::string_literal(open), members, build::string_literal(close)];
        let text = build::call("CONCAT", parts, session)?;
        let text = match name {
            "JSON_OBJECTAGG" => build::call("JSON$", vec![text], session)?,
            _ => text,
        };
        // The type names a length that texts do not keep to, as in Flink.
        let mut text = text;
        text.column_type = RESULT.not_null();
        Ok(text)
    }

    /// A value of PERCENTILE with its frequency as a row; NULL if it does not count, as in Flink.
    pub(super) fn value_with_frequency(&self, arguments: Vec<Expr>) -> Result<Vec<Expr>> {
        let [value, fraction, frequency] = <[Expr; 3]>::try_from(arguments)
            .map_err(|_| Error::internal("PERCENTILE without a frequency"))?;
        // Says what is wrong with the value and the fraction.
        self.resolve_aggregate("PERCENTILE", false, false, &[value.clone(), fraction])?;
        let of_frequency = &frequency.column_type.data_type;
        if !of_frequency.is_integer() {
            return Err(Error::plan(format!(
                "the frequency of PERCENTILE must be a whole number, not {of_frequency}"
            )));
        }
        let session = self.session;
        let is_there = build::is_null(value.clone(), true);
        let zero = build::number_literal("0")?;
        let counts = build::binary(BinaryOp::Greater, frequency.clone(), zero, session)?;
        let counts = build::binary(BinaryOp::And, is_there, counts, session)?;
        let value = build::cast(value, DataType::Double, false, session)?;
        let frequency = build::cast(frequency, DataType::BigInt, false, session)?;
        let row = build::call("ROW", vec![value, frequency], session)?;
        Ok(vec![build::case(vec![(counts, row)], None)?])
    }

    /// The percentile of values with their frequencies.
    pub(super) fn percentile_of(&self, values: Expr, fraction: Expr) -> Result<Expr> {
        let doubles = match &fraction.column_type.data_type {
            DataType::Array(_) => DataType::Array(Box::new(DataType::Double.nullable())),
            _ => DataType::Double,
        };
        let fraction = build::cast(fraction, doubles, false, self.session)?;
        build::call("PERCENTILE$", vec![values, fraction], self.session)
    }
}
