//! The drawn texts and shapes are read back from the SVG by an XML parser; where a value stands is
//! derived from the labels of the axis, as a reader of the picture would.

use roxmltree::{Document, Node};

use super::axis::{Axis, number};
use super::canvas::{width, wrap};
use super::*;

fn lines() -> Figure {
    Figure {
        name: "skew".to_string(),
        title: "Throughput under skew".to_string(),
        x: "Skew (sigma)".to_string(),
        y: "Million rows/s".to_string(),
        series: vec![
            Series::over_numbers("hybrid queue", [(0.05, 1.25), (0.2, 3.0), (1.0, 7.5)]),
            Series::over_numbers("shared <queue> & \"lock\"", [(0.05, 0.5), (0.2, 0.5)]),
        ],
        note: "2 cores".to_string(),
        ..Figure::default()
    }
}

fn bars() -> Figure {
    Figure {
        kind: Kind::Bars,
        x_scale: Scale::Names,
        series: vec![
            Series::over_names("ordered", [("first query", 4.0), ("second", 10.0)]),
            Series::over_names("unordered", [("second", 5.0), ("third", 2.0)]),
        ],
        ..lines()
    }
}

/// All texts with their pixels.
fn texts(svg: &Document<'_>) -> Vec<(String, f64, f64)> {
    let nodes = svg.descendants().filter(|node| node.has_tag_name("text"));
    nodes
        .map(|node| {
            let text = node.text().expect("a text has one").trim().to_string();
            (text, attribute(node, "x"), attribute(node, "y"))
        })
        .collect()
}

fn attribute(node: Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).and_then(|value| value.parse().ok()).expect(name)
}

/// The pixel of a text.
fn pixel(svg: &Document<'_>, wanted: &str) -> (f64, f64) {
    let found = texts(svg).into_iter().find(|(text, ..)| text == wanted);
    found.map(|(_, x, y)| (x, y)).unwrap_or_else(|| panic!("no text `{wanted}`"))
}

/// The bars of a colour without the sample in the legend: left, top, width, height.
fn bars_of(svg: &Document<'_>, fill: &str) -> Vec<[f64; 4]> {
    let nodes = svg.descendants().filter(|node| node.has_tag_name("rect"));
    let nodes = nodes.filter(|node| node.attribute("fill") == Some(fill)).skip(1);
    nodes.map(|node| ["x", "y", "width", "height"].map(|name| attribute(node, name))).collect()
}

#[test]
fn every_text_of_a_figure_stands_in_its_picture() {
    for figure in [lines(), bars()] {
        let svg = draw(&figure);
        let svg = Document::parse(&svg).expect("XML");
        let series = figure.series.iter().map(|series| &series.name);
        for text in [&figure.title, &figure.x, &figure.y, &figure.note].into_iter().chain(series) {
            let (x, y) = pixel(&svg, text);
            assert!((0.0..760.0).contains(&x) && (0.0..420.0).contains(&y), "{text}: {x}, {y}");
        }
    }
}

#[test]
fn points_stand_where_the_labels_of_the_axes_say() {
    let svg = draw(&lines());
    let svg = Document::parse(&svg).expect("XML");
    let circles = svg.descendants().filter(|node| node.has_tag_name("circle"));
    // The first one is the sample in the legend.
    let circles: Vec<_> =
        circles.skip(1).map(|node| (attribute(node, "cx"), attribute(node, "cy"))).collect();
    let (zero, eight) = (pixel(&svg, "0").1, pixel(&svg, "8").1);
    let (fifth, one) = (pixel(&svg, "0.2").0, pixel(&svg, "1").0);
    for ((cx, cy), (x, y)) in circles.iter().zip([(0.05, 1.25), (0.2, 3.0), (1.0, 7.5)]) {
        let wanted_y = zero + (eight - zero) * y / 8.0;
        let wanted_x = fifth + (one - fifth) * (x - 0.2) / 0.8;
        assert!((cx - wanted_x).abs() <= 1.0, "{x} at {cx}, not at {wanted_x}");
        assert!((cy - wanted_y).abs() <= 1.0, "{y} at {cy}, not at {wanted_y}");
    }
    assert_eq!(circles.len(), 3);
}

#[test]
fn the_highest_point_lies_below_the_legend_and_above_the_x_axis() {
    let mut figure = lines();
    for highest in [1e-7, 0.3, 1.0, 7.0, 9.999, 1234.5, 6e12] {
        figure.series[0].points[1].y = highest;
        let svg = draw(&figure);
        let svg = Document::parse(&svg).expect("XML");
        let legend = pixel(&svg, "hybrid queue").1;
        let ground = pixel(&svg, "0").1;
        let circles = svg.descendants().filter(|node| node.has_tag_name("circle")).skip(1);
        for height in circles.map(|node| attribute(node, "cy")) {
            assert!(legend + 6.0 < height && height <= ground + 1.0, "{highest}: {height}");
        }
    }
}

#[test]
fn bars_of_one_label_stand_side_by_side_above_it_and_are_as_high_as_their_values() {
    let svg = draw(&bars());
    let svg = Document::parse(&svg).expect("XML");
    let (ordered, unordered) = (bars_of(&svg, "#0072B2"), bars_of(&svg, "#D55E00"));
    assert_eq!((ordered.len(), unordered.len()), (2, 2));
    let [[.., four], [left, _, wide, ten]] = ordered[..] else { panic!("two bars") };
    let [[next, _, next_wide, five], [third_left, _, third_wide, two]] = unordered[..] else {
        panic!("two bars")
    };
    for (height, value) in [(four, 4.0), (five, 5.0), (two, 2.0)] {
        assert!((height / ten - value / 10.0).abs() < 0.01, "{value}: {height} of {ten}");
    }
    let label = pixel(&svg, "second").0;
    assert!(left < left + wide && left + wide <= next, "the first ends where the second begins");
    assert!(left < label && label < next + next_wide, "the group stands above its label");
    // The third label has one bar, at the place of its series.
    let third = pixel(&svg, "third").0;
    assert!((third_left - third).abs() <= 1.0 && third_wide == next_wide);
}

#[test]
fn a_step_on_a_logarithmic_axis_is_a_ratio() {
    let series = vec![Series::over_numbers("one", [(1.0, 1.0), (10.0, 10.0), (100.0, 1000.0)])];
    let figure = Figure { x_scale: Scale::Log, y_scale: Scale::Log, series, ..lines() };
    let svg = draw(&figure);
    let svg = Document::parse(&svg).expect("XML");
    let circles = svg.descendants().filter(|node| node.has_tag_name("circle")).skip(1);
    let circles: Vec<_> =
        circles.map(|node| (attribute(node, "cx"), attribute(node, "cy"))).collect();
    let [(x1, y1), (x2, y2), (x3, y3)] = circles[..] else { panic!("three points") };
    assert!((x2 - x1 - (x3 - x2)).abs() <= 1.0, "{circles:?}");
    assert!((2.0 * (y2 - y1) - (y3 - y2)).abs() <= 2.0, "{circles:?}");
}

#[test]
fn equal_figures_give_equal_bytes_and_other_values_other_bytes() {
    let mut figure = lines();
    let first = draw(&figure);
    assert_eq!(first, draw(&lines()));
    figure.series[0].points[0].y = 6.0;
    assert_ne!(first, draw(&figure));
}

#[test]
fn what_cannot_be_drawn_is_left_out_and_the_rest_is_drawn() {
    let points = [(f64::NAN, 1.0), (0.0, 2.0), (-3.0, 2.0), (10.0, f64::INFINITY), (20.0, 5.0)];
    let series = vec![Series::over_numbers("odd\u{1}", points)];
    let figure = Figure { x_scale: Scale::Log, series, ..lines() };
    let svg = draw(&figure);
    let svg = Document::parse(&svg).expect("XML");
    let circles = svg.descendants().filter(|node| node.has_tag_name("circle"));
    assert_eq!(circles.count(), 2, "a sample in the legend and one point");
}

#[test]
fn a_figure_without_room_or_without_data_is_still_a_picture() {
    let long = "word ".repeat(200);
    let many = (0..80).map(|number| {
        let points = (0..60).map(|place| (format!("{long}{place}"), f64::from(place) * 1e307));
        Series::over_names(format!("series with a long name, number {number}"), points)
    });
    let crowded = Figure { y: long.clone(), note: long.clone(), series: many.collect(), ..bars() };
    let empty = Figure { series: Vec::new(), ..bars() };
    let pointless = Figure { series: vec![Series::default()], ..lines() };
    let tiny = Series::over_numbers("tiny", [(5e-324, 5e-324), (f64::MAX, f64::MAX)]);
    let mut extremes = vec![Figure { series: vec![tiny], ..lines() }];
    extremes.push(Figure { x_scale: Scale::Log, y_scale: Scale::Log, ..extremes[0].clone() });
    extremes.extend([crowded, empty, pointless, Figure::default()]);
    for figure in extremes {
        let svg = draw(&figure);
        Document::parse(&svg).expect("XML");
    }
}

#[test]
fn figures_return_from_their_file_as_they_were_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("figures.jsonl");
    let logarithmic = Figure { y_scale: Scale::Log, ..bars() };
    write_figures(&path, &[lines(), bars()]).expect("written");
    write_figures(&path, std::slice::from_ref(&logarithmic)).expect("appended");
    assert_eq!(fs::read_to_string(&path).expect("text").lines().count(), 3);
    assert_eq!(read_figures(&path).expect("read"), [lines(), bars(), logarithmic]);
}

#[test]
fn a_number_without_a_word_in_json_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("figures.jsonl");
    let mut broken = lines();
    broken.series[1].points[0].y = f64::NAN;
    let error = write_figures(&path, &[lines(), broken]).expect_err("not a number");
    assert!(error.to_string().contains("figure `skew`"), "{error}");
    assert!(!path.exists());
}

#[test]
fn lines_that_other_programs_write_are_read_and_errors_name_the_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("figures.jsonl");
    let line = r#"{"name":"n","title":"t","x":"a","y":"b","x_scale":"names","kind":"bars","series":
        [{"name":"s","points":[{"y":2,"label":"l"},{"x":0.5,"y":1e3}]}],"note":"m"}"#;
    let line = line.replace('\n', " ");
    fs::write(&path, format!("{line}\n\n")).expect("written");
    let [figure] = &read_figures(&path).expect("read")[..] else { panic!("one figure") };
    assert_eq!((figure.kind, figure.x_scale), (Kind::Bars, Scale::Names));
    let points = [
        Point { x: 0.0, y: 2.0, label: Some("l".to_string()) },
        Point { x: 0.5, y: 1000.0, label: None },
    ];
    assert_eq!(figure.series[0].points, points);
    fs::write(&path, format!("{line}\n{{\"name\":7}}\n")).expect("written");
    let error = read_figures(&path).expect_err("no figure").to_string();
    assert!(error.contains("figures.jsonl:2: no figure"), "{error}");
}

#[test]
fn ticks_read_well_and_enclose_the_values() {
    let ticks = |low: f64, high: f64, scale| Axis::upwards([low, high].into_iter(), scale).ticks;
    assert_eq!(ticks(1.0, 9.0, Scale::Linear), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
    assert_eq!(ticks(0.1, 1.2, Scale::Linear).last(), Some(&1.2000000000000002));
    assert_eq!(ticks(-3.0, 5.0, Scale::Linear), [-4.0, -2.0, 0.0, 2.0, 4.0, 6.0]);
    assert_eq!(ticks(3.0, 40.0, Scale::Log), [2.0, 5.0, 10.0, 20.0, 50.0]);
    assert_eq!(ticks(0.5, 9e4, Scale::Log), [0.1, 1.0, 10.0, 100.0, 1000.0, 1e4, 1e5]);
    let workers = Axis::across([1.0, 2.0, 4.0, 8.0, 16.0].into_iter(), Scale::Log);
    assert_eq!(workers.ticks, [1.0, 2.0, 4.0, 8.0, 16.0]);
}

#[test]
fn numbers_are_short() {
    let cases = [
        (0.0, "0"),
        (0.1 + 0.2, "0.3"),
        (2026.0, "2026"),
        (20_000.0, "20k"),
        (-1_500_000.0, "-1.5M"),
        (3e9, "3G"),
        (1e-5, "1e-5"),
    ];
    for (value, text) in cases {
        assert_eq!(number(value, 5), text);
    }
    assert_eq!(number(0.123_456, 3), "0.123");
}

#[test]
fn texts_break_at_spaces_and_words_that_are_too_long_are_cut() {
    assert_eq!(wrap("a b", 10, 100), ["a b"]);
    assert_eq!(wrap("first second", 10, 45), ["first", "second"]);
    let cut = wrap("internationalization", 10, 50);
    assert!(cut.len() == 1 && cut[0].ends_with('…') && width(&cut[0], 10) <= 50, "{cut:?}");
    assert!(wrap("", 10, 50).is_empty());
}
