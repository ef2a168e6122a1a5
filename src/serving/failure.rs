//! Errors on their way through DataFusion's operators and back.

use datafusion::error::DataFusionError;
use eddyline_types::Error;

pub use eddyline_expr::errors::from_datafusion;

/// Ours as DataFusion's, to travel through its operators; [`from_datafusion`] gives it back unchanged.
pub fn into_datafusion(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
