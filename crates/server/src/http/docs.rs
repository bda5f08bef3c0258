//! `GET /docs`: the pages of the documentation, as pages for a browser.
//!
//! They are the same for everybody, so they need no token. Links from page to page are those of the
//! files; a link to a file that is no page leads nowhere here.

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Redirect, Response};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

use crate::docs::{self, DocsPage};
use crate::problem::{Outcome, Problem};

const STYLE: &str = "\
:root { color-scheme: light dark; }
body { font: 16px/1.6 system-ui, sans-serif; max-width: 56rem; margin: 0 auto; padding: 1rem 1.5rem 4rem; }
nav { border-bottom: 1px solid #8886; padding-bottom: .5rem; }
pre { overflow-x: auto; padding: .75rem 1rem; background: #8881; border-radius: 4px; }
code { font: .9em/1.45 ui-monospace, monospace; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid #8886; padding: .25rem .6rem; text-align: left; vertical-align: top; }
a { color: light-dark(#0550ae, #79b8ff); }
";

/// The list of pages.
#[cfg_attr(test, utoipa::path(get, path = "/docs", tag = "server", responses((status = 200, content_type = "text/html"))))]
pub async fn index() -> Redirect {
    Redirect::permanent("/docs/README.md")
}

/// A page of the documentation, such as `cli.md` or `how-to/late-data.md`; `llms.txt` lists them.
#[cfg_attr(test, utoipa::path(get, path = "/docs/{page}", tag = "server", params(("page" = String, Path)),
    responses((status = 200, content_type = "text/html"))))]
pub async fn page(Path(name): Path<String>) -> Outcome<Response> {
    match name.as_str() {
        "style.css" => {
            return Ok(([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response());
        }
        "llms.txt" => return Ok(list().into_response()),
        _ => {}
    }
    let found = docs::page(&name).ok_or_else(|| {
        let near = docs::near(&name).map(|near| format!("; did you mean /docs/{near}.md?"));
        let detail = format!("there is no page '{name}'{}", near.unwrap_or_default());
        Problem::new(404, "no-such-address", detail)
    })?;
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    Ok((kind, shown(found)).into_response())
}

fn list() -> String {
    let head = "# Thalweg\n\n> Stream processing for one machine: Flink SQL on every core.\n\n";
    let line = |page: &DocsPage| format!("- [{}](/docs/{}.md)\n", page.title, page.name);
    docs::pages().iter().fold(head.to_owned(), |text, page| text + &line(page))
}

fn shown(page: &DocsPage) -> String {
    let mut body = String::new();
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    html::push_html(&mut body, anchored(Parser::new_ext(&page.text, options)).into_iter());
    let mut title = String::new();
    html::push_html(&mut title, [Event::Text(CowStr::from(page.title.as_str()))].into_iter());
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title} · Thalweg</title>\
         <link rel=\"stylesheet\" href=\"/docs/style.css\"></head>\n<body><nav><a href=\"/\">Jobs</a> · \
         <a href=\"/docs/README.md\">Documentation</a> · <a href=\"/docs/errors\">Problems</a></nav>\n{body}</body></html>\n"
    )
}

/// Headings have the names by which links mean them. Markup of the page itself is shown as text.
fn anchored<'a>(parser: Parser<'a>) -> Vec<Event<'a>> {
    let mut events: Vec<Event<'a>> = Vec::new();
    let mut heading: Option<(usize, String)> = None;
    for event in parser {
        match (&event, &mut heading) {
            (Event::Start(Tag::Heading { .. }), _) => heading = Some((events.len(), String::new())),
            (Event::Text(text) | Event::Code(text), Some((_, words))) => words.push_str(text),
            (Event::End(TagEnd::Heading(_)), Some((at, words))) => {
                if let Some(Event::Start(Tag::Heading { id, .. })) = events.get_mut(*at) {
                    *id = Some(CowStr::from(anchor(words)));
                }
                heading = None;
            }
            _ => {}
        }
        events.push(match event {
            Event::Html(text) | Event::InlineHtml(text) if !text.starts_with("<!--") => {
                Event::Text(text)
            }
            Event::Html(_) | Event::InlineHtml(_) => continue,
            other => other,
        });
    }
    events
}

/// As GitHub and mdBook make it of a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        _ if c.is_alphanumeric() || matches!(c, '-' | '_') => Some(c),
        _ => None,
    };
    heading.to_lowercase().chars().filter_map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_page_has_tables_anchors_and_no_markup_of_its_own() {
        let text = "# A & b\n\n## What's `that`?\n\n| a |\n|---|\n| `<b>` |\n\n<script>x</script>\n\n<!-- no -->\n";
        let (name, title) = ("x".to_owned(), "A & b".to_owned());
        let html = shown(&DocsPage { name, title, text: text.to_owned() });
        for part in [
            "<title>A &amp; b · Thalweg",
            "<h2 id=\"whats-that\">",
            "<td><code>&lt;b&gt;</code></td>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script"), "{html}");
        assert!(!html.contains("<!-- no"), "{html}");
    }

    /// Whoever follows a link from page to page finds the page, and the heading.
    #[test]
    fn links_between_pages_lead_to_pages_and_headings() {
        let anchors = |page: &DocsPage| -> BTreeSet<String> {
            let html = shown(page);
            let ids = html.split(" id=\"").skip(1).filter_map(|rest| rest.split_once('"'));
            ids.map(|(id, _)| id.to_owned()).collect()
        };
        let mut checked = 0;
        for page in docs::pages() {
            let folder = page.name.rsplit_once('/').map_or("", |(folder, _)| folder);
            for link in page.text.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
                let (file, heading) = link.0.split_once('#').unwrap_or((link.0, ""));
                let Some(file) = file.strip_suffix(".md") else { continue };
                let name = match (file.strip_prefix("../"), folder) {
                    (Some(rest), "connectors" | "how-to") => rest.to_owned(),
                    (Some(_), _) => continue,
                    (None, "") => file.to_owned(),
                    (None, folder) => format!("{folder}/{file}"),
                };
                let Some(target) = docs::page(&name).filter(|target| target.name == name) else {
                    continue;
                };
                checked += 1;
                let found = heading.is_empty() || anchors(target).contains(heading);
                assert!(found, "{}: {}", page.name, link.0);
            }
        }
        assert!(checked > 50, "{checked}");
    }
}
