//! What makes Redis forget: names are deleted, or its memory is full and it evicts some.

use bellwether_testkit::servers::{RedisServer, Reply};
use rand::Rng;
use rand::rngs::StdRng;

use super::game::{GROUPS, KEYS, key_of, tag_of};
use crate::messages::NAMESPACE;

/// What Redis forgets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Targets {
    Tags,
    Entries,
    /// What the server evicts, because its memory is full.
    Any,
}

/// What makes it forget, and how often it has.
#[derive(Debug)]
pub(super) struct Oblivion {
    targets: Targets,
    /// Tags or entries that were there and then not any more.
    forgotten: i64,
}

impl Oblivion {
    pub(super) fn of(targets: Targets) -> Self {
        Self { targets, forgotten: 0 }
    }

    /// How often tags or entries were forgotten.
    pub(super) fn forgotten(&self) -> i64 {
        self.forgotten
    }

    /// The options of the server.
    pub(super) fn options(&self) -> &'static [&'static str] {
        match self.targets {
            Targets::Tags | Targets::Entries => &[],
            Targets::Any => &FULL,
        }
    }

    pub(super) fn make(&mut self, server: &RedisServer, rng: &mut StdRng) {
        match self.targets {
            Targets::Tags => self.delete(server, &tag_name(rng.random_range(0..GROUPS))),
            Targets::Entries => {
                let key = key_of(rng.random_range(0..KEYS)).digest();
                self.delete(server, &format!("bw:{NAMESPACE}:{{{key}}}"));
            }
            Targets::Any => self.fill(server, rng),
        }
    }

    fn delete(&mut self, server: &RedisServer, name: &str) {
        self.forgotten += integer(server.command(&["DEL", name]));
    }

    /// Has the server evict some names to make room. Few of its names are large, so most of those
    /// that it evicts are small.
    fn fill(&mut self, server: &RedisServer, rng: &mut StdRng) {
        let before = tags_in(server);
        let name = format!("filler:{}", rng.random::<u32>());
        server.command(&["SETRANGE", &name, LAST_BYTE, "x"]);
        self.forgotten += (before - tags_in(server)).max(0);
    }
}

fn tag_name(group: u64) -> String {
    format!("bw:{NAMESPACE}:~tag:{{{}}}", tag_of(group).digest())
}

/// How many tags of groups there are.
fn tags_in(server: &RedisServer) -> i64 {
    let names: Vec<_> = (0..GROUPS).map(tag_name).collect();
    let names = names.iter().map(String::as_str);
    integer(server.command(&["EXISTS"].into_iter().chain(names).collect::<Vec<_>>()))
}

fn integer(reply: Reply) -> i64 {
    match reply {
        Reply::Integer(number) => number,
        other => panic!("no number: {other:?}"),
    }
}

/// The server has room for about ten fillers. With one sample, it evicts nearly at random.
const FULL: [&str; 6] =
    ["--maxmemory", "8mb", "--maxmemory-policy", "allkeys-lru", "--maxmemory-samples", "1"];

/// The index of the last byte of a filler of 512 KiB.
const LAST_BYTE: &str = "524287";
