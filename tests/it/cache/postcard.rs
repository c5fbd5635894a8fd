//! Values as postcard instead of JSON.

use bellwether::MemoryStore;
use bellwether::codec::{Codec, EncodeBuffer, Postcard};
use bellwether_test::StoreExt as _;

use super::builder;

#[tokio::test(start_paused = true)]
async fn postcard_encodes_and_decodes_and_is_no_json() {
    let store = MemoryStore::new(10);
    let value = (7_u64, "seven".to_owned());
    let small = builder::<u64, (u64, String)>(store.clone())
        .codec(Postcard::default())
        .build()
        .expect("options");
    assert!(small.put(1, value.clone()).await.unwrap());
    let entry = store.find(small.key(1)).await.unwrap().expect("it is stored");
    assert_eq!(entry.value().encoded()[..], *b"\x07\x05seven");
    let codec = Postcard::default();
    let decoded: (u64, String) = codec.decode(entry.value().encoded()).unwrap();
    assert_eq!(decoded, value);
    let cut = Codec::<(u64, String)>::decode(&codec, b"\x07\x05seve");
    let longer = Codec::<(u64, String)>::decode(&codec, b"\x07\x05seven!");
    assert!(cut.is_err() && longer.is_err());
    assert_eq!(
        builder::<u64, (u64, String)>(store).build().expect("options").get(1).await.unwrap(),
        None
    );
}

#[test]
fn postcard_has_every_number() {
    for number in [f64::NAN, f64::INFINITY] {
        let mut buffer = EncodeBuffer::new(100);
        Postcard::default().encode(&number, &mut buffer).unwrap();
        let decoded: f64 = Postcard::default().decode(&buffer.into_bytes()).unwrap();
        assert_eq!(decoded.to_bits(), number.to_bits());
    }
}
