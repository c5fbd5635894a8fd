//! Settings and poolers of servers that would break what a session promises.

use std::thread;
use std::time::Duration;

use bellwether::store::Claim;
use bellwether_lock::{LockError, LockErrorKind, Locks, PostgresLock, PostgresOptions};
use bellwether_testkit::servers::{MariaDbServer, PgBouncer, PostgresServer};
use tokio::time::{Instant, sleep};

use crate::bench::{
    AMPLE, Bench, Kind, LockSettings, SESSION, Server, ask_by, free, insist, key, take,
};

fn postgres() -> (Bench, String) {
    let on = Bench::start(Kind::Advisory);
    let url = on.url();
    (on, url)
}

async fn connects(url: &str) -> Result<PostgresLock, LockError> {
    PostgresLock::connect(PostgresOptions::new(url, "test").expect("options")).await
}

#[tokio::test]
async fn users_with_a_schema_each_share_the_counter_of_their_locks() {
    let (on, url) = postgres();
    on.command("GRANT CREATE ON SCHEMA public TO PUBLIC");
    let mut last = 0;
    for user in ["ann", "bob", "ann", "bob"] {
        on.command(&format!(
            "DO $$ BEGIN CREATE USER {user}; CREATE SCHEMA AUTHORIZATION {user}; \
             EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        ));
        let lock = connects(&url.replacen("postgres@", &format!("{user}@"), 1)).await;
        let lock = lock.expect("it may use the sequence");
        let held = take(&lock, key(1)).await;
        assert!(held.fence > last, "{user}: {} came after {last}", held.fence);
        last = held.fence;
        free(&lock, held).await;
    }
}

#[tokio::test]
async fn a_user_that_may_not_use_the_counter_is_told_how_it_may() {
    let (on, url) = postgres();
    drop(connects(&url).await.expect("it makes the sequence"));
    on.command("CREATE USER clerk; REVOKE USAGE ON SEQUENCE bellwether_fences FROM PUBLIC");
    let error = connects(&url.replacen("postgres@", "clerk@", 1)).await.expect_err("it may not");
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("GRANT USAGE ON SEQUENCE"), "{error}");
}

/// The servers of these tests commit asynchronously.
#[tokio::test]
async fn fences_grow_over_a_crash_of_a_server_that_commits_asynchronously() {
    let (mut on, _) = postgres();
    let lock = on.lock();
    let mut last = 0;
    for _ in 0..3 {
        let (held, _) = insist(&*lock, key(1)).await;
        assert!(held.fence > last, "{} came after {last}", held.fence);
        free(&*lock, held).await;
        // So that the log has no number ahead of the next one.
        on.command("CHECKPOINT");
        let held = take(&*lock, key(1)).await;
        last = held.fence;
        on.restart();
    }
}

#[tokio::test]
async fn a_pooler_that_shares_sessions_is_refused_by_its_name() {
    let (on, _) = postgres();
    for pool_mode in ["transaction", "statement"] {
        let pooler = PgBouncer::start(on.address(), pool_mode);
        let url = PostgresServer::url_by(pooler.address());
        let error = connects(&url).await.expect_err("no holder would be excluded");
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains("PgBouncer"), "{error}");
        // One that connects later refuses as well.
        let later = on.lock_by(pooler.address());
        let error = ask_by(&*later, Claim::new(key(1)), Duration::ZERO).await;
        assert!(error.expect_err("the same").to_string().contains("PgBouncer"));
    }
}

#[tokio::test]
async fn a_pooler_with_a_connection_for_each_session_is_worked_with() {
    let (on, _) = postgres();
    let pooler = PgBouncer::start(on.address(), "session");
    let lock = on.lock_by(pooler.address());
    let held = take(&*lock, key(1)).await;
    assert!(ask_by(&*on.lock(), Claim::new(key(1)), Duration::ZERO).await.expect("one").is_none());
    free(&*lock, held).await;
}

/// `session_timeout` is long, so that no other request notices it.
#[tokio::test]
async fn a_holder_whose_connection_is_killed_is_notified_at_once() {
    let on = Bench::start(Kind::Rows);
    let settings = LockSettings { session: Duration::from_secs(600), ..LockSettings::default() };
    let lock = on.lock_with(&settings);
    let mut held = take(&*lock, key(1)).await;
    on.kill_sessions();
    held.lost(AMPLE).await;
}

#[tokio::test]
async fn limits_for_statements_and_transactions_end_neither_a_wait_nor_a_hold() {
    let on = Bench::start(Kind::Rows);
    on.command("SET GLOBAL max_statement_time = 0.2; SET GLOBAL idle_transaction_timeout = 1");
    let lock = on.lock();
    let held = take(&*lock, key(1)).await;
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { ask_by(&*lock, Claim::new(key(1)), Duration::from_secs(60)).await }
    });
    let waited = "SELECT id FROM information_schema.processlist \
                  WHERE info LIKE '%FOR UPDATE%' AND id <> CONNECTION_ID() AND time_ms > 1500";
    while on.command(waited).is_empty() {
        assert!(!waits.is_finished(), "{:?}", waits.await);
        sleep(Duration::from_millis(10)).await;
    }
    free(&*lock, held).await;
    let held = waits.await.expect("no panic").expect("no error").expect("its turn");
    free(&*lock, held).await;
}

#[tokio::test]
async fn a_server_that_logs_statements_gives_locks_and_forgets_old_rows() {
    let server = MariaDbServer::start_with(&["--log-bin=log", "--binlog-format=STATEMENT"]);
    let on = Bench { kind: Kind::Rows, server: Server::MariaDb(server) };
    on.command("SET GLOBAL tx_read_only = ON");
    let lock = on.lock();
    let held = take(&*lock, key(1)).await;
    free(&*lock, held).await;
    on.command(
        "SET SESSION TRANSACTION READ WRITE; \
         UPDATE test.bellwether_locks SET made_at = NOW() - INTERVAL 11 SECOND",
    );
    let other = on.lock();
    let held = take(&*other, key(2)).await;
    free(&*other, held).await;
    assert_eq!(on.command("SELECT COUNT(*) FROM test.bellwether_locks"), "1");
}

/// While another worker has nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_blocks_its_worker_keeps_its_session() {
    for kind in Kind::ALL {
        let on = Bench::start(kind);
        let locks = Locks::new(on.lock());
        let blocks = tokio::spawn(async move {
            let held = locks.lock(&key(1)).await.expect("it is free");
            let began = Instant::now();
            while !held.is_lost() && began.elapsed() < SESSION * 2 {
                thread::sleep(Duration::from_millis(1));
            }
            held.is_lost()
        });
        assert!(!blocks.await.expect("no panic"), "{kind:?}: no other worker kept it");
    }
}
