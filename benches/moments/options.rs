//! The options of a run.

use std::time::Duration;

use crate::fault::KINDS;

/// What `--help` prints.
const HELP: &str = "\
A fleet that asks for the same cold keys at once:
  --processes N       worker processes (16)
  --keys N            keys, all of which each worker asks for at once (1000)
  --sizes LIST        several of both: 4x10000,8x2000,16x1000,64x500
  --load-ms LIST      how long a load takes, one or several: 50,200,1000 (200)
  --runs N            runs of each (5)
  --busy              a busy loop beside each core
  --timeout-ms N      RedisOptions::timeout (its default)
  --stop              each worker is stopped at random, for 0.1 to 1 s at a time
  --quota PERCENT     each worker runs for so much of each 100 ms
  --batch             each worker asks by get_or_load_many
  --chain N           the load of a key reads N more keys, each in the load of the one before (0)
  --burst-kib N       the size of each value (0: a few bytes)
  --down              Redis is killed before they ask
  --verbose           why there were loads, and which keys were loaded again

Requests while a Redis is away:
  --outage LIST       killed, stalled, refusing, full, flapping, resetting, cut-off, or all
  --rate N            requests per second: nine in ten for 200 hot keys, the others for 10,000 (2000)
  --ttl-ms N          how long an answer is kept (60000)
  --load-ms N         how long a load takes (20)
  --near              with near copies
  --source-down       the source fails during the outage, too; with stale_if_error

Large values over a slow link, all of them stored, beside a small one:
  --link LIST         Mbit per second of the link: 100,1000
  --value-kib LIST    the size of the large values (900)
  --callers LIST      how many read one each, again and again (32)";

/// How many processes ask for how many keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) processes: usize,
    pub(crate) keys: usize,
}

/// Requests while a Redis is away.
#[derive(Clone, Debug)]
pub(crate) struct OutageOptions {
    pub(crate) kinds: Vec<String>,
    pub(crate) rate: u32,
    pub(crate) ttl: Duration,
    pub(crate) load: Duration,
    pub(crate) near: bool,
    pub(crate) source_down: bool,
}

/// Large values over a slow link.
#[derive(Clone, Debug)]
pub(crate) struct LinkOptions {
    pub(crate) mbit: Vec<f64>,
    pub(crate) kib: Vec<usize>,
    pub(crate) callers: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) outage: OutageOptions,
    pub(crate) link: LinkOptions,
    pub(crate) sizes: Vec<Size>,
    pub(crate) loads: Vec<Duration>,
    pub(crate) runs: usize,
    pub(crate) busy: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) stop: bool,
    pub(crate) quota: Option<u32>,
    pub(crate) batch: bool,
    pub(crate) chain: usize,
    pub(crate) burst_kib: usize,
    pub(crate) down: bool,
    pub(crate) verbose: bool,
}

impl Options {
    fn new() -> Self {
        Self {
            outage: OutageOptions {
                kinds: Vec::new(),
                rate: 2_000,
                ttl: Duration::from_secs(60),
                load: Duration::from_millis(20),
                near: false,
                source_down: false,
            },
            link: LinkOptions { mbit: Vec::new(), kib: vec![900], callers: vec![32] },
            sizes: vec![Size { processes: 16, keys: 1_000 }],
            loads: vec![Duration::from_millis(200)],
            runs: 5,
            busy: false,
            timeout: None,
            stop: false,
            quota: None,
            batch: false,
            chain: 0,
            burst_kib: 0,
            down: false,
            verbose: false,
        }
    }

    /// Enough to show that everything runs.
    fn smoke() -> Self {
        let sizes = vec![Size { processes: 2, keys: 10 }];
        Self { sizes, loads: vec![Duration::from_millis(10)], runs: 1, ..Self::new() }
    }

    /// `None` if the words are those of another benchmark.
    pub(crate) fn parse(args: &[String]) -> Result<Option<Self>, String> {
        if !args.iter().any(|arg| arg == "--bench") {
            return Ok(Some(Self::smoke()));
        }
        // `--keys=5` is `--keys 5`.
        let args = args.iter().flat_map(|arg| arg.splitn(2, '='));
        let mut args = args.filter(|arg| *arg != "--bench");
        let mut options = Self::new();
        let Size { mut processes, mut keys } = options.sizes[0];
        let mut sizes = None;
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg {
                "moments" => {}
                "--processes" => processes = number(value()?)?,
                "--keys" => keys = number(value()?)?,
                "--sizes" => sizes = Some(list(value()?, size)?),
                "--load-ms" => {
                    options.loads = list(value()?, millis)?;
                    options.outage.load = options.loads[0];
                }
                "--outage" => options.outage.kinds = list(value()?, kind)?.concat(),
                "--rate" => options.outage.rate = number(value()?)?,
                "--ttl-ms" => options.outage.ttl = millis(value()?)?,
                "--near" => options.outage.near = true,
                "--source-down" => options.outage.source_down = true,
                "--link" => options.link.mbit = list(value()?, number)?,
                "--value-kib" => options.link.kib = list(value()?, number)?,
                "--callers" => options.link.callers = list(value()?, number)?,
                "--runs" => options.runs = number::<usize>(value()?)?.max(1),
                "--busy" => options.busy = true,
                "--timeout-ms" => options.timeout = Some(millis(value()?)?),
                "--stop" => options.stop = true,
                "--quota" => options.quota = Some(number(value()?)?),
                "--batch" => options.batch = true,
                "--chain" => options.chain = number(value()?)?,
                "--burst-kib" => options.burst_kib = number(value()?)?,
                "--down" => options.down = true,
                "--verbose" => options.verbose = true,
                "--help" => return Err(HELP.to_owned()),
                other if other.starts_with('-') => return Err(format!("{other}?\n{HELP}")),
                _ => return Ok(None),
            }
        }
        options.sizes = sizes.unwrap_or_else(|| vec![Size { processes, keys }]);
        Ok(Some(options))
    }
}

fn list<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    text.split(',').map(read).collect()
}

/// The kinds of outages that a word names.
fn kind(text: &str) -> Result<Vec<String>, String> {
    let names = KINDS.iter().map(|(name, _)| (*name).to_owned());
    let named: Vec<_> = names.filter(|name| text == "all" || text == name).collect();
    if named.is_empty() { Err(format!("no outage is called {text}")) } else { Ok(named) }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn millis(text: &str) -> Result<Duration, String> {
    number(text).map(Duration::from_millis)
}

fn size(text: &str) -> Result<Size, String> {
    let (processes, keys) = text.split_once('x').ok_or_else(|| format!("{text} is not 16x1000"))?;
    Ok(Size { processes: number(processes)?, keys: number(keys)? })
}
