//! The pieces of a stream, one after the other in the bytes of one schedule.

use std::collections::VecDeque;
use std::ops::Range;

use polypath_units::{BitRate, Duration};

/// The place of a unit in its stream, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitNumber(pub u64);

/// What is fetched as one: a segment, in one of its qualities.
#[derive(Clone, Debug)]
pub struct Unit {
    /// How long it plays. What comes along with another unit, as sound does, has no time of its own.
    pub duration: Duration,
    /// What its qualities need on average, lowest first. There is at least one.
    pub rates: Box<[BitRate]>,
    /// Bytes of each quality, as far as they are known before it is asked for. It may be empty.
    pub sizes: Box<[Option<u64>]>,
}

/// A unit whose quality was chosen.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) unit: UnitNumber,
    /// What it was before its quality was chosen.
    pub(super) whole: Unit,
    pub(super) quality: usize,
    pub(super) duration: Duration,
    /// Its place in the bytes of the schedule. The end is a guess until the length is known.
    pub(super) place: Range<u64>,
    pub(super) is_length_known: bool,
    pub(super) is_left_out: bool,
}

/// The pieces that are not handed on yet, in order, without gaps.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    pieces: VecDeque<Piece>,
    end: u64,
}

impl Pieces {
    /// Where the next piece begins. It can be placed once the last one's length is known.
    pub(super) fn next_start(&self) -> Option<u64> {
        self.pieces.back().is_none_or(|piece| piece.is_length_known).then_some(self.end)
    }

    pub(super) fn push(&mut self, piece: Piece) {
        self.end = piece.place.end;
        self.pieces.push_back(piece);
    }

    pub(super) fn front(&self) -> Option<&Piece> {
        self.pieces.front()
    }

    pub(super) fn pop_front(&mut self) -> Option<Piece> {
        self.pieces.pop_front()
    }

    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// A piece that is not waited for. Gives its place; its length is what it was taken for.
    pub(super) fn leave_out(&mut self, unit: UnitNumber) -> Option<Range<u64>> {
        let piece = self.pieces.iter_mut().find(|piece| piece.unit == unit)?;
        (piece.is_length_known, piece.is_left_out) = (true, true);
        Some(piece.place.clone())
    }

    /// Takes out all pieces from a unit on. Gives where they began, and what they were, in order; none if it is not there.
    pub(super) fn take_from(&mut self, unit: UnitNumber) -> Option<(u64, Vec<Unit>)> {
        let at = self.pieces.iter().position(|piece| piece.unit == unit)?;
        self.end = self.pieces[at].place.start;
        Some((self.end, self.pieces.drain(at..).map(|piece| piece.whole).collect()))
    }

    /// How long all of them play.
    pub(super) fn duration(&self) -> Duration {
        self.pieces.iter().fold(Duration::default(), |sum, piece| sum + piece.duration)
    }

    /// The piece that has a byte.
    pub(super) fn at(&self, byte: u64) -> Option<&Piece> {
        let index = self.pieces.partition_point(|piece| piece.place.end <= byte);
        self.pieces.get(index).filter(|piece| piece.place.start <= byte)
    }

    /// The piece that begins there.
    pub(super) fn starting_at(&self, start: u64) -> Option<&Piece> {
        let index = self.pieces.binary_search_by_key(&start, |piece| piece.place.start).ok()?;
        self.pieces.get(index)
    }

    /// The length of the last piece is known now. Gives the end of all; `None` if it is not the last one.
    pub(super) fn set_length(&mut self, start: u64, bytes: u64) -> Option<u64> {
        let last = self.pieces.back_mut().filter(|piece| piece.place.start == start)?;
        (last.place.end, last.is_length_known) = (start + bytes, true);
        self.end = last.place.end;
        Some(self.end)
    }
}
