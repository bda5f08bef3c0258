//! The benchmarks row by row, in plain collections.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_workloads::streambox::grep::{LITERAL, Output, Search};
use thalweg_workloads::streambox::tweets::{self, score, stop_words};

use crate::rows::{Cell, Row};
use Cell::{Number, Text};

/// The ends of the windows of 30 s, each a second behind the other, that a time lies in.
fn sliding_ends(time: i64) -> impl Iterator<Item = i64> {
    let first = time.div_euclid(1000) * 1000 + 1000;
    (0..30).map(move |slide| first + slide * 1000)
}

fn second_end(time: i64) -> i64 {
    time.div_euclid(1000) * 1000 + 1000
}

/// `https?://[a-z0-9.]+/[a-z0-9/]+`, by hand.
fn has_address(text: &str) -> bool {
    let fits = |extra: &'static [u8]| {
        move |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || extra.contains(byte)
    };
    ["http://", "https://"].iter().any(|scheme| {
        text.match_indices(scheme).any(|(at, _)| {
            let rest = &text.as_bytes()[at + scheme.len()..];
            let host = rest.iter().copied().take_while(fits(b".")).count();
            host > 0 && rest.get(host) == Some(&b'/') && rest.get(host + 1).is_some_and(fits(b"/"))
        })
    })
}

/// Every record with each of its windows, or how many a window has.
pub fn grep(records: &[Row], search: Search, output: Output) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut windows: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for record in records {
        let text = record[2].text();
        let found = match search {
            Search::Literal => text.match_indices(LITERAL).next().is_some(),
            Search::Regex => has_address(text),
        };
        if !found {
            continue;
        }
        for end in sliding_ends(record[0].number()) {
            rows.push(vec![Number(end), record[1].clone()]);
            let window = windows.entry(end).or_default();
            *window = (window.0 + 1, window.1 + record[1].number());
        }
    }
    match output {
        Output::Rows => rows,
        Output::Counts => windows
            .into_iter()
            .map(|(end, (count, ids))| vec![Number(end), Number(count), Number(ids)])
            .collect(),
    }
}

/// `word`, `n`, and the window.
pub fn wordcount(records: &[Row]) -> Vec<Row> {
    let mut counts: BTreeMap<(i64, &str), i64> = BTreeMap::new();
    for record in records {
        for word in record[1].text().split(' ').filter(|word| !word.is_empty()) {
            for end in sliding_ends(record[0].number()) {
                *counts.entry((end, word)).or_default() += 1;
            }
        }
    }
    let row = |((end, word), count): ((i64, &str), i64)| {
        let text = Text(word.to_owned());
        vec![text, Number(count), Number(end - 30_000), Number(end), Number(end - 1)]
    };
    counts.into_iter().map(row).collect()
}

/// Every left record with every right one.
pub fn join(sides: &[Vec<Row>; 2], reach_ms: i64) -> Vec<Row> {
    let mut rights: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for row in &sides[1] {
        rights.entry(row[1].number()).or_default().push(row[0].number());
    }
    let mut pairs = Vec::new();
    for row in &sides[0] {
        let (time, id) = (row[0].number(), row[1].number());
        for &other in rights.get(&id).into_iter().flatten() {
            if (time - other).abs() <= reach_ms {
                pairs.push(vec![Number(id), Number(time), Number(other)]);
            }
        }
    }
    pairs
}

/// `window_end`, `n`.
pub fn distinct(records: &[Row]) -> Vec<Row> {
    let mut seen: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
    for record in records {
        seen.entry(second_end(record[0].number())).or_default().insert(record[1].number());
    }
    seen.into_iter().map(|(end, urls)| vec![Number(end), Number(urls.len() as i64)]).collect()
}

/// `window_end`, `src`, `dst`, the mean, and how many.
pub fn netmon(records: &[Row]) -> Vec<Row> {
    let mut sums: BTreeMap<(i64, i64, i64), (i64, i64)> = BTreeMap::new();
    for record in records {
        let [time, src, dst, rtt_us] = [0, 1, 2, 3].map(|column| record[column].number());
        let sum = sums.entry((second_end(time), src, dst)).or_default();
        *sum = (sum.0 + rtt_us, sum.1 + 1);
    }
    sums.into_iter()
        .map(|((end, src, dst), (sum, count))| {
            vec![Number(end), Number(src), Number(dst), Number(sum / count), Number(count)]
        })
        .collect()
}

/// `window_end`, `mean`, `place`, `word`, `n`.
pub fn tweets(records: &[Row], settings: &tweets::Settings) -> Vec<Row> {
    let stop_words = stop_words(settings);
    let mut scores: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    let mut counts: BTreeMap<i64, BTreeMap<String, i64>> = BTreeMap::new();
    for record in records {
        let (end, text) = (second_end(record[0].number()), record[1].text());
        let sum = scores.entry(end).or_default();
        *sum = (sum.0 + score(text), sum.1 + 1);
        for word in text.split(' ').filter(|word| !stop_words.iter().any(|stop| stop == word)) {
            *counts.entry(end).or_default().entry(word.to_owned()).or_default() += 1;
        }
    }
    let means: Vec<(i64, i64)> =
        scores.into_iter().map(|(end, (sum, count))| (end, sum * 1000 / count)).collect();
    let mut rows = Vec::new();
    for both in means.windows(2) {
        let (end, mean) = both[1];
        if (mean - both[0].1).abs() < settings.threshold_per_mille {
            continue;
        }
        let mut words: Vec<(i64, &String)> =
            counts[&end].iter().map(|(word, count)| (-count, word)).collect();
        words.sort();
        for (place, (count, word)) in words.into_iter().take(10).enumerate() {
            let place = Number(place as i64 + 1);
            rows.push(vec![Number(end), Number(mean), place, Text(word.clone()), Number(-count)]);
        }
    }
    rows
}
