//! Which model a command uses.

use clap::{Args, ValueEnum};

/// Which model.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct ModelArgs {
    /// The provider, as `quipu auth` lists it.
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// The model: its id, `provider/id`, or a part of its name.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) model: Option<String>,
    /// How hard the model thinks.
    #[arg(long, value_enum)]
    pub(crate) thinking: Option<ThinkingArg>,
    /// The key to use, for this run only. Others on this machine may see it in the list of processes.
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// The built-in tools to offer, for this run, such as read,bash,edit,write,grep,find,ls,web_fetch.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(quipu_host::LISTED_TOOLS.iter().copied()))]
    pub(crate) tools: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ThinkingArg {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

impl From<ThinkingArg> for quipu_protocol::Thinking {
    fn from(arg: ThinkingArg) -> Self {
        match arg {
            ThinkingArg::Off => Self::Off,
            ThinkingArg::Minimal => Self::Minimal,
            ThinkingArg::Low => Self::Low,
            ThinkingArg::Medium => Self::Medium,
            ThinkingArg::High => Self::High,
            ThinkingArg::Xhigh => Self::Xhigh,
            ThinkingArg::Max => Self::Max,
        }
    }
}
