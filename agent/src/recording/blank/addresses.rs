//! Stand-ins for clients' addresses: who sent what may be personal, but that two requests came from one client is worth
//! keeping.
//!
//! Owns: one stand-in for each address of a recording, of ranges that no host has. Refuses: addresses of this host alone
//! (loopback), which name nobody.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses that are told apart; all later ones share the first stand-in.
const MOST: u32 = 65_536;

/// Stand-ins in the order in which their addresses came.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    known: HashMap<IpAddr, u32>,
}

impl Addresses {
    /// Replaces an address in the form of IPv6, in place. What is none becomes zeros.
    pub(super) fn blank(&mut self, payload: &mut [u8]) {
        let Ok(address) = <[u8; 16]>::try_from(&*payload) else {
            payload.fill(0);
            return;
        };
        let address = IpAddr::from(address).to_canonical();
        if address.is_loopback() {
            return;
        }
        let next = self.known.len() as u32 + 1;
        let number = match self.known.get(&address) {
            Some(number) => *number,
            None if next > MOST => 0,
            None => *self.known.entry(address).or_insert(next),
        };
        payload.copy_from_slice(&stand_in(address, number));
    }
}

/// IPv4: of the range for benchmarks (RFC 2544). IPv6: of the range for documentation (RFC 3849).
fn stand_in(address: IpAddr, number: u32) -> [u8; 16] {
    let address = match address {
        IpAddr::V4(_) => {
            Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + number).to_ipv6_mapped()
        }
        IpAddr::V6(_) => {
            Ipv6Addr::from_bits(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0).to_bits() + u128::from(number))
        }
    };
    address.octets()
}

#[cfg(test)]
mod tests {
    use super::super::Blanker;
    use super::*;
    use infertap_abi::{RecordHeader, RecordKind};
    use infertap_core::{Event, EventKind};

    fn blanked(addresses: &mut Addresses, address: &str) -> String {
        let mut bytes = match address.parse().unwrap() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        }
        .octets();
        addresses.blank(&mut bytes);
        IpAddr::from(bytes).to_canonical().to_string()
    }

    #[test]
    fn each_address_has_one_stand_in_of_its_own() {
        let mut addresses = Addresses::default();
        for (address, expected) in [
            ("203.0.113.9", "198.18.0.1"),
            ("203.0.113.10", "198.18.0.2"),
            ("203.0.113.9", "198.18.0.1"),
            ("2a00:1450::1", "2001:db8::3"),
            ("2a00:1450::2", "2001:db8::4"),
            ("2a00:1450::1", "2001:db8::3"),
            ("198.18.0.1", "198.18.0.5"),
            ("127.0.0.2", "127.0.0.2"),
            ("::1", "::1"),
        ] {
            assert_eq!(blanked(&mut addresses, address), expected, "{address}");
        }
    }

    #[test]
    fn past_the_bound_addresses_are_not_told_apart() {
        let mut addresses = Addresses::default();
        for number in 0..MOST {
            blanked(
                &mut addresses,
                &Ipv4Addr::from_bits(0x0a00_0000 + number).to_string(),
            );
        }
        assert_eq!(blanked(&mut addresses, "10.0.0.0"), "198.18.0.1");
        assert_eq!(blanked(&mut addresses, "10.0.255.255"), "198.19.0.0");
        assert_eq!(blanked(&mut addresses, "203.0.113.9"), "198.18.0.0");
        assert_eq!(blanked(&mut addresses, "2a00:1450::1"), "2001:db8::");
        assert_eq!(addresses.known.len(), MOST as usize);
    }

    #[test]
    fn a_record_of_the_other_end_keeps_all_but_its_address() {
        let header = RecordHeader {
            ts_ns: 7,
            conn_id: 9,
            kind: RecordKind::Peer as u16,
            captured: 16,
            len: 16,
            ..Default::default()
        };
        let address = Ipv4Addr::new(203, 0, 113, 9).to_ipv6_mapped().octets();
        let mut record = [&header.to_bytes()[..], &address].concat();
        Blanker::new().blank(&mut record);
        assert_eq!(RecordHeader::read(&record), Some(header));
        let Ok(Event {
            kind: EventKind::Peer { address, .. },
            ..
        }) = Event::decode(&record)
        else {
            panic!("it is what it was");
        };
        assert_eq!(address.to_string(), "198.18.0.1");
    }

    #[test]
    fn what_is_no_address_is_blanked() {
        let mut bytes = [7; 15];
        Addresses::default().blank(&mut bytes);
        assert_eq!(bytes, [0; 15]);
    }
}
