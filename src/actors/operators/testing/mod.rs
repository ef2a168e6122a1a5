//! How operators are tested: a driver with tables in memory, naive models, text scripts. Only built for tests.
//!
//! [`driver`] plays the task, [`rows`] makes and reads chunks, [`scripts`] runs the files in `scripts/`; one file of property tests per operator.

mod agg;
mod backfill;
mod driver;
mod join;
mod linear;
mod materialize;
mod rows;
mod scripts;
mod speed;
