//! What SHOW and DESCRIBE answer of the catalog.
//!
//! Headers are Flink's.

use thalweg_core::connector::Connectors;
use thalweg_core::{Error, Result};

use super::path::DatabasePath;
use super::{Catalog, TextRows, connectors};
use crate::ast::{ListFilter, Name, NamePattern, Show};

impl Catalog {
    /// Answers SHOW, and DESCRIBE of what is no table. `functions` are the names of all functions
    /// that are built in or registered.
    pub fn show(
        &self,
        show: &Show,
        functions: &[String],
        connectors: &Connectors,
    ) -> Result<TextRows> {
        let row = |header: &str, text: String| TextRows::new(&[header], vec![vec![text]]);
        Ok(match show {
            Show::Tables(filter) => {
                let keys = self.tables.keys().chain(self.views.keys());
                names("table name", self.names_in(filter, keys)?, filter)
            }
            Show::Views(filter) => {
                names("view name", self.names_in(filter, self.views.keys())?, filter)
            }
            Show::MaterializedTables(filter) => {
                let own = self.tables.iter().filter(|(_, table)| table.materialized.is_some());
                let own = self.names_in(filter, own.map(|(key, _)| key))?;
                names("materialized table name", own, filter)
            }
            Show::Functions { is_user, filter } => {
                names("function name", self.function_names(*is_user, filter, functions)?, filter)
            }
            Show::Databases(filter) => names("database name", self.databases_of(filter)?, filter),
            Show::Catalogs(filter) => {
                let all = self.databases.catalog_names().map(str::to_owned).collect();
                names("catalog name", all, filter)
            }
            Show::CurrentCatalog => row("current catalog name", self.current().catalog.clone()),
            Show::CurrentDatabase => row("current database name", self.current().database.clone()),
            Show::Modules { is_full: false } => row("module name", "core".to_owned()),
            Show::Modules { is_full: true } => {
                let rows = vec![vec!["core".to_owned(), "TRUE".to_owned()]];
                TextRows::new(&["module name", "used"], rows)
            }
            Show::Jars => {
                let rows = self.jars.iter().map(|jar| vec![jar.clone()]).collect();
                TextRows::new(&["jars"], rows)
            }
            Show::Nothing(header) => TextRows::new(&[header], Vec::new()),
            Show::Connectors => connectors::show(connectors),
            Show::Connector(name) => connectors::describe(connectors, name)?,
            Show::Settings => self.settings.rows(),
            Show::CreateTable(name) => row("create table", self.table_named(name)?.text.clone()),
            Show::CreateView(name) => {
                let view = self.view(&self.key(&name.text));
                row("create view", view.ok_or_else(|| self.missing(name, true))?.create_text())
            }
            Show::CreateCatalog(name) => {
                row("create catalog", self.databases.create_catalog_text(name)?)
            }
            Show::Catalog { name, is_extended } => {
                self.databases.describe_catalog(name, *is_extended)?
            }
            Show::Database { name, is_extended } => self.databases.describe(name, *is_extended)?,
            Show::Function(name) => self.describe_function(name, functions)?,
            Show::Partitions { name, only } => self.show_partitions(name, only)?,
            Show::Columns(_) => return Err(Error::internal("SHOW COLUMNS needs a binder")),
        })
    }

    /// The database that a list is of: the one that FROM names, else the current one.
    fn place_of(&self, filter: &ListFilter) -> Result<DatabasePath> {
        match &filter.of {
            Some(name) => self.databases.existing(name),
            None => Ok(self.current().clone()),
        }
    }

    /// The names behind those of these keys that are in the database that is meant.
    fn names_in<'k>(
        &self,
        filter: &ListFilter,
        keys: impl Iterator<Item = &'k String>,
    ) -> Result<Vec<String>> {
        let place = self.place_of(filter)?;
        let own = keys.filter_map(|key| {
            let (path, name) = DatabasePath::default().object(key);
            (path == place).then_some(name)
        });
        Ok(own.collect())
    }

    fn databases_of(&self, filter: &ListFilter) -> Result<Vec<String>> {
        let current = || Name { text: self.current().catalog.clone(), span: Default::default() };
        self.databases.names(&filter.of.clone().unwrap_or_else(current))
    }

    fn function_names(
        &self,
        is_user: bool,
        filter: &ListFilter,
        functions: &[String],
    ) -> Result<Vec<String>> {
        let mut all = self.functions.names(&self.place_of(filter)?);
        if !is_user {
            all.extend(functions.iter().cloned());
        }
        Ok(all)
    }

    /// `DESCRIBE FUNCTION`: what is known of it.
    fn describe_function(&self, name: &Name, functions: &[String]) -> Result<TextRows> {
        let row = |info: &str, value: &str| vec![info.to_owned(), value.to_owned()];
        let header = ["info name", "info value"];
        if let Some(found) = self.function(&name.text) {
            let kind =
                if found.is_system { "temporary system function" } else { "catalog function" };
            let rows = vec![
                row("name", &found.name),
                row("kind", kind),
                row("language", &found.language),
                row("identifier", &found.identifier),
            ];
            return Ok(TextRows::new(&header, rows));
        }
        let built_in = functions.iter().find(|known| known.eq_ignore_ascii_case(&name.text));
        match built_in {
            Some(known) => {
                Ok(TextRows::new(&header, vec![row("name", known), row("kind", "system function")]))
            }
            None => {
                let known = functions.iter().map(String::as_str);
                let error = Error::plan(format!("there is no function {}", name.text));
                let upper = name.text.to_uppercase();
                Err(crate::bind::near::did_you_mean(error, &upper, known).at(name.span))
            }
        }
    }
}

/// One column of names that a filter lets pass, sorted.
fn names(header: &str, mut names: Vec<String>, filter: &ListFilter) -> TextRows {
    names.retain(|name| filter.lets_pass(name));
    names.sort();
    names.dedup();
    TextRows::new(&[header], names.into_iter().map(|name| vec![name]).collect())
}

impl ListFilter {
    /// True for a name that the pattern allows.
    pub(crate) fn lets_pass(&self, name: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.matches(name))
    }
}

impl NamePattern {
    fn matches(&self, name: &str) -> bool {
        let characters = |text: &str| -> Vec<char> {
            match self.ignores_case {
                true => text.to_lowercase().chars().collect(),
                false => text.chars().collect(),
            }
        };
        is_like(&characters(name), &characters(&self.pattern)) != self.is_negated
    }
}

/// LIKE: `%` is any text, `_` any character, and a backslash takes both literally.
fn is_like(text: &[char], pattern: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|skipped| is_like(&text[skipped..], rest)),
        ['\\', literal, rest @ ..] => text.first() == Some(literal) && is_like(&text[1..], rest),
        ['_', rest @ ..] => !text.is_empty() && is_like(&text[1..], rest),
        [literal, rest @ ..] => text.first() == Some(literal) && is_like(&text[1..], rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_choose_names() {
        let pattern = |pattern: &str, is_negated, ignores_case| NamePattern {
            pattern: pattern.to_owned(),
            is_negated,
            ignores_case,
        };
        assert!(pattern("a%c_", false, false).matches("abbcd"));
        assert!(!pattern("a%c_", false, false).matches("abbc"));
        assert!(pattern("A%", true, false).matches("abc"));
        assert!(pattern("A%", false, true).matches("abc"));
        assert!(!pattern("a\\_b", false, false).matches("axb"));
    }
}
