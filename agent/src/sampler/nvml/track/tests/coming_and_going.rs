//! GPUs, instances, events and the driver itself that come and go.
//!
//! Owns: these cases. Refuses: what single values become.

use super::*;

#[test]
fn names_stay_when_indices_move() {
    let mut tracker = tracker();
    let row = |gpu: &str, uuid: &str, away| (gpu.to_owned(), uuid.to_owned(), away);
    tracker.sweep(&sweep(vec![
        there(0, reading("GPU-a", 0.0)),
        there(1, reading("GPU-b", 0.0)),
    ]));
    // The first is taken out, so the second is the first now.
    tracker.sweep(&sweep(vec![there(0, reading("GPU-b", 1.0))]));
    assert_eq!(
        names(&tracker.view()),
        [row("0", "GPU-a", Some(Fault::Lost)), row("1", "GPU-b", None)]
    );
    // Another is put in.
    tracker.sweep(&sweep(vec![
        there(0, reading("GPU-c", 2.0)),
        there(1, reading("GPU-b", 2.0)),
    ]));
    assert_eq!(
        names(&tracker.view()),
        [
            row("0", "GPU-c", None),
            row("0", "GPU-a", Some(Fault::Lost)),
            row("1", "GPU-b", None)
        ]
    );
    // The first comes back while the other has its name.
    tracker.sweep(&sweep(vec![
        there(0, reading("GPU-a", 3.0)),
        there(1, reading("GPU-b", 3.0)),
        there(2, reading("GPU-c", 3.0)),
    ]));
    let of: Vec<_> = names(&tracker.view())
        .into_iter()
        .map(|(gpu, _, away)| (gpu, away))
        .collect();
    assert_eq!(of.len(), 3);
    assert!(of.iter().all(|(_, away)| away.is_none()));
}

#[test]
fn instances_come_and_go_with_their_split() {
    let mut tracker = tracker();
    let instance = |uuid: &str, index, s| {
        let mut reading = reading(uuid, s);
        reading.identity.parent = Some("GPU-a".into());
        DeviceRead {
            slot: Slot {
                gpu: 0,
                mig: Some(index),
            },
            reading: Ok(Box::new(reading)),
        }
    };
    let told = tracker.sweep(&sweep(vec![
        there(0, reading("GPU-a", 0.0)),
        instance("MIG-1", 0, 0.0),
        instance("MIG-2", 3, 0.0),
    ]));
    assert_eq!(told[1].1.parent.as_deref(), Some("GPU-a"));
    let of: Vec<String> = names(&tracker.view())
        .into_iter()
        .map(|(gpu, _, _)| gpu)
        .collect();
    assert_eq!(of, ["0", "0:0", "0:3"]);
    // One is destroyed: that is no loss.
    tracker.sweep(&sweep(vec![
        there(0, reading("GPU-a", 1.0)),
        instance("MIG-2", 3, 1.0),
    ]));
    let of: Vec<String> = names(&tracker.view())
        .into_iter()
        .map(|(gpu, _, _)| gpu)
        .collect();
    assert_eq!(
        (of, tracker.take_troubles()),
        (vec!["0".to_owned(), "0:3".to_owned()], vec![])
    );
    // The whole GPU is lost, and the instance with it: one trouble.
    tracker.sweep(&sweep(vec![lost(0, Fault::Lost)]));
    assert!(
        tracker
            .view()
            .gpus
            .iter()
            .all(|gpu| gpu.away == Some(Fault::Lost))
    );
    assert_eq!(tracker.take_troubles().len(), 1);
}

#[test]
fn each_xid_counts_once_and_numbers_are_capped() {
    let mut tracker = tracker();
    tracker.sweep(&sweep(vec![there(0, reading("GPU-a", 0.0))]));
    let xid = |uuid: &str, xid| Xid {
        uuid: uuid.into(),
        xid,
    };
    for number in [79, 13, 79] {
        tracker.xid(&xid("GPU-a", number));
    }
    assert_eq!(tracker.view().gpus[0].xids, [(13, 1), (79, 2)]);
    assert_eq!(tracker.take_troubles().len(), 2, "once a number");
    for number in 1000..1100 {
        tracker.xid(&xid("GPU-a", number));
    }
    tracker.xid(&xid("GPU-nobody", 1));
    let view = tracker.view();
    assert_eq!(view.gpus[0].xids.len(), 65);
    assert_eq!(view.gpus[0].xids.last(), Some(&(OTHER_XID, 38)));
    assert_eq!((view.xid_overflow, view.faults), (38, vec![(Fault::Unknown, 1)]));
    assert_eq!(
        (xid_label(OTHER_XID), xid_label(79)),
        ("other".to_owned(), "79".to_owned())
    );
}

#[test]
fn a_driver_that_hangs_takes_all_away_and_gives_them_back() {
    let mut tracker = tracker();
    tracker.sweep(&sweep(vec![there(0, reading("GPU-a", 0.0))]));
    tracker.closed(NvmlState::Down("hangs".into()), Fault::Hung);
    let view = tracker.view();
    assert_eq!(
        (view.state, view.gpus[0].away),
        (NvmlState::Down("hangs".into()), Some(Fault::Hung))
    );
    let told = tracker.sweep(&sweep(vec![there(0, reading("GPU-a", 60.0))]));
    assert_eq!((told[0].1.since, tracker.view().state), (None, NvmlState::Up));
}

#[test]
fn known_gpus_are_bounded() {
    let mut tracker = tracker();
    for round in 0..2 {
        let devices = (0..MAX_KNOWN as u32 + 10)
            .map(|gpu| there(gpu, reading(&format!("GPU-{round}-{gpu}"), f64::from(round))));
        tracker.sweep(&sweep(devices.collect()));
        assert!(tracker.view().gpus.len() <= MAX_KNOWN);
    }
}
