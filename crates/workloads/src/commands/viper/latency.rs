//! How long rows take from when they are due in their injector until they leave.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use thalweg::pipeline::Pipeline;
use thalweg_workloads::linear_road::Record;

use super::super::paced::{Latency, Paced};
use super::{Shape, Variant, forwarded};

/// Rows before this share of a run are not counted: the job begins.
const WARM_UP: f64 = 0.2;

/// The first rows of all injectors together.
pub fn first(inputs: &[Vec<Record>], rows: usize) -> Vec<Vec<Record>> {
    let each = rows / inputs.len();
    inputs.iter().map(|rows| rows[..each.min(rows.len())].to_vec()).collect()
}

/// When rows are due: at a steady rate from the first poll of any injector.
#[derive(Clone)]
struct Timetable {
    began: Arc<OnceLock<Instant>>,
    rows_per_second: f64,
}

impl Timetable {
    fn due(&self, record: &Record) -> Instant {
        let after_s = f64::from(record.position) / self.rows_per_second;
        *self.began.get_or_init(Instant::now) + Duration::from_secs_f64(after_s)
    }
}

/// One run at this rate.
pub fn run(
    variant: Variant,
    shape: Shape,
    inputs: Vec<Vec<Record>>,
    rows_per_second: f64,
) -> thalweg::Result<Latency> {
    let timetable = Timetable { began: Arc::default(), rows_per_second };
    let rows: usize = inputs.iter().map(Vec::len).sum();
    let warm_up = (rows as f64 * WARM_UP) as i32;
    let job = Pipeline::new();
    let injectors = inputs.into_iter().map(|rows| {
        let timetable = timetable.clone();
        let source = Paced::new(rows.into_iter(), move |record| Some(timetable.due(record)));
        job.read_timed_row_source("injector", source, |record| record.time_s * 1000, 0)
    });
    let results = forwarded(&job, injectors.collect(), variant, shape)?;
    let latency = Arc::new(Mutex::new(Latency::default()));
    let taken = Arc::clone(&latency);
    results.for_each("results", move |record| {
        if record.position >= warm_up {
            let waited = Instant::now().saturating_duration_since(timetable.due(&record));
            taken.lock().expect("nobody panics with it").record(waited);
        }
        Ok(())
    });
    job.run(variant.options(shape.workers))?;
    let mut latency = latency.lock().expect("nobody panics with it");
    Ok(std::mem::take(&mut latency))
}
