//! Values come back from a shared store as they went in, or are not stored.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt::Debug;

use bellwether::codec::{Codec, EncodeBuffer, Json, Postcard};
use bellwether::{CacheStatus, MemoryStore};
use bellwether_test::StoreExt as _;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::builder;
use crate::support::store::{local, remote};

trait Kept: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static> Kept for T {}

/// What another process gets, if the value was stored.
async fn stored<V: Kept>(value: V, codec: impl Codec<V, Kept = V> + Copy) -> Option<V> {
    let memory = MemoryStore::new(10);
    let cache = builder::<u64, V>(memory.clone()).codec(codec).build().expect("options");
    let load = async move || Ok::<_, Infallible>(value);
    let (loaded, status) = cache.get_or_load(1, load).with_status().await;
    assert!(loaded.is_ok());
    let is_stored = matches!(status, CacheStatus::Led { stored: true });
    assert_eq!(cache.stats().commits.unfaithful, u64::from(!is_stored), "{loaded:?}");
    let entry = memory.find(cache.key(1)).await.expect("the store answers");
    let entry = entry.filter(|it| it.as_marker().is_none());
    assert_eq!(entry.is_some(), is_stored);
    Some(codec.decode(entry?.value().encoded()).expect("it can be read"))
}

async fn is_kept<V: Kept>(value: V) {
    let found = stored(value.clone(), Json::default()).await;
    // Not all of them are equal to themselves.
    assert_eq!(format!("{found:?}"), format!("{:?}", Some(value)));
}

async fn is_not_stored<V: Kept>(value: V) {
    assert!(stored(value.clone(), Json::default()).await.is_none(), "{value:?}");
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row<T> {
    sku: u64,
    note: T,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Unit;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Deep(Option<Box<Self>>);

impl Deep {
    fn of(levels: usize) -> Self {
        (0..levels).fold(Self(None), |inner, _| Self(Some(Box::new(inner))))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(f64),
    Nothing(Option<()>),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    Large { number: i128 },
    ByNumber { map: BTreeMap<u32, u8> },
    Plain { note: Option<String> },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Skipping {
    First,
    #[allow(dead_code)]
    #[serde(skip)]
    Skipped,
    Second,
    Third,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Flat<T> {
    number: u64,
    #[serde(flatten)]
    inner: T,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Lossy {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<u8>,
}

#[tokio::test(start_paused = true)]
async fn what_json_makes_nothing_of_is_kept() {
    is_kept(Some(None::<String>)).await;
    is_kept(Some(Some(None::<u8>))).await;
    is_kept(Row { sku: 1, note: Some(None::<u8>) }).await;
    is_kept(Some(())).await;
    is_kept(Some(Unit)).await;
    is_kept(BTreeMap::from([(1_u64, Some(())), (2, None)])).await;
}

#[tokio::test(start_paused = true)]
async fn every_number_is_kept() {
    for number in [f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, -0.0] {
        is_kept(number).await;
        is_kept(Some(number)).await;
        is_kept(Row { sku: 1, note: vec![Some(number), None] }).await;
    }
    is_kept((1..20_000).map(|it| f64::from(it) * 0.1 * 3.7 / 7.0).collect::<Vec<_>>()).await;
    is_kept((1..5_000_u16).map(|it| f32::from(it) * 0.1 / 7.0).collect::<Vec<_>>()).await;
    is_kept((i128::MIN, u128::MAX)).await;
}

#[tokio::test(start_paused = true)]
async fn maps_are_kept_by_any_key_and_in_any_order() {
    is_kept(BTreeMap::from([((1, 2), "a".to_owned())])).await;
    is_kept(BTreeMap::from([('x', 1)])).await;
    let map: HashMap<u64, String> = (0..500).map(|it| (it, it.to_string())).collect();
    assert_eq!(stored(map.clone(), Json::default()).await, Some(map));
}

#[tokio::test(start_paused = true)]
async fn enums_and_flattened_fields_are_kept() {
    is_kept(Untagged::Number(0.1)).await;
    is_kept(Untagged::Nothing(None)).await;
    is_kept(Tagged::Plain { note: None }).await;
    is_kept(vec![Skipping::First, Skipping::Second, Skipping::Third]).await;
    is_kept(Flat { number: 1, inner: Row { sku: 2, note: Some("x".to_owned()) } }).await;
}

#[tokio::test(start_paused = true)]
async fn deep_values_are_kept() {
    is_kept(Deep::of(10)).await;
    is_kept(Deep::of(130)).await;
}

#[tokio::test(start_paused = true)]
async fn bytes_take_hardly_more_room_than_they_are_long() {
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|it| it as u8).collect();
    assert_eq!(stored(bytes.clone(), Json::default()).await, Some(bytes));
}

#[tokio::test(start_paused = true)]
async fn what_no_codec_gives_again_is_never_stored() {
    is_not_stored(Some(Value::Null)).await;
    is_not_stored(Untagged::Nothing(Some(()))).await;
    is_not_stored(Tagged::Large { number: 1 << 100 }).await;
    is_not_stored(Tagged::ByNumber { map: BTreeMap::from([(1, 1)]) }).await;
    is_not_stored(Flat { number: 1, inner: HashMap::from([(1_u32, 1)]) }).await;
    is_not_stored(Lossy { tags: vec![] }).await;
    is_kept(Lossy { tags: vec![1] }).await;
}

#[tokio::test(start_paused = true)]
async fn what_postcard_would_change_is_never_stored_by_it() {
    let postcard = Postcard::default();
    assert!(stored(vec![Skipping::First], postcard).await.is_some());
    assert!(stored(vec![Skipping::Second], postcard).await.is_none());
    assert!(stored(Untagged::Number(1.0), postcard).await.is_none());
    assert!(stored(serde_json::json!({ "a": 1 }), postcard).await.is_none());
    assert!(stored(Lossy { tags: vec![] }, postcard).await.is_none());
    assert!(stored(Some(None::<u8>), postcard).await.is_some());
}

/// Not every value of this size is verified.
#[tokio::test(start_paused = true)]
async fn one_large_value_of_many_that_json_would_change_is_kept() {
    let memory = MemoryStore::new(2_000);
    let cache = builder::<u64, Vec<Option<Option<u64>>>>(memory.clone()).build().expect("options");
    let value = |item: u64| {
        let last = Some(item).filter(|it| *it != 99);
        (0..2_000).map(|it| Some(Some(it))).chain([Some(last)]).collect::<Vec<_>>()
    };
    for item in 0..100 {
        assert!(cache.put(item, value(item)).await.expect("it is stored"));
    }
    let entry = memory.find(cache.key(99)).await.expect("the store answers").expect("an entry");
    let decoded: Vec<Option<Option<u64>>> =
        Json::default().decode(entry.value().encoded()).unwrap();
    assert_eq!(decoded, value(99));
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Renamed {
    sku: u64,
    remark: Option<Option<u8>>,
}

fn encoded<V: Kept>(value: &V) -> Bytes {
    let mut buffer = EncodeBuffer::new(1_000);
    Json::default().encode(value, &mut buffer).expect("it is encoded");
    buffer.into_bytes()
}

/// Their bytes have no names, and would fit.
#[test]
fn bytes_of_a_type_with_other_names_are_not_decoded() {
    let bytes = encoded(&Row { sku: 1, note: Some(None::<u8>) });
    let decoded: Result<Row<Option<Option<u8>>>, _> = Json::default().decode(&bytes);
    assert_eq!(decoded.expect("it is of this type").note, Some(None));
    let decoded: Result<Renamed, _> = Json::default().decode(&bytes);
    assert!(decoded.is_err(), "{decoded:?}");
}

#[test]
fn what_json_keeps_is_json() {
    let row = Row { sku: 1, note: Some("text".to_owned()) };
    assert_eq!(encoded(&row), r#"{"sku":1,"note":"text"}"#);
}

/// A process that has not loaded a value has nothing but its bytes.
#[tokio::test(start_paused = true)]
async fn a_remote_handle_gives_what_the_bytes_of_a_value_say() {
    #[derive(Clone, Deserialize, Serialize)]
    struct Page {
        #[serde(skip)]
        views: u64,
    }
    let store = MemoryStore::new(10);
    for (store, views) in [(local(&store), 7), (remote(&MemoryStore::new(10)), 0)] {
        let cache = builder::<u64, Page>(store).build().unwrap();
        for views in [7, views] {
            let page = cache.get_or_load(1, async || Ok::<_, Infallible>(Page { views: 7 }));
            assert_eq!(page.await.unwrap().views, views);
        }
    }
}
