//! Names and texts as they stand in a statement of SQL.

/// A name in backticks, whatever it holds.
///
/// ```
/// assert_eq!(thalweg_core::quoting::quoted_name("a`b"), "`a``b`");
/// ```
pub fn quoted_name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A text in single quotes, whatever it holds.
///
/// ```
/// assert_eq!(thalweg_core::quoting::quoted_text("it's"), "'it''s'");
/// ```
pub fn quoted_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Names as they stand in a message.
///
/// ```
/// assert_eq!(thalweg_core::quoting::quoted_list(["a", "b"]), "'a', 'b'");
/// ```
pub fn quoted_list(names: impl IntoIterator<Item = impl std::fmt::Display>) -> String {
    names.into_iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}
