//! Readings of GPUs whose time is due.
//!
//! Owns: between which engines each is divided, and where the parts go. Refuses: the division itself (`readings`).

use super::{GONE, Gpu, Join, MAX_READINGS, Pending, SETTLE};
use crate::{
    Nanos,
    gpu::{
        readings::{Amount, Division, Period, User, divide, learn},
        share::{GpuShare, Unattributed, Uncharged},
    },
};
use std::sync::Arc;

/// Between whom a reading is divided.
pub(super) enum Users {
    /// Those that its own list of processes names.
    Own(Vec<(Arc<str>, Option<f64>)>),
    /// Those on its instances.
    OfInstances(Vec<(Arc<str>, Option<f64>)>),
}

impl Users {
    fn ids(&self) -> &[(Arc<str>, Option<f64>)] {
        match self {
            Users::Own(ids) | Users::OfInstances(ids) => ids,
        }
    }
}

/// What of a division is told.
struct Told<'a> {
    uuid: &'a Arc<str>,
    seconds: bool,
    joules: bool,
}

impl Join {
    /// The oldest reading of a GPU that can be settled, with the engines between which it is divided.
    pub(super) fn due(&mut self, uuid: &Arc<str>, now: Nanos) -> Option<(Pending, Users)> {
        let gpu = self.gpus.get(uuid)?;
        let first = gpu.pending.front()?;
        let at = first.at;
        let forced = gpu.pending.len() > MAX_READINGS;
        // The next reading has the sample that spans both; it may not come.
        let last = gpu.pending.len() < 2;
        let length = at.saturating_sub(first.reading.since.unwrap_or(at)).min(GONE);
        let wait = if last { SETTLE.max(2 * length) } else { SETTLE };
        if !forced && at.saturating_add(wait) > now {
            return None;
        }
        let instances: Vec<&Gpu> = self
            .gpus
            .values()
            .filter(|other| other.parent.as_ref() == Some(uuid) && other.seen.saturating_add(GONE) >= at)
            .collect();
        let users = if instances.is_empty() {
            Users::Own(gpu.pending.front()?.users.clone())
        } else {
            let all = instances.iter().flat_map(|instance| &instance.users);
            let mut ids: Vec<(Arc<str>, Option<f64>)> = all.map(|(id, _)| (id.clone(), None)).collect();
            ids.sort_by(|a, b| a.0.cmp(&b.0));
            ids.dedup_by(|a, b| a.0 == b.0);
            Users::OfInstances(ids)
        };
        for (id, _) in users.ids() {
            let Some(engine) = self.engines.get_mut(id) else {
                continue;
            };
            if engine.timeline.settled() < at {
                if !forced {
                    return None;
                }
                engine.timeline.settle(at, &engine.requests);
            }
        }
        let pending = self.gpus.get_mut(uuid)?.pending.pop_front()?;
        Some((pending, users))
    }

    pub(super) fn settle(
        &mut self,
        uuid: &Arc<str>,
        pending: &Pending,
        users: &Users,
        shares: &mut Vec<GpuShare>,
    ) {
        let Some(gpu) = self.gpus.get_mut(uuid) else {
            return;
        };
        let since = pending.reading.since.unwrap_or(pending.at);
        let from = since.max(gpu.settled);
        gpu.settled = gpu.settled.max(pending.at);
        if from >= pending.at {
            return;
        }
        // Two readings that tell of the same time count once.
        let whole = (pending.at - since) as f64;
        let joules = pending
            .reading
            .energy_j
            .filter(|joules| joules.is_finite() && *joules >= 0.0)
            .map(|joules| joules * ((pending.at - from) as f64 / whole));
        let ids: Vec<&(Arc<str>, Option<f64>)> = users
            .ids()
            .iter()
            .filter(|(id, _)| self.engines.contains_key(id))
            .collect();
        let period = Period {
            from,
            to: pending.at,
            joules,
            busy: &pending.reading.busy,
            next: gpu
                .pending
                .front()
                .filter(|next| next.reading.since == Some(pending.at))
                .and_then(|next| next.reading.busy.first().copied()),
            strangers: pending.strangers,
            floor: gpu.floor,
        };
        let of_users: Vec<User<'_>> = ids
            .iter()
            .filter_map(|(id, sm)| {
                let segments = &self.engines.get(id)?.timeline.segments;
                let begin = segments.partition_point(|segment| segment.to <= from);
                let end = segments.partition_point(|segment| segment.from < pending.at);
                Some(User {
                    sm: *sm,
                    segments: segments.range(begin..end.max(begin)).collect(),
                })
            })
            .collect();
        let mut division = divide(&period, &of_users);
        if let Some(watts) = division.idle_watts {
            gpu.floor = Some(learn(gpu.floor, watts));
        }
        if pending.reading.processes.is_none()
            && let Some(amount) = division.unattributed.remove(&Unattributed::NoEngine)
        {
            division
                .unattributed
                .insert(Unattributed::ProcessesNotTold, amount);
        }
        let told = Told {
            uuid,
            // The time of a GPU that is cut into instances is that of the instances.
            seconds: matches!(users, Users::Own(_)),
            joules: joules.is_some(),
        };
        self.tell(&told, &ids, division, shares);
    }

    fn tell(
        &mut self,
        told: &Told<'_>,
        ids: &[&(Arc<str>, Option<f64>)],
        division: Division,
        shares: &mut Vec<GpuShare>,
    ) {
        let seconds = |seconds: f64| if told.seconds { seconds } else { 0.0 };
        let of = |amount: Amount| Amount {
            seconds: seconds(amount.seconds),
            ..amount
        };
        let id = |user: usize| ids.get(user).map(|(id, _)| id);
        for ((user, state), amount) in division.engines {
            let Some(engine) = id(user) else { continue };
            shares.push(GpuShare::Engine {
                engine: engine.clone(),
                state,
                seconds: seconds(amount.seconds),
                joules: told.joules.then_some(amount.joules),
            });
            if state.is_idle()
                && let Some(engine) = self.engines.get_mut(engine)
            {
                engine.charges.uncharged(Uncharged::Idle, of(amount));
            }
        }
        for (reason, amount) in division.unattributed {
            shares.push(GpuShare::Unattributed {
                uuid: told.uuid.clone(),
                reason,
                seconds: seconds(amount.seconds),
                joules: told.joules.then_some(amount.joules),
            });
        }
        for (user, amount) in division.unseen {
            if let Some(engine) = id(user).and_then(|id| self.engines.get_mut(id)) {
                engine.charges.uncharged(Uncharged::UnknownRequests, of(amount));
            }
        }
        for ((user, step), amount) in division.steps {
            let Some(engine) = id(user).and_then(|id| self.engines.get_mut(id)) else {
                continue;
            };
            match engine
                .timeline
                .steps
                .iter_mut()
                .rev()
                .find(|known| known.id == step)
            {
                Some(step) => {
                    step.amount += of(amount);
                    step.measured |= told.joules;
                }
                None => engine.charges.uncharged(Uncharged::UnknownRequests, of(amount)),
            }
        }
        for (user, step) in division.parts {
            if let Some(engine) = id(user).and_then(|id| self.engines.get_mut(id))
                && let Some(step) = engine
                    .timeline
                    .steps
                    .iter_mut()
                    .rev()
                    .find(|known| known.id == step)
            {
                step.part = true;
            }
        }
    }
}
