//! Texts as tokens, and what is done to them.

use std::ops::Range;

use crate::corpus::{Corpus, Script};

/// A word, a literal or a symbol, and the blanks and comments before it.
#[derive(Clone)]
pub struct Token {
    pub before: String,
    pub text: String,
}

/// Literals at the ends of what types hold.
const EXTREMES: [&str; 24] = [
    "0",
    "-1",
    "1",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "1e308",
    "1e400",
    "0.1",
    "99999999999999999999999999999999999999",
    "''",
    "'ä'",
    "'x'",
    "NULL",
    "TRUE",
    "INTERVAL '0' SECOND",
    "INTERVAL '1000000000' DAY",
    "INTERVAL '-1' MINUTE",
    "DATE '0001-01-01'",
    "TIMESTAMP '9999-12-31 23:59:59.999'",
    "ARRAY[1, NULL]",
    "MAP['k', 1]",
    "ROW(1, 'a')",
    "CAST(NULL AS STRING)",
];

/// A reproducible sequence (SplitMix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64, case: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ case);
        random.next();
        random
    }
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
    pub fn choice<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// The text of a script with one to three changes, mostly one: what still parses is looked at more
/// closely.
pub fn mutated(script: &Script, corpus: &Corpus, random: &mut Random) -> String {
    let mut tokens = script.tokens.clone();
    for _ in 0..*random.choice(&[1, 1, 1, 1, 2, 2, 3]) {
        if tokens.is_empty() {
            break;
        }
        change(&mut tokens, corpus, random);
    }
    tokens.iter().map(|token| format!("{}{}", token.before, token.text)).collect()
}

fn change(tokens: &mut Vec<Token>, corpus: &Corpus, random: &mut Random) {
    // Queries stand behind the tables that they read, and have more that can go wrong.
    let ends = tokens[..tokens.len() - 1].iter().rposition(|token| token.text == ";");
    let first = if random.below(10) < 8 { ends.map_or(0, |end| end + 1) } else { 0 };
    let at = first + random.below(tokens.len() - first);
    let spaced = |text: &str| Token { before: " ".to_owned(), text: text.to_owned() };
    match random.below(16) {
        0 => drop(tokens.remove(at)),
        1 => tokens.insert(at, tokens[at].clone()),
        2 => {
            let other = (at + 1) % tokens.len();
            swap(tokens, at, other);
        }
        3 => {
            let other = random.below(tokens.len());
            swap(tokens, at, other);
        }
        4 => tokens[at].text.clone_from(random.choice(&corpus.pool)),
        5..=8 => exchange_for_its_like(tokens, at, corpus, random),
        9 => tokens.insert(at, spaced(random.choice(&corpus.pool).as_str())),
        10 | 11 => {
            let is_value =
                |token: &Token| kind(&token.text).is_some_and(|kind| kind != Kind::Keyword);
            let place = (at..tokens.len()).find(|&place| is_value(&tokens[place])).unwrap_or(at);
            tokens[place] = spaced(random.choice::<&str>(&EXTREMES));
        }
        12..=14 => {
            let group = at + random.below(tokens.len() - at);
            exchange_groups(tokens, group, &random.choice(&corpus.scripts).tokens, random);
        }
        _ => {
            let other = &random.choice(&corpus.scripts).tokens;
            let from = random.below(other.len());
            let some = other[from..].iter().take(1 + random.below(12)).cloned();
            let end = (at + random.below(6)).min(tokens.len());
            tokens.splice(at..end, some.collect::<Vec<_>>());
        }
    }
}

/// A name for a name of the same script, a literal for a literal, a function or word for one of any
/// script.
fn exchange_for_its_like(tokens: &mut [Token], at: usize, corpus: &Corpus, random: &mut Random) {
    let Some(place) = (at..tokens.len()).find(|&place| kind(&tokens[place].text).is_some()) else {
        return;
    };
    let own = kind(&tokens[place].text);
    let found = if own == Some(Kind::Keyword) && random.below(2) == 0 {
        // The pool is sorted, and has many: some are looked at.
        let some = (0..50).map(|_| random.choice(&corpus.pool).clone());
        some.collect::<Vec<_>>().into_iter().find(|text| kind(text) == own)
    } else {
        let same: Vec<&Token> = tokens.iter().filter(|token| kind(&token.text) == own).collect();
        Some(random.choice(&same).text.clone())
    };
    if let Some(text) = found {
        tokens[place].text = text;
    }
}

/// Puts what stands in one pair of brackets, of this or of another script, in the place of what
/// stands in another: arguments, sub-queries, windows, lists of columns.
fn exchange_groups(tokens: &mut Vec<Token>, near: usize, other: &[Token], random: &mut Random) {
    let all = groups(tokens);
    let Some(into) = all.iter().find(|group| group.start >= near).or(all.first()).cloned() else {
        return;
    };
    let from: Vec<Token> = if random.below(2) == 0 {
        tokens[random.choice(&all).clone()].to_vec()
    } else {
        let groups = groups(other);
        if groups.is_empty() {
            return;
        }
        other[random.choice(&groups).clone()].to_vec()
    };
    tokens.splice(into, from);
}

/// What stands between brackets that match.
fn groups(tokens: &[Token]) -> Vec<Range<usize>> {
    let (mut open, mut found) = (Vec::new(), Vec::new());
    for (place, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "(" => open.push(place + 1),
            ")" => found.extend(open.pop().map(|start| start..place)),
            _ => {}
        }
    }
    found.sort_unstable_by_key(|group| group.start);
    found
}

fn swap(tokens: &mut [Token], left: usize, right: usize) {
    let text = tokens[left].text.clone();
    tokens[left].text = std::mem::replace(&mut tokens[right].text, text);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    /// A word in upper case, as words of SQL and functions are written here.
    Keyword,
    Name,
}

/// What a token is; `None` for symbols.
fn kind(text: &str) -> Option<Kind> {
    match text.chars().next()? {
        '\'' => Some(Kind::Text),
        first if first.is_ascii_digit() => Some(Kind::Number),
        _ if text.chars().all(|c| c.is_uppercase() || c == '_') => Some(Kind::Keyword),
        first if first.is_alphabetic() || first == '`' => Some(Kind::Name),
        _ => None,
    }
}

/// Cuts a text into tokens; nothing is lost but blanks and comments at the end.
pub fn tokens(text: &str) -> Vec<Token> {
    let (mut found, mut rest, mut before) = (Vec::new(), text, String::new());
    while let Some(first) = rest.chars().next() {
        let length = length(rest, first);
        let (token, behind) = rest.split_at(length);
        if first.is_whitespace() || token.starts_with("--") || token.starts_with("/*") {
            before.push_str(token);
        } else {
            found.push(Token { before: std::mem::take(&mut before), text: token.to_owned() });
        }
        rest = behind;
    }
    found
}

/// How many bytes the first token has.
fn length(text: &str, first: char) -> usize {
    let until = |end: Option<usize>| end.unwrap_or(text.len());
    let quoted = |quote: char| until(text[1..].find(quote).map(|at| at + 2));
    let run = |is_part: fn(char) -> bool| until(text.find(|c: char| !is_part(c)));
    match first {
        '\'' | '`' | '"' => quoted(first),
        '-' if text.starts_with("--") => until(text.find('\n')),
        '/' if text.starts_with("/*") => until(text.find("*/").map(|at| at + 2)),
        _ if first.is_whitespace() => run(char::is_whitespace),
        _ if first.is_alphanumeric() || first == '_' => run(|c| c.is_alphanumeric() || c == '_'),
        '<' | '>' | '=' | '|' | '!' => run(|c| "<>=|!".contains(c)),
        _ => first.len_utf8(),
    }
}
