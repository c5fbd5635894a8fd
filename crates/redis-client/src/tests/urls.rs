//! Any URLs: what is accepted reads back as it was written, and a password is never shown.

use bellwether_testkit::fuzz::{Choices, fuzz};

use crate::address::{ServerAddress, ServersKind};
use crate::options::RedisClientOptions;
use crate::url::RedisUrl;

const PASSWORD: &str = "hunter2";

/// The parts of a URL, as they are written.
#[derive(Debug)]
struct UrlParts {
    scheme: &'static str,
    user: String,
    password: Option<String>,
    hosts: Vec<(String, Option<u16>)>,
    service: String,
    database: Option<u32>,
}

/// A text for a part of a URL, with letters that have to be encoded.
fn word(choices: &mut Choices) -> String {
    let length = 1 + choices.below(6);
    let letter = |choices: &mut Choices| match choices.below(4) {
        0 | 1 => char::from(b'a' + choices.below(26) as u8),
        2 => char::from(b'0' + choices.below(10) as u8),
        _ => ['%', '@', ':', '/', '?', '#', ' ', 'ü', '&', '=', '+', ','][choices.below(12)],
    };
    (0..length).map(|_| letter(choices)).collect()
}

fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

fn host(choices: &mut Choices) -> (String, Option<u16>) {
    let hosts = ["h", "redis-1.shop_a.internal", "10.0.0.7", "[::1]", "[2001:db8::7]"];
    let port = match choices.one_in(2) {
        true => Some(1 + choices.below(65_535) as u16),
        false => None,
    };
    (choices.pick(&hosts).to_owned(), port)
}

impl UrlParts {
    fn any(choices: &mut Choices) -> Self {
        let schemes = [
            "redis",
            "valkey",
            "rediss",
            "redis-cluster",
            "redis+sentinel",
            "valkeys+sentinel",
            "unix",
        ];
        let scheme = schemes[choices.below(schemes.len())];
        let is_cluster = scheme.ends_with("cluster");
        let is_single = !is_cluster && !scheme.ends_with("sentinel");
        let hosts = if is_single { 1 } else { 1 + choices.below(3) };
        let password =
            choices.one_in(2).then(|| format!("{}{PASSWORD}{}", word(choices), word(choices)));
        let has_number = !is_cluster && choices.one_in(2);
        Self {
            scheme,
            user: if password.is_some() && choices.one_in(2) {
                word(choices)
            } else {
                String::new()
            },
            password,
            hosts: (0..hosts).map(|_| host(choices)).collect(),
            service: word(choices).replace('/', "-"),
            database: has_number.then(|| choices.below(20) as u32),
        }
    }

    /// As a person writes it: `encode` is what they do with the special letters of a password.
    fn written(&self, encode: impl Fn(&str) -> String) -> String {
        let password = self.password.as_ref().map(|password| encode(password));
        let number = self.database.map(|number| number.to_string()).unwrap_or_default();
        if self.scheme == "unix" {
            let password =
                password.map(|password| format!("&user={}&pass={password}", encoded(&self.user)));
            let password = password.unwrap_or_default();
            return format!("unix:///run/{}?db={number}{password}", encoded(&self.service));
        }
        let login = password.map(|password| format!("{}:{password}@", encoded(&self.user)));
        let port = |port: &Option<u16>| port.map(|port| format!(":{port}")).unwrap_or_default();
        let hosts = self.hosts.iter().map(|(host, given)| format!("{host}{}", port(given)));
        let hosts = hosts.collect::<Vec<_>>().join(",");
        let path = match self.scheme.ends_with("sentinel") {
            true => format!("/{}/{number}", encoded(&self.service)),
            false => format!("/{number}"),
        };
        format!("{}://{}{hosts}{path}", self.scheme, login.unwrap_or_default())
    }

    /// What is read of it.
    fn assert_read(&self, url: &RedisUrl) {
        assert_eq!(url.database, self.database.unwrap_or_default());
        let login = url.login.as_ref().map(|login| (login.user.clone(), login.password.clone()));
        let user = Some(self.user.clone()).filter(|user| !user.is_empty());
        assert_eq!(login, self.password.clone().map(|password| (user, password)));
        assert_eq!(url.is_encrypted, ["rediss", "valkeys+sentinel"].contains(&self.scheme));
        if self.scheme == "unix" {
            let path = format!("/run/{}", self.service).into();
            assert_eq!(url.servers.addresses, [ServerAddress::Unix(path)]);
            return;
        }
        let is_sentinel = matches!(&url.servers.kind, ServersKind::Sentinel { service } if *service == self.service);
        assert_eq!(is_sentinel, self.scheme.ends_with("sentinel"));
        let usual = if is_sentinel { 26_379 } else { 6379 };
        let address = |(host, port): &(String, Option<u16>)| ServerAddress::Tcp {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: port.unwrap_or(usual),
        };
        assert_eq!(url.servers.addresses, self.hosts.iter().map(address).collect::<Vec<_>>());
    }
}

/// What a person may see of a URL: its error, or the options.
fn shown(url: &str) -> String {
    match RedisClientOptions::new(url, "shop") {
        Ok(options) => format!("{options:?} {options:#?} {}", options.address()),
        Err(error) => format!("{error} {error:?}"),
    }
}

#[cfg(feature = "tls")]
#[test]
fn fuzzed_urls_are_read_as_they_were_written() {
    fuzz("redis URL, valid", 96, 1, |choices| {
        let parts = UrlParts::any(choices);
        let text = parts.written(encoded);
        let url = RedisUrl::parse(&text);
        let url = url.unwrap_or_else(|error| panic!("{text}: {error}"));
        parts.assert_read(&url);
    });
}

/// Any text is read without a panic. While the password is where passwords are, it is never shown: also if its special
/// letters are not encoded, or another part is broken.
#[test]
fn fuzzed_urls_never_show_their_password() {
    fuzz("redis URL, password", 160, 1, |choices| {
        let parts = UrlParts::any(choices);
        let encode: fn(&str) -> String = if choices.one_in(2) { str::to_owned } else { encoded };
        let text = parts.written(encode);
        let shown_of_valid = shown(&text);
        assert!(!shown_of_valid.contains(PASSWORD), "{text}: {shown_of_valid}");
        // What is broken is before or behind the password.
        let Some((before, behind)) = text.split_once(PASSWORD) else { return };
        let (before, behind) = match choices.one_in(2) {
            true => (before.to_owned(), choices.mutated_text(behind, "@h:1/a")),
            false => (choices.mutated_text(before, ":"), behind.to_owned()),
        };
        let is_password = match parts.scheme {
            "unix" => before.ends_with("&pass="),
            scheme => {
                before.starts_with(&format!("{scheme}://")) && before.matches(':').count() > 1
            }
        };
        let text = format!("{before}{PASSWORD}{behind}");
        let shown = shown(&text);
        assert!(
            !is_password || !behind.contains('@') || !shown.contains(PASSWORD),
            "{text}: {shown}"
        );
    });
}

#[test]
fn fuzzed_urls_of_any_kind_are_errors_or_can_be_written_and_read_again() {
    fuzz("redis URL, any", 160, 1, |choices| {
        let [one, other] = [(); 2].map(|()| UrlParts::any(choices).written(encoded));
        let text = choices.mutated_text(&one, &other);
        let Ok(url) = RedisUrl::parse(&text) else { return };
        for address in &url.servers.addresses {
            if let ServerAddress::Tcp { port, .. } = address {
                let again = ServerAddress::parse(&address.to_string(), 1);
                assert_eq!(again.as_ref().ok(), Some(address), "{text}");
                assert!(*port > 0, "{text}");
            }
        }
    });
}

/// A URL with one broken part has an error about that part.
#[test]
fn fuzzed_urls_with_one_broken_part_are_refused_by_its_name() {
    fuzz("redis URL, broken", 64, 1, |choices| {
        let (host, database) = (["h", "10.0.0.7", "[::1]"][choices.below(3)], choices.below(20));
        let login = ["", "u:p@", ":p%40@"][choices.below(3)];
        let junk = ["", "x", "-1", "+1", " 1", "1 ", "99999999999", "0x1"][choices.below(8)];
        let (url, named) = match choices.below(7) {
            0 if junk.is_empty() => return,
            0 => (format!("redis://{login}{host}:6379/{junk}"), "database"),
            1 => (format!("redis://{login}{host}:{junk}/{database}"), "port"),
            2 => (format!("redis://{login}a b{junk}/{database}"), "host"),
            3 => (format!("redis://u:%{junk}x@h/{database}"), "percent encoding"),
            4 => (format!("redis://{login}{host}/{database}?{junk}x=1"), "parameter"),
            5 => (format!("redis://{login}{host}/{database}#{junk}"), "fragment"),
            _ => (format!("{junk}x://{login}{host}/{database}"), "redis://"),
        };
        let Err(error) = RedisUrl::parse(&url) else { panic!("{url} is accepted") };
        assert!(error.to_string().contains(named), "{url}: {error}");
    });
}
