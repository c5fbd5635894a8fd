//! Tags: names that entries have in common, to invalidate them together; and which of them the requests
//! of a layer have.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::config_error::{ConfigError, within};
use crate::key::{CacheKey, Digest, Key, KeyPart};

/// A name that any number of entries share, to invalidate or expire all of them at once. It is
/// built like a [`Key`]: a kind, such as `"shelf"`, and typed parts.
///
/// ```
/// use bellwether::Tag;
///
/// let shelf = Tag::of("shelf").with("berlin").with(7);
/// assert_ne!(shelf, Tag::of("shelf").with("berlin/7"));
/// ```
///
/// Tags and keys are never confused, even if they have the same parts. As with a key, `Debug` and
/// every message show only the kind and the start of the digest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tag(Key);

impl Tag {
    /// A tag of one kind, such as `"shelf"`.
    pub fn of(kind: &str) -> Self {
        Self(Key::of(kind))
    }

    /// Adds a part.
    #[must_use]
    pub fn with(self, part: impl CacheKey) -> Self {
        Self(self.0.with(part))
    }

    /// The kind given to [`Tag::of`].
    pub fn kind(&self) -> &str {
        self.0.kind()
    }

    /// A hash of this tag, for stores and logs.
    pub fn digest(&self) -> Digest {
        self.0.digest()
    }

    /// The parts given to [`Tag::with`], without the kind. For the crates of this project.
    #[doc(hidden)]
    pub fn parts(&self) -> impl Iterator<Item = KeyPart<'_>> {
        self.0.parts()
    }

    /// The tag of all entries of clearable layers: see
    /// [`clearable`](crate::service::ReadThroughLayerBuilder::clearable).
    #[doc(hidden)]
    pub fn everything() -> Self {
        Self::of("bellwether.everything")
    }
}

/// Shows the kind and the first 8 hex digits of the digest, as in `shelf#0f3a99c1`.
impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The tags of a request or of an entry, each once, in the order of their digests. Clones share
/// them.
#[derive(Clone, Debug, Default)]
pub struct Tags(Option<Arc<[Digest]>>);

impl Tags {
    /// How many tags an entry may have: 32. Each takes 36 bytes in the entry, and each adds a name
    /// to the lookups of a request that names it.
    pub const MOST: usize = 32;

    /// No tags.
    pub const fn none() -> Self {
        Self(None)
    }

    /// These tags. A tag that is given twice counts once.
    ///
    /// # Errors
    /// If there are more than [`MOST`](Self::MOST).
    pub fn new(tags: impl IntoIterator<Item = Tag>) -> Result<Self, ConfigError> {
        let tags = Self::unbounded(tags);
        tags.within_bounds()?;
        Ok(tags)
    }

    /// These tags, however many: [`union`](Self::union) and [`within_bounds`](Self::within_bounds) refuse
    /// too many.
    pub(crate) fn unbounded(tags: impl IntoIterator<Item = Tag>) -> Self {
        Self::sorted(tags.into_iter().map(|tag| tag.digest()).collect())
    }

    /// These tags, which an entry has, by their digests.
    pub fn of_entry(tags: impl Iterator<Item = Digest>) -> Self {
        Self::sorted(tags.collect())
    }

    /// The tags of both.
    ///
    /// # Errors
    /// If there are more than [`MOST`](Self::MOST). The tag of clearable layers does not count.
    pub(crate) fn union(&self, other: &Self) -> Result<Self, ConfigError> {
        let both = match other.is_empty() {
            true => self.clone(),
            false => Self::sorted(self.iter().chain(other.iter()).copied().collect()),
        };
        both.within_bounds()?;
        Ok(both)
    }

    /// Whether each of them is among the others.
    pub(crate) fn are_among(&self, others: &Self) -> bool {
        self.iter().all(|tag| others.as_slice().binary_search(tag).is_ok())
    }

    /// These tags and the one of clearable layers, which does not count.
    pub(crate) fn and_everything(&self) -> Self {
        Self::sorted(self.iter().copied().chain([Tag::everything().digest()]).collect())
    }

    fn sorted(mut tags: Vec<Digest>) -> Self {
        tags.sort_unstable();
        tags.dedup();
        Self((!tags.is_empty()).then(|| tags.into()))
    }

    /// Checks that there are at most [`MOST`](Self::MOST). The tag of clearable layers does not count.
    pub(crate) fn within_bounds(&self) -> Result<(), ConfigError> {
        if self.len() <= Self::MOST {
            return Ok(());
        }
        let everything = Tag::everything().digest();
        let given = self.iter().filter(|tag| **tag != everything).count();
        within("tags", given, 0, Self::MOST).map(drop)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The digests of the tags, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Digest> + Clone {
        self.as_slice().iter()
    }

    fn as_slice(&self) -> &[Digest] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// Which tags the requests of a layer have.
#[derive(Clone, Default)]
pub(crate) struct TagRules {
    /// A [`TagsOf`] the layer's requests. The layer does not know their type, so it is of any.
    of_request: Option<Arc<dyn Any + Send + Sync>>,
    /// All requests have the [tag of clearable layers](Tag::everything).
    pub(crate) is_clearable: bool,
}

/// A function of the program that gives the tags of a request. It may give too many.
type TagsOf<Req> = Box<dyn Fn(&Req) -> Tags + Send + Sync>;

impl TagRules {
    /// Sets the function, for requests of one type.
    pub(crate) fn set<Req, F, T>(&mut self, tags_of: F)
    where
        Req: 'static,
        F: Fn(&Req) -> T + Send + Sync + 'static,
        T: IntoIterator<Item = Tag>,
    {
        let tags_of = move |request: &Req| Tags::unbounded(tags_of(request));
        self.of_request = Some(Arc::new(Box::new(tags_of) as TagsOf<Req>));
    }

    /// The tags of a request, with those of its options. Not called for hits in this process, since
    /// those compare the epochs of the entry only.
    pub(crate) fn of<Req: 'static>(&self, request: &Req, more: &Tags) -> Result<Tags, ConfigError> {
        if self.of_request.is_none() && more.is_empty() && !self.is_clearable {
            return Ok(Tags::none());
        }
        let tags_of = self.of_request.as_ref();
        let tags_of = tags_of.and_then(|it| it.downcast_ref::<TagsOf<Req>>());
        let told = tags_of.map_or_else(Tags::none, |tags_of| tags_of(request));
        Ok(self.and_everything(&told.union(more)?))
    }

    /// These tags, and that of clearable layers if this is one.
    pub(crate) fn and_everything(&self, tags: &Tags) -> Tags {
        if self.is_clearable { tags.and_everything() } else { tags.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_is_given_twice_counts_once() {
        let shelf = |number: usize| Tag::of("shelf").with(number);
        let tags = Tags::new((0..64).map(|number| shelf(number % 32))).expect("32 tags");
        assert_eq!(tags.len(), 32);
        assert!(tags.iter().is_sorted());
    }

    #[test]
    fn more_tags_than_an_entry_may_have_are_refused_with_their_number() {
        let error = Tags::new((0..33).map(|number: u64| Tag::of("shelf").with(number)));
        assert_eq!(error.unwrap_err().to_string(), "tags must be from 0 to 32, not 33");
    }

    #[test]
    fn the_tag_of_clearable_layers_does_not_count() {
        let some = |from: u64, to| Tags::new((from..to).map(|n| Tag::of("shelf").with(n)));
        let all = some(0, 20).unwrap().and_everything().union(&some(20, 32).unwrap());
        assert_eq!(all.expect("32 tags").len(), 33);
        let many = some(0, 20).unwrap().and_everything().union(&some(20, 33).unwrap());
        assert_eq!(many.unwrap_err().to_string(), "tags must be from 0 to 32, not 33");
    }
}
