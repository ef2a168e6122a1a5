//! Dispatch: every row reaches the shard that owns it, once, and no more is in flight than the budget allows.

use super::graphs::kv;
use crate::credit::{Budget, Credits};
use crate::dispatch::{EdgeOut, Outlet, Outputs, TARGET_ROWS, is_connected};
use crate::message::{Input, Message, Post};
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use eddyline_protocol::{Dispatch, Edge, EdgeFrom};
use eddyline_types::{Chunk, EdgeId, FragmentId, JobId, vnode};
use futures::FutureExt;
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
struct Kept(Mutex<Vec<Input>>);

impl Post for Kept {
    fn post(&self, input: Input) {
        self.0.lock().push(input);
    }
}

fn outputs(dispatch: Dispatch, columns: Vec<usize>, receivers: u32, budget: Budget) -> (Outputs, Vec<Arc<Kept>>, Vec<Arc<Credits>>) {
    let edge = Edge { id: EdgeId(1), from: EdgeFrom::Fragment(FragmentId(1)), to: FragmentId(2), columns, dispatch };
    let kept: Vec<Arc<Kept>> = (0..receivers).map(|_| Arc::default()).collect();
    let credits: Vec<_> = (0..receivers).map(|_| Credits::new(budget)).collect();
    let outlets = (0..receivers)
        .filter(|r| is_connected(&edge.dispatch, 0, 1, *r, receivers))
        .map(|r| Outlet::new(r, 0, kept[r as usize].clone(), credits[r as usize].clone()))
        .collect();
    let mut outputs = Outputs::default();
    outputs.attach(EdgeOut::new(edge, JobId(1), &kv(), outlets, 0, receivers).unwrap());
    (outputs, kept, credits)
}

fn chunk(rows: &[(i64, i64)], weights: &[i64]) -> Chunk {
    let k = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0))) as ArrayRef;
    let v = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.1))) as ArrayRef;
    Chunk::new(RecordBatch::try_new(kv(), vec![k, v]).unwrap(), Int64Array::from(weights.to_vec())).unwrap()
}

/// Weighted rows that a receiver got; the messages are consumed.
fn received(kept: &Kept) -> (BTreeMap<Vec<i64>, i64>, usize) {
    let (mut rows, mut messages) = (BTreeMap::new(), 0);
    for input in kept.0.lock().drain(..) {
        let Input::Deliver { message: Message::Chunk(chunk, _permit), .. } = input else { panic!("only chunks were sent") };
        messages += 1;
        for row in 0..chunk.num_rows() {
            let values = chunk.batch().columns().iter().map(|c| c.as_any().downcast_ref::<Int64Array>().unwrap().value(row)).collect();
            *rows.entry(values).or_insert(0) += chunk.weight(row);
        }
    }
    (rows, messages)
}

#[test]
fn hashed_rows_reach_their_owner_once() {
    let big = Budget { rows: usize::MAX, bytes: usize::MAX };
    for seed in 0..50 {
        let mut random = eddyline_env::random::seeded(seed);
        let receivers = random.random_range(1..7);
        // The edge turns the columns round: position 1 of what travels is column 0.
        let (mut outputs, kept, _) = outputs(Dispatch::Hash(vec![1]), vec![1, 0], receivers, big);
        let mut expected: Vec<BTreeMap<Vec<i64>, i64>> = vec![BTreeMap::new(); receivers as usize];
        for _ in 0..random.random_range(1..10) {
            let rows: Vec<(i64, i64)> =
                (0..random.random_range(1..50)).map(|_| (random.random_range(0..40), random.random_range(0..9))).collect();
            let weights: Vec<i64> = rows.iter().map(|_| if random.random() { 1 } else { -2 }).collect();
            let owners = vnode::of_columns(&[Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0)))], rows.len()).unwrap();
            for ((row, weight), vnode) in rows.iter().zip(&weights).zip(owners) {
                *expected[vnode::shard_of(vnode, receivers) as usize].entry(vec![row.1, row.0]).or_insert(0) += weight;
            }
            outputs.send(chunk(&rows, &weights)).now_or_never().unwrap().unwrap();
        }
        assert!(outputs.has_pending(), "seed {seed}: so few rows wait for more");
        outputs.flush().now_or_never().unwrap().unwrap();
        for (shard, kept) in kept.iter().enumerate() {
            let (rows, messages) = received(kept);
            assert_eq!(rows, expected[shard], "seed {seed}, shard {shard}");
            assert!(messages <= 1, "seed {seed}: small pieces are sent together");
        }
    }
}

#[test]
fn broadcast_reaches_all_and_forward_one() {
    let big = Budget { rows: usize::MAX, bytes: usize::MAX };
    let rows: Vec<(i64, i64)> = (0..TARGET_ROWS as i64).map(|i| (i, i)).collect();
    let whole = chunk(&rows, &vec![1; rows.len()]);
    for (dispatch, reached) in [(Dispatch::Broadcast, 3), (Dispatch::Forward, 1), (Dispatch::NoShuffle, 1)] {
        let (mut outputs, kept, _) = outputs(dispatch.clone(), vec![0, 1], 3, big);
        outputs.send(whole.clone()).now_or_never().unwrap().unwrap();
        assert!(!outputs.has_pending(), "a full chunk goes at once");
        let counts: Vec<usize> = kept.iter().map(|k| received(k).0.len()).collect();
        assert_eq!(counts.iter().filter(|c| **c == rows.len()).count(), reached, "{dispatch:?}: {counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), rows.len() * reached);
    }
}

#[test]
fn a_receiver_that_takes_nothing_stops_the_sender() {
    let budget = Budget { rows: 3 * TARGET_ROWS, bytes: usize::MAX };
    let (mut outputs, kept, credits) = outputs(Dispatch::Single, vec![0, 1], 1, budget);
    let rows: Vec<(i64, i64)> = (0..TARGET_ROWS as i64).map(|i| (i, i)).collect();
    let whole = chunk(&rows, &vec![1; rows.len()]);
    let mut sent = 0;
    // The refused chunk is lost with its future; a task would wait on.
    while outputs.send(whole.clone()).now_or_never().is_some() {
        sent += 1;
        assert!(sent < 100, "nothing stops the sender");
    }
    assert_eq!(sent, 3);
    assert_eq!(credits[0].in_flight().0, 3 * TARGET_ROWS);
    received(&kept[0]);
    assert_eq!(credits[0].in_flight(), (0, 0), "consumed chunks give their credit back");
}
