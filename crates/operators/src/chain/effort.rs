//! What a step of expressions can take at once, known before the first row.
//!
//! Texts can become longer from step to step: [`Lengths`] bounds how long a value of each column
//! can be, as a multiple of the row that came into the chain.

use arrow_array::RecordBatch;
use thalweg_core::bundle::batch_bytes;
use thalweg_expr::Expr;

/// How long a part takes at most, if it can be helped: until then the job does not see that it is
/// to stop.
pub(super) const PART_NS_MAX: u64 = 20_000_000;

/// What expressions over many rows can take at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// Little for each row: all rows are computed together.
    Small,
    /// Much time: rows are computed in parts.
    Time,
    /// Much memory, or much time for a short row: rows are computed in parts, one at first.
    Memory,
}

/// How many bytes of rows are computed at first where what that takes is not known.
const FIRST_PART_BYTES: usize = 1 << 16;

impl Effort {
    /// How many of some rows are computed at first.
    pub fn first_rows(self, batch: &RecordBatch) -> usize {
        let row_bytes = batch_bytes(batch) / batch.num_rows().max(1);
        let rows = FIRST_PART_BYTES / row_bytes.max(1);
        rows.clamp(1, if self == Effort::Memory { 1 } else { 1024 })
    }

    /// How long a part should take. What is computed on the way to a result is not seen in its
    /// size, so the time bounds it as well.
    pub fn part_ns(self) -> u64 {
        if self == Effort::Memory { PART_NS_MAX / 10 } else { PART_NS_MAX / 2 }
    }
}

/// How many times as long as an incoming row the values of each column can be. Columns that are not
/// listed are those of the row.
#[derive(Default)]
pub(super) struct Lengths(Vec<f64>);

impl Lengths {
    /// Beyond this many times the length of their rows, values are computed in parts.
    const WHOLE_MAX: f64 = 16.0;

    fn of(&self, column: usize) -> f64 {
        self.0.get(column).copied().unwrap_or(1.0)
    }

    /// What these expressions take.
    pub fn effort<'a>(&self, exprs: impl IntoIterator<Item = &'a Expr> + Clone) -> Effort {
        let bytes = |expr: &Expr| expr.computed_length(&|column| self.of(column));
        let total: f64 = exprs.clone().into_iter().map(bytes).sum();
        if total > Self::WHOLE_MAX {
            return Effort::Memory;
        }
        match exprs.into_iter().any(Expr::can_be_slow) {
            true => Effort::Time,
            false => Effort::Small,
        }
    }

    /// Behind a projection.
    pub fn project(&mut self, exprs: &[Expr]) {
        self.0 = exprs.iter().map(|expr| expr.length(&|column| self.of(column))).collect();
    }

    /// Continues with these columns.
    pub fn keep(&mut self, columns: &[usize]) {
        self.0 = columns.iter().map(|&column| self.of(column)).collect();
    }

    /// Behind a step whose columns are others.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_core::DataType;
    use thalweg_expr::{Session, build};

    fn text() -> Expr {
        Expr::column(0, DataType::STRING.nullable())
    }

    fn call(name: &str, args: Vec<Expr>) -> Expr {
        build::call(name, args, &Session::default()).expect(name)
    }

    /// A concatenation of 200 texts was computed for all rows of a bundle at once: 3 GB.
    #[test]
    fn texts_that_grow_from_step_to_step_are_found() {
        let mut lengths = Lengths::default();
        let four = || call("CONCAT", vec![text(); 4]);
        assert_eq!(lengths.effort(&[four()]), Effort::Small);
        lengths.project(&[four()]);
        assert_eq!(lengths.effort(&[four()]), Effort::Small);
        lengths.project(&[four()]);
        assert_eq!(lengths.effort(&[text()]), Effort::Small, "it is only passed on");
        assert_eq!(lengths.effort(&[four()]), Effort::Memory);
        lengths.forget();
        let length = call("CHAR_LENGTH", vec![call("CONCAT", vec![text(); 20])]);
        assert_eq!(lengths.effort(&[length]), Effort::Memory, "on the way to a number");
        let hex = (0..5).fold(text(), |input, _| call("HEX", vec![input]));
        assert_eq!(lengths.effort(&[hex]), Effort::Memory);
        let upper = || call("UPPER", vec![text()]);
        assert_eq!(lengths.effort(&vec![upper(); 16]), Effort::Small);
        assert_eq!(lengths.effort(&vec![upper(); 17]), Effort::Memory, "many columns");
        let constant = call("CONCAT", vec![text(), build::string_literal(&"x".repeat(400))]);
        assert_eq!(lengths.effort(&[constant]), Effort::Memory);
        let repeated = call("REPEAT", vec![text(), Expr::column(1, DataType::Int.nullable())]);
        assert_eq!(lengths.effort(&[repeated]), Effort::Memory);
    }
}
