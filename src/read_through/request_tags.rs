//! The tags of requests: what the layer is told about them.

use std::any::Any;
use std::sync::Arc;

use crate::tag::{Tag, Tags, TooManyTags};

/// Which tags the requests of a layer have.
#[derive(Clone, Default)]
pub(crate) struct TagRules {
    /// A [`TagsOf`] the layer's requests. The layer does not know their type, so it is of any.
    of_request: Option<Arc<dyn Any + Send + Sync>>,
    /// All requests have the [tag of clearable layers](Tag::everything).
    pub(super) is_clearable: bool,
}

/// A function of the program that gives the tags of a request. It may give too many.
type TagsOf<Req> = Box<dyn Fn(&Req) -> Tags + Send + Sync>;

impl TagRules {
    /// Sets the function, for requests of one type.
    pub(super) fn set<Req, F, T>(&mut self, tags_of: F)
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
    pub(super) fn of<Req: 'static>(
        &self,
        request: &Req,
        others: &Tags,
    ) -> Result<Tags, TooManyTags> {
        let tags_of = self.of_request.as_ref();
        let tags_of = tags_of.and_then(|it| it.downcast_ref::<TagsOf<Req>>());
        let told = tags_of.map_or_else(Tags::none, |tags_of| tags_of(request));
        Ok(self.and_everything(&told.union(others)?))
    }

    /// These tags, and that of clearable layers if this is one.
    pub(super) fn and_everything(&self, tags: &Tags) -> Tags {
        if self.is_clearable { tags.and_everything() } else { tags.clone() }
    }
}
