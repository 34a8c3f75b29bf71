//! `quipu auth`.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AuthArgs {
    #[command(subcommand)]
    pub(crate) action: Option<AuthAction>,
    /// Print JSON for programs: one object, or one per line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuthAction {
    /// Store a key for a provider; it is read from stdin.
    Set {
        /// The provider, as `quipu auth` calls it.
        provider: String,
        /// Store it beside the provider's other keys, under this name.
        #[arg(long)]
        name: Option<String>,
        /// Keep the key in the keychain of the operating system; auth.json only says how to read it.
        #[arg(long)]
        keychain: bool,
    },
    /// Log in to an account of a provider, in a browser or with a code on another device.
    Login(LoginArgs),
    /// Use the login that another program keeps on this machine; nothing is copied from it.
    Use {
        /// The program, as `quipu auth` calls it.
        agent: String,
        /// The provider, where the program keeps several logins.
        provider: Option<String>,
        /// Accept what the provider restricts without being asked.
        #[arg(long)]
        yes: bool,
    },
    /// Forget a stored key or login of a provider.
    Remove {
        /// The provider or one of its keys (PROVIDER:NAME), as `quipu auth` calls it.
        provider: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// The provider, as `quipu auth` calls it.
    pub(crate) provider: String,
    /// Log in with a code that you enter on another device.
    #[arg(long)]
    pub(crate) device: bool,
    /// Open no browser: the code is pasted on stdin.
    #[arg(long, conflicts_with = "device")]
    pub(crate) no_browser: bool,
    /// The domain of your company's own server.
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
    /// Accept what the provider restricts without being asked.
    #[arg(long)]
    pub(crate) yes: bool,
}
