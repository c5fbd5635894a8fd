//! `TagFields`: which fields of a response give its tags.

use bellwether::adapter::warn_throttled;
use bellwether::{ConfigError, Tag};
use http::{HeaderMap, HeaderName, Method, StatusCode};

use super::handle::HttpHandle;
use super::request_key::field_name;
use super::rules::{self, CACHE_GROUPS};
use super::target::Target;

/// Which fields of a response give its tags.
#[derive(Clone, Debug)]
pub(super) struct TagFields {
    /// Whether `Cache-Groups` and `Cache-Group-Invalidation` are followed.
    pub(super) follows_groups: bool,
    /// The field with the surrogate keys, if they are used.
    surrogate_keys: Option<HeaderName>,
    /// Whether clients get that field.
    pub(super) forwards_surrogate_keys: bool,
}

impl TagFields {
    /// Uses the surrogate keys of a field.
    ///
    /// # Errors
    /// If this is not the name of a field that can have them.
    pub(super) fn with_surrogate_keys(self, field: &str) -> Result<Self, ConfigError> {
        let name = field_name(field)?;
        if name.as_str().starts_with("cache-group") {
            let reason = "this field holds groups, and no surrogate keys";
            return Err(ConfigError::Key { given: field.to_owned(), reason });
        }
        Ok(Self { surrogate_keys: Some(name), ..self })
    }

    /// The tags of a response. Its target is made only if it is in a group.
    pub(super) fn tags_of(
        &self,
        response: &HeaderMap,
        target_of: impl FnOnce() -> Option<Target>,
    ) -> Vec<Tag> {
        let mut tags = self.surrogate_tags(response).unwrap_or_default();
        if self.follows_groups && response.contains_key(CACHE_GROUPS) {
            let groups = rules::listed(response, &CACHE_GROUPS).unwrap_or_else(unreadable);
            let target = target_of();
            let groups_of = |target| groups.iter().map(move |group| Target::group(target, group));
            tags.extend(target.iter().flat_map(groups_of));
        }
        tags
    }

    /// The tags of the groups that the response to a request for this target invalidates.
    pub(super) fn invalidated_by(
        &self,
        method: &Method,
        target: Option<&Target>,
        status: StatusCode,
        response: &HeaderMap,
    ) -> Vec<Tag> {
        let Some(target) = target.filter(|_| self.follows_groups) else { return Vec::new() };
        let groups = rules::invalidated_groups(method, status, response);
        let groups = groups.unwrap_or_else(unreadable);
        groups.iter().flat_map(|group| target.groups(group)).collect()
    }

    /// The tags of the surrogate keys of a message. `None` if it does not have the field.
    pub(super) fn surrogate_tags(&self, headers: &HeaderMap) -> Option<Vec<Tag>> {
        let name = self.surrogate_keys.as_ref().filter(|name| headers.contains_key(*name))?;
        Some(rules::surrogate_keys(headers, name).map(HttpHandle::surrogate_tag).collect())
    }

    /// The field that clients do not get.
    pub(super) fn hidden(&self) -> Option<&HeaderName> {
        self.surrogate_keys.as_ref().filter(|_| !self.forwards_surrogate_keys)
    }
}

impl Default for TagFields {
    fn default() -> Self {
        Self { follows_groups: true, surrogate_keys: None, forwards_surrogate_keys: false }
    }
}

fn unreadable() -> Vec<String> {
    warn_throttled!(
        target: "bellwether::http",
        "a field that should list cache groups is not a list of strings: it is ignored"
    );
    Vec::new()
}
