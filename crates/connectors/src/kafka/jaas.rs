//! `sasl.jaas.config`, as the Java client takes it: a login module, `required`, and its options.

/// Who signs in.
#[derive(Debug, PartialEq, Eq)]
pub struct SignIn {
    /// How.
    pub module: Module,
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

/// A login module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// `PlainLoginModule`
    Plain,
    /// `ScramLoginModule`
    Scram,
}

impl Module {
    /// Checks that a mechanism is one of this module.
    pub fn check(self, mechanism: Option<&str>) -> Result<(), String> {
        let fits = match (self, mechanism) {
            (Module::Plain, Some(mechanism)) => mechanism.eq_ignore_ascii_case("PLAIN"),
            (Module::Scram, Some(mechanism)) => {
                mechanism.to_ascii_uppercase().starts_with("SCRAM-")
            }
            (_, None) => false,
        };
        let (name, wanted) = match self {
            Module::Plain => ("PlainLoginModule", "'PLAIN'"),
            Module::Scram => ("ScramLoginModule", "'SCRAM-SHA-256' or 'SCRAM-SHA-512'"),
        };
        match fits {
            true => Ok(()),
            false => Err(format!("{name} needs 'properties.sasl.mechanism' = {wanted}")),
        }
    }
}

/// Reads it. Says what is wrong without showing it.
pub fn read(text: &str) -> Result<SignIn, String> {
    let words = words(text.trim().trim_end_matches(';'))?;
    let mut words = words.iter().map(String::as_str);
    let class = words.next().unwrap_or_default();
    // Flink's distribution has the Java client under another package.
    let module = match class.rsplit('.').next().unwrap_or_default() {
        "PlainLoginModule" => Module::Plain,
        "ScramLoginModule" => Module::Scram,
        other => {
            return Err(format!(
                "the login module '{other}' is not supported: PlainLoginModule and ScramLoginModule are"
            ));
        }
    };
    let (mut user, mut password) = (None, None);
    for word in words {
        match word.split_once('=') {
            Some(("username", value)) => user = Some(value.to_owned()),
            Some(("password", value)) => password = Some(value.to_owned()),
            _ => {}
        }
    }
    match (user, password) {
        (Some(user), Some(password)) => Ok(SignIn { module, user, password }),
        _ => Err("it needs username=\"…\" and password=\"…\"".to_owned()),
    }
}

/// Cuts a text at blanks outside quotes; the quotes go.
fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (c, quote) {
            ('\\', Some(_)) => word.extend(characters.next()),
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.push(c),
            ('"' | '\'', None) => quote = Some(c),
            (c, None) if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            (c, None) => word.push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_modules_of_java_and_of_flink() {
        for package in ["org.apache.kafka", "org.apache.flink.kafka.shaded.org.apache.kafka"] {
            let text = format!(
                "{package}.common.security.scram.ScramLoginModule required\n username=\"a b\" password='x\"=;';"
            );
            let found = read(&text).expect("a sign-in");
            assert_eq!((found.module, found.user.as_str()), (Module::Scram, "a b"));
            assert_eq!(found.password, "x\"=;");
            assert!(found.module.check(Some("SCRAM-SHA-512")).is_ok());
            assert!(
                found.module.check(Some("PLAIN")).is_err() && found.module.check(None).is_err()
            );
        }
        for wrong in [
            "",
            "a.b.KerberosLoginModule required",
            "x.PlainLoginModule required username=u",
            "x.PlainLoginModule \"",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
