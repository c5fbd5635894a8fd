//! A collector of OpenTelemetry that keeps what it gets by OTLP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// What it has got so far.
#[derive(Clone, Default)]
pub(crate) struct Collector(Arc<Kept>);

#[derive(Default)]
struct Kept {
    spans: Mutex<Vec<Span>>,
    /// By name. The value is the sum of the last values: of counters, gauges, and the number of
    /// values of histograms.
    metrics: Mutex<BTreeMap<String, f64>>,
}

impl Collector {
    /// Serves until the test ends. Returns its URL, too.
    pub(crate) async fn serve() -> (Self, String) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let server = Server::builder()
            .add_service(TraceServiceServer::new(collector.clone()))
            .add_service(MetricsServiceServer::new(collector.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        (collector, url)
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.0.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All metrics so far, by name.
    pub(crate) fn metrics(&self) -> BTreeMap<String, f64> {
        self.0.metrics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        let spans = scopes.flat_map(|scope| scope.spans);
        self.0.spans.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let resources = request.into_inner().resource_metrics.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_metrics);
        let metrics = scopes.flat_map(|scope| scope.metrics);
        let values = metrics.map(|metric| (name(&metric), value(metric)));
        self.0.metrics.lock().unwrap_or_else(PoisonError::into_inner).extend(values);
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

/// With the unit, as in `bellwether.load.duration (s)`.
fn name(metric: &Metric) -> String {
    format!("{} ({})", metric.name, metric.unit)
}

fn value(metric: Metric) -> f64 {
    let points = match metric.data {
        Some(Data::Sum(sum)) => sum.data_points,
        Some(Data::Gauge(gauge)) => gauge.data_points,
        Some(Data::Histogram(histogram)) => {
            return histogram.data_points.iter().map(|point| point.count as f64).sum();
        }
        other => panic!("{}: {other:?}", metric.name),
    };
    let values = points.into_iter().filter_map(|point| point.value);
    values
        .map(|value| match value {
            number_data_point::Value::AsDouble(value) => value,
            number_data_point::Value::AsInt(value) => value as f64,
        })
        .sum()
}
