//! The names of keys, the rights of users, and messages without secrets.

use std::time::Duration;

use bellwether::store::Claim;
use bellwether_lock::{LockErrorKind, MySqlOptions, PostgresLock, PostgresOptions};
use tokio::time::timeout;

use crate::bench::{
    Bench, Kind, LockSettings, SLACK, Server, ask, ask_by, free, key, promises, take,
};

promises![
    namespaces_are_independent,
    a_user_needs_the_documented_rights_and_no_more,
    a_user_that_may_not_create_the_tables_is_told_how,
];

/// Case 77.
async fn namespaces_are_independent(on: Bench) {
    let lock = on.lock();
    let other = on.lock_with(&LockSettings { namespace: "Test".into(), ..LockSettings::default() });
    let same = on.lock();
    let held = [take(&*lock, key(1)).await, take(&*other, key(1)).await];
    assert!(ask(&*same, key(1), Duration::ZERO).await.is_none());
    let [ours, theirs] = held;
    free(&*lock, ours).await;
    free(&*other, theirs).await;
}

/// The address for a user of few rights.
fn as_user(on: &Bench) -> String {
    on.url().replacen("root", "clerk:hunter2", 1).replacen("postgres@", "clerk:hunter2@", 1)
}

fn make_user(on: &Bench) {
    on.command(match &on.server {
        Server::MariaDb(_) => {
            "CREATE USER clerk IDENTIFIED BY 'hunter2'; GRANT USAGE ON test.* TO clerk"
        }
        Server::Postgres(_) => "CREATE USER clerk PASSWORD 'hunter2'",
    });
}

async fn a_user_needs_the_documented_rights_and_no_more(on: Bench) {
    let all = on
        .kind
        .connect(&on.url(), &LockSettings::default())
        .await
        .expect("it makes what is needed");
    make_user(&on);
    on.command(match on.kind {
        Kind::Rows => {
            "GRANT SELECT, INSERT, DELETE ON test.bellwether_fences TO clerk; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON test.bellwether_locks TO clerk"
        }
        // All may use the sequence.
        Kind::Advisory => "SELECT 1",
    });
    let lock =
        on.kind.connect(&as_user(&on), &LockSettings::default()).await.expect("rights enough");
    let held = take(&*lock, key(1)).await;
    // To leave a queue is to interrupt a statement of one's own.
    let gone = Claim::new(key(1));
    let wait = ask_by(&*lock, gone.clone(), Duration::from_secs(60));
    assert!(timeout(SLACK, wait).await.is_err());
    lock.release(gone).await.expect("an answer");
    assert!(!on.has_a_waiter());
    assert!(ask(&*all, key(1), Duration::ZERO).await.is_none());
    free(&*lock, held).await;
    let held = take(&*all, key(1)).await;
    free(&*all, held).await;
}

async fn a_user_that_may_not_create_the_tables_is_told_how(on: Bench) {
    make_user(&on);
    if on.kind == Kind::Advisory {
        on.command("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    } else {
        on.command("GRANT SELECT, INSERT, UPDATE, DELETE ON test.* TO clerk");
    }
    let error =
        on.kind.connect(&as_user(&on), &LockSettings::default()).await.expect_err("it may not");
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("CREATE "), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_said_without_repeating_it() {
    let on = Bench::start(Kind::Rows);
    let url = on.url().replacen("root", "root:hunter2", 1);
    let lazily = on.kind.lock_at(&url, &LockSettings::default());
    let error = on.kind.connect(&url, &LockSettings::default()).await.expect_err("it is wrong");
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    assert!(!format!("{error} {error:?} {lazily:?}").contains("hunter2"), "{error} {lazily:?}");
}

#[test]
fn secrets_are_not_shown() {
    let mysql =
        MySqlOptions::new("mysql://clerk:hunter2@localhost:3307/shop", "test").expect("options");
    let postgres = PostgresOptions::new("postgresql://clerk:hunter2@localhost:5433/shop", "test");
    let shown = format!("{mysql:?} {:?}", postgres.expect("options"));
    assert!(shown.contains("localhost:3307") && shown.contains("5433"), "{shown}");
    assert!(!shown.contains("hunter2") && !shown.contains("clerk"), "{shown}");
}

#[test]
fn what_is_no_address_is_refused_without_repeating_it() {
    let addresses = ["", "hunter2", "http://hunter2", "mysql://hunter2", "mysql://a:hunter2@b:x/c"];
    for address in addresses {
        let error = MySqlOptions::new(address, "test").expect_err(address).to_string();
        assert!(error.contains("mysql://") && !error.contains("hunter2"), "{error}");
    }
    let addresses = ["", "hunter2", "host=a password=hunter2", "postgresql://a:hunter2@b:x/c"];
    for address in addresses {
        let error = PostgresOptions::new(address, "test").expect_err(address).to_string();
        assert!(error.contains("postgresql://") && !error.contains("hunter2"), "{error}");
    }
}

/// They would not be encrypted, or not verified.
#[test]
fn other_parameters_about_tls_are_refused_with_the_name_of_the_right_one() {
    for parameter in [
        "sslmode=prefer",
        "sslmode=verify-ca",
        "sslrootcert=a",
        "sslnegotiation=direct",
        "ss%6Cmode=prefer",
    ] {
        for others in ["", "application_name=a&", "sslmode=require&"] {
            let address = format!("postgresql://clerk:hunter2@localhost/shop?{others}{parameter}");
            let error = PostgresOptions::new(&address, "test").expect_err(parameter).to_string();
            assert!(error.contains("`sslmode`") && !error.contains("hunter2"), "{error}");
        }
    }
    for parameter in ["require_ssl=1", "require%5Fssl=true", "verify_ca=false", "ssl-mode=REQUIRED"]
    {
        let address = format!("mysql://clerk:hunter2@localhost/shop?{parameter}");
        let error = MySqlOptions::new(&address, "test").expect_err(parameter).to_string();
        assert!(error.contains("`require_ssl`") && !error.contains("hunter2"), "{error}");
    }
    assert!(PostgresOptions::new("postgresql://localhost/shop?sslmode=disable", "test").is_ok());
    assert!(MySqlOptions::new("mysql://localhost/shop?require_ssl=false", "test").is_ok());
}

#[test]
fn authorities_of_an_address_without_tls_are_refused() {
    let options = PostgresOptions::new("postgresql://localhost/shop", "test").expect("options");
    let refused = PostgresLock::connect_lazily(options.ca_file("/ca.crt"));
    assert!(refused.expect_err("no effect").to_string().contains("`ca_file`"));
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let options = || PostgresOptions::new("postgresql://localhost", "test").expect("options");
    let refused = |options: PostgresOptions, setting: &str| {
        let error = PostgresLock::connect_lazily(options).expect_err("an option is wrong");
        assert!(error.to_string().starts_with(setting), "{error}");
    };
    let [none, day] = [Duration::ZERO, Duration::from_secs(24 * 60 * 60)];
    for time in [none, day] {
        refused(options().timeout(time), "timeout of the lock must be");
        refused(options().session_timeout(time), "session timeout of the lock must be");
    }
    for connections in [0, 10_001] {
        let two = options().connections(connections).timeout(none);
        refused(two, "connections of the lock must be");
    }
}
