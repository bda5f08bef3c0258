//! The columns of a relation and what they mean for time.

use thalweg_core::{Column, ColumnType, DataType, TableSchema};
use thalweg_expr::Expr;

/// Distinguishes one use of a windowing function from another within a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WindowId {
    /// Its number; 0 for none.
    pub number: u32,
    /// True if the windows follow the clock: they close when it passes their end, whatever the
    /// watermark.
    pub by_clock: bool,
}

/// What a column means for event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TimeAttribute {
    /// An ordinary column.
    #[default]
    None,
    /// The row's event time; watermarks follow it.
    RowTime,
    /// Processing time.
    ProcTime,
    /// The start of a window.
    WindowStart(WindowId),
    /// The (exclusive) end of a window.
    WindowEnd(WindowId),
    /// The last millisecond of a window, a row time again.
    WindowTime(WindowId),
}

impl TimeAttribute {
    /// True if windows can be laid over the column.
    pub fn is_rowtime(self) -> bool {
        match self {
            TimeAttribute::RowTime => true,
            TimeAttribute::WindowTime(id) => !id.by_clock,
            _ => false,
        }
    }
    /// True if the column stands for the moment at which an operator takes a row.
    pub fn is_proctime(self) -> bool {
        match self {
            TimeAttribute::ProcTime => true,
            TimeAttribute::WindowTime(id) => id.by_clock,
            _ => false,
        }
    }
    /// The window whose column this is.
    pub fn window(self) -> Option<WindowId> {
        match self {
            TimeAttribute::WindowStart(id)
            | TimeAttribute::WindowEnd(id)
            | TimeAttribute::WindowTime(id) => Some(id),
            _ => None,
        }
    }
    /// How EXPLAIN marks the column.
    pub fn mark(self) -> &'static str {
        match self {
            TimeAttribute::None => "",
            TimeAttribute::RowTime => " *ROWTIME*",
            _ if self.is_proctime() => " *PROCTIME*",
            TimeAttribute::ProcTime => " *PROCTIME*",
            TimeAttribute::WindowStart(_) => " *WINDOW START*",
            TimeAttribute::WindowEnd(_) => " *WINDOW END*",
            TimeAttribute::WindowTime(_) => " *WINDOW TIME*",
        }
    }
}

/// A column of a relation.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub column_type: ColumnType,
    /// What it means for time.
    pub time: TimeAttribute,
}

impl Field {
    /// A column that means nothing for time.
    pub fn plain(name: impl Into<String>, column_type: ColumnType) -> Self {
        Field { name: name.into(), column_type, time: TimeAttribute::None }
    }
    /// The same with no meaning for time.
    #[must_use]
    pub fn without_time(self) -> Self {
        Field { time: TimeAttribute::None, ..self }
    }
    /// The column as an expression, where it stands at this position.
    pub fn at(&self, position: usize) -> Expr {
        Expr::column(position, self.column_type.clone())
    }
    /// The same with its name.
    pub fn named_at(&self, position: usize) -> (String, Expr) {
        (self.name.clone(), self.at(position))
    }
    /// The column without what it means for time.
    pub fn column(&self) -> Column {
        Column::new(self.name.clone(), self.column_type.clone())
    }
}

/// The columns of a window, as a windowing function appends them. For an instant (TIMESTAMP_LTZ)
/// start and end are wall clock readings and the time is an instant.
pub fn window_fields(id: WindowId, is_instant: bool) -> [Field; 3] {
    let wall = DataType::Timestamp(3).not_null();
    let time = if is_instant { DataType::TimestampLtz(3).not_null() } else { wall.clone() };
    let field = |name: &str, column_type, time| Field { name: name.into(), column_type, time };
    [
        field("window_start", wall.clone(), TimeAttribute::WindowStart(id)),
        field("window_end", wall, TimeAttribute::WindowEnd(id)),
        field("window_time", time, TimeAttribute::WindowTime(id)),
    ]
}

/// The columns as a schema.
pub fn fields_schema(fields: &[Field]) -> TableSchema {
    TableSchema::new(fields.iter().map(Field::column).collect())
}
