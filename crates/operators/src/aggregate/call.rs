//! What an aggregate is called, takes and gives, and which implementation computes it.

use std::fmt;
use std::sync::Arc;

use thalweg_core::{ColumnType, DataType, Error, Result};

use super::distinct::Distinct;
use super::distinct_set::DistinctSet;
use super::estimate::DistinctEstimate;
use super::fold::Groups;
use super::lists::{Elements, JoinedTexts};
use super::moments::{DecimalMoments, IntegerMoments, Moments, MomentsKind};
use super::percentile::{Fractions, Percentile};
use super::sums::{Count, DecimalSum, FloatSum, IntegerSum};
use super::user::{UserAggregate, UserGroups};
use super::{Accumulator, extremes, ordinals};

/// An aggregate function.
#[derive(Clone)]
pub enum AggregateFunction {
    /// `COUNT(*)`, `COUNT(x)`
    Count,
    /// `SUM(x)`
    Sum,
    /// `AVG(x)`
    Avg,
    /// `MIN(x)`
    Min,
    /// `MAX(x)`
    Max,
    /// `STDDEV_POP(x)`
    StddevPop,
    /// `STDDEV_SAMP(x)`, also called `STDDEV`
    StddevSamp,
    /// `VAR_POP(x)`
    VarPop,
    /// `VAR_SAMP(x)`, also called `VARIANCE`
    VarSamp,
    /// `FIRST_VALUE(x)`: the first by arrival that is not NULL
    FirstValue,
    /// `LAST_VALUE(x)`: the last by arrival that is not NULL
    LastValue,
    /// `LISTAGG(x [, separator])`: the texts by arrival, with a separator between them
    ListAgg {
        /// What stands between two texts.
        separator: Arc<str>,
    },
    /// `ARRAY_AGG(x)`: the values by arrival, NULLs among them
    ArrayAgg {
        /// True for `IGNORE NULLS`.
        skips_nulls: bool,
    },
    /// `PERCENTILE(x, fraction)`: exact, between two values in proportion
    Percentile(Fractions),
    /// `APPROX_COUNT_DISTINCT(x)`: how many different values, about
    ApproxCountDistinct,
    /// A function of the user's, in Rust.
    User(Arc<dyn UserAggregate>),
}

impl AggregateFunction {
    /// The SQL name.
    pub fn name(&self) -> String {
        let name = match self {
            AggregateFunction::Count => "COUNT",
            AggregateFunction::Sum => "SUM",
            AggregateFunction::Avg => "AVG",
            AggregateFunction::Min => "MIN",
            AggregateFunction::Max => "MAX",
            AggregateFunction::StddevPop => "STDDEV_POP",
            AggregateFunction::StddevSamp => "STDDEV_SAMP",
            AggregateFunction::VarPop => "VAR_POP",
            AggregateFunction::VarSamp => "VAR_SAMP",
            AggregateFunction::FirstValue => "FIRST_VALUE",
            AggregateFunction::LastValue => "LAST_VALUE",
            AggregateFunction::ListAgg { .. } => "LISTAGG",
            AggregateFunction::ArrayAgg { .. } => "ARRAY_AGG",
            AggregateFunction::Percentile(_) => "PERCENTILE",
            AggregateFunction::ApproxCountDistinct => "APPROX_COUNT_DISTINCT",
            AggregateFunction::User(user) => return user.name().to_string(),
        };
        name.to_string()
    }

    /// The constants that belong to the function, as SQL: what a call's text shows behind its
    /// argument.
    pub fn constants(&self) -> Option<String> {
        match self {
            AggregateFunction::ListAgg { separator } => {
                Some(format!(", '{}'", separator.replace('\'', "''")))
            }
            AggregateFunction::ArrayAgg { skips_nulls: true } => Some(" IGNORE NULLS".to_string()),
            AggregateFunction::Percentile(fractions) => Some(format!(", {fractions}")),
            _ => None,
        }
    }

    fn by_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_uppercase().as_str() {
            "COUNT" => AggregateFunction::Count,
            "SUM" => AggregateFunction::Sum,
            "AVG" => AggregateFunction::Avg,
            "MIN" => AggregateFunction::Min,
            "MAX" => AggregateFunction::Max,
            "STDDEV_POP" => AggregateFunction::StddevPop,
            "STDDEV_SAMP" | "STDDEV" => AggregateFunction::StddevSamp,
            "VAR_POP" => AggregateFunction::VarPop,
            "VAR_SAMP" | "VARIANCE" => AggregateFunction::VarSamp,
            "FIRST_VALUE" => AggregateFunction::FirstValue,
            "LAST_VALUE" => AggregateFunction::LastValue,
            "LISTAGG" => AggregateFunction::ListAgg { separator: Arc::from(",") },
            "ARRAY_AGG" => AggregateFunction::ArrayAgg { skips_nulls: false },
            "PERCENTILE" => AggregateFunction::Percentile(Fractions::One(0.5)),
            "APPROX_COUNT_DISTINCT" => AggregateFunction::ApproxCountDistinct,
            _ => return None,
        })
    }

    /// The type of the result for an argument of this type, or `None` where Flink has none.
    fn result(&self, argument: &DataType) -> Option<DataType> {
        use AggregateFunction as F;
        match (self, argument) {
            (F::Sum, DataType::Decimal(_, scale)) => Some(DataType::Decimal(38, *scale)),
            (F::Sum, other) => other.is_numeric().then(|| other.clone()),
            (
                F::Avg | F::StddevPop | F::StddevSamp | F::VarPop | F::VarSamp,
                DataType::Decimal(_, scale),
            ) => Some(DataType::Decimal(38, (*scale).max(6))),
            (F::Avg | F::StddevPop | F::StddevSamp | F::VarPop | F::VarSamp, other) => {
                other.is_numeric().then(|| other.clone())
            }
            (
                F::Min | F::Max,
                DataType::Array(_) | DataType::Map(..) | DataType::Row(_) | DataType::Null,
            ) => None,
            (F::FirstValue | F::LastValue, DataType::Map(..) | DataType::Null) => None,
            (F::ArrayAgg { .. }, DataType::Map(..) | DataType::Null) => None,
            (F::ArrayAgg { .. }, other) => {
                Some(DataType::Array(Box::new(other.clone().nullable())))
            }
            (F::ListAgg { .. }, other) => other.is_string().then_some(DataType::STRING),
            (F::Percentile(fractions), other) => {
                other.is_numeric().then(|| fractions.result_type())
            }
            (_, other) => Some(other.clone()),
        }
    }
}

impl fmt::Debug for AggregateFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// The function that a call means and the type of its result, as Flink gives it. Every result but
/// COUNT's is nullable.
///
/// ```
/// use thalweg_core::DataType;
/// use thalweg_operators::aggregate::resolve;
/// let (_, result) = resolve("avg", false, &[DataType::Decimal(10, 2).nullable()])?;
/// assert_eq!(result.to_string(), "DECIMAL(38,6)");
/// # Ok::<(), thalweg_core::Error>(())
/// ```
pub fn resolve(
    name: &str,
    distinct: bool,
    arguments: &[ColumnType],
) -> Result<(AggregateFunction, ColumnType)> {
    use AggregateFunction as F;
    let function = AggregateFunction::by_name(name)
        .ok_or_else(|| Error::plan(format!("there is no aggregate function {name}")))?;
    let argument = match (&function, arguments) {
        (AggregateFunction::Count, []) if !distinct => {
            return Ok((function, DataType::BigInt.not_null()));
        }
        (_, [argument]) => &argument.data_type,
        (AggregateFunction::Count, [_, _, ..]) => {
            return Err(Error::unsupported("COUNT over several columns")
                .hint("count a ROW or a concatenation of them"));
        }
        _ => {
            let given = arguments.len();
            return Err(Error::plan(format!("{name} takes one argument, not {given}")));
        }
    };
    let is_count = matches!(function, F::Count | F::ApproxCountDistinct);
    if is_count {
        return Ok((function, DataType::BigInt.not_null()));
    }
    let result = function.result(argument).ok_or_else(|| {
        Error::plan(format!("{} cannot be applied to {argument}", function.name()))
    })?;
    Ok((function, result.nullable()))
}

/// One aggregate of a query: the function, the columns it reads, the type and name of its result.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// What is computed.
    pub function: AggregateFunction,
    /// The input column it reads; `None` for `COUNT(*)`.
    pub argument: Option<usize>,
    /// True for `DISTINCT`.
    pub distinct: bool,
    /// The BOOLEAN input column of `FILTER (WHERE …)`.
    pub filter: Option<usize>,
    /// The type of the result, from [`resolve`].
    pub result: ColumnType,
    /// The name of the output column.
    pub name: String,
}

impl AggregateCall {
    /// True if the states commute and associate bit for bit.
    pub fn is_exact(&self) -> bool {
        use AggregateFunction as F;
        match self.function {
            F::Count | F::Min | F::Max | F::FirstValue | F::LastValue => true,
            F::Percentile(_) | F::ApproxCountDistinct => true,
            F::ListAgg { .. } | F::ArrayAgg { .. } => false,
            F::Sum | F::Avg | F::StddevPop | F::StddevSamp | F::VarPop | F::VarSamp => {
                !self.result.data_type.is_float()
            }
            F::User(_) => false,
        }
    }

    /// True if a merged state can be taken out again without a trace.
    pub fn is_invertible(&self) -> bool {
        use AggregateFunction as F;
        let forgets = matches!(
            self.function,
            F::Min
                | F::Max
                | F::FirstValue
                | F::LastValue
                | F::Percentile(_)
                | F::ApproxCountDistinct
        );
        self.is_exact() && !forgets
    }

    /// True if NULL is a value to the function.
    pub(super) fn takes_nulls(&self) -> bool {
        matches!(
            self.function,
            AggregateFunction::ArrayAgg { skips_nulls: false } | AggregateFunction::User(_)
        )
    }

    /// True for a plain `COUNT(*)`, which equals the number of rows of a group.
    pub(crate) fn counts_rows(&self) -> bool {
        matches!(self.function, AggregateFunction::Count)
            && self.argument.is_none()
            && self.filter.is_none()
    }

    /// An empty column of states. `argument` is the type of the argument's column.
    pub fn accumulator(&self, argument: Option<&DataType>) -> Result<Box<dyn Accumulator>> {
        self.column_of_states(argument, true)
    }

    /// The same where no state is ever subtracted, and memory need not be free before all states
    /// are dropped: DISTINCT is cheaper then.
    pub(crate) fn accumulator_of_whole(
        &self,
        argument: Option<&DataType>,
    ) -> Result<Box<dyn Accumulator>> {
        self.column_of_states(argument, false)
    }

    fn column_of_states(
        &self,
        argument: Option<&DataType>,
        subtracts: bool,
    ) -> Result<Box<dyn Accumulator>> {
        use AggregateFunction as F;
        let data_type = match (&self.function, argument) {
            (F::Count, None) => return Ok(Box::new(Groups::new(Count))),
            (_, Some(data_type)) => data_type,
            (function, None) => {
                return Err(Error::internal(format!("{} without argument", function.name())));
            }
        };
        let plain = self.plain_accumulator(data_type)?;
        let changed_by_repeats = !matches!(
            self.function,
            F::Min | F::Max | F::FirstValue | F::LastValue | F::ApproxCountDistinct
        );
        let data_type = data_type.clone();
        match self.distinct && changed_by_repeats {
            true if subtracts => Ok(Box::new(Distinct::new(self.clone(), data_type, plain)?)),
            true => Ok(Box::new(DistinctSet::new(self.clone(), data_type, plain)?)),
            false => Ok(plain),
        }
    }

    pub(super) fn plain_accumulator(&self, argument: &DataType) -> Result<Box<dyn Accumulator>> {
        use AggregateFunction as F;
        let result = self.result.data_type.clone();
        match &self.function {
            F::Count => Ok(Box::new(Groups::new(Count))),
            F::Sum | F::Avg => sum(argument, result, matches!(self.function, F::Avg)),
            F::Min | F::Max => extremes::build(argument, matches!(self.function, F::Max)),
            F::FirstValue | F::LastValue => {
                ordinals::build(argument, matches!(self.function, F::LastValue))
            }
            F::ListAgg { separator } => Ok(Box::new(Groups::new(JoinedTexts::new(separator)))),
            F::ArrayAgg { skips_nulls } => {
                Ok(Box::new(Groups::new(Elements::new(argument, *skips_nulls)?)))
            }
            F::Percentile(fractions) => {
                Ok(Box::new(Groups::new(Percentile::new(fractions.clone()))))
            }
            F::ApproxCountDistinct => Ok(Box::new(Groups::new(DistinctEstimate))),
            F::User(user) => Ok(Box::new(UserGroups::new(Arc::clone(user)))),
            F::StddevPop => moments(argument, result, false, true),
            F::StddevSamp => moments(argument, result, true, true),
            F::VarPop => moments(argument, result, false, false),
            F::VarSamp => moments(argument, result, true, false),
        }
    }
}

fn sum(argument: &DataType, result: DataType, mean: bool) -> Result<Box<dyn Accumulator>> {
    match argument {
        DataType::Decimal(precision, scale) if *precision <= 18 => {
            Ok(Box::new(Groups::new(DecimalSum::<i128>::new(*scale, result, mean))))
        }
        DataType::Decimal(_, scale) => {
            Ok(Box::new(Groups::new(DecimalSum::<arrow_buffer::i256>::new(*scale, result, mean))))
        }
        other if other.is_integer() => Ok(Box::new(Groups::new(IntegerSum { result, mean }))),
        other if other.is_float() => Ok(Box::new(Groups::new(FloatSum { result, mean }))),
        other => Err(Error::plan(format!("SUM and AVG cannot be applied to {other}"))),
    }
}

fn moments(
    argument: &DataType,
    result: DataType,
    sample: bool,
    root: bool,
) -> Result<Box<dyn Accumulator>> {
    let kind = MomentsKind { sample, root };
    match argument {
        DataType::Decimal(_, scale) => {
            Ok(Box::new(Groups::new(DecimalMoments { kind, scale: *scale, result })))
        }
        other if other.is_integer() => Ok(Box::new(Groups::new(IntegerMoments { kind, result }))),
        other if other.is_float() => Ok(Box::new(Groups::new(Moments { kind, result }))),
        other => Err(Error::plan(format!("variances cannot be taken of {other}"))),
    }
}
