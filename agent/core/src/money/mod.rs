//! Money: what requests cost, by a price book.
//!
//! Owns: exact amounts, prices, and [`Money`], a stage behind the pipeline that turns told tokens into charges. Refuses:
//! clocks (the day comes in), counting tokens (`tokens`), and limits on what may be spent.

mod amount;
#[cfg(test)]
mod book_tests;
mod charge;
mod gpu;
mod price;
mod stage;
#[cfg(test)]
mod tests;

pub use amount::{Amount, BadCurrency, Currency, MAX_PRICE, Rate};
pub use charge::{Basis, Charge, ChargeKind, Cost};
pub use gpu::{GpuPrice, UNATTRIBUTED};
pub use price::{BadDate, BadPrices, Day, MAX_PRICES, Price, PriceBook, PriceText};
pub use stage::Money;
