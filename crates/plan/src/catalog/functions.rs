//! `CREATE FUNCTION`: names of SQL for functions that a program registers with the session.
//!
//! A declaration says what the function is called where it is implemented. Whether it is there is
//! known when a query calls it: as in Flink, the declaration alone is always accepted.

use std::collections::BTreeMap;

use thalweg_core::{Error, Result};

use super::path::DatabasePath;
use crate::ast::{CreateFunction, Name};
use crate::diagnostic::nearest;

/// A function that SQL has declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredFunction {
    /// What it is called in SQL, as it was written.
    pub name: String,
    /// What it is called where it is implemented.
    pub identifier: String,
    /// In which language, upper case.
    pub language: String,
    /// `TEMPORARY SYSTEM`
    pub is_system: bool,
}

/// The functions, by key in lower case: names of functions are not case-sensitive.
#[derive(Clone, Debug, Default)]
pub(super) struct DeclaredFunctions {
    functions: BTreeMap<String, DeclaredFunction>,
}

/// Those of TEMPORARY SYSTEM belong to no database.
const SYSTEM: &str = "system ";

impl DeclaredFunctions {
    fn key(here: &DatabasePath, name: &str, is_system: bool) -> String {
        let key = if is_system { format!("{SYSTEM}{name}") } else { here.key(name) };
        key.to_lowercase()
    }

    /// The function that a call names: of TEMPORARY SYSTEM first, as in Flink.
    pub(super) fn get(&self, here: &DatabasePath, name: &str) -> Option<&DeclaredFunction> {
        let of = |is_system| self.functions.get(&Self::key(here, name, is_system));
        of(true).or_else(|| of(false))
    }

    /// The names of those that are visible without a database.
    pub(super) fn names(&self, here: &DatabasePath) -> Vec<String> {
        let is_visible = |(key, function): &(&String, &DeclaredFunction)| {
            function.is_system || **key == Self::key(here, &function.name, false)
        };
        let visible = self.functions.iter().filter(is_visible);
        visible.map(|(_, function)| function.name.to_lowercase()).collect()
    }

    pub(super) fn create(&mut self, here: &DatabasePath, function: &CreateFunction) -> Result<()> {
        let name = &function.name;
        let key = Self::key(here, &name.text, function.is_system);
        let is_there = self.functions.contains_key(&key);
        match (function.is_alteration, is_there) {
            (true, false) if function.if_exists => return Ok(()),
            (true, false) => return Err(self.missing(name)),
            (false, true) if function.if_not_exists => return Ok(()),
            (false, true) => {
                return Err(Error::plan(format!("there is a function {} already", name.text))
                    .hint(format!("DROP FUNCTION {0} first, or ALTER FUNCTION {0} AS …", name.text))
                    .at(name.span));
            }
            _ => {}
        }
        let language = function.language.as_ref().map_or("JAVA", |name| name.text.as_str());
        let language = language.to_uppercase();
        if !["JAVA", "SCALA", "PYTHON", "RUST"].contains(&language.as_str()) {
            let span = function.language.as_ref().map_or(name.span, |name| name.span);
            return Err(Error::plan(format!("no function is written in {language}"))
                .hint("the languages are RUST and PYTHON, and JAVA and SCALA on Flink")
                .at(span));
        }
        let declared = DeclaredFunction {
            name: super::path::last_part(&name.text),
            identifier: function.identifier.text.clone(),
            language,
            is_system: function.is_system,
        };
        self.functions.insert(key, declared);
        Ok(())
    }

    pub(super) fn remove(
        &mut self,
        here: &DatabasePath,
        (name, is_system): (&Name, bool),
        if_exists: bool,
    ) -> Result<()> {
        match self.functions.remove(&Self::key(here, &name.text, is_system)) {
            None if !if_exists => Err(self.missing(name)),
            _ => Ok(()),
        }
    }

    /// All of them, by key.
    pub(super) fn all(&self) -> Vec<(String, DeclaredFunction)> {
        self.functions.iter().map(|(key, function)| (key.clone(), function.clone())).collect()
    }

    pub(super) fn restore(&mut self, key: String, function: DeclaredFunction) {
        self.functions.insert(key, function);
    }

    /// Forgets the functions of a database.
    pub(super) fn remove_all(&mut self, path: &DatabasePath) {
        let of_path = |key: &str, function: &DeclaredFunction| {
            !function.is_system && *key == Self::key(path, &function.name, false)
        };
        self.functions.retain(|key, function| !of_path(key, function));
    }

    fn missing(&self, name: &Name) -> Error {
        let error = Error::plan(format!("there is no function {} to change", name.text));
        let known = self.functions.values().map(|function| function.name.as_str());
        match nearest(&name.text, known) {
            Some(near) => error.hint(format!("did you mean {near}?")).at(name.span),
            None => error.hint("CREATE FUNCTION declares one").at(name.span),
        }
    }
}

impl DeclaredFunction {
    /// The error for a call of a function that is declared and not there.
    pub fn not_registered(&self) -> Error {
        let DeclaredFunction { name, identifier, language, .. } = self;
        let error = Error::plan(format!(
            "the function {name} is declared as '{identifier}', which is not there"
        ));
        match language.as_str() {
            "JAVA" | "SCALA" => error.hint(format!(
                "no {language} code runs here: write the function in Rust or Python and register it as '{identifier}' with the \
                 session (Session::register_function), then declare it with LANGUAGE RUST or PYTHON"
            )),
            _ => error.hint(format!(
                "the program that runs the file registers it as '{identifier}' with the session (Session::register_function)"
            )),
        }
    }
}
