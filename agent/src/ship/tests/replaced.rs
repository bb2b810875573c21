//! Destinations that change or go while there is something for them.

use super::*;
use crate::config::Config;

fn add(outlets: &Outlets, answer: Option<Verdict>) -> Arc<Outlet> {
    let fake = Fake {
        answers: Mutex::new(vec![answer]),
        encoded: Arc::default(),
        got: Arc::default(),
    };
    outlets.add(fake, LIMITS, Duration::from_millis(50))
}

fn counted(outlets: &Outlets, outcome: Outcome) -> u64 {
    outlets
        .totals()
        .iter()
        .map(|total| total.counts[outcome as usize])
        .sum()
}

#[tokio::test]
async fn what_is_removed_while_it_waits_for_the_one_before_still_sends() {
    let fake = running(vec![None]);
    offer(&fake.outlets, 0..4);
    add(&fake.outlets, Some(Verdict::ACCEPTED));
    offer(&fake.outlets, 4..8);
    // Its time to send the rest goes on when that of the one before is over.
    tokio::time::sleep(Duration::from_secs(2)).await;
    fake.outlets.remove("fake");
    until("an end", || fake.outlets.totals()[0].waiting.0 == 0).await;
    assert_eq!(counted(&fake.outlets, Outcome::Sent), 8);
    assert_eq!(counted(&fake.outlets, Outcome::Shutdown), 0);
}

#[tokio::test]
async fn what_is_replaced_twice_leaves_all_to_the_last() {
    let fake = running(vec![None]);
    offer(&fake.outlets, 0..3);
    add(&fake.outlets, None);
    offer(&fake.outlets, 3..6);
    add(&fake.outlets, Some(Verdict::ACCEPTED));
    offer(&fake.outlets, 6..9);
    until("all", || counted(&fake.outlets, Outcome::Sent) == 9).await;
    assert_eq!(fake.outlets.totals()[0].waiting, (0, 0));
}

#[tokio::test]
async fn at_the_end_the_new_one_does_not_wait_for_the_one_before() {
    let fake = running(vec![None]);
    offer(&fake.outlets, 0..4);
    until("an attempt", || fake.encoded.load(SeqCst) == 1).await;
    add(&fake.outlets, Some(Verdict::ACCEPTED));
    offer(&fake.outlets, 4..8);
    fake.outlets.finish(Duration::from_secs(2)).await;
    assert_eq!(counted(&fake.outlets, Outcome::Sent), 8);
    assert_eq!(counted(&fake.outlets, Outcome::Shutdown), 0);
}

#[tokio::test]
async fn it_is_told_before_that_a_destination_goes() {
    let (outlets, mut config) = (Outlets::default(), Config::default());
    assert!(!outlets.loses(&config));
    config.otlp.endpoint = "http://127.0.0.1:9".to_owned();
    outlets.configure(&config).expect("it can be used");
    assert!(!outlets.loses(&config));
    config.otlp.timeout = crate::config::Span::seconds(1);
    assert!(!outlets.loses(&config), "it only changes");
    config.otlp.endpoint = String::new();
    assert!(outlets.loses(&config));
    outlets.finish(Duration::ZERO).await;
}
