//! Every lock of this crate, side by side: `cargo run -p bellwether-locks`.
//!
//! Two services increment one counter, and sell out of one stock. Neither the counter nor the stock
//! has anything that keeps two writers apart, so without a lock increments are lost and more is sold
//! than there was.

mod counter;
mod kinds;
mod servers;
#[path = "../shared/shown.rs"]
mod shown;
mod stock;
mod table;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use bellwether_testkit::servers::MissingServer;
use clap::{Parser, value_parser};
use kinds::Kind;
use servers::Servers;

/// Tries out locks. Servers that are not named are started for the time of the run.
#[derive(Parser)]
#[command(name = "locks")]
struct Args {
    /// Only this kind of lock; may be repeated
    #[arg(long = "lock", value_enum)]
    kinds: Vec<Kind>,
    /// How many times each of the two services increments the counter
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    #[command(flatten)]
    addresses: servers::Addresses,
}

/// What ends the run, in words for a person.
type Fault = Box<dyn Error>;

/// The results of both demos.
struct Row {
    counter: counter::Outcome,
    stock: stock::Outcome,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("locks: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Prints each row when it is there.
async fn run(Args { kinds, rounds, addresses }: Args) -> Result<(), Fault> {
    let takes_all = kinds.is_empty();
    let kinds = if takes_all { Kind::all() } else { kinds };
    let servers = Servers::new(addresses);
    table::head();
    table::begin("no lock");
    let stock = stock::unprotected().await;
    table::end(&Row { counter: counter::unprotected(rounds).await, stock }, rounds);
    let mut wrong = Vec::new();
    for kind in kinds {
        match tried(kind, &servers, rounds).await {
            Ok(true) => {}
            Ok(false) => wrong.push(kind.name()),
            // The others can be shown all the same.
            Err(fault) if takes_all && fault.is::<MissingServer>() => {
                table::begin(kind.name());
                println!("skipped: {fault}");
            }
            Err(fault) => return Err(explained(kind, &servers, &*fault).into()),
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("two were let in at once by: {}", wrong.join(", ")).into())
}

/// Tries a kind of lock, and tells whether it kept the services apart.
async fn tried(kind: Kind, servers: &Servers, rounds: u32) -> Result<bool, Fault> {
    let [one, other] = kind.two_services(servers).await?;
    table::begin(kind.name());
    let counter = counter::by([one.clone(), other.clone()], rounds).await?;
    let stock = stock::by([one.clone(), other.clone()]).await?;
    one.shutdown(Duration::from_secs(5)).await;
    other.shutdown(Duration::from_secs(5)).await;
    let row = Row { counter, stock };
    table::end(&row, rounds);
    Ok(row.counter.counted == 2 * rounds && row.stock.oversold == 0)
}

/// What a person can do about a kind that cannot be tried: the flag, the address and the reason.
fn explained(kind: Kind, servers: &Servers, fault: &(dyn Error + 'static)) -> String {
    let name = kind.name();
    let Some(flag) = kind.flag() else { return format!("{name}: {fault}") };
    if fault.is::<MissingServer>() {
        return format!("{name}: {fault}, or name one that runs by {flag}");
    }
    match servers.addresses.shown(flag) {
        Some(address) => format!("{flag} {address}: {fault}"),
        None => format!("{name}: {fault}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rounds_are_refused_by_name() {
        let error = Args::try_parse_from(["locks", "--rounds", "0"]).err().expect("an error");
        assert!(error.to_string().contains("--rounds"), "{error}");
    }

    #[test]
    fn a_shown_address_has_no_secret() {
        for (url, expected) in [
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://me:secret@cache:6379/3", "redis://cache:6379/3"),
            ("redis-cluster://me:secret@a:1,b:2", "redis-cluster://a:1,b:2"),
            ("mysql://me:sec/r@et@db/test", "mysql://db/test"),
            ("postgres://db/test?password=secret", "postgres://db/test"),
            ("postgres://me:sec?ret@db/test", "postgres://(not shown)"),
            ("postgres://db/test?password=sec@ret", "postgres://(not shown)"),
            ("sqlite:shop.db?mode=rwc", "sqlite:shop.db"),
            ("127.0.0.1:6379", "127.0.0.1:6379"),
            ("me:secret@127.0.0.1", "127.0.0.1"),
        ] {
            assert_eq!(shown::shown(url), expected);
        }
    }
}
