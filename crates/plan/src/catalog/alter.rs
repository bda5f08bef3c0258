//! `ALTER TABLE`: a changed definition from the one that is there.
//!
//! Nothing here changes the catalog: the planner binds the changed definition first, so that a
//! column that something still refers to is noticed.
//!
//! A job that runs has the definitions of the moment in which it was planned. A change concerns the
//! statements after it.

use std::mem;

use thalweg_core::quoting::{quoted_name, quoted_text};
use thalweg_core::{Error, Result};

use crate::ast::{
    ColumnPosition, CreateTable, Name, OptionList, TableChange, TableColumnKind, TableParts,
};
use crate::bind::near::did_you_mean;

impl CreateTable {
    /// The definition after a change; a new name is the catalog's to give.
    pub(super) fn changed(&self, change: &TableChange) -> Result<CreateTable> {
        let mut table = self.clone();
        match change {
            TableChange::RenameTo(_) => {}
            TableChange::RenameColumn(from, to) => table.rename_column(from, to)?,
            TableChange::Add(parts) => table.add(parts)?,
            TableChange::Modify(parts) => table.modify(parts)?,
            TableChange::DropColumns(names) => {
                names.iter().try_for_each(|name| table.drop_column(name))?;
            }
            TableChange::DropPrimaryKey(constraint) => table.drop_primary_key(constraint)?,
            TableChange::DropWatermark(place) => {
                if table.watermark.take().is_none() {
                    return Err(table.has_no("watermark").at(place.span));
                }
            }
            TableChange::SetDistribution { distribution, replaces } => {
                table.set_distribution(distribution, *replaces)?;
            }
            TableChange::DropDistribution(place) => {
                if table.distribution.take().is_none() {
                    return Err(table.has_no("distribution").at(place.span));
                }
            }
            TableChange::AddPartitions { partitions, if_not_exists } => {
                table.add_partitions(partitions, *if_not_exists)?;
            }
            TableChange::DropPartitions { partitions, if_exists } => {
                table.drop_partitions(partitions, *if_exists)?;
            }
            TableChange::SetOptions(options) => set_options(&mut table.options, options),
            TableChange::ResetOptions(names) => table.reset_options(names)?,
        }
        table.check()?;
        table.text = table.rendered();
        Ok(table)
    }

    fn has_no(&self, what: &str) -> Error {
        Error::plan(format!("table {} has no {what}", self.name.text))
    }

    pub(super) fn position(&self, name: &Name) -> Result<usize> {
        let found = self.columns.iter().position(|column| column.name.text == name.text);
        found.ok_or_else(|| {
            let names = self.columns.iter().map(|column| column.name.text.as_str());
            let error = self.has_no(&format!("column {}", name.text));
            did_you_mean(error, &name.text, names).at(name.span)
        })
    }

    /// The new name reaches the key; an expression that uses the old one is refused when the table
    /// is bound.
    fn rename_column(&mut self, from: &Name, to: &Name) -> Result<()> {
        let position = self.position(from)?;
        if let Some(key) = self.partitioned_by.iter().find(|key| key.text == from.text) {
            return Err(Error::plan(format!("rows are partitioned by column {}", key.text))
                .hint("create another table, and fill it with INSERT INTO … SELECT")
                .at(from.span));
        }
        self.refuse_taken(to)?;
        self.columns[position].name = to.clone();
        let renamed = self.primary_key.iter_mut().filter(|key| key.text == from.text);
        renamed.for_each(|key| key.text.clone_from(&to.text));
        Ok(())
    }

    fn refuse_taken(&self, name: &Name) -> Result<()> {
        match self.columns.iter().any(|column| column.name.text == name.text) {
            false => Ok(()),
            true => Err(Error::plan(format!(
                "table {} has a column {} already",
                self.name.text, name.text
            ))
            .at(name.span)),
        }
    }

    fn add(&mut self, parts: &TableParts) -> Result<()> {
        let TableParts { table: new, positions } = parts;
        for (column, position) in new.columns.iter().zip(positions) {
            self.refuse_taken(&column.name)?;
            self.columns.push(column.clone());
            self.place_column(self.columns.len() - 1, position)?;
        }
        if let Some(watermark) = &new.watermark {
            if self.watermark.is_some() {
                return Err(self.exists("watermark").at(watermark.column.span));
            }
            self.watermark = Some(watermark.clone());
        }
        if let Some(first) = new.primary_key.first() {
            if !self.primary_key.is_empty() {
                return Err(self.exists("primary key").at(first.span));
            }
            self.primary_key.clone_from(&new.primary_key);
        }
        Ok(())
    }

    fn exists(&self, what: &str) -> Error {
        Error::plan(format!("table {} has a {what} already", self.name.text))
            .hint("write MODIFY in the place of ADD to replace it")
    }

    fn modify(&mut self, parts: &TableParts) -> Result<()> {
        let TableParts { table: new, positions } = parts;
        for (column, position) in new.columns.iter().zip(positions) {
            let at = self.position(&column.name)?;
            self.columns[at] = column.clone();
            self.place_column(at, position)?;
        }
        if let Some(watermark) = &new.watermark {
            if self.watermark.is_none() {
                return Err(self.has_no("watermark to modify").at(watermark.column.span));
            }
            self.watermark = Some(watermark.clone());
        }
        if let Some(first) = new.primary_key.first() {
            if self.primary_key.is_empty() {
                return Err(self.has_no("primary key to modify").at(first.span));
            }
            self.primary_key.clone_from(&new.primary_key);
        }
        Ok(())
    }

    fn place_column(&mut self, from: usize, position: &ColumnPosition) -> Result<()> {
        let column = self.columns.remove(from);
        let to = match position {
            ColumnPosition::Unchanged => Ok(from),
            ColumnPosition::First => Ok(0),
            ColumnPosition::After(name) => self.position(name).map(|at| at + 1),
        };
        self.columns.insert(to.as_ref().map_or(from, |to| *to), column);
        to.map(drop)
    }

    fn drop_column(&mut self, name: &Name) -> Result<()> {
        let position = self.position(name)?;
        let keys = [("primary key", &self.primary_key), ("PARTITIONED BY", &self.partitioned_by)];
        let used = keys.iter().find(|(_, key)| key.iter().any(|key| key.text == name.text));
        if let Some((what, _)) = used {
            return Err(Error::plan(format!(
                "column {} of table {} is part of its {what}",
                name.text, self.name.text
            ))
            .at(name.span));
        }
        if self.watermark.as_ref().is_some_and(|watermark| watermark.column.text == name.text) {
            return Err(Error::plan(format!(
                "column {} of table {} is its row time",
                name.text, self.name.text
            ))
            .hint("ALTER TABLE … DROP WATERMARK before")
            .at(name.span));
        }
        self.columns.remove(position);
        Ok(())
    }

    fn drop_primary_key(&mut self, constraint: &Option<Name>) -> Result<()> {
        let key = mem::take(&mut self.primary_key);
        let names: Vec<&str> = key.iter().map(|key| key.text.as_str()).collect();
        let own = format!("PK_{}", names.join("_"));
        let span = constraint.as_ref().map(|name| name.span).unwrap_or(self.name.span);
        match constraint {
            _ if key.is_empty() => Err(self.has_no("primary key").at(span)),
            Some(name) if name.text != own => Err(Error::plan(format!(
                "table {} has no constraint {}",
                self.name.text, name.text
            ))
            .hint(format!("names of constraints are not kept: its primary key is {own}"))
            .at(span)),
            _ => Ok(()),
        }
    }

    fn reset_options(&mut self, names: &[Name]) -> Result<()> {
        for name in names {
            if name.text == "connector" {
                return Err(Error::plan("the connector of a table can't be reset")
                    .hint("ALTER TABLE … SET ('connector' = '…') gives it another one")
                    .at(name.span));
            }
            self.options.retain(|(key, _)| key.text != name.text);
        }
        Ok(())
    }

    /// The definition as a statement, in the form of Flink.
    pub(super) fn rendered(&self) -> String {
        let list = |names: &[Name]| {
            names.iter().map(|name| quoted_name(&name.text)).collect::<Vec<_>>().join(", ")
        };
        let mut parts: Vec<String> = Vec::new();
        for column in &self.columns {
            let kind = match &column.kind {
                TableColumnKind::Physical(column_type) => column_type.to_string(),
                TableColumnKind::Computed(expression) => format!("AS {expression}"),
                TableColumnKind::Metadata { column_type, key, is_virtual } => {
                    let suffix = if *is_virtual { " VIRTUAL" } else { "" };
                    format!("{column_type} METADATA FROM '{key}'{suffix}")
                }
            };
            parts.push(format!("  {} {kind}", quoted_name(&column.name.text)));
        }
        if let Some(watermark) = &self.watermark {
            let column = quoted_name(&watermark.column.text);
            parts.push(format!("  WATERMARK FOR {column} AS {}", watermark.expression));
        }
        if !self.primary_key.is_empty() {
            let names: Vec<&str> = self.primary_key.iter().map(|key| key.text.as_str()).collect();
            let (name, key) =
                (quoted_name(&format!("PK_{}", names.join("_"))), list(&self.primary_key));
            parts.push(format!("  CONSTRAINT {name} PRIMARY KEY ({key}) NOT ENFORCED"));
        }
        let path: Vec<String> =
            super::path::parts(&self.name.text).iter().map(|part| quoted_name(part)).collect();
        let mut text = format!("CREATE TABLE {} (\n{}\n)", path.join("."), parts.join(",\n"));
        if let Some(comment) = &self.comment {
            text.push_str(&format!("\nCOMMENT {}", quoted_text(comment)));
        }
        if let Some(distribution) = &self.distribution {
            text.push_str(&format!("\n{}", distribution.rendered()));
        }
        if !self.partitioned_by.is_empty() {
            text.push_str(&format!("\nPARTITIONED BY ({})", list(&self.partitioned_by)));
        }
        let pair = |(key, value): &(Name, Name)| option_text((&key.text, &value.text));
        let options: Vec<String> = self.options.iter().map(pair).collect();
        if !options.is_empty() {
            text.push_str(&format!("\nWITH (\n{}\n)", options.join(",\n")));
        }
        text
    }
}

/// Adds options, in the place of those of the same name.
pub(crate) fn set_options(options: &mut OptionList, new: &OptionList) {
    for (key, value) in new {
        match options.iter_mut().find(|(known, _)| known.text == key.text) {
            Some(known) => *known = (key.clone(), value.clone()),
            None => options.push((key.clone(), value.clone())),
        }
    }
}

/// An option as in the brackets of WITH, indented.
pub(super) fn option_text((key, value): (&String, &String)) -> String {
    format!("  {} = {}", quoted_text(key), quoted_text(value))
}
