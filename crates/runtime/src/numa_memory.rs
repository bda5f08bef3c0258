//! On which NUMA node the memory of rows is.
//!
//! StreamBox §7.1 labels a bundle with the node that its memory is on, and lets workers prefer
//! bundles of their own node. There a worker allocates on its node, so the node of whoever made a
//! bundle is that of its memory. Here memory comes from an allocator that uses freed pages again,
//! from a library that reads files, or from the program that the engine is part of: only the system
//! knows where it is. Where there are several nodes, the system is asked when a bundle is put into
//! a container; where it does not say, the label is that of the worker, as in the paper.
//!
//! **Invariant:** a label decides nothing but which of two bundles of a container is claimed first,
//! so a wrong one costs time and no row.
//!
//! What it does not do: it moves no page, and it allocates on no chosen node. The ordered contracts
//! take elements in their order, whatever their memory.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_data::ArrayData;

use crate::topology::Topology;

/// Says where memory is.
pub trait NumaMemory: Send + Sync {
    /// The node, by its place in the [`Topology`], that most of the memory of these rows is on;
    /// `None` if that is not known.
    fn node_of(&self, batch: &RecordBatch) -> Option<usize>;
}

/// One for all stages of a job.
pub type SharedNumaMemory = Arc<dyn NumaMemory>;

/// How many columns of a batch are looked at: one question answers for all of them, and a few show
/// where a batch was made.
const COLUMNS_MAX: usize = 8;

/// The system, if there are several nodes and it says where memory is.
pub(crate) fn of_system(topology: &Topology) -> Option<SharedNumaMemory> {
    if topology.numa_nodes() < 2 {
        return None;
    }
    let probe = [1_u8; 64];
    system::nodes_of(&[probe.as_ptr() as usize])?;
    Some(Arc::new(SystemMemory { places: topology.places_of_nodes() }))
}

/// What the system says.
struct SystemMemory {
    /// For each node of the system its place in the topology, if the job has cores there.
    places: Vec<Option<usize>>,
}

impl NumaMemory for SystemMemory {
    fn node_of(&self, batch: &RecordBatch) -> Option<usize> {
        let addresses = addresses_of(batch);
        let nodes = system::nodes_of(&addresses)?;
        let places = nodes.into_iter().flatten();
        most_frequent(places.filter_map(|node| *self.places.get(node)?))
    }
}

/// An address in the middle of the largest buffer of each column.
fn addresses_of(batch: &RecordBatch) -> Vec<usize> {
    let columns = batch.columns().iter().take(COLUMNS_MAX);
    columns.filter_map(|column| middle_of_largest(&column.to_data())).collect()
}

fn middle_of_largest(data: &ArrayData) -> Option<usize> {
    let own = data.buffers().iter().filter(|buffer| !buffer.is_empty());
    match own.max_by_key(|buffer| buffer.len()) {
        Some(largest) => Some(largest.as_ptr() as usize + largest.len() / 2),
        None => data.child_data().iter().find_map(middle_of_largest),
    }
}

/// What comes most often; of equals the least.
fn most_frequent(places: impl Iterator<Item = usize>) -> Option<usize> {
    let mut places: Vec<usize> = places.collect();
    places.sort_unstable();
    let runs = places.chunk_by(|a, b| a == b);
    // Of equally long runs `max_by_key` finds the last: from behind it is the first.
    runs.rev().max_by_key(|run| run.len()).map(|run| run[0])
}

#[cfg(target_os = "linux")]
mod system {
    #![allow(unsafe_code)]

    use std::ptr::null;

    /// Pages are aligned to this, or to a multiple of it.
    const PAGE_BYTES: usize = 4096;

    /// The node of the page of each address, `None` for one that has no memory yet; nothing if the
    /// system does not say (an old kernel, or a container that may not ask).
    pub(super) fn nodes_of(addresses: &[usize]) -> Option<Vec<Option<usize>>> {
        if addresses.is_empty() {
            return Some(Vec::new());
        }
        let pages: Vec<usize> =
            addresses.iter().map(|address| address & !(PAGE_BYTES - 1)).collect();
        let mut nodes: Vec<libc::c_int> = vec![-1; pages.len()];
        // SAFETY: with no nodes to move to, `move_pages` moves nothing: it looks up each page of
        // the calling process (0) and writes as many numbers as there are pages, which is how long
        // `nodes` is. It does not access what addresses point to, and answers for those that are
        // not mapped with an error number.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                pages.len(),
                pages.as_ptr(),
                null::<libc::c_int>(),
                nodes.as_mut_ptr(),
                0,
            )
        };
        (result == 0).then(|| nodes.into_iter().map(|node| usize::try_from(node).ok()).collect())
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn nodes_of(_: &[usize]) -> Option<Vec<Option<usize>>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Int64Array, NullArray, StringArray};

    use super::*;

    fn batch() -> RecordBatch {
        let numbers = Arc::new(Int64Array::from_iter_values(0..4096)) as ArrayRef;
        let texts = Arc::new(StringArray::from(vec!["a text of some length"; 4096])) as ArrayRef;
        let nothing = Arc::new(NullArray::new(4096)) as ArrayRef;
        RecordBatch::try_from_iter([("n", numbers), ("t", texts), ("x", nothing)]).expect("columns")
    }

    #[test]
    fn the_largest_buffer_of_each_column_is_looked_at() {
        let batch = batch();
        let addresses = addresses_of(&batch);
        assert_eq!(addresses.len(), 2, "nothing has no memory");
        let texts = batch.column(1).to_data();
        let bytes = &texts.buffers()[1];
        assert!(bytes.as_slice().as_ptr_range().contains(&(addresses[1] as *const u8)));
    }

    #[test]
    fn the_node_of_most_columns_counts() {
        assert_eq!(most_frequent([3, 1, 1].into_iter()), Some(1));
        assert_eq!(most_frequent([2, 0, 2, 0].into_iter()), Some(0));
        assert_eq!(most_frequent(std::iter::empty()), None);
    }

    /// A machine of one node, or one that does not say, is what most tests run on.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_names_a_node_that_exists() {
        let addresses = addresses_of(&batch());
        let Some(nodes) = system::nodes_of(&addresses) else { return };
        assert_eq!(nodes.len(), addresses.len());
        let known = |node: &usize| {
            std::path::Path::new(&format!("/sys/devices/system/node/node{node}")).exists()
                || *node == 0
        };
        assert!(nodes.iter().flatten().all(known), "{nodes:?}");
        assert_eq!(system::nodes_of(&[4096]), Some(vec![None]), "no memory is there");
    }

    #[test]
    fn one_node_needs_no_question() {
        assert!(of_system(&Topology { nodes: vec![vec![0, 1]] }).is_none());
    }

    #[test]
    fn nodes_of_the_system_are_places_of_the_topology() {
        let memory = SystemMemory { places: vec![Some(0); 64] };
        if system::nodes_of(&addresses_of(&batch())).is_some() {
            assert_eq!(memory.node_of(&batch()), Some(0));
        }
        let memory = SystemMemory { places: Vec::new() };
        assert_eq!(memory.node_of(&batch()), None, "no core of the job is on that node");
    }
}
