//! Columns to key bytes: sizes first, then one typed loop per column into one buffer.
//!
//! Invariant: a column's bytes depend only on its value, type and order, never on its neighbours, so prefixes compose.

use crate::{Error, Result, SqlState};
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::*;
use xxhash_rust::xxh3::xxh3_64;

/// Tag of a value; NULL's tag is below or above it.
pub(crate) const VALUE: u8 = 1;
/// Tag of NULL under NULLS FIRST.
pub(crate) const NULL_FIRST: u8 = 0;
/// Tag of NULL under NULLS LAST.
pub(crate) const NULL_LAST: u8 = 2;
/// Ends a byte string (before inversion).
pub(crate) const BYTES_END: [u8; 2] = [0, 0];
/// Follows a zero byte of a byte string (before inversion), so that it is not taken for the end.
pub(crate) const ESCAPE: u8 = 0xFF;
/// Ends a list (before inversion); it is below every tag of an element.
pub(crate) const LIST_END: u8 = 0;

/// Nanoseconds of a day of 24 hours.
pub(crate) const DAY_NANOS: i128 = 86_400_000_000_000;

/// Order of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// Xored into every byte after the tag.
    pub mask: u8,
    /// Tag of NULL.
    pub null: u8,
}

impl Order {
    pub const ASCENDING: Order = Order { mask: 0, null: NULL_LAST };

    pub fn new(descending: bool, nulls_first: bool) -> Self {
        Order { mask: if descending { 0xFF } else { 0 }, null: if nulls_first { NULL_FIRST } else { NULL_LAST } }
    }
}

/// What the bytes are for. Hashing has a canonical form where different keys are equal as SQL values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Key,
    Hash,
}

/// Bytes of a fixed-width type without the tag; `None` for types of variable width.
pub(crate) fn fixed_width(data_type: &DataType, purpose: Purpose) -> Option<usize> {
    use DataType as T;
    Some(match data_type {
        T::Null => 0,
        T::Boolean | T::Int8 | T::UInt8 => 1,
        T::Int16 | T::UInt16 => 2,
        T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) if purpose == Purpose::Hash => 33,
        T::Int32 | T::UInt32 | T::Float32 | T::Date32 | T::Time32(_) | T::Decimal32(..) => 4,
        T::Int64 | T::UInt64 | T::Float64 | T::Date64 | T::Time64(_) | T::Timestamp(..) | T::Duration(_) | T::Decimal64(..) => 8,
        T::Decimal128(..) => 16,
        T::Decimal256(..) => 32,
        T::Interval(_) => match purpose {
            Purpose::Key => 24,
            Purpose::Hash => 16,
        },
        T::FixedSizeBinary(width) => *width as usize,
        _ => return None,
    })
}

/// Whether the ascending key bytes of a type are what is hashed.
pub(crate) fn hashes_as_key(data_type: &DataType) -> bool {
    use DataType as T;
    match data_type {
        T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) | T::Interval(_) => false,
        T::List(element) => hashes_as_key(element.data_type()),
        T::Struct(fields) => fields.iter().all(|f| hashes_as_key(f.data_type())),
        _ => true,
    }
}

/// Key bytes of the columns.
pub(crate) fn encode(columns: &[ArrayRef], orders: &[Order], rows: usize) -> Result<BinaryArray> {
    encode_after(columns, orders, rows, 0, Purpose::Key)?.finish()
}

/// The canonical bytes that decide the vnode.
pub(crate) fn hash_bytes(columns: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
    encode_after(columns, &vec![Order::ASCENDING; columns.len()], rows, 0, Purpose::Hash)?.finish()
}

fn encode_after(columns: &[ArrayRef], orders: &[Order], rows: usize, reserved: usize, purpose: Purpose) -> Result<Writer> {
    let parts = columns.iter().map(|c| Part::new(c, purpose)).collect::<Result<Vec<_>>>()?;
    let mut writer = Writer::new(columns, &parts, rows, reserved)?;
    for ((column, part), order) in columns.iter().zip(&parts).zip(orders) {
        writer.column(column, part, *order, purpose)?;
    }
    Ok(writer)
}

/// Key bytes with two bytes of vnode before each; the vnode is hashed from the bytes of the first `distribution` columns, which
/// must hash as they are encoded.
pub(crate) fn encode_hashed(columns: &[ArrayRef], orders: &[Order], rows: usize, distribution: usize) -> Result<BinaryArray> {
    let parts = columns.iter().map(|c| Part::new(c, Purpose::Key)).collect::<Result<Vec<_>>>()?;
    let mut writer = Writer::new(columns, &parts, rows, 2)?;
    for (i, ((column, part), order)) in columns.iter().zip(&parts).zip(orders).enumerate() {
        writer.column(column, part, *order, Purpose::Key)?;
        if i + 1 == distribution {
            writer.hash_vnodes();
        }
    }
    writer.finish()
}

/// Key bytes with the given vnodes before them.
pub(crate) fn encode_placed(columns: &[ArrayRef], orders: &[Order], vnodes: &[u16]) -> Result<BinaryArray> {
    let mut writer = encode_after(columns, orders, vnodes.len(), 2, Purpose::Key)?;
    writer.put_vnodes(vnodes);
    writer.finish()
}

/// What a column needs besides itself.
enum Part {
    Fixed(usize),
    Bytes {
        has_zeros: bool,
    },
    /// Encoded elements of a list or fields of a struct.
    Nested(BinaryArray),
}

impl Part {
    fn new(column: &ArrayRef, purpose: Purpose) -> Result<Self> {
        use DataType as T;
        if let Some(width) = fixed_width(column.data_type(), purpose) {
            return Ok(Part::Fixed(width));
        }
        let has_zeros = match column.data_type() {
            T::Utf8 => visible(column.as_string::<i32>()).contains(&0),
            T::LargeUtf8 => visible(column.as_string::<i64>()).contains(&0),
            T::Binary => visible(column.as_binary::<i32>()).contains(&0),
            T::LargeBinary => visible(column.as_binary::<i64>()).contains(&0),
            T::Utf8View | T::BinaryView => true,
            T::List(_) => {
                let values = column.as_list::<i32>().values();
                let orders = [Order::ASCENDING];
                return Ok(Part::Nested(encode_after(std::slice::from_ref(values), &orders, values.len(), 0, purpose)?.finish()?));
            }
            T::Struct(fields) => {
                let orders = vec![Order::ASCENDING; fields.len()];
                return Ok(Part::Nested(encode_after(column.as_struct().columns(), &orders, column.len(), 0, purpose)?.finish()?));
            }
            other => return Err(Error::unsupported(format!("a column of type {other} cannot be part of a key"))),
        };
        Ok(Part::Bytes { has_zeros })
    }
}

/// The bytes that the rows of a (possibly sliced) array refer to.
fn visible<T: ByteArrayType>(array: &arrow::array::GenericByteArray<T>) -> &[u8] {
    let offsets = array.value_offsets();
    &array.value_data()[offsets[0].as_usize()..offsets[array.len()].as_usize()]
}

/// Calls `$body` with a closure that gives the bytes of a row, for every layout of strings and binaries.
macro_rules! with_bytes {
    ($column:expr, |$get:ident| $body:expr) => {
        match $column.data_type() {
            DataType::Utf8 => with_bytes!(@ $column.as_string::<i32>(), as_str, $get, $body),
            DataType::LargeUtf8 => with_bytes!(@ $column.as_string::<i64>(), as_str, $get, $body),
            DataType::Utf8View => with_bytes!(@ $column.as_string_view(), as_str, $get, $body),
            DataType::Binary => with_bytes!(@ $column.as_binary::<i32>(), as_bin, $get, $body),
            DataType::LargeBinary => with_bytes!(@ $column.as_binary::<i64>(), as_bin, $get, $body),
            DataType::BinaryView => with_bytes!(@ $column.as_binary_view(), as_bin, $get, $body),
            other => return Err(Error::internal(format!("{other} is not a byte string"))),
        }
    };
    (@ $array:expr, as_str, $get:ident, $body:expr) => {{
        let array = $array;
        let $get = |row: usize| array.value(row).as_bytes();
        $body
    }};
    (@ $array:expr, as_bin, $get:ident, $body:expr) => {{
        let array = $array;
        let $get = |row: usize| array.value(row);
        $body
    }};
}

fn is_valid(nulls: Option<&NullBuffer>, row: usize) -> bool {
    nulls.is_none_or(|n| n.is_valid(row))
}

/// Adds the size of each row's bytes.
fn add_sizes(column: &ArrayRef, part: &Part, sizes: &mut [usize]) -> Result<()> {
    let nulls = column.nulls();
    match part {
        Part::Fixed(width) => sizes.iter_mut().for_each(|s| *s += 1 + width),
        Part::Bytes { has_zeros } => with_bytes!(column, |get| {
            for (row, size) in sizes.iter_mut().enumerate() {
                *size += 1;
                if is_valid(nulls, row) {
                    let value = get(row);
                    let zeros = if *has_zeros { value.iter().filter(|b| **b == 0).count() } else { 0 };
                    *size += value.len() + zeros + BYTES_END.len();
                }
            }
        }),
        Part::Nested(children) => {
            for (row, size) in sizes.iter_mut().enumerate() {
                *size += 1;
                if is_valid(nulls, row) {
                    *size += nested_bytes(column, children, row).len() + usize::from(is_list(column));
                }
            }
        }
    }
    Ok(())
}

fn is_list(column: &ArrayRef) -> bool {
    matches!(column.data_type(), DataType::List(_))
}

/// The bytes of all elements of a list row (they are adjacent), or of all fields of a struct row.
fn nested_bytes<'a>(column: &ArrayRef, children: &'a BinaryArray, row: usize) -> &'a [u8] {
    let (from, to) = match column.as_list_opt::<i32>() {
        Some(list) => (list.value_offsets()[row] as usize, list.value_offsets()[row + 1] as usize),
        None => (row, row + 1),
    };
    let offsets = children.value_offsets();
    &children.value_data()[offsets[from] as usize..offsets[to] as usize]
}

/// Where the next column goes.
enum Cursor {
    /// All rows have `stride` bytes; the next column starts at `at` in each.
    Strided { stride: usize, at: usize },
    /// The position of the next column of each row.
    Scattered(Vec<usize>),
}

/// The buffer of all keys, zeroed at first.
struct Writer {
    buffer: Vec<u8>,
    offsets: Vec<i32>,
    cursor: Cursor,
}

impl Writer {
    fn new(columns: &[ArrayRef], parts: &[Part], rows: usize, reserved: usize) -> Result<Self> {
        let stride = parts.iter().try_fold(reserved, |sum, part| match part {
            Part::Fixed(width) => Some(sum + 1 + width),
            Part::Bytes { .. } | Part::Nested(_) => None,
        });
        let too_large = || Error::user(SqlState::LIMIT_EXCEEDED, "keys of one chunk exceed 2 GiB");
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0i32);
        let Some(stride) = stride else {
            let mut sizes = vec![reserved; rows];
            for (column, part) in columns.iter().zip(parts) {
                add_sizes(column, part, &mut sizes)?;
            }
            let mut total = 0usize;
            for size in &mut sizes {
                let start = total;
                total += *size;
                // Each row's size becomes its write position.
                *size = start + reserved;
                offsets.push(i32::try_from(total).map_err(|_| too_large())?);
            }
            return Ok(Writer { buffer: vec![0; total], offsets, cursor: Cursor::Scattered(sizes) });
        };
        let total = rows.checked_mul(stride).and_then(|t| i32::try_from(t).ok()).ok_or_else(too_large)?;
        offsets.extend((1..=rows).map(|row| (row * stride) as i32));
        Ok(Writer { buffer: vec![0; total as usize], offsets, cursor: Cursor::Strided { stride, at: reserved } })
    }

    fn finish(self) -> Result<BinaryArray> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        Ok(BinaryArray::try_new(offsets, Buffer::from_vec(self.buffer), None)?)
    }

    /// Hashes what was written so far after the two reserved bytes, and puts the vnodes there.
    fn hash_vnodes(&mut self) {
        for row in 0..self.offsets.len() - 1 {
            let start = self.offsets[row] as usize;
            let end = match &self.cursor {
                Cursor::Strided { at, .. } => start + at,
                Cursor::Scattered(positions) => positions[row],
            };
            let vnode = crate::vnode::of_hash(xxh3_64(&self.buffer[start + 2..end]));
            self.buffer[start..start + 2].copy_from_slice(&vnode.to_be_bytes());
        }
    }

    fn put_vnodes(&mut self, vnodes: &[u16]) {
        for (offset, vnode) in self.offsets.iter().zip(vnodes) {
            let start = *offset as usize;
            self.buffer[start..start + 2].copy_from_slice(&vnode.to_be_bytes());
        }
    }

    fn column(&mut self, column: &ArrayRef, part: &Part, order: Order, purpose: Purpose) -> Result<()> {
        match part {
            Part::Fixed(_) => self.fixed_column(column, order, purpose),
            Part::Bytes { has_zeros } => {
                with_bytes!(column, |get| self.bytes(get, *has_zeros, column.nulls(), order));
                Ok(())
            }
            Part::Nested(children) => {
                self.nested(column, children, order);
                Ok(())
            }
        }
    }

    fn fixed_column(&mut self, column: &ArrayRef, order: Order, purpose: Purpose) -> Result<()> {
        use DataType as T;
        let nulls = column.nulls();
        macro_rules! values {
            ($t:ty, $to_bytes:expr) => {
                self.fixed(column.as_primitive::<$t>().values().iter().copied(), nulls, order, $to_bytes)
            };
        }
        macro_rules! by_unit {
            ($unit:expr, $($variant:ident => $t:ty),*) => {
                match $unit {
                    $(TimeUnit::$variant => values!($t, i64_bytes),)*
                }
            };
        }
        match column.data_type() {
            T::Null => self.fixed(std::iter::repeat_n((), column.len()), Some(&NullBuffer::new_null(column.len())), order, |()| []),
            T::Boolean => self.fixed(column.as_boolean().values().iter(), nulls, order, |v| [u8::from(v)]),
            T::Int8 => values!(Int8Type, |v| ((v ^ i8::MIN) as u8).to_be_bytes()),
            T::Int16 => values!(Int16Type, |v| ((v ^ i16::MIN) as u16).to_be_bytes()),
            T::Int32 => values!(Int32Type, i32_bytes),
            T::Int64 => values!(Int64Type, i64_bytes),
            T::UInt8 => values!(UInt8Type, u8::to_be_bytes),
            T::UInt16 => values!(UInt16Type, u16::to_be_bytes),
            T::UInt32 => values!(UInt32Type, u32::to_be_bytes),
            T::UInt64 => values!(UInt64Type, u64::to_be_bytes),
            T::Float32 => values!(Float32Type, f32_bytes),
            T::Float64 => values!(Float64Type, f64_bytes),
            T::Date32 => values!(Date32Type, i32_bytes),
            T::Date64 => values!(Date64Type, i64_bytes),
            T::Time32(TimeUnit::Second) => values!(Time32SecondType, i32_bytes),
            T::Time32(_) => values!(Time32MillisecondType, i32_bytes),
            T::Time64(TimeUnit::Microsecond) => values!(Time64MicrosecondType, i64_bytes),
            T::Time64(_) => values!(Time64NanosecondType, i64_bytes),
            T::Timestamp(unit, _) => by_unit!(unit, Second => TimestampSecondType, Millisecond => TimestampMillisecondType,
                Microsecond => TimestampMicrosecondType, Nanosecond => TimestampNanosecondType),
            T::Duration(unit) => by_unit!(unit, Second => DurationSecondType, Millisecond => DurationMillisecondType,
                Microsecond => DurationMicrosecondType, Nanosecond => DurationNanosecondType),
            T::Decimal32(_, scale) if purpose == Purpose::Hash => {
                let scale = *scale;
                values!(Decimal32Type, |v| canonical_decimal(i256::from_i128(v.into()), scale))
            }
            T::Decimal64(_, scale) if purpose == Purpose::Hash => {
                let scale = *scale;
                values!(Decimal64Type, |v| canonical_decimal(i256::from_i128(v.into()), scale))
            }
            T::Decimal128(_, scale) if purpose == Purpose::Hash => {
                let scale = *scale;
                values!(Decimal128Type, |v| canonical_decimal(i256::from_i128(v), scale))
            }
            T::Decimal256(_, scale) if purpose == Purpose::Hash => {
                let scale = *scale;
                values!(Decimal256Type, |v| canonical_decimal(v, scale))
            }
            T::Decimal32(..) => values!(Decimal32Type, i32_bytes),
            T::Decimal64(..) => values!(Decimal64Type, i64_bytes),
            T::Decimal128(..) => values!(Decimal128Type, i128_bytes),
            T::Decimal256(..) => values!(Decimal256Type, i256_bytes),
            T::Interval(IntervalUnit::MonthDayNano) => match purpose {
                Purpose::Key => values!(IntervalMonthDayNanoType, interval_bytes),
                Purpose::Hash => values!(IntervalMonthDayNanoType, |v| i128_bytes(interval_span(v))),
            },
            T::FixedSizeBinary(_) => {
                let array = column.as_fixed_size_binary();
                self.fixed_bytes(|row| array.value(row), array.value_length() as usize, column.len(), nulls, order);
            }
            other => return Err(Error::unsupported(format!("a column of type {other} cannot be part of a key"))),
        }
        Ok(())
    }

    /// Values of a fixed width: tag and bytes; NULL is its tag and zeros, so that all rows have one width.
    fn fixed<T, const N: usize>(
        &mut self,
        values: impl Iterator<Item = T>,
        nulls: Option<&NullBuffer>,
        order: Order,
        to_bytes: impl Fn(T) -> [u8; N],
    ) {
        let write = |slot: &mut [u8], valid: bool, value: T| {
            if valid {
                slot[0] = VALUE;
                slot[1..].copy_from_slice(&to_bytes(value).map(|b| b ^ order.mask));
            } else {
                slot[0] = order.null;
            }
        };
        match (&mut self.cursor, nulls) {
            (Cursor::Strided { stride, at }, None) => {
                for (row, value) in self.buffer.chunks_exact_mut(*stride).zip(values) {
                    write(&mut row[*at..*at + 1 + N], true, value);
                }
                *at += 1 + N;
            }
            (Cursor::Strided { stride, at }, Some(nulls)) => {
                for ((row, value), valid) in self.buffer.chunks_exact_mut(*stride).zip(values).zip(nulls.iter()) {
                    write(&mut row[*at..*at + 1 + N], valid, value);
                }
                *at += 1 + N;
            }
            (Cursor::Scattered(positions), nulls) => {
                for (row, (position, value)) in positions.iter_mut().zip(values).enumerate() {
                    write(&mut self.buffer[*position..*position + 1 + N], is_valid(nulls, row), value);
                    *position += 1 + N;
                }
            }
        }
    }

    /// As `fixed`, with a width known only at run time.
    fn fixed_bytes<'a>(&mut self, get: impl Fn(usize) -> &'a [u8], width: usize, rows: usize, nulls: Option<&NullBuffer>, order: Order) {
        for row in 0..rows {
            let start = match &mut self.cursor {
                Cursor::Strided { stride, at } => row * *stride + *at,
                Cursor::Scattered(positions) => {
                    positions[row] += 1 + width;
                    positions[row] - 1 - width
                }
            };
            if is_valid(nulls, row) {
                self.buffer[start] = VALUE;
                copy_masked(&mut self.buffer[start + 1..start + 1 + width], get(row), order.mask);
            } else {
                self.buffer[start] = order.null;
            }
        }
        if let Cursor::Strided { at, .. } = &mut self.cursor {
            *at += 1 + width;
        }
    }

    /// Byte strings: tag, bytes with zeros escaped, end.
    fn bytes<'a>(&mut self, get: impl Fn(usize) -> &'a [u8], has_zeros: bool, nulls: Option<&NullBuffer>, order: Order) {
        let Cursor::Scattered(positions) = &mut self.cursor else { unreachable!("a byte string makes the keys variable") };
        for (row, position) in positions.iter_mut().enumerate() {
            let mut at = *position;
            if !is_valid(nulls, row) {
                self.buffer[at] = order.null;
                *position = at + 1;
                continue;
            }
            let value = get(row);
            self.buffer[at] = VALUE;
            at += 1;
            if has_zeros {
                for piece in value.split_inclusive(|b| *b == 0) {
                    copy_masked(&mut self.buffer[at..at + piece.len()], piece, order.mask);
                    at += piece.len();
                    if piece.last() == Some(&0) {
                        self.buffer[at] = ESCAPE ^ order.mask;
                        at += 1;
                    }
                }
            } else {
                copy_masked(&mut self.buffer[at..at + value.len()], value, order.mask);
                at += value.len();
            }
            copy_masked(&mut self.buffer[at..at + BYTES_END.len()], &BYTES_END, order.mask);
            *position = at + BYTES_END.len();
        }
    }

    /// Lists (elements and an end) and structs (fields).
    fn nested(&mut self, column: &ArrayRef, children: &BinaryArray, order: Order) {
        let Cursor::Scattered(positions) = &mut self.cursor else { unreachable!("a nested column makes the keys variable") };
        let end = is_list(column);
        for (row, position) in positions.iter_mut().enumerate() {
            if !is_valid(column.nulls(), row) {
                self.buffer[*position] = order.null;
                *position += 1;
                continue;
            }
            self.buffer[*position] = VALUE;
            *position += 1;
            let bytes = nested_bytes(column, children, row);
            copy_masked(&mut self.buffer[*position..*position + bytes.len()], bytes, order.mask);
            *position += bytes.len();
            if end {
                self.buffer[*position] = LIST_END ^ order.mask;
                *position += 1;
            }
        }
    }
}

fn copy_masked(to: &mut [u8], from: &[u8], mask: u8) {
    if mask == 0 {
        to.copy_from_slice(from);
    } else {
        to.iter_mut().zip(from).for_each(|(t, f)| *t = f ^ mask);
    }
}

fn i32_bytes(v: i32) -> [u8; 4] {
    ((v ^ i32::MIN) as u32).to_be_bytes()
}

pub(crate) fn i64_bytes(v: i64) -> [u8; 8] {
    ((v ^ i64::MIN) as u64).to_be_bytes()
}

fn i128_bytes(v: i128) -> [u8; 16] {
    ((v ^ i128::MIN) as u128).to_be_bytes()
}

fn i256_bytes(v: i256) -> [u8; 32] {
    let mut bytes = v.to_be_bytes();
    bytes[0] ^= 0x80;
    bytes
}

/// Postgres' order: -0 equals 0, all NaN are equal and above infinity.
fn f64_bytes(v: f64) -> [u8; 8] {
    let bits = if v.is_nan() { f64::NAN.to_bits() & !(1 << 63) } else { (v + 0.0).to_bits() };
    (if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }).to_be_bytes()
}

fn f32_bytes(v: f32) -> [u8; 4] {
    let bits = if v.is_nan() { f32::NAN.to_bits() & !(1 << 31) } else { (v + 0.0).to_bits() };
    (if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }).to_be_bytes()
}

/// Length of an interval in nanoseconds with months of 30 days and days of 24 hours: what Postgres compares.
fn interval_span(v: IntervalMonthDayNano) -> i128 {
    (i128::from(v.months) * 30 + i128::from(v.days)) * DAY_NANOS + i128::from(v.nanoseconds)
}

/// The span decides the order; months and days follow so that the value can be read back.
fn interval_bytes(v: IntervalMonthDayNano) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&i128_bytes(interval_span(v)));
    bytes[16..20].copy_from_slice(&i32_bytes(v.months));
    bytes[20..].copy_from_slice(&i32_bytes(v.days));
    bytes
}

/// A decimal of any width and scale without trailing zeros: equal numbers give equal bytes. Only hashed, its order means nothing.
fn canonical_decimal(v: i256, scale: i8) -> [u8; 33] {
    let (mut v, mut scale) = (v, scale);
    if let Some(mut small) = v.to_i128() {
        while small != 0 && small % 10 == 0 {
            small /= 10;
            scale = scale.saturating_sub(1);
        }
        v = i256::from_i128(small);
    } else {
        let ten = i256::from_i128(10);
        while v.wrapping_rem(ten) == i256::ZERO {
            v = v.wrapping_div(ten);
            scale = scale.saturating_sub(1);
        }
    }
    let mut bytes = [0; 33];
    bytes[..32].copy_from_slice(&i256_bytes(v));
    bytes[32] = if v == i256::ZERO { 0 } else { scale as u8 };
    bytes
}
