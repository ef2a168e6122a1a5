//! Arithmetic that fails where Postgres fails: integers that overflow, division by zero.
//!
//! DataFusion's operators wrap integers silently and give infinity for `1.0 / 0`. The SQL front end therefore replaces
//! `+ - * / %` over two integers or two floats, once their types are settled, by these functions; dates, intervals and decimals keep the operators.

use crate::pg_types;
use arrow::array::AsArray;
use arrow::compute::kernels::numeric;
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::error::ArrowError;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use eddyline_types::{Error, SqlState};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

/// The checked operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum CheckedOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl CheckedOp {
    /// All of them.
    pub const ALL: [CheckedOp; 5] = [CheckedOp::Add, CheckedOp::Subtract, CheckedOp::Multiply, CheckedOp::Divide, CheckedOp::Modulo];

    /// The checked form of an operator.
    pub fn of(op: Operator) -> Option<CheckedOp> {
        match op {
            Operator::Plus => Some(CheckedOp::Add),
            Operator::Minus => Some(CheckedOp::Subtract),
            Operator::Multiply => Some(CheckedOp::Multiply),
            Operator::Divide => Some(CheckedOp::Divide),
            Operator::Modulo => Some(CheckedOp::Modulo),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            CheckedOp::Add => "eddy_add",
            CheckedOp::Subtract => "eddy_subtract",
            CheckedOp::Multiply => "eddy_multiply",
            CheckedOp::Divide => "eddy_divide",
            CheckedOp::Modulo => "eddy_modulo",
        }
    }

    /// The operator that it checks.
    pub fn symbol(self) -> &'static str {
        match self {
            CheckedOp::Add => "+",
            CheckedOp::Subtract => "-",
            CheckedOp::Multiply => "*",
            CheckedOp::Divide => "/",
            CheckedOp::Modulo => "%",
        }
    }
}

/// Whether operands of this type take the checked form.
pub fn applies_to(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// `left op right`, checked; both must have the same type, one for which [`applies_to`] holds.
pub fn checked(op: CheckedOp, left: Expr, right: Expr) -> Expr {
    function(op).call(vec![left, right])
}

/// The checked operator that an expression is a call of.
pub fn as_checked(function: &ScalarUDF) -> Option<CheckedOp> {
    CheckedOp::ALL.into_iter().find(|op| op.name() == function.name())
}

/// The function behind a checked operator.
pub fn function(op: CheckedOp) -> Arc<ScalarUDF> {
    static ALL: LazyLock<Vec<Arc<ScalarUDF>>> =
        LazyLock::new(|| CheckedOp::ALL.into_iter().map(|op| Arc::new(ScalarUDF::from(Checked::new(op)))).collect());
    ALL[op as usize].clone()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    op: CheckedOp,
    signature: Signature,
}

impl Checked {
    fn new(op: CheckedOp) -> Self {
        let types = [
            DataType::Int8,
            DataType::Int16,
            DataType::Int32,
            DataType::Int64,
            DataType::UInt8,
            DataType::UInt16,
            DataType::UInt32,
            DataType::UInt64,
            DataType::Float32,
            DataType::Float64,
        ];
        Checked { op, signature: Signature::uniform(2, types.to_vec(), Volatility::Immutable) }
    }
}

/// Whether more checked operators are nested in the arguments than a name should spell out.
fn is_large(args: &[Expr]) -> bool {
    fn count(expr: &Expr, left: &mut usize) {
        match expr {
            Expr::ScalarFunction(f) if *left > 0 && as_checked(&f.func).is_some() => {
                *left -= 1;
                f.args.iter().for_each(|a| count(a, left));
            }
            Expr::Cast(cast) => count(&cast.expr, left),
            _ => {}
        }
    }
    let mut left = 16;
    args.iter().for_each(|a| count(a, &mut left));
    left == 0
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        self.op.name()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        match args {
            // The planner asks for the name of every part of an expression again and again: spelled out, long chains would cost their cube.
            [left, right] if is_large(args) => {
                let mut hasher = std::hash::DefaultHasher::new();
                (left, right).hash(&mut hasher);
                Ok(format!("{}({:016x})", self.name(), hasher.finish()))
            }
            [left, right] => Ok(format!("{} {} {}", left.schema_name(), self.op.symbol(), right.schema_name())),
            _ => Ok(self.name().to_string()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        arg_types.first().cloned().ok_or_else(|| DataFusionError::Internal("a checked operator needs two operands".into()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return Err(DataFusionError::Internal("a checked operator needs two operands".into()));
        };
        let data_type = left.data_type();
        let constant = matches!((left, right), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let result = match (left, right) {
            (ColumnarValue::Array(l), ColumnarValue::Array(r)) => self.apply(l, r),
            (ColumnarValue::Array(l), ColumnarValue::Scalar(r)) => self.apply(l, &r.to_scalar()?),
            (ColumnarValue::Scalar(l), ColumnarValue::Array(r)) => self.apply(&l.to_scalar()?, r),
            (ColumnarValue::Scalar(l), ColumnarValue::Scalar(r)) => self.apply(&l.to_scalar()?, &r.to_scalar()?),
        };
        let array = result.map_err(|e| match e {
            ArrowError::ArithmeticOverflow(_) => {
                let message = format!("{} out of range", pg_types::name(&data_type));
                DataFusionError::External(Box::new(Error::user(SqlState::NUMERIC_OUT_OF_RANGE, message)))
            }
            other => DataFusionError::from(other),
        })?;
        if constant { Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)) } else { Ok(ColumnarValue::Array(array)) }
    }
}

impl Checked {
    fn apply(&self, left: &dyn arrow::array::Datum, right: &dyn arrow::array::Datum) -> Result<arrow::array::ArrayRef, ArrowError> {
        if matches!(self.op, CheckedOp::Divide | CheckedOp::Modulo) {
            refuse_float_zero(left, right)?;
        }
        match self.op {
            CheckedOp::Add => numeric::add(left, right),
            CheckedOp::Subtract => numeric::sub(left, right),
            CheckedOp::Multiply => numeric::mul(left, right),
            CheckedOp::Divide => numeric::div(left, right),
            CheckedOp::Modulo => numeric::rem(left, right),
        }
    }
}

/// Arrow checks integer divisors only. A NULL dividend saves its row, as in Postgres.
fn refuse_float_zero(left: &dyn arrow::array::Datum, right: &dyn arrow::array::Datum) -> Result<(), ArrowError> {
    let (left, left_constant) = left.get();
    let (right, right_constant) = right.get();
    let is_zero = |i: usize| match right.data_type() {
        DataType::Float32 => right.as_primitive::<Float32Type>().value(i) == 0.0,
        DataType::Float64 => right.as_primitive::<Float64Type>().value(i) == 0.0,
        _ => false,
    };
    if !matches!(right.data_type(), DataType::Float32 | DataType::Float64) {
        return Ok(());
    }
    let divides = |i: usize, j: usize| left.is_valid(i) && right.is_valid(j) && is_zero(j);
    let zero = match (left_constant, right_constant) {
        (_, true) if right.is_null(0) || !is_zero(0) => false,
        (true, true) => divides(0, 0),
        (false, true) => (0..left.len()).any(|i| divides(i, 0)),
        (true, false) => (0..right.len()).any(|j| divides(0, j)),
        (false, false) => (0..right.len()).any(|i| divides(i, i)),
    };
    if zero { Err(ArrowError::DivideByZero) } else { Ok(()) }
}
