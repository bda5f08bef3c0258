//! `GET /v1/jobs/JOB/tail`: rows of a running job, as they pass from stage to stage.
//!
//! The runtime offers the heads of bundles ([`thalweg_runtime::Tap`]); here they are filtered,
//! written as JSON and sent, at a rate, on threads of the server. A slow reader loses rows; the job
//! never waits. A tap ends by itself after [`LASTS`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use thalweg_core::quoting::quoted_list;
use thalweg_core::shim::Clock;
use thalweg_library::session::{Session, ShownRows};
use thalweg_runtime::metrics::{JobLayout, StageRole};
use thalweg_runtime::{Tap, TappedRows};

use super::app::App;
use super::extract::{JobRequest, Query};
use super::live::open_stream;
use super::stream::Writer;
use crate::job::Job;
use crate::problem::{Outcome, Problem};
use crate::run::Run;
use crate::server::Server;

/// How long a tap lasts.
const LASTS: Duration = Duration::from_secs(600);
/// How often rows are taken.
const EVERY: Duration = Duration::from_millis(100);
/// How often a tap says how many rows have passed.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// Rows a second that a tap shows at most.
const RATE_MAX: f64 = 1_000.0;
/// Taps of a job at a time.
const TAPS_MAX: usize = 16;

/// Which edges, which rows, and how many.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TailQuery {
    table: Option<String>,
    stage: Option<String>,
    sink: Option<String>,
    into: Option<String>,
    #[serde(rename = "where")]
    condition: Option<String>,
    limit: Option<u64>,
    rate: Option<f64>,
}

/// Rows of a job as they pass: what tables (`table`, several with commas) or a stage (`stage`)
/// gives, what a stage takes (`into`), or what an output is given (`sink`; without any of these,
/// all outputs). Of each bundle the first 64 rows at most, and at most `rate` (1,000) rows a
/// second: a look at the rows, and not all of them. The messages are `tap` (what is looked at),
/// `row`, `status` (how many rows have passed and how many were shown), `dropped`, and `end` with
/// the reason.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/tail", tag = "rows",
    params(("job" = String, Path), ("table" = Option<String>, Query), ("stage" = Option<String>, Query),
        ("sink" = Option<String>, Query), ("into" = Option<String>, Query),
        ("where" = Option<String>, Query, description = "a condition in SQL over the columns"),
        ("limit" = Option<u64>, Query, description = "ends after this number of rows"), ("rate" = Option<f64>, Query)),
    responses((status = 200, content_type = "text/event-stream"))))]
pub async fn tail(request: JobRequest, Query(wanted): Query<TailQuery>) -> Outcome<Response> {
    let JobRequest { app, caller, job, headers } = request;
    let tailing = app.ask(move |server| Tailing::begin(server, &job, wanted, &caller.name)).await?;
    let (writer, response) = open_stream(&app, &headers)?;
    tokio::spawn(write(app, tailing, writer));
    Ok(response)
}

/// What is sent, and what it is called.
type Message = (&'static str, Content);

/// What is sent.
#[derive(Serialize)]
#[serde(untagged)]
enum Content {
    Row(ShownOnEdge),
    Other(Value),
}

/// A row on its way from a stage to another.
#[derive(Serialize)]
struct ShownOnEdge {
    from: String,
    to: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    watermark_ms: Option<i64>,
    row: Box<RawValue>,
}

/// How rows of an edge are shown.
struct EdgeView {
    edge: (usize, usize),
    names: [String; 2],
    rows: ShownRows,
}

/// A tap that a client reads.
struct Tailing {
    job: Arc<Job>,
    run: Arc<Run>,
    tap: Tap,
    layout: JobLayout,
    session: Session,
    condition: Option<String>,
    /// The edges of which rows have come.
    views: Vec<EdgeView>,
    rate: f64,
    /// Rows that may be shown now.
    allowance: f64,
    shown_rows: u64,
    limit: u64,
    until_ns: u64,
    last_ns: u64,
    status_ns: u64,
}

impl Drop for Tailing {
    fn drop(&mut self) {
        self.job.taps.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Tailing {
    fn begin(server: &Server, job: &str, wanted: TailQuery, by: &str) -> Outcome<Tailing> {
        let job = server.job(job)?;
        let Some((run, control)) = job.control() else {
            let detail = format!("job {} does not run: no rows pass", job.name);
            return Err(Problem::new(409, "not-running", detail));
        };
        let layout = control.layout();
        let edges = edges(&layout, &wanted)?;
        let session = Session::new(server.open_options(Vec::new()))?;
        if let Some(condition) = &wanted.condition {
            // Whether columns are there is known when rows have come; the rest is known now.
            session.check_condition(condition).map_err(|error| Problem::of_error(&error, ""))?;
        }
        if job.taps.fetch_add(1, Ordering::SeqCst) >= TAPS_MAX {
            job.taps.fetch_sub(1, Ordering::SeqCst);
            let detail = format!("{TAPS_MAX} taps look at job {} already", job.name);
            return Err(Problem::new(429, "too-many-taps", detail));
        }
        let now_ns = server.clock.now_ns();
        let tailing = Tailing {
            tap: control.tap(&edges),
            run,
            layout,
            session,
            condition: wanted.condition,
            views: Vec::new(),
            rate: wanted.rate.unwrap_or(RATE_MAX).clamp(0.1, RATE_MAX),
            allowance: 0.0,
            shown_rows: 0,
            limit: wanted.limit.unwrap_or(u64::MAX).max(1),
            until_ns: now_ns.saturating_add(LASTS.as_nanos() as u64),
            last_ns: now_ns,
            status_ns: now_ns,
            job,
        };
        let detail = Some(tailing.named_edges(&edges).join(", "));
        server.event(&tailing.job, "request", "tap", detail, by);
        Ok(tailing)
    }

    /// What the stages of an edge are called.
    fn names(&self, (from, to): (usize, usize)) -> [&str; 2] {
        [from, to].map(|place| self.layout.stages[place].name.as_str())
    }

    fn named_edges(&self, edges: &[(usize, usize)]) -> Vec<String> {
        edges.iter().map(|&edge| self.names(edge).join(" → ")).collect()
    }

    /// What is said first.
    fn head(&self) -> Value {
        let edges: Vec<Value> = self.tap.edges().iter().map(|&edge| self.edge(edge)).collect();
        json!({ "tap": { "edges": edges, "order": self.layout.order.to_string(), "rate": self.rate,
                         "lasts_s": LASTS.as_secs() } })
    }

    fn edge(&self, edge: (usize, usize)) -> Value {
        let [from, to] = self.names(edge);
        json!({ "from": from, "to": to })
    }

    /// The messages since the last time, with their names; and why it has ended, if it has.
    fn messages(&mut self, server: &Server) -> (Vec<Message>, Option<Value>) {
        let now_ns = server.clock.now_ns();
        let passed = Duration::from_nanos(now_ns.saturating_sub(self.last_ns)).as_secs_f64();
        self.last_ns = now_ns;
        // Rows of a second may come at once.
        self.allowance = (self.allowance + passed * self.rate).min(self.rate.max(1.0));
        let mut messages = Vec::new();
        while let Some(rows) = self.tap.take() {
            if let Err(problem) = self.show(&rows, &mut messages) {
                let end = json!({ "end": problem.detail, "problem": problem });
                return (messages, Some(end));
            }
        }
        self.job.tap_rows.fetch_add(messages.len() as u64, Ordering::Relaxed);
        let end = self.end(server, now_ns);
        let is_due = now_ns.saturating_sub(self.status_ns) >= STATUS_EVERY.as_nanos() as u64;
        if is_due || end.is_some() {
            self.status_ns = now_ns;
            let (seen, shown) = (self.tap.seen_rows(), self.shown_rows);
            let status = json!({ "status": { "seen_rows": seen, "shown_rows": shown } });
            messages.push(("status", Content::Other(status)));
        }
        (messages, end)
    }

    fn end(&self, server: &Server, now_ns: u64) -> Option<Value> {
        let runs = self.run.control().is_some_and(|control| !control.is_over());
        let reason = if self.shown_rows >= self.limit {
            "the limit of rows is reached".to_owned()
        } else if now_ns >= self.until_ns {
            format!("a tap lasts {} min: begin another one", LASTS.as_secs() / 60)
        } else if server.is_closing() || !runs {
            "the job does not run any more".to_owned()
        } else {
            return None;
        };
        Some(json!({ "end": reason }))
    }

    fn show(&mut self, rows: &TappedRows, messages: &mut Vec<Message>) -> Outcome<()> {
        let edge = (rows.from, rows.to);
        let left = self.limit.saturating_sub(self.shown_rows);
        let rows_max = left.min(self.allowance as u64) as usize;
        if rows_max == 0 {
            return Ok(());
        }
        let place = match self.views.iter().position(|view| view.edge == edge) {
            Some(place) => place,
            None => {
                self.views.push(self.view(edge, rows)?);
                self.views.len() - 1
            }
        };
        let EdgeView { names: [from, to], rows: view, .. } = &self.views[place];
        let (kinds, before) = (rows.kinds.as_deref(), &rows.watermark_before);
        for row in view.show_first(rows_max, &rows.batch, kinds, before)? {
            self.allowance -= 1.0;
            self.shown_rows += 1;
            let row = ShownOnEdge {
                from: from.clone(),
                to: to.clone(),
                kind: row.kind.short(),
                watermark_ms: crate::job::shown_time(row.watermark.0),
                row: RawValue::from_string(row.json).unwrap_or_default(),
            };
            messages.push(("row", Content::Row(row)));
        }
        Ok(())
    }

    fn view(&self, edge: (usize, usize), rows: &TappedRows) -> Outcome<EdgeView> {
        let columns = rows.batch.schema();
        let rows = self.session.shown_rows(&columns, self.condition.as_deref())?;
        Ok(EdgeView { edge, names: self.names(edge).map(str::to_owned), rows })
    }
}

async fn write(app: App, tailing: Tailing, mut writer: Writer) {
    let mut number = 1;
    if !writer.send("tap", number, &tailing.head()) {
        return;
    }
    let mut own = Some(tailing);
    while let Some(mut tailing) = own.take() {
        let asked = app.ask(move |server| {
            let (messages, end) = tailing.messages(server);
            Ok((tailing, messages, end))
        });
        let Ok((tailing, messages, end)) = asked.await else { return };
        if !writer.send_all(number + 1, &messages) {
            return;
        }
        number += messages.len() as u64;
        if let Some(end) = end {
            // The last word is worth a moment's wait.
            writer.send_last("end", number + 1, &end).await;
            return;
        }
        own = Some(tailing);
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = writer.closed() => return,
        }
    }
}

/// The edges that are meant.
fn edges(layout: &JobLayout, wanted: &TailQuery) -> Outcome<Vec<(usize, usize)>> {
    let from = [(&wanted.table, Some(StageRole::Source)), (&wanted.stage, None)];
    let to = [(&wanted.sink, Some(StageRole::Sink)), (&wanted.into, None)];
    let find = |(name, role): &(&Option<String>, Option<StageRole>)| {
        name.as_ref().map(|name| all_places(layout, name, *role))
    };
    let from: Vec<Vec<usize>> = from.iter().filter_map(find).collect::<Outcome<_>>()?;
    let mut to: Vec<Vec<usize>> = to.iter().filter_map(find).collect::<Outcome<_>>()?;
    if from.is_empty() && to.is_empty() {
        let places = layout.stages.iter().enumerate();
        let sinks = places.filter(|(_, stage)| stage.role == StageRole::Sink);
        to.push(sinks.map(|(place, _)| place).collect());
    }
    let all = layout.stages.iter().enumerate();
    let all = all.flat_map(|(to, stage)| stage.inputs.iter().map(move |&from| (from, to)));
    let mut chosen: Vec<(usize, usize)> = all
        .filter(|(source, target)| {
            from.iter().all(|places| places.contains(source))
                && to.iter().all(|places| places.contains(target))
        })
        .collect();
    chosen.sort_unstable();
    chosen.dedup();
    match chosen.is_empty() {
        false => Ok(chosen),
        true => Err(Problem::new(404, "no-such-edge", "no rows pass from there to there")),
    }
}

/// The stages of this name; of these names, with commas, where none is called so.
fn all_places(layout: &JobLayout, names: &str, role: Option<StageRole>) -> Outcome<Vec<usize>> {
    let whole = places(layout, names, role);
    if whole.is_ok() || !names.contains(',') {
        return whole;
    }
    let of_each = names.split(',').map(|name| places(layout, name.trim(), role));
    Ok(of_each.collect::<Outcome<Vec<_>>>()?.concat())
}

/// The stages of this name, or of this identifier.
fn places(layout: &JobLayout, name: &str, role: Option<StageRole>) -> Outcome<Vec<usize>> {
    let stages = || {
        let all = layout.stages.iter().enumerate();
        all.filter(|(_, stage)| role.is_none_or(|role| stage.role == role))
    };
    let found: Vec<usize> = stages()
        .filter(|(_, stage)| stage.name == name || stage.id == name)
        .map(|(place, _)| place)
        .collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let names = quoted_list(stages().map(|(_, stage)| &stage.name));
    let detail = format!("the job has no '{name}' there; it has {names}");
    Err(Problem::new(404, "no-such-stage", detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_runtime::metrics::{PassedWatermarks, StageLayout};

    fn layout() -> JobLayout {
        let stage = |name: &str, role, inputs: &[usize]| StageLayout {
            id: format!("id-{name}"),
            name: name.to_owned(),
            role,
            inputs: inputs.to_vec(),
            parallelism: 1,
            passes: PassedWatermarks::HeldBackMs(0),
            grids: Vec::new(),
            is_bounded: false,
            has_time: true,
            idle_timeout: None,
            waits_for_end_of: Vec::new(),
        };
        JobLayout {
            workers: 1,
            order: thalweg_core::OrderContract::Epoch,
            may_use_clock: true,
            stages: vec![
                stage("orders", StageRole::Source, &[]),
                stage("window o", StageRole::Operator, &[0]),
                stage("totals", StageRole::Sink, &[1]),
                stage("orders", StageRole::Sink, &[0, 1]),
            ],
        }
    }

    #[test]
    fn edges_are_named_by_what_gives_and_by_what_takes() {
        let layout = layout();
        let named = |set: fn(&mut TailQuery)| {
            let mut wanted = TailQuery::default();
            set(&mut wanted);
            edges(&layout, &wanted)
        };
        let outputs = named(|_| {}).expect("all outputs");
        assert_eq!(outputs, [(0, 3), (1, 2), (1, 3)]);
        let tables = named(|wanted| wanted.table = Some("orders, orders".to_owned()));
        assert_eq!(tables.expect("tables"), [(0, 1), (0, 3)]);
        let table = named(|wanted| wanted.table = Some("orders".to_owned()));
        assert_eq!(table.expect("a table"), [(0, 1), (0, 3)]);
        let stage = named(|wanted| wanted.stage = Some("id-window o".to_owned()));
        assert_eq!(stage.expect("a stage"), [(1, 2), (1, 3)]);
        let between = named(|wanted| {
            wanted.table = Some("orders".to_owned());
            wanted.into = Some("window o".to_owned());
        });
        assert_eq!(between.expect("an edge"), [(0, 1)]);
        let none = named(|wanted| {
            wanted.table = Some("orders".to_owned());
            wanted.sink = Some("totals".to_owned());
        });
        assert_eq!(none.expect_err("no edge").code, "no-such-edge");
        let wrong = named(|wanted| wanted.sink = Some("window o".to_owned())).expect_err("no sink");
        assert!(wrong.detail.ends_with("it has 'totals', 'orders'"), "{}", wrong.detail);
    }
}
