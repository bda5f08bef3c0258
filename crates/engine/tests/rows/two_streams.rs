//! Joins of rows, and rows of two streams taken together, against loops over all pairs.

use std::collections::BTreeMap;

use thalweg::pipeline::{JoinKind, Pipeline, Window};
use thalweg::rows::{KeyedRows, Rows};
use thalweg::{OrderContract, Result, RunOptions};
use thalweg_core::shim::SplitMix64;

#[path = "../../examples/buyers.rs"]
mod buyers;

/// Time, key, number.
type Numbered = (i64, u32, u32);

fn rows(seed: u64, count: u32) -> Vec<Numbered> {
    let mut random = SplitMix64::new(seed);
    let mut time_ms = 0;
    let mut row = |number| {
        time_ms += 1 + random.below(30) as i64;
        (time_ms, random.below(6) as u32, number)
    };
    (0..count).map(&mut row).collect()
}

fn options(workers: usize) -> RunOptions {
    RunOptions { workers, bundle_rows_max: 7, pin_workers: false, ..RunOptions::default() }
}

fn read(pipeline: &Pipeline, name: &str, rows: &[Numbered]) -> Rows<Numbered> {
    pipeline.read_timed_rows(name, rows.to_vec(), |row: &Numbered| row.0, 0)
}

fn keyed(rows: Rows<Numbered>) -> KeyedRows<Numbered, u32> {
    rows.key_by(16, |row: &Numbered| row.1)
}

type Pair = (Option<Numbered>, Option<Numbered>);

/// All pairs that meet, and the rows that stay alone.
fn pairs(
    kind: JoinKind,
    (left, right): (&[Numbered], &[Numbered]),
    meets: impl Fn(&Numbered, &Numbered) -> bool,
) -> Vec<Pair> {
    let meets = |l: &Numbered, r: &Numbered| l.1 == r.1 && meets(l, r);
    let mut pairs: Vec<Pair> = Vec::new();
    for l in left {
        let partners = right.iter().filter(|r| meets(l, r));
        let own: Vec<Pair> = partners.map(|r| (Some(*l), Some(*r))).collect();
        match (kind, own.is_empty()) {
            (JoinKind::Semi, false) | (JoinKind::Anti, true) => pairs.push((Some(*l), None)),
            (JoinKind::Semi | JoinKind::Anti, _) => {}
            (JoinKind::Left | JoinKind::Full, true) => pairs.push((Some(*l), None)),
            _ => pairs.extend(own),
        }
    }
    if kind.pads_right_rows() {
        let alone = right.iter().filter(|r| !left.iter().any(|l| meets(l, r)));
        pairs.extend(alone.map(|r| (None, Some(*r))));
    }
    pairs.sort();
    pairs
}

/// Runs what is built over two streams, and sorts its rows.
fn run<T: thalweg::rows::Row + Ord>(
    workers: usize,
    (left, right): (&[Numbered], &[Numbered]),
    build: impl FnOnce(KeyedRows<Numbered, u32>, KeyedRows<Numbered, u32>) -> Result<Rows<T>>,
) -> Vec<T> {
    let pipeline = Pipeline::new();
    let (left, right) = (read(&pipeline, "left", left), read(&pipeline, "right", right));
    let collected = build(keyed(left), keyed(right)).expect("it fits").collect("rows");
    pipeline.run(options(workers)).expect("the job runs");
    let mut rows = collected.rows();
    rows.sort();
    rows
}

#[test]
fn rows_meet_within_a_time_and_in_windows() {
    let (left, right) = (rows(1, 120), rows(2, 100));
    let both = (left.as_slice(), right.as_slice());
    for workers in [1, 2, 4] {
        for kind in JoinKind::ALL {
            let within = run(workers, both, |left, right| {
                let right = (right, |row: &Numbered| row.0);
                left.join_within("within", kind, right, |row| row.0, (-20, 35))
            });
            let expected = pairs(kind, both, |l, r| (r.0 - 20..=r.0 + 35).contains(&l.0));
            assert!(within == expected && within.len() > 10, "{kind:?} within, {workers} workers");
            let windows = run(workers, both, |left, right| {
                let right = (right, |row: &Numbered| row.0);
                left.join_windows("windows", kind, right, |row| row.0, Window::tumbling(200))
            });
            let expected = pairs(kind, both, |l, r| l.0 / 200 == r.0 / 200);
            assert!(
                windows == expected && windows.len() > 10,
                "{kind:?} windows, {workers} workers"
            );
        }
    }
}

#[test]
fn tables_are_read_before_the_rows_that_look_them_up() {
    let (left, right) = (rows(3, 150), rows(4, 3));
    let both = (left.as_slice(), right.as_slice());
    for workers in [1, 2, 4] {
        let inner = run(workers, both, |left, right| left.hash_join("table", right));
        let joined = run(workers, both, |left, right| left.join("join", right));
        let expected = pairs(JoinKind::Inner, both, |_, _| true);
        let sides = |(left, right): &Pair| left.zip(*right).expect("both sides");
        let expected: Vec<_> = expected.iter().map(sides).collect();
        assert_eq!((&inner, &joined), (&expected, &expected), "{workers} workers");
        let outer = run(workers, both, |left, right| left.left_hash_join("table", right));
        let expected = pairs(JoinKind::Left, both, |_, _| true);
        assert!(expected.len() > inner.len());
        let outer: Vec<Pair> = outer.into_iter().map(|(left, right)| (Some(left), right)).collect();
        assert_eq!(outer, expected, "{workers} workers");
    }
}

#[test]
fn a_table_of_its_own_source_is_refused() {
    let pipeline = Pipeline::new();
    let both = read(&pipeline, "both", &rows(5, 10)).shared();
    let refused = keyed(both.clone()).hash_join("table", keyed(both)).err().expect("a circle");
    assert!(refused.to_string().contains("'both' feeds 'table of table'"), "{refused}");
    // Two tables that wait for each other's rows.
    let (one, other) =
        (read(&pipeline, "one", &[]).shared(), read(&pipeline, "other", &[]).shared());
    keyed(one.clone()).hash_join("first", keyed(other.clone())).expect("one waits for the other");
    assert!(keyed(other).hash_join("second", keyed(one)).is_err());
}

#[test]
fn groups_of_two_streams_have_the_rows_of_both() {
    let (left, right) = (rows(6, 130), rows(7, 90));
    let both = (left.as_slice(), right.as_slice());
    let mut groups: BTreeMap<(i64, u32), (Vec<u32>, Vec<u32>)> = BTreeMap::new();
    left.iter().for_each(|row| groups.entry((row.0 / 150, row.1)).or_default().0.push(row.2));
    right.iter().for_each(|row| groups.entry((row.0 / 150, row.1)).or_default().1.push(row.2));
    let expected: Vec<_> = groups.iter().map(|(key, group)| (*key, group.clone())).collect();
    let mut of_keys: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    left.iter().for_each(|row| of_keys.entry(row.1).or_default().0 += 1);
    right.iter().for_each(|row| of_keys.entry(row.1).or_default().1 += 1);
    let numbers = |rows: Vec<Numbered>| rows.into_iter().map(|row| row.2).collect::<Vec<_>>();
    for workers in [1, 2, 4] {
        let windows = run(workers, both, |left, right| {
            let right = (right, |row: &Numbered| row.0);
            let window = Window::tumbling(150);
            left.co_group_windows(
                "groups",
                right,
                |row| row.0,
                window,
                move |key, (start, _), group, out| {
                    out.emit(((start / 150, *key), (numbers(group.0), numbers(group.1))));
                },
            )
        });
        assert_eq!(windows, expected, "{workers} workers");
        let whole = run(workers, both, |left, right| {
            left.co_group("groups", right, |key, left, right, out| {
                out.emit((*key, (left.len(), right.len())));
            })
        });
        assert_eq!(whole, of_keys.clone().into_iter().collect::<Vec<_>>(), "{workers} workers");
    }
}

#[test]
fn orders_meet_the_count_of_persons_of_the_age_of_their_buyer() {
    use buyers::{Order, Person, enrich};
    let mut random = SplitMix64::new(8);
    let mut ages =
        |count: usize| -> Vec<u32> { (0..count).map(|_| random.below(30) as u32).collect() };
    let persons: Vec<Person> =
        ages(100).into_iter().map(|age| Person { name: "a person".to_owned(), age }).collect();
    let orders: Vec<Order> =
        (0..).zip(ages(500)).map(|(id, age_of_buyer)| Order { id, age_of_buyer }).collect();
    let count = |age| persons.iter().filter(|person| person.age == age).count() as u64;
    let enriched = orders.iter().map(|order| (order.id, count(order.age_of_buyer)));
    let expected: Vec<(u64, u64)> = enriched.filter(|(_, count)| *count > 0).collect();
    for workers in [1, 2, 4] {
        let pipeline = Pipeline::new();
        let enriched = enrich(&pipeline, persons.clone(), orders.clone()).expect("it fits");
        let order = OrderContract::Arrival;
        pipeline.run(RunOptions { order, ..options(workers) }).expect("the job runs");
        assert_eq!(enriched.rows(), expected, "{workers} workers");
    }
}
