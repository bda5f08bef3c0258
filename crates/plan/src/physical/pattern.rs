//! MATCH_RECOGNIZE.

use std::sync::Arc;

use thalweg_core::Result;
use thalweg_operators::pattern::{MatchRecognize, MatchSpec, Output, Pattern, PatternValue};

use super::lower::{Edges, Lowering};
use crate::logical::Node;

impl Lowering<'_> {
    pub(super) fn lower_match(
        &mut self,
        node: &Node,
        input: &Node,
        pattern: &Pattern,
        values: &[PatternValue],
    ) -> Result<Edges> {
        let late = self.late_rows(input, pattern.rowtime)?;
        let names = node.fields[pattern.keys.len()..].iter().map(|field| field.name.clone());
        let outputs = names.zip(values).map(|(name, value)| Output { name, value: value.clone() });
        let operator = Arc::new(MatchRecognize::new(MatchSpec {
            pattern: pattern.clone(),
            outputs: outputs.collect(),
            input: input.schema(),
            late: late.1,
        })?);
        let edges = self.edges(input)?;
        Ok(self.add_late((node, input), operator, edges, "match", late, input.schema()))
    }
}
