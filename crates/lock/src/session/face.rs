//! What all locks by sessions have in public: their options, and the contract.

/// Defines the options that all locks by sessions have, on a type with [`SessionSettings`] in its
/// field `settings`. Its arguments are what the docs say of the server.
///
/// [`SessionSettings`]: super::SessionSettings
macro_rules! session_options {
    ($of_session_timeout:literal, $of_connections:literal) => {
        /// Sets the namespace of the keys. Services that share locks share a namespace.
        ///
        /// Default: `default`, so that one service needs no name.
        ///
        /// # Errors
        /// If it is not 1 to 64 of `A-Z a-z 0-9 _ . -`.
        pub fn namespace(self, namespace: &str) -> Result<Self, bellwether::ConfigError> {
            Ok(Self { settings: self.settings.namespace(namespace)?, ..self })
        }

        /// Sets how long the server may take for an answer, and for a connection. The patience of the
        /// caller is added to it.
        ///
        /// Default: 2 s. A connection takes several round trips, and a database that is busy is not
        /// down.
        ///
        /// # Errors
        /// If it is not from 1 ms to 60 s.
        pub fn timeout(
            self,
            timeout: std::time::Duration,
        ) -> Result<Self, bellwether::ConfigError> {
            Ok(Self { settings: self.settings.timeout(timeout)?, ..self })
        }

        /// Sets the session timeout: the server ends a session from which it receives nothing for so
        /// long. The keys of a holder that is stopped, or was killed with its machine, stay locked
        /// until then.
        ///
        /// Default: 6 s. A session sends a request every third of it, and a healthy process does not
        /// pause for two seconds.
        #[doc = $of_session_timeout]
        ///
        /// # Errors
        /// If it is not from 1 s to one hour.
        pub fn session_timeout(
            self,
            timeout: std::time::Duration,
        ) -> Result<Self, bellwether::ConfigError> {
            Ok(Self { settings: self.settings.session(timeout)?, ..self })
        }

        /// Sets how many connections there may be at a time. Every claim has a connection of its own
        /// while it waits or holds. When all are in use, a claim waits for one, for its patience or the
        /// [`timeout`](Self::timeout), whichever is longer. A claim that stops waiting cancels its
        /// statement over one more connection, for a moment.
        ///
        /// Default: 64.
        #[doc = $of_connections]
        ///
        /// # Errors
        /// If it is not from 1 to 10,000.
        pub fn connections(self, connections: usize) -> Result<Self, bellwether::ConfigError> {
            Ok(Self { settings: self.settings.connections(connections)?, ..self })
        }
    };
}

/// Makes a type that has [`Sessions`](super::Sessions) as its only field a lock.
macro_rules! lock_by_sessions {
    ($lock:ident) => {
        impl $crate::Lock for $lock {
            fn watch(&self, key: &bellwether::Key) -> $crate::Watch {
                self.0.watch(key)
            }

            fn acquire(&self, request: $crate::Request) -> $crate::LockFuture<$crate::Attempt> {
                self.0.acquire(request)
            }

            fn renew(
                &self,
                claim: &$crate::Claim,
                _: std::time::Duration,
            ) -> $crate::LockFuture<$crate::Renew> {
                self.0.renew(claim)
            }

            fn release(&self, claim: $crate::Claim) -> $crate::LockFuture<$crate::Released> {
                self.0.release(claim)
            }
        }

        impl $crate::Fenced for $lock {}
    };
}

pub(crate) use {lock_by_sessions, session_options};
