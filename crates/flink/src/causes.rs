//! The message that matters in a Java stack trace: that of the innermost cause.

use serde_json::Value;

/// The root cause in an error answer of Flink: `{"errors": ["message", "<stack trace>"]}`.
pub fn of_answer(body: &Value, text: &str) -> String {
    let errors = body["errors"].as_array();
    let texts = errors.into_iter().flatten().filter_map(Value::as_str);
    let texts: Vec<&str> = texts.collect();
    match (texts.last(), texts.first()) {
        (Some(trace), Some(first)) if !has_cause(trace) && !is_trace(trace) => first.to_string(),
        (Some(trace), _) => of_trace(trace),
        _ => shortened(text),
    }
}

/// The root cause of a stack trace: the last `Caused by:`, without the lines of the stack. Causes
/// that name no reason, such as those of a serialized exception, keep their class.
pub fn of_trace(trace: &str) -> String {
    let start = trace.rfind("Caused by: ").map_or(0, |at| at + "Caused by: ".len());
    let lines = trace[start..].lines();
    let is_message = |line: &&str| {
        let line = line.trim_start();
        !(line.starts_with("at ") || line.starts_with("... ") || line.starts_with("Suppressed:"))
    };
    let message: Vec<&str> = lines.take_while(is_message).collect();
    let message = message.join("\n");
    without_package(message.trim()).to_owned()
}

fn has_cause(text: &str) -> bool {
    text.contains("Caused by: ")
}

fn is_trace(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with("at "))
}

/// `org.apache.flink.table.api.ValidationException: text` is `ValidationException: text`.
fn without_package(message: &str) -> &str {
    let Some((class, _)) = message.split_once(':') else { return message };
    let is_class = class.contains('.')
        && class.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '$' | '_'));
    match class.rfind('.') {
        Some(dot) if is_class => &message[dot + 1..],
        _ => message,
    }
}

/// An answer that is no JSON, for a message.
fn shortened(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None if text.is_empty() => "an empty answer".to_owned(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TRACE: &str = "org.apache.flink.table.gateway.api.utils.SqlGatewayException: failed\n\
        \tat a.b.C(D.java:1)\nCaused by: org.apache.flink.table.api.TableException: outer\n\
        \tat a.b.C(D.java:1)\nCaused by: org.apache.calcite.sql.validate.SqlValidatorException: \
        Column 'x' not found\nin any table\n\tat a.b.C(D.java:1)\n\t... 20 more\n";

    #[test]
    fn the_innermost_cause_is_the_message() {
        let expected = "SqlValidatorException: Column 'x' not found\nin any table";
        assert_eq!(of_trace(TRACE), expected);
        assert_eq!(of_answer(&json!({"errors": ["Internal error", TRACE]}), ""), expected);
    }

    #[test]
    fn answers_without_a_trace_speak_for_themselves() {
        assert_eq!(of_answer(&json!({"errors": ["Job not found"]}), ""), "Job not found");
        assert_eq!(of_answer(&Value::Null, "<html>bad gateway"), "<html>bad gateway");
        assert_eq!(of_answer(&Value::Null, ""), "an empty answer");
        assert_eq!(of_trace("java.lang.NullPointerException"), "java.lang.NullPointerException");
    }
}
