use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::impairment::{
    self, Duplication, Fate, GilbertElliott, Impairment, Jitter, Passing, Random, RandomLoss, Reordering,
};
use crate::{LinkConfig, Loss};

/// What a direction of a link does to packets besides rate and delay, and the generator of everything random about it.
#[derive(Debug)]
pub(super) struct ActingImpairments {
    /// Those of [`Usual`], in that order, which is the order in which they draw random numbers.
    usual: [Option<Box<dyn Impairment>>; Usual::COUNT],
    /// Those with a name, which come behind.
    named: Vec<(impairment::Policy, Box<dyn Impairment>)>,
    random: Random,
    seed: u64,
}

/// The impairments with settings of their own.
#[derive(Clone, Copy, Debug)]
enum Usual {
    Loss,
    Jitter,
    Reordering,
    Duplication,
}

impl Usual {
    const COUNT: usize = 4;
}

impl ActingImpairments {
    pub(super) fn new(config: &LinkConfig, seed: u64) -> Self {
        let mut new = Self { usual: Default::default(), named: Vec::new(), random: Random::new(seed), seed };
        new.set_loss(config.loss);
        new.set_jitter(config.jitter);
        new.set_reordering(config.reorder);
        new.set_duplication(config.duplicate);
        for model in &config.impairments {
            new.begin(model);
        }
        new
    }

    pub(super) fn restart_random(&mut self) {
        self.random = Random::new(self.seed);
        let named = self.named.iter_mut().map(|(_, impairment)| impairment);
        self.usual.iter_mut().flatten().chain(named).for_each(|impairment| impairment.restart());
    }

    pub(super) fn set_loss(&mut self, loss: Loss) {
        self.usual[Usual::Loss as usize] = match loss {
            Loss::Random(probability) if probability > 0.0 => Some(Box::new(RandomLoss { probability })),
            Loss::None | Loss::Random(_) => None,
            Loss::GilbertElliott { p, r, bad_loss, good_loss } => {
                Some(Box::new(GilbertElliott::new(p, r, bad_loss, good_loss)))
            }
        };
    }

    pub(super) fn set_jitter(&mut self, jitter: Jitter) {
        self.usual[Usual::Jitter as usize] =
            if jitter.amount.is_zero() { None } else { Some(Box::new(jitter)) };
    }

    pub(super) fn set_reordering(&mut self, reordering: Reordering) {
        self.usual[Usual::Reordering as usize] =
            if reordering.probability > 0.0 { Some(Box::new(reordering)) } else { None };
    }

    pub(super) fn set_duplication(&mut self, probability: f64) {
        self.usual[Usual::Duplication as usize] =
            if probability > 0.0 { Some(Box::new(Duplication { probability })) } else { None };
    }

    /// One with a name begins, in place of the one of this name, if there is one.
    pub(super) fn begin(&mut self, model: &impairment::Policy) {
        let new = (model.clone(), model.build());
        match self.named.iter_mut().find(|(acting, _)| acting.name() == model.name()) {
            Some(place) => *place = new,
            None => self.named.push(new),
        }
    }

    /// The one of this name ends, if there is one.
    pub(super) fn end(&mut self, model: &impairment::Policy) {
        self.named.retain(|(acting, _)| acting.name() != model.name());
    }

    /// Nothing happens to any packet.
    pub(super) fn none(&self) -> bool {
        self.named.is_empty() && self.usual.iter().all(Option::is_none)
    }

    /// What becomes of the next packet.
    pub(super) fn handle_packet(&mut self, packet: Passing, mut fate: Fate) -> Fate {
        let named = self.named.iter_mut().map(|(_, impairment)| impairment);
        for impairment in self.usual.iter_mut().flatten().chain(named) {
            impairment.handle_packet(packet, &mut fate, &mut self.random);
            if fate.is_lost() {
                break;
            }
        }
        fate
    }
}
