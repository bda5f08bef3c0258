//! Which names a clause can see.
//!
//! A scope lists the relations of a FROM clause side by side; a column's position in the scope is
//! its position in the joined input. Names of columns and relations are case-sensitive, as in
//! Flink.
//!
//! **Invariants:**
//! - relations are ranges of columns, left to right, without gaps;
//! - `fields` may be longer than the relations' columns: a FULL JOIN USING appends its merged
//!   columns;
//! - a name is ambiguous if two columns fit, also if their values are equal; USING alone makes two
//!   columns one.
//!
//! ```text
//! FROM a JOIN b USING (k)        relations: a = 0..2, b = 2..4
//! fields:  a.k | a.v | b.k | b.w
//! name k:  column 0 (hidden: 2)  a.k: 0   b.k: 2   *: k, v, w
//! ```

use std::sync::Arc;

use sqlparser::ast::{Expr as SqlExpr, Ident};
use thalweg_core::{DataType, Error, Result};
use thalweg_expr::Expr;

use super::near::did_you_mean;
use super::spans::{ident_span, idents_span};
use crate::logical::Field;

/// A named range of columns.
#[derive(Clone, Debug)]
pub struct Relation {
    /// Its alias or table name; a sub-query may have none.
    pub alias: Option<String>,
    /// The position of its first column.
    pub start: usize,
    /// How many columns.
    pub len: usize,
    /// The catalog and the database of a table that has no alias; else nothing.
    pub qualifiers: Vec<String>,
}

impl Relation {
    /// How many parts of a name say that it is this relation: its alias, with the database or the
    /// database and the catalog in front of it.
    fn named_by(&self, parts: &[Ident]) -> Option<usize> {
        let alias = self.alias.as_ref()?;
        (1..=self.qualifiers.len()).rev().find_map(|before| {
            let own = self.qualifiers[self.qualifiers.len() - before..].iter().chain([alias]);
            let is_named = own.zip(parts).all(|(own, part)| *own == part.value);
            (is_named && parts.len() > before + 1).then_some(before + 1)
        })
    }
}

/// A column of a join USING: its name alone means both sides'.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The name in USING.
    pub name: String,
    /// The column that it means.
    pub column: usize,
    /// The columns of both sides, which only a qualified name means.
    /// Of a chain of USING all sides: `a JOIN b USING (k) JOIN c USING (k)` has three.
    pub sides: Vec<usize>,
}

/// The columns that a clause can see.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The relations, left to right.
    pub relations: Vec<Relation>,
    /// All their columns.
    pub fields: Arc<[Field]>,
    /// In a sub-query, where its own columns begin: their names hide those of the query around.
    /// So a name that the sub-query's FROM does not know is looked up outside: the query is
    /// correlated.
    pub inner_from: Option<usize>,
    /// What joins USING made one.
    pub merged: Vec<Merged>,
    /// Where columns begin that no name and no `*` reaches: values of sub-queries.
    pub hidden_from: Option<usize>,
}

impl Scope {
    /// The columns of one relation.
    pub fn of(alias: Option<String>, fields: Arc<[Field]>) -> Self {
        let qualifiers = Vec::new();
        Scope::of_relations(
            vec![Relation { alias, start: 0, len: fields.len(), qualifiers }],
            fields,
        )
    }

    fn of_relations(relations: Vec<Relation>, fields: Arc<[Field]>) -> Self {
        Scope { relations, fields, inner_from: None, merged: Vec::new(), hidden_from: None }
    }

    /// Nothing to see: constants only.
    pub fn empty() -> Self {
        Scope::of_relations(Vec::new(), Arc::from(Vec::new()))
    }

    /// Refuses to join relations of which two have the same name.
    /// A self-join needs an alias for one side.
    pub fn check_names(&self, right: &Scope) -> Result<()> {
        let names = |scope: &Scope| -> Vec<String> {
            scope.relations.iter().filter_map(|relation| relation.alias.clone()).collect()
        };
        let known = names(self);
        match names(right).iter().find(|name| known.contains(name)) {
            None => Ok(()),
            Some(name) => Err(Error::plan(format!("there are two relations '{name}' in FROM"))
                .hint(format!("give one of them another name: {name} AS {name}2"))),
        }
    }

    /// Two scopes side by side, with the fields of the joined relation.
    pub fn joined(&self, right: &Scope, fields: Arc<[Field]>) -> Self {
        let shift = self.fields.len();
        let mut relations = self.relations.clone();
        relations.extend(
            right.relations.iter().map(|r| Relation { start: r.start + shift, ..r.clone() }),
        );
        let moved = right.merged.iter().map(|merged| Merged {
            name: merged.name.clone(),
            column: merged.column + shift,
            sides: merged.sides.iter().map(|side| side + shift).collect(),
        });
        let merged = self.merged.iter().cloned().chain(moved).collect();
        Scope { merged, ..Scope::of_relations(relations, fields) }
    }

    /// Makes one name mean one column in the place of both sides'.
    /// Sides that are merged columns themselves bring their own sides along.
    pub fn merge(&mut self, name: &str, column: usize, sides: [usize; 2]) {
        let (before, others) = std::mem::take(&mut self.merged)
            .into_iter()
            .partition::<Vec<_>, _>(|merged| sides.contains(&merged.column));
        self.merged = others;
        let sides = before.into_iter().flat_map(|merged| merged.sides).chain(sides).collect();
        self.merged.push(Merged { name: name.to_owned(), column, sides });
    }

    /// The columns of `*`: those of USING first, and once.
    pub fn all_columns(&self) -> Vec<usize> {
        let merged: Vec<usize> = self.merged.iter().map(|merged| merged.column).collect();
        let is_plain = |column: &usize| {
            !self.merged.iter().any(|m| m.column == *column || m.sides.contains(column))
        };
        let own = 0..self.hidden_from.unwrap_or(self.fields.len());
        merged.iter().copied().chain(own.filter(is_plain)).collect()
    }

    /// True for a column of one side of a USING, which its name alone does not mean.
    fn is_hidden(&self, column: usize) -> bool {
        self.merged.iter().any(|m| m.column != column && m.sides.contains(&column))
    }

    /// The column at a position.
    pub fn column(&self, index: usize) -> Expr {
        Expr::column(index, self.fields[index].column_type.clone())
    }

    /// The position of the column that a name or a qualified name means.
    pub fn resolve(&self, parts: &[Ident]) -> Result<usize> {
        match parts {
            [name] => self.resolve_bare(name),
            [relation, name] => self.resolve_qualified(relation, name),
            _ => Err(Error::plan(format!("'{}' has too many parts", dotted(parts)))
                .hint("name a column as column or relation.column")
                .at(idents_span(parts))),
        }
    }

    /// The column that a name means, and what stands behind it: names of fields of ROW values.
    /// Where both a relation and a column have the first name, the relation is meant if it has a
    /// column of the second.
    pub fn resolve_path<'p>(&self, parts: &'p [Ident]) -> Result<(usize, &'p [Ident])> {
        if let Some(taken) = self.relations.iter().find_map(|r| r.named_by(parts)) {
            let column = self.resolve_qualified(&parts[taken - 1], &parts[taken])?;
            return Ok((column, &parts[taken + 1..]));
        }
        let [first, second, rest @ ..] = parts else { return Ok((self.resolve(parts)?, &[])) };
        let is_column =
            |r: &Relation| self.positions(r.start..r.start + r.len, &second.value).next().is_some();
        let named = |r: &&Relation| r.alias.as_ref() == Some(&first.value);
        let is_relation = self.relations.iter().any(|r| named(&r));
        let has_column = self.relations.iter().filter(named).any(is_column);
        // Of what is neither a relation nor a ROW, it is said that it has no fields.
        let may_have_fields = |i: usize| {
            !is_relation || matches!(self.fields[i].column_type.data_type, DataType::Row(_))
        };
        let mut columns = self.positions(0..self.fields.len(), &first.value);
        if !has_column && columns.any(may_have_fields) {
            return Ok((self.resolve_bare(first)?, &parts[1..]));
        }
        Ok((self.resolve_qualified(first, second)?, rest))
    }

    fn resolve_bare(&self, name: &Ident) -> Result<usize> {
        let own = self.inner_from.unwrap_or(0)..self.fields.len();
        let is_own = self.positions(own.clone(), &name.value).next().is_some();
        let seen = if is_own { own } else { 0..self.fields.len() };
        let mut found = self.positions(seen, &name.value).filter(|&i| !self.is_hidden(i));
        let Some(first) = found.next() else { return Err(self.unknown(name)) };
        if found.next().is_some() {
            let hint = match self.qualifiers(&name.value).as_slice() {
                [] => "give one of the columns another name with AS".to_string(),
                relations => format!("write {}", either(relations, &name.value)),
            };
            return Err(Error::plan(format!("column '{}' is ambiguous", name.value))
                .hint(hint)
                .at(ident_span(name)));
        }
        Ok(first)
    }

    fn resolve_qualified(&self, relation: &Ident, name: &Ident) -> Result<usize> {
        let mut named =
            self.relations.iter().filter(|r| r.alias.as_deref() == Some(relation.value.as_str()));
        let Some(range) = named.next() else {
            return Err(self.unknown_relation(relation));
        };
        let mut found = self.positions(range.start..range.start + range.len, &name.value);
        let span = idents_span(&[relation.clone(), name.clone()]);
        match (found.next(), found.next()) {
            (Some(first), None) => Ok(first),
            (Some(_), Some(_)) => {
                Err(Error::plan(format!("column '{}.{}' is ambiguous", relation.value, name.value))
                    .hint("give one of the columns another name with AS")
                    .at(span))
            }
            (None, _) => {
                let candidates =
                    self.fields[range.start..range.start + range.len].iter().map(|f| &*f.name);
                Err(missing_column(
                    &format!("{}.{}", relation.value, name.value),
                    &name.value,
                    candidates,
                )
                .at(span))
            }
        }
    }

    fn positions<'a>(
        &'a self,
        range: std::ops::Range<usize>,
        name: &'a str,
    ) -> impl Iterator<Item = usize> + 'a {
        range.filter(move |&i| self.fields[i].name == name)
    }

    /// The aliases of the relations that have a column of this name.
    fn qualifiers(&self, name: &str) -> Vec<String> {
        let has = |r: &&Relation| self.positions(r.start..r.start + r.len, name).next().is_some();
        self.relations.iter().filter(has).filter_map(|r| r.alias.clone()).collect()
    }

    fn unknown(&self, name: &Ident) -> Error {
        missing_column(&name.value, &name.value, self.fields.iter().map(|f| &*f.name))
            .at(ident_span(name))
    }

    /// The error for a relation that is not in the FROM clause.
    pub fn unknown_relation(&self, name: &Ident) -> Error {
        let aliases = self.relations.iter().filter_map(|r| r.alias.as_deref());
        let error = Error::plan(format!("there is no relation '{}' in FROM", name.value));
        did_you_mean(error, &name.value, aliases).at(ident_span(name))
    }
}

/// The error for a column that does not exist, with near misses or else all names.
pub fn missing_column<'a>(
    shown: &str,
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Error {
    let candidates: Vec<&str> = candidates.collect();
    let error = Error::plan(format!("there is no column '{shown}'"));
    let error = did_you_mean(error, name, candidates.iter().copied());
    if candidates.is_empty() {
        return error.hint("there is no FROM clause, so there are no columns");
    }
    let listed: Vec<&str> = candidates.iter().copied().take(12).collect();
    let more = if candidates.len() > listed.len() { ", …" } else { "" };
    error.hint(format!("the columns here are {}{more}", listed.join(", ")))
}

/// A dotted name.
pub fn dotted(parts: &[Ident]) -> String {
    parts.iter().map(|p| p.value.as_str()).collect::<Vec<_>>().join(".")
}

/// The name parts of an expression that is a plain or qualified name.
pub fn name_parts(expr: &SqlExpr) -> Option<&[Ident]> {
    match expr {
        SqlExpr::Identifier(ident) => Some(std::slice::from_ref(ident)),
        SqlExpr::CompoundIdentifier(parts) => Some(parts),
        SqlExpr::Nested(inner) => name_parts(inner),
        _ => None,
    }
}

fn either(relations: &[String], name: &str) -> String {
    relations.iter().map(|r| format!("{r}.{name}")).collect::<Vec<_>>().join(" or ")
}
