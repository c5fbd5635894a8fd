//! Every Lua script says what it does, and does what it says.

use std::collections::BTreeSet;
use std::fs;

use super::sources::{Source, after, below_each, first_name, root, shipped};

/// All but what stands before or behind each of them.
fn scripts() -> Vec<Source> {
    let mut scripts = below_each(&["src", "crates/lock/src"], "lua");
    scripts.retain(|script| !is_part(script));
    scripts
}

fn is_part(script: &Source) -> bool {
    let parts = ["/prelude.lua", "/grant.lua", "/contested.lua", "/told.lua"];
    parts.iter().any(|name| script.path.ends_with(name))
}

/// The header of a script, and what comes after it, with what stands behind the script.
fn split(script: &Source) -> (String, String) {
    let header = script.text.lines().take_while(|line| line.starts_with("--"));
    let header = header.collect::<Vec<_>>();
    let mut code = script.text.lines().skip(header.len()).collect::<Vec<_>>().join("\n");
    if let Some(folder) = script.path.strip_suffix("take.lua") {
        for behind in ["crates/lock/src/redis/grant.lua", &format!("{folder}contested.lua")] {
            code += &fs::read_to_string(root().join(behind)).expect("the rest of it");
        }
    }
    (header.join("\n"), code)
}

#[test]
fn every_script_says_what_it_takes_and_gives_and_why_it_is_one() {
    let scripts = scripts();
    assert!(scripts.len() >= 6, "there are only {}", scripts.len());
    for script in scripts {
        let (header, _) = split(&script);
        let name = script.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".lua");
        assert!(header.starts_with(&format!("-- {name}: ")), "{}", script.path);
        // A script for many claims takes the same for each of them.
        let keys = ["\n-- KEYS   1 ", "\n-- KEYS   for each claim: "];
        assert!(keys.iter().any(|keys| header.contains(keys)), "{}: its KEYS", script.path);
        for part in ["\n-- gives  ", "\n-- One script, because "] {
            assert!(header.contains(part), "{} does not say {part:?}", script.path);
        }
    }
}

#[test]
fn every_script_uses_the_keys_and_arguments_it_says() {
    for script in scripts() {
        let (header, code) = split(&script);
        let code = code.replace("ipairs(KEYS)", "KEYS[1]");
        for (named, used) in [("-- KEYS", "KEYS["), ("-- ARGV", "ARGV[")] {
            let highest = after(&code, used).filter_map(|rest| rest[..1].parse::<u8>().ok()).max();
            let said = header.split(named).nth(1).map(|said| said.split("\n-- gives").next());
            let said = said.flatten().unwrap_or_default().split("\n-- ARGV").next();
            let words = said.unwrap_or_default().split_whitespace();
            let numbers = words.filter_map(|word| word.parse::<u8>().ok().filter(|n| *n < 10));
            assert_eq!(numbers.max(), highest, "{}: {named}", script.path);
        }
    }
}

/// The load test counts what clients send by the server's own statistics. It does not count `TIME`.
#[test]
fn scripts_run_nothing_that_clients_send() {
    let rust: String = shipped().iter().map(Source::code).collect();
    let by = ["cmd(\"", "RedisRequest::command(\""];
    let sent = by.into_iter().flat_map(|by| rust.split(by).skip(1));
    let sent: BTreeSet<_> = sent.map(first_name).collect();
    assert!(sent.contains("MGET"), "{sent:?}");
    for script in scripts() {
        let (_, code) = split(&script);
        let run = ["call('", "read('"].into_iter().flat_map(|by| after(&code, by));
        let run = run.map(first_name);
        let run = run.filter(|command| *command != "TIME");
        let both: Vec<_> = run.filter(|command| sent.contains(*command)).collect();
        assert!(both.is_empty(), "{} runs {both:?}", script.path);
    }
}
