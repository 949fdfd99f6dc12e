import { closeSync, createReadStream, openSync, readSync } from 'node:fs';
import { pipeline } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';

/** Returns a file's contents, decompressed according to its first bytes: gzip, zstd, or uncompressed. */
export function decompressed(file: string): AsyncIterable<Uint8Array> {
  const head = Buffer.alloc(4);
  const fd = openSync(file, 'r');
  readSync(fd, head, 0, 4, 0);
  closeSync(fd);
  const source = createReadStream(file, { highWaterMark: 256 * 1024 });
  const unpacker =
    head.readUInt16BE(0) === 0x1f8b
      ? createGunzip()
      : head.readUInt32LE(0) === 0xfd2fb528
        ? createZstdDecompress()
        : null;
  if (!unpacker) return source;
  // An error of either reaches the reader.
  return pipeline(source, unpacker, () => {});
}
