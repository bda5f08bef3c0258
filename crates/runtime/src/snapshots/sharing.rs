//! Restores of many partitions, shared by several threads.

use thalweg_core::{Error, Result};
use thalweg_ordering::sync::{AtomicUsize, Ordering};

/// Does `make` for all numbers below `count` on up to this many threads, the caller's among them.
/// What comes of them is in the order of the numbers; the first error in this order wins.
pub(super) fn shared<T: Send>(
    threads: usize,
    count: usize,
    make: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let make_some = || {
        // Relaxed: it only hands out numbers.
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let numbers = numbers.take_while(|&number| number < count);
        numbers.map(|number| (number, make(number))).collect::<Vec<_>>()
    };
    let mut made = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(count)).map(|_| scope.spawn(make_some)).collect();
        let mut made = make_some();
        for other in others {
            let panicked = |_| Error::internal("restoring state panicked");
            made.extend(other.join().map_err(panicked)?);
        }
        Ok::<_, Error>(made)
    })?;
    made.sort_unstable_by_key(|&(number, _)| number);
    made.into_iter().map(|(_, made)| made).collect()
}
