//! A chain whose steps run on threads of their own, because one of them calls a function that may
//! wait: for the lock of an interpreter, or for another process.
//!
//! Whole bundles go to the [`Executor`], so that the steps keep their meaning: what a filter has
//! taken out, or a CASE does not reach, is not computed.
//!
//! **Invariants:**
//! - no worker waits: the stage is asynchronous, and its bundle counts as not consumed until it is
//!   finished, so no watermark overtakes it, and what waits counts in the memory account;
//! - a panic of a function is an error of the job, as on a worker.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use thalweg_core::operator::Done;
use thalweg_core::{Bundle, Result, Transform};
use thalweg_expr::Executor;

use super::Chain;

/// A chain that an executor runs.
pub struct OutsideChain {
    chain: Arc<Chain>,
    executor: Arc<dyn Executor>,
}

impl OutsideChain {
    /// Runs this chain there.
    pub fn new(chain: Chain, executor: Arc<dyn Executor>) -> Self {
        OutsideChain { chain: Arc::new(chain), executor }
    }
}

impl Transform for OutsideChain {
    fn name(&self) -> String {
        self.chain.name()
    }

    /// Bundles without rows call no function.
    fn apply(&self, bundle: Bundle) -> Result<Bundle> {
        self.chain.apply(bundle)
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn begin(&self, bundle: Bundle, done: Done) {
        let chain = Arc::clone(&self.chain);
        self.executor.execute(Box::new(move || {
            let applied = catch_unwind(AssertUnwindSafe(|| chain.apply(bundle)));
            // Of a panic the worker makes an error that names the operator, as of its own.
            done(Box::new(move || applied.unwrap_or_else(|panic| resume_unwind(panic))));
        }));
    }
}
