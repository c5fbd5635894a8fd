//! `UriTemplate`: a URI made of named values.

use std::fmt::{self, Display};

use bellwether::ConfigError;
use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::template::{NamedTemplate, NamedValue, TemplatePart, value_of};

/// A URI with named parameters, to make the URI that clients request of the values in a program: for
/// an [`HttpHandle`](super::HttpHandle), or for [`RequestKey::at`](super::RequestKey::at).
///
/// ```
/// use bellwether_http::UriTemplate;
///
/// # fn main() -> Result<(), bellwether::ConfigError> {
/// let shelf = UriTemplate::new("https://shop.example/shelf/{warehouse}/{id}")?;
/// let uri = shelf.fill(&[("warehouse", &"north & south"), ("id", &7)])?;
/// assert_eq!(uri, "https://shop.example/shelf/north%20%26%20south/7");
///
/// let error = shelf.fill(&[("warehouse", &"north")]).unwrap_err();
/// assert_eq!(error.to_string(), r#"key "id": this parameter has no value"#);
/// # Ok(())
/// # }
/// ```
///
/// A value is encoded as in a URI Template (RFC 6570, section 3.2.2): all of its bytes but letters,
/// digits, `-`, `.`, `_` and `~`. In `{*path}`, slashes stay too. Most clients encode like this, but
/// some leave characters such as `&` or `!` as they are, and the cache takes that for another URI.
/// If values have such characters, invalidate both spellings, or use a group.
#[derive(Clone)]
pub struct UriTemplate(NamedTemplate);

impl UriTemplate {
    /// A template of a URI: a path such as `/shelf/{warehouse}/{id}`, or an absolute URI.
    ///
    /// # Errors
    /// If a brace has no counterpart, a parameter has no name, or this is neither a path nor an
    /// absolute URI.
    pub fn new(template: &str) -> Result<Self, ConfigError> {
        let template = Self(NamedTemplate::read(template)?);
        let text = template.0.text();
        if !text.starts_with('/') && !text.contains("://") {
            return Err(template.error("neither a path nor an absolute URI"));
        }
        let values: Vec<NamedValue<'_>> =
            template.0.names().map(|name| (name, &"x" as &dyn Display)).collect();
        template.uri(&values)?;
        Ok(template)
    }

    /// The URI with these values, one for each parameter.
    ///
    /// # Errors
    /// If a parameter has no value, two values, or an empty one; if there is a value for another
    /// parameter; or if a segment of the path becomes `.` or `..`, which clients remove. The error
    /// names the parameter, or the template.
    pub fn fill(&self, values: &[(&str, &dyn Display)]) -> Result<Uri, ConfigError> {
        self.0.check(values)?;
        self.uri(values)
    }

    fn uri(&self, values: &[NamedValue<'_>]) -> Result<Uri, ConfigError> {
        let mut text = String::with_capacity(self.0.text().len() + 32);
        for part in self.0.parts() {
            match part {
                TemplatePart::Text(fixed) => text.push_str(fixed),
                TemplatePart::Parameter { name, is_path } => {
                    let value = value_of(name, values);
                    if value.is_empty() {
                        let reason = "the value of this parameter is empty";
                        return Err(ConfigError::Key { given: name.clone(), reason });
                    }
                    let encoded = if *is_path { &PATH } else { &UNRESERVED };
                    text.extend(utf8_percent_encode(&value, encoded));
                }
            }
        }
        let uri: Uri = text.parse().map_err(|_| self.error("it makes no URI"))?;
        match uri.path().split('/').any(|segment| segment == "." || segment == "..") {
            true => Err(self.error("a segment of the path is `.` or `..`, which clients remove")),
            false => Ok(uri),
        }
    }

    fn error(&self, reason: &'static str) -> ConfigError {
        ConfigError::Key { given: self.0.text().to_owned(), reason }
    }
}

/// Shows the template.
impl fmt::Debug for UriTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UriTemplate").field(&self.0.text()).finish()
    }
}

/// What is encoded: all but the unreserved characters (RFC 3986, section 2.3).
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const PATH: AsciiSet = UNRESERVED.remove(b'/');

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_refused(template: &str, values: &[NamedValue<'_>], named: &str) {
        let filled = UriTemplate::new(template).and_then(|template| template.fill(values));
        let error = filled.unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }

    fn filled(template: &str, value: &str) -> String {
        let uri = UriTemplate::new(template).unwrap().fill(&[("a", &value)]).unwrap();
        uri.to_string()
    }

    #[test]
    fn values_are_encoded_byte_by_byte() {
        assert_eq!(
            filled("/x/{a}/y", "a/b?c#d%e f+g&h=i"),
            "/x/a%2Fb%3Fc%23d%25e%20f%2Bg%26h%3Di/y"
        );
        assert_eq!(filled("/{a}", "Größe.-_~"), "/Gr%C3%B6%C3%9Fe.-_~");
        assert_eq!(filled("/x?q={a}&b", "1&2"), "/x?q=1%262&b");
        assert_eq!(filled("/files/{*a}", "a b/c"), "/files/a%20b/c");
        assert_eq!(filled("https://shop.example/v{a}", ".."), "https://shop.example/v..");
    }

    #[test]
    fn what_makes_no_uri_is_named() {
        assert_refused("/{a}/{b}", &[("a", &1)], "\"b\": this parameter has no value");
        assert_refused("/{a}", &[("a", &1), ("c", &2)], "\"c\": the template has no parameter");
        assert_refused("/{a}", &[("a", &1), ("a", &2)], "\"a\": this parameter has two values");
        assert_refused("/x/{a}", &[("a", &"")], "\"a\": the value of this parameter is empty");
        assert_refused("/x/{a}/y", &[("a", &"..")], "/x/{a}/y");
        assert_refused("/{*a}", &[("a", &"x/../y")], "/{*a}");
        for template in ["shelf/{a}", "shelf", "", "/a b", "/{a", "https://{a} b/"] {
            assert_refused(template, &[("a", &1)], template);
        }
    }
}
