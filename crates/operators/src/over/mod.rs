//! OVER windows: each row with aggregates over the rows before it.

mod spec;

use std::sync::Arc;

use thalweg_core::operator::WatermarkInterest;
use thalweg_core::{
    Bundle, Error, Opening, Operator, OperatorClass, Partition, Result, Route, TableSchema,
};

pub use spec::{Frame, OverCall, OverFunction, OverSpec, OverTime};

use crate::limit::route_to_first;

/// `… OVER (PARTITION BY … ORDER BY time …)`.
pub struct OverAggregate {
    spec: Arc<OverSpec>,
    schema: TableSchema,
}

impl OverAggregate {
    /// An operator of this specification.
    ///
    /// # Errors
    /// If a key or an argument is of a type that cannot be grouped by or aggregated.
    pub fn new(spec: OverSpec) -> Result<Self> {
        spec.check()?;
        let schema = spec.output();
        Ok(OverAggregate { spec: Arc::new(spec), schema })
    }

    /// The columns that come out: those that come in, then the results of the calls.
    pub fn output_schema(&self) -> &TableSchema {
        &self.schema
    }
}

impl Operator for OverAggregate {
    fn name(&self) -> String {
        "over".to_owned()
    }
    fn class(&self) -> OperatorClass {
        OperatorClass::Sequenced
    }
    fn is_singleton(&self) -> bool {
        self.spec.keys.is_empty()
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        WatermarkInterest::Every
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        Ok(route_to_first(bundle, partitions))
    }
    fn open(&self, _: Opening) -> Result<Box<dyn Partition>> {
        Err(Error::unsupported("OVER windows"))
    }
}
