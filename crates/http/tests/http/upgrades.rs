//! Offers of another protocol, and connections that are upgraded.

use std::net::SocketAddr;
use std::time::Duration;

use bellwether::MemoryStore;
use bellwether_http::{HttpCacheLayer, RequestKey};
use http::Uri;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::origin::{Origin, ask, cached, get, is_hit, memory, request, says};
use crate::proxy;

/// The offer of curl with `--http2`, and of the client of Java.
const H2C: &[(&str, &str)] = &[
    ("connection", "Upgrade, HTTP2-Settings"),
    ("upgrade", "h2c"),
    ("http2-settings", "AAMAAABkAAQCAAAAAAIAAAAA"),
];

#[tokio::test(start_paused = true)]
async fn an_offer_of_h2c_is_ignored_and_the_answer_is_kept() {
    let keyed = HttpCacheLayer::keyed(MemoryStore::new(100), RequestKey::path());
    let keyed = keyed.ttl(Duration::from_secs(60)).build().unwrap();
    let origin = Origin::counting(&[("cache-control", "max-age=60")]);
    for cache in [cached(&memory().build().unwrap(), &origin), cached(&keyed, &origin)] {
        assert!(!is_hit(&get(&cache, H2C).await));
        let given = ["connection", "upgrade", "http2-settings"].map(|name| origin.last(name));
        assert_eq!(given, [None, None, None], "the offer is for this server");
        for fields in [H2C, &[]] {
            assert!(is_hit(&get(&cache, fields).await), "{fields:?}");
            assert!(is_hit(&ask(&cache, "HEAD", "http://shop/item", fields).await), "{fields:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_offer_of_h2c_in_other_words_is_one_all_the_same() {
    let offers: [&[(&str, &str)]; 4] = [
        &[("upgrade", "H2C"), ("connection", "upgrade,http2-settings")],
        &[("upgrade", "h2c, h2c"), ("connection", "keep-alive"), ("connection", "Upgrade")],
        &[("upgrade", "h2c"), ("upgrade", "h2c")],
        &[("upgrade", ""), ("connection", "keep-alive, Upgrade")],
    ];
    for fields in offers {
        let origin = Origin::counting(&[("cache-control", "max-age=60")]);
        let cache = cached(&memory().build().unwrap(), &origin);
        get(&cache, fields).await;
        assert_eq!(origin.last("upgrade"), None, "{fields:?}");
        assert!(!origin.last("connection").unwrap_or_default().to_lowercase().contains("upgrade"));
        assert!(is_hit(&get(&cache, fields).await), "{fields:?}");
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Connection(u32);

#[tokio::test(start_paused = true)]
async fn an_offer_of_another_protocol_bypasses_the_cache_unchanged() {
    for offer in ["websocket", "h2c, websocket", "TLS/1.0", "h2c/2"] {
        let origin = Origin::new(async |request: http::Request<_>, _| {
            let mut page = crate::origin::page(&[("cache-control", "max-age=60")], "");
            let given = request.extensions().get::<Connection>().cloned();
            page.extensions_mut().insert(given.expect("it was handed through"));
            Ok(page)
        });
        let cache = cached(&memory().build().unwrap(), &origin);
        for _ in 0..2 {
            let fields = [("connection", "upgrade"), ("upgrade", offer)];
            let mut request = request("GET", "http://shop/item", &fields);
            request.extensions_mut().insert(Connection(7));
            let Ok(answer) = cache.clone().oneshot(request).await;
            assert!(says(&answer, "fwd=bypass"), "{offer}");
            assert_eq!(answer.extensions().get(), Some(&Connection(7)));
            assert_eq!(origin.last("upgrade").as_deref(), Some(offer));
            assert_eq!(origin.last("connection").as_deref(), Some("upgrade"));
        }
    }
}

/// An origin of WebSockets, written by hand. It echoes each message, sends a greeting on `/greeting`,
/// and refuses `/none`.
async fn origin() -> (JoinSet<()>, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            connections.spawn(answer(stream));
        }
    });
    (tasks, address)
}

async fn answer(mut stream: TcpStream) {
    let head = head(&mut stream).await;
    if !head.contains("upgrade: websocket") {
        let text = "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
        return stream.write_all(text.as_bytes()).await.unwrap();
    }
    for field in [
        "connection: upgrade",
        "sec-websocket-version: 13",
        "sec-websocket-key: dghlihnhbxbszsbub25jzq==",
    ] {
        assert!(head.contains(field), "{field} is not in {head}");
    }
    if head.starts_with("get /none ") {
        let text = "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno";
        return stream.write_all(text.as_bytes()).await.unwrap();
    }
    let accepted = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    let mut first = accepted.as_bytes().to_vec();
    if head.starts_with("get /greeting ") {
        first.extend(frame(TEXT, b"welcome", false));
    }
    stream.write_all(&first).await.unwrap();
    while let Some((kind, content)) = read_frame(&mut stream).await {
        stream.write_all(&frame(kind, &content, false)).await.unwrap();
        if kind == CLOSE {
            return;
        }
    }
}

/// The head of a message, in lower case.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;

/// One frame (RFC 6455, section 5.2), masked as clients do.
fn frame(kind: u8, content: &[u8], is_masked: bool) -> Vec<u8> {
    let mask_bit = if is_masked { 0x80 } else { 0 };
    let mut frame = vec![0x80 | kind];
    match content.len() {
        length @ ..126 => frame.push(mask_bit | u8::try_from(length).unwrap()),
        length @ ..0x1_0000 => {
            frame.push(mask_bit | 126);
            frame.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            frame.push(mask_bit | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    let mask = if is_masked { [1, 2, 3, 4] } else { [0; 4] };
    if is_masked {
        frame.extend(mask);
    }
    frame.extend(content.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// The kind and the payload of the next frame. `None` if the connection has ended.
async fn read_frame(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let first = stream.read_u8().await.ok()?;
    let second = stream.read_u8().await.ok()?;
    let length = match second & 0x7f {
        126 => u64::from(stream.read_u16().await.ok()?),
        127 => stream.read_u64().await.ok()?,
        length => u64::from(length),
    };
    let mut mask = [0; 4];
    if second & 0x80 != 0 {
        stream.read_exact(&mut mask).await.ok()?;
    }
    let mut content = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut content).await.ok()?;
    content.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    Some((first & 0x0f, content))
}

/// The example proxy, before that origin.
struct Proxied {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Proxied {
    async fn start() -> Self {
        let (mut tasks, origin) = origin().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let uri: Uri = format!("http://{origin}").parse().unwrap();
        let layer = HttpCacheLayer::builder(MemoryStore::new(100)).build().unwrap();
        tasks.spawn(async move { proxy::serve(listener, &uri, &layer).await.unwrap() });
        Self { address, _tasks: tasks }
    }

    /// Asks for a WebSocket; the connection, and the head of the answer.
    async fn connect(&self, path: &str) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
            self.address,
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut stream).await;
        (stream, head)
    }
}

fn is_accepted(head: &str) -> bool {
    let fields = [
        "upgrade: websocket",
        "connection: upgrade",
        "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=",
    ];
    head.starts_with("http/1.1 101 ") && fields.iter().all(|field| head.contains(field))
}

#[tokio::test]
async fn a_websocket_passes_the_example_proxy() {
    let proxied = Proxied::start().await;
    let (mut stream, head) = proxied.connect("/socket").await;
    assert!(is_accepted(&head), "{head}");
    for length in [0, 5, 125, 126, 65_535, 65_536, 1_000_000] {
        let content = vec![b'a'; length];
        stream.write_all(&frame(TEXT, &content, true)).await.unwrap();
        assert_eq!(read_frame(&mut stream).await, Some((TEXT, content)), "{length}");
    }
    stream.write_all(&frame(PING, b"there", true)).await.unwrap();
    assert_eq!(read_frame(&mut stream).await, Some((PING, b"there".to_vec())));
    stream.write_all(&frame(CLOSE, &[3, 232], true)).await.unwrap();
    assert_eq!(read_frame(&mut stream).await, Some((CLOSE, vec![3, 232])));
    assert_eq!(read_frame(&mut stream).await, None, "the origin has closed the connection");
}

#[tokio::test]
async fn what_the_origin_sends_right_behind_its_head_arrives() {
    let proxied = Proxied::start().await;
    let (mut stream, head) = proxied.connect("/greeting").await;
    assert!(is_accepted(&head), "{head}");
    assert_eq!(read_frame(&mut stream).await, Some((TEXT, b"welcome".to_vec())));
}

#[tokio::test]
async fn a_websocket_that_the_origin_refuses_is_refused_in_its_words() {
    let proxied = Proxied::start().await;
    let (mut stream, head) = proxied.connect("/none").await;
    assert!(head.starts_with("http/1.1 403 "), "{head}");
    let mut content = [0; 2];
    stream.read_exact(&mut content).await.unwrap();
    assert_eq!(&content, b"no");
}

#[tokio::test]
async fn an_offer_of_h2c_is_answered_over_http_1_by_what_is_kept() {
    let proxied = Proxied::start().await;
    for is_kept in [false, true] {
        let mut stream = TcpStream::connect(proxied.address).await.unwrap();
        let fields: String =
            H2C.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!("GET /page HTTP/1.1\r\nHost: shop\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut stream).await;
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        assert_eq!(head.contains("cache-status: bellwether; hit"), is_kept, "{head}");
    }
}
