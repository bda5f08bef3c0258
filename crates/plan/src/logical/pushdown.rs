//! Rewrites of one tree: filters move below projections, projections over projections become one.
//!
//! ```sql
//! SELECT a FROM (SELECT x AS a, y + 1 AS b FROM t) WHERE a > 3
//! -- becomes
//! SELECT x AS a FROM (SELECT * FROM t WHERE x > 3)
//! ```
//!
//! A filter only ever moves past something that computes row by row, never past a window aggregate,
//! a sort, a limit or into a scan: what is late, and what a limit counts, must not change.
//!
//! **Invariants:**
//! - a rewritten node has the columns of the original one, with names, types and time attributes;
//! - no expression is evaluated more often than before. That is why a projection is merged only if
//!   each computed column is used at most once, and why a filter moves past columns that are plain
//!   references only;
//! - connectors see no filters. A row that a filter rejects still moves the watermark, so a filter
//!   inside of a source would make other rows late.
//!
//! What it does not do: filters do not move into joins here (the binder does that, where it knows
//! ON from WHERE), nor past aggregates over their keys.

use std::collections::HashMap;
use std::sync::Arc;

use thalweg_expr::{Expr, ExprKind};

use super::sharing::draws;
use super::{LogicalKind, LogicalPlan, Node, column_of};

/// Rewrites trees; a node that several of them share is rewritten once.
#[derive(Default)]
pub struct Pushdown {
    // The original is kept alive, so that its address can't be reused for another node.
    done: HashMap<*const LogicalPlan, (Node, Node)>,
}

impl Pushdown {
    /// The rewritten tree.
    pub fn rewrite(&mut self, node: &Node) -> Node {
        if let Some((_, done)) = self.done.get(&Arc::as_ptr(node)) {
            return done.clone();
        }
        let inputs: Vec<Node> =
            node.inputs().into_iter().map(|input| self.rewrite(input)).collect();
        let rewritten = match (&node.kind, inputs.as_slice()) {
            (LogicalKind::Filter { predicate, .. }, [input]) => push_filter(input, predicate),
            (LogicalKind::Project { expressions, .. }, [input]) => {
                merge_project(node, input, expressions)
            }
            _ => with_inputs(node, &inputs),
        };
        self.done.insert(Arc::as_ptr(node), (node.clone(), rewritten.clone()));
        rewritten
    }
}

/// The same node over other inputs, which have the same columns.
/// Returns the node itself if no input has changed, so that maps by address still find it.
pub fn with_inputs(node: &Node, inputs: &[Node]) -> Node {
    let unchanged = node.inputs().iter().zip(inputs).all(|(old, new)| Arc::ptr_eq(old, new));
    if unchanged {
        return node.clone();
    }
    let mut kind = node.kind.clone();
    for (own, new) in kind.inputs_mut().into_iter().zip(inputs) {
        own.clone_from(new);
    }
    LogicalPlan::node(kind, node.fields.clone())
}

fn push_filter(input: &Node, predicate: &Expr) -> Node {
    match &input.kind {
        LogicalKind::Project { input: below, expressions } => {
            let plain = |i: usize| column_of(&expressions[i]);
            // Only plain columns: a computed one would be evaluated twice, below for the filter and
            // here.
            if predicate.columns().into_iter().all(|i| plain(i).is_some()) {
                let moved = predicate.remap(&|i| plain(i).unwrap_or(i));
                let filtered = push_filter(below, &moved);
                return with_inputs(input, &[filtered]);
            }
        }
        // A condition on the input's columns holds for all windows of a row or for none. One on
        // window columns stays above, and so does one that draws: it decides for each window.
        LogicalKind::WindowRows { input: below, .. }
            if !draws(predicate)
                && predicate.columns().into_iter().all(|i| i < below.fields.len()) =>
        {
            return with_inputs(input, &[push_filter(below, predicate)]);
        }
        _ => {}
    }
    LogicalPlan::filter(input.clone(), predicate.clone())
}

fn merge_project(node: &Node, input: &Node, expressions: &[Expr]) -> Node {
    let LogicalKind::Project { input: below, expressions: inner } = &input.kind else {
        return with_inputs(node, std::slice::from_ref(input));
    };
    if !can_merge(expressions, inner) {
        return with_inputs(node, std::slice::from_ref(input));
    }
    let merged = expressions.iter().map(|outer| outer.replace(&|e| replacement(e, inner)));
    let expressions = merged.collect();
    LogicalPlan::node(
        LogicalKind::Project { input: below.clone(), expressions },
        node.fields.clone(),
    )
}

/// What a column of the inner projection is; the type that the outer one sees stays.
/// The types may differ in nullability, where the outer projection was made for a padded side.
fn replacement(expr: &Expr, inner: &[Expr]) -> Option<Expr> {
    let computed = inner[column_of(expr)?].clone();
    let column_type = expr.column_type.clone();
    Some(Expr { column_type, ..computed })
}

/// How deep expressions may become by merging; views over views would make them endless.
/// Walks over expressions recurse, so the depth is bounded by the stack.
const DEPTH_MAX: usize = 200;

fn depth(expr: &Expr) -> usize {
    1 + expr.children().into_iter().map(depth).max().unwrap_or(0)
}

/// True if no expression of the inner projection would be computed twice, nor drawn by each reader
/// apart. Columns and constants cost nothing, so they may be used any number of times. It also
/// keeps merged plans linear in size: views that double an expression in each step would grow
/// exponentially.
fn can_merge(outer: &[Expr], inner: &[Expr]) -> bool {
    let deepest = |expressions: &[Expr]| expressions.iter().map(depth).max().unwrap_or(0);
    if deepest(outer) + deepest(inner) > DEPTH_MAX {
        return false;
    }
    if inner.iter().any(draws) {
        return false;
    }
    let mut uses = vec![0usize; inner.len()];
    for expr in outer {
        count_columns(expr, &mut uses);
    }
    let is_free = |expr: &Expr| matches!(expr.kind, ExprKind::Column(_) | ExprKind::Literal(_));
    inner.iter().zip(&uses).all(|(expr, &uses)| is_free(expr) || uses <= 1)
}

fn count_columns(expr: &Expr, uses: &mut [usize]) {
    if let Some(column) = column_of(expr) {
        uses[column] += 1;
    }
    for child in expr.children() {
        count_columns(child, uses);
    }
}
