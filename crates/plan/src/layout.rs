//! The layout of SQL text: the same statements with line breaks and indents where readers expect
//! them.
//!
//! Works on tokens, so comments stay, and a text that cannot be planned is laid out as well. Only
//! white space between tokens changes: no token is added, left out, moved or spelt otherwise. So
//! the statements mean the same, down to the names that they give to columns.
//!
//! A group that fits into a line stands in one. Others are broken: clauses of a query first, then
//! the items of lists, conditions before AND and OR, the branches of CASE.
//!
//! **Invariants**
//! - what comes out has the tokens of what went in, comments included, in their order;
//! - laying out a text twice gives the same as once: what is decided depends on tokens, on which
//!   comments stand alone on a line, on blank lines between statements, and on which tokens touch.

mod groups;
mod pieces;

#[cfg(test)]
mod tests;

use thalweg_core::Result;

use self::groups::{Node, grouped};
use self::pieces::{Piece, pieces};

/// The width of a line that nothing is broken for.
const WIDTH: usize = 100;
/// How far what belongs to something stands to its right.
const INDENT: usize = 2;

/// A text of statements, laid out.
///
/// ```
/// let text = thalweg_plan::layout::formatted("select a\n  ,b from t -- all\n;select 1")?;
/// assert_eq!(text, "select a, b from t -- all\n;\nselect 1\n");
/// # Ok::<(), thalweg_core::Error>(())
/// ```
///
/// # Errors
/// If it cannot be cut into tokens.
pub fn formatted(text: &str) -> Result<String> {
    let pieces = pieces(text)?;
    let mut writer = Writer::default();
    let mut rest = &pieces[..];
    let mut depth = 0;
    while !rest.is_empty() {
        let end = rest.iter().position(Piece::is_semicolon).map_or(rest.len(), |at| at + 1);
        // A comment behind the semicolon, in its line.
        let more = rest[end..].iter().take_while(|piece| piece.is_trailing_comment()).count();
        let (statement, behind) = rest.split_at(end + more);
        write_statement(&mut writer, statement, &mut depth);
        rest = behind;
    }
    Ok(writer.finished())
}

/// Writes a statement with what stands before it. `depth` is that of statement sets.
fn write_statement(writer: &mut Writer, pieces: &[Piece<'_>], depth: &mut usize) {
    let mut statement = pieces;
    while let [first, behind @ ..] = statement
        && first.is_comment()
    {
        writer.line_of(first, *depth * INDENT);
        statement = behind;
    }
    let Some(first) = statement.first() else { return };
    if first.is_word("END") && *depth > 0 {
        *depth -= 1;
    }
    writer.begin_line(*depth * INDENT, first.is_behind_blank_line);
    let begins_set = |at: usize| {
        statement[at].is_word("BEGIN")
            && statement[..at]
                .iter()
                .all(|piece| piece.is_word_of(&["EXECUTE", "STATEMENT", "SET"]))
    };
    let head = (1..statement.len().min(4)).find(|&at| begins_set(at));
    let Some(at) = head else {
        let (body, end) = statement.split_at(body_length(statement));
        write_nodes(writer, &grouped(body), *depth * INDENT);
        return end.iter().for_each(|piece| writer.piece(piece, *depth * INDENT));
    };
    write_nodes(writer, &grouped(&statement[..=at]), *depth * INDENT);
    *depth += 1;
    if at + 1 < statement.len() {
        write_statement(writer, &statement[at + 1..], depth);
    }
}

/// How many pieces a statement has without the comments at its end and its semicolon.
fn body_length(statement: &[Piece<'_>]) -> usize {
    let is_end = |piece: &Piece<'_>| piece.is_comment() || piece.is_semicolon();
    statement.iter().rposition(|piece| !is_end(piece)).map_or(statement.len(), |last| last + 1)
}

/// Writes nodes from where the writer is: in the line, if they fit, else broken.
fn write_nodes(writer: &mut Writer, nodes: &[Node<'_>], indent: usize) {
    if let Some(width) = flat_width(nodes)
        && writer.column + width <= WIDTH
    {
        return nodes.iter().for_each(|node| write_flat(writer, node));
    }
    let clauses = groups::clauses(nodes);
    if clauses.len() > 1 {
        for (number, clause) in clauses.into_iter().enumerate() {
            if number > 0 {
                writer.begin_line(indent, false);
            }
            write_clause(writer, clause, indent);
        }
        return;
    }
    write_clause(writer, nodes, indent);
}

/// Writes a clause: its head, then its items or conditions, each in a line of its own.
fn write_clause(writer: &mut Writer, nodes: &[Node<'_>], indent: usize) {
    if let Some(width) = flat_width(nodes)
        && writer.column + width <= WIDTH
    {
        return nodes.iter().for_each(|node| write_flat(writer, node));
    }
    let (head, body) = nodes.split_at(groups::head_length(nodes));
    head.iter().for_each(|node| write_node(writer, node, indent));
    let own = if head.is_empty() { indent } else { indent + INDENT };
    let items = groups::items(body);
    if items.len() > 1 || !head.is_empty() {
        for (number, item) in items.into_iter().enumerate() {
            if number > 0 || !head.is_empty() {
                writer.begin_line(own, false);
            }
            write_item(writer, item, own);
        }
        return;
    }
    write_item(writer, body, indent);
}

/// Writes an item of a list: conditions are broken before AND and OR.
fn write_item(writer: &mut Writer, nodes: &[Node<'_>], indent: usize) {
    if let Some(width) = flat_width(nodes)
        && writer.column + width <= WIDTH
    {
        return nodes.iter().for_each(|node| write_flat(writer, node));
    }
    for (number, part) in groups::conditions(nodes).into_iter().enumerate() {
        if number > 0 {
            writer.begin_line(indent + INDENT, false);
        }
        part.iter()
            .for_each(|node| write_node(writer, node, indent + INDENT * usize::from(number > 0)));
    }
}

/// Writes a node, broken if it does not fit.
fn write_node(writer: &mut Writer, node: &Node<'_>, indent: usize) {
    match node {
        Node::Piece(piece) => writer.piece(piece, indent),
        Node::Group { open, inside, close } => {
            let width = flat_width(std::slice::from_ref(node));
            if width.is_some_and(|width| writer.column + width <= WIDTH) {
                return write_flat(writer, node);
            }
            writer.piece(open, indent);
            write_inside(writer, (open, inside), indent + INDENT);
            if let Some(close) = close {
                writer.begin_line(indent, false);
                writer.piece(close, indent);
            }
        }
    }
}

/// Writes what stands inside of a group that does not fit into a line.
fn write_inside(writer: &mut Writer, (open, inside): (&Piece<'_>, &[Node<'_>]), indent: usize) {
    let is_query = groups::clauses(inside).len() > 1 || groups::head_length(inside) > 0;
    let parts = match () {
        () if open.is_word("CASE") => groups::branches(inside),
        () if is_query => {
            writer.begin_line(indent, false);
            return write_nodes(writer, inside, indent);
        }
        () => groups::items(inside),
    };
    for part in parts {
        writer.begin_line(indent, false);
        write_item(writer, part, indent);
    }
}

fn write_flat(writer: &mut Writer, node: &Node<'_>) {
    match node {
        Node::Piece(piece) => writer.piece(piece, writer.indent),
        Node::Group { open, inside, close } => {
            writer.piece(open, writer.indent);
            inside.iter().for_each(|node| write_flat(writer, node));
            close.iter().for_each(|close| writer.piece(close, writer.indent));
        }
    }
}

/// How wide nodes are in one line; none if something in them needs a line of its own.
fn flat_width(nodes: &[Node<'_>]) -> Option<usize> {
    let mut width = 0usize;
    for node in nodes {
        width += match node {
            Node::Piece(piece) => piece.flat_width()?,
            Node::Group { open, inside, close } => {
                let close = close.as_ref().map_or(Some(0), |close| close.flat_width());
                open.flat_width()? + flat_width(inside)? + close?
            }
        };
    }
    Some(width)
}

/// The text so far.
#[derive(Default)]
struct Writer {
    text: String,
    /// Characters of the line so far, or of the indent of that which is to begin.
    column: usize,
    /// Of the line that was begun last.
    indent: usize,
    /// A line is to begin: what comes next begins it, unless it belongs to the line before.
    begins: Option<LineBegin>,
    /// The line ends here, whatever comes.
    is_over: bool,
}

/// A line that is to begin.
#[derive(Clone, Copy, Default)]
struct LineBegin {
    behind_blank_line: bool,
}

impl Writer {
    /// Begins a line with what comes next.
    fn begin_line(&mut self, indent: usize, behind_blank_line: bool) {
        let before = self.begins.is_some_and(|before| before.behind_blank_line);
        self.begins = Some(LineBegin { behind_blank_line: behind_blank_line || before });
        (self.column, self.indent) = (indent, indent);
    }

    /// Writes a comment between statements.
    fn line_of(&mut self, piece: &Piece<'_>, indent: usize) {
        self.begin_line(indent, piece.is_behind_blank_line);
        self.piece(piece, indent);
    }

    /// Writes a piece behind what is there, or in a line that is to begin.
    fn piece(&mut self, piece: &Piece<'_>, indent: usize) {
        let stays = piece.is_trailing_comment() && !self.text.is_empty();
        if stays {
            // What is said of a token stays in its line; the line that is to begin comes later.
            self.text.push(' ');
            self.text.push_str(piece.text);
            self.is_over |= piece.ends_line();
            if self.begins.is_none() {
                self.count(piece.text, 1);
            }
            return;
        }
        if (self.is_over || piece.stands_alone) && self.begins.is_none() {
            self.begin_line(indent, false);
        }
        match self.begins.take() {
            Some(line) => {
                if !self.text.is_empty() {
                    self.text.push_str(if line.behind_blank_line { "\n\n" } else { "\n" });
                }
                self.text.extend(std::iter::repeat_n(' ', self.indent));
                self.column = self.indent;
            }
            None if piece.is_apart && !self.text.is_empty() => {
                self.text.push(' ');
                self.column += 1;
            }
            None => {}
        }
        self.text.push_str(piece.text);
        self.count(piece.text, 0);
        self.is_over = piece.ends_line();
    }

    /// Where the line has come to behind a text.
    fn count(&mut self, text: &str, before: usize) {
        let last = text.rsplit('\n').next().unwrap_or_default();
        let is_longer = last.len() < text.len();
        self.column = last.chars().count() + if is_longer { 0 } else { self.column + before };
    }

    fn finished(mut self) -> String {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text
    }
}
