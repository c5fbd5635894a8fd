//! Options of a Redis: what makes no sense is refused, and no password is ever shown.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use bellwether::ConfigError;
use bellwether::store::StoreErrorKind;
use bellwether_redis::{RedisCredentials, RedisOptions, RedisStore};

const PASSWORD: &str = "hunter2";

#[test]
fn what_is_no_address_is_refused() {
    let addresses = [
        "",
        " ",
        "redis",
        "redis:",
        "localhost:6379",
        "127.0.0.1:6379",
        "http://localhost:6379",
        "redis//localhost",
        "redis://localhost:port",
        "redis://localhost:65536",
        "redis://localhost:-1",
        "redis://localhost/zero",
        "redis://[::1",
        "redis://\0",
        "redis://%ff@localhost",
        "redis://localhost/0?protocol=resp9",
    ];
    for address in addresses {
        let refused = RedisOptions::new(address, "test");
        assert!(matches!(refused, Err(ConfigError::Url { .. })), "{address:?} gave {refused:?}");
    }
}

#[test]
fn what_is_an_address_is_accepted() {
    for address in ["redis://localhost", "redis://a:b@[::1]:1/15", "unix:///tmp/redis.sock"] {
        assert!(RedisOptions::new(address, "test").is_ok(), "{address}");
    }
}

#[test]
fn no_refused_address_gives_its_password_away() {
    let addresses = [
        "http://user:hunter2@localhost",
        "redis://user:hunter2@localhost:port",
        "redis://user:hunter2@localhost:65536",
        "redis://user:hunter2@localhost/zero",
        "redis://user:hunter2@[::1",
        "redis://user:hunter2@",
        "redis://:hunter2@local host",
        "redis://%ff:hunter2@localhost",
        "redis://user:hunter2%ff@localhost",
        "redis:user:hunter2@localhost",
        "redis://localhost/hunter2",
        "user:hunter2@localhost",
        "unix:///tmp/redis.sock?db=hunter2",
    ];
    for address in addresses {
        if let Err(error) = RedisOptions::new(address, "test") {
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(PASSWORD), "{address:?} gave {shown:?}");
        }
    }
}

/// "The message does not repeat it": not even the part that it is about, as an address that cannot
/// be read may have its password anywhere.
#[test]
fn no_part_of_a_refused_address_is_repeated() {
    for address in ["redis://localhost/hunter2", "redis://localhost?protocol=hunter2"] {
        let error = RedisOptions::new(address, "test").unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(PASSWORD), "{address:?} gave {shown:?}");
    }
}

#[test]
fn options_are_shown_without_user_and_password() {
    let options =
        RedisOptions::new("redis://operator:hunter2@redis.internal:7000/3", "test").unwrap();
    let shown = format!("{options:?}");
    assert!(shown.contains("redis.internal:7000"), "{shown}");
    assert!(!shown.contains(PASSWORD) && !shown.contains("operator"), "{shown}");
}

#[test]
fn a_store_is_shown_without_user_and_password() {
    let options =
        RedisOptions::new("redis://operator:hunter2@redis.internal:7000/3", "test").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let shown = format!("{:?}", options.connect_lazily().expect("options"));
    assert!(!shown.contains(PASSWORD) && !shown.contains("operator"), "{shown}");
}

/// An address without a listener.
fn nowhere() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    format!("redis://operator:hunter2@{}", listener.local_addr().unwrap())
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_without_user_and_password() {
    let options = RedisOptions::new(&nowhere(), "test").unwrap().timeout(Duration::from_millis(20));
    let error = options.connect().await.unwrap_err();
    let kinds = [StoreErrorKind::TimedOut, StoreErrorKind::Unreachable];
    assert!(kinds.contains(&error.kind()), "{error:?}");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(PASSWORD) && !shown.contains("operator"), "{shown}");
}

#[tokio::test]
async fn an_address_that_makes_no_sense_is_an_error_of_connecting_without_its_password() {
    let error =
        RedisStore::connect("redis://user:hunter2@localhost:port", "test").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
}

const ADDRESS: &str = "redis://localhost";

fn options() -> RedisOptions {
    RedisOptions::new(ADDRESS, "test").unwrap()
}

fn accepted(options: RedisOptions) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    options.connect_lazily().unwrap();
}

#[tokio::test]
async fn the_first_of_two_wrong_options_is_the_error_of_connecting() {
    let options = || options().near(1).timeout(Duration::MAX).near(65_536);
    let message = options().connect_lazily().unwrap_err().to_string();
    assert!(message.starts_with("bytes of the near tier must be"), "{message}");
    let error = options().connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    assert!(error.to_string().contains(&message), "{error}");
}

#[test]
fn a_namespace_of_other_characters_is_refused() {
    let too_long = "x".repeat(65);
    for namespace in ["", " ", "a b", "a:b", "{a}", "ä", "a\0", "a\n", "*", "a/b", &too_long] {
        let refused = RedisOptions::new(ADDRESS, namespace);
        assert!(
            matches!(refused, Err(ConfigError::Namespace { .. })),
            "{namespace:?}: {refused:?}"
        );
    }
}

#[test]
fn a_namespace_that_is_refused_is_not_repeated_at_length() {
    let error = RedisOptions::new(ADDRESS, &"x".repeat(1_000_000)).unwrap_err();
    assert!(error.to_string().len() < 200);
}

#[test]
fn a_namespace_of_letters_digits_and_three_signs_is_accepted() {
    let longest = "x".repeat(64);
    for namespace in ["a", "0", "Shop_2.eu-west-1", &longest] {
        assert!(RedisOptions::new(ADDRESS, namespace).is_ok(), "{namespace}");
    }
}

#[test]
fn a_timeout_out_of_range_is_refused_by_name() {
    for timeout in [Duration::ZERO, Duration::from_micros(999), Duration::MAX] {
        let message = options().timeout(timeout).connect_lazily().unwrap_err().to_string();
        assert!(message.starts_with("timeout of the store must be from 1ms to 60s"), "{message}");
        let message = options().connect_timeout(timeout).connect_lazily().unwrap_err().to_string();
        assert!(message.starts_with("time for connecting of the store must be from"), "{message}");
    }
}

#[test]
fn a_number_of_failures_out_of_range_is_refused_by_name() {
    for failures in [0, 1_000_001, u32::MAX] {
        let message = options().down_after(failures).connect_lazily().unwrap_err().to_string();
        assert!(
            message.starts_with("failures until the store is down must be from 1"),
            "{message}"
        );
    }
}

#[test]
fn a_probe_interval_out_of_range_is_refused_by_name() {
    for interval in [Duration::ZERO, Duration::from_millis(99), Duration::MAX] {
        let message = options().probe_every(interval).connect_lazily().unwrap_err().to_string();
        let begin = "probe interval of the store must be from 100ms to 60s";
        assert!(message.starts_with(begin), "{message}");
    }
}

#[test]
fn credentials_for_sentinels_without_sentinels_are_refused() {
    let login = || RedisCredentials::password("secret");
    for address in ["redis://localhost", "redis-cluster://a,b", "unix:///tmp/redis.sock"] {
        let options = RedisOptions::new(address, "test").unwrap();
        let error = options.sentinel_credentials(login()).connect_lazily().unwrap_err();
        assert!(matches!(error, ConfigError::NoEffect { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.starts_with("sentinel credentials would have no effect"), "{message}");
    }
    let options = RedisOptions::new("redis+sentinel://a,b,c/shop", "test").unwrap();
    accepted(options.sentinel_credentials(login()));
}

#[test]
fn a_ttl_of_a_near_tier_that_is_off_is_refused() {
    let second = Duration::from_secs(1);
    let error = options().near_ttl(second).connect_lazily().unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("ttl of the near tier would have no effect"), "{message}");
    accepted(options().near(65_536).near_ttl(second));
}
