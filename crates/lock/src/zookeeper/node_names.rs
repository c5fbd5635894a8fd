//! The names of nodes: their claims, and their order in the queue.

use bellwether::store::Token;

/// The prefix of the names of a claim's nodes. The server adds a number.
///
/// The names have the form of Curator's protected nodes, so that other tools understand them.
pub(super) fn prefix(token: Token) -> String {
    let mut prefix = String::with_capacity(PROTECTED.len() + 32 + LOCK.len());
    prefix.push_str(PROTECTED);
    for byte in token.as_bytes() {
        prefix.extend([byte >> 4, byte & 15].map(|digit| char::from(HEX[usize::from(digit)])));
    }
    prefix.push_str(LOCK);
    prefix
}

/// The names of the nodes in the order of the queue. Names of other programs are left out.
///
/// The server counts in 32 bits with a sign, so the smallest number follows the largest. Nodes in
/// one queue are less than half the range apart, unless the counter has wrapped between them. Then
/// the negative numbers are the later ones.
pub(super) fn queue_order(children: Vec<String>) -> Vec<String> {
    let numbered = children.into_iter().filter_map(|name| Some((number(&name)?, name)));
    let mut numbered: Vec<_> = numbered.collect();
    let smallest = numbered.iter().map(|(number, _)| *number).min().unwrap_or_default();
    let largest = numbered.iter().map(|(number, _)| *number).max().unwrap_or_default();
    let has_wrapped = largest.checked_sub(smallest).is_none();
    numbered.sort_by_cached_key(|(number, name)| {
        let position = i64::from(*number);
        let position = if has_wrapped && position < 0 { position + (1 << 32) } else { position };
        (position, name.clone())
    });
    numbered.into_iter().map(|(_, name)| name).collect()
}

/// The number that the server added, if the name has our form.
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
        let queue = queue_order(numbers.iter().map(|number| named(number)).collect());
        queue.into_iter().map(|name| name[41..].to_owned()).collect()
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
    fn foreign_names_are_in_no_queue() {
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
        assert_eq!(queue_order(children), Vec::<String>::new());
    }
}
