//! AND and OR of three-valued logic, and IS NULL: 64 rows at a time, by their bits.

use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};

/// AND or OR, NULL where neither side decides and one of them is NULL. Both have one length.
pub(crate) fn kleene(left: &BooleanArray, right: &BooleanArray, is_and: bool) -> BooleanArray {
    // Right also where a side is NULL and the other one decides, whatever bit stands for the NULL.
    let values = match is_and {
        true => left.values() & right.values(),
        false => left.values() | right.values(),
    };
    let has_nulls = left.nulls().is_some() || right.nulls().is_some();
    let nulls = has_nulls.then(|| {
        let (left_known, left_decides) = known_and_deciding(left, is_and);
        let (right_known, right_decides) = known_and_deciding(right, is_and);
        let decided = &left_decides | &right_decides;
        NullBuffer::new(&(&left_known & &right_known) | &decided)
    });
    BooleanArray::new(values, nulls)
}

/// Where a side is not NULL, and where it decides alone: FALSE decides AND, TRUE decides OR.
fn known_and_deciding(side: &BooleanArray, is_and: bool) -> (BooleanBuffer, BooleanBuffer) {
    let known = known(side.nulls().cloned(), side.len());
    let deciding = match is_and {
        true => &known & &!side.values(),
        false => &known & side.values(),
    };
    (known, deciding)
}

fn known(nulls: Option<NullBuffer>, rows: usize) -> BooleanBuffer {
    nulls.map_or_else(|| BooleanBuffer::new_set(rows), NullBuffer::into_inner)
}

/// NOT, which leaves NULL as it is.
pub(crate) fn not(side: &BooleanArray) -> BooleanArray {
    BooleanArray::new(!side.values(), side.nulls().cloned())
}

/// IS NULL, or IS NOT NULL.
pub(crate) fn is_null(array: &ArrayRef, negated: bool) -> BooleanArray {
    let known = known(array.logical_nulls(), array.len());
    BooleanArray::new(if negated { known } else { !&known }, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: [Option<bool>; 3] = [Some(false), None, Some(true)];

    /// A row for each pair, behind rows that a slice leaves out; the bit of a NULL is either one.
    fn pairs(null_bit: bool) -> (BooleanArray, BooleanArray) {
        let column = |pick: fn(usize) -> usize| {
            let row = |row: usize| VALUES[pick(row % 9)];
            let values = BooleanBuffer::collect_bool(99, |place| row(place).unwrap_or(null_bit));
            let nulls = NullBuffer::from_iter((0..99).map(|place| row(place).is_some()));
            BooleanArray::new(values, Some(nulls)).slice(9, 90)
        };
        (column(|row| row / 3), column(|row| row % 3))
    }

    #[test]
    fn false_decides_and_true_decides_or() {
        for null_bit in [false, true] {
            let (left, right) = pairs(null_bit);
            let (and, or) = (kleene(&left, &right, true), kleene(&left, &right, false));
            for row in 0..90 {
                // FALSE < NULL < TRUE: AND is the smaller, OR the larger one.
                let (l, r) = (row % 9 / 3, row % 3);
                let of = |array: &BooleanArray| array.is_valid(row).then(|| array.value(row));
                assert_eq!(of(&and), VALUES[l.min(r)], "{:?} AND {:?}", VALUES[l], VALUES[r]);
                assert_eq!(of(&or), VALUES[l.max(r)], "{:?} OR {:?}", VALUES[l], VALUES[r]);
            }
        }
    }

    #[test]
    fn without_nulls_there_are_none() {
        let (left, right): (BooleanArray, BooleanArray) =
            (vec![true, true, false].into(), vec![true, false, false].into());
        assert_eq!(kleene(&left, &right, true), vec![true, false, false].into());
        assert_eq!(kleene(&left, &right, false), vec![true, true, false].into());
        let unknown: BooleanArray = vec![None, Some(true), None].into();
        assert_eq!(kleene(&left, &unknown, true), vec![None, Some(true), Some(false)].into());
        assert_eq!(kleene(&unknown, &left, false), vec![Some(true), Some(true), None].into());
    }

    #[test]
    fn not_leaves_null() {
        let side: BooleanArray = VALUES.to_vec().into();
        assert_eq!(not(&side), vec![Some(true), None, Some(false)].into());
        let side: ArrayRef = std::sync::Arc::new(side);
        assert_eq!(is_null(&side, false), vec![false, true, false].into());
        assert_eq!(is_null(&side, true), vec![true, false, true].into());
        let nulls = arrow_array::new_null_array(&arrow_schema::DataType::Null, 2);
        assert_eq!(is_null(&nulls, false), vec![true, true].into());
    }
}
