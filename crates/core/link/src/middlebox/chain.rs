use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use polypath_units::Instant;
use polypath_wire::Packet;

use super::{Direction, Middlebox, Outputs};

/// Boxes behind each other at one place of the way. Forward packets meet the first box first, backward
/// packets the last.
#[derive(Debug, Default)]
pub struct Chain {
    boxes: Vec<Box<dyn Middlebox>>,
    /// Packets on their way to box number `usize`.
    on_the_way: VecDeque<(usize, Direction, Packet)>,
    scratch: Outputs,
}

impl Chain {
    /// No box: packets pass.
    pub const fn new() -> Self {
        Self { boxes: Vec::new(), on_the_way: VecDeque::new(), scratch: Outputs::new() }
    }

    /// Adds a box at the server's end.
    pub fn push(&mut self, middlebox: Box<dyn Middlebox>) {
        self.boxes.push(middlebox);
    }

    /// The boxes, from the client's end.
    pub fn boxes(&self) -> &[Box<dyn Middlebox>] {
        &self.boxes
    }

    /// Number of boxes.
    pub fn len(&self) -> usize {
        self.boxes.len()
    }

    /// True without any box.
    pub fn is_empty(&self) -> bool {
        self.boxes.is_empty()
    }

    /// A packet comes from one side; an aggregate counts as the segments that it stands for.
    pub fn handle_packet(&mut self, now: Instant, direction: Direction, packet: Packet, out: &mut Outputs) {
        let entry = match direction {
            Direction::Forward => 0,
            Direction::Backward => self.boxes.len().wrapping_sub(1),
        };
        for segment in packet.segments() {
            self.on_the_way.push_back((entry, direction, segment));
        }
        self.run(now, out);
    }

    /// When a box has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.boxes.iter().filter_map(|middlebox| middlebox.poll_timeout()).min()
    }

    /// Does what is due by now; too early, nothing.
    pub fn handle_timeout(&mut self, now: Instant, out: &mut Outputs) {
        for number in 0..self.boxes.len() {
            let Some(middlebox) = self.boxes.get_mut(number) else { break };
            if middlebox.poll_timeout().is_some_and(|at| at <= now) {
                middlebox.handle_timeout(now, &mut self.scratch);
                self.forward_outputs(number);
                self.run(now, out);
            }
        }
    }

    fn run(&mut self, now: Instant, out: &mut Outputs) {
        while let Some((number, direction, packet)) = self.on_the_way.pop_front() {
            // One before the first wraps around to a number that no box has.
            match self.boxes.get_mut(number) {
                Some(middlebox) => {
                    middlebox.handle_packet(now, direction, packet, &mut self.scratch);
                    self.forward_outputs(number);
                }
                None => out.push(direction, packet),
            }
        }
    }

    fn forward_outputs(&mut self, from: usize) {
        while let Some((direction, packet)) = self.scratch.pop() {
            let next = match direction {
                Direction::Forward => from + 1,
                Direction::Backward => from.wrapping_sub(1),
            };
            self.on_the_way.push_back((next, direction, packet));
        }
    }
}

impl FromIterator<Box<dyn Middlebox>> for Chain {
    fn from_iter<I: IntoIterator<Item = Box<dyn Middlebox>>>(boxes: I) -> Self {
        Self { boxes: boxes.into_iter().collect(), ..Self::new() }
    }
}

impl From<Box<dyn Middlebox>> for Chain {
    fn from(middlebox: Box<dyn Middlebox>) -> Self {
        Self { boxes: alloc::vec![middlebox], ..Self::new() }
    }
}
