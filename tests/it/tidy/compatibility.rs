//! The table of servers is what its script has written.

use std::fs;

use super::sources::root;

/// The generated part of the guide, and its checksum.
fn generated() -> (String, String) {
    let guide =
        fs::read_to_string(root().join("crates/redis/src/guide/servers.md")).expect("the guide");
    let (_, rest) = guide.split_once("<!-- scripts/compatibility begins -->\n").expect("a begin");
    let (table, rest) = rest.split_once("<!-- scripts/compatibility ends: ").expect("an end");
    let (checksum, _) = rest.split_once(" -->").expect("a checksum");
    (table.to_owned(), checksum.to_owned())
}

/// FNV-1a.
fn checksum(text: &str) -> String {
    let add = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, add))
}

#[test]
fn the_table_of_servers_is_what_its_script_has_written() {
    let (table, expected) = generated();
    assert_eq!(checksum(&table), expected, "run `scripts/compatibility`, edit nothing by hand");
}

#[test]
fn the_table_of_servers_has_all_servers_and_modes() {
    let (table, _) = generated();
    assert!(table.starts_with("| server | single | cluster | Sentinel | TLS |\n"), "{table}");
    for server in ["Redis 6.2.", "Redis 7.0.", "Redis 8.", "Valkey 9."] {
        let is_of = |row: &&str| row.starts_with(&format!("| {server}"));
        let row = table.lines().find(is_of);
        let cells = row.map(|row| row.trim_matches('|').split('|').map(str::trim));
        let filled = cells.map(|cells| cells.filter(|cell| !cell.is_empty()).count());
        assert_eq!(filled, Some(5), "{server}:\n{table}");
    }
}
