//! Catalogs, databases, modules and functions: CREATE, DROP, USE, LOAD.

use thalweg_core::{Error, Result};

use super::create::option_list;
use super::tokens::Cursor;
use crate::ast::{CreateFunction, Declaration, Name, OptionChange};

/// Behind `CREATE CATALOG`.
pub(super) fn create_catalog(cursor: &mut Cursor<'_>) -> Result<Declaration> {
    let if_not_exists = cursor.take_words(&["IF", "NOT", "EXISTS"]);
    let name = cursor.name("a catalog's name")?;
    let comment = comment(cursor)?;
    let options = with_options(cursor)?;
    Ok(Declaration::CreateCatalog { name, if_not_exists, comment, options })
}

/// Behind `CREATE DATABASE`.
pub(super) fn create_database(cursor: &mut Cursor<'_>) -> Result<Declaration> {
    let if_not_exists = cursor.take_words(&["IF", "NOT", "EXISTS"]);
    let name = cursor.path("a database's name")?;
    let comment = comment(cursor)?;
    let options = with_options(cursor)?;
    Ok(Declaration::CreateDatabase { name, if_not_exists, comment, options })
}

fn comment(cursor: &mut Cursor<'_>) -> Result<Option<String>> {
    if !cursor.take_words(&["COMMENT"]) {
        return Ok(None);
    }
    cursor.string("a comment in single quotes").map(|comment| Some(comment.text))
}

/// `[WITH (…)]`
pub(super) fn with_options(cursor: &mut Cursor<'_>) -> Result<Vec<(Name, Name)>> {
    if cursor.take_words(&["WITH"]) { option_list(cursor) } else { Ok(Vec::new()) }
}

/// Behind `DROP CATALOG`.
pub(super) fn drop_catalog(cursor: &mut Cursor<'_>) -> Result<Declaration> {
    let if_exists = cursor.take_words(&["IF", "EXISTS"]);
    Ok(Declaration::DropCatalog { name: cursor.name("a catalog's name")?, if_exists })
}

/// Behind `DROP DATABASE`.
pub(super) fn drop_database(cursor: &mut Cursor<'_>) -> Result<Declaration> {
    let if_exists = cursor.take_words(&["IF", "EXISTS"]);
    let name = cursor.path("a database's name")?;
    let cascades = cursor.take_words(&["CASCADE"]);
    if !cascades {
        cursor.take_words(&["RESTRICT"]);
    }
    Ok(Declaration::DropDatabase { name, if_exists, cascades })
}

/// `USE …`
pub(super) fn use_statement(cursor: &mut Cursor<'_>) -> Result<Declaration> {
    cursor.expect_words(&["USE"])?;
    if cursor.is_word("CATALOG") && cursor.peek_at(1).is_some() {
        cursor.next();
        return Ok(Declaration::UseCatalog(cursor.name("a catalog's name")?));
    }
    if cursor.is_word("MODULES") && cursor.peek_at(1).is_some() {
        cursor.next();
        let names = cursor.list(|cursor| cursor.name("a module's name"))?;
        return Ok(Declaration::UseModules(names));
    }
    Ok(Declaration::UseDatabase(cursor.path("a database's name")?))
}

/// `LOAD MODULE name [WITH (…)]`, `UNLOAD MODULE name`
pub(super) fn module(cursor: &mut Cursor<'_>) -> Result<Declaration> {
    let is_loaded = cursor.take_words(&["LOAD"]);
    if !is_loaded {
        cursor.expect_words(&["UNLOAD"])?;
    }
    cursor.expect_words(&["MODULE"])?;
    let name = cursor.name("a module's name")?;
    if !is_loaded {
        return Ok(Declaration::UnloadModule(name));
    }
    with_options(cursor)?;
    Ok(Declaration::LoadModule(name))
}

/// What stands before FUNCTION.
#[derive(Clone, Copy, Default)]
pub(super) struct FunctionWords {
    /// `TEMPORARY`
    pub(super) is_temporary: bool,
    /// `SYSTEM`
    pub(super) is_system: bool,
    /// `ALTER`
    pub(super) is_alteration: bool,
}

/// Behind `CREATE … FUNCTION` or `ALTER … FUNCTION`.
pub(super) fn create_function(
    cursor: &mut Cursor<'_>,
    words: FunctionWords,
) -> Result<Declaration> {
    let FunctionWords { is_temporary, is_system, is_alteration } = words;
    let if_exists = is_alteration && cursor.take_words(&["IF", "EXISTS"]);
    let if_not_exists = !is_alteration && cursor.take_words(&["IF", "NOT", "EXISTS"]);
    let name = cursor.path("a function's name")?;
    cursor.expect_words(&["AS"])?;
    let identifier = cursor.string("the function's class or name in single quotes")?;
    let language = match cursor.take_words(&["LANGUAGE"]) {
        true => Some(cursor.name("a language")?),
        false => None,
    };
    let resource = |cursor: &mut Cursor<'_>| {
        if !(cursor.take_words(&["JAR"]) || cursor.take_words(&["ARTIFACT"])) {
            return Err(cursor.expected("JAR"));
        }
        cursor.string("a path in single quotes")
    };
    let resources = match cursor.take_words(&["USING"]) {
        true => cursor.list(resource)?,
        false => Vec::new(),
    };
    with_options(cursor)?;
    Ok(Declaration::CreateFunction(CreateFunction {
        name,
        is_system,
        is_temporary,
        if_not_exists,
        is_alteration,
        if_exists,
        identifier,
        language,
        resources,
    }))
}

/// Behind `DROP … FUNCTION`.
pub(super) fn drop_function(cursor: &mut Cursor<'_>, is_system: bool) -> Result<Declaration> {
    let if_exists = cursor.take_words(&["IF", "EXISTS"]);
    let name = cursor.path("a function's name")?;
    Ok(Declaration::DropFunction { name, is_system, if_exists })
}

/// `SET (…)`, `RESET (…)` or `COMMENT '…'` of a catalog or a database.
pub(super) fn option_change(cursor: &mut Cursor<'_>) -> Result<OptionChange> {
    if cursor.take_words(&["SET"]) {
        return option_list(cursor).map(OptionChange::Set);
    }
    if cursor.take_words(&["RESET"]) {
        return option_names(cursor).map(OptionChange::Reset);
    }
    match comment(cursor)? {
        Some(comment) => Ok(OptionChange::Comment(comment)),
        None => Err(cursor.expected("SET, RESET or COMMENT")),
    }
}

/// `('name', …)`
pub(super) fn option_names(cursor: &mut Cursor<'_>) -> Result<Vec<Name>> {
    use sqlparser::tokenizer::Token;
    let here = cursor.here();
    cursor.expect_token(&Token::LParen)?;
    if cursor.take_token(&Token::RParen) {
        return Err(Error::plan("RESET names no option").at(here));
    }
    let names = cursor.list(|cursor| cursor.string("an option's name in single quotes"))?;
    cursor.expect_token(&Token::RParen)?;
    Ok(names)
}
