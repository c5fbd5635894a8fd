//! Links between callers and loads in other processes.

use bellwether::trace::{TraceContext, TraceParent};
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};

/// Connects callers with the loads of other processes: a leader leaves the trace of its request
/// with the lease, and the spans of callers that wait in other processes are linked to it.
///
/// Set it once per process, with [`set_trace_context`](bellwether::trace::set_trace_context):
///
/// ```
/// use bellwether::trace::set_trace_context;
/// use bellwether_opentelemetry::TraceLinks;
///
/// set_trace_context(TraceLinks::default())?;
/// # Ok::<_, bellwether::ConfigError>(())
/// ```
///
/// It reads the current [`Context`], and so the span of `tracing` that is entered, if a
/// `tracing_opentelemetry::OpenTelemetryLayer` is installed (which activates the contexts of its
/// spans by default). Callers that wait are linked if they are in a span of `tracing`.
///
/// A trace that is not sampled is not left: a link to it would lead nowhere.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TraceLinks;

impl TraceContext for TraceLinks {
    fn current(&self) -> Option<TraceParent> {
        Context::map_current(|context| text_of(context.span().span_context()))
    }

    fn link(&self, load: &TraceParent) {
        let Some(load) = remote(load.as_str()) else { return };
        Context::map_current(|context| context.span().add_link(load, vec![]));
    }
}

fn text_of(span: &SpanContext) -> Option<TraceParent> {
    if !span.is_sampled() {
        return None;
    }
    let flags = span.trace_flags().to_u8();
    TraceParent::parse(&format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id()))
}

fn remote(parent: &str) -> Option<SpanContext> {
    let mut fields = parent.split('-').skip(1);
    let trace = TraceId::from_hex(fields.next()?).ok()?;
    let span = SpanId::from_hex(fields.next()?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(fields.next()?, 16).ok()?);
    Some(SpanContext::new(trace, span, flags, true, TraceState::NONE))
}
