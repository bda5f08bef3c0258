//! Aggregates as operators and the reference compute them.

use thalweg_core::TableSchema;

use crate::aggregate::{AggregateCall, resolve};
use crate::reference::{ReferenceAggregate, ReferenceFunction};

/// One aggregate for an operator and for the reference, over rows of this schema.
///
/// # Panics
/// If there is no such aggregate of this argument.
pub fn aggregate_pair(
    input: &TableSchema,
    (name, function): (&str, ReferenceFunction),
    argument: Option<usize>,
    distinct: bool,
    filter: Option<usize>,
) -> (AggregateCall, ReferenceAggregate) {
    let types: Vec<_> = argument.iter().map(|&at| input.columns[at].column_type.clone()).collect();
    let (resolved, result) = resolve(name, distinct, &types).expect("an aggregate of ours");
    let name = name.to_lowercase();
    let call = AggregateCall { function: resolved, argument, distinct, filter, result, name };
    (call, ReferenceAggregate { function, argument, distinct, filter })
}
