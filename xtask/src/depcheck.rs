//! `cargo xtask depcheck`: who may depend on whom.
//!
//! The table under "Crates" in ARCHITECTURE.md is the rule: its first column names a crate by its
//! folder, its last one lists the crates of ours that it may depend on. Any other edge fails.
//! Dependencies of tests are free. Inside a crate, modules may depend on each other, but few in a
//! circle: see [`crate::circles`].
//!
//! Benchmarks and fuzz targets are workspaces of their own, which no test builds. Their lock files
//! must fit the manifests, or their commands fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::Findings;
use crate::circles::{self, CrateCircles};
use crate::house_lines::{self, CrateLines};
use crate::tidy;

/// Crate (by its folder) to the crates that it depends on.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// Lock files of the workspaces that no test builds.
const OTHER_LOCKS: [&str; 6] = [
    "benches/Cargo.lock",
    "benches/formats/Cargo.lock",
    "benches/kafka/Cargo.lock",
    "benches/structures/Cargo.lock",
    "bindings/python/Cargo.lock",
    "fuzz/Cargo.lock",
];

/// Compares the crates with the table, and lock files with manifests.
pub fn check(root: &Path) -> io::Result<Findings> {
    let page = fs::read_to_string(root.join("ARCHITECTURE.md"))?;
    let allowed = parse_table(&page);
    if allowed.is_empty() {
        return Ok(vec!["ARCHITECTURE.md: no crate table under \"## Crates\"".to_string()]);
    }
    let output = metadata(root, &["--no-deps", "--offline"])?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let metadata = serde_json::from_slice(&output.stdout).map_err(io::Error::other)?;
    let edges = actual_edges(&metadata);
    let files = tidy::read_sources(root)?;
    let crates = circles::of_crates(&files);
    print_house(&edges, &crates, &house_lines::of_crates(&files));
    let mut findings = compare(&allowed, &edges);
    findings.extend(circles::check(&crates, &tidy::exceptions(root)));
    for lock in OTHER_LOCKS {
        findings.extend(check_lock(root, lock)?);
    }
    Ok(findings)
}

fn metadata(folder: &Path, arguments: &[&str]) -> io::Result<Output> {
    Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string()))
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .current_dir(folder)
        .output()
}

/// Fetches the crates that such a workspace needs.
fn check_lock(root: &Path, lock: &str) -> io::Result<Option<String>> {
    let folder = root.join(lock).parent().expect("a lock file is in a folder").to_path_buf();
    let output = metadata(&folder, &["--locked"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    let finding = || format!("{lock}: {}; `cargo update --workspace` there writes it", said.trim());
    Ok((!output.status.success()).then(finding))
}

/// One line for each crate: its lines of code, its share of comment lines, its modules, its largest
/// circle, and the crates that it needs.
fn print_house(
    edges: &Edges,
    crates: &[CrateCircles],
    lines_by_crate: &BTreeMap<String, CrateLines>,
) {
    println!(
        "{:<12} {:>7} {:>6} {:>7} {:>6}  depends on",
        "crate", "lines", "prose", "modules", "circle"
    );
    for found in crates {
        let needed = edges.get(&found.name).into_iter().flatten();
        let needed: Vec<&str> = needed.map(String::as_str).collect();
        let (name, modules, largest) = (&found.name, found.modules, found.largest());
        let lines = lines_by_crate.get(name).copied().unwrap_or_default();
        println!(
            "{name:<12} {:>7} {:>5}% {modules:>7} {largest:>6}  {}",
            lines.code,
            lines.prose_percent(),
            needed.join(", ")
        );
    }
    println!("{:<12} {:>7}", "all", lines_by_crate.values().map(|lines| lines.code).sum::<usize>());
    for found in crates {
        for circle in &found.circles {
            println!("circle in {}: {}", found.name, circle.join(", "));
        }
    }
}

fn compare(allowed: &Edges, actual: &Edges) -> Findings {
    let mut findings = Findings::new();
    for (from, targets) in actual {
        let Some(permitted) = allowed.get(from) else {
            findings.push(format!("ARCHITECTURE.md: the crate table does not list `{from}`"));
            continue;
        };
        for to in targets.difference(permitted) {
            findings.push(format!(
                "crates/{from}/Cargo.toml: `{from}` must not depend on `{to}` (ARCHITECTURE.md, Crates)"
            ));
        }
    }
    for name in allowed.keys().filter(|name| !actual.contains_key(*name)) {
        findings.push(format!("ARCHITECTURE.md: there is no crate `{name}`"));
    }
    findings
}

/// The rows of the first table behind the heading "Crates".
fn parse_table(page: &str) -> Edges {
    let section = page.lines().skip_while(|line| line.trim() != "## Crates").skip(1);
    let rows =
        section.take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with('|'));
    rows.filter_map(|row| {
        let cells: Vec<&str> = row.trim().trim_matches('|').split('|').collect();
        let name = code_words(cells.first()?).into_iter().next()?;
        Some((name, code_words(cells.last()?)))
    })
    .collect()
}

/// The words between backticks.
fn code_words(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

/// The edges between the packages below `crates/`, from cargo's description of the workspace.
fn actual_edges(metadata: &Value) -> Edges {
    let no_packages = Vec::new();
    let packages = metadata["packages"].as_array().unwrap_or(&no_packages);
    packages
        .iter()
        .filter_map(|package| Some((crate_folder(package["manifest_path"].as_str()?)?, package)))
        .map(|(name, package)| (name, dependencies(package)))
        .collect()
}

fn dependencies(package: &Value) -> BTreeSet<String> {
    let none = Vec::new();
    let all = package["dependencies"].as_array().unwrap_or(&none);
    let of_code = all.iter().filter(|dependency| dependency["kind"] != "dev");
    // A dependency on a package of ours has a path, which ends with its folder.
    let paths = of_code.filter_map(|dependency| dependency["path"].as_str());
    paths.filter_map(|path| crate_folder(&format!("{path}/Cargo.toml"))).collect()
}

/// `…/crates/NAME/Cargo.toml` → NAME.
fn crate_folder(manifest: &str) -> Option<String> {
    let folder = Path::new(manifest).parent()?;
    let is_crate = folder.parent()?.file_name()? == "crates";
    is_crate.then(|| folder.file_name().map(|name| name.to_string_lossy().into_owned()))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PAGE: &str = "# A\n## Crates\n\n| crate | holds | may depend on |\n|---|---|---|\n\
        | `core` | words | nothing of ours |\n| `plan` | SQL | `core` |\n\n## Next\n| `x` | | `y` |\n";

    fn metadata(kind: Value) -> Value {
        json!({"packages": [
            {"manifest_path": "/r/crates/core/Cargo.toml", "dependencies": [
                {"path": "/r/crates/plan", "kind": kind}, {"name": "serde", "kind": null}]},
            {"manifest_path": "/r/crates/plan/Cargo.toml", "dependencies": [
                {"path": "/r/crates/core", "kind": null}]},
            {"manifest_path": "/r/xtask/Cargo.toml", "dependencies": []},
        ]})
    }

    #[test]
    fn an_edge_against_the_table_is_found() {
        let findings = compare(&parse_table(PAGE), &actual_edges(&metadata(Value::Null)));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].contains("`core` must not depend on `plan`"));
    }

    #[test]
    fn tests_may_depend_on_anything() {
        assert!(compare(&parse_table(PAGE), &actual_edges(&metadata(json!("dev")))).is_empty());
    }

    #[test]
    fn table_and_crates_list_the_same() {
        let actual =
            Edges::from([("core".to_string(), BTreeSet::new()), ("new".into(), BTreeSet::new())]);
        let findings = compare(&parse_table(PAGE), &actual);
        assert_eq!(findings.len(), 2, "{findings:?}");
    }
}
