//! What a job was doing in the last 24 hours, in files of its folder.
//!
//! ```text
//! jobs/NAME/history/1767225600000.points   a line of JSON, then a point for each 30 seconds
//! ```
//!
//! The number is the moment of the first point. The line is a [`Head`]: a reading of the job, for
//! what does not change from point to point. A point is its length and its checksum, four bytes
//! each, then [`Point::to_bytes`].
//!
//! # Invariants
//! - A file has points of one sequence of stages. Statements with other stages, another process and
//!   three hours begin another file.
//! - Files whose points are all older than 24 hours go, and the oldest of more than [`FILES_MAX`].
//! - A damaged point hides those behind it in its file, and nothing else.
//!
//! What it does not do: points are not forced to the disk, since no result depends on them. A full
//! disk loses points and stops no job.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thalweg_monitoring::JobReading;
use thalweg_monitoring::history::Point;

/// The version of the files.
const FORMAT: u32 = 1;
/// From one point to the next.
const STEP_MS: i64 = 30_000;
/// How far back points are kept.
pub const KEPT_MS: i64 = 24 * 3_600_000;
/// How long points go to one file.
const FILE_MS: i64 = 3 * 3_600_000;
/// How many files a job has, whatever its process dies of.
const FILES_MAX: usize = 300;
/// A moment that lies further behind a point was none of that run.
const GAP_MS: i64 = 3 * STEP_MS;
/// What files end with.
const ENDING: &str = ".points";

/// Begins a file.
#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
    reading: JobReading,
}

/// Writes the points of a job.
#[derive(Debug, Default)]
pub struct Recorder {
    current: Option<Current>,
    next_ms: i64,
}

#[derive(Debug)]
struct Current {
    path: PathBuf,
    begun_ms: i64,
    stages: Vec<String>,
}

impl Recorder {
    /// True if it is time for another point.
    pub fn is_due(&self, now_ms: i64) -> bool {
        // A clock that was set back is no reason to wait for it.
        now_ms >= self.next_ms || now_ms < self.next_ms - 2 * STEP_MS
    }

    /// Keeps a point. `folder` is that of the job.
    pub fn keep(&mut self, folder: &Path, reading: &JobReading) {
        self.next_ms = reading.at_ms + STEP_MS;
        // Nobody could be informed.
        let _ = self.try_keep(&folder.join("history"), reading);
    }

    fn try_keep(&mut self, folder: &Path, reading: &JobReading) -> io::Result<()> {
        let ids = || reading.stages.iter().map(|stage| stage.id.as_str());
        let is_current = self.current.as_ref().is_some_and(|current| {
            let age_ms = reading.at_ms - current.begun_ms;
            (0..FILE_MS).contains(&age_ms)
                && current.stages.iter().map(String::as_str).eq(ids())
                && current.path.exists()
        });
        if !is_current {
            self.current = None;
            let path = begin_file(folder, reading)?;
            let stages = ids().map(str::to_owned).collect();
            self.current = Some(Current { path, begun_ms: reading.at_ms, stages });
        }
        let Some(current) = &self.current else { return Ok(()) };
        let point = Point::of(reading).to_bytes();
        let mut frame = Vec::with_capacity(point.len() + 8);
        frame.extend((point.len() as u32).to_le_bytes());
        frame.extend(crc32fast::hash(&point).to_le_bytes());
        frame.extend(point);
        let written = File::options().append(true).open(&current.path)?.write_all(&frame);
        if written.is_err() {
            // Half a point would hide those behind it.
            self.current = None;
        }
        written
    }
}

/// Begins a file, and removes those that are too old.
fn begin_file(folder: &Path, reading: &JobReading) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let files = files(folder);
    let is_old = |place: usize| {
        // All points of a file are older than the first one of the next.
        let next = files.get(place + 1);
        next.is_some_and(|(next_ms, _)| *next_ms < reading.at_ms - KEPT_MS)
            || place + FILES_MAX <= files.len()
    };
    for (_, path) in files.iter().enumerate().filter(|(place, _)| is_old(*place)).map(|(_, of)| of)
    {
        fs::remove_file(path)?;
    }
    let path = folder.join(format!("{}{ENDING}", reading.at_ms));
    let head = Head { format: FORMAT, reading: reading.without_counts() };
    let mut line = serde_json::to_vec(&head)?;
    line.push(b'\n');
    fs::write(&path, line)?;
    Ok(path)
}

/// The files with the moments of their first points, the oldest first.
fn files(folder: &Path) -> Vec<(i64, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(i64, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name.strip_suffix(ENDING)?.parse().ok()?, entry.path()))
        })
        .collect();
    files.sort();
    files
}

/// A file as it was read; `None` if it is none of this version.
fn read(path: &Path) -> Option<(JobReading, Vec<Point>)> {
    let bytes = fs::read(path).ok()?;
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
    let mut points = Vec::new();
    let mut rest = &bytes[end + 1..];
    while let Some((point, behind)) = split_point(rest) {
        points.push(point);
        rest = behind;
    }
    (head.format == FORMAT).then_some((head.reading, points))
}

fn split_point(bytes: &[u8]) -> Option<(Point, &[u8])> {
    let (length, bytes) = bytes.split_first_chunk::<4>()?;
    let (sum, bytes) = bytes.split_first_chunk::<4>()?;
    let (point, behind) = bytes.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let is_whole = crc32fast::hash(point) == u32::from_le_bytes(*sum);
    Some((Point::from_bytes(point).filter(|_| is_whole)?, behind))
}

/// The job as it was at a moment; `None` if it did not run then or nothing is kept of it.
pub fn reading_at(folder: &Path, at_ms: i64) -> Option<JobReading> {
    let files = files(&folder.join("history"));
    let (_, path) = files.iter().rev().find(|(begun_ms, _)| *begun_ms <= at_ms)?;
    let (reading, points) = read(path)?;
    let point = points.iter().rev().find(|point| point.at_ms() <= at_ms)?;
    (at_ms - point.at_ms() <= GAP_MS).then(|| point.reading(&reading))
}

/// The newest reading that is kept.
pub fn newest(folder: &Path) -> Option<JobReading> {
    let files = files(&folder.join("history"));
    let (reading, points) = read(&files.last()?.1)?;
    Some(points.last()?.reading(&reading))
}

/// The oldest moment of which something is kept.
pub fn oldest_ms(folder: &Path) -> Option<i64> {
    files(&folder.join("history")).first().map(|(begun_ms, _)| *begun_ms)
}

/// The points between two moments of runs with the stages of this reading.
pub fn points_between(folder: &Path, of: &JobReading, from_ms: i64, to_ms: i64) -> Vec<Point> {
    let files = files(&folder.join("history"));
    let first = files.partition_point(|(begun_ms, _)| *begun_ms <= from_ms).saturating_sub(1);
    let ids = |reading: &JobReading| -> Vec<String> {
        reading.stages.iter().map(|stage| stage.id.clone()).collect()
    };
    let read = files[first..].iter().take_while(|(begun_ms, _)| *begun_ms < to_ms);
    let read = read.filter_map(|(_, path)| read_file_of(path, &ids(of), ids));
    let points = read.flatten();
    points.filter(|point| (from_ms..to_ms).contains(&point.at_ms())).collect()
}

fn read_file_of(
    path: &Path,
    stages: &[String],
    ids: impl Fn(&JobReading) -> Vec<String>,
) -> Option<Vec<Point>> {
    let (reading, points) = read(path)?;
    (ids(&reading) == stages).then_some(points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_monitoring::reading::{StageKind, StageReading};

    const DAY_MS: i64 = KEPT_MS;

    fn reading(at_ms: i64, ids: &[&str]) -> JobReading {
        let stage = |id: &&str| StageReading {
            id: (*id).to_owned(),
            kind: StageKind::Sink,
            watermark: Some(at_ms - 7),
            state_bytes: 3,
            ..StageReading::default()
        };
        let stages = ids.iter().map(stage).collect();
        JobReading { job: "meters".to_owned(), at_ms, stages, ..JobReading::default() }
    }

    fn keep(recorder: &mut Recorder, folder: &Path, at_ms: i64, ids: &[&str]) {
        if recorder.is_due(at_ms) {
            recorder.keep(folder, &reading(at_ms, ids));
        }
    }

    #[test]
    fn a_day_is_kept_and_no_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let (folder, mut recorder) = (folder.path(), Recorder::default());
        let end_ms = 3 * DAY_MS;
        (0..=end_ms / 10_000).for_each(|step| keep(&mut recorder, folder, step * 10_000, &["a"]));
        let oldest_ms = oldest_ms(folder).expect("a point");
        let kept_ms = end_ms - oldest_ms;
        assert!((DAY_MS..DAY_MS + 2 * FILE_MS).contains(&kept_ms), "{kept_ms}");
        let then = reading_at(folder, end_ms - DAY_MS + 12_345).expect("a point");
        assert_eq!(then.at_ms, end_ms - DAY_MS, "the last point before it");
        assert_eq!(then.stages[0].watermark, Some(then.at_ms - 7));
        assert_eq!(newest(folder).expect("a point").at_ms, end_ms);
        assert!(reading_at(folder, oldest_ms - 1).is_none() && reading_at(folder, -1).is_none());
        assert!(reading_at(folder, end_ms + GAP_MS + 1).is_none(), "it does not run then");
        let points = points_between(folder, &then, end_ms - 60_000, end_ms + 1);
        let at: Vec<i64> = points.iter().map(Point::at_ms).collect();
        assert_eq!(at, [end_ms - 60_000, end_ms - 30_000, end_ms]);
        let bytes: u64 = files(&folder.join("history"))
            .iter()
            .map(|(_, path)| fs::metadata(path).expect("a file").len())
            .sum();
        // What the documentation says: 58 kB for the job and 190 kB for each stage, a day.
        let a_day = bytes as f64 * DAY_MS as f64 / kept_ms as f64;
        // Readings at the beginnings of files come to some more.
        assert!(a_day < 1.05 * (58e3 + 190e3), "{a_day} bytes");
    }

    #[test]
    fn other_stages_and_another_process_begin_another_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (folder, mut recorder) = (folder.path(), Recorder::default());
        keep(&mut recorder, folder, 0, &["a"]);
        keep(&mut recorder, folder, 30_000, &["a", "b"]);
        keep(&mut recorder, folder, 60_000, &["a", "b"]);
        keep(&mut Recorder::default(), folder, 90_000, &["a"]);
        assert_eq!(files(&folder.join("history")).len(), 3);
        assert_eq!(reading_at(folder, 5_000).expect("a point").stages.len(), 1);
        assert_eq!(reading_at(folder, 65_000).expect("a point").stages.len(), 2);
        let of_one = points_between(folder, &reading(0, &["a"]), 0, 100_000);
        assert_eq!(of_one.iter().map(Point::at_ms).collect::<Vec<_>>(), [0, 90_000]);
        for step in 0..1_000 {
            keep(&mut Recorder::default(), folder, 100_000 + step, &["a"]);
        }
        assert!(files(&folder.join("history")).len() <= FILES_MAX, "a crash loop fills no disk");
    }

    #[test]
    fn a_damaged_point_hides_those_behind_it_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let (folder, mut recorder) = (folder.path(), Recorder::default());
        for step in 0..4 {
            keep(&mut recorder, folder, step * 30_000, &["a"]);
        }
        let (_, path) = files(&folder.join("history")).pop().expect("a file");
        let whole = fs::read(&path).expect("bytes");
        let begin = whole.iter().position(|&byte| byte == b'\n').expect("a line") + 1;
        let frame = (whole.len() - begin) / 4;
        let readable = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("written");
            read(&path).map_or(0, |(_, points)| points.len())
        };
        for length in 0..=whole.len() {
            let wanted = length.saturating_sub(begin) / frame;
            assert_eq!(readable(&whole[..length]), wanted, "cut off at {length}");
        }
        for at in begin..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            assert_eq!(readable(&bytes), (at - begin) / frame, "another byte at {at}");
        }
    }
}
