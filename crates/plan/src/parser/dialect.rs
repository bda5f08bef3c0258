//! What Apache Flink's SQL allows, as a dialect of `sqlparser`.
//!
//! Only lexical rules and yes-or-no questions of the expression and query grammar stand here.
//! Whatever `sqlparser` has no switch for is rewritten in the token stream (see the sibling
//! modules) before it parses.

use sqlparser::dialect::Dialect;

/// Answers these questions with yes.
macro_rules! supports {
    ($($question:ident)*) => {
        $(fn $question(&self) -> bool {
            true
        })*
    };
}

/// Flink's dialect: backtick identifiers, no escapes in strings, `MATCH_RECOGNIZE`,
/// `FOR SYSTEM_TIME AS OF`, `FILTER (WHERE …)`, grouping sets.
#[derive(Debug, Default)]
pub struct FlinkDialect;

impl Dialect for FlinkDialect {
    fn is_delimited_identifier_start(&self, character: char) -> bool {
        character == '`'
    }
    fn identifier_quote_style(&self, _identifier: &str) -> Option<char> {
        Some('`')
    }
    fn is_identifier_start(&self, character: char) -> bool {
        character.is_alphabetic() || character == '_'
    }
    fn is_identifier_part(&self, character: char) -> bool {
        character.is_alphanumeric() || character == '_' || character == '$'
    }
    supports! {
        supports_unicode_string_literal
        supports_filter_during_aggregation
        supports_group_by_expr
        supports_match_recognize
        supports_window_function_null_treatment_arg
        supports_window_clause_named_window_reference
        supports_named_fn_args_with_rarrow_operator
        supports_parens_around_table_factor
        supports_table_versioning
        supports_map_literal_with_angle_brackets
        supports_left_associative_joins_without_parens
    }
}
