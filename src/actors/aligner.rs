//! The aligner: merges the channels of a shard so that every epoch is complete before its barrier passes.
//!
//! A pure struct. A channel that is past the barrier is not taken from until all channels have delivered it; what it sends meanwhile
//! waits in a queue of its own, which the channel's credits bound. Invariant: what `next` gives between two barriers is exactly
//! what all channels carried between them.

use crate::credit::Permit;
use crate::message::{Issued, Message};
use eddyline_types::{Chunk, Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// What the shard may process next.
#[derive(Debug)]
pub enum Aligned {
    /// A chunk of the current epoch, on a port of the head.
    Chunk {
        /// Input port of the head operator.
        port: usize,
        /// The rows.
        chunk: Chunk,
        /// To be dropped when the chunk was consumed.
        permit: Permit,
    },
    /// All channels have delivered it.
    Barrier(Arc<Issued>),
}

struct Channel {
    port: usize,
    past_barrier: bool,
    waiting: VecDeque<Message>,
}

/// See the module's documentation.
pub struct Aligner {
    channels: Vec<Channel>,
    ready: VecDeque<Aligned>,
    /// Channels past the barrier that is being aligned.
    arrived: usize,
    current: Option<Arc<Issued>>,
    /// When the first channel delivered the barrier that is being aligned (monotonic nanoseconds, as the caller gave them).
    first_arrival: Option<u64>,
    /// How long alignment took since the last call of `take_alignment_nanos`.
    alignment_nanos: u64,
}

impl Aligner {
    /// An aligner for channels with the given ports.
    pub fn new(ports: impl IntoIterator<Item = usize>) -> Self {
        let channels = ports.into_iter().map(|port| Channel { port, past_barrier: false, waiting: VecDeque::new() }).collect();
        Aligner { channels, ready: VecDeque::new(), arrived: 0, current: None, first_arrival: None, alignment_nanos: 0 }
    }

    /// How many channels there are.
    pub fn channel_count(&self) -> usize {
        self.channels.len()
    }

    /// Takes a message of a channel. Barriers of different epochs on the channels are a broken invariant of the sender.
    pub fn push(&mut self, channel: u32, message: Message, now_nanos: u64) -> Result<()> {
        let slot =
            self.channels.get_mut(channel as usize).ok_or_else(|| Error::internal(format!("message on unknown channel {channel}")))?;
        if slot.past_barrier {
            slot.waiting.push_back(message);
            return Ok(());
        }
        self.admit(channel as usize, message, now_nanos)
    }

    /// The next thing to process, if there is one.
    pub fn next(&mut self) -> Option<Aligned> {
        self.ready.pop_front()
    }

    /// Whether `next` would give something.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Messages that wait here.
    pub fn len(&self) -> usize {
        self.ready.len() + self.channels.iter().map(|c| c.waiting.len()).sum::<usize>()
    }

    /// Whether nothing waits here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Time between the first and the last channel's barrier, summed since the last call.
    pub fn take_alignment_nanos(&mut self) -> u64 {
        std::mem::take(&mut self.alignment_nanos)
    }

    fn admit(&mut self, channel: usize, message: Message, now_nanos: u64) -> Result<()> {
        let issued = match message {
            Message::Chunk(chunk, permit) => {
                self.ready.push_back(Aligned::Chunk { port: self.channels[channel].port, chunk, permit });
                return Ok(());
            }
            Message::Barrier(issued) => issued,
        };
        if let Some(current) = &self.current
            && current.barrier.epoch != issued.barrier.epoch
        {
            let text = format!("barriers {} and {} meet in one alignment", current.barrier.epoch, issued.barrier.epoch);
            return Err(Error::internal(text));
        }
        self.channels[channel].past_barrier = true;
        self.arrived += 1;
        self.first_arrival.get_or_insert(now_nanos);
        if self.arrived < self.channels.len() {
            self.current = Some(issued);
            return Ok(());
        }
        self.alignment_nanos += now_nanos.saturating_sub(self.first_arrival.take().unwrap_or(now_nanos));
        self.ready.push_back(Aligned::Barrier(issued));
        self.current = None;
        self.arrived = 0;
        self.release(now_nanos)
    }

    /// Lets the channels go on up to their next barrier, after one has passed.
    fn release(&mut self, now_nanos: u64) -> Result<()> {
        self.channels.iter_mut().for_each(|c| c.past_barrier = false);
        for channel in 0..self.channels.len() {
            while !self.channels[channel].past_barrier {
                let Some(message) = self.channels[channel].waiting.pop_front() else { break };
                // If this was the last barrier of the next alignment, the call below has released all channels already.
                self.admit(channel, message, now_nanos)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credit::{Budget, Credits};
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use eddyline_protocol::{Barrier, BarrierKind};
    use eddyline_types::{DomainId, Epoch};
    use rand::RngExt;

    fn barrier(epoch: u64) -> Message {
        let barrier =
            Barrier { domain: DomainId(1), epoch: Epoch(epoch), prev: Epoch(epoch - 1), term: 1, kind: BarrierKind::Plain, mutation: None };
        Message::Barrier(Arc::new(Issued { attempt: 1, barrier, issued_nanos: 0 }))
    }

    fn chunk(value: i64) -> Message {
        let column = Arc::new(Int64Array::from(vec![value])) as ArrayRef;
        let chunk = Chunk::append_only(RecordBatch::try_from_iter([("v", column)]).unwrap());
        Message::Chunk(chunk, Credits::new(Budget::default()).try_take(1, 8).unwrap())
    }

    /// Epochs of random lengths on random channels, interleaved at random: every chunk comes out in its epoch, and each channel in order.
    #[test]
    fn epochs_are_complete_whatever_the_interleaving() {
        for seed in 0..300 {
            let mut random = eddyline_env::random::seeded(seed);
            let channels = random.random_range(1..5usize);
            // A chunk's value tells channel, epoch and position.
            let mut streams: Vec<VecDeque<Message>> = Vec::new();
            let mut expected = 0;
            for channel in 0..channels {
                let mut stream = VecDeque::new();
                for epoch in 1..6u64 {
                    for position in 0..random.random_range(0..4) {
                        stream.push_back(chunk(channel as i64 * 1000 + epoch as i64 * 100 + position));
                        expected += 1;
                    }
                    stream.push_back(barrier(epoch));
                }
                streams.push(stream);
            }
            let mut aligner = Aligner::new(0..channels);
            let (mut epoch, mut seen, mut last) = (1, 0, vec![-1; channels]);
            while streams.iter().any(|s| !s.is_empty()) || aligner.is_ready() {
                let channel = random.random_range(0..channels);
                if let Some(message) = streams[channel].pop_front() {
                    aligner.push(channel as u32, message, 0).unwrap();
                }
                if random.random_bool(0.5) {
                    continue;
                }
                match aligner.next() {
                    None => {}
                    Some(Aligned::Barrier(b)) => {
                        assert_eq!(b.barrier.epoch.0, epoch, "seed {seed}");
                        epoch += 1;
                    }
                    Some(Aligned::Chunk { port, chunk, .. }) => {
                        let value = chunk.column(0).as_any().downcast_ref::<Int64Array>().unwrap().value(0);
                        assert_eq!(value / 1000, port as i64, "seed {seed}");
                        assert_eq!(value / 100 % 10, epoch as i64, "seed {seed}: chunk {value} in epoch {epoch}");
                        assert!(value > last[port], "seed {seed}: order of channel {port}");
                        last[port] = value;
                        seen += 1;
                    }
                }
            }
            assert_eq!((epoch, seen), (6, expected), "seed {seed}");
            assert!(aligner.is_empty());
        }
    }

    #[test]
    fn barriers_of_different_epochs_are_refused() {
        let mut aligner = Aligner::new([0, 0]);
        aligner.push(0, barrier(1), 0).unwrap();
        assert!(aligner.push(1, barrier(2), 0).is_err());
        assert!(aligner.push(7, barrier(1), 0).is_err());
    }
}
