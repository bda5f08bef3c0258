//! Digests of text, as lower-case hexadecimal digits.

use std::fmt::Write;

use arrow_array::ArrayRef;
use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use thalweg_core::{DataType, Result};

use super::definition::{Call, Definition, Returns, custom, plain};
use crate::expr::{Expr, Scalar};
use crate::function::Arguments;

pub(super) const DEFINITIONS: &[Definition] = &[
    plain("MD5", "string", Returns::Char(32), digest::<Md5>),
    plain("SHA1", "string", Returns::Char(40), digest::<Sha1>),
    plain("SHA224", "string", Returns::Char(56), digest::<Sha224>),
    plain("SHA256", "string", Returns::Char(64), digest::<Sha256>),
    plain("SHA384", "string", Returns::Char(96), digest::<Sha384>),
    plain("SHA512", "string", Returns::Char(128), digest::<Sha512>),
    custom("SHA2", "string int", sha2),
];

fn digest<D: Digest>(a: &Arguments<'_>) -> Result<ArrayRef> {
    let s = a.texts(0);
    a.text_result(|row, out| {
        for byte in D::digest(s.get(row)?) {
            write!(out, "{byte:02x}").ok()?;
        }
        Some(())
    })
}

/// `SHA2(text, bits)`
fn sha2(call: Call<'_>) -> Result<Expr> {
    let kernel = match call.args[1].as_literal() {
        Some(Scalar::Integer(224)) => digest::<Sha224>,
        Some(Scalar::Integer(256)) => digest::<Sha256>,
        Some(Scalar::Integer(384)) => digest::<Sha384>,
        Some(Scalar::Integer(512)) => digest::<Sha512>,
        Some(Scalar::Null) => return Ok(Expr::null(DataType::Varchar(128))),
        _ => return Err(call.error("the number of bits must be 224, 256, 384 or 512")),
    };
    Ok(call.strict(DataType::Varchar(128), kernel))
}
