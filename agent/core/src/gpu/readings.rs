//! Whose the time of one GPU was between two readings, and where its energy went.
//!
//! Owns: the division of one reading. Refuses: what engines were doing (`timeline`) and which requests were in their steps
//! (`charge`).
//!
//! Energy has a part that flows always, as much as when the GPU is idle, and a part that flows while it is busy. The first
//! is spread evenly over the time; the second over the steps that ran, by how busy the driver sampled the GPU in that
//! time. While the idle power is not known, all is spread evenly.

use super::{
    share::{GpuState, Unattributed},
    timeline::{Segment, idle},
};
use crate::{Nanos, gpu::BusySample};
use std::collections::BTreeMap;

/// A GPU is at work when it was busy for more than this part of a sampled time.
const BUSY: f64 = 0.05;
/// How much of a new idle power is believed at once.
const LEARN: f64 = 0.3;

/// An engine that uses the GPU.
#[derive(Debug)]
pub(super) struct User<'a> {
    /// Its share of the multiprocessors' time, where the driver tells.
    pub(super) sm: Option<f64>,
    /// What it was doing, in order.
    pub(super) segments: Vec<&'a Segment>,
}

/// One reading of one GPU.
#[derive(Debug)]
pub(super) struct Period<'a> {
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    pub(super) joules: Option<f64>,
    pub(super) busy: &'a [BusySample],
    /// The first sample that ends after this time, which tells of the rest behind the last that ends within it.
    pub(super) next: Option<BusySample>,
    /// Processes of no engine use it too.
    pub(super) strangers: bool,
    /// What it draws when idle, watts, as far as is known.
    pub(super) floor: Option<f64>,
}

/// Seconds and joules.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Amount {
    pub(super) seconds: f64,
    pub(super) joules: f64,
}

impl Amount {
    fn add(&mut self, seconds: f64, joules: f64) {
        self.seconds += seconds;
        self.joules += joules;
    }

    /// There is any of either.
    pub(super) fn is_some(self) -> bool {
        self.seconds > 0.0 || self.joules > 0.0
    }
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, more: Amount) {
        self.add(more.seconds, more.joules);
    }
}

impl std::ops::Mul<f64> for Amount {
    type Output = Amount;

    fn mul(self, by: f64) -> Amount {
        Amount {
            seconds: self.seconds * by,
            joules: self.joules * by,
        }
    }
}

impl std::ops::Sub for Amount {
    type Output = Amount;

    fn sub(self, less: Amount) -> Amount {
        Amount {
            seconds: self.seconds - less.seconds,
            joules: self.joules - less.joules,
        }
    }
}

/// What a reading comes to.
#[derive(Debug, Default)]
pub(super) struct Division {
    /// By index of the user.
    pub(super) engines: BTreeMap<(usize, GpuState), Amount>,
    pub(super) unattributed: BTreeMap<Unattributed, Amount>,
    /// By index of the user and id of the step.
    pub(super) steps: BTreeMap<(usize, u64), Amount>,
    /// Steps of which a part is not known.
    pub(super) parts: Vec<(usize, u64)>,
    /// Of an engine, in no step that was seen, though it may have worked.
    pub(super) unseen: BTreeMap<usize, Amount>,
    /// Idle power, watts, where the reading shows it.
    pub(super) idle_watts: Option<f64>,
}

struct Window {
    from: Nanos,
    to: Nanos,
    ratio: Option<f64>,
    /// Time in which a step ran.
    working: Nanos,
    /// The driver saw work of which nothing was told.
    contradicted: bool,
}

impl Window {
    /// The driver saw no more work than that of the steps that ran; it tells whole percents.
    fn is_explained(&self) -> bool {
        let seen = |ratio: f64| (ratio - 0.01) * (self.to - self.from) as f64;
        self.ratio.is_some_and(|ratio| seen(ratio) <= self.working as f64)
    }
}

struct Piece {
    from: Nanos,
    to: Nanos,
    window: usize,
    /// Segment of each user at that time.
    segments: Vec<Option<usize>>,
    works: bool,
}

/// Divides a reading between its users.
pub(super) fn divide(period: &Period<'_>, users: &[User<'_>]) -> Division {
    let mut division = Division::default();
    if period.from >= period.to {
        return division;
    }
    let seconds = (period.to - period.from) as f64 / 1e9;
    let mut windows = windows(period);
    if let Some(joules) = period.joules
        && windows.iter().all(|window| window.ratio == Some(0.0))
    {
        division.idle_watts = Some(joules / seconds);
    }
    if users.is_empty() {
        let amount = division.unattributed.entry(Unattributed::NoEngine).or_default();
        amount.add(seconds, period.joules.unwrap_or(0.0));
        return division;
    }
    let pieces = pieces(period, users, &mut windows);
    contradict(&mut windows, period.strangers);
    let power = Power::of(period, &windows);
    for piece in &pieces {
        let Some(window) = windows.get(piece.window) else {
            continue;
        };
        let seconds = (piece.to - piece.from) as f64 / 1e9;
        let joules = power.joules(piece, window);
        share(&mut division, users, piece, window, seconds, joules);
    }
    division
}

/// The idle power, when one more reading has shown it.
pub(super) fn learn(floor: Option<f64>, shown: f64) -> f64 {
    floor.map_or(shown, |floor| floor + (shown - floor) * LEARN)
}

fn windows(period: &Period<'_>) -> Vec<Window> {
    let window = |from, to, ratio| Window {
        from,
        to,
        ratio,
        working: 0,
        contradicted: false,
    };
    let mut from = period.from;
    let mut windows = Vec::new();
    for sample in period.busy.iter().chain(&period.next) {
        if sample.end > from && sample.ratio.is_finite() {
            let to = sample.end.min(period.to);
            if to > from {
                windows.push(window(from, to, Some(sample.ratio.clamp(0.0, 1.0))));
                from = to;
            }
        }
    }
    if from < period.to {
        windows.push(window(from, period.to, None));
    }
    windows
}

/// Cuts the time where anything changes.
fn pieces(period: &Period<'_>, users: &[User<'_>], windows: &mut [Window]) -> Vec<Piece> {
    let mut edges = vec![period.from, period.to];
    edges.extend(windows.iter().map(|window| window.to));
    for user in users {
        edges.extend(
            user.segments
                .iter()
                .flat_map(|segment| [segment.from, segment.to]),
        );
    }
    edges.retain(|edge| (period.from..=period.to).contains(edge));
    edges.sort_unstable();
    edges.dedup();
    let mut at = vec![0; users.len()];
    let mut window = 0;
    let mut pieces = Vec::with_capacity(edges.len());
    for pair in edges.windows(2) {
        let &[from, to] = pair else { continue };
        while windows.get(window).is_some_and(|w| w.to <= from) {
            window += 1;
        }
        let mut segments = Vec::with_capacity(users.len());
        let mut works = false;
        for (user, at) in users.iter().zip(&mut at) {
            while user.segments.get(*at).is_some_and(|segment| segment.to <= from) {
                *at += 1;
            }
            let segment = user.segments.get(*at).filter(|segment| segment.from <= from);
            works |= segment.is_some_and(|segment| segment.works());
            segments.push(segment.map(|_| *at));
        }
        if works && let Some(window) = windows.get_mut(window) {
            window.working += to - from;
        }
        pieces.push(Piece {
            from,
            to,
            window,
            segments,
            works,
        });
    }
    pieces
}

/// Where the driver saw work, and neither then nor just before or after a step ran, something ran that nobody told.
fn contradict(windows: &mut [Window], strangers: bool) {
    if strangers {
        return;
    }
    for index in 1..windows.len().saturating_sub(1) {
        let around = windows.get(index - 1..=index + 1).unwrap_or_default();
        let quiet = around.iter().all(|window| window.working == 0);
        if let Some(window) = windows.get_mut(index) {
            window.contradicted = quiet && window.ratio.is_some_and(|ratio| ratio > BUSY);
        }
    }
}

/// How energy is spread.
struct Power {
    /// Watts at all times.
    base: f64,
    /// Watts more, when wholly busy.
    busy: f64,
    /// How busy it was where no sample tells.
    mean: f64,
}

impl Power {
    fn of(period: &Period<'_>, windows: &[Window]) -> Power {
        let seconds = |window: &Window| (window.to - window.from) as f64 / 1e9;
        let total: f64 = windows.iter().map(seconds).sum();
        let joules = period.joules.unwrap_or(0.0);
        let even = Power {
            base: joules / total,
            busy: 0.0,
            mean: 0.0,
        };
        let Some(floor) = period.floor else { return even };
        let sampled = windows.iter().filter(|window| window.ratio.is_some());
        let sampled: f64 = sampled.map(seconds).sum();
        if sampled <= 0.0 {
            return even;
        }
        let ratio = |window: &Window| window.ratio.unwrap_or(0.0);
        let known: f64 = windows.iter().map(|window| ratio(window) * seconds(window)).sum();
        let mean = known / sampled;
        let busy = known + mean * (total - sampled);
        let above = joules - floor * total;
        if busy <= 0.0 || above <= 0.0 {
            return even;
        }
        Power {
            base: floor,
            busy: above / busy,
            mean,
        }
    }

    fn joules(&self, piece: &Piece, window: &Window) -> f64 {
        let length = (piece.to - piece.from) as f64;
        let whole = (window.to - window.from) as f64;
        let above = self.busy * window.ratio.unwrap_or(self.mean) * whole;
        let part = match window.working {
            0 => length / whole,
            _ if !piece.works => 0.0,
            working => length / working as f64,
        };
        (self.base * length + above * part) / 1e9
    }
}

fn share(
    division: &mut Division,
    users: &[User<'_>],
    piece: &Piece,
    window: &Window,
    seconds: f64,
    joules: f64,
) {
    let segment = |index: usize| {
        let at = piece.segments.get(index).copied().flatten()?;
        users.get(index)?.segments.get(at).copied()
    };
    let state = |index: usize| match segment(index) {
        Some(segment) if segment.works() => segment.state,
        // Whatever is known of its steps: the GPU did nothing but what is known.
        Some(segment) if segment.state == GpuState::Unknown && window.is_explained() => idle(segment.queued),
        Some(segment) if window.contradicted && segment.state.is_idle() => GpuState::Unknown,
        Some(segment) => segment.state,
        None => GpuState::Unknown,
    };
    let running: Vec<usize> = (0..users.len()).filter(|user| !state(*user).is_idle()).collect();
    let idle_share = 1.0 / users.len() as f64;
    let sm = |user: &usize| users.get(*user).and_then(|user| user.sm);
    let parts: Vec<(usize, f64)> = match running.as_slice() {
        [] => (0..users.len()).map(|user| (user, idle_share)).collect(),
        [only] => vec![(*only, 1.0)],
        several => {
            let shares: Option<Vec<f64>> = several.iter().map(sm).collect();
            let shares = shares.filter(|shares| shares.iter().all(|sm| sm.is_finite() && *sm >= 0.0));
            let sum: f64 = shares.iter().flatten().sum();
            let Some(shares) = shares.filter(|_| sum > 0.0) else {
                let amount = division.unattributed.entry(Unattributed::Shared).or_default();
                amount.add(seconds, joules);
                for user in several {
                    let steps = segment(*user).into_iter().flat_map(|segment| &segment.steps);
                    division.parts.extend(steps.map(|step| (*user, *step)));
                }
                return;
            };
            let shares = shares.iter().map(|share| share / sum);
            several.iter().copied().zip(shares).collect()
        }
    };
    for (user, part) in parts {
        let state = state(user);
        let amount = division.engines.entry((user, state)).or_default();
        amount.add(seconds * part, joules * part);
        if state.is_idle() {
            continue;
        }
        let steps = segment(user).map_or(&[][..], |segment| segment.steps.as_slice());
        let whole = Amount {
            seconds: seconds * part,
            joules: joules * part,
        };
        for step in steps {
            *division.steps.entry((user, *step)).or_default() += whole * (1.0 / steps.len() as f64);
        }
        if steps.is_empty() {
            *division.unseen.entry(user).or_default() += whole;
        }
    }
}
