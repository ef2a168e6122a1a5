//! The logical rules that a stream plan takes: those that make plans smaller or take subqueries apart, none that assume a batch.

use crate::bind::planner_options;
use datafusion::common::alias::AliasGenerator;
use datafusion::common::config::ConfigOptions;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::optimizer::decorrelate_lateral_join::DecorrelateLateralJoin;
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::eliminate_outer_join::EliminateOuterJoin;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion::optimizer::rewrite_set_comparison::RewriteSetComparison;
use datafusion::optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{Optimizer, OptimizerConfig, OptimizerRule};
use eddyline_expr::registry;
use std::sync::Arc;

/// The plan that the stream planner lowers. `now()` stays a call: there is no start time here.
/// A filter that is never true stays a filter: a view over nothing would have no job to keep it.
pub(crate) fn optimize(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(RewriteSetComparison::new()),
        Arc::new(SimplifyExpressions::new()),
        Arc::new(ReplaceDistinctWithAggregate::new()),
        Arc::new(DecorrelatePredicateSubquery::new()),
        Arc::new(ScalarSubqueryToJoin::new()),
        Arc::new(DecorrelateLateralJoin::new()),
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(EliminateCrossJoin::new()),
        Arc::new(EliminateOuterJoin::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(OptimizeProjections::new()),
    ];
    let config = StreamConfig { aliases: Arc::new(AliasGenerator::new()), options: planner_options().clone() };
    Optimizer::with_rules(rules).optimize(plan, &config, |_, _| {})
}

struct StreamConfig {
    aliases: Arc<AliasGenerator>,
    options: Arc<ConfigOptions>,
}

impl OptimizerConfig for StreamConfig {
    fn query_execution_start_time(&self) -> Option<chrono::DateTime<chrono::Utc>> {
        None
    }

    fn alias_generator(&self) -> &Arc<AliasGenerator> {
        &self.aliases
    }

    fn options(&self) -> Arc<ConfigOptions> {
        self.options.clone()
    }

    fn function_registry(&self) -> Option<&dyn FunctionRegistry> {
        Some(registry::session_state())
    }
}
