//! `ShardActor`: the mailbox of a shard on an actix arbiter. A shell: its handler only hands messages to the task, which runs beside it on the same thread.
//!
//! The only file that calls `do_send`. That never waits and knows no bound: whoever posts a chunk holds its credit, and barriers are few.
//! `send` is never used: parked senders reorder, and awaiting the answer is stop-and-wait.

use crate::message::{Input, Post};
use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message};
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::mpsc;

impl Message for Input {
    type Result = ();
}

/// The task has ended: so does the actor.
struct Finished;

impl Message for Finished {
    type Result = ();
}

/// See the module's documentation.
pub struct ShardActor {
    inbox: mpsc::UnboundedSender<Input>,
    task: Option<BoxFuture<'static, ()>>,
}

impl ShardActor {
    /// Starts a task with its mailbox on an arbiter.
    pub fn start(arbiter: &actix_rt::ArbiterHandle, inbox: mpsc::UnboundedSender<Input>, task: BoxFuture<'static, ()>) -> Arc<dyn Post> {
        Arc::new(Mailbox(Actor::start_in_arbiter(arbiter, move |_| ShardActor { inbox, task: Some(task) })))
    }
}

impl Actor for ShardActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if let Some(task) = self.task.take() {
            let own = ctx.address();
            // Not `ctx.spawn`: a future of the context would be starved by waits of the same context.
            actix_rt::spawn(async move {
                task.await;
                own.do_send(Finished);
            });
        }
    }
}

impl Handler<Input> for ShardActor {
    type Result = ();

    fn handle(&mut self, input: Input, _: &mut Self::Context) {
        // A task that has ended wants no messages; dropping one returns its credit.
        let _ = self.inbox.send(input);
    }
}

impl Handler<Finished> for ShardActor {
    type Result = ();

    fn handle(&mut self, _: Finished, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

/// The address of a shard's mailbox.
struct Mailbox(Addr<ShardActor>);

impl Post for Mailbox {
    fn post(&self, input: Input) {
        self.0.do_send(input);
    }
}

/// Posts a tick to an actor that handles ticks; one tick at a time is under way, so there is nothing to bound.
pub(crate) fn post_tick<A, M>(to: &Addr<A>, tick: M)
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    to.do_send(tick);
}
