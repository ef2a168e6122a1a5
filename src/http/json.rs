//! Arrow values as JSON: numbers stay numbers, what JSON has no type for is text.
//!
//! `numeric` is text (JSON readers would round it), so are NaN and the infinities; `bigint` is a number even beyond 2^53; timestamps are
//! ISO 8601 (`2024-01-31T10:00:00.5`, with `Z` for those with time zone); arrays and composites nest; everything else is Postgres' text.

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use eddyline_types::sql_types::sql_name;
use eddyline_types::value_text::TextColumn;
use serde_json::{Value, json};

/// A batch that can write its rows.
pub(crate) struct JsonRows<'a> {
    batch: &'a RecordBatch,
    columns: Vec<TextColumn<'a>>,
    /// Keys, quoted and with the colon.
    keys: Vec<String>,
}

/// `[{"name","type"}]` of a result.
pub(crate) fn columns(schema: &SchemaRef) -> Value {
    schema.fields().iter().map(|f| json!({ "name": f.name(), "type": sql_name(f.data_type()) })).collect()
}

impl<'a> JsonRows<'a> {
    pub(crate) fn new(batch: &'a RecordBatch) -> Self {
        let columns = batch.columns().iter().map(|c| TextColumn::new(c.as_ref())).collect();
        let keys = batch.schema().fields().iter().map(|f| format!("{}:", Value::from(f.name().as_str()))).collect();
        JsonRows { batch, columns, keys }
    }

    /// `[1,"a",null]`
    pub(crate) fn write_array(&self, row: usize, out: &mut Vec<u8>) {
        out.push(b'[');
        for (i, column) in self.columns.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write(column, self.batch.column(i).as_ref(), row, out);
        }
        out.push(b']');
    }

    /// `{"id":1,"name":"a"}`
    pub(crate) fn write_object(&self, row: usize, out: &mut Vec<u8>) {
        out.push(b'{');
        for (i, column) in self.columns.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(self.keys[i].as_bytes());
            write(column, self.batch.column(i).as_ref(), row, out);
        }
        out.push(b'}');
    }
}

fn write(column: &TextColumn, array: &dyn Array, row: usize, out: &mut Vec<u8>) {
    if array.is_null(row) || matches!(column, TextColumn::Null) {
        out.extend_from_slice(b"null");
        return;
    }
    match column {
        TextColumn::Bool(a) => out.extend_from_slice(if a.value(row) { b"true" } else { b"false" }),
        TextColumn::Int(_) => column.write(row, out),
        TextColumn::Float32(a) => write_float(f64::from(a.value(row)), &a.value(row).to_string(), out),
        TextColumn::Float64(a) => {
            write_float(a.value(row), &serde_json::Number::from_f64(a.value(row)).map_or_else(String::new, |n| n.to_string()), out)
        }
        TextColumn::Timestamp(..) => {
            let text = column.text(row).replacen(' ', "T", 1);
            quote(text.strip_suffix("+00").map(|t| format!("{t}Z")).as_deref().unwrap_or(&text), out);
        }
        TextColumn::List(list, element) => {
            let (values, offsets) = (list.values(), list.value_offsets());
            out.push(b'[');
            for at in offsets[row]..offsets[row + 1] {
                if at > offsets[row] {
                    out.push(b',');
                }
                write(element, values.as_ref(), at as usize, out);
            }
            out.push(b']');
        }
        TextColumn::Struct(parts, fields) => {
            out.push(b'{');
            for (i, (field, part)) in fields.iter().zip(parts.columns()).enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                quote(parts.column_names()[i], out);
                out.push(b':');
                write(field, part.as_ref(), row, out);
            }
            out.push(b'}');
        }
        TextColumn::Utf8(a) => quote(a.value(row), out),
        _ => quote(&column.text(row), out),
    }
}

fn write_float(value: f64, text: &str, out: &mut Vec<u8>) {
    if value.is_finite() {
        out.extend_from_slice(text.as_bytes());
    } else {
        quote(
            if value.is_nan() {
                "NaN"
            } else if value > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            },
            out,
        );
    }
}

fn quote(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a string has a JSON form and a vector takes it");
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use arrow::array::*;
    use arrow::datatypes::{DataType, Field, Float64Type, Int32Type, Schema};
    use std::sync::Arc;

    pub(crate) fn sample() -> RecordBatch {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("i", Arc::new(Int64Array::from(vec![Some(i64::MAX), None]))),
            ("f", Arc::new(PrimitiveArray::<Float64Type>::from(vec![1.5, f64::NAN]))),
            ("n", Arc::new(Decimal128Array::from(vec![1050, -1]).with_precision_and_scale(10, 2).unwrap())),
            ("s", Arc::new(StringArray::from(vec!["a \"b\", c\n", "é"]))),
            ("b", Arc::new(BooleanArray::from(vec![true, false]))),
            ("t", Arc::new(TimestampMicrosecondArray::from(vec![1_704_326_400_500_000, 0]))),
            ("z", Arc::new(TimestampMicrosecondArray::from(vec![1_704_326_400_500_000, 0]).with_timezone("UTC"))),
            ("l", Arc::new(list)),
        ];
        let fields: Vec<Field> = columns.iter().map(|(n, a)| Field::new(*n, a.data_type().clone(), true)).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, a)| a).collect()).unwrap()
    }

    #[test]
    fn values_have_their_json_forms() {
        let batch = sample();
        let rows = JsonRows::new(&batch);
        let mut out = vec![];
        rows.write_array(0, &mut out);
        let wanted = r#"[9223372036854775807,1.5,"10.50","a \"b\", c\n",true,"2024-01-04T00:00:00.5","2024-01-04T00:00:00.5Z",[1,null]]"#;
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
        let mut out = vec![];
        rows.write_object(1, &mut out);
        let wanted = r#"{"i":null,"f":"NaN","n":"-0.01","s":"é","b":false,"t":"1970-01-01T00:00:00","z":"1970-01-01T00:00:00Z","l":null}"#;
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
        assert_eq!(columns(&batch.schema())[2], json!({"name": "n", "type": sql_name(&DataType::Decimal128(10, 2))}));
    }
}
