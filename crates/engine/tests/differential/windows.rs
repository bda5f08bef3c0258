//! Random windows, functions OVER rows, Top-N, deduplication, and ORDER BY … LIMIT.

use crate::data::Kind;
use crate::expressions::{Column, aggregate_call, any_column, of_kind};
use crate::grammar::{Grammar, Relation};
use crate::sql;
use crate::sql::{Sql, join, select_list, sort_key, windowed};

impl Grammar<'_> {
    /// What stands in for a relation that needs a row time where there is none.
    pub fn group_of_table(&mut self) -> Relation {
        let input = self.table();
        let scope = input.scope("q");
        let key = any_column(&scope, self.dice);
        let keys = [(Sql::one(&*key.name), key.kind)];
        let (list, kinds) = self.keys_and_aggregates(&keys, &scope);
        let from = input.aliased("q");
        Relation::new(sql!("SELECT ", &list, " FROM ", &from, " GROUP BY ", key.name), kinds)
    }

    /// A view of a relation with a row time, its columns and windows of random size.
    fn windows(&mut self, depth: usize) -> Option<(Sql, Vec<Column>)> {
        let input = self.timed(depth)?;
        let time = input.row_time?;
        let view = format!("v{}", self.views.len());
        self.views.push(sql!(
            &Sql::two("CREATE VIEW ", "CREATE OR REPLACE TEMP VIEW "),
            &view,
            " AS ",
            &input.sql,
            ";\n"
        ));
        let (slide, size) = self.dice.pick(&[(5, 5), (10, 10), (60, 60), (5, 15), (2, 4)]);
        let scope = input.scope("q");
        Some((sql!(&windowed(&view, &format!("c{time}"), slide, size), " AS q"), scope))
    }

    /// A GROUP BY of windows and keys.
    pub fn window_group(&mut self, depth: usize) -> Relation {
        let Some((from, scope)) = self.windows(depth) else { return self.group_of_table() };
        let mut keys: Vec<_> =
            vec![(Sql::one("q.window_start"), Kind::Time), (Sql::one("q.window_end"), Kind::Time)];
        let has_time = self.dice.percent(60);
        if has_time {
            keys.push((Sql::one("q.window_time"), Kind::Time));
        }
        let own = keys.len();
        for _ in 0..self.dice.below(3) {
            let key = any_column(&scope, self.dice);
            keys.push((Sql::one(key.name), key.kind));
        }
        let filter = self.maybe_filter(&scope);
        let (list, kinds) = self.keys_and_aggregates(&keys, &scope);
        let having = self.having(&scope);
        let names: Vec<Sql> = keys.into_iter().map(|(key, _)| key).collect();
        let mut by = join(&names, ", ");
        if let Some(sets) = self.maybe_sets(&names[own..]) {
            by = sql!(&join(&names[..own], ", "), ", ", &sets);
        }
        let sql = sql!("SELECT ", &list, " FROM ", &from, &filter, " GROUP BY ", &by, &having);
        Relation { sql, kinds, row_time: has_time.then_some(2), is_ordered: false }
    }

    /// A join of two windowing functions with the same windows.
    pub fn window_join(&mut self, depth: usize) -> Relation {
        let (Some(left), Some(right)) = (self.timed(depth), self.timed(1)) else {
            return self.group_of_table();
        };
        let (slide, size) = self.dice.pick(&[(5, 5), (10, 10), (60, 60), (5, 15)]);
        let mut sides = Vec::new();
        for relation in [&left, &right] {
            let view = format!("v{}", self.views.len());
            let create = Sql::two("CREATE VIEW ", "CREATE OR REPLACE TEMP VIEW ");
            self.views.push(sql!(&create, &view, " AS ", &relation.sql, ";\n"));
            let time = format!("c{}", relation.row_time.unwrap_or_default());
            sides.push(sql!("(SELECT * FROM ", &windowed(&view, &time, slide, size), ")"));
        }
        let (left_scope, right_scope) = (left.scope("a"), right.scope("b"));
        let key = any_column(&left_scope, self.dice);
        let partners = of_kind(&right_scope, key.kind);
        let equality = match partners.is_empty() {
            true => String::new(),
            false => {
                format!(" AND {} = {}", key.name, partners[self.dice.below(partners.len())].name)
            }
        };
        let both = [left_scope, right_scope].concat();
        let (list, kinds) = self.expressions(&both);
        let kind = self.dice.pick(&[" JOIN ", " LEFT JOIN ", " RIGHT JOIN ", " FULL JOIN "]);
        let on = " ON a.window_start = b.window_start AND a.window_end = b.window_end";
        let sql = sql!(
            "SELECT ", &list, " FROM ", &sides[0], " AS a", kind, &sides[1], " AS b", on, equality
        );
        Relation::new(sql, kinds)
    }

    /// A function of the rows before a row.
    pub fn over(&mut self) -> Relation {
        let Some((table, scope)) = self.timed_table() else { return self.group_of_table() };
        let key = any_column(&scope, self.dice).name;
        let partition = match self.dice.percent(75) {
            true => format!("PARTITION BY {key} "),
            false => String::new(),
        };
        let arrival = Sql::two("ORDER BY ts", "ORDER BY ts, i");
        let (rows, seconds) = (self.dice.below(5), self.dice.below(8));
        let row_count =
            if self.dice.percent(30) { "UNBOUNDED".to_owned() } else { rows.to_string() };
        let call_and_frame = match self.dice.below(4) {
            0 => {
                let column = any_column(&scope, self.dice);
                let call = format!("LAG({}, {})", column.name, 1 + rows);
                ((Sql::one(call), column.kind), arrival)
            }
            1 => {
                let frame = format!(" ROWS BETWEEN {row_count} PRECEDING AND CURRENT ROW");
                (aggregate_call(&scope, self.dice), sql!(&arrival, frame))
            }
            2 => {
                let frame = format!(
                    "ORDER BY ts RANGE BETWEEN INTERVAL '{seconds}' SECOND PRECEDING AND CURRENT ROW"
                );
                (aggregate_call(&scope, self.dice), Sql::one(frame))
            }
            _ => (aggregate_call(&scope, self.dice), Sql::one("ORDER BY ts")),
        };
        let ((call, kind), frame) = call_and_frame;
        let over = sql!(" OVER (", partition, &frame, ")");
        // What stands for AVG in the other dialect is two calls, each over the same rows.
        let theirs = call.theirs.replace(" // ", &format!("{} // ", over.theirs));
        let value = Sql::two(call.ours + &over.ours, theirs + &over.theirs);
        let values = [Sql::one("i"), Sql::one(key.as_str()), value];
        let key_kind = scope.iter().find(|column| column.name == key).map_or(Kind::Int, |c| c.kind);
        let filter = self.maybe_filter(&scope);
        let sql = sql!("SELECT ", &select_list(&values), " FROM ", table, &filter);
        Relation::new(sql, vec![Kind::Int, key_kind, kind])
    }

    /// A table with a row time, and its columns without `DISTINCT` in mind.
    pub fn timed_table(&mut self) -> Option<(&'static str, Vec<Column>)> {
        let table = self.any_table();
        let column =
            |field: &crate::data::Field| Column { name: field.name.clone(), kind: field.kind };
        table.is_timed.then(|| (table.name, table.fields.iter().map(column).collect()))
    }

    /// The first or the last row of each key.
    pub fn deduplication(&mut self) -> Relation {
        let Some((table, scope)) = self.timed_table() else { return self.group_of_table() };
        let key = any_column(&scope, self.dice);
        let filter = self.maybe_filter(&scope);
        let order = match self.dice.percent(50) {
            true => Sql::two("ts", "ts, i"),
            false => Sql::two("ts DESC", "ts DESC, i DESC"),
        };
        let other = any_column(&scope, self.dice);
        let values = [Sql::one("i"), Sql::one(&*key.name), Sql::one(&*other.name)];
        let number =
            sql!("ROW_NUMBER() OVER (PARTITION BY ", &*key.name, " ORDER BY ", &order, ")");
        let inner = sql!("SELECT *, ", &number, " AS n FROM ", table, &filter);
        let sql = sql!("SELECT ", &select_list(&values), " FROM (", &inner, ") AS q WHERE n = 1");
        Relation::new(sql, vec![Kind::Int, key.kind, other.kind])
    }

    /// The first rows of each key, or of all, in an order of values.
    pub fn top_n(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let scope = input.scope("q");
        let function = self.dice.pick(&["ROW_NUMBER", "ROW_NUMBER", "RANK", "DENSE_RANK"]);
        let keys = self.sort_keys(&scope);
        // Ranks are the same for any order of equal rows; the number of a row needs a total order.
        let keys = if function == "ROW_NUMBER" { keys } else { keys[..1].to_vec() };
        let partition = match self.dice.percent(70) {
            true => format!("PARTITION BY {} ", any_column(&scope, self.dice).name),
            false => String::new(),
        };
        let number = sql!(function, "() OVER (", partition, "ORDER BY ", &join(&keys, ", "), ")");
        let filter = self.maybe_filter(&scope);
        let inner = sql!("SELECT *, ", &number, " AS n FROM ", &input.aliased("q"), &filter);
        let mut outer = input.scope("t");
        outer.truncate(4);
        let with_number = self.dice.percent(40);
        if with_number {
            outer.push(Column { name: "t.n".to_owned(), kind: Kind::BigInt });
        }
        let bound = format!(") AS t WHERE t.n <= {}", 1 + self.dice.below(4));
        let names: Vec<Sql> = outer.iter().map(|column| Sql::one(&*column.name)).collect();
        let sql = sql!("SELECT ", &select_list(&names), " FROM (", &inner, bound);
        Relation::new(sql, outer.iter().map(|column| column.kind).collect())
    }

    /// Keys that leave only equal rows without an order.
    fn sort_keys(&mut self, scope: &[Column]) -> Vec<Sql> {
        let mut columns = scope.to_vec();
        let mut keys = Vec::new();
        while !columns.is_empty() {
            let column = columns.remove(self.dice.below(columns.len()));
            keys.push(sort_key(&column.name, self.dice.percent(50)));
        }
        keys
    }

    /// The first rows of a whole query.
    pub fn limited(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth);
        let scope = input.scope("q");
        let names: Vec<Sql> = scope.iter().map(|column| Sql::one(&*column.name)).collect();
        let keys = self.sort_keys(&scope);
        let limit = format!(" LIMIT {}", 1 + self.dice.below(6));
        let by = sql!(" ORDER BY ", &join(&keys, ", "), limit);
        let sql = sql!("SELECT ", &select_list(&names), " FROM ", &input.aliased("q"), &by);
        Relation { sql, kinds: input.kinds, row_time: None, is_ordered: true }
    }
}
