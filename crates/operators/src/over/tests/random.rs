//! Random streams, out of order and with late rows, against plain loops.

use thalweg_core::shim::SplitMix64;

use super::fixture::{MINUS_ONE, N, Row, aggregate, function, lines, operator, script, spec};
use super::reference::{fired, frame};
use crate::over::{Frame, OverAggregate, OverCall, OverFunction, OverSpec, OverTime};
use crate::test_kit::{DriveOptions, check_operator, drive};

const SEEDS: u64 = 3;
pub(super) const DELAY_MS: i64 = 12;

pub(super) fn random_rows(seed: u64, count: usize) -> Vec<Row> {
    let mut random = SplitMix64::new(seed);
    let mut now = 0;
    let mut row = || {
        // Sometimes time jumps, so that keys are forgotten and come back.
        now += if random.below(40) == 0 { 60 } else { random.below(4) as i64 };
        let time = now - random.below(26) as i64;
        let key = random.below(5);
        let key = (key > 0).then(|| format!("a key that is not inlined, {key}"));
        let n = (random.below(5) > 0).then(|| random.below(20) as i64 - 10);
        Row { time, key, n }
    };
    (0..count).map(|_| row()).collect()
}

fn befores(rows: &[Row], step_ms: i64) -> Vec<i64> {
    let (mut last, mut befores) = (i64::MIN, Vec::new());
    for row in rows {
        befores.push(last);
        let watermark = row.time - DELAY_MS;
        if last == i64::MIN || watermark > last + step_ms {
            last = watermark;
        }
    }
    befores
}

type Expect = dyn Fn(&[Row], usize) -> Vec<Option<i64>>;

/// What leaves is, key by key, what plain loops give, in their order.
fn check(of: impl Fn() -> OverSpec, late_by_key: bool, expect: &Expect) {
    for seed in 0..SEEDS {
        let step_ms = [0, 5][seed as usize % 2];
        let rows = random_rows(seed, 400);
        let operator = OverAggregate::new(of()).unwrap();
        let reach_ms = of().reach_ms();
        let (keys, late) = fired(&rows, &befores(&rows, step_ms), late_by_key, reach_ms);
        for epoch_rows in [1, 17] {
            let what = format!("seed {seed}, a watermark every {epoch_rows} rows");
            let script = script(&rows, DELAY_MS, step_ms, epoch_rows);
            let driven = check_operator(&operator, &script);
            assert_eq!(driven.late, late, "{what}");
            assert!(late > 0, "{what}: nothing was late");
            let lines = lines(&driven);
            for (key, parts) in &keys {
                let key = key.as_deref().unwrap_or("-");
                let start = format!("{key} ");
                let of_key = |line: &&String| {
                    line.split_once(' ').is_some_and(|(_, rest)| rest.starts_with(&start))
                };
                let got: Vec<&String> = lines.iter().filter(of_key).collect();
                let mut expected = Vec::new();
                for part in parts {
                    for (at, row) in part.iter().enumerate() {
                        let mut values = vec![row.n];
                        values.extend(expect(part, at));
                        let text = |value: Option<i64>| value.map_or("-".into(), |v| v.to_string());
                        let values: Vec<String> = values.into_iter().map(text).collect();
                        expected.push(format!("{} {key} {}", row.time, values.join(" ")));
                    }
                }
                let expected: Vec<&String> = expected.iter().collect();
                assert_eq!(got, expected, "{what}, key {key}");
            }
        }
    }
}

fn all_aggregates() -> Vec<OverCall> {
    let mut calls: Vec<OverCall> =
        ["SUM", "COUNT", "MIN", "MAX", "AVG"].iter().map(|name| aggregate(name, Some(N))).collect();
    calls.push(aggregate("COUNT", None));
    calls.push(function(OverFunction::FirstValue(N)));
    calls.push(function(OverFunction::LastValue(N)));
    calls
}

fn expect_aggregates(of: Frame) -> impl Fn(&[Row], usize) -> Vec<Option<i64>> {
    move |part, at| {
        let values = frame(part, at, of);
        let there: Vec<i64> = values.iter().copied().flatten().collect();
        let any = |value: i64| (!there.is_empty()).then_some(value);
        let sum: i64 = there.iter().sum();
        vec![
            any(sum),
            Some(there.len() as i64),
            there.iter().copied().min(),
            there.iter().copied().max(),
            any(sum / there.len().max(1) as i64),
            Some(values.len() as i64),
            there.first().copied(),
            there.last().copied(),
        ]
    }
}

#[test]
fn aggregates_see_their_frames() {
    let frames = [
        Frame::Rows { preceding: None },
        Frame::Rows { preceding: Some(0) },
        Frame::Rows { preceding: Some(3) },
        Frame::Range { preceding_ms: None },
        Frame::Range { preceding_ms: Some(0) },
        Frame::Range { preceding_ms: Some(9) },
    ];
    for of in frames {
        check(|| spec(of, all_aggregates()), of.is_bounded(), &expect_aggregates(of));
    }
}

#[test]
fn neighbors_and_numbers_look_at_all_rows_of_the_key() {
    let lag = |offset, default| function(OverFunction::Lag { column: N, offset, default });
    let lead = |offset, default| function(OverFunction::Lead { column: N, offset, default });
    let calls = || {
        vec![
            function(OverFunction::RowNumber),
            lead(2, Some(MINUS_ONE)),
            function(OverFunction::Rank),
            lag(1, None),
            function(OverFunction::DenseRank),
            lag(3, Some(MINUS_ONE)),
            lead(0, None),
            lead(1, None),
            lag(0, None),
        ]
    };
    let neighbor = |part: &[Row], at: Option<usize>, default| {
        at.and_then(|at| part.get(at)).map_or(default, |row| row.n)
    };
    let expect = move |part: &[Row], at: usize| {
        let earlier = part.iter().filter(|row| row.time < part[at].time);
        let mut times: Vec<i64> = earlier.map(|row| row.time).collect();
        let rank = times.len() as i64 + 1;
        times.dedup();
        vec![
            Some(at as i64 + 1),
            neighbor(part, Some(at + 2), Some(-1)),
            Some(rank),
            neighbor(part, at.checked_sub(1), None),
            Some(times.len() as i64 + 1),
            neighbor(part, at.checked_sub(3), Some(-1)),
            part[at].n,
            neighbor(part, Some(at + 1), None),
            part[at].n,
        ]
    };
    let frame = Frame::Range { preceding_ms: None };
    check(|| spec(frame, calls()), false, &expect);
    // Without LEAD.
    let calls = || vec![lag(1, None), function(OverFunction::RowNumber)];
    let expect = move |part: &[Row], at: usize| {
        vec![neighbor(part, at.checked_sub(1), None), Some(at as i64 + 1)]
    };
    check(|| spec(frame, calls()), false, &expect);
}

#[test]
fn in_processing_time_rows_leave_as_they_come() {
    let rows = random_rows(77, 300);
    for of in [Frame::Rows { preceding: Some(2) }, Frame::Range { preceding_ms: None }] {
        let spec = OverSpec { time: OverTime::Arrival, ..spec(of, all_aggregates()) };
        let driven =
            check_operator(&OverAggregate::new(spec).unwrap(), &script(&rows, DELAY_MS, 0, 50));
        let got = lines(&driven);
        for (at, row) in rows.iter().enumerate() {
            let of_key = rows[..=at].iter().filter(|other| other.key == row.key);
            let before: Vec<Row> =
                of_key.enumerate().map(|(n, row)| Row { time: n as i64, ..row.clone() }).collect();
            let values = expect_aggregates(of)(&before, before.len() - 1);
            let text = |value: Option<i64>| value.map_or("-".to_owned(), |v| v.to_string());
            let values: Vec<String> = values.into_iter().map(text).collect();
            let tail = format!(" {}", values.join(" "));
            assert!(got[at].starts_with(&format!("{} ", row.time)), "row {at} out of order");
            assert!(got[at].ends_with(&tail), "{of:?}, row {at}: {} and not {tail}", got[at]);
        }
    }
}

#[test]
fn keys_of_a_range_go_with_their_last_row() {
    let row = |n: i64| Row { time: n, key: Some(format!("key {n}")), n: Some(n) };
    let calls = vec![aggregate("SUM", Some(N)), aggregate("MAX", Some(N))];
    let of = operator(Frame::Range { preceding_ms: Some(50) }, calls);
    let bytes = |count: i64| {
        let rows: Vec<Row> = (0..count).map(row).collect();
        let driven = drive(&of, &script(&rows, 0, 0, 100), &DriveOptions::default()).unwrap();
        assert_eq!(lines(&driven).len(), count as usize);
        driven.peak_state_bytes
    };
    let (few, many) = (bytes(2_000), bytes(20_000));
    assert!(many < few + few / 4, "{few} bytes after 2,000 keys, {many} after 20,000");
}
