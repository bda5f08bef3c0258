//! Functions as an expression holds them, and the user's own functions.
//!
//! A [`Function`] takes whole columns at a time. Arguments that are the same for every row arrive
//! as [`Value::Constant`], an array of one value, so that a pattern is compiled once and a literal
//! is never spread out.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, RwLock};

use arrow_array::{Array, ArrayRef, Datum, UInt32Array};
use thalweg_core::{ColumnType, DataType, Error, Result, WatermarkBefore};

/// A column, or one value that stands for a whole column.
#[derive(Clone, Debug)]
pub enum Value {
    /// One value per row.
    Rows(ArrayRef),
    /// An array of length 1.
    Constant(ArrayRef),
}

impl Value {
    /// The array, of one value if constant.
    pub fn array(&self) -> &ArrayRef {
        match self {
            Value::Rows(array) | Value::Constant(array) => array,
        }
    }
    /// True if it stands for a whole column.
    pub fn is_constant(&self) -> bool {
        matches!(self, Value::Constant(_))
    }
    /// Where the value of a row stands in the array.
    #[inline]
    pub(crate) fn place(&self, row: usize) -> usize {
        if self.is_constant() { 0 } else { row }
    }
    /// Spreads a constant out.
    pub fn into_rows(self, rows: usize) -> Result<ArrayRef> {
        match self {
            Value::Rows(array) => Ok(array),
            Value::Constant(array) if rows == 1 => Ok(array),
            Value::Constant(array) => {
                let first = UInt32Array::from_value(0, rows);
                Ok(arrow_select::take::take(&array, &first, None)?)
            }
        }
    }
    /// The same kind of value with another array.
    pub(crate) fn with(&self, array: ArrayRef) -> Value {
        match self {
            Value::Rows(_) => Value::Rows(array),
            Value::Constant(_) => Value::Constant(array),
        }
    }
}

impl Datum for Value {
    fn get(&self) -> (&dyn Array, bool) {
        (self.array().as_ref(), self.is_constant())
    }
}

/// What a function is called with.
pub struct Arguments<'a> {
    /// The arguments.
    pub values: &'a [Value],
    /// How many values the result must have: 1 if every argument is constant.
    pub rows: usize,
    /// The type of the result.
    pub result: &'a DataType,
    /// The session's time zone.
    pub zone: chrono_tz::Tz,
    /// Processing time in milliseconds since 1970.
    pub wall_ms: i64,
    /// Each row's running watermark.
    pub watermark_before: &'a WatermarkBefore,
}

/// What can be the code of a [`Kernel`].
pub(crate) trait KernelCode:
    Fn(&Arguments<'_>) -> Result<ArrayRef> + Send + Sync + 'static
{
}

impl<F: Fn(&Arguments<'_>) -> Result<ArrayRef> + Send + Sync + 'static> KernelCode for F {}

/// Computes a column from columns.
pub type Kernel = Arc<dyn Fn(&Arguments<'_>) -> Result<ArrayRef> + Send + Sync>;

/// A function resolved for the types of its arguments.
pub struct Function {
    /// Its name, for display.
    pub name: String,
    /// What it does.
    pub kernel: Kernel,
    /// The session's time zone when it was resolved.
    pub zone: chrono_tz::Tz,
    /// False if two calls with the same arguments can differ.
    pub deterministic: bool,
    /// True if it reads the clock.
    pub uses_wall_clock: bool,
    /// True if it reads the rows' running watermark.
    pub uses_watermark: bool,
    /// True if the data can make it fail.
    pub can_fail: bool,
    /// Where it runs, if not on the worker that has the rows.
    pub executor: Option<Arc<dyn Executor>>,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The body of a user function: the arguments as arrays, and the number of rows.
pub type UserKernel = Arc<dyn Fn(&[ArrayRef], usize) -> Result<ArrayRef> + Send + Sync>;

/// Something to be done, once.
pub type Task = Box<dyn FnOnce() + Send>;

/// Where functions run that may wait (for the lock of an interpreter, for a process): on threads of
/// its own, so that no worker waits. Rows that need such a function count as in flight meanwhile.
pub trait Executor: Send + Sync {
    /// Does this soon, on another thread. Must not block, and must not forget it.
    fn execute(&self, task: Task);
    /// How its functions run, for EXPLAIN, such as "python, row by row".
    fn description(&self) -> String;
}

/// A scalar function that the user registered. Arrow in, Arrow out.
#[derive(Clone)]
pub struct ScalarFunction {
    /// The name by which SQL calls it (case does not matter).
    pub name: String,
    /// The types of its arguments; a call inserts casts where Flink would. [`DataType::Null`] takes
    /// a value of any type as it is.
    pub arguments: Vec<DataType>,
    /// The type of its result.
    pub result: ColumnType,
    /// True if equal arguments give equal results.
    pub deterministic: bool,
    /// What it does. Its panics are caught by the runtime.
    pub function: UserKernel,
}

impl fmt::Debug for ScalarFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments: Vec<String> = self.arguments.iter().map(DataType::to_string).collect();
        write!(f, "{}({}) -> {}", self.name, arguments.join(", "), self.result)
    }
}

/// The user's scalar functions by name.
///
/// A lock guards the map; it is taken when a statement is planned, never when one runs.
#[derive(Debug, Default)]
pub struct FunctionRegistry {
    functions: RwLock<BTreeMap<String, Registered>>,
}

/// A function, and where it runs if not on workers.
#[derive(Clone)]
pub(crate) struct Registered {
    pub(crate) function: ScalarFunction,
    pub(crate) executor: Option<Arc<dyn Executor>>,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.function.fmt(f)
    }
}

impl FunctionRegistry {
    /// Adds a function, or replaces the one of the same name.
    pub fn register(&self, function: ScalarFunction) {
        self.add(Registered { function, executor: None });
    }
    /// Adds a function that runs on threads of its own, or replaces the one of the same name.
    pub fn register_on(&self, executor: Arc<dyn Executor>, function: ScalarFunction) {
        self.add(Registered { function, executor: Some(executor) });
    }
    fn add(&self, registered: Registered) {
        self.write().insert(registered.function.name.to_uppercase(), registered);
    }
    /// Removes a function; true if it was there.
    pub fn remove(&self, name: &str) -> bool {
        self.write().remove(&name.to_uppercase()).is_some()
    }
    /// The function of this name.
    pub fn get(&self, name: &str) -> Option<ScalarFunction> {
        self.find(name).map(|registered| registered.function)
    }
    /// The function of this name, and where it runs.
    pub(crate) fn find(&self, name: &str) -> Option<Registered> {
        self.read().get(&name.to_uppercase()).cloned()
    }
    /// The names, sorted.
    pub fn names(&self) -> Vec<String> {
        self.read().values().map(|registered| registered.function.name.clone()).collect()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<String, Registered>> {
        // A panic while the lock was held cannot have left the map half changed.
        self.functions.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<String, Registered>> {
        self.functions.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Wraps a user function so that it is called like a built-in one.
pub(crate) fn user_kernel(function: &ScalarFunction) -> Kernel {
    let body = function.function.clone();
    let name = function.name.clone();
    let expected = function.result.data_type.arrow();
    Arc::new(move |arguments| {
        let mut arrays = Vec::with_capacity(arguments.values.len());
        for value in arguments.values {
            arrays.push(value.clone().into_rows(arguments.rows)?);
        }
        let result = body(&arrays, arguments.rows)?;
        if result.len() != arguments.rows || result.data_type() != &expected {
            return Err(Error::user(format!(
                "the function {name} returned {} values of {}, expected {} of {expected}",
                result.len(),
                result.data_type(),
                arguments.rows,
            )));
        }
        Ok(result)
    })
}
