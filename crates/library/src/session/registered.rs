//! `'connector' = 'registered'`: tables whose rows a Rust program supplies.
//!
//! [`Session::register_source`](super::Session::register_source) gives a name to something that
//! makes sources; a table names it: `WITH ('connector' = 'registered', 'source' = 'clicks')`. Each
//! job that reads the table gets a source of its own.
//!
//! **Invariant:** what the engine sees has the table's columns: every batch is compared with the
//! declaration, in number, types, and NULLs, and only then cut to the columns that a query needs.
//!
//! Such a table cannot be written to; results of a SELECT go to the session's observer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, Connector, ConnectorDescription, Options,
    SourceCapability, SourceLayer, TableRequest, near_miss, option_table,
};
use thalweg_core::{Error, Result, Source, SourceBatch, SourcePoll, TableSchema};

/// Makes a source for each job.
pub(super) type SourceMaker = Arc<dyn Fn() -> Result<Box<dyn Source>> + Send + Sync>;

const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities {
        source: Some(SourceCapability {
            boundedness: Boundedness::ByOptions,
            changes: &[AcceptedChanges::Inserts],
            has_positions: true,
            prunes_columns: false,
        }),
        ..Capabilities::NONE
    },
    options: &option_table! {
        "source": Text, required()
            => "the name that the program has given to `Session::register_source`";
    },
    ..ConnectorDescription::new("registered", "rows that a Rust program supplies")
};

/// What makes the sources of a name.
#[derive(Clone)]
struct Registered {
    make: SourceMaker,
    /// Known once a source was made to find out.
    kind: Arc<OnceLock<SourceKind>>,
}

/// What sources of a name are like.
#[derive(Clone, Copy)]
struct SourceKind {
    is_bounded: bool,
    has_positions: bool,
}

impl Registered {
    /// A source for a job.
    fn source(&self) -> Result<Box<dyn Source>> {
        (self.make)()
    }

    /// True if its sources end. The first call makes one, and no other does: planning asks often,
    /// and a source may cost something. What can't be made is asked again.
    fn is_bounded(&self) -> bool {
        self.kind().is_ok_and(|kind| kind.is_bounded)
    }

    /// Refuses sources that can't resume from a snapshot.
    fn check_snapshots(&self, table: &str) -> Result<()> {
        if self.kind()?.has_positions {
            return Ok(());
        }
        Err(Error::plan(format!(
            "table {table}: a job with snapshots can't resume from its registered source, which has no positions"
        ))
        .hint("implement Source::position and Source::seek, or RESET 'execution.checkpointing.dir'"))
    }

    fn kind(&self) -> Result<SourceKind> {
        if let Some(&known) = self.kind.get() {
            return Ok(known);
        }
        let source = self.source()?;
        let (is_bounded, has_positions) = (source.is_bounded(), source.position().is_some());
        Ok(*self.kind.get_or_init(|| SourceKind { is_bounded, has_positions }))
    }
}

/// The sources of a session by name.
#[derive(Default)]
pub(super) struct RegisteredSources {
    makers: Mutex<BTreeMap<String, Registered>>,
}

impl RegisteredSources {
    /// Adds one, in place of any of the same name.
    pub(super) fn add(&self, name: &str, make: SourceMaker) {
        let mut makers = self.makers.lock().expect("no panic under this lock");
        makers.insert(name.to_owned(), Registered { make, kind: Arc::default() });
    }

    /// The same sources, to which others can be added.
    pub(super) fn fork(&self) -> Self {
        let makers = self.makers.lock().expect("no panic under this lock").clone();
        RegisteredSources { makers: Mutex::new(makers) }
    }

    /// What makes the sources of a table.
    fn find(&self, request: &TableRequest) -> Result<Registered> {
        let options = Options::of(request, &DESCRIPTION)?;
        if let Some((key, _)) = request.metadata.first() {
            return Err(options.conflict(&format!("there is no metadata '{key}'")));
        }
        let (table, name) = (&request.table, options.required("source")?);
        let makers = self.makers.lock().expect("no panic under this lock");
        makers.get(name).cloned().ok_or_else(|| {
            let error = Error::plan(format!("table {table}: no source '{name}' is registered"));
            let known = || makers.keys().map(String::as_str);
            error.hint(match near_miss(name, known()) {
                Some(near) => format!("did you mean '{near}'?"),
                None if makers.is_empty() => {
                    "a Rust program registers it with Session::register_source".to_owned()
                }
                None => format!("there are {}", known().collect::<Vec<_>>().join(", ")),
            })
        })
    }
}

impl Connector for RegisteredSources {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }
    fn validate(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        self.find(request).map(drop)
    }
    fn is_bounded(&self, request: &TableRequest) -> bool {
        self.find(request).is_ok_and(|registered| registered.is_bounded())
    }
    fn check_snapshots(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        self.find(request)?.check_snapshots(&request.table)
    }
    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        Ok(Box::new(CheckedSource::new(self.find(request)?.source()?, request)))
    }
}

/// A source whose batches are held to the table's declaration and cut to what is needed.
struct CheckedSource {
    inner: Box<dyn Source>,
    table: String,
    schema: TableSchema,
    declared: SchemaRef,
    projection: Option<Vec<usize>>,
}

impl CheckedSource {
    /// The source of a table.
    fn new(inner: Box<dyn Source>, request: &TableRequest) -> Self {
        CheckedSource {
            inner,
            table: request.table.clone(),
            schema: request.schema.clone(),
            declared: request.schema.arrow(),
            projection: request.projection.clone(),
        }
    }

    fn checked(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let wrong = |what: String| {
            let table = &self.table;
            Error::data(format!("table {table}: what its registered source gives differs: {what}"))
                .hint("its batches must have the columns that CREATE TABLE declares")
        };
        let columns = batch.columns().to_vec();
        // Compares number and types.
        let batch = RecordBatch::try_new(self.declared.clone(), columns);
        let batch = batch.map_err(|error| wrong(error.to_string()))?;
        for (array, column) in batch.columns().iter().zip(&self.schema.columns) {
            if !column.column_type.nullable && array.null_count() > 0 {
                return Err(wrong(format!("NULL in column '{}', which is NOT NULL", column.name)));
            }
        }
        Ok(match &self.projection {
            Some(columns) => batch.project(columns)?,
            None => batch,
        })
    }
}

impl SourceLayer for CheckedSource {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }
    fn inner_mut(&mut self) -> &mut dyn Source {
        self.inner.as_mut()
    }
    fn name(&self) -> String {
        self.table.clone()
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        Ok(match self.inner.poll(rows_max)? {
            SourcePoll::Batch(given) => {
                SourcePoll::Batch(SourceBatch { batch: self.checked(&given.batch)?, ..given })
            }
            other => other,
        })
    }
}
