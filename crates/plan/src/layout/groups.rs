//! Brackets, CASE, clauses, lists and conditions: where a line that is too long may be broken.

use sqlparser::tokenizer::Token;

use super::pieces::Piece;

/// A piece, or what stands between brackets or between CASE and END.
#[derive(Clone, Debug)]
pub(super) enum Node<'t> {
    Piece(Piece<'t>),
    Group { open: Piece<'t>, inside: Vec<Node<'t>>, close: Option<Piece<'t>> },
}

/// How deep brackets are followed; deeper ones are pieces like others.
const DEPTH_MAX: usize = 200;

/// Words with which a clause begins, where they do not stand inside of one: the words that follow
/// in it, and whether its body is a list.
const CLAUSES: [(&[&str], bool); 29] = [
    (&["SELECT", "DISTINCT"], true),
    (&["SELECT", "ALL"], true),
    (&["SELECT"], true),
    (&["FROM"], false),
    (&["WHERE"], false),
    (&["GROUP", "BY"], true),
    (&["HAVING"], false),
    (&["QUALIFY"], false),
    (&["WINDOW"], false),
    (&["ORDER", "BY"], true),
    (&["LIMIT"], false),
    (&["OFFSET"], false),
    (&["FETCH"], false),
    (&["UNION", "ALL"], false),
    (&["UNION"], false),
    (&["INTERSECT", "ALL"], false),
    (&["INTERSECT"], false),
    (&["EXCEPT", "ALL"], false),
    (&["EXCEPT"], false),
    (&["LEFT"], false),
    (&["RIGHT"], false),
    (&["FULL"], false),
    (&["INNER"], false),
    (&["CROSS"], false),
    (&["JOIN"], false),
    (&["VALUES"], true),
    (&["PARTITION", "BY"], true),
    (&["MEASURES"], true),
    (&["DEFINE"], true),
];

/// Words that a JOIN begins with, and those that may stand before it.
const JOINS: [&str; 6] = ["LEFT", "RIGHT", "FULL", "INNER", "CROSS", "JOIN"];

/// Brackets, and CASE with its END, as groups.
pub(super) fn grouped<'t>(pieces: &[Piece<'t>]) -> Vec<Node<'t>> {
    let mut levels: Vec<(Option<Piece<'t>>, Vec<Node<'t>>)> = vec![(None, Vec::new())];
    for piece in pieces {
        let opens = matches!(piece.token, Token::LParen | Token::LBracket | Token::LBrace)
            || is_keyword(piece, levels.last(), "CASE");
        let closes = matches!(piece.token, Token::RParen | Token::RBracket | Token::RBrace)
            || (piece.is_word("END") && levels.last().is_some_and(|(open, _)| is_case(open)));
        if opens && levels.len() < DEPTH_MAX {
            levels.push((Some(piece.clone()), Vec::new()));
        } else if closes && levels.len() > 1 {
            close(&mut levels, Some(piece.clone()));
        } else {
            add(&mut levels, Node::Piece(piece.clone()));
        }
    }
    while levels.len() > 1 {
        close(&mut levels, None);
    }
    levels.pop().map(|(_, nodes)| nodes).unwrap_or_default()
}

/// A word that is no part of a name with dots.
fn is_keyword(
    piece: &Piece<'_>,
    level: Option<&(Option<Piece<'_>>, Vec<Node<'_>>)>,
    word: &str,
) -> bool {
    let last = level.and_then(|(_, nodes)| nodes.last());
    piece.is_word(word) && !last.is_some_and(|node| node.is_token(&Token::Period))
}

fn is_case(open: &Option<Piece<'_>>) -> bool {
    open.as_ref().is_some_and(|open| open.is_word("CASE"))
}

fn add<'t>(levels: &mut [(Option<Piece<'t>>, Vec<Node<'t>>)], node: Node<'t>) {
    if let Some((_, nodes)) = levels.last_mut() {
        nodes.push(node);
    }
}

fn close<'t>(levels: &mut Vec<(Option<Piece<'t>>, Vec<Node<'t>>)>, close: Option<Piece<'t>>) {
    if let Some((Some(open), inside)) = levels.pop() {
        add(levels, Node::Group { open, inside, close });
    }
}

impl Node<'_> {
    fn is_word(&self, word: &str) -> bool {
        matches!(self, Node::Piece(piece) if piece.is_word(word))
    }

    fn is_word_of(&self, words: &[&str]) -> bool {
        matches!(self, Node::Piece(piece) if piece.is_word_of(words))
    }

    fn is_token(&self, token: &Token) -> bool {
        matches!(self, Node::Piece(piece) if piece.token == *token)
    }

    fn is_comment(&self) -> bool {
        matches!(self, Node::Piece(piece) if piece.is_comment())
    }

    fn is_trailing_comment(&self) -> bool {
        matches!(self, Node::Piece(piece) if piece.is_trailing_comment())
    }
}

fn head_of(nodes: &[Node<'_>]) -> Option<&'static (&'static [&'static str], bool)> {
    let is_there = |words: &[&str]| {
        words.len() <= nodes.len() && words.iter().zip(nodes).all(|(word, node)| node.is_word(word))
    };
    CLAUSES.iter().find(|(words, _)| is_there(words))
}

/// The clauses of nodes; what stands before the first one is one, too. A comment that stands alone
/// belongs to the clause behind it.
pub(super) fn clauses<'a, 't>(nodes: &'a [Node<'t>]) -> Vec<&'a [Node<'t>]> {
    let (mut starts, mut before) = (vec![0], Before::default());
    for (at, node) in nodes.iter().enumerate() {
        if at > 0 && begins_clause(nodes, at, &before) {
            starts.push(before.comments_from.unwrap_or(at));
        }
        before.pass(at, node);
    }
    starts.dedup();
    starts.push(nodes.len());
    starts
        .windows(2)
        .map(|ends| &nodes[ends[0]..ends[1]])
        .filter(|clause| !clause.is_empty())
        .collect()
}

/// What stands before a node.
#[derive(Default)]
struct Before {
    /// The place of the last node that is no comment.
    last: Option<usize>,
    /// The place of the first comment behind that which stands alone.
    comments_from: Option<usize>,
    has_select: bool,
    has_from: bool,
}

impl Before {
    fn pass(&mut self, at: usize, node: &Node<'_>) {
        if node.is_comment() {
            if !node.is_trailing_comment() {
                self.comments_from.get_or_insert(at);
            }
            return;
        }
        (self.last, self.comments_from) = (Some(at), None);
        self.has_select |= node.is_word("SELECT");
        self.has_from |= node.is_word("FROM");
    }
}

/// True if a clause begins here, and not a name or a part of the clause before.
fn begins_clause(nodes: &[Node<'_>], at: usize, before: &Before) -> bool {
    let Some(last) = before.last.map(|last| &nodes[last]) else { return false };
    let node = &nodes[at];
    let is_part = last.is_token(&Token::Period)
        || last.is_token(&Token::Comma)
        || nodes.get(at + 1).is_some_and(|next| next.is_token(&Token::Period));
    if is_part || head_of(&nodes[at..]).is_none() {
        return false;
    }
    match () {
        // `LEFT(s, 2)` is a call.
        () if node.is_word_of(&["LEFT", "RIGHT"]) => is_join(&nodes[at..]),
        () if node.is_word("JOIN") => !last.is_word_of(&JOINS) && !last.is_word("OUTER"),
        () if node.is_word_of(&JOINS) => is_join(&nodes[at..]),
        () if node.is_word("SELECT") => !last.is_word_of(&["ALL", "DISTINCT"]) || is_set(nodes, at),
        // `EXTRACT(… FROM …)`, `IS DISTINCT FROM`, `SHOW … FROM`.
        () if node.is_word("FROM") => !last.is_word("DISTINCT") && before.has_select,
        () if node.is_word("WINDOW") => before.has_from,
        () => true,
    }
}

/// `UNION ALL SELECT`
fn is_set(nodes: &[Node<'_>], at: usize) -> bool {
    at > 1 && nodes[at - 2].is_word_of(&["UNION", "INTERSECT", "EXCEPT"])
}

/// `LEFT OUTER JOIN`
fn is_join(nodes: &[Node<'_>]) -> bool {
    let words = nodes.iter().skip(1).take(2);
    words.take_while(|node| node.is_word_of(&["OUTER", "JOIN"])).any(|node| node.is_word("JOIN"))
}

/// How many nodes the head of a clause has, comments before it included; none where its body is no
/// list and stays in the line.
pub(super) fn head_length(nodes: &[Node<'_>]) -> usize {
    let before = nodes.iter().take_while(|node| node.is_comment()).count();
    match head_of(&nodes[before..]) {
        Some((words, true)) => {
            let hints = nodes[before + words.len()..].iter();
            before + words.len() + hints.take_while(|node| node.is_trailing_comment()).count()
        }
        _ => 0,
    }
}

/// The items of a list, each with its comma and what is said behind that.
pub(super) fn items<'a, 't>(nodes: &'a [Node<'t>]) -> Vec<&'a [Node<'t>]> {
    let mut items = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < nodes.len() {
        at += 1;
        if nodes[at - 1].is_token(&Token::Comma) {
            at += nodes[at..].iter().take_while(|node| node.is_trailing_comment()).count();
            items.push(&nodes[start..at]);
            start = at;
        }
    }
    items.push(&nodes[start..]);
    items.retain(|item| !item.is_empty());
    items
}

/// Conditions, each from its AND or OR on. The AND of BETWEEN is no such one.
pub(super) fn conditions<'a, 't>(nodes: &'a [Node<'t>]) -> Vec<&'a [Node<'t>]> {
    let (mut starts, mut is_between) = (vec![0], false);
    for (at, node) in nodes.iter().enumerate().skip(1) {
        match () {
            () if node.is_word("BETWEEN") => is_between = true,
            () if node.is_word("AND") && is_between => is_between = false,
            () if node.is_word_of(&["AND", "OR"]) => starts.push(at),
            () => {}
        }
    }
    starts.push(nodes.len());
    starts.windows(2).map(|ends| &nodes[ends[0]..ends[1]]).filter(|part| !part.is_empty()).collect()
}

/// The branches of CASE: what stands before the first WHEN, then from each WHEN and ELSE on.
pub(super) fn branches<'a, 't>(nodes: &'a [Node<'t>]) -> Vec<&'a [Node<'t>]> {
    let mut starts = vec![0];
    starts.extend((1..nodes.len()).filter(|&at| nodes[at].is_word_of(&["WHEN", "ELSE"])));
    starts.push(nodes.len());
    starts.windows(2).map(|ends| &nodes[ends[0]..ends[1]]).filter(|part| !part.is_empty()).collect()
}
