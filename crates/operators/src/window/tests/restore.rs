//! Where a sequence is promised, a restore changes nothing of it, to the last bit of a sum of
//! floats: whenever it comes, and whatever the number of partitions before and behind it. And what
//! is damaged is refused.

use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::SplitMix64;
use thalweg_core::{
    Bundle, DataType, Exchange, Operator, OrderContract, Output, Partition, PartitionContext,
    Place, Progress, Stamps, Watermark, WatermarkBefore,
};

use super::driver::{
    FLAG, KEY, NUMBER, PRICE, Row, TIME, WEIGHT, WORD, batch, call, input_schema,
    running_watermarks,
};
use crate::aggregate::AggregateCall;
use crate::test_kit::{check_damaged, lines_of, reopened};
use crate::window::{
    CountWindowAggregate, CountWindowSpec, LatePolicy, SessionAggregate, SessionSpec,
    WindowAggregate, WindowAggregateSpec, WindowSpec,
};

const ORDER: OrderContract = OrderContract::Arrival;

/// Every kind of state that a window can hold.
pub(super) fn aggregates() -> Vec<AggregateCall> {
    let plain = [
        ("SUM", WEIGHT),
        ("AVG", WEIGHT),
        ("VAR_SAMP", WEIGHT),
        ("SUM", NUMBER),
        ("STDDEV_POP", NUMBER),
        ("AVG", PRICE),
        ("VAR_POP", PRICE),
        ("MIN", WORD),
        ("MAX", NUMBER),
        ("MAX", FLAG),
        ("FIRST_VALUE", WORD),
        ("LAST_VALUE", PRICE),
        ("LISTAGG", WORD),
        ("ARRAY_AGG", NUMBER),
        ("PERCENTILE", WEIGHT),
        ("APPROX_COUNT_DISTINCT", WORD),
    ];
    let distinct = [("SUM", WEIGHT), ("COUNT", WORD), ("LISTAGG", WORD), ("ARRAY_AGG", NUMBER)];
    let mut all = vec![call("COUNT", false, None, None), call("COUNT", false, None, Some(FLAG))];
    all.extend(plain.map(|(name, of)| call(name, false, Some(of), None)));
    all.extend(distinct.map(|(name, of)| call(name, true, Some(of), None)));
    all
}

pub(super) fn aligned(window: WindowSpec, aggregates: Vec<AggregateCall>) -> Box<dyn Operator> {
    aligned_by(&[KEY, WORD], window, aggregates)
}

fn aligned_by(
    keys: &[usize],
    window: WindowSpec,
    aggregates: Vec<AggregateCall>,
) -> Box<dyn Operator> {
    let spec = WindowAggregateSpec {
        window,
        rowtime: TIME,
        zone: None,
        keys: keys.to_vec(),
        aggregates,
        late: LatePolicy::Drop,
        input: input_schema(DataType::Timestamp(3)),
    };
    Box::new(WindowAggregate::new(spec).expect("a valid specification"))
}

/// Sets of values, and no count of rows next to them.
fn distinct_only() -> Vec<AggregateCall> {
    let of = [("COUNT", NUMBER), ("COUNT", WORD), ("SUM", NUMBER)];
    of.map(|(name, of)| call(name, true, Some(of), None)).to_vec()
}

pub(super) fn sessions(gap_ms: i64, keys: &[usize]) -> Box<dyn Operator> {
    let spec = SessionSpec {
        gap_ms,
        rowtime: TIME,
        zone: None,
        keys: keys.to_vec(),
        aggregates: aggregates(),
        late: LatePolicy::Drop,
        input: input_schema(DataType::Timestamp(3)),
    };
    Box::new(SessionAggregate::new(spec).expect("a valid specification"))
}

fn counts(size: u64, slide: u64) -> Box<dyn Operator> {
    let input = input_schema(DataType::Timestamp(3));
    let spec = CountWindowSpec { size, slide, keys: vec![KEY], aggregates: aggregates(), input };
    Box::new(CountWindowAggregate::new(spec).expect("a valid specification"))
}

fn operators() -> Vec<Box<dyn Operator>> {
    let hop = WindowSpec::Hop { slide_ms: 5, size_ms: 20, offset_ms: 1 };
    let cumulate = WindowSpec::Cumulate { step_ms: 4, max_size_ms: 16, offset_ms: 0 };
    let exact: Vec<_> = aggregates().into_iter().filter(AggregateCall::is_exact).collect();
    let invertible: Vec<_> =
        aggregates().into_iter().filter(AggregateCall::is_invertible).collect();
    vec![
        aligned(WindowSpec::Tumble { size_ms: 10, offset_ms: 0 }, aggregates()),
        aligned(WindowSpec::Tumble { size_ms: 10, offset_ms: 0 }, exact.clone()),
        aligned(WindowSpec::Tumble { size_ms: 10, offset_ms: 0 }, Vec::new()),
        aligned_by(&[], WindowSpec::Tumble { size_ms: 3, offset_ms: 0 }, aggregates()),
        aligned_by(&[], WindowSpec::Tumble { size_ms: 3, offset_ms: 0 }, distinct_only()),
        aligned(WindowSpec::Hop { slide_ms: 6, size_ms: 4, offset_ms: 1 }, exact.clone()),
        aligned(hop, aggregates()),
        aligned(hop, exact.clone()),
        aligned(hop, invertible.clone()),
        aligned(WindowSpec::Hop { slide_ms: 4, size_ms: 10, offset_ms: 0 }, aggregates()),
        aligned(cumulate, aggregates()),
        aligned(cumulate, invertible),
        sessions(3, &[KEY]),
        counts(4, 4),
        counts(7, 2),
        counts(2, 5),
    ]
}

pub(super) fn random_rows(random: &mut SplitMix64, count: usize) -> Vec<Row> {
    let mut now = 0;
    (0..count)
        .map(|_| {
            now += if random.below(40) == 0 { 50 } else { random.below(2) as i64 };
            let some = |random: &mut SplitMix64| random.below(6) > 0;
            Row {
                time: now - random.below(14) as i64,
                key: some(random).then(|| random.below(3) as i64),
                word: some(random).then(|| format!("{}", random.below(3))),
                number: some(random).then(|| random.below(9) as i32 - 4),
                flag: some(random).then(|| random.below(2) == 0),
                price: some(random).then(|| random.below(9_999) as i128),
                weight: some(random).then(|| 1.0 / (1.0 + random.below(30) as f64)),
                serial: 0,
            }
        })
        .collect()
}

/// Partitions of an operator, whose output becomes one sequence.
struct Bench<'a> {
    operator: &'a dyn Operator,
    partitions: Vec<Box<dyn Partition>>,
    lines: Vec<String>,
}

impl<'a> Bench<'a> {
    fn new(operator: &'a dyn Operator, count: usize) -> Self {
        let opening = |partition| PartitionContext { partition, partitions: count, order: ORDER };
        let open = |partition| operator.open(opening(partition)).expect("it opens");
        Bench { operator, partitions: (0..count).map(open).collect(), lines: Vec::new() }
    }

    fn rows(&mut self, bundle: &Bundle) {
        let count = self.partitions.len();
        let route = self.operator.route(bundle, count).expect("it routes");
        let mut caused = Vec::new();
        for share in route.shares(bundle.stamps.serial as usize % count) {
            let mut output = output();
            let partition = &mut self.partitions[share.partition];
            partition.rows(share.piece(bundle, 1), &mut output).expect("rows are taken");
            for emitted in output.emitted {
                let Place::Caused(causes) = emitted.place else { panic!("caused by rows") };
                caused.extend(causes.into_iter().zip(lines_of(&emitted.batch, None)));
            }
        }
        caused.sort_by_key(|&(cause, _)| cause);
        self.lines.extend(caused.into_iter().map(|(_, line)| line));
    }

    fn watermark(&mut self, watermark: i64) {
        let exchange = Exchange::new(self.partitions.len());
        let mut closed = Vec::new();
        for phase in 0..self.operator.watermark_phases() {
            for partition in &mut self.partitions {
                let watermark = Watermark(watermark);
                let call = WatermarkCall { watermark, phase, exchange: &exchange };
                let mut output = output();
                let progress = partition.watermark(&call, &mut output).expect("it is taken");
                assert_eq!(progress, Progress::Done, "there was time enough");
                for emitted in output.emitted {
                    let lines = lines_of(&emitted.batch, None);
                    let ends = match emitted.place {
                        Place::WindowEnds(ends) => ends,
                        Place::WindowEnd(end) => vec![end; lines.len()],
                        other => panic!("made at a watermark, not {other:?}"),
                    };
                    closed.extend(ends.into_iter().zip(lines));
                }
            }
        }
        closed.sort_by_key(|&(end, _)| end);
        self.lines.extend(closed.into_iter().map(|(_, line)| line));
    }
}

fn output() -> Output {
    Output::new(std::sync::Arc::new(thalweg_core::shim::ManualClock::default()), u64::MAX)
}

/// The sequence that an operator makes of rows, in bundles of random sizes.
fn sequence(operator: &dyn Operator, rows: &[Row], restores: Option<u64>) -> Vec<String> {
    let schema = input_schema(DataType::Timestamp(3));
    let watermarks = running_watermarks(rows, 6);
    let mut random = SplitMix64::new(5);
    let mut when = SplitMix64::new(restores.unwrap_or_default());
    let mut bench = Bench::new(operator, 1);
    let (mut from, mut serial) = (0, 0);
    while from < rows.len() {
        let to = (from + 1 + random.below(9) as usize).min(rows.len());
        let before = WatermarkBefore::Rows(watermarks[from..to].to_vec().into());
        let stamps =
            Stamps { ordinal: serial, serial, watermark_before: before, ..Stamps::first() };
        if restores.is_some() && when.below(3) == 0 {
            let count = 1 + when.below(4) as usize;
            bench.partitions = reopened(operator, &mut bench.partitions, count, ORDER)
                .expect("what was captured is restored");
        }
        bench.rows(&Bundle::new(batch(&rows[from..to], &schema), stamps));
        if random.below(3) > 0 {
            bench.watermark(watermarks[to]);
        }
        (from, serial) = (to, serial + 1);
    }
    bench.watermark(i64::MAX);
    bench.lines
}

#[test]
fn the_sequence_is_the_same_after_any_restore() {
    for (place, operator) in operators().iter().enumerate() {
        for seed in 0..4 {
            let rows = random_rows(&mut SplitMix64::new(seed), 150);
            let plain = sequence(operator.as_ref(), &rows, None);
            assert!(plain.len() > 20, "operator {place}: there are results");
            let restored = sequence(operator.as_ref(), &rows, Some(seed));
            assert_eq!(restored, plain, "{}, operator {place}, seed {seed}", operator.name());
        }
    }
}

#[test]
fn damaged_tables_are_refused() {
    let rows = random_rows(&mut SplitMix64::new(9), 60);
    let schema = input_schema(DataType::Timestamp(3));
    for operator in operators() {
        let mut bench = Bench::new(operator.as_ref(), 1);
        bench.rows(&Bundle::new(batch(&rows, &schema), Stamps::first()));
        bench.watermark(rows[20].time);
        check_damaged(operator.as_ref(), &mut bench.partitions);
    }
}

/// Windows with tables of their own capture what slices do: other windows resume from it.
#[test]
fn sliced_windows_resume_from_tables_of_windows() {
    let tumble = WindowSpec::Tumble { size_ms: 10, offset_ms: 0 };
    let hop = WindowSpec::Hop { slide_ms: 10, size_ms: 20, offset_ms: 0 };
    let schema = input_schema(DataType::Timestamp(3));
    let rows = random_rows(&mut SplitMix64::new(3), 120);
    let bundle = Bundle::new(batch(&rows, &schema), Stamps::first());
    let invertible = aggregates().into_iter().filter(AggregateCall::is_invertible).collect();
    for aggregates in [aggregates(), invertible, distinct_only(), Vec::new()] {
        let [of_tables, of_slices] = [tumble, hop].map(|window| {
            let tables = aligned(tumble, aggregates.clone());
            // Where aggregates are exact, one of the partitions takes all rows, whoever's keys they
            // have.
            let mut bench = Bench::new(tables.as_ref(), 3);
            bench.rows(&bundle);
            let other = aligned(window, aggregates.clone());
            let partitions = reopened(other.as_ref(), &mut bench.partitions, 1, ORDER);
            let partitions = partitions.expect("what was captured is restored");
            let mut other = Bench { operator: other.as_ref(), partitions, lines: Vec::new() };
            other.watermark(i64::MAX);
            other.lines
        });
        assert!(of_tables.len() > 5, "there are windows");
        assert_eq!(without_start(&of_slices), without_start(&of_tables));
    }
}

/// Slices that lie in two windows are none of windows that share none.
#[test]
fn windows_with_tables_refuse_slices_of_others() {
    let hop = aligned(WindowSpec::Hop { slide_ms: 10, size_ms: 20, offset_ms: 0 }, Vec::new());
    let mut bench = Bench::new(hop.as_ref(), 1);
    let rows = random_rows(&mut SplitMix64::new(3), 20);
    let schema = input_schema(DataType::Timestamp(3));
    bench.rows(&Bundle::new(batch(&rows, &schema), Stamps::first()));
    for size_ms in [10, 30] {
        let tumble = aligned(WindowSpec::Tumble { size_ms, offset_ms: 0 }, Vec::new());
        let reopened = reopened(tumble.as_ref(), &mut bench.partitions, 1, ORDER);
        assert!(reopened.err().expect("refused").message().contains("no window"), "{size_ms}");
    }
}

/// Lines without the start of their window, which is the last column but two.
fn without_start(lines: &[String]) -> Vec<String> {
    let without = |line: &String| {
        let mut cells: Vec<&str> = line.split(',').collect();
        cells.remove(cells.len() - 3);
        cells.join(",")
    };
    lines.iter().map(without).collect()
}
