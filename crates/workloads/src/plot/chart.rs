//! The parts of a picture and where they go: title, legend and note around the area of the data.
//!
//! Above the area stand the title and the legend, below it the names of the ticks, the x axis's
//! label and the note; each takes as many lines as its text needs and the area shrinks by these, so
//! that texts never cover data. Scales are [`Axis`]'s matter, strokes and letters [`Canvas`]'s.

use plotters::style::text_anchor::HPos;

use super::axis::{Axis, number};
use super::canvas::{
    BLACK, Canvas, GREY, Letters, PALE, PLAIN, Pixel, SIZE, colour, paint, width, wrap,
};
use super::{Figure, Kind, Point, Scale, Series};

const TITLE: Letters = Letters { size: 16, bold: true, ..PLAIN };
const NOTE: Letters = Letters { size: 10, colour: GREY, ..PLAIN };
const CENTRED: Letters = Letters { align: HPos::Center, ..PLAIN };
const AXIS_LABEL: Letters = Letters { size: 13, ..CENTRED };
/// How far a line of text is below the one above it, as a multiple of its size.
const LEADING: f64 = 1.25;
/// What stays free at the edges.
const EDGE: i32 = 14;
/// The sample of a series in the legend, with the space behind it.
const SAMPLE: i32 = 32;
/// No bar is wider.
const BAR_WIDTH_MAX: i32 = 56;
/// A line has at most about this many markers.
const MARKERS_MAX: usize = 30;
/// Higher than that is the area of the data, even under a legend that leaves no room.
const AREA_HEIGHT_MIN: i32 = 60;
/// No text below or next to the area has more lines.
const LINES_MAX: usize = 4;
/// Digits of the numbers at ticks, and of those above bars.
const TICK_DIGITS: i32 = 5;
const BAR_DIGITS: i32 = 3;

/// The figure as the text of an SVG of 760 by 420 pixels.
pub fn draw(figure: &Figure) -> String {
    paint(|canvas| {
        let header = header(canvas, figure);
        let chart = Chart::new(figure, header);
        chart.frame(canvas);
        for (number, series) in figure.series.iter().enumerate() {
            match figure.kind {
                Kind::Lines => chart.line(canvas, number, series),
                Kind::Bars => chart.bars(canvas, number, series),
            }
        }
    })
}

/// Writes title and legend; returns where they end.
fn header(canvas: &Canvas<'_>, figure: &Figure) -> i32 {
    let title = wrap(&figure.title, TITLE.size, SIZE.0 - 2 * EDGE);
    let mut y = lines(canvas, &title, (EDGE, EDGE + TITLE.size / 2), TITLE) + 4;
    let mut x = EDGE;
    for (number, series) in figure.series.iter().enumerate() {
        let wide = SAMPLE + width(&series.name, PLAIN.size);
        if x > EDGE && x + wide > SIZE.0 - EDGE {
            (x, y) = (EDGE, y + leading(PLAIN.size) + 3);
        }
        sample(canvas, figure.kind, number, (x, y));
        canvas.text(&series.name, (x + SAMPLE, y), PLAIN);
        x += wide + EDGE;
    }
    y + PLAIN.size
}

fn sample(canvas: &Canvas<'_>, kind: Kind, series: usize, (x, y): Pixel) {
    match kind {
        Kind::Lines => {
            canvas.path(vec![(x, y), (x + 26, y)], colour(series), 2);
            canvas.marker(series, (x + 13, y));
        }
        Kind::Bars => canvas.block((x, y - 6), (x + 24, y + 6), colour(series)),
    }
}

/// Writes lines below each other; returns the height of the next.
fn lines(canvas: &Canvas<'_>, lines: &[String], (x, mut y): Pixel, letters: Letters) -> i32 {
    for line in lines {
        canvas.text(line, (x, y), letters);
        y += leading(letters.size);
    }
    y
}

fn leading(size: i32) -> i32 {
    (f64::from(size) * LEADING).round() as i32
}

/// The area of the data with its axes.
struct Chart<'figure> {
    figure: &'figure Figure,
    x: Axis,
    y: Axis,
    /// The names on the x axis; empty for an axis of numbers.
    names: Vec<String>,
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

impl<'figure> Chart<'figure> {
    fn new(figure: &'figure Figure, header: i32) -> Self {
        let points = || figure.series.iter().flat_map(|series| &series.points);
        let names = if figure.kind == Kind::Bars || figure.x_scale == Scale::Names {
            names(points())
        } else {
            Vec::new()
        };
        let x = match names.len() {
            0 => Axis::across(points().map(|point| point.x), figure.x_scale),
            count => Axis::places(count),
        };
        let y = Axis::upwards(points().map(|point| point.y), figure.y_scale);
        let mut chart = Self { figure, x, y, names, left: 0, right: 0, top: 0, bottom: 0 };
        chart.place(header);
        chart
    }

    /// Finds the edges of the area from what stands around it.
    fn place(&mut self, header: i32) {
        let ticks = self.y.ticks.iter().map(|tick| width(&tick_text(*tick), PLAIN.size));
        // The label's lines depend on the height, which they do not change.
        self.right = SIZE.0 - EDGE - 6;
        let note = self.note().len() as i32 * leading(NOTE.size);
        let below = EDGE / 2 + note + leading(AXIS_LABEL.size) + 6;
        self.bottom = SIZE.1 - below - leading(PLAIN.size) - 4;
        // The value above the highest bar stays clear of the legend.
        let gap = if self.figure.kind == Kind::Bars { 16 } else { 10 };
        self.top = (header + gap).min(self.bottom - AREA_HEIGHT_MIN);
        let label = self.y_label().len() as i32 * leading(AXIS_LABEL.size);
        self.left = EDGE + label + ticks.max().unwrap_or(0) + 8;
        let rows = (0..self.names.len()).map(|place| self.name_lines(place).len()).max();
        self.bottom = SIZE.1 - below - rows.unwrap_or(1) as i32 * leading(PLAIN.size) - 4;
        self.top = self.top.min(self.bottom - AREA_HEIGHT_MIN);
    }

    fn note(&self) -> Vec<String> {
        few(wrap(&self.figure.note, NOTE.size, SIZE.0 - 2 * EDGE))
    }

    fn y_label(&self) -> Vec<String> {
        few(wrap(&self.figure.y, AXIS_LABEL.size, self.bottom - self.top))
    }

    fn name_lines(&self, place: usize) -> Vec<String> {
        let room = (self.right - self.left) / self.names.len().max(1) as i32;
        few(wrap(&self.names[place], PLAIN.size, room - 6))
    }

    fn across(&self, value: f64) -> Option<i32> {
        let fraction = self.x.fraction(value)?;
        Some(self.left + (fraction * f64::from(self.right - self.left)).round() as i32)
    }

    fn up(&self, value: f64) -> Option<i32> {
        let fraction = self.y.fraction(value)?;
        Some(self.bottom - (fraction * f64::from(self.bottom - self.top)).round() as i32)
    }

    /// Where a point stands on the x axis.
    fn place_of(&self, point: &Point) -> f64 {
        let place = self.names.iter().position(|name| *name == name_of(point));
        place.map_or(point.x, |place| place as f64 + 0.5)
    }

    /// Draws grid, axes and all texts below and next to the area.
    fn frame(&self, canvas: &Canvas<'_>) {
        for tick in &self.y.ticks {
            let Some(y) = self.up(*tick) else { continue };
            canvas.path(vec![(self.left, y), (self.right, y)], PALE, 1);
            let letters = Letters { align: HPos::Right, ..PLAIN };
            canvas.text(&tick_text(*tick), (self.left - 7, y), letters);
        }
        for (place, tick) in self.x.ticks.iter().enumerate() {
            let Some(x) = self.across(*tick) else { continue };
            self.x_tick(canvas, place, *tick, x);
        }
        if let Some(zero) = self.up(0.0).filter(|zero| *zero < self.bottom) {
            canvas.path(vec![(self.left, zero), (self.right, zero)], GREY, 1);
        }
        let corner = (self.left, self.bottom);
        canvas.path(vec![(self.left, self.top), corner, (self.right, self.bottom)], BLACK, 1);
        let middle = ((self.left + self.right) / 2, (self.top + self.bottom) / 2);
        let mut x = EDGE + AXIS_LABEL.size / 2 - 4;
        for line in self.y_label() {
            canvas.text(&line, (x, middle.1), Letters { upwards: true, ..AXIS_LABEL });
            x += leading(AXIS_LABEL.size);
        }
        let note = self.note();
        let end = SIZE.1 - EDGE / 2 - note.len() as i32 * leading(NOTE.size);
        canvas.text(&self.figure.x, (middle.0, end - leading(AXIS_LABEL.size) / 2 - 3), AXIS_LABEL);
        lines(canvas, &note, (EDGE, end + leading(NOTE.size) / 2), NOTE);
    }

    fn x_tick(&self, canvas: &Canvas<'_>, place: usize, tick: f64, x: i32) {
        let below = (x, self.bottom + 6 + leading(PLAIN.size) / 2);
        if self.names.is_empty() {
            canvas.path(vec![(x, self.top), (x, self.bottom)], PALE, 1);
            canvas.text(&tick_text(tick), below, CENTRED);
        } else {
            lines(canvas, &self.name_lines(place), below, CENTRED);
        }
    }

    fn line(&self, canvas: &Canvas<'_>, number: usize, series: &Series) {
        let pixel = |point| Some((self.across(self.place_of(point))?, self.up(point.y)?));
        let pixels: Vec<Pixel> = series.points.iter().filter_map(pixel).collect();
        let stride = pixels.len().div_ceil(MARKERS_MAX).max(1);
        canvas.path(pixels.clone(), colour(number), 2);
        for pixel in pixels.into_iter().step_by(stride) {
            canvas.marker(number, pixel);
        }
    }

    fn bars(&self, canvas: &Canvas<'_>, number: usize, series: &Series) {
        let (wide, count) = (self.bar_width(), self.figure.series.len() as i32);
        let values = self.bars_have_room_for_values(wide);
        for point in &series.points {
            let middle = self.across(self.place_of(point));
            let (Some(middle), Some(top)) = (middle, self.up(point.y)) else { continue };
            let ground = self.up(self.y.ground()).unwrap_or(self.bottom);
            let left = middle - wide * count / 2 + wide * number as i32;
            let gap = i32::from(wide > 3);
            canvas.block((left, ground), (left + wide - gap, top), colour(number));
            if values {
                let above = (left + wide / 2, top.min(ground) - 7);
                canvas.text(&bar_text(point.y), above, Letters { size: 10, ..CENTRED });
            }
        }
    }

    fn bar_width(&self) -> i32 {
        let bars = self.names.len() * self.figure.series.len();
        // A fifth of the width separates the groups.
        ((self.right - self.left) * 4 / 5 / bars.max(1) as i32).clamp(1, BAR_WIDTH_MAX)
    }

    /// Whether every bar's value is narrower than the bar: all are written, or none.
    fn bars_have_room_for_values(&self, wide: i32) -> bool {
        let points = self.figure.series.iter().flat_map(|series| &series.points);
        points.map(|point| width(&bar_text(point.y), 10)).all(|text| text <= wide)
    }
}

fn few(mut lines: Vec<String>) -> Vec<String> {
    lines.truncate(LINES_MAX);
    lines
}

fn tick_text(value: f64) -> String {
    number(value, TICK_DIGITS)
}

fn bar_text(value: f64) -> String {
    number(value, BAR_DIGITS)
}

/// The names of the points in the order of first appearance.
fn names<'figure>(points: impl Iterator<Item = &'figure Point>) -> Vec<String> {
    let mut names = Vec::new();
    for name in points.map(name_of) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn name_of(point: &Point) -> String {
    point.label.clone().unwrap_or_else(|| tick_text(point.x))
}
