//! The options of a lock in a MariaDB or MySQL server.

use std::fmt;

use mysql_async::{Opts, OptsBuilder};

use crate::session::{DatabaseAddress, SessionOptions};

/// The options of a connection to a MariaDB or MySQL server.
///
/// ```no_run
/// # async fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use bellwether_lock::{MySqlRowLock, MySqlOptions};
///
/// let options = MySqlOptions::new("mysql://shop:secret@127.0.0.1/shop", "shop")?
///     .session_timeout(Duration::from_secs(10));
/// let lock = MySqlRowLock::connect(options).await?;
/// # let _ = lock;
/// # Ok(())
/// # }
/// ```
pub type MySqlOptions = SessionOptions<MySqlAddress>;

/// The address of a MariaDB or MySQL server, with a database.
#[derive(Clone)]
#[allow(unnameable_types, reason = "only `MySqlOptions` has a use for it")]
pub struct MySqlAddress(Opts);

impl DatabaseAddress for MySqlAddress {
    const FORM: &'static str = "it must be mysql://[user[:password]@]host[:port]/database";

    const PLAIN: &'static str = "require_ssl=false";
    const ENCRYPTED: &'static [&'static str] = &["require_ssl=true"];
    const WRONG_TLS: &'static str = "`require_ssl` may only be `false` (the default), or `true`, which \
        verifies the server; no other parameter about TLS is known";

    fn parse(url: &str, _: bool) -> Option<Self> {
        let address = Opts::from_url(url).ok()?;
        address.db_name().is_some_and(|name| !name.is_empty()).then_some(Self(address))
    }
}

/// Shows where the server is, and neither user nor password.
impl fmt::Debug for MySqlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.ip_or_hostname(), self.0.tcp_port())
    }
}

impl MySqlOptions {
    /// The options of the client.
    pub(super) fn connecting(&self) -> OptsBuilder {
        let Self { address, session_timeout: session, timeout, .. } = self;
        let seconds = session.as_secs() + u64::from(session.subsec_nanos() > 0);
        let wait = timeout.as_secs().max(1);
        // What would end a transaction or a wait early is off. The comments are for MariaDB and MySQL 8.
        let silence = format!(
            "SET SESSION wait_timeout = {seconds}, innodb_lock_wait_timeout = {wait}, \
             autocommit = 1, completion_type = 0 /*M! , max_statement_time = 0, \
             idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0, \
             idle_write_transaction_timeout = 0, @@SESSION.tx_isolation = {ISOLATION} */ \
             /*!80000 , @@SESSION.transaction_isolation = {ISOLATION} */"
        );
        // Settings that are given here need no request. The address is not replaced by a socket.
        OptsBuilder::from_opts(address.0.clone())
            .prefer_socket(false)
            .max_allowed_packet(Some(PACKET))
            .wait_timeout(Some(usize::try_from(seconds).unwrap_or(usize::MAX)))
            .tcp_keepalive(Some(*session))
            .tcp_nodelay(true)
            .setup(vec!["SET SESSION TRANSACTION READ WRITE".into(), silence])
    }
}

/// Read committed: a transaction that finds no row does not lock the gap, which other keys may need.
/// With a log of statements, InnoDB locks no rows at that level.
const ISOLATION: &str = "IF(@@binlog_format = 'STATEMENT', 'REPEATABLE-READ', 'READ-COMMITTED')";

/// The longest packet, in bytes. Ours are short.
const PACKET: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::options::tests::{passwords_are_never_shown, url};
    use bellwether_testkit::fuzz::fuzz;

    #[test]
    fn fuzzed_urls_are_read_as_they_were_written() {
        fuzz("mysql URL, valid", 32, 1, |choices| {
            let (text, parts) = url("mysql", choices);
            let options = MySqlOptions::new(&text, "shop");
            let options = options.unwrap_or_else(|error| panic!("{text}: {error}"));
            let read = [
                options.address.0.user().unwrap_or_default().to_owned(),
                options.address.0.pass().unwrap_or_default().to_owned(),
                options.address.0.ip_or_hostname().to_owned(),
                options.address.0.tcp_port().to_string(),
                options.address.0.db_name().unwrap_or_default().to_owned(),
            ];
            assert_eq!(read, parts, "{text}");
            assert!(!format!("{options:?}").contains("hunter2"), "{text}");
        });
    }

    #[test]
    fn fuzzed_urls_never_show_their_password() {
        passwords_are_never_shown::<MySqlAddress>("mysql");
    }

    #[test]
    fn fuzzed_texts_are_refused_or_have_an_address() {
        fuzz("mysql URL, any", 64, 1, |choices| {
            let (one, other) = (url("mysql", choices).0, url("mysql", choices).0);
            let text = choices.mutated_text(&one, &other);
            let Ok(options) = MySqlOptions::new(&text, "shop") else { return };
            assert!(!options.address.0.ip_or_hostname().is_empty(), "{text}");
        });
    }
}
