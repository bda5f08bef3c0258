//! The one switch between the standard library and loom.
//!
//! Everything concurrent in this crate, and the runtime's own atomics, comes from here. Under
//! `--cfg loom` the names stand for loom's model-checked versions, and the queue, which loom can't
//! look into, becomes a locked list with the same promises.

#[cfg(loom)]
pub use loom::{
    sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Arc, Condvar, Mutex, MutexGuard, RwLock},
    thread,
};

#[cfg(not(loom))]
pub use std::{
    sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Arc, Condvar, Mutex, MutexGuard, RwLock},
    thread,
};

#[cfg(loom)]
pub use loom::cell::UnsafeCell;

/// A cell whose accesses loom can watch; here it only passes the pointer on.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// A cell that holds a value.
    pub fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }
    /// Reads through the pointer. Whoever follows it answers for it that nobody writes meanwhile.
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }
    /// Writes through the pointer. Whoever follows it answers for it that nobody else does.
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// An unbounded queue for any number of producers and consumers: an item that was pushed before a
/// `pop` began (in the happens-before order) is seen by it.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct Queue<T>(crossbeam_queue::SegQueue<T>);

#[cfg(not(loom))]
impl<T> Queue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Queue(crossbeam_queue::SegQueue::new())
    }
    /// Adds an item at the back.
    pub fn push(&self, item: T) {
        self.0.push(item);
    }
    /// Takes the item at the front.
    pub fn pop(&self) -> Option<T> {
        self.0.pop()
    }
    /// True if nothing was there at the moment of asking.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The same promises under loom, kept with a lock.
#[cfg(loom)]
#[derive(Debug)]
pub struct Queue<T>(Mutex<std::collections::VecDeque<T>>);

#[cfg(loom)]
impl<T> Queue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Queue(Mutex::new(std::collections::VecDeque::new()))
    }
    /// Adds an item at the back.
    pub fn push(&self, item: T) {
        self.0.lock().expect("loom does not poison").push_back(item);
    }
    /// Takes the item at the front.
    pub fn pop(&self) -> Option<T> {
        self.0.lock().expect("loom does not poison").pop_front()
    }
    /// True if nothing was there at the moment of asking.
    pub fn is_empty(&self) -> bool {
        self.0.lock().expect("loom does not poison").is_empty()
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}
