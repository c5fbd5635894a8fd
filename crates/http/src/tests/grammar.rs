//! Random header fields, and what those of a response permit: read from how they were made, not from their text.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use bellwether_testkit::fuzz::Choices;

/// A directive: its name, and its time if that can be read.
type Directive = (&'static str, Option<u64>);

/// The fields of a response.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseSpec {
    pub(super) fields: Vec<(&'static str, String)>,
    directives: Vec<Directive>,
    /// In seconds from the time of the response.
    date: Option<i64>,
    expires: Option<Option<i64>>,
    modified: Option<i64>,
    age: u64,
    pub(super) vary: Vec<&'static str>,
    pub(super) sets_cookie: bool,
    /// A prohibition in a field for other caches.
    forbids_elsewhere: bool,
    /// Whether a field was changed, so that the rest says nothing about it.
    pub(super) is_broken: bool,
}

pub(super) const SECONDS: [u64; 6] = [60, 0, 1, 5, 3_600, 99_999_999_999];

/// Without the parts of seconds, which dates do not have.
pub(super) fn whole(time: SystemTime) -> SystemTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

pub(super) fn date(now: SystemTime, seconds: i64) -> String {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    httpdate::fmt_http_date(if seconds < 0 { now - distance } else { now + distance })
}

fn any_case(choices: &mut Choices, text: String) -> String {
    if choices.one_in(6) { text.to_uppercase() } else { text }
}

impl ResponseSpec {
    pub(super) fn any(choices: &mut Choices, now: SystemTime) -> Self {
        let mut spec = Self::default();
        spec.add_directives(choices);
        spec.add_times(choices, now);
        spec.add_others(choices);
        if choices.one_in(8) && !spec.fields.is_empty() {
            let at = choices.below(spec.fields.len());
            let other = spec.fields[choices.below(spec.fields.len())].1.clone();
            let (_, value) = &mut spec.fields[at];
            *value = choices.mutated_text(value, &other);
            spec.is_broken = true;
        }
        spec
    }

    fn add_directives(&mut self, choices: &mut Choices) {
        const NAMES: [&str; 11] = [
            "max-age",
            "s-maxage",
            "stale-while-revalidate",
            "stale-if-error",
            "public",
            "must-revalidate",
            "proxy-revalidate",
            "no-cache",
            "no-store",
            "private",
            "immutable",
        ];
        let mut line = Vec::new();
        for _ in 0..choices.below(5) {
            let at = choices.below(14);
            let Some(name) = NAMES.get(at).copied() else {
                line.push(choices.pick(&["foo=\"a, b\"", "", "no-cache=\"x-one\""]).to_owned());
                continue;
            };
            let seconds = SECONDS[choices.below(SECONDS.len())];
            let (text, time) = match at {
                4.. => (name.to_owned(), None),
                _ if choices.one_in(6) => {
                    let broken = choices.pick(&["=-5", "", "=", " =5", "=5x", "=5.0", "='5'"]);
                    (format!("{name}{broken}"), None)
                }
                _ if choices.one_in(6) => (format!("{name}=\"{seconds}\""), Some(seconds)),
                _ => (format!("{name}={seconds}"), Some(seconds)),
            };
            self.directives.push((name, time));
            line.push(any_case(choices, text));
            if choices.one_in(4) {
                self.fields.push(("cache-control", line.join(", ")));
                line.clear();
            }
        }
        if !line.is_empty() {
            self.fields.push(("cache-control", line.join(choices.pick(&[", ", ",", " ,\t"]))));
        }
    }

    fn add_times(&mut self, choices: &mut Choices, now: SystemTime) {
        let offsets = [0, -5, -100, 50, -4_000];
        if choices.one_in(2) {
            let seconds = offsets[choices.below(offsets.len())];
            self.date = Some(seconds);
            self.fields.push(("date", date(now, seconds)));
        }
        if choices.one_in(4) {
            let seconds = [60, -5, 5, 4_000][choices.below(4)];
            let is_valid = !choices.one_in(4);
            self.expires = Some(is_valid.then_some(seconds));
            let text = if is_valid { date(now, seconds) } else { "0".to_owned() };
            self.fields.push(("expires", text));
        }
        if choices.one_in(3) {
            let seconds = [-1_000, -86_400_000, -10, 100][choices.below(4)];
            self.modified = Some(seconds);
            self.fields.push(("last-modified", date(now, seconds)));
        }
        if choices.one_in(4) {
            let (text, age) =
                [("3", 3), ("0", 0), ("4000", 4_000), ("x", 0), ("-7", 0), ("3, 9", 3)]
                    [choices.below(6)];
            self.age = age;
            self.fields.push(("age", text.to_owned()));
        }
    }

    fn add_others(&mut self, choices: &mut Choices) {
        if choices.one_in(3) {
            for _ in 0..=choices.below(2) {
                let name = ["accept-language", "x-one", "x-two", "cookie", "*"][choices.below(5)];
                self.vary.push(name);
            }
            self.fields.push(("vary", any_case(choices, self.vary.join(", "))));
        }
        if choices.one_in(8) {
            self.sets_cookie = true;
            self.fields.push(("set-cookie", "session=1".to_owned()));
        }
        if choices.one_in(6) {
            let values = ["max-age=60", "no-store", "private, max-age=60", "max-age="];
            let value = choices.pick(&values);
            self.forbids_elsewhere = value.contains("no-store") || value.contains("private");
            self.fields.push(("cdn-cache-control", value.to_owned()));
        }
        if choices.one_in(6) {
            self.fields.push(("surrogate-control", "max-age=3600".to_owned()));
        }
        if choices.one_in(8) {
            self.fields.push(("x-one", "secret".to_owned()));
        }
    }

    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.fields {
            append(&mut headers, name, value.as_bytes());
        }
        headers
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.directives.iter().any(|(said, _)| *said == name)
    }

    fn seconds(&self, name: &str) -> Option<u64> {
        let of_name = self.directives.iter().filter(|(said, _)| *said == name);
        of_name.map(|(_, time)| time.unwrap_or_default().min(1 << 31)).min()
    }

    /// Whether only the caller that caused it may have it.
    pub(super) fn is_for_one(&self) -> bool {
        let is_unselectable = self.vary.iter().any(|name| ["*", "cookie"].contains(name));
        let forbids = self.forbids_elsewhere || self.has("no-store") || self.has("private");
        forbids || self.sets_cookie || is_unselectable
    }

    /// Whether it may be given to others although its request was authorized.
    pub(super) fn is_for_all(&self) -> bool {
        self.has("public") || self.has("s-maxage")
    }

    /// Whether it states a lifetime, or that it is for all.
    pub(super) fn states_consent(&self) -> bool {
        self.is_for_all() || self.has("max-age") || self.expires.is_some()
    }

    /// How long it is fresh from its arrival, in seconds.
    pub(super) fn freshness(&self, status: StatusCode) -> u64 {
        if self.has("no-cache") {
            return 0;
        }
        let made = self.date.unwrap_or_default();
        let until_expires = self.expires.map(|expires| {
            expires.map_or(0, |expires| expires.saturating_sub(made).max(0).unsigned_abs())
        });
        let stated = self.seconds("s-maxage").or_else(|| self.seconds("max-age")).or(until_expires);
        let may_guess = [200, 204, 301, 404].contains(&status.as_u16()) || self.has("public");
        let guessed = self
            .modified
            .filter(|_| may_guess)
            .map(|modified| ((made - modified).max(0).unsigned_abs() / 10).min(86_400));
        let apparent = (-made).max(0).unsigned_abs();
        stated.or(guessed).unwrap_or_default().saturating_sub(apparent.max(self.age))
    }

    /// How long it may be used after that, in seconds: while it is revalidated, and if there is an error.
    pub(super) fn stale_windows(&self) -> [u64; 2] {
        let forbid = ["must-revalidate", "proxy-revalidate", "s-maxage", "no-cache"];
        if forbid.iter().any(|name| self.has(name)) {
            return [0; 2];
        }
        ["stale-while-revalidate", "stale-if-error"]
            .map(|name| self.seconds(name).unwrap_or_default())
    }
}

/// Adds a field, unless its value has letters that no value can have.
pub(super) fn append(headers: &mut HeaderMap, name: &str, value: &[u8]) {
    let name: Result<HeaderName, _> = name.parse();
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
        headers.append(name, value);
    }
}

/// The fields of a request, in their order.
pub(super) type RequestFields = Vec<(&'static str, String)>;

/// The fields of a request. Entity tags are `"e0"`, `"e1"`, ....
pub(super) fn request_fields(choices: &mut Choices, now: SystemTime) -> RequestFields {
    let mut fields: RequestFields = Vec::new();
    let mut add = |name, value: &str| fields.push((name, value.to_owned()));
    if choices.one_in(2) {
        add("accept-language", choices.pick(&["en", "de", "EN , ", "en, de"]));
    }
    if choices.one_in(3) {
        add("x-one", choices.pick(&["1", "2", "1,", ""]));
    }
    if choices.one_in(4) {
        add("cookie", choices.pick(&["user=alice", "user=bob"]));
    }
    if choices.one_in(4) {
        add("authorization", choices.pick(&["Basic alice", "Basic bob"]));
    }
    if choices.one_in(3) {
        let values = [
            "no-cache",
            "max-age=0",
            "max-age=5",
            "no-store",
            "only-if-cached",
            "min-fresh=10",
            "max-stale",
            "max-stale=100, max-age=5",
            "max-age=x",
            "only-if-cached, no-cache",
            "foo=\"no-store",
        ];
        add("cache-control", choices.pick(&values));
    }
    if choices.one_in(8) {
        add("pragma", choices.pick(&["no-cache", "x"]));
    }
    add_conditions(choices, now, &mut fields);
    fields
}

fn add_conditions(choices: &mut Choices, now: SystemTime, fields: &mut RequestFields) {
    let mut add = |name, value: &str| fields.push((name, value.to_owned()));
    if choices.one_in(4) {
        add(
            "if-none-match",
            choices.pick(&["\"e0\"", "W/\"e1\"", "*", "\"e0\", \"e2\"", "e0", "\"e"]),
        );
    }
    if choices.one_in(8) {
        add("if-modified-since", &date(now, [-1_000, 0, -10][choices.below(3)]));
    }
    if choices.one_in(8) {
        add("if-match", choices.pick(&["\"e0\"", "*"]));
    }
    if choices.one_in(4) {
        let ranges = [
            "bytes=0-3",
            "bytes=-2",
            "bytes=4-",
            "bytes=900-",
            "bytes=3-1",
            "bytes=0-1,3-4",
            "x=0-1",
        ];
        add("range", choices.pick(&ranges));
        if choices.one_in(3) {
            add("if-range", choices.pick(&["\"e0\"", "W/\"e0\"", "\"e1\""]));
        }
    }
    if choices.one_in(16) {
        add("connection", choices.pick(&["close", "x-one", "keep-alive, te"]));
    }
}
