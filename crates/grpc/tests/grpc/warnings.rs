//! What is said of methods that the cache never answers.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tower::Layer;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Metadata, Subscriber};

use crate::catalog::{Catalog, PRODUCT, RAW};
use crate::raw::{ask, request, with};
use crate::server::layer;

/// The warnings, each with its fields.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn begin() -> (Self, DefaultGuard) {
        let warnings = Self::default();
        (warnings.clone(), set_default(warnings))
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == "bellwether::grpc"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_method_all_of_whose_calls_bypass_is_warned_of_once() {
    let (warnings, _default) = Warnings::begin();
    let service = layer().build().unwrap().layer(Catalog::numbered());
    for calls in 1..=300 {
        ask(&service, with(request(PRODUCT, "a"), &[("authorization", "token")])).await;
        assert_eq!(warnings.all().len(), usize::from(calls >= 100), "{calls} calls");
    }
    let [warning] = &warnings.all()[..] else { panic!() };
    assert!(warning.contains(PRODUCT) && warning.contains("ignoring_credentials"), "{warning}");
}

#[tokio::test]
async fn a_method_that_is_looked_up_once_is_not_warned_of() {
    let (warnings, _default) = Warnings::begin();
    let service = layer().build().unwrap().layer(Catalog::numbered());
    ask(&service, request(PRODUCT, "a")).await;
    for _ in 0..200 {
        ask(&service, with(request(PRODUCT, "a"), &[("authorization", "token")])).await;
    }
    assert_eq!(warnings.all(), [""; 0]);
}

#[tokio::test]
async fn a_named_method_of_which_no_call_comes_among_many_is_warned_of_once() {
    let (warnings, _default) = Warnings::begin();
    let service = layer().build().unwrap().layer(Catalog::numbered());
    ask(&service, request(PRODUCT, "a")).await;
    for _ in 0..2_000 {
        ask(&service, request("/catalog.Catalog/Renamed", "a")).await;
    }
    let [warning] = &warnings.all()[..] else { panic!("{:?}", warnings.all()) };
    assert!(warning.contains(RAW) && warning.contains("/package.Service/Method"), "{warning}");
    assert!(warning.contains("/catalog.Catalog/Renamed"), "{warning}");
}
