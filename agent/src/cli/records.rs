//! Flags of the commands that show records of requests.
//!
//! Owns: their names and help texts. Refuses: doing anything.

use crate::config::Span;
use clap::{Args, ValueHint, builder::PossibleValuesParser};
use infertap_core::{Status, client::Network, sampling::Rule};
use std::path::PathBuf;

/// `infertap requests`.
#[derive(Debug, Clone, Default, Args)]
pub struct RequestsArgs {
    /// Only slow ones; with --errors, either.
    #[arg(long)]
    pub slow: bool,
    /// Only those that failed, were refused or timed out; with --slow, either.
    #[arg(long)]
    pub errors: bool,
    /// Only those of this model.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Only those of this scene.
    #[arg(long, value_name = "SCENE")]
    pub scene: Option<String>,
    /// Only those of this engine.
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<String>,
    /// Only those from this address, or from this network as in 10.1.0.0/16.
    #[arg(long, value_name = "ADDRESS")]
    pub client: Option<Network>,
    /// Only those with this outcome.
    #[arg(long, value_name = "STATUS", value_parser = PossibleValuesParser::new(Status::ALL.map(Status::as_str)))]
    pub status: Option<String>,
    /// Only those that this rule kept.
    #[arg(long, value_name = "RULE", value_parser = PossibleValuesParser::new(Rule::ALL.map(Rule::as_str)))]
    pub rule: Option<String>,
    /// Only those of this trace.
    #[arg(long, value_name = "TRACE")]
    pub trace: Option<String>,
    /// Only those that ended within this time, as in 10m or 2d.
    #[arg(long, value_name = "TIME")]
    pub since: Option<Span>,
    /// The newest so many.
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub limit: usize,
    /// Go on and print those that are kept from now on, the oldest first; with --json, one a line.
    #[arg(long, short)]
    pub follow: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Configuration file [default: /etc/infertap/infertap.toml where it exists].
    #[arg(long, value_name = "FILE", env = "INFERTAP_CONFIG", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
}

/// `infertap show`.
#[derive(Debug, Clone, Default, Args)]
pub struct ShowArgs {
    /// The request: its id or the first digits of it, its trace id, or its response's id.
    pub id: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Configuration file [default: /etc/infertap/infertap.toml where it exists].
    #[arg(long, value_name = "FILE", env = "INFERTAP_CONFIG", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
}
