//! `Prost`: protobuf messages as values of any cache.

use std::io::Write;

use bellwether::codec::{Codec, EncodeBuffer};
use bellwether::{BoxError, CacheStatus};
use prost::Message;

/// Keeps messages of [prost](https://docs.rs/prost) as protobuf, in a
/// [`Cache`](bellwether::Cache) or behind a [`ReadThroughLayer`](bellwether::ReadThroughLayer).
/// (A [`GrpcCacheLayer`](crate::GrpcCacheLayer) needs no codec: it keeps the bytes of answers.)
///
/// ```
/// use std::time::Duration;
///
/// use bellwether::{Cache, MemoryStore};
/// use bellwether_grpc::Prost;
///
/// #[derive(Clone, PartialEq, prost::Message)]
/// struct Product {
///     #[prost(string, tag = "1")]
///     name: String,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new(10_000); // or RedisStore::connect("redis://127.0.0.1:6379", "shop").await?
/// let products: Cache<u64, Product, Prost> =
///     Cache::builder("product", store).ttl(Duration::from_secs(60)).codec(Prost::default()).build()?;
///
/// let load = async || Ok::<_, tonic::Status>(Product { name: "Bell".to_owned() });
/// assert_eq!(products.get_or_load(42, load).await?.name, "Bell");
/// # Ok(())
/// # }
/// ```
///
/// Messages change by the rules of protobuf: old and new versions of a program read each other's
/// entries as long as the numbers of fields keep their types. The bytes do not name the message. So
/// give each type of message a name of cache of its own, because the bytes of one may decode as
/// another.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Prost;

impl<M> Codec<M> for Prost
where
    M: Message + Default + Clone + 'static,
{
    type Kept = M;

    fn id(&self) -> u8 {
        7
    }

    fn keep(&self, message: M) -> M {
        message
    }

    fn restore(&self, kept: &M, _: &CacheStatus) -> M {
        kept.clone()
    }

    fn restore_owned(&self, kept: M, _: &CacheStatus) -> M {
        kept
    }

    fn encode(&self, kept: &M, buffer: &mut EncodeBuffer) -> Result<(), BoxError> {
        Ok(buffer.write_all(&kept.encode_to_vec())?)
    }

    fn decode(&self, bytes: &[u8]) -> Result<M, BoxError> {
        Ok(M::decode(bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bellwether::{Cache, MemoryStore};
    use bellwether_test::StoreExt as _;

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Product {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(uint32, tag = "2")]
        stock: u32,
    }

    fn bell() -> Product {
        Product { name: "Bell".to_owned(), stock: 7 }
    }

    #[tokio::test(start_paused = true)]
    async fn messages_are_stored_as_protobuf() {
        let store = MemoryStore::new(10);
        let minute = std::time::Duration::from_secs(60);
        let cache: Cache<u64, Product, Prost> = Cache::builder("product", store.clone())
            .ttl(minute)
            .codec(Prost)
            .build()
            .expect("options");
        let loaded = cache.get_or_load(1, async || Ok::<_, Infallible>(bell())).await;
        assert_eq!((loaded.unwrap(), cache.get(1).await.unwrap()), (bell(), Some(bell())));
        let entry = store.find(cache.key(1)).await.unwrap().expect("it is stored");
        assert_eq!(entry.value().encoded()[..], *b"\x0a\x04Bell\x10\x07");
        let decoded: Product = Prost.decode(entry.value().encoded()).unwrap();
        assert_eq!(decoded, bell());
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        for bytes in [&b"\x0a\x04Bel"[..], b"\x0a\x02\xff\xff", b"\xff"] {
            let decoded: Result<Product, _> = Prost.decode(bytes);
            assert!(decoded.is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_message_that_is_too_large_is_told() {
        let mut buffer = EncodeBuffer::new(7);
        assert!(Prost.encode(&bell(), &mut buffer).is_err() && buffer.is_over());
    }
}
