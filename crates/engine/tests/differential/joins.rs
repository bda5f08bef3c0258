//! Random joins: without a bound in time, bounded by row times, by the last row before a time, and
//! of windows.

use crate::data::Kind;
use crate::expressions::{Column, any_column, condition, of_kind};
use crate::grammar::{Grammar, Relation};
use crate::sql;
use crate::sql::{Sql, select_list};

/// Which side is read first; DuckDB passes over them as comments. The last two are none.
const HINTS: [&str; 7] = [
    "/*+ BROADCAST(b) */ ",
    "/*+ BROADCAST(a) */ ",
    "/*+ SHUFFLE_HASH(b) */ ",
    "/*+ SHUFFLE_HASH(a) */ ",
    "/*+ NEST_LOOP(b) */ ",
    "",
    "",
];
const KINDS: [&str; 5] = [" JOIN ", " LEFT JOIN ", " RIGHT JOIN ", " FULL JOIN ", " INNER JOIN "];

impl Grammar<'_> {
    /// A join without a bound in time; now and then of a relation with itself.
    pub fn join(&mut self, depth: usize) -> Relation {
        let left = self.relation(depth - 1);
        let right = if self.dice.percent(15) {
            self.tables_read += self.tables_read.max(1);
            left.clone()
        } else {
            self.smaller(depth)
        };
        let (left_scope, right_scope) = (left.scope("a"), right.scope("b"));
        let equality = self.equality(&left_scope, &right_scope);
        let both = [left_scope, right_scope].concat();
        let on = self.maybe_more(equality, &both);
        let (list, kinds) = self.expressions(&both);
        let sql = if self.dice.percent(10) {
            sql!(&left.aliased("a"), ", ", &right.aliased("b"), " WHERE ", &on)
        } else {
            let filter = self.maybe_filter(&both);
            let kind = self.dice.pick(&KINDS);
            sql!(&left.aliased("a"), kind, &right.aliased("b"), " ON ", &on, &filter)
        };
        let hint = if self.dice.percent(30) { self.dice.pick(&HINTS) } else { "" };
        Relation::new(sql!("SELECT ", hint, &list, " FROM ", &sql), kinds)
    }

    /// Each row with the time of the last one before it. Which of several rows of that time is
    /// found is not reported.
    pub fn asof_join(&mut self) -> Relation {
        let (Some((left, scope)), Some((right, _))) = (self.timed_table(), self.timed_table())
        else {
            return self.group_of_table();
        };
        let key = self.dice.pick(&["f2", "f3"]);
        let kind = self.dice.pick(&[" ASOF JOIN ", " ASOF LEFT JOIN "]);
        let condition = "a.ts >= b.ts";
        let equal = format!("a.{key} = b.{key}");
        let on = Sql::two(
            format!(" MATCH_CONDITION ({condition}) ON {equal}"),
            format!(" ON {equal} AND {condition}"),
        );
        let other = any_column(&scope, self.dice);
        let values = [
            Sql::one("a.i"),
            Sql::one(format!("a.{}", other.name)),
            Sql::one(format!("b.{key}")),
            Sql::one("b.ts"),
        ];
        let key_kind = if key == "f2" { Kind::Int } else { Kind::String };
        let from = sql!(left, " AS a", kind, right, " AS b", &on);
        let kinds = vec![Kind::Int, other.kind, key_kind, Kind::Time];
        Relation::new(sql!("SELECT ", &select_list(&values), " FROM ", &from), kinds)
    }

    /// `a JOIN b ON … JOIN c ON …`
    pub fn join_of_three(&mut self, depth: usize) -> Relation {
        let relations = [self.relation(depth - 1), self.table(), self.table()];
        let [a, b, c] = ["a", "b", "c"].map(str::to_owned);
        let scopes = [relations[0].scope(&a), relations[1].scope(&b), relations[2].scope(&c)];
        let first = self.equality(&scopes[0], &scopes[1]);
        let first = self.maybe_more(first, &scopes[..2].concat());
        let outer = scopes[self.dice.below(2)].clone();
        let second = self.equality(&outer, &scopes[2]);
        let (list, kinds) = self.expressions(&scopes.concat());
        let mut sql = sql!("SELECT ", &list, " FROM ", &relations[0].aliased(&a));
        for (position, on) in [(1, first), (2, second)] {
            let alias = [&a, &b, &c][position];
            let kind = self.dice.pick(&KINDS);
            sql.push(&sql!(kind, &relations[position].aliased(alias), " ON ", &on));
        }
        Relation::new(sql, kinds)
    }

    /// A join by a column of one name.
    pub fn join_using(&mut self, depth: usize) -> Relation {
        let (left, right) = (self.relation(depth - 1), self.smaller(depth));
        let shared: Vec<usize> = (0..left.kinds.len().min(right.kinds.len()))
            .filter(|&position| left.kinds[position] == right.kinds[position])
            .collect();
        if shared.is_empty() {
            return left;
        }
        let key = shared[self.dice.below(shared.len())];
        let merged = Column { name: format!("c{key}"), kind: left.kinds[key] };
        let mut scope = [left.scope("a"), right.scope("b")].concat();
        scope.retain(|column| !column.name.ends_with(&format!(".{}", merged.name)));
        scope.push(merged.clone());
        let (list, kinds) = self.expressions(&scope);
        let kind = self.dice.pick(&KINDS);
        let using = format!(" USING ({})", merged.name);
        let from = sql!(&left.aliased("a"), kind, &right.aliased("b"), using);
        Relation::new(sql!("SELECT ", &list, " FROM ", &from), kinds)
    }

    /// An equality of both sides, where they have a type in common.
    fn equality(&mut self, left: &[Column], right: &[Column]) -> Sql {
        let position = self.dice.below(left.len());
        let order = (position..left.len()).chain(0..position);
        for column in order.map(|position| &left[position]) {
            let partners = of_kind(right, column.kind);
            if column.kind != Kind::Boolean && !partners.is_empty() {
                let partner = &partners[self.dice.below(partners.len())].name;
                let null_safe = self.dice.percent(12);
                let equal = if null_safe { "IS NOT DISTINCT FROM" } else { "=" };
                let plus = column.kind.is_number() && self.dice.percent(12);
                let plus = if plus { " + 1" } else { "" };
                return Sql::one(format!("{}{plus} {equal} {partner}", column.name));
            }
        }
        Sql::one("1 = 1")
    }

    fn maybe_more(&mut self, equality: Sql, scope: &[Column]) -> Sql {
        if self.dice.percent(35) {
            sql!(&equality, " AND ", &condition(scope, self.dice))
        } else {
            equality
        }
    }

    /// A relation with a row time, or none where the dice find none soon.
    pub fn timed(&mut self, depth: usize) -> Option<Relation> {
        let read_before = self.tables_read;
        for _ in 0..4 {
            let relation = match self.dice.below(3) {
                0 if depth > 1 => self.interval_join(depth - 1),
                1 if depth > 1 => self.window_group(depth - 1),
                _ => self.table(),
            };
            if relation.row_time.is_some() {
                return Some(relation);
            }
            self.tables_read = read_before;
        }
        None
    }

    /// A join of rows that are at most so far apart in time.
    pub fn interval_join(&mut self, depth: usize) -> Relation {
        let (Some(left), Some(right)) = (self.timed(depth), self.timed(1)) else {
            return self.group_of_table();
        };
        let (left_scope, right_scope) = (left.scope("a"), right.scope("b"));
        let (Some(left_time), Some(right_time)) = (left.row_time, right.row_time) else {
            return self.group_of_table();
        };
        let (before, after) = (self.dice.below(6), self.dice.below(6));
        let bounds = format!(
            " AND a.c{left_time} BETWEEN b.c{right_time} - INTERVAL '{before}' SECOND \
             AND b.c{right_time} + INTERVAL '{after}' SECOND"
        );
        let equality = self.equality(&left_scope, &right_scope);
        let both = [left_scope, right_scope].concat();
        let on = sql!(&self.maybe_more(equality, &both), bounds);
        let (list, mut kinds) = self.expressions(&both);
        let kind = self.dice.pick(&KINDS);
        // Only of an inner join the time is never NULL.
        let has_time = matches!(kind, " JOIN " | " INNER JOIN ");
        let time = format!(", a.c{left_time} AS c{}", kinds.len());
        let row_time = has_time.then_some(kinds.len());
        kinds.push(Kind::Time);
        let from = sql!(&left.aliased("a"), kind, &right.aliased("b"), " ON ", &on);
        let mut relation = Relation::new(sql!("SELECT ", &list, time, " FROM ", &from), kinds);
        relation.row_time = row_time;
        relation
    }
}
