//! The statements about jobs and statement sets that the gateway answers itself.

use std::ops::Range;

use super::materialized::TableChange;
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
    /// `ALTER MATERIALIZED TABLE name …`
    AlterMaterializedTable {
        /// The table, as it was written.
        name: String,
        /// What happens to it.
        change: TableChange,
    },
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
            ["ALTER", "MATERIALIZED", "TABLE", _, what @ ..] => {
                let change = table_change(what, text)?;
                Command::AlterMaterializedTable { name: words[3].clone(), change }
            }
            _ => return Ok(None),
        }))
    }
}

/// What stands behind `ALTER MATERIALIZED TABLE name`.
fn table_change(what: &[&str], text: &str) -> Outcome<TableChange> {
    match what {
        ["SUSPEND"] => Ok(TableChange::Suspend),
        ["RESUME"] => Ok(TableChange::Resume),
        ["RESUME", "WITH", ..] => Err(Problem::new(
            422,
            "not-supported",
            "RESUME takes no options: the engine keeps the rows, and SET options belong to the job's statements",
        )),
        ["REFRESH", ..] => Err(Problem::new(
            422,
            "not-supported",
            "REFRESH is not supported: the table is kept current all the time (REFRESH_MODE = CONTINUOUS), so there is \
             nothing to refresh",
        )),
        ["AS", ..] => Ok(TableChange::As(behind_words(text, 5).trim_end_matches(';').to_owned())),
        _ => Err(wrong(
            "ALTER MATERIALIZED TABLE name SUSPEND, RESUME or AS query was expected; options, columns and distribution \
             follow from the query",
        )),
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
    let places = places_of_words(text, WORDS_MAX);
    let mut words: Vec<String> = places.into_iter().map(|place| text[place].to_owned()).collect();
    while words.last().is_some_and(|word| word == ";") {
        words.pop();
    }
    words
}

/// What stands behind the first words of a text.
fn behind_words(text: &str, count: usize) -> &str {
    places_of_words(text, count).last().map_or("", |last| text[last.end..].trim())
}

/// Where the first words of a text stand.
fn places_of_words(text: &str, words_max: usize) -> Vec<Range<usize>> {
    let mut places = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() && places.len() < words_max {
        let at = text.len() - rest.len();
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
            places.push(at..at + length);
            length
        };
        rest = rest[end..].trim_start();
    }
    places
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
    fn materialized_tables_are_altered() {
        let altered = |name: &str, change| {
            Some(Command::AlterMaterializedTable { name: name.to_owned(), change })
        };
        let suspend = command("ALTER MATERIALIZED TABLE bank.balances suspend;");
        assert_eq!(suspend, altered("bank.balances", TableChange::Suspend));
        let resume = command("alter materialized table t RESUME");
        assert_eq!(resume, altered("t", TableChange::Resume));
        let query = "SELECT k, COUNT(*) AS c FROM t WHERE s = 'a;b' GROUP BY k";
        let changed = command(&format!("ALTER MATERIALIZED TABLE t /* new */ AS {query};"));
        assert_eq!(changed, altered("t", TableChange::As(query.to_owned())));
        for text in
            ["REFRESH", "REFRESH PARTITION (a = '1')", "RESUME WITH ('a' = 'b')", "", "ADD x INT"]
        {
            Command::of(&format!("ALTER MATERIALIZED TABLE t {text}")).expect_err(text);
        }
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
