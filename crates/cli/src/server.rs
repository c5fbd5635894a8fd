//! The servers that a command is for.

use std::path::PathBuf;
use std::time::Duration;

use bellwether_redis::{CredentialsProvider, RedisCredentials, RedisOptions, RedisStore, RedisTls};
use bellwether_redis_client::{ClientSetup, RedisClient, RedisClientOptions};

use crate::CliError;

/// Where Redis is, and how to connect to it.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// The address, as in the program: redis://host, redis-cluster://host,host,
    /// redis+sentinel://host,host/service; rediss:// and so on for TLS.
    #[arg(long, global = true, env = "BELLWETHER_REDIS_URL", hide_env_values = true)]
    url: Option<String>,
    /// The namespace of the store.
    #[arg(long, global = true, env = "BELLWETHER_NAMESPACE")]
    namespace: Option<String>,
    /// The user of the password in a file.
    #[arg(long, global = true, default_value = "default")]
    user: String,
    /// A file with the password: other users of this machine may see an address in the list of processes.
    #[arg(long, global = true, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// A PEM file with the authorities to trust, instead of those of the system.
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// A PEM file with a certificate to present.
    #[arg(long, global = true, value_name = "FILE", requires = "ca", requires = "key")]
    cert: Option<PathBuf>,
    /// A PEM file with the private key of the certificate.
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The name that certificates of servers must be for, if not the host of the address.
    #[arg(long, global = true, value_name = "NAME")]
    server_name: Option<String>,
    /// How long one command may take, in seconds.
    #[arg(long, global = true, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    timeout: Duration,
}

impl ServerArgs {
    fn client_options(&self) -> Result<RedisClientOptions, CliError> {
        let url = self.url.as_deref().ok_or("where is Redis? --url or BELLWETHER_REDIS_URL")?;
        self.client_options_at(url)
    }

    fn client_options_at(&self, url: &str) -> Result<RedisClientOptions, CliError> {
        let namespace = self.namespace.as_deref();
        let namespace = namespace.ok_or("which namespace? --namespace or BELLWETHER_NAMESPACE")?;
        let mut options = RedisClientOptions::new(url, namespace)?.timeout(self.timeout);
        if let Some(file) = &self.password_file {
            options = options.credentials(credentials(self.user.clone(), file.clone()));
        }
        if self.ca.is_some() || self.server_name.is_some() {
            let tls = match (&self.ca, &self.cert, &self.key) {
                (Some(ca), Some(cert), Some(key)) => RedisTls::files(ca, cert, key),
                (Some(ca), ..) => RedisTls::ca_file(ca),
                _ => RedisTls::default(),
            };
            options = options.tls(match &self.server_name {
                Some(name) => tls.server_name(name),
                None => tls,
            });
        }
        options.wrong.result()?;
        Ok(options)
    }

    /// The options of a store, as a program has them.
    pub(crate) fn options(&self) -> Result<RedisOptions, CliError> {
        Ok(self.client_options()?.into())
    }

    /// The store of the namespace.
    pub(crate) fn store(&self) -> Result<RedisStore, CliError> {
        Ok(self.options()?.connect_lazily()?)
    }

    /// As [`store`](Self::store), at another address.
    pub(crate) fn store_at(&self, url: &str) -> Result<RedisStore, CliError> {
        Ok(RedisOptions::from(self.client_options_at(url)?).connect_lazily()?)
    }

    /// A client for commands to each node, which is connected.
    pub(crate) async fn client(&self, setup: ClientSetup) -> Result<RedisClient, CliError> {
        let client = RedisClient::new(self.client_options()?, setup)?;
        client.connecting(client.connect()).await?;
        Ok(client)
    }
}

/// A password in a file, which is read for each connection.
fn credentials(user: String, file: PathBuf) -> impl CredentialsProvider {
    move || {
        let (user, file) = (user.clone(), file.clone());
        async move {
            let read = tokio::fs::read_to_string(&file).await;
            let password = read.map_err(|error| format!("{}: {error}", file.display()))?;
            Ok(RedisCredentials::new(user, password.trim()))
        }
    }
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "a number of seconds is needed".to_owned())?;
    let time = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if time > YEAR { Err("at most 366 days".to_owned()) } else { Ok(time) }
}

/// The longest lifetime.
const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);
