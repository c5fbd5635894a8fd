//! The options of the cache, which the tests use too.

use std::time::Duration;

use bellwether_http::HttpCacheLayerBuilder;

/// What differs from the defaults of the layer.
///
/// A stale response is better than none while the origin is gone, and RFC 9111 (section 4.2.4) allows it
/// then. A proxy has the keys of a CDN, so it follows what an origin tells a CDN (RFC 9213).
pub(crate) fn set(layer: HttpCacheLayerBuilder) -> HttpCacheLayerBuilder {
    layer.stale_if_disconnected(Duration::from_secs(60)).following_cdn_cache_control()
}
