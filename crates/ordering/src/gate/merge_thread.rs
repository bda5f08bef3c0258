//! Merging by a thread of its own with a heap, as an operator in front of the reader would: the
//! baseline that Viper compares its channel with (§3.1).
//!
//! **The invariant that makes it work:** the thread passes on the least head only when every source
//! that has not ended has a head.
//!
//! Each tuple goes through two queues and one more thread than with
//! [`ScaleGate`](super::ScaleGate). The order is the same. A silent source holds everything back
//! until it shows a tuple or ends: there are no heartbeats here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// A thread that merges.
pub struct MergeThread<T> {
    sources: Vec<SyncSender<(i64, T)>>,
    merged: Receiver<(usize, i64, T)>,
    thread: JoinHandle<()>,
}

impl<T: Send + 'static> MergeThread<T> {
    /// A thread in front of one reader. Each queue holds `bound` tuples.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(sources: usize, bound: usize) -> std::io::Result<Self> {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..sources).map(|_| sync_channel(bound)).unzip();
        let (out, merged) = sync_channel(bound);
        let body = move || merge(&receivers, &out);
        let thread = std::thread::Builder::new().name("merge".to_owned()).spawn(body)?;
        Ok(MergeThread { sources: senders, merged, thread })
    }

    /// The queues of the sources, what comes out, and the thread to join.
    #[expect(clippy::type_complexity, reason = "three handles for three roles")]
    pub fn split(self) -> (Vec<SyncSender<(i64, T)>>, Receiver<(usize, i64, T)>, JoinHandle<()>) {
        (self.sources, self.merged, self.thread)
    }
}

/// A head in the heap: only time and source are compared.
struct Head<T>(i64, usize, T);

impl<T> PartialEq for Head<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl<T> Eq for Head<T> {}
impl<T> PartialOrd for Head<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Head<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

fn merge<T>(sources: &[Receiver<(i64, T)>], out: &SyncSender<(usize, i64, T)>) {
    let mut heads = BinaryHeap::with_capacity(sources.len());
    let head = |place: usize| -> Option<Reverse<Head<T>>> {
        let (time_ms, tuple) = sources[place].recv().ok()?;
        Some(Reverse(Head(time_ms, place, tuple)))
    };
    heads.extend((0..sources.len()).filter_map(head));
    while let Some(Reverse(Head(time_ms, place, tuple))) = heads.pop() {
        if out.send((place, time_ms, tuple)).is_err() {
            return;
        }
        heads.extend(head(place));
    }
}
