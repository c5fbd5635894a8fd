//! Ways in which a Redis is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::processes::{freeze, thaw};
use bellwether_testkit::servers::RedisServer;
use tokio::runtime::Handle;

/// The kinds, and what they do.
pub(crate) const KINDS: [(&str, &str); 7] = [
    ("killed", "SIGKILL, and a restart on the same port"),
    ("stalled", "SIGSTOP"),
    ("refusing", "connections are reset, and new ones refused"),
    ("full", "maxmemory 1, and no eviction"),
    ("flapping", "SIGSTOP for 300 ms of each 600"),
    ("resetting", "connections are reset and refused for 300 ms of each 600"),
    ("cut-off", "a network that swallows all bytes"),
];

/// How long a server that flaps is up, and down.
const FLAP: Duration = Duration::from_millis(300);

/// A server that can be away.
pub(crate) struct Fault {
    kind: String,
    server: RedisServer,
    proxy: Arc<FaultProxy>,
    is_over: Arc<AtomicBool>,
    /// Of the proxy, which listens again there.
    runtime: Handle,
    flapping: Option<JoinHandle<()>>,
}

impl Fault {
    pub(crate) async fn prepare(kind: &str) -> Self {
        let server = RedisServer::start();
        let proxy = FaultProxy::start(([127, 0, 0, 1], server.port()).into()).await;
        let (is_over, runtime) = (Arc::default(), Handle::current());
        let (kind, proxy) = (kind.to_owned(), Arc::new(proxy));
        Self { kind, server, proxy, is_over, runtime, flapping: None }
    }

    /// Where a client connects to.
    pub(crate) fn url(&self) -> String {
        match self.kind.as_str() {
            "refusing" | "resetting" | "cut-off" => self.proxy.url(),
            _ => self.server.url(),
        }
    }

    pub(crate) fn begin(&mut self) {
        let pid = self.server.pid();
        let proxy = Arc::clone(&self.proxy);
        match self.kind.as_str() {
            "killed" => self.server.kill(),
            "stalled" => self.server.stop(),
            "refusing" => refuse(&proxy),
            "full" => {
                self.server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
                self.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
            }
            "flapping" => self.flap(move || freeze(pid), move || thaw(pid)),
            "resetting" => {
                let passing = Arc::clone(&proxy);
                self.flap(move || refuse(&proxy), move || passing.pass());
            }
            "cut-off" => proxy.blackhole(),
            other => panic!("no such kind: {other}"),
        }
    }

    pub(crate) fn end(&mut self) {
        match self.kind.as_str() {
            "killed" => self.server.restart(),
            "stalled" => self.server.resume(),
            "full" => _ = self.server.command(&["CONFIG", "SET", "maxmemory", "0"]),
            _ => {}
        }
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(flapping) = self.flapping.take() {
            flapping.join().expect("no panic");
        }
        let _entered = self.runtime.enter();
        self.proxy.pass();
    }

    fn flap(&mut self, down: impl Fn() + Send + 'static, up: impl Fn() + Send + 'static) {
        let (is_over, runtime) = (Arc::clone(&self.is_over), self.runtime.clone());
        self.flapping = Some(thread::spawn(move || {
            let _entered = runtime.enter();
            while !is_over.load(Ordering::Relaxed) {
                down();
                sleep(FLAP);
                up();
                sleep(FLAP);
            }
        }));
    }
}

fn refuse(proxy: &FaultProxy) {
    proxy.refuse();
    proxy.cut();
}
