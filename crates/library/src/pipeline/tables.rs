//! Tables in pipelines: the connectors of SQL, with the options of its `WITH`.
//!
//! A program is trusted with every file that it may open: allowed roots are a matter of SQL.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thalweg_connectors::builtin;
use thalweg_connectors::filesystem::Filesystem;
use thalweg_core::connector::{AcceptedChanges, TableRequest};
use thalweg_core::{Error, Result, Span, TableSchema};

use super::build::{NodeKind, Pipeline};
use super::stream::Stream;

impl Pipeline {
    /// Reads a table by a connector of SQL: `filesystem`, `datagen`, `nexmark`. Relative paths
    /// start from the current folder.
    ///
    /// # Errors
    /// If the options are wrong, the table holds changes, or the pipeline writes what it reads.
    pub fn read_table(
        &self,
        name: &str,
        schema: TableSchema,
        options: &[(&str, &str)],
    ) -> Result<Stream> {
        let request = request(name, schema, options);
        let connectors = builtin(Filesystem::default());
        connectors.validate(&request, false)?;
        let connector = connectors.find(&request)?;
        if connector.held_changes(&request) != AcceptedChanges::Inserts {
            return Err(Error::unsupported(format!("table {name} holds changes"))
                .hint("read it by SQL; pipelines take rows that stay"));
        }
        self.tables.borrow_mut().reads.push(request.clone());
        connectors.check_files(&self.tables.borrow())?;
        let source = connector.source(&request)?;
        let schema = request.delivered();
        let kind = NodeKind::Source { source, watermark: None };
        let from = self.add(name, kind, Vec::new());
        self.nodes.borrow_mut()[from.from.0].refuses_snapshots =
            connector.check_snapshots(&request, false).err();
        Ok(Stream::new(self.clone(), from, schema))
    }
}

impl Stream {
    /// Writes the rows to a table by a connector of SQL: `filesystem`, `print`, `blackhole`.
    /// Relative paths start from the current folder. Rows that are written to a folder of files in
    /// a job with snapshots become visible with the snapshot that covers them.
    ///
    /// # Errors
    /// If the options are wrong, or the pipeline reads or writes the same file elsewhere.
    pub fn write_table(self, name: &str, options: &[(&str, &str)]) -> Result<()> {
        let mut request = request(name, self.schema().clone(), options);
        request.has_updates = self.has_updates();
        let connectors = builtin(Filesystem::default());
        connectors.validate(&request, true)?;
        let connector = connectors.find(&request)?;
        if connector.accepted_changes(&request) != AcceptedChanges::All {
            self.check_inserts(&format!("table {name}"))?;
        }
        let pipeline = self.pipeline.clone();
        pipeline.tables.borrow_mut().writes.push((request.clone(), Span::default()));
        connectors.check_files(&pipeline.tables.borrow())?;
        let sink = connector.sink(&request)?;
        let input = self.flush();
        let stage = pipeline.add(name, NodeKind::Sink(sink), vec![input]);
        pipeline.nodes.borrow_mut()[stage.from.0].refuses_snapshots =
            connector.check_snapshots(&request, true).err();
        Ok(())
    }
}

fn request(name: &str, schema: TableSchema, options: &[(&str, &str)]) -> TableRequest {
    let base_dir = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let root = base_dir.ancestors().last().map_or_else(PathBuf::new, Path::to_path_buf);
    let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
    TableRequest {
        table: name.to_owned(),
        schema,
        options: options.iter().map(owned).collect::<BTreeMap<_, _>>(),
        base_dir,
        allowed_roots: vec![root],
        parallelism: std::thread::available_parallelism().map_or(1, usize::from),
        ..TableRequest::default()
    }
}
