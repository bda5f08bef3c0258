//! The `WITH` options of writing files: what is promised, what stays, and when a file is large
//! enough.

use thalweg_core::Result;
use thalweg_core::connector::Options;
use thalweg_core::snapshot::SinkGuarantee;

/// The option of what is promised.
pub const GUARANTEE: &str = "sink.delivery-guarantee";

const PART_BYTES_MAX: u64 = 128 << 20;
const ROLLOVER_MS: u64 = 30 * 60 * 1_000;
/// Rows that do not wait for a snapshot are seen this soon: a file a second in each folder.
const ROLLOVER_AT_LEAST_ONCE_MS: u64 = 1_000;

/// `'sink.delivery-guarantee'`: what a job with snapshots promises. It changes nothing without
/// snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Rows become visible when their snapshot is kept, once.
    ExactlyOnce,
    /// Rows become visible before that, and may be there twice.
    AtLeastOnce,
    /// As without snapshots: what was written before a failure is lost or there twice.
    None,
}

impl Delivery {
    /// What it promises to the engine.
    pub fn guarantee(self) -> SinkGuarantee {
        match self {
            Delivery::ExactlyOnce => SinkGuarantee::Transactional,
            Delivery::AtLeastOnce | Delivery::None => SinkGuarantee::AtLeastOnce,
        }
    }
}

/// `'changelog'`, or a format of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changelog {
    /// `'op'`: every change.
    Op,
    /// `'upsert'`: rows by the primary key, without what they were before.
    Upsert,
    /// What the format itself says of each row: every change, without a column `op`.
    OfFormat,
}

impl Changelog {
    /// True if there is a column `op`.
    pub fn has_op(self) -> bool {
        self != Changelog::OfFormat
    }
}

/// How files are written.
#[derive(Clone, Copy, Debug)]
pub struct Writing {
    /// What a job with snapshots promises.
    pub delivery: Delivery,
    /// What is there stays.
    pub append: bool,
    /// A part of a folder that is as large as this is closed (bytes). With snapshots.
    pub part_bytes_max: u64,
    /// A part of a folder that is as old as this is closed (milliseconds). With snapshots.
    pub rollover_ms: Option<u64>,
}

impl Writing {
    /// Reads the options.
    pub fn read(options: &Options<'_>) -> Result<Writing> {
        let words = [
            ("exactly-once", Delivery::ExactlyOnce),
            ("at-least-once", Delivery::AtLeastOnce),
            ("none", Delivery::None),
        ];
        let size = "sink.rolling-policy.file-size";
        let interval = "sink.rolling-policy.rollover-interval";
        let at_least_one = |name: &str, found: Option<u64>, text: &str| match found {
            Some(0) => Err(options.bad(name, text, "more than nothing")),
            found => Ok(found),
        };
        let part_bytes_max = at_least_one(size, options.bytes(size)?, "0")?;
        let rollover_ms = at_least_one(interval, options.duration_ms(interval)?, "0")?;
        Ok(Writing {
            delivery: options.choice(GUARANTEE, &words)?.unwrap_or(Delivery::ExactlyOnce),
            append: options.boolean("sink.append")?,
            part_bytes_max: part_bytes_max.unwrap_or(PART_BYTES_MAX),
            rollover_ms,
        })
    }

    /// How old a part may get, in nanoseconds.
    pub fn rollover_ns(&self) -> u64 {
        let default_ms = match self.delivery {
            Delivery::AtLeastOnce => ROLLOVER_AT_LEAST_ONCE_MS,
            Delivery::ExactlyOnce | Delivery::None => ROLLOVER_MS,
        };
        self.rollover_ms.unwrap_or(default_ms).saturating_mul(1_000_000)
    }
}
