//! Reading a table: which columns its connector delivers, which ones the watermark assigner adds,
//! and which ones are computed behind it.
//!
//! A batch has these columns on its way from the connector to the first node of the plan:
//!
//! ```text
//! connector:  physical | metadata | kind                   (kind: only of a table with changes)
//! assigner:   physical | metadata | kind | assigned        (computed columns that time depends on)
//! step 1:     the same                                     (the kinds of the rows are set)
//! step 2:     the columns that the scan declares           (left out where these are all)
//! ```
//!
//! The row time and the watermark must be known right behind the source, where rows are stamped. So
//! computed columns that either depends on are computed by the assigner, and all others by the
//! chain, which may run on another worker.
//!
//! **Invariants:**
//! - the watermark does not depend on which columns a query reads: the columns that it needs are
//!   always delivered;
//! - a computed column refers to physical and metadata columns only, not to other computed ones
//!   (`bind::table`), so one pass computes all;
//! - at least one physical column is delivered, since a batch without columns has no length;
//! - columns of each group are in declared order, so `projection` is ascending, as connectors
//!   expect.

use std::collections::BTreeSet;
use std::sync::Arc;

use thalweg_core::connector::{AcceptedChanges, TableRequest};
use thalweg_core::operator::WatermarkInterest;
use thalweg_core::{Column, TableSchema};
use thalweg_expr::Expr;
use thalweg_operators::assigner::AssignerSpec;
use thalweg_operators::chain::Step;

use super::PlanEnvironment;
use crate::logical::column_of;
use crate::resolved_table::{ColumnOrigin, ResolvedTable};

/// How a table is read.
pub(super) struct ScanPlan {
    /// What the connector is asked for.
    pub(super) request: TableRequest,
    /// What stamps row times, without its interest.
    /// `finish_sources` sets the interest, when it knows which watermarks matter downstream.
    pub(super) assigner: Option<AssignerSpec>,
    /// The row time over what the connector delivers.
    /// For sorting and merging by time, which happen before the assigner.
    pub(super) rowtime: Option<Expr>,
    /// What is computed behind the source; nothing where it delivers just what is asked for.
    pub(super) steps: Vec<Step>,
}

/// Plans the reading of these declared columns.
/// Makes no connector and reads nothing; it is called more than once for the same scan.
pub(super) fn plan_scan(
    table: &Arc<ResolvedTable>,
    columns: &[usize],
    environment: &PlanEnvironment<'_>,
) -> ScanPlan {
    let layout = ScanLayout::of(table, columns);
    let mut request = environment.request(table);
    request.metadata = layout.metadata(table);
    request.projection =
        (layout.physical.len() < request.schema.len()).then(|| layout.physical_positions(table));
    let assigner = layout.assigner(table, environment.max_future_skew_ms);
    let rowtime = layout.rowtime(table);
    request.reads_kinds = layout.reads_kinds;
    let kinds = layout.reads_kinds.then(|| Step::TakeKinds(layout.kind_column()));
    let steps = kinds.into_iter().chain(layout.step(table, columns)).collect();
    ScanPlan { request, assigner, rowtime, steps }
}

/// Where declared columns stand behind the source. Positions are of declared columns.
struct ScanLayout {
    /// The physical columns that are delivered, in order.
    physical: Vec<usize>,
    /// The metadata columns that are delivered, in order.
    from_connector: Vec<usize>,
    /// True if the last delivered column is what each row does.
    /// `+I`, `-U`, `+U` or `-D`, as the connector reads it from a record.
    reads_kinds: bool,
    /// The computed columns that the assigner adds, in order.
    assigned: Vec<usize>,
}

impl ScanLayout {
    fn of(table: &ResolvedTable, columns: &[usize]) -> ScanLayout {
        let mut needed: BTreeSet<usize> = columns.iter().copied().collect();
        let mut assigned = Vec::new();
        if let Some(watermark) = &table.watermark {
            let mut of_watermark = watermark.expression.columns();
            of_watermark.insert(watermark.column);
            let computed =
                |i: &usize| matches!(table.columns[*i].origin, ColumnOrigin::Computed(_));
            assigned = of_watermark.iter().copied().filter(computed).collect();
            needed.extend(of_watermark);
        }
        for position in needed.clone() {
            if let ColumnOrigin::Computed(expr) = &table.columns[position].origin {
                needed.extend(expr.columns());
            }
        }
        let of = |wanted: fn(&ColumnOrigin) -> bool| -> Vec<usize> {
            needed.iter().copied().filter(|&i| wanted(&table.columns[i].origin)).collect()
        };
        let mut physical = of(|origin| matches!(origin, ColumnOrigin::Physical(_)));
        if physical.is_empty() {
            // A batch must have a column to have a length.
            let first = |c: &crate::resolved_table::ResolvedColumn| {
                matches!(c.origin, ColumnOrigin::Physical(_))
            };
            physical.extend(table.columns.iter().position(first));
        }
        let from_connector = of(|origin| matches!(origin, ColumnOrigin::Metadata { .. }));
        let reads_kinds = table.reading.changes != AcceptedChanges::Inserts;
        ScanLayout { physical, from_connector, reads_kinds, assigned }
    }

    /// Where what each row does stands behind the source, if it does.
    fn kind_column(&self) -> usize {
        self.physical.len() + self.from_connector.len()
    }

    fn metadata(&self, table: &ResolvedTable) -> Vec<(String, Column)> {
        let request = |&i: &usize| match &table.columns[i].origin {
            ColumnOrigin::Metadata { key, .. } => {
                Some((key.clone(), table.columns[i].column.clone()))
            }
            _ => None,
        };
        self.from_connector.iter().filter_map(request).collect()
    }

    /// The delivered physical columns as positions among the physical ones.
    fn physical_positions(&self, table: &ResolvedTable) -> Vec<usize> {
        let position = |&i: &usize| match table.columns[i].origin {
            ColumnOrigin::Physical(position) => Some(position),
            _ => None,
        };
        self.physical.iter().filter_map(position).collect()
    }

    /// Where a declared column stands behind the assigner.
    fn position(&self, declared: usize) -> Option<usize> {
        let mut delivered = self.physical.iter().chain(&self.from_connector);
        let assigned = || self.assigned.iter().position(|&i| i == declared);
        let first_assigned = self.kind_column() + usize::from(self.reads_kinds);
        delivered.position(|&i| i == declared).or(assigned().map(|i| first_assigned + i))
    }

    fn place(&self, expr: &Expr) -> Expr {
        expr.remap(&|i| self.position(i).expect("what a column is computed from is delivered"))
    }

    /// The row time, computed if it is a computed column.
    fn rowtime(&self, table: &ResolvedTable) -> Option<Expr> {
        let declared = table.watermark.as_ref()?.column;
        let column = &table.columns[declared];
        Some(match &column.origin {
            ColumnOrigin::Computed(expr) => self.place(expr),
            _ => self.place(&Expr::column(declared, column.column.column_type.clone())),
        })
    }

    fn assigner(
        &self,
        table: &ResolvedTable,
        max_future_skew_ms: Option<i64>,
    ) -> Option<AssignerSpec> {
        let watermark = table.watermark.as_ref()?;
        let computed = |&i: &usize| match &table.columns[i].origin {
            ColumnOrigin::Computed(expr) => {
                Some((table.columns[i].column.clone(), self.place(expr)))
            }
            _ => None,
        };
        Some(AssignerSpec {
            table: table.name.clone(),
            computed: self.assigned.iter().filter_map(computed).collect(),
            rowtime: self.position(watermark.column).expect("the row time is delivered"),
            watermark: self.place(&watermark.expression),
            interest: WatermarkInterest::EndOnly,
            max_future_skew_ms,
        })
    }

    /// The projection from what the source and its assigner deliver to the wanted columns.
    fn step(&self, table: &ResolvedTable, columns: &[usize]) -> Option<Step> {
        let width = self.kind_column()
            + usize::from(self.reads_kinds)
            + if table.watermark.is_some() { self.assigned.len() } else { 0 };
        let project = |&i: &usize| {
            let name = table.columns[i].column.name.clone();
            let column = Column::new(name, table.read_type(i).clone());
            let expr = match (self.position(i), &table.columns[i].origin) {
                (Some(position), _) => Expr::column(position, column.column_type.clone()),
                (None, ColumnOrigin::Computed(expr)) => self.place(expr),
                (None, _) => unreachable_column(&column),
            };
            (column, expr)
        };
        let projected: Vec<(Column, Expr)> = columns.iter().map(project).collect();
        let is_identity = projected.len() == width
            && projected.iter().enumerate().all(|(i, (_, expr))| column_of(expr) == Some(i));
        (!is_identity).then_some(Step::Project(projected))
    }
}

/// Physical and metadata columns that are wanted are always delivered; NULL keeps types right.
fn unreachable_column(column: &Column) -> Expr {
    debug_assert!(false, "column {} is not delivered", column.name);
    Expr::null(column.column_type.data_type.clone())
}

/// The columns that a source delivers, for EXPLAIN.
pub(super) fn delivered_names(schema: &TableSchema) -> String {
    schema.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ")
}
