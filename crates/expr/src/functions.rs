//! The scalar functions by their SQL names: how many arguments, of which types, with which result.
//!
//! Each family of functions has a module with a table of [`Definition`]s. A signature is a list of
//! kinds such as `"string int int?"`; `?` marks what may be left out, `*` what may repeat. The
//! arguments are cast to their kind before a function sees them.

pub(crate) mod arguments;
pub(crate) mod array_elements;
pub(crate) mod array_sets;
pub(crate) mod arrays;
pub(crate) mod bytes;
pub(crate) mod compiled;
pub(crate) mod conditional;
pub(crate) mod contains;
pub(crate) mod definition;
pub(crate) mod encodings;
mod foreign;
pub(crate) mod hashes;
pub(crate) mod java_pattern;
pub(crate) mod java_regex;
pub(crate) mod json;
pub(crate) mod json_filter;
pub(crate) mod json_path;
pub(crate) mod json_text;
pub(crate) mod lengths;
pub(crate) mod maps;
pub(crate) mod math;
pub(crate) mod pattern;
pub(crate) mod printf;
pub(crate) mod regexps;
pub(crate) mod rounding;
pub(crate) mod sets;
mod simple_date;
pub(crate) mod strings;
pub(crate) mod time;
pub(crate) mod time_text;
pub(crate) mod type_names;
mod urls;
mod variants;
mod weighted_percentile;
mod zones;

use std::sync::Arc;

use thalweg_core::{DataType, Error, Result};

use crate::build::{coerce, implicit_cast};
use crate::expr::{Expr, ExprKind, Session};
use crate::function::{Function, Registered, user_kernel};

use self::definition::{Build, Call, Definition};

const TABLES: [&[Definition]; 21] = [
    array_elements::DEFINITIONS,
    array_sets::DEFINITIONS,
    arrays::DEFINITIONS,
    bytes::DEFINITIONS,
    conditional::DEFINITIONS,
    encodings::DEFINITIONS,
    hashes::DEFINITIONS,
    json::DEFINITIONS,
    json_text::DEFINITIONS,
    maps::DEFINITIONS,
    math::DEFINITIONS,
    printf::DEFINITIONS,
    regexps::DEFINITIONS,
    rounding::DEFINITIONS,
    strings::DEFINITIONS,
    time::DEFINITIONS,
    time_text::DEFINITIONS,
    type_names::DEFINITIONS,
    urls::DEFINITIONS,
    variants::DEFINITIONS,
    weighted_percentile::DEFINITIONS,
];

fn definitions() -> impl Iterator<Item = &'static Definition> {
    TABLES.into_iter().flatten()
}

/// The names of the built-in scalar functions, sorted. Operators that are called like functions
/// inside (`||`, `LIKE`) are left out.
pub fn function_names() -> Vec<&'static str> {
    let is_name = |name: &&str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && !matches!(
                *name,
                "LIKE"
                    | "SIMILAR TO"
                    | "ARRAY_AT"
                    | "ROW_FIELD"
                    | "IS JSON"
                    | "ARRAY"
                    | "MAP"
                    | "JSON$"
                    | "MINUS$"
                    | "MULTISET$"
                    | "PERCENTILE$"
            )
    };
    let mut names: Vec<&'static str> = definitions().map(|d| d.name).filter(is_name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A function by its SQL name (case does not matter): a user's, or a built-in one.
///
/// Units are text literals: `call("FLOOR", [ts, 'MINUTE'])`, `call("EXTRACT", ['HOUR', ts])`,
/// `call("TIMESTAMPDIFF", ['SECOND', a, b])`. `TRIM(BOTH x FROM s)` is
/// `call("TRIM", ['BOTH', x, s])`, `POSITION(x IN s)` is `call("POSITION", [x, s])`, `ARRAY[a, b]`
/// is `call("ARRAY", [a, b])` and `a[i]` is `call("ARRAY_AT", [a, i])`, and `r.f` is
/// `call("ROW_FIELD", [r, 'f'])`.
pub fn call(name: &str, args: Vec<Expr>, session: &Session) -> Result<Expr> {
    if let Some(registered) = session.functions.find(name) {
        return call_user(&registered, args, session);
    }
    let upper = name.to_uppercase();
    let Some(definition) = definitions().find(|definition| definition.name == upper) else {
        return Err(unknown(name, session));
    };
    let args = fit(definition, args)?;
    match &definition.build {
        Build::Custom(build) => build(Call { name: definition.name, args, session }),
        Build::Plain(returns, kernel, can_fail) => {
            let column_type = returns.resolve(&args);
            let call = Call { name: definition.name, args, session };
            Ok(call.with_function(column_type, *kernel, |function| function.can_fail = *can_fail))
        }
    }
}

fn call_user(registered: &Registered, args: Vec<Expr>, session: &Session) -> Result<Expr> {
    let Registered { function, executor } = registered;
    let expected = &function.arguments;
    let describe = |error: Error| error.hint(format!("it was registered as {function:?}"));
    if args.len() != expected.len() {
        return Err(describe(Error::plan(format!(
            "the function {} takes {} arguments, got {}",
            function.name,
            expected.len(),
            args.len()
        ))));
    }
    let mut typed = Vec::with_capacity(args.len());
    for (arg, data_type) in args.into_iter().zip(expected) {
        if *data_type == DataType::Null {
            typed.push(arg);
            continue;
        }
        let arg = coerce(arg, &data_type.clone().nullable(), session);
        typed.push(arg.map_err(|error| {
            let message = error.message().replace("a column", "an argument");
            describe(Error::plan(format!("{}: {message}", function.name)))
        })?);
    }
    let resolved = Function {
        name: function.name.clone(),
        kernel: user_kernel(function),
        zone: session.zone,
        deterministic: function.deterministic,
        uses_wall_clock: false,
        uses_watermark: false,
        can_fail: true,
        executor: executor.clone(),
    };
    let kind = ExprKind::Call { function: Arc::new(resolved), args: typed };
    // Not folded: user code runs in the job, where its failures are reported as its own.
    Ok(Expr::new(kind, function.result.clone()))
}

fn unknown(name: &str, session: &Session) -> Error {
    let error = Error::plan(format!("there is no function {name}"));
    let upper = name.to_uppercase();
    if let Some(instead) = foreign::instead(&upper) {
        return error.hint(instead);
    }
    let names = function_names().into_iter().map(str::to_owned);
    let near = names
        .chain(session.functions.names())
        .map(|known| (strsim::damerau_levenshtein(&known.to_uppercase(), &upper), known))
        .min();
    match near {
        Some((distance, known)) if distance <= 1 + upper.len() / 4 => {
            error.hint(format!("did you mean {known}?"))
        }
        _ => error.hint("SHOW FUNCTIONS lists them"),
    }
}

/// Checks the arguments against the signature and casts them.
fn fit(definition: &Definition, args: Vec<Expr>) -> Result<Vec<Expr>> {
    let kinds: Vec<&str> = definition.signature.split_whitespace().collect();
    let required = kinds.iter().filter(|kind| !kind.ends_with(['?', '*'])).count();
    let repeats = kinds.last().is_some_and(|kind| kind.ends_with('*'));
    let refuse = |args: &[Expr]| {
        let got: Vec<String> = args.iter().map(|a| a.column_type.data_type.to_string()).collect();
        Error::plan(format!("{} does not take ({})", definition.name, got.join(", ")))
            .hint(format!("supported: {}", usage(definition)))
    };
    if args.len() < required || (args.len() > kinds.len() && !repeats) {
        return Err(refuse(&args));
    }
    let mut typed = Vec::with_capacity(args.len());
    for (index, arg) in args.iter().enumerate() {
        let kind = kinds[index.min(kinds.len() - 1)].trim_end_matches(['?', '*']);
        match fit_one(kind, arg) {
            Some(arg) => typed.push(arg),
            None => return Err(refuse(&args)),
        }
    }
    Ok(typed)
}

fn fit_one(kind: &str, arg: &Expr) -> Option<Expr> {
    let data_type = &arg.column_type.data_type;
    let is_null = *data_type == DataType::Null;
    let date_like = data_type.is_timestamp() || *data_type == DataType::Date;
    let (accepted, target) = match kind {
        "string" => (data_type.is_string(), None),
        "int" => (data_type.is_integer(), Some(DataType::Int)),
        "bigint" => (data_type.is_integer(), Some(DataType::BigInt)),
        "double" => (data_type.is_numeric(), Some(DataType::Double)),
        "number" => (data_type.is_numeric(), None),
        "boolean" => (*data_type == DataType::Boolean, None),
        "timestamp" => (data_type.is_timestamp(), None),
        "date" => (date_like, None),
        "time" => (date_like || matches!(data_type, DataType::Time(_)), None),
        "binary" => (data_type.is_binary(), None),
        "array" => (matches!(data_type, DataType::Array(_)), None),
        "map" => (matches!(data_type, DataType::Map(..)), None),
        "collection" => (matches!(data_type, DataType::Array(_) | DataType::Map(..)), None),
        _ => (true, None),
    };
    if is_null && kind != "any" {
        let target = target.unwrap_or(match kind {
            "number" => DataType::Int,
            "boolean" => DataType::Boolean,
            "timestamp" | "time" => DataType::Timestamp(3),
            "date" => DataType::Date,
            "binary" => DataType::BYTES,
            _ => DataType::STRING,
        });
        return (!matches!(kind, "array" | "map" | "collection")).then(|| Expr::null(target));
    }
    let cast = |target: &DataType| implicit_cast(arg.clone(), target);
    accepted.then(|| target.as_ref().map_or_else(|| arg.clone(), cast))
}

/// `SUBSTRING(string, int [, int])`
fn usage(definition: &Definition) -> String {
    let mut text = format!("{}(", definition.name);
    for (index, kind) in definition.signature.split_whitespace().enumerate() {
        let name = kind.trim_end_matches(['?', '*']);
        let comma = if index == 0 { "" } else { ", " };
        text += &match kind.chars().last() {
            Some('?') => format!(" [{comma}{name}]"),
            Some('*') => format!("{comma}{name}…"),
            _ => format!("{comma}{name}"),
        };
    }
    text + ")"
}
