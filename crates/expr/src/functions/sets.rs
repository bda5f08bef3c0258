//! `IN` over many literals: one look-up in a hash set instead of a comparison with each.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_schema::DataType as Arrow;
use thalweg_core::{ColumnType, DataType, Result};

use super::Call;
use crate::build::{common_type, implicit_cast_in};
use crate::expr::{Expr, Scalar, Session};
use crate::function::Arguments;

/// Fewer values are compared one by one.
const SMALLEST_SET: usize = 4;

/// The values of a set.
enum Members {
    Integers(HashSet<i64>),
    Texts(HashSet<Arc<str>>),
}

/// `expr IN (list)` by a hash set, where the list is of literals of one kind; else `None`.
pub(crate) fn in_set(expr: &Expr, list: &[Expr], session: &Session) -> Result<Option<Expr>> {
    if list.len() < SMALLEST_SET {
        return Ok(None);
    }
    let types: Vec<ColumnType> =
        [expr].into_iter().chain(list).map(|item| item.column_type.clone()).collect();
    let Ok(common) = common_type(&types) else { return Ok(None) };
    let mut has_null = false;
    let mut integers = HashSet::new();
    let mut texts = HashSet::new();
    for item in list {
        let item = implicit_cast_in(item.clone(), &common.data_type, session);
        match item.as_literal() {
            Some(Scalar::Null) => has_null = true,
            Some(Scalar::Integer(value)) => drop(integers.insert(*value)),
            Some(Scalar::String(value)) => drop(texts.insert(value.clone())),
            _ => return Ok(None),
        }
    }
    let members = match &common.data_type {
        t if t.is_integer() => Members::Integers(integers),
        t if t.is_string() => Members::Texts(texts),
        _ => return Ok(None),
    };
    let value = implicit_cast_in(expr.clone(), &common.data_type, session);
    let nullable = expr.column_type.nullable || has_null;
    let kernel = move |a: &Arguments<'_>| Ok(contains(a, &members, has_null));
    // The list is part of the name, so that it is shown and compared but not evaluated.
    let items: Vec<String> = list.iter().map(Expr::to_string).collect();
    let name = format!("IN ({})", items.join(", "));
    let call = Call { name: "IN", args: vec![value], session };
    let column_type = DataType::Boolean.nullable().with_nullable(nullable);
    Ok(Some(call.with_function(column_type, Arc::new(kernel), |function| function.name = name)))
}

fn contains(a: &Arguments<'_>, members: &Members, has_null: bool) -> ArrayRef {
    let array = a.value(0).array();
    let found = match (members, array.data_type()) {
        (Members::Texts(set), _) => by_value(array.as_string_view().iter(), set, has_null),
        (Members::Integers(set), Arrow::Int8) => {
            let values = array.as_primitive::<Int8Type>().iter().map(|v| v.map(i64::from));
            by_key(values, set, has_null)
        }
        (Members::Integers(set), Arrow::Int16) => {
            let values = array.as_primitive::<Int16Type>().iter().map(|v| v.map(i64::from));
            by_key(values, set, has_null)
        }
        (Members::Integers(set), Arrow::Int32) => {
            let values = array.as_primitive::<Int32Type>().iter().map(|v| v.map(i64::from));
            by_key(values, set, has_null)
        }
        (Members::Integers(set), _) => {
            by_key(array.as_primitive::<Int64Type>().iter(), set, has_null)
        }
    };
    Arc::new(found)
}

/// A value that is not in a set with NULL may or may not be in it.
fn verdict(found: bool, has_null: bool) -> Option<bool> {
    if found || !has_null { Some(found) } else { None }
}

fn by_value<'a>(
    values: impl Iterator<Item = Option<&'a str>>,
    set: &HashSet<Arc<str>>,
    has_null: bool,
) -> BooleanArray {
    values.map(|value| value.and_then(|v| verdict(set.contains(v), has_null))).collect()
}

fn by_key<K: Hash + Eq>(
    values: impl Iterator<Item = Option<K>>,
    set: &HashSet<K>,
    has_null: bool,
) -> BooleanArray {
    values.map(|value| value.and_then(|v| verdict(set.contains(&v), has_null))).collect()
}
