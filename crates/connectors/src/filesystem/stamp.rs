//! What the file system says of a file: where it lies and when it was changed last.

use std::fs::Metadata;

use serde_json::{Value, json};
use thalweg_core::shim::{Clock, SystemClock};

/// File systems count time in steps. A change within the step in which a file was listed leaves its
/// stamp as it was, so a stamp counts only if it is older than this.
const SETTLED_MS: i64 = 1_000;

/// What the file system says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    /// When contents or attributes were changed last, in nanoseconds since 1970. No program can set
    /// it.
    changed_ns: i64,
    has_settled: bool,
}

impl Stamp {
    /// The stamp of a file, if the system has such.
    pub fn of(metadata: &Metadata) -> Option<Stamp> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let changed_ns = metadata.ctime() * 1_000_000_000 + metadata.ctime_nsec();
            let age_ms = SystemClock::new().wall_ms() - changed_ns / 1_000_000;
            let has_settled = age_ms >= SETTLED_MS;
            let (device, inode) = (metadata.dev(), metadata.ino());
            Some(Stamp { device, inode, changed_ns, has_settled })
        }
        #[cfg(not(unix))]
        {
            let _ = (metadata, SystemClock::new().wall_ms());
            None
        }
    }

    /// Where the file lies.
    pub fn place(self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// True if a file with this stamp holds what it held when it had the other one.
    pub fn proves(self, earlier: Stamp) -> bool {
        earlier.has_settled
            && self.place() == earlier.place()
            && self.changed_ns == earlier.changed_ns
    }

    /// Adds it to the JSON of a file.
    pub fn write(self, file: &mut Value) {
        file["inode"] = json!(format!("{}:{}", self.device, self.inode));
        if self.has_settled {
            file["changedNs"] = json!(self.changed_ns);
        }
    }

    /// Reads it from the JSON of a file.
    pub fn read(file: &Value) -> Option<Stamp> {
        let (device, inode) = file.get("inode")?.as_str()?.split_once(':')?;
        let changed_ns = file.get("changedNs").and_then(Value::as_i64);
        Some(Stamp {
            device: device.parse().ok()?,
            inode: inode.parse().ok()?,
            changed_ns: changed_ns.unwrap_or(0),
            has_settled: changed_ns.is_some(),
        })
    }
}
