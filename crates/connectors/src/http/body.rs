//! Where the records of a body are.

use super::options::Framing;
use crate::format::Format;

/// True if each line of a body is a record.
pub fn has_lines(framing: Framing, format: &Format, content_type: Option<&str>) -> bool {
    let is_of_lines = |content_type: &str| {
        let name = content_type.split(';').next().unwrap_or_default().trim();
        ["application/x-ndjson", "application/jsonl", "application/x-jsonlines"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name))
    };
    match framing {
        Framing::Lines => true,
        Framing::Whole => false,
        Framing::Auto => {
            matches!(format, Format::Csv(_))
                || (format.is_text() && content_type.is_some_and(is_of_lines))
        }
    }
}

/// The records of a body. Empty lines, and an empty body, hold none.
pub fn records(body: &[u8], has_lines: bool) -> impl Iterator<Item = &[u8]> {
    let whole = Some(body).filter(|body| !has_lines && !body.is_empty());
    let lines = Some(body).filter(|_| has_lines);
    let lines = lines.into_iter().flat_map(|body| body.split(|byte| *byte == b'\n'));
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    whole.into_iter().chain(lines.filter(|line| !line.is_empty()))
}
