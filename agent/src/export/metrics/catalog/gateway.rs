//! The metrics of gateways.
//!
//! Owns: their words. Refuses: values (the core's `gateway`).

use super::{Definition, Kind};

catalog! {
    /// Of what passes requests on to engines.
    pub(crate) const GATEWAYS;
    GATEWAY_REQUESTS: Counter "llm_gateway_requests_total" ["gateway", "status", "engine"]
        "Inference requests that a gateway on this host served, by how they ended towards the client. They are in no other llm_ metric: the engine's requests are. engine is joined (the request of an engine here that was for it is known), none (no engine here had one: the gateway refused or failed by itself, or an engine elsewhere answered), or ambiguous (nothing told apart which of several it was)."
        source "The gateway's sockets."
        absent "Without a gateway that was found.";
    GATEWAY_SECONDS: Histogram "llm_gateway_seconds" ["gateway", "phase"]
        "Time that requests spent on the way through a gateway. phase is before (from their arrival at the gateway to that at the engine) or after (from the engine's last byte to the gateway's)."
        source "The sockets of both."
        absent "Without requests that were joined with a gateway's.";
}
