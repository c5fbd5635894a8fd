//! Traces of other processes, as text and as links.

use bellwether::trace::{TraceContext, TraceParent};
use bellwether_opentelemetry::TraceLinks;
use opentelemetry::Context;
use opentelemetry::trace::{TraceContextExt, Tracer, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider};

fn tracers(sampler: Sampler) -> (SdkTracerProvider, InMemorySpanExporter) {
    let exporter = InMemorySpanExporter::default();
    let builder = SdkTracerProvider::builder().with_simple_exporter(exporter.clone());
    (builder.with_sampler(sampler).build(), exporter)
}

fn request(tracers: &SdkTracerProvider) -> Context {
    Context::new().with_span(tracers.tracer("test").start("request"))
}

#[test]
fn the_current_span_is_linked_to_the_trace_that_another_has_left() {
    let (tracers, exporter) = tracers(Sampler::AlwaysOn);
    let load = request(&tracers);
    let left = {
        let _attached = load.clone().attach();
        TraceLinks::default().current().expect("a trace")
    };
    let waiter = request(&tracers);
    {
        let _attached = waiter.clone().attach();
        TraceLinks::default().link(&left);
    }
    waiter.span().end();
    let spans = exporter.get_finished_spans().unwrap();
    let [link] = &spans[0].links.links[..] else { panic!("not one link: {spans:?}") };
    let (load, linked) = (load.span().span_context().clone(), &link.span_context);
    assert_eq!((load.trace_id(), load.span_id()), (linked.trace_id(), linked.span_id()));
    assert!(linked.is_remote() && linked.is_sampled());
}

#[test]
fn without_a_trace_nothing_is_left_and_nothing_linked() {
    assert_eq!(TraceLinks::default().current(), None);
    let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    TraceLinks::default().link(&TraceParent::parse(text).expect("a trace"));
}

#[test]
fn a_trace_that_is_not_sampled_is_not_left() {
    let (tracers, _exporter) = tracers(Sampler::AlwaysOff);
    let _attached = request(&tracers).attach();
    assert_eq!(TraceLinks::default().current(), None);
}
