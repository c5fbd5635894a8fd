//! What servers send beside replies.

use std::sync::{Arc, Mutex};

use redis::{PushInfo, PushKind, Value};

use super::values::changed;
use crate::client_core::{ClientCore, ClientSetup};
use crate::client_core::{ServerEvent, ServerObserver, Tracking};
use crate::names::Names;
use crate::options::RedisClientOptions;
use crate::rights;
use bellwether::store::Digest;
use bellwether_testkit::fuzz::{Choices, fuzz};

pub(crate) const ERRORS: [&str; 10] = [
    "MOVED 3999 127.0.0.1:6381",
    "MOVED 1 redis-2.internal:6379",
    "ASK 16383 2001:db8::7:6379",
    "MOVED 1 ?:6380",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "CLUSTERDOWN Hash slot not served",
    "READONLY You can't write against a read only replica.",
    "LOADING Redis is loading the dataset in memory",
    "NOPERM this user has no permissions to run the 'mget' command",
    "ERR Script attempted to access a non local key in a cluster node script: 1f",
];

#[test]
fn fuzzed_replies_about_rights_are_errors_or_name_commands_that_are_in_them() {
    fuzz("rights reply", 64, 1, |choices| {
        let pairs = (0..choices.below(3)).flat_map(|_| {
            let command = ["get", "set", "pexpire"][choices.below(3)];
            let why = choices.pick(&ERRORS);
            [command.to_owned(), choices.mutated_text(why, "OOM")]
        });
        let pairs: Vec<_> = pairs.collect();
        let lines: Vec<_> = pairs.chunks(2).map(|pair| pair.join(" ")).collect();
        let reply = match choices.one_in(4) {
            true => Value::Int(choices.number() as i64),
            false => Value::BulkString(lines.join("\n").into_bytes()),
        };
        if let Err(error) = rights::read_reply(reply) {
            let error = error.to_string();
            let named = error.split('+').skip(1).filter_map(|named| named.split([' ', '`']).next());
            for command in
                named.filter(|named| named.chars().all(|letter| letter.is_ascii_lowercase()))
            {
                assert!(pairs.iter().any(|said| said.contains(command)), "{error}");
            }
        }
    });
}

/// The keys and tags that have changed.
#[derive(Debug, Default)]
struct ChangesSeen(Mutex<Vec<(Digest, bool)>>);

impl ServerObserver for ChangesSeen {
    fn note(&self, event: ServerEvent<'_>) {
        let change = match event {
            ServerEvent::Changed { digest, .. } => (*digest, true),
            ServerEvent::TagChanged(digest) => (*digest, false),
            _ => return,
        };
        self.0.lock().expect("no panic").push(change);
    }
}

/// A name of a key or a tag, or one that is neither.
fn name(choices: &mut Choices, names: &Names) -> Vec<u8> {
    let digest = Digest::from([choices.byte(); Digest::BYTES]);
    match choices.below(4) {
        0 => names.name(&digest, ["", ":lease", ":failed"][choices.below(3)]),
        1 => names.tag_name(&digest),
        2 => Names::new("shop2").name(&digest, ""),
        _ => names.shared_name("fence", &digest),
    }
}

/// The texts of a message, in small letters.
fn texts(values: &[Value]) -> Vec<Vec<u8>> {
    let text = |value: &Value| match value {
        Value::BulkString(text) => vec![text.to_ascii_lowercase()],
        Value::Array(values) => texts(values),
        _ => Vec::new(),
    };
    values.iter().flat_map(text).collect()
}

#[test]
fn fuzzed_messages_change_only_the_keys_and_tags_that_they_name() {
    let names = Names::new("shop");
    let options = RedisClientOptions::new("redis://h", "shop").expect("an address");
    fuzz("push message", 64, 1, |choices| {
        let seen = Arc::new(ChangesSeen::default());
        let observers = vec![Arc::clone(&seen) as _];
        let setup =
            ClientSetup { tracking: Tracking::Watches, observers, ..ClientSetup::default() };
        let parts = ClientCore::new(options.clone(), setup);
        let named: Vec<_> = (0..choices.below(4)).map(|_| name(choices, &names)).collect();
        let all = named.iter().map(|name| match choices.one_in(2) {
            true => Value::BulkString(choices.mutated(name, name)),
            false => Value::BulkString(name.clone()),
        });
        let data = Value::Array(vec![Value::Array(all.collect())]);
        let data = if choices.one_in(2) { changed(choices, data) } else { data };
        let Value::Array(data) = data else { return };
        let kinds = [PushKind::Invalidate, PushKind::Disconnection, PushKind::Message];
        let kind = kinds[choices.below(3)].clone();
        let sent = texts(&data);
        parts.receive(0, &PushInfo { kind: kind.clone(), data });
        let seen = std::mem::take(&mut *seen.0.lock().expect("no panic"));
        assert!(seen.is_empty() || kind == PushKind::Invalidate);
        for (digest, is_key) in seen {
            let name = match is_key {
                true => names.name(&digest, ""),
                false => names.tag_name(&digest),
            };
            assert!(sent.iter().any(|text| text.starts_with(&name)), "{name:?} is not in {sent:?}");
        }
    });
}

#[test]
fn fuzzed_names_lead_to_the_key_in_their_braces_or_nowhere() {
    let names = Names::new("shop");
    fuzz("names", 64, 1, |choices| {
        let [valid, other] = [name(choices, &names), name(choices, &names)];
        let name = choices.mutated(&valid, &other);
        let lower = name.to_ascii_lowercase();
        if let Some((digest, rest)) = names.read(&name) {
            let begin = names.name(&digest, "").to_ascii_lowercase();
            assert!(lower.starts_with(&begin) && begin.len() + rest.len() == name.len());
            assert!(names.tag_of(&name).is_none());
        }
        if let Some(tag) = names.tag_of(&name) {
            assert!(lower.starts_with(&names.tag_name(&tag)));
        }
    });
}
