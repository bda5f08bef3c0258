//! Captures of what has changed, read while rows go on, are what whole ones are.

use thalweg_core::shim::SplitMix64;
use thalweg_core::{DataType, Watermark, WatermarkBefore};

use super::driver::{Row, batch, input_schema, running_watermarks};
use super::restore::{aggregates, aligned, random_rows};
use crate::aggregate::AggregateCall;
use crate::test_kit::{DriveOptions, Event, check_captures};
use crate::window::WindowSpec;

/// Some rows at a time, each time followed by their watermark.
fn script(rows: &[Row], random: &mut SplitMix64) -> Vec<Event> {
    let schema = input_schema(DataType::Timestamp(3));
    let watermarks = running_watermarks(rows, 6);
    let (mut script, mut from) = (Vec::new(), 0);
    while from < rows.len() {
        let to = (from + 1 + random.below(12) as usize).min(rows.len());
        let watermark_before = WatermarkBefore::Rows(watermarks[from..to].to_vec().into());
        let batch = batch(&rows[from..to], &schema);
        script.push(Event::Rows { lane: 0, batch, watermark_before });
        script.push(Event::Watermark(Watermark(watermarks[to])));
        from = to;
    }
    script
}

#[test]
fn changes_put_together_are_the_whole() {
    let all = aggregates();
    let of = |fits: fn(&AggregateCall) -> bool| all.iter().filter(move |call| fits(call)).cloned();
    let hop = WindowSpec::Hop { slide_ms: 5, size_ms: 40, offset_ms: 1 };
    let uneven = WindowSpec::Hop { slide_ms: 6, size_ms: 20, offset_ms: 0 };
    let cumulate = WindowSpec::Cumulate { step_ms: 4, max_ms: 16, offset_ms: 0 };
    let tumble = WindowSpec::Tumble { size_ms: 3, offset_ms: 0 };
    let gaps = WindowSpec::Hop { slide_ms: 6, size_ms: 4, offset_ms: 1 };
    for (place, window) in [hop, uneven, cumulate, tumble, gaps].into_iter().enumerate() {
        let exact = of(AggregateCall::is_exact).collect();
        let invertible = of(AggregateCall::is_invertible).collect();
        for calls in [all.clone(), exact, invertible] {
            let operator = aligned(window, calls);
            for seed in 0..6 {
                let mut random = SplitMix64::new(seed);
                let script = script(&random_rows(&mut random, 250), &mut random);
                let partitions = 1 + seed as usize % 3;
                let bundle_rows = [1, 5, 100, 7, 1][place];
                let options =
                    DriveOptions { partitions, bundle_rows, seed, ..DriveOptions::default() };
                check_captures(operator.as_ref(), &script, &options);
            }
        }
    }
}
