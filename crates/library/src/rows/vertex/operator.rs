//! A vertex as the engine runs it.

use std::sync::Arc;

use arrow_array::Array;
use thalweg_core::operator::{Partition, WatermarkInterest};
use thalweg_core::snapshot::partition_of_virtual;
use thalweg_core::{Bundle, Error, Operator, OrderContract, PartitionContext, Result, Route};

use super::edge::Items;
use super::partition::VertexPartition;
use super::plan::VertexPlan;
use super::processor::{Processor, VertexContext};
use super::snapshot::SharedColumns;

/// The operator of a vertex.
pub(super) struct VertexOperator<P: Processor> {
    plan: Arc<VertexPlan>,
    supplier: Box<dyn Fn(VertexContext) -> P + Send + Sync>,
    columns: SharedColumns<P>,
}

impl<P: Processor> VertexOperator<P> {
    pub(super) fn new(
        plan: Arc<VertexPlan>,
        supplier: Box<dyn Fn(VertexContext) -> P + Send + Sync>,
    ) -> Self {
        VertexOperator { plan, supplier, columns: Arc::default() }
    }
}

impl<P: Processor> Operator for VertexOperator<P> {
    fn name(&self) -> String {
        self.plan.name.clone()
    }
    fn is_singleton(&self) -> bool {
        self.plan.partitions == Some(1)
    }
    fn partitions(&self) -> Option<usize> {
        self.plan.partitions
    }
    fn rows_depend_on_watermarks(&self) -> bool {
        self.plan.grid_ms.is_some()
    }
    fn uses_processing_time(&self) -> bool {
        self.plan.uses_processing_time
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        self.plan.interest.clone()
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        let mut routed = vec![Vec::new(); partitions];
        let items = Items::of(&bundle.batch)?;
        for row in 0..bundle.num_rows() {
            match items.partitions.is_null(row) {
                true => routed.iter_mut().for_each(|of_one| of_one.push(row as u32)),
                false => {
                    let own = items.partitions.value(row) as u8;
                    routed[partition_of_virtual(own, partitions)].push(row as u32);
                }
            }
        }
        Ok(Route::Scatter(routed))
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        if opening.order == OrderContract::EventTime && self.plan.has_priorities() {
            return Err(Error::plan(format!(
                "'{}' consumes an input before another, and the order 'event_time' brings items by time",
                self.plan.name
            ))
            .hint("run it in the order 'epoch' or 'arrival'"));
        }
        let context = VertexContext { opening };
        let processor = (self.supplier)(context);
        let (plan, columns) = (Arc::clone(&self.plan), Arc::clone(&self.columns));
        Ok(Box::new(VertexPartition::new(plan, context, processor, columns)))
    }
}
