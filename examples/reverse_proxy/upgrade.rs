//! WebSocket upgrades: the proxy then copies bytes in both directions.

use std::sync::{Mutex, PoisonError};

use axum::body::Body;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::upgrade::{self, OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio::task::JoinSet;

/// An offer of a client to upgrade an HTTP/1.1 connection to a WebSocket (RFC 6455).
pub(crate) struct Offer {
    client: OnUpgrade,
}

impl Offer {
    /// The offer that a request makes, if any.
    pub(crate) fn of(request: &mut Request<Body>) -> Option<Self> {
        let offers = request.headers().get_all(header::UPGRADE).iter();
        let is_websocket =
            |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"websocket");
        let is_offered = offers.map(is_websocket).reduce(|one, other| one && other);
        (is_offered == Some(true)).then(|| Self { client: upgrade::on(request) })
    }

    /// Makes the same offer on the next connection, or accepts it.
    pub(crate) fn make(&self, headers: &mut HeaderMap) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    }
}

/// The connections that were upgraded. They end when this is dropped.
#[derive(Default)]
pub(crate) struct Tunnels(Mutex<JoinSet<()>>);

impl Tunnels {
    /// Joins the connection of the client with that of the origin, which has accepted the offer with
    /// this response.
    pub(crate) fn join(&self, offer: Offer, accepted: &mut Response<Incoming>) {
        let origin = upgrade::on(accepted);
        let mut tunnels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tunnels.try_join_next().is_some() {}
        tunnels.spawn(async move {
            if let Ok((client, origin)) = tokio::try_join!(offer.client, origin) {
                let mut client = TokioIo::new(client);
                let mut origin = TokioIo::new(origin);
                // An error of one tunnel does not concern the others.
                let _ = copy_bidirectional(&mut client, &mut origin).await;
            }
        });
    }
}
