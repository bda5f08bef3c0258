//! Pictures of what was measured, with the plots of the workloads: latency percentiles on a
//! logarithmic axis, throughput, scaling, and records before their time.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;
use thalweg_workloads::plot::{Figure, Kind as Marks, Scale, Series, draw};

use super::bisection::BOUNDS_MS;
use super::bounded::{Workload, rates};
use super::contrasts::{self, Ablated};
use super::percentiles::NAMES;
use super::point::{Kind, grouped};
use super::tables::{Measured, block_rates, group};

/// Draws all pictures of the rows into a folder; their names.
///
/// # Errors
/// If a file can't be written.
pub fn write(folder: &Path, rows: &[&Value], note: &str) -> io::Result<Vec<String>> {
    let groups = group(rows.iter().copied());
    let figures = [
        latency(&groups, "latency-q5", "Query 5, first row of each window"),
        latency(&groups, "latency-rows", "Queries 1, 2 and 13, each row"),
        latency(&groups, "latency-queries", "Queries 3, 4, 6, 7 and 8"),
        bounded(&groups, "bounded-streambox", "StreamBox's benchmarks"),
        bounded(&groups, "bounded-nexmark", "NEXMark's queries"),
        throughput(&groups),
        scaling(&groups),
        disorder(&groups),
    ];
    let figures = figures.into_iter().chain(ablations(&groups));
    let mut names = Vec::new();
    for figure in figures.flatten() {
        let figure = Figure { note: note.to_owned(), ..figure };
        let name = format!("{}.svg", figure.name);
        fs::write(folder.join(&name), draw(&figure))?;
        names.push(name);
    }
    Ok(names)
}

fn of_part<'a, 'b>(groups: &'b [Measured<'a>], part: &str) -> Vec<&'b Measured<'a>> {
    groups.iter().filter(|group| group.point.part == part).collect()
}

fn with_series(figure: Figure, series: Vec<Series>) -> Option<Figure> {
    let series: Vec<Series> = series.into_iter().filter(|s| !s.points.is_empty()).collect();
    (!series.is_empty()).then_some(Figure { series, ..figure })
}

/// A line for each query, rate and engine over the percentiles.
fn latency(groups: &[Measured<'_>], part: &str, title: &str) -> Option<Figure> {
    let keys = ["p50_ms", "p90_ms", "p99_ms", "p99_9_ms", "p99_99_ms", "max_ms"];
    let line = |group: &&Measured<'_>| {
        let point = &group.point;
        let (engine, rate) = (point.engine.name(), grouped(point.events_per_second));
        let name = format!("{engine} {} {rate}/s", point.workload);
        let of = |key: &str| group.median(|row| row["first"][key].as_f64()).map(|found| found.0);
        let values = NAMES.iter().zip(keys).filter_map(|(name, key)| Some((*name, of(key)?)));
        Series::over_names(name, values)
    };
    let figure = Figure {
        name: part.to_owned(),
        title: format!("{title}: latency by percentile"),
        x: "Percentile".to_owned(),
        y: "Milliseconds".to_owned(),
        x_scale: Scale::Names,
        y_scale: Scale::Log,
        ..Figure::default()
    };
    with_series(figure, of_part(groups, part).iter().map(line).collect())
}

/// Bars of the highest rates within each bound, per core.
fn bounded(groups: &[Measured<'_>], part: &str, title: &str) -> Option<Figure> {
    let steps = of_part(groups, part);
    let workloads = Workload::all(&steps);
    let series = BOUNDS_MS.map(|bound_ms| {
        let of = |workload: &Workload<'_, '_>| {
            Some((workload.name.to_owned(), rates(workload.best(bound_ms)?).1))
        };
        Series::over_names(format!("{bound_ms} ms"), workloads.iter().filter_map(of))
    });
    let figure = Figure {
        name: part.to_owned(),
        title: format!("{title}: events per second and core within a bound on the output delay"),
        y: "Million events/s per core".to_owned(),
        x_scale: Scale::Names,
        kind: Marks::Bars,
        ..Figure::default()
    };
    with_series(figure, series.into())
}

fn of_kind<'a, 'b>(groups: &'b [Measured<'a>], kind: Kind) -> Vec<&'b Measured<'a>> {
    groups.iter().filter(|group| group.point.kind == kind).collect()
}

/// The engine's rates as shares of the floors.
fn throughput(groups: &[Measured<'_>]) -> Option<Figure> {
    let rates = block_rates(&of_kind(groups, Kind::Throughput));
    let share = |((workload, variant), rate): (&(String, String), &(f64, f64, f64))| {
        let floors =
            rates.iter().filter(|((of, name), _)| of == workload && name.starts_with("floor"));
        let floor = floors.map(|(_, floor)| floor.0).next()?;
        let is_one = variant == "engine" || variant == "engine, 1 worker";
        is_one.then(|| (workload.clone(), rate.0 / floor))
    };
    let shares: Vec<(String, f64)> = rates.iter().filter_map(share).collect();
    let figure = Figure {
        name: "throughput".to_owned(),
        title: "Rows per second of processor time, one worker: share of a loop by hand".to_owned(),
        y: "Of the floor".to_owned(),
        x_scale: Scale::Names,
        kind: Marks::Bars,
        ..Figure::default()
    };
    with_series(figure, vec![Series::over_names("engine : floor", shares)])
}

/// Two workers against one, by wall clock.
fn scaling(groups: &[Measured<'_>]) -> Option<Figure> {
    let scaled = contrasts::scaled(&groups.iter().collect::<Vec<_>>());
    let times = scaled.iter().map(|of| (of.workload.as_str(), of.wall[1] / of.wall[0]));
    let figure = Figure {
        name: "scaling".to_owned(),
        title: "Rows per second by two workers, to those by one".to_owned(),
        y: "Times".to_owned(),
        x_scale: Scale::Names,
        kind: Marks::Bars,
        ..Figure::default()
    };
    with_series(figure, vec![Series::over_names("2 workers : 1 worker", times)])
}

/// For each figure of the paper the rates of its variants, to the first; and how late results are
/// without StreamBox's decisions.
fn ablations(groups: &[Measured<'_>]) -> Vec<Option<Figure>> {
    let all = contrasts::ablated(&of_kind(groups, Kind::Ablations));
    let lines = |figure: &str, of: fn(&Ablated<'_>) -> f64| {
        let of_figure: Vec<&Ablated<'_>> = all.iter().filter(|a| a.figure == figure).collect();
        let mut workloads: Vec<&str> = of_figure.iter().map(|a| a.workload).collect();
        workloads.dedup();
        let line = |workload: &str| {
            let points = of_figure.iter().filter(|a| a.workload == workload);
            Series::over_names(workload, points.map(|a| (a.variant, of(a))))
        };
        workloads.into_iter().map(line).collect::<Vec<_>>()
    };
    let figure = |name: &str, title: &str, x: &str| Figure {
        name: format!("ablations-{name}"),
        title: title.to_owned(),
        x: x.to_owned(),
        y: "Rows per second, to the first".to_owned(),
        x_scale: Scale::Names,
        kind: Marks::Bars,
        ..Figure::default()
    };
    let late = Figure {
        y: "Milliseconds, 99 % of results".to_owned(),
        y_scale: Scale::Log,
        kind: Marks::Lines,
        ..figure("latency", "How late results leave without StreamBox's decisions", "")
    };
    let rates: fn(&Ablated<'_>) -> f64 = |of| of.of_first;
    vec![
        with_series(figure("9-10", "StreamBox's decisions removed", ""), lines("9-10", rates)),
        with_series(late, lines("9-10", |of| of.latency_ms.1)),
        with_series(
            figure("11", "Epochs of several lengths", "Records in an epoch"),
            lines("11", rates),
        ),
        with_series(
            figure("7", "Records that come early", "Share of records that come early, %"),
            lines("7", rates),
        ),
    ]
}

/// Throughput over the share of records that come early.
fn disorder(groups: &[Measured<'_>]) -> Option<Figure> {
    let groups = of_kind(groups, Kind::Disorder);
    let mut workloads: Vec<&str> =
        groups.iter().map(|group| group.point.workload.as_str()).collect();
    workloads.dedup();
    let line = |workload: &&str| {
        let points = groups.iter().filter(|group| group.point.workload == *workload);
        let place = |group: &&Measured<'_>| {
            let (rate, ..) = group.median(|row| row["rows_per_second"].as_f64())?;
            Some((group.point.variant.parse().ok()?, rate / 1e6))
        };
        Series::over_numbers(*workload, points.filter_map(place))
    };
    let figure = Figure {
        name: "disorder".to_owned(),
        title: "Records before their time".to_owned(),
        x: "Share of records that come one to three epochs early, %".to_owned(),
        y: "Million rows/s".to_owned(),
        ..Figure::default()
    };
    with_series(figure, workloads.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::super::folder::Folder;
    use super::super::point::Point;
    use super::*;
    use serde_json::json;

    #[test]
    fn percentiles_are_drawn_on_a_logarithmic_axis() {
        let point = Point::new("latency-q5", Kind::Latency, "q5", 1_000_000);
        let row = |rate| {
            let first = json!({ "count": 9, "p50_ms": 0.1, "p90_ms": 0.3, "p99_ms": 1.0,
                "p99_9_ms": 3.0, "p99_99_ms": 10.0, "max_ms": 100.0 });
            json!({ "point": Point { events_per_second: rate, ..point.clone() }, "first": first })
        };
        let rows = [row(100_000), row(1_000_000)];
        let groups = group(&rows);
        let figure = latency(&groups, "latency-q5", "Query 5").expect("there are lines");
        assert_eq!((figure.series.len(), figure.y_scale), (2, Scale::Log));
        assert_eq!(figure.series[0].points.len(), 6);
        let folder = Folder::new().expect("a folder");
        let names =
            write(folder.path(), &rows.iter().collect::<Vec<_>>(), "a note").expect("writes");
        assert_eq!(names, ["latency-q5.svg"], "nothing is drawn of what was not measured");
        let text = fs::read_to_string(folder.path().join("latency-q5.svg")).expect("it is there");
        assert!(text.contains("p99.99") && text.contains("a note"));
    }

    #[test]
    fn scaling_needs_runs_with_both_numbers_of_workers() {
        let point = Point::new("throughput-blocks", Kind::Throughput, "merge", 0);
        let run = |workload: &str, variant: &str, seconds: f64| {
            json!({ "workload": workload, "variant": variant,
            "events": 1e6, "seconds": seconds, "cpu_seconds": 1.0 })
        };
        let runs = [
            run("w", "engine, 1 worker", 1.0),
            run("w", "engine, 2 workers", 0.5),
            run("one", "engine, 1 worker", 1.0),
        ];
        let rows = [json!({ "point": point, "runs": runs })];
        let figure = scaling(&group(&rows)).expect("bars");
        let times: Vec<f64> = figure.series[0].points.iter().map(|point| point.y).collect();
        assert_eq!(times, [2.0]);
    }

    #[test]
    fn each_figure_of_the_paper_has_its_picture() {
        let run = |figure: &str, variant: &str, seconds: f64| {
            json!({ "figure": figure, "workload": "netmon",
            "variant": variant, "events": 1e6, "seconds": seconds, "cpu_seconds": 1.0,
            "latency": { "p50_ms": 1.0, "p99_ms": 2.0 } })
        };
        let runs = [
            run("9-10", "as it is", 1.0),
            run("9-10", "no priority", 2.0),
            run("11", "1 M", 1.0),
            run("7", "0", 1.0),
        ];
        let point = Point::new("ablations", Kind::Ablations, "netmon", 0);
        let rows = [json!({ "point": point, "runs": runs })];
        let figures: Vec<Figure> = ablations(&group(&rows)).into_iter().flatten().collect();
        let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names, ["ablations-9-10", "ablations-latency", "ablations-11", "ablations-7"]);
        assert_eq!(figures[0].series[0].points[1].y, 0.5);
    }
}
