//! Key bytes to columns. Everything read is checked: malformed bytes are an error of kind `Corruption`, never a panic, and
//! memory stays proportional to the bytes given.

use super::KeyField;
use super::encode::{BYTES_END, DAY_NANOS, ESCAPE, LIST_END, NULL_FIRST, NULL_LAST, Order, Purpose, VALUE, fixed_width};
use crate::{Error, Result};
use arrow::array::*;
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute;
use arrow::datatypes::*;
use std::sync::Arc;

/// Decodes all fields of all keys, skipping `reserved` bytes at the start of each.
pub(crate) fn decode(fields: &[KeyField], keys: &BinaryArray, reserved: usize) -> Result<Vec<ArrayRef>> {
    let offsets = keys.value_offsets();
    let ends: Vec<usize> = offsets[1..].iter().map(|o| *o as usize).collect();
    let mut positions = Vec::with_capacity(keys.len());
    for (start, end) in offsets.iter().zip(&ends) {
        let at = *start as usize + reserved;
        if at > *end {
            return Err(truncated());
        }
        positions.push(at);
    }
    let mut rows = Rows { data: keys.value_data(), positions, ends };
    let columns = fields.iter().map(|f| rows.column(&f.data_type, f.order())).collect::<Result<Vec<_>>>()?;
    if rows.positions != rows.ends {
        return Err(Error::corruption("a key has bytes after its last column"));
    }
    Ok(columns)
}

fn truncated() -> Error {
    Error::corruption("a key ends within a column")
}

fn wrong_type(e: arrow::error::ArrowError) -> Error {
    Error::corruption(format!("a key does not have the declared type: {e}"))
}

/// Reads the tag: whether a value follows.
fn tag(byte: u8, order: Order) -> Result<bool> {
    match byte {
        VALUE => Ok(true),
        b if b == order.null => Ok(false),
        b => Err(Error::corruption(format!("a key has the tag {b}"))),
    }
}

/// Length of the byte string at `at` and where the next column starts; checks escapes.
fn scan_bytes(data: &[u8], at: usize, end: usize, mask: u8, mut piece: impl FnMut(&[u8])) -> Result<usize> {
    let mut at = at;
    loop {
        let rest = data.get(at..end).ok_or_else(truncated)?;
        let zero = rest.iter().position(|b| *b == mask).ok_or_else(truncated)?;
        let next = *rest.get(zero + 1).ok_or_else(truncated)? ^ mask;
        if next == BYTES_END[1] {
            piece(&rest[..zero]);
            return Ok(at + zero + 2);
        }
        if next != ESCAPE {
            return Err(Error::corruption(format!("a key has the escape {next}")));
        }
        piece(&rest[..=zero]);
        at += zero + 2;
    }
}

/// Where the bytes of a column in ascending order end.
fn skip(data_type: &DataType, data: &[u8], at: usize, end: usize) -> Result<usize> {
    if at >= end {
        return Err(truncated());
    }
    let valid = tag(data[at], Order::ASCENDING)?;
    let at = at + 1;
    if let Some(width) = fixed_width(data_type, Purpose::Key) {
        return if at + width <= end { Ok(at + width) } else { Err(truncated()) };
    }
    if !valid {
        return Ok(at);
    }
    match data_type {
        DataType::List(element) => {
            let mut at = at;
            while *data.get(at).filter(|_| at < end).ok_or_else(truncated)? != LIST_END {
                at = skip(element.data_type(), data, at, end)?;
            }
            Ok(at + 1)
        }
        DataType::Struct(fields) => fields.iter().try_fold(at, |at, f| skip(f.data_type(), data, at, end)),
        _ => scan_bytes(data, at, end, 0, |_| ()),
    }
}

/// The keys, with the position of the next column in each.
struct Rows<'a> {
    data: &'a [u8],
    positions: Vec<usize>,
    ends: Vec<usize>,
}

impl Rows<'_> {
    fn column(&mut self, data_type: &DataType, order: Order) -> Result<ArrayRef> {
        use DataType as T;
        macro_rules! primitive {
            ($t:ty, $from_bytes:expr) => {{
                let (values, nulls) = self.fixed(order, |bytes| Ok($from_bytes(bytes)))?;
                let array = PrimitiveArray::<$t>::new(ScalarBuffer::from(values), nulls);
                Arc::new(array.with_data_type(data_type.clone())) as ArrayRef
            }};
        }
        macro_rules! by_unit {
            ($unit:expr, $($variant:ident => $t:ty),*) => {
                match $unit {
                    $(TimeUnit::$variant => primitive!($t, i64_from),)*
                }
            };
        }
        Ok(match data_type {
            T::Null => {
                self.fixed(order, |[]: [u8; 0]| -> Result<()> { Err(Error::corruption("a key has a value of a type without values")) })?;
                Arc::new(NullArray::new(self.positions.len()))
            }
            T::Boolean => {
                let (values, nulls) = self.fixed(order, |[byte]: [u8; 1]| match byte {
                    0 => Ok(false),
                    1 => Ok(true),
                    b => Err(Error::corruption(format!("a key has the boolean {b}"))),
                })?;
                Arc::new(BooleanArray::new(values.into(), nulls))
            }
            T::Int8 => primitive!(Int8Type, |b| i8::from_be_bytes(b) ^ i8::MIN),
            T::Int16 => primitive!(Int16Type, |b| i16::from_be_bytes(b) ^ i16::MIN),
            T::Int32 => primitive!(Int32Type, i32_from),
            T::Int64 => primitive!(Int64Type, i64_from),
            T::UInt8 => primitive!(UInt8Type, u8::from_be_bytes),
            T::UInt16 => primitive!(UInt16Type, u16::from_be_bytes),
            T::UInt32 => primitive!(UInt32Type, u32::from_be_bytes),
            T::UInt64 => primitive!(UInt64Type, u64::from_be_bytes),
            T::Float32 => primitive!(Float32Type, f32_from),
            T::Float64 => primitive!(Float64Type, f64_from),
            T::Date32 => primitive!(Date32Type, i32_from),
            T::Date64 => primitive!(Date64Type, i64_from),
            T::Time32(TimeUnit::Second) => primitive!(Time32SecondType, i32_from),
            T::Time32(_) => primitive!(Time32MillisecondType, i32_from),
            T::Time64(TimeUnit::Microsecond) => primitive!(Time64MicrosecondType, i64_from),
            T::Time64(_) => primitive!(Time64NanosecondType, i64_from),
            T::Timestamp(unit, _) => by_unit!(unit, Second => TimestampSecondType, Millisecond => TimestampMillisecondType,
                Microsecond => TimestampMicrosecondType, Nanosecond => TimestampNanosecondType),
            T::Duration(unit) => by_unit!(unit, Second => DurationSecondType, Millisecond => DurationMillisecondType,
                Microsecond => DurationMicrosecondType, Nanosecond => DurationNanosecondType),
            T::Decimal32(..) => primitive!(Decimal32Type, i32_from),
            T::Decimal64(..) => primitive!(Decimal64Type, i64_from),
            T::Decimal128(..) => primitive!(Decimal128Type, i128_from),
            T::Decimal256(..) => primitive!(Decimal256Type, |mut b: [u8; 32]| {
                b[0] ^= 0x80;
                i256::from_be_bytes(b)
            }),
            T::Interval(IntervalUnit::MonthDayNano) => {
                let (values, nulls) = self.fixed(order, interval_from)?;
                Arc::new(IntervalMonthDayNanoArray::new(ScalarBuffer::from(values), nulls))
            }
            T::FixedSizeBinary(width) => self.fixed_bytes(*width, order)?,
            T::List(element) => self.list(element, order)?,
            T::Struct(fields) => self.structs(fields, order)?,
            T::Utf8 | T::LargeUtf8 | T::Utf8View => {
                let (offsets, values, nulls) = self.bytes(order)?;
                let text = StringArray::try_new(offsets, values, nulls).map_err(wrong_type)?;
                compute::cast(&text, data_type)?
            }
            T::Binary | T::LargeBinary | T::BinaryView => {
                let (offsets, values, nulls) = self.bytes(order)?;
                compute::cast(&BinaryArray::try_new(offsets, values, nulls).map_err(wrong_type)?, data_type)?
            }
            other => return Err(Error::unsupported(format!("a column of type {other} cannot be part of a key"))),
        })
    }

    /// Values of a fixed width; NULLs give the default.
    fn fixed<T: Default, const N: usize>(
        &mut self,
        order: Order,
        from_bytes: impl Fn([u8; N]) -> Result<T>,
    ) -> Result<(Vec<T>, Option<NullBuffer>)> {
        let mut values = Vec::with_capacity(self.positions.len());
        let mut nulls = NullBufferBuilder::new(self.positions.len());
        for (position, end) in self.positions.iter_mut().zip(&self.ends) {
            let next = *position + 1 + N;
            if next > *end {
                return Err(truncated());
            }
            let slot = &self.data[*position..next];
            if tag(slot[0], order)? {
                let bytes: [u8; N] = slot[1..].try_into().expect("the slice has this length");
                values.push(from_bytes(bytes.map(|b| b ^ order.mask))?);
                nulls.append_non_null();
            } else {
                zeros(&slot[1..])?;
                values.push(T::default());
                nulls.append_null();
            }
            *position = next;
        }
        Ok((values, nulls.finish()))
    }

    fn fixed_bytes(&mut self, width: i32, order: Order) -> Result<ArrayRef> {
        let mut builder = FixedSizeBinaryBuilder::with_capacity(self.positions.len(), width);
        let mut value = vec![0; width as usize];
        for (position, end) in self.positions.iter_mut().zip(&self.ends) {
            let next = *position + 1 + width as usize;
            if next > *end {
                return Err(truncated());
            }
            let slot = &self.data[*position..next];
            if tag(slot[0], order)? {
                value.iter_mut().zip(&slot[1..]).for_each(|(v, b)| *v = b ^ order.mask);
                builder.append_value(&value)?;
            } else {
                zeros(&slot[1..])?;
                builder.append_null();
            }
            *position = next;
        }
        Ok(Arc::new(builder.finish()))
    }

    fn bytes(&mut self, order: Order) -> Result<(OffsetBuffer<i32>, Buffer, Option<NullBuffer>)> {
        let mut values: Vec<u8> = Vec::new();
        let mut offsets = Vec::with_capacity(self.positions.len() + 1);
        offsets.push(0i32);
        let mut nulls = NullBufferBuilder::new(self.positions.len());
        for (position, end) in self.positions.iter_mut().zip(&self.ends) {
            let byte = *self.data[..*end].get(*position).ok_or_else(truncated)?;
            *position += 1;
            if tag(byte, order)? {
                *position = scan_bytes(self.data, *position, *end, order.mask, |piece| {
                    values.extend(piece.iter().map(|b| b ^ order.mask));
                })?;
                nulls.append_non_null();
            } else {
                nulls.append_null();
            }
            offsets.push(i32::try_from(values.len()).map_err(|_| Error::corruption("keys exceed 2 GiB"))?);
        }
        Ok((OffsetBuffer::new(ScalarBuffer::from(offsets)), Buffer::from_vec(values), nulls.finish()))
    }

    /// Reads the tags of a nested column, and gives the bytes after them without the inversion of descending order.
    fn nested_tags(&mut self, order: Order) -> Result<(std::borrow::Cow<'_, [u8]>, NullBuffer)> {
        let mut valid = Vec::with_capacity(self.positions.len());
        for (position, end) in self.positions.iter_mut().zip(&self.ends) {
            valid.push(tag(*self.data[..*end].get(*position).ok_or_else(truncated)?, order)?);
            *position += 1;
        }
        let data = match order.mask {
            0 => std::borrow::Cow::Borrowed(self.data),
            mask => std::borrow::Cow::Owned(self.data.iter().map(|b| b ^ mask).collect()),
        };
        Ok((data, NullBuffer::from(valid)))
    }

    fn list(&mut self, element: &FieldRef, order: Order) -> Result<ArrayRef> {
        let ends = self.ends.clone();
        let mut positions = std::mem::take(&mut self.positions);
        self.positions = positions.clone();
        let (data, nulls) = self.nested_tags(order)?;
        let mut elements = Rows { data: &data, positions: Vec::new(), ends: Vec::new() };
        let mut offsets = vec![0i32];
        for (row, position) in positions.iter_mut().enumerate() {
            *position += 1;
            if nulls.is_valid(row) {
                let end = ends[row];
                while *data[..end].get(*position).ok_or_else(truncated)? != LIST_END {
                    elements.positions.push(*position);
                    elements.ends.push(end);
                    *position = skip(element.data_type(), &data, *position, end)?;
                }
                *position += 1;
            }
            offsets.push(i32::try_from(elements.positions.len()).map_err(|_| Error::corruption("too many elements in keys"))?);
        }
        let values = elements.column(element.data_type(), Order::ASCENDING)?;
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let list = ListArray::try_new(element.clone(), offsets, values, Some(nulls)).map_err(wrong_type)?;
        self.positions = positions;
        Ok(Arc::new(list))
    }

    fn structs(&mut self, fields: &Fields, order: Order) -> Result<ArrayRef> {
        let ends = self.ends.clone();
        let mut positions: Vec<usize> = self.positions.iter().map(|p| p + 1).collect();
        let (data, nulls) = self.nested_tags(order)?;
        // Only rows with a value have fields; the others get NULLs by way of a gather.
        let present: Vec<usize> = (0..positions.len()).filter(|row| nulls.is_valid(*row)).collect();
        let mut inner = Rows {
            data: &data,
            positions: present.iter().map(|r| positions[*r]).collect(),
            ends: present.iter().map(|r| ends[*r]).collect(),
        };
        let mut slot = 0u32;
        let gather: UInt32Array = nulls
            .iter()
            .map(|valid| {
                valid.then(|| {
                    slot += 1;
                    slot - 1
                })
            })
            .collect();
        let mut columns = Vec::with_capacity(fields.len());
        for field in fields {
            let column = inner.column(field.data_type(), Order::ASCENDING)?;
            columns.push(compute::take(&column, &gather, None)?);
        }
        for (row, position) in present.iter().zip(&inner.positions) {
            positions[*row] = *position;
        }
        let array = StructArray::try_new(fields.clone(), columns, Some(nulls)).map_err(wrong_type)?;
        self.positions = positions;
        Ok(Arc::new(array))
    }
}

/// NULLs of fixed width are followed by zeros, whatever the order.
fn zeros(bytes: &[u8]) -> Result<()> {
    if bytes.iter().all(|b| *b == 0) { Ok(()) } else { Err(Error::corruption("a key has a NULL with a value")) }
}

fn i32_from(bytes: [u8; 4]) -> i32 {
    i32::from_be_bytes(bytes) ^ i32::MIN
}

fn i64_from(bytes: [u8; 8]) -> i64 {
    i64::from_be_bytes(bytes) ^ i64::MIN
}

fn i128_from(bytes: [u8; 16]) -> i128 {
    i128::from_be_bytes(bytes) ^ i128::MIN
}

fn f64_from(bytes: [u8; 8]) -> f64 {
    let bits = u64::from_be_bytes(bytes);
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

fn f32_from(bytes: [u8; 4]) -> f32 {
    let bits = u32::from_be_bytes(bytes);
    f32::from_bits(if bits >> 31 == 1 { bits & !(1 << 31) } else { !bits })
}

fn interval_from(bytes: [u8; 24]) -> Result<IntervalMonthDayNano> {
    let part = |range: std::ops::Range<usize>| i32_from(bytes[range].try_into().expect("four bytes"));
    let span = i128_from(bytes[..16].try_into().expect("sixteen bytes"));
    let (months, days) = (part(16..20), part(20..24));
    let nanoseconds = span
        .checked_sub((i128::from(months) * 30 + i128::from(days)) * DAY_NANOS)
        .and_then(|n| i64::try_from(n).ok())
        .ok_or_else(|| Error::corruption("a key has an interval that does not add up"))?;
    Ok(IntervalMonthDayNano { months, days, nanoseconds })
}

const _: () = assert!(NULL_FIRST < VALUE && VALUE < NULL_LAST, "tags are in order");
