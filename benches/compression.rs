//! What compression saves, and what it costs: the bytes that are stored, the time of the processor, and how many
//! entries fit into the message to waiters.

use std::time::{Duration, Instant};

use bellwether::codec::{Codec, Compressed, EncodeBuffer, Json};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cpu::cpu_time;
use crate::paired::Effort;

/// Rows as a query gives them: ids, numbers and words.
#[derive(Clone, Serialize, Deserialize)]
struct Rows(Vec<Row>);

#[derive(Clone, Serialize, Deserialize)]
struct Row {
    id: String,
    customer: String,
    cents: u64,
    state: String,
    updated_at: String,
}

impl Rows {
    /// Rows whose JSON is about this long.
    fn of_json_len(len: usize) -> Self {
        const ROW: usize = 160;
        let row = |number: usize| {
            let id = Uuid::new_v4();
            let random = u64::from_le_bytes(id.as_bytes()[..8].try_into().expect("eight bytes"));
            let state = ["open", "paid", "sent", "returned"][number % 4].to_owned();
            let customer = format!("customer-{}", random % 100_000);
            let updated_at = format!(
                "2026-0{}-{}T10:{}:07Z",
                number % 9 + 1,
                random % 18 + 10,
                random % 49 + 10
            );
            Row { id: id.to_string(), customer, cents: random % 1_000_000, state, updated_at }
        };
        Self((0..len.div_ceil(ROW)).map(row).collect())
    }
}

fn encoded(codec: &impl Codec<Rows, Kept = Rows>, rows: &Rows) -> Vec<u8> {
    let mut buffer = EncodeBuffer::new(usize::MAX);
    codec.encode(rows, &mut buffer).expect("it can be written");
    buffer.into_bytes().to_vec()
}

/// How long a call runs on the processor, in microseconds.
fn micros(budget: Duration, mut call: impl FnMut()) -> f64 {
    let (begun, before, mut calls) = (Instant::now(), cpu_time(), 0_u32);
    loop {
        call();
        calls += 1;
        if begun.elapsed() >= budget {
            return (cpu_time() - before).as_secs_f64() * 1e6 / f64::from(calls);
        }
    }
}

pub(crate) fn run(effort: Effort) {
    let budget = if effort.is_smoke() { Duration::ZERO } else { Duration::from_millis(200) };
    let (plain, compressed) = (Json::default(), Compressed::new(Json::default()));
    for kib in [1, 4, 16, 64, 256] {
        let rows = Rows::of_json_len(kib * 1024);
        let [before, after] = [encoded(&plain, &rows), encoded(&compressed, &rows)];
        let kib = before.len() as f64 / 1024.0;
        let cost = |codec: &dyn Fn(), base: &dyn Fn()| {
            ((micros(budget, codec) - micros(budget, base)) / kib).max(0.0)
        };
        let writing = cost(&|| drop(encoded(&compressed, &rows)), &|| drop(encoded(&plain, &rows)));
        let reading = cost(&|| drop(Codec::<Rows>::decode(&compressed, &after)), &|| {
            drop(Codec::<Rows>::decode(&plain, &before))
        });
        println!(
            "compression: {kib:5.1} KiB of JSON: {:3.0} % of the bytes; {writing:.2} us per KiB to write, \
             {reading:.2} us to read",
            100.0 * after.len() as f64 / before.len() as f64,
        );
    }
    let fits = |len: usize| len <= 16 * 1024;
    let lens: Vec<_> = (0..80).map(|step| 1024.0 * 128_f64.powf(f64::from(step) / 80.0)).collect();
    let sizes = lens.iter().map(|len| {
        let rows = Rows::of_json_len(*len as usize);
        [encoded(&plain, &rows), encoded(&compressed, &rows)].map(|bytes| fits(bytes.len()))
    });
    let fitting = sizes.fold([0, 0], |[before, after], [is, would]| {
        [before + usize::from(is), after + usize::from(would)]
    });
    let [before, after] = fitting.map(|count| 100.0 * count as f64 / lens.len() as f64);
    println!(
        "compression: of answers from 1 to 128 KiB, as many of each order of size, {before:.0} % fit into a \
         message of 16 KiB, and {after:.0} % compressed"
    );
}
