//! Users, passwords and tokens: rotation while they are in use, and secrets that stay secret.

use std::fmt::Debug;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::BoxError;
use bellwether::store::StoreErrorKind;
use bellwether_redis::{RedisCredentials, RedisOptions};
use bellwether_test::StoreExt as _;
use bellwether_testkit::faults::{FaultProxy, Replacement};
use bellwether_testkit::servers::{RedisServer, Reply};
use bellwether_testkit::wait::{PATIENCE, within};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, subscriber};

use crate::catalog::{Catalog, key, options, options_at};
use crate::near::{copied, looked, near, other_process, put};

/// A user of a server, with these passwords and no others.
fn allow(server: &RedisServer, passwords: &[&str]) {
    let passwords: Vec<_> = passwords.iter().map(|password| format!(">{password}")).collect();
    let mut command = vec!["ACL", "SETUSER", "bw", "resetpass", "on", "~bw:*", "+@all"];
    command.extend(passwords.iter().map(String::as_str));
    server.command(&command);
}

fn cut(server: &RedisServer) {
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
}

/// How often clients have authenticated by `AUTH`, with and without success.
fn authentications(server: &RedisServer) -> usize {
    let Some(stats) = server.info("commandstats", "cmdstat_auth") else { return 0 };
    let calls = stats.split(',').find_map(|field| field.strip_prefix("calls="));
    calls.and_then(|calls| calls.parse().ok()).expect("a number")
}

/// A provider that gives these passwords, one after the other, and then the last one for ever. None
/// is an error. It counts how often it is asked.
fn provider(
    options: RedisOptions,
    passwords: &[Option<&str>],
    renew_after: Option<Duration>,
) -> (RedisOptions, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let passwords: Arc<[_]> = passwords.iter().map(|password| password.map(String::from)).collect();
    let options = options.credentials(move || {
        let call = counter.fetch_add(1, Ordering::SeqCst).min(passwords.len() - 1);
        let password = passwords[call].clone();
        async move {
            let password = password.ok_or("the service of tokens is away")?;
            let credentials = RedisCredentials::new("bw", password);
            Ok::<_, BoxError>(match renew_after {
                Some(time) => credentials.renew_after(time),
                None => credentials,
            })
        }
    });
    (options, calls)
}

#[tokio::test]
async fn a_password_in_a_file_is_rotated_while_it_is_in_use() {
    let server = RedisServer::start();
    allow(&server, &["old"]);
    let path = server.dir().join("password");
    fs::write(&path, "old\n").expect("a file");
    let file = path.clone();
    let options = options(&server).credentials(move || {
        let password = tokio::fs::read_to_string(file.clone());
        async { Ok(RedisCredentials::new("bw", password.await?.trim())) }
    });
    let catalog = Catalog::over(options.connect().await.expect("it"));
    catalog.ask(1).await;
    allow(&server, &["old", "new"]);
    cut(&server);
    catalog.ask(1).await;
    fs::write(&path, "new\n").expect("a file");
    catalog.ask(1).await;
    allow(&server, &["new"]);
    catalog.ask(1).await;
    cut(&server);
    catalog.ask(1).await;
    catalog.ask(2).await;
    assert_eq!(catalog.loads(), 2, "nothing was lost");
}

#[tokio::test]
async fn a_password_that_is_changed_while_connecting_is_asked_for_once_more() {
    let server = RedisServer::start();
    allow(&server, &["new"]);
    let (options, calls) = provider(options(&server), &[Some("old"), Some("new")], None);
    options
        .connect_lazily()
        .expect("options")
        .find(key(1))
        .await
        .expect("the password of the second answer");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_provider_that_fails_is_named_and_asked_again() {
    let server = RedisServer::start();
    allow(&server, &["secret"]);
    let answers = [None, None, None, None, None, Some("secret")];
    let (options, calls) = provider(options(&server), &answers, None);
    let store = options.connect_lazily().expect("options");
    let error = store.find(key(1)).await.expect_err("there is no token");
    assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("the service of tokens is away"), "{error}");
    let began = tokio::time::Instant::now();
    while store.find(key(1)).await.is_err() {
        assert!(began.elapsed() < PATIENCE, "it does not recover");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(calls.load(Ordering::SeqCst), 6, "no more often than necessary");
}

#[tokio::test]
async fn a_token_is_renewed_over_open_connections_and_changes_are_reported_as_before() {
    let server = RedisServer::start();
    let tokens: Vec<_> = (0..1000).map(|number| format!("token {number}")).collect();
    allow(&server, &tokens.iter().map(String::as_str).collect::<Vec<_>>());
    let answers: Vec<_> = tokens.iter().map(|token| Some(token.as_str())).collect();
    let often = Some(Duration::from_millis(100));
    let (options, _) = provider(near(options(&server)), &answers, often);
    let store = options.connect().await.expect("a store");
    let connects = store.stats().connects;
    let other = other_process(&server).await;
    put(&other, 1, 7).await;
    assert_eq!(looked(&store, 1).await, Some(7));
    within(PATIENCE, || authentications(&server) >= 3).await;
    assert_eq!(looked(&store, 1).await, Some(7));
    assert_eq!(copied(&store, 1), Some(7));
    other.invalidate(key(1)).await.expect("invalidated");
    within(PATIENCE, || copied(&store, 1).is_none()).await;
    assert_eq!(store.stats().connects, connects, "over the same connection");
}

#[tokio::test]
async fn a_token_that_is_refused_does_not_end_the_renewal() {
    let server = RedisServer::start();
    allow(&server, &["first", "last"]);
    // So that no subscription is tried again, with the next answer.
    server.command(&["ACL", "SETUSER", "bw", "&bw:*"]);
    let answers = [Some("first"), Some("wrong"), None, Some("last")];
    let often = Some(Duration::from_millis(100));
    let (options, calls) = provider(near(options(&server)), &answers, often);
    let store = options.connect().await.expect("a store");
    let (connects, begun) = (store.stats().connects, authentications(&server));
    within(PATIENCE, || calls.load(Ordering::SeqCst) > answers.len()).await;
    assert_eq!(authentications(&server) - begun, 2, "the wrong one and the last one");
    // Removing the first one ends nothing, because the connection has the last one.
    allow(&server, &["last"]);
    store.find(key(1)).await.expect("an answer");
    assert_eq!(store.stats().connects, connects, "over the same connection");
}

/// As servers do that accept a token for a limited time.
#[tokio::test]
async fn a_connection_that_the_server_takes_for_unauthenticated_is_replaced() {
    let server = RedisServer::start();
    allow(&server, &["secret"]);
    // So that no subscription is tried again, with the credentials, while they are counted.
    server.command(&["ACL", "SETUSER", "bw", "&bw:*"]);
    let proxy = FaultProxy::start(([127, 0, 0, 1], server.port()).into()).await;
    let at_proxy = near(options_at(&proxy.url()));
    let (options, calls) = provider(at_proxy, &[Some("secret")], None);
    let store = options.connect().await.expect("a store");
    let asked = calls.load(Ordering::SeqCst);
    let expired = "-NOAUTH Authentication required.\r\n";
    proxy.replace(Replacement::refusal("EVALSHA", expired).times(1));
    store.invalidate(key(1)).await.expect("over another connection");
    assert_eq!(calls.load(Ordering::SeqCst), asked + 1, "with the credentials of that time");
}

#[tokio::test]
async fn a_user_that_is_missing_disabled_or_has_another_password_is_named() {
    let server = RedisServer::start();
    allow(&server, &["secret"]);
    let at = |login: &str| {
        let url = format!("redis://{login}@127.0.0.1:{}", server.port());
        RedisOptions::new(&url, "test").expect("an address").timeout(PATIENCE)
    };
    server.command(&["ACL", "SETUSER", "default", "off"]);
    let admin = || {
        let mut connection = server.connect();
        connection.command(&["AUTH", "bw", "secret"]).expect("a user");
        connection
    };
    for (login, word) in [("bw:wrong", "WRONGPASS"), ("other:secret", "WRONGPASS"), ("", "NOAUTH")]
    {
        for options in [at(login), at(login).resp2()] {
            let error = options.connect().await.expect_err(login);
            assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");
            let is_said = error.to_string().contains(word);
            // Over RESP2 the client library does not pass the word on.
            assert!(is_said || error.to_string().contains("authentication failed"), "{error}");
            assert!(!error.to_string().contains("wrong@"), "{error}");
        }
    }
    at("bw:secret").connect().await.expect("a store");
    let mut admin = admin();
    admin.command(&["ACL", "SETUSER", "default", "on"]).expect("on");
    admin.command(&["ACL", "SETUSER", "bw", "off"]).expect("off");
    let error = at("bw:secret").connect().await.expect_err("it is disabled");
    assert!(error.to_string().contains("disabled"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_causes_no_storm_of_connections() {
    let server = RedisServer::start();
    allow(&server, &["secret"]);
    let url = format!("redis://bw:wrong@127.0.0.1:{}", server.port());
    let store = RedisOptions::new(&url, "test").expect("an address").outage_ttl(Duration::ZERO);
    let store = store.connect_lazily().expect("options");
    let began = tokio::time::Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        store.find(key(1)).await.expect_err("the password is wrong");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(store.is_down());
    // The pauses are at least 25, 50, 100, 200, 400 and 800 ms.
    assert!(store.stats().connects <= 10, "{:?}", store.stats());
    let Reply::Array(log) = server.command(&["ACL", "LOG"]) else { panic!("no log") };
    assert!(!log.is_empty(), "the server was asked");
}

/// Everything that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        *self.0.lock().expect("the log") += &format!("{field}={value:?} ");
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        attributes.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn secrets_are_neither_logged_nor_in_errors() {
    let log = Log::default();
    let _logged = subscriber::set_default(log.clone());
    // This server repeats the words of commands that it does not know.
    let rename = ["--rename-command", "HELLO", "", "--rename-command", "AUTH", ""];
    let forgetful = RedisServer::start_with(&rename);
    let server = RedisServer::start();
    let mut said = String::new();
    for server in [&server, &forgetful] {
        let url = format!("redis://bw:hunter2@127.0.0.1:{}", server.port());
        for options in [options_at(&url), options_at(&url).resp2()] {
            let error = options.connect().await.expect_err("it is refused");
            said += &format!("{error} {error:?} ");
        }
    }
    allow(&server, &["first"]);
    let often = Some(Duration::from_millis(100));
    let (options, calls) =
        provider(near(options(&server)), &[Some("first"), Some("hunter2")], often);
    let _store = options.connect().await.expect("a store");
    within(PATIENCE, || calls.load(Ordering::SeqCst) > 3).await;
    within(PATIENCE, || log.0.lock().expect("the log").contains("could not be renewed")).await;
    said += &log.0.lock().expect("the log");
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn secrets_are_not_shown() {
    let server = "redis://user-name:hunter2@127.0.0.1";
    let options = RedisOptions::new(server, "test").expect("an address");
    let credentials = RedisCredentials::new("user-name", "hunter2");
    let provided = options.clone().credentials(credentials.clone());
    let store = provided.clone().connect_lazily().expect("options");
    let shown = format!("{options:?} {credentials:?} {provided:?} {store:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("user-name"), "{shown}");
}
