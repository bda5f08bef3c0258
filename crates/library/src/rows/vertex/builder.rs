//! Vertices in the builder of pipelines.

use std::sync::{Arc, OnceLock};

use arrow_array::BooleanArray;
use arrow_array::cast::AsArray;
use arrow_array::types::Int16Type;
use thalweg_core::graph::Input;
use thalweg_core::operator::WatermarkInterest;
use thalweg_core::time::Grid;
use thalweg_core::{Error, Result};

use super::ItemType;
use super::context::output_schema;
use super::edge::{Edge, item_schema};
use super::input_tap::InputTap;
use super::operator::VertexOperator;
use super::plan::{InputPlan, VertexPlan};
use super::processor::{Processor, VertexContext};
use crate::pipeline::{Pipeline, Stream};
use crate::rows::codec::Codec;
use crate::rows::{Row, Rows};

/// The most items that a processor puts out in one call, unless its vertex says otherwise.
const OUTBOX_ITEMS: usize = 16 * 1024;

/// A vertex under construction.
pub struct Vertex<P> {
    pipeline: Pipeline,
    name: String,
    supplier: Box<dyn Fn(VertexContext) -> P + Send + Sync>,
    inputs: Vec<(Stream, InputPlan)>,
    partitions: Option<usize>,
    grid_ms: Option<i64>,
    uses_processing_time: bool,
    outbox_items: usize,
    refusal: Option<Error>,
}

impl Pipeline {
    /// Begins a vertex of a graph of processors; see [`vertex`](crate::rows::vertex). The closure
    /// makes the processor of each partition.
    pub fn vertex<P: Processor>(
        &self,
        name: &str,
        supplier: impl Fn(VertexContext) -> P + Send + Sync + 'static,
    ) -> Vertex<P> {
        Vertex {
            pipeline: self.clone(),
            name: name.to_owned(),
            supplier: Box::new(supplier),
            inputs: Vec::new(),
            partitions: None,
            grid_ms: Some(1),
            uses_processing_time: false,
            outbox_items: OUTBOX_ITEMS,
            refusal: None,
        }
    }
}

impl<P: Processor> Vertex<P> {
    /// Adds an input. The first has ordinal 0, the next 1.
    #[must_use]
    pub fn input<T: Row>(mut self, rows: Rows<T>, edge: Edge<T>) -> Self {
        let ordinal = self.inputs.len();
        let name = format!("input {ordinal} of {}", self.name);
        if !rows.stream.pipeline.is(&self.pipeline) {
            let error = Error::plan(format!("'{name}' comes from another pipeline"));
            self.refusal.get_or_insert(error);
            return self;
        }
        let plan = InputPlan { priority: edge.priority, item_type: ItemType::of::<T>() };
        match edge.apply(name, ordinal as i16, rows) {
            Ok(stream) => self.inputs.push((stream, plan)),
            Err(error) => {
                self.refusal.get_or_insert(error);
            }
        }
        self
    }

    /// How many processors there are, from 1 to 256; as many as the job gives to other operators
    /// unless set. A job makes no more than its
    /// [`partitions_max`](crate::RunOptions::partitions_max).
    #[must_use]
    pub fn partitions(self, partitions: usize) -> Self {
        Self { partitions: Some(partitions.clamp(1, 256)), ..self }
    }

    /// Watermarks matter at multiples of this many milliseconds, and timers of event time fire
    /// there; 1 unless set. A coarser grid lets more items be processed at once. `None`: only the
    /// end matters.
    #[must_use]
    pub fn watermark_grid_ms(self, grid_ms: Option<i64>) -> Self {
        Self { grid_ms, ..self }
    }

    /// Its processors set timers of processing time or ask for the time of the clock. In the
    /// ordered contracts it is refused then, unless
    /// [`allow_nondeterministic_order`](crate::RunOptions::allow_nondeterministic_order) admits it.
    #[must_use]
    pub fn uses_processing_time(self) -> Self {
        Self { uses_processing_time: true, ..self }
    }

    /// How many items an outbox takes in one call of the engine: smaller ones are sent on earlier.
    #[must_use]
    pub fn outbox_items(self, items: usize) -> Self {
        Self { outbox_items: items.max(1), ..self }
    }

    /// Puts the vertex into the pipeline, with this many output ports.
    ///
    /// # Errors
    /// If it has no inputs or no ports, an edge does not fit, or an input would have to wait for a
    /// source that feeds it too.
    pub fn outputs(self, ports: usize) -> Result<Outputs> {
        if let Some(error) = self.refusal {
            return Err(error);
        }
        let fail = |what: &str| Err(Error::plan(format!("the vertex '{}' {what}", self.name)));
        if self.inputs.is_empty() {
            return fail("has no inputs: rows come from sources");
        }
        if ports == 0 || ports > i16::MAX as usize {
            return fail(
                "needs at least one output: rows leave by `for_each`, `collect` or a table",
            );
        }
        if self.grid_ms.is_some_and(|grid_ms| grid_ms <= 0) {
            return fail("has a grid of watermarks of no length");
        }
        let interest = match self.grid_ms {
            Some(period_ms) => WatermarkInterest::Grids(vec![Grid { period_ms, offset_ms: 0 }]),
            None => WatermarkInterest::EndOnly,
        };
        let (streams, inputs): (Vec<_>, Vec<_>) = self.inputs.into_iter().unzip();
        let edges = tapped(&self.pipeline, &self.name, streams, &inputs, &interest)?;
        let plan = Arc::new(VertexPlan {
            name: self.name,
            inputs,
            ports: (0..ports).map(|_| OnceLock::new()).collect(),
            partitions: self.partitions,
            grid_ms: self.grid_ms,
            interest,
            uses_processing_time: self.uses_processing_time,
            outbox_items: self.outbox_items,
        });
        let operator = VertexOperator::new(Arc::clone(&plan), self.supplier);
        let stream = self.pipeline.join_edges(edges, Arc::new(operator), output_schema());
        Ok(Outputs { stream, plan })
    }
}

/// The edges into a vertex, with a tap each if there are several, and the sources of inputs of
/// higher numbers behind those of lower ones.
fn tapped(
    pipeline: &Pipeline,
    name: &str,
    streams: Vec<Stream>,
    inputs: &[InputPlan],
    interest: &WatermarkInterest,
) -> Result<Vec<Input>> {
    if streams.len() == 1 {
        return Ok(streams.into_iter().map(Stream::flush).collect());
    }
    let edges: Vec<Input> = streams.into_iter().map(Stream::flush).collect();
    let mut tapped = Vec::with_capacity(edges.len());
    for (number, &edge) in edges.iter().enumerate() {
        let operator = InputTap {
            name: format!("tap {number} of {name}"),
            input: number as i16,
            interest: interest.clone(),
            schema: item_schema().arrow(),
        };
        let stream = pipeline.join_edges(vec![edge], Arc::new(operator), item_schema());
        tapped.push(stream.flush());
    }
    for (edge, later) in edges.iter().zip(inputs) {
        for (tap, earlier) in tapped.iter().zip(inputs) {
            if earlier.priority < later.priority {
                pipeline.add_gate(*edge, tap.from)?;
            }
        }
    }
    Ok(tapped)
}

/// The output ports of a vertex.
pub struct Outputs {
    stream: Stream,
    plan: Arc<VertexPlan>,
}

impl Outputs {
    /// The items that leave by a port, which all are of this type. May be asked for more than once.
    ///
    /// # Errors
    /// If there is no such port, or it was asked for with another type.
    pub fn output<T: Row>(&self, port: usize) -> Result<Rows<T>> {
        let (name, ports) = (&self.plan.name, &self.plan.ports);
        let Some(of_port) = ports.get(port) else {
            let count = ports.len();
            return Err(Error::plan(format!("'{name}' has {count} ports, and no port {port}")));
        };
        let item_type = of_port.get_or_init(ItemType::of::<T>);
        item_type.check::<T>(|| format!("'{name}', port {port}"))?;
        let stream = self.stream.clone();
        let stream = match ports.len() {
            1 => stream,
            _ => stream.filter(&format!("port {port} of {name}"), move |batch| {
                let ports = batch.column(0).as_primitive::<Int16Type>();
                Ok(BooleanArray::from_unary(ports, |own| own == port as i16))
            }),
        };
        Ok(Rows::new(stream, Codec::Packed))
    }
}
