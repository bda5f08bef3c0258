//! The table of metrics for people, as Markdown.

use super::table::METRICS;

/// A row for each metric.
pub fn page() -> String {
    let mut text = String::from("| metric | kind | labels | meaning |\n|---|---|---|---|\n");
    for metric in METRICS {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind) = (metric.name, metric.kind.name());
        text.push_str(&format!(
            "| `{name}` | {kind} | {} | {} |\n",
            labels.join(", "),
            metric.help
        ));
    }
    text
}
