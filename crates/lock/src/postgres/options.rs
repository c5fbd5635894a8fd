//! The options of a lock in a PostgreSQL server.

use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::session::{DatabaseAddress, SessionOptions};

/// The options of a connection to a PostgreSQL server.
///
/// ```no_run
/// # async fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use bellwether_lock::{PostgresLock, PostgresOptions};
///
/// let options = PostgresOptions::new("postgresql://shop:secret@127.0.0.1/shop", "shop")?
///     .session_timeout(Duration::from_secs(10));
/// let lock = PostgresLock::connect(options).await?;
/// # let _ = lock;
/// # Ok(())
/// # }
/// ```
pub type PostgresOptions = SessionOptions<PostgresAddress>;

/// The address of a PostgreSQL server.
#[derive(Clone)]
#[allow(unnameable_types, reason = "only `PostgresOptions` has a use for it")]
pub struct PostgresAddress(pub(super) Config);

impl DatabaseAddress for PostgresAddress {
    const FORM: &'static str = "it must be postgresql://[user[:password]@]host[:port][/database]";

    const PLAIN: &'static str = "sslmode=disable";
    const ENCRYPTED: &'static [&'static str] = &["sslmode=require", "sslmode=verify-full"];
    const WRONG_TLS: &'static str = "`sslmode` may only be `disable` (the default), or `require` or \
        `verify-full`, which both verify the server; no other parameter about TLS is known";

    fn parse(url: &str, is_encrypted: bool) -> Option<Self> {
        if !["postgresql://", "postgres://"].iter().any(|scheme| url.starts_with(scheme)) {
            return None;
        }
        let mut address: Config = url.parse().ok()?;
        if address.get_hosts().is_empty() {
            return None;
        }
        address.ssl_mode(if is_encrypted { SslMode::Require } else { SslMode::Disable });
        if address.get_application_name().is_none() {
            address.application_name("bellwether");
        }
        Some(Self(address))
    }
}

// Shows where the server is, and neither user nor password.
bellwether::debug_fields! { PostgresAddress => |it| hosts = it.0.get_hosts(), ports = it.0.get_ports() }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::options::tests::{passwords_are_never_shown, url};
    use bellwether_testkit::fuzz::fuzz;
    use tokio_postgres::config::Host;

    #[test]
    fn fuzzed_urls_are_read_as_they_were_written() {
        fuzz("postgresql URL, valid", 32, 1, |choices| {
            let (text, parts) = url("postgresql", choices);
            let options = PostgresOptions::new(&text, "shop");
            let options = options.unwrap_or_else(|error| panic!("{text}: {error}"));
            let read = [
                options.address.0.get_user().unwrap_or_default().to_owned(),
                String::from_utf8_lossy(options.address.0.get_password().unwrap_or_default())
                    .into_owned(),
                match options.address.0.get_hosts() {
                    [Host::Tcp(host)] => host.clone(),
                    hosts => panic!("{hosts:?}"),
                },
                options.address.0.get_ports()[0].to_string(),
                options.address.0.get_dbname().unwrap_or_default().to_owned(),
            ];
            assert_eq!(read, parts, "{text}");
            assert!(!format!("{options:?}").contains("hunter2"), "{text}");
        });
    }

    #[test]
    fn fuzzed_urls_never_show_their_password() {
        passwords_are_never_shown::<PostgresAddress>("postgresql");
    }

    #[test]
    fn fuzzed_texts_are_refused_or_have_an_address() {
        fuzz("postgresql URL, any", 64, 1, |choices| {
            let (one, other) = (url("postgresql", choices).0, url("postgresql", choices).0);
            let text = choices.mutated_text(&one, &other);
            let Ok(options) = PostgresOptions::new(&text, "shop") else { return };
            assert!(!options.address.0.get_hosts().is_empty(), "{text}");
        });
    }
}
