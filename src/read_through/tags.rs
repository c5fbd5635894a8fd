//! The options of a `ReadThroughLayer` about tags.

use std::sync::Arc;

#[cfg(doc)]
use super::handle::Handle;
use super::layer::ReadThroughLayer;
use crate::codec::AnswerTags;
use crate::tag::Tag;

impl<K, C> ReadThroughLayer<K, C> {
    /// Sets a function that gives the tags of a request, which its entry will have: names that
    /// entries share, to [invalidate](Handle::invalidate_tag) or [expire](Handle::expire_tag) all of
    /// them at once. At most [`Tags::MOST`](crate::Tags::MOST); a request with more fails with
    /// [`CacheErrorKind::TooManyTags`](crate::CacheErrorKind::TooManyTags).
    ///
    /// The function must use only what is in the key. Otherwise two requests of one key have
    /// different tags, and load it again and again: a request finds no entry that lacks one of its
    /// tags, such as an entry from before the program had tags. These tags are known before the load,
    /// which gives the strongest guarantee: see the [guide](crate::guide::invalidation). For tags that
    /// only the answer tells, there is [`answer_tags`](Self::answer_tags).
    ///
    /// Default: none. The function is not called for hits in this process.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use bellwether::{Key, MemoryStore, ReadThroughLayer, Tag};
    /// # #[derive(Clone, serde::Serialize, serde::Deserialize)]
    /// # struct Item { brand: u64 }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = ReadThroughLayer::new(MemoryStore::new(1_000), |sku: &u64| Key::of("item").with(*sku))
    ///     .ttl(Duration::from_secs(60))
    ///     .tags(|sku: &u64| [Tag::of("catalog"), Tag::of("shelf").with(sku / 100)])
    ///     .answer_tags(|item: &Item| [Tag::of("brand").with(item.brand)]);
    ///
    /// let cache = layer.handle();
    /// cache.invalidate_tag(&Tag::of("shelf").with(7)).await?;
    /// cache.expire_tag(&Tag::of("catalog")).spread(Duration::from_secs(30)).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn tags<Req, L, F, T>(mut self, tags_of: F) -> Self
    where
        K: Fn(&Req) -> L,
        Req: 'static,
        F: Fn(&Req) -> T + Send + Sync + 'static,
        T: IntoIterator<Item = Tag>,
    {
        self.tags.set(tags_of);
        self
    }

    /// Sets a function that gives the tags of an answer, in addition to those of its
    /// [request](Self::tags). An answer with more than [`Tags::MOST`](crate::Tags::MOST) in all is
    /// shared by the waiters and not stored, which is logged.
    ///
    /// It runs after the load, together with [`classify`](Self::classify). With `RedisStore`, a
    /// lookup learns of such tags from the entry, so it takes a second round trip.
    ///
    /// Default: none.
    #[must_use]
    pub fn answer_tags<A, F, T>(self, tags_of: F) -> ReadThroughLayer<K, AnswerTags<C, F>>
    where
        C: Clone,
        F: Fn(&A) -> T + Send + Sync + 'static,
        T: IntoIterator<Item = Tag>,
    {
        let codec = C::clone(&self.codec);
        self.with_codec(Arc::new(AnswerTags::new(codec, tags_of)))
    }

    /// Lets [`Handle::clear`] remove all entries of this layer at once: they get a tag that all
    /// clearable layers over the store share, and that does not count among their tags.
    ///
    /// Default: off. The tag costs what another tag costs.
    #[must_use]
    pub fn clearable(mut self) -> Self {
        self.tags.is_clearable = true;
        self
    }
}
