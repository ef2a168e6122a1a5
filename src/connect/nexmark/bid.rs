//! Bids straight into columns: the same draws in the same order as crate `nexmark` makes, without a `String` per field.
//!
//! Bids are 46 of 50 events, and most of the crate's time for them goes into strings that are copied once more into the column.
//! The table of the 10,000 cold channels is private to the crate: its entries are learnt from the crate's own events when they
//! first come up. A test compares every column with the crate's events.

use super::{BASE_TIME_MS, EVENTS_PER_SECOND, Kind, config};
use ::nexmark::EventGenerator;
use ::nexmark::config::NexmarkConfig;
use ::nexmark::event::{Event, EventType};
use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::buffer::{Buffer, OffsetBuffer};
use eddyline_types::{Error, Result};
use rand08::rngs::SmallRng;
use rand08::{Rng, SeedableRng};
use std::sync::Arc;

/// Positions of the columns.
const AUCTION: usize = 0;
const BIDDER: usize = 1;
const PRICE: usize = 2;
const CHANNEL: usize = 3;
const URL: usize = 4;
const DATE_TIME: usize = 5;
const EXTRA: usize = 6;

/// Hot ids are the multiples of this below the newest id.
const HOT_STEP: usize = 100;
/// Channels of cold bids.
const CHANNELS: u32 = 10_000;
/// Bytes of a bid's numbers, which its text fills up to the average size.
const FIXED_BYTES: usize = 32;

/// Makes bids, only the columns that are wanted.
pub(crate) struct Bids {
    config: NexmarkConfig,
    wanted: [bool; 7],
    /// Channel and URL by number, once known.
    cold: Vec<Option<(Box<str>, Box<str>)>>,
}

/// A text column being filled.
struct Texts {
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

impl Texts {
    fn new(rows: usize, bytes: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Texts { ends, bytes: Vec::with_capacity(rows * bytes) }
    }

    fn push(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.end();
    }

    fn end(&mut self) {
        self.ends.push(i32::try_from(self.bytes.len()).expect("a chunk of bids is far below 2 GiB"));
    }

    fn array(self) -> Result<ArrayRef> {
        Ok(Arc::new(StringArray::try_new(OffsetBuffer::new(self.ends.into()), Buffer::from_vec(self.bytes), None)?))
    }
}

impl Bids {
    /// For the columns at these positions.
    pub(crate) fn new(fields: &[usize]) -> Self {
        let mut wanted = [false; 7];
        fields.iter().for_each(|&f| wanted[f] = true);
        Bids { config: config(), wanted, cold: vec![None; CHANNELS as usize] }
    }

    /// `count` bids from the `at`-th on, every `step`-th: an array for each column (times in milliseconds), empty where it is not wanted.
    pub(crate) fn make(&mut self, at: u64, step: u64, count: usize) -> Result<[ArrayRef; 7]> {
        let rows = |wanted: bool| if wanted { count } else { 0 };
        let mut numbers: [Vec<i64>; 7] = std::array::from_fn(|i| Vec::with_capacity(rows(self.wanted[i] && i <= PRICE || i == DATE_TIME)));
        let mut channel = Texts::new(rows(self.wanted[CHANNEL]), 12);
        let mut url = Texts::new(rows(self.wanted[URL]), 64);
        let mut extra = Texts::new(rows(self.wanted[EXTRA]), 72);
        let wanted = self.wanted;
        for i in 0..count as u64 {
            let nth = at + i * step;
            let id = event_number(nth) as usize;
            let rng = &mut SmallRng::seed_from_u64(id as u64);
            numbers[AUCTION].push(self.auction(id, rng) as i64);
            numbers[BIDDER].push(self.bidder(id, rng) as i64);
            numbers[PRICE].push((10.0f32.powf(rng.r#gen::<f32>() * 6.0) * 100.0).round() as i64);
            if wanted[DATE_TIME] {
                numbers[DATE_TIME].push(time_ms(id));
            }
            if !(wanted[CHANNEL] || wanted[URL] || wanted[EXTRA]) {
                continue;
            }
            let (c, u) = self.channel(nth, rng)?;
            if wanted[CHANNEL] {
                channel.push(c);
            }
            if wanted[URL] {
                url.push(u);
            }
            if wanted[EXTRA] {
                let (least, spread) = text_size(self.config.avg_bid_byte_size);
                let length = least + rng.gen_range(0..2 * spread);
                extra.bytes.extend((0..length).map(|_| rng.gen_range(b'a'..=b'z')));
                extra.end();
            }
        }
        let mut number = |i: usize| Arc::new(Int64Array::from(std::mem::take(&mut numbers[i]))) as ArrayRef;
        let (auction, bidder, price, date_time) = (number(AUCTION), number(BIDDER), number(PRICE), number(DATE_TIME));
        Ok([auction, bidder, price, channel.array()?, url.array()?, date_time, extra.array()?])
    }

    fn auction(&self, id: usize, rng: &mut SmallRng) -> usize {
        let c = &self.config;
        let newest = id / 50 * c.auction_proportion + c.auction_proportion - 1;
        let number = if rng.gen_range(0..c.hot_auction_ratio) > 0 {
            newest / HOT_STEP * HOT_STEP
        } else {
            let oldest = newest.saturating_sub(c.in_flight_auctions);
            oldest + rng.gen_range(0..newest - oldest + 1 + c.auction_id_lead)
        };
        number + c.first_auction_id
    }

    fn bidder(&self, id: usize, rng: &mut SmallRng) -> usize {
        let c = &self.config;
        let newest = id / 50 * c.person_proportion + c.person_proportion - 1;
        let number = if rng.gen_range(0..c.hot_bidder_ratio) > 0 {
            newest / HOT_STEP * HOT_STEP + 1
        } else {
            let active = (newest + 1).min(c.active_people);
            newest + 1 - active + rng.gen_range(0..active + c.person_id_lead)
        };
        number + c.first_person_id
    }

    fn channel(&mut self, nth: u64, rng: &mut SmallRng) -> Result<(&str, &str)> {
        if rng.gen_range(0..self.config.hot_channel_ratio) > 0 {
            let at = rng.gen_range(0..self.config.hot_channels.len());
            return Ok((&self.config.hot_channels[at], &self.config.hot_urls[at]));
        }
        let at = rng.gen_range(0..CHANNELS) as usize;
        if self.cold[at].is_none() {
            let mut events = EventGenerator::new(self.config.clone()).with_type_filter(EventType::Bid).with_offset(nth);
            let Some(Event::Bid(bid)) = events.next() else { return Err(Error::internal("the nexmark crate gave no bid")) };
            self.cold[at] = Some((bid.channel.into(), bid.url.into()));
        }
        let (channel, url) = self.cold[at].as_ref().expect("it was learnt above");
        Ok((channel, url))
    }
}

/// The number among all events of the `nth` bid.
fn event_number(nth: u64) -> u64 {
    let (first, share) = Kind::Bid.share();
    nth / share * 50 + first + nth % share
}

/// Milliseconds since the Unix epoch of an event, in single precision as the crate computes it.
fn time_ms(number: usize) -> i64 {
    let gap_us = 1_000_000f32 / EVENTS_PER_SECOND as f32;
    (BASE_TIME_MS + ((number as f32 * gap_us) / 1000.0).round() as u64) as i64
}

/// Least length of the filling text, and half of what may come on top.
fn text_size(average: usize) -> (usize, usize) {
    let room = average - FIXED_BYTES;
    let spread = (room + 2) / 5;
    (room - spread, spread)
}
