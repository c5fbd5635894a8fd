//! A real Redis whose clock stands still, and connections to it.

use std::fs;
use std::io::{Read, Write};
use std::iter;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use bellwether_simulation::ServerVersion;

/// A server that reads its clock from a file. It ends when this is dropped.
pub(crate) struct RealServer {
    process: Child,
    port: u16,
    dir: PathBuf,
}

impl RealServer {
    pub(crate) fn start(now: u64) -> Self {
        Self::start_with(now, &[])
    }

    pub(crate) fn start_with(now: u64, options: &[&str]) -> Self {
        let mut ports = iter::repeat_with(|| TcpListener::bind("127.0.0.1:0").expect("a port"));
        // A node of a cluster has another port 10,000 above it.
        let port =
            ports.find_map(|it| Some(it.local_addr().ok()?.port()).filter(|it| *it < 55_000));
        let port = port.expect("a port");
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("model-{port}"));
        fs::create_dir_all(&dir).expect("a directory");
        let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
        fs::write(&source, CLOCK).expect("a file");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        assert!(compile.status().expect("cc, of `apt-get install gcc libc6-dev`").success());
        let binary = binary();
        let clock = dir.join("clock");
        fs::write(&clock, format!("{now:020}")).expect("its clock");
        let mut start = Command::new(&binary);
        start.args(["--save", "", "--port", &port.to_string()]);
        // Before Redis 7, a server allows it and does not know the option.
        if version() > ServerVersion::V6 {
            start.args(["--enable-debug-command", "yes"]);
        }
        start
            .args(options)
            .env("LD_PRELOAD", &library)
            .env("CLOCK", &clock)
            .current_dir(&dir)
            .stdout(Stdio::null());
        let process = start.spawn();
        let process =
            process.unwrap_or_else(|error| panic!("{binary}: {error}: install redis-server"));
        Self { process, port, dir }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sets its clock, in microseconds.
    pub(crate) fn set_clock(&self, now: u64) {
        fs::write(self.dir.join("clock"), format!("{now:020}")).expect("its clock");
    }

    pub(crate) fn connect(&self) -> TcpStream {
        for _ in 0..500 {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
                stream.set_nodelay(true).expect("a setting");
                return stream;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("the server takes no connection");
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        let _ = self.process.kill().and_then(|()| self.process.wait());
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn binary() -> String {
    std::env::var("BELLWETHER_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// The version of the server that answers as the real one.
pub(crate) fn version() -> ServerVersion {
    let binary = binary();
    let said = Command::new(&binary).arg("--version").output();
    let said = said.unwrap_or_else(|error| panic!("{binary}: {error}: install redis-server"));
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    if said.starts_with("Valkey") {
        return ServerVersion::Valkey;
    }
    let [before, of_redis_7] = ["Redis server v=6.", "Redis server v=7.0."];
    match () {
        () if said.starts_with(before) => ServerVersion::V6,
        () if said.starts_with(of_redis_7) => ServerVersion::V7,
        () => ServerVersion::V8,
    }
}

/// The bytes of a command.
pub(crate) fn request(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

pub(crate) fn send(stream: &mut TcpStream, words: &[Vec<u8>]) {
    stream.write_all(&request(words)).expect("the server reads");
}

/// Reads until the end of what is expected.
pub(crate) fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let (mut read, mut part) = (Vec::new(), [0; 65536]);
    while !read.ends_with(end) {
        let length = stream.read(&mut part);
        let length = length
            .unwrap_or_else(|error| panic!("{error} after {:?}", String::from_utf8_lossy(&read)));
        assert!(length > 0, "the server has closed it after {:?}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&part[..length]);
    }
    read
}

/// The library that the server asks for the time, in place of the system's own.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long now_us(void) {
    static int file = -1;
    if (file < 0) file = open(getenv("CLOCK"), O_RDONLY | O_CLOEXEC);
    char text[21] = {0};
    while (pread(file, text, 20, 0) != 20) {}
    return strtoll(text, 0, 10);
}

int gettimeofday(struct timeval *now, void *zone) {
    long long us = now_us();
    now->tv_sec = us / 1000000;
    now->tv_usec = us % 1000000;
    return 0;
}

/* Valkey adds what has passed by this clock since it has read the other one. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    long long us = now_us();
    now->tv_sec = us / 1000000;
    now->tv_nsec = us % 1000000 * 1000;
    return 0;
}
"#;
