//! Errors that say whose fault they are, where they happened and what to do about them.
//!
//! An [`Error`] is built where the fact is known and gains context on its way up: a decoder knows
//! the line, the source adds the file, the runtime adds the operator. The command line prints the
//! whole chain once; exit status 2 means that the statement or the command line is wrong
//! ([`ErrorKind::Plan`]), 1 that the job failed.

use std::fmt;

/// The result type of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whose fault an error is, which decides how it is reported and what a user can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The statement, an option or the command line is wrong. Found before anything runs.
    Plan,
    /// The statement asks for something that Thalweg does not do (yet). Found before anything runs.
    Unsupported,
    /// The data do not fit what was declared: a bad row, a NULL row time, a division by zero.
    Data,
    /// A file, pipe or other outside resource failed.
    Io,
    /// A limit was reached, such as `memory.limit`.
    Resource,
    /// User code failed or panicked.
    User,
    /// The job was stopped from outside (Ctrl-C).
    Cancelled,
    /// A bug in Thalweg.
    Internal,
}

/// A place in the text of a statement. Lines and columns count from 1; 0 means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Line of the first character, from 1.
    pub line: u32,
    /// Column (in characters) of the first character, from 1.
    pub column: u32,
    /// Column just behind the last character, when it stands on the same line; else 0.
    pub end_column: u32,
}

/// An error of any part of the engine.
///
/// ```
/// use thalweg_core::{Error, ErrorKind};
/// let error = Error::data("'x' is not an INT").at_row("in.csv", 3).in_operator("departures");
/// assert_eq!(error.kind(), ErrorKind::Data);
/// assert_eq!(error.to_string(), "'x' is not an INT (in.csv, row 3; operator departures)");
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    span: Option<Span>,
    file: Option<String>,
    row: Option<u64>,
    operator: Option<String>,
    job: Option<String>,
}

impl Error {
    /// An error of the given kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            hint: None,
            span: None,
            file: None,
            row: None,
            operator: None,
            job: None,
        }))
    }
    /// [`ErrorKind::Plan`].
    pub fn plan(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Plan, message)
    }
    /// [`ErrorKind::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }
    /// [`ErrorKind::Data`].
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Data, message)
    }
    /// [`ErrorKind::Io`].
    pub fn io(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Io, message)
    }
    /// [`ErrorKind::Resource`].
    pub fn resource(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Resource, message)
    }
    /// [`ErrorKind::User`].
    pub fn user(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::User, message)
    }
    /// [`ErrorKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }
    /// [`ErrorKind::Cancelled`].
    pub fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, "the job was stopped")
    }

    /// Adds what the user can do. Printed as `help: …`.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint.get_or_insert(hint.into());
        self
    }
    /// Adds the place in the statement, unless a more exact one is known already.
    #[must_use]
    pub fn at(mut self, span: Span) -> Self {
        if span.line > 0 {
            self.0.span.get_or_insert(span);
        }
        self
    }
    /// Adds file and row (line of a text file), counted from 1, unless known already.
    #[must_use]
    pub fn at_row(mut self, file: impl Into<String>, row: u64) -> Self {
        self.0.file.get_or_insert(file.into());
        self.0.row.get_or_insert(row);
        self
    }
    /// Adds the file, unless known already.
    #[must_use]
    pub fn in_file(mut self, file: impl Into<String>) -> Self {
        self.0.file.get_or_insert(file.into());
        self
    }
    /// Adds the operator, unless known already.
    #[must_use]
    pub fn in_operator(mut self, operator: impl Into<String>) -> Self {
        self.0.operator.get_or_insert(operator.into());
        self
    }
    /// Adds the job, where several run, unless known already.
    #[must_use]
    pub fn in_job(mut self, job: impl Into<String>) -> Self {
        self.0.job.get_or_insert(job.into());
        self
    }
    /// The same about a table, with its name in front. The hint stays; the place is for the caller
    /// to say.
    #[must_use]
    pub fn about_table(&self, table: &str) -> Self {
        let mut named = Error::new(self.kind(), format!("table {table}: {}", self.message()));
        named.0.hint.clone_from(&self.0.hint);
        named
    }

    /// Whose fault.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
    /// The message without its context.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// What the user can do.
    pub fn help(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
    /// Where in the statement.
    pub fn span(&self) -> Option<Span> {
        self.0.span
    }
    /// The file in which it happened.
    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }
    /// The row (line of a text file) at which it happened, counted from 1.
    pub fn row(&self) -> Option<u64> {
        self.0.row
    }
    /// The operator in which it happened.
    pub fn operator(&self) -> Option<&str> {
        self.0.operator.as_deref()
    }
    /// True if the statement or the command line is at fault: nothing has run.
    pub fn is_plan_error(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Plan | ErrorKind::Unsupported)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, message, file, row, operator, job, .. } = &*self.0;
        if *kind == ErrorKind::Internal {
            f.write_str("internal error, please report it: ")?;
        }
        f.write_str(message)?;
        let place = match (file, row) {
            (Some(file), Some(row)) => Some(format!("{file}, row {row}")),
            (Some(file), None) => Some(file.clone()),
            (None, Some(row)) => Some(format!("row {row}")),
            (None, None) => None,
        };
        let operator = operator.as_ref().map(|operator| format!("operator {operator}"));
        let job = job.as_ref().map(|job| format!("job {job}"));
        let context: Vec<String> = [place, operator, job].into_iter().flatten().collect();
        match context.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", context.join("; ")),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error::io(error.to_string())
    }
}

impl From<arrow_schema::ArrowError> for Error {
    fn from(error: arrow_schema::ArrowError) -> Self {
        use arrow_schema::ArrowError as A;
        match error {
            A::DivideByZero => Error::data("division by zero"),
            A::ArithmeticOverflow(message) | A::CastError(message) | A::ParseError(message) => {
                Error::data(message)
            }
            A::IoError(message, _) => Error::io(message),
            other => Error::internal(other.to_string()),
        }
    }
}
