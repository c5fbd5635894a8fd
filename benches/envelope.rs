//! The cost of storing a value outside of the process, without the transfer: encoding and checking
//! its bytes.
//!
//! The envelope itself is private. All of it that depends on the value is measured by itself, with
//! the same crates: the checksum, once when it is written and once when it is read, and one copy
//! into the envelope when it is written.

use std::hint::black_box;

use bellwether::codec::{Codec, EncodeBuffer, Json};

use crate::figures::Wanted;
use crate::paired::{Effort, Race};
use crate::product::{Product, json};

pub(crate) fn run(effort: Effort) {
    for (len, what) in [(1024, "1 KiB"), (64 * 1024, "64 KiB")] {
        let codec = Json::default();
        let product = Product::of_json_len(42, len);
        let bytes = json(&product);
        let mut race = Race::new("envelope", what);
        let copy = race.enter_plain("a copy", || black_box(&bytes).clone());
        let parts = [
            race.enter_plain("encoding", || {
                let mut room = EncodeBuffer::new(usize::MAX);
                codec.encode(black_box(&product), &mut room).expect("it can be written");
                room.into_bytes()
            }),
            race.enter_plain("decoding", || {
                let decoded: Result<Product, _> = codec.decode(black_box(&bytes));
                decoded.expect("it can be read")
            }),
            race.enter_plain("the checksum", || crc32fast::hash(black_box(&bytes))),
            race.enter_plain("the checksum and a copy", || {
                (crc32fast::hash(black_box(&bytes)), bytes.clone())
            }),
        ];
        let outcome = race.run(effort);
        outcome.print(&[copy]);
        for part in parts {
            outcome.print(&[part]);
            outcome.print_times(part, copy, Wanted::Nothing);
        }
    }
}
