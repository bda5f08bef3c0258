//! Walking the shared plan and adding stages to the graph.
//!
//! A node becomes a step of a chain or a stage of its own. [`Lowering::open_chain`] returns the
//! edges of the last stage with the steps that still follow it, so that the caller can add steps
//! and the whole run of row-by-row nodes becomes one stage. A chain is closed where a node has
//! several readers, where a stage follows, and at a sink.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use thalweg_core::connector::{AcceptedChanges, Assign, JobTables, TableRequest};
use thalweg_core::graph::{Graph, Input, StageId, StageKind};
use thalweg_core::operator::WatermarkInterest;
use thalweg_core::{Error, Operator, OrderContract, Result, Sink, Span, TableSchema};
use thalweg_expr::Expr;
use thalweg_operators::assigner::{AssignerSpec, WatermarkAssigner};
use thalweg_operators::chain::{Chain, OutsideChain, Step};
use thalweg_operators::final_rows::FinalRows;
use thalweg_operators::limit::Limit;
use thalweg_operators::sort::SortLimit;
use thalweg_operators::window::WindowTop;

use super::chain::{describe_steps, step_of};
use super::identity::{Identities, table_name};
use super::late_rows::LateRows;
use super::notes::notes;
use super::scan::{ScanPlan, delivered_names, plan_scan};
use super::values::ValuesSource;
use super::{LateData, PhysicalPlan, PlanEnvironment, PlanOutput, StageDescription, Target};
use crate::catalog::{RuntimeMode, UpsertMaterialize};
use crate::logical::changes::NodeChanges;
use crate::logical::dag::optimize;
use crate::logical::join::outside_of_builds;
use crate::logical::traversal::post_order;
use crate::logical::upserts::upsert_key;
use crate::logical::{JoinBound, LogicalKind, LogicalPlan, Node};
use crate::resolved_table::ResolvedTable;

/// Lowers the roots of a statement (or statement set) to one graph.
pub fn lower(outputs: Vec<PlanOutput>, environment: &PlanEnvironment<'_>) -> Result<PhysicalPlan> {
    Lowering::new(environment).run(outputs)
}

/// The edges by which rows arrive; several form a union.
pub(super) type Edges = Vec<Input>;

/// A source whose assigner is made once all stages downstream are known.
pub(super) struct OpenSource {
    pub(super) stage: StageId,
    pub(super) assigner: AssignerSpec,
}

/// A table that is written, and the rows for it.
struct WrittenTable {
    table: Arc<ResolvedTable>,
    edges: Edges,
    has_updates: bool,
    /// How many queries write it.
    queries: usize,
    /// True if one of them updates its rows by another key than the table's.
    has_other_key: bool,
}

impl WrittenTable {
    fn new(table: Arc<ResolvedTable>) -> Self {
        let (edges, has_updates, queries, has_other_key) = (Vec::new(), false, 0, false);
        WrittenTable { table, edges, has_updates, queries, has_other_key }
    }
}

/// The graph while it is being built.
pub(super) struct Lowering<'a> {
    pub(super) environment: &'a PlanEnvironment<'a>,
    pub(super) identities: Identities,
    pub(super) graph: Graph,
    stages: Vec<StageDescription>,
    pub(super) done: HashMap<*const LogicalPlan, Edges>,
    // How many nodes and outputs read each node. With more than one its chain is closed and shared.
    readers: HashMap<*const LogicalPlan, usize>,
    // The filter over each node that has one; with one reader, all that is read of it passes there.
    pub(super) filters: HashMap<*const LogicalPlan, Expr>,
    pub(super) sources: Vec<OpenSource>,
    pub(super) late: LateRows,
    pub(super) is_bounded: bool,
    /// The table that reads standard input.
    pub(super) standard_input: Option<String>,
    // True if an expression reads the watermark of single rows (`CURRENT_WATERMARK`), or rows are
    // retracted from windows.
    pub(super) needs_exact_watermarks: bool,
    pub(super) changes: NodeChanges,
    /// Windows of which nobody wants more than the first rows.
    pub(super) tops: HashMap<*const LogicalPlan, WindowTop>,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(environment: &'a PlanEnvironment<'a>) -> Self {
        Lowering {
            environment,
            identities: Identities::new(environment.order),
            graph: Graph::default(),
            stages: Vec::new(),
            done: HashMap::new(),
            readers: HashMap::new(),
            filters: HashMap::new(),
            sources: Vec::new(),
            late: LateRows::default(),
            is_bounded: true,
            standard_input: None,
            needs_exact_watermarks: false,
            changes: NodeChanges::default(),
            tops: HashMap::new(),
        }
    }

    /// Lowers everything.
    pub(super) fn run(mut self, outputs: Vec<PlanOutput>) -> Result<PhysicalPlan> {
        let roots: Vec<Node> = outputs.iter().map(|output| output.node.clone()).collect();
        let late = self.environment.late.clone();
        let logical = optimize(&roots, &|fields, other, rowtime| {
            let columns = late.columns_of_side(fields, other, rowtime)?;
            Ok(columns.into_iter().flatten().collect())
        })?;
        self.changes = NodeChanges::of(&logical, self.environment.mode)?;
        self.look_over(&logical)?;
        self.check_sinks(&outputs, &logical)?;
        let job_tables = self.check_files(&outputs, &logical)?;
        let mut tables: BTreeMap<String, WrittenTable> = BTreeMap::new();
        let mut given: Vec<(Box<dyn Sink>, Edges, TableSchema)> = Vec::new();
        for (node, output) in logical.iter().zip(outputs) {
            let edges = self.edges(node)?;
            match output.target {
                Target::Table(table) => {
                    let has_updates = self.changes.has_updates(node);
                    let entry = tables.entry(table.name.clone());
                    let entry = entry.or_insert_with(|| WrittenTable::new(table));
                    entry.has_updates |= has_updates;
                    entry.queries += 1;
                    entry.has_other_key |= has_updates && !updates_by_key(node, &entry.table);
                    self.join_edges(&mut entry.edges, edges, node);
                }
                Target::Given(sink) => given.push((sink, edges, node.schema())),
            }
        }
        if let LateData::Table(table) = &late {
            let edges = self.late_edges(table)?;
            let entry = tables.entry(table.name.clone());
            entry.or_insert_with(|| WrittenTable::new(table.clone())).edges.extend(edges);
        }
        // After all queries, since several may write one table; by name, so that the order is
        // stable.
        for written in tables.into_values() {
            self.add_table_sink(written)?;
        }
        for (sink, edges, schema) in given {
            let name = sink.name();
            let details = vec![format!("columns: {}", delivered_names(&schema))];
            let id = self.identities.give("sink", &name, &[]);
            self.add(id, name, StageKind::Sink(sink), edges, "sink", details);
        }
        self.finish_sources();
        Ok(PhysicalPlan {
            graph: self.graph,
            stages: self.stages,
            is_bounded: self.is_bounded,
            standard_input: self.standard_input,
            tables: job_tables,
            mode: self.environment.mode,
            notes: notes(&logical, &self.changes, self.environment),
            logical,
        })
    }

    /// Checks tables and options before anything is opened, and counts who reads what.
    fn look_over(&mut self, roots: &[Node]) -> Result<()> {
        let order = post_order(roots);
        for root in roots {
            *self.readers.entry(Arc::as_ptr(root)).or_default() += 1;
        }
        let mut unbounded = None;
        let in_flow = outside_of_builds(roots);
        for node in &order {
            for input in node.inputs() {
                *self.readers.entry(Arc::as_ptr(input)).or_default() += 1;
            }
            if let LogicalKind::Filter { input, predicate } = &node.kind {
                self.filters.insert(Arc::as_ptr(input), predicate.clone());
            }
            let expressions = node.kind.expressions();
            super::ordered::check_expressions(expressions.iter(), self.environment)?;
            self.needs_exact_watermarks |= expressions.iter().any(Expr::uses_watermark);
            if let LogicalKind::Scan { table, columns } = &node.kind {
                let scan = plan_scan(table, columns, self.environment);
                let is_merged = in_flow.contains(&Arc::as_ptr(node));
                self.check_source(table, columns, &scan, is_merged)
                    .map_err(|error| table.spans.locate(error).at(table.spans.name))?;
                if table.reading.is_endless() {
                    unbounded = Some(table.name.clone());
                }
            }
        }
        self.is_bounded = unbounded.is_none();
        if let (Some(table), RuntimeMode::Batch) = (&unbounded, self.environment.mode) {
            return Err(Error::plan(format!(
                "'execution.runtime-mode' = 'batch' gives results at the end of its inputs, but table \
                 '{table}' never ends"
            ))
            .hint("bound the table (datagen: 'number-of-rows', nexmark: 'events'), or RESET 'execution.runtime-mode'"));
        }
        Ok(())
    }

    /// Checks a table that is read, before anything is opened.
    fn check_source(
        &self,
        table: &Arc<ResolvedTable>,
        columns: &[usize],
        scan: &ScanPlan,
        is_merged: bool,
    ) -> Result<()> {
        super::ordered::check_table(table, columns, scan, is_merged, self.environment)?;
        let connectors = self.environment.places.connectors;
        connectors.validate(&scan.request, false)
    }

    /// True if nobody else reads the rows of this node.
    pub(super) fn has_one_reader(&self, node: &Node) -> bool {
        self.readers.get(&Arc::as_ptr(node)) == Some(&1)
    }

    /// Checks the options of every table that is written, before anything is opened.
    fn check_sinks(&self, outputs: &[PlanOutput], rows: &[Node]) -> Result<()> {
        let connectors = self.environment.places.connectors;
        if let LateData::Table(table) = &self.environment.late {
            self.check_sink(table)
                .map_err(|error| table.spans.locate(error).at(table.spans.name))?;
        }
        for (output, node) in outputs.iter().zip(rows) {
            let Target::Table(table) = &output.target else { continue };
            let at = |error: Error| table.spans.locate(error).at(output.span);
            let request = self.check_sink(table).map_err(at)?;
            if self.changes.has_updates(node) {
                let accepted = connectors.find(&request)?.accepted_changes(&request);
                check_accepts(accepted, &request, &self.changes.cause(node)).map_err(at)?;
            }
        }
        Ok(())
    }

    /// Checks that no output names what the job reads, or another output. What they are.
    fn check_files(&self, outputs: &[PlanOutput], roots: &[Node]) -> Result<JobTables> {
        let environment = self.environment;
        let mut tables = JobTables {
            snapshots: environment.snapshots.clone(),
            base_dir: environment.places.base_dir.to_owned(),
            allowed_roots: environment.places.allowed_roots.to_vec(),
            ..JobTables::default()
        };
        let mut reads: BTreeMap<&str, &ResolvedTable> = BTreeMap::new();
        let nodes = post_order(roots);
        for node in &nodes {
            if let LogicalKind::Scan { table, .. } = &node.kind {
                reads.insert(&table.name, table);
            }
        }
        let mut writes: BTreeMap<&str, (TableRequest, Span)> = BTreeMap::new();
        for output in outputs {
            if let Target::Table(table) = &output.target {
                let path = table.spans.options.get("path").copied();
                let written = || (environment.written(table), path.unwrap_or(output.span));
                writes.entry(&table.name).or_insert_with(written);
            }
        }
        if let LateData::Table(table) = &environment.late {
            let path = table.spans.options.get("path").copied();
            let written = || (environment.written(table), path.unwrap_or(table.spans.name));
            writes.entry(&table.name).or_insert_with(written);
        }
        tables.reads.extend(reads.values().map(|table| environment.request(table)));
        tables.writes.extend(writes.into_values());
        let checked = environment.places.connectors.check_files(&tables).map_err(|error| {
            // An error about dead letters names the option and the table that is read.
            let letters = |name: &str| format!("'dead-letter.path' of table {name} ");
            match reads.iter().find(|(name, _)| error.message().starts_with(&letters(name))) {
                Some((_, table)) => table.spans.locate(error),
                None => error,
            }
        });
        checked.map(|()| tables)
    }

    /// Checks the options of a table that is written.
    fn check_sink(&self, table: &ResolvedTable) -> Result<TableRequest> {
        let request = self.environment.written(table);
        let connectors = self.environment.places.connectors;
        connectors.validate(&request, true)?;
        if self.environment.takes_snapshots {
            connectors.find(&request)?.check_snapshots(&request, true)?;
        }
        Ok(request)
    }

    /// Adds a stage with its description.
    pub(super) fn add(
        &mut self,
        id: String,
        name: String,
        kind: StageKind,
        inputs: Edges,
        word: &str,
        details: Vec<String>,
    ) -> StageId {
        self.stages.push(StageDescription {
            id: id.clone(),
            name: name.clone(),
            kind: word.to_string(),
            details,
            inputs: inputs.iter().map(|input| (input.from.0, input.port)).collect(),
            order: super::ordered::describe(&kind, inputs.len(), self.environment.order),
        });
        let state_options = self.settings_of_state(&id, &kind);
        let stage = self.graph.add(id, name, kind, inputs);
        self.graph.stages[stage.0].state_options = state_options;
        stage
    }

    /// The settings that decide what the state of an operator means.
    /// A job that resumes under other values is refused with the names of those that differ.
    fn settings_of_state(&self, id: &str, kind: &StageKind) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        if !matches!(kind, StageKind::Operator(_)) {
            return found;
        }
        let environment = self.environment;
        let mut add = |name: &str, value: &dyn std::fmt::Display| {
            found.insert(name.to_owned(), value.to_string());
        };
        add("table.local-time-zone", &environment.session.zone);
        let is_batch = environment.mode == RuntimeMode::Batch;
        add("execution.runtime-mode", if is_batch { &"BATCH" } else { &"STREAMING" });
        // State that expires has a time in each row. For how long it is kept may change.
        let expires = ["group", "join", "over", "top", "normalize", "materialize", "deduplicate"];
        if expires.iter().any(|word| id.split('-').next() == Some(word)) {
            let is_kept = environment.state_ttl_ms.is_none();
            add("table.exec.state.ttl", if is_kept { &"0 (for ever)" } else { &"more than 0" });
        }
        found
    }

    /// What of a table decides what a position in it, or an output that is half written, means.
    pub(super) fn options_of_state(
        &mut self,
        stage: StageId,
        request: &TableRequest,
        as_sink: bool,
    ) {
        let connector = self.environment.places.connectors.find(request);
        let options = connector.map(|connector| connector.state_options(request, as_sink));
        let options = options.unwrap_or_default();
        self.graph.stages[stage.0].state_options.extend(options);
    }

    /// The identifier of a stage.
    pub(super) fn stage_name(&self, stage: StageId) -> String {
        self.stages[stage.0].id.clone()
    }

    /// The rows of a node, made by whatever stages that takes.
    pub(super) fn edges(&mut self, node: &Node) -> Result<Edges> {
        let (edges, steps) = self.open_chain(node)?;
        if steps.is_empty() {
            return Ok(edges);
        }
        let edges = self.close_chain(edges, steps, node);
        self.done.insert(Arc::as_ptr(node), edges.clone());
        Ok(edges)
    }

    /// The rows of a node as the edges of a stage and the steps that still have to follow, so that
    /// the caller can add steps of its own to them.
    pub(super) fn open_chain(&mut self, node: &Node) -> Result<(Edges, Vec<Step>)> {
        if let Some(edges) = self.done.get(&Arc::as_ptr(node)) {
            return Ok((edges.clone(), Vec::new()));
        }
        let (edges, steps) = match &node.kind {
            LogicalKind::Scan { table, columns } => {
                let (edges, steps) = self.open_scan(node, table, columns)?;
                match self.changes.is_settled(node) {
                    true => {
                        let edges = self.close_chain(edges, steps, node);
                        (self.settle(node, edges)?, Vec::new())
                    }
                    false => (edges, steps),
                }
            }
            LogicalKind::Join { left, right, kind, condition } => match condition.bound {
                JoinBound::Build(side) => {
                    self.open_hash_join(node, (left, right), *kind, condition, side)?
                }
                JoinBound::Lookup => {
                    (self.lower_lookup(node, (left, right), *kind, condition)?, Vec::new())
                }
                _ => {
                    let edges = self.lower_join(node, (left, right), *kind, condition)?;
                    (self.settle(node, edges)?, Vec::new())
                }
            },
            _ => match step_of(node, self.environment.session)? {
                Some(step) => {
                    let (edges, mut steps) = self.open_chain(node.inputs()[0])?;
                    steps.push(step);
                    (edges, steps)
                }
                None => {
                    let edges = self.lower_stage(node)?;
                    (self.settle(node, edges)?, Vec::new())
                }
            },
        };
        let is_shared = self.readers.get(&Arc::as_ptr(node)).is_some_and(|&readers| readers > 1);
        if steps.is_empty() || is_shared {
            let edges = if steps.is_empty() { edges } else { self.close_chain(edges, steps, node) };
            self.done.insert(Arc::as_ptr(node), edges.clone());
            return Ok((edges, Vec::new()));
        }
        Ok((edges, steps))
    }

    /// In batch mode a node emits its final result instead of its changes.
    /// An aggregate that gives each result once has nothing to settle.
    fn settle(&mut self, node: &Node, edges: Edges) -> Result<Edges> {
        let is_given_once = matches!(&node.kind, LogicalKind::Aggregate { aggregates, .. }
            if self.gives_once(aggregates));
        if is_given_once || !self.changes.is_settled(node) {
            return Ok(edges);
        }
        let operator = FinalRows::new(node.schema())?;
        let operator = match &node.kind {
            LogicalKind::Aggregate { keys, aggregates, .. } if keys.is_empty() => {
                operator.or_else(self.result_of_nothing(node, aggregates)?)
            }
            _ => operator,
        };
        let operator = Arc::new(operator);
        let details = vec!["the rows that are left at the end".to_owned()];
        Ok(self.add_described(node, (node, "final"), operator, edges, details))
    }

    /// A chain of these steps as a stage. Steps that run on threads of their own are stages apart.
    pub(super) fn close_chain(&mut self, mut edges: Edges, steps: Vec<Step>, node: &Node) -> Edges {
        let mut rest = steps;
        loop {
            let is_outside = |step: &Step| !step.executors().is_empty();
            let first = rest.first().is_some_and(is_outside);
            let same = rest.iter().take_while(|step| is_outside(step) == first).count();
            let next = rest.split_off(same);
            let id = self.identities.give("chain", &describe_steps(&rest).join("; "), &[node]);
            let name = format!("{} {}", chain_word(&rest), table_name(node));
            edges = self.add_chain(id, name, edges, rest);
            if next.is_empty() {
                return edges;
            }
            rest = next;
        }
    }

    /// A chain with an identifier of its own, for steps that no node of the plan stands for.
    pub(super) fn add_chain(
        &mut self,
        id: String,
        name: String,
        edges: Edges,
        steps: Vec<Step>,
    ) -> Edges {
        let mut details = describe_steps(&steps);
        let executors: Vec<_> = steps.iter().flat_map(Step::executors).collect();
        let places: BTreeSet<_> = executors.iter().map(|place| place.description()).collect();
        let chain = Chain::new(name.clone(), steps, self.environment.clock.clone());
        let (chain, word): (Arc<dyn thalweg_core::Transform>, _) =
            match executors.into_iter().next() {
                None => (Arc::new(chain), "chain (free: any worker)"),
                Some(executor) => {
                    details.extend(places.iter().map(|place| format!("runs in: {place}")));
                    (Arc::new(OutsideChain::new(chain, executor)), "chain (free: no worker waits)")
                }
            };
        let stage = self.add(id, name, StageKind::Transform(chain), edges, word, details);
        vec![Input { from: stage, port: 0 }]
    }

    /// A node that is no row-by-row step.
    fn lower_stage(&mut self, node: &Node) -> Result<Edges> {
        match &node.kind {
            LogicalKind::Values { rows } => Ok(self.lower_values(node, rows)),
            LogicalKind::UnionAll { inputs } => {
                let mut edges = Vec::new();
                for input in inputs {
                    let more = self.edges(input)?;
                    self.join_edges(&mut edges, more, input);
                }
                Ok(edges)
            }
            LogicalKind::WindowAggregate { input, window, keys, aggregates, read } => {
                self.lower_window(node, (input, window), (keys, aggregates), *read)
            }
            LogicalKind::Aggregate { input, keys, aggregates, state_ttl_ms } => {
                self.lower_aggregate(node, input, (keys, aggregates), *state_ttl_ms)
            }
            LogicalKind::SetOperation { left, right, intersects, all } => {
                self.lower_set_operation(node, (left, right), (*intersects, *all))
            }
            LogicalKind::TemporalSort { input, keys } => {
                self.lower_temporal_sort(node, input, keys)
            }
            LogicalKind::SortLimit { input, keys, limit, offset }
                if self.changes.has_updates(node) =>
            {
                self.lower_first_rows(node, input, keys, (limit.unwrap_or(u64::MAX), *offset))
            }
            LogicalKind::SortLimit { input, keys, limit, offset } => {
                let keys = keys.iter().map(Into::into).collect();
                let operator = SortLimit::new(keys, *limit, *offset, input.schema());
                self.lower_operator(node, input, Arc::new(operator), "sort")
            }
            LogicalKind::Limit { input, limit, offset } => {
                let operator = Limit::new(*limit, *offset, input.schema());
                self.lower_operator(node, input, Arc::new(operator), "limit")
            }
            LogicalKind::Over { input, window, calls } => {
                self.lower_over(node, input, window, calls)
            }
            LogicalKind::Match { input, pattern, values } => {
                self.lower_match(node, input, pattern, values)
            }
            LogicalKind::Process { input, process, .. } => {
                let types = input.fields.iter().map(|field| field.column_type.data_type.clone());
                let operator = process.operator(&types.collect::<Vec<_>>())?;
                let edges = self.edges(input)?;
                let details = vec![node.describe(), process.description()];
                Ok(self.add_described(node, (input, "process"), operator, edges, details))
            }
            LogicalKind::TopN { .. } => self.lower_top_n(node),
            LogicalKind::Deduplicate { input, keys, keeps_last, rowtime } => {
                self.lower_deduplicate(node, input, keys, *keeps_last, *rowtime)
            }
            LogicalKind::Normalize { input, keys } => self.lower_normalize(node, input, keys),
            LogicalKind::Refused { error, .. } => Err(error.clone()),
            LogicalKind::WindowRows { .. } => {
                Err(crate::bind::later("SESSION without GROUP BY window_start, window_end"))
            }
            _ => Err(Error::internal(format!("no stage for {}", node.describe()))),
        }
    }

    /// Constant rows; none for a node that nothing can be a row of.
    pub(super) fn lower_values(&mut self, node: &Node, rows: &[Vec<Expr>]) -> Edges {
        let clock = self.environment.clock.clone();
        let source = Box::new(ValuesSource::new(rows.to_vec(), node.schema(), clock));
        let id = self.identities.give("source", "", &[node]);
        let details = vec![format!("rows: {}", rows.len())];
        let kind = StageKind::Source { source, assigner: None };
        let stage =
            self.add(id, "values".to_string(), kind, Vec::new(), "source (bounded)", details);
        vec![Input { from: stage, port: 0 }]
    }

    pub(super) fn lower_operator(
        &mut self,
        node: &Node,
        input: &Node,
        operator: Arc<dyn Operator>,
        kind: &str,
    ) -> Result<Edges> {
        let edges = self.edges(input)?;
        Ok(self.add_operator(node, input, operator, edges, kind))
    }

    /// Adds an operator that computes a node; it is called by what it is and by the first table
    /// that `input` reads.
    pub(super) fn add_operator(
        &mut self,
        node: &Node,
        input: &Node,
        operator: Arc<dyn Operator>,
        edges: Edges,
        kind: &str,
    ) -> Edges {
        let details = vec![node.describe()];
        self.add_described(node, (input, kind), operator, edges, details)
    }

    /// The same with more to say in EXPLAIN.
    pub(super) fn add_described(
        &mut self,
        node: &Node,
        (input, kind): (&Node, &str),
        operator: Arc<dyn Operator>,
        edges: Edges,
        details: Vec<String>,
    ) -> Edges {
        let id = self.identities.give(kind, "", &[node]);
        let name = format!("{kind} {}", table_name(input));
        self.add_named(id, name, operator, edges, details)
    }

    /// Adds an operator under a name of its own.
    pub(super) fn add_named(
        &mut self,
        id: String,
        name: String,
        operator: Arc<dyn Operator>,
        edges: Edges,
        details: Vec<String>,
    ) -> Edges {
        let word = describe_operator(operator.as_ref());
        let stage = self.add(id, name, StageKind::Operator(operator), edges, &word, details);
        vec![Input { from: stage, port: 0 }]
    }

    /// Adds edges to a union. The same edge twice goes through an empty chain, since a stage reads
    /// each edge once.
    fn join_edges(&mut self, edges: &mut Edges, more: Edges, node: &Node) {
        for edge in more {
            if edges.contains(&edge) {
                let copies = self.close_chain(vec![edge], Vec::new(), node);
                edges.extend(copies);
            } else {
                edges.push(edge);
            }
        }
    }

    /// The sink of a table, behind all queries that write it and, if need be, a `Materialize`.
    fn add_table_sink(&mut self, written: WrittenTable) -> Result<()> {
        let table = written.table.clone();
        let has_updates = written.has_updates;
        let request = TableRequest { has_updates, ..self.environment.written(&table) };
        let sink: Box<dyn Sink> = if self.environment.dry_run {
            super::no_sink()
        } else {
            let sink = self.environment.places.connectors.sink(&request);
            sink.map_err(|error| table.spans.locate(error).at(table.spans.name))?
        };
        let edges = match self.must_materialize(&written, &request) {
            true => self.materialize(&table, written.edges)?,
            false => written.edges,
        };
        let edges = self.keep_rows(&table, &request, edges)?;
        let details = vec![format!("columns: {}", delivered_names(&request.schema))];
        let id = self.identities.give("sink", &table.name, &[]);
        let stage = self.add(id, table.name.clone(), StageKind::Sink(sink), edges, "sink", details);
        self.options_of_state(stage, &request, true);
        Ok(())
    }

    /// True if the rows of each key have to be kept in front of a table that takes upserts.
    fn must_materialize(&self, written: &WrittenTable, request: &TableRequest) -> bool {
        let connector = self.environment.places.connectors.find(request);
        let accepted = connector.map(|connector| connector.accepted_changes(request));
        if !matches!(accepted, Ok(AcceptedChanges::Upserts)) || request.primary_key.is_empty() {
            return false;
        }
        match self.environment.upsert_materialize {
            UpsertMaterialize::None => false,
            UpsertMaterialize::Force => true,
            UpsertMaterialize::Auto => {
                written.has_updates && (written.has_other_key || written.queries > 1)
            }
        }
    }

    /// Gives every source its assigner, now that it is known which watermarks matter.
    fn finish_sources(&mut self) {
        for gate in &self.graph.gates {
            let waits = format!("waits for: {}", self.stages[gate.opened_by.0].id);
            self.stages[gate.source.0].details.push(waits);
        }
        for OpenSource { stage, mut assigner } in std::mem::take(&mut self.sources) {
            let is_batch = self.environment.mode == RuntimeMode::Batch;
            if is_batch {
                // NULL promises nothing: no row is late, and everything closes at the end.
                assigner.watermark = Expr::null(assigner.watermark.column_type.data_type.clone());
            }
            assigner.interest = self.graph.watermark_interest(stage);
            let interest = describe_interest(&assigner.interest);
            self.stages[stage.0].details.push(format!("emits watermarks: {interest}"));
            let allows_null_times = is_batch && self.environment.order != OrderContract::EventTime;
            let made = WatermarkAssigner::new(assigner)
                .with_exact_watermarks(self.needs_exact_watermarks)
                .with_null_times(allows_null_times);
            if let StageKind::Source { assigner, .. } = &mut self.graph.stages[stage.0].kind {
                *assigner = Some(Box::new(made) as Box<dyn Assign>);
            }
        }
    }
}

/// True if a query updates its rows by the primary key of the table.
fn updates_by_key(node: &Node, table: &ResolvedTable) -> bool {
    let sorted = |mut key: Vec<usize>| {
        key.sort_unstable();
        key
    };
    upsert_key(node).is_some_and(|key| sorted(key) == sorted(table.primary_key.clone()))
}

/// Refuses to write rows that change into a table that takes no such changes.
fn check_accepts(accepted: AcceptedChanges, request: &TableRequest, cause: &str) -> Result<()> {
    let table = &request.table;
    match accepted {
        AcceptedChanges::All => Ok(()),
        AcceptedChanges::Upserts if !request.primary_key.is_empty() => Ok(()),
        AcceptedChanges::Upserts => Err(Error::plan(format!(
            "{cause}, and table '{table}' can take that by its primary key only, \
             but declares none"
        ))
        .hint("declare PRIMARY KEY (…) NOT ENFORCED with the columns that rows are grouped by")),
        AcceptedChanges::Inserts => Err(Error::plan(format!(
            "{cause}, but the sink '{table}' takes only rows that stay as they are"
        ))
        .hint(
            "aggregate per window (GROUP BY window_start, window_end), or write to a table that takes \
             changes ('connector' = 'print', or files with 'changelog' = 'op')",
        )),
    }
}

/// What a chain is called: by the last thing that it does.
fn chain_word(steps: &[Step]) -> &'static str {
    let filters = steps.iter().any(|step| matches!(step, Step::Filter(_)));
    if filters { "filter" } else { "select" }
}

/// How an operator is executed, for EXPLAIN.
pub(super) fn describe_operator(operator: &dyn Operator) -> String {
    let class = match operator.class() {
        thalweg_core::OperatorClass::Commuting => "commuting",
        thalweg_core::OperatorClass::Sequenced => "sequenced",
    };
    let spread = if operator.is_singleton() { "one partition" } else { "partitioned by key" };
    format!("operator ({class}, {spread})")
}

fn describe_interest(interest: &WatermarkInterest) -> String {
    match interest {
        WatermarkInterest::EndOnly => "only at the end".to_string(),
        WatermarkInterest::Every => "at every advance".to_string(),
        WatermarkInterest::Grids(grids) => {
            let grid = |g: &thalweg_core::Grid| match g.offset_ms {
                0 => format!("every {} ms", g.period_ms),
                offset => format!("every {} ms from {offset} ms", g.period_ms),
            };
            grids.iter().map(grid).collect::<Vec<_>>().join(", ")
        }
    }
}
