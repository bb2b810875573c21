//! The rules' names, and sets of them.
//!
//! Owns: their list, in the order of labels. Refuses: when they match.

use std::fmt;

/// Why a record is kept. `rule` label of `infertap_records_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// Its first token came late.
    SlowTtft,
    /// The P99 of its gaps between tokens was long.
    SlowItl,
    /// It took long.
    SlowE2e,
    /// The server refused it.
    ClientError,
    /// The server failed it.
    ServerError,
    /// It was given up as nothing came any more.
    Timeout,
    /// The client went away.
    Cancelled,
    /// It came near its model's context limit.
    NearContextLimit,
    /// A budget of its scene was used up when it ended.
    OverBudget,
    /// It stood still for the prompts of others.
    Interference,
    /// None of these: one of the share that is kept to compare with.
    Head,
}

impl Rule {
    /// Every rule, in declaration order.
    pub const ALL: [Rule; 11] = [
        Rule::SlowTtft,
        Rule::SlowItl,
        Rule::SlowE2e,
        Rule::ClientError,
        Rule::ServerError,
        Rule::Timeout,
        Rule::Cancelled,
        Rule::NearContextLimit,
        Rule::OverBudget,
        Rule::Interference,
        Rule::Head,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Rule::SlowTtft => "slow_ttft",
            Rule::SlowItl => "slow_itl",
            Rule::SlowE2e => "slow_e2e",
            Rule::ClientError => "client_error",
            Rule::ServerError => "server_error",
            Rule::Timeout => "timeout",
            Rule::Cancelled => "cancelled",
            Rule::NearContextLimit => "near_context_limit",
            Rule::OverBudget => "over_budget",
            Rule::Interference => "interference",
            Rule::Head => "head",
        }
    }
}

/// A set of rules.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Rules(u16);

impl Rules {
    /// Adds one.
    pub fn insert(&mut self, rule: Rule) {
        self.0 |= 1 << rule as u16;
    }

    /// Has this one.
    pub fn contains(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u16) != 0
    }

    /// Has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in it, in declaration order.
    pub fn iter(self) -> impl Iterator<Item = Rule> {
        Rule::ALL.into_iter().filter(move |rule| self.contains(*rule))
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Rules {
        let mut set = Rules::default();
        rules.into_iter().for_each(|rule| set.insert(rule));
        set
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
