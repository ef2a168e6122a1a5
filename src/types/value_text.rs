//! The text form of values as Postgres prints it: the wire's text format, casts to text, CSV, chunk tables.
//!
//! [`TextColumn`] resolves a column's type once; each value is then appended without allocating. [`crate::value_parse`] reads the
//! text back.

use arrow::array::*;
use arrow::datatypes::*;
use std::io::Write;

/// A column that can print its values.
pub enum TextColumn<'a> {
    /// All values are NULL.
    Null,
    /// `t` or `f`.
    Bool(&'a BooleanArray),
    /// Integers up to 64 bits.
    Int(IntColumn<'a>),
    /// Shortest digits that read back as the same value.
    Float32(&'a Float32Array),
    /// As `Float32`.
    Float64(&'a Float64Array),
    /// Digits and scale.
    Decimal(DecimalColumn<'a>, i8),
    /// Strings as they are.
    Utf8(&'a StringArray),
    /// Strings as they are.
    LargeUtf8(&'a LargeStringArray),
    /// Strings as they are.
    Utf8View(&'a StringViewArray),
    /// `\x` and hexadecimal digits.
    Bytes(BytesColumn<'a>),
    /// `2013-01-31`: days since the Unix epoch.
    Date(IntColumn<'a>, i64),
    /// `12:30:00.5`: nanoseconds of a unit.
    Time(IntColumn<'a>, i64),
    /// `2013-01-31 12:30:00.5`, with `+00` when there is a zone.
    Timestamp(IntColumn<'a>, TimeUnit, bool),
    /// `1 mon 2 days 03:00:00`.
    Interval(&'a IntervalMonthDayNanoArray),
    /// Printed as an interval of hours: nanoseconds of a unit.
    Duration(IntColumn<'a>, i64),
    /// `{1,2,NULL}`.
    List(&'a ListArray, Box<TextColumn<'a>>),
    /// `(1,a,)`.
    Struct(&'a StructArray, Vec<TextColumn<'a>>),
    /// Types that SQL has no text for: Arrow's.
    Other(&'a dyn Array),
}

/// The values of an integer-like column.
#[allow(missing_docs)]
pub enum IntColumn<'a> {
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
}

impl IntColumn<'_> {
    fn get(&self, row: usize) -> i128 {
        match self {
            IntColumn::I8(v) => v[row].into(),
            IntColumn::I16(v) => v[row].into(),
            IntColumn::I32(v) => v[row].into(),
            IntColumn::I64(v) => v[row].into(),
            IntColumn::U8(v) => v[row].into(),
            IntColumn::U16(v) => v[row].into(),
            IntColumn::U32(v) => v[row].into(),
            IntColumn::U64(v) => v[row].into(),
        }
    }

    fn get_i64(&self, row: usize) -> i64 {
        match self {
            IntColumn::I32(v) => v[row].into(),
            IntColumn::I64(v) => v[row],
            other => other.get(row) as i64,
        }
    }
}

/// The values of a decimal column.
#[allow(missing_docs)]
pub enum DecimalColumn<'a> {
    D32(&'a [i32]),
    D64(&'a [i64]),
    D128(&'a [i128]),
    D256(&'a [i256]),
}

/// The values of a column of byte strings.
#[allow(missing_docs)]
pub enum BytesColumn<'a> {
    Binary(&'a BinaryArray),
    Large(&'a LargeBinaryArray),
    View(&'a BinaryViewArray),
    Fixed(&'a FixedSizeBinaryArray),
}

impl BytesColumn<'_> {
    /// The bytes of a row.
    pub fn get(&self, row: usize) -> &[u8] {
        match self {
            BytesColumn::Binary(a) => a.value(row),
            BytesColumn::Large(a) => a.value(row),
            BytesColumn::View(a) => a.value(row),
            BytesColumn::Fixed(a) => a.value(row),
        }
    }
}

const SECOND: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

fn unit_nanos(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => SECOND,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

impl<'a> TextColumn<'a> {
    /// Resolves a column's type.
    pub fn new(column: &'a dyn Array) -> Self {
        use DataType as T;
        macro_rules! ints {
            ($variant:ident, $t:ty) => {
                IntColumn::$variant(column.as_primitive::<$t>().values())
            };
        }
        macro_rules! by_unit {
            ($unit:expr, $s:ty, $ms:ty, $us:ty, $ns:ty) => {
                match $unit {
                    TimeUnit::Second => ints!(I64, $s),
                    TimeUnit::Millisecond => ints!(I64, $ms),
                    TimeUnit::Microsecond => ints!(I64, $us),
                    TimeUnit::Nanosecond => ints!(I64, $ns),
                }
            };
        }
        match column.data_type() {
            T::Null => TextColumn::Null,
            T::Boolean => TextColumn::Bool(column.as_boolean()),
            T::Int8 => TextColumn::Int(ints!(I8, Int8Type)),
            T::Int16 => TextColumn::Int(ints!(I16, Int16Type)),
            T::Int32 => TextColumn::Int(ints!(I32, Int32Type)),
            T::Int64 => TextColumn::Int(ints!(I64, Int64Type)),
            T::UInt8 => TextColumn::Int(ints!(U8, UInt8Type)),
            T::UInt16 => TextColumn::Int(ints!(U16, UInt16Type)),
            T::UInt32 => TextColumn::Int(ints!(U32, UInt32Type)),
            T::UInt64 => TextColumn::Int(ints!(U64, UInt64Type)),
            T::Float32 => TextColumn::Float32(column.as_primitive()),
            T::Float64 => TextColumn::Float64(column.as_primitive()),
            T::Decimal32(_, s) => TextColumn::Decimal(DecimalColumn::D32(column.as_primitive::<Decimal32Type>().values()), *s),
            T::Decimal64(_, s) => TextColumn::Decimal(DecimalColumn::D64(column.as_primitive::<Decimal64Type>().values()), *s),
            T::Decimal128(_, s) => TextColumn::Decimal(DecimalColumn::D128(column.as_primitive::<Decimal128Type>().values()), *s),
            T::Decimal256(_, s) => TextColumn::Decimal(DecimalColumn::D256(column.as_primitive::<Decimal256Type>().values()), *s),
            T::Utf8 => TextColumn::Utf8(column.as_string()),
            T::LargeUtf8 => TextColumn::LargeUtf8(column.as_string()),
            T::Utf8View => TextColumn::Utf8View(column.as_string_view()),
            T::Binary => TextColumn::Bytes(BytesColumn::Binary(column.as_binary())),
            T::LargeBinary => TextColumn::Bytes(BytesColumn::Large(column.as_binary())),
            T::BinaryView => TextColumn::Bytes(BytesColumn::View(column.as_binary_view())),
            T::FixedSizeBinary(_) => TextColumn::Bytes(BytesColumn::Fixed(column.as_fixed_size_binary())),
            T::Date32 => TextColumn::Date(ints!(I32, Date32Type), 1),
            T::Date64 => TextColumn::Date(ints!(I64, Date64Type), DAY_SECONDS * 1000),
            T::Time32(TimeUnit::Second) => TextColumn::Time(ints!(I32, Time32SecondType), SECOND),
            T::Time32(_) => TextColumn::Time(ints!(I32, Time32MillisecondType), unit_nanos(TimeUnit::Millisecond)),
            T::Time64(TimeUnit::Nanosecond) => TextColumn::Time(ints!(I64, Time64NanosecondType), 1),
            T::Time64(_) => TextColumn::Time(ints!(I64, Time64MicrosecondType), unit_nanos(TimeUnit::Microsecond)),
            T::Timestamp(unit, zone) => {
                let values =
                    by_unit!(unit, TimestampSecondType, TimestampMillisecondType, TimestampMicrosecondType, TimestampNanosecondType);
                TextColumn::Timestamp(values, *unit, zone.is_some())
            }
            T::Duration(unit) => TextColumn::Duration(
                by_unit!(unit, DurationSecondType, DurationMillisecondType, DurationMicrosecondType, DurationNanosecondType),
                unit_nanos(*unit),
            ),
            T::Interval(IntervalUnit::MonthDayNano) => TextColumn::Interval(column.as_primitive()),
            T::List(_) => {
                let list = column.as_list::<i32>();
                TextColumn::List(list, Box::new(TextColumn::new(list.values().as_ref())))
            }
            T::Struct(_) => {
                let array = column.as_struct();
                TextColumn::Struct(array, array.columns().iter().map(|c| TextColumn::new(c.as_ref())).collect())
            }
            _ => TextColumn::Other(column),
        }
    }

    /// Appends the text of a value that is not NULL.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        match self {
            TextColumn::Null => {}
            TextColumn::Bool(a) => out.push(if a.value(row) { b't' } else { b'f' }),
            TextColumn::Int(a) => put(out, format_args!("{}", a.get(row))),
            TextColumn::Float32(a) => write_float(f64::from(a.value(row)), &format!("{:e}", a.value(row)), 6, out),
            TextColumn::Float64(a) => write_float(a.value(row), &format!("{:e}", a.value(row)), 15, out),
            TextColumn::Decimal(a, scale) => write_decimal(a, row, *scale, out),
            TextColumn::Utf8(a) => out.extend_from_slice(a.value(row).as_bytes()),
            TextColumn::LargeUtf8(a) => out.extend_from_slice(a.value(row).as_bytes()),
            TextColumn::Utf8View(a) => out.extend_from_slice(a.value(row).as_bytes()),
            TextColumn::Bytes(a) => {
                out.extend_from_slice(b"\\x");
                for byte in a.get(row) {
                    out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
                }
            }
            TextColumn::Date(a, per_day) => write_date(a.get_i64(row).div_euclid(*per_day), out),
            TextColumn::Time(a, nanos) => write_clock(i128::from(a.get_i64(row)) * i128::from(*nanos), out),
            TextColumn::Timestamp(a, unit, zone) => write_timestamp(a.get_i64(row), *unit, *zone, out),
            TextColumn::Interval(a) => {
                let v = a.value(row);
                write_interval(v.months, v.days, v.nanoseconds.into(), out);
            }
            TextColumn::Duration(a, nanos) => write_interval(0, 0, i128::from(a.get_i64(row)) * i128::from(*nanos), out),
            TextColumn::List(a, element) => write_list(a, element, row, out),
            TextColumn::Struct(a, fields) => write_struct(a, fields, row, out),
            TextColumn::Other(a) => match arrow::util::display::array_value_to_string(*a, row) {
                Ok(text) => out.extend_from_slice(text.as_bytes()),
                Err(e) => put(out, format_args!("<{e}>")),
            },
        }
    }

    /// The text of a value that is not NULL.
    pub fn text(&self, row: usize) -> String {
        let mut out = Vec::new();
        self.write(row, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn put(out: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("writing to a vector cannot fail");
}

/// `scientific` holds the shortest digits (`1.25e-7`); exponents from -4 up to `plain_digits` are written in full, as Postgres does.
fn write_float(value: f64, scientific: &str, plain_digits: i32, out: &mut Vec<u8>) {
    if !value.is_finite() {
        let text: &[u8] = if value.is_nan() {
            b"NaN"
        } else if value > 0.0 {
            b"Infinity"
        } else {
            b"-Infinity"
        };
        return out.extend_from_slice(text);
    }
    let (mantissa, exponent) = scientific.split_once('e').expect("Rust writes an exponent");
    let exponent: i32 = exponent.parse().expect("Rust writes a number");
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |m| ("-", m));
    out.extend_from_slice(sign.as_bytes());
    if !(-4..plain_digits).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return put(out, format_args!("{mantissa}e{sign}{:02}", exponent.abs()));
    }
    let digits = mantissa.replace('.', "");
    if exponent < 0 {
        put(out, format_args!("0.{:0>width$}", digits, width = digits.len() + exponent.unsigned_abs() as usize - 1));
    } else {
        let whole = exponent as usize + 1;
        if digits.len() <= whole {
            put(out, format_args!("{digits:0<whole$}"));
        } else {
            put(out, format_args!("{}.{}", &digits[..whole], &digits[whole..]));
        }
    }
}

fn write_decimal(column: &DecimalColumn<'_>, row: usize, scale: i8, out: &mut Vec<u8>) {
    let value = match column {
        DecimalColumn::D32(v) => v[row].into(),
        DecimalColumn::D64(v) => v[row].into(),
        DecimalColumn::D128(v) => v[row],
        DecimalColumn::D256(v) => match v[row].to_i128() {
            Some(small) => small,
            None => {
                let text = v[row].to_string();
                let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |d| ("-", d));
                out.extend_from_slice(sign.as_bytes());
                return write_scaled(digits, scale, out);
            }
        },
    };
    if value < 0 {
        out.push(b'-');
    }
    let mut buffer = [0u8; 40];
    let mut at = buffer.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    write_scaled(std::str::from_utf8(&buffer[at..]).expect("digits are ASCII"), scale, out);
}

fn write_scaled(digits: &str, scale: i8, out: &mut Vec<u8>) {
    if scale <= 0 {
        out.extend_from_slice(digits.as_bytes());
        if digits != "0" {
            out.extend(std::iter::repeat_n(b'0', usize::from(scale.unsigned_abs())));
        }
        return;
    }
    let scale = scale as usize;
    match digits.len().checked_sub(scale) {
        Some(whole @ 1..) => put(out, format_args!("{}.{}", &digits[..whole], &digits[whole..])),
        _ => put(out, format_args!("0.{digits:0>scale$}")),
    }
}

/// Year, month and day of a day number (Hinnant's `civil_from_days`), for any number of 64 bits that a timestamp can hold.
pub(crate) fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month as u32, day as u32)
}

/// Writes the date without an era; `true`: the year is before Christ.
fn write_civil(days: i64, out: &mut Vec<u8>) -> bool {
    let (year, month, day) = civil_from_days(days);
    let shown = if year > 0 { year } else { 1 - year };
    put(out, format_args!("{shown:04}-{month:02}-{day:02}"));
    year <= 0
}

fn write_date(days: i64, out: &mut Vec<u8>) {
    if write_civil(days, out) {
        out.extend_from_slice(b" BC");
    }
}

/// `HH:MM:SS` and the fraction without trailing zeros; more than 24 hours are allowed.
fn write_clock(nanos: i128, out: &mut Vec<u8>) {
    let second = i128::from(SECOND);
    let (seconds, fraction) = (nanos.div_euclid(second), nanos.rem_euclid(second));
    put(out, format_args!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60));
    if fraction != 0 {
        let digits = format!("{fraction:09}");
        put(out, format_args!(".{}", digits.trim_end_matches('0')));
    }
}

fn write_timestamp(value: i64, unit: TimeUnit, zone: bool, out: &mut Vec<u8>) {
    let per_second = SECOND / unit_nanos(unit);
    let seconds = value.div_euclid(per_second);
    let fraction = value.rem_euclid(per_second) * unit_nanos(unit);
    let before_christ = write_civil(seconds.div_euclid(DAY_SECONDS), out);
    out.push(b' ');
    write_clock(i128::from(seconds.rem_euclid(DAY_SECONDS)) * i128::from(SECOND) + i128::from(fraction), out);
    if zone {
        out.extend_from_slice(b"+00");
    }
    if before_christ {
        out.extend_from_slice(b" BC");
    }
}

/// Postgres' own style: `1 year -2 mons +3 days -04:05:06`.
fn write_interval(months: i32, days: i32, nanos: i128, out: &mut Vec<u8>) {
    let start = out.len();
    let mut negative = false;
    for (value, name) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if value != 0 {
            let blank = if out.len() > start { " " } else { "" };
            let sign = if negative && value > 0 { "+" } else { "" };
            let plural = if value == 1 { "" } else { "s" };
            put(out, format_args!("{blank}{sign}{value} {name}{plural}"));
            negative = value < 0;
        }
    }
    if nanos != 0 || out.len() == start {
        if out.len() > start {
            out.push(b' ');
        }
        match (nanos < 0, negative) {
            (true, _) => out.push(b'-'),
            (false, true) => out.push(b'+'),
            (false, false) => {}
        }
        write_clock(nanos.abs(), out);
    }
}

fn write_list(list: &ListArray, element: &TextColumn<'_>, row: usize, out: &mut Vec<u8>) {
    let offsets = list.value_offsets();
    out.push(b'{');
    for (i, at) in (offsets[row] as usize..offsets[row + 1] as usize).enumerate() {
        if i > 0 {
            out.push(b',');
        }
        if list.values().is_null(at) {
            out.extend_from_slice(b"NULL");
            continue;
        }
        let start = out.len();
        element.write(at, out);
        let special = |b: &u8| matches!(b, b'{' | b'}' | b',' | b'"' | b'\\' | 0x0b) || b.is_ascii_whitespace();
        let text = &out[start..];
        if !matches!(element, TextColumn::List(..)) && (text.is_empty() || text.eq_ignore_ascii_case(b"null") || text.iter().any(special)) {
            quote(out, start, b'\\');
        }
    }
    out.push(b'}');
}

fn write_struct(array: &StructArray, fields: &[TextColumn<'_>], row: usize, out: &mut Vec<u8>) {
    out.push(b'(');
    for (i, field) in fields.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        if array.column(i).is_null(row) || matches!(field, TextColumn::Null) {
            continue;
        }
        let start = out.len();
        field.write(row, out);
        let special = |b: &u8| matches!(b, b'(' | b')' | b',' | b'"' | b'\\' | 0x0b) || b.is_ascii_whitespace();
        if out.len() == start || out[start..].iter().any(special) {
            quote(out, start, b'"');
        }
    }
    out.push(b')');
}

/// Puts the text from `start` into double quotes; `escape` goes before quotes (a backslash is always doubled).
fn quote(out: &mut Vec<u8>, start: usize, escape: u8) {
    let text = out.split_off(start);
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.push(escape),
            b'\\' => out.push(b'\\'),
            _ => {}
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn texts(column: &dyn Array) -> Vec<String> {
        let text = TextColumn::new(column);
        (0..column.len()).map(|row| text.text(row)).collect()
    }

    #[test]
    fn floats_look_like_postgres() {
        let values = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            0.1,
            0.0001,
            0.00001,
            123_456_789_012_345.0,
            1e15,
            1.25e-7,
            1e300,
            f64::MAX,
            f64::NAN,
            f64::NEG_INFINITY,
        ];
        let expected = [
            "0",
            "-0",
            "1",
            "-1.5",
            "0.1",
            "0.0001",
            "1e-05",
            "123456789012345",
            "1e+15",
            "1.25e-07",
            "1e+300",
            "1.7976931348623157e+308",
            "NaN",
            "-Infinity",
        ];
        assert_eq!(texts(&Float64Array::from(values.to_vec())), expected);
        assert_eq!(
            texts(&Float32Array::from(vec![0.1, 100_000.0, 1_000_000.0, 16_777_216.0])),
            ["0.1", "100000", "1e+06", "1.6777216e+07"]
        );
    }

    #[test]
    fn decimals_keep_their_scale() {
        let d = Decimal128Array::from(vec![0, 5, -5, 12_345, i128::MAX]).with_precision_and_scale(38, 2).unwrap();
        assert_eq!(texts(&d), ["0.00", "0.05", "-0.05", "123.45", "1701411834604692317316873037158841057.27"]);
        let whole = Decimal128Array::from(vec![12]).with_precision_and_scale(10, 0).unwrap();
        assert_eq!(texts(&whole), ["12"]);
        let wide = Decimal256Array::from(vec![i256::MIN]).with_precision_and_scale(76, 3).unwrap();
        assert!(texts(&wide)[0].starts_with("-57896044618658097711785492504343953926634992332820282019728792003956564819"));
    }

    #[test]
    fn dates_and_times_look_like_postgres() {
        let days = Date32Array::from(vec![0, -1, 19_723, -719_529, 2_932_897]);
        assert_eq!(texts(&days), ["1970-01-01", "1969-12-31", "2024-01-01", "0002-12-31 BC", "10000-01-01"]);
        assert_eq!(texts(&TimestampMicrosecondArray::from(vec![-1, 1_500_000])), ["1969-12-31 23:59:59.999999", "1970-01-01 00:00:01.5"]);
        assert_eq!(texts(&TimestampMillisecondArray::from(vec![0]).with_timezone("UTC")), ["1970-01-01 00:00:00+00"]);
        assert_eq!(texts(&Time64MicrosecondArray::from(vec![45_296_000_001])), ["12:34:56.000001"]);
        // The borders of 64 bits print something, whatever it is.
        assert_eq!(texts(&TimestampSecondArray::from(vec![i64::MIN, i64::MAX])).len(), 2);
    }

    #[test]
    fn intervals_look_like_postgres() {
        let hours = |h: i64| h * 3_600_000_000_000;
        let cases = [
            ((0, 0, 0), "00:00:00"),
            ((14, 3, hours(4)), "1 year 2 mons 3 days 04:00:00"),
            ((-1, 3, -hours(4)), "-1 mons +3 days -04:00:00"),
            ((0, -1, hours(30) + 500_000_000), "-1 days +30:00:00.5"),
        ];
        for ((months, days, nanos), expected) in cases {
            let array = IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(months, days, nanos)]);
            assert_eq!(texts(&array), [expected]);
        }
    }

    #[test]
    fn lists_structs_and_bytes_quote_like_postgres() {
        let mut list = ListBuilder::new(StringBuilder::new());
        for value in [Some("a"), None, Some(""), Some("null"), Some("x y"), Some("q\"b\\")] {
            list.values().append_option(value);
        }
        list.append(true);
        assert_eq!(texts(&list.finish()), [r#"{a,NULL,"","null","x y","q\"b\\"}"#]);
        let fields = vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8, true)];
        let columns: Vec<ArrayRef> =
            vec![Arc::new(Int32Array::from(vec![Some(1), None])), Arc::new(StringArray::from(vec!["x y", "say \"hi\""]))];
        assert_eq!(texts(&StructArray::new(fields.into(), columns, None)), [r#"(1,"x y")"#, r#"(,"say ""hi""")"#]);
        assert_eq!(texts(&BinaryArray::from(vec![&[0u8, 0xAB][..]])), ["\\x00ab"]);
    }
}
