//! The pages of the documentation, which are part of the program: those of its version, also where
//! there is no network.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use strsim::jaro_winkler;

/// As `build.rs` writes them.
static ARCHIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/docs.gz"));

static PAGES: LazyLock<Vec<DocsPage>> =
    LazyLock::new(|| unpacked().expect("build.rs has written them"));

static FUNCTIONS: LazyLock<BTreeMap<String, DocumentedFunction>> = LazyLock::new(documented);

/// The page that is shown first.
pub const FIRST: &str = "README";

/// A page.
#[derive(Debug, PartialEq, Eq)]
pub struct DocsPage {
    /// Its name, such as `cli` or `how-to/late-data`.
    pub name: String,
    /// Its first heading.
    pub title: String,
    /// Its text, in Markdown.
    pub text: String,
}

/// A function of SQL, as the page about them has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentedFunction {
    /// How it is called, each form behind the other: `LOG(a), LOG(base, a)`.
    pub forms: String,
    /// What it returns.
    pub about: String,
    /// A call, and its result.
    pub example: String,
}

/// A function by its name.
pub fn function(name: &str) -> Option<&'static DocumentedFunction> {
    FUNCTIONS.get(name)
}

/// The functions of the page about them: rows of tables with forms, meaning, example and result.
fn documented() -> BTreeMap<String, DocumentedFunction> {
    let mut found: BTreeMap<String, DocumentedFunction> = BTreeMap::new();
    let lines = page("functions").map_or("", |page| &page.text).lines();
    for line in lines.filter(|line| line.starts_with("| `")) {
        // A bar of a text is written behind a backslash.
        let hidden = line.replace("\\|", "\u{1}");
        let cells: Vec<String> =
            hidden.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect();
        let [_, forms, about, example, result, ..] = &cells[..] else { continue };
        for form in forms.split('`').skip(1).step_by(2) {
            let is_of_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            let end = form.find(|c| !is_of_name(c)).unwrap_or(form.len());
            if end == 0 || form[end..].starts_with(' ') {
                continue;
            }
            let function = found.entry(form[..end].to_owned()).or_default();
            let separator = if function.forms.is_empty() { "" } else { ", " };
            function.forms = format!("{}{separator}{form}", function.forms);
            function.about = about.replace('`', "");
            function.example = format!("{example} is {result}").replace('`', "");
        }
    }
    found
}

/// All pages, by name.
pub fn pages() -> &'static [DocsPage] {
    &PAGES
}

/// The page of this name, with or without `.md`; the last part of a name is enough.
pub fn page(name: &str) -> Option<&'static DocsPage> {
    let name = name.trim_matches('/');
    let name = name.strip_suffix(".md").unwrap_or(name);
    let is_last = |page: &&DocsPage| {
        page.name.rsplit_once('/').is_some_and(|(_, last)| last == name && last != FIRST)
    };
    PAGES.iter().find(|page| page.name == name).or_else(|| PAGES.iter().find(is_last))
}

/// The name of a page that is nearly this one.
pub fn near(name: &str) -> Option<&'static str> {
    let likeness = |page: &DocsPage| {
        let last = page.name.rsplit('/').next().unwrap_or_default();
        jaro_winkler(&page.name, name).max(jaro_winkler(last, name))
    };
    let nearest = PAGES.iter().map(|page| (likeness(page), page));
    let nearest = nearest.max_by(|(a, _), (b, _)| a.total_cmp(b));
    nearest.filter(|(likeness, _)| *likeness > 0.8).map(|(_, page)| page.name.as_str())
}

/// The lines that hold a text, whatever its case: page, number of the line from 1, and line.
pub fn search(wanted: &str) -> Vec<(&'static str, usize, &'static str)> {
    let wanted = wanted.to_lowercase();
    let lines = |page: &'static DocsPage| {
        page.text.lines().enumerate().map(move |(at, line)| (page.name.as_str(), at + 1, line))
    };
    let all = PAGES.iter().flat_map(lines);
    all.filter(|(_, _, line)| line.to_lowercase().contains(&wanted)).collect()
}

fn unpacked() -> Option<Vec<DocsPage>> {
    let mut bytes = Vec::new();
    GzDecoder::new(ARCHIVE).read_to_end(&mut bytes).ok()?;
    let (mut pages, mut rest) = (Vec::new(), &bytes[..]);
    while !rest.is_empty() {
        let name = line(&mut rest)?;
        let length: usize = line(&mut rest)?.parse().ok()?;
        let (text, behind) = rest.split_at_checked(length)?;
        let text = String::from_utf8(text.to_vec()).ok()?;
        let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(&name);
        let (name, title) = (name.trim_end_matches(".md").to_owned(), title.to_owned());
        pages.push(DocsPage { name, title, text });
        rest = behind;
    }
    pages.sort_by(|a, b| a.name.cmp(&b.name));
    Some(pages)
}

fn line(rest: &mut &[u8]) -> Option<String> {
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    let line = String::from_utf8(rest[..end].to_vec()).ok()?;
    *rest = &rest[end + 1..];
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_their_forms_and_what_they_return() {
        let log = function("LOG").expect("a function");
        assert_eq!(log.forms, "LOG(a), LOG(base, a)");
        assert!(log.about.contains("logarithm") && log.example == "LOG(2, 8) is 3.0", "{log:?}");
        assert_eq!(function("CONCAT").map(|of| of.forms.as_str()), Some("CONCAT(a, b, …)"));
        assert!(function("COUNT").is_some() && function("NOWHERE").is_none());
    }

    #[test]
    fn pages_are_found_by_their_names() {
        assert!(pages().len() > 30, "{}", pages().len());
        let cli = page("cli").expect("a page");
        assert_eq!((cli.name.as_str(), cli.title.as_str()), ("cli", "Command line"));
        assert!(cli.text.ends_with('\n') && cli.text.contains("thalweg run"));
        assert_eq!(page("/cli.md"), Some(cli));
        assert_eq!(page("late-data"), page("how-to/late-data"));
        assert_eq!(page(FIRST).map(|page| page.name.as_str()), Some(FIRST));
        assert_eq!(
            (page("nothing"), near("snapshot"), near("qqq")),
            (None, Some("snapshots"), None)
        );
        let found = search("WATERMARK-less nonsense");
        assert!(found.is_empty());
        assert!(search("late.data").iter().any(|(page, ..)| *page == "how-to/late-data"));
    }
}
