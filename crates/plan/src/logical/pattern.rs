//! What a pattern is called: the same text means the same state, and with the keys of its values
//! the same results.
//!
//! The text stands in `describe`, so it decides about stage identifiers. It writes columns as `$n`,
//! as expressions do; partition keys are plain numbers, which is no matter since a pattern's state
//! depends on all of its input's columns anyway.

use std::fmt::Write;

use thalweg_operators::pattern::{End, Pattern, PatternValue, Skip, Variable};

/// Writes a pattern and what a match gives.
pub(super) fn describe(text: &mut String, pattern: &Pattern, values: &[PatternValue]) {
    let variables: Vec<String> = pattern.variables.iter().map(quantified).collect();
    let _ = write!(text, "Match ({})", variables.join(" "));
    let _ = write!(text, " by {:?} order ${}", pattern.keys, pattern.rowtime);
    for key in &pattern.ties {
        let direction = if key.descending { " desc" } else { "" };
        let nulls = match key.nulls_first {
            Some(true) => " nulls first",
            Some(false) => " nulls last",
            None => "",
        };
        let _ = write!(text, ", ${}{direction}{nulls}", key.column);
    }
    let _ = pattern.within_ms.map(|within_ms| write!(text, " within {within_ms} ms"));
    text.push_str(match pattern.skip {
        Skip::PastLastRow => " skip past last row",
        Skip::ToNextRow => " skip to next row",
        Skip::ToFirst(_) => " skip to first ",
        Skip::ToLast(_) => " skip to last ",
    });
    if let Skip::ToFirst(variable) | Skip::ToLast(variable) = pattern.skip {
        text.push_str(&pattern.variables[variable].name);
    }
    for variable in &pattern.variables {
        if let Some(condition) = &variable.condition {
            let _ = write!(text, " define {} as {}", variable.name, condition.predicate);
            let _ = write!(text, " of [{}]", listed(pattern, &condition.values));
        }
    }
    let _ = write!(text, " compute [{}]", listed(pattern, values));
}

/// The identity of a value.
/// Equal values of one condition or of the measures are kept once (`bind::navigation`). The text
/// alone leaves out the constants of an aggregate (the separator of LISTAGG) and the type.
pub fn value_key(pattern_variables: &[Variable], value: &PatternValue) -> String {
    let constants = match value {
        PatternValue::Aggregate { function, .. } => function.constants().unwrap_or_default(),
        PatternValue::Row { .. } | PatternValue::Time { .. } => String::new(),
    };
    let data_type = &value.column_type().data_type;
    format!("{}{constants} {data_type}", value_text(pattern_variables, value))
}

/// The text of a value in stage identifiers.
fn value_text(pattern_variables: &[Variable], value: &PatternValue) -> String {
    let of = |variable: &Option<usize>| match variable {
        Some(variable) => pattern_variables[*variable].name.as_str(),
        None => "*",
    };
    match value {
        PatternValue::Row { variable, end, offset, column, .. } => {
            let end = if *end == End::First { "FIRST" } else { "LAST" };
            format!("{end}({}.${column}, {offset})", of(variable))
        }
        PatternValue::Aggregate { variable, function, argument, .. } => {
            let argument = argument.as_ref().map_or("*".to_owned(), ToString::to_string);
            format!("{}({}: {argument})", function.name(), of(variable))
        }
        PatternValue::Time { .. } => "MATCH_ROWTIME()".to_owned(),
    }
}

fn listed(pattern: &Pattern, values: &[PatternValue]) -> String {
    let texts = values.iter().map(|value| value_text(&pattern.variables, value));
    texts.collect::<Vec<_>>().join(", ")
}

fn quantified(variable: &Variable) -> String {
    let name = &variable.name;
    let mark = if variable.is_greedy { "" } else { "?" };
    match (variable.min, variable.max) {
        (1, Some(1)) => name.clone(),
        (0, Some(1)) => format!("{name}?"),
        (min, Some(max)) if min == max => format!("{name}{{{min}}}"),
        (min, Some(max)) => format!("{name}{{{min},{max}}}{mark}"),
        (min, None) => format!("{name}{{{min},}}{mark}"),
    }
}
