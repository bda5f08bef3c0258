//! `cargo xtask depcheck`, inside the crates: modules that import each other in a circle.
//!
//! A module is a file. It depends on the modules that its `use` declarations and its paths
//! (`crate::…`, `super::…`, `child::…`) lead to. A name that a module only passes on, by `use` or
//! `pub use`, leads to where it comes from, and passing it on is no dependency: what counts is who
//! needs whose definitions. Tests are left out.
//!
//! Modules in one strongly connected component can only be understood together, so a component has
//! at most [`CIRCLE_MODULES_MAX`] modules. `xtask/exceptions.txt` may allow more for a crate
//! (`circle CRATE MODULES`); the number only goes down.
//!
//! Not seen: names that macros make, glob imports of names (they lead to the module itself).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::Findings;
use crate::paths::{Import, imports, paths};
use crate::tidy::SourceFile;

/// The most modules that may import each other in a circle.
const CIRCLE_MODULES_MAX: usize = 3;

/// The modules of one crate, by path from its root (`join::hash`; the root is the empty path).
struct CrateModules {
    modules: BTreeMap<String, Module>,
}

/// What one file says about other modules.
#[derive(Default)]
struct Module {
    /// Names that it imports or passes on, and where they come from, as they are written.
    names: BTreeMap<String, Vec<String>>,
    /// Paths that it needs, as they are written.
    needed: Vec<Vec<String>>,
}

/// A crate and its circles, the largest first; each is a sorted list of modules.
pub struct CrateCircles {
    /// The crate, by its folder.
    pub name: String,
    /// How many modules it has.
    pub modules: usize,
    /// Components of more than one module.
    pub circles: Vec<Vec<String>>,
}

impl CrateCircles {
    /// The number of modules in the largest circle; 1 where there is none.
    pub fn largest(&self) -> usize {
        self.circles.first().map_or(1, Vec::len)
    }
}

/// The circles of every crate below `crates/`.
pub fn of_crates(files: &[SourceFile]) -> Vec<CrateCircles> {
    let mut crates: BTreeMap<String, CrateModules> = BTreeMap::new();
    for file in files {
        let Some((name, module)) = place(&file.path) else { continue };
        if file.production.trim().is_empty() {
            continue;
        }
        let entry = crates.entry(name).or_insert_with(|| CrateModules { modules: BTreeMap::new() });
        entry.modules.insert(module, Module::read(&file.production));
    }
    crates.into_iter().map(|(name, modules)| modules.circles(name)).collect()
}

/// Compares the largest circle of each crate with what it may be.
pub fn check(crates: &[CrateCircles], exceptions: &str) -> Findings {
    let mut allowed = parse_exceptions(exceptions);
    let mut findings = Findings::new();
    for found in crates {
        let (name, largest) = (&found.name, found.largest());
        match allowed.remove(name) {
            None if largest > CIRCLE_MODULES_MAX => findings.push(format!(
                "crates/{name}: {largest} modules import each other in a circle (at most \
                 {CIRCLE_MODULES_MAX}): {}",
                found.circles[0].join(", ")
            )),
            Some(limit) if largest > limit => findings.push(format!(
                "crates/{name}: the largest circle of modules grew from {limit} to {largest}: {}",
                found.circles[0].join(", ")
            )),
            Some(limit) if largest < limit => findings.push(format!(
                "crates/{name}: the largest circle of modules has only {largest} now: write that \
                 into xtask/exceptions.txt"
            )),
            _ => {}
        }
    }
    let gone = |name: &String| format!("xtask/exceptions.txt: there is no crate `{name}`");
    findings.extend(allowed.keys().map(gone));
    findings
}

fn parse_exceptions(text: &str) -> BTreeMap<String, usize> {
    let parse = |line: &str| {
        let (name, modules) = line.trim().strip_prefix("circle ")?.split_once(' ')?;
        Some((name.to_string(), modules.trim().parse().ok()?))
    };
    text.lines().filter_map(parse).collect()
}

/// The crate and the module of a file: `crates/runtime/src/task/cells.rs` is `task::cells` of
/// `runtime`. Files outside `crates/*/src` have none.
fn place(path: &Path) -> Option<(String, String)> {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    let ["crates", name, "src", inside @ ..] = &parts[..] else { return None };
    let mut module: Vec<&str> = inside.to_vec();
    let file = module.pop()?.strip_suffix(".rs")?;
    let is_root = module.is_empty() && matches!(file, "lib" | "main");
    if !is_root && file != "mod" {
        module.push(file);
    }
    // `main.rs` next to `lib.rs` is a crate of its own, of one module.
    (file != "main").then(|| ((*name).to_string(), module.join("::")))
}

impl Module {
    fn read(production: &str) -> Module {
        let mut module = Module::default();
        for Import { path, name, passes_on } in imports(production) {
            if let Some(name) = name {
                module.names.insert(name, path.clone());
            }
            if !passes_on {
                module.needed.push(path);
            }
        }
        module.needed.extend(paths(production));
        module
    }
}

impl CrateModules {
    fn circles(&self, name: String) -> CrateCircles {
        let edges: BTreeMap<&str, BTreeSet<&str>> =
            self.modules.keys().map(|module| (module.as_str(), self.needs(module))).collect();
        let mut circles = components(&edges);
        circles.retain(|circle| circle.len() > 1);
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        CrateCircles { name, modules: self.modules.len(), circles }
    }

    /// The other modules that a module needs.
    fn needs(&self, module: &str) -> BTreeSet<&str> {
        let needed = &self.modules[module].needed;
        let targets = needed.iter().filter_map(|path| self.target(module, path, 0));
        targets.filter(|target| *target != module).collect()
    }

    /// The module that defines what a path in `from` leads to; `None` for what other crates define.
    fn target(&self, from: &str, path: &[String], hops: usize) -> Option<&str> {
        let (mut module, mut rest) = self.begin(from, path)?;
        while let Some((first, behind)) = rest.split_first() {
            let child = joined(&module, first);
            if self.modules.contains_key(&child) {
                (module, rest) = (child, behind);
                continue;
            }
            // A name that is passed on is followed; a circle of names would be an error of rustc.
            if let Some(origin) = self.modules[&module].names.get(first)
                && hops < 16
            {
                let whole: Vec<String> = origin.iter().chain(behind).cloned().collect();
                return self.target(&module, &whole, hops + 1);
            }
            break;
        }
        self.modules.get_key_value(&module).map(|(name, _)| name.as_str())
    }

    /// Where a path begins, and what is left of it then.
    fn begin<'a>(&self, from: &str, path: &'a [String]) -> Option<(String, &'a [String])> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some((String::new(), rest)),
            "self" => Some((from.to_string(), rest)),
            "super" => {
                let parent = from.rsplit_once("::").map_or("", |(parent, _)| parent);
                match rest.first().map(String::as_str) {
                    Some("super") => self.begin(parent, rest),
                    _ => Some((parent.to_string(), rest)),
                }
            }
            child if self.modules.contains_key(&joined(from, child)) => {
                Some((joined(from, child), rest))
            }
            _ => None,
        }
    }
}

fn joined(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_string() } else { format!("{module}::{name}") }
}

/// The strongly connected components, by two walks in depth (Kosaraju).
fn components(edges: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Vec<String>> {
    let mut reversed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, targets) in edges {
        for to in targets {
            reversed.entry(to).or_default().insert(from);
        }
    }
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for node in edges.keys() {
        walk(node, edges, &mut seen, &mut order);
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for node in order.iter().rev() {
        let mut component = Vec::new();
        walk(node, &reversed, &mut seen, &mut component);
        if !component.is_empty() {
            let mut names: Vec<String> = component.iter().map(|name| shown(name)).collect();
            names.sort();
            found.push(names);
        }
    }
    found
}

/// Adds what can be reached from `node` and was not seen before, the farthest first.
fn walk<'a>(
    node: &'a str,
    edges: &BTreeMap<&'a str, BTreeSet<&'a str>>,
    seen: &mut BTreeSet<&'a str>,
    reached: &mut Vec<&'a str>,
) {
    if !seen.insert(node) {
        return;
    }
    for next in edges.get(node).into_iter().flatten() {
        walk(next, edges, seen, reached);
    }
    reached.push(node);
}

fn shown(module: &str) -> String {
    if module.is_empty() { "lib".to_string() } else { module.to_string() }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn crates(files: &[(&str, &str)]) -> Vec<CrateCircles> {
        let file = |(path, source): &(&str, &str)| {
            SourceFile::new(PathBuf::from(path), (*source).to_string())
        };
        of_crates(&files.iter().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn modules_that_import_each_other_are_a_circle_and_tests_are_not() {
        let found = crates(&[
            ("crates/a/src/lib.rs", "pub mod b; mod c; mod d;"),
            ("crates/a/src/b.rs", "use crate::c::{C, nested::D as E}; pub struct B;"),
            ("crates/a/src/c.rs", "pub mod nested; fn f(b: &super::b::B) {}"),
            ("crates/a/src/c/nested.rs", "pub struct D;"),
            ("crates/a/src/d.rs", "use crate::b::B; #[cfg(test)] mod t { use crate::c::C; }"),
        ]);
        assert_eq!(found[0].circles, [["b", "c"]]);
        assert_eq!((found[0].modules, found[0].largest()), (5, 2));
    }

    #[test]
    fn a_name_that_is_passed_on_leads_to_where_it_comes_from() {
        let found = crates(&[
            ("crates/a/src/lib.rs", "mod b; pub use b::B; pub mod c;"),
            ("crates/a/src/b.rs", "pub struct B;"),
            ("crates/a/src/c.rs", "use crate::B; mod d; fn f() { d::g() }"),
            ("crates/a/src/c/d.rs", "use super::B; pub fn g() {}"),
        ]);
        assert!(found[0].circles.is_empty(), "{:?}", found[0].circles);
    }

    #[test]
    fn circles_may_only_shrink() {
        let circle = |modules: usize| CrateCircles {
            name: "a".to_string(),
            modules: 9,
            circles: vec![(0..modules).map(|number| number.to_string()).collect()],
        };
        assert!(check(&[circle(3)], "").is_empty());
        assert_eq!(check(&[circle(4)], "").len(), 1);
        assert!(check(&[circle(4)], "circle a 4").is_empty());
        assert_eq!(check(&[circle(4)], "circle a 5").len(), 1, "too generous");
        assert_eq!(check(&[circle(6)], "circle a 5\ncircle b 4").len(), 2);
    }
}
