//! Two processes over one Redis.

use std::time::Duration;

use bellwether_grpc::{CachedMethod, GrpcCacheLayer, GrpcCacheLayerBuilder};
use bellwether_redis::RedisOptions;
use bellwether_testkit::servers::RedisServer;
use tonic::{Code, Status};

use crate::catalog::{Catalog, PRODUCT, RAW};
use crate::raw::{Connection, request, with};
use crate::server::{MINUTE, layered};

async fn layer(server: &RedisServer) -> GrpcCacheLayerBuilder {
    let options = RedisOptions::new(&server.url(), "test").expect("options");
    let options = options.timeout(Duration::from_secs(5));
    let method = CachedMethod::fresh_for(MINUTE).status(Code::NotFound, MINUTE);
    GrpcCacheLayer::builder(options.connect().await.expect("a store"))
        .method(PRODUCT, method.clone())
        .method(RAW, method)
}

#[tokio::test]
async fn what_one_process_was_answered_the_other_gives_out_to_the_byte() {
    let server = RedisServer::start();
    let one = Catalog::numbered().raw(|| {
        let details = bytes::Bytes::from_static(b"\0\xff");
        Status::with_details(Code::NotFound, "no such thing: \u{fc}", details).into_http()
    });
    let other = Catalog::new(|_| async { panic!("it is kept") });
    let first =
        Connection::to(layered(one.clone(), layer(&server).await.build().unwrap()).await).await;
    let second =
        Connection::to(layered(other.clone(), layer(&server).await.build().unwrap()).await).await;
    for (method, accepted) in [(PRODUCT, "identity"), (PRODUCT, "gzip"), (RAW, "gzip")] {
        let request = || with(request(method, "a"), &[("grpc-accept-encoding", accepted)]);
        let expected = first.call(request()).await;
        assert_eq!(second.call(request()).await, expected);
    }
    assert_eq!((one.calls(), other.calls()), (3, 0));
}
