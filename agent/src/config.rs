//! Text → Config; unknown keys refused with the nearest known one.
