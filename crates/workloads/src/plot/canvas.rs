//! Pixels: texts, lines, bars and markers on a white ground, as SVG.
//!
//! The colours are those of Okabe and Ito, which people with any colour vision can distinguish;
//! series of one colour differ in their markers. Widths of texts are estimated from the number of
//! characters, since the fonts of the reader are unknown.

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, Drawable, PathElement, PointCollection, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, FontTransform, IntoFont, RGBColor, ShapeStyle, TextStyle};

/// A place in the picture: from the left, and from the top.
pub type Pixel = (i32, i32);

/// Width and height of every picture.
pub const SIZE: Pixel = (760, 420);

pub const BLACK: RGBColor = RGBColor(0, 0, 0);
pub const GREY: RGBColor = RGBColor(90, 90, 90);
pub const PALE: RGBColor = RGBColor(222, 222, 222);

/// Okabe and Ito's eight, those with little contrast to white last.
const PALETTE: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(240, 228, 66),
];
/// How many markers there are: no divisor of the colours' number, so that pairs repeat late.
const MARKERS: usize = 7;
/// Half the width of a marker.
const MARKER_RADIUS: i32 = 4;

/// The colour of a series by its number.
pub fn colour(series: usize) -> RGBColor {
    PALETTE[series % PALETTE.len()]
}

/// About how wide a text is.
pub fn width(text: &str, size: i32) -> i32 {
    (text.chars().count() as f64 * f64::from(size) * 0.56).ceil() as i32
}

/// Breaks a text at spaces into lines of at most this many pixels; a longer word is cut.
pub fn wrap(text: &str, size: i32, width_max: i32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(word, size) + size / 2 <= width_max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(cut(word, size, width_max)),
        }
    }
    lines
}

/// A word, or as much of its beginning as fits with an ellipsis.
fn cut(word: &str, size: i32, width_max: i32) -> String {
    if width(word, size) <= width_max {
        return word.to_string();
    }
    let fits = |count: &usize| width(&word.chars().take(*count).collect::<String>(), size);
    let count = (1..word.chars().count()).take_while(|count| fits(count) + size <= width_max);
    let begin: String = word.chars().take(count.last().unwrap_or(1)).collect();
    format!("{begin}…")
}

/// How a text stands at its pixel.
#[derive(Clone, Copy)]
pub struct Letters {
    pub size: i32,
    pub colour: RGBColor,
    pub bold: bool,
    pub align: HPos,
    /// Whether it runs from bottom to top.
    pub upwards: bool,
}

/// Black letters from their left end to the right.
pub const PLAIN: Letters =
    Letters { size: 12, colour: BLACK, bold: false, align: HPos::Left, upwards: false };

/// A picture under work.
pub struct Canvas<'picture> {
    area: DrawingArea<SVGBackend<'picture>, Shift>,
}

/// The SVG of what a function paints.
pub fn paint(painter: impl FnOnce(&Canvas<'_>)) -> String {
    let mut picture = String::new();
    let size = (SIZE.0 as u32, SIZE.1 as u32);
    let canvas = Canvas { area: SVGBackend::with_string(&mut picture, size).into_drawing_area() };
    canvas.block((0, 0), SIZE, RGBColor(255, 255, 255));
    painter(&canvas);
    canvas.area.present().expect("a string takes everything");
    drop(canvas);
    picture
}

impl<'picture> Canvas<'picture> {
    fn put<Element>(&self, element: &Element)
    where
        for<'element> &'element Element: PointCollection<'element, Pixel>,
        Element: Drawable<SVGBackend<'picture>>,
    {
        self.area.draw(element).expect("a string takes everything");
    }

    /// A text whose middle line is at the height of the pixel.
    pub fn text(&self, text: &str, at: Pixel, letters: Letters) {
        // XML has no words for these, not even escaped.
        let forbidden = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
        let text = text.replace(forbidden, " ");
        let weight = if letters.bold { FontStyle::Bold } else { FontStyle::Normal };
        let turn = if letters.upwards { FontTransform::Rotate270 } else { FontTransform::None };
        let font = ("sans-serif", letters.size, weight).into_font().transform(turn);
        let style = TextStyle::from(font).color(&letters.colour);
        self.put(&Text::new(text, at, style.pos(Pos::new(letters.align, VPos::Center))));
    }

    /// A line through the pixels.
    pub fn path(&self, through: Vec<Pixel>, colour: RGBColor, stroke: u32) {
        self.put(&PathElement::new(through, stroked(colour, stroke)));
    }

    /// A filled rectangle.
    pub fn block(&self, from: Pixel, to: Pixel, colour: RGBColor) {
        let (left, right) = (from.0.min(to.0), from.0.max(to.0));
        let (top, bottom) = (from.1.min(to.1), from.1.max(to.1));
        self.put(&Rectangle::new([(left, top), (right, bottom)], colour.filled()));
    }

    /// The marker of a series.
    pub fn marker(&self, series: usize, at: Pixel) {
        let (colour, radius) = (colour(series), MARKER_RADIUS);
        let moved = |by: &[Pixel]| by.iter().map(|by| (at.0 + by.0, at.1 + by.1)).collect();
        let shape = |by: &[Pixel]| {
            self.put(&Polygon::new::<Vec<Pixel>, _>(moved(by), colour.filled()));
        };
        let wide = radius + 1;
        match series % MARKERS {
            0 => self.put(&Circle::new(at, radius, colour.filled())),
            1 => {
                shape(&[(-radius, -radius), (radius, -radius), (radius, radius), (-radius, radius)])
            }
            2 => shape(&[(0, -wide), (wide, radius), (-wide, radius)]),
            3 => shape(&[(0, -wide - 1), (wide + 1, 0), (0, wide + 1), (-wide - 1, 0)]),
            4 => shape(&[(0, wide), (wide, -radius), (-wide, -radius)]),
            5 => {
                self.path(moved(&[(-radius, -radius), (radius, radius)]), colour, 3);
                self.path(moved(&[(-radius, radius), (radius, -radius)]), colour, 3);
            }
            _ => {
                self.path(moved(&[(-wide, 0), (wide, 0)]), colour, 3);
                self.path(moved(&[(0, -wide), (0, wide)]), colour, 3);
            }
        }
    }
}

fn stroked(colour: RGBColor, stroke: u32) -> ShapeStyle {
    ShapeStyle { color: colour.to_rgba(), filled: false, stroke_width: stroke }
}
