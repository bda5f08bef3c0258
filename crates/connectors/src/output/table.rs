//! Aligned columns.

use arrow_array::RecordBatch;
use chrono_tz::Tz;
use thalweg_core::text::TextColumn;
use thalweg_core::{DataType, RowKind, TableSchema};

/// Rows that are looked at before the first one is shown.
const SAMPLE_ROWS: usize = 200;
/// A column is never padded wider than this, so that one long text does not push all others away.
const WIDTH_MAX: usize = 60;

struct ColumnShape {
    name: String,
    is_right: bool,
    width: usize,
}

/// A table that is being written.
pub struct Table {
    null_text: String,
    zone: Tz,
    shapes: Vec<ColumnShape>,
    /// Rows that wait until the widths are known.
    waiting: Vec<Vec<String>>,
    has_header: bool,
}

impl Table {
    /// An empty table.
    pub fn new(null_text: String, zone: Tz) -> Self {
        Table { null_text, zone, shapes: Vec::new(), waiting: Vec::new(), has_header: false }
    }

    /// Sets the columns.
    pub fn begin(&mut self, schema: &TableSchema, is_changelog: bool) {
        if is_changelog {
            self.shapes.push(ColumnShape { name: "op".to_string(), is_right: false, width: 2 });
        }
        self.shapes.extend(schema.columns.iter().map(|column| {
            let name = visible(&column.name);
            let is_right = column.column_type.data_type.is_numeric();
            ColumnShape { width: text_width(&name), name, is_right }
        }));
    }

    /// Adds rows.
    pub fn rows(
        &mut self,
        out: &mut String,
        batch: &RecordBatch,
        schema: &TableSchema,
        kinds: Option<&[RowKind]>,
    ) {
        let columns: Vec<(TextColumn<'_>, bool)> = batch
            .columns()
            .iter()
            .zip(&schema.columns)
            .map(|(array, column)| {
                let data_type = &column.column_type.data_type;
                let may_hold_controls = !is_tidy(data_type);
                (TextColumn::new(array.as_ref(), data_type, self.zone), may_hold_controls)
            })
            .collect();
        let mut cells: Vec<String> = Vec::new();
        for row in 0..batch.num_rows() {
            cells.clear();
            cells.extend(kinds.map(|kinds| kinds[row].short().to_string()));
            cells.extend(columns.iter().map(|column| self.cell(column, row)));
            if self.has_header {
                append_line(out, &self.shapes, &cells);
            } else {
                self.waiting.push(std::mem::take(&mut cells));
                if self.waiting.len() == SAMPLE_ROWS {
                    self.release(out);
                }
            }
        }
    }

    fn cell(&self, (column, may_hold_controls): &(TextColumn<'_>, bool), row: usize) -> String {
        if column.is_null(row) {
            return self.null_text.clone();
        }
        let mut text = String::new();
        column.append(&mut text, row);
        if *may_hold_controls { visible(&text) } else { text }
    }

    /// Shows the rows that wait. Without any, the widths stay open.
    pub fn release(&mut self, out: &mut String) {
        if !self.waiting.is_empty() {
            self.finish(out);
        }
    }

    /// Shows the header, if not yet done, and the rows that wait.
    pub fn finish(&mut self, out: &mut String) {
        let waiting = std::mem::take(&mut self.waiting);
        if !self.has_header {
            self.has_header = true;
            for (i, shape) in self.shapes.iter_mut().enumerate() {
                let widest = waiting.iter().map(|cells| text_width(&cells[i])).max().unwrap_or(0);
                shape.width = shape.width.max(widest).min(WIDTH_MAX);
            }
            self.append_header(out);
        }
        waiting.iter().for_each(|cells| append_line(out, &self.shapes, cells));
    }

    fn append_header(&self, out: &mut String) {
        let names: Vec<String> = self.shapes.iter().map(|shape| shape.name.clone()).collect();
        append_line(out, &self.shapes, &names);
        for (i, shape) in self.shapes.iter().enumerate() {
            if i > 0 {
                out.push('┼');
            }
            (0..shape.width + 2).for_each(|_| out.push('─'));
        }
        out.push('\n');
    }
}

fn append_line(out: &mut String, shapes: &[ColumnShape], cells: &[String]) {
    for (i, (shape, cell)) in shapes.iter().zip(cells).enumerate() {
        if i > 0 {
            out.push('│');
        }
        let padding = shape.width.saturating_sub(text_width(cell));
        out.push(' ');
        if shape.is_right {
            (0..padding).for_each(|_| out.push(' '));
        }
        out.push_str(cell);
        if !shape.is_right {
            (0..padding).for_each(|_| out.push(' '));
        }
        out.push(' ');
    }
    out.push('\n');
}

/// True if values never hold control characters.
fn is_tidy(data_type: &DataType) -> bool {
    data_type.is_numeric()
        || data_type.is_timestamp()
        || matches!(data_type, DataType::Boolean | DataType::Date | DataType::Time(_))
}

/// The text with control characters made visible: they would break the lines, or control the
/// terminal what to do.
fn visible(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_string();
    }
    let show = |c: char| if c.is_control() { c.escape_default().collect() } else { c.to_string() };
    text.chars().map(show).collect::<String>()
}

/// How many places a text takes on a terminal.
fn text_width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().map(char_width).sum() }
}

/// Places of a character: none for combining marks, two for East Asian wide ones and emoji. The
/// large blocks of Unicode's EastAsianWidth.txt are enough for aligning.
fn char_width(c: char) -> usize {
    match c as u32 {
        0x0300..=0x036F | 0x200B..=0x200F | 0x20D0..=0x20FF | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F
        | 0x2E80..=0x303E
        | 0x3041..=0xA4CF
        | 0xAC00..=0xD7A3
        | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F
        | 0xFF00..=0xFF60
        | 0xFFE0..=0xFFE6
        | 0x1F300..=0x1F64F
        | 0x1F900..=0x1F9FF
        | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_nothing() {
        assert_eq!(visible("a\x1b[2J\nb"), "a\\u{1b}[2J\\nb");
        assert_eq!(text_width("日本é"), 5);
    }
}
