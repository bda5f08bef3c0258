//! JSON in text: JSON_VALUE, JSON_QUERY, JSON_EXISTS and IS JSON.
//!
//! Flink's rules: a text that is no JSON, and a path in `strict` mode (the default) that leads
//! nowhere or to `null`, are *errors*, for which ON ERROR says what to return; in `lax` mode they
//! are *empty*, for which ON EMPTY does. JSON that is NULL gives NULL.
//!
//! The parser passes clauses as arguments: `JSON_VALUE(json, path, type, on empty, default, on
//! error, default)` and `JSON_QUERY(json, path, type, wrapper, on empty, on error)`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringViewBuilder};
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{ArrayRef, ListArray};
use serde_json::Value as Json;
use thalweg_core::{ColumnType, DataType, Error, Result};

use super::definition::{Call, Definition, custom};
use super::json_path::{JsonPath, NotFound};
use super::json_text::append_json;
use crate::build::implicit_cast_in;
use crate::expr::{Expr, Scalar};
use crate::function::Arguments;

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("JSON_VALUE", "string string string? string? any? string? any?", value),
    custom("JSON_QUERY", "string string string? string? string? string?", query),
    custom("JSON_EXISTS", "string string string?", exists),
    custom("IS JSON", "string string?", is_json),
];

/// What to return in place of a value.
#[derive(Clone, Copy, PartialEq)]
enum Instead {
    Null,
    /// Fails the job.
    Fail,
    /// The value of this argument.
    Default(usize),
    EmptyArray,
    EmptyObject,
}

impl Instead {
    /// The clause at `index`, whose default is the argument behind it.
    fn of(call: &Call<'_>, index: usize) -> Result<Self> {
        Ok(match clause(call, index)? {
            None | Some("NULL") => Instead::Null,
            Some("ERROR") => Instead::Fail,
            Some("DEFAULT") => Instead::Default(index + 1),
            Some("EMPTY ARRAY") => Instead::EmptyArray,
            Some("EMPTY OBJECT") => Instead::EmptyObject,
            Some(other) => return Err(call.error(format!("there is no {other} ON …"))),
        })
    }
}

/// What is asked of each text.
struct Request {
    name: &'static str,
    path: JsonPath,
    wrapper: Wrapper,
    wants_scalar: bool,
    on_empty: Instead,
    on_error: Instead,
}

#[derive(Clone, Copy, PartialEq)]
enum Wrapper {
    None,
    Always,
    /// Around all but arrays.
    IfNeeded,
}

/// The value of a row.
enum Answer {
    Value(Json),
    Instead(Instead),
}

impl Request {
    /// What a text gives; an error where ON EMPTY or ON ERROR wants one.
    fn answer(&self, text: &str) -> Result<Answer> {
        let json = serde_json::from_str::<Json>(text).ok();
        let found = match &json {
            Some(json) => self.path.find(json).map(|found| found.map(Cow::into_owned)),
            None if self.path.is_lax => Ok(None),
            None => Err(NotFound),
        };
        let found = found.map(|found| found.map(|json| self.wrapped(json)));
        let (instead, clause) = match found {
            Ok(Some(value)) if is_scalar(&value) == self.wants_scalar => {
                return Ok(Answer::Value(value));
            }
            Ok(_) if self.path.is_lax => (self.on_empty, "EMPTY"),
            _ => (self.on_error, "ERROR"),
        };
        match instead {
            Instead::Fail => {
                let shown: String = text.chars().take(100).collect();
                let wanted = if self.wants_scalar { "scalar" } else { "object or array" };
                Err(Error::data(format!("{} finds no {wanted} in '{shown}'", self.name))
                    .hint(format!("it is to fail: ERROR ON {clause}")))
            }
            instead => Ok(Answer::Instead(instead)),
        }
    }

    fn wrapped(&self, json: Json) -> Json {
        match self.wrapper {
            Wrapper::None => json,
            Wrapper::IfNeeded if json.is_array() => json,
            Wrapper::Always | Wrapper::IfNeeded => Json::Array(vec![json]),
        }
    }

    fn can_fail(&self) -> bool {
        self.on_empty == Instead::Fail || self.on_error == Instead::Fail
    }

    /// The answers of all rows; `None` where the text is NULL.
    fn answers(&self, a: &Arguments<'_>) -> Result<Vec<Option<Answer>>> {
        let s = a.texts(0);
        (0..a.rows).map(|row| s.get(row).map(|text| self.answer(text)).transpose()).collect()
    }
}

/// The text of a clause, which the parser passes as an argument; `None` where it is left out.
fn clause<'c>(call: &'c Call<'_>, index: usize) -> Result<Option<&'c str>> {
    let Some(arg) = call.args.get(index) else { return Ok(None) };
    match arg.as_literal() {
        Some(Scalar::String(text)) => Ok(Some(text)),
        Some(Scalar::Null) => Ok(None),
        _ => Err(call.error("a clause is no value")),
    }
}

fn is_scalar(json: &Json) -> bool {
    !matches!(json, Json::Object(_) | Json::Array(_))
}

fn literal_path(call: &Call<'_>) -> Result<JsonPath> {
    let text = call.text(1).ok_or_else(|| call.error("the path must be a literal"))?;
    Ok(JsonPath::new(text))
}

/// `JSON_VALUE(json, path [RETURNING type] [… ON EMPTY] [… ON ERROR])`
fn value(call: Call<'_>) -> Result<Expr> {
    let result = match clause(&call, 2)? {
        None => DataType::STRING,
        Some("INT" | "INTEGER") => DataType::Int,
        Some("DOUBLE" | "DOUBLE PRECISION") => DataType::Double,
        Some("BOOLEAN") => DataType::Boolean,
        Some("STRING" | "VARCHAR" | "CHARACTER VARYING") => DataType::STRING,
        Some(other) => varchar(other).ok_or_else(|| {
            call.error(format!("RETURNING {other} is not supported"))
                .hint("return STRING, BOOLEAN, INTEGER or DOUBLE, and CAST that")
        })?,
    };
    let request = Request {
        name: "JSON_VALUE",
        path: literal_path(&call)?,
        wrapper: Wrapper::None,
        wants_scalar: true,
        on_empty: Instead::of(&call, 3)?,
        on_error: Instead::of(&call, 5)?,
    };
    let call = with_defaults(call, &result)?;
    let can_fail = request.can_fail();
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let answers = request.answers(a)?;
        let typed = |answer: &Answer| match answer {
            Answer::Value(json) if !converts(json, a.result) => Answer::Instead(request.on_error),
            Answer::Value(json) => Answer::Value(json.clone()),
            Answer::Instead(instead) => Answer::Instead(*instead),
        };
        match a.result {
            DataType::Int => {
                a.number_result::<Int32Type>(|row| match typed(answers[row].as_ref()?) {
                    Answer::Value(json) => i32::try_from(json.as_i64()?).ok(),
                    Answer::Instead(Instead::Default(index)) => a.ints(index).get(row),
                    Answer::Instead(_) => None,
                })
            }
            DataType::Double => {
                a.number_result::<Float64Type>(|row| match typed(answers[row].as_ref()?) {
                    Answer::Value(json) => json.as_f64(),
                    Answer::Instead(Instead::Default(index)) => a.doubles(index).get(row),
                    Answer::Instead(_) => None,
                })
            }
            DataType::Boolean => a.boolean_result(|row| match typed(answers[row].as_ref()?) {
                Answer::Value(json) => json.as_bool(),
                Answer::Instead(Instead::Default(index)) => a.booleans(index).get(row),
                Answer::Instead(_) => None,
            }),
            _ => a.text_result(|row, out| {
                match answers[row].as_ref()? {
                    Answer::Value(Json::String(text)) => out.push_str(text),
                    Answer::Value(json) => append_json(out, json),
                    Answer::Instead(Instead::Default(index)) => {
                        out.push_str(a.texts(*index).get(row)?);
                    }
                    Answer::Instead(_) => return None,
                }
                Some(())
            }),
        }
    };
    Ok(call.with_function(result.nullable(), kernel, |function| function.can_fail = can_fail))
}

/// `VARCHAR(n)`
fn varchar(text: &str) -> Option<DataType> {
    let length = text.strip_prefix("VARCHAR")?.trim().strip_prefix('(')?.strip_suffix(')')?;
    Some(DataType::Varchar(length.trim().parse().ok()?))
}

/// True if a value is one of the type that is to be returned.
fn converts(json: &Json, data_type: &DataType) -> bool {
    match data_type {
        DataType::Int => json.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        DataType::Double => json.is_number(),
        DataType::Boolean => json.is_boolean(),
        _ => true,
    }
}

/// Casts the defaults to the type that is returned.
fn with_defaults<'a>(mut call: Call<'a>, result: &DataType) -> Result<Call<'a>> {
    for index in [4, 6] {
        let Some(arg) = call.args.get(index) else { continue };
        let target = result.clone().nullable();
        let from = arg.column_type.data_type.clone();
        let default = match result.is_string() {
            true => crate::build::cast(arg.clone(), result.clone(), false, call.session)?,
            false => crate::build::coerce(arg.clone(), &target, call.session).map_err(|_| {
                call.error(format!("the DEFAULT is {from}, but RETURNING {result}"))
            })?,
        };
        call.args[index] = implicit_cast_in(default, result, call.session);
    }
    Ok(call)
}

/// `JSON_QUERY(json, path [RETURNING type] [… WRAPPER] [… ON EMPTY] [… ON ERROR])`
fn query(call: Call<'_>) -> Result<Expr> {
    let texts = ColumnType { data_type: DataType::STRING, nullable: true };
    let result = match clause(&call, 2)? {
        None | Some("STRING" | "VARCHAR" | "CHARACTER VARYING") => DataType::STRING,
        Some("ARRAY<STRING>" | "ARRAY<VARCHAR>") => DataType::Array(Box::new(texts)),
        Some(other) => varchar(other).ok_or_else(|| {
            call.error(format!("RETURNING {other} is not supported"))
                .hint("return STRING or ARRAY<STRING>, and CAST that")
        })?,
    };
    let wrapper = match clause(&call, 3)? {
        None | Some("NONE") => Wrapper::None,
        Some("ALWAYS") => Wrapper::Always,
        Some("IF NEEDED") => Wrapper::IfNeeded,
        Some(other) => return Err(call.error(format!("there is no {other} WRAPPER"))),
    };
    let request = Request {
        name: "JSON_QUERY",
        path: literal_path(&call)?,
        wrapper,
        wants_scalar: false,
        on_empty: Instead::of(&call, 4)?,
        on_error: Instead::of(&call, 5)?,
    };
    let can_fail = request.can_fail();
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let answers = request.answers(a)?;
        match a.result {
            DataType::Array(_) => text_arrays(&request, &answers),
            _ => a.text_result(|row, out| {
                match answers[row].as_ref()? {
                    Answer::Value(json) => append_json(out, json),
                    Answer::Instead(Instead::EmptyArray) => out.push_str("[]"),
                    Answer::Instead(Instead::EmptyObject) => out.push_str("{}"),
                    Answer::Instead(_) => return None,
                }
                Some(())
            }),
        }
    };
    Ok(call.with_function(result.nullable(), kernel, |function| function.can_fail = can_fail))
}

/// Arrays of the texts of the elements; anything else than an array is an error.
fn text_arrays(request: &Request, answers: &[Option<Answer>]) -> Result<ArrayRef> {
    let mut out = ListBuilder::new(StringViewBuilder::new());
    for answer in answers {
        let instead = match answer {
            Some(Answer::Value(Json::Array(items))) => {
                for item in items {
                    match item {
                        Json::Null => out.values().append_null(),
                        Json::String(text) => out.values().append_value(text),
                        other => {
                            let mut text = String::new();
                            append_json(&mut text, other);
                            out.values().append_value(text);
                        }
                    }
                }
                out.append(true);
                continue;
            }
            Some(Answer::Value(_)) => request.on_error,
            Some(Answer::Instead(instead)) => *instead,
            None => Instead::Null,
        };
        out.append(instead == Instead::EmptyArray);
    }
    let list = out.finish();
    let field = Arc::new(DataType::STRING.nullable().field("item"));
    let (_, offsets, values, nulls) = list.into_parts();
    Ok(Arc::new(ListArray::try_new(field, offsets, values, nulls)?))
}

/// `text IS JSON [VALUE | OBJECT | ARRAY | SCALAR]`: FALSE for NULL as well.
fn is_json(call: Call<'_>) -> Result<Expr> {
    let kind = match clause(&call, 1)? {
        None | Some("VALUE") => |_: &Json| true,
        Some("OBJECT") => Json::is_object,
        Some("ARRAY") => Json::is_array,
        Some("SCALAR") => is_scalar,
        Some(other) => return Err(call.error(format!("there is no JSON {other}"))),
    };
    Ok(call.with_kernel(DataType::Boolean.not_null(), move |a| {
        let s = a.texts(0);
        let is_json = |text: &str| serde_json::from_str::<Json>(text).is_ok_and(|json| kind(&json));
        a.boolean_result(|row| Some(s.get(row).is_some_and(is_json)))
    }))
}

/// `JSON_EXISTS(json, path [TRUE | FALSE | UNKNOWN | ERROR ON ERROR])`
fn exists(call: Call<'_>) -> Result<Expr> {
    let path = literal_path(&call)?;
    let (on_error, fails) = match clause(&call, 2)? {
        None | Some("FALSE") => (Some(false), false),
        Some("TRUE") => (Some(true), false),
        Some("UNKNOWN") => (None, false),
        Some("ERROR") => (None, true),
        Some(other) => return Err(call.error(format!("there is no {other} ON ERROR"))),
    };
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let s = a.texts(0);
        let mut failed = false;
        let truths = a.boolean_result(|row| {
            let json = serde_json::from_str::<Json>(s.get(row)?);
            let found = match &json {
                Ok(json) => path.find(json).map(|found| found.is_some()),
                Err(_) if path.is_lax => Ok(false),
                Err(_) => Err(NotFound),
            };
            failed |= found.is_err();
            found.map_or(on_error, Some)
        });
        match fails && failed {
            true => Err(Error::data("JSON_EXISTS finds no value, and is to fail: ERROR ON ERROR")),
            false => truths,
        }
    };
    let column_type = DataType::Boolean.nullable();
    Ok(call.with_function(column_type, kernel, |function| function.can_fail = fails))
}
