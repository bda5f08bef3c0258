//! Graphs of processors: what pipelines cannot say, in the manner of Jet's Core API.
//!
//! A *vertex* takes items of several inputs and puts items out by several ports. Its work is done
//! by [`Processor`]s: one for each partition, each touched by one worker at a time. An [`Edge`]
//! says which of them an item reaches, and whether an input is consumed before others.
//!
//! | idea | here |
//! |---|---|
//! | source, sink | [`RowSource`](super::RowSource), [`Rows::for_each`], tables |
//! | vertex | [`Pipeline::vertex`] with a function that makes processors |
//! | edge | [`Vertex::input`], in the order of their ordinals; [`Outputs::output`] |
//! | partitioned, broadcast, isolated, unicast, all-to-one | [`Edge::partitioned`], [`Edge::broadcast`], [`Edge::isolated`], [`Edge::balanced`], [`Edge::to_one`] |
//! | priority of an edge | [`Edge::priority`] |
//! | inbox, outbox | [`Inbox`], [`Context::offer`] |
//! | snapshots | [`Processor::save`], [`Processor::restore`] |
//! | timers | [`Context::set_timer`], [`Context::set_processing_timer`] |
//!
//! **Processors are cooperative.** They share the workers with everything else: a call returns
//! within about a millisecond and never waits. When [`Context::offer`] answers false, the outbox is
//! full: the item was not taken, and the processor returns. It is called again with what it has
//! left in its inbox, once there is room; where it stopped is a matter of its own fields.
//!
//! **What holds**
//! - The items of one input that come from one upstream partition stay in order.
//! - All items of an input come before its [`Processor::complete_input`], all inputs before
//!   [`Processor::complete`].
//! - A snapshot is taken between calls, and never while an item is partly processed, a watermark or
//!   an end is not finished: cursors of that kind need not be saved.
//! - A key belongs to one of 256 virtual partitions, and a processor owns a range of them. What is
//!   saved under a key is restored wherever that key's items go, whatever the number of workers.
//!
//! What it does not do: graphs have no cycles, and processors are no sources or sinks.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use thalweg::pipeline::Pipeline;
//! use thalweg::rows::vertex::{Context, Edge, Inbox, Processor};
//! use thalweg::{Result, RunOptions};
//!
//! /// Divides numbers, by port 0, and says which it could not divide, by port 1.
//! struct Divide;
//!
//! impl Processor for Divide {
//!     type Key = ();
//!     type Saved = ();
//!
//!     fn process(&mut self, _input: usize, inbox: &mut Inbox<'_>, context: &mut Context<'_, ()>) -> Result<()> {
//!         while let Some((number, by)) = inbox.peek::<(u32, u32)>()? {
//!             let is_taken = match number.checked_div(by) {
//!                 Some(quotient) => context.offer(0, &quotient)?,
//!                 None => context.offer(1, &number)?,
//!             };
//!             if !is_taken {
//!                 return Ok(()); // called again with this item
//!             }
//!             inbox.remove();
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let pipeline = Pipeline::new();
//! let numbers = pipeline.read_rows("numbers", [(6_u32, 3_u32), (5, 0), (8, 2)]);
//! let divided = pipeline
//!     .vertex("divide", |_| Divide)
//!     .input(numbers, Edge::balanced())
//!     .outputs(2)?;
//! let quotients = divided.output::<u32>(0)?.collect("quotients");
//! let refused = divided.output::<u32>(1)?.collect("refused");
//! pipeline.run(RunOptions::default())?;
//! let mut quotients = quotients.rows();
//! quotients.sort();
//! assert_eq!((quotients, refused.rows()), (vec![2, 4], vec![5]));
//! # Ok::<(), thalweg::Error>(())
//! ```
//!
//! [`Rows::for_each`]: super::Rows::for_each
//! [`Pipeline::vertex`]: crate::pipeline::Pipeline::vertex

mod builder;
mod context;
mod edge;
mod input_tap;
mod operator;
mod partition;
mod plan;
mod processor;
mod snapshot;
mod waiting;

pub use builder::{Outputs, Vertex};
pub use context::{Context, Inbox};
pub use edge::Edge;
pub use processor::{Processor, VertexContext};
pub use snapshot::{Entry, SavedEntries};

/// The columns of items on their way to a vertex: the ordinal of the input, the virtual partition
/// (NULL for all partitions), and the packed item.
const INPUT: &str = "$input";
/// The column of virtual partitions, of items that come to a vertex and of those that leave one.
const PARTITION: &str = "$partition";
/// The column that says by which port an item leaves a vertex.
const PORT: &str = "$port";
const ITEM: &str = "item";

/// A type as errors name it, and as it is compared.
#[derive(Clone, Copy, Debug)]
struct ItemType {
    id: std::any::TypeId,
    name: &'static str,
}

impl ItemType {
    fn of<T: 'static>() -> Self {
        ItemType { id: std::any::TypeId::of::<T>(), name: std::any::type_name::<T>() }
    }

    /// Refuses items of another type.
    fn check<T: 'static>(self, what: impl Fn() -> String) -> thalweg_core::Result<()> {
        if self.id == std::any::TypeId::of::<T>() {
            return Ok(());
        }
        let (name, wanted) = (self.name, std::any::type_name::<T>());
        Err(thalweg_core::Error::user(format!(
            "{}: items are of type {name}, not {wanted}",
            what()
        )))
    }
}
