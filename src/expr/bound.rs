//! What the SQL front end and the serving engine share: a bound batch query.

use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::{LogicalPlan, TableSource};
use eddyline_types::ObjectId;

/// A user relation in a logical plan; the serving engine replaces it by a scan of a snapshot.
#[derive(Debug)]
pub struct RelationSource {
    /// Which relation.
    pub relation: ObjectId,
    /// All its columns, hidden ones included.
    pub schema: SchemaRef,
}

impl TableSource for RelationSource {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// A bound SELECT: analysed, not yet optimised.
#[derive(Clone, Debug)]
pub struct BoundQuery {
    /// The plan; user relations are `RelationSource`s, system tables carry their provider.
    pub plan: LogicalPlan,
    /// Names and types of the result as Postgres would name them.
    pub output: SchemaRef,
}
