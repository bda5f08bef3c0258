//! Names with dots: `catalog.database.table` as one text.
//!
//! A name of the parser may have several parts. They stand in one text, so that a name stays one
//! value from the parser to the message that shows it. A part that holds a dot or a backtick stands
//! in backticks.
//!
//! The **key** of an object is its whole path, without the default catalog and database: objects of
//! the default database have the name that was written as their key.

use thalweg_core::quoting::quoted_name;

/// The catalog of a new session.
pub const DEFAULT_CATALOG: &str = "default_catalog";
/// The database of a new session.
pub const DEFAULT_DATABASE: &str = "default_database";

/// Parts as one text.
///
/// ```
/// use thalweg_plan::catalog::path::{dotted, parts};
/// assert_eq!(dotted(&["d", "a.b"]), "d.`a.b`");
/// assert_eq!(parts("d.`a.b`"), ["d", "a.b"]);
/// ```
pub fn dotted<T: AsRef<str>>(parts: &[T]) -> String {
    let quoted = |part: &T| {
        let part = part.as_ref();
        match part.contains(['.', '`']) {
            true => quoted_name(part),
            false => part.to_owned(),
        }
    };
    parts.iter().map(quoted).collect::<Vec<_>>().join(".")
}

/// The parts of a text that [`dotted`] has made.
pub fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut characters = text.chars().peekable();
    let mut is_quoted = false;
    while let Some(character) = characters.next() {
        let last = parts.last_mut().expect("there is a part from the beginning");
        match character {
            '`' if is_quoted && characters.peek() == Some(&'`') => {
                characters.next();
                last.push('`');
            }
            '`' => is_quoted = !is_quoted,
            '.' if !is_quoted => parts.push(String::new()),
            other => last.push(other),
        }
    }
    parts
}

/// The last part of a name.
pub fn last_part(text: &str) -> String {
    parts(text).pop().unwrap_or_default()
}

/// A database of a catalog.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatabasePath {
    /// The catalog.
    pub catalog: String,
    /// The database.
    pub database: String,
}

impl Default for DatabasePath {
    fn default() -> Self {
        DatabasePath::new(DEFAULT_CATALOG, DEFAULT_DATABASE)
    }
}

impl DatabasePath {
    /// A database of a catalog.
    pub fn new(catalog: &str, database: &str) -> Self {
        DatabasePath { catalog: catalog.to_owned(), database: database.to_owned() }
    }

    /// The database that a name means here, which may be preceded by its catalog.
    pub fn database(&self, name: &str) -> DatabasePath {
        match &parts(name)[..] {
            [database] => DatabasePath { database: database.clone(), ..self.clone() },
            [catalog, rest @ ..] => DatabasePath::new(catalog, &dotted(rest)),
            [] => self.clone(),
        }
    }

    /// The database and the name of the object that a name means here.
    pub fn object(&self, name: &str) -> (DatabasePath, String) {
        match &parts(name)[..] {
            [] => (self.clone(), String::new()),
            [name] => (self.clone(), name.clone()),
            [database, name] => {
                (DatabasePath { database: database.clone(), ..self.clone() }, name.clone())
            }
            [catalog, database, rest @ ..] => (DatabasePath::new(catalog, database), dotted(rest)),
        }
    }

    /// The key of the object that a name means here.
    pub fn key(&self, name: &str) -> String {
        let (path, name) = self.object(name);
        path.key_of(&name)
    }

    /// The key of an object of this database.
    pub fn key_of(&self, name: &str) -> String {
        match *self == DatabasePath::default() {
            true => dotted(&[name]),
            false => dotted(&[&self.catalog, &self.database, name]),
        }
    }
}

impl std::fmt::Display for DatabasePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&dotted(&[&self.catalog, &self.database]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_objects_of_the_current_database_unless_they_say_more() {
        let here = DatabasePath::new("c", "d");
        assert_eq!(here.key("t"), "c.d.t");
        assert_eq!(here.key("e.t"), "c.e.t");
        assert_eq!(here.key("default_catalog.default_database.t"), "t");
        assert_eq!(DatabasePath::default().key("`a.b`"), "`a.b`");
        assert_eq!(DatabasePath::default().key("default_database.t"), "t");
        assert_eq!(here.database("x.y"), DatabasePath::new("x", "y"));
        assert_eq!(parts("`a``.b`.c"), ["a`.b", "c"]);
    }
}
