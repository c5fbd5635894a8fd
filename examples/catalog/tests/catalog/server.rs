//! The example as a test asks it.

use axum::body::{Body, Bytes, to_bytes};
use axum::http::response::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use bellwether_testkit::processes::Program;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use prost::Message;
use serde_json::Value;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

/// A running catalog. It ends on drop.
pub(crate) struct Catalog {
    program: Program,
    web: String,
    grpc: String,
}

/// An answer over HTTP.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) json: Value,
}

impl Catalog {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_in(&[], args)
    }

    /// With these settings of the environment, each as `NAME=value`.
    pub(crate) fn start_in(environment: &[&str], args: &[&str]) -> Self {
        let anywhere = ["--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0"];
        let command = [environment, &[env!("CARGO_BIN_EXE_catalog")], &anywhere, args].concat();
        let program = Program::start("env", &command);
        let (web, grpc) = program.said(|line| {
            let (web, grpc) = line.strip_prefix("catalog: ")?.split_once(" (gRPC: ")?;
            Some((web.to_owned(), format!("http://{}", grpc.strip_suffix(')')?)))
        });
        Self { program, web, grpc }
    }

    /// Where its page is.
    pub(crate) fn url(&self) -> &str {
        &self.web
    }

    /// Where it listens, as a target of Prometheus.
    pub(crate) fn target(&self) -> &str {
        self.web.strip_prefix("http://").expect("a plain URL")
    }

    /// Waits until it prints a line from which something can be read.
    pub(crate) fn said<T>(&self, read: impl Fn(&str) -> Option<T>) -> T {
        self.program.said(read)
    }

    /// Its metrics, as Prometheus reads them.
    pub(crate) async fn metrics(&self) -> String {
        read(&format!("{}/metrics", self.web)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        ask(Method::GET, &format!("{}{path}", self.web), "").await
    }

    pub(crate) async fn post(&self, path: &str, json: &str) -> Answer {
        ask(Method::POST, &format!("{}{path}", self.web), json).await
    }

    /// Calls a method of `catalog.Catalog`.
    pub(crate) async fn call<Req, Res>(
        &self,
        method: &'static str,
        message: Req,
        metadata: &[(&'static str, &str)],
    ) -> Result<tonic::Response<Res>, tonic::Status>
    where
        Req: Message + Send + Sync + 'static,
        Res: Message + Default + Send + Sync + 'static,
    {
        let channel = Channel::from_shared(self.grpc.clone()).expect("a URL");
        let mut client = tonic::client::Grpc::new(channel.connect().await.expect("it listens"));
        client.ready().await.expect("it is ready");
        let mut request = tonic::Request::new(message);
        for (name, value) in metadata {
            let metadata: &mut MetadataMap = request.metadata_mut();
            metadata.insert(*name, value.parse().expect("plain text"));
        }
        let path = PathAndQuery::from_static(method);
        client.unary(request, path, ProstCodec::default()).await
    }
}

impl Answer {
    /// How it came about.
    pub(crate) fn cache_status(&self) -> &str {
        let status = self.headers.get("cache-status");
        status.map_or("", |status| status.to_str().expect("plain text"))
    }
}

/// Asks any server, with a body of JSON if there is one.
pub(crate) async fn ask(method: Method, url: &str, json: &str) -> Answer {
    let (parts, body) = bytes(method, url, json).await;
    let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Answer { status: parts.status, headers: parts.headers, json }
}

/// The text at a URL.
pub(crate) async fn read(url: &str) -> String {
    String::from_utf8(bytes(Method::GET, url, "").await.1.into()).expect("a text")
}

async fn bytes(method: Method, url: &str, json: &str) -> (Parts, Bytes) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::builder()
        .method(method)
        .uri(url)
        .header("content-type", "application/json")
        .body(Body::from(json.to_owned()))
        .expect("a request");
    let (parts, body) = client.request(request).await.expect("it answers").into_parts();
    (parts, to_bytes(Body::new(body), usize::MAX).await.expect("a whole body"))
}
