//! Random programs: commands as scripts and clients send them, and some that they would never send.

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

macro_rules! script {
    ($name:literal) => {
        concat!(
            include_str!("../../../redis-client/src/prelude.lua"),
            include_str!("../../../redis/src/prelude.lua"),
            include_str!(concat!("../../../redis/src/", $name, ".lua")),
        )
    };
}

/// The texts of the scripts.
const SCRIPTS: [&str; 10] = [
    script!("abandon"),
    script!("acquire"),
    script!("change_tag"),
    script!("commit"),
    script!("fail"),
    script!("invalidate"),
    script!("inspect"),
    script!("renew"),
    script!("touch_tags"),
    include_str!("../../../redis-client/src/rights.lua"),
];

/// Scripts that fail, and that show how replies are converted.
const ODD: [&str; 12] = [
    "return redis.call('GET', KEYS[1], 'more')",
    "return redis.call('NONE', KEYS[1])",
    "local x = 1\nerror('so')",
    "return redis.call('SET', KEYS[1], 1.5, 'PX', 100.0)",
    "return redis.pcall('PEXPIRE', KEYS[1], 'x')",
    "return {1, 2.9, 'a', true, {'b'}, false, 'c', nil, 4}",
    "return redis.call('HSET', KEYS[1], 'a', 'b')",
    "return {redis.call('MGET', KEYS[1], 'none'), redis.call('SET', KEYS[1], '1'), redis.call('GET', KEYS[1])}",
    "return redis.call('GET', {})",
    "return redis.call(",
    "return {redis.call('TIME'), redis.call('PTTL', KEYS[1]), redis.call('PEXPIRETIME', KEYS[1])}",
    "return {struct.unpack('>I8I4', struct.pack('>I8I4', 9007199254740991, 7), 1)}",
];

/// A random sequence of commands.
pub(crate) struct Program {
    /// The time of the next command, in microseconds.
    pub(crate) now: u64,
    names: Vec<String>,
    tokens: Vec<[u8; 16]>,
    fences: Vec<u64>,
}

/// The words of a text.
pub(crate) fn words(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

impl Program {
    pub(crate) fn new(random: &mut SmallRng, now: u64) -> Self {
        let names = ["a", "b"].map(|key| format!("bw:sim:{{{key}}}"));
        let tokens = (0..3).map(|_| random.random()).collect();
        Self { now, names: names.into(), tokens, fences: vec![1, now] }
    }

    /// The next command, and over which connection it is sent.
    pub(crate) fn next(&mut self, random: &mut SmallRng) -> (usize, Vec<Vec<u8>>) {
        let command = match random.random_range(0..10) {
            0..2 => self.plain(random),
            2 => self.odd(random),
            _ => self.script(random),
        };
        (random.random_range(0..3), command)
    }

    fn plain(&self, random: &mut SmallRng) -> Vec<Vec<u8>> {
        let (name, other) = (self.name(random), self.name(random));
        let number = self.number(random);
        let value = self.value(random);
        let texts = [
            format!("GET {name}"),
            format!("MGET {name} {other}"),
            format!("PTTL {name}"),
            format!("PEXPIRETIME {name}"),
            format!("DEL {name} {other} {name}"),
            format!("EXISTS {name} {other}"),
            format!("PEXPIRE {name} {number}"),
            format!("PEXPIREAT {name} {}", self.now / 1000 + random.random_range(0..3000) - 1000),
            format!("SETRANGE {name} {} ab", random.random_range(0..40)),
            format!("SETRANGE {name} 5 "),
            format!("HSET {name} a b"),
            format!("SET {name} text PX {number}"),
            format!("SET {name} text PXAT {}", self.now / 1000 + random.random_range(0..3000)),
            format!("SET {name} text EX 2 NX"),
            format!("SET {name} text XX"),
            format!("SET {name} text PX"),
            "TIME".into(),
            "GET".into(),
            "NONE at all".into(),
            "PUBLISH bw:sim:waiter:0000000000000001 text".into(),
            "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0".into(),
            "EVAL x 3 a".into(),
            "EVAL x y a".into(),
            "FLUSHALL".into(),
            "CONFIG SET maxmemory 1".into(),
            "CONFIG SET maxmemory 0".into(),
            "CONFIG SET maxmemory 0".into(),
            "CONFIG SET maxmemory 0".into(),
            "CLIENT TRACKING ON".into(),
            "CLIENT SETINFO LIB-NAME redis-rs".into(),
            "SCRIPT EXISTS ffffffffffffffffffffffffffffffffffffffff".into(),
        ];
        if random.random_ratio(1, 4) {
            let life = random.random_range(1..5000).to_string().into_bytes();
            return vec![b"SET".to_vec(), name.into_bytes(), value, b"PX".to_vec(), life];
        }
        words(texts.choose(random).expect("one"))
    }

    fn odd(&self, random: &mut SmallRng) -> Vec<Vec<u8>> {
        let text = ODD.choose(random).expect("one");
        let command = if random.random() { "EVAL" } else { "SCRIPT" };
        match command {
            "SCRIPT" => [&b"SCRIPT"[..], b"LOAD", text.as_bytes()].map(<[u8]>::to_vec).into(),
            _ => eval(text, &[self.name(random)], Vec::new()),
        }
    }

    fn script(&mut self, random: &mut SmallRng) -> Vec<Vec<u8>> {
        let key = self.names.choose(random).expect("one").clone();
        let [lease, watermark, failed] =
            ["lease", "watermark", "failed"].map(|it| format!("{key}:{it}"));
        let all = [key, lease.clone(), watermark, failed.clone()];
        let token = self.tokens.choose(random).expect("one").to_vec();
        let term = random.random_range(1..4000).to_string().into_bytes();
        let fence = self.fences.choose(random).expect("one").to_string().into_bytes();
        let mark = *["", "0000000000000001", "0000000000000002"].choose(random).expect("one");
        let tags = ["bw:sim:~tag:{t}", "bw:sim:~tag:{u}"].map(str::to_owned);
        let text = |text: &str| text.as_bytes().to_vec();
        let which = random.random_range(0..SCRIPTS.len());
        let (keys, args) = match which {
            0 => (vec![lease], vec![token]),
            1 => {
                let trace =
                    if random.random_ratio(1, 4) { [b'-'; 55].to_vec() } else { Vec::new() };
                let accept = [text("1"), text("0"), self.fences[0].to_be_bytes().to_vec()];
                let until =
                    if random.random_ratio(1, 4) { self.now.to_string() } else { String::new() };
                let accept = accept.choose(random).expect("one").clone();
                self.fences.push(self.now);
                let first = [token, trace].concat();
                (all.into(), vec![first, term, accept, text(&until), text(mark)])
            }
            2 => {
                let how = if random.random() { "hard" } else { "soft" };
                let over = if random.random() { "0" } else { "900" };
                (tags[..1].to_vec(), vec![text(how), vec![random.random()], text(over)])
            }
            3 => {
                let granted = self.now - random.random_range(0..3_000_000);
                let life = if random.random_ratio(1, 5) { text("0") } else { term };
                let entry = self.entry(random);
                (all.into(), vec![token, entry, life, fence, text(&granted.to_string())])
            }
            4 => (vec![lease, failed], vec![token, self.failure(random), term, fence]),
            5 => (all.into(), vec![text(if random.random() { "hard" } else { "soft" })]),
            6 => (all.into(), Vec::new()),
            7 => (vec![lease], vec![token, term, fence]),
            8 => (tags.into(), vec![term, random.random::<[u8; 2]>().to_vec()]),
            _ => (
                vec!["bw:sim:check".into()],
                vec![text("get setrange time set pttl pexpire del publish")],
            ),
        };
        eval(SCRIPTS[which], &keys, args)
    }

    fn name(&self, random: &mut SmallRng) -> String {
        let suffix = ["", ":lease", ":watermark", ":failed"].choose(random).expect("one");
        format!("{}{suffix}", self.names.choose(random).expect("one"))
    }

    fn number(&self, random: &mut SmallRng) -> String {
        let odd = ["0", "-1", "x", "1.5", "007", "9223372036854775807"];
        if random.random_ratio(1, 3) {
            return (*odd.choose(random).expect("one")).to_owned();
        }
        random.random_range(1..4000).to_string()
    }

    fn value(&self, random: &mut SmallRng) -> Vec<u8> {
        match random.random_range(0..5) {
            0 => self.entry(random),
            1 => self.failure(random),
            2 => self.fences.choose(random).expect("one").to_be_bytes().to_vec(),
            3 => self.tokens[0].to_vec(),
            _ => Vec::new(),
        }
    }

    /// The bytes of an entry, as far as scripts read them.
    fn entry(&self, random: &mut SmallRng) -> Vec<u8> {
        let mut entry = vec![0; 98];
        entry[..4].copy_from_slice(b"BWE\x01");
        entry[3] = random.random_range(1..3);
        let windows: [u64; 3] = [0, random.random_range(0..2) * 700, 0];
        let stored_at = self.now.saturating_add_signed(random.random_range(-3_000_000..2_000_000));
        let numbers =
            [*self.fences.choose(random).expect("one"), stored_at, random.random_range(0..3000)];
        for (place, number) in numbers.into_iter().chain(windows).enumerate() {
            entry[28 + 8 * place..36 + 8 * place].copy_from_slice(&number.to_be_bytes());
        }
        if random.random_ratio(1, 3) {
            entry[88..96].copy_from_slice(&stored_at.to_be_bytes());
        }
        entry
    }

    /// The bytes of a failure, as far as scripts read them.
    fn failure(&self, random: &mut SmallRng) -> Vec<u8> {
        let mut failure = b"BWF\x02-".to_vec();
        failure.extend_from_slice(&random.random_range(1..4_u32).to_be_bytes());
        for most in [1000, 2000, 4000] {
            failure.extend_from_slice(&random.random_range(0..most as u64).to_be_bytes());
        }
        failure.extend_from_slice(b"kind and message");
        failure
    }
}

fn eval(text: &str, keys: &[String], args: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut command = vec![b"EVAL".to_vec(), text.as_bytes().to_vec()];
    command.push(keys.len().to_string().into_bytes());
    command.extend(keys.iter().map(|key| key.as_bytes().to_vec()));
    command.extend(args);
    command
}
