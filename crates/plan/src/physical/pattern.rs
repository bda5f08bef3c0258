//! MATCH_RECOGNIZE.
//!
//! The binder has made the operator's own description of the pattern, so only names of results are
//! added. Late rows are those of the input, as for windows. A pattern in the order of the
//! processing time is the same operator laid over the clock ([`ClockWindows`]); nothing is late
//! there.

use std::sync::Arc;

use thalweg_core::{Operator, Result};
use thalweg_operators::pattern::{MatchRecognize, MatchSpec, Output, Pattern, PatternValue};
use thalweg_operators::window::{ClockWindows, LatePolicy};

use super::lower::{Edges, Lowering};
use crate::logical::Node;

impl Lowering<'_> {
    /// The partition keys, then one column per value.
    pub(super) fn lower_match(
        &mut self,
        node: &Node,
        input: &Node,
        pattern: &Pattern,
        values: &[PatternValue],
    ) -> Result<Edges> {
        let by_clock = input.fields[pattern.rowtime].time.is_proctime();
        let late = match by_clock {
            true => (Vec::new(), LatePolicy::Drop),
            false => self.late_rows(input, pattern.rowtime)?,
        };
        let names = node.fields[pattern.keys.len()..].iter().map(|field| field.name.clone());
        let outputs = names.zip(values).map(|(name, value)| Output { name, value: value.clone() });
        let operator: Arc<dyn Operator> = Arc::new(MatchRecognize::new(MatchSpec {
            pattern: pattern.clone(),
            outputs: outputs.collect(),
            input: input.schema(),
            late: late.1,
        })?);
        let edges = self.edges(input)?;
        if by_clock {
            let ordered = self.environment.order.is_ordered();
            let (rowtime, keys) = (pattern.rowtime, pattern.keys.clone());
            let operator = Arc::new(ClockWindows::new(operator, rowtime, keys, ordered));
            let details = vec![node.describe()];
            return Ok(self.add_described(node, (input, "match"), operator, edges, details));
        }
        Ok(self.add_late((node, input), operator, edges, "match", late, input.schema()))
    }
}
