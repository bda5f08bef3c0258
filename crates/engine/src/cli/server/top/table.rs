//! Jobs and stages as cells of one table.

use thalweg::monitoring::numbers::{bytes, percent, short_rate, span};
use thalweg_core::text::without_controls;
use thalweg_server::{JobState, JobSummary, ServerNow, StageView};

/// The headings.
pub const JOB_COLUMNS: [&str; 12] = [
    "JOB",
    "STATE",
    "IN/s",
    "OUT/s",
    "LAG",
    "P99",
    "LATE/m",
    "BAD/m",
    "KEPT",
    "BUSY",
    "SNAPSHOT",
    "CONDITION",
];
/// Which columns are text, and stand to the left.
pub const IS_TEXT: [bool; 12] =
    [true, true, false, false, false, false, false, false, false, false, true, true];
/// How wide the bar of busy workers is.
const BAR_CELLS: usize = 10;

/// A job.
pub fn job_cells(job: &JobSummary, now_ms: i64) -> [String; 12] {
    let now = job.now.as_ref();
    let rate = |of: Option<f64>| of.map_or_else(dash, short_rate);
    let snapshot = job.snapshot.map(|number| match job.snapshot_taken_ms {
        Some(at_ms) => format!("{number}, {}", span(now_ms - at_ms)),
        None => number.to_string(),
    });
    [
        job.name.clone(),
        format!("{} {}", sign(job), job.state.word()),
        rate(now.map(|now| now.in_per_s)),
        rate(now.map(|now| now.out_per_s)),
        now.and_then(|now| now.lag_s).map_or_else(dash, seconds),
        now.and_then(|now| now.p99_s).map_or_else(dash, seconds),
        rate(now.map(|now| now.late_per_min)),
        rate(now.map(|now| now.bad_per_min)),
        bytes(job.state_bytes),
        now.map_or_else(dash, |now| percent(now.busy)),
        snapshot.unwrap_or_else(dash),
        says(job).unwrap_or_else(dash),
    ]
}

/// A state as a shape, which is there without colors.
fn sign(job: &JobSummary) -> char {
    match job.state {
        JobState::Failed => '✗',
        JobState::Undecided => '?',
        JobState::Restarting => '↻',
        JobState::Running if !job.conditions.is_empty() => '■',
        JobState::Running => '▲',
        JobState::Paused => '‖',
        JobState::Planning | JobState::Starting | JobState::Stopping => '…',
        JobState::Stopped => '○',
        JobState::Finished => '✓',
        JobState::Draft => '·',
    }
}

/// The first that is wrong, or why the job is where it is.
pub fn says(job: &JobSummary) -> Option<String> {
    let condition = job.conditions.first().map(|condition| condition.text.as_str());
    let problem = job.outcome.as_ref().and_then(|outcome| outcome.problem.as_ref());
    let problem = problem.map(|problem| problem.detail.as_str());
    let first = condition.or(job.waits_for.as_deref()).or(problem);
    let line = first.or(job.snapshot_problem.as_deref())?.lines().next()?;
    Some(without_controls(line).into_owned())
}

/// A stage, below its job. What has no column of its own is in the last one.
pub fn stage_cells(stage: &StageView, is_last: bool) -> [String; 12] {
    let now = stage.now.as_ref();
    let rate = |of: Option<f64>| of.map_or_else(dash, short_rate);
    let branch = if is_last { '└' } else { '├' };
    let shares = now.map(|now| {
        let by = now.blocked_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        format!(
            "queue {:.0}, blocked {}{by}, idle {}",
            now.queued,
            percent(now.blocked),
            percent(now.idle)
        )
    });
    let watermark = stage.watermark_ms.map(|at_ms| {
        format!("watermark {}", thalweg_core::text::format_timestamp_millis(at_ms, 3))
    });
    let held = stage.held_by.as_ref().map(|by| format!("waits for {by}"));
    let rest = [shares, watermark, held, stage.problem.clone()];
    let rest: Vec<String> = rest.into_iter().flatten().collect();
    let late = (stage.late_rows > 0).then(|| format!("Σ {}", stage.late_rows));
    let bad = (stage.bad_rows > 0).then(|| format!("Σ {}", stage.bad_rows));
    [
        format!(" {branch} {}", without_controls(&stage.name)),
        format!("  {}", stage.role),
        rate(now.map(|now| now.in_per_s)),
        rate(now.map(|now| now.out_per_s)),
        String::new(),
        String::new(),
        late.unwrap_or_default(),
        bad.unwrap_or_default(),
        bytes(stage.state_bytes),
        now.map_or_else(dash, |now| percent(now.busy)),
        String::new(),
        without_controls(&rest.join(", ")).into_owned(),
    ]
}

/// The server, and how many jobs are in which state.
pub fn head(server: &ServerNow, jobs: &[JobSummary]) -> String {
    let full = (server.busy * BAR_CELLS as f64).round() as usize;
    let bar: String = (0..BAR_CELLS).map(|cell| if cell < full { '█' } else { '░' }).collect();
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for job in jobs {
        match counts.iter_mut().find(|(word, _)| *word == job.state.word()) {
            Some((_, count)) => *count += 1,
            None => counts.push((job.state.word(), 1)),
        }
    }
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let counts: Vec<String> =
        counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    let plural = if jobs.len() == 1 { "" } else { "s" };
    let counts = if counts.is_empty() { String::new() } else { format!(": {}", counts.join(", ")) };
    format!(
        "thalweg {}  up {}   {} workers {bar} {}   memory {} of {}   {} job{plural}{counts}",
        server.version,
        span(server.at_ms - server.began_ms),
        server.workers,
        percent(server.busy),
        bytes(server.memory_bytes),
        bytes(server.memory_limit_bytes),
        jobs.len(),
    )
}

fn seconds(of: f64) -> String {
    span((of * 1_000.0).ceil() as i64)
}

fn dash() -> String {
    "–".to_owned()
}
