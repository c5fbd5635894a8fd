//! The journal of a run: all that has happened, as a hash, and as lines if it is to be shown.

use std::fmt::{self, Write as _};

use crate::host::Millis;

/// What has happened, in order.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// A hash of all that was noted.
    pub(crate) hash: u64,
    /// None if they are not to be shown.
    pub(crate) lines: Option<Vec<String>>,
}

impl Journal {
    pub(crate) fn note(&mut self, now: Millis, line: fmt::Arguments<'_>) {
        let mut hash = HashWriter(self.hash);
        // It never fails.
        _ = write!(hash, "{now} {line}");
        self.hash = hash.0;
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{now:>6} {line}"));
        }
    }

    /// Lists what a server has executed for a process, if it is to be shown.
    pub(crate) fn list(
        &mut self,
        now: Millis,
        process: usize,
        server: usize,
        commands: Vec<String>,
    ) {
        if let Some(lines) = &mut self.lines {
            let of = |it| format!("{now:>6}     {process} to {server}: {it}");
            lines.extend(commands.iter().map(of));
        }
    }
}

struct HashWriter(u64);

impl fmt::Write for HashWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        Ok(())
    }
}
