//! Readings of the processor clock, kept in a file, so that a run on virtual cores replays.
//!
//! What a task costs is measured while it runs, and everything that happens on virtual cores
//! follows from these costs and a seed. A tape holds what the clock said, in order, behind a line
//! with the arguments of the run. A replay reads the tape instead of the clock: the same program
//! then asks as often and does the same, to the nanosecond.
//!
//! What it does not do: a tape fits the program that kept it. Another one asks more or less often,
//! which shows at the end ([`Tape::finish`]).

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use cpu_time::ThreadTime;
use thalweg::Clock;

/// Where readings come from and go to.
pub struct Tape {
    state: Mutex<State>,
}

struct State {
    readings: Readings,
    /// The last reading: only differences are kept.
    last_ns: u64,
    problem: Option<String>,
}

enum Readings {
    /// Of the calling thread, and kept nowhere.
    Measured,
    /// The same, kept.
    Kept(BufWriter<File>),
    /// Those of an earlier run.
    Replayed(BufReader<File>),
}

impl Tape {
    /// Readings that nobody keeps.
    pub fn measured() -> Arc<Self> {
        Arc::new(Self::of(Readings::Measured))
    }

    /// Keeps what is measured in a file, behind the arguments of the run.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn keep(path: &Path, arguments: &str) -> Result<Arc<Self>, Box<dyn Error>> {
        let mut file = BufWriter::new(File::create(path)?);
        writeln!(file, "{arguments}")?;
        Ok(Arc::new(Self::of(Readings::Kept(file))))
    }

    /// Replays what was kept under these arguments.
    ///
    /// # Errors
    /// If the file can't be read, or was kept under other arguments.
    pub fn replay(path: &Path, arguments: &str) -> Result<Arc<Self>, Box<dyn Error>> {
        let mut file = BufReader::new(File::open(path)?);
        let mut kept = String::new();
        file.read_line(&mut kept)?;
        if kept.trim_end() != arguments {
            let kept = kept.trim_end();
            let path = path.display();
            return Err(format!("{path} was kept under other arguments: {kept}").into());
        }
        Ok(Arc::new(Self::of(Readings::Replayed(file))))
    }

    fn of(readings: Readings) -> Self {
        Tape { state: Mutex::new(State { readings, last_ns: 0, problem: None }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    /// Ends the tape.
    ///
    /// # Errors
    /// If readings could not be kept, or the replay asked for more or fewer of them than there are.
    pub fn finish(&self) -> Result<(), Box<dyn Error>> {
        let mut state = self.lock();
        if let Some(problem) = state.problem.take() {
            return Err(problem.into());
        }
        match &mut state.readings {
            Readings::Measured => Ok(()),
            Readings::Kept(file) => Ok(file.flush()?),
            Readings::Replayed(file) => match file.fill_buf()?.is_empty() {
                true => Ok(()),
                false => Err("the run ended before its tape: not the same run".into()),
            },
        }
    }
}

impl Clock for Tape {
    fn now_ns(&self) -> u64 {
        let mut state = self.lock();
        let last_ns = state.last_ns;
        let reading = match &mut state.readings {
            Readings::Measured => Ok(measured_ns()),
            Readings::Kept(file) => {
                let now_ns = measured_ns().max(last_ns);
                write_number(file, now_ns - last_ns).map(|()| now_ns)
            }
            Readings::Replayed(file) => read_number(file).map(|more_ns| last_ns + more_ns),
        };
        match reading {
            Ok(now_ns) => state.last_ns = now_ns,
            Err(error) => {
                state
                    .problem
                    .get_or_insert_with(|| format!("a reading can't be read or kept: {error}"));
            }
        }
        state.last_ns
    }

    fn wall_ms(&self) -> i64 {
        0
    }
}

fn measured_ns() -> u64 {
    ThreadTime::now().as_duration().as_nanos() as u64
}

/// Seven bits in a byte, the least first; the last byte has its highest bit clear.
fn write_number(file: &mut impl Write, mut number: u64) -> std::io::Result<()> {
    while number >= 0x80 {
        file.write_all(&[number as u8 | 0x80])?;
        number >>= 7;
    }
    file.write_all(&[number as u8])
}

fn read_number(file: &mut impl Read) -> std::io::Result<u64> {
    let (mut number, mut byte) = (0, [0x80]);
    for shift in (0..64).step_by(7) {
        if byte[0] & 0x80 == 0 {
            break;
        }
        file.read_exact(&mut byte)?;
        number |= u64::from(byte[0] & 0x7F) << shift;
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_reads_what_was_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tape");
        let kept = Tape::keep(&path, "wordcount, seed 1").expect("a file");
        let readings: Vec<u64> = (0..1000).map(|_| kept.now_ns()).collect();
        kept.finish().expect("it is written");
        let replayed = Tape::replay(&path, "wordcount, seed 1").expect("the same arguments");
        let again: Vec<u64> = (0..1000).map(|_| replayed.now_ns()).collect();
        assert_eq!(again, readings);
        replayed.finish().expect("all is read");
    }

    #[test]
    fn another_run_is_no_replay() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tape");
        let kept = Tape::keep(&path, "seed 1").expect("a file");
        let readings = [kept.now_ns(), kept.now_ns()];
        kept.finish().expect("it is written");
        assert!(Tape::replay(&path, "seed 2").is_err(), "other arguments");
        let shorter = Tape::replay(&path, "seed 1").expect("the same arguments");
        assert_eq!(shorter.now_ns(), readings[0]);
        assert!(shorter.finish().is_err(), "a reading is left");
        let longer = Tape::replay(&path, "seed 1").expect("the same arguments");
        let more = [longer.now_ns(), longer.now_ns(), longer.now_ns()];
        assert_eq!(more, [readings[0], readings[1], readings[1]]);
        assert!(longer.finish().is_err(), "a reading was missing");
    }

    #[test]
    fn numbers_take_the_bytes_that_they_need() {
        for number in [0, 1, 127, 128, 300, 1 << 40, u64::MAX] {
            let mut bytes = Vec::new();
            write_number(&mut bytes, number).expect("memory");
            assert_eq!(
                bytes.len(),
                (u64::BITS - number.leading_zeros()).div_ceil(7).max(1) as usize
            );
            assert_eq!(read_number(&mut bytes.as_slice()).expect("it is there"), number);
        }
    }
}
