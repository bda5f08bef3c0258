//! Secrets in statements that are sent to other engines.

use thalweg_core::connector::Secrets;

#[test]
fn a_secret_keeps_its_quotes_in_a_statement_and_is_redacted_in_both_forms() {
    let folder = std::env::temp_dir().join(format!("thalweg-sent-secrets-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("db"), "it's").expect("written");
    let secrets = Secrets { folder: Some(folder.clone()), ..Secrets::default() };
    let sent = secrets.resolve_in_statement("SET 'p' = '${secret:db}'").expect("it is set");
    assert_eq!(sent.expose(), "SET 'p' = 'it''s'");
    assert_eq!(sent.redact("near 'it''s': it's wrong"), "near '***': *** wrong");
    assert!(secrets.resolve_in_statement("SET 'p' = '${secret:other}'").is_err());
    let plain = secrets.resolve_in_statement("SELECT 1").expect("it has no secret");
    assert_eq!((plain.expose(), plain.redact("SELECT 1").as_str()), ("SELECT 1", "SELECT 1"));
    std::fs::remove_dir_all(folder).expect("removed");
}
