//! Functions of text that take bytes as well: STARTSWITH, ENDSWITH, TO_BASE64 and ELT.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray};
use base64::engine::Engine;
use base64::engine::general_purpose::STANDARD;
use thalweg_core::{ColumnType, DataType, Result};

use super::definition::{Call, Definition, custom};
use crate::build::{common_type, implicit_cast};
use crate::expr::Expr;
use crate::function::Arguments;

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("STARTSWITH", "any any", |call| {
        compare(call, |s, part| s.starts_with(part), |bytes, part| bytes.starts_with(part))
    }),
    custom("ENDSWITH", "any any", |call| {
        compare(call, |s, part| s.ends_with(part), |bytes, part| bytes.ends_with(part))
    }),
    custom("TO_BASE64", "any", to_base64),
    custom("ELT", "int any any*", elt),
];

/// The arguments from `first` on as texts, or all of them as bytes.
fn fit(call: Call<'_>, first: usize) -> Result<(Call<'_>, bool)> {
    let types: Vec<ColumnType> =
        call.args[first..].iter().map(|arg| arg.column_type.clone()).collect();
    let given: Vec<String> = types.iter().map(|column| column.data_type.to_string()).collect();
    let refused = || {
        call.error(format!("takes texts, or bytes, not ({})", given.join(", ")))
            .hint("CAST(… AS STRING) makes a text")
    };
    let common = common_type(&types).map_err(|_| refused())?.data_type;
    let is_binary = common.is_binary();
    if !is_binary && !common.is_string() && common != DataType::Null {
        return Err(refused());
    }
    let target = if is_binary { DataType::BYTES } else { DataType::STRING };
    let Call { name, args, session } = call;
    let cast = |(index, arg): (usize, Expr)| match index < first {
        true => arg,
        false => implicit_cast(arg, &target),
    };
    let args = args.into_iter().enumerate().map(cast).collect();
    Ok((Call { name, args, session }, is_binary))
}

fn compare(
    call: Call<'_>,
    texts: fn(&str, &str) -> bool,
    bytes: fn(&[u8], &[u8]) -> bool,
) -> Result<Expr> {
    let (call, is_binary) = fit(call, 0)?;
    Ok(call.strict(DataType::Boolean, move |a| {
        if is_binary {
            let (whole, part) = (a.bytes(0), a.bytes(1));
            return a.boolean_result(|row| Some(bytes(whole.get(row)?, part.get(row)?)));
        }
        let (s, part) = (a.texts(0), a.texts(1));
        a.boolean_result(|row| Some(texts(s.get(row)?, part.get(row)?)))
    }))
}

fn to_base64(call: Call<'_>) -> Result<Expr> {
    let (call, is_binary) = fit(call, 0)?;
    Ok(call.strict(DataType::STRING, move |a| {
        let of = |row: usize| match is_binary {
            true => a.bytes(0).get(row).map(|bytes| STANDARD.encode(bytes)),
            false => a.texts(0).get(row).map(|text| STANDARD.encode(text)),
        };
        a.text_result(|row, out| {
            out.push_str(&of(row)?);
            Some(())
        })
    }))
}

/// The nth value, of the longest type of all.
fn elt(call: Call<'_>) -> Result<Expr> {
    let types: Vec<ColumnType> = call.args[1..].iter().map(|arg| arg.column_type.clone()).collect();
    let common = common_type(&types).map(|common| common.data_type);
    let (call, is_binary) = fit(call, 1)?;
    let result = match common {
        Ok(DataType::Null) | Err(_) => DataType::STRING,
        Ok(data_type) => data_type,
    };
    Ok(call.with_kernel(result.nullable(), move |a| {
        let n = a.ints(0);
        let place = |row: usize| -> Option<usize> {
            let place = usize::try_from(n.get(row)?).ok()?;
            (1..a.len()).contains(&place).then_some(place)
        };
        if !is_binary {
            let texts = texts_of(a);
            return a.slice_result(|row| texts[place(row)? - 1].get(row));
        }
        let values: Vec<_> = (1..a.len()).map(|index| a.bytes(index)).collect();
        let chosen: BinaryArray = (0..a.rows).map(|row| values[place(row)? - 1].get(row)).collect();
        Ok(Arc::new(chosen) as ArrayRef)
    }))
}

fn texts_of<'a>(a: &'a Arguments<'_>) -> Vec<super::arguments::Texts<'a>> {
    (1..a.len()).map(|index| a.texts(index)).collect()
}
