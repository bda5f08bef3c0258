//! Puts into the program what `thalweg --version` says about the build: commit, features, target.
//!
//! Invariants: the commit is the one that was built, or `unknown`. It comes from the variable
//! `THALWEG_COMMIT`, else from what `cargo package` noted in a packaged crate, else, in release
//! builds, from git. Debug builds do not ask git: each commit would rebuild every test program.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=THALWEG_COMMIT");
    let crate_folder = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let commit = given().or_else(|| packaged(&crate_folder)).or_else(|| checked_out(&crate_folder));
    pass_on("COMMIT", commit.as_deref().unwrap_or("unknown"));
    pass_on("FEATURES", &features());
    pass_on("TARGET", &variable("TARGET"));
}

fn pass_on(name: &str, value: &str) {
    println!("cargo::rustc-env=THALWEG_BUILD_{name}={value}");
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

fn given() -> Option<String> {
    Some(variable("THALWEG_COMMIT")).filter(|commit| !commit.is_empty())
}

/// `cargo package` notes the commit, and whether files had been changed since.
fn packaged(crate_folder: &Path) -> Option<String> {
    let note = fs::read_to_string(crate_folder.join(".cargo_vcs_info.json")).ok()?;
    let (_, rest) = note.split_once("\"sha1\": \"")?;
    let (commit, _) = rest.split_once('"')?;
    let changed = if note.contains("\"dirty\": true") { "-dirty" } else { "" };
    Some(format!("{commit}{changed}"))
}

/// The commit of the checkout that this crate is part of. A repository that only contains the
/// checkout somewhere, such as one of vendored sources, has other commits.
fn checked_out(crate_folder: &Path) -> Option<String> {
    if variable("PROFILE") != "release" {
        return None;
    }
    let root = crate_folder.parent()?.parent()?.canonicalize().ok()?;
    if Path::new(&git(&root, &["rev-parse", "--show-toplevel"])?) != root {
        return None;
    }
    for file in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(&root, &["rev-parse", "--git-path", file])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&root, &["rev-parse", "HEAD"])
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Features that change what the program can do, sorted.
fn features() -> String {
    let chosen = env::vars().filter_map(|(name, _)| {
        name.strip_prefix("CARGO_FEATURE_").map(|name| name.to_lowercase().replace('_', "-"))
    });
    let groups = ["all", "cli", "default", "test-support"];
    let mut names: Vec<String> = chosen.filter(|name| !groups.contains(&name.as_str())).collect();
    names.sort_unstable();
    names.join(" ")
}
