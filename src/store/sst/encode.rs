//! Blocks to and from Arrow IPC messages.
//!
//! A block is one encapsulated IPC RecordBatch message: `_key`, then `_epoch` and `_tombstone` if it needs them, then the table's columns.
//! Keys of one length are stored as FixedSizeBinary: offsets would only repeat that length, and they compress badly.

use super::format::{BlockEntry, HAS_EPOCHS, HAS_TOMBSTONES, Part, crc};
use crate::block::{self, Block, Epochs};
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, FixedSizeBinaryArray, UInt64Array};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, UInt64Type};
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message};
use arrow_ipc::{Block as IpcBlock, CompressionType, MetadataVersion};
use bytes::Bytes;
use eddyline_types::{Error, Result};
use std::sync::Arc;

/// Encodes blocks; keeps buffers between them.
pub(crate) struct BlockEncoder {
    options: IpcWriteOptions,
    generator: IpcDataGenerator,
    context: IpcWriteContext,
}

impl BlockEncoder {
    pub(crate) fn new() -> Result<Self> {
        let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5)?.try_with_compression(Some(CompressionType::LZ4_FRAME))?;
        Ok(BlockEncoder { options, generator: IpcDataGenerator::default(), context: Default::default() })
    }

    /// Appends the block to `out`; the entry tells where it is. The block is not empty.
    pub(crate) fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<BlockEntry> {
        let start = out.len();
        let key_len = common_key_length(&block.keys);
        let mut flags = 0;
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(block.rows.num_columns() + 3);
        columns.push(stored_keys(&block.keys, key_len)?);
        if let Epochs::Each(epochs) = &block.epochs {
            flags |= HAS_EPOCHS;
            columns.push(Arc::new(UInt64Array::new(epochs.clone(), None)));
        }
        if let Some(tombstones) = &block.tombstones {
            flags |= HAS_TOMBSTONES;
            columns.push(Arc::new(BooleanArray::new(tombstones.clone(), None)));
        }
        columns.extend(block.rows.columns().iter().cloned());
        let schema = stored_schema(block.rows.schema().as_ref(), key_len, flags);
        let batch = block::batch(schema, columns, block.len())?;
        let (_, encoded) = self.generator.encode(&batch, &mut DictionaryTracker::new(false), &self.options, &mut self.context)?;
        let (metadata_len, _) = write_message(&mut *out, encoded, &self.options)?;
        let bytes = &out[start..];
        Ok(BlockEntry {
            part: Part { offset: start as u64, len: bytes.len() as u32, crc: crc(bytes) },
            metadata_len: metadata_len as u32,
            rows: block.len() as u32,
            key_len,
            flags,
            epochs: block.epoch_range(),
        })
    }
}

/// Decodes a block whose checksum was verified. `columns`: positions in the table's schema, or all. The error says what is wrong.
pub(crate) fn decode(entry: &BlockEntry, schema: &SchemaRef, columns: Option<&[usize]>, bytes: Bytes) -> Result<Block, String> {
    let stored = stored_schema(schema, entry.key_len, entry.flags);
    let leading = stored.fields().len() - schema.fields().len();
    let mut decoder = FileDecoder::new(stored, MetadataVersion::V5);
    if let Some(columns) = columns {
        decoder = decoder.with_projection((0..leading).chain(columns.iter().map(|c| c + leading)).collect());
    }
    let body = bytes.len().checked_sub(entry.metadata_len as usize).ok_or("its metadata is longer than the block")?;
    let place = IpcBlock::new(0, entry.metadata_len as i32, body as i64);
    let batch = decoder.read_record_batch(&place, &Buffer::from(bytes)).map_err(|e| e.to_string())?.ok_or("it holds no rows")?;
    if batch.num_rows() != entry.rows as usize || batch.num_rows() == 0 {
        return Err(format!("it holds {} rows instead of {}", batch.num_rows(), entry.rows));
    }
    let rows = batch.num_rows();
    let mut arrays = batch.columns().iter().cloned();
    let keys = loaded_keys(arrays.next().ok_or("it has no keys")?, entry.key_len)?;
    let epochs = if entry.flags & HAS_EPOCHS != 0 {
        Epochs::Each(arrays.next().ok_or("it has no epochs")?.as_primitive::<UInt64Type>().values().clone())
    } else {
        Epochs::Same(entry.epochs.0)
    };
    let tombstones = match entry.flags & HAS_TOMBSTONES {
        0 => None,
        _ => Some(arrays.next().ok_or("it has no tombstones")?.as_boolean().values().clone()),
    };
    let shown: SchemaRef = match columns {
        None => schema.clone(),
        Some(columns) => Arc::new(schema.project(columns).map_err(|e| e.to_string())?),
    };
    let rows = block::batch(shown, arrays.collect(), rows).map_err(|e| e.to_string())?;
    Ok(Block { keys, epochs, tombstones, rows })
}

/// The length of all keys if it is the same and not 0, else 0.
fn common_key_length(keys: &BinaryArray) -> u32 {
    let offsets = keys.value_offsets();
    let len = offsets[1] - offsets[0];
    if offsets.windows(2).all(|w| w[1] - w[0] == len) { len as u32 } else { 0 }
}

fn stored_keys(keys: &BinaryArray, key_len: u32) -> Result<ArrayRef> {
    if key_len == 0 {
        return Ok(Arc::new(keys.clone()));
    }
    let start = keys.value_offsets()[0] as usize;
    let values = keys.values().slice_with_length(start, key_len as usize * keys.len());
    Ok(Arc::new(FixedSizeBinaryArray::try_new(key_len as i32, values, None)?))
}

fn loaded_keys(array: ArrayRef, key_len: u32) -> Result<BinaryArray, String> {
    if array.null_count() > 0 {
        return Err("a key is null".into());
    }
    if key_len == 0 {
        return Ok(array.as_binary::<i32>().clone());
    }
    let fixed = array.as_fixed_size_binary();
    let offsets = OffsetBuffer::from_repeated_length(key_len as usize, fixed.len());
    BinaryArray::try_new(offsets, fixed.values().clone(), None).map_err(|e| e.to_string())
}

fn stored_schema(table: &Schema, key_len: u32, flags: u8) -> SchemaRef {
    let key_type = if key_len == 0 { DataType::Binary } else { DataType::FixedSizeBinary(key_len as i32) };
    let mut fields: Vec<FieldRef> = vec![Arc::new(Field::new("_key", key_type, false))];
    if flags & HAS_EPOCHS != 0 {
        fields.push(Arc::new(Field::new("_epoch", DataType::UInt64, false)));
    }
    if flags & HAS_TOMBSTONES != 0 {
        fields.push(Arc::new(Field::new("_tombstone", DataType::Boolean, false)));
    }
    fields.extend(table.fields().iter().cloned());
    Arc::new(Schema::new(fields))
}

/// The bytes that keep a table's schema.
pub(crate) fn encode_schema(schema: &Schema) -> Vec<u8> {
    arrow_ipc::convert::IpcSchemaEncoder::new().schema_to_fb(schema).finished_data().to_vec()
}

/// The table's schema back. The error says what is wrong.
pub(crate) fn decode_schema(bytes: &[u8]) -> Result<SchemaRef, String> {
    // `try_schema_from_flatbuffer_bytes` wants a whole IPC message around the schema; what is stored is the schema alone.
    let schema = arrow_ipc::root_as_schema(bytes).map_err(|e| e.to_string())?;
    Ok(Arc::new(arrow_ipc::convert::fb_to_schema(schema)))
}

/// Refuses what blocks cannot hold: dictionaries would need messages of their own.
pub(crate) fn check_schema(schema: &Schema) -> Result<()> {
    match schema.flattened_fields().iter().find(|f| matches!(f.data_type(), DataType::Dictionary(..))) {
        Some(field) => Err(Error::internal(format!("column \"{}\" has a dictionary type, which state tables cannot store", field.name()))),
        None => Ok(()),
    }
}
