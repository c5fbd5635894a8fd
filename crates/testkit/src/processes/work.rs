//! The worker's own side: it obeys the commands of its test.

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::{env, panic, process, thread};

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime;
use tokio::sync::mpsc;

use super::messages::{MARK, Order, SETUP_VARIABLE, WorkerMessage};

/// Opens with the setup of its test, and obeys commands, several at a time, until the standard
/// input ends. The input ends when the test dies in any way. Does nothing in a process that is no
/// worker.
///
/// A worker dies of any panic, so that its test knows at once.
pub fn work<T, S, C, R, O, F>(
    open: impl FnOnce(T) -> O,
    obey: impl Fn(Arc<S>, C) -> F + Send + Sync,
) where
    T: DeserializeOwned,
    S: Send + Sync + 'static,
    C: DeserializeOwned + Send + 'static,
    R: Serialize,
    O: Future<Output = Result<S, Box<dyn Error + Send + Sync>>>,
    F: Future<Output = R> + Send + 'static,
{
    // Without this variable, the test was run by hand and has no commands.
    let Ok(setup) = env::var(SETUP_VARIABLE) else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).expect("Linux");
    die_of_any_panic();
    let setup = serde_json::from_str(&setup).expect("the setup of this suite");
    let (commands, mut commanded) = mpsc::unbounded_channel();
    thread::spawn(move || listen(&commands));
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let state = match open(setup).await {
            Ok(state) => Arc::new(state),
            Err(error) => return say(&WorkerMessage::<R>::Opened(Err(error.to_string()))),
        };
        say(&WorkerMessage::<R>::Opened(Ok(())));
        while let Some(Order { id, command }) = commanded.recv().await {
            let obeyed = obey(Arc::clone(&state), command);
            tokio::spawn(async move { say(&WorkerMessage::Reply { id, reply: obeyed.await }) });
        }
    });
}

fn die_of_any_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        report(panic);
        process::exit(101);
    }));
}

/// Runs on a thread of its own, so that a busy worker still ends with its test.
fn listen<C: DeserializeOwned>(commands: &mpsc::UnboundedSender<Order<C>>) {
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let order = serde_json::from_str(&line).expect("a command");
        let _ = commands.send(order);
    }
    process::exit(0);
}

fn say<R: Serialize>(said: &WorkerMessage<R>) {
    let said = serde_json::to_string(said).expect("it is JSON");
    // The test harness writes there as well, and not always to the end of a line.
    let line = format!("\n{MARK}{said}\n");
    let mut output = io::stdout().lock();
    // If the test does not read any more, the end of our input is near.
    let _ = output.write_all(line.as_bytes()).and_then(|()| output.flush());
}
