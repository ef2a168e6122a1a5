//! The text form of a chunk: prints and parses, for tests, EXPLAIN samples and the console.
