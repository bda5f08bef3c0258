//! Where the time of a job goes, stage by stage, as a flame graph.
//!
//! Made of two copies of a job's counters, or of one since the run began. Nothing is sampled: the
//! runtime counts the time of each stage and of each partition, and for how long a stage could not
//! do work that was there.
//!
//! | frame | is |
//! |---|---|
//! | `job;working;STAGE;partition N` | time of workers (of a sink: of its thread) on a partition |
//! | `job;working;STAGE` | the rest of its time: routing, closing of epochs, stateless work |
//! | `job;waiting;STAGE;REASON` | time in which work was there and could not be done |
//!
//! Time of workers adds up to the processor time that the job takes. Waiting is time of the clock,
//! and stages wait at the same time. What it does not show: functions, and other processes.

use std::fmt::Write;

use thalweg_runtime::metrics::BlockedBy;
use thalweg_runtime::{MetricsSnapshot, StageSnapshot};

/// How high a frame is drawn, and how wide the picture is.
const FRAME_HEIGHT: u64 = 18;
const PICTURE_WIDTH: f64 = 1_200.0;
/// Narrower frames are left out of the picture.
const WIDTH_MIN: f64 = 0.3;
/// How wide a letter is at most.
const LETTER_WIDTH: f64 = 6.6;

/// Where the time of a job went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// How long it was looked at, in microseconds.
    pub elapsed_us: u64,
    /// Frames from the outermost in, and the microseconds of the innermost.
    pub stacks: Vec<(Vec<String>, u64)>,
}

impl Profile {
    /// Of what was counted between two moments of the same run; without the first since it began.
    pub fn between(
        job: &str,
        earlier: Option<&MetricsSnapshot>,
        later: &MetricsSnapshot,
    ) -> Profile {
        let began_ns = earlier.map_or(later.job.started_ns, |earlier| earlier.job.now_ns);
        let mut profile = Profile {
            elapsed_us: later.job.now_ns.saturating_sub(began_ns) / 1_000,
            stacks: Vec::new(),
        };
        for stage in &later.stages {
            let before =
                earlier.and_then(|earlier| earlier.stages.iter().find(|of| of.id == stage.id));
            profile.add_work(job, before, stage);
        }
        for stage in &later.stages {
            let before =
                earlier.and_then(|earlier| earlier.stages.iter().find(|of| of.id == stage.id));
            for by in BlockedBy::ALL {
                let before_ns = before.map_or(0, |before| before.blocked.by(by));
                let frames = [job, "waiting", &stage.name, by.name()];
                profile.add(&frames, stage.blocked.by(by).saturating_sub(before_ns));
            }
        }
        profile
    }

    fn add_work(&mut self, job: &str, before: Option<&StageSnapshot>, stage: &StageSnapshot) {
        let busy_ns = stage.busy_ns.saturating_sub(before.map_or(0, |before| before.busy_ns));
        let mut rest_ns = busy_ns;
        for (place, &now_ns) in stage.partitions_ns.iter().enumerate() {
            let before_ns = before.and_then(|before| before.partitions_ns.get(place));
            let own_ns = now_ns.saturating_sub(before_ns.copied().unwrap_or(0)).min(rest_ns);
            rest_ns -= own_ns;
            self.add(&[job, "working", &stage.name, &format!("partition {place}")], own_ns);
        }
        self.add(&[job, "working", &stage.name], rest_ns);
    }

    fn add(&mut self, frames: &[&str], ns: u64) {
        if ns >= 1_000 {
            let frames = frames.iter().map(|frame| frame.replace([';', '\n'], " ")).collect();
            self.stacks.push((frames, ns / 1_000));
        }
    }

    /// A line for each stack: its frames with semicolons, and its microseconds. What tools for
    /// flame graphs read.
    pub fn folded(&self) -> String {
        let line = |(frames, us): &(Vec<String>, u64)| format!("{} {us}\n", frames.join(";"));
        self.stacks.iter().map(line).collect()
    }

    /// A picture: frames above those that they are part of, as wide as the time that they took.
    pub fn svg(&self) -> String {
        let total_us = self.stacks.iter().map(|(_, us)| us).sum::<u64>().max(1);
        let depth = self.stacks.iter().map(|(frames, _)| frames.len()).max().unwrap_or(1) as u64;
        let height = (depth + 2) * FRAME_HEIGHT;
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {PICTURE_WIDTH} {height}\" \
             font-family=\"monospace\" font-size=\"11\">\n\
             <text x=\"4\" y=\"13\">{} over {}: work of stages in warm colours, waiting in cold ones</text>\n",
            seconds(total_us),
            seconds(self.elapsed_us)
        );
        for frame in self.frames() {
            let scale = PICTURE_WIDTH / total_us as f64;
            let (x, width) = (frame.start_us as f64 * scale, frame.us as f64 * scale);
            if width < WIDTH_MIN {
                continue;
            }
            let y = height - (frame.depth + 1) * FRAME_HEIGHT;
            frame.draw(&mut text, (x, y, width), total_us);
        }
        text.push_str("</svg>\n");
        text
    }

    /// All frames, those with the same ones around them as one.
    fn frames(&self) -> Vec<Frame<'_>> {
        let mut frames: Vec<Frame<'_>> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        let mut at_us = 0;
        for (stack, us) in &self.stacks {
            let same = open.iter().zip(stack).take_while(|(own, name)| frames[**own].name == *name);
            let same = same.count();
            open.truncate(same);
            for (depth, name) in stack.iter().enumerate().skip(same) {
                let is_waiting = stack.get(1).is_some_and(|second| second == "waiting");
                open.push(frames.len());
                frames.push(Frame {
                    name,
                    depth: depth as u64,
                    start_us: at_us,
                    us: 0,
                    is_waiting,
                });
            }
            open.iter().for_each(|&own| frames[own].us += us);
            at_us += us;
        }
        frames
    }
}

struct Frame<'p> {
    name: &'p str,
    depth: u64,
    start_us: u64,
    us: u64,
    is_waiting: bool,
}

impl Frame<'_> {
    fn draw(&self, text: &mut String, (x, y, width): (f64, u64, f64), total_us: u64) {
        let shade =
            self.name.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte)) % 40;
        let color = match (self.depth, self.is_waiting) {
            (0, _) => "rgb(205,205,205)".to_owned(),
            (_, true) => format!("rgb({},{},235)", 150 + shade, 190 + shade),
            (_, false) => format!("rgb(245,{},{})", 160 + shade, 90 + shade),
        };
        let name = escaped(self.name);
        let share = self.us as f64 * 100.0 / total_us as f64;
        let letters = (width / LETTER_WIDTH) as usize;
        let shown = match self.name.chars().count() <= letters {
            true => name.clone(),
            false if letters > 3 => {
                let short: String = self.name.chars().take(letters - 2).collect();
                format!("{}…", escaped(&short))
            }
            false => String::new(),
        };
        let written = writeln!(
            text,
            "<g><title>{name}: {} ({share:.1} %)</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" \
             height=\"{}\" fill=\"{color}\" rx=\"1\"/><text x=\"{:.1}\" y=\"{}\">{shown}</text></g>",
            seconds(self.us),
            FRAME_HEIGHT - 1,
            x + 3.0,
            y + 12
        );
        written.expect("a String takes all");
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn seconds(us: u64) -> String {
    format!("{:.3} s", us as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_runtime::metrics::{StageMetrics, StageRole};

    fn counted(now_ns: u64, busy_ns: u64, partitions_ns: &[u64]) -> MetricsSnapshot {
        let stage = StageMetrics::new().snapshot("w", "window <o>; x", StageRole::Operator, 0);
        let stage = StageSnapshot { busy_ns, partitions_ns: partitions_ns.to_vec(), ..stage };
        let mut metrics = MetricsSnapshot { stages: vec![stage], ..MetricsSnapshot::default() };
        metrics.job.now_ns = now_ns;
        metrics
    }

    #[test]
    fn a_profile_has_what_was_counted_between_two_moments() {
        let before = counted(1_000_000, 500_000, &[200_000, 100_000]);
        let after = counted(9_000_000, 3_500_000, &[1_200_000, 600_000]);
        let profile = Profile::between("a", Some(&before), &after);
        assert_eq!(profile.elapsed_us, 8_000);
        let expected = "a;working;window <o>  x;partition 0 1000\na;working;window <o>  x;partition 1 500\n\
                        a;working;window <o>  x 1500\n";
        assert_eq!(profile.folded(), expected);
        let all = Profile::between("a", None, &after).stacks.iter().map(|(_, us)| us).sum::<u64>();
        assert_eq!(all, 3_500, "since the run began");
        let svg = profile.svg();
        assert!(svg.contains("<title>window &lt;o&gt;  x: 0.003 s (100.0 %)</title>"), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 5, "job, working, the stage and its partitions");
    }
}
