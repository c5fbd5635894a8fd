//! The sizes of entries, as far as they matter: a long reply holds up the short ones behind it.

use std::mem;
use std::sync::OnceLock;

use quick_cache::sync::Cache;

use bellwether::store::Digest;
use bellwether_redis_client::RedisRequest;

/// How many bytes entries had that were not short when they were last seen, by key. It takes no memory until
/// there is one.
#[derive(Debug, Default)]
pub(super) struct EntrySizes(OnceLock<Cache<Digest, usize>>);

impl EntrySizes {
    /// The entry of a key has so many bytes.
    pub(super) fn note(&self, key: &Digest, bytes: usize) {
        if bytes >= SHORT {
            self.0.get_or_init(|| Cache::new(MOST)).insert(*key, bytes);
        } else if let Some(sizes) = self.0.get() {
            sizes.remove(key);
        }
    }

    /// Zero if it is short, or not known.
    pub(super) fn of(&self, key: &Digest) -> usize {
        self.0.get().and_then(|sizes| sizes.get(key)).unwrap_or(0)
    }
}

/// Cuts what is read from one server into requests: the short ones together, and large ones together, each
/// request for at most [`REPLY`] unless one alone is larger.
pub(super) fn cut<T>(names: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    if names.iter().all(|name| size(name) == 0) {
        return vec![names];
    }
    let mut requests = Vec::with_capacity(1);
    let mut open = [(Vec::new(), 0), (Vec::new(), 0)];
    for name in names {
        let size = size(&name);
        let (of_kind, bytes) = &mut open[usize::from(size >= RedisRequest::LARGE)];
        if *bytes > 0 && *bytes + size > REPLY {
            requests.push(mem::take(of_kind));
            *bytes = 0;
        }
        of_kind.push(name);
        *bytes += size;
    }
    requests.extend(open.map(|(names, _)| names).into_iter().filter(|names| !names.is_empty()));
    requests
}

/// How many bytes a reply is expected to have at most. A network of 1 Gbit/s takes 4 ms for them.
const REPLY: usize = 512 * 1024;

/// Shorter entries are not noted: 32 of them, as many as one request reads, are one reply.
const SHORT: usize = 16 * 1024;

/// How many sizes are kept. Each takes about 60 bytes.
const MOST: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use bellwether::Key;

    #[test]
    fn large_entries_are_read_apart_from_short_ones_and_no_reply_is_longer_than_it_must_be() {
        let sizes = vec![0, 100_000, 0, 500_000, 900_000, 20_000];
        let cut = cut(sizes, |size| *size);
        assert_eq!(cut, [vec![100_000], vec![500_000], vec![0, 0, 20_000], vec![900_000]]);
    }

    #[test]
    fn an_entry_that_is_short_again_is_forgotten() {
        let (sizes, key) = (EntrySizes::default(), Key::of("item").digest());
        sizes.note(&key, SHORT - 1);
        assert!(sizes.0.get().is_none());
        sizes.note(&key, SHORT);
        assert_eq!(sizes.of(&key), SHORT);
        sizes.note(&key, 1);
        assert_eq!(sizes.of(&key), 0);
    }
}
