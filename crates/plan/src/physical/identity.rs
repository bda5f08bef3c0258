//! Stable identifiers of stages: what a stage computes, and from what, as a short hash.
//!
//! State in a snapshot finds its stage again by them. So an identifier must change when the state
//! would mean something else or have other columns, and must not change when another query is added
//! to a statement set:
//!
//! - a **source** is its table, by name and connector, whichever columns are needed: positions are
//!   rows;
//! - a **column** is identified by the table and name that it comes from, or by the expression that
//!   computes it, never by its place: places shift when the scan in front delivers more;
//! - what is **computed** from rows (filters, aggregates) depends on the columns that it uses;
//! - what **keeps rows** (joins, sorts, the rows of a key) depends on all columns that reach it,
//!   since all of them are in its state; in contract `event_time` that holds for every stage, since
//!   rows wait in front of it.
//!
//! How a node's hashes follow from its inputs':
//!
//! ```text
//! what    = hash(inputs' rows, describe() with each $n replaced by the hash of column n)
//! rows    = what, with all input columns where rows are kept; a projection has its input's rows
//! columns = those of the input that are passed on; of a computed one, its expression over them
//! stage   = hash(what, rows), in contract event_time with all input columns
//! ```
//!
//! So `SELECT a, COUNT(*) FROM t GROUP BY a` has the same `group` stage whether another query makes
//! the scan deliver a further column or not: `$0` and `$1` become the same hash, that of column `a`
//! of `t`. Chains are the exception: their identifiers hold the texts of their steps, places
//! included. They have no state that would have to be found.
//!
//! **Invariants:**
//! - the hash depends on texts alone: no addresses, no order of a hash map, nothing of this
//!   machine. FNV-1a is fixed, so snapshots of other versions are found as long as the texts stay;
//! - changing the text of a node, an expression or a type changes identifiers, and a job no longer
//!   resumes from older snapshots. Treat these texts as a format;
//! - options of a table are no part of an identifier. Those that change what its state means are
//!   compared apart, as `state_options` of the stage, so that a mismatch is an error with a name
//!   and not a job that silently starts from scratch.
//!
//! What it does not do: equal stages get a number at the end (`-2`), in the order of the
//! statements; nothing distinguishes them apart when statements change places.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use thalweg_core::OrderContract;

use crate::logical::traversal::post_order;
use crate::logical::{Aggregate, LogicalKind, LogicalPlan, Node, column_of};
use crate::resolved_table::{ColumnOrigin, ResolvedTable};
use thalweg_expr::Expr;

/// Gives identifiers, each once.
pub(super) struct Identities {
    /// With the nodes, so that no other comes to stand at the same place.
    known: HashMap<*const LogicalPlan, (Node, Arc<Identity>)>,
    given: HashSet<String>,
    /// Rows may wait in front of every stage, with all their columns.
    keeps_inputs: bool,
}

/// What a node is.
/// Three hashes, since readers of a node ask for different things.
#[derive(Debug)]
struct Identity {
    /// Which rows there are, whatever their columns.
    rows: u64,
    /// What each column is.
    columns: Vec<u64>,
    /// What a stage is that computes the node.
    stage: u64,
}

impl Identities {
    /// Identifiers for a job under this contract.
    pub(super) fn new(order: OrderContract) -> Self {
        let keeps_inputs = order == OrderContract::EventTime;
        Identities { known: HashMap::new(), given: HashSet::new(), keeps_inputs }
    }

    /// The identifier of a stage of this kind that computes this text from these nodes.
    ///
    /// `text` distinguishes stages that no node of the plan stands for, such as the two sides of a
    /// join or a sink.
    pub(super) fn give(&mut self, kind: &str, text: &str, nodes: &[&Node]) -> String {
        let mut hash = fnv(FNV_START, text.as_bytes());
        for node in nodes {
            hash = with(hash, self.of(node).stage);
        }
        let base = format!("{kind}-{}", short(hash));
        let mut id = base.clone();
        let mut copy = 2;
        while !self.given.insert(id.clone()) {
            id = format!("{base}-{copy}");
            copy += 1;
        }
        id
    }

    fn of(&mut self, node: &Node) -> Arc<Identity> {
        if let Some((_, known)) = self.known.get(&Arc::as_ptr(node)) {
            return Arc::clone(known);
        }
        let inputs: Vec<Arc<Identity>> = node.inputs().iter().map(|input| self.of(input)).collect();
        let identity = Arc::new(match &node.kind {
            LogicalKind::Scan { table, columns } => of_scan(table, columns),
            _ => self.computed(node, &inputs),
        });
        self.known.insert(Arc::as_ptr(node), (Arc::clone(node), Arc::clone(&identity)));
        identity
    }

    fn computed(&self, node: &Node, inputs: &[Arc<Identity>]) -> Identity {
        let below: Vec<u64> = inputs.iter().flat_map(|input| input.columns.clone()).collect();
        let all =
            |start: u64, columns: &[u64]| columns.iter().fold(start, |hash, &c| with(hash, c));
        let from = |start: u64| inputs.iter().fold(start, |hash, input| with(hash, input.rows));
        let what = from(placed(&node.describe(), &below));
        let rows = match &node.kind {
            // The rows stay as they are.
            LogicalKind::Project { .. } => inputs.first().map_or(what, |input| input.rows),
            kind if keeps_rows(kind) => all(what, &below),
            _ => what,
        };
        let stage = match self.keeps_inputs {
            true => all(with(what, rows), &below),
            false => with(what, rows),
        };
        Identity { rows, columns: columns(node, inputs, &below, rows), stage }
    }
}

/// A table: its name and connector; its columns by name and type, or by what computes them.
fn of_scan(table: &ResolvedTable, columns: &[usize]) -> Identity {
    let connector = table.options.get("connector").map(String::as_str).unwrap_or_default();
    let rows = fnv(FNV_START, format!("Scan {} {connector}", table.name).as_bytes());
    let declared = |text: String| fnv(rows, text.as_bytes());
    let plain = |place: usize| {
        let column = &table.columns[place].column;
        declared(format!("{} {}", column.name, column.column_type.data_type))
    };
    // All declared columns, since a computed one refers to them by declared position.
    let names: Vec<u64> = (0..table.columns.len()).map(plain).collect();
    let of = |&place: &usize| match &table.columns[place].origin {
        ColumnOrigin::Computed(expression) => placed(&expression.to_string(), &names),
        _ => names[place],
    };
    Identity { rows, columns: columns.iter().map(of).collect(), stage: rows }
}

/// True if whole rows are in the state of a stage.
/// A new kind of node counts as keeping rows: that is the safe side, at the price of identifiers
/// that change more often.
fn keeps_rows(kind: &LogicalKind) -> bool {
    !matches!(
        kind,
        LogicalKind::Scan { .. }
            | LogicalKind::Values { .. }
            | LogicalKind::Filter { .. }
            | LogicalKind::Project { .. }
            | LogicalKind::WindowRows { .. }
            | LogicalKind::WindowAggregate { .. }
            | LogicalKind::Aggregate { .. }
            | LogicalKind::Unnest { .. }
            | LogicalKind::UnionAll { .. }
            | LogicalKind::Limit { .. }
            | LogicalKind::CheckNotNull { .. }
    )
}

/// What the columns of a node are.
fn columns(node: &Node, inputs: &[Arc<Identity>], below: &[u64], rows: u64) -> Vec<u64> {
    let named = |place: usize| fnv(with(rows, place as u64), node.fields[place].name.as_bytes());
    let width = node.fields.len();
    let computed = |texts: Vec<String>| {
        let of = |text: &String| with(rows, placed(text, below));
        let own: Vec<u64> = texts.iter().map(of).collect();
        let (behind, computed) = (own.len()..width, own.len().min(width));
        own[..computed].iter().copied().chain(behind.map(named)).collect()
    };
    match &node.kind {
        LogicalKind::Project { expressions, .. } => {
            let of = |expression: &Expr| match column_of(expression) {
                Some(place) => below[place],
                None => placed(&expression.to_string(), below),
            };
            expressions.iter().map(of).collect()
        }
        LogicalKind::WindowAggregate { keys, aggregates, .. }
        | LogicalKind::Aggregate { keys, aggregates, .. } => {
            let keys = keys.iter().map(ToString::to_string);
            computed(keys.chain(aggregates.iter().map(Aggregate::to_string)).collect())
        }
        LogicalKind::UnionAll { .. } => {
            let of = |place: usize| {
                let own = inputs.iter().filter_map(|input| input.columns.get(place));
                own.fold(FNV_START, |hash, &column| with(hash, column))
            };
            (0..width).map(of).collect()
        }
        LogicalKind::Values { .. }
        | LogicalKind::Match { .. }
        | LogicalKind::Process { .. }
        | LogicalKind::Refused { .. } => (0..width).map(named).collect(),
        // The columns of the inputs, and behind them what the node appends.
        _ => (0..width)
            .map(|place| below.get(place).copied().unwrap_or_else(|| named(place)))
            .collect(),
    }
}

/// The hash of a text in which `$3` stands for the fourth of these columns.
/// A `$` in a literal is read the same way. That may tie an identifier to a column that is not
/// used.
fn placed(text: &str, columns: &[u64]) -> u64 {
    let mut parts = text.split('$');
    let mut hash = fnv(FNV_START, parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (place, behind) = part.split_at(digits);
        let column = place.parse().ok().and_then(|place: usize| columns.get(place));
        hash = match column {
            Some(&column) => with(fnv(hash, b"$"), column),
            None => fnv(fnv(hash, b"$"), place.as_bytes()),
        };
        hash = fnv(hash, behind.as_bytes());
    }
    hash
}

/// What distinguishes texts in identifiers of stages that are not made of SQL.
/// For pipelines that are built in Rust.
pub fn identity_of_text(text: &str) -> String {
    short(fnv(FNV_START, text.as_bytes()))
}

/// 48 bits: short to read, and a handful of stages will not collide.
fn short(hash: u64) -> String {
    format!("{:012x}", hash >> 16)
}

fn with(hash: u64, more: u64) -> u64 {
    fnv(hash, &more.to_le_bytes())
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: simple, and the same on every machine and in every version.
fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(start, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The name of the first table that a node reads.
pub(super) fn table_name(node: &Node) -> String {
    let name = |below: &Node| match &below.kind {
        LogicalKind::Scan { table, .. } => Some(table.name.clone()),
        _ => None,
    };
    let nodes = post_order(std::slice::from_ref(node));
    nodes.iter().find_map(name).unwrap_or_else(|| "values".to_string())
}
