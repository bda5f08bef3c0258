//! Texts as parts of URLs.

use std::fmt::Write;

/// A text with all but the unreserved characters of URLs as `%XX`.
pub fn encoded(text: &str) -> String {
    let mut found = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                found.push(byte.into());
            }
            _ => write!(found, "%{byte:02X}").expect("a text takes all"),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::encoded;

    #[test]
    fn names_are_parts_of_paths_whatever_is_in_them() {
        assert_eq!(encoded("web\u{1f}sales"), "web%1Fsales");
        assert_eq!(encoded("a b/ü?"), "a%20b%2F%C3%BC%3F");
    }
}
