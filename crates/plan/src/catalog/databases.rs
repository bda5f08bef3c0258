//! Catalogs and databases: names for groups of tables, views and functions.
//!
//! They live as long as the session, as in Flink's `generic_in_memory` catalog, the only type there
//! is. There is always a current database, and it exists.

use std::collections::BTreeMap;

use thalweg_core::quoting::quoted_text;
use thalweg_core::{Error, Result};

use super::TextRows;
use super::alter::option_text;
use super::path::{DEFAULT_CATALOG, DEFAULT_DATABASE, DatabasePath};
use crate::ast::{Name, OptionChange, OptionList};
use crate::diagnostic::nearest;

/// The one type of catalog.
const IN_MEMORY: &str = "generic_in_memory";
/// Its option.
const DEFAULT_DATABASE_OPTION: &str = "default-database";

/// Comment and options of a catalog or a database.
#[derive(Clone, Debug, Default)]
pub struct Properties {
    /// `COMMENT '…'`
    pub comment: Option<String>,
    /// `WITH (…)`
    pub options: BTreeMap<String, String>,
}

impl Properties {
    fn of(comment: &Option<String>, options: &OptionList) -> Self {
        let options = options.iter().map(|(key, value)| (key.text.clone(), value.text.clone()));
        Properties { comment: comment.clone(), options: options.collect() }
    }

    fn change(&mut self, change: &OptionChange) {
        match change {
            OptionChange::Set(options) => self
                .options
                .extend(options.iter().map(|(key, value)| (key.text.clone(), value.text.clone()))),
            OptionChange::Reset(names) => {
                names.iter().for_each(|name| drop(self.options.remove(&name.text)));
            }
            OptionChange::Comment(comment) => self.comment = Some(comment.clone()),
        }
    }
}

/// The catalogs with their databases.
#[derive(Clone, Debug)]
pub(super) struct Databases {
    catalogs: BTreeMap<String, (Properties, BTreeMap<String, Properties>)>,
    pub(super) current: DatabasePath,
}

impl Default for Databases {
    fn default() -> Self {
        let own = BTreeMap::from([(DEFAULT_DATABASE.to_owned(), Properties::default())]);
        let options = BTreeMap::from([("type".to_owned(), IN_MEMORY.to_owned())]);
        let properties = Properties { comment: None, options };
        let catalogs = BTreeMap::from([(DEFAULT_CATALOG.to_owned(), (properties, own))]);
        Databases { catalogs, current: DatabasePath::default() }
    }
}

impl Databases {
    pub(super) fn catalog_names(&self) -> impl Iterator<Item = &str> {
        self.catalogs.keys().map(String::as_str)
    }

    /// The databases of a catalog.
    pub(super) fn names(&self, catalog: &Name) -> Result<Vec<String>> {
        let (_, databases) = self.catalog(catalog)?;
        Ok(databases.keys().cloned().collect())
    }

    pub(super) fn has(&self, path: &DatabasePath) -> bool {
        self.catalogs.get(&path.catalog).is_some_and(|(_, own)| own.contains_key(&path.database))
    }

    fn catalog(&self, name: &Name) -> Result<&(Properties, BTreeMap<String, Properties>)> {
        self.catalogs.get(&name.text).ok_or_else(|| missing("catalog", name, self.catalog_names()))
    }

    /// The database that a name means; it exists.
    pub(super) fn existing(&self, name: &Name) -> Result<DatabasePath> {
        let path = self.current.database(&name.text);
        let catalog = Name { text: path.catalog.clone(), span: name.span };
        let (_, databases) = self.catalog(&catalog)?;
        match databases.contains_key(&path.database) {
            true => Ok(path),
            false => Err(missing("database", name, databases.keys().map(String::as_str))),
        }
    }

    pub(super) fn create_catalog(
        &mut self,
        name: &Name,
        if_not_exists: bool,
        properties: (&Option<String>, &OptionList),
    ) -> Result<()> {
        if self.catalogs.contains_key(&name.text) {
            return if if_not_exists { Ok(()) } else { Err(exists("catalog", name)) };
        }
        check_catalog_options(name, properties.1)?;
        let properties = Properties::of(properties.0, properties.1);
        let first = properties.options.get(DEFAULT_DATABASE_OPTION);
        let first = first.map_or("default", String::as_str).to_owned();
        let databases = BTreeMap::from([(first, Properties::default())]);
        self.catalogs.insert(name.text.clone(), (properties, databases));
        Ok(())
    }

    pub(super) fn alter_catalog(&mut self, name: &Name, change: &OptionChange) -> Result<()> {
        self.catalog(name)?;
        if let OptionChange::Set(options) = change {
            check_catalog_options_known(options)?;
        }
        if let Some((properties, _)) = self.catalogs.get_mut(&name.text) {
            properties.change(change);
        }
        Ok(())
    }

    /// Removes a catalog; true if there was one.
    pub(super) fn drop_catalog(&mut self, name: &Name, if_exists: bool) -> Result<bool> {
        if self.current.catalog == name.text {
            return Err(Error::plan(format!("{} is the current catalog", name.text))
                .hint("USE CATALOG another one before")
                .at(name.span));
        }
        match self.catalogs.remove(&name.text) {
            None if !if_exists => Err(missing("catalog", name, self.catalog_names())),
            removed => Ok(removed.is_some()),
        }
    }

    pub(super) fn create(
        &mut self,
        name: &Name,
        if_not_exists: bool,
        properties: (&Option<String>, &OptionList),
    ) -> Result<()> {
        let path = self.current.database(&name.text);
        self.catalog(&Name { text: path.catalog.clone(), span: name.span })?;
        if self.has(&path) {
            return if if_not_exists { Ok(()) } else { Err(exists("database", name)) };
        }
        let properties = Properties::of(properties.0, properties.1);
        if let Some((_, databases)) = self.catalogs.get_mut(&path.catalog) {
            databases.insert(path.database, properties);
        }
        Ok(())
    }

    pub(super) fn alter(&mut self, name: &Name, change: &OptionChange) -> Result<()> {
        let path = self.existing(name)?;
        let databases = self.catalogs.get_mut(&path.catalog).map(|(_, databases)| databases);
        if let Some(found) = databases.and_then(|databases| databases.get_mut(&path.database)) {
            found.change(change);
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &DatabasePath) {
        if let Some((_, databases)) = self.catalogs.get_mut(&path.catalog) {
            databases.remove(&path.database);
        }
    }

    pub(super) fn use_catalog(&mut self, name: &Name) -> Result<()> {
        let (properties, databases) = self.catalog(name)?;
        let named = properties.options.get(DEFAULT_DATABASE_OPTION).cloned();
        let own = if name.text == DEFAULT_CATALOG { DEFAULT_DATABASE } else { "default" };
        let first = named.unwrap_or_else(|| own.to_owned());
        if !databases.contains_key(&first) {
            return Err(Error::plan(format!(
                "the catalog {} has no database {first} any more",
                name.text
            ))
            .at(name.span));
        }
        self.current = DatabasePath::new(&name.text, &first);
        Ok(())
    }

    /// `DESCRIBE CATALOG`
    pub(super) fn describe_catalog(&self, name: &Name, is_extended: bool) -> Result<TextRows> {
        let (properties, _) = self.catalog(name)?;
        Ok(describe(&name.text, properties, is_extended))
    }

    /// `DESCRIBE DATABASE`
    pub(super) fn describe(&self, name: &Name, is_extended: bool) -> Result<TextRows> {
        let path = self.existing(name)?;
        let found = self.catalogs.get(&path.catalog).and_then(|(_, own)| own.get(&path.database));
        Ok(describe(&path.database, found.unwrap_or(&Properties::default()), is_extended))
    }

    /// `SHOW CREATE CATALOG`
    pub(super) fn create_catalog_text(&self, name: &Name) -> Result<String> {
        let (properties, _) = self.catalog(name)?;
        let mut text = format!("CREATE CATALOG `{}`", name.text);
        if let Some(comment) = &properties.comment {
            text.push_str(&format!("\nCOMMENT {}", quoted_text(comment)));
        }
        let options: Vec<String> = properties.options.iter().map(option_text).collect();
        Ok(format!("{text}\nWITH (\n{}\n)", options.join(",\n")))
    }
}

fn describe(name: &str, properties: &Properties, is_extended: bool) -> TextRows {
    let row = |info: &str, value: &str| vec![info.to_owned(), value.to_owned()];
    let mut rows = vec![row("name", name)];
    let others = properties.options.iter().filter(|(key, _)| *key != "type");
    rows.extend(properties.options.get("type").map(|kind| row("type", kind)));
    rows.push(row("comment", properties.comment.as_deref().unwrap_or_default()));
    if is_extended {
        rows.extend(others.map(|(key, value)| row(&format!("option:{key}"), value)));
    }
    TextRows::new(&["info name", "info value"], rows)
}

fn check_catalog_options(name: &Name, options: &OptionList) -> Result<()> {
    let kind = options.iter().find(|(key, _)| key.text == "type");
    match kind {
        Some((_, kind)) if kind.text == IN_MEMORY => check_catalog_options_known(options),
        Some((_, kind)) => {
            Err(Error::unsupported(format!("there is no catalog of type '{}' here", kind.text))
                .hint(format!(
                    "'type' = '{IN_MEMORY}' holds what the session declares; tables of other systems are declared one by \
                     one with CREATE TABLE"
                ))
                .at(kind.span))
        }
        None => Err(Error::plan(format!("the catalog {} has no option 'type'", name.text))
            .hint(format!("write WITH ('type' = '{IN_MEMORY}')"))
            .at(name.span)),
    }
}

fn check_catalog_options_known(options: &OptionList) -> Result<()> {
    let is_known = |key: &str| ["type", DEFAULT_DATABASE_OPTION].contains(&key);
    match options.iter().find(|(key, _)| !is_known(&key.text)) {
        None => Ok(()),
        Some((key, _)) => {
            Err(Error::plan(format!("a catalog in memory has no option '{}'", key.text))
                .hint(format!("its options are 'type' and '{DEFAULT_DATABASE_OPTION}'"))
                .at(key.span))
        }
    }
}

fn exists(what: &str, name: &Name) -> Error {
    Error::plan(format!("there is a {what} {} already", name.text))
        .hint(format!("CREATE {} IF NOT EXISTS accepts that", what.to_uppercase()))
        .at(name.span)
}

fn missing<'a>(what: &str, name: &Name, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.collect();
    let error = Error::plan(format!("there is no {what} {}", name.text)).at(name.span);
    match nearest(&name.text, known.iter().copied()) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint(format!("there are {}", known.join(", "))),
    }
}
