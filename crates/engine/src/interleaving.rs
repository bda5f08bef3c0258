//! Files that hold in which sequence the inputs of jobs came in (`--record`, `--replay`).
//!
//! ```text
//! thalweg interleaving 1
//! job delays
//! input departures
//! input weather
//! 0 1024
//! 1 17
//! 0 end
//! 1 end
//! done
//! ```
//!
//! A file has one section for each job of a script, in their order. A section names the job and its
//! inputs; then each line says how many rows came in of which input, counted from 0, or that it has
//! ended; `done` or `stopped` closes it, so that a file that was cut off is noticed. Names are
//! written with escapes (`\n`, `\u{…}`), so that each stays on its line.
//!
//! The file says nothing about the data: a replay over other data fails where an input is shorter
//! or longer than it was, and gives other results where it is not.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use thalweg_connectors::filesystem::claim::Claim;
use thalweg_connectors::filesystem::paths::canonical_file;
use thalweg_core::{Error, Result};
use thalweg_runtime::interleaving::{RecordSteps, Replay, Step, StepRecorder};

const VERSION_LINE: &str = "thalweg interleaving 1";
/// How the recordings of every version begin.
const MARK: &str = "thalweg interleaving ";

/// In which sequence the inputs of a job came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interleaving {
    /// What the job was called.
    pub job: String,
    /// The names of its inputs.
    pub inputs: Vec<String>,
    /// Rows of an input, or (0) its end.
    pub steps: Vec<Step>,
    /// True if the job ran to its end.
    pub is_complete: bool,
}

impl Interleaving {
    /// Reads the sections of a file.
    pub fn read(path: &Path) -> Result<Vec<Interleaving>> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::plan(format!("can't read {}: {error}", path.display())))?;
        parse(&text).map_err(|(line, what)| {
            Error::plan(format!("{}, line {line}: {what}", path.display()))
                .hint("a replay takes a file that --record has written, whole")
        })
    }

    /// What a job follows that has these inputs. Refused if they are others than those recorded.
    pub fn replay(&self, job: &str, inputs: &[String]) -> Result<Replay> {
        if self.inputs != inputs {
            return Err(Error::plan(format!(
                "the recording is of another job: '{}' with the inputs {}, and this is '{job}' with {}",
                self.job,
                listed(&self.inputs),
                listed(inputs)
            ))
            .hint("replay the statements that the run was recorded with"));
        }
        Ok(Replay { steps: self.steps.clone().into(), is_complete: self.is_complete })
    }
}

fn listed(names: &[String]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

/// The sections of a text; else the line and what is wrong with it.
fn parse(text: &str) -> Result<Vec<Interleaving>, (usize, String)> {
    let mut lines = text.lines().enumerate().map(|(place, line)| (place + 1, line));
    match lines.next() {
        Some((_, VERSION_LINE)) => {}
        Some((line, other)) if other.starts_with(MARK) => {
            return Err((line, format!("this version reads '{VERSION_LINE}', not '{other}'")));
        }
        _ => return Err((1, "this is no recording of an interleaving".to_owned())),
    }
    let mut sections = Vec::new();
    let mut open: Option<Interleaving> = None;
    for (number, line) in lines {
        let wrong = |what: &str| (number, format!("{what}: '{line}'"));
        match (&mut open, line.split_once(' ')) {
            (None, Some(("job", name))) => {
                open = Some(Interleaving { job: name.to_owned(), ..Interleaving::default() });
            }
            (None, _) => return Err(wrong("a job was expected")),
            (Some(section), Some(("input", name))) if section.steps.is_empty() => {
                section.inputs.push(name.to_owned());
            }
            (Some(section), Some((input, rows))) => {
                let step = step(input, rows, section.inputs.len());
                section.steps.push(step.ok_or_else(|| wrong("a step was expected"))?);
            }
            (Some(section), None) => {
                section.is_complete = match line {
                    "done" => true,
                    "stopped" => false,
                    _ => return Err(wrong("a step was expected")),
                };
                sections.extend(open.take());
            }
        }
    }
    match open {
        Some(_) => Err((text.lines().count(), "the file is cut off here".to_owned())),
        None => Ok(sections),
    }
}

fn step(input: &str, rows: &str, inputs: usize) -> Option<Step> {
    let input: u32 = input.parse().ok().filter(|&input| (input as usize) < inputs)?;
    let rows = match rows {
        "end" => 0,
        rows => rows.parse().ok().filter(|&rows| rows > 0)?,
    };
    Some(Step { input, rows })
}

/// A name as it stands in a file: on one line.
fn written(name: &str) -> String {
    name.escape_debug().collect()
}

/// Writes a recording, job by job. The file is claimed when the first job starts, and made with its
/// first row.
pub(crate) struct Recording {
    path: PathBuf,
    claim: Option<Claim>,
    file: Option<Arc<Mutex<StepWriter>>>,
}

impl Recording {
    /// A recording in this file, which is replaced if it is a recording.
    pub(crate) fn new(path: PathBuf) -> Self {
        Recording { path, claim: None, file: None }
    }

    /// Takes the right to write the file. A file that is no recording is a user's data.
    fn claim(&mut self) -> Result<()> {
        if is_special(&self.path) || self.claim.is_some() {
            return Ok(());
        }
        self.claim = Some(Claim::file("--record", &canonical_file(&self.path)?)?);
        match is_replaceable(&self.path) {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(Error::plan(format!("{} is there, and is no recording", self.path.display()))
                    .hint("--record replaces nothing but a recording: name another file"))
            }
            Err(error) => Err(cannot_write(&self.path, &error)),
        }
    }

    /// Begins a job's section; what it returns takes the steps down.
    pub(crate) fn begin(&mut self, job: &str, inputs: &[String]) -> Result<StepRecorder> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                self.claim()?;
                Arc::new(Mutex::new(StepWriter::new(&self.path)))
            }
        };
        let mut text = format!("job {}\n", written(job));
        inputs.iter().for_each(|name| text.push_str(&format!("input {name}\n")));
        file.lock().expect("no panic under this lock").heading.push_str(&text);
        self.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Closes the section of the job that has ended.
    pub(crate) fn end(&mut self, is_complete: bool) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.lock().expect("no panic under this lock").close(is_complete)
    }
}

/// True for a device or a pipe.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_file())
}

/// True if nothing is lost when a recording takes the place of this file.
fn is_replaceable(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        file => file?.take(MARK.len() as u64).read_to_end(&mut start)?,
    };
    Ok(start.is_empty() || start == MARK.as_bytes())
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("can't write {}: {error}", path.display()))
}

/// The names of a job's inputs as recordings have them.
pub(crate) fn input_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    names.map(written).collect()
}

struct StepWriter {
    path: PathBuf,
    /// Made with the first step: a job that is refused at its start replaces no recording.
    file: Option<BufWriter<File>>,
    /// What comes in front of the next step.
    heading: String,
    /// The step that may still grow.
    open: Option<Step>,
}

impl StepWriter {
    fn new(path: &Path) -> Self {
        let heading = format!("{VERSION_LINE}\n");
        StepWriter { path: path.to_owned(), file: None, heading, open: None }
    }

    fn write(&mut self, text: &str) -> Result<()> {
        let failed = |error: std::io::Error| cannot_write(&self.path, &error);
        let file = match &mut self.file {
            Some(file) => file,
            file => file.insert(BufWriter::new(File::create(&self.path).map_err(failed)?)),
        };
        let text = std::mem::take(&mut self.heading) + text;
        file.write_all(text.as_bytes()).map_err(failed)
    }

    fn write_open(&mut self) -> Result<()> {
        match self.open.take() {
            None => Ok(()),
            Some(Step { input, rows: 0 }) => self.write(&format!("{input} end\n")),
            Some(Step { input, rows }) => self.write(&format!("{input} {rows}\n")),
        }
    }

    fn close(&mut self, is_complete: bool) -> Result<()> {
        if !is_complete && self.file.is_none() && self.open.is_none() {
            return Ok(());
        }
        self.write_open()?;
        self.write(if is_complete { "done\n" } else { "stopped\n" })?;
        let flushed = self.file.as_mut().map_or(Ok(()), BufWriter::flush);
        flushed.map_err(|error| cannot_write(&self.path, &error))
    }
}

impl RecordSteps for StepWriter {
    fn record(&mut self, step: Step) -> Result<()> {
        if let Some(open) = &mut self.open
            && (open.input, step.rows > 0) == (step.input, true)
            && let Some(rows) = open.rows.checked_add(step.rows)
        {
            open.rows = rows;
            return Ok(());
        }
        self.write_open()?;
        self.open = Some(step);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("thalweg-interleaving-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        folder
    }

    #[test]
    fn what_is_written_is_read() {
        let path = folder().join("two-jobs.txt");
        let mut recording = Recording::new(path.clone());
        let inputs = input_names(["a", "b\nc"].into_iter());
        let steps = [(0, 3), (0, 4), (1, 1), (0, u32::MAX), (0, 2), (0, 0), (1, 0)];
        for is_complete in [true, false] {
            let recorder = recording.begin("the job", &inputs).expect("begins");
            for (input, rows) in steps {
                let mut recorder = recorder.lock().expect("no panic");
                recorder.record(Step { input, rows }).expect("takes it down");
            }
            recording.end(is_complete).expect("ends");
        }
        let read = Interleaving::read(&path).expect("reads");
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].is_complete, read[1].is_complete), (true, false));
        let got: Vec<_> = read[0].steps.iter().map(|step| (step.input, step.rows)).collect();
        assert_eq!(got, [(0, 7), (1, 1), (0, u32::MAX), (0, 2), (0, 0), (1, 0)]);
        assert!(read[0].replay("the job", &inputs).is_ok());
        let error =
            read[0].replay("job", &input_names(["a"].into_iter())).expect_err("other inputs");
        assert!(error.message().contains("'b\\nc'"), "{error}");
    }

    #[test]
    fn every_cut_and_every_wrong_line_is_noticed() {
        let text = "thalweg interleaving 1\njob j\ninput a\ninput b\n0 5\n1 2\n0 end\ndone\n";
        assert_eq!(parse(text).expect("whole").len(), 1);
        let lines: Vec<&str> = text.lines().collect();
        for cut in 2..lines.len() {
            let (line, what) = parse(&lines[..cut].join("\n")).expect_err("cut off");
            assert_eq!((line, what.contains("cut off")), (cut, true));
        }
        assert!(parse("").is_err());
        assert!(parse("SELECT 1").is_err());
        let newer = text.replacen("interleaving 1", "interleaving 2", 1);
        assert!(parse(&newer).expect_err("newer").1.contains("interleaving 2"));
        for wrong in ["2 5", "0 0", "0 x", "a 5", "0", "-1 3", "0 5 5", "input c"] {
            let text = text.replacen("1 2", wrong, 1);
            assert_eq!(parse(&text).expect_err(wrong).0, 6, "{wrong}");
        }
    }
}
