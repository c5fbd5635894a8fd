//! Clocks that are wrong, for servers that are started with one.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::UNIX_EPOCH;

use super::resp2::{Connection, Reply};

/// The file that makes the clock of a server wrong, if it is in its directory: by that many
/// seconds.
pub(super) const CLOCK: &str = "clock";

/// The file from which a running server reads its clock's error, each time it reads the clock.
const TURNED: &str = "clock.turned";

/// Sets by how many seconds the clock of the server that runs in a directory is wrong from now on.
pub(super) fn turn(dir: &Path, seconds: i64) {
    // In place and of one length, so that no read finds half of it.
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(dir.join(TURNED));
    let written = file.and_then(|file| file.write_all_at(format!("{seconds:020}").as_bytes(), 0));
    written.expect("its clock");
}

/// Whether the clock that a server shows is wrong by so many seconds.
pub(super) fn is_wrong_by(server: &mut Connection, seconds: i64) -> bool {
    let expected = || UNIX_EPOCH.elapsed().expect("the time").as_secs_f64() + seconds as f64;
    let earliest = expected() - PRECISION;
    let shown = server.command(&["TIME"]).expect("its time");
    let latest = expected() + PRECISION;
    let Reply::Array(shown) = shown else { panic!("not a time: {shown:?}") };
    let parts = shown.into_iter().map(|part| part.text().parse::<f64>().expect("a number"));
    let shown = parts.zip([1.0, 1e-6]).map(|(part, unit)| part * unit).sum();
    (earliest..=latest).contains(&shown)
}

/// The command that runs another one with a clock that is wrong, if it is to be.
pub(super) fn wrong_clock(dir: &Path) -> Vec<String> {
    let Ok(seconds) = fs::read_to_string(dir.join(CLOCK)) else {
        return Vec::new();
    };
    let source = dir.join("clock.c");
    let library = dir.join("clock.so");
    if !library.exists() {
        fs::write(&source, WRONG_CLOCK).expect("a file");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-o"]).args([&library, &source]);
        let compiled = compile.status().expect("cc, as `apt-get install gcc libc6-dev` gives it");
        assert!(compiled.success(), "{compile:?}");
    }
    turn(dir, seconds.parse().expect("seconds"));
    let preload = format!("LD_PRELOAD={}", library.display());
    let wrong_by = format!("WRONG_BY={}", dir.join(TURNED).display());
    ["env", &preload, &wrong_by].map(str::to_owned).to_vec()
}

/// How far apart, in seconds, two readings of one clock may be: far less than clocks are turned by.
const PRECISION: f64 = 0.1;

/// The library that a server asks for the time, in place of the system's own.
const WRONG_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static int file = -1;

__attribute__((constructor)) static void open_file(void) {
    char *path = getenv("WRONG_BY");
    if (path) file = open(path, O_RDONLY | O_CLOEXEC);
}

int gettimeofday(struct timeval *now, void *zone) {
    int failed = syscall(SYS_gettimeofday, now, zone);
    char seconds[21] = {0};
    if (!failed && now && pread(file, seconds, 20, 0) == 20) now->tv_sec += strtol(seconds, 0, 10);
    return failed;
}
"#;
