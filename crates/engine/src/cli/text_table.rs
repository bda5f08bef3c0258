//! Tables of text with aligned columns, for reports.

/// A table with a heading for each column.
pub fn table<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    is_text: impl Fn(usize) -> bool,
) -> String {
    let rows = rows.into_iter().map(Vec::from);
    let all: Vec<_> = std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect();
    aligned(&all, is_text)
}

/// Lines with cells as wide as their column: text stands to the left, numbers to the right. The
/// first row has a cell for each column; what has fewer is no row of the table, and widens nothing.
pub fn aligned(rows: &[Vec<String>], is_text: impl Fn(usize) -> bool) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let is_row = |row: &&Vec<String>| row.len() == columns;
    let width = |column: usize| {
        let cells = rows.iter().filter(is_row).map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut output = String::new();
    for row in rows {
        let padded = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            let is_left = is_text(column) || !is_row(&row);
            if is_left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        output.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        output.push('\n');
    }
    output
}
