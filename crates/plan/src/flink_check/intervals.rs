//! Literals of intervals whose first field has more digits than Flink takes: two, unless a number
//! in brackets says otherwise. `INTERVAL '365' DAY` is `INTERVAL '365' DAY(3)` there.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::finding::Finding;

/// Digits of the first field without a number in brackets.
const DIGITS: usize = 2;

/// What Flink refuses of the words of a script.
pub(super) fn long_intervals(words: &[&TokenWithSpan]) -> impl Iterator<Item = Finding> {
    let starts = (0..words.len()).filter(|&at| is_word(&words[at].token, "INTERVAL"));
    starts.filter_map(|at| long_interval(&words[at + 1..]))
}

/// The words behind INTERVAL.
fn long_interval(words: &[&TokenWithSpan]) -> Option<Finding> {
    let has_sign = matches!(words.first()?.token, Token::Minus | Token::Plus);
    let words = &words[usize::from(has_sign)..];
    let [literal, unit, rest @ ..] = words else { return None };
    let (Token::SingleQuotedString(text), Token::Word(word)) = (&literal.token, &unit.token) else {
        return None;
    };
    let has_precision = rest.first().is_some_and(|next| next.token == Token::LParen);
    let digits = first_field(text).len();
    if has_precision || digits <= DIGITS {
        return None;
    }
    let written = format!("{}({digits})", word.value);
    let message = format!(
        "Flink takes {DIGITS} digits in front of {}: write {written}",
        word.value.to_ascii_uppercase()
    );
    Some(Finding::refused(crate::parser::span(unit.span), message).with_text(written))
}

/// The digits of the first field that count.
fn first_field(text: &str) -> &str {
    let digits = text.trim().trim_start_matches(['-', '+']).trim_start_matches('0');
    let end = digits.find(|character: char| !character.is_ascii_digit());
    &digits[..end.unwrap_or(digits.len())]
}

fn is_word(token: &Token, wanted: &str) -> bool {
    let Token::Word(word) = token else { return false };
    word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted)
}
