//! A lane: the containers of one input, in epoch order.
//!
//! # How containers come and go
//! - *On demand*: the first bundle that leaves container C by an edge makes C's container
//!   downstream, and before it any missing one of the containers older than C, so that the list
//!   downstream has the order of the list upstream ([`Lane::link`]).
//! - *Merged*: an operator that passes no watermark on closes its output container without one;
//!   the list then treats it as one with the next. What hangs on its links downstream is merged
//!   the same way when it is dropped.
//! - *Destroyed*: from the front, once finished ([`Lane::drop_finished`]).
//!
//! # Locks
//! `link` holds the reader lock upstream while it takes the writer lock downstream. Stages are in
//! topological order and nothing locks the other way round, so there is no cycle.

use thalweg_ordering::sync::{Arc, AtomicBool, AtomicU64, Ordering, RwLock};

#[cfg(feature = "baselines")]
use crate::container::End;
use crate::container::{Container, ContainerList, ContainerState};

/// The containers of one input of one stage.
pub struct Lane {
    list: ContainerList,
    /// Containers ever made here. Written under the writer lock.
    made: AtomicU64,
    /// Every container with a smaller index is complete and has nothing left to claim. Since
    /// nothing is put into a complete container, that stays so; whoever looks may raise it.
    claimed: AtomicU64,
    /// Bundles of containers behind more cuts than this are not claimed yet. Raised by whoever lets
    /// a cut through.
    open_to: AtomicU64,
    /// Output edges of the owning stage that hang on this lane's containers.
    edges: usize,
    numa_nodes: usize,
    /// Set while every source behind this lane is idle: the joint watermark does without it.
    pub(crate) idle: AtomicBool,
}

impl Lane {
    /// An empty lane whose containers have links for this many edges. With `stops_cuts` nothing is
    /// claimed behind a cut before [`Lane::let_cut_through`].
    pub fn new(edges: usize, numa_nodes: usize, stops_cuts: bool) -> Self {
        Lane {
            list: RwLock::default(),
            made: AtomicU64::new(0),
            claimed: AtomicU64::new(0),
            open_to: AtomicU64::new(if stops_cuts { 0 } else { u64::MAX }),
            edges,
            numa_nodes,
            idle: AtomicBool::new(false),
        }
    }

    /// Counts containers from here on; none is made yet. Rows of another run that operators
    /// remember then stand before those to come.
    pub(crate) fn begin_at(&mut self, index: u64) {
        self.made = AtomicU64::new(index);
    }

    /// How many containers were made, here and in the run that this one resumes.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Makes the next container, behind this number of cuts, and puts it at the young end.
    pub fn append(&self, cuts: u64) -> Arc<Container> {
        let mut list = self.list.write().expect("no panic under a list lock");
        self.append_locked(&mut list, cuts)
    }

    /// Bundles behind the cut in front may be claimed from here on.
    pub(crate) fn let_cut_through(&self) {
        // Relaxed: what was before the cut is consumed, and the caller wakes whoever looks.
        self.open_to.fetch_add(1, Ordering::Relaxed);
    }

    fn append_locked(
        &self,
        list: &mut std::collections::VecDeque<Arc<Container>>,
        cuts: u64,
    ) -> Arc<Container> {
        // Relaxed: written under the writer lock only.
        let index = self.made.fetch_add(1, Ordering::Relaxed);
        let container = Arc::new(Container::new((index, cuts), self.edges, self.numa_nodes));
        list.push_back(Arc::clone(&container));
        container
    }

    /// The container downstream of `of` by this edge, made now if need be, with any missing older
    /// one first.
    pub fn link(&self, of: &Arc<Container>, edge: usize, down: &Lane) -> Arc<Container> {
        if let Some(container) = of.down[edge].get() {
            return Arc::clone(container);
        }
        let list = self.list.read().expect("no panic under a list lock");
        let mut down_list = down.list.write().expect("no panic under a list lock");
        for container in list.iter().take_while(|c| c.index <= of.index) {
            let append = || down.append_locked(&mut down_list, container.cuts);
            container.down[edge].get_or_init(append);
        }
        drop(down_list);
        let linked = of.down[edge].get().expect("a container in use is in its list");
        Arc::clone(linked)
    }

    /// Counts a bundle into the youngest container, or into a new one if that is not open, and says
    /// which place it has there. Only for lanes whose containers [`Lane::close_open`] closes.
    #[cfg(feature = "baselines")]
    pub(crate) fn count_into_open(&self) -> (Arc<Container>, u64) {
        let mut list = self.list.write().expect("no panic under a list lock");
        let open = self.open_locked(&mut list);
        let place = open.count_in();
        (open, place)
    }

    /// Closes the container into which bundles are counted.
    #[cfg(feature = "baselines")]
    pub(crate) fn close_open(&self, end: thalweg_core::Watermark, ingest_ns: u64) {
        let mut list = self.list.write().expect("no panic under a list lock");
        self.open_locked(&mut list).close(End::Watermark(end), ingest_ns);
    }

    #[cfg(feature = "baselines")]
    fn open_locked(&self, list: &mut std::collections::VecDeque<Arc<Container>>) -> Arc<Container> {
        match list.back() {
            Some(youngest) if youngest.state() == ContainerState::Open => Arc::clone(youngest),
            // Without cuts: a job that takes snapshots keeps the boundaries of epochs.
            _ => self.append_locked(list, 0),
        }
    }

    /// True while every source behind it is idle.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle.load(Ordering::SeqCst)
    }

    /// The oldest container, if any.
    pub fn front(&self) -> Option<Arc<Container>> {
        self.list.read().expect("no panic under a list lock").front().cloned()
    }

    /// The container with this index, or the oldest one if that has been dropped already; `None`
    /// if it is not made yet.
    pub fn at_or_after(&self, index: u64) -> Option<Arc<Container>> {
        let list = self.list.read().expect("no panic under a list lock");
        let first = list.front()?.index;
        list.get(usize::try_from(index.saturating_sub(first)).ok()?).cloned()
    }

    /// Drops finished containers from the old end and returns them, each to one caller only.
    pub fn drop_finished(&self) -> Vec<Arc<Container>> {
        let mut list = self.list.write().expect("no panic under a list lock");
        let finished = list.iter().take_while(|container| container.is_finished()).count();
        list.drain(..finished).collect()
    }

    /// How many containers there are.
    pub fn open_containers(&self) -> usize {
        self.list.read().expect("no panic under a list lock").len()
    }

    /// Walks from the oldest to the youngest container that may have something to claim until
    /// `visit` returns something. However many older ones wait for their last bundles, they are not
    /// looked at again. Not for lanes with `Lane::close_open`, where a bundle that is counted may
    /// be put after the end.
    pub fn walk_unclaimed<T>(
        &self,
        mut visit: impl FnMut(&Arc<Container>) -> Option<T>,
    ) -> Option<T> {
        let list = self.list.read().expect("no panic under a list lock");
        // Relaxed: whatever a worker has found to be claimed is so for good.
        let claimed = self.claimed.load(Ordering::Relaxed).saturating_sub(list.front()?.index);
        let mut containers = list.range(list.len().min(claimed as usize)..).peekable();
        let is_claimed = |container: &&Arc<Container>| {
            // In this order: in a complete container whatever was put is seen.
            container.state() != ContainerState::Open && container.is_claimed()
        };
        while let Some(container) = containers.next_if(is_claimed) {
            self.claimed.fetch_max(container.index + 1, Ordering::Relaxed);
        }
        let open_to = self.open_to.load(Ordering::Relaxed);
        containers.take_while(|container| container.cuts <= open_to).find_map(&mut visit)
    }

    /// Walks from the oldest to the youngest container until `visit` returns something.
    #[cfg(feature = "baselines")]
    pub fn walk<T>(&self, visit: impl FnMut(&Arc<Container>) -> Option<T>) -> Option<T> {
        self.list.read().expect("no panic under a list lock").iter().find_map(visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::End;
    use proptest::prelude::*;
    use thalweg_core::Watermark;

    #[test]
    fn linking_a_young_container_makes_the_older_ones_first() {
        let (up, down) = (Lane::new(1, 1, false), Lane::new(0, 1, false));
        let containers: Vec<_> = (0..3).map(|_| up.append(0)).collect();
        let third = up.link(&containers[2], 0, &down);
        assert_eq!(third.index, 2);
        assert_eq!(down.open_containers(), 3);
        assert_eq!(up.link(&containers[0], 0, &down).index, 0);
    }

    #[test]
    fn what_is_claimed_is_not_looked_at_again() {
        let lane = Lane::new(0, 1, false);
        let containers: Vec<_> = (0..4).map(|_| lane.append(0)).collect();
        let visited = || {
            let mut visited = Vec::new();
            lane.walk_unclaimed(|container| {
                visited.push(container.index);
                None::<()>
            });
            visited
        };
        assert_eq!(visited(), [0, 1, 2, 3], "open ones may get something");
        for index in [0, 1, 3] {
            containers[index].close(End::Watermark(Watermark(index as i64)), 0);
        }
        assert_eq!(visited(), [2, 3]);
        assert_eq!(lane.claimed.load(Ordering::Relaxed), 2);
        for container in &containers[..2] {
            assert!(container.retrieve());
            container.mark_consumed();
        }
        lane.drop_finished();
        assert_eq!(visited(), [2, 3], "places move, indices stay");
        containers[2].close(End::Merged, 0);
        assert!(visited().is_empty());
        lane.append(0);
        assert_eq!(visited(), [4]);
    }

    proptest! {
        /// Whatever order containers are linked in, the lists keep the same order, each container
        /// has exactly one partner, and dropping finished ones never drops an unfinished one.
        #[test]
        fn lists_keep_epoch_order(order in prop::collection::vec(0usize..12, 1..60)) {
            let (up, down) = (Lane::new(1, 1, false), Lane::new(0, 1, false));
            let containers: Vec<_> = (0..12).map(|_| up.append(0)).collect();
            for &i in &order {
                prop_assert_eq!(up.link(&containers[i], 0, &down).index, i as u64);
            }
            let youngest = *order.iter().max().expect("not empty");
            prop_assert_eq!(down.open_containers(), youngest + 1);
            for (i, container) in containers.iter().enumerate() {
                let end = End::Watermark(Watermark(i as i64));
                container.close(if i % 3 == 0 { End::Merged } else { end }, 0);
                if i % 3 != 0 && i < 7 {
                    prop_assert!(container.retrieve());
                    container.mark_consumed();
                }
            }
            up.drop_finished();
            // 0 and 3 and 6 were merged (cancelled, empty), the others up to 6 consumed.
            prop_assert_eq!(up.front().expect("seven is left").index, 7);
            prop_assert_eq!(up.at_or_after(6).expect("the next one").index, 7);
            prop_assert_eq!(up.at_or_after(9).expect("still there").index, 9);
            prop_assert!(up.at_or_after(12).is_none());
        }
    }
}
