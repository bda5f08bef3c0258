//! Letters that are read again, and jobs that go back meanwhile.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use thalweg_core::connector::{Connector, TableRequest};
use thalweg_core::{Column, DataType, TableSchema};

use super::*;
use crate::filesystem::Filesystem;

/// A folder with an input that has a bad line at every fifth place, and a table over it.
fn table(folder: &Path, data_type: DataType) -> TableRequest {
    let options = [
        ("connector", "filesystem"),
        ("format", "csv"),
        ("path", "in"),
        ("source.monitor-interval", "10 ms"),
        ("bad-data", "dead-letter"),
        ("dead-letter.path", "bad.jsonl"),
    ];
    TableRequest {
        table: "numbers".to_owned(),
        schema: TableSchema::new(vec![Column::new("n", data_type.nullable())]),
        options: options.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        base_dir: folder.to_owned(),
        allowed_roots: vec![folder.to_owned()],
        parallelism: 1,
        ..TableRequest::default()
    }
}

fn input(folder: &Path, name: &str, from: i64, to: i64) {
    fs::create_dir_all(folder.join("in")).expect("a folder");
    let line = |n: i64| if n % 5 == 3 { format!("{n}.0\n") } else { format!("{n}\n") };
    fs::write(folder.join("in").join(name), (from..to).map(line).collect::<String>())
        .expect("written");
}

/// A run of the source of a table.
struct Run {
    source: Box<dyn Source>,
    rows: Vec<i64>,
}

impl Run {
    fn begin(request: &TableRequest, position: Option<&str>) -> Run {
        let mut source = Filesystem::default().source(request).expect("a source");
        if let Some(position) = position {
            source.seek(position).expect("a position");
        }
        source.claim().expect("claimed");
        source.start(Arc::new(|| {})).expect("started");
        source.open().expect("opened");
        Run { source, rows: Vec::new() }
    }

    /// Polls until there are this many rows.
    fn read(&mut self, rows: usize) {
        let begun = Instant::now();
        while self.rows.len() < rows {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", self.rows);
            match self.source.poll(7).expect("rows") {
                SourcePoll::Batch(of) => match of.batch.column(0).data_type() {
                    arrow_schema::DataType::Int64 => {
                        let numbers = of.batch.column(0).as_primitive::<Int64Type>();
                        self.rows.extend(numbers.values());
                    }
                    _ => {
                        let texts = of.batch.column(0).as_string_view();
                        let number =
                            |text: Option<&str>| text?.trim_end_matches(".0").parse::<i64>().ok();
                        self.rows.extend(texts.iter().filter_map(number));
                    }
                },
                SourcePoll::Pending => std::thread::sleep(Duration::from_millis(1)),
                other => panic!("{other:?}"),
            }
        }
    }

    fn position(&mut self) -> String {
        self.source.prepare().expect("durable");
        self.source.position().expect("a position")
    }

    fn end(mut self) {
        self.source.stop();
        self.source.abort();
    }
}

fn letters(folder: &Path) -> Vec<Letter> {
    let mut letters = Vec::new();
    letters_of(&folder.join("bad.jsonl"), u64::MAX, |letter| letters.push(letter)).expect("read");
    letters
}

fn list(folder: &Path, letters: &[Letter]) -> Vec<u64> {
    List::add(&folder.join("bad.jsonl"), letters, |_| true).expect("listed")
}

fn sorted(mut rows: Vec<i64>) -> Vec<i64> {
    rows.sort_unstable();
    rows
}

#[test]
fn letters_that_a_mended_table_can_read_are_rows_once_and_others_say_why() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().canonicalize().expect("a folder");
    input(&folder, "a.csv", 0, 50);
    let mut first = Run::begin(&table(&folder, DataType::BigInt), None);
    first.read(40);
    let position = first.position();
    assert_eq!(LettersTaken::of_position(&position), LettersTaken::default());
    let found = letters(&folder);
    assert_eq!(found.len(), 10);
    // Not mended yet: none is a row.
    assert_eq!(list(&folder, &found[..2]), [1, 2]);
    assert_eq!(list(&folder, &found[..2]), [1, 2], "asking twice is asking once");
    first.looks();
    let refused = LettersTaken::of_position(&first.position());
    assert_eq!((refused.through, refused.refused.len(), refused.has(1)), (2, 2, false));
    assert!(refused.reason(1).is_some_and(|reason| reason.contains("'3.0'")), "{refused:?}");
    let position = first.position();
    first.end();
    let mut second = Run::begin(&table(&folder, DataType::STRING), Some(&position));
    let again = List::add(&folder.join("bad.jsonl"), &found, |number| number > 2);
    assert_eq!(again.expect("listed"), (3..13).collect::<Vec<u64>>());
    second.read(10);
    assert_eq!(sorted(second.rows.clone()), (0..10).map(|n| 5 * n + 3).collect::<Vec<i64>>());
    let (taken, position) = (LettersTaken::of_position(&second.position()), second.position());
    assert!(taken.through == 12 && taken.has(12) && !taken.has(13), "{taken:?}");
    second.end();
    let mut third = Run::begin(&table(&folder, DataType::STRING), Some(&position));
    third.looks();
    assert_eq!(third.rows, [0i64; 0], "nothing comes twice");
    third.end();
}

impl Run {
    /// Polls for longer than the list is looked at.
    fn looks(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < 3 * LOOK_EVERY {
            self.read(0);
            if let SourcePoll::Batch(of) = self.source.poll(7).expect("rows") {
                self.rows.extend(of.batch.column(0).as_string_view().iter().map(|_| -1));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_job_that_goes_back_reads_records_from_the_input_and_not_from_the_list() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().canonicalize().expect("a folder");
    input(&folder, "a.csv", 0, 50);
    let mut first = Run::begin(&table(&folder, DataType::BigInt), None);
    first.read(40);
    let early = first.position();
    input(&folder, "b.csv", 50, 100);
    first.read(80);
    let late = first.position();
    let found = letters(&folder);
    assert_eq!(found.len(), 20);
    first.end();
    // All are listed, and no snapshot has a row of them.
    assert_eq!(list(&folder, &found).len(), 20);
    let mut second = Run::begin(&table(&folder, DataType::STRING), Some(&late));
    second.read(20);
    second.end();
    // Back to where half of the records were not read yet: the mended table reads them as rows.
    let mut third = Run::begin(&table(&folder, DataType::STRING), Some(&early));
    third.read(60);
    let of_letters = (0..10).map(|n| 5 * n + 3);
    assert_eq!(sorted(third.rows.clone()), of_letters.chain(50..100).collect::<Vec<i64>>());
    third.looks();
    assert_eq!(third.rows.len(), 60, "no row comes twice");
    third.end();
    // From scratch all are read from the input, and numbers are not given again.
    let mut fourth = Run::begin(&table(&folder, DataType::STRING), None);
    fourth.read(100);
    fourth.looks();
    assert_eq!(sorted(fourth.rows.clone()), (0..100).collect::<Vec<i64>>());
    fourth.end();
    let left = List::read(&folder.join("bad.jsonl")).expect("a list");
    assert_eq!((left.letters.len(), left.last), (0, 20));
}

/// An input whose position covers as many dead letters as is said, and that gives nothing.
struct Covering(Arc<std::sync::atomic::AtomicU64>);

impl Source for Covering {
    fn name(&self) -> String {
        "numbers".to_owned()
    }
    fn start(&mut self, _waker: Waker) -> Result<()> {
        Ok(())
    }
    fn poll(&mut self, _rows_max: usize) -> Result<SourcePoll> {
        Ok(SourcePoll::Pending)
    }
    fn is_bounded(&self) -> bool {
        false
    }
    fn position(&self) -> Option<String> {
        let bytes = self.0.load(std::sync::atomic::Ordering::Relaxed);
        Some(json!({ "letters": { "bytes": bytes } }).to_string())
    }
}

struct Numbers;

impl LetterReader for Numbers {
    fn read(&self, letter: &Letter) -> Result<RecordBatch, String> {
        let numbers = arrow_array::Int64Array::from(vec![letter.line as i64]);
        RecordBatch::try_from_iter([("n", Arc::new(numbers) as _)]).map_err(|e| e.to_string())
    }
}

#[test]
fn a_letter_waits_until_the_position_covers_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let letters = dir.path().join("bad.jsonl");
    let letter = |end, line| {
        let (file, reason) = ("in".to_owned(), "no".to_owned());
        Letter { end, file, line, reason, raw: vec![0xff], message: Value::Null }
    };
    let covered = Arc::new(std::sync::atomic::AtomicU64::new(50));
    let inner = Box::new(Covering(Arc::clone(&covered)));
    let mut source = ReplayedSource::new(inner, letters.clone(), Box::new(Numbers));
    Source::start(&mut source, Arc::new(|| {})).expect("started");
    Source::open(&mut source).expect("opened");
    assert!(matches!(Source::poll(&mut source, 1), Ok(SourcePoll::Pending)));
    List::add(&letters, &[letter(50, 1), letter(90, 2)], |_| true).expect("listed");
    std::thread::sleep(LOOK_EVERY);
    assert!(matches!(Source::poll(&mut source, 1), Ok(SourcePoll::Batch(_))));
    assert!(matches!(Source::poll(&mut source, 1), Ok(SourcePoll::Pending)));
    covered.store(90, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(Source::poll(&mut source, 1), Ok(SourcePoll::Batch(_))));
    let position = Source::position(&source).expect("a position");
    assert_eq!(LettersTaken::of_position(&position).through, 2);
    assert_eq!(input_position(&position).expect("one"), "{\"letters\":{\"bytes\":90}}");
    let around = format!("{{\"rows\":0,\"inner\":{position}}}");
    assert_eq!(LettersTaken::of_position(&around).through, 2, "also within another layer");
}
