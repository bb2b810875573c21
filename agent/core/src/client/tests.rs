//! Tables and properties of who the client is.

use super::*;
use proptest::prelude::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn proxies(networks: &[&str], header: &str) -> Proxies {
    Proxies::new(networks.iter().map(|n| n.parse().unwrap()).collect(), header)
}

#[test]
fn a_network_holds_its_addresses_and_no_others() {
    for (network, address, held) in [
        ("10.0.0.0/8", "10.255.0.1", true),
        ("10.0.0.0/8", "11.0.0.0", false),
        ("10.0.0.0/8", "::ffff:10.1.2.3", true),
        ("192.0.2.7", "192.0.2.7", true),
        ("192.0.2.7", "192.0.2.8", false),
        ("192.0.2.6/31", "192.0.2.7", true),
        ("::ffff:192.0.2.7", "192.0.2.7", true),
        ("0.0.0.0/0", "203.0.113.9", true),
        ("0.0.0.0/0", "2001:db8::1", false),
        ("2001:db8::/32", "2001:db8:ffff::1", true),
        ("2001:db8::/32", "2001:db9::1", false),
        ("::/0", "2001:db8::1", true),
        ("::/0", "203.0.113.9", false),
        ("::1", "::1", true),
    ] {
        let parsed: Network = network.parse().unwrap();
        assert_eq!(parsed.contains(ip(address)), held, "{address} in {network}");
    }
}

#[test]
fn what_is_no_network_is_refused_with_what_would_be_right() {
    for (text, reason) in [
        ("", "is no network"),
        ("localhost", "is no network"),
        ("10.0.0.0/", "is no network"),
        ("10.0.0.0/+8", "is no network"),
        ("10.0.0.0/999", "is no network"),
        ("10.0.0.0/33", "more than 32 bits"),
        ("::/129", "more than 128 bits"),
        ("10.1.0.0/8", "write 10.0.0.0/8"),
        ("2001:db8::1/32", "write 2001:db8::/32"),
        ("::ffff:10.0.0.0/104", "write it as IPv4"),
    ] {
        let error = text.parse::<Network>().unwrap_err();
        assert!(error.contains(reason), "{text:?}: {error}");
    }
}

#[test]
fn the_nearest_hop_that_is_no_trusted_proxy_is_the_client() {
    let trusted = ["10.0.0.0/8", "2001:db8:a::/48"];
    for (header, peer, lines, client) in [
        // Nobody else is believed.
        (
            "x-forwarded-for",
            "192.0.2.1",
            vec!["203.0.113.9"],
            Some("192.0.2.1"),
        ),
        (
            "x-forwarded-for",
            "10.0.0.1",
            vec!["203.0.113.9"],
            Some("203.0.113.9"),
        ),
        (
            "x-forwarded-for",
            "::ffff:10.0.0.1",
            vec!["203.0.113.9"],
            Some("203.0.113.9"),
        ),
        // What the client wrote itself comes before what the proxies added.
        (
            "x-forwarded-for",
            "10.0.0.1",
            vec!["1.1.1.1, 203.0.113.9, 10.0.0.2"],
            Some("203.0.113.9"),
        ),
        (
            "x-forwarded-for",
            "10.0.0.1",
            vec!["1.1.1.1", "203.0.113.9", "10.0.0.2"],
            Some("203.0.113.9"),
        ),
        (
            "x-forwarded-for",
            "10.0.0.1",
            vec!["10.0.0.3,10.0.0.2"],
            Some("10.0.0.3"),
        ),
        ("x-forwarded-for", "10.0.0.1", vec![], Some("10.0.0.1")),
        (
            "x-forwarded-for",
            "10.0.0.1",
            vec![" , 203.0.113.9 ,, "],
            Some("203.0.113.9"),
        ),
        (
            "x-forwarded-for",
            "10.0.0.1",
            vec!["203.0.113.9:4711"],
            Some("203.0.113.9"),
        ),
        (
            "x-forwarded-for",
            "10.0.0.1",
            vec!["[2001:db8::1]:4711"],
            Some("2001:db8::1"),
        ),
        (
            "x-forwarded-for",
            "10.0.0.1",
            vec!["2001:db8::1"],
            Some("2001:db8::1"),
        ),
        (
            "x-forwarded-for",
            "10.0.0.1",
            vec!["::ffff:203.0.113.9"],
            Some("203.0.113.9"),
        ),
        (
            "x-forwarded-for",
            "2001:db8:a::1",
            vec!["203.0.113.9"],
            Some("203.0.113.9"),
        ),
        // Not known: never a guess.
        ("x-forwarded-for", "10.0.0.1", vec!["203.0.113.9, unknown"], None),
        ("x-forwarded-for", "10.0.0.1", vec!["203.0.113.9 x"], None),
        ("x-forwarded-for", "10.0.0.1", vec!["203.0.113.9:"], None),
        ("x-forwarded-for", "10.0.0.1", vec!["[203.0.113.9]"], None),
        ("x-forwarded-for", "10.0.0.1", vec!["example.com"], None),
        (
            "forwarded",
            "10.0.0.1",
            vec!["for=203.0.113.9"],
            Some("203.0.113.9"),
        ),
        (
            "forwarded",
            "10.0.0.1",
            vec!["For=\"[2001:db8::1]:4711\";proto=https"],
            Some("2001:db8::1"),
        ),
        (
            "forwarded",
            "10.0.0.1",
            vec!["proto=http; for=\"203.0.113.9:_p1\" ;by=\"a,b\""],
            Some("203.0.113.9"),
        ),
        (
            "forwarded",
            "10.0.0.1",
            vec!["for=1.1.1.1, for=203.0.113.9;host=a, for=10.0.0.2"],
            Some("203.0.113.9"),
        ),
        (
            "forwarded",
            "10.0.0.1",
            vec!["by=\"x\\\", for=1.1.1.1\", for=203.0.113.9"],
            Some("203.0.113.9"),
        ),
        (
            "forwarded",
            "10.0.0.1",
            vec!["for=1.1.1.1;by=\"", "for=203.0.113.9"],
            Some("203.0.113.9"),
        ),
        // A string that the client left open.
        (
            "forwarded",
            "10.0.0.1",
            vec!["for=1.1.1.1;by=\", for=203.0.113.9"],
            None,
        ),
        (
            "forwarded",
            "10.0.0.1",
            vec!["for=1.1.1.1;by=\", for=\"[2001:db8::1]\""],
            None,
        ),
        ("forwarded", "10.0.0.1", vec!["for=_hidden"], None),
        ("forwarded", "10.0.0.1", vec!["for=unknown"], None),
        ("forwarded", "10.0.0.1", vec!["proto=https"], None),
        ("X-Real-IP", "10.0.0.1", vec!["203.0.113.9"], Some("203.0.113.9")),
    ] {
        let name = header.to_ascii_lowercase();
        let other = if name == "forwarded" {
            "x-forwarded-for"
        } else {
            "forwarded"
        };
        let mut headers = vec![(other.to_owned(), "for=8.8.8.8".to_owned())];
        headers.extend(lines.iter().map(|line| (name.clone(), (*line).to_owned())));
        let found = proxies(&trusted, header).client(Some(ip(peer)), Some(&headers));
        assert_eq!(found, client.map(ip), "{header} {peer} {lines:?}");
    }
}

#[test]
fn a_client_behind_a_proxy_is_not_known_without_the_head() {
    let proxies = proxies(&["10.0.0.0/8"], DEFAULT_HEADER);
    assert_eq!(proxies.client(Some(ip("10.0.0.1")), None), None);
    assert_eq!(proxies.client(Some(ip("192.0.2.1")), None), Some(ip("192.0.2.1")));
    assert_eq!(proxies.client(None, Some(&[])), None, "a Unix socket");
}

proptest! {
    #[test]
    fn nothing_that_a_client_writes_passes_for_another(
        text in "[ ,;=\"\\\\a-f0-9.:\\[\\]]{0,40}|for=1\\.1\\.1\\.1;[a-z]=\"[, a-z=\\\\\"]{0,12}",
        forwarded in any::<bool>(),
    ) {
        let (header, added) = if forwarded {
            ("forwarded", "for=203.0.113.9, for=\"10.0.0.2\"")
        } else {
            (DEFAULT_HEADER, "203.0.113.9, 10.0.0.2")
        };
        let headers = [(header.to_owned(), format!("{text}, {added}"))];
        let found = proxies(&["10.0.0.0/8"], header).client(Some(ip("10.0.0.1")), Some(&headers));
        prop_assert!(found.is_none_or(|found| found == ip("203.0.113.9")), "{found:?} by {text}");
    }

    #[test]
    fn a_network_is_written_as_it_is_read(bits in 0u8..=32, address: u32) {
        let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
        let text = format!("{}/{bits}", std::net::Ipv4Addr::from(address & mask));
        let network: Network = text.parse().unwrap();
        prop_assert_eq!(network.to_string(), text);
        prop_assert!(network.contains(IpAddr::V4(address.into())));
    }
}
