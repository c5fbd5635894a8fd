//! `--otlp`: traces and metrics for a collector of OpenTelemetry.

use bellwether::trace::set_trace_context;
use bellwether_opentelemetry::{Instruments, TraceLinks};
use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

use crate::Fault;
use crate::shop::Shop;

/// What sends traces and metrics, in the background.
#[derive(Clone)]
pub(crate) struct Otlp {
    tracers: SdkTracerProvider,
    meters: SdkMeterProvider,
}

impl Otlp {
    /// Sends to a collector. If that is not there, this program says so and goes on.
    pub(crate) fn to(url: &str) -> Result<Self, Fault> {
        let wrong = |fault| format!("--otlp {url}: {fault}");
        let spans = SpanExporter::builder().with_tonic().with_endpoint(url).build();
        let metrics = MetricExporter::builder().with_tonic().with_endpoint(url).build();
        let program = Resource::builder().with_service_name("catalog").build();
        let tracers = SdkTracerProvider::builder().with_resource(program.clone());
        let meters = SdkMeterProvider::builder().with_resource(program);
        // Waiters of other processes are linked to the loads of this one.
        set_trace_context(TraceLinks::default())?;
        Ok(Self {
            tracers: tracers.with_batch_exporter(spans.map_err(wrong)?).build(),
            meters: meters.with_periodic_exporter(metrics.map_err(wrong)?).build(),
        })
    }

    /// Takes the spans of this program and of bellwether.
    pub(crate) fn spans<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let ours = [env!("CARGO_CRATE_NAME"), "bellwether"].map(|name| (name, LevelFilter::INFO));
        let tracer = self.tracers.tracer("catalog");
        tracing_opentelemetry::layer().with_tracer(tracer).with_filter(Targets::from_iter(ours))
    }

    /// Sends the figures of all caches and of their store.
    pub(crate) fn observe(&self, shop: &Shop) {
        let instruments = Instruments::new(&self.meters.meter("bellwether"));
        shop.observe(&instruments);
        shop.store.observe(&instruments);
    }

    /// Sends what is left.
    pub(crate) fn shut_down(&self) -> Result<(), Fault> {
        // Both, also if one fails.
        let spans = self.tracers.shutdown();
        let metrics = self.meters.shutdown();
        Ok(spans.and(metrics)?)
    }
}
