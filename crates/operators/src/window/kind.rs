//! The windows that SQL and the pipeline builder offer: those that depend on time alone, and
//! sessions.

use std::fmt;

use super::spec::WindowSpec;

/// How rows are put into windows. All lengths in milliseconds; windows are aligned to 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowKind {
    /// They depend on time alone.
    Aligned(WindowSpec),
    /// Per key, as long as rows are at most a gap apart.
    Session {
        /// The gap.
        gap_ms: i64,
    },
}

impl WindowKind {
    /// Windows of this size, one after the other.
    pub fn tumbling(size_ms: i64) -> Self {
        WindowKind::Aligned(WindowSpec::Tumble { size_ms, offset_ms: 0 })
    }
    /// A window of `size_ms` every `slide_ms`.
    pub fn sliding(size_ms: i64, slide_ms: i64) -> Self {
        WindowKind::Aligned(WindowSpec::Hop { slide_ms, size_ms, offset_ms: 0 })
    }
    /// Windows that grow by `step_ms` up to `max_size_ms`.
    pub fn cumulating(step_ms: i64, max_size_ms: i64) -> Self {
        WindowKind::Aligned(WindowSpec::Cumulate { step_ms, max_size_ms, offset_ms: 0 })
    }
    /// Sessions that end when nothing comes for longer than `gap_ms`.
    pub fn session(gap_ms: i64) -> Self {
        WindowKind::Session { gap_ms }
    }

    /// One window of all rows, which closes when the input ends.
    pub fn whole() -> Self {
        WindowKind::Aligned(WindowSpec::Whole)
    }

    /// The windows, if they depend on time alone.
    pub fn aligned(self) -> Option<WindowSpec> {
        match self {
            WindowKind::Aligned(spec) => Some(spec),
            WindowKind::Session { .. } => None,
        }
    }

    /// Tumbling windows of which one ends wherever a window of this kind does; `None` if this kind
    /// is tumbling.
    ///
    /// The planner uses it where the results of such windows are aggregated per window again: by
    /// its time a result row would lie in several windows, but the tumbling window that ends with
    /// its own one closes at the same watermark.
    pub fn closing(self) -> Option<WindowSpec> {
        match self.aligned() {
            Some(WindowSpec::Tumble { .. }) => None,
            Some(spec) => {
                let ends = spec.ends();
                Some(WindowSpec::Tumble { size_ms: ends.period_ms, offset_ms: ends.offset_ms })
            }
            None => Some(WindowSpec::Tumble { size_ms: 1, offset_ms: 0 }),
        }
    }

    /// What the state of such windows depends on.
    pub fn identity(self) -> String {
        match self {
            WindowKind::Aligned(spec) => spec.identity(),
            WindowKind::Session { gap_ms } => format!("session {gap_ms}"),
        }
    }
}

/// As in EXPLAIN: the call in SQL, with lengths in milliseconds.
impl fmt::Display for WindowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WindowKind::Aligned(spec) => spec.fmt(f),
            WindowKind::Session { gap_ms } => write!(f, "SESSION({gap_ms} ms)"),
        }
    }
}
