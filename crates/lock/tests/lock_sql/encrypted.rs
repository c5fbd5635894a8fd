//! Connections with TLS.

use std::fs;

use bellwether::store::Claim;
use bellwether_lock::LockErrorKind;
use bellwether_testkit::servers::{Authority, Identity, MariaDbServer, PostgresServer, Validity};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::bench::{Bench, Kind, LockSettings, SLACK, Server, ask_by, free, key, take};

fn started(kind: Kind, identity: &Identity) -> Bench {
    let server = match kind {
        Kind::Rows => Server::MariaDb(MariaDbServer::start_tls(identity)),
        Kind::Advisory => Server::Postgres(PostgresServer::start_tls(identity)),
    };
    Bench { kind, server }
}

fn encrypted(on: &Bench) -> String {
    let parameter = match on.kind {
        Kind::Rows => "require_ssl=true",
        Kind::Advisory => "sslmode=require",
    };
    format!("{}?{parameter}", on.url())
}

fn trusting(authority: &Authority, dir: &TempDir) -> LockSettings {
    let file = dir.path().join("ca.crt");
    fs::write(&file, authority.pem()).expect("a file");
    LockSettings { ca_file: Some(file), ..LockSettings::default() }
}

/// How many sessions of the lock are encrypted.
fn encrypted_sessions(on: &Bench) -> usize {
    let count = on.command(match on.kind {
        Kind::Rows => {
            "SELECT variable_value FROM information_schema.global_status \
             WHERE variable_name = 'SSL_FINISHED_ACCEPTS'"
        }
        Kind::Advisory => {
            "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
             WHERE ssl AND application_name = 'bellwether'"
        }
    });
    count.parse().expect("a number")
}

#[tokio::test]
async fn a_key_is_locked_waited_for_and_released_over_tls() {
    let (authority, dir) = (Authority::new("ours"), TempDir::new().expect("a directory"));
    for kind in Kind::ALL {
        let on = started(kind, &authority.local());
        let lock = kind.connect(&encrypted(&on), &trusting(&authority, &dir)).await;
        let lock = lock.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        let held = take(&*lock, key(1)).await;
        assert!(encrypted_sessions(&on) > 0, "{kind:?}");
        // To leave the queue takes a connection of its own.
        let gone = Claim::new(key(1));
        assert!(timeout(SLACK, ask_by(&*lock, gone.clone(), SLACK * 100)).await.is_err());
        lock.release(gone).await.expect("an answer");
        assert!(!on.has_a_waiter());
        free(&*lock, held).await;
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_is_refused_with_the_remedy() {
    let (authority, dir) = (Authority::new("ours"), TempDir::new().expect("a directory"));
    for kind in Kind::ALL {
        let trusts = trusting(&authority, &dir);
        let theirs = started(kind, &Authority::new("theirs").local());
        let elsewhere = started(kind, &authority.sign(&["elsewhere"], Validity::Now));
        let plain = Bench::start(kind);
        let of_system = LockSettings::default();
        for (on, settings) in
            [(&theirs, &trusts), (&theirs, &of_system), (&elsewhere, &trusts), (&plain, &trusts)]
        {
            let error = kind.connect(&encrypted(on), settings).await.expect_err("no trust");
            assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{kind:?}: {error}");
            assert!(error.to_string().contains("`ca_file`"), "{kind:?}: {error}");
        }
    }
}
