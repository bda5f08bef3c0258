//! Figures of measurements: a file format that any benchmark can write, and its drawing as SVG.
//!
//! A file of figures has one JSON object per line, each a [`Figure`]:
//!
//! ```text
//! {"name":"skew","title":"Throughput under skew","x":"Skew (sigma)","y":"Million rows/s",
//!  "x_scale":"linear","kind":"lines","note":"2 cores, 2026-11-21, thalweg-structures --figures",
//!  "series":[{"name":"hybrid queue","points":[{"x":0.05,"y":1.2}]}]}
//! ```
//! (on one line). `x_scale` is `linear`, `log` or `names`; `kind` is `lines` or `bars`; `y_scale`,
//! `note` and a point's `x` may be missing. Bars stand in groups by the `label` of their points.
//!
//! [`draw`] depends on the figure alone: equal figures give equal bytes, on any machine, because no
//! font is asked for its widths. It never fails; what cannot be drawn (a value that is not finite,
//! or not positive on a logarithmic axis) is left out. It knows no error bars and no second axis.

mod axis;
mod canvas;
mod chart;
#[cfg(test)]
mod tests;

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use chart::draw;

/// What [`draw`] makes a picture of: series over one x axis.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Identifies the figure; its picture is called so.
    pub name: String,
    /// Stands on top.
    pub title: String,
    /// What the x axis shows, with its unit.
    pub x: String,
    /// What the y axis shows, with its unit.
    pub y: String,
    /// How the x axis is divided; for bars always by names.
    #[serde(default)]
    pub x_scale: Scale,
    /// How the y axis is divided: unless logarithmic, linearly and from 0.
    #[serde(default, skip_serializing_if = "Scale::is_linear")]
    pub y_scale: Scale,
    /// Lines or bars.
    #[serde(default)]
    pub kind: Kind,
    /// In the order of the legend.
    pub series: Vec<Series>,
    /// Machine, date and command; stands small at the bottom.
    #[serde(default)]
    pub note: String,
}

/// How an axis is divided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Equal distances for equal differences.
    #[default]
    Linear,
    /// Equal distances for equal ratios.
    Log,
    /// One place for each label, in the order of first appearance. On a y axis: linear.
    Names,
}

impl Scale {
    fn is_linear(&self) -> bool {
        *self == Self::Linear
    }
}

/// What stands for a point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A marker on a line through the points of the series, in their order.
    #[default]
    Lines,
    /// A bar from the bottom, in the group of its label.
    Bars,
}

/// Points of one kind: a variant, a query, a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its entry in the legend.
    pub name: String,
    /// Its measurements.
    pub points: Vec<Point>,
}

/// A measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where it stands, unless `label` says so.
    #[serde(default)]
    pub x: f64,
    /// What was measured.
    pub y: f64,
    /// Its place on an axis of names; without one, `x` is its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl Series {
    /// A series of points at numbers.
    pub fn over_numbers(
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let points = points.into_iter().map(|(x, y)| Point { x, y, label: None }).collect();
        Self { name: name.into(), points }
    }

    /// A series of points at names, for bars and axes of names.
    pub fn over_names<Name: Into<String>>(
        name: impl Into<String>,
        points: impl IntoIterator<Item = (Name, f64)>,
    ) -> Self {
        let points = points.into_iter().enumerate();
        let point = |(place, (label, y)): (usize, (Name, f64))| Point {
            x: place as f64,
            y,
            label: Some(label.into()),
        };
        Self { name: name.into(), points: points.map(point).collect() }
    }
}

/// Appends the figures to a file, one line each; creates the file where there is none.
///
/// # Errors
/// If the file cannot be written, or if a number of a figure is not finite, for which JSON has no
/// word; then nothing is written.
pub fn write_figures(path: &Path, figures: &[Figure]) -> io::Result<()> {
    let mut lines = String::new();
    for figure in figures {
        let values = figure.series.iter().flat_map(|series| &series.points);
        if let Some(point) = values.clone().find(|point| !(point.x + point.y).is_finite()) {
            let message = format!("figure `{}`: a number is not finite: {point:?}", figure.name);
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
        lines.push_str(&serde_json::to_string(figure)?);
        lines.push('\n');
    }
    let file = OpenOptions::new().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(lines.as_bytes())).map_err(|error| at(path, &error))
}

/// Reads a file of figures; blank lines count for nothing.
///
/// # Errors
/// If the file cannot be read, or a line is no figure; the error names the file and the line.
pub fn read_figures(path: &Path) -> io::Result<Vec<Figure>> {
    let text = fs::read_to_string(path).map_err(|error| at(path, &error))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|error| {
                let message = format!("{}:{}: no figure: {error}", path.display(), number + 1);
                io::Error::new(ErrorKind::InvalidData, message)
            })
        })
        .collect()
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
