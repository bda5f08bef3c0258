//! Random queries: relations made of relations, to a depth, with the types of their columns.
//!
//! A relation is a SELECT whose columns are `c0`, `c1`, … It knows whether its rows stay as they
//! are, since windows and joins bounded by time are only laid over such rows.

use crate::data::{Dice, Kind, Table};
use crate::expressions::{Column, aggregate, any_column, condition, of_kind, scalar};
use crate::sql;
use crate::sql::{Sql, join, select_list};

/// A query.
#[derive(Clone, Debug)]
pub struct Relation {
    /// Its SELECT.
    pub sql: Sql,
    /// The types of `c0`, `c1`, …
    pub kinds: Vec<Kind>,
    /// The column that is a row time; its rows stay as they are.
    pub row_time: Option<usize>,
    /// Whether its sequence means something: of an ORDER BY … LIMIT.
    pub is_ordered: bool,
}

impl Relation {
    /// A relation that has no row time.
    pub fn new(sql: Sql, kinds: Vec<Kind>) -> Relation {
        Relation { sql, kinds, row_time: None, is_ordered: false }
    }

    /// What a clause sees of it under a name.
    pub fn scope(&self, alias: &str) -> Vec<Column> {
        let column = |(position, &kind): (usize, &Kind)| Column {
            name: format!("{alias}.c{position}"),
            kind,
        };
        self.kinds.iter().enumerate().map(column).collect()
    }

    /// As it stands in FROM.
    pub fn aliased(&self, alias: &str) -> Sql {
        sql!("(", &self.sql, ") AS ", alias)
    }
}

/// Makes the queries of one database.
pub struct Grammar<'a> {
    /// The tables.
    pub tables: &'a [Table],
    /// What decides.
    pub dice: &'a mut Dice,
    /// Views that the query needs, in order.
    pub views: Vec<Sql>,
    /// How many times a table is read: with more than one the sequence is one of timing.
    pub tables_read: usize,
    /// Whether the query must mean the same in batch mode, where an aggregate of nothing has a row.
    pub is_for_batches: bool,
}

impl Grammar<'_> {
    /// A relation whose parts are nested this deep.
    pub fn relation(&mut self, depth: usize) -> Relation {
        if depth == 0 {
            return self.table();
        }
        match self.dice.below(23) {
            0 | 1 => self.projection(depth),
            2..=4 => self.group(depth),
            5 => self.distinct(depth),
            6..=8 => self.join(depth),
            9 => self.join_of_three(depth),
            10 => self.join_using(depth),
            11 | 12 => self.membership(depth),
            13 | 14 => self.set_operation(depth),
            15 | 16 => self.top_n(depth),
            17 => self.window_group(depth),
            18 => self.over(),
            19 => self.interval_join(depth),
            20 => self.deduplication(),
            21 => self.asof_join(),
            _ => self.window_join(depth),
        }
    }

    /// Some relation that is nested less deep.
    pub fn smaller(&mut self, depth: usize) -> Relation {
        let depth = self.dice.below(depth);
        self.relation(depth)
    }

    /// Any of the tables.
    pub fn any_table(&mut self) -> Table {
        self.tables_read += 1;
        self.tables[self.dice.below(self.tables.len())].clone()
    }

    /// All columns of a table, sometimes of fewer rows.
    pub fn table(&mut self) -> Relation {
        let table = self.any_table();
        let column =
            |field: &crate::data::Field| Column { name: field.name.clone(), kind: field.kind };
        let scope: Vec<Column> = table.fields.iter().map(column).collect();
        let names: Vec<Sql> = scope.iter().map(|column| Sql::one(&*column.name)).collect();
        let filter = if self.dice.percent(25) { self.filter(&scope) } else { Sql::default() };
        Relation {
            sql: sql!("SELECT ", &select_list(&names), " FROM ", table.name, &filter),
            kinds: scope.iter().map(|column| column.kind).collect(),
            row_time: table.is_timed.then_some(1),
            is_ordered: false,
        }
    }

    /// A WHERE.
    pub fn filter(&mut self, scope: &[Column]) -> Sql {
        sql!(" WHERE ", &condition(scope, self.dice))
    }

    /// A WHERE, or nothing.
    pub fn maybe_filter(&mut self, scope: &[Column]) -> Sql {
        if self.dice.percent(35) { self.filter(scope) } else { Sql::default() }
    }

    /// One to four expressions over a scope.
    pub fn expressions(&mut self, scope: &[Column]) -> (Sql, Vec<Kind>) {
        let count = 2 + self.dice.below(3);
        let (texts, kinds): (Vec<Sql>, Vec<Kind>) =
            (0..count).map(|_| scalar(scope, self.dice)).unzip();
        (select_list(&texts), kinds)
    }

    fn projection(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let scope = input.scope("q");
        let (list, kinds) = self.expressions(&scope);
        let filter = self.filter(&scope);
        Relation::new(sql!("SELECT ", &list, " FROM ", &input.aliased("q"), &filter), kinds)
    }

    fn distinct(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let scope = input.scope("q");
        let (list, kinds) = self.expressions(&scope);
        let filter = self.maybe_filter(&scope);
        Relation::new(
            sql!("SELECT DISTINCT ", &list, " FROM ", &input.aliased("q"), &filter),
            kinds,
        )
    }

    fn group(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let scope = input.scope("q");
        let keys: Vec<_> = (0..self.dice.below(3)).map(|_| scalar(&scope, self.dice)).collect();
        let filter = self.maybe_filter(&scope);
        let (list, kinds) = self.keys_and_aggregates(&keys, &scope);
        let mut sql = sql!("SELECT ", &list, " FROM ", &input.aliased("q"), &filter);
        // Of no rows the empty set of keys would have a row there.
        let has_rows = " HAVING COUNT(*) > 0";
        let ours = if self.is_for_batches { has_rows } else { "" };
        let has_rows = Sql::two(ours, has_rows);
        let names: Vec<Sql> = keys.into_iter().map(|(key, _)| key).collect();
        if names.is_empty() {
            sql.push(&has_rows);
        } else if let Some(sets) = self.maybe_sets(&names) {
            sql.push(&sql!(" GROUP BY ", &sets, &has_rows));
        } else {
            sql.push(&sql!(" GROUP BY ", &join(&names, ", "), &self.having(&scope)));
        }
        Relation::new(sql, kinds)
    }

    /// The SELECT list of a GROUP BY.
    pub fn keys_and_aggregates(
        &mut self,
        keys: &[(Sql, Kind)],
        scope: &[Column],
    ) -> (Sql, Vec<Kind>) {
        let count = 1 + self.dice.below(3);
        let aggregates = (0..count).map(|_| aggregate(scope, self.dice));
        let (texts, kinds): (Vec<Sql>, Vec<Kind>) = keys.iter().cloned().chain(aggregates).unzip();
        (select_list(&texts), kinds)
    }

    /// Several sets of these keys, or nothing.
    pub fn maybe_sets(&mut self, keys: &[Sql]) -> Option<Sql> {
        let is_repeated =
            |key: &Sql| keys.iter().filter(|other| other.ours == key.ours).count() > 1;
        // A cast to the type that a value has is the value itself here, and a key of its own there.
        let is_cast = |key: &Sql| key.ours.contains("CAST(");
        let unfit = |key: &Sql| is_repeated(key) || is_cast(key);
        if keys.is_empty() || keys.iter().any(unfit) || self.dice.percent(60) {
            return None;
        }
        let all = join(keys, ", ");
        Some(match self.dice.below(4) {
            0 => sql!("ROLLUP (", &all, ")"),
            1 => sql!("CUBE (", &all, ")"),
            2 => sql!("GROUPING SETS ((", &all, "), ())"),
            _ => {
                let each: Vec<Sql> = keys.iter().map(|key| sql!("(", key, ")")).collect();
                sql!("GROUPING SETS (", &join(&each, ", "), ")")
            }
        })
    }

    /// A HAVING, or nothing.
    pub fn having(&mut self, scope: &[Column]) -> Sql {
        if self.dice.percent(70) {
            return Sql::default();
        }
        let column = any_column(scope, self.dice);
        match self.dice.below(3) {
            0 => sql!(" HAVING COUNT(*) > ", self.dice.below(4).to_string()),
            1 => sql!(" HAVING COUNT(", column.name, ") = ", self.dice.below(3).to_string()),
            _ => sql!(" HAVING MAX(", column.name, ") IS NOT NULL"),
        }
    }

    fn membership(&mut self, depth: usize) -> Relation {
        let (outer, inner) = (self.relation(depth - 1), self.smaller(depth));
        let (mut scope, inner_scope) = (outer.scope("a"), inner.scope("b"));
        let negation = self.dice.pick(&["", "NOT "]);
        let value = any_column(&scope, self.dice);
        let partners = of_kind(&inner_scope, value.kind);
        let test = if partners.is_empty() {
            let filter = self.maybe_filter(&inner_scope);
            sql!(negation, "EXISTS (SELECT 1 FROM ", &inner.aliased("b"), &filter, ")")
        } else {
            let partner = partners[self.dice.below(partners.len())].name.clone();
            let more = condition(&inner_scope, self.dice);
            let more = if self.dice.percent(40) { more } else { Sql::one("1 = 1") };
            let from = sql!(" FROM ", &inner.aliased("b"), " WHERE ", &more);
            if self.dice.percent(50) {
                sql!(value.name.as_str(), " ", negation, "IN (SELECT ", partner, &from, ")")
            } else {
                let equal = format!(" AND {partner} = {}", value.name);
                sql!(negation, "EXISTS (SELECT ", partner, &from, equal, ")")
            }
        };
        let more = match self.dice.percent(30) {
            true => sql!(" AND ", &condition(&scope, self.dice)),
            false => Sql::default(),
        };
        scope.truncate(4);
        let (list, kinds) = self.expressions(&scope);
        let from = outer.aliased("a");
        Relation::new(sql!("SELECT ", &list, " FROM ", &from, " WHERE ", &test, &more), kinds)
    }

    fn set_operation(&mut self, depth: usize) -> Relation {
        let (left, right) = (self.relation(depth - 1), self.smaller(depth));
        let (left_scope, right_scope) = (left.scope("a"), right.scope("b"));
        let mut pairs = Vec::new();
        for column in &left_scope {
            let partners = of_kind(&right_scope, column.kind);
            if !partners.is_empty() {
                let partner = partners[self.dice.below(partners.len())];
                pairs.push((column.clone(), partner.name.clone()));
            }
        }
        if pairs.is_empty() {
            return left;
        }
        while pairs.len() > 2 {
            pairs.remove(self.dice.below(pairs.len()));
        }
        let operation = self.dice.pick(&[
            "INTERSECT",
            "EXCEPT",
            "UNION",
            "UNION ALL",
            "INTERSECT ALL",
            "EXCEPT ALL",
        ]);
        let lefts: Vec<Sql> = pairs.iter().map(|(left, _)| Sql::one(&*left.name)).collect();
        let rights: Vec<Sql> = pairs.iter().map(|(_, right)| Sql::one(&**right)).collect();
        let (left_filter, right_filter) =
            (self.maybe_filter(&left_scope), self.maybe_filter(&right_scope));
        let sql = sql!(
            sql!("SELECT ", &select_list(&lefts), " FROM ", &left.aliased("a"), &left_filter),
            format!(" {operation} "),
            sql!("SELECT ", &select_list(&rights), " FROM ", &right.aliased("b"), &right_filter),
        );
        Relation::new(sql, pairs.iter().map(|(column, _)| column.kind).collect())
    }
}
