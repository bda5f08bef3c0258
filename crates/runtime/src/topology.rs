//! NUMA nodes and their cores, as the system reports them, and where a worker may run.
//!
//! Only cores that the process may use count: a container or `taskset` may leave it some of them.
//!
//! A worker keeps to its own core only if there are as many workers as cores. With fewer it keeps
//! to its node, and the system finds it a core: two processes of one worker each would else share
//! the first core, and leave the others idle.

use std::sync::OnceLock;

/// Where Linux describes the nodes.
const SYSTEM_FOLDER: &str = "/sys/devices/system/node";

/// The machine as far as placing work is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// For each NUMA node its cores, by the system's numbers. Never empty.
    pub nodes: Vec<Vec<usize>>,
}

/// A worker and where it runs.
#[derive(Clone, Copy, Debug)]
pub struct WorkerPlace {
    /// Its number.
    pub worker: usize,
    /// Its NUMA node.
    pub numa_node: usize,
}

impl Topology {
    /// Reads the topology, or answers one node with all cores where it can't be read. It is read
    /// once.
    pub fn detect() -> Self {
        static FOUND: OnceLock<Topology> = OnceLock::new();
        FOUND.get_or_init(Self::read).clone()
    }

    fn read() -> Self {
        let found = Self::from_folder(SYSTEM_FOLDER).unwrap_or_else(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            Topology { nodes: vec![(0..cores).collect()] }
        });
        match affinity::allowed() {
            Some(allowed) => found.within(&allowed),
            None => found,
        }
    }

    /// What is left of it within these cores; all of it if none is (the system's lists don't
    /// agree).
    fn within(self, allowed: &[usize]) -> Self {
        let left = |cores: &Vec<usize>| -> Vec<usize> {
            cores.iter().copied().filter(|core| allowed.contains(core)).collect()
        };
        let nodes: Vec<Vec<usize>> =
            self.nodes.iter().map(left).filter(|cores| !cores.is_empty()).collect();
        if nodes.is_empty() { self } else { Topology { nodes } }
    }

    /// Reads what a folder says of nodes. One without cores has memory only.
    fn from_folder(folder: &str) -> Option<Self> {
        let nodes: Vec<Vec<usize>> =
            cores_of_nodes(folder).filter(|cores| !cores.is_empty()).collect();
        (!nodes.is_empty()).then_some(Topology { nodes })
    }

    /// For each node of the system its place here; none if no core here is on it.
    pub(crate) fn places_of_nodes(&self) -> Vec<Option<usize>> {
        cores_of_nodes(SYSTEM_FOLDER).map(|cores| self.place_of_node(&cores)).collect()
    }

    /// The place of the node with these cores, of which some may not be used.
    fn place_of_node(&self, cores: &[usize]) -> Option<usize> {
        self.nodes.iter().position(|own| own.iter().any(|core| cores.contains(core)))
    }

    /// The cores that one of `workers` workers keeps to; `None` if it may run on any.
    pub(crate) fn cores_for(&self, worker: usize, workers: usize) -> Option<Vec<usize>> {
        let all: usize = self.nodes.iter().map(Vec::len).sum();
        let (core, node) = self.place(worker);
        if workers == all {
            Some(vec![core])
        } else if workers < all && self.nodes.len() > 1 {
            Some(self.nodes[node].clone())
        } else {
            None
        }
    }

    /// The core and the node for a worker: nodes are filled one after the other, and workers
    /// beyond the cores start over.
    pub fn place(&self, worker: usize) -> (usize, usize) {
        let all: Vec<(usize, usize)> = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(node, cores)| cores.iter().map(move |&core| (core, node)))
            .collect();
        all[worker % all.len()]
    }

    /// How many nodes.
    pub fn numa_nodes(&self) -> usize {
        self.nodes.len()
    }
}

/// The cores of each node: reads `node0/cpulist`, `node1/cpulist`, … in a folder.
fn cores_of_nodes(folder: &str) -> impl Iterator<Item = Vec<usize>> {
    (0..)
        .map_while(move |n| std::fs::read_to_string(format!("{folder}/node{n}/cpulist")).ok())
        .map(|text| parse_list(&text))
}

/// Reads a list such as `0-3,8,10-11`. What can't be read is skipped.
fn parse_list(text: &str) -> Vec<usize> {
    text.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
        })
        .flatten()
        .collect()
}

/// Which cores threads may use; where the platform has no such thing nothing is known and nothing
/// happens.
#[cfg(target_os = "linux")]
pub(crate) mod affinity {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// Those of the calling thread.
    pub fn allowed() -> Option<Vec<usize>> {
        let set = sched_getaffinity(None).ok()?;
        Some((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
    }

    /// Those of the calling thread from here on. A system that refuses leaves it where it may run
    /// already.
    pub fn keep_to(cores: &[usize]) {
        let mut set = CpuSet::new();
        for &core in cores.iter().filter(|&&core| core < CpuSet::MAX_CPU) {
            set.set(core);
        }
        let _ = sched_setaffinity(None, &set);
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) mod affinity {
    pub fn allowed() -> Option<Vec<usize>> {
        None
    }

    pub fn keep_to(_cores: &[usize]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(parse_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(parse_list("\n"), Vec::<usize>::new());
    }

    #[test]
    fn workers_fill_node_after_node() {
        let topology = Topology { nodes: vec![vec![0, 1], vec![4, 5]] };
        let places: Vec<_> = (0..5).map(|worker| topology.place(worker)).collect();
        assert_eq!(places, [(0, 0), (1, 0), (4, 1), (5, 1), (0, 0)]);
    }

    #[test]
    fn only_cores_that_may_be_used_count() {
        let topology = Topology { nodes: vec![vec![0, 1], vec![4, 5]] };
        assert_eq!(topology.clone().within(&[1, 4, 5]).nodes, [vec![1], vec![4, 5]]);
        assert_eq!(topology.clone().within(&[4]).nodes, [[4]]);
        assert_eq!(topology.clone().within(&[9]), topology);
    }

    #[test]
    fn nodes_of_the_system_have_their_place_here() {
        let topology = Topology { nodes: vec![vec![1], vec![4, 5]] };
        assert_eq!(topology.place_of_node(&[0, 1]), Some(0));
        assert_eq!(topology.place_of_node(&[4, 5]), Some(1));
        assert_eq!(topology.place_of_node(&[2, 3]), None);
        assert_eq!(topology.place_of_node(&[]), None, "memory without cores");
    }

    #[test]
    fn workers_keep_to_a_core_only_if_there_is_one_for_each() {
        let topology = Topology { nodes: vec![vec![0, 1], vec![4, 5]] };
        assert_eq!(topology.cores_for(2, 4), Some(vec![4]));
        assert_eq!(topology.cores_for(2, 3), Some(vec![4, 5]));
        assert_eq!(topology.cores_for(0, 5), None);
        let one_node = Topology { nodes: vec![vec![0, 1]] };
        assert_eq!(one_node.cores_for(0, 1), None);
        assert_eq!(one_node.cores_for(1, 2), Some(vec![1]));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_keeps_to_its_cores() {
        let last = *affinity::allowed().expect("Linux reports them").last().expect("there is one");
        let kept = std::thread::spawn(move || {
            affinity::keep_to(&[last]);
            affinity::allowed()
        });
        assert_eq!(kept.join().expect("it ends"), Some(vec![last]));
    }
}
