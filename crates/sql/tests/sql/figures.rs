//! Figures, printed: the guide has the command.

use std::fs;
use std::time::{Duration, Instant};

use bellwether::stats::HistogramStats;
use bellwether_sql::FollowerHandle;
use futures_util::future::join_all;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::time::sleep;

use crate::place::{Place, fill};

/// The value below which this part of the counted ones is, in ms.
fn quantile(stats: &HistogramStats, part: f64) -> f64 {
    let mut left = stats.count() as f64 * part;
    let mut last = 0.0;
    for (value, count) in stats.samples() {
        last = value * 1_000.0;
        left -= count as f64;
        if left <= 0.0 {
            break;
        }
    }
    last
}

fn print_lags(what: &str, stats: &HistogramStats) {
    let [half, most] = [0.5, 0.99].map(|part| quantile(stats, part));
    println!("{what}: {} rows, lag p50 {half:.1} ms, p99 {most:.1} ms", stats.count());
    for (value, count) in stats.samples() {
        println!("  {:>9.2} ms {count:>7}", value * 1_000.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "prints figures"]
async fn figures_of_single_writers_and_of_a_bulk_update() {
    let place = Place::start().await;
    place.run("CREATE TABLE items (id bigint PRIMARY KEY, price bigint)").await;
    place.run("INSERT INTO items SELECT id, 1 FROM generate_series(1, 100000) AS id").await;
    let single = place.follow().await;
    place.run("SELECT bellwether_watch('items', 'key', 'item', 'id')").await;
    for id in 1..=2_000_i64 {
        fill(&place.items, id, 1).await;
        let update = "UPDATE items SET price = price + 1 WHERE id = $1";
        sqlx::query(update).bind(id).execute(&place.pool).await.expect("an update");
        sleep(Duration::from_millis(2)).await;
    }
    place.applied().await;
    sleep(Duration::from_millis(100)).await;
    print_lags("single updates, with NOTIFY", &single.stats().lags);
    single.shutdown().await;

    let began = Instant::now();
    place.postgres.command("UPDATE items SET price = price + 1");
    println!("the bulk update of 100000 rows took {:?}", began.elapsed());
    for followers in [1, 2] {
        place
            .run("UPDATE bellwether_changes SET applied_at = NULL; ANALYZE bellwether_changes")
            .await;
        let (rows, began) = (place.pending().await, Instant::now());
        let mut running = Vec::new();
        for _ in 0..followers {
            running.push(place.follow().await);
        }
        while place.pending().await > 0 {
            sleep(Duration::from_millis(50)).await;
        }
        let rate = rows as f64 / began.elapsed().as_secs_f64();
        println!("{followers} followers applied {rows} rows, {rate:.0} a second");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "prints figures"]
async fn figures_of_idle_followers() {
    let place = Place::start().await;
    let pool: &PgPool = &place.pool;
    let mut followers: Vec<FollowerHandle> = Vec::new();
    for _ in 0..100 {
        followers.push(place.follow().await);
    }
    let transactions =
        "SELECT (xact_commit + xact_rollback) FROM pg_stat_database WHERE datname = 'postgres'";
    sleep(Duration::from_secs(3)).await;
    let before = place.value(transactions).await;
    sleep(Duration::from_secs(10)).await;
    let after = place.value(transactions).await;
    println!("100 idle followers: {} transactions a second", (after - before) / 10);
    assert!(pool.size() > 0);
}

/// How many updates a second 16 writers commit, and what one takes of the server's processor, in us.
async fn updates(place: &Place) -> [u64; 2] {
    let pool = PgPoolOptions::new().max_connections(16).connect(&place.postgres.url()).await;
    let pool = pool.expect("the database");
    let until = Instant::now() + Duration::from_secs(5);
    let writers = (0..16_i64).map(|writer| {
        let pool = pool.clone();
        tokio::spawn(async move {
            let mut count = 0;
            while Instant::now() < until {
                let update = sqlx::query("UPDATE items SET price = price + 1 WHERE id = $1");
                update.bind(1 + writer * 1_000 + count % 1_000).execute(&pool).await.expect("it");
                count += 1;
            }
            count.unsigned_abs()
        })
    });
    let counts = join_all(writers.collect::<Vec<_>>()).await;
    let count: u64 = counts.into_iter().map(|count| count.expect("a writer")).sum();
    let backends = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'";
    let backends: Vec<i32> = sqlx::query_scalar(backends).fetch_all(&pool).await.expect("backends");
    let ticks: u64 = backends.into_iter().map(processor_ticks).sum();
    [count / 5, ticks * 10_000 / count]
}

/// What a process has taken of the processor, in hundredths of a second.
fn processor_ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let (_, fields) = stat.rsplit_once(") ").expect("its name");
    let times = fields.split(' ').skip(11).take(2);
    times.map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "prints figures"]
async fn figures_of_writers_with_and_without_triggers() {
    let place = Place::start().await;
    place.run("CREATE TABLE items (id bigint PRIMARY KEY, price bigint)").await;
    place.run("INSERT INTO items SELECT id, 1 FROM generate_series(1, 20000) AS id").await;
    let without = updates(&place).await;
    place.run("SELECT bellwether_watch('items', 'key', 'item', 'id')").await;
    place.run("ALTER DATABASE postgres SET bellwether.notify = off").await;
    let silent = updates(&place).await;
    place.run("ALTER DATABASE postgres RESET bellwether.notify").await;
    let told = updates(&place).await;
    for (what, [rate, micros]) in
        [("without a trigger", without), ("with one", silent), ("with NOTIFY", told)]
    {
        println!(
            "16 writers {what}: {rate} updates a second, {micros} us of the server's processor each"
        );
    }
    println!("a trigger: {:.1} times the processor", silent[1] as f64 / without[1] as f64);
}
