//! Figures as lines of JSON, in the format that `thalweg_workloads::plot` reads and draws: one
//! object per line, grouped bars. Written by hand, since this package depends on the structures
//! alone.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Grouped bars: a group for each setting, in it a bar for each variant.
pub struct Figure {
    /// Names the picture's file.
    pub name: &'static str,
    pub title: String,
    /// What the settings are.
    pub x: &'static str,
    /// What the bars measure.
    pub y: &'static str,
    /// Variants in the order of the legend, with settings and values.
    series: Vec<(String, Vec<(String, f64)>)>,
}

impl Figure {
    pub fn new(name: &'static str, title: String, x: &'static str, y: &'static str) -> Self {
        Self { name, title, x, y, series: Vec::new() }
    }

    /// Adds a bar.
    pub fn add(&mut self, setting: &str, variant: &str, value: f64) {
        let bar = (setting.to_string(), value);
        match self.series.iter_mut().find(|(name, _)| name == variant) {
            Some((_, bars)) => bars.push(bar),
            None => self.series.push((variant.to_string(), vec![bar])),
        }
    }

    fn line(&self, note: &str) -> String {
        let series: Vec<String> = self.series.iter().map(series).collect();
        let mut line =
            format!("{{\"name\":{},\"title\":{}", quoted(self.name), quoted(&self.title));
        let _ = write!(line, ",\"x\":{},\"y\":{}", quoted(self.x), quoted(self.y));
        line += ",\"x_scale\":\"names\",\"kind\":\"bars\"";
        let _ = write!(line, ",\"series\":[{}],\"note\":{}}}", series.join(","), quoted(note));
        line
    }
}

fn series((name, bars): &(String, Vec<(String, f64)>)) -> String {
    let point = |(place, (label, value)): (usize, &(String, f64))| {
        format!("{{\"x\":{place},\"y\":{value:.4},\"label\":{}}}", quoted(label))
    };
    let points: Vec<String> = bars.iter().enumerate().map(point).collect();
    format!("{{\"name\":{},\"points\":[{}]}}", quoted(name), points.join(","))
}

/// Writes the figures with one note below all.
pub fn write(mut file: File, figures: &[Figure], note: &str) -> io::Result<()> {
    let lines: String = figures.iter().map(|figure| figure.line(note) + "\n").collect();
    file.write_all(lines.as_bytes())
}

/// Processor, cores and date: what a reader must know of a measurement.
pub fn machine() -> String {
    let description = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = description.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{model}, {cores} cores, {}", today())
}

/// The date in UTC. Years begin in March here: the leap day is then the last one.
fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Days since 0000-03-01, and within the 400 years after which the calendar repeats.
    let days = since.as_secs() / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", 400 * era + year + next)
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            character if character.is_control() => quoted.push(' '),
            character => quoted.push(character),
        }
    }
    quoted + "\""
}
