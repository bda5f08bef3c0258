//! Freed memory and the memory limit.
//!
//! mimalloc keeps freed memory for a second before the system gets it back: a pipeline that frees
//! and allocates gigabytes a second would pay 10 to 20 % of its throughput for giving it back at
//! once (NEXMark). Where the memory limit is small, what is kept can exceed what the process may
//! take beyond the limit, so there it is given back soon. Memory that was freed keeps the delay of
//! its time, so the short delay comes first, and a job with more memory ends it.

use std::os::raw::{c_int, c_long};
use std::sync::OnceLock;

/// Below this limit the resident size counts for more than throughput.
const SMALL_LIMIT_BYTES: usize = 512 << 20;
const SHORT_DELAY_MS: c_long = 10;
/// `mi_option_purge_delay` in the `mimalloc.h` of version 3; the bindings have no name for it.
const PURGE_DELAY: c_int = 15;

/// The delay that mimalloc has by itself, or from the environment.
static OWN_DELAY_MS: OnceLock<c_long> = OnceLock::new();

/// Gives freed memory back soon, from now on.
pub fn begin() {
    OWN_DELAY_MS.get_or_init(delay_ms);
    set_delay_ms(SHORT_DELAY_MS.min(delay_ms()));
}

/// Keeps freed memory for a while if a job has a large memory limit.
pub fn keep_within(memory_limit_bytes: usize) {
    if memory_limit_bytes >= SMALL_LIMIT_BYTES
        && let Some(own) = OWN_DELAY_MS.get()
    {
        set_delay_ms(*own);
    }
}

#[allow(unsafe_code, reason = "a foreign function")]
fn delay_ms() -> c_long {
    // SAFETY: the function reads a number in a table of atomics, from any thread and at any time.
    unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) }
}

#[allow(unsafe_code, reason = "a foreign function")]
fn set_delay_ms(delay_ms: c_long) {
    // SAFETY: the function stores a number in a table of atomics, from any thread and at any time.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, delay_ms) }
}
