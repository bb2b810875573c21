//! Which pod an address is of.
//!
//! Owns: cases of addresses that are used again, and the map's bound. Refuses: what requests make of it (`scene`).

use super::*;
use proptest::prelude::*;

fn state(name: &str, address: &str, started: i64) -> PodState {
    PodState {
        pod: Pod {
            namespace: "ns".into(),
            name: name.into(),
            workload: None,
            labels: Vec::new(),
        },
        addresses: address.split_whitespace().map(|a| a.parse().unwrap()).collect(),
        started,
        host_network: false,
        finished: false,
    }
}

fn present(state: PodState) -> PodChange {
    PodChange::Present { source: 0, state }
}

fn gone(name: &str) -> PodChange {
    PodChange::Gone {
        namespace: "ns".into(),
        name: name.into(),
    }
}

fn after(changes: &[PodChange]) -> Pods {
    let mut pods = Pods::new(100);
    changes.iter().for_each(|change| pods.apply(change));
    pods
}

fn of(pods: &Pods, address: &str) -> Option<String> {
    let pod = pods.of(address.parse().unwrap())?;
    Some(pod.name.to_string())
}

#[test]
fn the_pod_that_started_last_and_has_not_ended_has_the_address() {
    let a = || present(state("a", "10.0.0.1", 100));
    let b = || present(state("b", "10.0.0.1", 200));
    let finished = |name: &str, started: i64| {
        present(PodState {
            finished: true,
            ..state(name, "10.0.0.1", started)
        })
    };
    let on_host = || {
        present(PodState {
            host_network: true,
            ..state("b", "10.0.0.1", 200)
        })
    };
    for (changes, expected) in [
        (vec![], None),
        (vec![a()], Some("a")),
        (vec![a(), b()], Some("b")),
        (vec![b(), a()], Some("b")),
        (vec![b(), a(), gone("b")], Some("a")),
        (vec![a(), b(), gone("a")], Some("b")),
        (vec![a(), gone("a")], None),
        (vec![gone("a")], None),
        (vec![a(), finished("a", 100)], None),
        (vec![finished("a", 100), a()], Some("a")),
        (vec![a(), b(), finished("b", 200)], Some("a")),
        (vec![on_host()], None),
        (vec![a(), on_host()], Some("a")),
        (vec![a(), present(state("a", "10.0.0.2", 100))], None),
        (vec![a(), present(state("a", "", 100))], None),
        (vec![a(), present(state("c", "10.0.0.1", 100))], Some("c")),
        (vec![present(state("", "10.0.0.1", 1))], None),
        (vec![present(state("a\nb", "10.0.0.1", 1))], None),
        (vec![present(state(&"a".repeat(254), "10.0.0.1", 1))], None),
    ] {
        let pods = after(&changes);
        assert_eq!(of(&pods, "10.0.0.1").as_deref(), expected, "{changes:?}");
    }
}

#[test]
fn a_pod_is_known_by_all_its_addresses_in_either_form() {
    let pods = after(&[present(state("a", "10.0.0.1 2001:db8::1 ::ffff:10.0.0.1", 1))]);
    for address in ["10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1"] {
        assert_eq!(of(&pods, address).as_deref(), Some("a"), "{address}");
    }
    assert_eq!(of(&pods, "2001:db8::2"), None);
}

#[test]
fn what_a_list_does_not_tell_is_gone_at_its_end() {
    let other = |name: &str, address: &str| PodChange::Present {
        source: 1,
        state: state(name, address, 1),
    };
    let mut pods = after(&[
        present(state("a", "10.0.0.1", 1)),
        present(state("b", "10.0.0.2", 1)),
        other("c", "10.0.0.3"),
        PodChange::ListBegins { source: 0 },
        present(state("b", "10.0.0.2", 1)),
    ]);
    assert_eq!(
        of(&pods, "10.0.0.1").as_deref(),
        Some("a"),
        "until the list is over"
    );
    pods.apply(&PodChange::ListEnds { source: 0 });
    let found = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|address| of(&pods, address));
    assert_eq!(found, [None, Some("b".into()), Some("c".into())]);
    // A list that is begun again after it broke off.
    for change in [
        PodChange::ListBegins { source: 0 },
        present(state("b", "10.0.0.2", 1)),
        PodChange::ListBegins { source: 0 },
        PodChange::ListEnds { source: 0 },
        PodChange::ListEnds { source: 0 },
    ] {
        pods.apply(&change);
    }
    assert_eq!(of(&pods, "10.0.0.2"), None);
    pods.apply(&gone("c"));
    assert_eq!(of(&pods, "10.0.0.3"), None);
    assert_eq!(pods.stats(), PodStats::default());
    assert_eq!(pods.bytes(), 0);
}

#[test]
fn pods_past_the_bound_are_refused_and_counted() {
    let mut pods = Pods::new(2);
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        pods.apply(&present(state(name, &format!("10.0.0.{n}"), 1)));
    }
    assert_eq!(pods.stats(), PodStats { pods: 2, refused: 1 });
    assert_eq!(of(&pods, "10.0.0.2"), None);
    // One that is known may change; one that needs no place takes none.
    pods.apply(&present(state("b", "10.0.0.9", 1)));
    pods.apply(&present(state("d", "", 1)));
    assert_eq!(pods.stats(), PodStats { pods: 2, refused: 1 });
    pods.apply(&gone("a"));
    pods.apply(&present(state("c", "10.0.0.2", 1)));
    assert_eq!(of(&pods, "10.0.0.2").as_deref(), Some("c"));
}

#[test]
fn pods_that_a_list_will_drop_take_no_place() {
    let mut pods = Pods::new(2);
    let mut tell = |changes: Vec<PodChange>| {
        changes.iter().for_each(|change| pods.apply(change));
        let found = (1..=6)
            .filter_map(|n| of(&pods, &format!("10.0.0.{n}")))
            .collect::<Vec<_>>();
        assert_eq!(pods.stats().pods, found.len());
        (found.concat(), pods.stats().refused)
    };
    let told = |n: u8| {
        present(state(
            &char::from(b'a' + n - 1).to_string(),
            &format!("10.0.0.{n}"),
            1,
        ))
    };
    let begins = || PodChange::ListBegins { source: 0 };
    let ends = || PodChange::ListEnds { source: 0 };
    assert_eq!(tell(vec![told(1), told(2)]), ("ab".into(), 0));
    assert_eq!(tell(vec![begins(), told(3), told(4)]), ("abcd".into(), 0));
    assert_eq!(tell(vec![told(5)]), ("abcd".into(), 1), "as many as there may be");
    // The list breaks off; what neither it nor the next told so far is kept while there is room.
    assert_eq!(tell(vec![begins()]), ("cd".into(), 1));
    assert_eq!(tell(vec![told(5), gone("e"), told(6)]), ("cdf".into(), 1));
    assert_eq!(tell(vec![told(4)]), ("cdf".into(), 1));
    assert_eq!(tell(vec![ends()]), ("df".into(), 1));
    assert_eq!(tell(vec![told(1)]), ("df".into(), 2));
    assert_eq!(tell(vec![begins(), gone("f"), told(1), ends()]), ("a".into(), 2));
    assert_eq!((pods.stale, pods.known.len()), (0, 1));
}

proptest! {
    /// Whatever lists are begun and broken off, there are no more than the bound allows, and at the end of all lists no more
    /// than the bound.
    #[test]
    fn the_bound_holds_during_lists(steps in prop::collection::vec((0u8..8, 0u16..2, 0u8..12), 0..80)) {
        let mut pods = Pods::new(3);
        for (what, source, n) in steps {
            let name = format!("p{n}");
            pods.apply(&match what {
                0 => gone(&name),
                1 => PodChange::ListBegins { source },
                2 => PodChange::ListEnds { source },
                _ => PodChange::Present { source, state: state(&name, &format!("10.0.0.{n}"), 1) },
            });
            let stale = pods.known.values().filter(|known| known.stale).count();
            prop_assert_eq!(pods.stale, stale);
            prop_assert!(stale <= 3 && pods.known.len() - stale <= 3);
        }
        for source in 0..2 {
            pods.apply(&PodChange::ListEnds { source });
        }
        prop_assert!(pods.stale == 0 && pods.known.len() <= 3);
    }

    /// Whatever is told, the map says what a plain search over the last states says, and holds nothing else.
    #[test]
    fn the_map_is_what_a_search_finds(
        steps in prop::collection::vec((0u8..6, 0u8..4, 0i64..4, any::<bool>(), 0u8..8), 0..60),
    ) {
        let mut pods = Pods::new(100);
        let mut last: Vec<(String, PodState)> = Vec::new();
        for (name, address, started, finished, what) in steps {
            let name = format!("p{name}");
            last.retain(|(known, _)| *known != name);
            if what == 0 {
                pods.apply(&gone(&name));
                continue;
            }
            let state = PodState { finished, ..state(&name, &format!("10.0.0.{address}"), started) };
            pods.apply(&present(state.clone()));
            last.push((name, state));
        }
        for address in 0..4 {
            let address = format!("10.0.0.{address}");
            let ip: IpAddr = address.parse().unwrap();
            let holds = |state: &PodState| !state.finished && state.addresses.contains(&ip);
            // The last of those that started at the same time is the last that was told.
            let expected = last.iter().filter(|(_, state)| holds(state)).max_by_key(|(_, state)| state.started);
            prop_assert_eq!(of(&pods, &address), expected.map(|(name, _)| name.clone()));
        }
        prop_assert_eq!(pods.stats().pods, last.iter().filter(|(_, state)| !state.finished).count());
        for (name, _) in &last {
            pods.apply(&gone(name));
        }
        prop_assert_eq!((pods.bytes(), pods.by_address.len(), pods.known.len()), (0, 0, 0));
    }
}
