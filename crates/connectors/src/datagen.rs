//! `'connector' = 'datagen'`: rows made from counters.
//!
//! Value i of a field is a pure function of the seed, the field and i, so a table reads the same
//! each time, whatever the speed and the bundle size. The one exception are times without a
//! `'seed'`, which are the wall clock's, as in Flink. With a seed, row i is at 2026-01-01 plus i
//! times the distance of two rows (one millisecond when unlimited).
//!
//! The table ends if `'number-of-rows'` or a sequence says so.

mod fake;
mod generate;
mod nested;
mod options;
mod words;

use std::collections::BTreeMap;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use thalweg_core::Result;
use thalweg_core::connector::{
    Connector, ConnectorDescription, Source, SourceBatch, SourcePoll, TableRequest, Waker,
    unread_rows,
};
use thalweg_core::counter::{row_position, rows_before};
use thalweg_core::shim::{Clock, SystemClock};

use self::generate::{GeneratedField, Times, column};
use self::options::{DESCRIPTION, DatagenOptions};
use crate::pacing::Pacing;

/// 2026-01-01T00:00:00Z
const SEEDED_START_MS: i64 = 1_767_225_600_000;

/// The connector.
pub struct Datagen;

impl Connector for Datagen {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }
    fn validate(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        DatagenOptions::read(request).map(drop)
    }
    fn is_bounded(&self, request: &TableRequest) -> bool {
        DatagenOptions::read(request).is_ok_and(|options| options.rows.is_some())
    }
    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let options = DatagenOptions::read(request)?;
        let wanted = match &request.projection {
            None => options.fields,
            Some(wanted) => wanted.iter().map(|&at| options.fields[at].clone()).collect(),
        };
        Ok(Box::new(DatagenSource {
            name: request.table.clone(),
            fields: wanted,
            schema: request.delivered().arrow(),
            rows: options.rows,
            rows_per_second: options.rows_per_second,
            is_seeded: options.is_seeded,
            next: 0,
            pacing: Pacing::new(options.rows_per_second),
            overdue_ns: 0,
            clock: SystemClock::new(),
        }))
    }
    fn state_options(&self, request: &TableRequest, _as_sink: bool) -> BTreeMap<String, String> {
        // The rate decides nothing but when rows come, unless times follow from the seed.
        let is_seeded = request.options.contains_key("seed");
        let decides = |name: &str| name != "connector" && (is_seeded || name != "rows-per-second");
        request.generated_by(decides)
    }
}

struct DatagenSource {
    name: String,
    fields: Vec<GeneratedField>,
    schema: SchemaRef,
    rows: Option<u64>,
    rows_per_second: Option<u64>,
    is_seeded: bool,
    next: u64,
    /// When rows are due.
    pacing: Pacing,
    /// For how long the first row of the last batch had been.
    overdue_ns: u64,
    clock: SystemClock,
}

impl DatagenSource {
    fn batch(&self, rows: u64) -> Result<RecordBatch> {
        let times = if self.is_seeded {
            let rows_per_second = self.rows_per_second.unwrap_or(1_000);
            Times::Even { start_ms: SEEDED_START_MS, rows_per_second }
        } else {
            Times::Now(self.clock.wall_ms())
        };
        let range = self.next..self.next + rows;
        let columns = self
            .fields
            .iter()
            .map(|field| column(field, range.clone(), times))
            .collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows as usize));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

impl Source for DatagenSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn start(&mut self, waker: Waker) -> Result<()> {
        self.pacing.start(waker)
    }

    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        if self.rows.is_some_and(|rows| self.next >= rows) {
            self.stop();
            return Ok(SourcePoll::End);
        }
        let due = self.rows.unwrap_or(u64::MAX).min(self.pacing.due());
        let rows = due.saturating_sub(self.next).min(rows_max.max(1) as u64);
        if rows == 0 {
            return Ok(SourcePoll::Pending);
        }
        let batch = self.batch(rows)?;
        self.overdue_ns = self.pacing.overdue_ns(self.next);
        self.next += rows;
        Ok(SourcePoll::Batch(SourceBatch::new(batch)))
    }

    fn is_bounded(&self) -> bool {
        self.rows.is_some()
    }

    fn stop(&mut self) {
        self.pacing.stop();
    }

    fn overdue_ns(&self) -> u64 {
        self.overdue_ns
    }

    fn position(&self) -> Option<String> {
        Some(row_position(self.next))
    }

    fn seek(&mut self, position: &str) -> Result<()> {
        self.next = rows_before(position)?;
        self.pacing.begin_at(self.next);
        Ok(())
    }

    fn check_ended(&mut self, position: &str) -> Result<()> {
        let next = rows_before(position)?;
        match self.rows {
            Some(rows) if next >= rows => Ok(()),
            _ => Err(unread_rows(&format!("row {} and later ones", next.saturating_add(1)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Decimal128Type, Int32Type, Int64Type, TimestampMillisecondType};
    use arrow_select::concat::concat_batches;
    use thalweg_core::{Column, DataType, TableSchema};

    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn request(options: &[(&str, &str)]) -> TableRequest {
        let types = [
            ("id", DataType::BigInt),
            ("n", DataType::Int),
            ("s", DataType::STRING),
            ("d", DataType::Decimal(5, 2)),
            ("ts", DataType::Timestamp(3)),
            ("x", DataType::Double),
        ];
        let columns = types.map(|(name, data_type)| Column::new(name, data_type.nullable()));
        TableRequest {
            table: "g".to_string(),
            schema: TableSchema::new(columns.to_vec()),
            options: options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            ..TableRequest::default()
        }
    }

    const BASE: &[(&str, &str)] = &[
        ("connector", "datagen"),
        ("rows-per-second", "unlimited"),
        ("seed", "7"),
        ("fields.id.kind", "sequence"),
        ("fields.id.start", "5"),
        ("fields.id.end", "1004"),
        ("fields.n.min", "-3"),
        ("fields.n.max", "3"),
        ("fields.s.length", "20"),
        ("fields.d.max", "9.99"),
        ("fields.d.min", "0"),
    ];

    fn all(request: &TableRequest, rows_max: usize) -> RecordBatch {
        let mut source = Datagen.source(request).expect("valid");
        source.start(Arc::new(|| {})).expect("started");
        let mut batches = Vec::new();
        loop {
            match source.poll(rows_max).expect("rows") {
                SourcePoll::Batch(batch) => batches.push(batch.batch),
                SourcePoll::Pending => thread::sleep(Duration::from_millis(1)),
                SourcePoll::Heartbeat(..) | SourcePoll::Split(..) => {}
                SourcePoll::End => break,
            }
        }
        concat_batches(&batches[0].schema(), &batches).expect("one schema")
    }

    #[test]
    fn rows_depend_on_the_counter_alone() {
        let request = request(BASE);
        let batch = all(&request, 64);
        assert_eq!(batch, all(&request, 1_000_000));
        assert_eq!(batch.num_rows(), 1_000);
        let ids = batch.column(0).as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(ids, (5..=1_004).collect::<Vec<_>>());
        let numbers = batch.column(1).as_primitive::<Int32Type>().values();
        assert_eq!((numbers.iter().min(), numbers.iter().max()), (Some(&-3), Some(&3)));
        assert!(batch.column(2).as_string_view().iter().all(|s| s.is_some_and(|s| s.len() == 20)));
        let decimals = batch.column(3).as_primitive::<Decimal128Type>().values();
        assert!(decimals.iter().all(|d| (0..=999).contains(d)));
        let times = batch.column(4).as_primitive::<TimestampMillisecondType>().values();
        assert_eq!((times[0], times[999]), (SEEDED_START_MS, SEEDED_START_MS + 999));
    }

    #[test]
    fn it_resumes_from_every_position_and_at_the_same_rate() {
        let request = request(BASE);
        crate::conformance::check_replayable(&|| Datagen.source(&request), 10).expect("no error");
        let options = [("connector", "datagen"), ("rows-per-second", "1000")];
        let mut source = Datagen.source(&super::tests::request(&options)).expect("valid");
        source.seek("{\"row\":1000000}").expect("a position");
        source.start(Arc::new(|| {})).expect("started");
        let SourcePoll::Batch(first) = source.poll(1_000_000).expect("rows") else {
            panic!("the first row comes at once")
        };
        assert!(first.batch.num_rows() < 1_000, "rows of before are not due again");
    }

    #[test]
    fn projection_changes_no_value() {
        let mut projected = request(BASE);
        projected.projection = Some(vec![1, 5]);
        let full = all(&request(BASE), 100);
        assert_eq!(all(&projected, 100), full.project(&[1, 5]).expect("columns"));
    }

    #[test]
    fn expressions_make_the_same_values_each_time_and_those_that_fit_no_type_are_errors() {
        let options = [
            ("connector", "datagen"),
            ("rows-per-second", "unlimited"),
            ("number-of-rows", "50"),
            ("seed", "7"),
            ("fields.s.expression", "#{Name.fullName}"),
            ("fields.s.null-rate", "0.5"),
            ("fields.n.expression", "#{number.numberBetween '10','20'}"),
            ("fields.d.expression", "#{regexify '[1-9]\\.[0-9]{2}'}"),
        ];
        let batch = all(&request(&options), 7);
        assert_eq!(batch, all(&request(&options), 50));
        assert!((1..50).contains(&batch.column(2).null_count()));
        let numbers = batch.column(1).as_primitive::<Int32Type>().values();
        assert!(numbers.iter().all(|n| (10..20).contains(n)));
        let decimals = batch.column(3).as_primitive::<Decimal128Type>().values();
        assert!(decimals.iter().all(|d| (100..1_000).contains(d)));
        let wrong = [("connector", "datagen"), ("fields.n.expression", "#{Name.fullName}")];
        let mut source = Datagen.source(&request(&wrong)).expect("it may be a number");
        source.start(Arc::new(|| {})).expect("started");
        let error = source.poll(10).expect_err("a name is no number");
        assert!(error.to_string().contains("fields.*.expression"), "{error}");
        for (name, value, part) in [
            ("fields.s.expression", "#{Name.fulName}", "Name.fullName"),
            ("fields.ts.expression", "x", "TIMESTAMP"),
            ("fields.s.length", "3", "length"),
        ] {
            let more = [("connector", "datagen"), ("fields.s.expression", "x"), (name, value)];
            let error = Datagen.validate(&request(&more), false).expect_err(name);
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    /// `a ARRAY<INT>, m MAP<BOOLEAN, INT>, r ROW<x INT NOT NULL, y ARRAY<STRING>>`
    fn nested(options: &[(&str, &str)]) -> TableRequest {
        let array = |element: DataType| DataType::Array(Box::new(element.nullable()));
        let map = DataType::Map(
            Box::new(DataType::Boolean.not_null()),
            Box::new(DataType::Int.nullable()),
        );
        let row = DataType::Row(vec![
            Column::new("x", DataType::Int.not_null()),
            Column::new("y", array(DataType::STRING).nullable()),
        ]);
        let types = [("a", array(DataType::Int)), ("m", map), ("r", row)];
        let columns = types.map(|(name, data_type)| Column::new(name, data_type.nullable()));
        let base = [("connector", "datagen"), ("seed", "7"), ("number-of-rows", "500")];
        let options = base.iter().chain(options);
        TableRequest {
            table: "g".to_string(),
            schema: TableSchema::new(columns.to_vec()),
            options: options.map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            ..TableRequest::default()
        }
    }

    #[test]
    fn nested_values_are_made_of_parts() {
        let request = nested(&[
            ("rows-per-second", "unlimited"),
            ("fields.a.length", "2"),
            ("fields.a.null-rate", "0.3"),
            ("fields.a.element.min", "1"),
            ("fields.a.element.max", "9"),
            ("fields.m.length", "4"),
            ("fields.m.value.null-rate", "0.5"),
            ("fields.r.x.min", "3"),
            ("fields.r.x.max", "4"),
            ("fields.r.y.element.length", "5"),
        ]);
        let batch = all(&request, 64);
        assert_eq!(batch, all(&request, 1_000_000));
        let arrays = batch.column(0).as_list::<i32>();
        assert!((100..200).contains(&arrays.null_count()), "{}", arrays.null_count());
        for array in arrays.iter().flatten() {
            let values = array.as_primitive::<Int32Type>().values().to_vec();
            assert!(values.len() == 2 && values.iter().all(|v| (1..=9).contains(v)), "{values:?}");
        }
        let maps = batch.column(1).as_map();
        let sizes: Vec<i32> = (0..500).map(|row| maps.value_length(row)).collect();
        assert!(sizes.iter().all(|size| (1..=2).contains(size)), "each key is there once");
        assert!(sizes.contains(&1) && sizes.contains(&2) && maps.values().null_count() > 100);
        let rows = batch.column(2).as_struct();
        assert!(
            rows.column(0).as_primitive::<Int32Type>().values().iter().all(|x| *x == 3 || *x == 4)
        );
        let texts = rows.column(1).as_list::<i32>().values().as_string_view();
        assert_eq!(texts.len(), 1_500);
        assert!(texts.iter().flatten().all(|text| text.len() == 5));
    }

    #[test]
    fn wrong_options_of_parts_are_reported() {
        let cases = [
            ("fields.a.items.min", "1", "names no column"),
            ("fields.a.length", "0", "expected 1 to 10000"),
            ("fields.a.element.min", "x", "fields.a.element.min"),
            ("fields.a.element.kind", "sequence", "fields.a.element.start"),
            ("fields.r.x.null-rate", "0.5", "may be NULL"),
            ("fields.m.key.null-rate", "0.5", "may be NULL"),
            ("fields.r.y.length", "10001", "expected 1 to 10000"),
        ];
        for (name, value, part) in cases {
            let error = Datagen.validate(&nested(&[(name, value)]), false).expect_err(name);
            assert!(error.is_plan_error() && error.message().contains(part), "{name}: {error}");
        }
    }

    #[test]
    fn another_seed_gives_other_rows() {
        let mut other = request(BASE);
        other.options.insert("seed".to_string(), "8".to_string());
        assert_ne!(all(&other, 100).column(1), all(&request(BASE), 100).column(1));
    }

    #[test]
    fn the_rate_is_kept() {
        let options: Vec<(&str, &str)> =
            vec![("connector", "datagen"), ("rows-per-second", "1000"), ("number-of-rows", "50")];
        let started = SystemClock::new();
        assert_eq!(all(&request(&options), 1_000).num_rows(), 50);
        // 49 rows follow the first at a distance of one millisecond.
        assert!(started.now_ns() >= 48_000_000);
    }

    #[test]
    fn bounded_only_with_an_end() {
        assert!(Datagen.is_bounded(&request(BASE)));
        assert!(!Datagen.is_bounded(&request(&[("connector", "datagen")])));
    }

    #[test]
    fn wrong_options_are_reported() {
        let cases = [
            (("fields.nn.kind", "random"), "n"),
            (("fields.n.min", "9"), "min"),
            (("fields.s.kind", "sequence"), "start"),
            (("fields.n.start", "1"), "sequence"),
            (("rows-per-second", "0"), "rows-per-second"),
        ];
        for ((name, value), part) in cases {
            let mut options = vec![("connector", "datagen"), ("fields.n.max", "3")];
            options.push((name, value));
            let error = Datagen.validate(&request(&options), false).expect_err(name);
            assert!(error.is_plan_error());
            let text = format!("{error} {}", error.help().unwrap_or_default());
            assert!(text.contains(part), "{text}");
        }
    }
}
