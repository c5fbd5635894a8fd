//! Every lock of this crate, side by side: `cargo run -p bellwether-locks`.
//!
//! Two services increment one counter, and sell out of one stock. Neither the counter nor the stock
//! has anything that keeps two writers apart, so without a lock increments are lost and more is sold
//! than there was.

mod counter;
mod kinds;
mod servers;
mod stock;

use std::error::Error;
use std::time::Duration;

use clap::Parser;
use kinds::Kind;
use servers::Servers;

/// Tries out locks. Servers that are not named are started for the time of the run.
#[derive(Parser)]
struct Args {
    /// Only this kind of lock; may be repeated
    #[arg(long = "lock", value_enum)]
    kinds: Vec<Kind>,
    /// How many times each of the two services increments the counter
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    #[command(flatten)]
    addresses: servers::Addresses,
}

/// The results of both demos.
struct Row {
    name: &'static str,
    counter: counter::Outcome,
    stock: stock::Outcome,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Args { kinds, rounds, addresses } = Args::parse();
    let kinds = if kinds.is_empty() { Kind::all() } else { kinds };
    let servers = Servers::new(addresses);
    let mut rows = vec![Row {
        name: "no lock",
        counter: counter::unprotected(rounds).await,
        stock: stock::unprotected().await,
    }];
    for kind in kinds {
        let [one, other] = kind.two_services(&servers).await?;
        let counter = counter::by([one.clone(), other.clone()], rounds).await?;
        let stock = stock::by([one.clone(), other.clone()]).await?;
        one.shutdown(Duration::from_secs(5)).await;
        other.shutdown(Duration::from_secs(5)).await;
        rows.push(Row { name: kind.name(), counter, stock });
    }
    print(&rows, rounds);
    let is_right = |row: &Row| row.counter.counted == 2 * rounds && row.stock.oversold == 0;
    match rows.iter().skip(1).find(|row| !is_right(row)) {
        Some(row) => Err(format!("{} let two in at once", row.name).into()),
        None => Ok(()),
    }
}

fn print(rows: &[Row], rounds: u32) {
    println!(
        "{:<14} {:>22} {:>10} {:>8} {:>24}",
        "", "counted", "each", "fences", "sold of 40 (oversold)"
    );
    for Row { name, counter, stock } in rows {
        let counted = format!("{} of {}", counter.counted, 2 * rounds);
        let each = format!("{:.2} ms", counter.each.as_secs_f64() * 1e3);
        let fences = match counter.fences {
            counter::Fences::None => "none",
            counter::Fences::Grew => "grow",
            counter::Fences::Fell => "FALL",
        };
        let sold = format!("{} ({})", stock.sold, stock.oversold);
        println!("{name:<14} {counted:>22} {each:>10} {fences:>8} {sold:>24}");
    }
}
