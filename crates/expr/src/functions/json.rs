//! JSON in text: JSON_VALUE, JSON_QUERY, JSON_EXISTS and IS JSON.
//!
//! Paths are `$`, `.key`, `['key']`, `[n]`, `[*]` and `.*`, after an optional `lax` or `strict`.

use std::sync::Arc;

use arrow_array::ArrayRef;
use serde_json::Value as Json;
use thalweg_core::{DataType, Result};

use super::{Call, Definition, Returns, custom, plain};
use crate::expr::Expr;
use crate::function::Arguments;

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("JSON_VALUE", "string string", |call| with_path(call, value_kernel)),
    custom("JSON_QUERY", "string string", |call| with_path(call, query_kernel)),
    custom("JSON_EXISTS", "string string", exists),
    plain("IS JSON", "string", Returns::Boolean, |a| {
        let s = a.texts(0);
        a.boolean_result(|row| Some(serde_json::from_str::<Json>(s.get(row)?).is_ok()))
    }),
];

/// A step of a path.
enum Step {
    Key(String),
    Index(usize),
    Wildcard,
}

fn parse_path(text: &str) -> Option<Vec<Step>> {
    let text = text.trim();
    let text = text.strip_prefix("lax ").or_else(|| text.strip_prefix("strict ")).unwrap_or(text);
    let mut rest = text.trim_start().strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('.') {
            let end = tail.find(['.', '[']).unwrap_or(tail.len());
            let key = &tail[..end];
            if key.is_empty() {
                return None;
            }
            steps.push(if key == "*" { Step::Wildcard } else { Step::Key(key.to_owned()) });
            rest = &tail[end..];
        } else {
            let tail = rest.strip_prefix('[')?;
            if let Some(quote) = tail.chars().next().filter(|c| matches!(c, '\'' | '"')) {
                let (key, after) = tail[1..].split_once(quote)?;
                steps.push(Step::Key(key.to_owned()));
                rest = after.strip_prefix(']')?;
            } else {
                let (index, after) = tail.split_once(']')?;
                steps.push(match index.trim() {
                    "*" => Step::Wildcard,
                    index => Step::Index(index.parse().ok()?),
                });
                rest = after;
            }
        }
    }
    Some(steps)
}

/// What a path leads to; several values only behind a wildcard.
fn select<'j>(json: &'j Json, path: &[Step]) -> Vec<&'j Json> {
    let mut found = vec![json];
    for step in path {
        found = found
            .into_iter()
            .flat_map(|json| -> Vec<&Json> {
                match (step, json) {
                    (Step::Key(key), Json::Object(object)) => object.get(key).into_iter().collect(),
                    (Step::Index(index), Json::Array(array)) => {
                        array.get(*index).into_iter().collect()
                    }
                    (Step::Wildcard, Json::Array(array)) => array.iter().collect(),
                    (Step::Wildcard, Json::Object(object)) => object.values().collect(),
                    _ => Vec::new(),
                }
            })
            .collect();
    }
    found
}

type PathKernel = fn(&Json, &[Step], &mut String) -> Option<()>;

fn literal_path(call: &Call<'_>) -> Result<Vec<Step>> {
    let text = call.text(1).ok_or_else(|| call.error("the path must be a literal"))?;
    parse_path(text).ok_or_else(|| {
        call.error(format!("'{text}' is not a path")).hint("paths look like $.a.b[0]['c']")
    })
}

fn with_path(call: Call<'_>, kernel: PathKernel) -> Result<Expr> {
    let path = literal_path(&call)?;
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let s = a.texts(0);
        a.text_result(|row, out| {
            let json: Json = serde_json::from_str(s.get(row)?).ok()?;
            kernel(&json, &path, out)
        })
    };
    Ok(call.with_kernel(DataType::STRING.nullable(), Arc::new(kernel)))
}

/// A single scalar; NULL for anything else.
fn value_kernel(json: &Json, path: &[Step], out: &mut String) -> Option<()> {
    match select(json, path)[..] {
        [Json::String(text)] => out.push_str(text),
        [Json::Number(number)] => out.push_str(&number.to_string()),
        [Json::Bool(truth)] => out.push_str(if *truth { "true" } else { "false" }),
        _ => return None,
    }
    Some(())
}

/// An object or array, as JSON.
fn query_kernel(json: &Json, path: &[Step], out: &mut String) -> Option<()> {
    let wildcard = path.iter().any(|step| matches!(step, Step::Wildcard));
    let found = select(json, path);
    match found[..] {
        _ if wildcard => {
            out.push('[');
            for (index, json) in found.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&json.to_string());
            }
            out.push(']');
        }
        [json @ (Json::Object(_) | Json::Array(_))] => out.push_str(&json.to_string()),
        _ => return None,
    }
    Some(())
}

fn exists(call: Call<'_>) -> Result<Expr> {
    let path = literal_path(&call)?;
    let nullable = call.nullable();
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let s = a.texts(0);
        a.boolean_result(|row| {
            let text = s.get(row)?;
            let json = serde_json::from_str::<Json>(text);
            Some(json.is_ok_and(|json| !select(&json, &path).is_empty()))
        })
    };
    let column_type = DataType::Boolean.nullable().with_nullable(nullable);
    Ok(call.with_kernel(column_type, Arc::new(kernel)))
}
