//! A table that is read as a stage: its source is opened, and EXPLAIN says what it does.

use std::sync::Arc;

use thalweg_core::connector::Connector;
use thalweg_core::graph::{Input, StageKind};
use thalweg_core::{OrderContract, Result, Source, TableSchema};
use thalweg_operators::chain::Step;

use super::bounds::{bounds_of, describe_bounds};
use super::lower::{Edges, Lowering, OpenSource};
use super::ordered::{describe_time_order, describe_timing, in_time_order};
use super::scan::{ScanPlan, delivered_names, plan_scan};
use super::standard_input_twice;
use super::values::ValuesSource;
use crate::catalog::table_options::{SORT_WITHIN, split_timing};
use crate::logical::Node;
use crate::resolved_table::ResolvedTable;

impl Lowering<'_> {
    /// A table's source stage, and the steps that make the scan's columns of what it delivers. The
    /// assigner follows in `finish_sources`.
    pub(super) fn open_scan(
        &mut self,
        node: &Node,
        table: &Arc<ResolvedTable>,
        columns: &[usize],
    ) -> Result<(Edges, Vec<Step>)> {
        let environment = self.environment;
        let mut plan = plan_scan(table, columns, environment);
        let filter = self.filters.get(&Arc::as_ptr(node)).filter(|_| self.has_one_reader(node));
        if let Some(predicate) = filter {
            plan.request.bounds = bounds_of(predicate, table, columns, environment.mode);
        }
        // Asked here and not of the nodes: a table that is read first is read for itself, and one
        // that a join asks by key is not read.
        let connector = environment.places.connectors.find(&plan.request)?;
        let source = self.open_source(connector, table, &plan)?;
        let mut details = describe_scan(connector, table, &plan);
        details.extend(describe_time_order(table, environment.order)?);
        let timing = split_timing(table).map_err(|error| error.at(table.spans.name))?;
        details.extend(describe_timing(&timing));
        let id = self.identities.give("source", "", &[node]);
        let kind = StageKind::Source { source, assigner: None };
        let word = if table.reading.is_bounded { "source (bounded)" } else { "source (unbounded)" };
        let stage = self.add(id, table.name.clone(), kind, Vec::new(), word, details);
        self.options_of_state(stage, &plan.request, false);
        if environment.order == OrderContract::EventTime {
            let within = table.options.get(SORT_WITHIN).map_or("none", String::as_str).to_owned();
            self.graph.stages[stage.0].state_options.insert(SORT_WITHIN.to_owned(), within);
        }
        self.graph.stages[stage.0].timing = timing;
        if let Some(assigner) = plan.assigner {
            self.sources.push(OpenSource { stage, assigner });
        }
        Ok((vec![Input { from: stage, port: 0 }], plan.steps))
    }

    /// Opens the table, unless the plan is only looked at.
    fn open_source(
        &mut self,
        connector: &dyn Connector,
        table: &Arc<ResolvedTable>,
        plan: &ScanPlan,
    ) -> Result<Box<dyn Source>> {
        let environment = self.environment;
        let at = |error: thalweg_core::Error| table.spans.locate(error).at(table.spans.name);
        if environment.takes_snapshots {
            connector.check_snapshots(&plan.request, false).map_err(at)?;
        }
        if connector.reads_standard_input(&plan.request)
            && let Some(other) = self.standard_input.replace(table.name.clone())
        {
            return Err(at(standard_input_twice(&other, &table.name)));
        }
        if environment.dry_run {
            let (rows, schema) = (Vec::new(), TableSchema::default());
            return Ok(Box::new(ValuesSource::new(rows, schema, environment.clock.clone())));
        }
        let source = environment.places.connectors.source(&plan.request);
        source.and_then(|source| in_time_order(source, table, plan, environment)).map_err(at)
    }
}

/// For EXPLAIN: which columns and rows are read, and what is made of their times.
fn describe_scan(connector: &dyn Connector, table: &ResolvedTable, plan: &ScanPlan) -> Vec<String> {
    let mut details = vec![format!("reads: {}", delivered_names(&plan.request.delivered()))];
    if !plan.request.bounds.is_empty() && connector.leaves_rows_out(&plan.request) {
        let bounds = describe_bounds(&plan.request.bounds, &plan.request.schema);
        details.push(format!("passes over parts of files without rows where {bounds}"));
    }
    let checked = connector.checked_columns(&plan.request);
    if !checked.is_empty() {
        details.push(format!(
            "checks as well, for bad rows: {} ('bad-data.check' = 'read' leaves them out)",
            checked.join(", ")
        ));
    }
    if let Some(watermark) = &table.watermark {
        let rowtime = &table.columns[watermark.column].column.name;
        details.push(format!("row time: {rowtime}"));
    }
    if let Some(assigner) = &plan.assigner {
        details.push(format!("watermark: {}", assigner.watermark));
    }
    details
}
