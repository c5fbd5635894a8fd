//! `Early`: the caller of a load, for an answer that it is given before its end is known.

use std::any::Any;

use bellwether_body::CacheBody;
use http::Response;
use tokio::sync::oneshot;

/// Where the caller of a load waits for an answer that is not read to its end. The type of its body
/// is known where it is made and where it is used, and nowhere between.
pub(super) struct Early(Box<dyn Any + Send>);

type Sender<B> = oneshot::Sender<Response<CacheBody<B>>>;

impl Early {
    pub(super) fn channel<B: Send + 'static>() -> (Self, oneshot::Receiver<Response<CacheBody<B>>>)
    {
        let (sender, receiver) = oneshot::channel();
        (Self(Box::new(sender)), receiver)
    }

    /// Gives an answer to the caller. If it waits no more, the answer comes back.
    pub(super) fn give<B: Send + 'static>(
        self,
        response: Response<CacheBody<B>>,
    ) -> Option<Response<CacheBody<B>>> {
        match self.0.downcast::<Sender<B>>() {
            Ok(sender) => sender.send(response).err(),
            Err(_) => Some(response),
        }
    }
}
