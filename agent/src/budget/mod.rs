//! Budgets at the edge: their configuration, keeping what is used of them, and telling it.
//!
//! Owns: the section, the thread, the command. Refuses: what counts towards a budget (the core's `budget`).

mod command;
mod config;
mod keeper;

pub use command::budget_command;
pub use config::{BudgetConfig, budgets};
pub use keeper::{Keeper, KeeperThread};

/// An amount for people: whole tokens, money to the cent or to its first digits, thousands apart.
fn amount(value: f64, unit: &str) -> String {
    let decimals = match unit {
        "tokens" => 0,
        _ if value.abs() < 1.0 && value != 0.0 => 6,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests;
