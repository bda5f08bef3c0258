//! `thalweg run`: results on standard output, progress and summary on the terminal.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::sync::Arc;

use arrow_array::RecordBatch;
use chrono_tz::Tz;
use thalweg::jobs::ResumeFrom;
use thalweg::monitoring::Why;
use thalweg::session::{JobDescription, Observer, Session, SessionOptions};
use thalweg_connectors::output::{Format, QuerySink, ResultWriter, is_broken_pipe};
use thalweg_core::graph::{Graph, StageKind};
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::text::without_controls;
use thalweg_core::{Error, Result, Sink};
use thalweg_plan::ResultTable;
use thalweg_plan::diagnostic;
use thalweg_runtime::metrics::StageRole;
use thalweg_runtime::{JobControl, MetricsSnapshot, Report};

use super::arguments::{ColorChoice, RunArguments};
use super::exit::{CLOSED, Failure, STOPPED, with_source};
use super::final_result::FinalResult;
use super::interrupt::Interrupt;
use super::live_view::LiveView;
use super::progress::Progress;
use super::screen::{self, Screen};
use super::source::ScriptSource;
use super::summary::{self, Totals};
use super::terminal::{print, say, use_color};
use super::units;
use super::watching::Watching;

/// Runs the statements; returns the exit status.
pub fn run(arguments: &RunArguments) -> u8 {
    // First of all: until then the system ends the process in its own way.
    let interrupt = match Interrupt::listen() {
        Ok(interrupt) => interrupt,
        Err(error) => return Failure::plain(error).report(None, arguments.script.color),
    };
    super::allocator::begin();
    with_source(&arguments.script, |source| run_source(arguments, source, interrupt))
}

fn run_source(
    arguments: &RunArguments,
    source: &ScriptSource,
    interrupt: Interrupt,
) -> Result<u8, Failure> {
    let options = SessionOptions {
        workers: arguments.workers.map(usize::from),
        memory_limit: arguments.memory_limit.clone(),
        row_limit: arguments.limit,
        record: arguments.record.clone(),
        replay: arguments.replay.clone(),
        resume: match &arguments.from {
            Some(snapshot) => ResumeFrom::Snapshot(snapshot.clone()),
            None if arguments.resume => ResumeFrom::Newest,
            None => ResumeFrom::Nothing,
        },
        drop_state: arguments.drop_state,
        overwrite: arguments.overwrite,
        drain: arguments.drain,
        keep_going: arguments.keep_going,
        ..source.session_options(&arguments.script)?
    };
    let text = super::check::substituted(source, &arguments.script)?;
    interrupt.begin();
    let mut console = Console::new(arguments, source.name.clone(), text.clone(), interrupt);
    let outcome = Session::new(options).and_then(|mut session| {
        session.run_script(&text, &mut console)?;
        Ok(())
    });
    console.close();
    match outcome {
        Err(error) => Ok(console.report(error, source)),
        Ok(()) if console.interrupt.is_pressed() => Ok(STOPPED),
        Ok(()) => Ok(console.closed_outputs.status()),
    }
}

/// Prints what a script produces.
struct Console {
    format: Format,
    null_text: String,
    /// Results that change are shown as they are in the end.
    is_final: bool,
    color: ColorChoice,
    metrics: bool,
    /// True if a person is watching standard error and wants to.
    is_watched: bool,
    /// No word about rows that are missing from results.
    is_quiet: bool,
    /// True once the limits have been printed.
    has_begun: bool,
    screen: Arc<Screen>,
    progress: Option<Progress>,
    watching: Option<Arc<Watching>>,
    clock: SystemClock,
    keeps_going: bool,
    /// What has failed for good.
    failures: Vec<Error>,
    totals: Totals,
    closed_outputs: ClosedOutputs,
    interrupt: Interrupt,
    file_name: String,
    text: String,
}

/// Outputs whose reader has gone, as `head` does.
#[derive(Default)]
struct ClosedOutputs {
    names: BTreeSet<String>,
    /// True if the run has written elsewhere.
    has_others: bool,
}

impl ClosedOutputs {
    fn add(&mut self, job: &JobDescription, report: &Report) {
        let names = report.gone.iter().map(|&place| report.metrics.stages[place].name.clone());
        self.names.extend(names);
        let stages = report.metrics.stages.iter().enumerate();
        let mut sinks = stages.filter(|(_, stage)| stage.role == StageRole::Sink);
        self.has_others |=
            sinks.any(|(place, _)| !report.gone.contains(&place) && !job.printing.contains(&place));
    }

    /// Whoever has read enough of the only thing that was written knows that. Else the status says
    /// so, and a line what is not complete.
    fn status(&self) -> u8 {
        if self.names.is_empty() || !self.has_others {
            return 0;
        }
        let names = self.names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        say(&format!(
            "warning: not all was written to {names}: its reader has gone; the other outputs are complete\n"
        ));
        CLOSED
    }
}

impl Console {
    fn new(
        arguments: &RunArguments,
        file_name: String,
        text: String,
        interrupt: Interrupt,
    ) -> Console {
        let format = match arguments.format {
            Some(format) => format.into(),
            None if std::io::stdout().is_terminal() => Format::Table,
            None => Format::Csv,
        };
        Console {
            format,
            null_text: arguments.null.clone(),
            is_final: arguments.is_final,
            color: arguments.script.color,
            metrics: arguments.metrics,
            is_watched: std::io::stderr().is_terminal() && !arguments.quiet,
            is_quiet: arguments.quiet,
            has_begun: false,
            screen: Arc::default(),
            progress: None,
            watching: None,
            clock: SystemClock::new(),
            keeps_going: arguments.keep_going,
            failures: Vec::new(),
            totals: Totals::default(),
            closed_outputs: ClosedOutputs::default(),
            interrupt,
            file_name,
            text,
        }
    }

    /// What a person reads in the summary has to be known from the log of a service, too.
    fn warn_in_log(&self, job: &JobDescription, metrics: &MetricsSnapshot) {
        let missing = summary::missing_rows(metrics).filter(|_| !self.is_quiet);
        let snapshots = metrics.snapshots.as_ref().and_then(summary::snapshot_problem);
        for problem in missing.into_iter().chain(snapshots) {
            self.say(&without_controls(&format!("warning: job '{}': {problem}\n", job.name)));
        }
    }

    /// Whoever has stopped a job whose results stood still learns what held them back.
    fn say_why(&self, why: &Why) {
        let text = match self.metrics {
            true => why.text(),
            false => format!("job '{}' was {}\n", why.job, why.sentence),
        };
        self.say(&without_controls(&text));
    }

    /// Prints a message above the progress.
    fn say(&self, text: &str) {
        self.screen.say(text);
    }

    /// Prints every failure; the exit status that goes with the first.
    fn report(&self, first: Error, source: &ScriptSource) -> u8 {
        let others = self.failures.iter().skip(1).cloned();
        let mut statuses = Vec::new();
        for error in std::iter::once(first).chain(others) {
            let failure = Failure { error, text: Some(self.text.clone()) };
            statuses.push(failure.report(Some(source), self.color));
        }
        statuses.into_iter().find(|&status| status > 0).unwrap_or(0)
    }

    /// Erases the progress line and prints the summary.
    fn close(&mut self) {
        self.progress = None;
        self.watching = None;
        if !self.is_watched {
            return;
        }
        for line in self.totals.jobs() {
            say(&without_controls(&format!("{line}\n")));
        }
        if let Some(mut line) = self.totals.line() {
            if self.interrupt.is_pressed() {
                line.insert_str(0, "stopped: ");
            }
            say(&without_controls(&format!("{line}\n")));
        }
    }
}

impl Observer for Console {
    fn result(&mut self, table: &ResultTable, zone: Tz) -> Result<Box<dyn Sink>> {
        let out = Box::new(std::io::stdout());
        let null_text = self.null_text.clone();
        let schema = table.schema.clone();
        let is_final = self.is_final && table.has_updates;
        let writer = ResultWriter::new(self.format, schema.clone(), null_text, zone, out)
            .with_changelog(table.has_updates && !is_final)
            .for_terminal(std::io::stdout().is_terminal());
        let sink = Box::new(QuerySink::new("result", writer));
        if !is_final {
            return Ok(sink);
        }
        let is_watched = self.format == Format::Table && std::io::stdout().is_terminal();
        let view = is_watched.then(|| {
            let out = Box::new(std::io::stdout());
            let screen = Arc::clone(&self.screen);
            LiveView::new(out, schema.clone(), self.null_text.clone(), zone, screen)
        });
        Ok(Box::new(FinalResult::new(sink, schema)?.with_view(view)))
    }

    fn rows(&mut self, table: &ResultTable, zone: Tz, rows: &RecordBatch) -> Result<()> {
        let mut sink = self.result(table, zone)?;
        self.screen.above(0, || {
            sink.open()?;
            sink.write(rows, None)?;
            sink.finish()
        })
    }

    fn explanation(&mut self, text: &str) -> Result<()> {
        match self.screen.above(0, || print(text)) {
            // The statements that follow may write elsewhere.
            Err(error) if is_broken_pipe(&error) => Ok(()),
            printed => printed,
        }
    }

    fn note(&mut self, note: &Error) {
        if self.is_watched {
            let color = use_color(self.color);
            let text = diagnostic::render(note, &self.file_name, &self.text, color);
            self.say(&text.replacen("error", "note", 1));
        }
    }

    fn warning(&mut self, warning: &Error) {
        self.say(&without_controls(&format!("warning: {warning}\n")));
    }

    fn planning(&mut self, is_under_way: bool) {
        self.interrupt.set_planning(is_under_way);
    }

    fn starting(&mut self, job: &JobDescription, graph: &mut Graph) {
        super::allocator::keep_within(job.memory_limit_bytes);
        if self.is_watched && !std::mem::replace(&mut self.has_begun, true) {
            let plural = if job.workers == 1 { "" } else { "s" };
            let limit = units::bytes(job.memory_limit_bytes);
            self.say(&format!("memory limit {limit}, {} worker{plural}\n", job.workers));
        }
        self.interrupt.watch_start(job.place, graph.cancellers());
        for (place, stage) in std::mem::take(&mut graph.stages).into_iter().enumerate() {
            let kind = match stage.kind {
                StageKind::Sink(sink) if job.printing.contains(&place) => {
                    StageKind::Sink(screen::share(sink, &self.screen))
                }
                kind => kind,
            };
            graph.add(stage.id, stage.name, kind, stage.inputs);
        }
    }

    fn started(&mut self, job: &JobDescription, control: &JobControl) {
        self.interrupt.watch(job.place, control);
        self.totals.started(job.place, self.clock.now_ns());
        let warns = !self.is_watched && !self.is_quiet;
        let begin = || Arc::new(Watching::start(&self.screen, warns));
        let watching = Arc::clone(self.watching.get_or_insert_with(begin));
        watching.add(job.place, &job.name, control);
        if self.is_watched {
            let begin = || Progress::start(&self.screen, Some(&watching));
            self.progress.get_or_insert_with(begin).add(job, control);
        }
    }

    fn ended(&mut self, job: &JobDescription, result: &Result<Report>) {
        self.interrupt.forget(job.place);
        self.totals.ended(job.place, self.clock.now_ns());
        self.progress.iter().for_each(|progress| progress.remove(job.place));
        let held = self.watching.as_ref().and_then(|watching| watching.remove(job.place));
        if let Ok(report) = result {
            self.totals.add(job, report);
            self.closed_outputs.add(job, report);
            if !self.is_watched {
                self.warn_in_log(job, &report.metrics);
            }
            if self.metrics {
                self.say(&without_controls(&summary::metrics(job, report)));
            }
            if let Some(held) = held.filter(|_| report.cancelled && !self.is_quiet) {
                self.say_why(&held);
            }
        }
    }

    fn failed(&mut self, error: &Error) {
        if self.totals.is_running() {
            let others = if self.keeps_going { "continue" } else { "are stopped" };
            self.warning(&Error::user(format!("{error}; the other jobs {others}")));
        }
        self.failures.push(error.clone());
    }

    fn is_stopped(&self) -> bool {
        self.interrupt.is_pressed()
    }
}
