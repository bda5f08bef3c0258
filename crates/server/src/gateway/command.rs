//! The statements about jobs and statement sets that the gateway answers itself.

use crate::problem::{Outcome, Problem};

/// A statement of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `SHOW JOBS`
    ShowJobs,
    /// `DESCRIBE JOB 'id'`
    DescribeJob(String),
    /// `STOP JOB 'id' [WITH SAVEPOINT] [WITH DRAIN]`
    StopJob {
        /// The job.
        id: String,
        /// It stops with a snapshot, whose place is the answer.
        with_savepoint: bool,
        /// Its windows are closed, as if its inputs had ended.
        with_drain: bool,
    },
    /// `BEGIN STATEMENT SET`
    BeginStatementSet,
    /// `END`
    EndStatementSet,
}

impl Command {
    /// The command that a text is; `None`: it is a statement of the engine.
    ///
    /// # Errors
    /// If the text is nearly one.
    pub fn of(text: &str) -> Outcome<Option<Command>> {
        let words = words(text);
        let upper: Vec<String> = words.iter().map(|word| word.to_uppercase()).collect();
        let upper: Vec<&str> = upper.iter().map(String::as_str).collect();
        Ok(Some(match &upper[..] {
            ["SHOW", "JOBS"] => Command::ShowJobs,
            ["BEGIN", "STATEMENT", "SET"] => Command::BeginStatementSet,
            ["END"] => Command::EndStatementSet,
            ["DESCRIBE" | "DESC", "JOB", _] => Command::DescribeJob(quoted(&words[2])?),
            ["STOP", "JOB", _, with @ ..] => {
                let (with_savepoint, with_drain) = match with {
                    [] => (false, false),
                    ["WITH", "SAVEPOINT"] => (true, false),
                    ["WITH", "DRAIN"] => (false, true),
                    ["WITH", "SAVEPOINT", "WITH", "DRAIN"] => (true, true),
                    _ => {
                        return Err(wrong(
                            "STOP JOB 'id' [WITH SAVEPOINT] [WITH DRAIN] was expected",
                        ));
                    }
                };
                Command::StopJob { id: quoted(&words[2])?, with_savepoint, with_drain }
            }
            _ => return Ok(None),
        }))
    }
}

fn wrong(message: &str) -> Problem {
    Problem::new(422, "statement-wrong", message)
}

fn quoted(word: &str) -> Outcome<String> {
    let inner = word.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    inner.map(str::to_owned).ok_or_else(|| wrong("the id of a job in quotes was expected"))
}

/// The first words of a text, without comments and the semicolon at its end. Longer texts are no
/// commands.
fn words(text: &str) -> Vec<String> {
    const WORDS_MAX: usize = 8;
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() && words.len() < WORDS_MAX {
        let end = if rest.starts_with("--") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else {
            let length = match rest.strip_prefix('\'') {
                Some(inner) => inner.find('\'').map_or(rest.len(), |at| at + 2),
                None => rest
                    .find(|c: char| c.is_whitespace() || c == ';' || c == '\'')
                    .unwrap_or(rest.len())
                    .max(1),
            };
            words.push(rest[..length].to_owned());
            length
        };
        rest = rest[end..].trim_start();
    }
    while words.last().is_some_and(|word| word == ";") {
        words.pop();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> Option<Command> {
        Command::of(text).expect(text)
    }

    #[test]
    fn statements_about_jobs_are_known() {
        assert_eq!(command("show jobs;"), Some(Command::ShowJobs));
        assert_eq!(command("-- all\nSHOW /* running */ JOBS ;"), Some(Command::ShowJobs));
        assert_eq!(command("DESC JOB 'ab'"), Some(Command::DescribeJob("ab".to_owned())));
        let stop = |with_savepoint, with_drain| {
            Some(Command::StopJob { id: "ab".to_owned(), with_savepoint, with_drain })
        };
        assert_eq!(command("/** x('y') */ STOP JOB 'ab' WITH SAVEPOINT"), stop(true, false));
        assert_eq!(command("STOP JOB 'ab' WITH SAVEPOINT WITH DRAIN;"), stop(true, true));
        assert_eq!(command("STOP JOB 'ab'"), stop(false, false));
        assert_eq!(command("BEGIN STATEMENT SET;"), Some(Command::BeginStatementSet));
        assert_eq!(command("END"), Some(Command::EndStatementSet));
    }

    #[test]
    fn other_statements_are_left_to_the_engine() {
        for text in
            ["SELECT 1", "SHOW TABLES", "", "/* open", "'open", "BEGIN STATEMENT SET; INSERT", ";"]
        {
            assert_eq!(command(text), None, "{text}");
        }
        for text in ["STOP JOB ab", "STOP JOB 'ab' WITH"] {
            Command::of(text).expect_err(text);
        }
    }
}
