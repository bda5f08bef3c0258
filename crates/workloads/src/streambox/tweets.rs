//! Tweets: which words are the most frequent in the seconds in which the mood turns.
//!
//! Two branches of one stream meet again, as in the paper: the mean score of each window, of which
//! the windows stay whose mean differs from the one before by at least
//! [`Settings::threshold_per_mille`]; and the ten most frequent words of each window that are no
//! stop words.
//!
//! The mood flips every [`Settings::windows_of_mood`] windows, and a tenth of the words carry it:
//! which windows leave is known in advance.

use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use thalweg::session::ScalarFunction;
use thalweg::{Column, DataType, TableSchema};
use thalweg_core::search::for_each_place;

use super::text::Vocabulary;
use super::{Job, RECORDS_PER_MS, Table, batches_of, time_column, times};
use crate::random::Random;

const STREAM_TWEET: u64 = 0xB1;

/// Words of a mood, and how many points each is worth.
const LEXICON: [(&str, i64); 16] = [
    ("lovely", 3),
    ("good", 2),
    ("happy", 3),
    ("great", 3),
    ("thanks", 2),
    ("nice", 2),
    ("win", 2),
    ("smile", 2),
    ("awful", -3),
    ("bad", -2),
    ("sad", -2),
    ("hate", -3),
    ("sorry", -1),
    ("lost", -1),
    ("broken", -2),
    ("angry", -3),
];

/// The most frequent words, which say nothing.
pub const STOP_WORDS: usize = 8;

/// The words of a tweet, and their number.
const WORDS: u64 = 14;

/// What to generate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Records in all.
    pub records: u64,
    /// Records in a millisecond of event time.
    pub records_per_ms: u64,
    /// After this many seconds the mood flips.
    pub windows_of_mood: i64,
    /// A window stays if its mean score differs from the one before by this many thousandths.
    pub threshold_per_mille: i64,
}

impl Settings {
    /// This many records, at a tenth of the paper's rate so that a run has several windows.
    pub fn with_records(records: u64) -> Self {
        Settings {
            seed: 7,
            records,
            records_per_ms: RECORDS_PER_MS / 10,
            windows_of_mood: 20,
            threshold_per_mille: 2000,
        }
    }

    fn vocabulary(&self) -> Vocabulary {
        Vocabulary::new(self.seed, 20_000)
    }
}

/// A word of at most eight bytes as a number, so that one comparison distinguishes it from another.
/// Zeros are behind it.
const fn packed(word: &[u8]) -> u64 {
    let (mut packed, mut place) = (0, 0);
    while place < word.len() {
        packed |= (word[place] as u64) << (8 * place);
        place += 1;
    }
    packed
}

/// A table of the lexicon's words as numbers with their points, in which each has a place of its
/// own. Others are 0.
const POINTS: [(u64, i64); PLACES] = {
    let (mut table, mut word) = ([(0, 0); PLACES], 0);
    while word < LEXICON.len() {
        let packed = packed(LEXICON[word].0.as_bytes());
        table[place_of(packed, FACTOR)] = (packed, LEXICON[word].1);
        word += 1;
    }
    table
};

/// Places in the table.
const PLACES: usize = 64;

/// The first odd factor of a sequence with which no two words have the same place.
const FACTOR: u64 = {
    let mut factor = 0x9E37_79B9_7F4A_7C15_u64;
    while collides(factor) {
        factor = factor.wrapping_mul(0x5851_F42D_4C95_7F2D);
    }
    factor
};

const fn place_of(packed: u64, factor: u64) -> usize {
    (packed.wrapping_mul(factor) >> (64 - PLACES.ilog2())) as usize
}

const fn collides(factor: u64) -> bool {
    let (mut taken, mut word) = ([false; PLACES], 0);
    while word < LEXICON.len() {
        let place = place_of(packed(LEXICON[word].0.as_bytes()), factor);
        if taken[place] {
            return true;
        }
        taken[place] = true;
        word += 1;
    }
    false
}

/// What the words of a text are worth together.
pub fn score(text: &str) -> i64 {
    let text = text.as_bytes();
    let (mut total, mut from) = (0, 0);
    for_each_place(text, b' ', |end| {
        total += points(&text[from..], end - from);
        from = end + 1;
    });
    total + points(&text[from..], text.len() - from)
}

/// What the word of this many bytes in front of a text is worth.
#[inline]
fn points(text: &[u8], bytes: usize) -> i64 {
    if !(1..=8).contains(&bytes) {
        return 0;
    }
    let word = match text.first_chunk::<8>() {
        Some(eight) => u64::from_le_bytes(*eight) & (u64::MAX >> (64 - 8 * bytes)),
        None => packed(&text[..bytes]),
    };
    let (known, points) = POINTS[place_of(word, FACTOR)];
    // Without a branch that would depend on the word.
    i64::from(known == word) * points
}

fn append(number: u64, settings: &Settings, vocabulary: &Vocabulary, text: &mut String) {
    let mut random = Random::new(settings.seed, STREAM_TWEET, number);
    let second = number as i64 / settings.records_per_ms as i64 / 1000;
    let is_good = second / settings.windows_of_mood % 2 == 0;
    for place in 0..WORDS {
        if place > 0 {
            text.push(' ');
        }
        if random.chance(0.1) {
            let half = LEXICON.len() as u64 / 2;
            let place = random.below(half) + if is_good { 0 } else { half };
            text.push_str(LEXICON[place as usize].0);
        } else {
            text.push_str(vocabulary.draw(&mut random));
        }
    }
}

/// The records: `ts`, `text`.
pub fn table(settings: &Settings) -> Table {
    let text = Column::new("text", DataType::STRING.not_null());
    let schema = TableSchema::new(vec![time_column(), text]);
    let vocabulary = settings.vocabulary();
    let batch = |numbers: std::ops::Range<u64>| {
        let ts = times(numbers.clone().map(|n| (n / settings.records_per_ms) as i64));
        let (mut builder, mut text) = (StringViewBuilder::new(), String::new());
        for number in numbers {
            text.clear();
            append(number, settings, &vocabulary, &mut text);
            builder.append_value(&text);
        }
        let columns = vec![ts, Arc::new(builder.finish()) as ArrayRef];
        RecordBatch::try_new(schema.arrow(), columns).expect("columns fit")
    };
    let batches = batches_of(settings.records).map(batch).collect();
    Table { name: "tweets", schema, batches, delay_ms: 1 }
}

/// The words that are not counted.
pub fn stop_words(settings: &Settings) -> Vec<String> {
    let vocabulary = settings.vocabulary();
    (0..STOP_WORDS).map(|rank| vocabulary.word(rank).to_owned()).collect()
}

fn score_function() -> ScalarFunction {
    ScalarFunction {
        name: "SCORE".to_owned(),
        arguments: vec![DataType::STRING],
        result: DataType::BigInt.nullable(),
        deterministic: true,
        function: Arc::new(|arguments, _rows| {
            let texts = arguments[0].as_string_view();
            let scores: Int64Array = texts.iter().map(|text| text.map(score)).collect();
            Ok(Arc::new(scores) as ArrayRef)
        }),
    }
}

/// The benchmark over these records: `window_end`, the mean score in thousandths, `rank`, `word`,
/// `n`.
pub fn job(records: Table, settings: &Settings) -> Job {
    let stop_words = stop_words(settings);
    let sql = format!(
        "CREATE VIEW means AS
           SELECT window_start, window_end, window_time AS wt,
             SUM(SCORE(text)) * 1000 / COUNT(*) AS mean
           FROM TABLE(TUMBLE(TABLE tweets, DESCRIPTOR(ts), INTERVAL '1' SECOND))
           GROUP BY window_start, window_end, window_time;
         CREATE VIEW turns AS
           SELECT * FROM (SELECT *, LAG(mean) OVER (ORDER BY wt) AS mean_before FROM means)
           WHERE ABS(mean - mean_before) >= {};
         CREATE VIEW words AS
           SELECT ts, word FROM tweets CROSS JOIN UNNEST(SPLIT(text, ' ')) AS w (word)
           WHERE word NOT IN ('{}');
         CREATE VIEW counts AS
           SELECT window_start, window_end, window_time AS wt, word, COUNT(*) AS n
           FROM TABLE(TUMBLE(TABLE words, DESCRIPTOR(ts), INTERVAL '1' SECOND))
           GROUP BY window_start, window_end, window_time, word;
         CREATE VIEW frequent AS
           SELECT * FROM (
             SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end
                                          ORDER BY n DESC, word) AS place
             FROM counts)
           WHERE place <= 10;
         SELECT t.window_end, t.mean, f.place, f.word, f.n
         FROM turns AS t JOIN frequent AS f ON t.wt BETWEEN f.wt AND f.wt;",
        settings.threshold_per_mille,
        stop_words.join("', '"),
    );
    Job { tables: vec![records], functions: vec![score_function()], sql }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_worth_what_the_lexicon_says() {
        for (text, expected) in [
            ("", 0),
            ("lovely", 3),
            ("a lovely day, hate  sad", 3 - 3 - 2),
            ("sad lovelyday lovel losted", -2),
            (" sorry", -1),
            ("win win win ", 6),
        ] {
            let known = |word: &str| LEXICON.iter().find(|(known, _)| *known == word);
            let by_hand: i64 = text.split(' ').filter_map(known).map(|(_, points)| points).sum();
            assert_eq!((score(text), by_hand), (expected, expected), "{text:?}");
        }
    }
}
