//! How errors are shown to people: message, place, the line of the statement with carets under the
//! culprit, and what to do. Also the near misses ("did you mean …").
//!
//! Nothing here fails: a place outside of the text, a line of a megabyte and control characters in
//! a quoted value are shown as well as they can be. Columns are characters, not bytes and not cells
//! of a terminal.

use thalweg_core::text::without_controls;
use thalweg_core::{Error, Span};

/// An error as a terminal shows it.
///
/// ```
/// use thalweg_core::{Error, Span};
/// let error = Error::plan("there is no column orign")
///     .hint("did you mean origin?")
///     .at(Span { line: 1, column: 8, end_column: 13 });
/// let text = thalweg_plan::diagnostic::render(&error, "q.sql", "SELECT orign FROM t", false);
/// assert_eq!(text, "error: there is no column orign
///  --> q.sql:1:8
///   |
/// 1 | SELECT orign FROM t
///   |        ^^^^^
///   = help: did you mean origin?
/// ");
/// ```
pub fn render(error: &Error, file_name: &str, source: &str, color: bool) -> String {
    let paint = Paint { color };
    let message = error.to_string();
    let mut output = format!("{}: {}\n", paint.red("error"), without_controls(&message));
    let mut margin = 1;
    if let Some(span) = error.span() {
        margin = span.line.to_string().len();
        output.push_str(&excerpt(span, file_name, source, margin, paint));
    }
    if let Some(help) = error.help() {
        let (pad, mark) = (" ".repeat(margin + 1), paint.blue("="));
        let help = without_controls(help);
        output.push_str(&format!("{pad}{mark} {}: {help}\n", paint.bold("help")));
    }
    output
}

/// ` --> file:line:column` and the line with its carets.
fn excerpt(span: Span, file_name: &str, source: &str, margin: usize, paint: Paint) -> String {
    let pad = " ".repeat(margin);
    let arrow = paint.blue("-->");
    let mut output = format!("{pad}{arrow} {file_name}:{}:{}\n", span.line, span.column);
    let Some(line) = source.lines().nth(span.line.saturating_sub(1) as usize) else {
        return output;
    };
    // One for one, so that carets stay under what they mean.
    let printable = |c: char| if c.is_control() && c != '\t' { '\u{fffd}' } else { c };
    let line: String = line.chars().map(printable).collect();
    let column = span.column.max(1) as usize;
    let length = line.chars().count();
    let end = if span.end_column > span.column { span.end_column as usize } else { column + 1 };
    let end = end.min(length.max(column) + 1).max(column + 1);
    let (first, shown) = window(&line, column);
    // A tab stays a tab in the line of carets, so that they stand under what they mean.
    let lead: String = line
        .chars()
        .take(column - 1)
        .skip(first)
        .map(|c| if c == '\t' { '\t' } else { ' ' })
        .collect();
    let lead = format!("{lead}{}", " ".repeat((column - 1).saturating_sub(length)));
    let ellipsis = if first > 0 { "…" } else { "" };
    let carets = "^".repeat((end - column).min(CARETS_MAX));
    let bar = paint.blue("|");
    output.push_str(&format!("{pad} {bar}\n"));
    output.push_str(&format!("{} {bar} {ellipsis}{shown}\n", paint.blue(&span.line.to_string())));
    let indent = if first > 0 { " " } else { "" };
    output.push_str(&format!("{pad} {bar} {indent}{lead}{}\n", paint.red(&carets)));
    output
}

/// The widest part of a line that is shown, in characters.
const SHOWN_MAX: usize = 160;
/// The most carets.
const CARETS_MAX: usize = 120;

/// The part of a long line around a column: how many characters are left out before it, and it.
fn window(line: &str, column: usize) -> (usize, String) {
    let length = line.chars().count();
    let first = if length <= SHOWN_MAX { 0 } else { column.saturating_sub(SHOWN_MAX / 2) };
    let shown: String = line.chars().skip(first).take(SHOWN_MAX).collect();
    let clipped = first + SHOWN_MAX < length;
    (first, if clipped { format!("{shown}…") } else { shown })
}

#[derive(Clone, Copy)]
struct Paint {
    color: bool,
}

impl Paint {
    fn wrap(self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
    fn red(self, text: &str) -> String {
        self.wrap("1;31", text)
    }
    fn blue(self, text: &str) -> String {
        self.wrap("1;34", text)
    }
    fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }
}

/// The candidate that a misspelt name probably meant. Case does not count.
///
/// A third of the name's characters may be wrong, at least one and at most three; of equally near
/// candidates the first is taken.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let wanted = name.to_lowercase();
    let allowed = (wanted.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| {
            (strsim::damerau_levenshtein(&wanted, &candidate.to_lowercase()), candidate)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carets_stand_under_the_culprit_behind_tabs_and_in_long_lines() {
        let span = Span { line: 2, column: 3, end_column: 6 };
        let error = Error::plan("no").at(span);
        let text = render(&error, "f", "a\n\t xyz\n", false);
        assert!(text.ends_with("2 | \t xyz\n  | \t ^^^\n"), "{text}");
        let long = format!("{}culprit{}", "x".repeat(500), "y".repeat(500));
        let error = Error::plan("no").at(Span { line: 1, column: 501, end_column: 508 });
        let text = render(&error, "f", &long, false);
        let lines: Vec<&str> = text.lines().collect();
        let at = lines[3].chars().position(|c| c == 'c').expect("the culprit is shown");
        assert_eq!(lines[4].chars().position(|c| c == '^'), Some(at));
        assert!(lines[3].chars().count() < 180);
    }

    #[test]
    fn a_place_outside_of_the_text_is_no_panic() {
        for (line, column) in [(9, 9), (1, 99), (0, 0), (1, 0)] {
            let error = Error::plan("no").at(Span { line, column, end_column: 0 });
            assert!(render(&error, "f", "short", true).contains("no"));
        }
    }

    #[test]
    fn quoted_text_in_an_error_does_not_control_the_terminal() {
        let error = Error::plan("'\x1b[31mred\u{9b}2J'")
            .hint("not \x07")
            .in_file("\x1b]0;title\x07.csv")
            .at(Span { line: 1, column: 2, end_column: 0 });
        let text = render(&error, "f", "\x1bx", false);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.contains("'\\u{1b}[31mred\\u{9b}2J'"), "{text}");
    }

    #[test]
    fn near_misses_are_found_and_far_ones_are_not() {
        let columns = ["origin", "dest", "delay"];
        assert_eq!(nearest("ORIGN", columns).as_deref(), Some("origin"));
        assert_eq!(nearest("dealy", columns).as_deref(), Some("delay"));
        assert_eq!(nearest("carrier", columns), None);
        assert_eq!(nearest("x", ["ab"]), None);
    }
}
