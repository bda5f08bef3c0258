//! What a planner knows of windows that an operator finds in columns: of which clocks they are, and
//! where they end. It decides for which watermarks the operator is woken.

use chrono_tz::Tz;
use thalweg_core::Grid;
use thalweg_core::operator::WatermarkInterest;

/// What is known of the windows that rows say they belong to.
#[derive(Clone, Debug, Default)]
pub struct KnownWindows {
    /// The zone to whose clocks they are aligned: row times are instants then, and window ends are
    /// local.
    pub zone: Option<Tz>,
    /// Where they end: other watermarks do not matter.
    pub ends: Option<Grid>,
}

impl KnownWindows {
    /// The watermarks that can close one.
    pub(crate) fn interest(&self) -> WatermarkInterest {
        match (self.ends, self.zone) {
            (Some(ends), None) => WatermarkInterest::Grids(vec![ends]),
            _ => WatermarkInterest::Every,
        }
    }
}
