//! Windows of which only the first rows are wanted: each that is wanted is there, and each that is
//! there is one of those that leave without that.

use std::collections::BTreeMap;

use thalweg_core::DataType;
use thalweg_core::shim::SplitMix64;

use super::driver::{NUMBER, Row, Run, TIME, WORD, call, input_schema, run};
use crate::aggregate::AggregateCall;
use crate::sort::SortKey;
use crate::window::{LatePolicy, WindowAggregate, WindowAggregateSpec, WindowSpec, WindowTop};

const WANTED: usize = 3;

fn windows(window: WindowSpec, call: AggregateCall) -> WindowAggregate {
    let spec = WindowAggregateSpec {
        window,
        rowtime: TIME,
        zone: None,
        keys: vec![WORD],
        aggregates: vec![call],
        late: LatePolicy::Drop,
        input: input_schema(DataType::Timestamp(3)),
    };
    WindowAggregate::new(spec).expect("valid")
}

fn random_rows(seed: u64) -> Vec<Row> {
    let mut random = SplitMix64::new(seed);
    let row = |n: u64| Row {
        time: (n / 4) as i64 + random.below(4) as i64,
        word: Some(format!("word {}", random.below(30))),
        number: Some(random.below(50) as i32),
        ..Row::default()
    };
    (0..400).map(row).collect()
}

/// The values of each window, highest first. A line is "word|value|start|end|time".
fn values(lines: &[String]) -> BTreeMap<String, Vec<i64>> {
    let mut windows: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for line in lines {
        let fields: Vec<&str> = line.split('|').collect();
        let value = fields[1].parse().expect("a number");
        windows.entry(fields[2..].join("|")).or_default().push(value);
    }
    windows.values_mut().for_each(|values| values.sort_unstable_by(|a, b| b.cmp(a)));
    windows
}

#[test]
fn the_first_rows_of_each_window_leave() {
    let specs = [
        WindowSpec::Hop { slide_ms: 5, size_ms: 40, offset_ms: 1 },
        WindowSpec::Cumulate { step_ms: 4, max_size_ms: 16, offset_ms: 0 },
        WindowSpec::Tumble { size_ms: 20, offset_ms: 0 },
    ];
    // What is subtracted, and what is kept in a tree.
    let calls = [("COUNT", None), ("MAX", Some(NUMBER))];
    let schema = input_schema(DataType::Timestamp(3));
    for (seed, window) in (0..12).flat_map(|seed| specs.map(|spec| (seed, spec))) {
        for (name, argument) in calls {
            for partitions in [1, 3] {
                let how = Run {
                    partitions,
                    bundle_rows: 7,
                    delay_ms: 5,
                    early: false,
                    hurried: seed % 2 == 1,
                    restores: seed % 3 == 1,
                };
                let rows = random_rows(seed);
                let call = || call(name, false, argument, None);
                let key = SortKey { column: 1, descending: true, nulls_first: None };
                let top = WindowTop { order: vec![key], rows: WANTED };
                let some = windows(window, call()).with_top(&top).expect("an order");
                let all = run(&windows(window, call()), &rows, &schema, how).rows;
                let some = run(&some, &rows, &schema, how).rows;
                let what = format!("seed {seed}, {window:?}, {name}, {partitions} partitions");
                assert!(some.iter().all(|line| all.contains(line)), "{what}");
                let (all, some) = (values(&all), values(&some));
                assert_eq!(all.len(), some.len(), "{what}");
                for (window_of, all) in all {
                    let first = |values: &[i64]| values[..values.len().min(WANTED)].to_vec();
                    assert_eq!(first(&some[&window_of]), first(&all), "{what}, {window_of}");
                    // Other partitions may take a window over, so there may be more of them.
                    let gives_all = matches!(window, WindowSpec::Tumble { .. }) || how.restores;
                    assert!(gives_all || some[&window_of].len() <= WANTED * partitions, "{what}");
                }
            }
        }
    }
}
