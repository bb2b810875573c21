//! Sums, growth, caps and the heaviest, whatever comes.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn all_rows_together_are_the_total_and_parts_of_growth_are_the_growth(
        requests in proptest::collection::vec((0u64..7200, 0u8..4, 0u8..6, 0u64..5000, 0u64..500, any::<bool>()), 0..80),
        max_keys in 1usize..8,
    ) {
        let config = LedgerConfig { max_keys, days: 3 };
        let mut ledger = Ledger::new(&config, ContextLimits::default());
        let (mut tokens_in, mut tokens_out, mut ended) = (0, 0, 0);
        for (at, model, scene, input, output, ends) in &requests {
            let (model, scene) = (format!("m{model}"), format!("s{scene}"));
            ledger.apply(T + at, &tokens(&model, &scene, TokenDirection::Input, *input));
            ledger.apply(T + at, &tokens(&model, &scene, TokenDirection::Output, *output));
            if *ends {
                ledger.apply(T + at, &finished("1", &model, &scene, Status::Ok, *input, *output));
            }
            tokens_in += input;
            tokens_out += output;
            ended += u64::from(*ends);
        }
        let now = T + 7200;
        for since in [4 * 3600, 3 * DAY] {
            for by in By::ALL {
                let report = ledger.report(now, since, by);
                let mut sum = Usage::default();
                for row in &report.rows {
                    prop_assert!(sum.add(&row.usage));
                }
                prop_assert_eq!(&sum, &report.total.usage);
                prop_assert_eq!((sum.input_tokens, sum.output_tokens, sum.requests), (tokens_in, tokens_out, ended));
                let ordered = report.rows.array_windows().all(|[a, b]| a.usage.tokens() >= b.usage.tokens());
                prop_assert!(ordered);
            }
        }
        for keys in ledger.hours.sizes().into_iter().chain(ledger.days.sizes()) {
            prop_assert!(keys <= max_keys + max_keys.div_ceil(4) + 1);
        }
        let growth = ledger.growth(now, 1, usize::MAX);
        for by in By::ALL {
            let of = growth.contributions.iter().filter(|one| one.by == by);
            let sum: f64 = of.clone().map(|one| one.tokens.growth).sum();
            prop_assert_eq!(sum, growth.tokens.growth);
            for one in of {
                if let (Some(a), Some(b)) = (one.by_requests, one.by_size) {
                    prop_assert!((a + b - one.tokens.growth).abs() < 1e-6);
                }
            }
        }
        // Stored and taken back, in any order, it is the same.
        let mut rows = ledger.changed(usize::MAX);
        rows.reverse();
        let mut again = Ledger::new(&config, ContextLimits::default());
        prop_assert_eq!(again.restore(now, rows.clone()), rows.len());
        for by in By::ALL {
            prop_assert_eq!(again.report(now, 4 * 3600, by).rows, ledger.report(now, 4 * 3600, by).rows);
        }
    }

    #[test]
    fn the_heaviest_are_exactly_the_heaviest(sizes in proptest::collection::vec(0u64..50, 0..120), limit in 1usize..MAX_HEAVY) {
        let mut ledger = ledger();
        let mut all = Vec::new();
        for (i, size) in sizes.iter().enumerate() {
            let id = format!("{i:04}");
            request(&mut ledger, T + 20 * i as u64, &id, "m", "s", *size, 0);
            if *size > 0 {
                all.push((*size, id));
            }
        }
        all.sort_by(|a, b| b.cmp(a));
        all.truncate(limit);
        let kept = ledger.heaviest(T + 2400, 7200, Order::Tokens, &|_| true, limit);
        let kept: Vec<_> = kept.iter().map(|heavy| (heavy.tokens(), heavy.id.clone())).collect();
        prop_assert_eq!(kept, all);
    }
}
