//! `EarlyAnswer`: gives the caller of a load its answer before the end of that is known.

use std::any::Any;

use bellwether_body::CacheBody;
use http::Response;
use tokio::sync::oneshot;

/// The channel to the caller of a load, for an answer that is not read to its end. The type of the
/// body is erased, since the types that the request passes through do not name it.
pub(super) struct EarlyAnswer(Box<dyn Any + Send>);

type Sender<B> = oneshot::Sender<Response<CacheBody<B>>>;

impl EarlyAnswer {
    pub(super) fn channel<B: Send + 'static>() -> (Self, oneshot::Receiver<Response<CacheBody<B>>>)
    {
        let (sender, receiver) = oneshot::channel();
        (Self(Box::new(sender)), receiver)
    }

    /// Gives an answer to the caller. Returns it if the caller no longer waits.
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
