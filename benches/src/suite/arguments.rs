//! What the command line of `suite` asks for.

use std::path::PathBuf;

use super::parts::Mode;

/// How to call it.
pub const USAGE: &str = "\
suite [--full | --smoke] [--only PART,…] [--workloads NAME,…] [--results FOLDER] [--no-peers]
suite --list                 the parts, and about how long they take
suite --compare OLD_PROGRAM  alternates this program with another build of it (with --only, --repeat N)
suite --tables               writes tables and plots of what was measured; measures nothing";

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Arguments {
    pub mode: Mode,
    /// Parts by name; empty for all.
    pub only: Vec<String>,
    /// Workloads by name; empty for all.
    pub workloads: Vec<String>,
    /// Where rows, tables and plots go.
    pub results: PathBuf,
    pub lists: bool,
    pub draws_only: bool,
    pub compare: Option<PathBuf>,
    /// How often builds are compared.
    pub repeat: usize,
    pub peers: bool,
}

impl Arguments {
    /// Reads them.
    ///
    /// # Errors
    /// What is wrong, and how it should be.
    pub fn read(arguments: impl IntoIterator<Item = String>) -> Result<Arguments, String> {
        let mut read = Arguments {
            mode: Mode::Short,
            only: Vec::new(),
            workloads: Vec::new(),
            results: PathBuf::from("benches/results"),
            lists: false,
            draws_only: false,
            compare: None,
            repeat: 5,
            peers: true,
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value =
                || arguments.next().ok_or_else(|| format!("{argument} wants a value\n{USAGE}"));
            let names = |list: String| list.split(',').map(|name| name.trim().to_owned()).collect();
            match argument.as_str() {
                "--full" => read.mode = Mode::Full,
                "--smoke" => read.mode = Mode::Smoke,
                "--list" => read.lists = true,
                "--tables" => read.draws_only = true,
                "--no-peers" => read.peers = false,
                "--only" => read.only = names(value()?),
                "--workloads" => read.workloads = names(value()?),
                "--compare" => read.compare = Some(PathBuf::from(value()?)),
                "--results" => read.results = PathBuf::from(value()?),
                "--repeat" => {
                    let text = value()?;
                    read.repeat =
                        text.parse().map_err(|_| format!("--repeat {text}: a number\n{USAGE}"))?;
                }
                _ => return Err(format!("there is no option {argument}\n{USAGE}")),
            }
        }
        Ok(read)
    }

    /// True if a part is asked for.
    pub fn wants_part(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }

    /// True if a workload is asked for.
    pub fn wants_workload(&self, name: &str) -> bool {
        self.workloads.is_empty() || self.workloads.iter().any(|wanted| wanted == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Arguments, String> {
        Arguments::read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn parts_and_modes_are_chosen() {
        let arguments = read("--full --only latency-q5,idle --results /tmp/x").expect("valid");
        assert_eq!(arguments.mode, Mode::Full);
        assert!(arguments.wants_part("idle") && !arguments.wants_part("burst"));
        assert_eq!(arguments.results, PathBuf::from("/tmp/x"));
    }

    #[test]
    fn what_is_wrong_comes_with_the_usage() {
        assert!(read("--fast").expect_err("unknown").contains("--only"));
        assert!(read("--only").expect_err("no value").contains("wants a value"));
        assert!(read("--repeat many").expect_err("no number").contains("a number"));
    }
}
