//! What `doctor` finds, and what it says with few rights.

use std::fs;
use std::path::Path;
use std::process::Output;

use bellwether_sql::Migrations;
use bellwether_testkit::servers::{MariaDbServer, PostgresServer, RedisServer};
use serde_json::Value;
use sqlx::{MySql, Postgres};

use crate::place::{bellwether, json};

/// The rights of a cache on a single server.
const RIGHTS: [&str; 14] = [
    "~bw:*",
    "&bw:*",
    "+mget",
    "+get",
    "+setrange",
    "+set",
    "+del",
    "+pttl",
    "+pexpire",
    "+time",
    "+evalsha",
    "+eval",
    "+subscribe",
    "+publish",
];

async fn doctor(url: &str) -> Output {
    let args = ["doctor", "--json", "--namespace", "shop", "--url", url];
    bellwether().args(args).output().await.expect("it runs")
}

/// What it must find to mend.
async fn mends(url: &str) -> Vec<(String, String)> {
    let output = doctor(url).await;
    assert_eq!(output.status.code(), Some(1));
    let found = String::from_utf8(output.stdout).expect("a text");
    let to_mend = found.lines().map(json).filter(|finding| finding["verdict"] == "mend");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    to_mend.map(|finding| (text(&finding["about"]), text(&finding["says"]))).collect()
}

#[tokio::test]
async fn a_wrong_eviction_policy_must_be_mended() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "volatile-ttl"]);
    let [(about, says)] = &mends(&server.url()).await[..] else { panic!("one thing") };
    assert_eq!(about, "eviction");
    assert!(says.contains("allkeys-lru"), "{says}");
}

#[tokio::test]
async fn a_missing_right_must_be_mended() {
    let server = RedisServer::start();
    let rights = RIGHTS.into_iter().filter(|right| *right != "+pexpire");
    let rights: Vec<_> = rights.chain(["+ping", "+info"]).collect();
    let [(about, says)] = &mends(&server.url_of_user(&rights)).await[..] else { panic!("one") };
    assert_eq!(about, "connect");
    assert!(says.contains("+pexpire") && !says.contains("secret"), "{says}");
}

#[tokio::test]
async fn what_the_user_of_a_cache_may_not_read_is_said() {
    let server = RedisServer::start();
    let rights: Vec<_> = RIGHTS.into_iter().chain(["+ping"]).collect();
    let output = doctor(&server.url_of_user(&rights)).await;
    assert!(output.status.success(), "{output:?}");
    let found = String::from_utf8(output.stdout).expect("a text");
    assert!(found.contains("info") && found.contains("NOPERM"), "{found}");
}

#[tokio::test]
async fn a_tracking_table_that_is_nearly_full_is_noted() {
    let server = RedisServer::start_with(&["--tracking-table-max-keys", "100"]);
    let mut client = server.connect();
    client.command(&["CLIENT", "TRACKING", "ON"]).expect("tracking");
    for (names, verdict) in [(70, "fine"), (95, "note")] {
        for name in 0..names {
            client.command(&["GET", &format!("other:{name}")]).expect("a reply");
        }
        let found = String::from_utf8(doctor(&server.url()).await.stdout).expect("a text");
        let tracked = found.lines().map(json).find(|finding| finding["about"] == "tracked");
        let tracked = tracked.expect("a finding");
        assert_eq!(tracked["verdict"], verdict, "{tracked}");
        assert!(tracked["says"].as_str().expect("a text").contains("of 100"), "{tracked}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_must_be_mended() {
    let url = RedisServer::start().url();
    let [(about, _), ..] = &mends(&url).await[..] else { panic!("nothing") };
    assert_eq!(about, "connect");
}

#[tokio::test]
async fn a_password_is_read_from_a_file_and_never_shown() {
    let server = RedisServer::start();
    server.url_of_user(&["~bw:*", "&bw:*", "+@all"]);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("secret-{}", server.port()));
    let run = async |password: Option<&str>| {
        if let Some(password) = password {
            fs::write(&file, password).expect("a file");
        }
        let mut command = bellwether();
        command.args(["inspect", "item", "1", "--namespace", "shop", "--user", "bw"]);
        command.args(["--url", &server.url(), "--password-file"]).arg(&file);
        let output = command.output().await.expect("it runs");
        (output.status.code(), format!("{output:?}"))
    };
    let (code, said) = run(None).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(file.to_str().expect("a text")), "{said}");
    let (code, said) = run(Some("secret\n")).await;
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = run(Some("hunter2")).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("WRONGPASS") && !said.contains("hunter2"), "{said}");
}

/// What it says of the table of changes of a database.
async fn of_changes(redis: &RedisServer, database: &str) -> Vec<String> {
    let url = redis.url();
    let args = ["doctor", "--json", "--namespace", "shop", "--url", &url, "--database", database];
    let output = bellwether().args(args).output().await.expect("it runs");
    let found = String::from_utf8(output.stdout).expect("a text");
    let found = found.lines().map(json).filter(|finding| finding["at"] == "database");
    found.map(|finding| format!("{} {}", finding["verdict"], finding["says"])).collect()
}

#[tokio::test]
async fn the_table_of_changes_is_examined_in_each_database() {
    let (redis, postgres, mariadb) =
        (RedisServer::start(), PostgresServer::start(), MariaDbServer::start());
    let missing = of_changes(&redis, &postgres.url()).await;
    assert!(missing[0].starts_with("\"mend\"") && missing[0].contains("bellwether_changes"));
    postgres.command(Migrations::<Postgres>::SQL);
    mariadb.command(&format!("USE test; {}", Migrations::<MySql>::SQL));
    let insert = "INSERT INTO bellwether_changes (target, name, parts, made_at, failure) VALUES
        ('key', 'item', '[1]', now() - interval '60' second, NULL),
        ('key', 'item', '[2]', now(), 'it is none')";
    postgres.command(insert);
    mariadb.command(&format!("USE test; {insert}"));
    for database in [postgres.url(), mariadb.url()] {
        let found = of_changes(&redis, &database).await;
        let [waits, dead, followers] = &found[..] else { panic!("{found:?}") };
        assert!(waits.starts_with("\"mend\" \"1 changes wait, the oldest for 6"), "{waits}");
        assert!(dead.starts_with("\"note\" \"1 can never be applied"), "{dead}");
        assert_eq!(followers, "\"note\" \"no follower was started in the last day\"");
    }
}
