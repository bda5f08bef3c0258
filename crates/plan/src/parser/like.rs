//! `LIKE table (…)` and `AS query` of CREATE TABLE.

use sqlparser::tokenizer::Token;
use thalweg_core::Result;

use super::problem::end_of;
use super::query::query;
use super::tokens::Cursor;
use crate::ast::{AsClause, LikeAction, LikeClause, LikeFeature};

/// Behind LIKE.
pub(super) fn like(cursor: &mut Cursor<'_>) -> Result<LikeClause> {
    let table = cursor.table_name()?;
    let mut options = Vec::new();
    if cursor.take_token(&Token::LParen) {
        while !cursor.take_token(&Token::RParen) {
            options.push(like_option(cursor)?);
        }
    }
    Ok(LikeClause { table, options })
}

fn like_option(cursor: &mut Cursor<'_>) -> Result<(LikeAction, LikeFeature, crate::ast::Name)> {
    let action = match () {
        () if cursor.take_words(&["INCLUDING"]) => LikeAction::Including,
        () if cursor.take_words(&["EXCLUDING"]) => LikeAction::Excluding,
        () if cursor.take_words(&["OVERWRITING"]) => LikeAction::Overwriting,
        () => return Err(cursor.expected("INCLUDING, EXCLUDING or OVERWRITING")),
    };
    const FEATURES: [(&str, LikeFeature); 8] = [
        ("ALL", LikeFeature::All),
        ("CONSTRAINTS", LikeFeature::Constraints),
        ("DISTRIBUTION", LikeFeature::Distribution),
        ("GENERATED", LikeFeature::Generated),
        ("METADATA", LikeFeature::Metadata),
        ("OPTIONS", LikeFeature::Options),
        ("PARTITIONS", LikeFeature::Partitions),
        ("WATERMARKS", LikeFeature::Watermarks),
    ];
    let Some((_, feature)) = FEATURES.iter().find(|(word, _)| cursor.is_word(word)) else {
        let features = FEATURES.map(|(word, _)| word).join(", ");
        return Err(cursor.expected(&format!("one of {features}")));
    };
    Ok((action, *feature, cursor.name("a part of a table")?))
}

/// Behind AS.
pub(super) fn as_clause(cursor: &mut Cursor<'_>) -> Result<AsClause> {
    let (source, end) = (cursor.source, end_of(cursor.tokens));
    let query = query(source, cursor.rest()).map_err(|error| error.at(end))?;
    Ok(AsClause { query, order: Vec::new() })
}
