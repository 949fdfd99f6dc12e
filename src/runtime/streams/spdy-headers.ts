import { constants, createInflate } from 'node:zlib';
import { FairleadError } from '../../lib/errors.ts';

const WORDS =
  'options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow ' +
  'authorization cache-control connection content-base content-encoding content-language content-length ' +
  'content-location content-md5 content-range content-type date etag expect expires from host if-match ' +
  'if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma ' +
  'proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade ' +
  'user-agent vary via warning www-authenticate method get status 200~OK version HTTP/1.1 url public set-cookie ' +
  'keep-alive origin';
const TAIL =
  '100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative ' +
  'Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 ' +
  'Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec ' +
  '00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,' +
  'application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=' +
  'iso-8859-1,utf-,*,enq=0.';

/** More than any header block of the supported protocols, which have three short headers. */
const MAX_BYTES = 64 * 1024;

/** Returns the dictionary of SPDY/3's header compression (draft-mbelshe-httpbis-spdy-00, 2.6.10.1). */
function dictionary(): Buffer {
  const words = WORDS.split(' ').map((word) => lengthPrefixed(word.replace('~', ' ')));
  return Buffer.concat([...words, Buffer.from(TAIL)]);
}

/** Decompresses the header blocks of one direction of a connection, which share one compression context. */
export class HeaderDecoder {
  readonly #inflate = createInflate({ dictionary: dictionary(), flush: constants.Z_SYNC_FLUSH });
  #chunks: Buffer[] = [];
  #length = 0;
  #fail: (error: Error) => void = () => {};

  constructor() {
    this.#inflate.on('data', (chunk: Buffer) => {
      this.#chunks.push(chunk);
      this.#length += chunk.length;
      if (this.#length <= MAX_BYTES) return;
      this.#fail(malformed('a SPDY header block is too long'));
      this.#inflate.destroy();
    });
    this.#inflate.on('error', (error) => this.#fail(error));
  }

  /** Decodes a block; names are in lower case. Blocks must be passed in order. Rejects if the block is malformed. */
  async decode(block: Buffer): Promise<Map<string, string>> {
    this.#chunks = [];
    this.#length = 0;
    await new Promise<void>((resolve, reject) => {
      this.#fail = reject;
      this.#inflate.write(block, (error) => (error ? reject(error) : resolve()));
    });
    return parseHeaders(Buffer.concat(this.#chunks));
  }

  close(): void {
    this.#inflate.destroy();
  }
}

function parseHeaders(block: Buffer): Map<string, string> {
  const headers = new Map<string, string>();
  let at = 0;
  const number = () => {
    if (at + 4 > block.length) throw malformed('a SPDY header block ends early');
    at += 4;
    return block.readUInt32BE(at - 4);
  };
  const text = () => {
    const length = number();
    if (at + length > block.length) throw malformed('a SPDY header block ends early');
    at += length;
    return block.toString('utf8', at - length, at);
  };
  for (let count = number(); count > 0; count--) {
    const name = text().toLowerCase();
    headers.set(name, text());
  }
  return headers;
}

/** An empty stored block, as produced by a flush: without it readers wait for more. */
const FLUSH = Buffer.from([0, 0, 0, 0xff, 0xff]);

/**
 * Creates an encoder for header blocks of one direction. Blocks are stored, not compressed: a deflate stream may
 * contain plain blocks, and the responses here have no headers.
 */
export function createHeaderEncoder(): (headers: ReadonlyMap<string, string>) => Buffer {
  let first = true;
  return (headers) => {
    const count = Buffer.alloc(4);
    count.writeUInt32BE(headers.size);
    const block = Buffer.concat([
      count,
      ...[...headers].flatMap(([name, value]) => [lengthPrefixed(name), lengthPrefixed(value)]),
    ]);
    const stored = Buffer.alloc(5);
    stored.writeUInt16LE(block.length, 1);
    stored.writeUInt16LE(~block.length & 0xffff, 3);
    const start = first ? Buffer.from([0x78, 0x01]) : Buffer.alloc(0);
    first = false;
    return Buffer.concat([start, stored, block, FLUSH]);
  };
}

function lengthPrefixed(text: string): Buffer {
  const bytes = Buffer.from(text);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
}

const malformed = (message: string): FairleadError =>
  new FairleadError(message, { op: 'read SPDY stream', code: 'bad-upgrade' });
