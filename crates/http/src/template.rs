//! Templates: texts with named parameters in braces.

use std::fmt::Display;

use bellwether::ConfigError;

/// A text with parameters in braces, such as `/shelf/{warehouse}/{id}`.
#[derive(Clone, Debug)]
pub(super) struct NamedTemplate {
    text: String,
    parts: Vec<TemplatePart>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplatePart {
    Text(String),
    Parameter {
        name: String,
        /// It may have slashes, as in `{*path}`.
        is_path: bool,
    },
}

/// A value for a parameter of a template.
pub(super) type NamedValue<'a> = (&'a str, &'a dyn Display);

impl NamedTemplate {
    pub(super) fn read(text: &str) -> Result<Self, ConfigError> {
        let error = |reason| ConfigError::Key { given: text.to_owned(), reason };
        let mut parts = Vec::new();
        let mut left = text;
        while let Some(at) = left.find(['{', '}']) {
            if left[at..].starts_with('}') {
                return Err(error("a closing brace without an opening one"));
            }
            if at > 0 {
                parts.push(TemplatePart::Text(left[..at].to_owned()));
            }
            let rest = &left[at + 1..];
            let end = rest.find(['{', '}']).filter(|end| rest[*end..].starts_with('}'));
            let end = end.ok_or_else(|| error("an opening brace without a closing one"))?;
            let name = rest[..end].trim_start_matches('*');
            if name.is_empty() {
                return Err(error("a parameter without a name"));
            }
            let is_path = rest.starts_with('*');
            parts.push(TemplatePart::Parameter { name: name.to_owned(), is_path });
            left = &rest[end + 1..];
        }
        if !left.is_empty() {
            parts.push(TemplatePart::Text(left.to_owned()));
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }

    /// The names of the parameters, in their order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Parameter { name, .. } => Some(name.as_str()),
            TemplatePart::Text(_) => None,
        })
    }

    /// Checks that each parameter has one value, and that no value is for another one.
    pub(super) fn check(&self, values: &[NamedValue<'_>]) -> Result<(), ConfigError> {
        let error = |name: &str, reason| Err(ConfigError::Key { given: name.to_owned(), reason });
        for (at, (given, _)) in values.iter().enumerate() {
            if self.names().all(|name| name != *given) {
                return error(given, "the template has no parameter of this name");
            }
            if values[..at].iter().any(|(other, _)| other == given) {
                return error(given, "this parameter has two values");
            }
        }
        let missing = self.names().find(|name| values.iter().all(|(given, _)| given != name));
        missing.map_or(Ok(()), |name| error(name, "this parameter has no value"))
    }
}

/// The value of a parameter. Empty if it has none.
pub(super) fn value_of(name: &str, values: &[NamedValue<'_>]) -> String {
    let found = values.iter().find(|(given, _)| *given == name);
    found.map(|(_, value)| value.to_string()).unwrap_or_default()
}
