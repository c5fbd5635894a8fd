//! What the program says about its flags, and where a server is missing.

use std::process::{Command, Output};

fn locks(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_locks"));
    command.args(["--rounds", "3"]).args(arguments);
    command
}

fn ended(command: &mut Command) -> (Output, String) {
    let output = command.output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

#[test]
fn a_row_is_printed_for_each_kind() {
    let (output, said) = ended(&mut locks(&["--lock", "local"]));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let rows: Vec<_> = table.lines().filter_map(|row| row.split("  ").next()).collect();
    assert_eq!(rows, ["", "no lock", "local"], "{table}");
    assert!(table.contains(" 6 of 6 "), "{table}");
}

#[test]
fn a_server_that_is_missing_is_named_with_the_remedy() {
    // Java is found by PATH.
    let (output, said) = ended(locks(&["--lock", "zookeeper"]).env("PATH", ""));
    assert!(!output.status.success());
    for word in ["no ZooKeeper", "apt-get install zookeeper", "--zookeeper"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_server_that_cannot_be_reached_is_named_with_its_flag_and_the_reason() {
    let url = "redis://me:secret@127.0.0.1:1";
    let (output, said) = ended(&mut locks(&["--lock", "redis", "--redis", url]));
    assert!(!output.status.success());
    assert!(said.contains("--redis redis://127.0.0.1:1: "), "{said}");
    assert!(said.contains("refused") && !said.contains("secret"), "{said}");
}

#[test]
fn an_address_that_is_none_is_named_with_its_flag_and_the_reason() {
    let (output, said) = ended(&mut locks(&["--lock", "redis", "--redis", "127.0.0.1:6379"]));
    assert!(!output.status.success());
    assert!(said.contains("--redis 127.0.0.1:6379: ") && said.contains("redis://"), "{said}");
}
