//! What Flink's parser and validator refuse in the text of queries that Thalweg accepts.

use sqlparser::ast as sql;
use thalweg_core::Span;

use super::finding::Finding;
use super::reserved::is_reserved;
use super::shared_names;
use super::syntax::{Syntax, walk_expression, walk_query};
use crate::bind::children::children;
use crate::bind::from::sample;
use crate::bind::functions::function_name;
use crate::bind::spans::{ident_span, span_of};
use crate::bind::state_table::state_call;

/// Functions that Flink has not, and what it has instead.
const NOT_IN_FLINK: [(&str, &str); 3] = [
    ("COUNT_CHAR", "(CHAR_LENGTH(s) - CHAR_LENGTH(REPLACE(s, part, ''))) / CHAR_LENGTH(part)"),
    ("REGEXP_LIKE", "REGEXP(s, pattern)"),
    ("RLIKE", "REGEXP(s, pattern)"),
];

/// Functions that take NULL without a type, each with the first of the arguments that may be one.
/// Clauses of JSON (`NULL ON EMPTY`) stand behind the arguments.
const TAKES_NULL: [(&str, usize); 13] = [
    ("ARRAY_CONTAINS", 1),
    ("BTRIM", 0),
    ("COALESCE", 0),
    ("ELT", 1),
    ("ENDSWITH", 0),
    ("IFNULL", 0),
    ("JSON_QUERY", 2),
    ("JSON_VALUE", 2),
    ("NULLIF", 1),
    ("PERCENTILE", 0),
    ("REGEXP_COUNT", 0),
    ("SPLIT", 0),
    ("STARTSWITH", 0),
];

/// Functions over rows that look at no frame.
const WITHOUT_FRAME: [&str; 5] = ["DENSE_RANK", "LAG", "LEAD", "RANK", "ROW_NUMBER"];

/// The hints that Flink knows. At another one it fails.
const HINTS: &str = "BROADCAST JSON_EXECUTION_PLAN LOOKUP MULTI_JOIN NEST_LOOP OPTIONS \
    SHUFFLE_HASH SHUFFLE_MERGE STATE_TTL";

/// Looks at texts of a statement.
pub(super) struct QueryCheck<'f> {
    /// True in batch mode.
    pub(super) is_batch: bool,
    /// Takes what is found.
    pub(super) find: &'f mut dyn FnMut(Finding),
}

impl QueryCheck<'_> {
    pub(super) fn query(&mut self, query: &sql::Query) {
        walk_query(query, &mut |part| self.part(part));
    }

    pub(super) fn expression(&mut self, expression: &sql::Expr) {
        walk_expression(expression, &mut |part| self.part(part));
    }

    fn part(&mut self, part: Syntax<'_>) {
        match part {
            Syntax::Query(query) => self.ambiguous(shared_names::of_using_in_order(query)),
            Syntax::Select(select) => self.ambiguous(shared_names::of_using(select)),
            Syntax::Name(name) => self.name(name),
            Syntax::Item(item) if is_null(item) => self.null(item),
            Syntax::Key(key) if is_null(key) => self.null(key),
            Syntax::Expression(expr) => self.node(expr),
            Syntax::Join(join) if is_half(&join.join_operator) => {
                let text = "Flink has no SEMI JOIN and ANTI JOIN: write IN, EXISTS or NOT EXISTS";
                (self.find)(Finding::refused(span_of(&join.relation), text));
            }
            Syntax::Factor(factor) if state_call(factor).is_some() => {
                let text =
                    "Flink has no table snapshot(…): read state with its State Processor API";
                (self.find)(Finding::refused(span_of(factor), text));
            }
            Syntax::Factor(factor) if is_sampled(factor) => {
                let text = "Flink plans no TABLESAMPLE: write WHERE RAND() < …";
                (self.find)(Finding::refused(span_of(factor), text));
            }
            _ => {}
        }
    }

    fn ambiguous(&mut self, names: Vec<&sql::Ident>) {
        names.into_iter().for_each(|name| (self.find)(shared_names::ambiguous(ident_span(name))));
    }

    fn name(&mut self, name: &sql::Ident) {
        if name.quote_style == Some('\'') {
            let finding = Finding::refused(ident_span(name), "Flink wants backticks around a name");
            (self.find)(finding.with_text(format!("`{}`", name.value)));
        }
        if name.quote_style.is_none() && is_reserved(&name.value) {
            (self.find)(reserved_name(ident_span(name), &name.value));
        }
    }

    fn null(&mut self, at: &sql::Expr) {
        let text = "Flink wants a type for this NULL: write CAST(NULL AS …)";
        (self.find)(Finding::refused(span_of(at), text));
    }

    fn node(&mut self, expr: &sql::Expr) {
        match expr {
            sql::Expr::Function(function) => self.function(function, expr),
            sql::Expr::BinaryOp { left, op, right } if wants_types(op) => {
                self.nulls([&**left, &**right])
            }
            sql::Expr::CompoundFieldAccess { access_chain, .. } => {
                for access in access_chain {
                    if let sql::AccessExpr::Subscript(sql::Subscript::Index { index }) = access {
                        self.nulls([index]);
                    }
                }
            }
            sql::Expr::UnaryOp { .. }
            | sql::Expr::Like { .. }
            | sql::Expr::SimilarTo { .. }
            | sql::Expr::Position { .. }
            | sql::Expr::Substring { .. }
            | sql::Expr::Overlay { .. }
            | sql::Expr::Trim { .. }
            | sql::Expr::Extract { .. }
            | sql::Expr::Floor { .. }
            | sql::Expr::Ceil { .. }
            | sql::Expr::IsTrue(_)
            | sql::Expr::IsNotTrue(_)
            | sql::Expr::IsFalse(_)
            | sql::Expr::IsNotFalse(_)
            | sql::Expr::Tuple(_)
            | sql::Expr::IsJson { .. } => self.nulls(children(expr)),
            sql::Expr::Case { conditions, else_result, .. } => {
                let has_type = conditions.iter().any(|when| !is_null(&when.result))
                    || else_result.as_ref().is_some_and(|result| !is_null(result));
                if !has_type {
                    let text = "Flink wants a type for one of the results of this CASE: write CAST(NULL AS …)";
                    (self.find)(Finding::refused(span_of(expr), text));
                }
            }
            sql::Expr::Array(array) if !array.elem.is_empty() && array.elem.iter().all(is_null) => {
                self.null(&array.elem[0]);
            }
            _ => {}
        }
    }

    fn function(&mut self, function: &sql::Function, expr: &sql::Expr) {
        let name = function_name(function);
        if let Some((_, instead)) = NOT_IN_FLINK.iter().find(|(own, _)| *own == name) {
            let message = format!("Flink has no function {name}: write {instead}");
            let finding = Finding::refused(span_of(&function.name), message);
            (self.find)(match instead.starts_with("REGEXP(") {
                true => finding.with_text("REGEXP"),
                false => finding,
            });
        }
        if name == "APPROX_COUNT_DISTINCT" && !self.is_batch {
            let text =
                "Flink has APPROX_COUNT_DISTINCT in batch mode only: write COUNT(DISTINCT …)";
            (self.find)(Finding::refused(span_of(&function.name), text));
        }
        if function.filter.is_some() && function.over.is_some() {
            let text = "Flink has no FILTER of a function over rows: aggregate a CASE";
            (self.find)(Finding::refused(span_of(&function.name), text));
        }
        if name == "COUNT" && is_distinct(function) && children(expr).len() > 1 {
            let text = "Flink counts one column with DISTINCT: write COUNT(DISTINCT ROW(…)), \
                        which also counts rows of NULLs";
            (self.find)(Finding::refused(span_of(&function.name), text));
        }
        self.batch_function(&name, function);
        if let Some(sql::WindowType::WindowSpec(window)) = &function.over
            && window.window_frame.is_some()
            && WITHOUT_FRAME.contains(&name.as_str())
        {
            let text = format!("Flink takes no ROWS and RANGE for {name}, which looks at no frame");
            (self.find)(Finding::refused(span_of(&function.name), text));
        }
        let arguments = children(expr);
        let is_map = name == "MAP" && arguments.len() == 2;
        let first = TAKES_NULL.iter().find(|(own, _)| *own == name);
        match first {
            Some(_) if arguments.iter().all(|argument| is_null(argument)) => {
                self.nulls(arguments.into_iter().take(1));
            }
            Some((_, first)) => self.nulls(arguments.into_iter().take(*first)),
            None if is_map => self.nulls(arguments.into_iter().take(1)),
            None => self.nulls(arguments),
        }
    }

    /// Functions that Flink has in streaming mode alone.
    fn batch_function(&mut self, name: &str, function: &sql::Function) {
        let is_distinct_over = function.over.is_some() && is_distinct(function);
        let is_streaming = name == "CURRENT_WATERMARK" || name.ends_with("_PROCTIME");
        if !self.is_batch || !(is_distinct_over || is_streaming) {
            return;
        }
        let what = if is_distinct_over { "DISTINCT over rows" } else { name };
        (self.find)(Finding::refused(
            span_of(&function.name),
            format!("Flink has no {what} in batch mode"),
        ));
    }

    fn nulls<'e>(&mut self, operands: impl IntoIterator<Item = &'e sql::Expr>) {
        operands.into_iter().filter(|operand| is_null(operand)).for_each(|null| self.null(null));
    }
}

fn is_distinct(function: &sql::Function) -> bool {
    match &function.args {
        sql::FunctionArguments::List(list) => {
            list.duplicate_treatment == Some(sql::DuplicateTreatment::Distinct)
        }
        _ => false,
    }
}

/// Operators with an operand without a type: arithmetic, `||`, AND and OR. Comparisons take one.
fn wants_types(op: &sql::BinaryOperator) -> bool {
    use sql::BinaryOperator as Op;
    matches!(
        op,
        Op::Plus
            | Op::Minus
            | Op::Multiply
            | Op::Divide
            | Op::Modulo
            | Op::StringConcat
            | Op::And
            | Op::Or
    )
}

fn is_null(expr: &sql::Expr) -> bool {
    match expr {
        sql::Expr::Value(value) => matches!(value.value, sql::Value::Null),
        sql::Expr::Nested(inner) => is_null(inner),
        _ => false,
    }
}

/// True for TABLESAMPLE of less than all rows: Flink leaves one of all rows out.
fn is_sampled(factor: &sql::TableFactor) -> bool {
    let quantity = sample(factor).and_then(|sample| sample.quantity.as_ref());
    quantity.is_some_and(|quantity| quantity.value.to_string() != "100")
}

fn is_half(operator: &sql::JoinOperator) -> bool {
    use sql::JoinOperator as Join;
    matches!(operator, Join::Semi(_) | Join::LeftSemi(_) | Join::Anti(_) | Join::LeftAnti(_))
}

/// The first hint of a comment that Flink does not know: `NOSUCH` of ` NOSUCH(t), BROADCAST(u) `.
pub(super) fn unknown_hint(comment: &str) -> Option<String> {
    let names = comment.split('(').filter_map(|before| before.rsplit([',', ')']).next());
    let mut names = names.map(|name| name.trim().to_ascii_uppercase());
    let is_name = |name: &String| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    names.find(|name| is_name(name) && !HINTS.split(' ').any(|hint| hint == name))
}

/// True if a LAG or LEAD has a number as its default, as it is written.
pub(super) fn has_bare_default(query: &sql::Query) -> bool {
    let mut found = false;
    walk_query(query, &mut |part| {
        let Syntax::Expression(expr @ sql::Expr::Function(function)) = part else { return };
        let arguments = children(expr);
        let is_number = |expr: &sql::Expr| matches!(expr, sql::Expr::Value(value) if matches!(value.value, sql::Value::Number(..)));
        let is_shift = matches!(function_name(function).as_str(), "LAG" | "LEAD");
        found |= is_shift && arguments.get(2).is_some_and(|default| is_number(default));
    });
    found
}

/// That a name needs backticks.
pub(super) fn reserved_name(span: Span, word: &str) -> Finding {
    let message = format!("'{word}' is a reserved word in Flink: write it as `{word}`");
    Finding::refused(span, message).with_text(format!("`{word}`"))
}
