//! `docs/metrics.md` has the table of metrics. With `THALWEG_WRITE_DOCS=1` the test writes it.

use std::fs;
use std::path::Path;

use thalweg_monitoring::exposition::page;

const BEGIN: &str = "<!-- generated: metrics -->\n";
const END: &str = "<!-- end -->";

#[test]
fn the_page_of_metrics_has_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let written = fs::read_to_string(&path).expect("the page");
    let (before, rest) = written.split_once(BEGIN).expect("the page has a place for the table");
    let (_, after) = rest.split_once(END).expect("the table has an end");
    let expected = format!("{before}{BEGIN}{}{END}{after}", page());
    if std::env::var_os("THALWEG_WRITE_DOCS").is_some() {
        fs::write(&path, expected).expect("writing the page");
    } else {
        assert!(written == expected, "docs/metrics.md differs (THALWEG_WRITE_DOCS=1 writes it)");
    }
}

#[test]
fn alerts_and_dashboards_name_metrics_that_exist() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let known: Vec<&str> =
        thalweg_monitoring::exposition::METRICS.iter().map(|of| of.name).collect();
    for file in ["prometheus/rules.yml", "prometheus/rules_test.yml", "grafana/thalweg.json"] {
        let text = fs::read_to_string(deploy.join(file)).expect("the file");
        let is_part = |of: char| of.is_ascii_lowercase() || of == '_';
        let words = text.split(|of: char| !is_part(of)).filter(|word| word.starts_with("thalweg_"));
        for word in words {
            let is_known = ["", "_bucket", "_sum", "_count"]
                .iter()
                .any(|ending| word.strip_suffix(ending).is_some_and(|name| known.contains(&name)));
            assert!(is_known, "{file} names {word}");
        }
    }
}
