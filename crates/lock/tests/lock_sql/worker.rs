//! Another process, as it sees itself: it does what it is told.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bellwether_lock::{Claim, Fenced};
use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::task::yield_now;

use crate::bench::{Kind, Told, ask, ask_by, free, key};
use crate::process::{MARK, WORKER};

/// Works until its standard input ends, which it does when the test dies, however it dies.
#[test]
#[ignore = "only of use to the other tests, which run it in processes of its own"]
fn works() {
    // Run by hand, there is nobody who commands.
    let Ok(told) = std::env::var(WORKER) else { return };
    let (kind, url) = told.split_once(' ').expect("a kind and an address");
    let kind = Kind::ALL.into_iter().find(|known| format!("{known:?}") == kind).expect("a kind");
    let (commands, commanded) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let _ = commands.send(line);
        }
        std::process::exit(0);
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let url = url.to_owned();
    runtime.expect("a runtime").block_on(serve(kind, url, commanded));
}

async fn serve(kind: Kind, url: String, mut commanded: mpsc::UnboundedReceiver<String>) {
    let lock = kind.lock_at(&url, &Told::default());
    while let Some(command) = commanded.recv().await {
        let words: Vec<_> = command.split(' ').collect();
        match words[..] {
            ["hold", number, patience] => hold(&lock, parsed(number), parsed(patience)).await,
            ["count", file, tasks, rounds] => {
                let file = PathBuf::from(file);
                let tasks = (0..parsed(tasks)).map(|_| count(&lock, &file, parsed(rounds)));
                let longest = join_all(tasks).await.into_iter().max().unwrap_or_default();
                say(&format!("counted {}", longest.as_micros()));
            }
            _ => panic!("{command}"),
        }
    }
}

/// Takes a key for good, and says so, and when it is lost.
async fn hold(lock: &Arc<dyn Fenced>, number: u64, patience: u64) {
    let claim = Claim::new(key(number));
    let mut held = match ask_by(&**lock, claim, Duration::from_millis(patience)).await {
        Ok(Some(held)) => held,
        Ok(None) => return say("busy"),
        Err(error) => return say(&format!("failed {:?}", error.kind())),
    };
    say(&format!("held {}", held.fence));
    tokio::spawn(async move {
        held.session.ended().await;
        say(&format!("lost {}", held.fence));
    });
}

/// Counts in a file without any protection but the lock's. The file remembers the newest fence.
async fn count(lock: &Arc<dyn Fenced>, file: &PathBuf, rounds: u64) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..rounds {
        let began = std::time::Instant::now();
        let held = loop {
            if let Some(held) = ask(&**lock, key(1), Duration::from_secs(20)).await {
                break held;
            }
        };
        longest = longest.max(began.elapsed());
        let (before, newest) = read(file);
        yield_now().await;
        assert!(held.fence > newest, "{} came after {newest}", held.fence);
        fs::write(file, format!("{} {}", before + 1, held.fence)).expect("a file");
        free(&**lock, held).await;
    }
    longest
}

/// The count, and the newest fence.
pub(crate) fn read(file: &PathBuf) -> (u64, u64) {
    let text = fs::read_to_string(file).expect("a file");
    let (count, fence) = text.split_once(' ').expect("a count and a fence");
    (parsed(count), parsed(fence))
}

fn parsed(word: &str) -> u64 {
    word.parse().expect("a number")
}

fn say(what: &str) {
    // The test harness writes there as well, and not always to the end of a line.
    let line = format!("\n{MARK}{what}\n");
    let mut out = io::stdout().lock();
    // If nobody reads any more, the end of our input is near.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}
