//! Checks of what a connector says of itself against what it does.

use thalweg_core::connector::{
    Boundedness, Connector, OptionDefault, OptionDescription, OptionKind, TableRequest,
};

/// A value that no option takes but a text.
const WRONG: &str = "no such value";

/// Checks the description of a connector with a table that it accepts, for reading or for writing.
///
/// # Panics
/// If it contradicts itself or what the connector does.
pub fn check_description(connector: &dyn Connector, table: &TableRequest) {
    let description = connector.description();
    let capabilities = &description.capabilities;
    let directions: Vec<bool> = [
        (capabilities.source.is_some() || capabilities.is_lookup).then_some(false),
        capabilities.sink.is_some().then_some(true),
    ]
    .into_iter()
    .flatten()
    .collect();
    assert!(!directions.is_empty(), "a table can be read, written or looked up");
    let accepts = |request: &TableRequest| {
        directions.iter().any(|&as_sink| connector.validate(request, as_sink).is_ok())
    };
    assert!(accepts(table), "the table to check with is refused");
    check_capabilities(connector, table);
    let kept = directions.iter().flat_map(|&as_sink| connector.state_options(table, as_sink));
    for (name, _) in kept {
        let is_secret = description.option(&name).is_some_and(|of| of.kind == OptionKind::Secret);
        assert!(!is_secret, "option '{name}' is secret, and snapshots would have it");
    }
    for option in description.all_options() {
        check_option(connector, option, table, &accepts);
    }
    let mut unknown = table.clone();
    unknown.options.insert("no-such-option".to_owned(), "1".to_owned());
    assert!(!accepts(&unknown), "an unknown option is accepted");
    for metadata in description.metadata {
        assert!(!metadata.key.is_empty() && !metadata.help.is_empty(), "{metadata:?}");
    }
}

/// What the methods say of the table must be among what the description says of all tables.
fn check_capabilities(connector: &dyn Connector, table: &TableRequest) {
    let capabilities = connector.description().capabilities;
    match capabilities.source {
        None => assert!(connector.source(table).is_err(), "a table that can't be read is opened"),
        Some(source) => {
            let held = connector.held_changes(table);
            assert!(source.changes.contains(&held), "{held:?} are read and not described");
            let is_bounded = connector.is_bounded(table);
            let is_described = match source.boundedness {
                Boundedness::Bounded => is_bounded,
                Boundedness::Unbounded => !is_bounded,
                Boundedness::ByOptions => true,
            };
            assert!(is_described, "the table is bounded: {is_bounded}, and described otherwise");
        }
    }
    match capabilities.sink {
        None => assert!(connector.sink(table).is_err(), "a table that can't be written is opened"),
        Some(sink) => {
            let accepted = connector.accepted_changes(table);
            assert!(sink.changes.contains(&accepted), "{accepted:?} are taken and not described");
        }
    }
}

fn check_option(
    connector: &dyn Connector,
    option: &OptionDescription,
    table: &TableRequest,
    accepts: &dyn Fn(&TableRequest) -> bool,
) {
    let (name, description) = (option.name, connector.description());
    assert!(!option.help.is_empty() && !option.help.ends_with('.'), "{name}: {}", option.help);
    let known = description.all_options().filter(|other| other.name == name).count();
    assert_eq!(known, 1, "option '{name}' is described {known} times");
    if let (OptionKind::Words(words), OptionDefault::Value(value)) = (option.kind, option.default) {
        assert!(words.contains(&value), "option '{name}' has no word '{value}'");
    }
    let format = table.options.get("format").map(String::as_str);
    if description.format_of(name).is_some_and(|of| Some(of.name) != format) {
        return;
    }
    let column = table.schema.columns.first().map_or("", |column| column.name.as_str());
    let set = name.replace('*', column);
    if option.default == OptionDefault::Required {
        let mut request = table.clone();
        request.options.remove(&set);
        assert!(!accepts(&request), "option '{name}' is required and may be left out");
    }
    if let OptionDefault::Value(value) = option.default
        && !name.contains('*')
        && !table.options.contains_key(&set)
    {
        let mut request = table.clone();
        request.options.insert(set.clone(), value.to_owned());
        assert!(accepts(&request), "option '{name}' does not take its default '{value}'");
    }
    let is_typed =
        !matches!(option.kind, OptionKind::Text | OptionKind::Secret) && !name.contains('*');
    let mut request = table.clone();
    request.options.insert(set, WRONG.to_owned());
    assert!(!(is_typed && accepts(&request)), "option '{name}' takes '{WRONG}'");
}
