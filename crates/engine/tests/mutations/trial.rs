//! One text is planned, and run where its inputs are small.

use std::fs;
use std::path::Path;
use std::time::Duration;

use thalweg::session::{JobDescription, Observer, Session, SessionOptions, Tz};
use thalweg_core::connector::DiscardSink;
use thalweg_core::graph::{Graph, StageKind};
use thalweg_core::{ErrorKind, Result, Sink, Span};
use thalweg_plan::{ResultTable, diagnostic};
use thalweg_runtime::JobControl;

/// A job may run for so long before it is stopped: some texts ask for endless inputs.
const RUN_MAX: Duration = Duration::from_millis(500);

/// What became of a text that was answered as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Refused,
    Planned,
    /// It was also run, to its end or to an error in its data.
    Ran,
}

/// Plans the text, and runs it with the inputs of this folder. An error of the text is as it should
/// be.
pub fn trial(text: &str, inputs: Option<&Path>, case: u64) -> Result<Outcome, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutations-{case}"));
    let text = text.replace("@DIR@", &folder.to_string_lossy());
    fs::create_dir_all(&folder).expect("a temporary folder");
    let outcome = trial_in(&folder, &text, inputs);
    let _ = fs::remove_dir_all(&folder);
    outcome
}

fn trial_in(folder: &Path, text: &str, inputs: Option<&Path>) -> Result<Outcome, String> {
    let planned = session(folder)?.validate(text).map(drop);
    check(&planned, text)?;
    let outcome = if planned.is_ok() { Outcome::Planned } else { Outcome::Refused };
    // Standard input belongs to whoever started the test.
    let (Some(inputs), Outcome::Planned, false) = (inputs, outcome, text.contains("'-'")) else {
        return Ok(outcome);
    };
    copy(inputs, folder);
    let ran = session(folder)?.run_script(text, &mut Discard).map(drop);
    check(&ran, text).map(|()| Outcome::Ran)
}

fn session(folder: &Path) -> Result<Session, String> {
    let options = SessionOptions {
        base_dir: folder.to_owned(),
        allowed_roots: vec![folder.to_owned()],
        workers: Some(1),
        memory_limit: Some("128mb".to_owned()),
        ..SessionOptions::default()
    };
    Session::new(options).map_err(|error| format!("no session: {error}"))
}

fn copy(inputs: &Path, folder: &Path) {
    for entry in fs::read_dir(inputs).expect("the folder of a case").flatten() {
        if entry.path().extension().is_some_and(|ending| ending == "csv" || ending == "json") {
            fs::copy(entry.path(), folder.join(entry.file_name())).expect("copying an input");
        }
    }
}

/// What is wrong with an answer.
fn check(outcome: &Result<()>, text: &str) -> Result<(), String> {
    let Err(error) = outcome else { return Ok(()) };
    let message = error.to_string();
    let shown = diagnostic::render(error, "mutated.sql", text, false);
    if error.kind() == ErrorKind::Internal || message.contains("panicked") {
        return Err(shown);
    }
    match error.span() {
        Some(span) if !is_inside(span, text) => {
            Err(format!("a place outside of the text: {span:?}\n{shown}"))
        }
        None if error.is_plan_error() => Err(format!("an error without a place\n{shown}")),
        _ => Ok(()),
    }
}

/// True if a place has a line of the text, and stands in it or just behind its end.
fn is_inside(span: Span, text: &str) -> bool {
    let line = text.split('\n').nth(span.line.saturating_sub(1) as usize);
    line.is_some_and(|line| {
        let end = line.chars().count() as u32 + 1;
        span.line > 0 && (1..=end).contains(&span.column) && span.end_column <= end
    })
}

/// Nobody looks at what is written.
struct Discard;

impl Observer for Discard {
    fn result(&mut self, _table: &ResultTable, _zone: Tz) -> Result<Box<dyn Sink>> {
        Ok(Box::new(DiscardSink::new("discard")))
    }
    fn explanation(&mut self, _text: &str) -> Result<()> {
        Ok(())
    }
    fn starting(&mut self, _job: &JobDescription, graph: &mut Graph) {
        for stage in &mut graph.stages {
            if let StageKind::Sink(sink) = &mut stage.kind {
                *sink = Box::new(DiscardSink::new("discard"));
            }
        }
    }
    fn started(&mut self, _job: &JobDescription, control: &JobControl) {
        let control = control.clone();
        std::thread::spawn(move || {
            std::thread::sleep(RUN_MAX);
            control.cancel();
        });
    }
}
