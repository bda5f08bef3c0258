//! What the file system, or an object store, says of a file: where it lies and which one it is.

use std::fs::Metadata;

use serde_json::{Value, json};
use thalweg_core::shim::{Clock, SystemClock};

/// File systems count time in steps. A change within the step in which a file was listed leaves its
/// stamp as it was, so a stamp counts only if it is older than this.
const SETTLED_MS: i64 = 1_000;

/// What is said of a file beyond its name and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// By the file system of this machine.
    File(FileStamp),
    /// By an object store.
    Object(ObjectStamp),
}

/// What the file system says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    /// When contents or attributes were changed last, in nanoseconds since 1970. No program can set
    /// it.
    changed_ns: i64,
    has_settled: bool,
}

/// What an object store says of an object. It never changes; another one may take its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectStamp {
    /// A hash of its URL.
    place: u64,
    /// A hash of its length, its entity tag and its version.
    version: u64,
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
            Some(Stamp::File(FileStamp { device, inode, changed_ns, has_settled }))
        }
        #[cfg(not(unix))]
        {
            let _ = (metadata, SystemClock::new().wall_ms());
            None
        }
    }

    /// The stamp of an object.
    pub fn of_object(url: &str, size: u64, [tag, version]: [&str; 2]) -> Stamp {
        let version = hash(&[&size.to_le_bytes(), tag.as_bytes(), version.as_bytes()]);
        Stamp::Object(ObjectStamp { place: hash(&[url.as_bytes()]), version })
    }

    /// Where the file lies.
    pub fn place(self) -> (u64, u64) {
        match self {
            Stamp::File(FileStamp { device, inode, .. }) => (device, inode),
            Stamp::Object(ObjectStamp { place, .. }) => (u64::MAX, place),
        }
    }

    /// True if a file with this stamp holds what it held when it had the other one.
    pub fn proves(self, earlier: Stamp) -> bool {
        match (self, earlier) {
            (Stamp::File(now), Stamp::File(then)) => {
                then.has_settled
                    && self.place() == earlier.place()
                    && now.changed_ns == then.changed_ns
            }
            (Stamp::Object(now), Stamp::Object(then)) => now == then,
            _ => false,
        }
    }

    /// True if it is of an object that has taken the place of another one.
    pub fn replaces(self, earlier: Stamp) -> bool {
        matches!((self, earlier), (Stamp::Object(now), Stamp::Object(then)) if now != then)
    }

    /// Adds it to the JSON of a file.
    pub fn write(self, file: &mut Value) {
        match self {
            Stamp::File(stamp) => {
                file["inode"] = json!(format!("{}:{}", stamp.device, stamp.inode));
                if stamp.has_settled {
                    file["changedNs"] = json!(stamp.changed_ns);
                }
            }
            Stamp::Object(ObjectStamp { place, version }) => {
                file["object"] = json!(format!("{place:016x}:{version:016x}"));
            }
        }
    }

    /// Reads it from the JSON of a file.
    pub fn read(file: &Value) -> Option<Stamp> {
        if let Some(object) = file.get("object") {
            let (place, version) = object.as_str()?.split_once(':')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            let stamp = ObjectStamp { place: number(place)?, version: number(version)? };
            return Some(Stamp::Object(stamp));
        }
        let (device, inode) = file.get("inode")?.as_str()?.split_once(':')?;
        let changed_ns = file.get("changedNs").and_then(Value::as_i64);
        Some(Stamp::File(FileStamp {
            device: device.parse().ok()?,
            inode: inode.parse().ok()?,
            changed_ns: changed_ns.unwrap_or(0),
            has_settled: changed_ns.is_some(),
        }))
    }
}

/// A sum over texts, each with its length, which is the same in every version of this program.
fn hash(texts: &[&[u8]]) -> u64 {
    texts.iter().fold(0xcbf2_9ce4_8422_2325, |hash, text| {
        let length = (text.len() as u64).to_le_bytes();
        // FNV-1a
        let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        length.iter().chain(text.iter()).fold(hash, mix)
    })
}
