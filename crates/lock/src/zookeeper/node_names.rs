//! Names: where the nodes of a lock are, whose they are, and in what order they stand.

use bellwether::Digest;
use bellwether::store::Token;

/// Where the nodes of a lock are.
#[derive(Clone, Debug)]
pub(super) struct NodeNames {
    /// The parent of all parents.
    root: String,
}

impl NodeNames {
    /// `chroot` is empty, or begins with a slash and does not end with one.
    pub(super) fn new(chroot: &str, namespace: &str) -> Self {
        Self { root: format!("{chroot}/bellwether/{namespace}") }
    }

    pub(super) fn root(&self) -> &str {
        &self.root
    }

    /// The parent of all nodes of one key.
    pub(super) fn parent(&self, digest: &Digest) -> String {
        format!("{}/{digest}", self.root)
    }
}

/// What the names of a claim's nodes begin with; the server adds the number.
///
/// Its form is that of Curator's protected nodes, for operators with other tools.
pub(super) fn prefix(token: Token) -> String {
    let mut prefix = String::with_capacity(PROTECTED.len() + 32 + LOCK.len());
    prefix.push_str(PROTECTED);
    for byte in token.as_bytes() {
        prefix.extend([byte >> 4, byte & 15].map(|digit| char::from(HEX[usize::from(digit)])));
    }
    prefix.push_str(LOCK);
    prefix
}

/// The names of the queue, in its order. Other names are none of ours.
///
/// The server counts in 32 bits with a sign, and so comes from the largest number to the smallest.
/// Nodes that are queued at the same time are never half the range apart, unless it has: then the
/// negative ones are the later ones.
pub(super) fn line(children: Vec<String>) -> Vec<String> {
    let turns = children.into_iter().filter_map(|name| Some((number(&name)?, name)));
    let mut turns: Vec<_> = turns.collect();
    let smallest = turns.iter().map(|(number, _)| *number).min().unwrap_or_default();
    let largest = turns.iter().map(|(number, _)| *number).max().unwrap_or_default();
    let has_wrapped = largest.checked_sub(smallest).is_none();
    turns.sort_by_cached_key(|(number, name)| {
        let place = i64::from(*number);
        let place = if has_wrapped && place < 0 { place + (1 << 32) } else { place };
        (place, name.clone())
    });
    turns.into_iter().map(|(_, name)| name).collect()
}

/// The number the server gave, if it is one of our names.
fn number(name: &str) -> Option<i32> {
    let (token, rest) = name.strip_prefix(PROTECTED)?.split_at_checked(32)?;
    let number = rest.strip_prefix(LOCK)?;
    let is_ours = token.bytes().all(|byte| HEX.contains(&byte)) && !number.starts_with('+');
    is_ours.then(|| number.parse().ok()).flatten()
}

const PROTECTED: &str = "_c_";
const LOCK: &str = "-lock-";
const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;
    use bellwether::Key;
    use bellwether::store::Claim;

    fn named(number: &str) -> String {
        format!("_c_{}-lock-{number}", "0123456789abcdef".repeat(2))
    }

    fn ordered(numbers: &[&str]) -> Vec<String> {
        let line = line(numbers.iter().map(|number| named(number)).collect());
        line.into_iter().map(|name| name[41..].to_owned()).collect()
    }

    #[test]
    fn the_name_of_a_claim_is_one_of_ours() {
        let token = Claim::new(Key::of("item")).token();
        assert_eq!(number(&(prefix(token) + "0000000017")), Some(17));
    }

    #[test]
    fn the_line_is_ordered_by_number_and_not_by_name() {
        assert_eq!(ordered(&["0000000010", "0000000009"]), ["0000000009", "0000000010"]);
    }

    #[test]
    fn negative_numbers_come_first_if_the_count_comes_from_below() {
        assert_eq!(ordered(&["0000000000", "-000000002"]), ["-000000002", "0000000000"]);
    }

    #[test]
    fn negative_numbers_come_last_if_the_count_has_run_over() {
        let sorted = ["2147483646", "2147483647", "-2147483648", "-2147483647"];
        let mut given = sorted;
        given.reverse();
        assert_eq!(ordered(&given), sorted);
    }

    #[test]
    fn foreign_names_stand_in_no_line() {
        let foreign = [
            "0000000001",
            "lock-0000000001",
            "_c_0123-lock-0000000001",
            "_c_é123456789abcdef0123456789abcde-lock-0000000001",
            "_c_0123456789ABCDEF0123456789ABCDEF-lock-0000000001",
            "_c_0123456789abcdef0123456789abcdef__lock__0000000001",
        ];
        let mut children: Vec<_> = foreign.map(str::to_owned).to_vec();
        children.extend(["", "x", "+000000001", "99999999999"].map(named));
        assert_eq!(line(children), Vec::<String>::new());
    }
}
