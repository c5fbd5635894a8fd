//! A client of another implementation: Python's `grpcio`, which shares no code with tonic.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use futures_util::{StreamExt, stream};
use prost::Message;
use serde_json::{Value, json};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Response, Status};

use crate::catalog::{Answered, CHANGES, Catalog, PRODUCT, Product, Wanted};
use crate::server::{layer, layered, plain};

fn answer(asked: &Request<Wanted>) -> Answered {
    let all_bytes = MetadataValue::from_bytes(&(0..=255).collect::<Vec<u8>>());
    match &*asked.get_ref().what {
        "missing" => {
            let details = bytes::Bytes::from_static(b"\0\xff details");
            let mut status = Status::with_details(Code::NotFound, "none: \u{fc}, 100 %", details);
            status.metadata_mut().insert_bin("x-data-bin", all_bytes);
            Err(status)
        }
        "down" => Err(Status::unavailable("not now")),
        "forbidden" => Err(Status::permission_denied("not you")),
        "large" => Ok(Response::new(Product::of(vec![b'l'; 4 << 20]))),
        "empty" => Ok(Response::new(Product::default())),
        what => {
            let mut response = Response::new(Product::of(what.repeat(1_000)));
            response.metadata_mut().insert_bin("x-data-bin", all_bytes);
            response.metadata_mut().append("x-note", MetadataValue::from_static("one"));
            response.metadata_mut().append("x-note", MetadataValue::from_static("two"));
            Ok(response)
        }
    }
}

fn catalog() -> Catalog {
    let unary = |asked| std::future::ready(answer(&asked));
    Catalog::new(unary).streaming(|| {
        let numbers = stream::iter(0..1_000_u32);
        numbers.map(|number| Ok(Product::of(number.to_string()))).boxed()
    })
}

/// What the other client sees of some calls, one after the other.
fn seen(address: SocketAddr, calls: &[Value]) -> Vec<Value> {
    let root = bellwether_testkit::workspace();
    let installed = root.join("target/grpcio");
    let how = "python3 -m pip install --only-binary :all: --require-hashes \
        --target target/grpcio -r scripts/grpcio-requirements.txt";
    assert!(installed.join("grpc").is_dir(), "grpcio is missing; run scripts/test, or: {how}");
    let mut python = Command::new("python3")
        .arg(root.join("crates/grpc/tests/grpc/foreign.py"))
        .arg(address.to_string())
        .env("PYTHONPATH", installed)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 has to be installed");
    let lines: String = calls.iter().map(|call| format!("{call}\n")).collect();
    python.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("a reader");
    let output = python.wait_with_output().expect("an end");
    assert!(output.status.success(), "the client failed; is it installed for this Python? {how}");
    let lines = String::from_utf8(output.stdout).expect("text");
    lines.lines().map(|line| without_date(serde_json::from_str(line).expect("JSON"))).collect()
}

/// What a server says differs from second to second.
fn without_date(mut seen: Value) -> Value {
    for metadata in ["initial", "trailing"] {
        let fields = seen[metadata].as_array_mut().expect("a list");
        fields.retain(|field| field[0] != "date");
    }
    seen
}

/// Messages by their lengths, for people.
fn brief(seen: &Value) -> String {
    let mut brief = seen.clone();
    let messages = seen["messages"].as_array().expect("a list").iter();
    brief["messages"] = messages.map(|message| message.as_str().map(str::len)).collect();
    brief.to_string()
}

fn call(what: &str) -> Value {
    let message = Wanted { what: what.to_owned() }.encode_to_vec();
    let message: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({ "method": PRODUCT, "message": message })
}

fn calls() -> Vec<Value> {
    let mut with_metadata = call("plain");
    with_metadata["metadata"] = json!([["x-note", "a"], ["authorization", "me"]]);
    let mut in_time = call("plain");
    in_time["timeout"] = json!(10);
    let mut streamed = call("");
    (streamed["method"], streamed["stream"]) = (json!(CHANGES), json!(true));
    let mut unknown = call("");
    unknown["method"] = json!("/catalog.Catalog/Unknown");
    let answered = ["plain", "empty", "large", "missing", "down", "forbidden"].map(call);
    answered.into_iter().chain([with_metadata, in_time, streamed, unknown]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_another_make_sees_the_same_with_and_without_the_layer() {
    // Each call twice: once loaded, once from the store.
    let calls: Vec<_> = calls().into_iter().flat_map(|call| [call.clone(), call]).collect();
    let without = catalog();
    let with = catalog();
    let plain = plain(without.clone()).await;
    let cached = layered(with.clone(), layer().build().unwrap()).await;
    let (expected, given) =
        tokio::task::spawn_blocking(move || (seen(plain, &calls), seen(cached, &calls)))
            .await
            .expect("an end");
    assert_eq!(expected.len(), 20);
    for (at, (expected, given)) in expected.iter().zip(&given).enumerate() {
        let told = brief(given);
        let wanted = brief(expected);
        assert!(expected == given, "call {at}: {told} is not {wanted}");
    }
    let codes: Vec<_> = expected.iter().step_by(2).map(|seen| &seen["code"]).collect();
    let ok = "OK";
    let statuses = [ok, ok, ok, "NOT_FOUND", "UNAVAILABLE", "PERMISSION_DENIED", ok, ok, ok];
    assert_eq!(codes[..9], statuses);
    assert_eq!(codes[9], "UNIMPLEMENTED");
    assert_eq!(expected[16]["messages"].as_array().map(Vec::len), Some(1_000));
    // The first three calls are loaded once each. The one with a timeout has the key of the first, so
    // it is never loaded. All others call the handler twice: the failure to be confirmed.
    assert_eq!((without.calls(), with.calls()), (20, 15));
}
