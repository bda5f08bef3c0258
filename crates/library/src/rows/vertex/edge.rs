//! Which partitions of a vertex an item reaches.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int16Type;
use arrow_array::{ArrayRef, BinaryArray, Int16Array, RecordBatch};
use thalweg_core::{Column, DataType, Error, Result, TableSchema};
use thalweg_operators::keys::hash_bytes;

use super::{INPUT, ITEM, PARTITION};
use crate::pipeline::Stream;
use crate::rows::codec::packed;
use crate::rows::{Row, RowKey, Rows, virtual_partition};

/// The virtual partition of an item.
type PartitionOf<T> = Arc<dyn Fn(&T) -> u8 + Send + Sync>;

enum Routing<T> {
    Partitioned(PartitionOf<T>),
    Broadcast,
    Isolated,
    Balanced,
    ToOne,
}

impl<T> Clone for Routing<T> {
    fn clone(&self) -> Self {
        match self {
            Routing::Partitioned(of) => Routing::Partitioned(Arc::clone(of)),
            Routing::Broadcast => Routing::Broadcast,
            Routing::Isolated => Routing::Isolated,
            Routing::Balanced => Routing::Balanced,
            Routing::ToOne => Routing::ToOne,
        }
    }
}

/// How items reach the processors of a vertex, and when.
///
/// Items go to virtual partitions, of which there are always 256, and each processor owns a range
/// of them. So where an item goes relative to others does not depend on the number of workers.
pub struct Edge<T> {
    routing: Routing<T>,
    pub(super) priority: i32,
}

impl<T: Row> Edge<T> {
    fn new(routing: Routing<T>) -> Self {
        Edge { routing, priority: 0 }
    }

    /// Items with equal keys go to one processor. Inputs that are partitioned by keys of one type
    /// bring equal keys together.
    pub fn partitioned<K: RowKey>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> Self {
        Edge::partitioned_by(move |item| virtual_partition(&key(item)))
    }

    /// A partitioner of one's own: it says to which virtual partition an item goes.
    pub fn partitioned_by(partition: impl Fn(&T) -> u8 + Send + Sync + 'static) -> Self {
        Edge::new(Routing::Partitioned(Arc::new(partition)))
    }

    /// Each item goes to all processors.
    pub fn broadcast() -> Self {
        Edge::new(Routing::Broadcast)
    }

    /// Items stay in the virtual partition in which a processor upstream has offered them, without
    /// a look at them: with as many processors on both sides, the first upstream feeds the first
    /// here, and so on. Only for rows that come from a vertex, perhaps through filters.
    pub fn isolated() -> Self {
        Edge::new(Routing::Isolated)
    }

    /// Each item goes to one processor, whichever: items are spread evenly. Equal items go to one.
    pub fn balanced() -> Self {
        Edge::new(Routing::Balanced)
    }

    /// All items go to the first processor.
    pub fn to_one() -> Self {
        Edge::new(Routing::ToOne)
    }

    /// Inputs with lower numbers are consumed whole, their [`complete_input`] included, before an
    /// item of one with a higher number is processed; 0 unless given. The sources of the others are
    /// not read meanwhile, so an input of a lower number has to end. Refused in contract
    /// `event_time`, where inputs come by time.
    ///
    /// [`complete_input`]: super::Processor::complete_input
    #[must_use]
    pub fn priority(self, priority: i32) -> Self {
        Edge { priority, ..self }
    }

    /// The items of rows with their partitions.
    pub(super) fn apply(&self, name: String, input: i16, rows: Rows<T>) -> Result<Stream> {
        let (codec, routing) = (rows.codec, self.routing.clone());
        let places = match &routing {
            Routing::Isolated => Some(partition_column(&name, rows.stream.schema())?),
            _ => None,
        };
        let (schema, arrow) = (item_schema(), item_schema().arrow());
        Ok(rows.stream.map(&name, schema, move |batch| {
            let items = codec.rows::<T>(&batch)?;
            let partitions: ArrayRef = match &routing {
                Routing::Partitioned(of) => {
                    let mut partitions = Vec::with_capacity(batch.num_rows());
                    codec.read::<T>(&batch, None, |_, item| {
                        partitions.push(i16::from(of(&item)));
                        Ok(())
                    })?;
                    Arc::new(Int16Array::from(partitions))
                }
                Routing::Broadcast => Arc::new(Int16Array::new_null(batch.num_rows())),
                Routing::Isolated => Arc::clone(batch.column(places.unwrap_or_default())),
                Routing::Balanced => Arc::new(spread(items.as_binary())),
                Routing::ToOne => Arc::new(Int16Array::from(vec![0; batch.num_rows()])),
            };
            let inputs: ArrayRef = Arc::new(Int16Array::from(vec![input; batch.num_rows()]));
            Ok(RecordBatch::try_new(Arc::clone(&arrow), vec![inputs, partitions, items])?)
        }))
    }
}

/// The column that says in which virtual partition a row was made.
fn partition_column(name: &str, schema: &TableSchema) -> Result<usize> {
    schema.index_of(PARTITION).ok_or_else(|| {
        Error::plan(format!("'{name}' is isolated, and its rows do not come from a vertex"))
            .hint("partition it by a key, or take the rows right behind the vertex")
    })
}

fn spread(items: &BinaryArray) -> Int16Array {
    let partition = |item: Option<&[u8]>| (hash_bytes(item.unwrap_or_default()) >> 56) as i16;
    items.iter().map(|item| Some(partition(item))).collect()
}

/// The columns of items that come to a vertex.
pub(super) fn item_schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new(INPUT, DataType::SmallInt.not_null()),
        Column::new(PARTITION, DataType::SmallInt.nullable()),
        Column::new(ITEM, DataType::BYTES.not_null()),
    ])
}

/// The columns of a batch of items.
pub(super) struct Items<'a> {
    pub inputs: &'a Int16Array,
    pub partitions: &'a Int16Array,
    pub items: &'a BinaryArray,
}

impl<'a> Items<'a> {
    pub(super) fn of(batch: &'a RecordBatch) -> Result<Self> {
        let numbers = |place: usize| {
            let column = batch.columns().get(place);
            column.and_then(|column| column.as_primitive_opt::<Int16Type>())
        };
        match (numbers(0), numbers(1)) {
            (Some(inputs), Some(partitions)) => {
                Ok(Items { inputs, partitions, items: packed(batch)? })
            }
            _ => Err(Error::internal("items of a vertex do not say which input they come by")),
        }
    }
}
