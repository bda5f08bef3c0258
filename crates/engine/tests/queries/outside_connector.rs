//! A connector that is not the engine's: this program adds it through the public interface, with a
//! folder's worth of code, one call that registers it, and one conformance case.
//!
//! `shelf` keeps batches in memory by name: tables write to a shelf and read from it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use thalweg::connector::{
    AcceptedChanges, Boundedness, Capabilities, Connector, ConnectorDescription, OptionDescription,
    OptionKind, Options, SinkCapability, SinkGuarantee, SourceCapability, TableRequest,
};
use thalweg::pipeline::MemorySource;
use thalweg::session::Session;
use thalweg::{Column, DataType, Result, RowKind, Sink, Source, TableSchema, conformance};

const CHANGES: &[AcceptedChanges] = &[AcceptedChanges::Inserts];

const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities {
        source: Some(SourceCapability {
            boundedness: Boundedness::Bounded,
            changes: CHANGES,
            has_positions: true,
            prunes_columns: true,
        }),
        sink: Some(SinkCapability { changes: CHANGES, guarantee: SinkGuarantee::AtLeastOnce }),
        ..Capabilities::NONE
    },
    options: &[
        OptionDescription::new("shelf", OptionKind::Text, "which one").required(),
        OptionDescription::new("rows-max", OptionKind::Number, "how many rows are read at most")
            .or("1000000")
            .of_source(),
    ],
    ..ConnectorDescription::new("shelf", "batches that stay in memory")
};

type Shelves = Arc<Mutex<BTreeMap<String, Vec<RecordBatch>>>>;

#[derive(Default)]
struct ShelfConnector {
    shelves: Shelves,
}

/// The checked options of a table.
struct ShelfOptions {
    shelf: String,
    rows_max: usize,
}

impl ShelfOptions {
    fn read(request: &TableRequest) -> Result<ShelfOptions> {
        let options = Options::of(request, &DESCRIPTION)?;
        let shelf = options.required("shelf")?.to_owned();
        Ok(ShelfOptions { shelf, rows_max: options.number("rows-max")?.unwrap_or(usize::MAX) })
    }
}

impl Connector for ShelfConnector {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }
    fn validate(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        ShelfOptions::read(request).map(drop)
    }
    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let options = ShelfOptions::read(request)?;
        let shelves = self.shelves.lock().expect("no panic under this lock");
        let mut rows_left = options.rows_max;
        let mut wanted = Vec::new();
        for batch in shelves.get(&options.shelf).into_iter().flatten() {
            let rows = batch.num_rows().min(rows_left);
            rows_left -= rows;
            let rows = batch.slice(0, rows);
            wanted.push(match &request.projection {
                Some(columns) => rows.project(columns)?,
                None => rows,
            });
        }
        Ok(Box::new(MemorySource::new(request.delivered(), wanted)))
    }
    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        let ShelfOptions { shelf, .. } = ShelfOptions::read(request)?;
        Ok(Box::new(ShelfSink { shelf, rows: Vec::new(), shelves: self.shelves.clone() }))
    }
}

/// Puts the rows on the shelf when the job is done.
struct ShelfSink {
    shelf: String,
    rows: Vec<RecordBatch>,
    shelves: Shelves,
}

impl Sink for ShelfSink {
    fn name(&self) -> String {
        self.shelf.clone()
    }
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    fn write(&mut self, batch: &RecordBatch, _kinds: Option<&[RowKind]>) -> Result<()> {
        self.rows.push(batch.clone());
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        let mut shelves = self.shelves.lock().expect("no panic under this lock");
        shelves.insert(self.shelf.clone(), std::mem::take(&mut self.rows));
        Ok(())
    }
    fn abort(&mut self) {}
}

fn session() -> Session {
    let mut session = Session::default();
    session.register_connector(Arc::new(ShelfConnector::default()));
    session
}

const TABLES: &str = "
    CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence',
      'fields.n.start' = '1', 'fields.n.end' = '10', 'rows-per-second' = 'unlimited');
    CREATE TABLE shelf (square BIGINT, n BIGINT) WITH ('connector' = 'shelf', 'shelf' = 'squares');
    SET 'table.dml-sync' = 'true';
    INSERT INTO shelf SELECT n * n, n FROM numbers;";

/// The texts of a column of the last result.
fn texts(batches: &[RecordBatch], column: usize) -> Vec<String> {
    let columns = batches.iter().map(|batch| batch.column(column).as_string_view());
    columns.flat_map(|texts| texts.iter().map(|text| text.unwrap_or("").to_owned())).collect()
}

#[test]
fn its_tables_are_written_and_read_by_sql() -> Result<()> {
    let rows = session().execute(&format!("{TABLES} SELECT square FROM shelf WHERE n > 8;"))?;
    let squares = rows.iter().flat_map(|rows| rows.column(0).as_primitive::<Int64Type>().values());
    assert_eq!(squares.copied().collect::<Vec<i64>>(), [81, 100]);
    let few = "CREATE TABLE few (square BIGINT, n BIGINT) WITH
      ('connector' = 'shelf', 'shelf' = 'squares', 'rows-max' = '3'); SELECT n FROM few;";
    let rows = session().execute(&format!("{TABLES} {few}"))?;
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
    Ok(())
}

#[test]
fn statements_know_it_by_its_description() -> Result<()> {
    let mut session = session();
    let shown = session.execute("SHOW CONNECTORS")?;
    let at = texts(&shown, 0).iter().position(|name| name == "shelf").expect("it is listed");
    assert_eq!(texts(&shown, 6)[at], "batches that stay in memory");
    assert!(!texts(&shown, 0).contains(&"snapshot".to_owned()), "no user names it");
    let described = session.execute("DESCRIBE CONNECTOR shelf")?;
    assert_eq!(texts(&described, 0)[..2], ["shelf", "rows-max"]);
    assert_eq!(texts(&described, 2)[..2], ["required", "1000000"]);
    assert_eq!(texts(&described, 3)[..2], ["source, sink", "source"]);
    let error = session.execute("DESCRIBE CONNECTOR 'shelv'").expect_err("a slip of the pen");
    assert_eq!(error.help(), Some("did you mean 'shelf'?"));
    for (options, help) in [
        ("'connector' = 'shelff'", "did you mean 'shelf'?"),
        ("'connector' = 'shelf', 'shelf' = 'a', 'row-max' = '1'", "did you mean 'rows-max'?"),
    ] {
        let text = format!("CREATE TABLE t (n BIGINT) WITH ({options}); SELECT n FROM t;");
        assert_eq!(session.execute(&text).expect_err(options).help(), Some(help));
    }
    let text = "CREATE TABLE t (n BIGINT) WITH ('connector' = 'shelf', 'shelf' = 'a');";
    let refusals = session.flink_refusals(text)?;
    assert!(refusals[0].message().contains("Flink has no connector 'shelf'"), "{refusals:?}");
    Ok(())
}

#[test]
fn it_is_as_it_describes_itself_and_replays() -> Result<()> {
    let connector = ShelfConnector::default();
    let options = [("connector", "shelf"), ("shelf", "squares")];
    let request = TableRequest {
        table: "t".to_owned(),
        schema: TableSchema::new(vec![Column::new("n", DataType::BigInt.nullable())]),
        options: options.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..TableRequest::default()
    };
    conformance::check_description(&connector, &request);
    let numbers = arrow_array::Int64Array::from_iter_values(0..500);
    let batch = RecordBatch::try_new(request.schema.arrow(), vec![Arc::new(numbers)])?;
    let mut sink = connector.sink(&request)?;
    for start in (0..500).step_by(50) {
        sink.write(&batch.slice(start, 50), None)?;
    }
    sink.finish()?;
    conformance::check_replayable(&|| connector.source(&request), 10)
}
