//! A process with a cache in Redis, whose spans go to an exporter of OpenTelemetry.

use std::convert::Infallible;
use std::error::Error;
use std::mem;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bellwether::Cache;
use bellwether::trace::set_trace_context;
use bellwether_opentelemetry::TraceLinks;
use bellwether_redis::RedisStore;
use bellwether_testkit::caches::MINUTE;
use bellwether_testkit::processes::work;
use bellwether_testkit::wait::until;
use opentelemetry::trace::{SpanId, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tracing::{Instrument, Level, info_span};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::messages::{Command, EndedSpan, Reply, Setup};

#[test]
#[ignore = "only of use to the other tests, which run it in processes of its own"]
fn works() {
    work(Member::open, |member: Arc<Member>, command| member.obey(command));
}

struct Member {
    cache: Cache<u64, String>,
    loader: Arc<GatedLoader>,
    /// Held to add callers or to take all.
    callers: Mutex<Vec<JoinHandle<String>>>,
    exported: InMemorySpanExporter,
    _tracers: SdkTracerProvider,
}

/// A loader that queries, and is let go by its test.
struct GatedLoader {
    begun: AtomicUsize,
    gate: Semaphore,
}

impl Member {
    async fn open(setup: Setup) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let exported = InMemorySpanExporter::default();
        let tracers = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(tracers.tracer("bellwether"));
        let level: Level = setup.level.parse()?;
        let ours = Targets::new().with_target("bellwether", level);
        tracing_subscriber::registry().with(layer.with_filter(ours)).try_init()?;
        set_trace_context(TraceLinks::default())?;
        let store = RedisStore::connect(&setup.url, "test").await?;
        let builder = Cache::builder("item", store).ttl(MINUTE);
        let cache = builder.stale_while_revalidate(MINUTE).build()?;
        let loader = GatedLoader { begun: AtomicUsize::new(0), gate: Semaphore::new(0) };
        let callers = Mutex::default();
        Ok(Self { cache, loader: Arc::new(loader), callers, exported, _tracers: tracers })
    }

    async fn obey(self: Arc<Self>, command: Command) -> Reply {
        match command {
            Command::Ask { callers } => self.ask(callers).await,
            Command::Loading { loads } => {
                until("a load has begun", || self.loader.begun.load(SeqCst) == loads).await;
            }
            Command::Waiting => {
                until("the lease is refused", || self.cache.stats().leases.busy > 0).await;
            }
            Command::LetGo => self.loader.gate.add_permits(1),
            Command::Answers => return Reply::Answers(self.answers().await),
            Command::Expire => _ = self.cache.expire(1).await.expect("the store is up"),
            Command::Refreshed { refreshes } => {
                let succeeded = || self.cache.stats().refreshes.succeeded;
                until("a refresh has ended", || succeeded() == refreshes).await;
            }
            Command::Spans { ended } => return Reply::Spans(self.spans(ended).await),
        }
        Reply::Done
    }

    async fn ask(&self, callers: usize) {
        let (begun, mut all_begun) = mpsc::channel::<()>(1);
        let callers = (0..callers).map(|_| self.call(begun.clone()));
        self.callers.lock().unwrap().extend(callers);
        drop(begun);
        // The channel ends when every caller has dropped its end of it.
        while all_begun.recv().await.is_some() {}
    }

    /// A request, which drops `begun` when it has been polled.
    fn call(&self, begun: mpsc::Sender<()>) -> JoinHandle<String> {
        let (cache, loader) = (self.cache.clone(), Arc::clone(&self.loader));
        let request = async move {
            let mut call = pin!(cache.get_or_load(1, async move || loader.load().await));
            let polled = futures_util::poll!(call.as_mut());
            drop(begun);
            match polled {
                std::task::Poll::Ready(answer) => answer,
                std::task::Poll::Pending => call.await,
            }
            .expect("an answer")
        };
        let span = info_span!(target: "bellwether::test", parent: None, "request");
        tokio::spawn(request.instrument(span))
    }

    async fn answers(&self) -> Vec<String> {
        let callers = mem::take(&mut *self.callers.lock().unwrap());
        let mut answers = vec![];
        for caller in callers {
            answers.push(caller.await.expect("no panic"));
        }
        answers
    }

    async fn spans(&self, ended: usize) -> Vec<EndedSpan> {
        let finished = || self.exported.get_finished_spans().expect("they are kept");
        until("the spans have ended", || finished().len() >= ended).await;
        finished().iter().map(EndedSpan::from).collect()
    }
}

impl GatedLoader {
    async fn load(&self) -> Result<String, Infallible> {
        let query = async {
            let load = self.begun.fetch_add(1, SeqCst) + 1;
            self.gate.acquire().await.expect("it is open").forget();
            Ok(format!("load {load}"))
        };
        query.instrument(info_span!(target: "bellwether::test", "query")).await
    }
}

impl From<&SpanData> for EndedSpan {
    fn from(span: &SpanData) -> Self {
        let links = span.links.iter().map(|link| &link.span_context);
        let parent = Some(span.parent_span_id).filter(|parent| *parent != SpanId::INVALID);
        Self {
            name: span.name.to_string(),
            trace: span.span_context.trace_id().to_string(),
            span: span.span_context.span_id().to_string(),
            parent: parent.map(|parent| parent.to_string()),
            links: links.map(|it| (it.trace_id().to_string(), it.span_id().to_string())).collect(),
            size: (span.events.len(), span.attributes.len()),
        }
    }
}
