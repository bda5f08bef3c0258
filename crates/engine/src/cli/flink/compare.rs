//! `thalweg compare --flink`: each query of a file on both engines, and whether their results are
//! the same.
//!
//! Compared is what is left when all changes were applied: a multiset of rows, as texts. An INSERT
//! is compared by what its query writes; nothing is written. Inputs must end, or nothing is ever
//! left.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use chrono_tz::Tz;
use thalweg::session::{Observer, ResultTable, Session};
use thalweg_connectors::output::{self, QuerySink, ResultWriter};
use thalweg_core::quoting::quoted_text;
use thalweg_core::text::without_controls;
use thalweg_core::{Error, Result, Sink};
use thalweg_flink::Deadline;
use thalweg_flink::gateway::{self, Row};
use thalweg_plan::flink_check::{FlinkCluster, Queries, Role, TranslatedStatement, Translation};

use super::super::check::substituted;
use super::super::exit::{FAILED, Failure, with_source};
use super::super::final_result::FinalResult;
use super::super::flink_arguments::CompareArguments;
use super::super::source::ScriptSource;
use super::super::terminal::print;
use super::place;
use super::sent_secrets::SentSecrets;
use super::translate::{print_left, translation};

/// How a NULL is written; no text of a value looks so.
const NULL: &str = "\u{1}NULL";

/// Rows, each as often as it is there.
type Rows = BTreeMap<Vec<Option<String>>, i64>;

/// Compares; the exit status.
pub fn compare(arguments: &CompareArguments) -> u8 {
    with_source(&arguments.script, |source| {
        let text = substituted(source, &arguments.script)?;
        let jars = [&arguments.jars[..], &arguments.lib_jars[..]].concat();
        let cluster = FlinkCluster { jars, gets_secrets: arguments.send_secrets };
        let how = (&cluster, Queries::Results);
        let translation = translation(source, &arguments.script, &text, how)?;
        if !translation.left.is_empty() {
            print_left(&translation, &arguments.script)?;
            return Ok(FAILED);
        }
        let compared = both(arguments, source, &translation);
        compared.map_err(|error| Failure { error, text: Some(text.clone()) })
    })
}

fn both(
    arguments: &CompareArguments,
    source: &ScriptSource,
    translation: &Translation,
) -> Result<u8> {
    let properties = [("parallelism.default".to_owned(), "1".to_owned())];
    let flink = gateway::Session::open(&place(&arguments.flink)?, "thalweg compare", &properties)?;
    let mut here = Session::new(source.session_options(&arguments.script)?)?;
    let secrets = SentSecrets::new(arguments.send_secrets, None);
    let mut status = 0;
    for jar in &arguments.jars {
        let statement = format!("ADD JAR {}", quoted_text(jar));
        flink.execute(&statement, 1, &mut Deadline::after_seconds(60))?;
    }
    for statement in &translation.statements {
        match statement.role {
            Role::Show => {}
            Role::Declaration => {
                if !statement.original.is_empty() {
                    here.run_script(&statement.original, &mut Collected::default())?;
                }
                secrets
                    .execute(&flink, &statement.text, 1, &mut Deadline::after_seconds(60))
                    .map_err(|error| error.at(statement.span))?;
            }
            Role::Job => {
                let ours = ours(&mut here, statement);
                let theirs = theirs(&flink, statement, arguments.timeout);
                let (is_equal, report) = report(&ours, &theirs, arguments.rows);
                let place = format!("{}:{}", source.name, statement.span.line);
                print(&without_controls(&format!("{place}: {report}")))?;
                status = if is_equal { status } else { FAILED };
            }
        }
    }
    flink.close()?;
    Ok(status)
}

fn ours(session: &mut Session, statement: &TranslatedStatement) -> Result<Rows> {
    let mut collected = Collected::default();
    session.run_script(&statement.original, &mut collected)?;
    let bytes = std::mem::take(&mut *collected.0.lock());
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut rows = Rows::new();
    // The first one has the names.
    for row in csv_rows(&text).into_iter().skip(1) {
        let fields = row.into_iter().map(|field| (field != NULL).then_some(field)).collect();
        *rows.entry(fields).or_default() += 1;
    }
    Ok(rows)
}

fn theirs(
    session: &gateway::Session,
    statement: &TranslatedStatement,
    timeout_s: u64,
) -> Result<Rows> {
    let wait = &mut Deadline::after_seconds(timeout_s);
    let outcome = session.execute(&statement.text, usize::MAX, wait)?;
    if !outcome.is_complete {
        return Err(Error::io(format!("Flink's query has not ended after {timeout_s} s"))
            .hint("do its inputs end? --timeout gives it longer"));
    }
    Ok(applied(outcome.rows))
}

/// What is left when changes were applied. A row that an update brings in counts from then on, and
/// one that was never there counts against it: Flink's HAVING sends both.
fn applied(changes: Vec<Row>) -> Rows {
    let mut rows = Rows::new();
    for Row { kind, fields } in changes {
        let sign = if matches!(kind.as_str(), "INSERT" | "UPDATE_AFTER") { 1 } else { -1 };
        *rows.entry(fields).or_default() += sign;
    }
    rows.retain(|_, count| *count != 0);
    rows
}

/// Whether both have the same result, and a report. Queries that fail on both are the same: what
/// they cannot do, a bad row for one, is said by each in its own words.
fn report(ours: &Result<Rows>, theirs: &Result<Rows>, shown_max: usize) -> (bool, String) {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) if ours == theirs => {
            (true, format!("equal, {} rows\n", count(ours)))
        }
        (Ok(ours), Ok(theirs)) => (false, differences(ours, theirs, shown_max)),
        (Err(here), Err(there)) => {
            let (here, there) = (here.message(), there.message());
            (true, format!("equal, both fail\n  here: {here}\n  on Flink: {there}\n"))
        }
        (Err(here), Ok(theirs)) => {
            let message = here.message();
            (
                false,
                format!("different: it fails here: {message}\n  {} rows on Flink\n", count(theirs)),
            )
        }
        (Ok(ours), Err(there)) => {
            let message = there.message();
            (
                false,
                format!("different: it fails on Flink: {message}\n  {} rows here\n", count(ours)),
            )
        }
    }
}

fn count(rows: &Rows) -> i64 {
    rows.values().sum()
}

fn differences(ours: &Rows, theirs: &Rows, shown_max: usize) -> String {
    let mut text = format!("different: {} rows here, {} on Flink\n", count(ours), count(theirs));
    let all: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let times = |rows: &Rows, row: &Vec<Option<String>>| rows.get(row).copied().unwrap_or(0);
    let different = all.into_iter().filter(|row| times(ours, row) != times(theirs, row));
    let mut left_out = 0;
    for (number, row) in different.enumerate() {
        if number >= shown_max {
            left_out += 1;
            continue;
        }
        let shown = row.iter().map(|field| field.as_deref().unwrap_or("NULL"));
        let shown = shown.collect::<Vec<_>>().join(", ");
        text.push_str(&format!(
            "  {} here, {} on Flink: {shown}\n",
            times(ours, row),
            times(theirs, row)
        ));
    }
    if left_out > 0 {
        text.push_str(&format!("  and {left_out} more rows\n"));
    }
    text
}

/// Keeps what SELECTs print.
#[derive(Default)]
struct Collected(Shared);

/// A text that a sink writes and that is read once the job has ended.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Observer for Collected {
    fn result(&mut self, table: &ResultTable, zone: Tz) -> Result<Box<dyn Sink>> {
        let (out, schema) = (Box::new(self.0.clone()), table.schema.clone());
        let format = output::Format::Csv;
        let writer = ResultWriter::new(format, schema.clone(), NULL.to_owned(), zone, out);
        let sink = Box::new(QuerySink::new("result", writer));
        Ok(Box::new(FinalResult::new(sink, schema)?))
    }
    fn explanation(&mut self, _text: &str) -> Result<()> {
        Ok(())
    }
}

/// The fields of each row of a text of CSV.
fn csv_rows(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut is_quoted, mut characters) = (false, text.chars().peekable());
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => row.push(std::mem::take(&mut field)),
            '\n' if !is_quoted => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            other => field.push(other),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &str, field: &str) -> Row {
        Row { kind: kind.to_owned(), fields: vec![Some(field.to_owned())] }
    }

    #[test]
    fn changes_leave_the_final_rows() {
        let changes = vec![
            row("INSERT", "1"),
            row("UPDATE_BEFORE", "1"),
            row("UPDATE_AFTER", "2"),
            row("INSERT", "3"),
            row("DELETE", "3"),
            row("INSERT", "2"),
        ];
        let left = applied(changes);
        assert_eq!(left.into_iter().collect::<Vec<_>>(), [(vec![Some("2".to_owned())], 2)]);
    }

    #[test]
    fn differences_are_shown_up_to_a_number() {
        let ours = applied(vec![row("INSERT", "1"), row("INSERT", "2"), row("INSERT", "3")]);
        let theirs = applied(vec![row("INSERT", "1"), row("INSERT", "1")]);
        assert_eq!(
            report(&Ok(ours.clone()), &Ok(ours.clone()), 3),
            (true, "equal, 3 rows\n".to_owned())
        );
        let failed = || Err(Error::io("no such file"));
        assert!(report(&failed(), &failed(), 3).0);
        let (is_equal, text) = report(&Ok(ours.clone()), &failed(), 3);
        assert!(!is_equal && text.contains("no such file"), "{text}");
        let (is_equal, text) = report(&Ok(ours), &Ok(theirs), 2);
        assert!(!is_equal);
        assert!(text.contains("3 rows here, 2 on Flink"), "{text}");
        assert!(text.contains("1 here, 2 on Flink: 1") && text.contains("and 1 more"), "{text}");
    }

    #[test]
    fn quoted_fields_hold_commas_quotes_and_lines() {
        let rows = csv_rows("a,b\n\"x, \"\"y\"\"\nz\",\n");
        assert_eq!(rows, [vec!["a", "b"], vec!["x, \"y\"\nz", ""]]);
    }
}
