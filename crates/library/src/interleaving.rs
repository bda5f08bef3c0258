//! Files that hold in which sequence the inputs of jobs came in (`--record`, `--replay`).
//!
//! ```text
//! thalweg interleaving 2
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
//! Sections of jobs that run at the same time are written in turns: the line `section 2` says that
//! what follows belongs to the third section. Version 1 has no such lines, and is read as well.
//!
//! The file says nothing about the data: a replay over other data fails where an input is shorter
//! or longer than it was, and gives other results where it is not.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use thalweg_connectors::filesystem::claim::Claim;
use thalweg_connectors::filesystem::paths::canonical_file;
use thalweg_core::quoting::quoted_list;
use thalweg_core::{Error, Result};
use thalweg_runtime::interleaving::{RecordSteps, Replay, Step, StepRecorder};

const VERSION_LINE: &str = "thalweg interleaving 2";
/// The version before.
const OLD_VERSION_LINE: &str = "thalweg interleaving 1";
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
                quoted_list(&self.inputs),
                quoted_list(inputs)
            ))
            .hint("replay the statements that the run was recorded with"));
        }
        Ok(Replay { steps: self.steps.clone().into(), is_complete: self.is_complete })
    }
}

/// The sections of a text; else the line and what is wrong with it.
fn parse(text: &str) -> Result<Vec<Interleaving>, (usize, String)> {
    let mut lines = text.lines().enumerate().map(|(place, line)| (place + 1, line));
    match lines.next() {
        Some((_, VERSION_LINE | OLD_VERSION_LINE)) => {}
        Some((line, other)) if other.starts_with(MARK) => {
            return Err((line, format!("this version reads '{VERSION_LINE}', not '{other}'")));
        }
        _ => return Err((1, "this is no recording of an interleaving".to_owned())),
    }
    let mut sections: Vec<Interleaving> = Vec::new();
    let mut open: BTreeSet<usize> = BTreeSet::new();
    // The section that lines belong to, while one of those that are open does.
    let mut current = None;
    for (number, line) in lines {
        let wrong = |what: &str| (number, format!("{what}: '{line}'"));
        match (current, line.split_once(' ')) {
            (_, Some(("job", name))) => {
                current = Some(sections.len());
                open.insert(sections.len());
                sections.push(Interleaving { job: name.to_owned(), ..Interleaving::default() });
            }
            (_, Some(("section", place))) => {
                current = place.parse().ok().filter(|place| open.contains(place));
                current.ok_or_else(|| wrong("an open section was expected"))?;
            }
            (None, _) => return Err(wrong("a job was expected")),
            (Some(at), Some(("input", name))) if sections[at].steps.is_empty() => {
                sections[at].inputs.push(name.to_owned());
            }
            (Some(at), Some((input, rows))) => {
                let step = step(input, rows, sections[at].inputs.len());
                sections[at].steps.push(step.ok_or_else(|| wrong("a step was expected"))?);
            }
            (Some(at), None) => {
                sections[at].is_complete = match line {
                    "done" => true,
                    "stopped" => false,
                    _ => return Err(wrong("a step was expected")),
                };
                open.remove(&at);
                current = None;
            }
        }
    }
    match open.is_empty() {
        true => Ok(sections),
        false => Err((text.lines().count(), "the file is cut off here".to_owned())),
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

    /// Begins a job's section: its number, and what takes the steps down.
    pub(crate) fn begin(&mut self, job: &str, inputs: &[String]) -> Result<(usize, StepRecorder)> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                self.claim()?;
                Arc::new(Mutex::new(StepWriter::new(&self.path)))
            }
        };
        let mut text = format!("job {}\n", written(job));
        inputs.iter().for_each(|name| text.push_str(&format!("input {name}\n")));
        let section = file.lock().expect("no panic under this lock").add_section(text);
        self.file = Some(Arc::clone(&file));
        Ok((section, Arc::new(Mutex::new(SectionWriter { file, section }))))
    }

    /// Closes the section of a job that has ended.
    pub(crate) fn end(&mut self, section: usize, is_complete: bool) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.lock().expect("no panic under this lock").close(section, is_complete)
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

/// Takes down the steps of one job.
struct SectionWriter {
    file: Arc<Mutex<StepWriter>>,
    section: usize,
}

impl RecordSteps for SectionWriter {
    fn record(&mut self, step: Step) -> Result<()> {
        self.file.lock().expect("no panic under this lock").record(self.section, step)
    }
}

struct StepWriter {
    path: PathBuf,
    /// Made with the first step: a job that is refused at its start replaces no recording.
    file: Option<BufWriter<File>>,
    /// The headings of sections that were not begun yet; sections are begun in their order.
    headings: VecDeque<String>,
    /// How many sections were begun.
    begun: usize,
    /// The section that the last line belongs to.
    current: usize,
    /// The step that may still grow; it is of the current section.
    open: Option<Step>,
}

impl StepWriter {
    fn new(path: &Path) -> Self {
        let (headings, path) = (VecDeque::new(), path.to_owned());
        StepWriter { path, file: None, headings, begun: 0, current: 0, open: None }
    }

    fn add_section(&mut self, heading: String) -> usize {
        self.headings.push_back(heading);
        self.begun + self.headings.len() - 1
    }

    /// From here on lines belong to this section.
    fn turn_to(&mut self, section: usize) -> Result<()> {
        if self.begun <= section {
            self.write_open()?;
            while self.begun <= section {
                let heading = self.headings.pop_front().unwrap_or_default();
                self.write(&heading)?;
                (self.current, self.begun) = (self.begun, self.begun + 1);
            }
        } else if self.current != section {
            self.write_open()?;
            self.write(&format!("section {section}\n"))?;
            self.current = section;
        }
        Ok(())
    }

    fn write(&mut self, text: &str) -> Result<()> {
        let failed = |error: std::io::Error| cannot_write(&self.path, &error);
        let file = match &mut self.file {
            Some(file) => file,
            file => {
                let mut made = BufWriter::new(File::create(&self.path).map_err(failed)?);
                made.write_all(format!("{VERSION_LINE}\n").as_bytes()).map_err(failed)?;
                file.insert(made)
            }
        };
        file.write_all(text.as_bytes()).map_err(failed)
    }

    fn write_open(&mut self) -> Result<()> {
        match self.open.take() {
            None => Ok(()),
            Some(Step { input, rows: 0 }) => self.write(&format!("{input} end\n")),
            Some(Step { input, rows }) => self.write(&format!("{input} {rows}\n")),
        }
    }

    fn close(&mut self, section: usize, is_complete: bool) -> Result<()> {
        if !is_complete && self.file.is_none() {
            // Nothing has come in yet, of any job: its heading waits for the first step.
            if let Some(heading) = self.headings.get_mut(section) {
                heading.push_str("stopped\n");
            }
            return Ok(());
        }
        self.turn_to(section)?;
        self.write_open()?;
        self.write(if is_complete { "done\n" } else { "stopped\n" })?;
        let flushed = self.file.as_mut().map_or(Ok(()), BufWriter::flush);
        flushed.map_err(|error| cannot_write(&self.path, &error))
    }

    fn record(&mut self, section: usize, step: Step) -> Result<()> {
        self.turn_to(section)?;
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
            let (section, recorder) = recording.begin("the job", &inputs).expect("begins");
            for (input, rows) in steps {
                let mut recorder = recorder.lock().expect("no panic");
                recorder.record(Step { input, rows }).expect("takes it down");
            }
            recording.end(section, is_complete).expect("ends");
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
    fn jobs_that_run_at_the_same_time_take_turns() {
        let path = folder().join("at-once.txt");
        let mut recording = Recording::new(path.clone());
        let inputs = input_names(["a"].into_iter());
        let mut begin = |job| recording.begin(job, &inputs).expect("begins");
        let jobs = [begin("one"), begin("two"), begin("three")];
        let steps = [(1, 5), (0, 1), (1, 2), (1, 3), (0, 0), (1, 0)];
        for (job, rows) in steps {
            let step = Step { input: 0, rows };
            jobs[job].1.lock().expect("no panic").record(step).expect("takes it down");
        }
        for (job, is_complete) in [(1, true), (2, false), (0, false)] {
            recording.end(jobs[job].0, is_complete).expect("ends");
        }
        let read = Interleaving::read(&path).expect("reads");
        let got: Vec<(&str, Vec<u32>, bool)> = read
            .iter()
            .map(|job| {
                let rows = job.steps.iter().map(|step| step.rows).collect();
                (job.job.as_str(), rows, job.is_complete)
            })
            .collect();
        let expected =
            [("one", vec![1, 0], false), ("two", vec![5, 5, 0], true), ("three", vec![], false)];
        assert_eq!(got, expected);
        let text = std::fs::read_to_string(&path).expect("a file");
        let cut = text.trim_end().rsplit_once('\n').expect("lines").0;
        assert!(parse(cut).is_err(), "the first job's end is missing");
        let closed = text.replacen("stopped\n", "stopped\nsection 2\n0 1\n", 1);
        assert!(parse(&closed).is_err(), "the third section is closed");
    }

    #[test]
    fn every_cut_and_every_wrong_line_is_noticed() {
        let text = "thalweg interleaving 2\njob j\ninput a\ninput b\n0 5\n1 2\n0 end\ndone\n";
        assert_eq!(parse(text).expect("whole").len(), 1);
        let lines: Vec<&str> = text.lines().collect();
        for cut in 2..lines.len() {
            let (line, what) = parse(&lines[..cut].join("\n")).expect_err("cut off");
            assert_eq!((line, what.contains("cut off")), (cut, true));
        }
        assert!(parse("").is_err());
        assert!(parse("SELECT 1").is_err());
        let older = text.replacen("interleaving 2", "interleaving 1", 1);
        assert_eq!(parse(&older).expect("whole").len(), 1);
        let newer = text.replacen("interleaving 2", "interleaving 3", 1);
        assert!(parse(&newer).expect_err("newer").1.contains("interleaving 3"));
        for wrong in ["2 5", "0 0", "0 x", "a 5", "0", "-1 3", "0 5 5", "input c", "section 1"] {
            let text = text.replacen("1 2", wrong, 1);
            assert_eq!(parse(&text).expect_err(wrong).0, 6, "{wrong}");
        }
    }
}
