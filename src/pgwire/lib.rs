//! pgwire
