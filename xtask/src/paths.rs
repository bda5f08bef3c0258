//! Paths in Rust code: what `use` declarations name, and what else is written with `::`.
//!
//! Works on code whose comments and literals are blank ([`crate::lexer`]).

use crate::lexer::is_word;

/// One name of a `use` declaration.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    /// What it names, as written; a glob names the module before it.
    pub path: Vec<String>,
    /// The name by which it is known here; none for a glob.
    pub name: Option<String>,
    /// True for `pub use`, which offers the name to others.
    pub passes_on: bool,
}

/// Everything that `use` declarations name.
pub fn imports(code: &str) -> Vec<Import> {
    let mut found = Vec::new();
    for (start, end) in declarations(code) {
        let passes_on = is_public(&code[..start]);
        let tree = &code[start + "use".len()..end];
        let leaves = expand(tree, &[]).into_iter();
        found.extend(leaves.map(|(path, name)| Import { path, name, passes_on }));
    }
    found
}

/// Everything outside of `use` declarations that is written with `::`.
pub fn paths(code: &str) -> Vec<Vec<String>> {
    let mut rest = code.to_string();
    for (start, end) in declarations(code) {
        rest.replace_range(start..end, &" ".repeat(end - start));
    }
    let mut found = Vec::new();
    let mut words = Vec::new();
    let mut position = 0;
    while let Some(character) = rest[position..].chars().next() {
        if !is_word(character) {
            position += character.len_utf8();
            continue;
        }
        let length = rest[position..].find(|c| !is_word(c)).unwrap_or(rest.len() - position);
        words.push(rest[position..position + length].to_string());
        position += length;
        if rest[position..].starts_with("::") {
            position += 2;
            if rest[position..].starts_with(is_word) {
                continue;
            }
        }
        if words.len() > 1 {
            found.push(std::mem::take(&mut words));
        }
        words.clear();
    }
    found
}

/// Where the declarations begin (at `use`) and end (at the semicolon).
fn declarations(code: &str) -> Vec<(usize, usize)> {
    let starts = code.match_indices("use").filter(|(at, word)| {
        let before = code[..*at].chars().next_back().is_none_or(|c| !is_word(c));
        let after = code[at + word.len()..].starts_with(char::is_whitespace);
        before && after
    });
    // `impl Trait + use<'a>` has no white space behind `use`.
    starts.filter_map(|(at, _)| Some((at, at + code[at..].find(';')?))).collect()
}

/// True if `before` ends with `pub` or `pub(…)`.
fn is_public(before: &str) -> bool {
    let before = before.trim_end();
    let visibility = match before.rfind('(') {
        Some(open) if before.ends_with(')') => before[..open].trim_end(),
        _ => before,
    };
    visibility.ends_with("pub")
}

/// A path and the name by which it is known.
type Leaf = (Vec<String>, Option<String>);

/// The leaves of a tree such as `a::{b, c::{self, D as E}, f::*}`.
fn expand(tree: &str, prefix: &[String]) -> Vec<Leaf> {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else { return leaf(tree, prefix).into_iter().collect() };
    let mut path = prefix.to_vec();
    path.extend(segments(&tree[..open]));
    let inside = tree[open + 1..].strip_suffix('}').unwrap_or(&tree[open + 1..]);
    parts(inside).into_iter().flat_map(|part| expand(part, &path)).collect()
}

fn leaf(text: &str, prefix: &[String]) -> Option<Leaf> {
    let (path, alias) = match text.split_once(" as ") {
        Some((path, alias)) => (path, Some(alias.trim().to_string())),
        None => (text, None),
    };
    let mut whole = prefix.to_vec();
    whole.extend(segments(path));
    if whole.len() > 1 && whole.last().is_some_and(|last| last == "self") {
        whole.pop();
    }
    let is_glob = whole.last().is_some_and(|last| last == "*");
    if is_glob {
        whole.pop();
    }
    let name = if is_glob { None } else { alias.or_else(|| whole.last().cloned()) };
    (!whole.is_empty()).then_some((whole, name))
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|word| !word.is_empty()).map(str::to_string).collect()
}

/// The parts between the commas that stand in no inner brace.
fn parts(inside: &str) -> Vec<&str> {
    let (mut found, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, character) in inside.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(inside[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(inside[start..].trim());
    found.retain(|part| !part.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(code: &str) -> Vec<(String, Option<String>, bool)> {
        let imports = imports(code).into_iter();
        imports.map(|import| (import.path.join("::"), import.name, import.passes_on)).collect()
    }

    #[test]
    fn trees_are_expanded() {
        let named = |path: &str, name: &str| (path.to_string(), Some(name.to_string()), false);
        assert_eq!(
            read("use crate::a::{self, B as C, d::{E, f::*}};\nfn g() {}"),
            [
                named("crate::a", "a"),
                named("crate::a::B", "C"),
                named("crate::a::d::E", "E"),
                ("crate::a::d::f".to_string(), None, false),
            ]
        );
    }

    #[test]
    fn public_ones_pass_names_on() {
        let passed = read("pub use a::B;\npub(crate) use c::D;\nuse e::F;\n");
        assert_eq!(passed.iter().map(|(_, _, on)| *on).collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn paths_stand_outside_of_declarations() {
        let found = paths("use a::B; fn f() -> super::C { d::e::<F>(1) + G::<H>::new() }");
        let joined: Vec<String> = found.iter().map(|path| path.join("::")).collect();
        assert_eq!(joined, ["super::C", "d::e"]);
    }
}
