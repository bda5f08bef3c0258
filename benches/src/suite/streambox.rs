//! StreamBox's benchmarks over records that come again and again, what their results must add up
//! to, and the loops by hand that say so.
//!
//! A lap is a whole number of seconds of event time, so windows of a second never hold records of
//! two laps, and join partners lie in one lap (its keys are unique there, and the next lap is
//! seconds away). So what laps must give can be added; tweets alone look back from the first second
//! of a lap to the last of the one before.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use hashbrown::{HashMap, HashSet};
use thalweg::{OrderContract, Report, Result, RunOptions, Sink};
use thalweg_workloads::streambox::grep::{self, LITERAL, Output, Search};
use thalweg_workloads::streambox::tweets::{score, stop_words};
use thalweg_workloads::streambox::{
    Job, RunSettings, Table, distinct, floors, join, netmon, tweets, wordcount,
};

use super::age_sinks::each;
use super::process::Mark;

/// StreamBox's six benchmarks.
pub const NAMES: [&str; 6] = ["grep", "wordcount", "join", "distinct", "netmon", "tweets"];

/// What the paper's authors reach within 1 s on 56 cores, in thousand records per second.
const PAPER_THOUSANDS: [f64; 6] = [38_500.0, 5_200.0, 5_200.0, 2_000.0, 1_000.0, 5_000.0];
const PAPER_CORES: f64 = 56.0;

/// Million records per second and core in the paper.
pub fn paper_per_core(name: &str) -> Option<f64> {
    let place = NAMES.iter().position(|known| *known == name)?;
    Some(PAPER_THOUSANDS[place] / 1000.0 / PAPER_CORES)
}

/// A benchmark with the records of one lap.
pub struct Benchmark {
    name: String,
    /// Word count has no SQL: it is a pipeline.
    pub job: Job,
    /// Partners of a join are at most so far apart.
    reach_ms: i64,
    /// Of tweets.
    threshold_per_mille: i64,
    stop_words: Vec<String>,
    /// What the loop by hand found in one lap, and what it took.
    lap: OnceLock<Lap>,
}

struct Lap {
    sum: u64,
    /// Of tweets alone.
    seconds: Vec<Second>,
    took: Duration,
}

impl Benchmark {
    /// At this rate for each table, with about this many times four million short records or one
    /// million texts. Texts of a kilobyte are more by the square: they are shared.
    pub fn new(name: &str, rate: u64, scale: f64) -> Benchmark {
        let times = |records: f64| (records * scale) as u64;
        let per_ms = |usual: u64| records_per_ms(usual, rate);
        let (mut reach_ms, mut threshold_per_mille, mut stopped) = (0, 0, Vec::new());
        let job = match name {
            "grep" => {
                let usual = grep::Settings::default();
                let records_per_ms = per_ms(usual.records_per_ms);
                // Laps share their texts.
                let laps = times(scale).max(1);
                let settings = grep::Settings { laps, records_per_ms, ..usual };
                grep::job(grep::table(&settings), Search::Literal, Output::Counts)
            }
            "wordcount" => {
                let usual = wordcount::Settings::with_records(0);
                let records_per_ms = per_ms(usual.records_per_ms);
                let records = whole_seconds(times(1e6), records_per_ms);
                let table =
                    wordcount::table(&wordcount::Settings { records, records_per_ms, ..usual });
                Job { tables: vec![table], functions: Vec::new(), sql: String::new() }
            }
            "join" => {
                let usual = join::Settings::unique(0);
                let records_per_ms = per_ms(usual.records_per_ms);
                let records = whole_seconds(times(2e6), records_per_ms);
                let settings = join::Settings { records, records_per_ms, ..usual };
                reach_ms = settings.reach_ms;
                join::job(join::tables(&settings), &settings)
            }
            "distinct" => {
                let usual = distinct::Settings::with_records(0);
                let records_per_ms = per_ms(usual.records_per_ms);
                let records = whole_seconds(times(4e6), records_per_ms);
                distinct::job(distinct::table(&distinct::Settings {
                    records,
                    records_per_ms,
                    ..usual
                }))
            }
            "netmon" => {
                let usual = netmon::Settings::with_records(0);
                let records_per_ms = per_ms(usual.records_per_ms);
                let records = whole_seconds(times(4e6), records_per_ms);
                netmon::job(netmon::table(&netmon::Settings { records, records_per_ms, ..usual }))
            }
            _ => {
                let usual = tweets::Settings::with_records(0);
                let records_per_ms = per_ms(usual.records_per_ms);
                let records = whole_seconds(times(1e6), records_per_ms);
                let settings =
                    tweets::Settings { windows_of_mood: 2, records, records_per_ms, ..usual };
                threshold_per_mille = settings.threshold_per_mille;
                stopped = stop_words(&settings);
                tweets::job(tweets::table(&settings), &settings)
            }
        };
        let (name, lap) = (name.to_owned(), OnceLock::new());
        Benchmark { name, job, reach_ms, threshold_per_mille, stop_words: stopped, lap }
    }

    /// The event time that one lap takes.
    pub fn period_ms(&self) -> i64 {
        let newest = |table: &Table| table.batches.iter().filter_map(newest_ms).max();
        self.job.tables.iter().filter_map(newest).max().unwrap_or(0) + 1
    }

    /// Runs it once over one lap; what the results add up to.
    ///
    /// # Errors
    /// Of the run.
    pub fn run(&self, workers: usize) -> Result<(Report, u64)> {
        let total = Total::of(&self.name);
        let (order, bundle_rows_max) = (OrderContract::Epoch, 65_536);
        let report = if self.name == "wordcount" {
            let options = RunOptions { workers, order, bundle_rows_max, ..RunOptions::default() };
            wordcount::run(&self.job.tables[0], options, total.sink())?
        } else {
            self.job.run(RunSettings { workers, order, bundle_rows_max }, total.sink())?
        };
        Ok((report, total.get()))
    }

    /// What the loop by hand takes for a lap.
    pub fn floor(&self) -> Duration {
        self.lap().took
    }

    fn lap(&self) -> &Lap {
        self.lap.get_or_init(|| {
            let (mark, tables) = (Mark::now(), &self.job.tables);
            let is_tweets = self.name == "tweets";
            let seconds = if is_tweets { self.seconds(&tables[0]) } else { Vec::new() };
            let sum = if is_tweets { 0 } else { self.sum(tables, true) };
            Lap { sum, seconds, took: mark.spent().processor_time }
        })
    }

    fn lap_rows(&self) -> Vec<u64> {
        self.job.tables.iter().map(|table| table.num_rows() as u64).collect()
    }

    /// What the results must add up to if this many rows of each table were read.
    pub fn expected(&self, given: &[u64]) -> u64 {
        self.windows() * self.of_laps(given)
    }

    /// How often the engine counts what the loops count once: the windows that a record is in.
    fn windows(&self) -> u64 {
        if matches!(self.name.as_str(), "grep" | "wordcount") { 30 } else { 1 }
    }

    fn of_laps(&self, given: &[u64]) -> u64 {
        let lap = self.lap_rows();
        let rows = given.iter().zip(&lap);
        let whole = rows.clone().map(|(given, lap)| given / lap).min().unwrap_or(0);
        if self.name == "tweets" {
            return self.turns(whole, given[0] - whole * lap[0]);
        }
        let mut sum = if whole > 0 { whole * self.lap().sum } else { 0 };
        // Tables may have been read differently far: two laps can be there in part.
        for begun in whole.. {
            let rows = given.iter().zip(&lap);
            let rows: Vec<u64> =
                rows.map(|(given, lap)| given.saturating_sub(begun * lap).min(*lap)).collect();
            if rows.iter().all(|&rows| rows == 0) {
                break;
            }
            let tables = self.job.tables.iter().zip(&rows);
            let tables: Vec<Table> = tables.map(|(table, rows)| prefix(table, *rows)).collect();
            sum += self.sum(&tables, false);
        }
        sum
    }

    fn sum(&self, tables: &[Table], is_whole: bool) -> u64 {
        match self.name.as_str() {
            // The floor looks into whole buffers.
            "grep" if is_whole => floors::grep_literal(&tables[0]),
            "grep" => {
                let texts = tables[0].batches.iter().map(|batch| batch.column(2).as_string_view());
                let found = |text: &Option<&str>| text.is_some_and(|text| text.contains(LITERAL));
                texts.map(|texts| texts.iter().filter(found).count() as u64).sum()
            }
            "wordcount" => floors::wordcount(&tables[0]),
            "join" => floors::join_unique(&tables[0], &tables[1], self.reach_ms),
            "distinct" => floors::distinct(&tables[0]),
            _ => floors::netmon(&tables[0]),
        }
    }

    /// Counts of the most frequent words of the seconds in which the mood turns: of whole laps and
    /// of this many rows behind them.
    fn turns(&self, laps: u64, rows: u64) -> u64 {
        let rest = self.seconds(&prefix(&self.job.tables[0], rows));
        let all = (0..laps).flat_map(|_| &self.lap().seconds).chain(&rest);
        let turned = |(before, second): &(&Second, &Second)| {
            (second.mean - before.mean).abs() >= self.threshold_per_mille
        };
        all.clone().zip(all.skip(1)).filter(turned).map(|(_, second)| second.frequent).sum()
    }

    fn seconds(&self, table: &Table) -> Vec<Second> {
        let stop_words: HashSet<&str> = self.stop_words.iter().map(String::as_str).collect();
        let (mut seconds, mut open) = (Vec::new(), OpenSecond::default());
        for batch in &table.batches {
            let times = batch.column(0).as_primitive::<TimestampMillisecondType>().values();
            for (time, text) in times.iter().zip(batch.column(1).as_string_view().iter().flatten())
            {
                if time / 1000 != open.second {
                    seconds.extend(open.close());
                    open.second = time / 1000;
                }
                open.add(text, &stop_words);
            }
        }
        seconds.extend(open.close());
        seconds
    }
}

/// A second of tweets.
struct Second {
    mean: i64,
    /// The counts of the ten most frequent words together.
    frequent: u64,
}

#[derive(Default)]
struct OpenSecond<'a> {
    second: i64,
    texts: i64,
    score: i64,
    words: HashMap<&'a str, u64>,
}

impl<'a> OpenSecond<'a> {
    fn add(&mut self, text: &'a str, stop_words: &HashSet<&str>) {
        self.texts += 1;
        self.score += score(text);
        for word in text.split(' ').filter(|word| !stop_words.contains(word)) {
            *self.words.entry(word).or_default() += 1;
        }
    }

    fn close(&mut self) -> Option<Second> {
        if self.texts == 0 {
            return None;
        }
        let mut counts: Vec<u64> = self.words.drain().map(|(_, count)| count).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let mean = self.score * 1000 / self.texts;
        (self.texts, self.score) = (0, 0);
        Some(Second { mean, frequent: counts.iter().take(10).sum() })
    }
}

/// Adds up a column of the results.
pub struct Total {
    column: Option<&'static str>,
    sum: Arc<AtomicU64>,
}

impl Total {
    /// Of the results of a benchmark.
    pub fn of(name: &str) -> Total {
        let column = match name {
            "join" => None,
            "netmon" => Some("mean_us"),
            _ => Some("n"),
        };
        Total { column, sum: Arc::default() }
    }

    /// Of a column.
    pub fn of_column(name: &'static str) -> Total {
        Total { column: Some(name), sum: Arc::default() }
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        // Relaxed: read when the job is over.
        self.sum.load(Ordering::Relaxed)
    }

    /// A sink that adds here.
    pub fn sink(&self) -> impl Sink + 'static {
        let (column, sum) = (self.column, Arc::clone(&self.sum));
        each("total", move |batch| {
            sum.fetch_add(added(batch, column), Ordering::Relaxed);
        })
    }
}

/// The sum of a column of whole numbers; without a column the number of rows.
fn added(batch: &RecordBatch, column: Option<&str>) -> u64 {
    let Some(column) = column.and_then(|name| batch.column_by_name(name)) else {
        return batch.num_rows() as u64;
    };
    let sum: i64 = match column.as_primitive_opt::<Int64Type>() {
        Some(longs) => longs.values().iter().sum(),
        None => column.as_primitive::<Int32Type>().values().iter().copied().map(i64::from).sum(),
    };
    sum as u64
}

/// Records in a millisecond of event time: as many as usual, but at low rates fewer, so that a
/// second of event time never takes longer than a second and windows close all the time.
fn records_per_ms(usual: u64, rate: u64) -> u64 {
    usual.min(rate / 1000).max(1)
}

/// About this many records, but as many as whole seconds have.
fn whole_seconds(records: u64, records_per_ms: u64) -> u64 {
    let of_second = records_per_ms * 1000;
    (records / of_second).max(1) * of_second
}

/// The first rows of a table; behind them batches are empty.
fn prefix(table: &Table, rows: u64) -> Table {
    let mut left = rows as usize;
    let batches = table.batches.iter().map(|batch| {
        let rows = left.min(batch.num_rows());
        left -= rows;
        batch.slice(0, rows)
    });
    Table { batches: batches.collect(), ..table.clone() }
}

fn newest_ms(batch: &RecordBatch) -> Option<i64> {
    batch.column(0).as_primitive::<TimestampMillisecondType>().values().iter().copied().max()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The engine over two laps and a bit, as one table.
    #[test]
    fn what_laps_must_give_is_what_the_engine_finds_over_all_of_them() {
        for name in ["distinct", "netmon", "tweets"] {
            let mut benchmark = Benchmark::new(name, 1_000, 0.008);
            let table = prefix(&benchmark.job.tables[0], 7_000);
            benchmark.job.tables[0] = table.clone();
            let period_ms = 7_000;
            let given = 2 * 7_000 + 3_300;
            let expected = benchmark.expected(&[given]);
            let laps = (0..3).flat_map(|lap| {
                let moved = |batch: &RecordBatch| crate::source::shifted(batch, lap * period_ms);
                table.batches.iter().map(moved).collect::<Vec<_>>()
            });
            let all = Table { batches: laps.collect(), ..table.clone() };
            benchmark.job.tables[0] = prefix(&all, given);
            assert_eq!(benchmark.run(2).expect("it runs").1, expected, "{name}");
        }
    }

    #[test]
    fn a_table_that_is_further_ahead_finds_no_partners() {
        let benchmark = Benchmark::new("join", 1_000, 0.002);
        let lap = benchmark.job.tables[0].num_rows() as u64;
        let one = benchmark.expected(&[lap, lap]);
        assert!(one > lap / 4, "{one}");
        assert_eq!(benchmark.expected(&[2 * lap, lap]), one);
        assert_eq!(benchmark.expected(&[2 * lap, 2 * lap]), 2 * one);
    }

    #[test]
    fn the_paper_says_how_much_a_core_does() {
        assert_eq!(paper_per_core("grep"), Some(0.6875));
        assert_eq!(paper_per_core("q5"), None);
    }
}
