//! What the check and the translation have to say of a script.

use thalweg_core::Span;

/// What Flink does about something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It refuses the statement.
    Refused,
    /// It runs the statement without it.
    Ignored,
}

/// Something that Flink would refuse or ignore.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Where it stands.
    pub span: Span,
    /// What it is and what to write instead.
    pub message: String,
    /// What Flink does about it.
    pub severity: Severity,
    /// How a translation goes about it.
    pub fix: Fix,
}

/// How a translation makes something that Flink takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// It cannot.
    None,
    /// This text stands in its place.
    Text(String),
    /// The option is left out.
    DropOption,
}

impl Finding {
    /// Something that Flink refuses and that no translation mends.
    pub(super) fn refused(span: Span, message: impl Into<String>) -> Finding {
        Finding { span, message: message.into(), severity: Severity::Refused, fix: Fix::None }
    }

    pub(super) fn with_text(self, text: impl Into<String>) -> Finding {
        Finding { fix: Fix::Text(text.into()), ..self }
    }
}

/// What is known of the cluster that a script is meant for.
#[derive(Clone, Debug, Default)]
pub struct FlinkCluster {
    /// Names or paths of jars that the cluster has beyond those that come with Flink.
    pub jars: Vec<String>,
    /// Whether secrets are put into the statements that it gets.
    pub gets_secrets: bool,
}
