//! Test files: which cases they hold, and how expected rows are written into them.
//!
//! A heading of the second level or below begins a case; what stands before the first one belongs
//! to all cases. A file without such headings is one case. Of the rest these lines count; all other
//! text is for readers.
//!
//! | line | followed by |
//! |---|---|
//! | `sql FILE` | nothing; or a block of code marked `sql` in its place |
//! | `input TABLE` | a table |
//! | `expect TABLE`, `expect changes of TABLE`, `expect late` | a table |
//! | `expect error` | a block of code: what the message has to hold |
//! | `order CONTRACT, …` | nothing |
//!
//! Names may stand in back quotes, and a colon may stand at the end of the line.

use std::ops::Range;
use std::path::{Path, PathBuf};

use thalweg_core::{Error, OrderContract, Result, Span};

use super::cells::{self, Cell};

/// A file of tests.
#[derive(Clone, Debug)]
pub struct TestFile {
    /// What errors call it.
    pub name: String,
    /// The folder that names of other files start from.
    pub folder: PathBuf,
    /// Its text.
    pub text: String,
    /// Its cases, in order.
    pub cases: Vec<TestCase>,
}

/// A case: statements, what comes in, and what has to come out.
#[derive(Clone, Debug, Default)]
pub struct TestCase {
    /// What it is called.
    pub name: String,
    /// The line on which it begins, from 1.
    pub line: usize,
    /// Its statements.
    pub(super) sql: Vec<SqlPart>,
    pub(super) inputs: Vec<InputTable>,
    pub(super) expectations: Vec<Expectation>,
    /// The contracts in which it runs, if it says so.
    pub(super) orders: Option<Vec<OrderContract>>,
}

/// Statements, and where they are from.
#[derive(Clone, Debug)]
pub(super) struct SqlPart {
    /// What errors call the file.
    pub name: String,
    /// The folder of the file, if it is one of its own.
    pub folder: Option<PathBuf>,
    /// Its text, with lines counted as in the file.
    pub text: String,
}

/// What comes in of a table.
#[derive(Clone, Debug)]
pub(super) struct InputTable {
    pub table: String,
    pub rows: Table,
}

/// What has to come out.
#[derive(Clone, Debug)]
pub(super) struct Expectation {
    pub what: Expected,
    pub line: usize,
    pub rows: Table,
}

/// What is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// What is in a table in the end.
    Rows(String),
    /// What was written to a table, one after the other.
    Changes(String),
    /// Rows that came late.
    Late,
    /// The job fails with a message that holds this.
    Error(String),
}

/// A table of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub header: Vec<String>,
    pub rows: Vec<Row>,
    /// The lines that it takes, from 0.
    pub lines: Range<usize>,
}

/// A row of a table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Its line, from 1.
    pub line: usize,
    pub cells: Vec<Cell>,
}

impl TestFile {
    /// Reads a file, and those that it names.
    ///
    /// # Errors
    /// If one of them cannot be read, or is wrong.
    pub fn read(path: &Path) -> Result<TestFile> {
        let text = read_text(path)?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        TestFile::parse(path.display().to_string(), folder, text)
    }

    /// The tests of a text; names of other files start from a folder.
    ///
    /// # Errors
    /// If the text is wrong, or a file that it names cannot be read.
    pub fn parse(name: String, folder: PathBuf, text: String) -> Result<TestFile> {
        let mut file = TestFile { name, folder, text, cases: Vec::new() };
        file.cases = Reader::new(&file).read()?;
        Ok(file)
    }

    /// The same, each case with these statements in front of its own.
    #[must_use]
    pub fn with_statements(mut self, name: &str, text: &str) -> TestFile {
        let (name, folder) = (name.to_owned(), Some(self.folder.clone()));
        let part = SqlPart { name, folder, text: text.to_owned() };
        for case in &mut self.cases {
            case.sql.insert(0, part.clone());
        }
        self
    }

    /// The text with other rows in some of its tables.
    pub(super) fn replaced(&self, mut tables: Vec<(Range<usize>, String)>) -> String {
        tables.sort_by_key(|(lines, _)| lines.start);
        let lines: Vec<&str> = self.text.split_inclusive('\n').collect();
        let (mut text, mut at) = (String::new(), 0);
        for (place, table) in tables {
            text.extend(lines[at..place.start].iter().copied());
            text.push_str(&table);
            at = place.end;
        }
        text.extend(lines[at..].iter().copied());
        text
    }
}

fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Error::plan(format!("can't read {}: {error}", path.display()))
            .hint("a test file is Markdown in UTF-8; names of other files start from its folder")
    })
}

/// An error at a line of the file.
pub(super) fn wrong(line: usize, what: impl Into<String>) -> Error {
    Error::plan(what).at(Span { line: line as u32, column: 1, ..Span::default() })
}

/// A line that counts.
enum Directive {
    Sql(String),
    Input(String),
    Expect(Expected),
    Order(Vec<OrderContract>),
}

impl Directive {
    fn takes_table(&self) -> bool {
        matches!(self, Directive::Input(_))
            || matches!(self, Directive::Expect(what) if !matches!(what, Expected::Error(_)))
    }
}

/// A line that counts, if this is one.
///
/// # Errors
/// If it begins like one and is none.
fn directive(line: &str) -> std::result::Result<Option<Directive>, String> {
    let bare: String = line.chars().filter(|c| !matches!(c, '`' | '*')).collect();
    let words: Vec<&str> = bare.trim().trim_end_matches(':').split_whitespace().collect();
    let expect = |what| Ok(Some(Directive::Expect(what)));
    match &words[..] {
        ["sql", file] if file.ends_with(".sql") => Ok(Some(Directive::Sql((*file).to_owned()))),
        ["input", table] => Ok(Some(Directive::Input((*table).to_owned()))),
        ["expect", "late"] => expect(Expected::Late),
        ["expect", "error"] => expect(Expected::Error(String::new())),
        ["expect", table] | ["expect", "rows", "of", table] => {
            expect(Expected::Rows((*table).to_owned()))
        }
        ["expect", "changes", "of", table] => expect(Expected::Changes((*table).to_owned())),
        ["order", contracts @ ..] if !contracts.is_empty() => orders(&contracts.join(" ")),
        ["input", ..] => Err("write `input TABLE`, and a table below it".to_owned()),
        ["expect", ..] => {
            Err("write `expect TABLE`, `expect changes of TABLE`, `expect late` or `expect error`"
                .to_owned())
        }
        _ => Ok(None),
    }
}

fn orders(list: &str) -> std::result::Result<Option<Directive>, String> {
    let contracts = list.split(',').map(|name| name.trim().parse::<OrderContract>());
    match contracts.collect::<Result<Vec<_>>>() {
        Ok(contracts) => Ok(Some(Directive::Order(contracts))),
        Err(error) => Err(format!("{}: write `order epoch, arrival`", error.message())),
    }
}

/// Reads a file line by line.
struct Reader<'a> {
    file: &'a TestFile,
    lines: Vec<&'a str>,
    at: usize,
    /// What all cases have.
    common: TestCase,
    /// The case that is being read; none before the first heading.
    current: Option<TestCase>,
    cases: Vec<TestCase>,
    /// A line that a table or block has to follow.
    open: Option<(usize, Directive)>,
}

impl<'a> Reader<'a> {
    fn new(file: &'a TestFile) -> Self {
        let name = file.name.clone();
        let common = TestCase { name, line: 1, ..TestCase::default() };
        let lines = file.text.lines().collect();
        Reader { file, lines, at: 0, common, current: None, cases: Vec::new(), open: None }
    }

    fn read(mut self) -> Result<Vec<TestCase>> {
        while let Some(&line) = self.lines.get(self.at) {
            self.at += 1;
            self.line(line)?;
        }
        self.close()?;
        self.end_case();
        if self.cases.is_empty() && !self.common.expectations.is_empty() {
            self.cases.push(self.common);
        }
        self.cases.retain(|case| !case.expectations.is_empty() || !case.inputs.is_empty());
        match self.cases.iter().find(|case| case.expectations.is_empty()) {
            Some(case) => Err(wrong(case.line, format!("the case '{}' expects nothing", case.name))),
            None if self.cases.is_empty() => Err(wrong(1, "there is no test in this file")
                .hint("a test has lines `input TABLE` and `expect TABLE`, each with a table below it: see `thalweg test --help`")),
            None => Ok(self.cases),
        }
    }

    fn case(&mut self) -> &mut TestCase {
        self.current.as_mut().unwrap_or(&mut self.common)
    }

    fn line(&mut self, line: &'a str) -> Result<()> {
        let number = self.at;
        let trimmed = line.trim();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            return self.block(trimmed);
        }
        if trimmed.starts_with('|') && self.open.is_some() {
            return self.table();
        }
        if trimmed.is_empty() {
            return Ok(());
        }
        if let Some(title) = trimmed.strip_prefix('#') {
            self.close()?;
            self.heading(title, number);
            return Ok(());
        }
        match directive(trimmed).map_err(|what| wrong(number, what))? {
            Some(Directive::Sql(file)) => {
                self.close()?;
                self.sql_file(&file, number)
            }
            Some(Directive::Order(orders)) => {
                self.close()?;
                self.case().orders = Some(orders);
                Ok(())
            }
            Some(other) => {
                self.close()?;
                self.open = Some((number, other));
                Ok(())
            }
            None => self.close(),
        }
    }

    fn heading(&mut self, title: &str, line: usize) {
        let Some(title) = title.strip_prefix('#') else {
            title.trim().clone_into(&mut self.common.name);
            return;
        };
        self.end_case();
        let name = title.trim_start_matches('#').trim().to_owned();
        self.current = Some(TestCase { name, line, ..self.common.clone() });
    }

    fn end_case(&mut self) {
        self.cases.extend(self.current.take());
    }

    /// What a line asked for has not come.
    fn close(&mut self) -> Result<()> {
        match self.open.take() {
            Some((line, directive)) if directive.takes_table() => {
                Err(wrong(line, "a table has to follow this line").hint(
                    "write a line of column names, a line of dashes, and a line for each row",
                ))
            }
            Some((line, _)) => Err(wrong(line, "a block of code has to follow this line")
                .hint("it holds what the message of the error has to hold")),
            None => Ok(()),
        }
    }

    fn block(&mut self, opening: &str) -> Result<()> {
        let first = self.at;
        let mark = &opening[..3];
        let rest = &self.lines[first..];
        let Some(length) = rest.iter().position(|line| line.trim().starts_with(mark)) else {
            return Err(wrong(first, "this block of code has no end"));
        };
        let text = rest[..length].join("\n");
        self.at = first + length + 1;
        let info = opening.trim_start_matches(['`', '~']).trim();
        match (self.open.take(), info.split_whitespace().next()) {
            (Some((line, Directive::Expect(Expected::Error(_)))), _) => {
                let what = Expected::Error(text.trim().to_owned());
                self.case().expectations.push(Expectation { what, line, rows: Table::default() });
            }
            (Some(open), _) => {
                self.open = Some(open);
                return self.close();
            }
            (None, Some("sql")) => {
                let (name, text) = (self.file.name.clone(), "\n".repeat(first) + &text);
                self.case().sql.push(SqlPart { name, folder: None, text });
            }
            (None, _) => {}
        }
        Ok(())
    }

    fn sql_file(&mut self, name: &str, line: usize) -> Result<()> {
        let path = self.file.folder.join(name);
        let text = read_text(&path).map_err(|error| {
            let hint = error.help().unwrap_or_default().to_owned();
            wrong(line, error.message()).hint(hint)
        })?;
        let folder = Some(path.parent().unwrap_or(Path::new("")).to_owned());
        let name = path.display().to_string();
        self.case().sql.push(SqlPart { name, folder, text });
        Ok(())
    }

    fn table(&mut self) -> Result<()> {
        let first = self.at - 1;
        let of_table = |line: &&&str| line.trim().starts_with('|');
        let length = self.lines[first..].iter().take_while(of_table).count();
        self.at = first + length;
        let Some((line, directive)) = self.open.take() else { return Ok(()) };
        let rows = read_table(&self.lines, first..first + length)?;
        match directive {
            Directive::Input(table) => self.case().inputs.push(InputTable { table, rows }),
            Directive::Expect(what) => {
                self.case().expectations.push(Expectation { what, line, rows });
            }
            Directive::Sql(_) | Directive::Order(_) => {}
        }
        Ok(())
    }
}

fn read_table(lines: &[&str], place: Range<usize>) -> Result<Table> {
    let header = cells::split(lines[place.start]);
    let is_ruler = |line: &&str| {
        cells::split(line)
            .iter()
            .all(|cell| !cell.is_empty() && cell.trim_matches([':', '-']).is_empty())
    };
    if place.len() < 2 || !is_ruler(&lines[place.start + 1]) {
        return Err(wrong(place.start + 1, "a line of dashes has to follow the names of columns")
            .hint("such as `|---|---|`"));
    }
    if let Some(twice) = header.iter().enumerate().find(|(at, name)| header[..*at].contains(name)) {
        return Err(wrong(place.start + 1, format!("column '{}' is there twice", twice.1)));
    }
    let row = |at: usize| {
        let found = cells::split(lines[at]);
        if found.len() != header.len() {
            let (has, wants) = (found.len(), header.len());
            return Err(wrong(
                at + 1,
                format!("this row has {has} cells, and there are {wants} columns"),
            )
            .hint("a `|` within a cell is written `\\|`"));
        }
        Ok(Row { line: at + 1, cells: found.iter().map(|cell| cells::read(cell)).collect() })
    };
    let rows = (place.start + 2..place.end).map(row).collect::<Result<_>>()?;
    Ok(Table { header, rows, lines: place })
}

impl Table {
    /// The table as it stands in a file, with these rows.
    pub(super) fn with_rows(&self, rows: &[Vec<Cell>]) -> String {
        let shown: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(cells::written).collect()).collect();
        let width = |column: usize| {
            let cells = shown.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(self.header[column].chars().count()).max(3)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let line = |cells: &[String]| {
            let padded =
                cells.iter().zip(&widths).map(|(cell, &width)| format!(" {cell:<width$} "));
            format!("|{}|\n", padded.collect::<Vec<_>>().join("|"))
        };
        let ruler = widths.iter().map(|width| "-".repeat(width + 2)).collect::<Vec<_>>();
        let head = format!("{}|{}|\n", line(&self.header), ruler.join("|"));
        shown.iter().fold(head, |text, row| text + &line(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<TestCase>> {
        let (name, folder) = ("t.test.md".to_owned(), PathBuf::new());
        let file = TestFile { name, folder, text: text.to_owned(), cases: Vec::new() };
        Reader::new(&file).read()
    }

    const ORDERS: &str = "# Orders\n\n```sql\nSELECT 1;\n```\n\n## one\nProse.\n\ninput `orders`:\n\n\
        | at | item |\n|----|------|\n| 9:00 | a\\|b |\n\n**expect totals**\n\n| n |\n|---|\n| 1 |\n\
        | NULL |\n\n## two\norder epoch\n\nexpect error\n\n```\nno table\n```\n";

    #[test]
    fn a_heading_begins_a_case_and_what_is_before_belongs_to_all() {
        let cases = read(ORDERS).expect("two cases");
        assert_eq!(cases.iter().map(|case| case.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(cases[0].inputs[0].rows.rows[0].cells[1].as_deref(), Some("a|b"));
        assert_eq!(cases[0].expectations[0].rows.rows[1].cells, [None]);
        assert_eq!(cases[0].sql[0].text, "\n\n\nSELECT 1;", "lines are those of the file");
        assert_eq!(cases[1].orders, Some(vec![OrderContract::Epoch]));
        assert_eq!(cases[1].expectations[0].what, Expected::Error("no table".to_owned()));
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, line, word) in [
            ("input a\n\nNo table.\n", 1, "a table has to follow"),
            ("\nexpect some of it\n", 2, "write `expect TABLE`"),
            ("expect t\n| a |\n| 1 |\n", 2, "line of dashes"),
            ("expect t\n| a | b |\n|---|---|\n| 1 |\n", 4, "1 cells"),
            ("expect t\n| a | a |\n|---|---|\n", 2, "twice"),
            ("```sql\nSELECT 1\n", 1, "no end"),
            ("# Nothing\n", 1, "no test"),
            ("input a\n| n |\n|---|\n", 1, "no test"),
            ("# x\n## y\ninput a\n| n |\n|---|\n", 2, "expects nothing"),
            ("sql nowhere.sql\n", 1, "nowhere.sql"),
            ("order sometimes\n", 1, "sometimes"),
        ] {
            let error = read(text).expect_err(text);
            assert_eq!(error.span().map(|span| span.line), Some(line), "{text}: {error}");
            assert!(error.message().contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn rows_are_written_into_their_table_alone() {
        let (name, folder) = ("t.test.md".to_owned(), PathBuf::new());
        let mut file = TestFile { name, folder, text: ORDERS.to_owned(), cases: Vec::new() };
        file.cases = Reader::new(&file).read().expect("cases");
        let table = &file.cases[0].expectations[0].rows;
        let text = table.with_rows(&[vec![Some("a|b".to_owned())], vec![Some(String::new())]]);
        assert_eq!(text, "| n    |\n|------|\n| a\\|b |\n| ''   |\n");
        let replaced = file.replaced(vec![(table.lines.clone(), text)]);
        let expected = ORDERS.replace(
            "| n |\n|---|\n| 1 |\n| NULL |\n",
            "| n    |\n|------|\n| a\\|b |\n| ''   |\n",
        );
        assert_eq!(replaced, expected);
    }
}
