//! The simulated Redis against a real one: random programs of commands and scripts, byte for byte.
//!
//! `BELLWETHER_REDIS_SERVER=path` chooses the real one. What is simulated is the version that it has: Redis 6.2,
//! 7.0, 8.2, or Valkey 9. `scripts/compatibility` installs those that the system lacks below target/.

mod cluster;
mod programs;
mod real;

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpStream;

use bellwether_simulation::{ClientId, ModelServer};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use self::programs::{Program, words};
use self::real::{RealServer, read_until, request, send, version};

/// How many programs, and how many commands each has.
const PROGRAMS: u64 = 20;
const COMMANDS: usize = 250;

/// The connections: how each begins.
const CONNECTIONS: [&[&str]; 4] = [
    &["HELLO 3", "CLIENT TRACKING ON"],
    &["HELLO 3", "CLIENT TRACKING ON"],
    &["HELLO 2"],
    &["HELLO 2", "SUBSCRIBE bw:sim:waiter:0000000000000001 bw:sim:waiter:0000000000000002"],
];

#[test]
fn a_simulated_redis_answers_as_a_real_one() {
    let set = |name| Some(env::var(name).ok()?.parse().expect("a number"));
    let seed = set("BELLWETHER_FLEET_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    let programs = set("BELLWETHER_FLEET_ROUNDS").unwrap_or(PROGRAMS);
    println!("BELLWETHER_FLEET_SEED={seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let mut now = 1_700_000_000_000_000;
    let real = RealServer::start(now);
    let mut differences = 0;
    for _ in 0..programs {
        let mut pair = Pair::begin(&real, now);
        let mut program = Program::new(&mut random, now);
        for _ in 0..COMMANDS {
            let (connection, command) = program.next(&mut random);
            if let Some(difference) = pair.run(connection, &command, program.now) {
                println!("{difference}");
                differences += 1;
                break;
            }
            if random.random_ratio(1, 8) {
                program.now =
                    program.now.saturating_add_signed(random.random_range(-400..2000) * 1_000);
                real.set_clock(program.now);
            }
        }
        now = program.now;
    }
    assert_eq!(differences, 0);
}

/// A real server and a model of it, with the same connections.
struct Pair {
    real: Vec<TcpStream>,
    model: ModelServer,
    clients: Vec<ClientId>,
    /// What the model has sent over each.
    sent: Vec<Vec<u8>>,
}

impl Pair {
    fn begin(server: &RealServer, now: u64) -> Self {
        let mut model = ModelServer::new(version(), [].into());
        let clients: Vec<_> = CONNECTIONS.iter().map(|_| model.connect()).collect();
        let real = CONNECTIONS.iter().map(|_| server.connect()).collect();
        let mut pair = Self { real, model, sent: vec![Vec::new(); clients.len()], clients };
        // What has expired is removed when it is used, and not at some other time.
        send(&mut pair.real[2], &words("DEBUG SET-ACTIVE-EXPIRE 0"));
        read_until(&mut pair.real[2], b"+OK\r\n");
        pair.run(2, &words("CONFIG SET maxmemory 0"), now);
        pair.run(2, &words("FLUSHALL"), now);
        for (connection, commands) in CONNECTIONS.iter().enumerate() {
            for command in *commands {
                let difference = pair.run(connection, &words(command), now);
                // The numbers of connections differ.
                assert!(difference.is_none() || command.starts_with("HELLO"), "{difference:?}");
            }
        }
        pair
    }

    /// Runs a command in both, and returns how what they send differs.
    fn run(&mut self, connection: usize, command: &[Vec<u8>], now: u64) -> Option<String> {
        send(&mut self.real[connection], command);
        self.model.receive(self.clients[connection], &request(command), now);
        let mut difference = None;
        // The reply to this is behind all that is sent over the same connection.
        let last = format!("last{}", command.len());
        for place in (0..self.clients.len()).map(|place| (connection + place) % self.clients.len())
        {
            let ping = words(&format!("PING {last}"));
            self.model.receive(self.clients[place], &request(&ping), now);
            for (client, bytes) in self.model.take_output() {
                let place = self.clients.iter().position(|it| *it == client).expect("a client");
                self.sent[place].extend(bytes);
            }
            send(&mut self.real[place], &ping);
            let real = read_until(&mut self.real[place], format!("\r\n{last}\r\n").as_bytes());
            let model = std::mem::take(&mut self.sent[place]);
            if real != model {
                let show = |bytes: &[u8]| bytes.escape_ascii().to_string();
                let command: Vec<_> = command.iter().map(|word| show(word)).collect();
                let (real, model) = (show(&real), show(&model));
                difference = Some(format!(
                    "over {connection} at {now}: {command:?}\n{place} real  {real}\n{place} model {model}"
                ));
            }
        }
        difference
    }
}
