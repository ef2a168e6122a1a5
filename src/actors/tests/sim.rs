//! The deterministic loop: one thread, and a seed that chooses which task runs next.

use crate::host::Host;
use crate::message::{Input, Post};
use futures::future::BoxFuture;
use futures::task::{ArcWake, waker};
use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::SmallRng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::Duration;
use tokio::sync::mpsc;

struct Wakeup {
    is_woken: AtomicBool,
    thread: std::thread::Thread,
}

impl ArcWake for Wakeup {
    fn wake_by_ref(this: &Arc<Self>) {
        this.is_woken.store(true, Ordering::Release);
        this.thread.unpark();
    }
}

struct Running {
    wakeup: Arc<Wakeup>,
    future: BoxFuture<'static, ()>,
}

/// The loop. Tasks are added by the hub through [`SimHost`].
pub struct Sim {
    tasks: Vec<Running>,
    added: Arc<Mutex<Vec<BoxFuture<'static, ()>>>>,
    random: SmallRng,
}

/// What the hub sees of it.
pub struct SimHost {
    added: Arc<Mutex<Vec<BoxFuture<'static, ()>>>>,
}

struct Direct(mpsc::UnboundedSender<Input>);

impl Post for Direct {
    fn post(&self, input: Input) {
        let _ = self.0.send(input);
    }
}

impl Host for SimHost {
    fn start(&self, _: u32, inbox: mpsc::UnboundedSender<Input>, task: BoxFuture<'static, ()>) -> Arc<dyn Post> {
        self.added.lock().push(task);
        Arc::new(Direct(inbox))
    }

    fn io(&self, _: &'static str, work: BoxFuture<'static, ()>) {
        self.added.lock().push(work);
    }

    fn is_inline(&self) -> bool {
        true
    }

    fn threads(&self) -> u32 {
        1
    }
}

impl Sim {
    pub fn new(seed: u64) -> (Sim, SimHost) {
        let added = Arc::new(Mutex::new(Vec::new()));
        (Sim { tasks: Vec::new(), added: added.clone(), random: eddyline_env::random::seeded(seed) }, SimHost { added })
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.added.lock().push(Box::pin(task));
    }

    /// Polls one task that is woken, chosen by the seed. Waits for the store's I/O if none is; `false`: nothing happened for a while.
    pub fn step(&mut self) -> bool {
        for _ in 0..2000 {
            let added: Vec<_> = std::mem::take(&mut *self.added.lock());
            for future in added {
                let wakeup = Arc::new(Wakeup { is_woken: AtomicBool::new(true), thread: std::thread::current() });
                self.tasks.push(Running { wakeup, future });
            }
            let woken: Vec<usize> = (0..self.tasks.len()).filter(|i| self.tasks[*i].wakeup.is_woken.load(Ordering::Acquire)).collect();
            if woken.is_empty() {
                std::thread::park_timeout(Duration::from_millis(1));
                continue;
            }
            let chosen = woken[self.random.random_range(0..woken.len())];
            let task = &mut self.tasks[chosen];
            task.wakeup.is_woken.store(false, Ordering::Release);
            let waker = waker(task.wakeup.clone());
            if task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                drop(self.tasks.swap_remove(chosen));
            }
            return true;
        }
        false
    }

    /// Whether a task could run now.
    pub fn is_idle(&self) -> bool {
        self.added.lock().is_empty() && !self.tasks.iter().any(|t| t.wakeup.is_woken.load(Ordering::Acquire))
    }

    /// Runs everything until the future is done.
    pub fn block_on<T: Send + 'static>(&mut self, future: impl Future<Output = T> + Send + 'static) -> T {
        let (tx, rx) = std::sync::mpsc::channel();
        self.spawn(async move {
            let _ = tx.send(future.await);
        });
        loop {
            if let Ok(result) = rx.try_recv() {
                return result;
            }
            assert!(self.step(), "nothing runs any more, and the awaited future is not done");
        }
    }
}
