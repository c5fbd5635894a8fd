//! What the source holds: rows that show of which key and version they are, and whether they are whole.

use serde::{Deserialize, Serialize};

/// Every so manieth key has a row that is too large for a message to waiters, which takes 16 KiB.
const LARGE_EVERY: u64 = 32;
const LARGE: usize = 20_000;

/// Which state of the source a row shows.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Versions {
    /// How often the row was changed.
    pub(crate) row: u64,
    /// How often all rows of its group were changed at once.
    pub(crate) group: u64,
}

/// A row, as it was at one moment of a load.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Row {
    pub(crate) key: u64,
    pub(crate) versions: Versions,
    /// When its load began and ended.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// The process that loaded it.
    pub(crate) loader: u32,
    padding: String,
    sum: u64,
}

impl Row {
    pub(crate) fn new(
        key: u64,
        versions: Versions,
        (began, ended): (u64, u64),
        loader: u32,
    ) -> Self {
        let padding = if key % LARGE_EVERY == LARGE_EVERY - 1 {
            letter(versions).to_string().repeat(LARGE)
        } else {
            String::new()
        };
        let mut row = Self { key, versions, began, ended, loader, padding, sum: 0 };
        row.sum = row.expected_sum();
        row
    }

    /// Whether nothing of it is missing or of another row.
    pub(crate) fn is_whole(&self) -> bool {
        let letter = letter(self.versions) as u8;
        self.sum == self.expected_sum()
            && (self.padding.is_empty() || self.padding.len() == LARGE)
            && self.padding.bytes().all(|byte| byte == letter)
    }

    fn expected_sum(&self) -> u64 {
        let Versions { row, group } = self.versions;
        let loader = u64::from(self.loader);
        let parts = [self.key, row, group, self.began, self.ended, loader];
        parts.into_iter().fold(self.padding.len() as u64, mixed)
    }
}

fn letter(versions: Versions) -> char {
    char::from(b'a' + (versions.row % 26) as u8)
}

/// Mixes a number into a sum, so that each bit changes half of the others.
pub(crate) fn mixed(sum: u64, part: u64) -> u64 {
    let mut sum = (sum ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
    sum = (sum ^ (sum >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    sum = (sum ^ (sum >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    sum ^ (sum >> 31)
}
