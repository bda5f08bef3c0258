//! Typed views of arguments, and builders of results, so that a function is a closure over rows.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, PrimitiveBuilder, StringViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, Int64Type};
use arrow_array::{
    ArrayAccessor, ArrayRef, BinaryArray, BooleanArray, PrimitiveArray, StringViewArray,
};
use thalweg_core::{Error, Result};

use crate::function::{Arguments, Value};

/// An argument, by row. NULL rows and NULL constants give `None`.
pub(crate) struct ByRow<A> {
    array: A,
    constant: bool,
}

impl<A: ArrayAccessor> ByRow<A> {
    #[inline]
    pub fn get(&self, row: usize) -> Option<A::Item> {
        let row = if self.constant { 0 } else { row };
        self.array.is_valid(row).then(|| self.array.value(row))
    }
}

/// An argument of text.
pub(crate) type Texts<'a> = ByRow<&'a StringViewArray>;
/// An argument of a primitive type.
pub(crate) type Numbers<'a, T> = ByRow<&'a PrimitiveArray<T>>;

/// An argument that can be left out, and what it then is.
pub(crate) struct Optional<A: ArrayAccessor> {
    given: Option<ByRow<A>>,
    default: A::Item,
}

impl<A: ArrayAccessor<Item: Copy>> Optional<A> {
    #[inline]
    pub fn get(&self, row: usize) -> Option<A::Item> {
        self.given.as_ref().map_or(Some(self.default), |given| given.get(row))
    }
}

/// A text that grows up to a limit.
pub(crate) struct GrownText {
    text: String,
    is_too_long: bool,
}

impl GrownText {
    const TEXT_BYTES_MAX: usize = 64 << 20;
    /// All texts of the rows that are computed together.
    const BATCH_BYTES_MAX: usize = 256 << 20;

    /// Appends a part; `None` once the text is too long. What is not longer than it was before
    /// (`from_bytes`) never is.
    pub fn push(&mut self, part: &str, from_bytes: usize) -> Option<()> {
        self.grow(part.len(), from_bytes)?;
        self.text.push_str(part);
        Some(())
    }
    /// Appends a part `times` times.
    pub fn repeat(&mut self, part: &str, times: usize) -> Option<()> {
        self.grow(part.len().saturating_mul(times), 0)?;
        self.text.push_str(&part.repeat(times));
        Some(())
    }
    fn grow(&mut self, bytes: usize, from_bytes: usize) -> Option<()> {
        let length = self.text.len().saturating_add(bytes);
        self.is_too_long |= length > Self::TEXT_BYTES_MAX.max(from_bytes);
        (!self.is_too_long).then_some(())
    }

    fn error(function: &str, is_text: bool) -> Error {
        let (what, limit) = match is_text {
            true => ("a text", Self::TEXT_BYTES_MAX >> 20),
            false => ("texts in one batch of rows", Self::BATCH_BYTES_MAX >> 20),
        };
        Error::data(format!("{function} would make {what} of more than {limit} MiB"))
    }
}

impl Arguments<'_> {
    /// Text.
    pub(crate) fn texts(&self, index: usize) -> Texts<'_> {
        let value = &self.values[index];
        ByRow { array: value.array().as_string_view(), constant: value.is_constant() }
    }
    /// Numbers of an Arrow type.
    pub(crate) fn numbers<T: ArrowPrimitiveType>(&self, index: usize) -> Numbers<'_, T> {
        let value = &self.values[index];
        ByRow { array: value.array().as_primitive::<T>(), constant: value.is_constant() }
    }
    /// INT.
    pub(crate) fn ints(&self, index: usize) -> Numbers<'_, Int32Type> {
        self.numbers(index)
    }
    /// BIGINT.
    pub(crate) fn bigints(&self, index: usize) -> Numbers<'_, Int64Type> {
        self.numbers(index)
    }
    /// DOUBLE.
    pub(crate) fn doubles(&self, index: usize) -> Numbers<'_, Float64Type> {
        self.numbers(index)
    }
    /// BOOLEAN.
    pub(crate) fn booleans(&self, index: usize) -> ByRow<&BooleanArray> {
        let value = &self.values[index];
        ByRow { array: value.array().as_boolean(), constant: value.is_constant() }
    }
    /// Bytes.
    pub(crate) fn bytes(&self, index: usize) -> ByRow<&BinaryArray> {
        let value = &self.values[index];
        ByRow { array: value.array().as_binary::<i32>(), constant: value.is_constant() }
    }
    /// An INT that may have been left out.
    pub(crate) fn ints_or(
        &self,
        index: usize,
        default: i32,
    ) -> Optional<&PrimitiveArray<Int32Type>> {
        Optional { given: (self.len() > index).then(|| self.ints(index)), default }
    }
    /// A text that may have been left out.
    pub(crate) fn texts_or<'t>(
        &'t self,
        index: usize,
        default: &'t str,
    ) -> Optional<&'t StringViewArray> {
        Optional { given: (self.len() > index).then(|| self.texts(index)), default }
    }
    /// How many arguments there are.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
    /// An argument.
    pub(crate) fn value(&self, index: usize) -> &Value {
        &self.values[index]
    }

    /// Text, built row by row into a buffer; `None` is NULL.
    pub(crate) fn text_result(
        &self,
        mut row_text: impl FnMut(usize, &mut String) -> Option<()>,
    ) -> Result<ArrayRef> {
        let mut out = StringViewBuilder::with_capacity(self.rows);
        let mut buffer = String::new();
        for row in 0..self.rows {
            buffer.clear();
            match row_text(row, &mut buffer) {
                Some(()) => out.append_value(&buffer),
                None => out.append_null(),
            }
        }
        Ok(Arc::new(out.finish()))
    }
    /// Text that may be far longer than the arguments: it has limits, so that a slip in a number
    /// does not fill the memory.
    pub(crate) fn grown_text_result(
        &self,
        function: &str,
        mut row_text: impl FnMut(usize, &mut GrownText) -> Option<()>,
    ) -> Result<ArrayRef> {
        let mut out = StringViewBuilder::with_capacity(self.rows);
        let mut grown = GrownText { text: String::new(), is_too_long: false };
        let mut bytes = 0;
        for row in 0..self.rows {
            grown.text.clear();
            let value = row_text(row, &mut grown);
            bytes += grown.text.len();
            if grown.is_too_long || bytes > GrownText::BATCH_BYTES_MAX {
                return Err(GrownText::error(function, grown.is_too_long));
            }
            out.append_option(value.map(|()| grown.text.as_str()));
        }
        Ok(Arc::new(out.finish()))
    }
    /// Text that is a part of an argument.
    pub(crate) fn slice_result<'s>(
        &self,
        mut row_text: impl FnMut(usize) -> Option<&'s str>,
    ) -> Result<ArrayRef> {
        let mut out = StringViewBuilder::with_capacity(self.rows);
        for row in 0..self.rows {
            out.append_option(row_text(row));
        }
        Ok(Arc::new(out.finish()))
    }
    /// Numbers.
    pub(crate) fn number_result<T: ArrowPrimitiveType>(
        &self,
        mut number: impl FnMut(usize) -> Option<T::Native>,
    ) -> Result<ArrayRef> {
        let mut out = PrimitiveBuilder::<T>::with_capacity(self.rows);
        for row in 0..self.rows {
            out.append_option(number(row));
        }
        Ok(Arc::new(out.finish()))
    }
    /// Truth values.
    pub(crate) fn boolean_result(
        &self,
        mut truth: impl FnMut(usize) -> Option<bool>,
    ) -> Result<ArrayRef> {
        let mut out = BooleanBuilder::with_capacity(self.rows);
        for row in 0..self.rows {
            out.append_option(truth(row));
        }
        Ok(Arc::new(out.finish()))
    }
}
