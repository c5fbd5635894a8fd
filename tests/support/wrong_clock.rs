//! Clocks that are wrong, for servers that are started with one.

use std::fs;
use std::path::Path;
use std::process::Command;

/// What makes the clock of a server wrong, if it is in its directory: by so many seconds.
pub(super) const CLOCK: &str = "clock";

/// The command that runs another one with a clock that is wrong, if it is to be.
pub(super) fn wrong_clock(dir: &Path) -> Vec<String> {
    let Ok(seconds) = fs::read_to_string(dir.join(CLOCK)) else {
        return Vec::new();
    };
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    if !library.exists() {
        fs::write(&source, WRONG_CLOCK).expect("a file");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-o"]).args([&library, &source]);
        let compiled = compile.status().expect("cc, as `apt-get install gcc libc6-dev` gives it");
        assert!(compiled.success(), "{compile:?}");
    }
    let preload = format!("LD_PRELOAD={}", library.display());
    ["env", &preload, &format!("WRONG_BY={seconds}")].map(str::to_owned).to_vec()
}

/// What a server asks for the time, in the place of the system's own.
const WRONG_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

int gettimeofday(struct timeval *now, void *zone) {
    int failed = syscall(SYS_gettimeofday, now, zone);
    char *seconds = getenv("WRONG_BY");
    if (!failed && now && seconds) now->tv_sec += atol(seconds);
    return failed;
}
"#;
