//! The options of a run.

use std::time::Duration;

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
  --down              Redis is killed before they ask
  --verbose           a line of log messages, and of each kind of error, per run";

/// How many processes ask for how many keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) processes: usize,
    pub(crate) keys: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) sizes: Vec<Size>,
    pub(crate) loads: Vec<Duration>,
    pub(crate) runs: usize,
    pub(crate) busy: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) stop: bool,
    pub(crate) quota: Option<u32>,
    pub(crate) batch: bool,
    pub(crate) chain: usize,
    pub(crate) down: bool,
    pub(crate) verbose: bool,
}

impl Options {
    fn new() -> Self {
        Self {
            sizes: vec![Size { processes: 16, keys: 1_000 }],
            loads: vec![Duration::from_millis(200)],
            runs: 5,
            busy: false,
            timeout: None,
            stop: false,
            quota: None,
            batch: false,
            chain: 0,
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
                "--sizes" => sizes = Some(value()?.split(',').map(size).collect::<Result<_, _>>()?),
                "--load-ms" => {
                    options.loads = value()?.split(',').map(millis).collect::<Result<_, _>>()?;
                }
                "--runs" => options.runs = number(value()?)?,
                "--busy" => options.busy = true,
                "--timeout-ms" => options.timeout = Some(millis(value()?)?),
                "--stop" => options.stop = true,
                "--quota" => options.quota = Some(number(value()?)?),
                "--batch" => options.batch = true,
                "--chain" => options.chain = number(value()?)?,
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
