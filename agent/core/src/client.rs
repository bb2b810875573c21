//! Who sent a request: its connection's other end, or whom trusted proxies name.
//!
//! Owns: networks, the list of proxies that are believed, and finding the first hop that is none of them. Refuses:
//! believing a header that anybody may have written, and names in place of addresses.

#[cfg(test)]
mod tests;

use crate::pods::Pod;
use std::{fmt, net::IpAddr, str::FromStr, sync::Arc};

/// Most networks in one list.
pub const MAX_NETWORKS: usize = 1024;
/// The header that proxies are taken to write unless another is named.
pub const DEFAULT_HEADER: &str = "x-forwarded-for";

/// Who sent a request, as far as that is known.
#[derive(Debug, Clone, Default)]
pub struct Client {
    /// The address.
    pub address: Option<IpAddr>,
    /// The pod that had the address when the request came.
    pub pod: Option<Arc<Pod>>,
}

/// Addresses with the same beginning: `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether `address` is in it. An IPv4 address that is mapped into an IPv6 one is an IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let rest = 32 - u32::from(self.bits);
                (own.to_bits() ^ other.to_bits()).checked_shr(rest).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let rest = 128 - u32::from(self.bits);
                (own.to_bits() ^ other.to_bits()).checked_shr(rest).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    /// # Errors
    /// It is no network; says what would be right.
    fn from_str(text: &str) -> Result<Network, String> {
        let text = text.trim();
        let wrong = || {
            format!(
                "{text:?} is no network: write an address, or an address and a length, as in \"10.0.0.0/8\" or \
                 \"2001:db8::/32\""
            )
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        if bits.is_some() && address.to_canonical() != address {
            return Err(format!(
                "{text:?} is an IPv4 network in the form of IPv6: write it as IPv4"
            ));
        }
        let address = address.to_canonical();
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => bits.parse().map_err(|_| wrong())?,
            Some(_) => return Err(wrong()),
            None => most,
        };
        if bits > most {
            return Err(format!("{text:?} has a length of more than {most} bits"));
        }
        let network = Network { address, bits };
        let first = network.first();
        if first != address {
            return Err(format!(
                "{text:?} has bits set past its length: write {first}/{bits}"
            ));
        }
        Ok(network)
    }
}

impl Network {
    fn first(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(own) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4((own.to_bits() & mask).into())
            }
            IpAddr::V6(own) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6((own.to_bits() & mask).into())
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// The proxies whose word is taken for who their client is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxies {
    networks: Vec<Network>,
    /// Lower-case name of the header that they write.
    header: Box<str>,
}

impl Default for Proxies {
    fn default() -> Proxies {
        Proxies {
            networks: Vec::new(),
            header: DEFAULT_HEADER.into(),
        }
    }
}

impl Proxies {
    /// Proxies in these networks, which write their client's address into `header`: `forwarded` (RFC 7239), or a list of
    /// addresses as in `x-forwarded-for`, or one address alone.
    pub fn new(networks: Vec<Network>, header: &str) -> Proxies {
        Proxies {
            networks,
            header: header.to_ascii_lowercase().into(),
        }
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }

    /// Who sent a request: `peer` is the other end of its connection, `headers` are the request's own (lower-case names);
    /// `None` where its head was not seen.
    ///
    /// The client is the nearest hop that is no trusted proxy; where all hops are, the farthest. `None` when that is not
    /// known: a proxy hides it, or names it by something that is no address.
    pub fn client(&self, peer: Option<IpAddr>, headers: Option<&[(String, String)]>) -> Option<IpAddr> {
        let peer = peer?.to_canonical();
        if !self.trusts(peer) {
            return Some(peer);
        }
        let mut client = peer;
        let lines = headers?.iter().rev().filter(|(name, _)| **name == *self.header);
        for (_, line) in lines {
            let hops = match &*self.header {
                "forwarded" => split_outside_quotes(line, b',')?,
                _ => line.split(',').collect(),
            };
            for hop in hops.into_iter().rev().map(str::trim) {
                // An empty element of a list is none (RFC 9110, section 5.6.1).
                if hop.is_empty() {
                    continue;
                }
                let node = match &*self.header {
                    "forwarded" => forwarded_for(hop)?,
                    _ => hop,
                };
                client = node_address(node)?;
                if !self.trusts(client) {
                    return Some(client);
                }
            }
        }
        Some(client)
    }
}

/// The parts between separators that are in no quoted string; `None` where one does not end: a client could so hide what
/// a proxy adds behind it.
fn split_outside_quotes(text: &str, separator: u8) -> Option<Vec<&str>> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if std::mem::take(&mut escaped) => {}
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if byte == separator && !quoted => {
                // Separators are ASCII, so both sides are whole characters.
                parts.extend(text.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(start..));
    (!quoted).then_some(parts)
}

/// The `for` parameter of one element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<&str> {
    split_outside_quotes(element, b';')?.into_iter().find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case("for").then_some(value.trim())
    })
}

/// An address with or without port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`, each
/// with or without quotes.
fn node_address(node: &str) -> Option<IpAddr> {
    let node = match node.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?,
        None => node,
    };
    if let Ok(address) = node.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let (address, port) = match node.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => node.split_at(node.find(':')?),
    };
    let address: IpAddr = address.parse().ok()?;
    let bracketed = node.starts_with('[');
    (address.is_ipv6() == bracketed && is_port(port)).then_some(address.to_canonical())
}

/// Nothing, or a colon and a port, which may be hidden (RFC 7239, section 6.2).
fn is_port(text: &str) -> bool {
    text.is_empty()
        || text.strip_prefix(':').is_some_and(|port| {
            let hidden = port.strip_prefix('_');
            !port.is_empty()
                && hidden.unwrap_or(port).bytes().all(|b| {
                    b.is_ascii_digit()
                        || (hidden.is_some() && (b.is_ascii_alphanumeric() || b"._-".contains(&b)))
                })
        })
}
