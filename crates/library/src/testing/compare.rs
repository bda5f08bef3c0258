//! What came out, against what was expected.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{RowKind, TableSchema};
use thalweg_expr::Session;

use super::cells::{self, Cell, FIRST_MS};
use super::markdown::Table;
use super::places::Own;

/// A change of a table, with the values as they are shown.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub kind: RowKind,
    pub at_ms: i64,
    pub cells: Vec<Cell>,
}

/// What a table was given.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    pub schema: TableSchema,
    pub primary_key: Vec<usize>,
    pub all: Vec<Change>,
}

/// Rows that differ from those that were expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The line of the expectation, from 1.
    pub line: usize,
    /// What was expected.
    pub what: String,
    /// The rows of both, as a unified diff.
    pub diff: String,
    /// What came out, for the file.
    pub(super) rows: Vec<Vec<Cell>>,
    pub(super) table: std::ops::Range<usize>,
    pub(super) text: String,
}

impl Changes {
    /// What is left when all changes were applied, oldest first.
    pub fn folded(&self) -> Vec<Change> {
        let mut rows: Vec<Change> = Vec::new();
        let key = |change: &Change| -> Vec<Cell> {
            self.primary_key.iter().map(|&column| change.cells[column].clone()).collect()
        };
        let is_upsert = !self.primary_key.is_empty();
        let mut by_key: BTreeMap<Vec<Cell>, usize> = BTreeMap::new();
        for change in &self.all {
            let is_new = matches!(change.kind, RowKind::Insert | RowKind::UpdateAfter);
            if is_upsert {
                let known = by_key.get(&key(change)).copied();
                match (is_new, known) {
                    (true, Some(at)) => rows[at] = change.clone(),
                    (true, None) => {
                        by_key.insert(key(change), rows.len());
                        rows.push(change.clone());
                    }
                    (false, Some(at))
                        if rows[at].cells == change.cells || change.kind == RowKind::Delete =>
                    {
                        by_key.remove(&key(change));
                        rows.remove(at);
                        by_key
                            .values_mut()
                            .filter(|place| **place > at)
                            .for_each(|place| *place -= 1);
                    }
                    (false, _) => {}
                }
            } else if is_new {
                rows.push(change.clone());
            } else if let Some(at) = rows.iter().rposition(|row| row.cells == change.cells) {
                rows.remove(at);
            }
        }
        rows
    }
}

/// How rows are compared with a table of the file.
pub(super) struct Comparison<'a> {
    pub table: &'a Table,
    pub schema: &'a TableSchema,
    pub session: &'a Session,
    /// The sequence counts.
    pub is_sequence: bool,
}

/// Both sides, with the columns of the file's table alone.
pub(super) struct Compared {
    pub is_equal: bool,
    pub diff: String,
    pub rows: Vec<Vec<Cell>>,
}

impl Comparison<'_> {
    /// The name of a column that the rows have not, if the file's table names one.
    pub fn unknown_column(&self) -> Option<&str> {
        let own = self.own();
        let mut header = self.table.header.iter().enumerate();
        let unknown = header
            .find(|(place, name)| !own.is_own(*place) && self.schema.index_of(name).is_none());
        unknown.map(|(_, name)| name.as_str())
    }

    fn own(&self) -> Own {
        Own::of(&self.table.header, |name| self.schema.index_of(name).is_some())
    }

    /// Compares what came out.
    pub fn compare(&self, found: &[Change]) -> Compared {
        let expected = self.expected();
        let found: Vec<Vec<Cell>> = found.iter().map(|change| self.shown(change)).collect();
        let steps = match self.is_sequence {
            true => in_sequence(&expected, &found),
            false => as_multiset(&expected, &found),
        };
        let is_equal = steps.iter().all(|step| matches!(step, Step::Same(_)));
        let rows = steps.iter().filter(|step| !matches!(step, Step::Missing(_)));
        let rows = rows.map(|step| step.cells().clone()).collect();
        Compared { is_equal, diff: self.diff(&steps), rows }
    }

    /// The cells of a change, in the order of the file's columns.
    fn shown(&self, change: &Change) -> Vec<Cell> {
        let own = self.own();
        let cell = |(place, name): (usize, &String)| {
            if own.at == Some(place) {
                return Some(format_timestamp_millis(change.at_ms, 3));
            }
            if own.op == Some(place) {
                return Some(change.kind.short().to_owned());
            }
            self.schema.index_of(name).and_then(|column| change.cells[column].clone())
        };
        self.table.header.iter().enumerate().map(cell).collect()
    }

    /// The rows of the file as values of their columns' types are shown. Times at which rows come
    /// out may be without a date.
    fn expected(&self) -> Vec<Vec<Cell>> {
        let own = self.own();
        let cell = |(place, cell): (usize, &Cell)| {
            let name = &self.table.header[place];
            if own.at == Some(place) {
                let at_ms = cell.as_deref().and_then(|text| cells::time_ms(text, FIRST_MS));
                let shown = at_ms.map(|at_ms| format_timestamp_millis(at_ms, 3));
                return shown.or_else(|| cell.clone());
            }
            match self.schema.index_of(name) {
                Some(column) => {
                    cells::normalized(cell, &self.schema.columns[column].column_type, self.session)
                }
                None => cell.clone(),
            }
        };
        let row = |row: &super::markdown::Row| row.cells.iter().enumerate().map(cell).collect();
        self.table.rows.iter().map(row).collect()
    }

    fn diff(&self, steps: &[Step]) -> String {
        let shown: Vec<Vec<Cell>> = steps.iter().map(|step| step.cells().clone()).collect();
        let text = self.table.with_rows(&shown);
        let mut lines = text.lines();
        let mut diff = String::new();
        for line in lines.by_ref().take(2) {
            let _ = writeln!(diff, "  {line}");
        }
        for (line, step) in lines.zip(steps) {
            let _ = writeln!(diff, "{} {line}", step.mark());
        }
        diff
    }
}

/// A row of a diff.
enum Step {
    Same(Vec<Cell>),
    Missing(Vec<Cell>),
    Unexpected(Vec<Cell>),
}

impl Step {
    fn cells(&self) -> &Vec<Cell> {
        match self {
            Step::Same(cells) | Step::Missing(cells) | Step::Unexpected(cells) => cells,
        }
    }

    fn mark(&self) -> char {
        match self {
            Step::Same(_) => ' ',
            Step::Missing(_) => '-',
            Step::Unexpected(_) => '+',
        }
    }
}

/// Rows that are there as often on both sides are the same, wherever they stand.
fn as_multiset(expected: &[Vec<Cell>], found: &[Vec<Cell>]) -> Vec<Step> {
    let mut left: Vec<&Vec<Cell>> = found.iter().collect();
    let mut steps = Vec::new();
    for row in expected {
        let at = left.iter().position(|other| *other == row);
        steps.push(match at {
            Some(at) => Step::Same(left.remove(at).clone()),
            None => Step::Missing(row.clone()),
        });
    }
    steps.extend(left.into_iter().cloned().map(Step::Unexpected));
    steps
}

/// The longest sequence that both have is the same.
fn in_sequence(expected: &[Vec<Cell>], found: &[Vec<Cell>]) -> Vec<Step> {
    let (rows, columns) = (expected.len(), found.len());
    // How long the longest one is from each pair of places on.
    let mut longest = vec![vec![0usize; columns + 1]; rows + 1];
    for i in (0..rows).rev() {
        for j in (0..columns).rev() {
            longest[i][j] = match expected[i] == found[j] {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut steps) = (0, 0, Vec::new());
    while i < rows || j < columns {
        if i < rows && j < columns && expected[i] == found[j] {
            steps.push(Step::Same(found[j].clone()));
            (i, j) = (i + 1, j + 1);
        } else if j == columns || (i < rows && longest[i + 1][j] >= longest[i][j + 1]) {
            steps.push(Step::Missing(expected[i].clone()));
            i += 1;
        } else {
            steps.push(Step::Unexpected(found[j].clone()));
            j += 1;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(kind: &str, cells: &[&str]) -> Change {
        let kind = RowKind::from_short(kind).expect("a kind");
        let cells = cells.iter().map(|text| Some((*text).to_owned())).collect();
        Change { kind, at_ms: 0, cells }
    }

    fn left(primary_key: Vec<usize>, all: Vec<Change>) -> Vec<String> {
        let changes = Changes { schema: TableSchema::default(), primary_key, all };
        let text =
            |change: Change| change.cells.into_iter().flatten().collect::<Vec<_>>().join(" ");
        changes.folded().into_iter().map(text).collect()
    }

    #[test]
    fn changes_are_applied_by_row_or_by_key() {
        let changes = || {
            vec![
                change("+I", &["tea", "1"]),
                change("+I", &["salt", "1"]),
                change("-U", &["tea", "1"]),
                change("+U", &["tea", "2"]),
                change("-D", &["salt", "1"]),
            ]
        };
        assert_eq!(left(Vec::new(), changes()), ["tea 2"]);
        assert_eq!(left(vec![0], changes()), ["tea 2"]);
        let upserts = vec![
            change("+I", &["tea", "1"]),
            change("+U", &["tea", "3"]),
            change("+I", &["salt", "5"]),
            change("-D", &["tea", "0"]),
        ];
        assert_eq!(left(vec![0], upserts), ["salt 5"]);
    }

    fn marks(steps: &[Step]) -> String {
        steps.iter().map(Step::mark).collect()
    }

    #[test]
    fn a_sequence_is_compared_in_its_order_and_a_multiset_is_not() {
        let rows = |text: &str| -> Vec<Vec<Cell>> {
            text.chars().map(|c| vec![Some(c.to_string())]).collect()
        };
        assert_eq!(marks(&in_sequence(&rows("abc"), &rows("abc"))), "   ");
        assert_eq!(marks(&in_sequence(&rows("abc"), &rows("acb"))).matches(' ').count(), 2);
        assert_eq!(marks(&as_multiset(&rows("abc"), &rows("cab"))), "   ");
        assert_eq!(marks(&as_multiset(&rows("aab"), &rows("abb"))), " - +");
        assert_eq!(marks(&as_multiset(&rows(""), &rows("x"))), "+");
    }
}
