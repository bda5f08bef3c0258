//! The options of generated tables.

use std::sync::Arc;

use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, ConnectorDescription, OptionDescription, Options,
    TableRequest, near_miss, option_table,
};
use thalweg_core::shim::mix64;
use thalweg_core::text::parse_decimal;
use thalweg_core::{Column, ColumnType, DataType, Error, Result};

use super::fake::Expression;
use super::generate::{GeneratedField, ValueKind};
use super::nested::Nested;

/// What the connector says of itself.
pub const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::NONE.reading(Boundedness::ByOptions, &[AcceptedChanges::Inserts]),
    options: OPTIONS,
    unsupported: &["fields.*.var-len"],
    is_in_flink: true,
    ..ConnectorDescription::new("datagen", "rows made from counters or at random")
};

const OPTIONS: &[OptionDescription] = &option_table! {
    "rows-per-second": Other("number, `unlimited`"), or("10000"),
        as_in_flink_but("unlimited", "Flink takes a number")
        => "how many rows come in a second";
    "number-of-rows": Number, or_else("without end"), as_in_flink()
        => "how many rows there are. A sequence ends the table as well";
    "seed": Number, but_flink("Flink's random rows differ in each run")
        => "each row is a function of the seed and of its number, and so is each time: row n is n \
            times the distance of two rows after 2026-01-01. Without a seed times are those of the \
            clock";
    "scan.parallelism": Number, as_in_flink()
        => "ignored: `pipeline.workers` says how many threads a job has";
    "fields.*.kind": Words(&["random", "sequence"]), or("random"), as_in_flink()
        => "how the values of this column are made";
    "fields.*.start": Number, as_in_flink()
        => "the first value of a sequence";
    "fields.*.end": Number, as_in_flink()
        => "the last value of a sequence";
    "fields.*.min": Number, or_else("the least of the type"), as_in_flink()
        => "the least random number";
    "fields.*.max": Number, or_else("the greatest of the type"), as_in_flink()
        => "the greatest random number";
    "fields.*.length": Number,
        or_else("that of the type, `100` for STRING and BYTES, `3` for ARRAY and MAP"),
        as_in_flink()
        => "how long a text is, or how many elements an ARRAY or a MAP has";
    "fields.*.max-past": Duration, or("0 s"), as_in_flink()
        => "how far a time may lie in the past";
    "fields.*.expression": Text, but_flink("the connector 'faker' has it, which is not one of Flink's")
        => "values that look like those of people, as [below](#values-that-look-real)";
    "fields.*.null-rate": Number, or("0"), as_in_flink()
        => "the share of NULLs among the values, from 0 to 1";
};

/// The length of a STRING or BYTES without `length`, as in Flink.
const DEFAULT_LENGTH: u32 = 100;
const LENGTH_MAX: u32 = 1 << 20;
/// How many elements an ARRAY or a MAP has without `length`, as in Flink.
const DEFAULT_ELEMENTS: usize = 3;
/// How many values a row may have inside of one column.
const ELEMENTS_MAX: usize = 10_000;

/// The checked options.
pub struct DatagenOptions {
    /// One per declared column.
    pub fields: Vec<GeneratedField>,
    /// How many rows there are; `None` without end.
    pub rows: Option<u64>,
    /// How many come a second; `None` as fast as possible.
    pub rows_per_second: Option<u64>,
    /// True if everything, times included, depends on the seed alone.
    pub is_seeded: bool,
}

impl DatagenOptions {
    /// Reads and checks the options.
    pub fn read(request: &TableRequest) -> Result<Self> {
        let options = Options::of(request, &DESCRIPTION)?;
        check_names(request)?;
        if let Some((key, _)) = request.metadata.first() {
            return Err(options.conflict(&format!("datagen has no metadata '{key}'")));
        }
        let rows_per_second = match options.get("rows-per-second") {
            Some(text) if text.eq_ignore_ascii_case("unlimited") => None,
            _ => options.number("rows-per-second")?,
        };
        if rows_per_second == Some(0) {
            return Err(options.bad("rows-per-second", "0", "at least 1, or 'unlimited'"));
        }
        let seed = options.number::<u64>("seed")?;
        let columns = request.schema.columns.iter().enumerate();
        let fields = columns
            .map(|(at, column)| field(&options, column, seed.unwrap_or(0), at as u64))
            .collect::<Result<Vec<_>>>()?;
        let ends = fields.iter().filter_map(|field| match field.kind {
            ValueKind::Sequence { start, end } => {
                Some(u64::try_from(i128::from(end) - i128::from(start) + 1).unwrap_or(u64::MAX))
            }
            _ => None,
        });
        let rows = ends.chain(options.number("number-of-rows")?).min();
        Ok(DatagenOptions { fields, rows, rows_per_second, is_seeded: seed.is_some() })
    }
}

/// Every `fields.NAME.…` must name a column.
fn check_names(request: &TableRequest) -> Result<()> {
    for option in request.options.keys() {
        let Some(rest) = option.strip_prefix("fields.") else { continue };
        let name = rest.rsplit_once('.').map_or(rest, |(name, _)| name);
        if request.schema.columns.iter().any(|column| is_part(column, name)) {
            continue;
        }
        let names = request.schema.columns.iter().map(|column| column.name.as_str());
        let help = match near_miss(name, names.clone()) {
            Some(near) => format!("did you mean column '{near}'?"),
            None => format!("there are {}", names.collect::<Vec<_>>().join(", ")),
        };
        return Err(Error::plan(format!(
            "table {}: option '{option}' names no column",
            request.table
        ))
        .hint(help));
    }
    Ok(())
}

/// True for the name of a column, or of a part of it: `column.element`, `column.key`,
/// `column.value`, `column.FIELD`, and so on.
fn is_part(column: &Column, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(&*column.name) else { return false };
    if rest.is_empty() {
        return true;
    }
    let Some(rest) = rest.strip_prefix('.') else { return false };
    let part = |name: &str, own: &ColumnType| is_part(&Column::new(name, own.clone()), rest);
    match &column.column_type.data_type {
        DataType::Array(element) => part("element", element),
        DataType::Map(key, value) => part("key", key) || part("value", value),
        DataType::Row(columns) => columns.iter().any(|column| is_part(column, rest)),
        _ => false,
    }
}

fn field(
    options: &Options<'_>,
    column: &Column,
    seed: u64,
    position: u64,
) -> Result<GeneratedField> {
    let data_type = column.column_type.data_type.clone();
    let key = |suffix: &str| format!("fields.{}.{suffix}", column.name);
    let kinds = [("random", false), ("sequence", true)];
    let is_sequence = options.choice(&key("kind"), &kinds)? == Some(true);
    let kind = if let Some(expression) = options.get(&key("expression")) {
        fake(options, &data_type, &key, expression)?
    } else if is_sequence {
        sequence(options, column, &key)?
    } else {
        for suffix in ["start", "end"] {
            if options.get(&key(suffix)).is_some() {
                return Err(options
                    .conflict(&format!("'{}' has a meaning for a sequence only", key(suffix)))
                    .hint(format!("add '{}' = 'sequence'", key("kind"))));
            }
        }
        match nested(options, column, seed, position)? {
            Some(nested) => ValueKind::Nested(Box::new(nested)),
            None => random(options, &data_type, &key)?,
        }
    };
    let null_rate = options.number::<f64>(&key("null-rate"))?.unwrap_or(0.0);
    if !(0.0..=1.0).contains(&null_rate) {
        return Err(options.bad(&key("null-rate"), &null_rate.to_string(), "0 to 1"));
    }
    Ok(GeneratedField::new(data_type, kind, null_rate, seed, position))
}

/// What an array, a map or a row is made of. Their parts have options of their own, under the name
/// of the column with that of the part behind it.
fn nested(
    options: &Options<'_>,
    column: &Column,
    seed: u64,
    position: u64,
) -> Result<Option<Nested>> {
    let part = |number: u64, name: &str, own: &ColumnType| {
        let column = Column::new(format!("{}.{name}", column.name), own.clone());
        let made = field(options, &column, seed, mix64(!position).wrapping_add(number))?;
        let name = &column.name;
        if matches!(made.kind, ValueKind::Sequence { .. }) {
            let message = format!("'fields.{name}.kind': a sequence is for whole columns");
            return Err(options.conflict(&message));
        }
        if made.has_nulls() && !own.nullable {
            let message = format!("'fields.{name}.null-rate' is for values that may be NULL");
            return Err(options.conflict(&message));
        }
        Ok(made)
    };
    let nested = match &column.column_type.data_type {
        DataType::Array(element) => Nested::Array {
            length: elements(options, column)?,
            element: part(0, "element", element)?,
        },
        DataType::Map(key, value) => Nested::Map {
            length: elements(options, column)?,
            key: part(0, "key", &key.data_type.clone().not_null())?,
            value: part(1, "value", value)?,
        },
        DataType::Row(columns) => {
            let fields = columns.iter().zip(0..);
            let fields = fields.map(|(own, number)| part(number, &own.name, &own.column_type));
            Nested::Row(fields.collect::<Result<_>>()?)
        }
        _ => return Ok(None),
    };
    if nested.size() > ELEMENTS_MAX {
        let name = &column.name;
        let message = format!("column {name} has more than {ELEMENTS_MAX} values in a row");
        return Err(options.conflict(&message).hint("make 'length' smaller"));
    }
    Ok(Some(nested))
}

/// How many elements an array or a map has.
fn elements(options: &Options<'_>, column: &Column) -> Result<usize> {
    let name = format!("fields.{}.length", column.name);
    match options.number::<usize>(&name)?.unwrap_or(DEFAULT_ELEMENTS) {
        length @ 1..=ELEMENTS_MAX => Ok(length),
        other => Err(options.bad(&name, &other.to_string(), &format!("1 to {ELEMENTS_MAX}"))),
    }
}

fn fake(
    options: &Options<'_>,
    data_type: &DataType,
    key: &dyn Fn(&str) -> String,
    expression: &str,
) -> Result<ValueKind> {
    let others = ["kind", "start", "end", "min", "max", "length", "max-past"];
    if let Some(other) = others.iter().find(|other| options.get(&key(other)).is_some()) {
        return Err(options
            .conflict(&format!("'{}' has no effect on an expression", key(other)))
            .hint("remove it"));
    }
    if !data_type.is_string() && !data_type.is_numeric() && *data_type != DataType::Boolean {
        return Err(Error::unsupported(format!("no expression makes values of type {data_type}"))
            .hint("times have 'max-past'; or declare a computed column over a STRING"));
    }
    let read = Expression::read(expression);
    let read = read.map_err(|why| options.conflict(&format!("'{}': {why}", key("expression"))));
    read.map(|expression| ValueKind::Fake(Arc::new(expression)))
}

fn sequence(
    options: &Options<'_>,
    column: &Column,
    key: &dyn Fn(&str) -> String,
) -> Result<ValueKind> {
    let data_type = &column.column_type.data_type;
    if !data_type.is_numeric() && !data_type.is_string() {
        return Err(options.conflict(&format!(
            "column {} of type {data_type} cannot be a sequence",
            column.name
        )));
    }
    let bound = |suffix: &str| -> Result<i64> {
        let name = key(suffix);
        options.required(&name)?;
        Ok(options.number(&name)?.unwrap_or(0))
    };
    let (start, end) = (bound("start")?, bound("end")?);
    if start > end {
        return Err(options.bad(&key("end"), &end.to_string(), "at least 'start'"));
    }
    let (low, high) = integer_range(data_type);
    if start < low || end > high {
        return Err(options.conflict(&format!(
            "the sequence of column {} does not fit {data_type}",
            column.name
        )));
    }
    Ok(ValueKind::Sequence { start, end })
}

fn integer_range(data_type: &DataType) -> (i64, i64) {
    match data_type {
        DataType::TinyInt => (i64::from(i8::MIN), i64::from(i8::MAX)),
        DataType::SmallInt => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DataType::Int => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DataType::Decimal(precision, scale) => {
            let digits = u32::from(precision.saturating_sub(*scale)).min(18);
            let limit = 10i64.pow(digits) - 1;
            (-limit, limit)
        }
        _ => (i64::MIN, i64::MAX),
    }
}

fn random(
    options: &Options<'_>,
    data_type: &DataType,
    key: &dyn Fn(&str) -> String,
) -> Result<ValueKind> {
    let kind = match data_type {
        integer if integer.is_integer() => {
            let (low, high) = integer_range(data_type);
            let min = options.number(&key("min"))?.unwrap_or(low);
            let max = options.number(&key("max"))?.unwrap_or(high);
            let fits = low <= min && min <= max && max <= high;
            fits.then_some(ValueKind::Integer { min, max })
        }
        DataType::Float | DataType::Double => {
            let limit = if *data_type == DataType::Float { f64::from(f32::MAX) } else { f64::MAX };
            let min = options.number::<f64>(&key("min"))?.unwrap_or(0.0 - limit);
            let max = options.number::<f64>(&key("max"))?.unwrap_or(limit);
            (min <= max).then_some(ValueKind::Float { min, max })
        }
        DataType::Decimal(precision, scale) => {
            let limit = 10i128.pow(u32::from(*precision)) - 1;
            let bound = |suffix: &str, default: i128| match options.get(&key(suffix)) {
                None => Ok(Some(default)),
                Some(text) => parse_decimal(text, *precision, *scale)
                    .map_err(|_| options.bad(&key(suffix), text, "a number")),
            };
            match (bound("min", -limit)?, bound("max", limit)?) {
                (Some(min), Some(max)) if min <= max => Some(ValueKind::Decimal { min, max }),
                _ => None,
            }
        }
        DataType::Boolean => Some(ValueKind::Boolean),
        DataType::Char(length) | DataType::Varchar(length) => {
            Some(ValueKind::Text { length: text_length(options, key, *length)? })
        }
        DataType::Binary(length) | DataType::Varbinary(length) => {
            Some(ValueKind::Bytes { length: text_length(options, key, *length)? })
        }
        DataType::Date | DataType::Time(_) => Some(ValueKind::Now { max_past_ms: 0 }),
        DataType::Timestamp(_) | DataType::TimestampLtz(_) => {
            let max_past_ms = options.duration_ms(&key("max-past"))?.unwrap_or(0);
            Some(ValueKind::Now { max_past_ms })
        }
        other => {
            return Err(Error::unsupported(format!("datagen cannot make values of type {other}"))
                .hint("declare a computed column instead"));
        }
    };
    kind.ok_or_else(|| {
        options.conflict(&format!(
            "'{}' and '{}' are no range of {data_type}",
            key("min"),
            key("max")
        ))
    })
}

fn text_length(
    options: &Options<'_>,
    key: &dyn Fn(&str) -> String,
    declared: u32,
) -> Result<usize> {
    let name = key("length");
    let default = if declared > LENGTH_MAX { DEFAULT_LENGTH } else { declared };
    let length = options.number::<u32>(&name)?.unwrap_or(default);
    if length > LENGTH_MAX.min(declared) {
        let most = LENGTH_MAX.min(declared);
        return Err(options.bad(&name, &length.to_string(), &format!("at most {most}")));
    }
    Ok(length as usize)
}
