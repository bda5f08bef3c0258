//! Result types and values as Flink has them, and what merging, subtracting and emptying must keep.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, Decimal128Array, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array,
    Int64Array, ListArray, RecordBatch, StringViewArray, UInt32Array,
};
use arrow_cast::display::array_value_to_string;
use thalweg_core::{ColumnType, DataType};

use super::*;

fn call(name: &str, distinct: bool, argument: &DataType) -> AggregateCall {
    let (function, result) =
        resolve(name, distinct, &[argument.clone().nullable()]).expect("a known aggregate");
    let name = name.to_string();
    AggregateCall { function, argument: Some(0), distinct, filter: None, result, name }
}

fn input<'a>(ids: &'a [u32], column: &'a ArrayRef, ordinal: u64) -> UpdateInput<'a> {
    let order = RowOrder { lane: 0, epoch: 0, ordinal };
    UpdateInput { ids, rows: None, argument: Some(column), order }
}

fn show(array: &ArrayRef) -> Vec<String> {
    (0..array.len())
        .map(|row| match array.is_null(row) {
            true => "NULL".to_string(),
            false => array_value_to_string(array, row).expect("a printable value"),
        })
        .collect()
}

/// The aggregate over one group that holds the whole column; the type is checked as well.
fn whole(name: &str, argument: DataType, column: ArrayRef) -> String {
    let call = call(name, false, &argument);
    let mut states = call.accumulator(Some(&argument)).expect("an accumulator");
    states.grow(1);
    states.update(&input(&vec![0; column.len()], &column, 0)).expect("updated");
    let result = states.evaluate(&[0]).expect("evaluated");
    assert_eq!(*result.data_type(), call.result.data_type.arrow(), "{name}");
    show(&result).swap_remove(0)
}

fn ints(values: &[i32]) -> ArrayRef {
    Arc::new(Int32Array::from(values.to_vec()))
}

fn decimals(values: &[i128], precision: u8, scale: i8) -> ArrayRef {
    let array = Decimal128Array::from(values.to_vec());
    Arc::new(array.with_precision_and_scale(precision, scale).expect("a DECIMAL type"))
}

#[test]
fn results_have_the_types_of_flink() {
    let cases = [
        ("COUNT", DataType::STRING, "BIGINT NOT NULL"),
        ("SUM", DataType::TinyInt, "TINYINT"),
        ("SUM", DataType::Decimal(10, 2), "DECIMAL(38,2)"),
        ("AVG", DataType::Int, "INT"),
        ("AVG", DataType::Decimal(10, 2), "DECIMAL(38,6)"),
        ("AVG", DataType::Decimal(10, 8), "DECIMAL(38,8)"),
        ("STDDEV_POP", DataType::Int, "INT"),
        ("VAR_SAMP", DataType::Double, "DOUBLE"),
        ("MAX", DataType::Timestamp(3), "TIMESTAMP(3)"),
        ("LAST_VALUE", DataType::STRING, "STRING"),
    ];
    for (name, argument, expected) in cases {
        assert_eq!(call(name, false, &argument).result.to_string(), expected, "{name}");
    }
    assert_eq!(call("LISTAGG", false, &DataType::Char(3)).result.to_string(), "STRING");
    assert_eq!(call("ARRAY_AGG", false, &DataType::Int).result.to_string(), "ARRAY<INT>");
    assert_eq!(call("PERCENTILE", false, &DataType::Int).result.to_string(), "DOUBLE");
    let about = call("APPROX_COUNT_DISTINCT", false, &DataType::STRING);
    assert_eq!(about.result.to_string(), "BIGINT NOT NULL");
    let string = [DataType::STRING.nullable()];
    assert!(resolve("LISTAGG", false, &[DataType::Int.nullable()]).is_err());
    assert!(resolve("PERCENTILE", false, &string).is_err());
    assert!(resolve("SUM", false, &string).expect_err("no sum of text").is_plan_error());
    assert!(resolve("MEDIAN", false, &string).is_err());
    assert!(resolve("MAX", false, &[]).is_err());
}

/// The golden cases avg_types and sum_int_overflow, and rounding of DECIMAL.
#[test]
fn values_are_those_of_flink() {
    let cases = [
        ("AVG", ints(&[1, 2, 2]), "1"),
        ("AVG", ints(&[-1, -2]), "-1"),
        ("STDDEV_POP", ints(&[1, 2, 2]), "0"),
        ("VAR_SAMP", ints(&[1]), "NULL"),
        ("VAR_SAMP", ints(&[1, 2]), "0"),
        ("STDDEV_POP", ints(&[i32::MIN, i32::MAX]), "2147483647"),
        ("SUM", ints(&[2_147_483_647, 1]), "-2147483648"),
        ("AVG", ints(&[2_147_483_647, 1]), "1073741824"),
    ];
    for (name, column, expected) in cases {
        assert_eq!(whole(name, DataType::Int, column), expected, "{name}");
    }
    let price = || decimals(&[100, 200, 200], 10, 2);
    assert_eq!(whole("AVG", DataType::Decimal(10, 2), price()), "1.666667");
    assert_eq!(whole("SUM", DataType::Decimal(10, 2), price()), "5.00");
    let negative = decimals(&[-100, -200, -200], 10, 2);
    assert_eq!(whole("AVG", DataType::Decimal(10, 2), negative), "-1.666667");
    let wide = DataType::Decimal(38, 0);
    let nines = 10i128.pow(38) - 1;
    assert_eq!(whole("SUM", wide.clone(), decimals(&[nines, 1], 38, 0)), "NULL");
    let back = decimals(&[nines, nines, nines, -nines, -nines], 38, 0);
    assert_eq!(whole("SUM", wide, back), nines.to_string());
}

#[test]
fn floats_are_compared_in_a_total_order() {
    let column = |values: &[f64]| -> ArrayRef { Arc::new(Float64Array::from(values.to_vec())) };
    let max = |values: &[f64]| whole("MAX", DataType::Double, column(values));
    let min = |values: &[f64]| whole("MIN", DataType::Double, column(values));
    for nan in [f64::NAN, -f64::NAN] {
        assert_eq!(max(&[1.0, nan, 2.0]), "NaN");
        assert_eq!(min(&[nan, 1.0, nan, 2.0]), "1.0");
        assert_eq!(whole("PERCENTILE", DataType::Double, column(&[nan, 1.0, 2.0])), "2.0");
    }
    assert_eq!(min(&[0.0, -0.0]), "-0.0");
    assert_eq!(max(&[-0.0, 0.0]), "0.0");
    assert_eq!(whole("VAR_POP", DataType::Double, column(&[1e9 + 1.0, 1e9 + 3.0])), "1.0");
    assert_eq!(whole("VAR_POP", DataType::Double, column(&[1.0, f64::NAN])), "NaN");
}

/// Narrow numbers are held in wide ones: a piece of a bundle gives what its rows alone give.
#[test]
fn narrow_numbers_are_taken_from_the_rows_of_a_piece() {
    let tiny: Int8Array = [Some(127), None, Some(-128), Some(3), Some(1)].into_iter().collect();
    let small: Int16Array =
        [Some(32767), None, Some(-32768), Some(3), Some(1)].into_iter().collect();
    let float: Float32Array =
        [Some(0.1), None, Some(-2.5), Some(f32::NAN), Some(7.0)].into_iter().collect();
    let columns: [(DataType, ArrayRef); 3] = [
        (DataType::TinyInt, Arc::new(tiny)),
        (DataType::SmallInt, Arc::new(small)),
        (DataType::Float, Arc::new(float)),
    ];
    for (of, column) in columns {
        for name in ["SUM", "AVG", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "VAR_POP"] {
            let rows = [1, 2, 4];
            let call = call(name, false, &of);
            let mut states = call.accumulator(Some(&of)).expect("an accumulator");
            states.grow(1);
            let piece = UpdateInput { rows: Some(&rows), ..input(&[0, 0, 0], &column, 0) };
            states.update(&piece).expect("updated");
            let result = states.evaluate(&[0]).expect("evaluated");
            assert_eq!(*result.data_type(), call.result.data_type.arrow(), "{name}");
            let alone = arrow_select::take::take(&column, &UInt32Array::from(rows.to_vec()), None);
            let alone = whole(name, of.clone(), alone.expect("rows"));
            assert_eq!(show(&result), [alone], "{name} of {of}");
        }
    }
    let bytes: ArrayRef = Arc::new(Int8Array::from(vec![-128, 127, 5]));
    assert_eq!(whole("MIN", DataType::TinyInt, bytes.clone()), "-128");
    assert_eq!(whole("MAX", DataType::TinyInt, bytes.clone()), "127");
    assert_eq!(whole("LAST_VALUE", DataType::TinyInt, bytes), "5");
    let floats: ArrayRef = Arc::new(Float32Array::from(vec![0.1, -0.3]));
    assert_eq!(whole("MIN", DataType::Float, floats.clone()), "-0.3");
    assert_eq!(whole("MAX", DataType::Float, floats), "0.1");
}

/// The squares of four of them do not fit 128 bits.
#[test]
fn deviations_of_large_integers_are_exact() {
    let column = || -> ArrayRef { Arc::new(Int64Array::from([i64::MAX, i64::MIN].repeat(8))) };
    assert_eq!(whole("STDDEV_POP", DataType::BigInt, column()), i64::MAX.to_string());
}

/// Parts in any order give what the whole gives, and what is subtracted leaves no trace.
#[test]
fn parts_merge_in_any_order_and_subtract_cleanly() {
    let argument = DataType::Int;
    let columns: [ArrayRef; 3] = [
        Arc::new(Int32Array::from(vec![Some(5), None, Some(7), Some(5)])),
        Arc::new(Int32Array::from(vec![Some(-3), Some(7), None, None])),
        Arc::new(Int32Array::from(vec![Some(9), Some(5), Some(1), Some(1)])),
    ];
    let ids: [u32; 4] = [0, 1, 1, 0];
    for name in ["COUNT", "SUM", "AVG", "MIN", "MAX", "VAR_POP", "FIRST_VALUE", "LAST_VALUE"] {
        for distinct in [false, true] {
            let call = call(name, distinct, &argument);
            let states = |parts: &[usize]| {
                let mut states = call.accumulator(Some(&argument)).expect("an accumulator");
                states.grow(2);
                for &part in parts {
                    let rows = input(&ids, &columns[part], part as u64);
                    states.update(&rows).expect("updated");
                }
                states
            };
            let expected = show(&states(&[0, 1, 2]).evaluate(&[0, 1]).expect("evaluated"));
            let mut merged = states(&[2]);
            for part in [1, 0] {
                let partial = states(&[part]).take(&[0, 1]).expect("taken");
                merged.merge(&[0, 1], partial.as_ref()).expect("merged");
            }
            assert_eq!(show(&merged.evaluate(&[0, 1]).expect("evaluated")), expected, "{name}");
            if !call.is_invertible() {
                continue;
            }
            let gone = states(&[1]).take(&[0, 1]).expect("taken");
            merged.subtract(&[0, 1], gone.as_ref()).expect("subtracted");
            let left = show(&states(&[0, 2]).evaluate(&[0, 1]).expect("evaluated"));
            assert_eq!(show(&merged.evaluate(&[0, 1]).expect("evaluated")), left, "{name}");
            merged.reset(&[1]);
            let empty = if name == "COUNT" { "0" } else { "NULL" };
            assert_eq!(show(&merged.evaluate(&[1]).expect("evaluated")), [empty], "{name}");
        }
    }
}

/// States that were captured and retracted give what the others give, also when rows follow.
#[test]
fn states_that_are_captured_come_back() {
    let argument = DataType::Int;
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(5), None, Some(7), Some(5)]));
    let more: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), Some(1), Some(-2), None]));
    let ids: [u32; 4] = [0, 1, 2, 2];
    let names = ["COUNT", "SUM", "AVG", "MIN", "MAX", "VAR_POP", "FIRST_VALUE", "LAST_VALUE"];
    for name in names.into_iter().chain(["ARRAY_AGG", "PERCENTILE", "APPROX_COUNT_DISTINCT"]) {
        for distinct in [false, true] {
            let call = call(name, distinct, &argument);
            let mut states = call.accumulator(Some(&argument)).expect("an accumulator");
            states.grow(4);
            states.update(&input(&ids, &numbers, 0)).expect("updated");
            let batch = captured(states.as_ref(), &[2, 0, 3, 1]);
            let mut back = call.accumulator(Some(&argument)).expect("an accumulator");
            back.grow(4);
            // Restored in parts, as after a snapshot of several partitions.
            for (from, ids) in [(0, vec![2, 0]), (2, vec![3, 1])] {
                let rows = batch.slice(from, 2);
                back.restore(&ids, &StateRows::new(&rows, "x")).expect("it fits");
            }
            for states in [&mut states, &mut back] {
                states.update(&input(&ids, &more, 1)).expect("updated");
            }
            let results = |states: &dyn Accumulator| {
                show(&states.evaluate(&[0, 1, 2, 3]).expect("evaluated"))
            };
            assert_eq!(results(back.as_ref()), results(states.as_ref()), "{name} {distinct}");
            let nothing = RecordBatch::new_empty(Arc::new(arrow_schema::Schema::empty()));
            let error = back.restore(&[], &StateRows::new(&nothing, "x")).expect_err("refused");
            assert!(error.message().contains("does not fit"), "{error}");
        }
    }
}

/// The states as a table with the columns of an aggregate named `x`.
fn captured(states: &dyn Accumulator, ids: &[u32]) -> RecordBatch {
    let mut columns = StateColumns::default();
    columns.begin("x");
    states.capture(ids, &mut columns).expect("captured");
    RecordBatch::try_from_iter(columns.finish()).expect("columns of one length")
}

#[test]
fn many_distinct_values_come_back_as_registers() {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10_000));
    let call = call("APPROX_COUNT_DISTINCT", false, &DataType::BigInt);
    let mut states = call.accumulator(Some(&DataType::BigInt)).expect("an accumulator");
    states.grow(1);
    states.update(&input(&[0; 10_000], &numbers, 0)).expect("updated");
    let mut back = call.accumulator(Some(&DataType::BigInt)).expect("an accumulator");
    back.grow(1);
    let batch = captured(states.as_ref(), &[0]);
    back.restore(&[0], &StateRows::new(&batch, "x")).expect("it fits");
    let results = |states: &dyn Accumulator| show(&states.evaluate(&[0]).expect("evaluated"));
    assert_eq!(results(back.as_ref()), results(states.as_ref()));
}

/// The error is below what the documentation says, for numbers and for texts, and parts that
/// overlap merge to what the whole gives.
#[test]
fn distinct_values_are_counted_about() {
    for count in [10u64, 256, 257, 1_000, 30_000, 300_000] {
        let numbers: Vec<i64> = (0..count).map(|n| (n * 7) as i64).collect();
        let texts: ArrayRef = Arc::new(
            numbers.iter().map(|n| Some(format!("text {n}"))).collect::<StringViewArray>(),
        );
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
        for (column, argument) in [(numbers, DataType::BigInt), (texts, DataType::STRING)] {
            let whole: i64 =
                whole("APPROX_COUNT_DISTINCT", argument.clone(), ArrayRef::clone(&column))
                    .parse()
                    .expect("a number");
            let wrong = (whole as f64 - count as f64).abs() / count as f64;
            assert!(wrong < 0.03, "{whole} and not {count}");
            assert!(count > 256 || whole == count as i64, "few are counted exactly");
            let call = call("APPROX_COUNT_DISTINCT", false, &argument);
            let part = |from: usize, to: usize| {
                let mut states = call.accumulator(Some(&argument)).expect("an accumulator");
                states.grow(1);
                let rows = column.slice(from, to - from);
                states.update(&input(&vec![0; rows.len()], &rows, 0)).expect("updated");
                states
            };
            let count = count as usize;
            let mut merged = part(count / 3, count);
            let mut other = part(0, count / 2);
            let other = other.take(&[0]).expect("taken");
            merged.merge(&[0], other.as_ref()).expect("merged");
            let merged = merged.evaluate(&[0]).expect("evaluated");
            assert_eq!(show(&merged), [whole.to_string()]);
        }
    }
}

#[test]
fn nested_values_have_a_first_and_a_last() {
    let element = DataType::Int.nullable();
    let argument = DataType::Array(Box::new(element));
    let lists = vec![None, Some(vec![Some(1), None]), Some(vec![Some(3)])];
    let lists: ArrayRef =
        Arc::new(ListArray::from_iter_primitive::<arrow_array::types::Int32Type, _, _>(lists));
    assert_eq!(whole("FIRST_VALUE", argument.clone(), ArrayRef::clone(&lists)), "[1, ]");
    assert_eq!(whole("LAST_VALUE", argument, lists), "[3]");
}

/// The longest string, as a user might write it.
struct Longest;

#[derive(Default)]
struct LongestState(i64);

impl UserAggregate for Longest {
    fn name(&self) -> &str {
        "LONGEST"
    }
    fn result_type(&self, _argument: &ColumnType) -> Result<DataType> {
        Ok(DataType::BigInt)
    }
    fn create(&self) -> Box<dyn UserAccumulator> {
        Box::<LongestState>::default()
    }
    fn decode(&self, state: &[u8]) -> Result<Box<dyn UserAccumulator>> {
        let bytes = state.try_into().map_err(|_| Error::data("a length has eight bytes"))?;
        Ok(Box::new(LongestState(i64::from_le_bytes(bytes))))
    }
}

impl UserAccumulator for LongestState {
    fn accumulate(&mut self, values: &ArrayRef) -> Result<()> {
        let lengths = values.as_string_view().iter().flatten().map(|text| text.len() as i64);
        self.0 = lengths.fold(self.0, i64::max);
        Ok(())
    }
    fn merge(&mut self, other: &dyn UserAccumulator) -> Result<()> {
        let other: Option<&LongestState> = (other as &dyn std::any::Any).downcast_ref();
        self.0 = self.0.max(other.map_or(0, |other| other.0));
        Ok(())
    }
    fn result(&self) -> Result<ArrayRef> {
        Ok(Arc::new(Int64Array::from(vec![self.0])))
    }
    fn encode(&self) -> Result<Option<Vec<u8>>> {
        Ok((self.0 != i64::MAX).then(|| self.0.to_le_bytes().to_vec()))
    }
}

#[test]
fn users_write_aggregates() {
    let call = AggregateCall {
        function: AggregateFunction::user(Arc::new(Longest)),
        argument: Some(0),
        distinct: false,
        filter: None,
        result: DataType::BigInt.nullable(),
        name: "longest".to_string(),
    };
    assert!(!call.is_exact());
    let mut states = call.accumulator(Some(&DataType::STRING)).expect("an accumulator");
    states.grow(3);
    let words: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "bbb", "cc", "dddd"]));
    states.update(&input(&[0, 1, 0, 1], &words, 0)).expect("updated");
    let part = states.take(&[1]).expect("taken");
    states.merge(&[0], part.as_ref()).expect("merged");
    let result = states.evaluate(&[0, 1, 2]).expect("evaluated");
    assert_eq!(result.as_primitive::<Int64Type>().values(), &[4, 0, 0]);
    let batch = captured(states.as_ref(), &[2, 0]);
    let mut back = call.accumulator(Some(&DataType::STRING)).expect("an accumulator");
    back.grow(2);
    back.restore(&[1, 0], &StateRows::new(&batch, "x")).expect("it fits");
    let result = back.evaluate(&[0, 1]).expect("evaluated");
    assert_eq!(result.as_primitive::<Int64Type>().values(), &[4, 0]);
}

/// Sets that are dropped as a whole give what sets that count give, whatever is merged and taken,
/// and either continues with what the other has captured.
#[test]
fn sets_of_distinct_values_give_what_counted_ones_give() {
    let random = &mut thalweg_core::shim::SplitMix64::new(11);
    for name in ["COUNT", "SUM", "AVG", "LISTAGG"] {
        let argument = if name == "LISTAGG" { DataType::STRING } else { DataType::Int };
        let call = call(name, true, &argument);
        let mut sets = call.accumulator_of_whole(Some(&argument)).expect("a set");
        let mut counted = call.accumulator(Some(&argument)).expect("a counted set");
        let mut groups = 1;
        for step in 0..400 {
            if step % 150 == 149 {
                [&mut sets, &mut counted].into_iter().for_each(|states| states.clear());
                groups = 1;
            } else if step % 20 == 19 {
                groups += 1;
            }
            sets.grow(groups);
            counted.grow(groups);
            let group =
                |random: &mut thalweg_core::shim::SplitMix64| random.below(groups as u64) as u32;
            let values: Vec<Option<i32>> =
                (0..5).map(|_| (random.below(9) > 0).then(|| random.below(12) as i32)).collect();
            let column: ArrayRef = match name {
                "LISTAGG" => {
                    let texts = values.iter().map(|value| value.map(|value| format!("v{value}")));
                    Arc::new(texts.collect::<StringViewArray>())
                }
                _ => Arc::new(Int32Array::from(values)),
            };
            let ids: Vec<u32> = (0..5).map(|_| group(random)).collect();
            let (from, to) = (group(random), group(random));
            for states in [&mut sets, &mut counted] {
                states.update(&input(&ids, &column, step)).expect("updated");
                if step % 4 == 0 {
                    let taken = states.take(&[from]).expect("taken");
                    states.merge(&[to], taken.as_ref()).expect("merged");
                }
            }
            let all: Vec<u32> = (0..groups as u32).collect();
            if step % 30 == 17 {
                // Each starts from what the other captured.
                let [of_sets, of_counted] =
                    [&sets, &counted].map(|own| captured(own.as_ref(), &all));
                sets = call.accumulator_of_whole(Some(&argument)).expect("a set");
                counted = call.accumulator(Some(&argument)).expect("a counted set");
                for (own, captured) in [(&mut sets, of_counted), (&mut counted, of_sets)] {
                    own.grow(groups);
                    own.restore(&all, &StateRows::new(&captured, "x")).expect("it fits");
                }
            }
            let [sets, counted] =
                [&sets, &counted].map(|states| show(&states.evaluate(&all).expect("evaluated")));
            assert_eq!(sets, counted, "{name}, step {step}");
        }
    }
}
