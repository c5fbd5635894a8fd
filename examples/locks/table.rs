//! The table, row by row.

use std::io::Write;

use crate::Row;
use crate::counter::Fences;

pub(crate) fn head() {
    println!(
        "{:<14} {:>22} {:>10} {:>8} {:>24}",
        "", "counted", "each", "fences", "sold of 40 (oversold)"
    );
}

/// The name of a row, so that a person sees what runs.
pub(crate) fn begin(name: &str) {
    print!("{name:<14} ");
    // Without a terminal there is no progress to see.
    let _ = std::io::stdout().flush();
}

/// The results in a row.
pub(crate) fn end(Row { counter, stock }: &Row, rounds: u32) {
    let counted = format!("{} of {}", counter.counted, 2 * rounds);
    let each = format!("{:.2} ms", counter.each.as_secs_f64() * 1e3);
    let fences = match counter.fences {
        Fences::None => "none",
        Fences::Grew => "grow",
        Fences::Fell => "FALL",
    };
    let sold = format!("{} ({})", stock.sold, stock.oversold);
    println!("{counted:>22} {each:>10} {fences:>8} {sold:>24}");
}
