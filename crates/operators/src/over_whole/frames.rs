//! Which rows each row of a key sees.

use std::ops::Range;

use arrow_array::{Array, ArrayRef, RecordBatch, cast::AsArray, types};
use arrow_schema::{DataType as Arrow, TimeUnit};
use thalweg_core::{Error, Result, TableSchema};

use crate::sort::{KeyEncoder, SortKey};

/// `ROWS` or `RANGE BETWEEN start AND end`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WholeFrame {
    /// Rows or values.
    pub unit: FrameUnit,
    /// The first row.
    pub start: FrameBound,
    /// The last row.
    pub end: FrameBound,
}

/// What bounds count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameUnit {
    /// Rows.
    Rows,
    /// The distance of the column of ORDER BY.
    Range,
}

/// One end of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FrameBound {
    /// The first row of the key.
    UnboundedPreceding,
    /// So far before the row.
    Preceding(Distance),
    /// The row; of RANGE its first or last peer.
    CurrentRow,
    /// So far behind the row.
    Following(Distance),
    /// The last row of the key.
    UnboundedFollowing,
}

/// How far: a number of rows, or a distance in the units of the column of ORDER BY.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distance {
    /// Rows; the unscaled difference of integers and decimals; milliseconds of times.
    Whole(i128),
    /// A difference of floating-point numbers.
    Real(f64),
}

impl WholeFrame {
    /// Every row of the key.
    pub const ALL: WholeFrame = WholeFrame {
        unit: FrameUnit::Rows,
        start: FrameBound::UnboundedPreceding,
        end: FrameBound::UnboundedFollowing,
    };
}

/// For each row of a key the range of its peers.
pub(super) fn peers(
    order: &[SortKey],
    rows: &RecordBatch,
    schema: &TableSchema,
) -> Result<Vec<Range<usize>>> {
    let count = rows.num_rows();
    if order.is_empty() {
        return Ok(vec![0..count; count]);
    }
    let keys = KeyEncoder::new(order, schema)?.encode(rows)?;
    let mut peers = Vec::with_capacity(count);
    let mut start = 0;
    for row in 1..=count {
        if row == count || keys.row(row) != keys.row(row - 1) {
            peers.extend(std::iter::repeat_n(start..row, row - start));
            start = row;
        }
    }
    Ok(peers)
}

/// For each row of a key the range of the rows that it sees.
pub(super) fn frames(
    frame: &WholeFrame,
    order: &[SortKey],
    rows: &RecordBatch,
    peers: &[Range<usize>],
) -> Result<Vec<Range<usize>>> {
    match frame.unit {
        FrameUnit::Rows => Ok(by_number(frame, rows.num_rows())),
        FrameUnit::Range => by_value(frame, order, rows, peers),
    }
}

fn by_number(frame: &WholeFrame, count: usize) -> Vec<Range<usize>> {
    let offset = |distance: Distance| match distance {
        Distance::Whole(rows) => usize::try_from(rows).unwrap_or(usize::MAX),
        Distance::Real(_) => 0,
    };
    let place = |row: usize, bound: FrameBound, is_end: bool| {
        let after = usize::from(is_end);
        match bound {
            FrameBound::UnboundedPreceding => 0,
            FrameBound::Preceding(distance) => (row + after).saturating_sub(offset(distance)),
            FrameBound::CurrentRow => row + after,
            FrameBound::Following(distance) => {
                row.saturating_add(offset(distance)).saturating_add(after).min(count)
            }
            FrameBound::UnboundedFollowing => count,
        }
    };
    let range = |row| {
        let (start, end) = (place(row, frame.start, false), place(row, frame.end, true));
        start.min(end)..end
    };
    (0..count).map(range).collect()
}

/// The values of the column of ORDER BY, in its order: a later row is never less.
enum Values {
    Whole(Vec<Option<i128>>),
    Real(Vec<Option<f64>>),
}

fn by_value(
    frame: &WholeFrame,
    order: &[SortKey],
    rows: &RecordBatch,
    peers: &[Range<usize>],
) -> Result<Vec<Range<usize>>> {
    let has_distance = [frame.start, frame.end]
        .iter()
        .any(|bound| matches!(bound, FrameBound::Preceding(_) | FrameBound::Following(_)));
    let values = match (has_distance, order) {
        (false, _) => Values::Whole(Vec::new()),
        (true, [key]) => values_of(rows.column(key.column), key.descending)?,
        (true, _) => return Err(Error::internal("RANGE with a distance needs one column")),
    };
    let count = rows.num_rows();
    let place = |row: usize, bound: FrameBound, is_end: bool| match bound {
        FrameBound::UnboundedPreceding => 0,
        FrameBound::UnboundedFollowing => count,
        FrameBound::CurrentRow if is_end => peers[row].end,
        FrameBound::CurrentRow => peers[row].start,
        FrameBound::Preceding(distance) => values.search(row, (distance, -1), is_end, &peers[row]),
        FrameBound::Following(distance) => values.search(row, (distance, 1), is_end, &peers[row]),
    };
    let range = |row| {
        let (start, end) = (place(row, frame.start, false), place(row, frame.end, true));
        start.min(end)..end
    };
    Ok((0..count).map(range).collect())
}

impl Values {
    /// The first row at or behind the distance from this row, or for an end the first one beyond.
    fn search(
        &self,
        row: usize,
        (distance, sign): (Distance, i8),
        is_end: bool,
        peers: &Range<usize>,
    ) -> usize {
        let of_peers = if is_end { peers.end } else { peers.start };
        match self {
            Values::Whole(values) => {
                let Some(own) = values[row] else { return of_peers };
                let far = match distance {
                    Distance::Whole(far) => far,
                    Distance::Real(far) => far as i128,
                };
                let limit = own.saturating_add(far.saturating_mul(i128::from(sign)));
                bounded(values, |value| if is_end { value <= limit } else { value < limit })
            }
            Values::Real(values) => {
                let Some(own) = values[row] else { return of_peers };
                let far = match distance {
                    Distance::Whole(far) => far as f64,
                    Distance::Real(far) => far,
                };
                let limit = own + far * f64::from(sign);
                bounded(values, |value| if is_end { value <= limit } else { value < limit })
            }
        }
    }
}

/// How many rows stand before the first value, other than NULL, that is not before the limit.
/// NULLs stand at one end, where no distance reaches them.
fn bounded<T: Copy>(values: &[Option<T>], is_before: impl Fn(T) -> bool) -> usize {
    let first = values.iter().position(Option::is_some).unwrap_or(0);
    let last = values.iter().rposition(Option::is_some).map_or(first, |last| last + 1);
    let within = &values[first..last];
    first + within.partition_point(|value| value.is_some_and(&is_before))
}

/// The values of a column as numbers; of a descending order with the sign turned.
fn values_of(column: &ArrayRef, descending: bool) -> Result<Values> {
    const MS_NS: i128 = 1_000_000;
    /// Of a DATE, in the units of times.
    const DAY: i128 = 86_400_000;
    let sign: i128 = if descending { -1 } else { 1 };
    macro_rules! whole {
        ($kind:ty) => {
            column.as_primitive::<$kind>().iter().map(|value| value.map(i128::from)).collect()
        };
    }
    let (values, factor): (Vec<Option<i128>>, (i128, i128)) = match column.data_type() {
        Arrow::Int8 => (whole!(types::Int8Type), (1, 1)),
        Arrow::Int16 => (whole!(types::Int16Type), (1, 1)),
        Arrow::Int32 => (whole!(types::Int32Type), (1, 1)),
        Arrow::Int64 => (whole!(types::Int64Type), (1, 1)),
        Arrow::Decimal128(..) => (whole!(types::Decimal128Type), (1, 1)),
        Arrow::Date32 => (whole!(types::Date32Type), (DAY, 1)),
        Arrow::Time32(TimeUnit::Millisecond) => (whole!(types::Time32MillisecondType), (1, 1)),
        Arrow::Timestamp(TimeUnit::Second, _) => (whole!(types::TimestampSecondType), (1_000, 1)),
        Arrow::Timestamp(TimeUnit::Millisecond, _) => {
            (whole!(types::TimestampMillisecondType), (1, 1))
        }
        Arrow::Timestamp(TimeUnit::Microsecond, _) => {
            (whole!(types::TimestampMicrosecondType), (1, MS_NS / 1_000))
        }
        Arrow::Timestamp(TimeUnit::Nanosecond, _) => {
            (whole!(types::TimestampNanosecondType), (1, MS_NS))
        }
        Arrow::Float32 => {
            let values = column.as_primitive::<types::Float32Type>().iter();
            return Ok(real(values.map(|value| value.map(f64::from)), descending));
        }
        Arrow::Float64 => {
            return Ok(real(column.as_primitive::<types::Float64Type>().iter(), descending));
        }
        other => {
            return Err(Error::unsupported(format!("RANGE with a distance over {other}"))
                .hint("order by a number or a time, or count ROWS"));
        }
    };
    let (times, parts) = factor;
    let scaled = |value: Option<i128>| value.map(|value| (value * times).div_euclid(parts) * sign);
    Ok(Values::Whole(values.into_iter().map(scaled).collect()))
}

fn real(values: impl Iterator<Item = Option<f64>>, descending: bool) -> Values {
    let sign = if descending { -1.0 } else { 1.0 };
    Values::Real(values.map(|value| value.map(|value| value * sign)).collect())
}
