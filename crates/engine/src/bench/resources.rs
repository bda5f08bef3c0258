//! What a run costs: time of processors, and memory.

use std::fs;
use std::time::Duration;

use cpu_time::ProcessTime;
use thalweg_runtime::memory;

/// The state of affairs at the beginning of a run.
pub(super) struct Resources {
    processor: ProcessTime,
}

/// What was spent since then.
pub(super) struct Spent {
    /// By all threads of the process together.
    pub(super) processor_time: Duration,
    /// The most memory that was resident since then; where the mark can't be set back, ever.
    pub(super) resident_peak_bytes: Option<usize>,
}

impl Resources {
    /// From now on.
    pub(super) fn now() -> Resources {
        // Linux: sets the mark of the most resident memory back to what is resident now. Elsewhere
        // there is neither the file nor the mark.
        let _ = fs::write("/proc/self/clear_refs", "5");
        Resources { processor: ProcessTime::now() }
    }

    /// Until now.
    pub(super) fn spent(self) -> Spent {
        Spent {
            processor_time: self.processor.elapsed(),
            resident_peak_bytes: memory::peak_resident_bytes(),
        }
    }
}
