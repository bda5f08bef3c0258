//! Reading after reading of one run of a job.

use thalweg_runtime::metrics::JobLayout;
use thalweg_runtime::{JobControl, MetricsSnapshot};

use crate::conditions::{Condition, Conditions};
use crate::history::History;
use crate::latency::EarlierLatencies;
use crate::reading::JobReading;

/// A reading is compared with one that is at least this old, so that rates are steady.
const RATES_OVER_MS: i64 = 900;

/// What is known of one run of a job. Whoever looks after the job calls [`Watch::look`] once a
/// second; more often does no harm.
#[derive(Debug, Default)]
pub struct Watch {
    job: String,
    layout: JobLayout,
    /// What rates are worked out from.
    before: Option<JobReading>,
    newest: Option<JobReading>,
    history: History,
    latencies: EarlierLatencies,
    conditions: Conditions,
    found: Vec<Condition>,
    /// The last reading of the run before this one.
    earlier: Option<JobReading>,
}

impl Watch {
    /// Begins with a job that has been started.
    pub fn new(job: impl Into<String>, control: &JobControl) -> Watch {
        Watch::with_layout(job, control.layout())
    }

    /// The same, from what does not change about it.
    pub fn with_layout(job: impl Into<String>, layout: JobLayout) -> Watch {
        Watch { job: job.into(), layout, ..Watch::default() }
    }

    /// With the last reading of the run before: a watermark that stands where it stood then has
    /// stood still since, whatever has been restarted meanwhile.
    #[must_use]
    pub fn with_earlier(self, earlier: Option<JobReading>) -> Watch {
        Watch { earlier, ..self }
    }

    /// Takes a reading of these counters.
    pub fn look(&mut self, metrics: &MetricsSnapshot) -> &JobReading {
        self.take(self.read(metrics))
    }

    /// A reading of these counters, which [`Watch::take`] has not seen yet.
    pub fn read(&self, metrics: &MetricsSnapshot) -> JobReading {
        JobReading::of(&self.job, &self.layout, metrics)
    }

    /// Takes a reading that was made elsewhere, or to which its maker has added something.
    pub fn take(&mut self, mut reading: JobReading) -> &JobReading {
        if let Some(earlier) = &mut self.earlier {
            reading.stand_since(earlier);
            earlier.forget_moved(&reading);
        }
        if let Some(before) = &self.before {
            reading.keep_start_of(before);
            reading.compare_with(before);
        }
        self.latencies.take(&mut reading);
        for (place, stage) in reading.stages.iter_mut().enumerate() {
            stage.mean_step_ms = self.history.mean_step_ms(place);
        }
        let is_old = |before: &JobReading| reading.at_ms - before.at_ms >= RATES_OVER_MS;
        let is_due = self.before.as_ref().is_none_or(is_old);
        if is_due {
            self.history.add(&reading);
            self.found = self.conditions.update(&reading);
            self.before = Some(reading.clone());
        }
        self.newest.insert(reading)
    }

    /// The newest reading.
    pub fn newest(&self) -> Option<&JobReading> {
        self.newest.as_ref()
    }

    /// The last 15 minutes.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// What is wrong now.
    pub fn conditions(&self) -> &[Condition] {
        &self.found
    }
}
